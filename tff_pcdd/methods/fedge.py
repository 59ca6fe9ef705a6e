"""FedGE: the globally fixed half of FedGELA.

Federated Learning with Bilateral Curation for Partially Class-Disjoint Data; Z. Fan, R. Zhang, J.
Yao, B. Han, Y. Zhang, Y. Wang; NeurIPS 2023. "GE" in its ablation (table 4).

Differs from FedAvg in the head: instead of a trained head there is a simplex equiangular tight
frame (ETF), the same for all clients and never trained, behind a linear projection. Logits are the
scaled cosines between the feature and the frame's columns, so that a class that a client lacks
keeps its direction in feature space.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.fixed_head import FixedHeadMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.settings import option

with epy.lazy_imports():
    from tff_pcdd import layers

# From about here on, the cross-entropy almost vanishes once the cosine to the column of the class
# exceeds those to others by a few hundredths, and so do the gradients of the features.
_LARGE_SCALE = 300


@register
@dataclasses.dataclass(frozen=True)
class FedGE(FixedHeadMethod):
    """FedAvg with a fixed simplex-ETF classifier."""

    name = "fedge"
    # The frame's columns have negative entries, features after a ReLU do not, so there is a linear
    # layer between them (in the paper, of width 84 for ten classes and 512 for a hundred).
    projection_dim = 84
    tuning: ClassVar = {"scale": (0.3, 1.0, 3.0)}

    scale: float = option(
        1.0,
        "Length of the classifier vectors; logits are this length times the cosine. The papers use "
        "1e3 to 1e6; small networks learn best with about 1.",
        above=0,
    )
    features: str = option(
        "l2",
        "Normalization of features before the head: l2 (paper), bn (authors' code) or bn_l2.",
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

    def advice_on_backbone(self, has_normalization):
        if self.scale < _LARGE_SCALE or self.features != "l2" or has_normalization is not False:
            return None
        return (
            f"{self.prefix()}scale={self.scale:g} with a network that has no normalization layers: "
            f"its features hardly learn; take {self.prefix()}scale=1. With normalization layers, "
            "as in model=simple_cnn_bn, less is lost"
        )

    def embed(self, net, x, training):
        return net["normalization"](net["backbone"](x, training=training), training=training)
