"""Features of a frozen encoder as inputs: the method's head is all that is trained."""

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import ExperimentConfig, Simulation, data

RANDOM = np.random.default_rng(0)
LABELS = np.arange(120) % 4
EMBEDDINGS = RANDOM.normal(size=(120, 6)) + 2 * np.eye(4, 6)[LABELS]


def simulation(algorithm, **settings):
    federation = data.from_arrays(EMBEDDINGS.astype(np.float32), LABELS, np.arange(120) % 3)
    config = ExperimentConfig.from_settings(
        algorithm=algorithm,
        model="linear",
        batch_size=1000,  # One step of a round: all samples of a client.
        local_epochs=1,
        client_learning_rate=0.1,
        client_momentum=0.0,
        client_weight_decay=0.0,
        client_clip_norm=0.0,
        **settings,
    )
    return Simulation(config, federation)


def test_fedavg_is_a_linear_probe():
    """One round from the initial head, in NumPy."""
    with simulation("fedavg") as probe:
        assert [value.shape for value in probe.state.weights["trainable"]] == [(6, 4), (4,)]
        kernel, bias = (np.asarray(v, float) for v in probe.state.weights["trainable"])
        train = probe.federation.train
        spec = probe.federation.input_spec
        x = (train.x - np.array(spec.mean)) / np.array(spec.std)
        logits = x @ kernel + bias
        error = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = error / error.sum(axis=1, keepdims=True) - np.eye(4)[train.y]
        probe.next_round()
        after = probe.state.weights["trainable"]
        np.testing.assert_allclose(after[0], kernel - 0.1 * x.T @ error / len(x), atol=1e-5)
        np.testing.assert_allclose(after[1], bias - 0.1 * error.mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(probe.features(train.x[:5]), x[:5], atol=1e-5)


@pytest.mark.parametrize("algorithm", ["fedgela", "fedge", "fedbabu"])
def test_a_fixed_head_needs_something_to_train(algorithm):
    reason = f"{algorithm} trains only the backbone.*set projection_dim above 0"
    with refuses("projection_dim", reason):
        simulation(algorithm, projection_dim=0)


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        # A projection from 6 features to 4 classes, with its bias, and the temperature.
        ({"algorithm": "fedetf"}, [(6, 4), (4,), ()]),
        ({"algorithm": "fedgela", "fedgela_classifier": "trainable"}, [(6, 4), (4,)]),
    ],
    ids=["fedetf", "fedgela"],
)
def test_methods_that_train_more_than_the_backbone_need_none(settings, shapes):
    with simulation(projection_dim=0, **settings) as probe:
        before = probe.state.weights["trainable"]
        assert [value.shape for value in before] == shapes
        probe.next_round()
        after = probe.state.weights["trainable"]
        assert all(np.any(new != old) for new, old in zip(after, before, strict=True))


def test_features_of_no_samples_are_as_wide_as_others():
    """FedETF projects them to as many dimensions as there are classes."""
    with simulation("fedetf", projection_dim=0) as probe:
        for samples in (2, 0):
            assert probe.features(probe.federation.test.x[:samples]).shape == (samples, 4)
