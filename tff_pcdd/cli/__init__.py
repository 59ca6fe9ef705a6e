"""Command-line programs: `python -m tasks.NAME` in a clone, `tff-pcdd NAME` when installed."""

import os
import sys

from tff_pcdd import stack

if stack.wrong_python() is not None:
    sys.exit(2)  # `import tff_pcdd` has said why

# Hides the start-up messages of TensorFlow about processor features and missing GPUs; failures
# still raise exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
