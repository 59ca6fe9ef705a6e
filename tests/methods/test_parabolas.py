"""Methods against rounds worked out by hand on parabolas; see `quadratic`."""

import fractions

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import quadratic
from tff_pcdd.methods import fednova


def number(value):
    """The only number of an array."""
    return np.asarray(value).item()


@pytest.fixture
def play(monkeypatch):
    """Makes a federation: method, minima, first values, settings."""

    def make(name, minima, u, v=None, sizes=None, **options):
        clients = options.pop("clients", len(minima))
        spec = quadratic.training_spec(monkeypatch, name, u, v, clients=clients, **options)
        return quadratic.Federation(spec, minima, sizes)

    return make


def test_fedprox_moves_towards_the_weighted_minimum(play):
    """Fixed point (b + μ·w)/(1 + μ) = 3; two steps of 1/4 leave a quarter of the way: 3 - 1/4."""
    assert play("fedprox", [4], 2.0, rate=0.25, epochs=2, mu=1.0).round().weights == [2.75]


def test_fednova_weighs_changes_per_step(play):
    """One step to 1 and two to 3.5; FedAvg's mean would be 2.875."""
    settings = {"minima": [0, 4], "u": 2.0, "sizes": [2, 6], "rate": 0.5}
    assert play("fedavg", **settings).round().weights == [2.875]
    assert play("fednova", **settings).round().weights == [pytest.approx(2.546875)]


def test_fednova_with_equal_steps_is_fedavg(play):
    settings = {"minima": [0, 4], "u": 2.0, "sizes": [5, 6], "rate": 0.1, "momentum": 0.9}
    expected = play("fedavg", **settings).round().weights
    assert play("fednova", **settings).round().weights == [pytest.approx(expected[0], rel=1e-6)]


@pytest.mark.parametrize("steps", [0, 1, 3, 10, 1000])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999])
def test_fednova_counts_the_weight_of_gradients(steps, momentum):
    accumulator = total = fractions.Fraction(0)
    for _ in range(steps):
        accumulator = fractions.Fraction(momentum) * accumulator + 1
        total += accumulator
    actual = fednova.accumulated_weight(tf.constant(steps), momentum)
    assert actual.dtype == tf.float32
    assert float(actual) == pytest.approx(float(total), rel=1e-7)


def test_fednova_counts_the_weight_of_many_gradients():
    """With ρ^τ = 0, τ/(1 - ρ) - ρ/(1 - ρ)² is left."""
    actual = fednova.accumulated_weight(tf.constant(10**6), 0.999)
    assert float(actual) == pytest.approx(1e9 - 999000, rel=1e-7)


def test_feddyn_finds_the_optimum_of_all_in_one_round(play):
    """Steps of 1/2 minimise exactly, since the curvature is 1 + α = 2."""
    federation = play("feddyn", [0, 4], 0.0, rate=0.5, alpha=1.0).round()
    assert federation.locals == [[0], [2]] and federation.weights == [2]
    duals = [number(federation.state(k).own["dual"][0]) for k in (0, 1)]
    assert duals == [0, -2]
    assert number(federation.server.server["correction"][0]) == -1
    federation.round()
    assert federation.locals == [[-1], [0]] and federation.weights == [2]
    duals = [number(federation.state(k).own["dual"][0]) for k in (0, 1)]
    assert duals == [1, -2]
    # With full participation h is the mean of the duals.
    assert number(federation.server.server["correction"][0]) == np.mean(duals)


@pytest.mark.parametrize(("control", "third"), [("code", (1.75, 1.75)), ("paper", (1.25, 2.25))])
def test_feddc_corrects_the_drift(play, control, third):
    """Two steps of 1/2, so that step size times steps is 1; the first minimises exactly."""
    options = {"rate": 0.5, "epochs": 2, "alpha": 1.0, "control": control}
    federation = play("feddc", [0, 4], 0.0, **options).round()
    assert federation.locals == [[0], [2]] and federation.weights == [2]
    federation.round()
    assert federation.locals == [[-0.5], [-0.5]] and federation.weights == [2]
    assert [number(federation.state(k).own["drift"][0]) for k in (0, 1)] == [-0.5, 1.5]
    federation.round()
    assert [2 + delta for (delta,) in federation.locals] == list(third)
    assert federation.weights == [2]


