"""Updates, losses and answers that are NaN or infinite: excluded, counted, and marked."""

import csv
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.training.runs import CONFIG, metrics, rows, summary
from tff_pcdd import export
from tff_pcdd.errors import DataError
from tff_pcdd.experiment.nonfinite import NonfiniteLog
from tff_pcdd.federated import LocalWork, aggregators
from tff_pcdd.training import History, Simulation, plots, restore_run, run_experiment
from tff_pcdd.training.post_hoc import calibrate_run
from tff_pcdd.training.summary import summarize_accuracies

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("shared_computations")]

# The first step already makes weights of 1e30, whose products are infinite.
DIVERGING = CONFIG.with_settings(
    algorithm="fedavg", client_learning_rate=1e30, client_clip_norm=0.0, rounds=2
)


def leaves(tree):
    return [np.asarray(leaf) for leaf in tf.nest.flatten(tree)]


def test_divergence_is_noticed_said_and_recorded(options, tmp_path, caplog):
    result = run_experiment(DIVERGING, tmp_path, options)
    assert result["nonfinite_rounds"] == 2
    assert result["excluded_clients"] == 6
    assert result["diverged"] is True
    assert result["ga_best"] is None
    assert [row["nonfinite_rounds"] for row in rows(tmp_path)] == ["1", "2"]
    assert [row["excluded_clients"] for row in rows(tmp_path)] == ["3", "6"]
    assert [row["last_lost_round"] for row in rows(tmp_path)] == ["1", "2"]
    # There is no loss of clients that take part.
    assert {row["train_loss"] for row in rows(tmp_path)} == {""}
    assert json.loads((tmp_path / "summary.json").read_text()) == result
    for message in (
        "round 1: what 3 of 3 clients computed is not finite; they are excluded",
        "the run has diverged; its results are not usable",
    ):
        assert message in caplog.text


@pytest.mark.parametrize("name", support.rare_but(["dp", "mean"], aggregators.names()))
def test_under_every_aggregator(name, compute):
    """A round in which all clients are excluded leaves weights and states as they are."""
    # The noise of dp is added all the same: whether it is would tell who was there.
    noise = {"dp_noise_multiplier": 0.0} if name == "dp" else {}
    simulation = Simulation(DIVERGING.with_settings(aggregator=name, **noise), compute=compute)
    before = leaves(simulation.state.weights)
    measured = simulation.next_round()
    assert simulation.totals["nonfinite_rounds"] == 1
    assert simulation.totals["excluded_clients"] == 3
    assert np.isnan(measured["train_loss"])
    for old, new in zip(before, leaves(simulation.state.weights), strict=True):
        np.testing.assert_array_equal(old, new)


def test_the_state_of_one_client_is_enough(compute, caplog):
    """FedPer's head stays at the client: the server's weights are finite after its round."""
    simulation = Simulation(CONFIG.with_settings(algorithm="fedper"), compute=compute)
    state = simulation.initial_client_state(2)
    head = [np.full_like(leaf, np.inf) for leaf in state.personal]
    simulation.store.put(2, state._replace(personal=head), 0)
    simulation.evaluate_personal()
    assert "the personal answer of 1 of 5 clients is not finite" in caplog.text
    assert simulation.totals["nonfinite_rounds"] == 1
    assert not simulation.nonfinite.diverged


def test_a_round_counts_once(compute):
    simulation = Simulation(DIVERGING, compute=compute)
    simulation.next_round()
    simulation.evaluate()
    simulation.evaluate()
    assert simulation.totals["nonfinite_rounds"] == 1


def as_floats(config):
    """The federation of a configuration, in float32."""
    made = config.data.build()
    spec = dataclasses.replace(made.input_spec, dtype="float32")
    parts = {
        name: dataclasses.replace(part, x=np.asarray(part.x, np.float32))
        for name, part in (("train", made.train), ("test", made.test))
    }
    return dataclasses.replace(made, input_spec=spec, **parts)


def with_bad_client(config, client=1):
    """The same with a NaN pixel at a client.

    Federations with such values are refused, so it is put in place later: a stand-in for whatever
    makes the computations of one client fail.
    """
    made = as_floats(config)
    made.train.x[made.clients[client].train[0], 3, 3, 0] = np.nan
    return made


ONE_BAD = CONFIG.with_settings(algorithm="fedavg", clients_per_round=5, rounds=5)


def test_a_run_with_a_bad_client_stops_after_three_rounds(options, tmp_path):
    """The same command only says so again, and does not train on."""
    federation = with_bad_client(ONE_BAD)
    result = run_experiment(ONE_BAD, tmp_path, options, federation=federation)
    assert (result["rounds"], result["diverged"], result["excluded_clients"]) == (3, True, 3)
    assert [row["train_loss"] == "" for row in rows(tmp_path)] == [False] * 3
    assert run_experiment(ONE_BAD, tmp_path, options, federation=federation) == result
    earlier, written = summary(tmp_path), metrics(tmp_path)
    # As if the process had been killed before it wrote the summary.
    (tmp_path / "summary.json").unlink()
    run_experiment(ONE_BAD, tmp_path, options, federation=federation)
    assert (summary(tmp_path), metrics(tmp_path)) == (earlier, written)


