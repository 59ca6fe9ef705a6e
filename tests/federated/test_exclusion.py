"""Clients and steps of the server that are not finite change nothing; the rest is as in NumPy."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import support
from tff_pcdd.federated import aggregators, build_process
from tff_pcdd.federated.aggregators import TffAggregator
from tff_pcdd.federated.server_work import accept_if_finite
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.federated.weights import all_finite, can_be_summed

pytestmark = pytest.mark.usefixtures("simulation")

NAN, INF = np.float32("nan"), np.float32("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, True),
        (-1e18, True),
        # Its square is above 3.4e38, the largest float32.
        (2e19, False),
        (NAN, False),
        (INF, False),
        (-INF, False),
    ],
)
def test_what_can_be_summed(value, expected):
    tree = {"a": [tf.ones([3]), tf.constant([0.0, value])], "count": tf.constant(2**31 - 1)}
    assert bool(can_be_summed(tree)) == expected


def test_values_whose_common_norm_overflows():
    assert bool(can_be_summed([tf.fill([4], 6e18)]))
    assert not bool(can_be_summed([tf.fill([40], 6e18)]))
    assert bool(can_be_summed([]))


@pytest.mark.parametrize("wrong", [NAN, INF, -INF])
def test_one_number_that_is_not_finite_is_enough(wrong):
    """Wherever it is; whole numbers and large ones are finite."""
    tree = {"a": tf.constant([1.0, 3e38]), "b": [tf.constant([[2.0]]), tf.constant(7)]}
    assert bool(all_finite(tree))
    assert not bool(all_finite({**tree, "c": tf.constant([0.0, wrong, 0.0])}))
    assert not bool(all_finite({"0": tf.constant([wrong, 0.0]), **tree}))


@pytest.mark.parametrize("value", [3.0, NAN, INF])
def test_a_step_that_is_not_finite_is_not_taken(value):
    new = ({"w": [tf.constant([1.0, value])]}, {"n": tf.constant(2)})
    old = ({"w": [tf.constant([5.0, 6.0])]}, {"n": tf.constant(1)})
    (weights, server), taken = accept_if_finite(new, old)
    finite = value == 3.0
    assert float(taken) == finite
    np.testing.assert_array_equal(weights["w"][0], [1.0, 3.0] if finite else [5.0, 6.0])
    assert int(server["n"]) == (2 if finite else 1)


COHORT = (0, 1, 3)


def data(bad=()):
    """The data of the cohort; a pixel of the bad clients is NaN."""
    made = [support.client_data(k, 0, cohort_index=index) for index, k in enumerate(COHORT)]
    for index, client in enumerate(COHORT):
        if client in bad:
            train = made[index].train
            x = np.array(train["x"])
            x[-1, 0, 0, 0] = NAN
            made[index] = made[index]._replace(train={**train, "x": x})
    return made


@pytest.fixture(scope="module", params=["fedavg", "fednova"])
def traced(request, simulation):
    spec = support.training_spec(request.param, client_weighting="samples")
    return request.param, spec, build_tensor_computations(spec)


def test_the_mean_is_that_of_the_other_clients(traced):
    """w + τ·Σ pₖ·Δₖ over the clients 0 and 3 of 12 and 6 samples; τ is 1 for FedAvg."""
    method, spec, tensors = traced
    process = build_process(spec, aggregators.create("mean"), tensors=tensors)
    state = process.initialize()
    states = [process.initial_client_state(support.seed_of(0, k)) for k in COHORT]
    after, new, metrics = process.next(state, states, data(bad=[1]))
    assert float(metrics["included"]) == 2
    assert float(metrics["step_taken"]) == 1
    message = tensors.make_message(state.weights, state.server, 0)
    good = [0, 2]
    sent = [tensors.local_update(message, states[i], data()[i]) for i in good]
    shares = np.array([12, 6]) / 18
    stretch = 1.0
    if method == "fednova":
        steps = np.array([6.0, 2 * 2.0])  # two epochs of 12 and of 6 samples in batches of 4
        rho = 0.9
        stretch = shares @ ((steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho))
    for index, before in enumerate(state.weights["trainable"]):
        mean = sum(p * np.asarray(s["update"][index]) for p, s in zip(shares, sent, strict=True))
        np.testing.assert_allclose(
            after.weights["trainable"][index], before + stretch * mean, rtol=1e-5, atol=1e-6
        )
    for index, before in enumerate(state.weights["statistics"]):
        mean = sum(
            p * np.asarray(s["statistics"][index]) for p, s in zip(shares, sent, strict=True)
        )
        np.testing.assert_allclose(
            after.weights["statistics"][index], before + mean, rtol=1e-5, atol=1e-6
        )
    # A sample counts once per epoch; the loss is that of the two clients.
    assert float(metrics["sums"]["samples"]) == 2 * (12 + 6)
    loss = sum(float(s["totals"]["metrics"]["loss"]) for s in sent)
    assert float(metrics["sums"]["loss"]) == pytest.approx(loss, rel=1e-6)
    assert [int(own.participations) for own in new] == [1, 0, 1]


def test_an_aggregator_that_divides_by_zero(traced):
    """tff.learning's factories do so if no client has a weight; the server then takes no step."""
    _, spec, tensors = traced
    if spec.method.name != "fedavg":
        pytest.skip("the aggregator takes changes of the weights alone")
    factory = tff.learning.robust_aggregator(zeroing=False, clipping=False)
    process = build_process(spec, TffAggregator(factory), tensors=tensors)
    state = process.initialize()
    states = [process.initial_client_state(support.seed_of(0, k)) for k in COHORT]
    after, new, metrics = process.next(state, states, data(bad=COHORT))
    assert float(metrics["included"]) == 0
    assert float(metrics["step_taken"]) == 0
    support.assert_trees_equal(after.weights, state.weights)
    support.assert_trees_equal(new, states)
    assert int(after.round) == 1


def test_dp_counts_an_excluded_client_as_zero():
    """The sum is divided by the planned cohort of 3, whoever is excluded, and noise is added."""
    spec = support.training_spec("fedavg", statistics=False)
    tensors = build_tensor_computations(spec)
    dp = aggregators.create("dp", noise_multiplier=0.0, clip=0.5)
    process = build_process(spec, dp, tensors=tensors)
    state = process.initialize()
    states = [process.initial_client_state(support.seed_of(0, k)) for k in COHORT]
    after, _, _ = process.next(state, states, data(bad=[1]))
    message = tensors.make_message(state.weights, state.server, 0)
    clipped = []
    for index in (0, 2):
        update = tensors.local_update(message, states[index], data()[index])["update"]
        norm = np.sqrt(sum(np.sum(np.square(np.asarray(u, np.float64))) for u in update))
        clipped.append([np.asarray(u) * min(1, 0.5 / norm) for u in update])
    for number, before in enumerate(state.weights["trainable"]):
        wanted = before + (clipped[0][number] + clipped[1][number]) / 3
        np.testing.assert_allclose(after.weights["trainable"][number], wanted, rtol=1e-4, atol=1e-6)
    noisy = build_process(spec, aggregators.create("dp", noise_multiplier=1.0), tensors=tensors)
    after, _, metrics = noisy.next(noisy.initialize(), states, data(bad=COHORT))
    assert float(metrics["included"]) == 0
    moved = [
        np.abs(np.asarray(a) - b).max()
        for a, b in zip(after.weights["trainable"], state.weights["trainable"], strict=True)
    ]
    assert min(moved) > 0
