"""FedPAC: combinations of heads against another solver, and rounds in NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods import numpy_network
from tests.methods.network_federation import network_federation, own_values, placed, server_values
from tests.methods.network_oracle import FedPer
from tests.methods.numpy_network import (
    BACKBONE,
    CLASSES,
    EPOCHS,
    HEAD,
    LABELS,
    WIDTH,
    counts,
    cross_entropy,
    features,
    inputs,
    train,
)
from tff_pcdd.federated import ClientWork, make_message
from tff_pcdd.federated import state as states
from tff_pcdd.methods._shared.combination import best_combination


def by_enumeration(matrix, allowed):
    """The best weights of all that are stationary on some subset of the entries."""
    best, found = np.inf, None
    entries = np.flatnonzero(allowed)
    for size in range(1, len(entries) + 1):
        for subset in itertools.combinations(entries, size):
            part = matrix[np.ix_(subset, subset)]
            weights = np.linalg.lstsq(part, np.ones(size), rcond=None)[0]
            weights /= weights.sum()
            value = weights @ part @ weights
            if weights.min() >= -1e-9 and value < best - 1e-12:
                best, found = value, np.zeros(len(matrix))
                found[list(subset)] = weights
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_best_combination(seed):
    generator = np.random.default_rng(seed)
    size = 2 + seed % 7
    factors = generator.normal(size=(size, 1 + seed % 5)) + seed % 3
    matrix = factors @ factors.T + np.diag(generator.uniform(1e-3, 0.5, size))
    allowed = generator.random(size) < 0.8
    allowed[0] = True
    actual = best_combination(tf.constant(matrix), tf.constant(allowed)).numpy()
    np.testing.assert_allclose(actual, by_enumeration(matrix, allowed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_the_scale_does_not_matter(scale):
    matrix = tf.constant(scale * np.diag([1.0, 2.0, 4.0]))
    actual = best_combination(matrix, tf.constant([True] * 3))
    np.testing.assert_allclose(actual, np.array([4, 2, 1]) / 7, rtol=1e-6)


def test_a_certain_client_needs_nobody():
    """And a matrix of zeros, of which every combination is a minimum, has no NaN."""
    actual = best_combination(tf.constant(np.diag([0.0, 1, 1])), tf.constant([True] * 3))
    np.testing.assert_allclose(actual, [1, 0, 0], atol=1e-6)
    weights = best_combination(tf.zeros([3, 3]), tf.constant([True] * 3)).numpy()
    assert weights.sum() == pytest.approx(1) and weights.min() >= 0


class FedPAC(FedPer):
    """Head first, then a backbone that is pulled to class means; heads are combined."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.prototypes, self.table, self.known = {}, [], {}
        self.weights = {}

    def moments(self, k, values):
        """h [C, d] and V of a client with the given backbone."""
        f, y = features(values, inputs(k), False), np.array(LABELS[k], int)
        share = counts(k) / len(y)
        h, total = np.zeros([CLASSES, WIDTH]), 0
        for c in np.unique(y):
            h[c] = share[c] * f[y == c].mean(axis=0)
            total += share[c] * np.trace(f[y == c].T @ f[y == c] / np.sum(y == c))
        return h, (total - (h**2).sum()) / len(y)

    def values(self, k):
        values = super().values(k)
        if k not in self.known:
            return values
        h, variance, head = self.known[k]
        rows = [(k, h, variance, head), *(row for row in self.table if row[0] != k)]
        apart = np.stack([(h - other).ravel() for _, other, _, _ in rows])
        matrix = apart @ apart.T + np.diag([variance for _, _, variance, _ in rows])
        weights = by_enumeration(matrix, np.ones(len(rows), bool))
        weights = np.where(weights > 1e-3, weights, 0)
        weights /= weights.sum()
        self.weights[k] = weights
        heads = [head for *_, head in rows]
        mixed = {n: sum(w * v[n] for w, v in zip(weights, heads, strict=True)) for n in HEAD}
        return values | mixed

    def local(self, k, values, x, y):
        def head_loss(x, y):
            return lambda v: cross_entropy(features(v, x, False) @ v["W"] + v["b"], y)

        rate = self.options["head_learning_rate"]
        values = train(values, HEAD, head_loss, 1, x, y, statistics_of=(), rate=rate)
        return train(values, BACKBONE, self.batch_loss(k), EPOCHS - 1, x, y)

    def loss(self, k, x, y):
        known = np.array([c in self.prototypes for c in y], bool)[:, None]
        targets = np.array([self.prototypes.get(c, np.zeros(WIDTH)) for c in y])

        def loss(v):
            h = features(v, x, True)
            distance = (known * (h - targets) ** 2).mean()
            plain = cross_entropy(h @ v["W"] + v["b"], y)
            return plain + self.options["distance_weight"] * distance

        return loss

    tune = local

    def round(self, cohort):
        self.received = dict(self.server)
        super().round(cohort)

    def collect(self, cohort, found):
        held = [k for k in cohort if LABELS[k]]
        self.table = []
        for k in held:
            h, variance = self.moments(k, self.received)
            head = {name: found[k][name] for name in HEAD}
            self.table.append((k, h, variance, head))
            self.known[k] = (h, variance, head)
        for c in range(CLASSES):
            own = [
                features(found[k], inputs(k), False)[np.array(LABELS[k]) == c]
                for k in held
                if c in LABELS[k]
            ]
            if own:
                self.prototypes[c] = np.concatenate(own).mean(axis=0)


