"""The baselines `local` and `central` in a simulation, against plain SGD in NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import data, methods, models
from tff_pcdd.experiment import planning
from tff_pcdd.federated import SGD, aggregators
from tff_pcdd.training import ExperimentConfig, Simulation, TrainingConfig

CLASSES, INPUTS, ROUNDS, EPOCHS = 3, 4, 3, 2
RATE, MOMENTUM, DECAY = 0.2, 0.9, 0.01
# Classes that the samples of each client have; the second client shares none with the others.
LABELS = ([0, 0, 1, 0, 1], [2, 2, 2], [1, 0, 0, 1, 1, 0, 0])
OWNERS = np.concatenate([np.full(len(own), k) for k, own in enumerate(LABELS)])


def federation():
    y = np.concatenate(LABELS)
    noise = np.random.default_rng(0).normal(size=(len(y), INPUTS))
    x = np.float32(noise + np.eye(CLASSES, INPUTS)[y]).reshape(-1, 1, 1, INPUTS)
    samples = data.Examples(x, y)
    clients = [
        data.ClientIndices(f"c{k}", train=np.flatnonzero(k == OWNERS), test=np.arange(3))
        for k in range(len(LABELS))
    ]
    spec = data.InputSpec("image", (1, 1, INPUTS), "float32")
    return data.Federation("tiny", CLASSES, "abc", spec, samples, samples, clients)


def config(name, clients_per_round=0):
    """A linear classifier of the inputs, and batches larger than the data, so in no order."""
    network = models.KerasBackbone(
        lambda shape: tf.keras.Sequential([tf.keras.Input(shape), tf.keras.layers.Flatten()])
    )
    training = TrainingConfig(
        rounds=ROUNDS,
        clients_per_round=clients_per_round,
        local_epochs=EPOCHS,
        batch_size=32,
        optimizer=SGD(RATE, MOMENTUM, DECAY, clip_norm=0.0),
    )
    return ExperimentConfig(
        method=methods.create(name), model=models.ModelConfig(network), training=training
    )


def plain_sgd(weights, bias, x, y):
    """Rounds of softmax regression on all samples at once; momentum starts anew in each round."""
    x, targets = x.reshape(len(x), -1).astype(float), np.eye(CLASSES)[y]
    for _ in range(ROUNDS):
        speed = [0.0, 0.0]
        for _ in range(EPOCHS):
            answers = np.exp(x @ weights + bias)
            error = (answers / answers.sum(axis=1, keepdims=True) - targets) / len(y)
            gradients = [x.T @ error + DECAY * weights, error.sum(axis=0) + DECAY * bias]
            speed = [MOMENTUM * v + g for v, g in zip(speed, gradients, strict=True)]
            weights, bias = weights - RATE * speed[0], bias - RATE * speed[1]
    return weights, bias


def trained(name, compute):
    """The simulation after all rounds, and the weights from which all networks start."""
    simulation = Simulation(config(name), federation(), compute=compute)
    start = Simulation(config("fedavg"), federation(), compute=compute).state
    for _ in range(ROUNDS):
        measured = simulation.next_round()
        assert (measured["upload_bytes"], measured["download_bytes"]) == (0, 0)
    return simulation, [np.asarray(value, float) for value in start.weights["trainable"]]


def test_local_is_plain_sgd_of_each_client_alone(compute):
    simulation, start = trained("local", compute)
    assert tf.nest.flatten(simulation.state.weights) == []
    everything = federation().train
    for client in range(len(LABELS)):
        own = everything.take(np.flatnonzero(client == OWNERS))
        expected = plain_sgd(*start, own.x, own.y)
        for value, wanted in zip(simulation.store.get(client).personal, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


def test_central_is_plain_sgd_on_all_samples(compute):
    simulation, start = trained("central", compute)
    expected = plain_sgd(*start, federation().train.x, federation().train.y)
    for value, wanted in zip(simulation.state.weights["trainable"], expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
    # No client has a state, so the personal models before local steps are the global model.
    counts = simulation.personal_counts()
    scores = federation().test.x[:3].reshape(3, -1) @ expected[0] + expected[1]
    correct = scores.argmax(axis=1) == federation().test.y[:3]
    assert counts["before"].sum(axis=1).tolist() == [correct.sum()] * len(LABELS)


def test_central_uses_as_many_samples_as_the_cohort_has(compute, monkeypatch):
    """Drawn from all clients, anew in every round, and as a function of the seed."""
    used = []
    simulation = Simulation(config("central", clients_per_round=1), federation(), compute=compute)
    original = simulation.invoke

    def invoke(computation, *arguments):
        if computation is simulation.process.next:
            (client,) = arguments[2]
            used.append([tuple(x.ravel()) for x in client.train["x"]])
        return original(computation, *arguments)

    monkeypatch.setattr(simulation, "invoke", invoke)
    for _ in range(ROUNDS):
        simulation.next_round()
    known = {tuple(x.ravel()): owner for x, owner in zip(federation().train.x, OWNERS, strict=True)}
    sizes = [len(labels) for labels in LABELS]
    for samples in used:
        assert len(samples) == len(set(samples))
        assert len(samples) in sizes
    assert len({known[sample] for samples in used for sample in samples}) == len(LABELS)
    assert any(len({known[sample] for sample in samples}) > 1 for samples in used)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("local", "clients of local send no weights; choose aggregator=mean or another method$"),
        ("central", "nothing is aggregated; choose aggregator=mean or another method$"),
    ],
)
def test_aggregators_other_than_the_mean_are_refused(name, reason):
    whole = dataclasses.replace(
        ExperimentConfig.from_settings(algorithm=name), aggregator=aggregators.create("secure")
    )
    with refuses("aggregator", reason):
        planning.check(whole)
