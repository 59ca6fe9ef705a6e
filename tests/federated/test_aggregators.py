"""Aggregators: closed forms, all runtimes, refused settings, privacy in numbers."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import special

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import runtime
from tff_pcdd.federated import SGD, ClientWork, aggregators, build_process, make_message
from tff_pcdd.settings import option

PLAIN = {"zeroing": False, "clipping": False}


def rounds(aggregator, values, weights=None, cohort_size=2, number=1):
    """(results, measurements) of rounds in which clients hold these vectors."""
    value_type = tff.TensorType(np.float32, np.shape(values[0]))
    factory = aggregator.factory(cohort_size)
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        process = factory.create(value_type, tff.TensorType(np.float32))
    else:
        process = factory.create(value_type)
    values = [np.asarray(value, np.float32) for value in values]
    arguments = [values]
    if process.is_weighted:
        arguments.append([np.float32(w) for w in weights or [1] * len(values)])
    state, outcomes = process.initialize(), []
    for _ in range(number):
        output = process.next(state, *arguments)
        state = output.state
        outcomes.append((np.asarray(output.result), output.measurements))
    return outcomes


def test_the_mean_is_weighted(simulation):
    ((mean, _),) = rounds(aggregators.create("mean"), [1.0, 4.0], [1, 2])
    assert mean == pytest.approx(3)


@pytest.mark.parametrize(("cohort_size", "expected"), [(2, 0.75), (4, 0.375)])
def test_privacy_without_noise(cohort_size, expected, simulation):
    """2 is clipped to 1; the sum is divided by the clients that were expected."""
    aggregator = aggregators.create("dp", noise_multiplier=0.0, clip=1.0)
    ((result, _),) = rounds(aggregator, [2.0, 0.5], cohort_size=cohort_size)
    assert result == pytest.approx(expected)


def test_noise_has_the_spread_that_was_asked_for(simulation):
    """On the mean of 4 clients it is 2·0.5/4; of 20,000 entries the estimate is good to 1 %."""
    zeros = np.zeros(20_000)
    aggregator = aggregators.create("dp", noise_multiplier=2.0, clip=0.5)
    (first, _), (second, _) = rounds(aggregator, [zeros] * 4, cohort_size=4, number=2)
    assert first.std() == pytest.approx(0.25, rel=0.03)
    assert first.mean() == pytest.approx(0, abs=0.01)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_adaptive_clip_follows_the_median(simulation):
    """Both above the first clip of 0.1: the second is 0.1·exp(0.2·0.5)."""
    aggregator = aggregators.create("dp", noise_multiplier=0.0, clip=0.0)
    (first, _), (second, _) = rounds(aggregator, [3.0, 5.0], number=2)
    assert first == pytest.approx(0.1)
    assert second == pytest.approx(0.1 * math.exp(0.1))


@pytest.mark.parametrize(
    ("values", "factor"), [((0.1, 0.5), math.exp(-0.2 * 0.2)), ((3.0, 5.0), math.exp(0.2 * 0.8))]
)
def test_clipping_norm_moves_towards_four_in_five(values, factor, simulation):
    """A round uses the old norm, the next the new one: x0.960789 or x1.173511."""
    aggregator = aggregators.create("robust", zeroing=False)
    results = rounds(aggregator, values, number=2)
    for (mean, _), norm in zip(results, (1.0, factor), strict=True):
        assert mean == pytest.approx(np.mean(np.minimum(values, norm)), rel=1e-5)


def test_zeroing_keeps_the_weight_of_what_it_zeroes(simulation):
    """The first threshold is 21; with all below it the next is 2·10·0.954993 + 1."""
    aggregator = aggregators.create("robust", clipping=False)
    ((mean, _),) = rounds(aggregator, [1.0, 1000.0])
    assert mean == pytest.approx(0.5)
    threshold = 2 * 10 * math.exp(-math.log(10) * 0.02) + 1
    for value, kept in ((threshold - 0.01, 1), (threshold + 0.01, 0)):
        process = aggregator.factory(2).create(
            tff.TensorType(np.float32), tff.TensorType(np.float32)
        )
        state = process.next(process.initialize(), [np.float32(1)] * 2, [np.float32(1)] * 2).state
        output = process.next(state, [np.float32(value), np.float32(0)], [np.float32(1)] * 2)
        assert output.result == pytest.approx(kept * value / 2, rel=1e-5)


def test_compression_rounds_to_the_nearest_steps(simulation):
    """With 2 bits there are three steps between the smallest and the largest entry of a change."""
    value = np.linspace(0, 3, 50)
    ((result, _),) = rounds(
        aggregators.create("compressed", **PLAIN, bits=2, threshold=10), [value] * 2
    )
    # Rounding is at random, upwards and downwards; two changes are averaged.
    steps = np.round(2 * result, 4)
    np.testing.assert_array_equal(steps, np.round(steps))
    assert np.abs(result - value).max() < 1
    ((exact, _),) = rounds(
        aggregators.create("compressed", **PLAIN, bits=2, threshold=50), [value] * 2
    )
    np.testing.assert_allclose(exact, value, rtol=1e-6)


def test_compressed_bytes():
    aggregator = aggregators.create("compressed", bits=4, threshold=100)
    assert aggregator.upload_bytes([100, 101, 1]) == 400 + (51 + 8) + 4
    assert aggregators.create("mean").upload_bytes([100, 101, 1]) == 4 * 202


@pytest.mark.integration
@pytest.mark.parametrize("name", ["mean", "robust", "compressed", "secure"])
def test_a_cohort_without_samples_does_not_divide_by_zero(name, simulation):
    ((result, _),) = rounds(aggregators.create(name), [[0.0, 0.0]] * 2, [0, 0])
    np.testing.assert_array_equal(result, [0, 0])


def test_secure_sums_are_close_to_the_mean(simulation):
    ((result, _),) = rounds(
        aggregators.create("secure", **PLAIN), [[1.0, -2.0], [4.0, 1.0]], [1, 2]
    )
    np.testing.assert_allclose(result, [3, 0], atol=1e-3)


def test_secure_sums_of_statistics_are_not_clipped(simulation):
    """Moving means change by 40 and 30 in a round, at clients with thousands of samples."""
    factory = aggregators.create("secure").statistics_factory()
    process = factory.create(tff.TensorType(np.float32, [2]), tff.TensorType(np.float32))
    changes = [np.array([40.0, -1e-3], np.float32), np.array([30.0, 2e-3], np.float32)]
    weights = [np.float32(2000), np.float32(6000)]
    result = process.next(process.initialize(), changes, weights).result
    np.testing.assert_allclose(result, np.average(changes, axis=0, weights=weights), atol=1e-5)


# The mean is on each runtime in methods/test_contract, secure sums in runtime/test_worker.
@pytest.mark.rare
@pytest.mark.parametrize(
    "aggregator",
    [
        aggregators.create("secure"),
        aggregators.create("compressed"),
        aggregators.create("robust"),
        aggregators.create("dp", noise_multiplier=0.0, clip=0.5),
        aggregators.create("dp", noise_multiplier=0.0, clip=0.0),
    ],
    ids=lambda a: f"{a.name}-{getattr(a, 'clip', None)}",
)
def test_rounds_agree_on_every_runtime(aggregator, ray_actors):
    statistics = aggregator.name != "dp"
    process = support.process("fedavg", aggregator, statistics=statistics)
    results = []
    for block in (
        runtime.use("inprocess", client_parallelism=2),
        runtime.use("tff", insecure=True),
        runtime.installed(ray_actors),
    ):
        with block:
            state, _, _ = support.run_rounds(
                process, process.initialize(), {}, [[0, 1, 2], [1, 3, 4]]
            )
        results.append([np.asarray(leaf) for leaf in tf.nest.flatten(state.weights)])
    first, *others = results
    initial = [np.asarray(leaf) for leaf in tf.nest.flatten(process.initialize().weights)]
    assert any(np.any(a != b) for a, b in zip(first, initial, strict=True))
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)


@pytest.mark.integration
def test_bounds_that_are_off_are_the_mean_bit_for_bit(simulation):
    states = [
        support.run_rounds(process, process.initialize(), {}, [[0, 1, 2], [1, 3, 4]])[0]
        for process in (
            support.process("fedavg", aggregator)
            for aggregator in (None, aggregators.create("robust", **PLAIN))
        )
    ]
    support.assert_trees_equal(states[0].weights, states[1].weights)


@pytest.mark.integration
def test_privacy_counts_clients_alike(simulation):
    """Without noise and with a wide clip it is the plain mean over the expected cohort of 3."""
    compared = (
        aggregators.create("dp", noise_multiplier=0.0, clip=1e6),
        tff.aggregators.UnweightedMeanFactory(),
    )
    states = [
        support.run_rounds(process, process.initialize(), {}, [[0, 1, 2]])[0].weights
        for process in (
            support.process("fedavg", aggregator, statistics=False) for aggregator in compared
        )
    ]
    for a, b in zip(*map(tf.nest.flatten, states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def statistics_after(aggregator, cohort):
    """The statistics of the tiny model after a round, and those of each client of the cohort."""
    spec = support.training_spec("fedavg")
    process = support.process("fedavg", aggregator)
    state = process.initialize()
    message = make_message(spec.method, state)
    clients = [
        ClientWork(spec)
        .update(
            message,
            process.initial_client_state(support.seed_of(0, client)),
            support.client_data(client, 0),
        )["update"]
        .statistics
        for client in cohort
    ]
    new, _, _ = support.run_rounds(process, state, {}, [cohort])
    before = state.weights["statistics"]
    changes = [a - b for a, b in zip(new.weights["statistics"], before, strict=True)]
    return changes, clients


@pytest.mark.parametrize(
    "aggregator",
    [
        # With weights whose steps it does not shorten, below.
        pytest.param(aggregators.create("robust"), marks=pytest.mark.rare),
        aggregators.create("compressed", threshold=0, bits=2),
        aggregators.create("secure"),
        aggregators.TffAggregator(tff.learning.robust_aggregator()),
    ],
    ids=lambda aggregator: aggregator.name,
)
def test_statistics_are_averaged_apart(aggregator, simulation):
    """Neither clipped nor rounded with the weights: the mean by samples, 12 and 9."""
    changes, clients = statistics_after(aggregator, [0, 1])
    for change, first, second in zip(changes, *clients, strict=True):
        expected = (12 * np.asarray(first, float) + 9 * np.asarray(second, float)) / 21
        np.testing.assert_allclose(change, expected, rtol=1e-4, atol=1e-5)


def test_statistics_do_not_shorten_the_step_of_the_weights(simulation):
    """Changes of norm below the first clip of 1 are left alone, whatever the statistics do."""
    steps = []
    for aggregator in (None, aggregators.create("robust")):
        spec = dataclasses.replace(
            support.training_spec("fedavg"), optimizer=SGD(learning_rate=1e-3, momentum=0.0)
        )
        process = build_process(spec, aggregator)
        state = process.initialize()
        new, _, _ = support.run_rounds(process, state, {}, [[0, 1]])
        steps.append(
            [a - b for a, b in zip(*(s.weights["trainable"] for s in (new, state)), strict=True)]
        )
    for plain, robust in zip(*steps, strict=True):
        np.testing.assert_array_equal(plain, robust)
    assert np.sqrt(sum(np.sum(step**2) for step in steps[0])) < 1


def test_private_statistics_are_refused(simulation):
    reason = "statistics of batch normalization.*choose normalization=group"
    with refuses("aggregator", reason, "dp"):
        build_process(support.training_spec("fedavg"), aggregators.create("dp"))
    support.process("fedavg", aggregators.create("dp"), statistics=False)


@pytest.mark.parametrize("name", ["fedavg", "fedbn"])
def test_variances_are_never_negative(name, simulation):
    """Whatever an aggregator makes of them, here the negative of a large change."""

    class Overshooting(aggregators.get("mean")):
        name = "overshooting"

        def statistics_factory(self):
            return scaled(super().statistics_factory(), -10)

    process = support.process(name, Overshooting())
    state = process.initialize()
    new, _, _ = support.run_rounds(process, state, {}, [[0, 1]] * 3)
    # A client's own normalization has a scale and an offset before them.
    part, first = ("mirrored", 2) if name == "fedbn" else ("statistics", 0)
    mean, variance = new.weights[part][first:]
    assert np.min(variance) == 0 and np.min(mean) < 0


def scaled(factory, scale_by):
    """A factory whose aggregates are those of another one times a number."""

    class Factory(tff.aggregators.WeightedAggregationFactory):
        def create(self, value_type, weight_type):
            process = factory.create(value_type, weight_type)

            @tff.tensorflow.computation(value_type)
            def scale(value):
                return tf.nest.map_structure(lambda v: scale_by * v, value)

            @tff.federated_computation(*process.next.type_signature.parameter)
            def next_fn(state, value, weight):
                output = process.next(state, value, weight)
                return tff.templates.MeasuredProcessOutput(
                    output.state, tff.federated_map(scale, output.result), output.measurements
                )

            return tff.templates.AggregationProcess(process.initialize, next_fn)

    return Factory()


@pytest.mark.parametrize(
    ("name", "options"),
    [("logitadjust", {}), *(("fedgela", {"adaptation": a}) for a in ("relative", "sqrt", "exp"))],
)
def test_privacy_is_refused_where_clients_train_with_exact_counts_of_others(name, options):
    spec = support.training_spec(name, statistics=False, **options)
    with refuses("aggregator", f"clients of {name} train with the class counts", "dp"):
        build_process(spec, aggregators.create("dp"))


@pytest.mark.parametrize(("name", "options"), [("logitadjust", {"tau": 0.0}), ("fedgela", {})])
def test_privacy_is_accepted_where_they_do_not(name, options):
    spec = support.training_spec(name, statistics=False, **options)
    build_process(spec, aggregators.create("dp"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedmr", "clients of fedmr also send counts, features, which would not be aggregated"),
        ("feddyn", "clients of feddyn also send weight, which would not be aggregated"),
        ("fedproto", "clients of fedproto send no weights"),
    ],
)
def test_methods_whose_upload_is_not_aggregated_are_refused(name, reason):
    with refuses("aggregator", reason, "dp"):
        build_process(support.training_spec(name), aggregators.create("dp"))


def test_too_much_noise_for_an_adaptive_clip():
    with refuses("dp_noise_multiplier", "dp_clip=0.* 10 clients", 1.0):
        aggregators.create("dp", noise_multiplier=1.0, clip=0.0).factory(10)
    assert aggregators.create("dp", noise_multiplier=0.9, clip=0.0).factory(10)


@pytest.mark.parametrize(
    ("name", "options", "setting", "reason"),
    [
        ("compressed", {"bits": 17}, "compressed_bits", "at most 16"),
        ("compressed", {"threshold": -1}, "compressed_threshold", "at least 0"),
        ("secure", {"zeroing": 1}, "aggregator_zeroing", "true or false"),
        ("robust", {"clipping": "no"}, "aggregator_clipping", "true or false"),
        ("dp", {"noise_multiplier": -0.5}, "dp_noise_multiplier", "at least 0"),
        ("dp", {"clip": -1.0}, "dp_clip", "at least 0"),
        ("dp", {"delta": 0.0}, "dp_delta", "greater than 0"),
        ("dp", {"bits": 4}, "dp_bits", "no such option"),
        ("median", {}, "aggregator", "choose one of compressed, dp, mean, robust, secure"),
    ],
)
def test_settings_that_cannot_be_used(name, options, setting, reason):
    with refuses(setting, reason):
        aggregators.create(name, **options)


@pytest.mark.integration
def test_an_aggregator_of_ones_own(simulation, monkeypatch):
    """Registered outside the package, with an option; here the mean of changes times a factor."""
    registry = aggregators.registry
    monkeypatch.setattr(registry, "_classes", registry.classes())

    @aggregators.register
    @dataclasses.dataclass(frozen=True)
    class Damped(aggregators.get("mean")):
        name = "damped"
        factor: float = option(0.5, "Factor of the mean.", above=0, maximum=1)

        def factory(self, cohort_size):
            return scaled(super().factory(cohort_size), self.factor)

    assert "damped" in aggregators.names()
    weights = []
    for aggregator in (None, aggregators.create("damped", factor=0.25)):
        process = support.process("fedavg", aggregator)
        first = process.initialize()
        state, _, _ = support.run_rounds(process, first, {}, [[0, 1, 2]])
        weights.append([np.asarray(w) for w in state.weights["trainable"]])
    for start, plain, damped in zip(first.weights["trainable"], *weights, strict=True):
        np.testing.assert_allclose(damped - start, 0.25 * (plain - start), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["mean", "robust", "compressed", "secure"])
def test_only_dp_gives_privacy(name):
    assert aggregators.create(name).privacy(10, 5, 3) == {}


def test_privacy_in_numbers():
    private = aggregators.create("dp", noise_multiplier=2.0, delta=1e-4)
    expected = {"dp_epsilon": private.epsilon(5, 3, 3), "dp_delta": 1e-4}
    assert private.privacy(5, 3, 3) == expected
    unlimited = aggregators.create("dp", noise_multiplier=0.0)
    assert unlimited.privacy(5, 3, 3) == {"dp_epsilon": None, "dp_delta": 1e-5}


def test_epsilon_of_a_gaussian_mechanism():
    """From Rényi divergence α·T/(2z²), turned into (ε, δ) at the best of all orders α."""
    for z, number, delta in ((1.0, 50, 1e-5), (4.0, 10, 1e-6)):
        order = np.linspace(1.01, 200, 200_000)
        epsilon = np.min(
            order * number / (2 * z**2)
            + np.log1p(-1 / order)
            - (np.log(delta) + np.log(order)) / (order - 1)
        )
        actual = aggregators.create("dp", noise_multiplier=z, delta=delta).epsilon(10, 10, number)
        assert actual == pytest.approx(epsilon, rel=0.01)


def test_epsilon_of_cohorts_is_smaller():
    """By theorem 9 of Wang et al., of a sum that one client can move by twice the clip."""
    z, q, number, delta = 2.0, 0.01, 50, 1e-5
    epsilons = []
    for order in range(2, 64):
        j = np.arange(2, order + 1)
        divergence = j / (2 * (z / 2) ** 2)
        factor = np.full(j.shape, 2.0)
        factor[0] = min(2.0, 4 * (1 - np.exp(-divergence[0])))
        terms = q**j * special.comb(order, j) * np.exp((j - 1) * divergence) * factor
        rdp = number * np.log1p(terms.sum()) / (order - 1)
        epsilons.append(rdp + np.log1p(-1 / order) - np.log(delta * order) / (order - 1))
    private = aggregators.create("dp", noise_multiplier=z, delta=delta)
    few = private.epsilon(1000, 10, number)
    assert 0.7 * min(epsilons) < few <= 1.01 * min(epsilons)
    assert few < private.epsilon(1000, 1000, number) / 5
    assert private.epsilon(1000, 10, 100) > few
    assert aggregators.create("dp", noise_multiplier=0.0).epsilon(10, 10, 1) == math.inf


def test_epsilon_of_large_cohorts_is_that_of_taking_part_always():
    private = aggregators.create("dp", noise_multiplier=2.0)
    assert private.epsilon(5, 3, 10) == private.epsilon(5, 5, 10)