def test_feddc_without_control_is_feddyn(play):
    settings = {"minima": [0, 3, 4], "u": 1.0, "rate": 0.1, "epochs": 2, "alpha": 0.3}
    # Drifts are held at all clients, two of which never take part.
    dyn = play("feddyn", clients=5, **settings)
    dc = play("feddc", clients=5, control="none", **settings)
    for _ in range(4):
        np.testing.assert_allclose(dyn.round().weights, dc.round().weights, rtol=1e-5)


def test_scaffold_corrects_the_gradients(play):
    """Two steps of 1/2 go three quarters of the way to a client's minimum.

    In round 1 the clients move to 0 and 3, so that the mean gradients of their steps are 0 and -3,
    of all -3/2. In round 2, from 3/2, the corrected gradients are x - 3/2 and x - 4 + 3 - 3/2: the
    first client stays and the second moves three quarters of the way to 5/2.
    """
    federation = play("scaffold", [0, 4], 0.0, rate=0.5, epochs=2).round()
    assert federation.locals == [[0], [3]] and federation.weights == [1.5]
    assert [federation.kept(k) for k in (0, 1)] == [0, -3]
    assert number(federation.server.server["control"][0]) == -1.5
    federation.round()
    assert federation.locals == [[0], [0.75]] and federation.weights == [1.875]
    # (x - y)/(K·η) - (c - c_k), with K·η = 1.
    assert [federation.kept(k) for k in (0, 1)] == [1.5, -2.25]
    assert number(federation.server.server["control"][0]) == -0.375


def test_scaffold_reaches_the_minimum_of_all(play):
    """Of curves that all bend alike, even though the clients take different numbers of steps."""
    settings = {"rate": 0.1, "epochs": 3, "sizes": [3, 9, 6]}
    weights = {}
    for name, options in (("scaffold", {}), ("fedavg", {"client_weighting": "uniform"})):
        federation = play(name, [0, 4, 1], 3.0, **settings, **options)
        for _ in range(60):
            federation.round()
        weights[name] = federation.weights[0]
    assert weights["scaffold"] == pytest.approx(5 / 3, rel=1e-4)
    assert abs(weights["fedavg"] - 5 / 3) > 0.1


def test_scaffold_multiplies_the_mean_change_by_its_step(play):
    federation = play("scaffold", [0, 4], 0.0, rate=0.5, server_step=1.5).round()
    assert federation.locals == [[0], [2]] and federation.weights == [1.5]
    # The averaged number of training steps is no weight.
    assert federation.steps == 1


def test_fedper_trains_head_and_backbone_together(play):
    federation = play("fedper", [0, 4], 0.0, 0.0, rate=0.5).round()
    assert federation.locals == [[0], [2]] and federation.weights == [1]
    assert [federation.own(k)[0] for k in (0, 1)] == [0, 2]


def test_fedrep_trains_the_head_first(play):
    federation = play("fedrep", [0, 4], 0.0, 0.0, rate=0.5, epochs=2).round()
    assert federation.locals == [[0], [1]] and federation.weights == [0.5]
    assert [federation.own(k)[0] for k in (0, 1)] == [0, 2]


def test_fedrep_leaves_the_backbone_nothing_once_heads_fit(play):
    federation = play("fedrep", [0, 4], 0.0, 0.0, rate=1.0, epochs=2).round()
    assert federation.weights == [0]
    assert [federation.own(k)[0] for k in (0, 1)] == [0, 4]


def test_fedbabu_never_moves_the_head(play):
    federation = play("fedbabu", [0, 4], 0.0, 0.0, rate=0.5).round()
    assert federation.weights == [1]
    # Neither momentum nor decay reach it.
    federation = play(
        "fedbabu", [0, 4], 0.0, 3.0, rate=0.1, epochs=3, momentum=0.9, decay=0.5
    ).round()
    assert number(federation.server.weights["fixed"][0][0]) == 3.0


def test_ditto_pulls_to_the_global_model_of_the_round(play):
    """Anchored at the trained local model it would come to 2.15625."""
    federation = play("ditto", [4], 0.0, rate=0.25, epochs=2, pull=1.0).round()
    assert federation.locals == [[1.75]]
    assert federation.own(0)[0] == 1.5


def test_ditto_without_pull_learns_alone(play):
    federation = play("ditto", [0, 4], 1.0, rate=0.25, epochs=2, pull=0.0).round().round()
    # Four steps, each three quarters of the way left.
    alone = [b + 0.75**4 * (1 - b) for b in (0, 4)]
    actual = [federation.own(k)[0] for k in (0, 1)]
    np.testing.assert_allclose(actual, alone, rtol=1e-6)
