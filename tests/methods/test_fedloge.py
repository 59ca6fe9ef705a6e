"""FedLoGe: one client's training, realignment and fine-tuning against the authors' program."""

import dataclasses
import functools
import types
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import data, methods
from tff_pcdd.federated import SGD, ClientWork, PersonalEvaluation, TrainingSpec, state, weights
from tff_pcdd.federated.records import ClientData, ClientState, Message
from tff_pcdd.methods.fedloge import FedLoGe


def tiny_backbone() -> tf.keras.Model:
    inputs = tf.keras.Input((1, 1, 5))
    features = tf.keras.layers.Dense(4, activation="relu")(tf.keras.layers.Flatten()(inputs))
    return tf.keras.Model(inputs, features)


@dataclasses.dataclass(frozen=True)
class WithBias(FedLoGe):
    """The authors' frame has a bias, frozen at its random first value."""

    def build(self, task):
        return {**super().build(task), "frame": tf.keras.layers.Dense(task.num_classes)}


def golden_spec(case, **options):
    task = methods.TaskSpec(3, 4, tiny_backbone, np.ones((1, 3)))
    return TrainingSpec(
        method=WithBias(**options),
        task=task,
        input_spec=data.InputSpec("image", (1, 1, 5), "float32"),
        optimizer=SGD(
            learning_rate=float(case["lr"]),
            momentum=float(case["momentum"]),
            weight_decay=0.0,
            clip_norm=0.0,
        ),
        local_epochs=int(case["epochs"]),
        batch_size=8,
    )


def golden_batch(case):
    x = case["batch_x"].reshape(8, 1, 1, 5).astype(np.float32)
    return OrderedDict(x=x, y=case["batch_y"].astype(np.int32))


def head(case, name, suffix):
    return [case[f"{name}_w{suffix}"].T, case[f"{name}_b{suffix}"]]


def as_float32(arrays):
    return [tf.constant(array, tf.float32) for array in arrays]


def test_local_training(golden):
    case = golden("fedloge_local_training")
    message = Message(
        weights=OrderedDict(
            trainable=as_float32(head(case, "net", "0") + head(case, "gaux", "0")),
            statistics=[],
            mirrored=[],
            fixed=as_float32([case["ssec_w"].T, case["ssec_b"]]),
        ),
        server=OrderedDict(),
        round=0,
    )
    own = ClientState(
        personal=as_float32(head(case, "lhead", "0")),
        own=OrderedDict(),
        participations=tf.constant(0),
    )
    data = ClientData(train=golden_batch(case), seed=tf.zeros(2, tf.int32), cohort_index=0)
    result = ClientWork(golden_spec(case)).update(message, own, data)
    after = [
        w + change
        for w, change in zip(message.weights["trainable"], result["update"].trainable, strict=True)
    ]
    expected = head(case, "net", "1") + head(case, "gaux", "1") + head(case, "lhead", "1")
    for actual, wanted in zip(after + result["state"].personal, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)
    loss = result["metrics"]["loss"] / result["metrics"]["samples"]
    np.testing.assert_allclose(loss, case["mean_total_loss"], rtol=1e-5)


def test_realigned_head_is_finetuned(golden):
    case = golden("fedloge_lafr_finetune")
    evaluation = PersonalEvaluation(golden_spec(case, finetune_epochs=int(case["epochs"])))
    net, batch = evaluation.net, golden_batch(case)
    weights.assign(
        net.shared.trainable, as_float32([case["net_w"].T, case["net_b"], *head(case, "gaux", "0")])
    )
    net["phi"].kernel.assign(tf.constant(case["lhead_w0"].T, tf.float32))
    message = Message(weights=weights.weights_of(net), server=OrderedDict(), round=0)
    own = ClientState(
        personal=weights.read(net.personal.all),
        own=OrderedDict(),
        participations=tf.constant(0),
    )
    data = ClientData(train=batch, test=batch, seed=tf.zeros(2, tf.int32), cohort_index=0)
    evaluation.evaluate(message, own, data)
    np.testing.assert_allclose(net["phi"].kernel, case["head_w_after"].T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net["phi"].bias, case["head_b_after"], rtol=1e-4, atol=1e-6)


