"""Rounds and evaluation in memory, without side effects, from Python alone."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, SharedRuntime, rows
from tff_pcdd import data
from tff_pcdd.data import checks
from tff_pcdd.federated.weights import load
from tff_pcdd.settings import build
from tff_pcdd.training import ComputeOptions, ExperimentConfig, Simulation

COUNTS = ("nonfinite_rounds", "excluded_clients", "last_lost_round")
NOTHING_NONFINITE = dict.fromkeys((*COUNTS, "nonfinite_in_a_row"), 0)

pytestmark = pytest.mark.usefixtures("shared_computations")


@dataclasses.dataclass(frozen=True)
class Counted(SharedRuntime):
    """Notes when it is started."""

    started: list = dataclasses.field(default_factory=list)

    def create_context(self):
        self.started.append(self)
        return super().create_context()


def test_nothing_happens_before_the_first_computation(compute, tmp_path, monkeypatch):
    """No file, no runtime, no other default context, no number drawn from NumPy's generator."""
    monkeypatch.chdir(tmp_path)
    context = tff.framework.get_context_stack().current
    drawn = np.random.get_state()[1].tolist()
    own = Counted(compute.runtime.context)
    simulation = Simulation(CONFIG, compute=ComputeOptions(runtime=own))
    assert own.started == []
    assert simulation.round == 0
    assert simulation.totals == {"upload_bytes": 0, "download_bytes": 0, **NOTHING_NONFINITE}
    assert simulation.cohort_size == 3
    assert own.started == []
    simulation.next_round()
    simulation.evaluate()
    assert own.started == [own]
    assert tff.framework.get_context_stack().current is context
    assert np.random.get_state()[1].tolist() == drawn
    assert os.listdir(tmp_path) == []
    simulation.close()
    assert own.started == [own]
    # It can be used on; the runtime starts again.
    simulation.next_round()
    assert own.started == [own, own]


def test_it_can_be_started_and_closed_early(compute):
    own = Counted(compute.runtime.context)
    with Simulation(CONFIG, compute=ComputeOptions(runtime=own)) as simulation:
        simulation.start()
        simulation.start()
        assert own.started == [own]
    simulation.close()


def test_rounds_are_those_of_a_run(unbroken, compute):
    """Every number of every row, one simulation stopped and continued in another."""
    simulation = Simulation(CONFIG, compute=compute)
    for number, row in enumerate(rows(unbroken), 1):
        if number == 3:
            earlier, simulation = simulation, Simulation(CONFIG, compute=compute)
            simulation.restore(earlier.round, earlier.state, earlier.totals)
            simulation.store.restore(*earlier.store.snapshot())
        measured = simulation.next_round()
        assert simulation.round == number
        measured |= simulation.evaluate()
        assert set(measured) | {"round", *COUNTS} == set(row)
        for name, value in measured.items():
            if name != "seconds":
                assert f"{value:.9g}" == f"{float(row[name]):.9g}", name
    expected = {
        name: sum(int(row[name]) for row in rows(unbroken))
        for name in ("upload_bytes", "download_bytes")
    }
    assert simulation.totals == {**expected, **NOTHING_NONFINITE}


def test_looking_changes_nothing(compute):
    """Evaluations and a look at a client's inputs between the rounds."""
    quiet, looked_at = (Simulation(CONFIG, compute=compute) for _ in range(2))
    for _ in range(2):
        looked_at.evaluate()
        looked_at.personal_inputs(4)
        expected, measured = quiet.next_round(), looked_at.next_round()
        assert {**measured, "seconds": 0} == {**expected, "seconds": 0}
    assert looked_at.evaluate() == quiet.evaluate()


def test_clients_without_samples_are_told_of(caplog):
    config = CONFIG.with_settings(num_clients=90)
    federation = Simulation(config).federation
    empty = sum(federation.class_counts().sum(axis=1) == 0)
    assert empty
    assert f"{empty} of 90 clients have no training samples" in caplog.text
    caplog.clear()
    first, second, *_ = federation.clients
    clients = (
        dataclasses.replace(first, train=np.arange(5)),
        dataclasses.replace(second, train=np.arange(0)),
    )
    alone = CONFIG.with_settings(clients_per_round=1)
    Simulation(alone, dataclasses.replace(federation, clients=clients))
    assert "1 of 2 clients has no training samples" in caplog.text
    caplog.clear()
    with checks.warned_before():
        Simulation(config)
    assert not caplog.messages


def test_a_device_that_is_not_there_is_refused():
    compute = build(ComputeOptions, {"devices": "GPU:7", "client_parallelism": 2})
    simulation = Simulation(CONFIG, compute=compute)
    with refuses("devices", "GPU:7"):
        simulation.start()


