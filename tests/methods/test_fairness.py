"""All methods of a comparison start alike, see the same batches, and differ in nothing unsaid."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods
from tff_pcdd.federated import ClientWork, initialization, local_training, make_message
from tff_pcdd.federated import state as states
from tff_pcdd.training import ExperimentConfig


def first_values(name):
    """The first values of every piece of a method's network, by name and form."""
    spec = support.training_spec(name, seed=2)
    with initialization.deferred() as first:
        net = spec.network()
    first.assign(net.parts, spec.task.seed)
    return {
        (part, *(tuple(weight.shape) for weight in layer.weights)): [
            weight.numpy() for weight in layer.weights
        ]
        for part, layer in net.parts.items()
        if layer.weights
    }


def test_pieces_of_the_same_name_and_form_start_alike():
    known = {}
    holders = {}
    for name in methods.names():
        for piece, values in first_values(name).items():
            holders.setdefault(piece, []).append(name)
            for expected, actual in zip(known.setdefault(piece, values), values, strict=True):
                np.testing.assert_array_equal(actual, expected, err_msg=f"{name}: {piece}")
    backbones = [names for piece, names in holders.items() if piece[0] == "backbone"]
    assert backbones == [methods.names()]
    linear = ("head", (6, support.NUM_CLASSES), (support.NUM_CLASSES,))
    assert {"fedavg", "fedper", "fedrod", "ditto"} <= set(holders[linear])


def test_those_are_the_weights_of_the_first_round():
    """And of a client's own part, where the head stays with the client."""
    head = next(v for piece, v in first_values("fedavg").items() if piece[0] == "head")
    weights = states.initial_weights(support.training_spec("fedavg", seed=2))
    own = states.initial_client_state(support.training_spec("fedper", seed=2), tf.constant([1, 2]))
    for values in (weights["trainable"][-2:], own.personal):
        for expected, actual in zip(head, values, strict=True):
            np.testing.assert_array_equal(actual, expected)


class EnoughError(Exception):
    """Ends a client's round early."""


@pytest.fixture
def batches(monkeypatch):
    """Runs a client's round op by op; returns the samples and the seeds of its first batches."""
    seen, wanted = [], 0

    def augment(x, spec, seed):
        seen.append((x.numpy(), seed.numpy()))
        if len(seen) == wanted:
            raise EnoughError
        return x

    monkeypatch.setattr(local_training.transforms, "augment", augment)

    def run(name, number):
        nonlocal wanted
        wanted = number
        seen.clear()
        spec = support.training_spec(name)
        seed = tf.constant(support.seed_of(0, 0))
        # The last batch of six samples is smaller.
        message = make_message(spec.method, support.server_state(spec))
        state = states.initial_client_state(spec, seed)
        work = ClientWork(spec)
        data = tf.nest.map_structure(tf.convert_to_tensor, support.client_data(3, 0))
        tf.config.run_functions_eagerly(True)
        try:
            with contextlib.suppress(EnoughError):
                work.update(message, state, data)
        finally:
            tf.config.run_functions_eagerly(False)
        return list(seen)

    return run


@pytest.mark.integration
def test_batches_are_the_same(batches):
    """Sample by sample, with the seeds of augmentation and dropout, to the end of a phase."""
    expected = batches("fedavg", 5)
    assert len(expected) == 4  # two epochs of six samples, four at a time
    assert len({x.tobytes() for x, _ in expected}) == 4
    # One of the methods with the same phases; all others are trained by the same loop.
    for name in {_order(name): name for name in methods.names()}.values():
        number = min(2 * _phases(name)[0], 4)
        for (x, seed), (wanted, wanted_seed) in zip(
            batches(name, number), expected[:number], strict=True
        ):
            np.testing.assert_array_equal(x, wanted, err_msg=name)
            np.testing.assert_array_equal(seed, wanted_seed, err_msg=name)


def _order(name):
    """What decides the samples of a method's batches and their order."""
    method = methods.get(name)
    return method.phases, method.prepare


def _phases(name):
    """Epochs of each phase of local training; the first has to be one at least."""
    spec = support.training_spec(name)
    epochs = [p.epochs for p in spec.method.phases(spec.network(), spec.local_epochs)]
    assert epochs[0] >= 1
    return epochs


def test_settings_differ_in_the_method_alone():
    """Seeds of data, model, cohorts and batches, optimizer, epochs; all but the projection."""
    expected = ExperimentConfig.from_settings(algorithm="fedavg", seed=3).to_settings()
    for name in methods.names():
        settings = ExperimentConfig.from_settings(algorithm=name, seed=3).to_settings()
        differing = {k for k in {*settings, *expected} if settings.get(k) != expected.get(k)}
        prefixes = ("fedavg_", methods.get(name).prefix(), "prototypes_")
        common = {k for k in differing if not k.startswith(prefixes)}
        assert common <= {"algorithm", "head_calibration", "projection_dim"}, name
        assert settings["projection_dim"] == methods.get(name).projection_dim
