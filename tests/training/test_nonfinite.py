"""Losses, weights and answers that are NaN or infinite are noticed in the round they occur in."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.training.runs import CONFIG, rows
from tff_pcdd import export
from tff_pcdd.errors import DataError
from tff_pcdd.federated import aggregators
from tff_pcdd.training import Simulation, run_experiment

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("shared_computations")]

# The first step already makes weights of 1e30, whose products are infinite.
DIVERGING = CONFIG.with_settings(
    algorithm="fedavg", client_learning_rate=1e30, client_clip_norm=0.0, rounds=2
)


def test_divergence_is_noticed_said_and_recorded(options, tmp_path, caplog):
    summary = run_experiment(DIVERGING, tmp_path, options)
    assert summary["nonfinite_rounds"] == 2
    assert [row["nonfinite_rounds"] for row in rows(tmp_path)] == ["1", "2"]
    assert json.loads((tmp_path / "summary.json").read_text())["nonfinite_rounds"] == 2
    for message in (
        "round 1: what 3 of 3 clients computed is not finite",
        "round 1: the global model is not finite",
        "round 1: the global model's answer to 60 of 60 samples is not finite",
    ):
        assert message in caplog.text
    # An answer that is NaN used to count as class 0.
    assert {row["ga"] for row in rows(tmp_path)} == {"0"}


@pytest.mark.parametrize("name", aggregators.names())
def test_under_every_aggregator(name, compute):
    simulation = Simulation(DIVERGING.with_settings(aggregator=name), compute=compute)
    simulation.next_round()
    assert simulation.totals["nonfinite_rounds"] == 1


def test_the_state_of_one_client_is_enough(compute, caplog):
    """FedPer's head stays at the client: the server's weights are finite after its round."""
    simulation = Simulation(CONFIG.with_settings(algorithm="fedper"), compute=compute)
    state = simulation.initial_client_state(2)
    head = [np.full_like(leaf, np.inf) for leaf in state["personal"]]
    simulation.store.put(2, {**state, "personal": head}, 0)
    simulation.evaluate_personal()
    assert "the personal answer of 1 of 5 clients is not finite" in caplog.text
    assert simulation.totals["nonfinite_rounds"] == 1


def test_a_round_counts_once(compute):
    simulation = Simulation(DIVERGING, compute=compute)
    simulation.next_round()
    simulation.evaluate()
    simulation.evaluate()
    assert simulation.totals["nonfinite_rounds"] == 1


def test_a_model_with_such_weights_is_not_exported(options, tmp_path):
    run_experiment(DIVERGING, tmp_path / "run", options)
    with pytest.raises(DataError) as error:
        list(export.export_run(DIVERGING, tmp_path / "run", tmp_path / "out", None, options))
    assert str(error.value) == (
        "global is not exported: weights of the model are NaN or infinite after round 2; export "
        "an earlier round"
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
        model.accuracy(simulation.federation.test, 32)