def test_the_others_can_go_on_without_the_bad_client(options, tmp_path, compute):
    """Equals a simulation in which the client has no samples; its state stays the initial one."""
    config = ONE_BAD.with_settings(nonfinite="exclude", personal_eval_every=0)
    federation = with_bad_client(config)
    result = run_experiment(config, tmp_path, options, federation=federation)
    assert (result["rounds"], result["diverged"], result["excluded_clients"]) == (5, False, 5)
    assert result["nonfinite_rounds"] == 5
    assert result["ga_best"] is not None
    federation = as_floats(config)
    clients = list(federation.clients)
    clients[1] = dataclasses.replace(clients[1], train=clients[1].train[:0])
    without = dataclasses.replace(federation, clients=tuple(clients))
    simulation = Simulation(config, without, compute=compute)
    for _ in range(5):
        simulation.next_round()
    assert f"{simulation.evaluate_global()['ga']:.9g}" == f"{result['ga_final']:.9g}"


def test_a_bad_client_may_be_the_only_one_that_is_left(compute, monkeypatch, caplog):
    """The model is as good as before: only several such rounds in a row mark the run."""
    config = ONE_BAD.with_settings(nonfinite="exclude", dropped_share=0.5)
    simulation = Simulation(config, with_bad_client(config), compute=compute)
    simulation.next_round()
    before = leaves(simulation.state.weights)
    bad = simulation.client_data(1).seed.tolist()
    monkeypatch.setattr(LocalWork, "drops_out", lambda self, seed: seed.tolist() != bad)
    caplog.clear()
    measured = simulation.next_round()
    assert caplog.messages == [
        "round 2: what 1 of 1 clients that did not drop out computed is not finite; they are "
        "excluded"
    ]
    assert measured["dropped_clients"] == 4 and np.isnan(measured["train_loss"])
    assert not simulation.nonfinite.diverged
    for old, new in zip(before, leaves(simulation.state.weights), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("nonfinite", ["stop", "exclude"])
def test_a_nan_in_the_test_set(nonfinite, options, tmp_path):
    """Noticed although ReLU would turn it into 0: such a sample has no answer."""
    config = CONFIG.with_settings(algorithm="fedavg", model="mlp", nonfinite=nonfinite)
    federation = as_floats(config)
    federation.test.x[0, 3, 3, 0] = np.nan
    result = run_experiment(config, tmp_path, options, federation=federation)
    assert (result["rounds"], result["diverged"]) == (3, True)
    assert result["excluded_clients"] == 0


def test_a_diverged_model_is_not_exported(options, tmp_path):
    run_experiment(DIVERGING, tmp_path / "run", options)
    with pytest.raises(DataError) as error:
        export.export_run(tmp_path / "run", tmp_path / "out", None, options)
    assert str(error.value) == (
        f"{tmp_path / 'run'} is not exported: the run has diverged by round 2; export an earlier "
        "round"
    )
    assert not (tmp_path / "out" / "global").exists()


def test_a_model_with_such_answers_is_not_exported(compute):
    """Finite weights, whose sums are not."""
    config = CONFIG.with_settings(algorithm="fedavg")
    simulation = Simulation(config, compute=compute)
    simulation.next_round()
    model = export.global_model(simulation)
    for variable in model.network.variables:
        variable.assign(tf.fill(variable.shape, 1e30))
    with pytest.raises(DataError, match=r"^answers of the model are NaN or infinite$"):
        model.calibrate(simulation.federation.test, simulation.federation.test, 32)


# The decision, without training.


def play(action, *rounds):
    """The totals after rounds of which each is one of these.

    "" (finite), "bad", "lost", "gone" (all clients dropped out), "rest" (some dropped out, and all
    others were excluded).
    """
    totals = {}
    log = NonfiniteLog(action, totals)
    for number, kind in enumerate(rounds, 1):
        log.begin(number)
        if kind == "gone":
            log.all_dropped(3)
        elif kind == "rest":
            log.excluded(2, 2, 1, everyone=True)
        elif kind:
            # Twice, as when the clients and an answer are not finite.
            log.note(kind, lost=False)
            log.note(kind, lost=kind == "lost")
    return totals, log


@pytest.mark.parametrize(
    ("action", "rounds", "hopeless", "diverged"),
    [
        ("stop", ["bad"] * 2, False, False),
        ("stop", ["bad"] * 3, True, True),
        ("stop", ["bad", "bad", "", "bad"], False, False),
        ("stop", ["bad", "lost", "bad"], True, True),
        ("exclude", ["bad"] * 9, False, False),
        ("exclude", ["lost", "lost", "bad"], False, False),
        ("exclude", ["lost"] * 3, True, True),
        ("stop", ["", "lost"], False, True),
        ("exclude", ["", "lost"], False, True),
        ("exclude", ["lost", ""], False, False),
        ("stop", [""] * 5, False, False),
        ("stop", ["bad", "gone", "bad", "bad"], True, True),
        ("exclude", ["gone"] * 5, False, False),
        ("exclude", ["lost", "lost", "gone", "lost"], True, True),
        ("exclude", ["lost", "lost", "gone"], False, False),
        ("exclude", ["rest", "rest"], False, False),
        ("exclude", ["rest", "gone", "rest", "rest"], True, True),
        ("exclude", ["rest", "bad", "rest", "rest"], False, False),
    ],
)
def test_when_a_run_has_diverged(action, rounds, hopeless, diverged):
    totals, log = play(action, *rounds)
    assert (log.hopeless, log.diverged) == (hopeless, diverged)
    assert totals["nonfinite_rounds"] == len([kind for kind in rounds if kind not in ("", "gone")])
    lost = [number for number, kind in enumerate(rounds, 1) if kind == "lost"]
    assert totals["last_lost_round"] == max(lost, default=0)


def test_the_decision_survives_a_checkpoint():
    totals, _ = play("stop", "bad", "bad")
    again = {}
    log = NonfiniteLog("stop", again)
    again.update(totals)
    log.restore(2)
    # The round is evaluated once more.
    log.note("bad", lost=False)
    assert again == totals
    log.begin(3)
    log.note("bad", lost=False)
    assert log.hopeless


@pytest.mark.parametrize(
    ("action", "rounds", "noted", "expected"),
    # In each case: rounds that are not finite, and how many of them in a row count.
    [
        ("exclude", ["bad", "bad"], "bad", (2, 0)),
        ("exclude", ["lost", "bad"], "bad", (2, 0)),
        ("exclude", ["lost", "lost"], "lost", (2, 2)),
        ("exclude", ["bad", ""], "bad", (2, 0)),
        ("exclude", ["lost", "gone"], "lost", (2, 2)),
        ("stop", ["bad", "bad"], "bad", (2, 2)),
        ("stop", ["bad", "gone"], "bad", (2, 2)),
    ],
)
def test_an_evaluation_after_a_checkpoint_counts_no_round_twice(action, rounds, noted, expected):
    totals, _ = play(action, *rounds)
    before, _ = play(action, *rounds[:-1])
    again = {}
    log = NonfiniteLog(action, again)
    again.update(totals)
    log.restore(len(rounds), before["nonfinite_rounds"])
    log.note("an answer", lost=noted == "lost")
    assert (again["nonfinite_rounds"], again["nonfinite_in_a_row"]) == expected


def test_a_bad_client_counts_once_in_an_evaluation_of_a_checkpoint(options, tmp_path):
    """In the first round and in a later one, also of a head that is re-trained afterwards."""
    config = ONE_BAD.with_settings(nonfinite="exclude", rounds=2)
    federation = with_bad_client(config)
    result = run_experiment(config, tmp_path / "run", options, federation=federation)
    assert (result["nonfinite_rounds"], result["excluded_clients"]) == (2, 2)
    for number in (1, 2):
        run = restore_run(config, tmp_path / "run", options, number, federation=federation)
        run.simulation.evaluate()
        totals = run.simulation.totals
        assert (totals["nonfinite_rounds"], totals["excluded_clients"]) == (number, number)
    calibrated = config.with_settings(head_calibration="creff", creff_epochs=1)
    arguments = (tmp_path / "run", tmp_path / "calibrated", options)
    result = calibrate_run(config, calibrated, *arguments, federation=federation)
    assert (result["nonfinite_rounds"], result["excluded_clients"]) == (2, 2)


@pytest.mark.parametrize(("loss", "lost"), [(2.0**24, False), (1.7e7, True), (float("nan"), False)])
def test_a_loss_beyond_all_measure(loss, lost):
    totals = {}
    log = NonfiniteLog("exclude", totals)
    log.begin(1)
    log.check_loss(loss)
    assert totals["last_lost_round"] == lost


def history():
    made = History(["round", "ga", "va", "last_lost_round"])
    for number, lost in enumerate((0, 2, 2, 4), 1):
        values = {"ga": 10.0 * number, "va": 10.0 * number, "last_lost_round": lost}
        made.append({"round": number, **values})
    return made


def test_best_rounds_are_not_lost_ones():
    found = summarize_accuracies(history())
    assert (found["ga_best"], found["best_round"], found["ga_final"]) == (30.0, 3, 40.0)
    found = summarize_accuracies(history(), diverged=True)
    assert (found["ga_best"], found["va_best"], found["ga_final"]) == (None, None, 40.0)
    assert "best_round" not in found


def test_lost_rounds_are_marked_in_the_picture():
    _, axes = plots.accuracy_curves(history(), "title")
    (lost,) = [line for line in axes.lines if line.get_label() == "round without a usable model"]
    assert list(lost.get_xdata()) == [2, 4]


def test_columns_of_earlier_versions(tmp_path):
    """Rows without the counts have no lost rounds."""
    with open(tmp_path / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([["round", "ga"], [1, 50], [2, 40]])
    assert summarize_accuracies(History.read(tmp_path / "metrics.csv"))["ga_best"] == 50
