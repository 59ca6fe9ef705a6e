"""FedGE: the global half of FedGELA.

Federated Learning with Bilateral Curation for Partially Class-Disjoint Data; Z. Fan, R. Zhang, J.
Yao, B. Han, Y. Zhang, Y. Wang; NeurIPS 2023. "GE" in its ablation (table 4).

Differs from FedAvg in the head: instead of a trained one, a simplex equiangular tight frame that is
the same at every client and never moves, behind a linear projection. Logits are the scaled cosines
between the feature and the frame's columns, so that a class that a client lacks keeps its place in
the feature space.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.methods.method import Method, Placement, register
from tff_pcdd.options import option

with epy.lazy_imports():
    from tff_pcdd import layers


@register
@dataclasses.dataclass(frozen=True)
class FedGE(Method):
    """FedAvg with a fixed simplex-ETF classifier."""

    name = "fedge"
    # The frame's columns point everywhere, features after a ReLU only where nothing is negative,
    # so a linear layer stands between them (84 for ten classes, 512 for a hundred in the paper).
    projection_dim = 84

    scale: float = option(
        1.0,
        "Length of the classifier vectors: logits are this times the cosine. The papers' nets take "
        "1e3 to 1e6, small nets learn best near 1.",
        above=0,
    )
    features: str = option(
        "l2",
        "Normalisation of the feature before the head: l2 (paper), bn (authors' code), bn_l2.",
        choices=("l2", "bn", "bn_l2"),
    )

    def build(self, task):
        return {
            "backbone": task.backbone(),
            "normalization": layers.FeatureNormalization(self.features),
            "head": layers.FixedETF(
                task.num_classes, seed=task.seed, scale=self.scale, normalize=False
            ),
        }

    def least_features(self, num_classes):
        return num_classes

    def placement(self, part, layer):
        return Placement.FIXED if part == "head" else Placement.SHARED

    def embed(self, net, x, training):
        return net["normalization"](net["backbone"](x, training=training), training=training)
