"""The table of all clients of a comparison, from tables of runs that are made up."""

import csv
import logging
import types

import pytest

from tff_pcdd.results import by_client
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import comparison, study
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.training.clients_table import COLUMNS, DIVERGED

# Personal accuracies by client, None without test samples.
TABLES = {
    ("IID", "fedavg", 0): {"north": 80.0, "south": 60.0, "east": 20.0, "west": None},
    ("IID", "fedavg", 1): {"north": 81.0, "south": 61.0, "east": 60.0, "west": None},
    ("IID", "local", 0): {"north": 70.0, "south": 65.5, "east": 80.0, "west": None},
    ("IID", "local", 1): {"north": 71.0, "south": 50.0, "east": 60.0, "west": None},
    ("P3C1", "fedavg", 0): {"north": 99.0, "south": 98.0, "west": 97.0},
}


def make_run(root, partition, method, seed, diverged=False):
    folder = root / partition / method / f"seed_{seed}"
    folder.mkdir(parents=True)
    with open(folder / "clients.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "train_a", "recall_a"])
        writer.writeheader()
        for name, accuracy in TABLES[partition, method, seed].items():
            tested = 0 if accuracy is None else 20
            values = {"client": name, "train_samples": 5, "test_samples": tested, "pa": accuracy}
            writer.writerow({**values, "warning": DIVERGED if diverged else "", "train_a": 5})
    scheme = types.SimpleNamespace(describe=lambda: partition)
    config = types.SimpleNamespace(
        algorithm=method, seed=seed, data=types.SimpleNamespace(partition=scheme)
    )
    return StudyRun(config, folder, f"{method} {seed}", summary={"diverged": diverged})


def test_gain_over_the_local_run_of_the_same_partition_and_seed(tmp_path):
    runs = [make_run(tmp_path, *key) for key in TABLES]
    found = comparison.client_rows(runs)
    assert list(found[0]) == ["partition", "algorithm", "seed", *COLUMNS]
    over = {
        (row["partition"], row["algorithm"], row["seed"], row["client"]): row["over_local"]
        for row in found
    }
    assert len(found) == len(over) == 19
    expected = dict.fromkeys(over)
    for seed in (0, 1):
        for client in ("north", "south", "east"):
            federated, alone = (TABLES["IID", m, seed][client] for m in ("fedavg", "local"))
            expected["IID", "fedavg", seed, client] = federated - alone
    assert over == expected
    warned = [row for row in found if "training alone" in row["warning"]]
    assert [(row["algorithm"], row["seed"], row["client"]) for row in warned] == [
        # The gain of south is negative too, but no more than chance.
        ("fedavg", 0, "east")
    ]


def test_diverged_runs(tmp_path):
    """A diverged local run is no reference, and rows of diverged runs stay marked."""
    runs = [
        make_run(tmp_path, "IID", "fedavg", 0, diverged=True),
        make_run(tmp_path, "IID", "local", 0, diverged=True),
        make_run(tmp_path, "IID", "fedavg", 1),
    ]
    found = comparison.client_rows(runs)
    assert [row["over_local"] for row in found] == [None] * 12
    assert [row["warning"].startswith(DIVERGED) for row in found] == [True] * 8 + [False] * 4


def test_unfinished_runs_and_missing_tables(tmp_path, caplog):
    lost, unfinished, whole = (make_run(tmp_path, *key) for key in [*TABLES][:3])
    (lost.folder / "clients.csv").unlink()
    unfinished = StudyRun(unfinished.config, unfinished.folder, unfinished.label)
    for _ in range(2):
        found = comparison.client_rows([lost, unfinished, whole])
    assert {(row["algorithm"], row["seed"]) for row in found} == {("local", 0)}
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("fedavg 0: the table of clients lacks this run")


def test_tables_of_earlier_versions(tmp_path):
    """They lack some accuracies, which pages leave empty, too."""
    run = make_run(tmp_path, "IID", "fedavg", 0)
    header = "client,train_samples,test_samples,pa,warning,train_a"
    (run.folder / "clients.csv").write_text(f"{header}\nnorth,5,20,80.0,,5\n")
    [row] = comparison.client_rows([run])
    assert (row["client"], row["pa"], row["ga"]) == ("north", 80.0, None)
    [client] = by_client.read(Directory(run.folder)).clients
    assert client.values == {name: row[name] for name in client.values}


def test_a_run_is_no_comparison(tmp_path):
    """Although the directories of both have a clients.csv."""
    (tmp_path / "clients.csv").write_text("client\n")
    with pytest.raises(ValueError, match="holds no comparison"):
        study.check([], tmp_path, holds="comparison", known=comparison._FILES, overwrite=False)
