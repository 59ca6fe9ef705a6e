"""Methods aided by prototypes: their loss, their prototypes, and their settings."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.test_fedmr import inter
from tff_pcdd import methods
from tff_pcdd.settings import flatten
from tff_pcdd.training import ExperimentConfig

BASES = ["feddc", "feddyn", "fednova", "fedprox", "moon"]
COHORTS = [[0, 1, 2], [1, 3, 4], [0, 2, 3]]


def run(name, **options):
    process = support.process(name, **options)
    return support.run_rounds(process, process.initialize(), {}, COHORTS)


@pytest.mark.parametrize("base", support.rare_but(["feddc"], BASES))
@pytest.mark.integration
def test_without_the_term_it_is_the_base(simulation, base):
    state, clients, _ = run(base)
    aided, own, _ = run(f"{base}_prototypes", mu2=0.0)
    support.assert_trees_equal(aided.weights, state.weights)
    support.assert_trees_equal(own, clients)
    for name, value in state.server.items():
        support.assert_trees_equal(aided.server[name], value)
    assert np.all(aided.server["valid"])


@pytest.mark.parametrize("base", BASES)
def test_term_is_added_to_the_loss_of_the_base(base):
    spec = support.training_spec(f"{base}_prototypes", statistics=False, mu2=0.1)
    plain = support.training_spec(base, statistics=False).method
    tf.keras.utils.set_random_seed(1)
    net = spec.network()
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    generator = np.random.default_rng(1)
    features = spec.method.embed(net, batch.x, training=False).numpy()
    prototypes = generator.normal(size=(4, features.shape[1])).astype(np.float32)
    valid = np.array([True, True, False, True])
    anchor = [v + 0.1 for v in net.shared.trainable]
    client = methods.Client(
        class_counts=tf.constant([3.0, 4.0, 0.0, 2.0]),
        constants={},
        anchor=anchor,
        state=dict.fromkeys(("dual", "drift", "control"), anchor),
        server={
            "prototypes": tf.constant(prototypes),
            "valid": tf.constant(valid),
            "control": anchor,
        },
        round=tf.constant(1),
        steps=tf.constant(1),
        seed=tf.zeros(2, tf.int32),
    )
    loss, metrics = spec.method.loss(net, batch, client)
    without, others = plain.loss(net, batch, client)
    term = inter(features, support.TEST["y"], prototypes, valid)
    np.testing.assert_allclose(metrics.pop("inter"), term, rtol=1e-4)
    np.testing.assert_allclose(loss, without + 0.1 * term, rtol=1e-5)
    support.assert_trees_equal(metrics, others)


def test_features_are_computed_once():
    spec = support.training_spec("fedprox_prototypes")
    net, calls = spec.network(), []

    def backbone(x, training):
        calls.append(training)
        return net["backbone"](x, training=training)

    client = methods.Client(
        *[None] * 2,
        anchor=[tf.identity(v) for v in net.shared.trainable],
        state={},
        server={"prototypes": tf.zeros([4, 6]), "valid": tf.ones([4], tf.bool)},
        round=tf.constant(1),
        steps=tf.constant(1),
        seed=tf.zeros(2, tf.int32),
    )
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    spec.method.loss(net.replacing(backbone=backbone), batch, client)
    assert calls == [True]


def test_settings_are_those_of_the_base():
    config = ExperimentConfig.from_settings(
        algorithm="fedprox_prototypes", fedprox_mu=0.3, prototypes_mu2=0.2
    )
    assert (config.method.mu, config.method.mu2) == (0.3, 0.2)
    settings = flatten(config)
    assert (settings["fedprox_mu"], settings["prototypes_mu2"]) == (0.3, 0.2)
    assert ExperimentConfig.from_settings(**settings) == config
