"""Why a large scale of FedGELA's logits fails without normalization; see publication.measured."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from publication.measured import Rows, grouped
from tff_pcdd.results import confusion
from tff_pcdd.results.reading import Directory
from tff_pcdd.training import ExperimentConfig, RunOptions, run_experiment

SEEDS = 0, 1, 2
SCALES = "1", "10", "100", "1e5"
NETWORKS = {"simple_cnn": "Simple-CNN", "simple_cnn_bn": "with batch normalization"}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"algorithm": "fedavg"},
    **{
        f"FedGELA, s = {scale}": {"algorithm": "fedgela", "fedgela_scale": float(scale)}
        for scale in SCALES
    },
    **{
        f"batch-normalized features, s = {scale}": {
            "algorithm": "fedgela",
            "fedgela_scale": float(scale),
            "fedgela_features": "bn",
        }
        for scale in ("1", "1e5")
    },
}
SETTINGS: dict[str, Any] = {
    "dataset": "cifar10",
    "max_train_samples": 5000,
    "max_test_samples": 2000,
    "num_clients": 10,
    "classes_per_client": 2,
    "rounds": 10,
    "local_epochs": 10,
    "batch_size": 50,
    "client_learning_rate": 0.01,
    "client_weight_decay": 1e-4,
    "client_clip_norm": 20.0,
    "projection_dim": 84,
    "personal_eval_every": 0,
}

# The measures of the last round, with the headings and digits of the page.
_MEASURES = {
    "ga": ("GA", 1),
    "pa_before": ("PA before", 1),
    "diag_alignment_own": ("own cosine", 3),
    "diag_alignment_missing": ("nearest is missing", 2),
    "diag_alignment_common": ("parallel", 2),
}
_ANSWER, _GRADIENT = "commonest answer", "first gradient"


def compute(directory: Path, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The figures of the runs, which are trained or continued in folders of `directory`."""
    options = RunOptions(diagnostics="alignment", tensorboard=False, progress=False)
    for seed, network, (name, method) in itertools.product(SEEDS, NETWORKS, METHODS.items()):
        own = {**SETTINGS, **data, **method, "model": network, "seed": seed}
        folder = f"{network}_{'_'.join(map(str, method.values()))}_{seed}"
        run_experiment(ExperimentConfig.from_settings(**own), directory / folder, options)
        run = Directory(directory / folder)
        (*_, last), answers = run.history(), confusion.read(run, None).of_global
        assert answers is not None
        row = {heading: last[column] for column, (heading, _) in _MEASURES.items()}
        row[_ANSWER] = answers.sum(axis=0).max() / answers.sum()
        row[_GRADIENT] = first_gradient(own)
        yield {"network": network, "method": name, "seed": seed} | {
            heading: f"{value:.6g}" for heading, value in row.items()
        }


def first_gradient(settings: Mapping[str, Any]) -> float:
    """The median over clients of the length of the loss's gradient at the initial weights.

    It is taken from a step of plain SGD on all samples of a client at once.
    """
    import numpy as np

    from tff_pcdd import Simulation

    rate = 0.01
    plain = {"client_momentum": 0.0, "client_weight_decay": 0.0, "client_clip_norm": 0.0}
    one_step = {"batch_size": settings["max_train_samples"], "local_epochs": 1, "rounds": 1}
    config = ExperimentConfig.from_settings(
        **{**settings, **plain, **one_step, "client_learning_rate": rate}
    )
    lengths = []
    with Simulation(config) as simulation:
        before = simulation.state.weights
        for client in range(simulation.federation.num_clients):
            local, _, _ = simulation.invoke(
                simulation.process.next,
                simulation.state,
                [simulation.store.get(client)],
                [simulation.client_data(client)],
            )
            change = [
                np.asarray(new, float) - np.asarray(old, float)
                for new, old in zip(local.weights["trainable"], before["trainable"], strict=True)
            ]
            lengths.append(math.sqrt(sum(float(np.sum(part**2)) for part in change)) / rate)
    return statistics.median(lengths)


def tables(rows: Rows) -> dict[str, str]:
    """A table for each network."""
    columns = {**dict(_MEASURES.values()), _ANSWER: 2, _GRADIENT: 1}
    return {
        network: grouped([row for row in rows if row["network"] == network], ["method"], columns)
        for network in NETWORKS
    }