def with_heads(spec):
    """A network with random heads ψ and φ, and these as matrix and bias."""
    net = spec.network()
    generator = np.random.default_rng(0)
    matrices = generator.normal(size=(2, 6, 4)).astype(np.float32)
    biases = generator.normal(size=(2, 4)).astype(np.float32)
    heads = list(zip(matrices, biases, strict=True))
    for name, head in zip(("psi", "phi"), heads, strict=True):
        net[name].set_weights(head)
    return net, *heads


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("realigned", lambda psi, phi, b, c: (psi * np.linalg.norm(phi, axis=0), b)),
        (
            "phi+realigned",
            lambda psi, phi, b, c: (phi + psi * np.linalg.norm(phi, axis=0), b + c),
        ),
        (
            "realigned+psi",
            lambda psi, phi, b, c: (psi + psi * np.linalg.norm(phi, axis=0), 2 * b),
        ),
        ("phi+psi", lambda psi, phi, b, c: (psi + phi, b + c)),
    ],
)
def test_versions_of_the_personal_head(version, expected):
    spec = support.training_spec("fedloge", personal_head=version)
    net, (psi, bias), (phi, own_bias) = with_heads(spec)
    spec.method.personalize(net, None)
    kernel, wanted_bias = expected(psi, phi, bias, own_bias)
    np.testing.assert_allclose(net["phi"].kernel, kernel, rtol=1e-5)
    np.testing.assert_allclose(net["phi"].bias, wanted_bias, rtol=1e-5)


def test_global_heads_come_from_one_pass_and_are_realigned():
    spec = support.training_spec("fedloge", scale=1.7)
    net = spec.network()
    x = tf.constant(support.TEST["x"])
    logits = spec.method.global_logits(net, x)
    features = net["backbone"](x, training=False).numpy()
    psi, bias = (np.asarray(v) for v in net["psi"].get_weights())
    np.testing.assert_allclose(logits["psi"], features @ psi + bias, rtol=1e-4, atol=1e-5)
    aligned = 1.7 * psi / np.linalg.norm(psi, axis=0)
    np.testing.assert_allclose(logits[""], features @ aligned + bias, rtol=1e-4, atol=1e-5)
    frame = net["frame"].get_weights()[0]
    np.testing.assert_allclose(logits["ssec"], features @ frame, rtol=1e-4, atol=1e-5)
    dropped = support.training_spec("fedloge", realign_bias="drop").method.global_logits(net, x)
    np.testing.assert_allclose(dropped[""], features @ aligned, rtol=1e-4, atol=1e-5)
    plain = support.training_spec("fedloge", realign=False).method.global_logits(net, x)
    np.testing.assert_allclose(plain[""], features @ psi + bias, rtol=1e-4, atol=1e-5)


def test_frame_as_the_global_model():
    spec = support.training_spec("fedloge", global_head="frame", sparsity=0.0, norm=0.5)
    net, x = spec.network(), tf.constant(support.TEST["x"])
    frame = net["frame"].get_weights()[0]
    features = net["backbone"](x, training=False).numpy()
    psi, bias = (np.asarray(v) for v in net["psi"].get_weights())
    logits = spec.method.global_logits(net, x)
    assert list(logits) == ["", "gafr", "psi"]
    np.testing.assert_allclose(logits[""], 0.5 * features @ frame, rtol=1e-4, atol=1e-5)
    aligned = 1.7 * features @ (psi / np.linalg.norm(psi, axis=0)) + bias
    np.testing.assert_allclose(logits["gafr"], aligned, rtol=1e-4, atol=1e-5)
    classifiers = spec.method.global_classifiers(net)
    np.testing.assert_array_equal(classifiers[""], frame)
    np.testing.assert_array_equal(classifiers["psi"], psi)


def test_local_realignment_by_class_shares():
    spec = support.training_spec("fedloge", local_lengths="counts")
    net, (psi, bias), (phi, own_bias) = with_heads(spec)
    counts = np.array([3, 0, 4, 1], np.float32)
    spec.method.personalize(net, types.SimpleNamespace(class_counts=tf.constant(counts)))
    np.testing.assert_allclose(net["phi"].kernel, psi * counts / 8, rtol=1e-6)
    np.testing.assert_array_equal(net["phi"].bias, bias)
    # Without training samples there are no shares.
    net["phi"].set_weights([phi, own_bias])
    spec.method.personalize(net, types.SimpleNamespace(class_counts=tf.zeros([4])))
    np.testing.assert_array_equal(net["phi"].kernel, psi)
    np.testing.assert_array_equal(net["phi"].bias, bias)


