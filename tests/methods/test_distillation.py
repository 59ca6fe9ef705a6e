"""Methods that learn from other models or prototypes: MOON, FedProto, FedProc, FedGen."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import draws, losses, methods
from tff_pcdd.federated import state as states
from tff_pcdd.methods._shared.generator import adam_step
from tff_pcdd.methods.network import assign

BATCH = methods.Batch(
    tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), tf.constant([0, 1])
)


def client(spec, server=None, round_number=1):
    counts = tf.constant([3.0, 4.0, 0.0, 2.0])
    return methods.Client(
        class_counts=counts,
        constants=spec.method.constants(counts, spec.task),
        anchor=[],
        state={},
        server=server or {},
        round=tf.constant(round_number),
        steps=tf.constant(1),
        seed=tf.constant([0, 2]),
    )


def entropy(logits, labels=support.TEST["y"]):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels])


def test_moon_starts_with_three_equal_models():
    spec = support.training_spec("moon", mu=2.0, projection_width=8)
    net = spec.network()
    personal = spec.method.initial_personal(net, tf.constant([0, 0]))
    assign(net.personal.all, personal)
    spec.method.begin(net, None)
    _, metrics = spec.method.loss(net, BATCH, client(spec))
    # Unlike the other two, the trained model normalizes by the batch: not exactly log 2.
    assert float(metrics["contrast"]) == pytest.approx(np.log(2), abs=1e-6)


def test_fedproto_sends_no_weights_and_counts_clients_not_samples(simulation):
    process = support.process("fedproto")
    assert process.update_bytes == 0
    method = methods.create("fedproto")
    server = {"prototypes": tf.zeros([1, 1]), "valid": tf.constant([False])}

    def upload(features):
        return method.upload(
            {"backbone": lambda x, training: x},
            client(support.training_spec("fedproto"), server)._replace(),
            lambda function, initial: function(
                initial, tf.constant([[f] for f in features]), tf.zeros([len(features)], tf.int32)
            ),
        ).sums

    # One sample of feature 1 at one client, three of feature 3 at another.
    sums = [upload([1.0]), upload([3.0, 3.0, 3.0])]
    total = {name: sums[0][name] + sums[1][name] for name in sums[0]}
    _, merged = method.server_update([], [], server, total, 2.0)
    assert float(merged["prototypes"][0, 0]) == 2.0


def fedgen_server(spec):
    server = states.initial_server(spec)
    return {**server, "labels": tf.constant([1.0, 0.0, 1.0, 1.0])}


def test_fedgen_adds_nothing_before_the_generator_was_trained():
    spec = support.training_spec("fedgen", statistics=False)
    net = spec.network()
    loss, _ = spec.method.loss(net, BATCH, client(spec, states.initial_server(spec), 3))
    assert float(loss) == pytest.approx(entropy(net["head"](net["backbone"](BATCH.x))), rel=1e-5)


def test_fedgen_adds_generated_features_and_distillation():
    spec = support.training_spec("fedgen", statistics=False, generative=10.0, distillation=2.0)
    method, net = spec.method, spec.network()
    # A generator that gives the same features whatever it is asked.
    server = fedgen_server(spec)
    constant = np.arange(6, dtype=np.float32)
    trained = [tf.zeros_like(value) for value in server["generator"]["trained"][:5]]
    server["generator"] = {**server["generator"], "trained": [*trained, tf.constant(constant)]}
    head = net["head"](constant[None]).numpy().astype(np.float64)[0]
    logits = net["head"](net["backbone"](BATCH.x)).numpy().astype(np.float64)
    log_p = head - np.log(np.exp(head).sum())
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    divergence = np.mean((np.exp(log_p) * (log_p - log_q)).sum(axis=1))
    seed = tf.random.experimental.stateless_split(BATCH.seed, 3)[0]
    drawn = draws.indices(server["labels"], len(logits), seed).numpy()
    assert set(drawn) == {0, 2, 3}
    expected = entropy(logits) + 9.8 * np.mean(-log_p[drawn]) + 1.96 * divergence
    loss, _ = method.loss(net, BATCH, client(spec, server, 1))
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_diversity_of_equal_features_is_one():
    noise = tf.random.stateless_uniform([5, 3], [0, 0])
    assert float(losses.diversity(noise, tf.ones([5, 2]))) == 1
    features = np.arange(5, dtype=np.float32)[:, None]
    far_noise = np.square(noise.numpy()[:, None] - noise.numpy()).mean(axis=2)
    far = np.abs(features[:, None] - features).mean(axis=2)
    expected = np.exp(-(far_noise * far).mean())
    assert float(losses.diversity(noise, features)) == pytest.approx(expected, rel=1e-5)


def test_adam_takes_adams_steps():
    generator = np.random.default_rng(0)
    start = generator.normal(size=(3, 2))
    gradients = generator.normal(size=(5, 3, 2))
    values, zeros = [tf.constant(start, tf.float32)], [tf.zeros([3, 2])]
    adam = {"mean": zeros, "square": zeros}
    expected, mean, square = start.copy(), 0, 0
    for step, gradient in enumerate(gradients):
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        unbiased = mean / (1 - 0.9 ** (step + 1)), square / (1 - 0.999 ** (step + 1))
        expected -= 0.1 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-5)
        gradient = tf.constant(gradient, tf.float32)
        values, adam = adam_step(values, [gradient], adam, step, 0.1)
    np.testing.assert_allclose(values[0], expected, rtol=1e-4, atol=1e-5)


def test_the_generator_learns_what_heads_answer():
    """Heads that read the class off a coordinate: after training, generated features are right."""
    spec = support.training_spec(
        "fedgen", generator_steps=300, generator_learning_rate=1e-2, generator_batch=16
    )
    method, server = spec.method, states.initial_server(spec)
    kernel = 5 * np.eye(6, 4, dtype=np.float32)
    sums = {
        "kernels": tf.constant(np.stack([kernel, kernel, kernel])),
        "biases": tf.zeros([3, 4]),
        "counts": tf.constant([[4.0, 4, 0, 0], [0, 2, 1, 0], [0, 0, 0, 0]]),
    }
    _, server = tf.function(lambda: method.server_update([], [], server, sums, 3.0))()
    # Nobody has samples of class 3, which is not asked for; one sample of class 2 is enough.
    np.testing.assert_array_equal(server["labels"], [1, 1, 1, 0])
    labels = tf.constant([0, 1, 2] * 10)
    holder = client(spec, server)
    features = method._imagine(holder, labels, tf.constant([5, 5]))
    answers = np.argmax(features.numpy() @ kernel, axis=1)
    assert np.mean(answers == labels.numpy()) > 0.9


def test_the_generator_remembers_the_classes_of_earlier_cohorts():
    spec = support.training_spec("fedgen", generator_steps=1)
    method, server = spec.method, states.initial_server(spec)
    sums = {"kernels": tf.zeros([3, 6, 4]), "biases": tf.zeros([3, 4])}
    for counts, expected in (([0.0, 3, 0, 0], [0, 1, 0, 0]), ([5.0, 0, 0, 0], [1, 1, 0, 0])):
        sums["counts"] = tf.constant([counts, [0.0] * 4, [0.0] * 4])
        _, server = method.server_update([], [], server, sums, 3.0)
        np.testing.assert_array_equal(server["labels"], expected)


@pytest.mark.parametrize(
    ("epochs", "expected"), [(1, [(1, True)]), (20, [(20, True)]), (23, [(20, True), (3, False)])]
)
def test_fedgen_uses_generated_features_for_twenty_epochs(epochs, expected):
    spec = support.training_spec("fedgen", statistics=False)
    net, server = spec.network(), fedgen_server(spec)
    plain = entropy(net["head"](net["backbone"](BATCH.x)))
    phases = spec.method.phases(net, epochs)
    losses = [float(phase.loss(net, BATCH, client(spec, server, 1))[0]) for phase in phases]
    used = [loss != pytest.approx(plain, rel=1e-5) for loss in losses]
    assert list(zip([phase.epochs for phase in phases], used, strict=True)) == expected
