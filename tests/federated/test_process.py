"""Rounds of a model so small that NumPy computes them again in a few lines."""

import functools
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import data, layers, methods
from tff_pcdd.federated import SGD, TrainingSpec, build_process
from tff_pcdd.federated.records import ClientData
from tff_pcdd.training import ExperimentConfig

CLASSES, DIM = 4, 16
SIZES = (7, 3, 12)
CLIENTS = [
    support.examples(size, classes, size)
    for size, classes in zip(SIZES, ([0, 1], [2], [1, 2, 3]), strict=True)
]
COUNTS = np.stack([np.bincount(c["y"], minlength=CLASSES) for c in CLIENTS])


def flat(with_statistics=False):
    """Pixels in a row, normalized by batch if wanted: nothing to be trained."""
    inputs = tf.keras.Input(support.IMAGE)
    h = tf.keras.layers.Flatten()(inputs)
    if with_statistics:
        h = layers.BatchNormalization(center=False, scale=False)(h)
    return tf.keras.Model(inputs, h)


def training_spec(method="fedavg", *, statistics=False, epochs=3, optimizer=None, **options):
    """A linear classifier, whole-batch steps: the order of samples is of no account."""
    return TrainingSpec(
        method=methods.create(method, **options),
        task=methods.TaskSpec(
            num_classes=CLASSES,
            feature_dim=DIM,
            backbone=functools.partial(flat, statistics),
            class_counts=COUNTS,
            num_rounds=2,
        ),
        input_spec=data.InputSpec("image", support.IMAGE, "float32", scale=0.5, mean=(0.25,)),
        optimizer=optimizer
        or SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-2, clip_norm=1.0),
        local_epochs=epochs,
        batch_size=16,
    )


def run_round(process, state, cohort=(0, 1, 2), round_number=0):
    return process.next(
        state,
        [process.initial_client_state(support.seed_of(client)) for client in cohort],
        [
            ClientData(
                train=CLIENTS[client],
                seed=support.seed_of(round_number, client),
                cohort_index=np.int32(index),
            )
            for index, client in enumerate(cohort)
        ],
    )


def inputs(client):
    x = CLIENTS[client]["x"].astype(np.float64).reshape(-1, DIM)
    return x * 0.5 - 0.25, CLIENTS[client]["y"]


def cross_entropy(logits, y):
    """Loss of each sample and its gradient by the logits."""
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return -np.log(probabilities[np.arange(len(y)), y]), probabilities - np.eye(CLASSES)[y]


def numpy_client(kernel, bias, client, epochs=3, lr=0.1, momentum=0.9, decay=1e-2, clip=1.0):
    """SGD of one client; also the mean loss over its steps."""
    x, y = inputs(client)
    weights, velocity, total = [kernel, bias], [0 * kernel, 0 * bias], 0.0
    for _ in range(epochs):
        loss, by_logits = cross_entropy(x @ weights[0] + weights[1], y)
        total += loss.mean()
        gradients = [x.T @ by_logits / len(y), by_logits.mean(axis=0)]
        norm = np.sqrt(sum(np.sum(g**2) for g in gradients))
        factor = min(1.0, clip / (norm + 1e-6))
        for i in range(2):
            velocity[i] = momentum * velocity[i] + gradients[i] * factor + decay * weights[i]
            weights[i] = weights[i] - lr * velocity[i]
    return weights, total / epochs


def as_float64(weights):
    return [np.asarray(w, np.float64) for w in weights]


@pytest.fixture(scope="module")
def fedavg(simulation):
    return build_process(training_spec())


@pytest.fixture(scope="module")
def with_statistics(simulation):
    return build_process(training_spec(statistics=True))


@pytest.fixture(scope="module")
def fedgela(simulation):
    return build_process(
        training_spec("fedgela", statistics=True, epochs=1, scale=3.0, features="l2")
    )


def test_two_rounds_of_fedavg_match_numpy(fedavg):
    state = fedavg.initialize()
    expected = as_float64(state.weights["trainable"])
    for number in range(2):
        results = [numpy_client(*expected, client) for client in range(len(CLIENTS))]
        state, _, metrics = run_round(fedavg, state, round_number=number)
        expected = [
            np.average([weights[i] for weights, _ in results], axis=0, weights=SIZES)
            for i in range(2)
        ]
        for actual, wanted in zip(state.weights["trainable"], expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)
        assert int(state.round) == number + 1
        # Three epochs: every sample is seen three times.
        assert float(metrics["sums"]["samples"]) == 3 * sum(SIZES)
        loss = np.average([loss for _, loss in results], weights=SIZES)
        assert float(metrics["sums"]["loss"]) / float(metrics["sums"]["samples"]) == pytest.approx(
            loss, rel=1e-5
        )


def test_the_cohort_need_not_be_everybody(fedavg):
    state = fedavg.initialize()
    before = as_float64(state.weights["trainable"])
    state, states, _ = run_round(fedavg, state, cohort=[1])
    for actual, wanted in zip(state.weights["trainable"], numpy_client(*before, 1)[0], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)
    assert int(states[0].participations) == 1


