"""Methods on a small network in NumPy, stated without the package.

A class holds what server and clients know, and changes FedAvg where its paper does.
"""

import functools

import numpy as np

from tests.methods.numpy_network import (
    BACKBONE,
    CLASSES,
    EPOCHS,
    HEAD,
    LABELS,
    MOMENTUM,
    RATE,
    STATISTICS,
    batches,
    counts,
    cross_entropy,
    features,
    inputs,
    train,
)


class FedAvg:
    """Everything is averaged, by samples or uniformly over the clients that have any."""

    averaged = (*BACKBONE, *HEAD)
    statistics = tuple(STATISTICS)
    kept = ()
    weighting = "samples"

    def __init__(self, server, own, **options):
        """`server` and `own` (of each client) are the initial arrays by name."""
        self.server, self.own = dict(server), [dict(values) for values in own]
        self.options, self.number = options, 0
        self.weighting = options.get("client_weighting", self.weighting)
        self.began = set()

    def start(self, name, drawn):
        """What a client's own array starts at, `drawn` if that is random."""
        del name
        return drawn

    def logits(self, v, x, training):
        return features(v, x, training) @ v["W"] + v["b"]

    def loss(self, client, x, y):
        """The local loss as a function of the values."""
        return lambda v: cross_entropy(self.logits(v, x, True), y)

    def batch_loss(self, client):
        """The local loss as a function of a batch."""
        return functools.partial(self.loss, client)

    def local(self, client, values, x, y):
        names = [n for n in (*self.averaged, *self.kept) if n not in self.frozen()]
        return train(values, names, self.batch_loss(client), EPOCHS, x, y)

    def frozen(self):
        """What is kept and yet not trained."""
        return STATISTICS

    def values(self, client):
        return {**self.server, **self.own[client]}

    def round(self, cohort):
        changes, weights, found = {}, {}, {}
        for k in cohort:
            start, x, y = self.values(k), inputs(k), np.array(LABELS[k], int)
            found[k] = self.local(k, start, x, y)
            weights[k] = len(y) if self.weighting == "samples" else float(len(y) > 0)
            names = (*self.averaged, *self.statistics)
            changes[k] = {name: found[k][name] - self.server[name] for name in names}
        self.collect(cohort, found)
        for k in cohort:
            self.own[k] = {name: found[k][name] for name in self.kept}
            if LABELS[k]:
                self.began.add(k)
        for name in (*self.averaged, *self.statistics):
            moved = sum(weights[k] * changes[k][name] for k in cohort)
            self.server[name] = self.server[name] + moved / sum(weights.values())
        self.number += 1

    def collect(self, cohort, found):
        """What the server learns besides the means."""

    def tune(self, client, values, x, y):
        """The personal model's local epochs, by default plain cross-entropy on everything."""
        names = [n for n in (*self.averaged, *self.kept) if n not in self.frozen()]
        return train(values, names, self.plain, EPOCHS, x, y)

    def plain(self, x, y):
        """The cross-entropy of a batch as a function of the values."""
        return lambda v: cross_entropy(self.logits(v, x, True), y)

    def personal(self, client, x, tuned):
        """Logits of a client's personal model."""
        values = self.values(client)
        if tuned:
            y = np.array(LABELS[client], int)
            values = self.tune(client, values, inputs(client), y)
        return self.answer(client, values, x)

    def answer(self, client, values, x):
        return self.logits(values, x, False)

    def overall(self, x):
        """Logits of the global model."""
        return self.logits(self.server, x, False)


class Local(FedAvg):
    """Each client alone: nothing is averaged, everything is kept."""

    averaged, statistics = (), ()
    kept = (*BACKBONE, *HEAD, *STATISTICS)


class FedProx(FedAvg):
    def loss(self, client, x, y):
        start, plain = dict(self.server), super().loss(client, x, y)

        def loss(v):
            distance = sum(((v[n] - start[n]) ** 2).sum() for n in self.averaged)
            return plain(v) + 0.5 * self.options["mu"] * distance

        return loss


class FedBN(FedAvg):
    """The normalization stays with a client that has trained; its mean serves the others."""

    weighting = "uniform"

    averaged = ("A", "a", *HEAD, "scale", "offset")
    kept = ("scale", "offset", *STATISTICS)

    def local(self, client, values, x, y):
        return train(values, [*BACKBONE, *HEAD], self.batch_loss(client), EPOCHS, x, y)

    tune = local

    def values(self, client):
        return {**self.server, **(self.own[client] if client in self.began else {})}


class FedPer(FedAvg):
    averaged, kept = tuple(BACKBONE), tuple(HEAD)


class FedRep(FedPer):
    """Head first, on features of the received averages, which do not move meanwhile."""

    weighting = "uniform"

    def head_only(self, values, x, y, epochs):
        def loss(x, y):
            return lambda v: cross_entropy(features(v, x, False) @ v["W"] + v["b"], y)

        return train(values, HEAD, loss, epochs, x, y, statistics_of=())

    def local(self, client, values, x, y):
        body = self.options["body_epochs"]
        values = self.head_only(values, x, y, max(1, EPOCHS - body))
        return train(values, BACKBONE, self.batch_loss(client), body, x, y)

    def tune(self, client, values, x, y):
        return self.head_only(values, x, y, EPOCHS)


class FedBABU(FedAvg):
    averaged = tuple(BACKBONE)
    weighting = "uniform"

    def tune(self, client, values, x, y):
        names = {"full": [*BACKBONE, *HEAD], "head": HEAD, "body": BACKBONE}
        chosen = names[self.options["finetune"]]
        return train(values, chosen, self.batch_loss(client), EPOCHS, x, y)


