"""Methods with a model of each client's own, on the small network in NumPy; see `numpy_network`."""

import functools

import numpy as np

from tests.methods.network_oracle import FedAvg
from tests.methods.numpy_network import (
    BACKBONE,
    DECAY,
    EPOCHS,
    HEAD,
    MOMENTUM,
    RATE,
    STATISTICS,
    batches,
    cross_entropy,
    features,
    gradient,
    move_averages,
    train,
)

TRAINED = (*BACKBONE, *HEAD)


def own_logits(v, x, training):
    return features(v, x, training, "own_") @ v["own_W"] + v["own_b"]


def own_loss(v, x, y):
    return cross_entropy(own_logits(v, x, True), y)


class APFL(FedAvg):
    """A second network, of which only the mixture with the first is ever used."""

    weighting = "uniform"

    def __init__(self, *arguments, **options):
        self.kept = tuple(f"own_{n}" for n in (*TRAINED, *STATISTICS))
        self.kept += ("alpha",) * options["adaptive"]
        super().__init__(*arguments, **options)

    def start(self, name, drawn):
        if name == "alpha":
            return np.float32(self.options["alpha"])
        return self.server[name.removeprefix("own_")]

    def mixed(self, v):
        share = v.get("alpha", self.options["alpha"])
        return {**v, **{f"own_{n}": share * v[f"own_{n}"] + (1 - share) * v[n] for n in TRAINED}}

    def local(self, client, values, x, y):
        v, speed = dict(values), dict.fromkeys((*TRAINED, *(f"own_{n}" for n in TRAINED)), 0.0)
        for rows, labels in EPOCHS * batches(x, y):
            plain = self.loss(client, rows, labels)
            mixed_loss = functools.partial(own_loss, x=rows, y=labels)
            mixture = self.mixed(v)
            share = v.get("alpha", self.options["alpha"])
            slopes, slope = {}, 0.0
            for n in TRAINED:
                at_mixture = gradient(mixed_loss, mixture, f"own_{n}")
                slopes |= {n: gradient(plain, v, n), f"own_{n}": share * at_mixture}
                slope += (at_mixture * (v[f"own_{n}"] - v[n])).sum()
            move_averages(v, rows)
            move_averages(mixture, rows, "own_")
            v |= {f"own_{n}": mixture[f"own_{n}"] for n in STATISTICS}
            if "alpha" in v:
                v["alpha"] = np.clip(share - RATE * slope, 0, 1)
            for n in slopes:
                speed[n] = MOMENTUM * speed[n] + slopes[n] + DECAY * v[n]
                v[n] = v[n] - RATE * speed[n]
        return v

    def tune(self, client, values, x, y):
        return values

    def answer(self, client, values, x):
        return own_logits(self.mixed(values), x, False)


class PFedMe(FedAvg):
    """A second network near the first, which follows it."""

    def __init__(self, server, own, **options):
        super().__init__(server, own, **options)
        first = {f"own_{n}": server[n] for n in (*TRAINED, *STATISTICS)}
        self.theta = [dict(first) for _ in own]

    def local(self, client, values, x, y):
        pull, rate = self.options["pull"], self.options["inner_learning_rate"]
        v, speed = dict(values), dict.fromkeys(TRAINED, 0.0)
        theta = {f"own_{n}": v[n] for n in (*TRAINED, *STATISTICS)}
        for rows, labels in EPOCHS * batches(x, y):
            loss = functools.partial(own_loss, x=rows, y=labels)
            for _ in range(self.options["inner_steps"]):
                slopes = {n: gradient(loss, theta, f"own_{n}") for n in TRAINED}
                move_averages(theta, rows, "own_")
                for n in TRAINED:
                    near = slopes[n] + pull * (theta[f"own_{n}"] - v[n])
                    theta[f"own_{n}"] = theta[f"own_{n}"] - rate * near
            for n in TRAINED:
                speed[n] = MOMENTUM * speed[n] + pull * (v[n] - theta[f"own_{n}"]) + DECAY * v[n]
                v[n] = v[n] - RATE * speed[n]
        if len(x):
            self.theta[client] = theta
        return v | {n: theta[f"own_{n}"] for n in STATISTICS}

    def round(self, cohort):
        before = dict(self.server)
        super().round(cohort)
        for n in TRAINED:
            self.server[n] = before[n] + self.options["beta"] * (self.server[n] - before[n])

    def tune(self, client, values, x, y):
        return values

    def answer(self, client, values, x):
        return own_logits(self.theta[client], x, False)


class FedALA(FedAvg):
    """Starts between the received and the last local model, entry by entry."""

    def __init__(self, *arguments, **options):
        self.upper = {1: HEAD, 3: TRAINED}[options["layers"]]
        self.kept = (*(f"previous_{n}" for n in self.upper), *(f"u_{n}" for n in self.upper))
        super().__init__(*arguments, **options)

    def start(self, name, drawn):
        if name.startswith("u_"):
            return np.ones(drawn.shape)
        return np.zeros(drawn.shape)

    def frozen(self):
        return self.kept

    def between(self, v):
        """The starting point, with the weights that are among the values."""
        return {
            n: v[f"previous_{n}"] + (self.server[n] - v[f"previous_{n}"]) * v[f"u_{n}"]
            for n in self.upper
        }

    def values(self, client):
        v = super().values(client)
        if client not in self.began:
            v |= {f"previous_{n}": self.server[n] for n in self.upper}
        return v | self.between(v)

    def local(self, client, values, x, y):
        v = dict(values)
        for rows, labels in self.options["weight_epochs"] * batches(x, y):

            def loss(v, x=rows, y=labels):
                return cross_entropy(self.logits(v, x, False), y)

            slopes = {n: gradient(loss, v, n) for n in self.upper}
            for n in self.upper:
                moved = v[f"u_{n}"] - slopes[n] * (self.server[n] - v[f"previous_{n}"])
                v[f"u_{n}"] = np.clip(moved, 0, 1)
            v |= self.between(v)
        v = train(v, TRAINED, self.batch_loss(client), EPOCHS, x, y)
        return v | {f"previous_{n}": v[n] for n in self.upper}

    tune = local
