"""CCVR, CReFF and FedNPC: what clients send and how the server re-trains, against NumPy."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.federation import Federation
from tests.methods.numpy_network import cross_entropy, gradient
from tff_pcdd import methods
from tff_pcdd.federated.weights import load
from tff_pcdd.methods import ccvr, creff
from tff_pcdd.methods._shared import retraining
from tff_pcdd.methods.head_calibration import registry as calibrations

CLASSES, WIDTH = support.NUM_CLASSES, 6
COHORTS = [[0, 1, 3], [1, 2, 0]]
OPTIONS = {
    "ccvr": {"epochs": 3, "virtual_features": 12, "learning_rate": 0.2},
    "creff": {
        "epochs": 3, "features": 11, "matching_steps": 4, "matching_learning_rate": 0.5,
        "learning_rate": 0.2,
    },
    "fednpc": {"epochs": 4, "features": 50, "learning_rate": 0.2},
}  # fmt: skip


def federation(name, **options):
    spec = support.training_spec(name, **OPTIONS.get(name, {}), **options)
    return Federation(spec, support.CLIENTS)


def broadcast_features(federation, name="fedavg_backbone"):
    """Features of every client's samples by a backbone of the server's weights, and its head."""
    net = federation.spec.network()
    load(net, federation.server.weights)
    if int(federation.server.round) == 0:
        name = "backbone"
    features = [net[name](client["x"], training=False).numpy() for client in support.CLIENTS]
    return [f.astype(np.float64) for f in features], [w.numpy() for w in net["head"].weights]


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def train(head, features, labels, epochs, rate, seed):
    """Plain SGD on a linear head, with batches of 32 in the orders of the package."""
    kernel, bias = (np.array(value, np.float64) for value in head)
    for epoch in range(epochs):
        fold = tf.random.experimental.stateless_fold_in(seed, epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(len(labels)), fold).numpy()
        for start in range(0, len(labels), 32):
            rows = order[start : start + 32]
            error = softmax(features[rows] @ kernel + bias) - np.eye(CLASSES)[labels[rows]]
            kernel = kernel - rate * features[rows].T @ error / len(rows)
            bias = bias - rate * error.mean(axis=0)
    return kernel, bias


def split(seed, number):
    return tf.unstack(tf.random.experimental.stateless_split(tf.constant(seed), number))


@pytest.mark.parametrize("name", ["ccvr", "creff"])
def test_fedavg_goes_on_beside_the_global_model(name):
    """Its weights are FedAvg's, and the global backbone is FedAvg's of the round before."""
    own, plain = federation(name), federation("fedavg")
    for cohort in COHORTS:
        started = plain.server.weights
        own.round(cohort)
        plain.round(cohort)
        # Half of the variables each.
        trained, statistics = (own.server.weights[g] for g in ("trainable", "statistics"))
        for group, values in (("trainable", trained), ("statistics", statistics)):
            half = len(values) // 2
            for value, expected in zip(values[half:], plain.server.weights[group], strict=True):
                np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
            heads = 2 if group == "trainable" else 0
            for value, expected in zip(
                values[: half - heads], started[group][: half - heads], strict=True
            ):
                np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    x = tf.constant(support.TEST["x"])
    logits = own.global_logits(x)
    assert set(logits) == {"", "fedavg"}
    np.testing.assert_allclose(logits["fedavg"], plain.global_logits(x)[""], rtol=1e-4, atol=1e-4)
    assert np.abs(logits[""] - logits["fedavg"]).max() > 0.1
    # A personal model starts from the global one, also of a client that never took part.
    for client in (0, 4):
        np.testing.assert_allclose(
            own.personal_logits(client, x, False), logits[""], rtol=1e-5, atol=1e-5
        )


def assert_head_of_the_global_model(fed, kernel, bias):
    """The other half of the weights is that of the model which clients train."""
    trainable = fed.server.weights["trainable"]
    half = len(trainable) // 2
    np.testing.assert_allclose(trainable[half - 2], kernel, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trainable[half - 1], bias, rtol=1e-4, atol=1e-5)


def test_ccvr_calibrates_on_gaussians():
    """Moments of all samples of a class (eq. 3 and 4), virtual features, and the head."""
    fed = federation("ccvr")
    known, mean, covariance = {}, np.zeros([CLASSES, WIDTH]), np.zeros([CLASSES, WIDTH, WIDTH])
    for number, cohort in enumerate([*COHORTS, [0]]):  # of client 0, two classes only
        features, _ = broadcast_features(fed)
        fed.round(cohort)
        for label in range(CLASSES):
            own = np.concatenate([features[k][support.CLIENTS[k]["y"] == label] for k in cohort])
            if len(own):
                known[label] = True
                mean[label] = own.mean(axis=0)
                covariance[label] = np.cov(own.T) if len(own) > 1 else 0
        server = fed.server.server
        np.testing.assert_allclose(server["means"], mean, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(server["covariances"], covariance, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(server["known"], [c in known for c in range(CLASSES)])
        noise_seed, order_seed = split([0, number], 2)
        noise = tf.random.stateless_normal([CLASSES, 12, WIDTH], noise_seed).numpy()
        virtual, labels = [], []
        for label in sorted(known):
            values, vectors = np.linalg.eigh(covariance[label])
            least = 1e-6 * ((mean[label] ** 2).sum() + values.sum())
            root = vectors * np.sqrt(np.where(values > least, values, 0)) @ vectors.T
            virtual.append(mean[label] + noise[label] @ root)
            labels += [label] * 12
        trainable = fed.server.weights["trainable"]
        kernel, bias = train(
            trainable[-2:], np.concatenate(virtual), np.array(labels), 3, 0.2, order_seed
        )
        assert_head_of_the_global_model(fed, kernel, bias)


def test_ccvr_sends_one_triangle_of_the_products():
    fed = federation("ccvr").round([0, 1])
    for result in fed.results:
        sizes = {name: value.shape.as_list() for name, value in result["sums"].items()}
        assert sizes == {"counts": [4], "features": [4, 6], "products": [4, 21]}


def test_ccvr_sums_over_all_batches():
    generator = np.random.default_rng(5)
    x = generator.normal(size=(9, WIDTH)).astype(np.float32)
    y = np.array([0, 2, 2, 0, 3, 2, 0, 2, 0], np.int32)
    head = tf.keras.layers.Dense(CLASSES)
    head.build([None, WIDTH])

    def reduce(add, totals):
        for part in (slice(0, 4), slice(4, 8), slice(8, 9)):
            totals = add(totals, tf.constant(x[part]), tf.constant(y[part]))
        return totals

    found = calibrations.create("ccvr").sums(head, lambda batch: batch, tf.zeros([CLASSES]), reduce)
    for label in range(CLASSES):
        own = x[y == label]
        assert found["counts"][label] == len(own)
        np.testing.assert_allclose(found["features"][label], own.sum(axis=0), rtol=1e-5, atol=1e-5)
        products = (own.T @ own)[np.tril_indices(WIDTH)]
        np.testing.assert_allclose(found["products"][label], products, rtol=1e-4, atol=1e-5)


def test_moments_are_those_of_the_clients_combined():
    """Equations 3 and 4 as they are printed, from the clients' own means and covariances."""
    generator = np.random.default_rng(3)
    parts = [5 + generator.normal(size=(n, WIDTH)) for n in (7, 2, 12)]
    sizes = np.array([len(part) for part in parts])
    n = sizes.sum()
    means = np.stack([part.mean(axis=0) for part in parts])
    mean = (sizes / n) @ means
    covariance = sum(
        (size - 1) / (n - 1) * np.cov(part.T) + size / (n - 1) * np.outer(m, m)
        for size, part, m in zip(sizes, parts, means, strict=True)
    ) - n / (n - 1) * np.outer(mean, mean)
    everything = np.concatenate(parts)
    products = (everything.T @ everything)[np.tril_indices(WIDTH)]
    counts = tf.constant([n, 0, 1], tf.float32)
    sums = np.stack([everything.sum(axis=0), np.zeros(WIDTH), everything[0]])
    lone = np.outer(everything[0], everything[0])[np.tril_indices(WIDTH)]
    triangles = np.stack([products, 0 * products, lone])
    actual = ccvr.moments(counts, tf.constant(sums, tf.float32), tf.constant(triangles, tf.float32))
    np.testing.assert_allclose(actual[0][0], mean, rtol=1e-5)
    np.testing.assert_allclose(actual[1][0], covariance, rtol=1e-4, atol=1e-4)
    assert not np.any(actual[0][1]) and not np.any(actual[1][1:])
    np.testing.assert_allclose(actual[0][2], everything[0], rtol=1e-6)


