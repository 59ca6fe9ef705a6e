"""Command-line programs: `python -m tasks.NAME` in a clone, `tff-pcdd-NAME` where installed."""

import os

# TensorFlow's start-up notes about processor features and missing GPUs would bury the output of a
# program; real failures arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
