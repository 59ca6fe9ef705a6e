"""Methods that look at features, in NumPy: contrast, prototypes, and fixed heads."""

import numpy as np

from tests.methods.network_oracle import FedAvg
from tests.methods.numpy_network import (
    BACKBONE,
    CLASSES,
    HEAD,
    LABELS,
    ROUNDS,
    STATISTICS,
    WIDTH,
    counts,
    cross_entropy,
    features,
    inputs,
    length,
    train,
    unit,
)


class _Projected(FedAvg):
    """Two dense layers between the backbone and the head."""

    averaged = (*BACKBONE, *HEAD, "P", "p", "Q", "q")

    def projected(self, v, x, training, prefix=""):
        hidden = features(v, x, training, prefix) @ v[prefix + "P"] + v[prefix + "p"]
        return hidden * (hidden.real > 0) @ v[prefix + "Q"] + v[prefix + "q"]

    def logits(self, v, x, training):
        return self.projected(v, x, training) @ v["W"] + v["b"]


class Moon(_Projected):
    """Pulled towards the features of the received model, away from the client's last one."""

    encoder = (*BACKBONE, "P", "p", "Q", "q", *STATISTICS)
    kept = tuple(f"previous_{n}" for n in encoder)

    def start(self, name, drawn):
        return self.server[name.removeprefix("previous_")]

    def frozen(self):
        return self.kept

    def loss(self, client, x, y):
        start = self.values(client)
        towards = unit(self.projected(start, x, False))
        away = unit(self.projected(start, x, False, "previous_"))

        def loss(v):
            z = unit(self.projected(v, x, True))
            near, far = ((z * other).sum(axis=1) for other in (towards, away))
            t = self.options["temperature"]
            share = np.exp(near / t) / (np.exp(near / t) + np.exp(far / t))
            return (
                cross_entropy(self.logits(v, x, True), y)
                - self.options["mu"] * np.log(share).mean()
            )

        return loss

    def local(self, client, values, x, y):
        values = super().local(client, values, x, y)
        return values | {f"previous_{n}": values[n] for n in self.encoder}


class _Prototypes(FedAvg):
    """Class means of the features that trained clients have in eval mode."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.prototypes = {}

    def represent(self, v, x, training):
        return features(v, x, training)

    def means(self, cohort, found):
        """Dicts class → list of (mean, count), one for each client that has the class."""
        held = {c: [] for c in range(CLASSES)}
        for k in cohort:
            if LABELS[k]:
                h, y = self.represent(found[k], inputs(k), False), np.array(LABELS[k])
                for c in np.unique(y):
                    held[c].append((h[y == c].mean(axis=0), np.sum(y == c)))
        return held


class FedDecorr(FedAvg):
    """Features of a batch are kept from being correlated."""

    def loss(self, client, x, y):
        plain, number = super().loss(client, x, y), len(y)

        def loss(v):
            h = features(v, x, True)
            centred = h - h.mean(axis=0)
            products = centred.T @ centred
            scale = np.sqrt(np.diag(products) / (number - 1) + 1e-8)
            products = products / scale / scale[:, None]
            if self.options.get("form") == "paper":
                penalty = ((products / (number - 1)) ** 2).mean()
            else:
                penalty = (products**2)[~np.eye(WIDTH, dtype=bool)].mean() / number
            return plain(v) + self.options["beta"] * penalty

        return loss


class _WeightedPrototypes(_Prototypes):
    """Prototypes are means over all samples of the cohort."""

    def collect(self, cohort, found):
        for c, means in self.means(cohort, found).items():
            if means:
                total = sum(count for _, count in means)
                self.prototypes[c] = sum(mean * count for mean, count in means) / total


class FedMR(_WeightedPrototypes):
    """Decorrelated features of each class, nearer to their prototype than to the others."""

    def intra(self, h, y):
        norms = []
        for c in np.unique(y):
            own = h[y == c]
            if len(own) > 1:
                centred = own - own.mean(axis=0)
                products = centred.T @ centred
                scale = np.sqrt(np.diag(products) / (len(own) - 1) + 1e-8)
                norms.append(((products / scale / scale[:, None] / (len(own) - 1)) ** 2).sum())
        return np.mean(norms) if norms else 0.0

    def inter(self, h, y):
        known, margins = sorted(self.prototypes), []
        for i in (c for c in np.unique(y) if c in known):
            gaps = {c: length(h[y == i] - self.prototypes[c], 1) for c in known}
            for j in (c for c in known if c != i):
                difference = gaps[i] - gaps[j]
                margins.append((difference * (difference.real > 0)).mean())
        return np.mean(margins) if margins else 0.0

    def loss(self, client, x, y):
        def loss(v):
            h = features(v, x, True)
            terms = self.options["mu1"] * self.intra(h, y) + self.options["mu2"] * self.inter(h, y)
            return cross_entropy(h @ v["W"] + v["b"], y) + terms

        return loss


class FedProto(_Prototypes):
    """Nothing but prototypes is shared; every client that has a class counts once."""

    averaged = statistics = ()
    kept = (*BACKBONE, *HEAD, *STATISTICS)

    def loss(self, client, x, y):
        known = np.array([c in self.prototypes for c in y], bool)[:, None]
        targets = np.array([self.prototypes.get(c, np.zeros(WIDTH)) for c in y])

        def loss(v):
            h = features(v, x, True)
            distance = (known * (h - targets) ** 2).mean()
            return (
                cross_entropy(h @ v["W"] + v["b"], y) + self.options["distance_weight"] * distance
            )

        return loss

    def collect(self, cohort, found):
        for c, means in self.means(cohort, found).items():
            if means:
                self.prototypes[c] = np.mean([mean for mean, _ in means], axis=0)

    def tune(self, client, values, x, y):
        return self.local(client, values, x, y)

    def classify(self, client, x, tuned):
        """The class of the nearest prototype, of the head if there is none to compare."""
        values = self.values(client)
        if tuned:
            y = np.array(LABELS[client], int)
            values = self.tune(client, values, inputs(client), y)
        known = [c for c in sorted(self.prototypes) if self.names(client, c)]
        if not known:
            return self.logits(values, x, False).argmax(axis=1)
        h = features(values, x, False)
        gaps = np.stack([((h - self.prototypes[c]) ** 2).sum(axis=1) for c in known], axis=1)
        return np.array(known)[gaps.argmin(axis=1)]

    def names(self, client, label):
        """Whether a client's model can answer with a class."""
        return self.options.get("candidates") == "all" or counts(client)[label] > 0