def test_groups_of_classes_of_a_long_tail(compute):
    config = CONFIG.with_settings(
        rounds=1, max_train_samples=None, imbalance_factor=10.0, batch_size=64
    )
    tailed = Simulation(config, compute=compute)
    results = tailed.evaluate_global()
    groups = {name: results[f"ga_{name}"] for name in ("many", "medium", "few")}
    # The test set is balanced: GA is the mean of the groups, weighted by their classes.
    sizes = [len(tailed.groups.federation[name]) for name in groups]
    assert sum(sizes) == 10
    values = np.nan_to_num(list(groups.values()))
    assert results["ga"] == pytest.approx(np.average(values, weights=sizes), abs=0.5)


def test_ga_without_a_global_model_is_the_clients_mean(compute):
    """The personal models before any local step, each on all test samples."""
    config = CONFIG.with_settings(algorithm="fedper", projection_dim=84, rounds=1)
    simulation = Simulation(config, compute=compute)
    simulation.next_round()
    net, test = simulation.spec.network(), simulation.federation.test
    x = data.normalize(test.x, simulation.spec.input_spec)
    accuracies = []
    for client in range(simulation.federation.num_clients):
        personal = simulation.store.get(client).personal
        load(net, simulation.state.weights, personal)
        logits = net["head"](net["backbone"](x, training=False)).numpy()
        accuracies.append(100 * np.mean(logits.argmax(axis=1) == test.y))
    assert len(set(accuracies)) > 1
    assert simulation.evaluate_global()["ga"] == pytest.approx(np.mean(accuracies))


def test_titles_name_the_data_of_a_given_federation():
    federation = dataclasses.replace(CONFIG.data.build(), name="stripes")
    given = Simulation(CONFIG, federation)
    assert given.title == "fedgela on stripes, mlp"
    assert repr(given) == "Simulation(fedgela on stripes, mlp: 0 rounds)"
    assert Simulation(CONFIG).title == f"fedgela on {CONFIG.describe()}"


def test_a_given_federation_without_the_samples_to_hold_out():
    config = CONFIG.with_settings(validation_fraction=0.2)
    with refuses("validation_fraction", "digits was given without held-out samples"):
        Simulation(config, CONFIG.data.build())
    Simulation(config, config.data.build())


def test_more_clients_in_a_round_than_there_are():
    natural = ExperimentConfig.from_settings(clients_per_round=10)
    federation = CONFIG.data.build()
    with refuses("clients_per_round", "has only 5 clients"):
        Simulation(natural, federation)


def test_a_given_federation_and_not_the_settings_bounds_cohorts_and_early_stopping():
    """The settings describe ten clients without held-out samples."""
    config = ExperimentConfig.from_settings(
        model="mlp", clients_per_round=12, early_stopping_patience=2
    )
    federation = data.load_federation("digits", "iid", 12, validation_fraction=0.2)
    assert Simulation(config, federation).cohort_size == 12
    with refuses("clients_per_round", "there are only num_clients=10 clients"):
        Simulation(config)
    with refuses("early_stopping_patience", "needs held-out samples, and digits has none"):
        Simulation(config.with_settings(clients_per_round=0), CONFIG.data.build())


def test_bytes_of_fixed_variables_are_for_clients_that_train(compute):
    """The simplex ETF goes to a client once, and to one without samples not at all."""
    x, y = np.zeros([12, 8, 8, 1], np.float32), np.arange(12) % 3
    everything = data.Examples(x, y)
    clients = [
        data.ClientIndices(name, train=np.arange(12)[part], test=np.arange(3))
        for name, part in (("full", slice(None)), ("empty", slice(0)))
    ]
    spec = data.InputSpec("image", (8, 8, 1), "float32")
    own = data.Federation("own", 3, ("a", "b", "c"), spec, everything, everything, clients)
    config = ExperimentConfig.from_settings(algorithm="fedge", local_epochs=1, projection_dim=5)
    with Simulation(config, own, compute=compute) as simulation:
        first, second = (simulation.next_round()["download_bytes"] for _ in range(2))
    assert first - second == 5 * 3 * 4


def test_a_round_without_samples_has_no_training_loss():
    """One of two clients has only samples for tests; a loss of 0 would be the best one of all."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    sites, split = np.repeat(["a", "b"], 20), np.repeat(["train", "test"], 20)
    split[:5] = "test"
    federation = data.from_arrays(x, np.arange(40) % 2, sites, split)
    config = ExperimentConfig.from_settings(
        algorithm="fedavg", model="mlp", clients_per_round=1, local_epochs=1
    )
    with Simulation(config, federation) as simulation:
        losses = [simulation.next_round()["train_loss"] for _ in range(8)]
    assert 0 < np.isnan(losses).sum() < 8
    assert np.nanmin(losses) > 0.01
