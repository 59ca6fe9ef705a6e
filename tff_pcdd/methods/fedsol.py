"""FedSOL: stabilized orthogonal learning.

FedSOL: Stabilized Orthogonal Learning with Proximal Restrictions in Federated Learning; G. Lee, M.
Jeong, S. Kim, J. Oh, S.-Y. Yun; CVPR 2024.

Differs from FedAvg in the weights at which the local gradient is computed. A step moves the weights
w along the gradient of the client's loss at perturbed weights, ∇f_k(w + ε). The perturbation is ε =
ρ·Λ ⊙ g/‖g‖, where g is the gradient of KL(received ‖ local) at temperature T, so the perturbed
model departs from the predictions of the received model w_t. The strengths Λ are |w - w_t|, scaled
to length 1 along the output units of each weight. Weights that have moved far are thus perturbed
more, and there is no perturbation in the first step of a round. The received model is in eval mode.
Normalization layers update their averages at w and not at w + ε. With ρ = 0 it is FedAvg.

In the authors' code, which is in PyTorch, the output units are the first axis of a weight; in
Keras, they are the last one. The kernel of a depthwise convolution, [height, width, inputs, outputs
of each], is an exception: its output units are its last two axes. Its last axis alone usually has
one entry, so every strength would be 1. In EfficientNet-B0, this would be 7 to 43 times as much as
along both axes (for normally distributed w - w_t).

A step computes two gradients. Formulas and defaults are those of the adaptive variant in the
authors' code, which perturbs all weights; `perturb=head` perturbs the head only.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods._shared.gradients import gradients_at, gradients_of, with_gradients
from tff_pcdd.methods._shared.received import ReceivedModelMethod
from tff_pcdd.methods.contract import register
from tff_pcdd.methods.network import Network, cross_entropy, owned_weights
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

# Keeps the direction finite where the predictions of both models are the same.
_TINY = 1e-12


@register
@dataclasses.dataclass(frozen=True)
class FedSOL(ReceivedModelMethod):
    """FedAvg with gradients at weights that are perturbed away from the received model."""

    name = "fedsol"
    metric_names = ("divergence",)
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