@pytest.mark.parametrize("mean", [0, 30])
def test_directions_of_rounding_errors_have_no_virtual_features(mean):
    """Of 3 samples with 6 features, only two directions vary."""
    generator = np.random.default_rng(4)
    samples = generator.normal(size=(3, WIDTH))
    samples = (mean + samples - samples.mean(axis=0)).astype(np.float32)
    # As the server computes it, from products that clients send in float32.
    products, center = samples.T @ samples, samples.mean(axis=0, dtype=np.float64)
    covariance = ((products - 3 * np.outer(center, center)) / 2).astype(np.float32)
    roots = ccvr.square_roots(center[None].astype(np.float32), covariance[None])
    root = roots[0].numpy()
    assert np.linalg.matrix_rank(root, tol=1e-6) == 2
    np.testing.assert_allclose(root @ root, covariance, rtol=1e-3, atol=1e-3)


def distance(features, kernel, bias, label, target):
    """1 - cosine, for each column of the kernel's gradient and for the bias's, of one class."""
    error = np.exp(features @ kernel + bias)
    error = error / error.sum(axis=1, keepdims=True) - np.eye(CLASSES)[label]
    own = [*(features.T @ error / len(features)).T, error.mean(axis=0)]
    total = 0
    for a, b in zip(own, [*target[:-1].T, target[-1]], strict=True):
        lengths = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
        total += 1 - (a * b).sum() / (lengths + 1e-6)
    return total


