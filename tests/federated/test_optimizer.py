"""The clients' SGD against NumPy and the golden trajectory."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd.federated import SGD


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
