"""FedYoYo's loss, prior and effective numbers, against a few lines of NumPy."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import draws, methods
from tff_pcdd.data import InputSpec, transforms
from tff_pcdd.methods.fedyoyo import effective_numbers
from tff_pcdd.training import ExperimentConfig

COUNTS = np.array([3.0, 4.0, 0.0, 2.0])
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
SEED = tf.constant([5, 6])


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def client(method, round_number):
    return methods.Client(
        class_counts=tf.constant(COUNTS, tf.float32),
        constants={},
        anchor=[],
        state={},
        server={"prior": tf.constant(PRIOR, tf.float32)},
        round=tf.constant(round_number),
        steps=tf.constant(1),
        seed=tf.constant([0, 2]),
    )


def test_loss_of_two_steps():
    spec = support.training_spec("fedyoyo", statistics=False, warmup=4)
    net, method = spec.network(), spec.method
    known = client(method, 1)
    method.begin(net, known)
    x, y = support.TEST["x"], support.TEST["y"]
    views = [x, transforms.strong(tf.constant(x), draws.fold_in(SEED, 1)).numpy()]
    z = [net["head"](net["backbone"](view)).numpy().astype(np.float64) for view in views]
    prior = PRIOR
    for _ in range(2):  # The prior moves in every step.
        loss, metrics = method.loss(net, methods.Batch(tf.constant(x), tf.constant(y), SEED), known)
        prior = 0.9 * prior + 0.1 * COUNTS / COUNTS.sum()
        weak, strong = (logits + np.log(prior**1.5 + 1e-9) for logits in z)
        entropy = -np.mean([log_softmax(view)[np.arange(len(y)), y] for view in (weak, strong)])
        right = weak.argmax(axis=1) == y
        assert 0 < right.sum() < len(y)
        p, q = log_softmax(weak[right] / 1.5), log_softmax(strong[right] / 1.5)
        distillation = np.mean(np.sum(np.exp(p) * (p - q), axis=1))
        assert float(metrics["distillation"]) == pytest.approx(distillation, abs=1e-6)
        # The second of four rounds of warm-up.
        assert float(loss) == pytest.approx(entropy + 4 * 2 / 4 * distillation, rel=1e-5)
    method.begin(net, known)
    np.testing.assert_allclose(net["prior"].tensors[0], PRIOR, rtol=1e-6)


def test_the_weak_view_teaches_without_learning():
    spec = support.training_spec("fedyoyo", statistics=False, tau=0.0, warmup=1)
    net = spec.network()
    x, y = tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"])

    def gradient(method):
        with tf.GradientTape() as tape:
            loss, _ = method.loss(net, methods.Batch(x, y, SEED), client(method, 9))
        return tape.gradient(loss, net["head"].kernel).numpy()

    found = gradient(spec.method) - gradient(dataclasses.replace(spec.method, distillation=0.0))
    strong = transforms.strong(x, draws.fold_in(SEED, 1))
    features, z = net["backbone"](strong).numpy(), net["head"](net["backbone"](strong)).numpy()
    taught = net["head"](net["backbone"](x)).numpy()
    right = taught.argmax(axis=1) == y.numpy()
    # The gradient of KL(p ‖ q) with respect to the student's logits is (q - p) / T.
    error = np.exp(log_softmax(z / 1.5)) - np.exp(log_softmax(taught / 1.5))
    expected = 4 * features[right].T @ error[right] / 1.5 / right.sum()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_effective_numbers_are_those_of_all_pairs():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 70)
    labels[7] = 3  # A single sample.
    centred = (generator.normal(size=(70, 5)) + np.eye(4, 5)[labels]).astype(np.float32)
    expected = np.zeros(5)
    for start in range(3):  # ⌈70 / 32⌉ mini-batches of every third sample.
        for label in range(4):
            own = centred[start::3][labels[start::3] == label]
            unit = own / np.linalg.norm(own, axis=1, keepdims=True)
            if len(own):
                expected[label] += 1 / np.mean(unit @ unit.T)
    labels = tf.constant(labels, tf.int32)
    counts = tf.constant(np.bincount(labels, minlength=5), tf.float32)
    found = effective_numbers(tf.constant(centred), labels, counts)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    # All samples of a class in one mini-batch; single samples of two more.
    few = tf.constant([0, 0, 0, 2, 3]), tf.constant([3.0, 0, 1, 9, 0])
    alone = effective_numbers(tf.constant(centred[:5]), *few)
    np.testing.assert_array_equal(alone, [3, 0, 1, 1, 0])


def test_the_servers_numbers():
    method = methods.create("fedyoyo")
    state = {"numbers": tf.ones([4]), "seen": tf.constant(False)}

    def after(state, numbers):
        return method.next_server_state(state, {"numbers": tf.constant(numbers)})

    first = after(state, [9.0, 19.0, 2e4, 0.0])
    np.testing.assert_allclose(first["numbers"], [10, 20, 31 / 3, 1], rtol=1e-6)
    prior = method.broadcast(first)["prior"].numpy()
    np.testing.assert_allclose(prior, np.array([10, 20, 31 / 3, 1]) / (31 + 31 / 3), rtol=1e-6)
    second = after(first, [29.0, 0.0, 2.0, 2e3])
    # 0.9·old + 0.1·(1 + new), but not the hundredfold change of the last one.
    np.testing.assert_allclose(second["numbers"], [9 + 3, 18 + 0.1, 9.3 + 0.3, 1], rtol=1e-6)
    unchanged = after(second, [0.0] * 4)
    np.testing.assert_array_equal(unchanged["numbers"], second["numbers"])
    assert not after(state, [0.0] * 4)["seen"].numpy()


def test_strong_views():
    x = tf.constant(np.random.default_rng(0).normal(1, 1, size=(50, 8, 12, 3)), tf.float32)
    found = transforms.strong(x, SEED).numpy()
    np.testing.assert_array_equal(found, transforms.strong(x, SEED))
    assert not np.array_equal(found, transforms.strong(x, SEED + 1))
    zero = np.all(found == 0, axis=3)
    # A square whose centre is in the image: 4 × 6 pixels in the middle, fewer at the border.
    assert zero.sum(axis=(1, 2)).max() <= 24
    assert zero.sum(axis=(1, 2)).min() >= 4
    assert len(np.unique(zero.sum(axis=(1, 2)))) > 5
    # Without a hole: an affine function of a shifted image, channel by channel alike in the gray.
    gray = np.where(zero, np.nan, found.mean(axis=3))
    deviations = np.nanstd(gray, axis=(1, 2)) / np.std(x.numpy().mean(axis=3), axis=(1, 2))
    assert 0.4 < deviations.min() < 0.8 and 1.1 < deviations.max() < 2.5


def test_other_inputs_are_refused():
    config = ExperimentConfig.from_settings(algorithm="fedyoyo")
    with refuses("algorithm", "augments images, and inputs are of kind vector"):
        config.check_inputs(InputSpec("vector", (4,), "float32"))
    config.check_inputs(support.SPEC)


TABLE = {"dataset": "table", "data_dir": "/not.csv", "label_column": "sick", "site_column": "ward"}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({"dataset": "shakespeare", "data_dir": "/not/there"}, "text"),
        ({**TABLE, "feature_columns": "age,bmi"}, "vector"),
    ],
)
def test_known_inputs_are_refused_before_data_are_read(source, kind):
    config = ExperimentConfig.from_settings(algorithm="fedyoyo", **source)
    with refuses("algorithm", f"inputs are of kind {kind}; choose another method"):
        config.check_data()


def test_inputs_that_may_be_images_are_not_refused_before_they_are_read():
    for source in (TABLE, {"dataset": "npz", "data_dir": "/not.npz"}):
        ExperimentConfig.from_settings(algorithm="fedyoyo", **source).check_data()


def test_clients_send_numbers_of_all_their_batches():
    """Features are without the class means of all batches, and each batch adds its numbers."""
    spec = support.training_spec("fedyoyo", statistics=False)
    net, method = spec.network(), spec.method
    x, y = support.TEST["x"], support.TEST["y"]
    counts = np.bincount(y, minlength=support.NUM_CLASSES)
    batches = [slice(0, 25), slice(25, 40)]

    def reduce(add, total):
        for part in batches:
            total = add(total, tf.constant(x[part]), tf.constant(y[part]))
        return total

    known = client(method, 1)._replace(class_counts=tf.constant(counts, tf.float32))
    method.begin(net, known)
    sent = method.upload(net, known, reduce)
    features = net["backbone"](x).numpy().astype(np.float64)
    centred = features - np.array([features[y == label].mean(axis=0) for label in range(4)])[y]
    expected = np.zeros(4)
    for part, label in itertools.product(batches, range(4)):
        own = centred[part][y[part] == label]
        assert 1 < len(own) < counts[label]
        unit = own / np.linalg.norm(own, axis=1, keepdims=True)
        expected[label] += 1 / np.mean(unit @ unit.T)
    np.testing.assert_allclose(sent.sums["numbers"], expected, rtol=1e-3)