def apart(values, head, label, target):
    return distance(values["f"], *head, label, target)


def test_creff_matches_gradients():
    """Gradients of each class, federated features after their steps, and the head."""
    fed = federation("creff")
    federated = fed.server.server["features"].numpy().astype(np.float64)
    assert abs(federated.mean()) < 0.3 and 0.8 < federated.std() < 1.2
    for number, cohort in enumerate(COHORTS):
        features, (kernel, bias) = broadcast_features(fed)
        fed.round(cohort)
        for label in range(CLASSES):
            targets = []
            for k in cohort:
                own = features[k][support.CLIENTS[k]["y"] == label]
                if not len(own):
                    continue
                values, labels = {"W": kernel, "b": bias}, np.full(len(own), label)

                def loss(v, own=own, labels=labels):
                    return cross_entropy(own @ v["W"] + v["b"], labels)

                targets.append(
                    np.vstack([gradient(loss, values, "W"), gradient(loss, values, "b")])
                )
            if not targets:
                continue
            target = np.mean(targets, axis=0)
            for _ in range(4):
                step = gradient(
                    functools.partial(apart, head=(kernel, bias), label=label, target=target),
                    {"f": federated[label]},
                    "f",
                )
                federated[label] -= 0.5 * step
        np.testing.assert_allclose(fed.server.server["features"], federated, rtol=1e-3, atol=1e-4)
        federated = fed.server.server["features"].numpy().astype(np.float64)
        *seeds, order_seed = split([0, number + 1], 3)
        bound = WIDTH**-0.5
        first = [
            tf.random.stateless_uniform(shape, seed, -bound, bound)
            for shape, seed in zip(([WIDTH, CLASSES], [CLASSES]), seeds, strict=True)
        ]
        labels = np.repeat(np.arange(CLASSES), 11)
        kernel, bias = train(first, federated.reshape(-1, WIDTH), labels, 3, 0.2, order_seed)
        assert_head_of_the_global_model(fed, kernel, bias)


