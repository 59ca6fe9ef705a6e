"""Command-line programs, each run as `python -m tasks.<name>`."""

import os

# TensorFlow's start-up notes about CPU features and missing GPUs bury a program's own output;
# what really fails arrives as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
