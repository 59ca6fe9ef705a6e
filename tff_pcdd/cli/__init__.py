"""Command-line programs: `python -m tasks.NAME` in a clone, `tff-pcdd-NAME` when installed."""

import os

# Hides the start-up messages of TensorFlow about processor features and missing GPUs; failures
# still raise exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
