"""The clients' optimizers against NumPy, and SGD against the golden trajectory."""

import contextlib
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import methods
from tff_pcdd.federated import SGD, ClientWork, client_optimizers, schedules
from tff_pcdd.federated import state as states
from tff_pcdd.training import ExperimentConfig

none = contextlib.nullcontext


def sgd(learning_rate, momentum, weight_decay, clip_norm):
    return SGD(
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )


def numpy_sgd(weights, gradients, lr, momentum, decay, clip):
    """Clip the global norm, add decay·w, accumulate, step; float64."""
    velocity = [np.zeros_like(w) for w in weights]
    trajectory = [weights]
    for step in gradients:
        norm = np.sqrt(sum(np.sum(g**2) for g in step))
        factor = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        velocity = [
            momentum * v + g * factor + decay * w
            for v, g, w in zip(velocity, step, weights, strict=True)
        ]
        weights = [w - lr * v for w, v in zip(weights, velocity, strict=True)]
        trajectory.append(weights)
    return trajectory


def run(optimizer, weights, gradients, dtype=tf.float64):
    variables = [tf.Variable(w, dtype=dtype) for w in weights]
    accumulators = [optimizer.accumulators(variable) for variable in variables]
    trajectory = [[v.numpy() for v in variables]]
    for step in gradients:
        optimizer.apply(
            [None if g is None else tf.constant(g, dtype) for g in step], variables, accumulators
        )
        trajectory.append([v.numpy() for v in variables])
    return trajectory


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("clip", [0.0, 1.5])
def test_matches_numpy(momentum, decay, clip):
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=(3, 2)), generator.normal(size=4)]
    gradients = [[generator.normal(size=w.shape) for w in weights] for _ in range(5)]
    actual = run(sgd(0.1, momentum, decay, clip), weights, gradients)
    expected = numpy_sgd(weights, gradients, 0.1, momentum, decay, clip)
    for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6)


@pytest.mark.parametrize("rows", [3, 1025])
@pytest.mark.parametrize("graph", [False, True])
def test_clips_only_where_the_norm_is_larger(rows, graph):
    """In few entries and in so many that a gradient is not multiplied by 1."""
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=(rows, 1024)), generator.normal(size=4)]
    directions = [generator.normal(size=w.shape) for w in weights]
    length = np.sqrt(sum(np.sum(d**2) for d in directions))
    gradients = [[d * norm / length for d in directions] for norm in (1.0, 2.0, 1.4999)]
    optimizer = sgd(0.1, 0.9, 0.01, 1.5)
    variables = [tf.Variable(w, dtype=tf.float32) for w in weights]
    own = [optimizer.accumulators(variable) for variable in variables]

    def apply(*step):
        optimizer.apply(step, variables, own)

    apply = tf.function(apply) if graph else apply
    for step, wanted in zip(
        gradients, numpy_sgd(weights, gradients, 0.1, 0.9, 0.01, 1.5)[1:], strict=True
    ):
        apply(*(tf.constant(values, tf.float32) for values in step))
        for variable, value in zip(variables, wanted, strict=True):
            np.testing.assert_allclose(variable, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [3, 1025])
def test_a_gradient_that_is_not_finite_spoils_all_variables(rows):
    """So that the client is excluded, whichever of them it sends."""
    weights = [np.ones((rows, 1024)), np.ones(4)]
    gradients = [np.zeros((rows, 1024)), np.array([0, np.nan, 0, 0])]
    trajectory = run(sgd(0.1, 0.9, 0.01, 1.5), weights, [gradients])
    assert all(np.isnan(values).all() for values in trajectory[-1])


def test_matches_the_golden_trajectory(golden):
    case = golden("sgd_clip_wd_momentum")
    optimizer = sgd(
        float(case["lr"]),
        float(case["momentum"]),
        float(case["weight_decay"]),
        float(case["max_norm"]),
    )
    gradients = list(zip(case["grads_w1"], case["grads_w2"], strict=True))
    trajectory = run(optimizer, [case["w1_traj"][0], case["w2_traj"][0]], gradients)
    np.testing.assert_allclose([w1 for w1, _ in trajectory], case["w1_traj"], rtol=1e-5)
    np.testing.assert_allclose([w2 for _, w2 in trajectory], case["w2_traj"], rtol=1e-5)


