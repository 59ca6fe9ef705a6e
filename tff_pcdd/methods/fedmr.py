"""FedMR: manifold reshaping.

Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping; Z. Fan, J. Yao,
R. Zhang, L. Lyu, Y. Zhang, Y. Wang; TMLR 2023.

Differs from FedAvg in two terms of the local loss, cross-entropy + μ1·L_intra + μ2·L_inter. The
intra-class term (eq. 3) decorrelates the features of each class, so that a client's few classes do
not collapse onto few dimensions. The inter-class term (eq. 4) keeps features nearer to the global
prototype of their own class than to those of others, also of classes that the client lacks. After
training, clients upload the mean feature of each of their classes with its count; the server
averages them by counts and keeps the last value for a class that nobody held.

Where the paper is open: `reading` says which prototypes a sample is held against (the paper's pairs
need samples of both classes; its prose does not), and before a class was first seen its prototype
takes no part. The authors' code has the intra-class term only, in another scale (`form="code"`).
With μ1 = μ2 = 0 it is FedAvg.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.method import Upload, cross_entropy, register
from tff_pcdd.methods.prototypes import PrototypeMethod
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedMR(PrototypeMethod):
    """FedAvg with intra-class decorrelation and an inter-class prototype margin."""

    name = "fedmr"
    metric_names = ("intra", "inter")
    # Behind a ReLU a small network meets the intra-class term by switching units off, which costs
    # accuracy; linear features leave it no way but to decorrelate. The paper's are pooled and wide.
    projection_dim = 84
    degenerate: ClassVar = {"mu1": 0.0, "mu2": 0.0}

    mu1: float = option(
        1e-4,
        "Weight of the intra-class term, for 84 features; a sum over pairs of features, it wants "
        "(84/d)^2 of that with d.",
        minimum=0,
    )
    mu2: float = option(1e-4, "Weight of the inter-class term.", minimum=0)
    form: str = option(
        "frobenius",
        "Intra-class term: whole squared Frobenius norm (paper), its off-diagonal part, or the "
        "authors' code.",
        choices=("frobenius", "offdiagonal", "code"),
    )
    reading: str = option(
        "all",
        "Other prototypes in the inter-class term: all, local (classes in the batch), missing "
        "(classes not in it), nomargin (none, only the distance to the own one).",
        choices=("all", "local", "missing", "nomargin"),
    )
    normalize: bool = option(
        False, "Hold features of length 1 against prototypes of length 1 in the inter-class term."
    )
    inter_samples: int = option(
        0,
        "Samples of a batch in the inter-class term, 0 for all (the paper's Lite: 10, 50).",
        minimum=0,
    )
    warmup_rounds: int = option(0, "Rounds without the inter-class term.", minimum=0)
    prototype_share: float = option(
        1.0, "Share of clients that upload prototypes (paper, table 5).", minimum=0, maximum=1
    )

    def loss(self, net, batch, client):
        features = net["backbone"](batch.x, training=True)
        loss = cross_entropy(batch.y, net["head"](features))
        intra = inter = tf.constant(0.0)
        if self.mu1:
            num_classes = client.class_counts.shape[0]
            intra = losses.intra_class(features, batch.y, num_classes, self.form)
            loss += self.mu1 * intra
        if self.mu2:
            labels, prototypes = batch.y, client.server["prototypes"]
            if self.normalize:
                # A distance between unit vectors is 2 at most: the term cannot run away.
                features, prototypes = (tf.nn.l2_normalize(v, 1) for v in (features, prototypes))
            if self.inter_samples:
                # The batch is shuffled, so its first samples are a random choice.
                features, labels = features[: self.inter_samples], labels[: self.inter_samples]
            valid = tf.logical_and(client.server["valid"], client.round >= self.warmup_rounds)
            inter = losses.inter_class(features, labels, prototypes, valid, self.reading)
            loss += self.mu2 * inter
        return loss, {"intra": intra, "inter": inter}

    def upload(self, net, client, reduce):
        upload = super().upload(net, client, reduce)
        draw = tf.random.stateless_uniform([], client.seed)
        sent = tf.cast(draw < self.prototype_share, tf.float32)
        return Upload({name: sent * total for name, total in upload.sums.items()}, {}, sent)
