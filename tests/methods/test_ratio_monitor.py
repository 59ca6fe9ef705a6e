"""Ratio Loss over several rounds: the server's monitor in NumPy, and the weights it leads to."""

import numpy as np
import pytest
import tensorflow as tf

from tests.methods.network_federation import network_federation, placed, server_values
from tests.methods.network_oracle import FedAvg
from tests.methods.numpy_network import (
    BACKBONE,
    CLASSES,
    COHORTS,
    EPOCHS,
    EVERYBODY,
    HEAD,
    LABELS,
    cross_entropy,
    server_samples,
    train,
)


def decisive(changes, label):
    """The places of the head that a class increases by clearly more than others change them."""
    own = changes[label]
    others = np.abs(np.delete(changes, label, axis=0)).max(axis=0)
    return (own > 0) & (others < 0.8 * own)


class RatioLoss(FedAvg):
    weighting = "uniform"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.ratio, self.composition = np.ones(CLASSES), np.zeros(CLASSES)

    def loss(self, client, x, y):
        factor = self.options["alpha"] + self.options["beta"] * self.ratio[y]

        def loss(v):
            logits = self.logits(v, x, True)
            losses = [cross_entropy(logits[i : i + 1], y[i : i + 1]) for i in range(len(y))]
            return (factor * np.array(losses)).mean()

        return loss

    def collect(self, cohort, found):
        """Trains on each class alone, from the weights that were sent."""
        number = self.options["auxiliary"]
        x, y = server_samples(number)
        changes = []
        for label in range(CLASSES):
            own = x[y == label]

            labels = np.full(len(own), label)
            trained = train(self.server, [*BACKBONE, *HEAD], self.plain, EPOCHS, own, labels)
            changes.append(trained["W"] - self.server["W"])
        changes = np.array(changes)
        present = [k for k in cohort if LABELS[k]]
        samples = sum(len(LABELS[k]) for k in present)
        moved = np.mean([found[k]["W"] - self.server["W"] for k in present], axis=0)
        total = len(present) * number * moved
        for label in range(CLASSES):
            others = np.delete(changes, label, axis=0).mean(axis=0)
            chosen = decisive(changes, label)
            self.ratio[label], self.composition[label] = 1, samples / CLASSES
            if chosen.any():
                ratio = abs(changes[label][chosen].sum()) / abs(others[chosen].sum())
                self.ratio[label] = min(ratio, self.options["cap"])
            estimates = ((total - samples * others) / (changes[label] - others))[chosen]
            credible = estimates[(estimates > 0) & (estimates < 1.5 * samples / CLASSES)]
            if credible.size:
                self.composition[label] = credible.mean()


@pytest.mark.parametrize(("beta", "cap"), [(0.5, 3.0), (0.1, 8.0)])
def test_rounds(beta, cap):
    options = {"alpha": 0.9, "beta": beta, "auxiliary": 3, "cap": cap}
    federation = network_federation("ratioloss", **options)
    names, _ = placed(federation)
    expected = RatioLoss(server_values(federation, names), [{} for _ in EVERYBODY], **options)
    for cohort in COHORTS:
        federation.round(cohort)
        expected.round(cohort)
        server = federation.server.server
        np.testing.assert_allclose(server["ratio"], expected.ratio, rtol=1e-3)
        np.testing.assert_allclose(server["composition"], expected.composition, rtol=1e-3)
        for key, value in server_values(federation, names).items():
            np.testing.assert_allclose(value, expected.server[key], rtol=1e-3, atol=1e-4)


def test_without_ratio_the_server_learns_nothing():
    federation = network_federation("ratioloss", beta=0.0)
    federation.round([0, 1])
    np.testing.assert_array_equal(federation.server.server["ratio"], np.ones(CLASSES))
    np.testing.assert_array_equal(federation.server.server["composition"], np.zeros(CLASSES))
    assert tf.nest.flatten(federation.message.server)[0].shape == (CLASSES,)
    assert set(federation.message.server) == {"ratio"}
