"""TensorBoard event files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.training.callbacks import Callback

FOLDER = "tensorboard"


class TensorBoard(Callback):
    """Writes every measurement as a scalar, with the round as its step."""

    _folder: Path

    def __init__(self):
        self._writer: Any = None

    def on_start(self, run):
        import tensorflow as tf

        self._folder = run.directory / FOLDER
        files.make_directory(self._folder)
        with files.writing(self._folder, tf.errors.OpError):
            self._writer = tf.summary.create_file_writer(os.fspath(self._folder))

    def on_round(self, run, row):
        if row is None:
            return
        import tensorflow as tf

        with files.writing(self._folder, tf.errors.OpError):
            with self._writer.as_default(step=row["round"]):
                for name, value in row.items():
                    if name != "round" and value is not None:
                        tf.summary.scalar(name, value)
            self._writer.flush()

    def on_end(self, run):
        import tensorflow as tf

        with files.writing(self._folder, tf.errors.OpError):
            self._writer.close()