def test_a_variable_without_gradient_does_not_move_under_decay_and_momentum():
    trajectory = run(sgd(0.1, 0.9, 0.5, 1.0), [np.ones(2), np.ones(2)], [[np.ones(2), None]] * 3)
    np.testing.assert_array_equal(trajectory[-1][1], np.ones(2))
    assert np.all(trajectory[-1][0] != 1)


def test_a_zero_gradient_is_not_clipped_to_nan():
    trajectory = run(sgd(0.1, 0.9, 0.0, 1.0), [np.ones(2)], [[np.zeros(2)]])
    np.testing.assert_array_equal(trajectory[-1][0], np.ones(2))


def numpy_adam(weights, gradients, decoupled, lr, b1, b2, epsilon, decay, clip):
    """Kingma and Ba, algorithm 1; with decoupled decay Loshchilov and Hutter, algorithm 2."""
    m, v = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    trajectory = [weights]
    for t, step in enumerate(gradients, 1):
        norm = np.sqrt(sum(np.sum(g**2) for g in step))
        new = []
        for i, (w, g) in enumerate(zip(weights, step, strict=True)):
            g = g * min(1.0, clip / (norm + 1e-6)) + (0 if decoupled else decay * w)
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g**2
            mean, square = m[i] / (1 - b1**t), v[i] / (1 - b2**t)
            shrunk = w - lr * decay * w if decoupled else w
            new.append(shrunk - lr * mean / (np.sqrt(square) + epsilon))
        weights = new
        trajectory.append(weights)
    return trajectory


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("epsilon", [1e-8, 0.5])
def test_adam_matches_numpy(name, epsilon):
    """A large ε shows that it is added after the correction of the bias."""
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=(3, 2)), generator.normal(size=4)]
    gradients = [[generator.normal(size=w.shape) for w in weights] for _ in range(6)]
    options = {"beta1": 0.8, "beta2": 0.95, "epsilon": epsilon, "clip_norm": 1.5}
    optimizer = client_optimizers.create(name, learning_rate=0.1, weight_decay=0.2, **options)
    actual = run(optimizer, weights, gradients, tf.float32)
    expected = numpy_adam(weights, gradients, name == "adamw", 0.1, 0.8, 0.95, epsilon, 0.2, 1.5)
    for a, e in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", client_optimizers.names())
def test_a_variable_without_gradient_does_not_move(name):
    optimizer = client_optimizers.create(name, weight_decay=0.5)
    trajectory = run(optimizer, [np.ones(2), np.ones(2)], [[np.ones(2), None]] * 3, tf.float32)
    np.testing.assert_array_equal(trajectory[-1][1], np.ones(2))
    assert np.all(trajectory[-1][0] != 1)


@pytest.mark.parametrize("name", [n for n in client_optimizers.names() if n != "sgd"])
def test_methods_that_assume_sgd_refuse_others(name):
    refusing = {n for n in methods.names() if methods.get(n).assumes_sgd}
    assert refusing == {
        *("feddc", "feddc_prototypes", "fedetf", "fednova", "fednova_prototypes", "scaffold"),
    }
    for method in methods.names():
        with refuses("client_optimizer", "for the steps of SGD") if method in refusing else none():
            ExperimentConfig.from_settings(algorithm=method, client_optimizer=name)


_UNCOMPILED = [(name, "off") for name in client_optimizers.names()]


@pytest.mark.parametrize(
    ("name", "compile"),
    support.rare_but(
        [*_UNCOMPILED, ("sgd", "step"), ("adam", "client")],
        [(name, each) for each in ("off", "step", "client") for name in client_optimizers.names()],
    ),
)
def test_what_accumulates_starts_afresh_in_each_round(name, compile):
    """The same client trains twice alike; with a scheduled step size as well, and with XLA."""
    spec = dataclasses.replace(
        support.training_spec("fedavg"),
        optimizer=client_optimizers.create(name),
        schedule=schedules.create("exponential", decay=0.5),
        compile=compile,
    )
    own = states.initial_client_state(spec, tf.constant([1, 2]))
    work = ClientWork(spec)
    message = states.make_message(spec.method, support.server_state(spec))
    data = tf.nest.map_structure(tf.convert_to_tensor, support.client_data(0, 0))
    first = work.update(message, own, data)["update"].trainable
    again = work.update(message, own, data)["update"].trainable
    later = work.update(message._replace(round=tf.constant(1)), own, data)["update"].trainable
    support.assert_trees_equal(first, again)
    assert 0 < tf.linalg.global_norm(later) < 0.8 * tf.linalg.global_norm(first)
