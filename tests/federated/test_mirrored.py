"""Normalization that stays with the client: FedBN, and any method under personal norms."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import layers, methods
from tff_pcdd.federated import ClientWork, PersonalEvaluation, build_process, make_message
from tff_pcdd.federated import state as states

pytestmark = pytest.mark.integration

COHORT = [0, 1]


@pytest.fixture(scope="module")
def process(simulation):
    return support.process("fedbn")


@pytest.fixture(scope="module")
def one_round(process):
    return support.run_rounds(process, process.initialize(), {}, [COHORT])


def test_clients_keep_their_normalization(process, one_round):
    state, clients, _ = one_round
    before = process.initialize().weights
    # Scale, offset, mean and variance; all of them moved, to other places for other clients.
    assert len(state.weights["mirrored"]) == 4 and not state.weights["statistics"]
    for value, other, start in zip(
        clients[0].personal, clients[1].personal, before["mirrored"], strict=True
    ):
        assert np.any(value != other) and np.any(value != start)
    # The next round starts from the client's own and not from the mean.
    spec = dataclasses.replace(support.training_spec("fedbn"), local_epochs=0)
    message = make_message(spec.method, state)
    result = ClientWork(spec).update(message, clients[0], support.client_data(0, 1))
    support.assert_trees_equal(result["state"].personal, clients[0].personal)


def test_the_global_model_has_their_mean(one_round):
    state, clients, _ = one_round
    for index, mean in enumerate(state.weights["mirrored"]):
        own = np.stack([np.asarray(clients[client].personal[index]) for client in COHORT])
        expected = own.astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


def test_a_client_that_never_trained_starts_at_the_mean(process, one_round):
    state, _, _ = one_round
    fresh = process.initial_client_state(support.seed_of(0, 3))
    data = support.client_data(3, 1, test=support.TEST)
    counts = process.evaluate_before(state, [fresh], [data])[0]
    globally = process.evaluate_global(state, support.TEST)
    np.testing.assert_array_equal(counts["before"], globally["correct"]["head"])


# The same rounds as those of FedBN; see below.
@pytest.mark.parametrize("name", support.rare_but(["fedbn"], ["fedbn", "fedavg"]))
def test_a_client_without_samples_keeps_following_the_mean(simulation, name):
    """It takes part in the first round, but does not train."""
    spec = support.training_spec(name)
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, personal_norms=True))
    process = build_process(spec)
    rounds = [[*COHORT, 4], COHORT]
    state, clients, _ = support.run_rounds(process, process.initialize(), {}, rounds)
    data = support.client_data(4, 2, test=support.TEST)
    counts = process.evaluate_before(state, [clients[4]], [data])[0]
    globally = process.evaluate_global(state, support.TEST)
    np.testing.assert_array_equal(counts["before"], globally["correct"]["head"])
    # When it has received samples, it starts from the mean and not from its first round.
    message = make_message(spec.method, state)
    work = ClientWork(dataclasses.replace(spec, local_epochs=0))
    result = work.update(message, clients[4], support.client_data(0, 2))
    support.assert_trees_equal(result["state"].personal, state.weights["mirrored"])
    assert [int(clients[client].participations) for client in (0, 4)] == [2, 0]


def test_any_method_can_leave_normalization_with_the_client(simulation, one_round):
    spec = support.training_spec("fedavg", client_weighting="uniform")
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, personal_norms=True))
    process = build_process(spec)
    result = support.run_rounds(process, process.initialize(), {}, [COHORT])
    support.assert_trees_equal(result[:2], one_round[:2])


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (layers.BatchNormalization, True),
        (tf.keras.layers.BatchNormalization, True),
        (tf.keras.layers.experimental.SyncBatchNormalization, True),
        (tf.compat.v1.keras.layers.BatchNormalization, True),
        (tf.keras.layers.LayerNormalization, False),
        (tf.keras.layers.GroupNormalization, False),
    ],
)
def test_batch_normalization_of_all_kinds_is_recognized(layer, expected):
    assert methods.is_batch_norm(layer()) is expected


def with_personal_norms(name, **options):
    """A method's training spec with personal norms, and the message of the first round."""
    spec = support.training_spec(name, **options)
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, personal_norms=True))
    return spec, make_message(spec.method, support.server_state(spec))


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("name", methods.names())
def test_every_method_trains_normalization_that_stays(name):
    spec, message = with_personal_norms(name)
    spec = dataclasses.replace(spec, batch_size=12)  # all of the client's samples
    state = states.initial_client_state(spec, support.seed_of(0))
    result = ClientWork(spec).update(message, state, support.client_data(0, 0))
    for leaf in tf.nest.flatten(result["update"]):
        assert np.all(np.isfinite(leaf))
    mirrored = message.weights["mirrored"]
    # Clients of some methods keep everything, and mirror nothing; others have two networks.
    count = {"fedproto": 0, "local": 0, "ccvr": 8, "creff": 8}.get(name, 4)
    assert len(mirrored) == count
    if mirrored:
        own = result["state"].personal[-count:]
        moved = [np.any(before != after) for before, after in zip(mirrored, own, strict=True)]
        assert sum(moved) >= 4


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize(
    ("name", "options", "moves"),
    [
        ("fedloge", {"finetune_epochs": 2}, False),
        ("fedrep", {}, False),
        ("fedbabu", {"finetune": "head"}, False),
        ("fedbabu", {"finetune": "body"}, True),
    ],
)
def test_tuning_moves_the_scales_only_with_the_backbone(name, options, moves):
    spec, message = with_personal_norms(name, **options)
    state = states.initial_client_state(spec, support.seed_of(0))
    data = support.client_data(0, 0, test=support.TEST)
    evaluation = PersonalEvaluation(spec)
    before, after = (evaluation.personal_weights(message, state, data, epochs) for epochs in (0, 1))
    with tf.Graph().as_default():
        net = spec.network()
    names = [variable.name for variable in net.variables]
    moved = {name for name, a, b in zip(names, before, after, strict=True) if np.any(a != b)}
    assert moved
    assert any("gamma" in name for name in moved) == moves


