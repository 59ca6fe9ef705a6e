"""Federations at the edge of what has a meaning: two rounds of every method have finite numbers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.federation import Federation
from tff_pcdd import methods

# Two classes with one client, who has one of them; three classes, one of which nobody has, with
# clients that have a sample, a class, or both.
LONE = ([[1] * 5], 2)
APART = ([[0], [1] * 6, [0, 1, 1, 0, 0]], 3)
# With this one, FedLoGe's frame of so few features has an entry for each class.
SEED = 1
# Methods that divide by what may be missing: classes, moments of a batch, prototypes, other heads.
DIVIDING = ["feddecorr", "fedgela", "fedgen", "fedlc", "fedmr", "fedpac", "ratioloss", "scaffold"]


def federation(name, labels, num_classes, scale):
    """Clients with these labels, whose features are normal numbers times a factor."""
    spec = support.training_spec(name)
    generator = np.random.default_rng(0)
    parts = [
        {
            "x": tf.constant(scale * generator.normal(size=(len(own), *support.IMAGE)), tf.float32),
            "y": tf.constant(own, tf.int32),
        }
        for own in labels
    ]

    def server_samples(number):
        every = [np.flatnonzero(np.concatenate(labels) == c)[:number] for c in range(num_classes)]
        rows = np.concatenate(every)
        x = np.concatenate([part["x"] for part in parts])
        return x[rows], np.concatenate(labels)[rows].astype(np.int32)

    task = dataclasses.replace(
        spec.task,
        num_classes=num_classes,
        class_counts=np.stack([np.bincount(own, minlength=num_classes) for own in labels]),
        cohort_size=len(labels),
        num_rounds=2,
        seed=SEED,
        server_samples=server_samples,
    )
    # Larger batches than any client has samples.
    return Federation(dataclasses.replace(spec, task=task, batch_size=100), parts)


@pytest.mark.parametrize("scale", [0, 1], ids=["zeros", "normal"])
@pytest.mark.parametrize("labels", [LONE, APART], ids=["lone", "apart"])
@pytest.mark.parametrize("name", support.rare_but(DIVIDING, methods.names()))
def test_two_rounds_are_finite(name, labels, scale):
    found, x = federation(name, *labels, scale), tf.constant(support.TEST["x"][:5])
    clients = range(len(labels[0]))
    for _ in range(2):
        found.round()
        # None is excluded for what it sends.
        assert all(float(result["included"]) == 1 for result in found.results)
        measured = [result["metrics"] for result in found.results]
    states = [found.state(client) for client in clients]
    for leaf in tf.nest.flatten((found.server, states, measured)):
        assert np.all(np.isfinite(np.asarray(leaf, np.float64)))
    answers = [found.personal_logits(k, x, tuned) for k in clients for tuned in (False, True)]
    if found.spec.method.has_global_model:
        answers += found.global_logits(x).values()
    assert all(np.all(np.isfinite(logits)) for logits in answers)
