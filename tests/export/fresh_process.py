"""Runs SavedModels where this project is not installed; called by test_exporter.

    python -I -S fresh_process.py SITE_PACKAGES INPUTS.npz OUTPUTS.npz

Names of the inputs are the models' directories. Neither the folder of the clone nor what pip puts
on the path for it is there: -S leaves .pth files unread.
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
