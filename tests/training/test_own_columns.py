"""Columns that callbacks add to the history: their names, values and best values."""

import pytest

from tests.data.refusals import refuses
from tff_pcdd import measures
from tff_pcdd.experiment.history import History
from tff_pcdd.measures import OWN, Measure
from tff_pcdd.training import Callback, ExperimentConfig, RunOptions, callbacks
from tff_pcdd.training.run import Run
from tff_pcdd.training.summary import summarize_accuracies

pytestmark = pytest.mark.usefixtures("shared_computations")

CONFIG = ExperimentConfig.from_settings(
    algorithm="fedavg", partition="iid", model="mlp", num_clients=3, clients_per_round=0
)


def measuring(*names, better="", values=None):
    """A callback with these columns."""

    class Own(Callback):
        name = "own"
        measures = tuple(Measure(name, name, name, "", better, OWN) for name in names)

        def measure(self, run):
            return values or {}

    return Own()


@pytest.fixture(autouse=True)
def declared(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(measures, "_BY_NAME", dict(measures._BY_NAME))


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ([measuring("ga_mine")], "its measures contain 'ga_mine', the name of another column"),
        ([measuring("seconds")], "its measures contain 'seconds', the name of another column"),
        ([measuring("a", "a")], "its measures contain 'a' twice; rename it"),
        ([measuring("a"), measuring("a")], "its measures contain 'a' twice; rename it"),
    ],
)
def test_names_of_other_columns_are_refused(own, reason, tmp_path):
    with refuses("callbacks", reason):
        Run(CONFIG, tmp_path / "run", callbacks=own)
    assert not (tmp_path / "run").exists()


def test_registration_refuses_the_same_names():
    with refuses("callbacks", "'pa_x' is the name of another column of metrics.csv; rename it"):
        callbacks.register(type(measuring("pa_x")))


def test_a_value_that_is_not_declared_is_refused(tmp_path):
    run = Run(CONFIG, tmp_path / "run", callbacks=[measuring("a", values={"b": 1.0})])
    with refuses("callbacks", "its hook `measure` returned 'b', which it does not declare"):
        run._measured_by_callbacks()


def test_each_run_has_a_copy_of_a_registered_callback(tmp_path):
    """Also of what it collects: in a study, runs share the options."""

    class Rounds(Callback):
        name = "rounds"

        def __init__(self):
            self.found = []

        def on_start(self, run):
            self.found.append(run.config.seed)

    registered = Rounds()
    options = RunOptions(callbacks=(registered,))
    for seed in (0, 1):
        run = Run(CONFIG.with_settings(seed=seed), tmp_path / str(seed), options)
        (own,) = (each for each in run._callbacks if isinstance(each, Rounds))
        own.on_start(run)
        assert own.found == [seed]
    assert registered.found == []


@pytest.mark.parametrize(("better", "best"), [("higher", 3.0), ("lower", 1.0), ("", None)])
def test_the_best_value_is_what_the_measure_calls_better(better, best):
    measures.declare(Measure("energy", "energy", "energy", "J", better, OWN))
    history = History(["round", "ga", "energy"])
    for number, value in enumerate((3.0, 1.0, 2.0), 1):
        history.append({"round": number, "ga": 50.0, "energy": value})
    summary = summarize_accuracies(history, own=["energy"])
    assert summary["energy_final"] == 2.0
    assert summary.get("energy_best") == best
    assert "energy_final" not in summarize_accuracies(history)
