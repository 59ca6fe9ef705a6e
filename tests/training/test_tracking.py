"""Experiment trackers: what their own stores contain after a run, and what happens if one fails."""

import contextlib
import dataclasses
import importlib.util
import json
import logging
import re
import struct
import subprocess
import sys
import types
import urllib.error
import urllib.request

import pytest

from tests import waiting
from tests.data.refusals import refuses
from tests.training.runs import CONFIG, rows, stopped_in_round
from tff_pcdd.errors import SettingError
from tff_pcdd.training import History, RunOptions, run_experiment, trackers

# `make test` installs the trackers; the package works without them.
needs = {
    name: pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )
    for name in trackers.TRACKERS
}


def measured(directory, number):
    """A row of metrics.csv as a tracker gets it."""
    row = rows(directory)[number - 1]
    return {name: float(value) for name, value in row.items() if value and name != "round"}


@pytest.mark.integration
def test_tensorboard_answers_with_what_a_run_measured(unbroken):
    command = [sys.executable, "-m", "tensorboard.main", "--port=0", "--host=127.0.0.1"]
    board = subprocess.Popen(
        [*command, f"--logdir={unbroken}"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        address = next(
            found[0] for line in board.stderr if (found := re.search(rb"http://\S+", line))
        )
        url = f"{address.decode().rstrip('/')}/data/plugin/scalars/scalars?tag=ga&run=tensorboard"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def read():
            """The points once there are four: it reads files after it has begun to answer."""
            with contextlib.suppress(urllib.error.HTTPError), opener.open(url) as reply:
                points = json.load(reply)
                return points if len(points) >= 4 else None

        points = waiting.until(read, board)
        assert [step for _, step, _ in points] == [1, 2, 3, 4]
        expected = [float(row["ga"]) for row in rows(unbroken)]
        assert [value for *_, value in points] == pytest.approx(expected, rel=1e-6)
    finally:
        board.terminate()
        board.wait()
        board.stderr.close()


@pytest.fixture
def mlflow_client(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    # mlflow-skinny has no database stores, which MLflow prefers.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    return MlflowClient()


@needs["mlflow"]
@pytest.mark.integration
@pytest.mark.usefixtures("shared_computations")
def test_mlflow_has_each_round_once_after_an_interruption(mlflow_client, options, tmp_path):
    directory = tmp_path / "run"
    options = dataclasses.replace(options, tracking="mlflow")
    with stopped_in_round(3):
        run_experiment(CONFIG, directory, options, label="a run")
    experiment = mlflow_client.get_experiment_by_name("tff_pcdd").experiment_id
    (record,) = mlflow_client.search_runs([experiment])
    assert record.info.status == "KILLED"
    run_experiment(CONFIG, directory, options, label="a run")
    (record,) = mlflow_client.search_runs([experiment])
    assert (record.info.status, record.info.run_name) == ("FINISHED", "a run")
    settings = json.loads((directory / "config.json").read_text())
    assert record.data.params == {name: str(value) for name, value in settings.items()}
    for name in ("ga", "pa", "train_loss", "upload_bytes"):
        history = mlflow_client.get_metric_history(record.info.run_id, name)
        assert [(metric.step, metric.value) for metric in history] == [
            (number, measured(directory, number)[name]) for number in (1, 2, 3, 4)
        ]


@needs["mlflow"]
@pytest.mark.integration
@pytest.mark.usefixtures("shared_computations")
def test_a_tracker_that_is_added_later_gets_the_earlier_rounds(mlflow_client, options, tmp_path):
    with stopped_in_round(3):
        run_experiment(CONFIG, tmp_path / "run", options)
    run_experiment(CONFIG, tmp_path / "run", dataclasses.replace(options, tracking="mlflow"))
    experiment = mlflow_client.get_experiment_by_name("tff_pcdd").experiment_id
    (record,) = mlflow_client.search_runs([experiment])
    history = mlflow_client.get_metric_history(record.info.run_id, "ga")
    assert [metric.step for metric in history] == [1, 2, 3, 4]


@needs["wandb"]
@pytest.mark.integration
@pytest.mark.usefixtures("shared_computations")
def test_weights_and_biases_has_each_round(options, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    directory = tmp_path / "run"
    run_experiment(CONFIG, directory, dataclasses.replace(options, tracking="wandb"))
    from wandb.proto import wandb_internal_pb2

    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found, settings = {}, {}
    for data in _records_of_log(path):
        record = wandb_internal_pb2.Record.FromString(data)
        settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.history.item:
            values = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            step = values.pop("_step", record.history.step.num)
            found[step] = {key: value for key, value in values.items() if key[0] != "_"}
    assert found == {number: measured(directory, number) for number in (1, 2, 3, 4)}
    expected = json.loads((directory / "config.json").read_text())
    assert {name: settings[name] for name in expected} == expected


def _records_of_log(path):
    """The records in a file of Weights & Biases, which has the format of LevelDB's log.

    After a header of 7 bytes, there are blocks of 32 KiB with pieces of records: a checksum of 4
    bytes, the length in 2, and the kind in 1, which is 1 for a whole record and 4 for a last piece.
    """
    data, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


class Failing(trackers.Tracker):
    """A tracker that fails in one of its functions."""

    package = "failing"

    def __init__(self, where):
        super().__init__()
        self.where, self.calls = where, []

    def _call(self, name, *arguments):
        self.calls.append((name, *arguments))
        if name == self.where:
            raise ConnectionError("no route\nto the host")

    def open(self, run):
        self._call("open")
        return 1

    def send(self, round_number, values):
        self._call("send", round_number, values)

    def close(self, finished):
        self._call("close", finished)


def track(tracker):
    run = types.SimpleNamespace(history=History(["round", "ga", "pa"]), finished=True)
    for number in (1, 2):
        run.history.append({"round": number, "ga": 10.0 * number})
    tracker.on_start(run)
    tracker.on_round(run, {"round": 3, "ga": 30.0, "pa": None})
    tracker.on_end(run)


def test_rounds_that_the_tracker_has_are_not_sent_again():
    tracker = Failing(None)
    track(tracker)
    sent = [("send", 2, {"ga": 20.0}), ("send", 3, {"ga": 30.0})]
    assert tracker.calls == [("open",), *sent, ("close", True)]


def test_a_tracker_that_cannot_be_reached_is_refused_at_the_start():
    with refuses("tracking", "no route to the host", "failing"):
        track(Failing("open"))


@pytest.mark.parametrize("where", ["send", "close"])
def test_a_tracker_that_fails_later_does_not_end_the_run(where, caplog):
    tracker = Failing(where)
    with caplog.at_level(logging.WARNING):
        track(tracker)
    assert caplog.messages == ["failing gets no more results of this process: no route to the host"]
    assert [call[0] for call in tracker.calls].count(where) == 1


def test_unknown_and_missing_trackers_are_refused(monkeypatch):
    with pytest.raises(SettingError, match="'neptune' is not one of mlflow, wandb"):
        RunOptions(tracking="neptune")
    monkeypatch.setitem(trackers.TRACKERS, "not_installed", "Any")
    with pytest.raises(SettingError, match="the package not_installed is not installed; the extra"):
        RunOptions(tracking="not_installed")
    assert RunOptions().tracker_names() == []


def test_an_overwritten_run_has_a_record_of_its_own(tmp_path, monkeypatch):
    """At Weights & Biases, which keeps what a record has of earlier rounds."""
    steps = {}

    def init(id, **_):
        record = types.SimpleNamespace(step=steps.get(id, 0), finish=lambda exit_code: None)
        record.log = lambda values, step: steps.update({id: step + 1})
        return record

    fake = types.SimpleNamespace(init=init, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", fake)

    def run_with(rounds, start=0):
        run = types.SimpleNamespace(
            directory=tmp_path,
            config=CONFIG,
            label="fedavg seed 0",
            simulation=types.SimpleNamespace(round=start),
            history=History(["round", "ga"]),
            finished=True,
        )
        for number in range(1, rounds + 1):
            run.history.append({"round": number, "ga": 10.0})
        return run

    def send(run):
        tracker = trackers.WeightsAndBiases()
        tracker.on_start(run)
        tracker.on_end(run)

    send(run_with(3))
    send(run_with(5, start=3))
    assert [*steps.values()] == [6]
    send(run_with(4))
    assert [*steps.values()] == [6, 5]
    # A run that began without this tracker has no such file, and gets one.
    (tmp_path / "wandb_record.txt").unlink()
    send(run_with(4, start=2))
    send(run_with(6, start=4))
    assert [*steps.values()] == [6, 5, 7]
    (tmp_path / "wandb_record.txt").write_text("../../etc")
    send(run_with(8, start=6))
    assert [*steps.values()] == [6, 5, 7, 9]
