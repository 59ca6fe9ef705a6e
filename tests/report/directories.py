"""Made-up directories of runs and comparisons, with the files that programs write."""

from __future__ import annotations

import contextlib
import csv
import json
import pathlib

import numpy as np

from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.history import History
from tff_pcdd.training import manifests

ACCURACIES = ("pa_before", "pa", "pa_before_masked", "pa_masked", "balanced_before", "balanced")
FIXED = (
    "client",
    "train_samples",
    "test_samples",
    "ga",
    *ACCURACIES,
    "over_global",
    "over_local",
    "warning",
)


def make_run(
    directory: pathlib.Path,
    clients=("north", "south", "west"),
    classes=("cat", "dog", "owl", "fox"),
    rounds=12,
    seed=0,
    over_local=None,
    bonus=0.0,
    **settings,
):
    """Writes a finished run; returns its summary.

    Each client holds about half of the classes. The numbers are made up, but agree with each other.
    """
    rng = np.random.default_rng([seed, len(clients)])
    K, C = len(clients), len(classes)
    held = rng.random((K, C)) < 0.5
    held[np.arange(K), np.arange(K) % C] = True
    counts = rng.integers(5, 80, (K, C)) * held
    tests = (counts + 3) // 4
    personal = _confusion(rng, tests, 0.92)
    directory.mkdir(parents=True, exist_ok=True)
    config = ExperimentConfig.from_settings(
        **{"rounds": rounds, "seed": seed, "num_clients": K, "classes_per_client": 10, **settings}
    )
    _write_json(directory / "config.json", config.to_settings())
    summary = _write_history(directory, config, rng, rounds, K, bonus)
    rows = []
    for k, name in enumerate(clients):
        total = tests[k].sum()
        pa = 100 * np.trace(personal[k]) / total
        ga = pa - rng.normal(6, 8)
        values = {
            "client": name,
            "train_samples": counts[k].sum(),
            "test_samples": total,
            "ga": np.clip(ga, 0, 100),
            **dict.fromkeys(ACCURACIES, pa),
            "pa_before": np.clip(pa - 9, 0, 100),
            "over_global": pa - np.clip(ga, 0, 100),
            "over_local": "" if over_local is None else over_local + k,
            "warning": "worse than the global model" if ga > pa else "",
        }
        recalls = [
            "" if not n else 100 * right / n
            for right, n in zip(np.diag(personal[k]), tests[k], strict=True)
        ]
        rows.append([values[name] for name in FIXED] + [*counts[k], *recalls])
    header = [*FIXED, *(f"train_{c}" for c in classes), *(f"recall_{c}" for c in classes)]
    write_csv(directory / "clients.csv", header, rows)
    whole = _confusion(rng, np.full((1, C), 90), 0.8)[0]
    np.savez(
        directory / "confusion.npz",
        class_names=np.array(classes),
        **{"global": whole, "personal": personal, "personal_before": personal},
    )
    return summary


def make_comparison(
    directory: pathlib.Path,
    algorithms=("fedavg", "fedgela", "fedprox"),
    seeds=(0, 1),
    alone=False,
    **options,
):
    """Writes a comparison, with the run of a method `local` if `alone`."""
    rows, clients = [], []
    for number, algorithm in enumerate(algorithms):
        for seed in seeds:
            folder = directory / algorithm / f"seed_{seed}"
            local = {"over_local": 2.0 - 3 * number} if alone else {}
            summary = make_run(
                folder, seed=seed, bonus=6.0 * number, algorithm=algorithm, **local, **options
            )
            rows.append({"partition": "P3C2", **summary})
            clients += client_rows(folder, "P3C2", algorithm, seed)
    if alone:
        for seed in seeds:
            row = {**rows[0], "algorithm": "local", "seed": seed, "pa_final": 60.0 + seed}
            rows.append({**row, "ga_final": "", "config_digest": f"local{seed}"})
    write_csv(directory / "comparison.csv", [*rows[0]], [[*row.values()] for row in rows])
    header = ["partition", "algorithm", "seed", *FIXED]
    write_csv(directory / "clients.csv", header, clients)