def test_rounds_of_a_network():
    """Unequal sizes and partial cohorts; combinations of several heads occur."""
    options = {"distance_weight": 0.6, "head_learning_rate": 0.2}
    federation = network_federation("fedpac", **options)
    server_names, own_names = placed(federation)
    own = [own_values(federation, own_names, k) for k in numpy_network.EVERYBODY]
    expected = FedPAC(server_values(federation, server_names), own, **options)
    x = np.random.default_rng(9).normal(size=(20, numpy_network.INPUTS)).astype(np.float32)
    images = tf.reshape(x, [-1, 1, 1, numpy_network.INPUTS])
    for cohort in numpy_network.COHORTS:
        federation.round(cohort)
        expected.round(cohort)
        for key, value in server_values(federation, server_names).items():
            np.testing.assert_allclose(value, expected.server[key], rtol=3e-4, atol=5e-5)
        for k in expected.began:
            for key, value in own_values(federation, own_names, k).items():
                np.testing.assert_allclose(value, expected.own[k][key], rtol=3e-4, atol=5e-5)
        for k in numpy_network.EVERYBODY:
            answer = expected.personal(k, x, False)
            actual = federation.personal_logits(k, images, False)
            np.testing.assert_allclose(actual, answer, rtol=1e-3, atol=2e-4)
    mixed = [weights for weights in expected.weights.values() if np.sum(weights > 0.05) > 1]
    assert mixed, "no client combines heads"
    for k in numpy_network.EVERYBODY:
        actual = federation.personal_logits(k, images, True)
        np.testing.assert_allclose(actual, expected.personal(k, x, True), rtol=1e-3, atol=2e-4)


def test_heads_stay_apart_without_collaboration():
    federation = network_federation("fedpac", collaborate=False).round([0, 1]).round([1, 2])
    assert set(federation.server.server) == {"prototypes", "valid"}
    assert all(set(result["sums"]) == {"features", "counts"} for result in federation.results)
    _, own_names = placed(federation)
    x = np.random.default_rng(9).normal(size=(20, numpy_network.INPUTS)).astype(np.float32)
    values = own_values(federation, own_names, 0)
    server = server_values(federation, placed(federation)[0])
    logits = features({**server, **values}, x, False) @ values["W"] + values["b"]
    images = tf.reshape(x, [-1, 1, 1, numpy_network.INPUTS])
    actual = federation.personal_logits(0, images, False)
    np.testing.assert_allclose(actual, logits, rtol=1e-3, atol=1e-4)


def test_a_client_sends_its_own_row():
    federation = network_federation("fedpac").round([0, 1])
    for index, result in enumerate(federation.results):
        sums = result["sums"]
        np.testing.assert_array_equal(sums["trained"], np.eye(3)[index])
        in_rows = WIDTH * CLASSES + CLASSES + CLASSES * WIDTH + 2
        common = CLASSES * WIDTH + CLASSES
        expected = (in_rows + common) / (3 * in_rows + common)
        assert float(result["sent"]) == pytest.approx(expected)


@pytest.mark.usefixtures("op_by_op")
def test_one_sample_is_enough_to_send_a_row():
    spec = support.training_spec("fedpac")
    message = make_message(spec.method, support.server_state(spec))
    data = support.client_data(0, 0, cohort_index=1)
    data = data._replace(train={key: value[:1] for key, value in data.train.items()})
    state = states.initial_client_state(spec, support.seed_of(0))
    sums = ClientWork(spec).update(message, state, data)["sums"]
    np.testing.assert_array_equal(sums["trained"], np.eye(len(sums["trained"]))[1])
    assert np.any(sums["kernels"][1])
