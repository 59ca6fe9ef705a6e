"""Schedules of the step size against NumPy, alone and in rounds."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.methods import parabola_oracle as oracle
from tests.methods import quadratic
from tff_pcdd.federated import schedules


def factors(name, rounds, num_rounds=None, **options):
    """The factors of the first rounds, from a single traced computation."""
    schedule = schedules.create(name, **options)
    traced = tf.function(
        lambda number: schedule.factor(number, num_rounds),
        input_signature=[tf.TensorSpec([], tf.int32)],
    )
    return [float(traced(number)) for number in range(rounds)]


def test_a_constant_schedule_computes_nothing():
    assert schedules.create("constant").factor(tf.constant(3), None) is None


def test_exponential():
    actual = factors("exponential", 20, decay=0.9)
    np.testing.assert_allclose(actual, 0.9 ** np.arange(20), rtol=1e-5)


def test_step():
    actual = factors("step", 8, milestones="2,5", drop=0.1)
    np.testing.assert_allclose(actual, [1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01], rtol=1e-6)


def test_step_at_shares_of_the_rounds():
    """0.7 of 10 rounds are 7, although 0.7·10 is a little more in floating point."""
    actual = factors("step", 10, num_rounds=10, milestones="0.5,0.7", drop=0.5)
    np.testing.assert_allclose(actual, [1] * 5 + [0.5] * 2 + [0.25] * 3, rtol=1e-6)


def test_cosine_ends_at_the_last_planned_round():
    """Afterwards, as for personal models that are evaluated after it, the value stays."""
    actual = factors("cosine", 8, num_rounds=7, final=0.2)
    expected = [0.2 + 0.8 * (1 + math.cos(math.pi * t / 6)) / 2 for t in range(7)]
    np.testing.assert_allclose(actual, [*expected, 0.2], rtol=1e-5)
    assert factors("cosine", 1, num_rounds=1) == [1]


@pytest.mark.parametrize("name", schedules.names())
def test_warm_up_is_linear_and_for_every_schedule(name):
    later = [1.0] * 9 if name == "constant" else factors(name, 9, 9)
    actual = factors(name, 9, 9, warmup_rounds=3)
    warm = np.minimum(1, np.arange(1, 10) / 4)
    np.testing.assert_allclose(actual, warm * later, rtol=1e-6)


def test_only_some_schedules_need_the_number_of_rounds():
    needing = {name for name in schedules.names() if schedules.create(name).needs_rounds}
    assert needing == {"cosine", "step"}
    assert not schedules.create("step", milestones="100,200").needs_rounds


@pytest.mark.parametrize("text", ["", "a", "0", "-1", "5,2", "0.5,0.5", "2.5", "inf", "nan"])
def test_milestones_are_checked(text):
    with refuses("schedule_milestones", "ascending whole numbers of rounds, or shares"):
        schedules.create("step", milestones=text)


class Changing:
    """A solver of the oracle whose step size the test sets before each round."""

    rate, epochs, momentum, decay = 0.1, 2, 0.5, 0.01
    steps = oracle.Solver.steps
    effective_steps = oracle.Solver.effective_steps
    solve = oracle.Solver.solve


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedavg", {}),
        ("fednova", {}),
        ("feddc", {"alpha": 0.3, "control": "code"}),
        ("feddc", {"alpha": 0.3, "control": "paper"}),
    ],
)
def test_rounds_of_methods_use_the_value_of_the_round(monkeypatch, name, options):
    """Also where the step size is part of a method's formulas."""
    solver = Changing()
    spec = quadratic.training_spec(
        monkeypatch,
        name,
        oracle.START,
        rate=0.1,
        epochs=2,
        sizes=oracle.SIZES,
        momentum=0.5,
        decay=0.01,
        **options,
    )
    spec = dataclasses.replace(spec, schedule=schedules.create("exponential", decay=0.7))
    federation = quadratic.Federation(spec, oracle.MINIMA, oracle.SIZES)
    weighting = oracle.alike if name == "feddc" else oracle.by_samples
    rounds = getattr(oracle, name)(solver, weighting, **options)
    for number, cohort in enumerate(oracle.COHORTS):
        solver.rate = 0.1 * 0.7**number
        expected = next(rounds)
        federation.round(cohort)
        np.testing.assert_allclose(federation.weights, [expected.weight], rtol=1e-5, atol=1e-5)
    # A personal model is fine-tuned like a client of the next round.
    solver.rate = 0.1 * 0.7 ** len(oracle.COHORTS)
    tuned = solver.solve(1, expected.weight)
    np.testing.assert_allclose(federation.personal_number(1), tuned, rtol=1e-4)
