"""Answers of SavedModels in a process that cannot import this project; called by `fresh_process`.

    python -I -S answers.py SITE_PACKAGES DIRECTORY

Reads the directory of a model from each line of the standard input, writes its answers to the
images in DIRECTORY/images.npy as DIRECTORY/answers.npz, and prints "answered".
"""

import importlib.util
import pathlib
import sys

sys.path.append(sys.argv[1])

import numpy as np
import tensorflow as tf

assert importlib.util.find_spec("tff_pcdd") is None

directory = pathlib.Path(sys.argv[2])
images = tf.constant(np.load(directory / "images.npy"))
for line in sys.stdin:
    model = tf.saved_model.load(line.rstrip("\n"))
    answers = model.signatures["serving_default"](images=images)
    numbers = {name: answers[name].numpy() for name in ("probabilities", "class_id")}
    np.savez(directory / "answers.npz", **numbers)
    print("answered", flush=True)
