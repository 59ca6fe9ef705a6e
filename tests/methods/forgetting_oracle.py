"""Methods that learn from the received model, on the small network in NumPy."""

import numpy as np

from tests.methods.network_oracle import FedAvg
from tests.methods.numpy_network import (
    BACKBONE,
    CLASSES,
    DECAY,
    EPOCHS,
    HEAD,
    MOMENTUM,
    RATE,
    batches,
    counts,
    cross_entropy,
    gradient,
    move_averages,
)


def divergence(received, logits):
    """The mean of KL(softmax(received) ‖ softmax(logits)) over samples."""
    p = np.exp(received) / np.exp(received).sum(axis=1, keepdims=True)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return (p * (np.log(p) - log_q)).sum(axis=1).mean()


class FedVLS(FedAvg):
    """Balanced softmax, distillation over missing classes, and suppression of other logits."""

    def loss(self, client, x, y):
        n = counts(client)
        share = n / max(n.sum(), 1)
        held, missing = np.flatnonzero(n), np.flatnonzero(n == 0)
        position = np.searchsorted(held, y)
        received = self.logits(self.server, x, False)

        def loss(v):
            z = self.logits(v, x, True)
            total = cross_entropy(z[:, held] + np.log(share[held]), position)
            if len(missing):
                total += self.options["distillation"] * divergence(
                    received[:, missing], z[:, missing]
                )
            for c in held:
                shifted = np.where(y == c, 0, z[:, c] - np.log(share[c] * CLASSES))
                mean = np.exp(shifted).mean()
                total += self.options["suppression"] * share[c] * np.log(mean)
            return total

        return loss


class FedSOL(FedAvg):
    """Gradients at weights from which the model contradicts the received one most."""

    def local(self, client, values, x, y):
        names, heat = (*BACKBONE, *HEAD), self.options["temperature"]
        chosen = HEAD if self.options.get("perturb") == "head" else names
        v, speed = dict(values), dict.fromkeys(names, 0.0)
        for rows, labels in EPOCHS * batches(x, y):
            plain, received = self.loss(client, rows, labels), self.logits(values, rows, False)

            def departure(v, x=rows, received=received):
                return divergence(received / heat, self.logits(v, x, True) / heat)

            away = {n: gradient(departure, v, n) for n in chosen}
            length = np.sqrt(sum((g**2).sum() for g in away.values()))
            moved = dict(v)
            for n in chosen:
                far = np.abs(v[n] - values[n])
                strength = far / np.maximum(np.sqrt((far**2).sum(axis=-1, keepdims=True)), 1e-12)
                moved[n] = v[n] + self.options["rho"] * strength * away[n] / max(length, 1e-12)
            slopes = {n: gradient(plain, moved, n) for n in names}
            move_averages(v, rows)
            for n in names:
                speed[n] = MOMENTUM * speed[n] + slopes[n] + DECAY * v[n]
                v[n] = v[n] - RATE * speed[n]
        return v
