"""FedReLa's labels, loss and steps, against a few lines of NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.federation import Federation
from tff_pcdd.federated import SGD
from tff_pcdd.federated.weights import load
from tff_pcdd.methods.fedrela import relabel
from tff_pcdd.methods.head_calibration import registry as calibrations

RATE, SHARE = 0.05, 0.25


def expected_labels(q, labels, share, uniform):
    """Sample by sample, as in the paper; `uniform` are the draws [n, C]."""
    number, num_classes = q.shape
    counts = np.bincount(labels, minlength=num_classes)
    z = np.zeros([number, num_classes])
    for label in set(labels):
        own = labels == label
        z[own] = (q[own] - q[own].mean(axis=0)) / np.maximum(q[own].std(axis=0), 1e-6)
    thresholds = np.sort(z, axis=0)[::-1][min(int(share * number), number - 1)]
    new = labels.copy()
    for i, label in enumerate(labels):
        best = 0.0
        for j in range(num_classes):
            if counts[j] < counts[label]:
                rate = np.tanh(z[i, j] - thresholds[j])
                rate *= (counts[label] - counts[j]) / (counts.max() - counts.min())
                if rate > uniform[i, j] and rate > best:
                    new[i], best = j, rate
    return new


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_labels_of_samples_with_a_large_score(share):
    generator = np.random.default_rng(1)
    labels = generator.choice(5, 200, p=[0.55, 0.25, 0.15, 0.05, 0]).astype(np.int32)
    q = generator.dirichlet(np.ones(5), 200).astype(np.float32)
    counts = np.bincount(labels, minlength=5).astype(np.float32)
    seed = tf.constant([3, 4])
    found = relabel(tf.constant(q), tf.constant(labels), tf.constant(counts), share, seed)
    uniform = tf.random.stateless_uniform([200, 5], seed).numpy()
    np.testing.assert_array_equal(found, expected_labels(q, labels, share, uniform))
    changed = found.numpy() != labels
    assert changed.sum() == 0 if share == 0 else changed.sum() > 3
    assert np.all(counts[found.numpy()[changed]] < counts[labels[changed]])
    assert share < 0.3 or 4 in found.numpy()  # a class that the client lacks


def test_equally_frequent_classes_keep_their_labels():
    labels = tf.constant([0, 1, 2, 3] * 10)
    q = tf.constant(np.random.default_rng(0).dirichlet(np.ones(4), 40), tf.float32)
    found = relabel(q, labels, tf.fill([4], 10.0), 0.5, tf.constant([0, 1]))
    np.testing.assert_array_equal(found, labels)


def skewed(size, seed):
    """Samples of a frequent class and a rarer one."""
    return support.examples(size, [0, 0, 0, 0, 1], seed)


PARTS = [skewed(24, 1), skewed(30, 2), skewed(3, 3), skewed(0, 4)]


def federation(**options):
    """One step of plain SGD in a round, on all samples of a client."""
    spec = support.training_spec("fedrela", statistics=False, share=SHARE, **options)
    counts = np.stack([np.bincount(part["y"], minlength=4) for part in PARTS])
    spec = dataclasses.replace(
        spec,
        task=dataclasses.replace(spec.task, class_counts=counts),
        optimizer=SGD(learning_rate=RATE, momentum=0.0, weight_decay=0.0, clip_norm=0.0),
        local_epochs=1,
        batch_size=32,
    )
    return Federation(spec, PARTS)


def logits(federation, client):
    net = federation.spec.network()
    load(net, federation.server.weights)
    return net["head"](net["backbone"](PARTS[client]["x"])).numpy().astype(np.float64)


def softmax(z):
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def labels_of(federation, client, round_number):
    """The labels that a client draws in a round, in NumPy."""
    labels = PARTS[client]["y"]
    seed = tf.constant([client, round_number])
    for number in (1 << 20, 1):
        seed = tf.random.experimental.stateless_fold_in(seed, number)
    uniform = tf.random.stateless_uniform([len(labels), 4], seed).numpy()
    return expected_labels(softmax(logits(federation, client)), labels, SHARE, uniform)


def kept(federation, client):
    return federation.state(client).own["labels"].numpy()


def check_step(federation, results, client, labels, rate):
    """Loss, share of new labels and step of the bias of a round that started at `federation`."""
    q = softmax(logits(federation, client))
    number = len(labels)
    result = results(client)
    loss = -np.log(q[np.arange(number), labels]).sum()
    assert float(result["metrics"]["loss"]) == pytest.approx(loss, rel=1e-5)
    changed = (labels != PARTS[client]["y"]).sum()
    assert float(result["metrics"]["relabeled"]) == pytest.approx(changed, rel=1e-5)
    step = -rate * (q - np.eye(4)[labels]).mean(axis=0)
    bias = [v for v in result["update"].trainable if v.shape == (4,)][-1]
    np.testing.assert_allclose(bias, step, rtol=1e-5, atol=1e-8)


def test_labels_change_once_and_stay():
    found = federation(start=0.5)  # of four rounds
    own = {client: PARTS[client]["y"] for client in range(4)}

    def results(client):
        return found.results[cohort.index(client)]

    def play(cohort, labels, rate):
        before = found.server
        found.round(cohort)
        after, found.server = found.server, before
        for client in cohort:
            if len(own[client]):
                check_step(found, results, client, labels[client], rate)
        found.server = after

    for _ in range(2):
        cohort = [0, 1, 2]
        play(cohort, own, RATE)
        assert all(np.all(kept(found, client) == -1) for client in cohort)
    cohort = [0, 2, 3]
    first = labels_of(found, 0, 2)
    assert 0 < (first != own[0]).sum() <= SHARE * 24 * 3
    # Three samples are fewer than 1/share, and the last client has none.
    play(cohort, {0: first, 2: own[2]}, 0.1 * RATE)
    np.testing.assert_array_equal(kept(found, 0), [*first, *[-1] * 6])
    np.testing.assert_array_equal(kept(found, 2)[:3], own[2])
    assert np.all(kept(found, 3) == -1)
    # The others re-label when they are drawn, and the labels of before stay.
    cohort = [0, 1]
    later = labels_of(found, 1, 3)
    assert np.any(later != own[1])
    play(cohort, {0: first, 1: later}, 0.1 * RATE)
    np.testing.assert_array_equal(kept(found, 1), later)


@pytest.mark.parametrize(("name", "options"), [("ccvr", {"epochs": 1}), ("fednpc", {"epochs": 1})])
def test_a_head_calibration_changes_neither_labels_nor_steps(name, options):
    calibration = calibrations.create(name, **options)
    plain, calibrated = federation(start=0.3), federation(start=0.3, head_calibration=calibration)
    for cohort in ([0, 1], [0, 1, 3], [1]):
        losses = []
        for found in (plain, calibrated):
            found.round(cohort)
            losses.append([float(result["metrics"]["loss"]) for result in found.results])
        np.testing.assert_allclose(*losses, rtol=1e-6)
    for client in (0, 1):
        assert np.any(kept(plain, client)[: len(PARTS[client]["y"])] != PARTS[client]["y"])
        np.testing.assert_array_equal(kept(plain, client), kept(calibrated, client))


@pytest.mark.parametrize(("start", "first"), [(0, 0), (0.8, 3), (1, 3)])
def test_the_last_planned_round_is_not_too_late(start, first):
    spec = support.training_spec("fedrela", start=start)  # of four rounds
    assert int(spec.method.constants(tf.zeros([4]), spec.task)["first"]) == first
