"""Unequal local work: what clients draw, and the steps they take."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods import parabola_oracle as oracle
from tests.methods import quadratic
from tff_pcdd.federated import ClientWork, LocalWork, build_process
from tff_pcdd.federated.local_work import Draws
from tff_pcdd.methods import Phase


def draws_of(work, local_epochs, number=2000):
    """The draws of many clients: epochs, parts of 65,536."""

    @tf.function(input_signature=[tf.TensorSpec([2], tf.int32)])
    def draw(seed):
        drawn = work.draw(seed, local_epochs)
        return drawn.epochs, drawn.parts

    return [np.array(column) for column in zip(*(draw([7, k]) for k in range(number)), strict=True)]


def test_full_work_draws_nothing():
    assert LocalWork().is_full
    for option in ("min_local_epochs", "straggler_share", "dropped_share"):
        assert not LocalWork(**{option: 1 if option.startswith("min") else 0.5}).is_full


def test_epochs_are_drawn_uniformly():
    epochs, parts = draws_of(LocalWork(min_local_epochs=2), 5)
    counts = np.bincount(epochs, minlength=6)
    assert counts[:2].sum() == 0
    # Four standard deviations of a count with probability 1/4.
    assert np.all(np.abs(counts[2:] - 500) < 4 * np.sqrt(2000 * 0.25 * 0.75))
    assert set(parts) == {65536}


def test_stragglers_finish_a_uniform_share():
    epochs, parts = draws_of(LocalWork(straggler_share=0.4), 5)
    slow = parts[parts < 65536] / 65536
    assert set(epochs) == {5}
    assert abs(len(slow) - 800) < 4 * np.sqrt(2000 * 0.4 * 0.6)
    assert 0 < slow.min() < 0.02 and slow.max() > 0.98
    assert abs(slow.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 800)


def test_clients_drop_out():
    work = LocalWork(dropped_share=0.3)
    dropped = [work.drops_out([7, k]) for k in range(2000)]
    assert abs(sum(dropped) - 600) < 4 * np.sqrt(2000 * 0.3 * 0.7)
    assert not any(LocalWork(straggler_share=1.0).drops_out([7, k]) for k in range(20))
    # A larger share adds clients to the same ones.
    more = [LocalWork(dropped_share=0.6).drops_out([7, k]) for k in range(200)]
    assert sum(more) > sum(dropped[:200])
    assert all(np.greater_equal(more, dropped[:200]))


@pytest.mark.parametrize(
    ("epochs", "share", "planned", "expected"),
    [
        (5, 1.0, [5], [20]),
        (3, 1.0, [5], [12]),
        (5, 0.5, [5], [10]),
        (5, 0.01, [5], [1]),
        (5, 0.5, [4, 1], [8, 2]),
        (2, 0.5, [4, 1, 0], [4, 1, 0]),
    ],
)
def test_every_phase_is_shortened_alike(epochs, share, planned, expected):
    """Of four steps per epoch, ⌈n·e/E⌉ and then ⌈n·share⌉ remain."""
    parts = tf.constant(round(share * 65536), tf.int64)
    draws = Draws(tf.constant(epochs, tf.int64), parts, 5)
    phases = [Phase([], number, None) for number in planned]
    assert [int(steps) for steps in draws.steps(phases, tf.constant(4))] == expected
    assert [int(steps) for steps in draws.steps(phases, tf.constant(0))] == [0] * len(planned)


@pytest.mark.parametrize("name", ["fedavg", "fednova"])
def test_rounds_with_unequal_work_match_numpy(monkeypatch, name):
    """FedNova divides by the steps that were taken."""
    work = LocalWork(min_local_epochs=1, straggler_share=0.5)
    spec = quadratic.training_spec(
        monkeypatch, name, oracle.START, rate=0.1, epochs=4, sizes=oracle.SIZES, momentum=0.5
    )
    federation = quadratic.Federation(
        dataclasses.replace(spec, local_work=work), oracle.MINIMA, oracle.SIZES
    )
    w, fates = oracle.START, []

    for number, cohort in enumerate(oracle.COHORTS):
        federation.round(cohort)
        weights, changes, lengths = {}, {}, {}
        for k, result in zip(cohort, federation.results, strict=True):
            epochs, share = fate(work, k, number)
            fates.append((epochs, share < 1))
            full = oracle.Solver(0.1, 1, 0.5, 0.0).steps(k)
            steps = int(np.ceil(full * epochs * share))
            assert int(result["metrics"]["steps"]) == steps
            position, velocity, effective = w, 0.0, 0.0
            for step in range(steps):
                velocity = 0.5 * velocity + position - oracle.MINIMA[k]
                position -= 0.1 * velocity
                effective += sum(0.5**later for later in range(steps - step))
            changes[k], lengths[k] = position - w, effective
            weights[k] = oracle.SIZES[k]
        if any(weights.values()):
            if name == "fednova":
                slopes = {k: changes[k] / (lengths[k] or 1) for k in cohort}
                w += oracle.mean(lengths, weights) * oracle.mean(slopes, weights)
            else:
                w += oracle.mean(changes, weights)
        np.testing.assert_allclose(federation.weights, [w], rtol=1e-5, atol=1e-6)
    # All fates occur, otherwise the test would say nothing.
    assert len({epochs for epochs, _ in fates}) == 4
    assert {slow for _, slow in fates} == {True, False}


def fate(work, client, round_number):
    """The draws of a client, whose seed in `quadratic.Federation` is (client, round)."""
    drawn = work.draw(tf.constant([client, round_number]), 4)
    return int(drawn.epochs), int(drawn.parts) / 65536


def test_stragglers_see_the_first_batches_of_full_work(monkeypatch):
    """A client with a share of 1 trains bit for bit as without this setting."""
    spec = support.training_spec("fedavg")
    unequal = dataclasses.replace(spec, local_work=LocalWork(straggler_share=1.0))
    monkeypatch.setattr(
        LocalWork,
        "draw",
        lambda self, seed, epochs: Draws(
            tf.constant(epochs, tf.int64), tf.constant(65536, tf.int64), epochs
        ),
    )
    process, same = build_process(spec), build_process(unequal)
    expected, *_ = support.run_rounds(process, process.initialize(), {}, [[0, 1]])
    actual, *_ = support.run_rounds(same, same.initialize(), {}, [[0, 1]])
    support.assert_trees_equal(actual.weights, expected.weights)


def test_pooled_samples_have_no_clients_that_could_do_less(simulation):
    spec = dataclasses.replace(
        support.training_spec("central"), local_work=LocalWork(straggler_share=1.0)
    )
    assert ClientWork(spec) is not None
    process = build_process(spec)
    assert "steps" not in dir(process.next.type_signature.result[2].member["sums"])
