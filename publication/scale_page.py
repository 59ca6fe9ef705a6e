"""The page about FedGELA's scale, docs/studies/fedgela_scale.md, and the runs behind it.

    python -m publication.scale_page --data_dir=DIR --output_dir=runs/fedgela_scale
    python -m publication.scale_page

With --output_dir, all runs are computed there, or continued, and their figures are written beside
the page as fedgela_scale.csv. The page is made from this file.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import files, tables
from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.training import ExperimentConfig, Run, RunOptions

PAGE = Path(__file__).parents[1] / "docs" / "studies" / "fedgela_scale.md"

SEEDS = 0, 1, 2
NETWORKS = {"simple_cnn": "Simple-CNN", "simple_cnn_bn": "Simple-CNN with batch normalization"}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"algorithm": "fedavg"},
    **{
        f"FedGELA, scale {scale:g}": {"algorithm": "fedgela", "fedgela_scale": scale}
        for scale in (1.0, 10.0, 100.0, 1e5)
    },
    **{
        f"FedGELA, batch-normalized features, scale {scale:g}": {
            "algorithm": "fedgela",
            "fedgela_scale": scale,
            "fedgela_features": "bn",
        }
        for scale in (1.0, 1e5)
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

_GRADIENT = "gradient"
_COLUMNS = {
    "ga": "GA",
    "pa_before": "PA before",
    "diag_alignment_own": "own cosine",
    "diag_alignment_missing": "closest is missing (%)",
    "diag_alignment_common": "parallel",
    "diag_feature_norm": "feature length",
    _GRADIENT: "first gradient",
}


def needed_cosine(scale: float, *, classes: int = 10, held: int = 2, loss: float = 0.01) -> float:
    """The cosine to the own column from which FedGELA's cross-entropy is below `loss`.

    For unit features in the direction of their class's column and equally many samples of the
    client's `held` classes, so that Φ is classes / held for them and 0 for the others: the logit of
    the own class is scale·Φ·cos, those of the other held classes -scale·Φ·cos/(classes - 1), and
    those of the missing classes 0. May exceed 1, which no feature reaches.
    """

    def cross_entropy(cosine: float) -> float:
        logit = scale * classes / held * cosine
        others = (held - 1) * math.exp(-logit * classes / (classes - 1))
        return math.log1p(others + (classes - held) * math.exp(-logit))

    low, high = 0.0, 100.0 / scale
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cross_entropy(middle) > loss else (low, middle)
    return high


def compute(directory: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures of all runs, which are trained or continued in folders of `directory`."""
    rows = []
    options = RunOptions(diagnostics="alignment,features", tensorboard=False, progress=False)
    for seed, network, (name, method) in itertools.product(SEEDS, NETWORKS, METHODS.items()):
        own = {**SETTINGS, **settings, **method, "model": network, "seed": seed}
        folder = f"{network}_{'_'.join(map(str, method.values()))}_{seed}"
        run = Run(ExperimentConfig.from_settings(**own), directory / folder, options)
        run.train()
        last = {**run.history[-1], _GRADIENT: first_gradient(own)}
        run.simulation.close()
        row = {column: last[column] for column in _COLUMNS}
        rows.append({"network": network, "method": name, "seed": seed, **row})
        print(folder, {column: round(value, 3) for column, value in row.items()}, flush=True)
    return rows


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


def document(rows: Sequence[Mapping[str, str]]) -> str:
    """The page, from the rows of the csv file."""
    return _TEXT.format(
        cosines=", ".join(f"{needed_cosine(s):.2g} at scale {s:g}" for s in (1, 10, 100, 1e5)),
        tables="\n\n".join(
            f"### {title}\n\n{_table(rows, network)}" for network, title in NETWORKS.items()
        ),
    )


def _table(rows: Sequence[Mapping[str, str]], network: str) -> str:
    lines = [["method", *_COLUMNS.values()]]
    for method in METHODS:
        own = [row for row in rows if (row["network"], row["method"]) == (network, method)]
        lines.append([method, *(_cell(own, column) for column in _COLUMNS)])
    return tables.table(lines)


def _cell(rows: Sequence[Mapping[str, str]], column: str) -> str:
    values = [float(row[column]) for row in rows if row[column]]
    if len(values) < len(rows) or not rows:
        return tables.NO_VALUE
    if column == "diag_alignment_missing":
        values = [100 * value for value in values]
    if column in ("diag_feature_norm", _GRADIENT):
        return f"{statistics.fmean(values):,.3g}" if max(values) < 1000 else f"{max(values):.1e}"
    return tables.spread(values, 2 if column.startswith("diag_") and "missing" not in column else 1)


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "output_dir", None, "Directory of the runs; without it, none are made.")
    flags.add(str, "data_dir", None, "Directory of CIFAR-10.")


def main(flags: Flags) -> None:
    """Computes the runs, if asked to, and makes the page."""
    table = PAGE.with_suffix(".csv")
    if flags["output_dir"]:
        rows = compute(Path(flags["output_dir"]), {"data_dir": flags["data_dir"]})
        stream = io.StringIO()
        writer = csv.DictWriter(stream, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        files.write_text(table, stream.getvalue())
    with open(table, newline="", encoding="utf-8") as file:
        files.write_text(PAGE, document(list(csv.DictReader(file))))
    print(PAGE)


_TEXT = """"""

if __name__ == "__main__":
    sys.argv[0] = "publication.scale_page"
    program.run(__doc__, define, main, None)
