"""FedDecorr: decorrelated features.

Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning; Y.
Shi, J. Liang, W. Zhang, V. Y. F. Tan, S. Bai; ICLR 2023.

Differs from FedAvg in a term of the local loss, cross-entropy + β·L_decorr. It penalizes
correlations between the features of a batch, so that the features of clients with few classes do
not collapse to a few dimensions. FedMR's intra-class term does the same within each class. With β =
0 it is FedAvg.

The paper's L_decorr is ‖K‖²/d², where K is the correlation matrix of the d features of a batch. The
published values of β belong to the authors' code. It takes the mean of the off-diagonal entries of
(X̂ᵀX̂)², divided by the number N of samples, where X̂ are the standardized features. Since X̂ᵀX̂ is
N - 1 times K, this is about N times as large as the paper's term. The default is the term of the
code; `form=paper` selects that of the paper.

The published β, 0.1 (0.05 for CIFAR-100), is the value for MobileNetV2. It is too large for a small
network and clients with two classes: on digits (P10C2, 20 rounds, learning rate 0.05, seed 0) the
GA was 39.6 % with β = 0.1 and 69.6 % with 0.01, and 69.4 % with FedAvg. With 84 linear features
(`projection_dim=84`), as in FedMR, the three values were 51.8 %, 75.5 % and 64.6 %. The reason may
be that the features that distinguish two classes are correlated, too.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import cross_entropy
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses


@register
@dataclasses.dataclass(frozen=True)
class FedDecorr(Method):
    """FedAvg with a penalty on correlations between features."""

    name = "feddecorr"
    metric_names = ("correlation",)
    degenerate: ClassVar = {"beta": 0.0}
    tuning: ClassVar = {"beta": (0.01, 0.05, 0.1)}

    beta: float = option(0.1, "β, weight of the penalty.", minimum=0)
    form: str = option(
        "code",
        "Scale of the penalty: as in the authors' code (for which 0.1 is the published weight), or "
        "as in the paper (smaller by a factor of about the batch size).",
        choices=("code", "paper"),
    )

    def loss(self, net, batch, client):
        features = self.embed(net, batch.x, training=True)
        loss, correlation = cross_entropy(batch.y, net["head"](features)), tf.constant(0.0)
        if self.beta:
            correlation = losses.decorrelation(features, self.form)
            loss += self.beta * correlation
        return loss, {"correlation": correlation}
