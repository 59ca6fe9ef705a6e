"""The losses that optimize the sparse frame."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses


def _numpy_angle(psi):
    directions = psi / np.linalg.norm(psi, axis=0)
    cosines = directions.T @ directions
    np.fill_diagonal(cosines, -1)
    return -np.arccos(np.clip(cosines.max(1), -0.99999, 0.99999)).mean()


def _gradient(function, psi):
    psi = tf.Variable(psi)
    with tf.GradientTape() as tape:
        loss = function(psi)
    return tape.gradient(loss, psi).numpy()


def test_losses_match_numpy():
    rng = np.random.default_rng(0)
    psi, mask = rng.normal(size=(9, 4)).astype(np.float32), rng.random((9, 4)) < 0.5
    masked = psi * mask
    expected = ((np.linalg.norm(masked, axis=0) - 0.3) ** 2).sum()
    np.testing.assert_allclose(losses.equal_norm(psi, mask, 0.3), expected, rtol=1e-5)
    np.testing.assert_allclose(losses.maximal_angle(psi, mask), _numpy_angle(masked), rtol=1e-5)
    np.testing.assert_allclose(losses.maximal_angle(psi), _numpy_angle(psi), rtol=1e-5)


def test_masked_entries_get_no_gradient():
    rng = np.random.default_rng(0)
    psi, mask = rng.normal(size=(9, 4)), (rng.random((9, 4)) < 0.5).astype(np.float64)
    for function in (losses.equal_norm, losses.maximal_angle):
        gradient = _gradient(lambda x, f=function: f(x, mask), psi)
        assert not gradient[mask == 0].any() and gradient[mask == 1].all()


@pytest.mark.parametrize("psi", [np.zeros((3, 3)), np.ones((3, 3)), np.eye(3)[:, [0, 0, 1]]])
def test_gradients_are_finite_for_dead_and_equal_columns(psi):
    for function in (losses.equal_norm, losses.maximal_angle):
        assert np.isfinite(function(psi))
        assert np.isfinite(_gradient(function, psi)).all()


def test_in_a_tie_one_pair_receives_the_gradient():
    # Classes 1 and 2 are both nearest to class 0, at the same angle.
    psi = np.array([[1.0, 0.6, 0.6], [0.0, 0.8, -0.8]])
    gradient = _gradient(losses.maximal_angle, psi)
    assert gradient[1, 0] != 0.0


@pytest.mark.parametrize("gamma", ["0.1", "1.0"])
def test_golden_values_and_gradients(golden, gamma):
    z = golden("fedloge_ssec_losses")
    functions = {
        "norm": lambda psi, mask: losses.equal_norm(psi, mask, float(gamma)),
        "angle": losses.maximal_angle,
    }
    functions["total"] = lambda psi, mask: (
        functions["norm"](psi, mask) + functions["angle"](psi, mask)
    )
    psi = z["psi"].astype(np.float32)
    for name, function in functions.items():
        np.testing.assert_allclose(function(psi, None), z[f"{name}_loss_g{gamma}"], rtol=1e-5)
        for mask, suffix in ((None, ""), (z["mask"], "_masked")):
            expected = z[f"{name}_grad{suffix}_g{gamma}"]
            gradient = _gradient(lambda x, f=function, m=mask: f(x, m), psi)
            assert np.abs(gradient - expected).max() <= 1e-4 * np.abs(expected).max()


def test_dot_regression_turns_features_to_their_column():
    rng = np.random.default_rng(0)
    h, frame, y = rng.normal(size=(6, 5)), rng.normal(size=(5, 3)), np.array([0, 2, 1, 1, 0, 2])
    lengths = np.linalg.norm(h, axis=1, keepdims=True)
    units = h / lengths
    columns = (frame / np.linalg.norm(frame, axis=0)).T[y]
    cosines = (units * columns).sum(axis=1, keepdims=True)
    expected = np.mean((cosines - 1) ** 2) / 2
    for scale in (1, 1e-3, 100):
        loss = losses.dot_regression(scale * h, y, 3 * frame)
        np.testing.assert_allclose(loss, expected)
    force = -_gradient(lambda x: losses.dot_regression(x, y, frame), h)
    np.testing.assert_allclose(force, (1 - cosines) * (columns - cosines * units) / lengths / 6)


def test_dot_regression_of_a_zero_feature():
    gradient = _gradient(lambda x: losses.dot_regression(x, [0], np.eye(3)), np.zeros((1, 3)))
    assert np.all(np.isfinite(gradient))