class FedRoD(FedAvg):
    """A personal head V, c on top of what the generic one answers."""

    kept = ("V", "c")

    def start(self, name, drawn):
        return np.zeros(drawn.shape)

    def loss(self, client, x, y):
        n = counts(client)
        held = np.flatnonzero(n)
        position = np.searchsorted(held, y)

        def loss(v):
            h = features(v, x, True)
            generic = h @ v["W"] + v["b"]
            balanced = generic[:, held] + self.options["gamma"] * np.log(n[held])
            own = generic.real + h.real @ v["V"] + v["c"]
            return cross_entropy(balanced, position) + cross_entropy(own, y)

        return loss

    def tune(self, client, values, x, y):
        return values

    def answer(self, client, values, x):
        return (
            self.logits(values, x, False) + features(values, x, False) @ values["V"] + values["c"]
        )


class FedNTD(FedAvg):
    """Pulled towards what the received model answers about the classes that are wrong."""

    def loss(self, client, x, y):
        wrong = np.arange(CLASSES) != y[:, None]
        t, plain = self.options["temperature"], super().loss(client, x, y)

        def shares(logits):
            others = logits[wrong].reshape(len(y), CLASSES - 1)
            return np.exp(others / t) / np.exp(others / t).sum(axis=1, keepdims=True)

        target = shares(self.logits(self.server, x, False))

        def loss(v):
            gap = np.log(target) - np.log(shares(self.logits(v, x, True)))
            return plain(v) + self.options["beta"] * t**2 * (target * gap).sum(axis=1).mean()

        return loss


class LogitAdjust(FedAvg):
    """The frequencies of the classes among all samples are added to the logits."""

    def loss(self, client, x, y):
        total = sum(counts(k) for k in range(len(LABELS)))
        prior = np.log(total / total.sum())
        return lambda v: cross_entropy(self.logits(v, x, True) + self.options["tau"] * prior, y)


def effective_steps(client):
    """How much of a gradient is in the change, over all steps: it decays with the momentum."""
    steps = EPOCHS * len(batches(inputs(client), LABELS[client]))
    return sum((1 - MOMENTUM**k) / (1 - MOMENTUM) for k in range(1, steps + 1))


class Scaffold(FedAvg):
    """Gradients are corrected by what other clients' gradients were."""

    weighting = "uniform"

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        zeros = {name: 0 * self.server[name] for name in self.averaged}
        self.control, self.controls = zeros, [zeros for _ in LABELS]

    def loss(self, client, x, y):
        tilt = {n: self.control[n] - self.controls[client][n] for n in self.averaged}
        plain = super().loss(client, x, y)
        return lambda v: plain(v) + sum((tilt[n] * v[n]).sum() for n in self.averaged)

    def collect(self, cohort, found):
        renewed, present = {}, [k for k, labels in enumerate(LABELS) if labels]
        for k in {*cohort} & {*present}:
            renewed[k] = {
                n: self.controls[k][n]
                - self.control[n]
                + (self.server[n] - found[k][n]) / (RATE * effective_steps(k))
                for n in self.averaged
            }
        self.control = {
            n: self.control[n]
            + sum(new[n] - self.controls[k][n] for k, new in renewed.items()) / len(present)
            for n in self.averaged
        }
        for k, new in renewed.items():
            self.controls[k] = new

    def round(self, cohort):
        before = dict(self.server)
        super().round(cohort)
        for n in self.averaged:
            step = self.options["server_step"] * (self.server[n] - before[n])
            self.server[n] = before[n] + step


class Ditto(FedAvg):
    """A second network, pulled towards the received one."""

    weighting = "uniform"

    kept = tuple(f"own_{n}" for n in (*BACKBONE, *HEAD, *STATISTICS))

    def start(self, name, drawn):
        return self.server[name.removeprefix("own_")]

    def own_logits(self, v, x, training):
        return features(v, x, training, "own_") @ v["own_W"] + v["own_b"]

    def local(self, client, values, x, y):
        received = dict(values)
        values = train(values, self.averaged, self.batch_loss(client), EPOCHS, x, y)

        def loss(x, y):
            def loss(v):
                distance = sum(((v["own_" + n] - received[n]) ** 2).sum() for n in self.averaged)
                plain = cross_entropy(self.own_logits(v, x, True), y)
                return plain + self.options["pull"] / 2 * distance

            return loss

        names = [f"own_{n}" for n in self.averaged]
        return train(values, names, loss, EPOCHS, x, y, statistics_of=("own_",))

    def tune(self, client, values, x, y):
        return values

    def answer(self, client, values, x):
        return self.own_logits(values, x, False)


class FedRS(FedAvg):
    """Logits of missing classes count less while clients train."""

    def loss(self, client, x, y):
        n, alpha = counts(client), self.options["alpha"]
        factor = np.where(n > 0, 1.0, alpha)
        if self.options.get("graded"):
            factor = alpha + (1 - alpha) * n / n.max()
        return lambda v: cross_entropy(factor * self.logits(v, x, True), y)


class FedLC(FedAvg):
    """Margins that are larger for rare classes; missing ones have no part."""

    def loss(self, client, x, y):
        n = counts(client)
        held = np.flatnonzero(n)
        margins, position = self.options["tau"] / n[held] ** 0.25, np.searchsorted(held, y)
        return lambda v: cross_entropy(self.logits(v, x, True)[:, held] - margins, position)