def test_without_normalization_it_is_fedavg(simulation):
    states = []
    for name in ("fedavg", "fedbn"):
        spec = support.training_spec(name, statistics=False, client_weighting="samples")
        process = build_process(spec)
        states.append(support.run_rounds(process, process.initialize(), {}, [COHORT])[0])
    support.assert_trees_equal(states[0].weights, states[1].weights)


def test_all_normalizations_of_a_residual_network_are_found():
    """By type: those on the shortcuts have no name of their own."""
    from tff_pcdd import models

    resnet18 = models.create("resnet18")
    task = methods.TaskSpec(10, 512, lambda: resnet18.build((8, 8, 3)), np.ones([1, 10]))
    net = methods.Network(methods.create("fedbn").build(task), methods.create("fedbn"), task)
    # 20 layers with 4 variables each, 3 of them on shortcuts.
    assert len(net.mirrored.all) == 20 * 4
    assert len(net.shared.statistics) == 0
    assert isinstance(net.mirrored.trainable[0], tf.Variable)


def normalized_alone(layer):
    """A backbone whose normalization is all that a layer around it consists of."""
    inputs = tf.keras.Input(support.IMAGE)
    h = tf.keras.layers.Flatten()(layer(inputs))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(6)(h))


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: tf.keras.Sequential(
            [tf.keras.layers.BatchNormalization(), tf.keras.layers.ReLU()]
        )(x),
        lambda x: tf.keras.layers.TimeDistributed(tf.keras.layers.BatchNormalization())(x[:, None]),
    ],
)
def test_normalizations_inside_layers_without_other_weights_are_found(layer):
    spec = support.training_spec("fedbn")
    task = dataclasses.replace(spec.task, backbone=lambda: normalized_alone(layer))
    net = methods.Network(spec.method.build(task), spec.method, task)
    # Scale, offset, mean and variance.
    assert len(net.mirrored.all) == 4
    assert [net.is_variance(variable) for variable in net.mirrored.all] == [0, 0, 0, 1]
    assert len(net.shared.all) == 4


def test_clients_keep_the_normalization_of_features_before_a_frame():
    spec = support.training_spec("fedge", features="bn")
    task = dataclasses.replace(spec.task, personal_norms=True)
    net = methods.Network(spec.method.build(task), spec.method, task)
    # That of the backbone and that of the features.
    assert len(net.mirrored.all) == 2 * 4
    assert not net.shared.statistics
