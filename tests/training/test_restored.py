"""Runs as they were after a round: evaluated, refused, left as they are."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest

from tests.training.runs import CONFIG, rows, stopped_in_round
from tff_pcdd.data import checks
from tff_pcdd.experiment import accuracy_columns
from tff_pcdd.training import ExperimentConfig, evaluate_run, restore_run, run_experiment
from tff_pcdd.training.post_hoc import calibrate_run

pytestmark = pytest.mark.usefixtures("shared_computations")


def test_evaluate_run(unbroken, options):
    """Equals the row of that round; clients by id, their mean is the PA."""
    for number in (4, 2):
        results = evaluate_run(CONFIG, unbroken, options, number)
        assert results == json.loads((unbroken / "evaluation.json").read_text())
        row = rows(unbroken)[number - 1]
        assert results["round"] == number
        for name, value in results["accuracies"].items():
            assert f"{value:.9g}" == row[name], name
        assert sorted(results["clients"]) == ["0", "1", "2", "3", "4"]
        mean = np.mean([client["pa"] for client in results["clients"].values()])
        assert results["accuracies"]["pa"] == pytest.approx(mean)
    assert evaluate_run(CONFIG, unbroken, options)["round"] == 4
    (unbroken / "evaluation.json").unlink()


def test_evaluating_an_old_checkpoint_leaves_a_run_on_disk_whole(options, tmp_path):
    """The states of clients that later checkpoints need are still there."""
    directory = tmp_path / "run"
    run_experiment(CONFIG, directory, dataclasses.replace(options, client_store="disk"))
    newest = evaluate_run(CONFIG, directory, options)
    assert evaluate_run(CONFIG, directory, options, 2)["round"] == 2
    assert evaluate_run(CONFIG, directory, options) == newest


def test_client_states_without_a_checkpoint_do_not_matter(unbroken, options, tmp_path):
    """Stopped on disk before the first checkpoint, and computed in memory."""
    with stopped_in_round(1):
        run_experiment(CONFIG, tmp_path, dataclasses.replace(options, client_store="disk"))
    run_experiment(CONFIG, tmp_path, options)
    assert (tmp_path / "client_states").exists()
    ga = evaluate_run(CONFIG, tmp_path, options)["accuracies"]["ga"]
    assert f"{ga:.9g}" == rows(unbroken)[-1]["ga"]


def test_an_unfinished_run_says_so(options, tmp_path, caplog):
    """In one line, also if it was ended while it saved the checkpoint of the next round."""
    with stopped_in_round(3):
        run_experiment(CONFIG, tmp_path, options)
    saved = tmp_path / "checkpoints"
    shutil.copy(saved / "round_000002.npz", saved / "round_000003.npz")
    caplog.clear()
    assert evaluate_run(CONFIG, tmp_path, options)["round"] == 2
    assert caplog.messages == ["the run is not finished: round 2 of 4"]
    caplog.clear()
    assert evaluate_run(CONFIG, tmp_path, options, 1)["round"] == 1
    assert not caplog.messages
    caplog.clear()
    run_experiment(CONFIG, tmp_path, options)
    assert evaluate_run(CONFIG, tmp_path, options)["round"] == 4
    assert not caplog.messages
    (tmp_path / "summary.json").unlink()
    assert evaluate_run(CONFIG, tmp_path, options)["round"] == 4
    assert caplog.messages == ["the run is not finished: round 4 of 4, without summary.json"]


def test_warnings_of_the_data_are_those_of_the_training(options, tmp_path, caplog):
    """Missing values of a table are no news to who evaluates, exports or calibrates the run."""
    rows = [f"{k % 2},{k // 30},{k}.5,{'' if k % 9 == 0 else k}" for k in range(60)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["label,site,dose,age", *rows, "0,2,1.5,1"]) + "\n")
    config = ExperimentConfig.from_settings(
        algorithm="fedavg",
        model="mlp",
        dataset="table",
        data_dir=str(table),
        feature_columns="dose,age",
        impute="median",
        rounds=1,
    )
    checks.warn_once.cache_clear()
    run_experiment(config, tmp_path / "run", options)
    assert "missing: column 'age' in 7; impute=median" in caplog.text
    assert "site 2 has no test samples" in caplog.text
    caplog.clear()
    checks.warn_once.cache_clear()
    evaluate_run(config, tmp_path / "run", options)
    calibrated = config.with_settings(head_calibration="ccvr")
    calibrate_run(config, calibrated, tmp_path / "run", tmp_path / "calibrated", options)
    assert not caplog.messages


def test_an_accuracy_without_samples_is_null(unbroken, options, monkeypatch):
    monkeypatch.setattr(accuracy_columns.evaluation, "personal_accuracy", lambda *_: math.nan)
    results = evaluate_run(CONFIG, unbroken, options)
    assert results["accuracies"]["pa"] is None
    assert "NaN" not in (unbroken / "evaluation.json").read_text()
    (unbroken / "evaluation.json").unlink()


def test_what_is_not_there_is_refused(unbroken, options, tmp_path):
    hint = "a larger `keep_checkpoints` or smaller `checkpoint_every` keeps more"
    with pytest.raises(FileNotFoundError, match=rf"round 1 .*there are \[2, 3, 4\]; {hint}$"):
        evaluate_run(CONFIG, unbroken, options, 1)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of round 9 .*\[2, 3, 4\]$"):
        evaluate_run(CONFIG, unbroken, options, 9)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        evaluate_run(CONFIG, tmp_path / "none", options)
    assert not (tmp_path / "none").exists()


def test_a_restored_run_computes_the_next_round_as_the_run_did(unbroken, options):
    """Round 3 of the csv file, from the checkpoint of round 2."""
    run = restore_run(CONFIG, unbroken, options, 2)
    assert run.simulation.round == 2
    measured = {**run.simulation.next_round(), **run.simulation.evaluate()}
    row = rows(unbroken)[2]
    assert set(measured) | {
        "round",
        "nonfinite_rounds",
        "excluded_clients",
        "last_lost_round",
    } == set(row)
    for name, value in measured.items():
        if name != "seconds":
            assert f"{value:.9g}" == f"{float(row[name]):.9g}", name


def test_evaluation_ends_the_runtime(unbroken, options, monkeypatch):
    closed = []
    monkeypatch.setattr(
        "tff_pcdd.experiment.simulation.Simulation.close", lambda self: closed.append(self)
    )
    evaluate_run(CONFIG, unbroken, options)
    assert len(closed) == 1
    (unbroken / "evaluation.json").unlink()
