"""FedGen's generator: two rounds' steps of its training in NumPy, and what clients get and send."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.numpy_network import cross_entropy, gradient
from tff_pcdd import draws, losses, methods
from tff_pcdd.federated import state as states
from tff_pcdd.methods._shared.generator import Generator

NOISE, HIDDEN, BATCH, STEPS, WIDTH, CLASSES, COHORT = 3, 5, 7, 2, 6, 4, 3
NAMES = ["W", "w", "scale", "offset", "V", "v"]
SHAPES = [(NOISE + CLASSES, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN,), (HIDDEN, WIDTH), (WIDTH,)]


def generated(v, noise, labels, mean, variance, output="relu"):
    """Features, with given moments of the hidden layer or, if they are None, those of the batch."""
    hidden = np.concatenate([noise, np.eye(CLASSES)[labels]], axis=1) @ v["W"] + v["w"]
    moments = hidden.mean(axis=0), ((hidden - hidden.mean(axis=0)) ** 2).mean(axis=0)
    mean, variance = moments if mean is None else (mean, variance)
    normal = (hidden - mean) / np.sqrt(variance + 1e-5) * v["scale"] + v["offset"]
    features = normal * (normal.real > 0) @ v["V"] + v["v"]
    return features * (features.real > 0) if output == "relu" else features, moments


def teaching(v, noise, labels, heads, output):
    """What the generator minimizes, from the samples' heads [cohort] and counts [cohort, C]."""
    features, _ = generated(v, noise, labels, None, None, output)
    taught = 0
    for kernel, bias, counts in zip(*heads.values(), strict=True):
        for row, label in zip(features, labels, strict=True):
            share = counts[label] / heads["counts"][:, label].sum()
            logits = (row @ kernel + bias)[None]
            taught += share * cross_entropy(logits, np.array([label])) / len(labels)
    difference = features[:, None] - features
    apart = (difference * np.sign(difference.real)).mean(axis=2)
    diversity = np.exp(-(((noise[:, None] - noise) ** 2).mean(axis=2) * apart).mean())
    return taught + diversity + 1e-2 * sum((value**2).sum() / 2 for value in v.values())


@pytest.mark.parametrize("output", ["relu", "linear"])
def test_the_server_trains_the_generator(output):
    generator, rounds = np.random.default_rng(0), 2
    spec = support.training_spec(
        "fedgen",
        noise_dim=NOISE,
        hidden_dim=HIDDEN,
        generator_batch=BATCH,
        generator_steps=STEPS,
        generator_learning_rate=0.02,
        output=output,
    )
    v = {name: generator.normal(size=shape) for name, shape in zip(NAMES, SHAPES, strict=True)}
    first, second = ({n: 0.1 * generator.random(a.shape) for n, a in v.items()} for _ in range(2))
    mean, variance = generator.normal(size=HIDDEN), 1 + generator.random(HIDDEN)
    # The last class has no sample in this cohort, but had some in an earlier one.
    heads = {
        "kernels": generator.normal(size=[COHORT, WIDTH, CLASSES]),
        "biases": generator.normal(size=[COHORT, CLASSES]),
        "counts": np.array([[4.0, 1, 0, 0], [0, 2, 1, 0], [0, 0, 0, 0]]),
    }

    def tensors(values):
        return tf.nest.map_structure(lambda value: tf.constant(value, tf.float32), values)

    server = {
        "generator": tensors({"trained": list(v.values()), "mean": mean, "variance": variance}),
        "adam": tensors({"mean": list(first.values()), "square": list(second.values())}),
        "labels": tf.constant([1.0, 0, 0, 1]),
        "seed": tf.constant([5, rounds]),
    }
    _, after = spec.method.server_update([], [], server, tensors(heads), 3.0)

    for step in range(STEPS):
        seed = tf.random.experimental.stateless_fold_in(server["seed"], step)
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        noise = tf.random.stateless_uniform([BATCH, NOISE], seeds[0]).numpy()
        labels = draws.indices(tf.constant([1.0, 1, 1, 0]), BATCH, seeds[1]).numpy()
        assert 3 not in labels

        def loss(values, noise=noise, labels=labels):
            return teaching(values, noise, labels, heads, output)

        gradients = {name: gradient(loss, v, name) for name in v}
        _, (batch_mean, batch_variance) = generated(v, noise, labels, None, None)
        mean = 0.9 * mean + 0.1 * batch_mean
        variance = 0.9 * variance + 0.1 * batch_variance * BATCH / (BATCH - 1)
        time = rounds * STEPS + step + 1
        for name, g in gradients.items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            unbiased = np.sqrt(second[name] / (1 - 0.999**time))
            step_size = 0.02 * 0.98**rounds / (1 - 0.9**time)
            v[name] = v[name] - step_size * first[name] / (unbiased + 1e-5)

    def close(actual, expected):
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-5)

    close(after["generator"]["trained"], v.values())
    close([after["generator"]["mean"], after["generator"]["variance"]], [mean, variance])
    close(after["adam"]["mean"], first.values())
    close(after["adam"]["square"], second.values())
    np.testing.assert_array_equal(after["labels"], [1, 1, 1, 1])
    np.testing.assert_array_equal(after["seed"], [5, rounds + 1])


