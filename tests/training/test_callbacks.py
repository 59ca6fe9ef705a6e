"""The built-in callbacks by themselves, and how a run calls them."""

import dataclasses
import os
import types

import pytest

from tests.training.runs import CONFIG, metrics, rows, stopped_in_round
from tff_pcdd.training import Callback, History, Run, run_experiment
from tff_pcdd.training.callbacks import CsvLog, Progress, TensorBoard

COLUMNS = ["round", "ga", "pa", "seconds"]


def fake_run(directory, columns=COLUMNS, **attributes):
    """What a callback may read of a run."""
    return types.SimpleNamespace(directory=directory, history=History(columns), **attributes)


def write(directory, rounds, first_round=1):
    """Logs rounds as a process does that starts with `first_round`."""
    run = fake_run(directory)
    for row in History.read(directory / "metrics.csv"):
        if row["round"] < first_round:
            run.history.append(row)
    log = CsvLog()
    log.on_start(run)
    for number in rounds:
        values = {"round": number, "ga": number / 3, "seconds": 0.25, "unknown": 1}
        log.on_round(run, run.history.append(values))
    log.on_end(run)


def test_rows_are_appended_at_once(tmp_path):
    write(tmp_path, [1, 2])
    text = (tmp_path / "metrics.csv").read_text()
    assert text == "round,ga,pa,seconds\n1,0.333333333,,0.25\n2,0.666666667,,0.25\n"


@pytest.mark.parametrize("tail", ["", "4,1.3", "4", "\x00"], ids=["whole", "cut", "short", "zero"])
def test_rows_after_the_checkpoint_and_a_cut_off_line_are_dropped(tmp_path, tail):
    write(tmp_path, [1, 2, 3])
    path = tmp_path / "metrics.csv"
    with open(path, "a") as file:
        file.write(tail)
    assert History.read(path).column("round") == [1, 2, 3]
    write(tmp_path, [3, 4], first_round=3)
    (tmp_path / "unbroken").mkdir()
    write(tmp_path / "unbroken", [1, 2, 3, 4])
    assert path.read_bytes() == (tmp_path / "unbroken" / "metrics.csv").read_bytes()


def test_a_new_run_starts_an_empty_file(tmp_path):
    write(tmp_path, [1, 2])
    write(tmp_path, [])
    assert (tmp_path / "metrics.csv").read_text() == "round,ga,pa,seconds\n"


@pytest.mark.parametrize("name", [b"run", b"a\xfc\nb"])
def test_tensorboard_gets_every_number(name, tmp_path):
    """Also in a directory whose name is not in UTF-8."""
    import tensorflow as tf

    directory = tmp_path / os.fsdecode(name)
    run = fake_run(directory, ["round", "ga", "pa", "upload_bytes"])
    board = TensorBoard()
    board.on_start(run)
    values = {"round": 3, "ga": 50.0, "pa": float("nan"), "upload_bytes": 7, "note": "text"}
    board.on_round(run, run.history.append(values))
    board.on_end(run)
    (file,) = (directory / "tensorboard").iterdir()
    found = {
        value.tag: (event.step, float(tf.make_ndarray(value.tensor)))
        for event in tf.compat.v1.train.summary_iterator(os.fsencode(file))
        for value in event.summary.value
    }
    assert found == {"ga": (3, 50.0), "upload_bytes": (3, 7.0)}


def test_progress_counts_on_from_the_checkpoint(tmp_path, capsys):
    run = fake_run(
        tmp_path,
        label="fedavg seed 0",
        last_round=9,
        simulation=types.SimpleNamespace(round=2),
    )
    progress = Progress()
    progress.on_start(run)
    progress.on_round(run, run.history.append({"round": 3, "ga": 12.345, "seconds": 1}))
    # Another callback has ended the run early.
    run.last_round = 4
    values = {"round": 4, "ga": 50.0, "pa": 75.04, "seconds": 1}
    progress.on_round(run, run.history.append(values))
    progress.on_end(run)
    shown = capsys.readouterr().err
    assert "fedavg seed 0" in shown
    assert "2/9" in shown
    assert "4/4" in shown
    assert "GA=50.0, PA=75.0" in shown


def test_progress_shows_the_seconds_of_the_summary(tmp_path, capsys):
    """The median without the first round, which includes tracing; not the time of evaluations."""
    run = fake_run(tmp_path, label="x", last_round=4, simulation=types.SimpleNamespace(round=0))
    run.history = History(["round", "ga", "seconds"])
    progress = Progress()
    progress.on_start(run)
    for number, seconds in enumerate((9.0, 0.25, 0.5, 0.375), 1):
        progress.on_round(run, run.history.append({"round": number, "ga": 1, "seconds": seconds}))
    progress.on_end(run)
    shown = capsys.readouterr().err
    assert "0/4 [00:00<?, first round]" in shown
    assert "0.375 s/round, GA=1.0" in shown.rpartition("4/4")[2]


def test_progress_shows_the_latest_accuracies(tmp_path, capsys):
    """In rounds without an evaluation, those of the last evaluation."""
    run = fake_run(tmp_path, label="x", last_round=3, simulation=types.SimpleNamespace(round=0))
    run.history = History(["round", "ga", "pa", "seconds", "nonfinite_rounds"])
    progress = Progress()
    progress.on_start(run)
    for number, ga, bad in ((1, 20.0, 0), (2, 30.0, 0), (3, None, 1)):
        values = {"round": number, "ga": ga, "seconds": 0.5, "nonfinite_rounds": bad}
        progress.on_round(run, run.history.append(values))
    progress.on_end(run)
    shown = capsys.readouterr().err.rpartition("3/3")[2]
    assert "0.5 s/round, GA=30.0, not finite=1 rounds" in shown


