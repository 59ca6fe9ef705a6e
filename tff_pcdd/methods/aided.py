"""Other methods, aided by prototypes as in FedMR, with FedMR's inter-class term.

Federated Learning under Partially Class-Disjoint Data via Manifold Reshaping; Z. Fan, J. Yao, R.
Zhang, L. Lyu, Y. Zhang, Y. Wang; TMLR 2023 (table 8).

Differs from the method in its name (`fedprox_prototypes` from FedProx) in two ways: the local loss
has the additional term μ2·L_inter (eq. 4), and prototypes are uploaded, averaged and broadcast as
in FedMR. The term is that of FedMR's default reading, and the features are those that the head
receives. The settings are those of the method (such as `fedprox_mu`) and `prototypes_mu2`. The
weights are those of the method if μ2 = 0. The paper does not report μ2 or how the term was added.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.prototypes import PrototypeMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.feddc import FedDC
from tff_pcdd.methods.feddyn import FedDyn
from tff_pcdd.methods.fednova import FedNova
from tff_pcdd.methods.fedprox import FedProx
from tff_pcdd.methods.moon import Moon
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_SUFFIX = "_prototypes"


@dataclasses.dataclass(frozen=True)
class Aided(PrototypeMethod):
    """Adds prototypes and the inter-class term to the method that is the next base class."""

    metric_names: ClassVar[tuple[str, ...]] = ("inter",)

    mu2: float = option(
        1e-4,
        "Weight of FedMR's inter-class term in methods aided by prototypes.",
        minimum=0,
        setting="prototypes_mu2",
    )

    @classmethod
    def prefix(cls):
        return f"{cls.name.removesuffix(_SUFFIX)}_"

    def loss(self, net, batch, client):
        inputs = []

        def head(features):
            inputs.append(features)
            return net["head"](features)

        loss, metrics = super().loss(net.replacing(head=head), batch, client)
        inter = tf.constant(0.0)
        if self.mu2:
            server = client.server
            inter = losses.inter_class(inputs[0], batch.y, server["prototypes"], server["valid"])
            loss += self.mu2 * inter
        return loss, {**metrics, "inter": inter}


@register
@dataclasses.dataclass(frozen=True)
class AidedFedProx(Aided, FedProx):
    """FedProx with FedMR's prototypes and inter-class term."""

    name = f"fedprox{_SUFFIX}"
    degenerate: ClassVar = {"mu": 0.0, "mu2": 0.0}


@register
@dataclasses.dataclass(frozen=True)
class AidedFedNova(Aided, FedNova):
    """FedNova with FedMR's prototypes and inter-class term."""

    name = f"fednova{_SUFFIX}"
    tuning: ClassVar = {"mu2": (1e-5, 1e-4, 1e-3)}


@register
@dataclasses.dataclass(frozen=True)
class AidedMoon(Aided, Moon):
    """MOON with FedMR's prototypes and inter-class term."""

    name = f"moon{_SUFFIX}"
    metric_names = (*Moon.metric_names, "inter")
    degenerate: ClassVar = {"mu": 0.0, "projection_width": 0, "mu2": 0.0}


@register
@dataclasses.dataclass(frozen=True)
class AidedFedDyn(Aided, FedDyn):
    """FedDyn with FedMR's prototypes and inter-class term."""

    name = f"feddyn{_SUFFIX}"


@register
@dataclasses.dataclass(frozen=True)
class AidedFedDC(Aided, FedDC):
    """FedDC with FedMR's prototypes and inter-class term."""

    name = f"feddc{_SUFFIX}"
