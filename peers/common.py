"""What the programs of all peers share: the workload, and the requests of the benchmark.

A program is started as `python peers/NAME.py WORKLOAD PRECISION`. It prints a line of JSON when it
is ready, computes a round for each line `round` on its standard input, saves its weights for a line
`weights PATH`, and answers every request with a line of JSON. The programs run in environments of
their own and do not import tff_pcdd.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np


class Workload:
    """The work of a round, as `benchmarks.peer_work` writes it.

    Args:
        path: the npz file.

    Attributes:
        model: "simple_cnn", "resnet18", "wide_resnet" or "lstm".
        images: normalized, float32 [clients, samples, height, width, channels]; or texts as ids,
            uint8 [clients, samples, length].
        labels: int32 [clients, samples].
        weights: the initial weights by name, in Keras' layout (kernels of convolutions are
            [height, width, in, out], those of dense layers [in, out]).
        batch_size, epochs, learning_rate, momentum, weight_decay: of local training.
        clip_norm: maximum global norm of a gradient; 0 for no clipping.
    """

    def __init__(self, path: str):
        with np.load(path) as file:
            settings = json.loads(str(file["settings"]))
            self.images = file["x"]
            # Texts have no height and no channels.
            if self.images.ndim > 3:
                stored = self.images.astype(np.float32) * np.float32(settings["scale"])
                self.images = (stored - np.asarray(settings["mean"], np.float32)) / np.asarray(
                    settings["std"], np.float32
                )
            self.labels = file["y"]
            self._orders = file["orders"]
            self.weights = {
                name.removeprefix("weights/"): file[name]
                for name in file.files
                if name.startswith("weights/")
            }
        self.model: str = settings["model"]
        self.batch_size: int = settings["batch_size"]
        self.epochs: int = settings["epochs"]
        self.learning_rate: float = settings["learning_rate"]
        self.momentum: float = settings["momentum"]
        self.weight_decay: float = settings["weight_decay"]
        self.clip_norm: float = settings["clip_norm"]

    @property
    def clients(self) -> int:
        """The number of clients, all of which take part."""
        return len(self.labels)

    def order(self, round_number: int, client: int, epoch: int) -> np.ndarray:
        """The order of a client's samples in an epoch, int32 [samples]."""
        return self._orders[round_number % len(self._orders), client, epoch]


def serve(
    next_round: Callable[[], object],
    weights: Callable[[], Mapping[str, np.ndarray]],
    packages: Sequence[str],
) -> None:
    """Answers requests until the end of the standard input.

    Args:
        next_round: computes a round.
        weights: the global weights by name, in Keras' layout.
        packages: the packages whose versions are reported.
    """
    # Libraries may print; what they print must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    versions = {name: importlib.metadata.version(name) for name in packages}
    print(json.dumps({"versions": versions}), file=answers)
    for line in sys.stdin:
        request, _, path = line.strip().partition(" ")
        if request == "round":
            next_round()
        else:
            np.savez(path, **weights())
        print(json.dumps({"done": request}), file=answers)
