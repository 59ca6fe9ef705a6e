"""Runs SavedModels in a process that cannot import this project; called by test_exporter.

    python -I -S fresh_process.py SITE_PACKAGES INPUTS.npz OUTPUTS.npz

The names of the inputs are the directories of the models. The project is not on the path: -I
excludes the current directory, and -S ignores the .pth files of pip.
"""

import importlib.util
import sys

sys.path.append(sys.argv[1])

import numpy as np
import tensorflow as tf

assert importlib.util.find_spec("tff_pcdd") is None
assert importlib.util.find_spec("tasks") is None

outputs = {}
with np.load(sys.argv[2]) as inputs:
    for directory, images in inputs.items():
        model = tf.saved_model.load(directory)
        answers = model.signatures["serving_default"](images=tf.constant(images))
        for name, value in answers.items():
            array = value.numpy()
            outputs[f"{directory}:{name}"] = array.astype("S") if array.dtype == object else array
np.savez(sys.argv[3], **outputs)