class FedProc(_Projected, _WeightedPrototypes):
    """Contrast with the prototypes first, cross-entropy at the end."""

    def represent(self, v, x, training):
        return self.projected(v, x, training)

    def loss(self, client, x, y):
        known = sorted(self.prototypes)
        rows = np.flatnonzero(np.isin(y, known))
        fading = self.options.get("contrast_weight", 1.0) * (1 - self.number / ROUNDS)
        share = fading if len(rows) else 0.0

        def loss(v):
            z = self.projected(v, x, True)
            plain = cross_entropy(z @ v["W"] + v["b"], y)
            if not share:
                return plain
            anchors = unit(np.array([self.prototypes[c] for c in known]))
            cosines = unit(z[rows]) @ anchors.T / self.options["temperature"]
            contrast = cross_entropy(cosines, np.searchsorted(known, y[rows]))
            return share * contrast + (1 - share) * plain

        return loss


class FedLoGe(FedAvg):
    """The backbone learns from a fixed frame F; heads W, b (averaged) and V, c (kept) listen."""

    kept = ("V", "c")

    def loss(self, client, x, y):
        def loss(v):
            h = features(v, x, True)
            heads = (h @ v["F"], h.real @ v["W"] + v["b"], h.real @ v["V"] + v["c"])
            return sum(cross_entropy(logits, y) for logits in heads)

        return loss

    def overall(self, x):
        v = self.server
        return features(v, x, False) @ (1.7 * unit(v["W"], axis=0)) + v["b"]

    def realigned(self, values):
        """The directions of the averaged head with the lengths of the client's own."""
        return values | {"V": values["W"] * length(values["V"], 0), "c": values["b"]}

    def personal(self, client, x, tuned):
        values = self.realigned(self.values(client))
        if tuned:
            own, y = inputs(client), np.array(LABELS[client], int)

            def loss(x, y):
                return lambda v: cross_entropy(features(v, x, False) @ v["V"] + v["c"], y)

            epochs = self.options["finetune_epochs"]
            values = train(values, ["V", "c"], loss, epochs, own, y, statistics_of=())
        return features(values, x, False) @ values["V"] + values["c"]


class FedGELA(FedAvg):
    """Cosines with a fixed frame F, times s; clients multiply them by Φ."""

    averaged = tuple(BACKBONE)

    def logits(self, v, x, training):
        return self.options["scale"] * unit(features(v, x, training)) @ v["F"]

    def phi(self, client):
        n = counts(client)
        return CLASSES * n / n.sum() if n.sum() else np.ones(CLASSES)

    def loss(self, client, x, y):
        held = np.arange(CLASSES)
        if self.options.get("masked"):
            held = np.flatnonzero(counts(client))
        position = np.searchsorted(held, y)

        def loss(v):
            return cross_entropy((self.phi(client) * self.logits(v, x, True))[:, held], position)

        return loss

    def tune(self, client, values, x, y):
        return self.local(client, values, x, y)

    def answer(self, client, values, x):
        return self.phi(client) * self.logits(values, x, False)


class LocalAdaptation(FedGELA):
    """FedGELA with a trained head instead of the frame."""

    averaged = (*BACKBONE, *HEAD)

    def logits(self, v, x, training):
        return unit(features(v, x, training)) @ v["W"] + v["b"]


class FedGE(FedGELA):
    def phi(self, client):
        return np.ones(CLASSES)


class FedETF(FedAvg):
    """Cosines of a projection P, p with a fixed frame F, times a trained s; balanced locally."""

    averaged = (*BACKBONE, "P", "p", "s")

    def logits(self, v, x, training):
        return v["s"] * (unit(features(v, x, training) @ v["P"] + v["p"]) @ v["F"])

    def loss(self, client, x, y):
        held = np.flatnonzero(counts(client))
        prior, position = np.log(counts(client)[held]), np.searchsorted(held, y)
        return lambda v: cross_entropy(self.logits(v, x, True)[:, held] + prior, position)

    def tune(self, client, values, x, y):
        values, epochs = self.local(client, values, x, y), self.options["finetune_epochs"]
        for _ in range(self.options["finetune_cycles"]):
            values = train(values, ["F"], self.plain, epochs, x, y, rate=0.1, plain=True)
            values = train(values, ["P", "p"], self.plain, epochs, x, y, rate=0.05)
        return values
