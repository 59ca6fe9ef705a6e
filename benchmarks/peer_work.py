"""The work that is given to the programs of peers, and this project's own program for it.

`python -m benchmarks.peer_work WORKLOAD CONTENDER PRECISION`, with the fields of the
workload as JSON, answers the same requests as the programs in the folder `peers`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks import plain
from benchmarks.workloads import Rounds, Workload
from tff_pcdd import federated, runtime
from tff_pcdd.draws import fold_in
from tff_pcdd.experiment.cohorts import derive_seed
from tff_pcdd.federated import TrainingSpec
from tff_pcdd.federated import state as states

# The kinds of layers in the names of weights.
_KINDS = {
    tf.keras.layers.Conv2D: "conv",
    tf.keras.layers.Dense: "dense",
    tf.keras.layers.BatchNormalization: "norm",
    tf.keras.layers.Embedding: "embedding",
    tf.keras.layers.LSTM: "lstm",
}


def write(workload: Workload, rounds: int, path: Path) -> None:
    """Writes what a program needs to know to do the work of this project's rounds.

    Args:
        workload: the size of a round.
        rounds: number of rounds for which the order of the samples is given.
        path: of an npz file: raw images x uint8 [clients, samples, height, width, channels], or
            texts as ids [clients, samples, length]; labels y int32 [clients, samples]; orders int32
            [rounds, clients, epochs, samples]; the initial weights by name; the settings as JSON.
    """
    spec, clients = workload.build()
    names = weight_names(spec)
    with tf.device("CPU"):
        weights = states.initial_weights(spec)
    inputs = spec.input_spec
    # The workloads train by SGD, the default.
    optimizer: Any = spec.optimizer
    channels = 1 if workload.is_text else inputs.shape[-1]
    settings = {
        "model": workload.model,
        "batch_size": workload.batch_size,
        "epochs": workload.epochs,
        "learning_rate": optimizer.learning_rate,
        "momentum": optimizer.momentum,
        "weight_decay": optimizer.weight_decay,
        "clip_norm": optimizer.clip_norm,
        "scale": inputs.scale,
        "mean": inputs.mean or (0.0,) * channels,
        "std": inputs.std or (1.0,) * channels,
    }
    np.savez(
        path,
        x=np.stack([client.x for client in clients]),
        y=np.stack([client.y for client in clients]),
        orders=_orders(workload, rounds),
        settings=json.dumps(settings),
        **{f"weights/{name}": value for name, value in _named(names, weights).items()},  # type: ignore[arg-type]
    )


def weight_names(spec: TrainingSpec) -> list[str]:
    """The names of the averaged variables: kind of layer, its number within its kind, variable."""
    names, counts = {}, dict.fromkeys(_KINDS.values(), 0)
    with spec.outline() as net:
        # Keras sorts layers by depth, but numbers them as they are made.
        layers = [layer for layer in net["backbone"].layers if layer.weights]
        for layer in [*sorted(layers, key=lambda layer: _number(layer.name)), net["head"]]:
            kind = next(kind for cls, kind in _KINDS.items() if isinstance(layer, cls))
            for variable in layer.weights:
                name = variable.name.partition(":")[0].rpartition("/")[2]
                names[variable.ref()] = f"{kind}_{counts[kind]}/{name}"
            counts[kind] += 1
        return [names[variable.ref()] for variable in net.shared.all]


def _number(name: str) -> int:
    suffix = name.rpartition("_")[2]
    return int(suffix) if suffix.isdecimal() else 0


def _named(names: Sequence[str], weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    values = [*weights["trainable"], *weights["statistics"]]
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _orders(workload: Workload, rounds: int) -> np.ndarray:
    """The order in which local training takes samples, see `federated.local_training`."""
    return np.stack(
        [
            [
                [
                    tf.random.experimental.stateless_shuffle(
                        tf.range(workload.samples),
                        seed=fold_in(fold_in(derive_seed(0, number, client), 0), epoch),
                    ).numpy()
                    for epoch in range(workload.epochs)
                ]
                for client in range(workload.clients)
            ]
            for number in range(rounds)
        ]
    )


def _own_rounds(spec: TrainingSpec, clients) -> tuple[Callable, Callable]:
    rounds = Rounds(federated.build_process(spec), clients)
    names = weight_names(spec)
    return rounds.next, lambda: _named(names, rounds.state.weights)


def _plain_rounds(spec: TrainingSpec, clients) -> tuple[Callable, Callable]:
    return plain.PlainLoop(spec, clients).next, dict


_CONTENDERS: Mapping[str, Callable] = {"inprocess": _own_rounds, "plain": _plain_rounds}


def main() -> None:
    """Answers requests until the end of the standard input."""
    fields, contender, precision = sys.argv[1:]
    workload = Workload(**json.loads(fields))
    with runtime.use("inprocess"):
        next_round, weights = _CONTENDERS[contender](*workload.build(precision=precision))
        versions = {"tensorflow": tf.__version__}
        print(json.dumps({"versions": versions}), flush=True)
        for line in sys.stdin:
            request, _, path = line.strip().partition(" ")
            if request == "round":
                next_round()
            else:
                np.savez(path, **weights())
            print(json.dumps({"done": request}), flush=True)


if __name__ == "__main__":
    main()
