"""Methods that change the softmax: FedRS, FedLC, FedRoD, FedETF, Ratio Loss."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods
from tff_pcdd.federated import SGD, ClientWork
from tff_pcdd.federated import state as states
from tff_pcdd.federated.local_training import LocalTraining
from tff_pcdd.methods import ratioloss
from tff_pcdd.methods.network import Network

BATCH = methods.Batch(
    tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), tf.constant([0, 0])
)
COUNTS = np.array([12.0, 3.0, 5.0, 20.0], np.float32)


def client(method, counts=COUNTS, **values):
    task = support.training_spec("fedavg").task
    return methods.Client(
        class_counts=tf.constant(counts),
        constants=method.constants(tf.constant(counts), task),
        **{"anchor": [], "state": {}, "server": {}, "round": 0, "steps": 1, "seed": None, **values},
    )


def forward(name, **options):
    """Method, network, and the features and logits of the batch in NumPy."""
    spec = support.training_spec(name, statistics=False, **options)
    net = spec.network()
    features = net["backbone"](BATCH.x).numpy()
    return spec.method, net, features, net["head"](features).numpy().astype(np.float64)


def entropy(logits, labels=support.TEST["y"]):
    shifted = logits - logits.max(axis=1, keepdims=True)
    picked = shifted[np.arange(len(labels)), labels]
    return np.log(np.exp(shifted).sum(axis=1)) - picked


def test_fedrs_scales_the_logits_of_missing_classes():
    method, net, _, logits = forward("fedrs", alpha=0.5)
    counts = np.array([1.0, 2.0, 0.0, 3.0], np.float32)
    loss, _ = method.loss(net, BATCH, client(method, counts))
    assert float(loss) == pytest.approx(entropy(logits * [1, 1, 0.5, 1]).mean(), rel=1e-5)
    method = dataclasses.replace(method, graded=True)
    loss, _ = method.loss(net, BATCH, client(method, counts))
    factor = 0.5 + 0.5 * counts / 3
    assert float(loss) == pytest.approx(entropy(logits * factor).mean(), rel=1e-5)


@pytest.mark.parametrize(("alpha", "pushed"), [(0.5, 0.25), (1.0, 0.5), (0.0, 0.0)])
def test_fedrs_pushes_a_missing_class_less(alpha, pushed):
    """Two classes with logits 0, the second missing: its gradient is α/2 of the feature."""
    method = methods.create("fedrs", alpha=alpha)
    factor = method.constants(tf.constant([1.0, 0.0]), None)["factor"]
    logits = tf.Variable([[0.0, 0.0]])
    with tf.GradientTape() as tape:
        loss = methods.cross_entropy([0], factor * logits)
    assert float(loss) == pytest.approx(np.log(2))
    np.testing.assert_allclose(tape.gradient(loss, logits), [[-0.5, pushed]])


@pytest.mark.parametrize(("label", "expected"), [(0, 0.97408), (1, 0.47408)])
def test_fedlc_takes_off_margins(label, expected):
    """Counts 1 and 16 have margins 1 and 1/2."""
    calibrated = methods.create("fedlc").calibrate(tf.zeros([1, 2]), tf.constant([1.0, 16.0]))
    assert float(methods.cross_entropy([label], calibrated)) == pytest.approx(expected, abs=1e-5)


def test_fedlc_leaves_out_the_true_class_if_asked():
    method, net, _, logits = forward("fedlc", denominator="others")
    calibrated = logits - COUNTS**-0.25
    others = np.where(np.eye(4, dtype=bool)[support.TEST["y"]], -np.inf, calibrated)
    true = calibrated[np.arange(len(logits)), support.TEST["y"]]
    expected = np.mean(np.log(np.exp(others).sum(axis=1)) - true)
    loss, _ = method.loss(net, BATCH, client(method))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    alone, _ = method.loss(net, BATCH, client(method, np.float32([0, 0, 0, 9])))
    assert float(alone) == 0


def test_logitadjust_uses_the_frequencies_of_the_federation():
    """Every client has the same ones, even for classes that it lacks."""
    method, net, _, logits = forward("logitadjust", tau=0.7)
    totals = sum(np.bincount(c["y"], minlength=4) for c in support.CLIENTS)
    expected = entropy(logits + 0.7 * np.log(totals / totals.sum())).mean()
    for counts in (COUNTS, np.float32([0, 0, 0, 9])):
        loss, _ = method.loss(net, BATCH, client(method, counts))
        assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(method.global_logits(net, BATCH.x)[""], logits, rtol=1e-5, atol=1e-6)


def test_logitadjust_leaves_out_a_class_that_nobody_has():
    """The limit of the formula for a frequency that goes to zero."""
    method, net, _, logits = forward("logitadjust")
    task = dataclasses.replace(
        support.training_spec("fedavg").task, class_counts=np.array([[3, 0, 5, 0], [0, 0, 2, 8]])
    )
    holder = client(method)._replace(constants=method.constants(tf.constant(COUNTS), task))
    chosen = support.TEST["y"] != 1
    labels = support.TEST["y"][chosen]
    with tf.GradientTape() as tape:
        loss, _ = method.loss(net, methods.Batch(BATCH.x[chosen], labels, None), holder)
    rare = logits[chosen] + np.log([3, 1e-30, 7, 8])
    assert float(loss) == pytest.approx(entropy(rare, labels).mean(), rel=1e-5)
    gradient = tape.gradient(loss, net["head"].kernel).numpy()
    np.testing.assert_array_equal(gradient[:, 1], 0)
    assert np.all(np.any(gradient[:, [0, 2, 3]] != 0, axis=0))


def test_logitadjust_changes_nothing_in_a_balanced_federation():
    method, net, _, logits = forward("logitadjust", tau=2.0)
    task = dataclasses.replace(
        support.training_spec("fedavg").task, class_counts=np.array([[9, 9, 0, 0], [0, 0, 9, 9]])
    )
    holder = client(method)._replace(constants=method.constants(tf.constant(COUNTS), task))
    loss, _ = method.loss(net, BATCH, holder)
    assert float(loss) == pytest.approx(entropy(logits).mean(), rel=1e-5)


def test_fedrod_trains_two_heads_for_two_purposes():
    method, net, features, logits = forward("fedrod")
    own = net["personal_head"]
    own.set_weights([np.full([6, 4], 0.1, np.float32) * np.arange(4), np.ones(4, np.float32)])
    with tf.GradientTape(persistent=True) as tape:
        loss, _ = method.loss(net, BATCH, client(method))
    summed = logits + own(features).numpy()
    expected = entropy(logits + np.log(COUNTS)).mean() + entropy(summed).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    # The generic half's gradient is that of the balanced softmax alone.
    probabilities = np.exp(logits + np.log(COUNTS))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    error = (probabilities - np.eye(4)[support.TEST["y"]]) / len(logits)
    actual = tape.gradient(loss, net["head"].kernel)
    np.testing.assert_allclose(actual, features.T @ error, rtol=1e-4, atol=1e-5)
    prediction = method.personal_logits(net, BATCH.x, None)
    np.testing.assert_allclose(prediction, summed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedrod_clips_the_heads_apart(momentum):
    """The generic half moves like FedAvg, whatever the gradient of the personal head is."""
    clip, rate = 0.05, 0.3
    results = {}
    for name, options in (("fedavg", {}), ("fedrod", {"gamma": 0.0})):
        spec = support.training_spec(name, statistics=False, **options)
        sgd = SGD(learning_rate=rate, momentum=momentum, weight_decay=0.0, clip_norm=clip)
        spec = dataclasses.replace(spec, optimizer=sgd, local_epochs=1, batch_size=12)
        message = states.make_message(spec.method, support.server_state(spec))
        state = states.initial_client_state(spec, support.seed_of(0, 0))
        results[name] = ClientWork(spec).update(message, state, support.client_data(0, 0))
    support.assert_trees_equal(results["fedrod"]["update"], results["fedavg"]["update"])
    # The clip takes effect, for each half on its own: each moves by as much as it allows.
    for moved in (results["fedrod"]["update"].trainable, results["fedrod"]["state"].personal):
        length = np.sqrt(sum(np.sum(np.square(part)) for part in moved))
        assert length == pytest.approx(rate * clip, rel=1e-3)


def test_fedrod_does_not_move_the_backbone_for_one_class():
    method, net, _, _ = forward("fedrod")
    chosen = support.TEST["y"] == 2
    batch = methods.Batch(BATCH.x[chosen], BATCH.y[chosen], None)
    with tf.GradientTape() as tape:
        loss, _ = method.loss(net, batch, client(method, np.float32([0, 0, 7, 0])))
    for gradient in tape.gradient(loss, net.shared.trainable):
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_fedetf_scales_cosines_and_balances():
    spec = support.training_spec("fedetf", statistics=False, temperature=3.0)
    method, net = spec.method, spec.network()
    z = net["projection"](net["backbone"](BATCH.x)).numpy().astype(np.float64)
    etf = net["head"].etf.numpy().astype(np.float64)
    np.testing.assert_allclose(etf.T @ etf, 4 / 3 * np.eye(4) - 1 / 3, atol=1e-6)
    # Where all units are off the feature is zero, and so is the cosine.
    logits = 3 * z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12) @ etf
    loss, _ = method.loss(net, BATCH, client(method))
    assert float(loss) == pytest.approx(entropy(logits + np.log(COUNTS)).mean(), rel=1e-5)
    np.testing.assert_allclose(method.global_logits(net, BATCH.x)[""], logits, rtol=1e-4, atol=1e-5)
    trained = {variable.ref() for variable in net.shared.trainable}
    assert net["temperature"].scale.ref() in trained
    assert [variable.ref() for variable in net.fixed] == [net["head"].etf.ref()]


def test_fedetf_tunes_in_two_stages():
    spec = support.training_spec("fedetf", statistics=False, finetune_cycles=2)
    method, net = spec.method, spec.network()
    phases = method.personal_phases(net, 5)
    assert [phase.epochs for phase in phases] == [5, 3, 3, 3, 3]
    holder = client(method)
    losses = [float(phase.loss(net, BATCH, holder)[0]) for phase in phases]
    logits = method.global_logits(net, BATCH.x)[""].numpy().astype(np.float64)
    plain, balanced = entropy(logits).mean(), entropy(logits + np.log(COUNTS)).mean()
    assert losses == pytest.approx([balanced, *4 * [plain]], rel=1e-4)


@pytest.mark.integration
def test_fedetf_tunes_the_etf_by_plain_sgd():
    """A step has the length of rate times gradient: neither momentum nor weight decay."""
    spec = support.training_spec("fedetf", statistics=False, finetune_epochs=2)
    sgd = SGD(learning_rate=0.05, momentum=0.9, weight_decay=0.1, clip_norm=0.0)
    spec = dataclasses.replace(spec, optimizer=sgd, batch_size=12)
    net = spec.network()
    phase = spec.method.personal_phases(net, 1)[1]
    etf = net["head"].etf
    training = LocalTraining(spec, net, [etf])
    x, y = support.CLIENTS[0]["x"], support.CLIENTS[0]["y"]
    expected = etf.numpy().astype(np.float64)
    z = net["projection"](net["backbone"](x)).numpy().astype(np.float64)
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    for _ in range(2):
        logits = z @ expected
        wrong = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) - np.eye(4)[y]
        expected -= 0.1 * z.T @ wrong / len(y)
    own = client(spec.method)._replace(optimizer=sgd, round=tf.constant(0))
    run = tf.function(lambda: training.run([phase], {"x": x, "y": y}, own, tf.constant([1, 2])))
    run()
    np.testing.assert_allclose(etf, expected, rtol=1e-5, atol=1e-6)


def test_ratio_loss_weighs_samples():
    method, net, _, logits = forward("ratioloss", alpha=1.0, beta=0.1)
    ratio = np.array([1.0, 5.0, 0.5, 2.0], np.float32)
    loss, _ = method.loss(net, BATCH, client(method, server={"ratio": tf.constant(ratio)}))
    weights = 1 + 0.1 * ratio[support.TEST["y"]]
    assert float(loss) == pytest.approx((weights * entropy(logits)).mean(), rel=1e-5)


def test_monitor_finds_ratio_and_composition():
    """One decisive weight per class: its own class moves it by 5, the others by 1 each."""
    changes = np.full([3, 1, 3], 1.0, np.float32)
    changes[np.arange(3), 0, np.arange(3)] = 5
    held = np.array([4.0, 5.0, 1.0])
    total = np.einsum("p,pij->ij", held, changes).astype(np.float32)
    assert total[0, 0] == 26
    ratio, composition = ratioloss.monitor(tf.constant(changes), tf.constant(total), 10.0)
    np.testing.assert_allclose(ratio, [5, 5, 5])
    # 5 samples are 1.5 times the even share, beyond what is believed.
    np.testing.assert_allclose(composition, [4, 10 / 3, 1], rtol=1e-6)


def test_ratio_loss_tells_many_classes_apart(simulation):
    """A model that has learned some of 100 classes better than others.

    Training on class p moves its own row of the head by 1 - q_p and every other row by -q_p/99,
    where q_p is how well p is known. Then R_p is (1 - q_p) over the mean of q/99 of the others.
    """
    number = 100
    known = np.linspace(0.1, 0.6, number)
    changes = np.empty([number, 1, number])
    changes[:, 0, :] = -known[None] / 99
    changes[np.arange(number), 0, np.arange(number)] = 1 - known
    # No other class moves the row of the last class, which gets the cap.
    changes[:-1, 0, -1] = 0
    task = methods.TaskSpec(
        num_classes=number,
        feature_dim=1,
        backbone=lambda: tf.keras.Sequential([tf.keras.layers.Flatten(input_shape=(1,))]),
        class_counts=np.ones([2, number]),
        server_samples=lambda count: (
            np.zeros([number * count, 1], np.float32),
            np.repeat(np.arange(number, dtype=np.int32), count),
        ),
    )
    method = methods.create("ratioloss", auxiliary=2)
    net = Network(method.build(task), method, task)
    kernel = net["head"].kernel
    before = tf.identity(kernel)

    def learn(x, y, loss, label):
        np.testing.assert_array_equal(y, [label, label])
        kernel.assign(before + changes[int(label)].astype(np.float32))

    sums = {"samples": tf.constant(200.0), "clients": tf.constant(2.0)}
    zeros = [tf.zeros_like(variable) for variable in net.shared.trainable]
    server = method.server_learning(net, method.server_state(net, task), zeros, sums, task, learn)
    expected = (1 - known) / (known / 99)
    expected[-1] = 5000
    np.testing.assert_allclose(server["ratio"], expected, rtol=1e-3)
    x = tf.ones([number, 1])
    logits = net["head"](x).numpy()
    labels = np.arange(number, dtype=np.int32)
    batch = methods.Batch(x, labels, None)
    loss, _ = method.loss(net, batch, client(method, server=server))
    entropies = np.log(np.exp(logits).sum(axis=1)) - logits[labels, labels]
    weights = 1 + 0.1 * expected
    assert weights[0] > 5 * weights[-2]
    assert float(loss) == pytest.approx((weights * entropies).mean(), rel=1e-3)


def test_weights_that_two_classes_move_are_not_decisive():
    changes = np.zeros([3, 2, 1], np.float32)
    changes[:, 0, 0] = [5, 4.5, 0]  # no clear winner
    changes[:, 1, 0] = [0, -3, 2]  # moved most, but downwards
    assert not np.any(ratioloss.decisive_weights(tf.constant(changes)))
    ratio, composition = ratioloss.monitor(tf.constant(changes), tf.zeros([2, 1]), 9.0)
    np.testing.assert_allclose(ratio, [1, 1, 1])
    np.testing.assert_allclose(composition, [3, 3, 3])
