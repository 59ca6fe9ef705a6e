"""Weights of clients in the mean over a cohort: as published, uniform, or numbers of samples."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.methods import quadratic
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
    "fedrep",
    "ratioloss",
    "scaffold",
]

MINIMA, SIZES, ABSENT = [0, 4, 1], [2, 7, 4], 5
RATE, ALPHA, START = 0.1, 0.4, 1.0


def steps(size):
    """Batches of 3 samples; a last batch with a single sample is left out."""
    return max(1, (size + 1) // 3)


def descend(w, gradient, count):
    for _ in range(count):
        w = w - RATE * gradient(w)
    return w


def expected(name, uniform):
    """Global weights after each of three rounds, of clients with losses (w - b)²/2."""
    weights = np.ones(3) if uniform else np.array(SIZES, float)
    share = weights / weights.sum()
    # Two more clients never take part, with 5 samples each.
    of_all = weights / (weights.sum() + (2 if uniform else 2 * ABSENT))
    taus = [steps(size) for size in SIZES]
    w, h, c, out = START, 0.0, 0.0, []
    dual, drift, control = np.zeros(3), np.zeros(3), np.zeros(3)
    for _ in range(3):
        if name == "fedavg":
            local = [descend(w, lambda x, b=b: x - b, t) for b, t in zip(MINIMA, taus, strict=True)]
            w = share @ local
        elif name == "fednova":
            local = [descend(w, lambda x, b=b: x - b, t) for b, t in zip(MINIMA, taus, strict=True)]
            w = w + (share @ taus) * (share @ ((np.array(local) - w) / taus))
        elif name == "feddyn":
            change = np.array(
                [
                    descend(w, lambda x, b=b, g=g, a=w: x - b - g + ALPHA * (x - a), t) - w
                    for b, g, t in zip(MINIMA, dual, taus, strict=True)
                ]
            )
            dual = dual - ALPHA * change
            h -= ALPHA * of_all @ change
            w = w + share @ change - h / ALPHA
        elif name == "feddc":
            change = np.array(
                [
                    descend(w, lambda x, b=b, h=h, g=g, a=w: x - b + ALPHA * (x + h - a) + g, t) - w
                    for b, h, g, t in zip(MINIMA, drift, c - control, taus, strict=True)
                ]
            )
            drift = drift + change
            control = control - c - change / (RATE * np.array(taus))
            c = of_all @ control
            w = w + share @ change + of_all @ drift
        out.append(w)
    return out


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("name", ["fedavg", "fednova", "feddyn", "feddc"])
def test_rounds_on_parabolas(monkeypatch, name, weighting):
    options = {"alpha": ALPHA} if name in ("feddyn", "feddc") else {}
    spec = quadratic.training_spec(
        monkeypatch, name, START, rate=RATE, clients=5, client_weighting=weighting, **options
    )
    counts = np.zeros([5, 5])
    counts[range(5), 0] = [*SIZES, ABSENT, ABSENT]
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, class_counts=counts))
    federation = quadratic.Federation(spec, MINIMA, SIZES)
    actual = [federation.round().weights[0] for _ in range(3)]
    np.testing.assert_allclose(actual, expected(name, weighting == "uniform"), rtol=1e-5)


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