@pytest.mark.parametrize("output", ["relu", "linear"])
def test_clients_generate_with_the_moving_moments(output):
    generator = np.random.default_rng(1)
    v = {name: generator.normal(size=shape) for name, shape in zip(NAMES, SHAPES, strict=True)}
    mean, variance = generator.normal(size=HIDDEN), 1 + generator.random(HIDDEN)
    noise, labels = generator.random((9, NOISE)), generator.integers(0, CLASSES, 9)
    expected, _ = generated(v, noise, labels, mean, variance, output)
    parameters = tf.nest.map_structure(
        lambda value: tf.constant(value, tf.float32),
        {"trained": list(v.values()), "mean": mean, "variance": variance},
    )
    actual = Generator(NOISE, HIDDEN, output).infer(
        parameters, tf.constant(noise, tf.float32), tf.constant(labels), CLASSES
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_initial_generator():
    spec = support.training_spec("fedgen", noise_dim=NOISE, hidden_dim=40)
    server = states.initial_server(spec)
    (w, w_bias, scale, offset, v, v_bias) = (a.numpy() for a in server["generator"]["trained"])
    for matrix, shape in ((w, (NOISE + CLASSES, 40)), (v, (40, WIDTH))):
        bound = shape[0] ** -0.5
        assert matrix.shape == shape
        assert 0.9 * bound < matrix.max() <= bound and -0.9 * bound > matrix.min() >= -bound
    for zero in (w_bias, offset, v_bias, server["generator"]["mean"], server["labels"]):
        assert not np.any(zero)
    for one in (scale, server["generator"]["variance"]):
        np.testing.assert_array_equal(one, np.ones(40))
    for average in tf.nest.flatten(server["adam"]):
        assert not np.any(average)
    np.testing.assert_array_equal(server["seed"], [0, 0])
    assert set(spec.method.broadcast(server)) == {"generator", "labels"}
    assert not np.array_equal(w.ravel()[:20], v.ravel()[:20])


def test_a_client_sends_its_head_in_its_row():
    spec = support.training_spec("fedgen")
    net, counts = spec.network(), tf.constant([3.0, 0, 2, 0])
    net["head"].bias.assign([1.0, 2, 3, 4])
    client = methods.Client(
        class_counts=counts,
        constants=spec.method.constants(counts, spec.task),
        anchor=[], state={}, server={}, round=0, steps=1, seed=None, cohort_index=tf.constant(1),
    )  # fmt: skip
    upload = spec.method.upload(net, client, None)
    for name, own in (("kernels", net["head"].kernel), ("biases", net["head"].bias)):
        np.testing.assert_array_equal(upload.sums[name][1], own)
        assert not np.any(upload.sums[name][::2])
    np.testing.assert_array_equal(upload.sums["counts"], [[0] * 4, counts, [0] * 4])
    assert upload.sent == pytest.approx(1 / 3)


@pytest.mark.parametrize("term", ["generative", "distillation"])
def test_generated_terms_never_fade_out_completely(term):
    """After thousands of rounds 1e-4 is left, which shows for large features."""
    options = {"generative": 0.0, "distillation": 0.0, term: 10.0}
    spec = support.training_spec("fedgen", statistics=False, **options)
    method, net = spec.method, spec.network()
    server = states.initial_server(spec)
    large = 1e6 * np.arange(6, dtype=np.float32)
    trained = [tf.zeros_like(value) for value in server["generator"]["trained"][:5]]
    server["generator"] = {**server["generator"], "trained": [*trained, tf.constant(large)]}
    server["labels"] = tf.constant([1.0, 0, 0, 0])
    batch = methods.Batch(
        tf.constant(support.TEST["x"]), tf.zeros(40, tf.int32), tf.constant([0, 1])
    )
    client = methods.Client(
        class_counts=tf.constant([3.0, 4, 0, 2]), constants={}, anchor=[], state={}, server=server,
        round=tf.constant(5000), steps=1, seed=None,
    )  # fmt: skip
    net["head"].kernel.assign(np.eye(6, 4, dtype=np.float32)[::-1])
    logits = net["head"](net["backbone"](batch.x))
    imagined = net["head"](large[None])
    plain = methods.cross_entropy(batch.y, logits)
    added = {
        "generative": methods.cross_entropy([0], imagined),
        "distillation": losses.divergence(imagined, logits),
    }[term]
    loss, _ = method.loss(net, batch, client)
    assert float(loss - plain) == pytest.approx(1e-4 * float(added), rel=1e-2)
