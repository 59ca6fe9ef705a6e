"""A process that has only TensorFlow, as that of someone who uses an exported model."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

from tests import support


class FreshProcess:
    """A process that cannot import the project, and answers for exported models.

    Args:
        directory: for inputs and answers.
    """

    def __init__(self, directory: Path):
        self._answers = directory / "answers.npz"
        np.save(directory / "images.npy", support.TEST["x"])
        script = Path(__file__).with_name("answers.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, sysconfig.get_paths()["purelib"], directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def answers(self, model: Path) -> dict[str, np.ndarray]:
        """The answers of a SavedModel to the test images."""
        self._process.stdin.write(f"{model}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "answered\n", "the fresh process failed"
        with np.load(self._answers) as answers:
            return dict(answers)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()
