"""Whole runs on a few digits: what is written, how they are resumed, what they refuse."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest

from tests.data.refusals import refuses
from tests.training.runs import (
    CONFIG,
    assert_same_run,
    metrics,
    rows,
    stopped_in_round,
    summary,
)
from tff_pcdd import data, directories
from tff_pcdd.experiment import cohorts
from tff_pcdd.experiment.history import csv_text
from tff_pcdd.training import (
    Callback,
    ExperimentConfig,
    Run,
    Simulation,
    evaluate_run,
    recovery,
    restore_run,
    run,
    run_directory,
    run_experiment,
)

pytestmark = pytest.mark.usefixtures("shared_computations")


def test_what_a_run_writes(unbroken):
    assert sorted(path.name for path in unbroken.iterdir()) == [
        ".lock",
        "checkpoints",
        "clients.csv",
        "clients.md",
        "config.json",
        "confusion.npz",
        "metrics.csv",
        "plots",
        "report.html",
        "summary.json",
        "tensorboard",
    ]
    assert sorted(os.listdir(unbroken / "plots")) == ["accuracy.png", "clients.png"]
    assert os.listdir(unbroken / "tensorboard")
    assert len(os.listdir(unbroken / "checkpoints")) == 6
    saved = json.loads((unbroken / "config.json").read_text())
    assert ExperimentConfig.from_settings(**saved) == CONFIG


def test_metrics_file(unbroken):
    written = rows(unbroken)
    assert list(written[0])[:6] == [
        "round",
        "ga",
        "pa",
        "pa_before",
        "pa_masked",
        "pa_before_masked",
    ]
    assert list(written[0])[-7:] == [
        "train_loss",
        "seconds",
        "upload_bytes",
        "download_bytes",
        "nonfinite_rounds",
        "excluded_clients",
        "last_lost_round",
    ]
    for name in ("nonfinite_rounds", "excluded_clients", "last_lost_round"):
        assert {row[name] for row in written} == {"0"}
    assert [row["round"] for row in written] == ["1", "2", "3", "4"]
    for row in written:
        values = {name: float(value) for name, value in row.items()}
        assert all(0 <= values[name] <= 100 for name in values if name[:2] in ("ga", "pa"))
        assert values["seconds"] > 0
    assert float(written[-1]["train_loss"]) < float(written[0]["train_loss"])


def test_bytes_count_a_newcomer_s_frame_once(unbroken):
    """The simplex ETF of 84 by 10 float32 goes to each client in the first round it is in."""
    written = rows(unbroken)
    uploads = {int(row["upload_bytes"]) for row in written}
    assert len(uploads) == 1
    seen = set()
    for number, row in enumerate(written):
        cohort = set(cohorts.sample_cohort(0, number, 5, 3))
        fixed = 84 * 10 * 4 * len(cohort - seen)
        # The number of the round is sent as well, an int32 to each client.
        assert int(row["download_bytes"]) == uploads.copy().pop() + 3 * 4 + fixed
        seen |= cohort
    total = summary(unbroken)
    for name in ("upload_bytes", "download_bytes"):
        assert total[name] == sum(int(row[name]) for row in written)


def test_summary_agrees_with_the_metrics(unbroken):
    written = rows(unbroken)
    values = summary(unbroken, leave_out=())
    assert (values["algorithm"], values["seed"], values["rounds"]) == ("fedgela", 0, 4)
    for name in ("ga", "pa", "pa_before", "pa_masked", "pa_before_masked"):
        column = [float(row[name]) for row in written]
        assert values[f"{name}_final"] == column[-1]
        assert values[f"{name}_best"] == max(column)
    assert values["ga_second_half"] == pytest.approx(
        np.mean([float(row["ga"]) for row in written[2:]])
    )
    assert values["seconds_per_round"] == np.median([float(row["seconds"]) for row in written[1:]])
    assert values["config_digest"] == CONFIG.digest()


def test_a_finished_run_is_not_computed_again(unbroken, options, tmp_path, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file()}
    monkeypatch.setattr(Simulation, "next_round", lambda _: pytest.fail("computed"))
    copy = shutil.copytree(unbroken, tmp_path / "copy")
    again = Run(CONFIG, copy, options)
    assert again.train() == summary(unbroken, leave_out=())
    assert again.finished
    assert metrics(copy, leave_out=()) == metrics(unbroken, leave_out=())
    monkeypatch.setattr(Simulation, "__init__", lambda *_, **__: pytest.fail("set up"))
    assert run_experiment(CONFIG, unbroken, options) == summary(unbroken, leave_out=())
    assert before == {p: p.stat().st_mtime_ns for p in unbroken.rglob("*") if p.is_file()}


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_an_interrupted_run_ends_as_an_unbroken_one(store, unbroken, options, tmp_path):
    """Stopped in the middle of round 3; with partial participation, in either store."""
    directory = tmp_path / "run"
    options = dataclasses.replace(options, client_store=store)
    with stopped_in_round(3):
        run_experiment(CONFIG, directory, options)
    assert not (directory / "summary.json").exists()
    states = directory / "client_states"
    unfinished = list(states.glob("round_000003/*.npz"))
    assert len(unfinished) == (store == "disk")
    for path in unfinished:
        path.write_bytes(b"something else")
    (directory / "checkpoints" / ".round_000003.npz.1.tmp").write_bytes(b"half")
    with open(directory / "metrics.csv", "a") as file:
        file.write("3,44.2,1")
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)
    if store == "disk":
        took_part = {c for number in range(4) for c in cohorts.sample_cohort(0, number, 5, 3)}
        assert {int(path.stem.split("_")[1]) for path in states.glob("*/*.npz")} == took_part


def test_rounds_between_checkpoints_are_computed_again(unbroken, options, tmp_path):
    """A checkpoint after round 2 only, and a stop in round 4, when row 3 is already written."""
    directory = tmp_path / "run"
    options = dataclasses.replace(options, checkpoint_every=2)
    with stopped_in_round(4):
        run_experiment(CONFIG, directory, options)
    assert len(metrics(directory)) == 4
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_a_stop_before_the_first_checkpoint_starts_anew(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    with stopped_in_round(1):
        run_experiment(CONFIG, directory, options)
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_a_run_that_was_trained_can_be_trained_from_the_start(unbroken, options, tmp_path):
    """As in a notebook: stopped before a checkpoint, overwritten, and deleted by hand."""
    again = Run(CONFIG, tmp_path / "run", dataclasses.replace(options, checkpoint_every=5))
    with stopped_in_round(3):
        again.train()
    again.train()
    assert [row["round"] for row in rows(again.directory)] == ["1", "2", "3", "4"]
    assert_same_run(again.directory, unbroken)
    again.train(overwrite=True)
    assert_same_run(again.directory, unbroken)
    shutil.rmtree(again.directory)
    again.train()
    assert_same_run(again.directory, unbroken)


def test_evaluation_in_some_rounds_only(unbroken, options, tmp_path):
    """Global every second round, personal at the end; nothing else depends on it."""
    config = CONFIG.with_settings(eval_every=2, personal_eval_every=0)
    run_experiment(config, tmp_path / "run", options)
    some, every = rows(tmp_path / "run"), rows(unbroken)
    assert [row["round"] for row in some] == ["1", "2", "3", "4"]
    assert [row["ga"] for row in some] == ["", every[1]["ga"], "", every[3]["ga"]]
    assert [row["pa"] for row in some] == ["", "", "", every[3]["pa"]]
    for name in ("train_loss", "upload_bytes", "download_bytes", "last_lost_round"):
        assert [row[name] for row in some] == [row[name] for row in every]
    assert all(float(row["seconds"]) > 0 for row in some)
    values, expected = summary(tmp_path / "run"), summary(unbroken)
    assert values["pa_best"] == values["pa_final"] == expected["pa_final"]
    for name in ("upload_bytes", "download_bytes"):
        assert values[name] == expected[name], "bytes are sent in every round"


def test_every_round_has_a_row_also_after_an_interruption(options, tmp_path):
    config = CONFIG.with_settings(rounds=7, eval_every=5, personal_eval_every=0)
    run_experiment(config, tmp_path / "whole", options)
    with stopped_in_round(4):
        run_experiment(config, tmp_path / "run", options)
    run_experiment(config, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    found = rows(tmp_path / "run")
    assert [row["round"] for row in found] == [*"1234567"]
    assert [row["round"] for row in found if row["ga"]] == ["5", "7"]
    assert all(row["train_loss"] for row in found)


def test_a_run_whose_rounds_without_an_evaluation_have_no_rows_goes_on(options, tmp_path):
    """As earlier versions wrote them, in metrics.csv and in the copies in the checkpoints."""
    config = CONFIG.with_settings(eval_every=2, personal_eval_every=0)
    run_experiment(config, tmp_path / "whole", options)

    class WithoutRow(Callback):
        def on_round(self, run, row):
            if row["ga"] is None:
                run.history = type(run.history).parse(
                    csv_text(run.history.columns, [each for each in run.history if each != row])
                )

    with stopped_in_round(4):
        run_experiment(config, tmp_path / "run", options, callbacks=[WithoutRow()])
    header, *lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.csv").write_text(header + lines[1])
    run_experiment(config, tmp_path / "run", options)
    whole = metrics(tmp_path / "whole")
    assert metrics(tmp_path / "run") == [whole[0], whole[2], whole[4]]
    assert summary(tmp_path / "run") == summary(tmp_path / "whole")


def test_another_configuration_in_the_same_directory(unbroken, options):
    config = CONFIG.with_settings(rounds=5, client_momentum=0.5, fedgela_scale=2.0)
    before = (unbroken / "config.json").read_bytes()
    for start in (
        lambda: run_experiment(config, unbroken, options),
        Run(config, unbroken, options).train,
    ):
        with refuses("output_dir", "^holds a run with different settings: ") as caught:
            start()
        assert caught.value.value == unbroken
        for part in (
            "client_momentum (there 0.9, here 0.5)",
            "fedgela_scale (there 1.0, here 2.0)",
            "name another directory, or replace it with `overwrite`",
        ):
            assert part in caught.value.reason
        assert "seed" not in caught.value.reason
        # More rounds alone would continue the run.
        assert "rounds" not in caught.value.reason
    fewer = config.with_settings(rounds=3)
    with refuses("output_dir", r"rounds \(there 4, here 3\)"):
        run_experiment(fewer, unbroken, options)
    assert len(metrics(unbroken)) == 5
    assert (unbroken / "config.json").read_bytes() == before


def test_a_whole_number_is_the_same_setting_as_a_float(unbroken, options, tmp_path):
    """Either way round; config.json keeps what was given first, also for other readers."""
    whole = CONFIG.with_settings(fedgela_scale=1)
    assert whole == CONFIG
    for first, second, text in ((whole, CONFIG, "1"), (CONFIG, whole, "1.0")):
        directory = tmp_path / text
        with stopped_in_round(3):
            run_experiment(first, directory, options)
        run_experiment(second, directory, options)
        assert metrics(directory) == metrics(unbroken)
        assert f'"fedgela_scale": {text},' in (directory / "config.json").read_text()
        for config in (first, second, run_directory.read_config(directory)):
            assert restore_run(config, directory, options).simulation.round == 4
        assert recovery.recorded(directory).round == 4
    run_experiment(CONFIG, tmp_path / "1", options, overwrite=True)
    assert recovery.recorded(tmp_path / "1").round == 4


def test_a_run_of_an_earlier_version_is_continued_evaluated_and_restored(
    unbroken, options, tmp_path
):
    """Its config.json has none of the settings that came later, whatever their values are."""
    with stopped_in_round(3):
        run_experiment(CONFIG, tmp_path, options)
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    for name in ("warm_start", "head_calibration", "deterministic", "cohort_sampling"):
        del settings[name]
    path.write_text(json.dumps(settings, indent=2) + "\n")
    run_experiment(CONFIG, tmp_path, options)
    assert metrics(tmp_path) == metrics(unbroken)
    assert restore_run(CONFIG, tmp_path, options).simulation.round == 4
    assert evaluate_run(CONFIG, tmp_path, options)["round"] == 4
    assert recovery.recorded(tmp_path).round == 4


def test_overwrite_drops_the_old_results(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    config = CONFIG.with_settings(cohort_seed=9)
    run_experiment(config, directory, dataclasses.replace(options, client_store="disk"))
    run_experiment(CONFIG, directory, options, overwrite=True)
    assert_same_run(directory, unbroken)
    assert not (directory / "client_states").exists()
    run_experiment(config, tmp_path / "new", options, overwrite=True)
    assert metrics(tmp_path / "new") != metrics(unbroken)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_in_use_is_left_alone(overwrite, options, tmp_path):
    """Also if the other run started only after this one had checked the directory."""
    directory = tmp_path / "run"
    late = Run(CONFIG, directory, options)
    with directories.locked(directory):
        for start in (
            lambda: run_experiment(CONFIG, directory, options, overwrite=overwrite),
            lambda: late.train(overwrite=overwrite),
        ):
            with refuses("output_dir", "another process is writing"):
                start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "check_directory", lambda *_: None)
            with refuses("output_dir", "another process is writing"):
                late.train(overwrite=overwrite)
        assert os.listdir(directory) == [".lock"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_of_others_is_refused(overwrite, options, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for start in (
        lambda: run_experiment(CONFIG, tmp_path, options, overwrite=overwrite),
        lambda: Run(CONFIG, tmp_path, options).train(overwrite=overwrite),
    ):
        with refuses("output_dir", "is not empty and holds no run"):
            start()
        assert os.listdir(tmp_path) == ["thesis.tex"]


def test_the_other_store_is_refused(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    with stopped_in_round(2):
        run_experiment(CONFIG, directory, options)
    with refuses("client_store", "the other store, memory") as caught:
        run_experiment(CONFIG, directory, dataclasses.replace(options, client_store="disk"))
    assert caught.value.value == "disk"
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_refusals_leave_no_directory(options, tmp_path):
    directory = tmp_path / "run"
    too_large = CONFIG.with_settings(model="resnet18", clients_per_round=0)
    with refuses("model", "needs images"):
        run_experiment(too_large, directory, options, federation=tiny_federation())
    with refuses("clients_per_round", "has only 2 clients"):
        run_experiment(CONFIG, directory, options, federation=tiny_federation())
    assert not directory.exists()


def tiny_federation():
    """Two clients with images of 4 × 4."""
    x = np.zeros((4, 4, 4, 1), np.uint8)
    examples = data.Examples(x, np.arange(4, dtype=np.int32))
    clients = [data.ClientIndices(name, np.arange(2), np.arange(2)) for name in "ab"]
    spec = data.InputSpec("image", (4, 4, 1))
    return data.Federation("tiny", 4, tuple("abcd"), spec, examples, examples, clients)
