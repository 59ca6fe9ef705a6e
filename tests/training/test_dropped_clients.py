"""Clients that drop out of a round count like clients that were not drawn for it."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import support
from tests.training.runs import CONFIG, assert_same_run, rows
from tff_pcdd.experiment import simulation
from tff_pcdd.federated import LocalWork, aggregators
from tff_pcdd.federated.aggregators import TffAggregator
from tff_pcdd.training import Simulation, run_experiment

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("shared_computations")]

DROPPING = CONFIG.with_settings(
    algorithm="fedavg", model="mlp", clients_per_round=4, dropped_share=0.4, seed=3
)
# With settings that make results a function of the seed.
AGGREGATORS = {
    **{name: aggregators.create(name) for name in aggregators.names() if name != "dp"},
    "dp": aggregators.create("dp", noise_multiplier=0.0, clip=0.1),
    "unweighted": TffAggregator(tff.aggregators.UnweightedMeanFactory()),
}


def remaining(made, cohort):
    """The clients of a cohort that do not drop out of the next round."""
    work = made.config.training.local_work
    return [k for k in cohort if not work.drops_out(made.client_data(k).seed)]


@pytest.mark.parametrize("name", support.rare_but(["mean", "robust", "unweighted"], [*AGGREGATORS]))
def test_they_count_like_clients_that_were_not_drawn(name, compute, monkeypatch):
    """The adaptive norms of aggregators, means without weights, and all else are the same."""
    config = dataclasses.replace(DROPPING, aggregator=AGGREGATORS[name])
    dropping = Simulation(config, compute=compute)
    cohorts, dropped = [], []
    for _ in range(3):
        drawn = simulation.sample_cohort(3, dropping.round, 5, 4)
        cohorts.append(remaining(dropping, drawn))
        dropped.append(dropping.next_round()["dropped_clients"])
    assert dropped == [4 - len(cohort) for cohort in cohorts]
    assert sum(dropped) > 0 and all(cohorts), "the test would say nothing"
    without = Simulation(config, compute=compute)
    monkeypatch.setattr(LocalWork, "drops_out", lambda self, seed: False)
    monkeypatch.setattr(simulation, "sample_cohort", lambda seed, number, *rest: cohorts[number])
    for _ in range(3):
        without.next_round()
    support.assert_trees_equal(dropping.state, without.state)
    for client in range(5):
        support.assert_trees_equal(dropping.store.get(client), without.store.get(client))


def test_the_clipping_norm_is_that_of_the_clients_that_remain(compute):
    """1 · exp(0.2 · (0.8 - share of changes below 1)), where lost changes would all be below."""
    config = DROPPING.with_settings(aggregator="robust", client_learning_rate=1.0)
    made = Simulation(config, compute=compute)
    cohort = remaining(made, simulation.sample_cohort(3, 0, 5, 4))
    assert len(cohort) < 4
    state = made.state
    message = made.process.tensors.make_message(state.weights, state.server, 0)
    norms = []
    for client in cohort:
        sent = made.invoke(
            made.process.tensors.local_update,
            message,
            made.initial_client_state(client),
            made.client_data(client),
        )
        norms.append(np.sqrt(sum(np.sum(np.square(part)) for part in sent["update"])))
    below = np.mean(np.array(norms) <= 1.0)
    assert below < 0.5
    made.next_round()
    found = [float(leaf) for leaf in tf.nest.flatten(made.state.aggregator) if np.ndim(leaf) == 0]
    wanted = math.exp(0.2 * (0.8 - below))
    assert any(math.isclose(value, wanted, rel_tol=1e-5) for value in found), (found, wanted)


def test_a_round_in_which_all_drop_out_changes_nothing(compute, monkeypatch, caplog):
    config = DROPPING.with_settings(algorithm="feddyn", dropped_share=0.5)
    made = Simulation(config, compute=compute)
    made.next_round()
    before = made.state
    states = [made.store.get(client) for client in range(5)]
    monkeypatch.setattr(LocalWork, "drops_out", lambda self, seed: True)
    caplog.clear()
    measured = made.next_round()
    assert caplog.messages == [
        "round 2: all 4 clients dropped out; the server's model stays as it was"
    ]
    assert (measured["dropped_clients"], measured["local_steps"]) == (4, 0)
    assert math.isnan(measured["train_loss"])
    assert measured["upload_bytes"] == 0 < measured["download_bytes"]
    assert int(made.state.round) == int(before.round) + 1 == made.round == 2
    support.assert_trees_equal(made.state._replace(round=0), before._replace(round=0))
    for client, state in enumerate(states):
        support.assert_trees_equal(made.store.get(client), state)
    monkeypatch.undo()
    assert made.next_round()["local_steps"] > 0


def test_an_interrupted_run_equals_one_that_was_not(options, tmp_path):
    config = DROPPING.with_settings(aggregator="robust", dropped_share=0.7)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_experiment(config, whole, options)
    for pause in (1, 3, None):
        run_experiment(config, parts, options, pause_after=pause)
    assert_same_run(whole, parts)
    assert [len(rows(directory)) for directory in (whole, parts)] == [4, 4]
