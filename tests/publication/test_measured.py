"""Studies of single questions: their tables, and what they measure."""

import csv
import statistics

import numpy as np
import pytest

from publication import fedgela_scale, measured
from tff_pcdd import ExperimentConfig, Simulation

ROWS = [
    {"network": "a", "method": "one", "seed": "0", "GA": "50", "gradient": "1.5"},
    {"network": "a", "method": "one", "seed": "1", "GA": "53", "gradient": "2"},
    {"network": "a", "method": "two", "seed": "0", "GA": "", "gradient": "1530000"},
]


def test_a_table_has_means_and_deviations_of_rows_that_belong_together():
    lines = measured.grouped(ROWS, ["method"], {"GA": 1, "gradient": 0}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    deviation = np.std([50, 53], ddof=1)
    assert cells[0] == ["method", "GA", "gradient"]
    assert cells[2] == ["one", f"51.5 ± {deviation:.1f}", "2 ± 0"]
    assert cells[3] == ["two", "–", "1.53e+06"]


@pytest.mark.parametrize("name", measured.studies())
def test_pages_have_the_tables_of_their_files(name):
    text = (measured.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    for table in measured.studies()[name].tables(measured.read(name)):
        assert text.count(f"<!-- measured | {table} -->") == 1
    assert measured.page(name) == text


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e5])
def test_the_loss_is_small_from_the_cosine_of_the_page_on(scale):
    classes, width = 10, 84
    frame = np.zeros((classes, width))
    frame[:, :classes] = (np.eye(classes) - 1 / classes) * np.sqrt(classes / (classes - 1))
    phi = np.array([5.0, 5.0] + 8 * [0.0])

    def loss(cosine):
        feature = cosine * frame[0]
        feature[-1] = np.sqrt(max(0, 1 - cosine**2))  # orthogonal to all columns
        logits = scale * phi * (frame @ feature)
        return np.log(np.sum(np.exp(logits - logits[0])))

    # docs/studies/fedgela_scale.md: below 0.01 from 1.35 / s on.
    assert loss(1.345 / scale) > 0.01 > loss(1.355 / scale)


def test_the_first_gradient_is_that_of_the_loss_at_the_initial_weights():
    settings = {
        "dataset": "digits",
        "max_train_samples": 60,
        "num_clients": 5,
        "classes_per_client": 2,
        "model": "linear",
    }
    lengths = []
    with Simulation(ExperimentConfig.from_settings(**settings)) as simulation:
        kernel, bias = (np.asarray(value, float) for value in simulation.state.weights["trainable"])
        federation = simulation.federation
        for client in federation.clients:
            x = federation.train.x[client.train].astype(float)
            y = federation.train.y[client.train]
            x = (x / 16).reshape(len(y), -1)
            logits = x @ kernel + bias
            error = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            error[np.arange(len(x)), y] -= 1
            parts = x.T @ error / len(x), error.mean(axis=0)
            lengths.append(np.sqrt(sum(np.sum(part**2) for part in parts)))
    expected = statistics.median(lengths)
    assert fedgela_scale.first_gradient(settings) == pytest.approx(expected, rel=1e-3)


def test_the_figures_of_a_study_are_those_of_its_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(fedgela_scale, "SEEDS", (3,))
    monkeypatch.setattr(fedgela_scale, "NETWORKS", {"simple_cnn": ""})
    monkeypatch.setattr(fedgela_scale, "METHODS", {"FedAvg": {"algorithm": "fedavg"}})
    small = {"dataset": "digits", "max_train_samples": 60, "max_test_samples": 20, "rounds": 1}
    monkeypatch.setattr(fedgela_scale, "SETTINGS", {**fedgela_scale.SETTINGS, **small})
    [row] = fedgela_scale.compute(tmp_path, {"data_dir": None})
    assert (row["network"], row["method"], row["seed"]) == ("simple_cnn", "FedAvg", 3)
    with open(tmp_path / "simple_cnn_fedavg_3" / "metrics.csv", newline="") as file:
        *_, last = csv.DictReader(file)
    assert float(row["GA"]) == pytest.approx(float(last["ga"]), rel=1e-5)
    assert float(row["own cosine"]) == pytest.approx(float(last["diag_alignment_own"]), rel=1e-4)
    assert float(row["first gradient"]) > 0