def client_rows(folder, partition, algorithm, seed):
    """The rows of a run in a comparison's clients.csv."""
    with open(folder / "clients.csv", newline="") as file:
        return [[partition, algorithm, seed, *row[: len(FIXED)]] for row in [*csv.reader(file)][1:]]


def write_checkpoint(folder, data):
    """Writes the checkpoint of a finished run, which has the digest of its data."""
    settings = manifests.settings_digest(json.loads((folder / "config.json").read_text()))
    run = {"settings": settings, "data": data}
    manifest = manifests.Manifest(1, run, "", True, clients={}, totals={}, metrics="")
    (folder / "checkpoints").mkdir(exist_ok=True)
    manifests.write(folder / "checkpoints", manifest)


def read_csv(path):
    """The rows of a csv file by column."""
    with open(path, newline="") as file:
        return [*csv.DictReader(file)]


@contextlib.contextmanager
def edited(path):
    """A block that changes the rows of a csv file, by column."""
    rows = read_csv(path)
    yield rows
    write_csv(path, [*rows[0]], [[*row.values()] for row in rows])


def write_csv(path, header, rows):
    """Writes a csv file with floats as in metrics.csv."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([f"{v:.9g}" if isinstance(v, float) else v for v in row])


def _write_json(path, values):
    path.write_text(json.dumps(values, indent=2) + "\n")


def _confusion(rng, tests, right):
    """Matrices of answers, [K, C, C], of which about the share `right` is correct."""
    K, C = tests.shape
    chances = np.full((C, C), (1 - right) / (C - 1)) + np.eye(C) * (right - (1 - right) / (C - 1))
    answers = [rng.multinomial(tests[k, c], chances[c]) for k in range(K) for c in range(C)]
    return np.array(answers).reshape(K, C, C)


def _write_history(directory, config, rng, rounds, num_clients, bonus):
    columns = ["round", "ga", "pa", "pa_before", "pa_before_masked", "train_loss", "seconds"]
    counts = ["upload_bytes", "download_bytes"]
    losses = ["nonfinite_rounds", "excluded_clients", "last_lost_round"]
    history = History([*columns, *counts, *losses])
    for number in range(1, rounds + 1):
        done = 1 - np.exp(-4 * number / rounds)
        noise = rng.normal(0, 2, 4)
        ga = min(35 + 40 * done + bonus + noise[0], 99)
        history.append(
            {
                "round": number,
                "ga": ga,
                "pa": min(70 + 20 * done + bonus + noise[1], 100),
                "pa_before": ga + 1,
                "pa_before_masked": min(ga + 16 + noise[2], 100),
                "train_loss": 2.3 * np.exp(-3 * number / rounds) + 0.1,
                "seconds": 2.0 if number == 1 else 0.25,
                "upload_bytes": 177_704 * num_clients * number,
                "download_bytes": 177_708 * num_clients * number,
                **dict.fromkeys(losses, 0),
            }
        )
    (directory / "metrics.csv").write_text(history.text())
    last = history[-1]
    summary = {
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": rounds,
        "diverged": False,
        **{f"{name}_final": last[name] for name in columns[1:5]},
        "ga_second_half": float(np.mean([row["ga"] for row in history][rounds // 2 :])),
        "seconds_per_round": 0.25,
        "upload_bytes": last["upload_bytes"],
        "download_bytes": last["download_bytes"],
        "nonfinite_rounds": 0,
        "excluded_clients": 0,
        "last_lost_round": 0,
        "nonfinite_in_a_row": 0,
        "clients_per_round": num_clients,
        "personal_bytes_per_client": 3400,
        "personal_parameters_per_client": 850,
        "personal_epochs": 5,
        "config_digest": config.digest(),
    }
    _write_json(directory / "summary.json", summary)
    return summary