@pytest.mark.parametrize("sparsity", [0.0, 0.6])
def test_backbone_learns_by_dot_regression(sparsity):
    spec = support.training_spec(
        "fedloge", frame_loss="dot_regression", sparsity=sparsity, norm=0.5, statistics=False
    )
    net = spec.network()
    x, y = tf.constant(support.TEST["x"]), support.TEST["y"]
    loss, _ = spec.method.loss(net, methods.Batch(x, tf.constant(y), None), None)
    h = net["backbone"](x).numpy()
    columns = net["frame"].get_weights()[0].T[y]
    # A sample without features has cosine 0.
    cosines = (h * columns).sum(axis=1) / np.maximum(np.linalg.norm(h, axis=1), 1e-12)
    cosines /= np.linalg.norm(columns, axis=1)
    regression = np.mean((cosines - 1) ** 2) / 2
    others = sum(methods.cross_entropy(y, net[head](h)) for head in ("psi", "phi"))
    np.testing.assert_allclose(loss, regression + others, rtol=1e-5)


def test_backbone_learns_from_the_frame_only():
    spec = support.training_spec("fedloge")
    net = spec.network()
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    with tf.GradientTape() as tape:
        loss, _ = spec.method.loss(net, batch, None)
    gradients = tape.gradient(loss, net["backbone"].trainable_weights)
    with tf.GradientTape() as tape:
        logits = net["frame"](net["backbone"](batch.x, training=True))
        loss = methods.cross_entropy(batch.y, logits)
    for actual, expected in zip(
        gradients, tape.gradient(loss, net["backbone"].trainable_weights), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_the_personal_head_does_not_move_what_is_sent():
    """Not even if the clip takes effect: φ is clipped apart from the others."""
    spec = support.training_spec("fedloge", statistics=False)
    sgd = SGD(learning_rate=0.3, momentum=0.0, weight_decay=0.0, clip_norm=0.05)
    spec = dataclasses.replace(spec, optimizer=sgd, local_epochs=1, batch_size=12)
    message = state.make_message(spec.method, support.server_state(spec))
    own = state.initial_client_state(spec, support.seed_of(0, 0))
    updates = []
    for factor in (tf.constant(1.0), tf.constant(30.0)):
        scaled = own._replace(personal=tf.nest.map_structure(factor.__mul__, own.personal))
        work = ClientWork(spec).update(message, scaled, support.client_data(0, 0))
        moved = tf.nest.map_structure(np.subtract, work["state"].personal, scaled.personal)
        assert max(np.abs(part).max() for part in tf.nest.flatten(moved)) > 0
        updates.append(work["update"])
    support.assert_trees_equal(*updates)


def test_clients_begin_with_heads_of_their_own():
    spec = support.training_spec("fedloge")
    first, second = (
        state.initial_client_state(spec, tf.constant(support.seed_of(0, client)))
        for client in (0, 1)
    )
    assert np.any(first.personal[0].numpy() != second.personal[0].numpy())
    assert np.all(np.abs(first.personal[0]) <= 6**-0.5)


def test_dense_frame_and_other_initializations_are_options():
    dense = functools.partial(support.training_spec, "fedloge")
    frame = dense(sparsity=0.0, norm=2.0).network()["frame"].get_weights()[0]
    gram = 4 / 3 * np.eye(4) - 1 / 3
    np.testing.assert_allclose(frame.T @ frame, gram, atol=1e-5)
    # Without zeros, the initial matrix is the frame.
    xavier = dense(sparsity=0.0, initialization="xavier", norm=2.0).network()["frame"]
    uniform = np.random.default_rng(0).random((6, 4)) - 0.5
    expected = 2 * uniform / np.linalg.norm(uniform, axis=0)
    np.testing.assert_allclose(xavier.get_weights()[0], expected, rtol=1e-5)
    sparse = dense(initialization="xavier", norm=1.0).network()["frame"].get_weights()[0]
    assert (sparse == 0).sum() == int(0.6 * sparse.size)


@pytest.mark.parametrize(("sparsity", "seed", "empty"), [(0.9, 0, True), (0.6, 2, False)])
def test_a_frame_without_an_entry_for_a_class_is_refused(sparsity, seed, empty):
    """Of 24 entries, 3 or 10 stay for 4 classes."""
    generator = np.random.default_rng(seed)
    generator.random((6, 4))
    zeros = generator.choice(24, int(sparsity * 24), replace=False)
    held = np.bincount(np.setdiff1d(np.arange(24), zeros) % 4, minlength=4)
    spec = support.training_spec("fedloge", sparsity=sparsity, seed=seed)
    assert (held.min() == 0) == empty
    if not empty:
        (frame,) = spec.network()["frame"].get_weights()
        np.testing.assert_array_equal(np.count_nonzero(frame, axis=0), held)
        return
    reason = f"leaves no entry for class {held.argmin()} among those of 6 features; choose a lower"
    with refuses("fedloge_sparsity", reason):
        spec.network()