def test_evaluation_matches_numpy(fedavg):
    """The global model on the pooled samples; a personal model before and after its epochs."""
    state, _, _ = run_round(fedavg, fedavg.initialize())
    kernel, bias = as_float64(state.weights["trainable"])
    x, y = (np.concatenate(parts) for parts in zip(*map(inputs, range(3)), strict=True))
    pooled = OrderedDict(
        x=np.concatenate([c["x"] for c in CLIENTS]), y=np.concatenate([c["y"] for c in CLIENTS])
    )

    def correct(logits, labels):
        return np.bincount(labels[logits.argmax(axis=1) == labels], minlength=CLASSES)

    counts = fedavg.evaluate_global(state, pooled)
    np.testing.assert_array_equal(counts["correct"]["head"], correct(x @ kernel + bias, y))
    np.testing.assert_array_equal(counts["total"], np.bincount(y, minlength=CLASSES))
    np.testing.assert_array_equal(counts["predicted"], (x @ kernel + bias).argmax(axis=1))

    client = 0
    counts = fedavg.evaluate_personal(
        state,
        [fedavg.initial_client_state(support.seed_of(0))],
        [ClientData(train=CLIENTS[client], test=pooled, seed=support.seed_of(9), cohort_index=0)],
    )[0]
    logits = x @ kernel + bias
    (kernel, bias), _ = numpy_client(kernel, bias, client)
    tuned = x @ kernel + bias
    absent = np.where(COUNTS[client] > 0, 0.0, -np.inf)
    for key, wanted in {
        "before": logits,
        "before_masked": logits + absent,
        "after": tuned,
        "after_masked": tuned + absent,
    }.items():
        np.testing.assert_array_equal(counts[key], correct(wanted, y), err_msg=key)
    np.testing.assert_array_equal(counts["predicted_before"], logits.argmax(axis=1))
    np.testing.assert_array_equal(counts["predicted_after"], tuned.argmax(axis=1))
    answers = np.bincount(tuned.argmax(axis=1), minlength=CLASSES)
    np.testing.assert_array_equal(counts["after_answers"], answers)


@pytest.mark.parametrize("name", ["fedavg", "fedgela"])
def test_a_client_without_training_samples_has_the_global_model(name):
    """It has no classes of its own, so all of them count, and FedGELA's Φ changes nothing."""
    process = support.process(name)
    state, _, _ = support.run_rounds(process, process.initialize(), {}, [[0, 1]])
    data = support.client_data(4, 1, test=support.TEST)
    assert not len(data.train["y"])
    empty = process.initial_client_state(support.seed_of(4))
    found = process.evaluate_personal(state, [empty], [data])[0]
    correct = process.evaluate_global(state, support.TEST)["correct"]["head"]
    assert correct[1:].any()
    for key in ("before", "before_masked", "after", "after_masked"):
        np.testing.assert_array_equal(found[key], correct, err_msg=key)


def test_one_sample_is_enough(fedavg):
    """A class of which the client has one sample is its own, and the client trains on it."""
    client, other = 0, CLASSES - 1
    alone = {"x": CLIENTS[2]["x"][:1], "y": np.array([other], np.int32)}
    mixed = {key: np.concatenate([CLIENTS[client][key], alone[key]]) for key in alone}
    state = fedavg.initialize()
    kernel, bias = as_float64(state.weights["trainable"])
    counts = fedavg.evaluate_personal(
        state,
        [fedavg.initial_client_state(support.seed_of(0))],
        [ClientData(train=mixed, test=CLIENTS[2], seed=support.seed_of(9), cohort_index=0)],
    )[0]
    x, y = inputs(2)
    own = np.bincount(mixed["y"], minlength=CLASSES) > 0
    assert own[other] and not own.all()
    predicted = np.where(own, x @ kernel + bias, -np.inf).argmax(axis=1)
    assert other in predicted
    wanted = np.bincount(y[predicted == y], minlength=CLASSES)
    np.testing.assert_array_equal(counts["before_masked"], wanted)

    own_state = fedavg.initial_client_state(support.seed_of(0))
    for number in (1, 2):
        data = [ClientData(train=alone, seed=support.seed_of(number), cohort_index=0)]
        before = state.weights["trainable"]
        state, (own_state,), metrics = fedavg.next(state, [own_state], data)
        assert int(own_state.participations) == number
        assert float(metrics["sums"]["samples"]) == 3  # epochs
        after = state.weights["trainable"]
        assert all(np.any(a != b) for a, b in zip(after, before, strict=True))


