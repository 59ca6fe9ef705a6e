"""FedMR: manifold reshaping.

Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping; Z. Fan, J. Yao, R.
Zhang, L. Lyu, Y. Zhang, Y. Wang; TMLR 2023.

Differs from FedAvg in two terms of the local loss, cross-entropy + μ1·L_intra + μ2·L_inter. The
intra-class term (eq. 3) decorrelates the features of each class, so that a client's few classes do
not collapse to a few dimensions. The inter-class term (eq. 4) keeps features nearer to the global
prototype of their own class than to those of other classes, including classes that the client
lacks. After training, clients upload the sum of the features and the count of each of their
classes; the server divides the summed features by the summed counts, and keeps the previous
prototype of a class that no client had. If only a share of the clients upload prototypes (table 5),
they are chosen once, before the first round: each client is drawn with this probability, so their
number varies around the share. With μ1 = μ2 = 0 it is FedAvg.

Where the paper is ambiguous, `reading` selects the prototypes that a sample is compared with (the
formula needs samples of both classes, the text does not). Standard deviations divide by N - 1 and
the paper's by N, so M has (N - 1)/N times the paper's entries. A class has no prototype until a
client has trained on it. The authors' code contains only the intra-class term, on a different scale
(`form="code"`).

The default of μ1 is for 84 features, the width of the projection that the method has by default
with every model. With another `projection_dim`, 0 included, the features may have another width,
such as 512 for ResNet18; the intra-class term is then (width/84)² times as strong, and a warning
names the weight that suits it. The flagfiles of the paper's tables set both, so none warns."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.prototypes import PrototypeMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.methods.records import Upload
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

# The default of μ1, and the width of the features that it is for.
_MU1, _WIDTH = 1e-4, 84


@register
@dataclasses.dataclass(frozen=True)
class FedMR(PrototypeMethod):
    """FedAvg with intra-class decorrelation and an inter-class prototype margin."""

    name = "fedmr"
    metric_names = ("intra", "inter")
    # With features after a ReLU, a small network minimizes the intra-class term by switching units
    # off, which costs accuracy; linear features can only be decorrelated. The paper's features are
    # pooled and wide.
    projection_dim = _WIDTH
    degenerate: ClassVar = {"mu1": 0.0, "mu2": 0.0}
    tuning: ClassVar = {"mu1": (1e-5, 1e-4, 1e-3)}

    mu1: float = option(
        _MU1,
        "Weight of the intra-class term for 84 features. The term is a sum over pairs of features; "
        "for d features multiply the weight by (84/d)^2.",
        minimum=0,
    )
    mu2: float = option(1e-4, "Weight of the inter-class term.", minimum=0)
    form: str = option(
        "frobenius",
        "Intra-class term: squared Frobenius norm (paper), its off-diagonal part, or as in the "
        "authors' code.",
        choices=("frobenius", "offdiagonal", "code"),
    )
    reading: str = option(
        "all",
        "Prototypes of other classes in the inter-class term: all, local (classes in the batch), "
        "missing (classes not in the batch) or nomargin (none, only the distance to the prototype "
        "of the own class).",
        choices=("all", "local", "missing", "nomargin"),
    )
    normalize: bool = option(
        False, "Scale features and prototypes to length 1 in the inter-class term."
    )
    inter_samples: int = option(
        0,
        "Samples of a batch in the inter-class term; 0 for all (the paper's Lite: 10 or 50).",
        minimum=0,
    )
    warmup_rounds: int = option(0, "Rounds without the inter-class term.", minimum=0)
    prototype_share: float = option(
        1.0,
        "Share of clients that upload prototypes (paper, table 5). Each client is chosen with this "
        "probability, once for all rounds.",
        minimum=0,
        maximum=1,
    )

    def advice_on_width(self, feature_dim):
        # The authors' code takes the mean over pairs of features.
        if self.mu1 != _MU1 or feature_dim == _WIDTH or self.form == "code":
            return None
        factor = (feature_dim / _WIDTH) ** 2
        return (
            f"{self.prefix()}mu1={self.mu1:g} is for {_WIDTH} features: with {feature_dim}, the "
            f"intra-class term is {factor:.2g} times as strong; take "
            f"{self.prefix()}mu1={self.mu1 / factor:.2g} or projection_dim={_WIDTH}"
        )

    def client_state(self, net, task, seed):
        if self.prototype_share == 1:
            return {}
        chosen = tf.random.stateless_uniform([], seed) < self.prototype_share
        return {"sends_prototypes": tf.cast(chosen, tf.float32)}

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
                # Distances between unit vectors are at most 2, so the term is bounded.
                features, prototypes = (tf.nn.l2_normalize(v, 1) for v in (features, prototypes))
            if self.inter_samples:
                # The batch is shuffled, so its first samples are a random subset.
                features, labels = features[: self.inter_samples], labels[: self.inter_samples]
            valid = tf.logical_and(client.server["valid"], client.round >= self.warmup_rounds)
            inter = losses.inter_class(features, labels, prototypes, valid, self.reading)
            loss += self.mu2 * inter
        return loss, {"intra": intra, "inter": inter}

    def upload(self, net, client, reduce):
        upload = super().upload(net, client, reduce)
        sent = client.state.get("sends_prototypes", tf.constant(1.0))
        sums = {name: sent * total for name, total in upload.sums.items()}
        return Upload(sums, upload.state, sent)
