"""Runs that are computed in several parts, with a pause between them."""

import dataclasses
import json

import pytest

from tests.training.runs import CONFIG, assert_same_run, rows
from tff_pcdd.training import manifests, run_experiment

pytestmark = pytest.mark.usefixtures("shared_computations")


@pytest.mark.parametrize("client_store", ["memory", "disk"])
def test_a_run_of_several_parts_equals_one_of_a_single_part(
    client_store, unbroken, options, tmp_path
):
    """Between the parts there is a checkpoint, whatever their usual distance, and no result."""
    options = dataclasses.replace(options, client_store=client_store, checkpoint_every=10)
    for pause_after in (1, 3):
        paused = run_experiment(CONFIG, tmp_path, options, pause_after=pause_after)
        assert paused == {"paused": pause_after}
        assert manifests.rounds(tmp_path / "checkpoints", ["json"])[-1] == pause_after
        assert [int(row["round"]) for row in rows(tmp_path)] == [*range(1, pause_after + 1)]
        assert not (tmp_path / "summary.json").exists()
        assert not (tmp_path / "plots").exists()
    assert run_experiment(CONFIG, tmp_path, options)["rounds"] == 4
    assert_same_run(tmp_path, unbroken)


def test_a_part_that_is_complete_is_only_read(options, tmp_path):
    run_experiment(CONFIG, tmp_path, options, pause_after=2)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert run_experiment(CONFIG, tmp_path, options, pause_after=2) == {"paused": 2}
    assert run_experiment(CONFIG, tmp_path, options, pause_after=1) == {"paused": 2}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_pause_after_the_last_round_is_none(unbroken, options, tmp_path):
    assert run_experiment(CONFIG, tmp_path, options, pause_after=4)["rounds"] == 4
    assert_same_run(tmp_path, unbroken)


def test_a_run_that_ends_before_the_pause_is_finished(options, tmp_path):
    """Patience runs out before the pause; a pause does not change the round of the decision."""
    config = CONFIG.with_settings(
        validation_fraction=0.3, early_stopping_patience=1, client_learning_rate=1e-9
    )
    summary = run_experiment(config, tmp_path / "one", options, pause_after=4)
    assert summary["rounds"] == 3
    assert run_experiment(config, tmp_path / "two", options, pause_after=2) == {"paused": 2}
    assert run_experiment(config, tmp_path / "two", options, pause_after=4)["rounds"] == 3
    assert_same_run(tmp_path / "one", tmp_path / "two")


def test_a_method_with_a_schedule_pauses_too(options, tmp_path):
    """Its planned number of rounds is that of the whole run, unlike with fewer rounds."""
    config = CONFIG.with_settings(algorithm="fedproc")
    run_experiment(config, tmp_path / "whole", options)
    run_experiment(config, tmp_path / "parts", options, pause_after=2)
    assert json.loads((tmp_path / "parts" / "config.json").read_text())["rounds"] == 4
    run_experiment(config, tmp_path / "parts", options)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