def test_batch_statistics_are_averaged_with_the_weights(with_statistics):
    """Moving averages after three whole-batch steps, weighted by samples like everything else."""
    state = with_statistics.initialize()
    np.testing.assert_array_equal(state.weights["statistics"][0], np.zeros(DIM))
    np.testing.assert_array_equal(state.weights["statistics"][1], np.ones(DIM))
    state, _, _ = run_round(with_statistics, state)
    mean, variance = [], []
    for client in range(len(CLIENTS)):
        x, _ = inputs(client)
        mean.append((1 - 0.9**3) * x.mean(axis=0))
        variance.append(0.9**3 + (1 - 0.9**3) * x.var(axis=0, ddof=1))
    actual = state.weights["statistics"]
    np.testing.assert_allclose(
        actual[0], np.average(mean, axis=0, weights=SIZES), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(actual[1], np.average(variance, axis=0, weights=SIZES), rtol=1e-4)


def test_unweighted_mean_plugs_in(simulation, fedavg):
    process = build_process(training_spec(), tff.aggregators.UnweightedMeanFactory())
    state = process.initialize()
    before = as_float64(state.weights["trainable"])
    alone = [numpy_client(*before, client)[0] for client in range(len(CLIENTS))]
    state, _, _ = run_round(process, state)
    for i, actual in enumerate(state.weights["trainable"]):
        wanted = np.mean([weights[i] for weights in alone], axis=0)
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)
    weighted, _, _ = run_round(fedavg, fedavg.initialize())
    assert not np.allclose(weighted.weights["trainable"][1], actual, rtol=1e-2)


def test_factories_of_tff_are_checked_against_the_method():
    """Or FedMR's prototypes would be summed in the clear beside weights with noise."""
    spec = training_spec("fedmr")
    with refuses("aggregator", "clients of fedmr also send counts, features, which would not be"):
        build_process(spec, tff.learning.robust_aggregator())


@pytest.mark.integration
@pytest.mark.parametrize(
    "factory",
    [
        pytest.param(tff.learning.robust_aggregator, id="robust"),
        pytest.param(
            lambda: tff.learning.dp_aggregator(noise_multiplier=0.1, clients_per_round=3), id="dp"
        ),
    ],
)
def test_aggregators_of_tff_learning_plug_in(factory, simulation):
    """Two rounds, so that their own state comes back; also with statistics to be averaged."""
    process = build_process(training_spec(statistics=True), factory())
    state = process.initialize()
    for number in range(2):
        before = state
        state, _, _ = run_round(process, state, round_number=number)
    for now, then in zip(state.weights["trainable"], before.weights["trainable"], strict=True):
        assert np.all(np.isfinite(now))
        assert np.any(now != then)
    assert all(np.all(np.isfinite(value)) for value in state.weights["statistics"])


def test_a_cohort_without_samples_divides_by_nothing(fedavg):
    """Zero weight in the mean is what the default aggregator takes without NaN."""
    state = fedavg.initialize()
    after, _, metrics = fedavg.next(
        state,
        [fedavg.initial_client_state(support.seed_of(0))],
        [ClientData(train=support.examples(0, [0], 0), seed=support.seed_of(0), cohort_index=0)],
    )
    support.assert_trees_equal(after.weights, state.weights)
    assert float(metrics["sums"]["samples"]) == 0


def test_bytes_are_those_of_the_arrays(fedavg, with_statistics, fedgela):
    """A float32 kernel and bias go both ways, with the round's number on the way down."""
    head = 4 * (DIM * CLASSES + CLASSES)
    assert fedavg.update_bytes == head
    assert fedavg.extra_bytes == 0
    assert fedavg.download_bytes == head + 4
    assert fedavg.fixed_bytes == 0
    assert fedavg.personal_bytes == 0
    statistics = 4 * 2 * DIM
    assert with_statistics.update_bytes == head + statistics
    assert with_statistics.download_bytes == head + statistics + 4
    assert fedgela.update_bytes == statistics
    assert fedgela.download_bytes == statistics + 4
    assert fedgela.fixed_bytes == 4 * DIM * CLASSES


def test_phi_enters_the_loss_of_fedgela(fedgela):
    """One step from the first weights: its loss is that of Φ ⊙ (Mᵀ h / |h|)."""
    state = fedgela.initialize()
    (frame,) = as_float64(state.weights["fixed"])
    np.testing.assert_allclose(
        frame.T @ frame / np.sum(frame[:, 0] ** 2),
        (CLASSES * np.eye(CLASSES) - 1) / (CLASSES - 1),
        atol=1e-5,
    )
    frame /= np.linalg.norm(frame, axis=0)
    for client in range(len(CLIENTS)):
        x, y = inputs(client)
        h = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
        h /= np.linalg.norm(h, axis=1, keepdims=True)
        phi = CLASSES * COUNTS[client] / COUNTS[client].sum()
        loss = cross_entropy(3.0 * phi * (h @ frame), y)[0].mean()
        _, _, metrics = run_round(fedgela, state, cohort=[client])
        assert float(metrics["sums"]["loss"]) / len(y) == pytest.approx(loss, rel=1e-4)


def test_first_weights_are_a_function_of_the_seed(simulation, fedavg):
    support.assert_trees_equal(fedavg.initialize(), build_process(training_spec()).initialize())


def test_what_is_no_spec_is_refused():
    with refuses("spec", r"^must be a TrainingSpec, such as Simulation\(config\)\.spec$"):
        build_process(ExperimentConfig())
