"""FedSOL: stabilized orthogonal learning.

FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning; G. Lee, M.
Jeong, S. Kim, J. Oh, S.-Y. Yun; CVPR 2024.

Differs from FedAvg in where the local gradient is taken. A step moves the weights w along the
gradient of the client's loss at perturbed weights, ∇f_k(w + ε), where ε is the direction in which
the model departs fastest from what the received model w_t says: with g the gradient of
KL(received ‖ local) at temperature T, ε = ρ·Λ ⊙ g/‖g‖. The strengths Λ are |w - w_t|, scaled to
length 1 along the output units of each weight, so that weights that have moved far are perturbed
more, and there is no perturbation in the first step of a round. The received model is in eval mode.
Normalization layers update their averages at w and not at w + ε. With ρ = 0 it is FedAvg.

The output units are the first axis of a weight in the authors' code, which is in PyTorch, and the
last one in Keras. Only a depthwise convolution divides them among its last two axes, [height,
width, inputs, outputs of each]. The last axis alone usually has one entry, so every strength would
be 1; in EfficientNet-B0, that is 7 to 43 times as much as along both axes (for normally distributed
w - w_t).

A step computes two gradients. Formulas and defaults are those of the authors' code for its adaptive
variant, which perturbs all weights; `perturb=head` perturbs the head only.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.contract import register
from tff_pcdd.methods.gradients import gradients_at, gradients_of, with_gradients
from tff_pcdd.methods.network import Network, cross_entropy, owned_weights
from tff_pcdd.methods.received import ReceivedModelMethod
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

# Keeps the direction finite where both models say the same.
_TINY = 1e-12


@register
@dataclasses.dataclass(frozen=True)
class FedSOL(ReceivedModelMethod):
    """FedAvg with gradients at weights that depart from the received model."""

    name = "fedsol"
    metric_names: ClassVar[tuple[str, ...]] = ("divergence",)
    degenerate: ClassVar = {"rho": 0.0}
    tuning: ClassVar = {"rho": (0.5, 1.0, 2.0)}

    rho: float = option(1.0, "ρ, strength of the perturbation.", minimum=0)
    temperature: float = option(3.0, "T, temperature of both models in the divergence.", above=0)
    perturb: str = option(
        "all", "Weights that are perturbed: all or those of the head.", choices=("all", "head")
    )

    @property
    def compares(self):
        return self.rho > 0

    def loss(self, net, batch, client):
        if not self.rho:
            return (*super().loss(net, batch, client)[:1], {"divergence": tf.constant(0.0)})
        received = self.received_logits(net, batch.x)

        def logits():
            return net["head"](self.embed(net, batch.x, training=True))

        def departure():
            return losses.divergence(received / self.temperature, logits() / self.temperature)

        def local_loss():
            return cross_entropy(batch.y, logits())

        originals = self.received_values(net)
        variables = net.common
        divergence, directions = gradients_of(departure, variables)
        if self.perturb == "head":
            head = {variable.ref() for variable in net["head"].trainable_weights}
            directions = [
                g if v.ref() in head else tf.zeros_like(g)
                for v, g in zip(variables, directions, strict=True)
            ]
        scale = self.rho / (tf.linalg.global_norm(directions) + _TINY)
        axes = _output_axes(net)
        perturbed = [
            v + scale * losses.l2_normalize(tf.abs(v - originals[v.ref()]), axes[v.ref()]) * g
            for v, g in zip(variables, directions, strict=True)
        ]
        statistics = [*net.shared.statistics, *net.mirrored.statistics]
        value, gradients = gradients_at(perturbed, local_loss, variables, statistics)
        return with_gradients(value, variables, gradients), {"divergence": divergence}


def _output_axes(net: Network) -> dict[object, int | tuple[int, int]]:
    """The axes of the output units of each weight, by references to the variables."""
    return {
        variable.ref(): (-2, -1) if variable is getattr(owner, "depthwise_kernel", None) else -1
        for part in (net["backbone"], net["head"])
        for variable, owner in owned_weights(part)
    }
