"""Details of methods that compute gradients at other weights, or remember missing classes."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import methods
from tff_pcdd.federated import SGD
from tff_pcdd.layers import Parameters
from tff_pcdd.methods._shared import gradients

BATCH = methods.Batch(
    tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), tf.constant([0, 1])
)


def client(method, net, counts=(3.0, 4.0, 0.0, 2.0), **values):
    counts = tf.constant(counts)
    task = support.training_spec("fedavg").task
    return methods.Client(
        class_counts=counts,
        constants=method.constants(counts, task),
        anchor=[tf.identity(w) for w in net.shared.trainable],
        server={},
        round=tf.constant(1),
        steps=tf.constant(1),
        seed=tf.constant([0, 2]),
        optimizer=SGD(learning_rate=0.1),
        **{"state": {}, **values},
    )


def test_gradients_at_other_values_leave_no_trace():
    """The loss w³·x is computed at w = 2 instead of 1, and counts its calls."""
    w, x, calls = tf.Variable(1.0), tf.Variable(5.0), tf.Variable(0.0)

    def loss():
        calls.assign_add(1.0)
        return w**3 * x

    value, found = gradients.gradients_at([tf.constant(2.0)], loss, [w], [calls])
    assert (float(value), [float(g) for g in found]) == (40.0, [60.0])
    assert (float(w), float(x), float(calls)) == (1.0, 5.0, 0.0)


def test_a_variable_without_influence_has_gradient_zero():
    w, other = tf.Variable(3.0), tf.Variable([1.0, 2.0])
    value, found = gradients.gradients_of(lambda: w**2, [w, other])
    assert float(value) == 9 and float(found[0]) == 6
    assert found[1].numpy().tolist() == [0, 0]


def test_gradients_of_embeddings_are_sums_over_equal_ids():
    """Methods multiply them and divide by their norm, as FedALA and FedSOL do."""
    table, factors = tf.Variable(tf.zeros([3, 2])), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    _, (found,) = gradients.gradients_of(
        lambda: tf.reduce_sum(tf.gather(table, [0, 0, 2]) * factors), [table]
    )
    np.testing.assert_array_equal(2.0 * found, [[8, 12], [0, 0], [10, 12]])
    norm = (4**2 + 6**2 + 5**2 + 6**2) ** 0.5
    np.testing.assert_allclose(tf.linalg.global_norm([found]), norm, rtol=1e-6)


def test_a_scalar_with_given_gradients():
    w, v = tf.Variable([1.0, 2.0]), tf.Variable(3.0)
    given = [tf.constant([4.0, 5.0]), tf.constant(6.0)]
    with tf.GradientTape() as tape:
        value = gradients.with_gradients(tf.constant(7.0), [w, v], given)
    assert float(value) == 7
    for actual, expected in zip(tape.gradient(value, [w, v]), given, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_parameters_are_kept_by_a_layer():
    layer = Parameters([(3, 2), ()], 0.5)
    x = tf.ones([4, 7])
    np.testing.assert_array_equal(layer(x), x)
    assert [w.shape.as_list() for w in layer.trainable_weights] == [[3, 2], []]
    assert all(np.all(w.numpy() == 0.5) for w in layer.weights)
    assert Parameters.from_config(layer.get_config()).shapes == [(3, 2), ()]


@pytest.mark.parametrize(("start", "expected"), [(0.5, 0.0), (0.5, 1.0), (0.2, 0.2)])
def test_the_share_of_apfl_stays_between_none_and_all(start, expected):
    """A step of learning rate 1e6 along the slope, whose sign is that of v - w."""
    spec = support.training_spec("apfl", statistics=False, alpha=start)
    net, method = spec.network(), spec.method
    method_client = client(method, net)._replace(optimizer=SGD(learning_rate=1e6))
    for w, v in net.copies("own_"):
        v.assign(w)
    head = net["head"].bias, net["own_head"].bias
    if expected == 0:  # the own network is sure of a wrong class
        head[1].assign(head[0] - 50 * tf.one_hot(0, 4))
    elif expected == 1:  # the global one is
        head[0].assign(head[1] - 50 * tf.one_hot(0, 4))
    else:  # equal networks: no slope
        pass
    method.loss(net, BATCH, method_client)
    assert float(net["share"].tensors[0]) == pytest.approx(expected)


def test_pfedme_refuses_steps_that_diverge():
    with refuses("pfedme_inner_learning_rate", r"below 2/pfedme_pull=0\.1"):
        methods.create("pfedme", pull=20.0, inner_learning_rate=0.1)
    methods.create("pfedme", pull=19.0, inner_learning_rate=0.1)


def fedala(**options):
    """A network whose received and previous models differ, and its client."""
    tf.keras.utils.set_random_seed(0)
    spec = support.training_spec("fedala", statistics=False, **options)
    net, method = spec.network(), spec.method
    known = client(method, net, state={"trained": tf.constant(1.0)})
    upper = net.shared.trainable[-len(net["previous"].tensors) :]
    for previous, received in zip(net["previous"].tensors, upper, strict=True):
        previous.assign(received + 1)
    method.begin(net, known)
    return method, net, known


def test_fedala_learns_from_a_share_of_each_batch():
    def learned(labels):
        method, net, known = fedala(share=0.3, weight_learning_rate=1e-3)
        method._weight_loss(net, BATCH._replace(y=tf.constant(labels)), known)
        return [w.numpy() for w in net["weights"].tensors]

    labels = support.TEST["y"]
    first, rest = labels.copy(), labels.copy()
    first[11] = (labels[11] + 1) % 4  # the last of 12 = 0.3·40 samples
    rest[12:] = (labels[12:] + 1) % 4
    support.assert_trees_equal(learned(rest), learned(labels))
    assert any(np.any(a != b) for a, b in zip(learned(first), learned(labels), strict=True))


def test_fedala_takes_at_least_one_sample():
    method, net, known = fedala(share=0.01)
    before = net["head"].get_weights()
    method._weight_loss(net, BATCH, known)
    assert all(np.all(np.isfinite(w)) for w in before + net["head"].get_weights())


@pytest.mark.parametrize(("layers", "mixed"), [(1, 2), (2, 4), (3, 6), (9, 6)])
def test_fedala_counts_layers_from_the_head(layers, mixed):
    """Three dense layers; the weights of all others are as received."""
    method, net, known = fedala(layers=layers)
    # Of the client's own layers, no others are kept.
    kept = [variable.shape for variable in net.kept]
    assert kept == 2 * [variable.shape for variable in net.shared.trainable[-mixed:]]
    assert len(net["weights"].tensors) == mixed
    for weight in net["weights"].tensors:
        weight.assign(tf.zeros_like(weight))
    method.begin(net, known)
    for number, (w, received) in enumerate(zip(net.shared.trainable, known.anchor, strict=True)):
        np.testing.assert_allclose(w, received + (number >= 6 - mixed), rtol=1e-6)


def test_fedala_starts_at_the_received_model_the_first_time():
    method, net, known = fedala()
    net["weights"].tensors[0].assign(tf.zeros_like(net["weights"].tensors[0]))
    for w, received in zip(net.shared.trainable, known.anchor, strict=True):
        w.assign(received)
    method.begin(net, known._replace(state={"trained": tf.constant(0.0)}))
    for w, received in zip(net.shared.trainable, known.anchor, strict=True):
        np.testing.assert_array_equal(w, received)


def vacant_terms(logits, received, counts):
    """The terms of FedVLS in NumPy, on the labels of the test samples."""
    y, share = support.TEST["y"], counts / counts.sum()
    held, missing = np.flatnonzero(counts), np.flatnonzero(counts == 0)

    def log_softmax(z):
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))

    p, q = log_softmax(received[:, missing]), log_softmax(logits[:, missing])
    distillation = (np.exp(p) * (p - q)).sum(axis=1).mean() if len(missing) else 0.0
    suppression = 0.0
    for c in held:
        shifted = (logits[:, c] - np.log(share[c]) - np.log(4)) * (y != c)
        suppression += share[c] * (np.log(np.exp(shifted).sum()) - np.log(len(y)))
    return distillation, suppression


@pytest.mark.parametrize("counts", [(3, 0, 5, 0), (3, 0, 5, 1), (0, 0, 6, 0), (1, 2, 3, 4)])
def test_the_terms_of_fedvls(counts):
    spec = support.training_spec("fedvls", statistics=False)
    net, method = spec.network(), spec.method
    method.begin(net, None)
    net["head"].bias.assign([0.3, -0.2, 0.5, 1.0])
    x = BATCH.x
    received = net["global_head"](net["global_backbone"](x)).numpy().astype(np.float64)
    logits = net["head"](net["backbone"](x)).numpy().astype(np.float64)
    counts = np.array(counts, np.float32)
    known = client(method, net, counts)
    _, metrics = method.loss(net, BATCH, known)
    expected = vacant_terms(logits, received, counts.astype(np.float64))
    actual = [float(metrics["distillation"]), float(metrics["suppression"])]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_first_step_of_fedsol_is_that_of_fedavg():
    """The averages of normalization move once, although a step evaluates the model twice."""
    spec = support.training_spec("fedsol")
    net, found = spec.network(), []
    spec.method.begin(net, None)
    for method in (spec.method, dataclasses.replace(spec.method, rho=0.0)):
        for original, copy in net.copies("global_"):
            original.assign(copy)
        with tf.GradientTape() as tape:
            loss, _ = method.loss(net, BATCH, client(method, net))
        averages = [value.numpy() for value in net.shared.statistics]
        found.append([loss, *tape.gradient(loss, net.common), *averages])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_strengths_of_fedsol_in_depthwise_convolutions():
    """They have length 1 along all channels, for which the last axis alone is not enough."""

    def network():
        inputs = tf.keras.Input(support.IMAGE)
        h = tf.keras.layers.Conv2D(3, 3, activation="relu")(inputs)
        h = tf.keras.layers.DepthwiseConv2D(2, depth_multiplier=2)(h)
        return tf.keras.Model(inputs, tf.keras.layers.Flatten()(h))

    tf.keras.utils.set_random_seed(0)
    spec = support.training_spec("fedsol", rho=5.0)
    task = dataclasses.replace(spec.task, backbone=network, feature_dim=6)
    spec = dataclasses.replace(spec, task=task)
    net, method = spec.network(), spec.method
    method.begin(net, None)
    generator = np.random.default_rng(0)
    moves = [generator.normal(size=w.shape) for w in net.common]
    own = [w.numpy() + move for w, move in zip(net.common, moves, strict=True)]
    for w, value in zip(net.common, own, strict=True):
        w.assign(value)

    def logits():
        return net["head"](net["backbone"](BATCH.x))

    with tf.GradientTape() as tape:
        received = tf.nn.softmax(method.received_logits(net, BATCH.x) / 3)
        local = tf.nn.log_softmax(logits() / 3)
        gap = tf.reduce_mean(tf.reduce_sum(received * (tf.math.log(received) - local), axis=1))
    away = [g.numpy() for g in tape.gradient(gap, net.common)]
    length = np.sqrt(sum((g**2).sum() for g in away))
    for w, value, move, g in zip(net.common, own, moves, away, strict=True):
        # Channels [..., 3, 2] of the depthwise convolution, the only weight of four axes with two
        # outputs of each input.
        axes = (-2, -1) if w.shape == (2, 2, 3, 2) else -1
        w.assign(value + 5 * abs(move) / np.sqrt((move**2).sum(axes, keepdims=True)) * g / length)
    expected = tf.keras.losses.sparse_categorical_crossentropy(BATCH.y, logits(), from_logits=True)
    expected = float(tf.reduce_mean(expected))
    for w, value in zip(net.common, own, strict=True):
        w.assign(value)
    loss, _ = method.loss(net, BATCH, client(method, net))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_fedsol_perturbs_the_head_alone():
    """If only the backbone has moved, there is nothing to perturb in the head."""
    losses = {}
    for perturb in ("all", "head"):
        spec = support.training_spec("fedsol", statistics=False, rho=5.0, perturb=perturb)
        net, method = spec.network(), spec.method
        method.begin(net, None)
        kernel = net.common[0]
        kernel.assign(kernel + 0.3)
        plain = dataclasses.replace(method, rho=0.0)
        expected, _ = plain.loss(net, BATCH, client(method, net))
        loss, _ = method.loss(net, BATCH, client(method, net))
        losses[perturb] = float(loss) - float(expected)
    assert losses["head"] == pytest.approx(0, abs=1e-6)
    assert abs(losses["all"]) > 1e-3
