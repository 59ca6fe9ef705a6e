"""Weights of clients in the mean over a cohort: as published, uniform, or numbers of samples."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import methods
from tff_pcdd.federated import ClientWork, aggregators, make_message
from tff_pcdd.federated import state as states
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig

# The plain mean, according to each paper or its authors' code.
UNIFORM = [
    "apfl",
    "ditto",
    "fedbabu",
    "fedbn",
    "feddc",
    "feddc_prototypes",
    "feddyn",
    "feddyn_prototypes",
    "fedproto",
    "fedrep",
    "ratioloss",
    "scaffold",
]


def local_result(name, client, **options):
    """What a client of the tiny federation returns from its first round."""
    spec = support.training_spec(name, **options)
    # Op by op, which takes less time than tracing for a single call.
    tf.config.run_functions_eagerly(True)
    try:
        state = states.initial_client_state(spec, support.seed_of(0, client))
        message = make_message(spec.method, support.server_state(spec))
        return ClientWork(spec).update(message, state, support.client_data(client, 0))
    finally:
        tf.config.run_functions_eagerly(False)


def test_the_published_weighting_of_every_method():
    assert [n for n in methods.names() if methods.create(n).weighting == "uniform"] == UNIFORM
    others = set(methods.names()) - set(UNIFORM)
    assert {methods.create(name).weighting for name in others} == {"samples"}


@pytest.mark.parametrize(
    ("name", "weighting", "weights"),
    [
        ("fedavg", "published", [12, 6, 0]),
        ("fedavg", "uniform", [1, 1, 0]),
        ("fedbn", "published", [1, 1, 0]),
        ("fedbn", "samples", [12, 6, 0]),
    ],
)
def test_weights_of_clients(name, weighting, weights):
    results = [local_result(name, client, client_weighting=weighting) for client in (0, 3, 4)]
    assert [float(result["weight"]) for result in results] == weights


@pytest.mark.parametrize(("weighting", "total"), [("uniform", 4), ("samples", 12 + 9 + 1 + 6)])
def test_means_over_all_clients_do_not_count_those_without_samples(weighting, total):
    """As means over a cohort: else SCAFFOLD's corrections would not cancel out over clients."""
    task = support.training_spec("scaffold").task
    method = methods.create("scaffold", client_weighting=weighting)
    assert float(method.total_weight(task)) == total


@pytest.mark.integration
def test_statistics_of_normalization_have_the_same_weights(simulation):
    changes = [local_result("fedavg", client)["update"] for client in (0, 1, 3)]
    process = support.process("fedavg", client_weighting="uniform")
    before = process.initialize()
    after, _, _ = support.run_rounds(process, before, {}, [[0, 1, 3]])
    for group in ("trainable", "statistics"):
        olds, news = before.weights[group], after.weights[group]
        for index, (old, new) in enumerate(zip(olds, news, strict=True)):
            mean = np.mean([getattr(change, group)[index].numpy() for change in changes], axis=0)
            np.testing.assert_allclose(new, old + mean, rtol=1e-4, atol=1e-6)


@pytest.mark.integration
def test_methods_that_become_fedavg_only_with_samples(simulation):
    """Clients of different sizes, so that the two means differ."""

    def weights(name, **options):
        process = support.process(name, **options)
        state, _, _ = support.run_rounds(process, process.initialize(), {}, [[0, 1, 3]])
        return state.weights["trainable"]

    plain = weights("fedavg", client_weighting="uniform")
    for name in ("apfl", "ditto"):
        support.assert_trees_equal(weights(name), plain)
    assert any(np.any(a != b) for a, b in zip(weights("fedavg"), plain, strict=True))


def test_one_setting_for_all_methods():
    found = [s for s in describe(ExperimentConfig) if s.name == "client_weighting"]
    assert len(found) == 1
    assert found[0].applies_to == tuple(methods.names())
    assert found[0].choices == ("published", "uniform", "samples")
    config = ExperimentConfig.from_settings(algorithm="fedrep", client_weighting="samples")
    assert config.method == methods.create("fedrep", client_weighting="samples")
    assert config.to_settings()["client_weighting"] == "samples"
    with refuses("client_weighting", "choose one of published, uniform, samples"):
        methods.create("fedavg", client_weighting="equal")


def test_options_of_a_method_stay_its_first_arguments():
    assert methods.get("fedprox")(0.5) == methods.create("fedprox", mu=0.5)


def test_aggregators_that_weigh_equally_refuse_other_weights():
    for weighting in ("published", "uniform"):
        ExperimentConfig.from_settings(aggregator="dp", client_weighting=weighting)
    with refuses("client_weighting", "aggregator=dp gives all clients the same weight") as caught:
        ExperimentConfig.from_settings(aggregator="dp", client_weighting="samples")
    assert caught.value.value == "samples"
    for name in set(aggregators.names()) - {"dp"}:
        ExperimentConfig.from_settings(aggregator=name, client_weighting="samples")
