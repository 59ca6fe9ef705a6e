"""Files about the clients at the end of runs: they agree with the accuracies, and are restored."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests import support
from tests.training.runs import CONFIG, assert_same_run, rows, stopped_in_round, summary
from tests.training.test_nonfinite import DIVERGING
from tff_pcdd import data
from tff_pcdd.experiment import simulation
from tff_pcdd.training import (
    Callback,
    Run,
    Simulation,
    clients_table,
    evaluate_run,
    predictions,
    run_experiment,
)

pytestmark = pytest.mark.usefixtures("shared_computations")

FILES = ("clients.csv", "clients.md", "confusion.npz")


def means(directory):
    """The mean of each accuracy over clients with test samples."""
    table = clients_table.read(directory / "clients.csv")
    names = ("pa", "pa_before", "pa_masked", "pa_before_masked")
    return {name: np.mean([row[name] for row in table if row[name] is not None]) for name in names}


def assert_agrees(directory, federation):
    """Asserts that the files agree with metrics.csv and with each other."""
    last = rows(directory)[-1]
    for name, mean in means(directory).items():
        assert float(last[name]) == pytest.approx(mean, rel=1e-7), name
    table = clients_table.read(directory / "clients.csv")
    assert [row["client"] for row in table] == list(federation.client_ids)
    arrays = np.load(directory / "confusion.npz")
    assert arrays["class_names"].tolist() == list(federation.class_names)
    for kind, column in (("personal", "pa"), ("personal_before", "pa_before")):
        for row, matrix in zip(table, arrays[kind], strict=True):
            if row["test_samples"]:
                share = 100 * np.trace(matrix) / matrix.sum()
                assert row[column] == pytest.approx(share, rel=1e-7)
        np.testing.assert_array_equal(arrays[kind].sum(axis=2), federation.test_class_counts())
    if "global" in arrays:
        matrix = arrays["global"]
        ga = 100 * np.trace(matrix) / matrix.sum()
        assert float(last["ga"]) == pytest.approx(ga, rel=1e-7)
        np.testing.assert_array_equal(matrix.sum(axis=1), np.bincount(federation.test.y))
    return table, arrays


def test_files_agree_with_the_accuracies(unbroken):
    federation = CONFIG.data.build()
    table, arrays = assert_agrees(unbroken, federation)
    assert "global" in arrays
    counts = federation.class_counts()
    assert [row["train_samples"] for row in table] == counts.sum(axis=1).tolist()
    with open(unbroken / "clients.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for line, trained, matrix in zip(lines, counts, arrays["personal"], strict=True):
        for index, name in enumerate(federation.class_names):
            assert int(line[f"train_{name}"]) == trained[index]
            if total := matrix[index].sum():
                recall = 100 * matrix[index, index] / total
                assert float(line[f"recall_{name}"]) == pytest.approx(recall, rel=1e-7)
            else:
                assert line[f"recall_{name}"] == ""


@pytest.mark.integration
@pytest.mark.parametrize(
    "algorithm", support.rare_but(["fedloge", "fedper"], ["fedloge", "fedper", "fedrod"])
)
def test_methods_with_other_personal_models(algorithm, options, tmp_path):
    """FedPer has no global model; in FedLoGe and FedRoD the personal head is another one."""
    config = CONFIG.with_settings(algorithm=algorithm, rounds=1)
    run_experiment(config, tmp_path, options)
    table, arrays = assert_agrees(tmp_path, config.data.build())
    has_global = config.method.has_global_model
    assert ("global" in arrays) == has_global
    for row in table:
        if row["test_samples"]:
            assert (row["ga"] is not None) == has_global
            assert (row["over_global"] is not None) == has_global


@pytest.mark.integration
def test_a_diverged_run(options, tmp_path):
    run_experiment(DIVERGING, tmp_path, options)
    for row in clients_table.read(tmp_path / "clients.csv"):
        assert row["warning"].startswith(clients_table.DIVERGED)
    text = (tmp_path / "clients.md").read_text()
    assert "**The run has diverged: these results are not usable.**" in text


def test_predictions_of_the_last_evaluation_are_kept(options, monkeypatch, tmp_path):
    """So that a run is not evaluated once more for these files; only if they are out of date."""
    calls = []
    original = simulation.Simulation.map_clients

    def map_clients(self, *arguments):
        calls.append(self.round)
        return original(self, *arguments)

    monkeypatch.setattr(Simulation, "map_clients", map_clients)
    run_experiment(CONFIG.with_settings(rounds=2), tmp_path / "run", options)
    assert calls == [1, 2]
    tried = Simulation(CONFIG, compute=options.compute)
    first = tried.answers()
    tried.answers()
    assert calls[2:] == [0]
    tried.next_round()
    second = tried.answers()
    assert calls[3:] == [1]
    assert any((a != b).any() for a, b in zip(first.after, second.after, strict=True))


class _Stop(Callback):
    """Ends the process when everything has been trained, but before the files are written."""

    def on_end(self, run):
        raise KeyboardInterrupt


def test_nothing_left_to_train(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(CONFIG, directory, options, callbacks=[_Stop()])
    assert not (directory / "clients.csv").exists()
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_lost_files_are_computed_again(name, damage, unbroken, options, tmp_path, caplog):
    directory = shutil.copytree(unbroken, tmp_path / "run")
    if damage == "missing":
        (directory / name).unlink()
    else:
        whole = (directory / name).read_bytes()
        (directory / name).write_bytes(whole[:40] + b"7" + whole[41:])
    assert run_experiment(CONFIG, directory, options) == summary(unbroken, leave_out=())
    assert_same_run(directory, unbroken)
    assert f"{name}: damaged, changed or missing; computed again" in caplog.text


def test_lost_files_without_a_checkpoint(unbroken, options, tmp_path, caplog):
    """The results of the run stay as they are."""
    directory = shutil.copytree(unbroken, tmp_path / "run")
    (directory / "clients.csv").unlink()
    (directory / "checkpoints" / "round_000004.npz").unlink()
    assert run_experiment(CONFIG, directory, options) == summary(unbroken, leave_out=())
    assert "clients.csv: damaged, changed or missing; cannot be computed again" in caplog.text
    assert not (directory / "clients.csv").exists()


@pytest.fixture(scope="module")
def predicted(options, shared_computations, tmp_path_factory):
    """A run of two rounds that writes its predictions, and holds samples out."""
    directory = tmp_path_factory.mktemp("runs") / "predicted"
    config = CONFIG.with_settings(
        rounds=2, validation_fraction=0.5, max_train_samples=200, personal_eval_every=0
    )
    run_experiment(config, directory, dataclasses.replace(options, predictions=True))
    return config, directory


def read_predictions(directory, model):
    with open(directory / "predictions.csv", newline="") as file:
        return [line for line in csv.DictReader(file) if line["model"] == model]


def test_ids_of_image_files():
    """Names of files that are no valid UTF-8, or have line breaks, can be written."""
    paths = np.array([b"a/north.png", b"a/caf\xe9.png", b"a/x\ny.png"], object)
    examples = data.Examples(paths, np.zeros(3, np.int32))
    found = [predictions._name(examples, sample) for sample in range(3)]
    assert found == ["a/north.png", "a/caf\\udce9.png", "a/x\\ny.png"]


def probabilities(lines):
    return np.array(
        [[float(v) for k, v in line.items() if k.startswith("probability_")] for line in lines]
    )


@pytest.mark.integration
def test_predictions_agree_with_the_confusion(predicted):
    config, directory = predicted
    federation = config.data.build()
    names = list(federation.class_names)
    arrays = np.load(directory / "confusion.npz")
    lines = read_predictions(directory, "personal")
    found = np.zeros_like(arrays["personal"])
    for line in lines:
        client = federation.client_ids.index(line["client"])
        assert names[federation.test.y[int(line["id"])]] == line["label"]
        found[client, names.index(line["label"]), names.index(line["prediction"])] += 1
    np.testing.assert_array_equal(found, arrays["personal"])
    every = {line["id"]: line for line in read_predictions(directory, "global")}
    assert len(every) == len(federation.test)
    found = np.zeros_like(arrays["global"])
    for line in every.values():
        found[names.index(line["label"]), names.index(line["prediction"])] += 1
    np.testing.assert_array_equal(found, arrays["global"])
    for of in (lines, list(every.values())):
        values = probabilities(of)
        np.testing.assert_allclose(values.sum(axis=1), 1, atol=1e-4)
        predictions = [names.index(line["prediction"]) for line in of]
        np.testing.assert_array_equal(values.argmax(axis=1), predictions)


@pytest.mark.integration
def test_calibration_agrees_with_the_predictions(predicted):
    """The calibration error of the probabilities, bin by bin."""
    _, directory = predicted
    found = json.loads((directory / "calibration.json").read_text())
    assert found["round"] == 2
    every = {line["id"]: line for line in read_predictions(directory, "global")}
    groups = {"global": list(every.values()), "personal": read_predictions(directory, "personal")}
    for model, lines in groups.items():
        confidence = probabilities(lines).max(axis=1)
        right = np.array([line["label"] == line["prediction"] for line in lines])
        bins = np.ceil(confidence * 15)
        gaps = [
            np.mean(bins == b) * abs(right[bins == b].mean() - confidence[bins == b].mean())
            for b in np.unique(bins)
        ]
        of = found["models"][model]
        assert of["test_samples"] == len(lines)
        assert of["ece"] == pytest.approx(100 * sum(gaps), abs=0.01)
        assert of["accuracy"] == pytest.approx(100 * right.mean())
        assert of["held_out_samples"] == 100
        assert sum(b["samples"] for b in of["bins"]["after"]) == len(lines)
    assert found["models"]["global"]["temperature"] > 0
    assert len(found["clients"]) == 5
    for of in found["clients"].values():
        assert of["temperature"] is None or of["held_out_samples"] >= 10
    assert (directory / "plots" / "calibration.png").exists()


@pytest.mark.integration
def test_predictions_of_a_finished_run(predicted, options, tmp_path):
    """They can be asked for later, and are the same."""
    config, directory = predicted
    other = tmp_path / "run"
    run_experiment(config, other, options)
    assert not (other / "predictions.csv").exists()
    run_experiment(config, other, dataclasses.replace(options, predictions=True))
    for name in ("predictions.csv", "calibration.json", *FILES):
        assert (other / name).read_bytes() == (directory / name).read_bytes(), name
    before = (other / "predictions.csv").stat().st_mtime_ns
    run_experiment(config, other, dataclasses.replace(options, predictions=True))
    assert (other / "predictions.csv").stat().st_mtime_ns == before


def test_an_interrupted_run_keeps_no_earlier_answers(unbroken, options, tmp_path):
    """Files of another state in the directory are replaced at the end."""
    directory = tmp_path / "run"
    with stopped_in_round(3):
        run_experiment(CONFIG, directory, options)
    for name in FILES:
        (directory / name).write_text("of another state")
    Run(CONFIG, directory, options).train()
    assert_same_run(directory, unbroken)


def test_samples_with_names_are_named_in_predictions():
    x = np.arange(160, dtype=np.uint8).reshape(10, 4, 4)
    federation = data.from_arrays(x, ["a", "b"] * 5, ["north"] * 10)
    lines = predictions._rows(federation, "global", "north", np.array([1]), np.zeros([1, 2]))
    assert lines.split(",")[2] == federation.test.ids[1]
    assert federation.test.ids[1].startswith("sample ")


@pytest.mark.integration
def test_predictions_of_an_earlier_round(predicted, options, tmp_path):
    """Evaluation replaces the files by those of its checkpoint; the run can restore its own."""
    config, directory = predicted
    copy = shutil.copytree(directory, tmp_path / "run")
    options = dataclasses.replace(options, predictions=True)
    results = evaluate_run(config, copy, options, 1)
    content = json.loads((copy / "calibration.json").read_text())
    assert content["round"] == 1
    for model, numbers in results["calibration"].items():
        assert numbers.items() <= content["models"][model].items()
    assert (copy / "predictions.csv").read_bytes() != (directory / "predictions.csv").read_bytes()
    assert (copy / "clients.csv").read_bytes() == (directory / "clients.csv").read_bytes()
    run_experiment(config, copy, options)
    for name in ("predictions.csv", "calibration.json", *FILES):
        assert (copy / name).read_bytes() == (directory / name).read_bytes(), name