class Recorder(Callback):
    """Notes how it is called, and stops the run after a round if asked to."""

    def __init__(self, stop_in=None, stop_after=None):
        self.calls = []
        self._stop_in = stop_in
        self._stop_after = stop_after or stop_in

    def on_start(self, run):
        self.calls.append(("start", run.simulation.round, len(run.history)))

    def on_round(self, run, row):
        self.calls.append((run.simulation.round, row["round"]))
        if run.simulation.round == self._stop_in:
            run.stop_after(self._stop_after)

    def on_end(self, run):
        self.calls.append(("end", run.simulation.round, run.finished))


@pytest.mark.integration
@pytest.mark.usefixtures("shared_computations")
def test_an_own_callback_ends_a_run(unbroken, options, tmp_path):
    recorder = Recorder(stop_in=2)
    summary = run_experiment(CONFIG, tmp_path / "run", options, callbacks=[recorder])
    assert recorder.calls == [("start", 0, 0), (1, 1), (2, 2), ("end", 2, True)]
    assert summary["rounds"] == 2
    assert metrics(tmp_path / "run") == metrics(unbroken)[:3]
    assert (tmp_path / "run" / "plots" / "accuracy.png").exists()
    assert (tmp_path / "run" / "checkpoints" / "round_000002.npz").exists()
    # It counts as finished.
    assert run_experiment(CONFIG, tmp_path / "run", options) == summary


@pytest.mark.usefixtures("shared_computations")
@pytest.mark.parametrize(
    ("stop_in", "stop_after", "last", "personal_every"),
    # In the last case, only the personal models have been evaluated.
    [(1, 1, 2, 0), (1, 3, 3, 0), (2, 1, 3, 0), (3, 3, 4, 3)],
)
def test_the_last_round_is_evaluated(stop_in, stop_after, last, personal_every, options, tmp_path):
    """In full, also if the run should end with a round that is over and was not."""
    config = CONFIG.with_settings(eval_every=2, personal_eval_every=personal_every)
    recorder = Recorder(stop_in, stop_after)
    summary = run_experiment(config, tmp_path / "run", options, callbacks=[recorder])
    assert summary["rounds"] == last
    assert [row["round"] for row in rows(tmp_path / "run")] == [str(n + 1) for n in range(last)]
    assert None not in (summary["ga_final"], summary["pa_final"])
    assert recorder.calls[-1] == ("end", last, True)


@pytest.mark.usefixtures("shared_computations")
def test_callbacks_of_an_interrupted_run(options, tmp_path):
    """The end is announced, unfinished; the next process starts where the checkpoint is."""
    first, second = Recorder(), Recorder()
    with stopped_in_round(4):
        run_experiment(CONFIG, tmp_path / "run", options, callbacks=[first])
    assert first.calls == [("start", 0, 0), (1, 1), (2, 2), (3, 3), ("end", 4, False)]
    run_experiment(CONFIG, tmp_path / "run", options, callbacks=[second])
    assert second.calls == [("start", 3, 3), (4, 4), ("end", 4, True)]


@pytest.mark.usefixtures("shared_computations")
def test_a_run_can_be_stopped_before_it_starts(options, tmp_path):
    run = Run(CONFIG, tmp_path / "run", options)
    run.stop_after(1)
    assert run.train()["rounds"] == 1


@pytest.mark.usefixtures("shared_computations")
def test_a_round_that_has_begun_can_be_the_last(unbroken, options, tmp_path):
    """Stopped after round 2 when the third is announced: that one is evaluated and saved."""

    class Stop(Callback):
        def on_stage(self, run, stage):
            if (run.simulation.round, stage) == (2, "training"):
                run.stop_after(2)

    options = dataclasses.replace(options, checkpoint_every=2)
    summary = run_experiment(CONFIG, tmp_path / "run", options, callbacks=[Stop()])
    assert summary["rounds"] == 3
    assert metrics(tmp_path / "run") == metrics(unbroken)[:4]
    assert (tmp_path / "run" / "checkpoints" / "round_000003.npz").exists()
    assert (tmp_path / "run" / "plots" / "accuracy.png").exists()


@pytest.mark.usefixtures("shared_computations")
def test_the_parts_of_rounds_are_announced(options, tmp_path):
    parts = []

    class Parts(Callback):
        def on_stage(self, run, stage):
            parts.append((run.simulation.round, stage))

    config = CONFIG.with_settings(rounds=3, eval_every=2, personal_eval_every=0)
    run_experiment(config, tmp_path / "run", options, callbacks=[Parts()])
    assert parts == [
        (0, "training"),
        (1, "training"),
        (2, "evaluating the global model"),
        (2, "training"),
        (3, "evaluating the global model"),
        (3, "evaluating the personal models"),
    ]


def test_the_bar_shows_a_part_that_takes_long(monkeypatch, capsys):
    """On a terminal only: in a log file, each text would be a line."""
    run = fake_run(None, label="mine", last_round=2, simulation=types.SimpleNamespace(round=0))
    for terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        # At once, instead of in another thread.
        monkeypatch.setattr(
            "tff_pcdd.stages.Delayed.enter", lambda self, stage: stage and self.show(stage)
        )
        bar = Progress()
        bar.on_start(run)
        bar.on_stage(run, "evaluating")
        bar.on_round(run, run.history.append({"round": 1, "seconds": 2}))
        bar.on_end(run)
        err = capsys.readouterr().err
        assert ("first round, evaluating …" in err) == terminal
        assert err.rstrip().rpartition(", ")[2] == "2 s/round]"
