"""Names of clients, classes and samples are shown as they are, and obeyed by no program."""

import csv
import dataclasses

import numpy as np
import pytest

from tff_pcdd import data
from tff_pcdd.report import partition, write_report
from tff_pcdd.results import by_client
from tff_pcdd.results.reading import Directory
from tff_pcdd.training import ExperimentConfig, clients_table, run_experiment

pytestmark = pytest.mark.integration

CLIENTS = ("=1+1", "@SUM(A1)", "-x", "<script>alert(1)</script>", "[x](javascript:alert(1))", "'+a")
CLASSES = ("=cmd|'/C calc'!A0", "+1+1")


@pytest.fixture(scope="module")
def federation():
    x = np.random.default_rng(0).normal(size=(120, 4))
    labels = [CLASSES[i % 2] for i in range(120)]
    return data.from_arrays(x, labels, np.repeat(CLIENTS, 20), name="hostile")


@pytest.fixture(scope="module")
def run(federation, options, tmp_path_factory):
    config = ExperimentConfig.from_settings(model="mlp", rounds=1, local_epochs=1)
    directory = tmp_path_factory.mktemp("names") / "run"
    options = dataclasses.replace(options, predictions=True)
    run_experiment(config, directory, options, federation=federation)
    partition.write(config.data, federation, directory / "partition")
    write_report(run_dir=directory)
    return directory


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_no_cell_is_a_formula(run):
    files = [*run.rglob("*.csv")]
    assert {path.name for path in files} >= {"clients.csv", "predictions.csv", "partition.csv"}
    for path in files:
        with open(path, newline="") as file:
            for cell in (cell for row in csv.reader(file) for cell in row):
                assert is_number(cell) or cell[:1] not in ("=", "+", "-", "@", "\t", "\r"), path


def test_no_name_is_markup(run):
    files = [*run.rglob("*.md")]
    assert {path.name for path in files} >= {"clients.md", "partition.md"}
    for path in files:
        text = path.read_text()
        assert "<script" not in text
        assert "[x](" not in text.replace("\\[x](", "")


def test_names_are_read_as_they_were(run, federation):
    rows = clients_table.read(run / "clients.csv")
    assert [row["client"] for row in rows] == list(federation.client_ids)
    clients = by_client.read(Directory(run)).clients
    assert [client.name for client in clients] == list(federation.client_ids)