def test_fednpc_trains_the_head_of_the_round_on_noise():
    """Steps with momentum on features and labels that are drawn again for each of them."""
    fed = federation("fednpc")
    plain = federation("fedavg")
    for number, cohort in enumerate(COHORTS):
        fed.round(cohort)
        plain.round(cohort)
        *own, kernel, bias = fed.server.weights["trainable"]
        # Nothing is delayed, and clients never see the re-trained head.
        support.assert_trees_equal(own, plain.server.weights["trainable"])
        matrix = np.vstack([own[-2], own[-1][None]]).astype(np.float64)
        velocity = np.zeros_like(matrix)
        for step in range(4):
            seed = tf.random.experimental.stateless_fold_in(tf.constant([0, number]), step)
            seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
            x = tf.random.stateless_normal([50, WIDTH], seeds[0]).numpy().astype(np.float64)
            y = tf.random.stateless_uniform([50], seeds[1], 0, CLASSES, tf.int32).numpy()
            inputs = np.hstack([x, np.ones([50, 1])])
            error = softmax(inputs @ matrix) - np.eye(CLASSES)[y]
            velocity = 0.9 * velocity + inputs.T @ error / 50
            matrix = matrix - 0.2 * velocity
        np.testing.assert_allclose(kernel, matrix[:-1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(bias, matrix[-1], rtol=1e-5, atol=1e-5)
    assert all(not result["sums"] for result in fed.results)
    x = tf.constant(support.TEST["x"])
    logits = fed.global_logits(x)
    np.testing.assert_array_equal(logits["fedavg"], plain.global_logits(x)[""])
    assert np.abs(logits[""] - logits["fedavg"]).max() > 0.1
    np.testing.assert_allclose(fed.personal_logits(0, x, False), logits[""], rtol=1e-5, atol=1e-5)


def test_creff_averages_gradients_over_clients_and_not_over_samples():
    fed = federation("creff").round([0, 1, 2, 3])
    holders = sum(np.array(result["sums"]["holders"]) for result in fed.results)
    np.testing.assert_array_equal(holders, [1, 2, 1, 2])


def test_a_class_that_nobody_has_keeps_its_federated_features():
    fed = federation("creff")
    before = fed.server.server["features"].numpy()
    after = fed.round([0]).server.server["features"].numpy()
    np.testing.assert_array_equal(after[2:], before[2:])
    assert all(np.any(after[label] != before[label]) for label in (0, 1))


@pytest.mark.parametrize("name", ["ccvr", "creff", "fednpc"])
def test_nothing_is_sent_or_kept_without_retraining(name):
    spec = support.training_spec(name, epochs=0)
    fed = Federation(spec, support.CLIENTS).round([0, 1])
    assert not fed.server.server
    assert all(not result["sums"] for result in fed.results)
    assert set(spec.network().parts) == {"backbone", "head"}
    assert set(fed.global_logits(tf.constant(support.TEST["x"]))) == {""}


def test_last_batches_may_be_small():
    """33 features: one of the two batches has a single one."""
    generator = np.random.default_rng(5)
    features, labels = generator.normal(size=(33, WIDTH)), generator.integers(0, CLASSES, 33)
    head = generator.normal(size=(WIDTH, CLASSES)), generator.normal(size=CLASSES)
    expected = train(head, features, labels, 2, 0.3, tf.constant([1, 2]))
    actual = retraining.train_head(
        tuple(tf.constant(value, tf.float32) for value in head),
        tf.constant(features, tf.float32), tf.constant(labels, tf.int32), 2, 0.3,
        tf.constant([1, 2]),
    )  # fmt: skip
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_memory_grows_with_the_samples_only():
    """There is no table of the samples and all classes."""
    samples, classes = 1000, 300
    specs = [([WIDTH, classes], tf.float32), ([classes], tf.float32)]
    head = tuple(tf.TensorSpec(shape, dtype) for shape, dtype in specs)

    @tf.function(input_signature=[head, tf.TensorSpec([samples, WIDTH])])
    def trained(head, features):
        labels = tf.zeros([samples], tf.int32)
        return retraining.train_head(head, features, labels, 2, 0.1, tf.constant([1, 2]))

    graph = trained.get_concrete_function().graph
    graphs = [graph, *(function.graph for function in graph._functions.values())]
    shapes = [out.shape for each in graphs for op in each.get_operations() for out in op.outputs]
    assert [samples, WIDTH] in shapes
    largest = max(shape.num_elements() or 0 for shape in shapes if shape.is_fully_defined())
    assert largest <= max(samples * (WIDTH + 1), (WIDTH + 1) * classes)


def test_equal_directions_have_no_distance():
    """Features that are the samples themselves have the gradient to be matched."""
    generator = np.random.default_rng(6)
    features = tf.constant(generator.normal(size=(CLASSES, 8, WIDTH)), tf.float32)
    head = tf.constant(generator.normal(size=(WIDTH + 1, CLASSES)), tf.float32)
    inputs = retraining.with_ones(features)
    error = tf.nn.softmax(inputs @ head) - tf.eye(CLASSES)[:, None]
    targets = 3 * tf.matmul(inputs, error, transpose_a=True)
    present = tf.constant([True, False, True, True])
    assert abs(float(creff.matching_loss(features, head, targets, present))) < 1e-3
    opposite = creff.matching_loss(features, head, -targets, present)
    assert float(opposite) == pytest.approx(2 * 3 * (CLASSES + 1), rel=1e-3)


@pytest.mark.parametrize(
    "cls",
    [calibrations.get(name) for name in ("ccvr", "creff", "fednpc")] + [methods.get("fedpac")],
)
def test_what_comparisons_tune(cls):
    ((option, values),) = cls.tuning.items()
    assert getattr(cls(), option) in values
    assert len(set(values)) == 3
