"""Nested structures of arrays on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import files


def save_tree(path: Path, tree: Any) -> None:
    """Saves the leaves of a nested structure, in `tf.nest` order."""
    leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(tree)]
    files.write_atomically(path, lambda file: np.savez(file, *leaves))


def load_tree(path: Path, template: Any) -> Any:
    """Loads what `save_tree` saved, in the structure of `template`.

    Raises:
        ValueError: the shapes or types differ from those of the template.
    """
    expected = [np.asarray(leaf) for leaf in tf.nest.flatten(template)]
    with np.load(path, allow_pickle=False) as file:
        leaves = [file[f"arr_{index}"] for index in range(len(file.files))]
    if [(a.shape, a.dtype) for a in leaves] != [(a.shape, a.dtype) for a in expected]:
        raise ValueError(f"{path} was written for another model or method")
    return tf.nest.pack_sequence_as(template, leaves)


def to_numpy(tree: Any) -> Any:
    """The same structure with NumPy arrays as leaves."""
    return tf.nest.map_structure(np.asarray, tree)
