"""FedLoGe: joint local and generic learning under long tails.

FedLoGe: Joint Local and Generic Federated Learning under Long-tailed Data; Z. Xiao, Z. Chen, L.
Liu, Y. Feng, J. Wu, W. Liu, J. T. Zhou, H. H. Yang, Z. Liu; ICLR 2024.

Differs from FedAvg in the heads. The backbone is trained with SSE-C, a fixed sparse frame with
equal norms and maximal angles (eq. 3 to 5), which does not favor large classes. Two more heads are
trained on the same features without a gradient to the backbone: ψ is averaged, φ_k is kept by each
client. The column norms of ψ follow the global class sizes, those of φ_k the client's. For the
global model, GA-FR scales the columns of ψ to the same length (eq. 6); for the personal model,
LA-FR gives them the lengths of φ_k's columns (eq. 7).

Where the paper and its code differ:
- `scale` is 1.7 and the bias of ψ is kept (code); the paper has 1.
- The three heads are trained on the same features of a batch (code); the paper alternates.
- SSE-C has no bias (paper).
- `personal_head` selects one of their versions of the personal model.

Options reproduce the ablations: dense frames (`sparsity=0`) of every initialization, with columns
of length γ (the paper does not state their length), the frame as the global model (`global_head`),
the dot-regression loss (`frame_loss`), and LA-FR by the client's class shares instead of the
lengths of φ (`local_lengths`).

The authors' code uses γ = 0.1 (the paper calls about 1 the best), with which a backbone needs
hundreds of rounds; with the default here it learns in tens of rounds. The authors' tables leave out
classes that a client's test samples lack; the column "own classes", nearest to that, leaves out
those that the client does not train on.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods.contract import Method, register
from tff_pcdd.methods.network import Placement, cross_entropy, linear_head
from tff_pcdd.methods.records import Phase
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import layers, losses, realignment


@register
@dataclasses.dataclass(frozen=True)
class FedLoGe(Method):
    """FedAvg with a fixed sparse frame, an averaged and a personal auxiliary head."""

    name = "fedloge"
    tuning: ClassVar = {"norm": (0.1, 1.0, 2.0)}
    linear_head = "psi"

    norm: float = option(2.0, "γ, length of the frame's columns (authors' code: 0.1).", above=0)
    sparsity: float = option(
        0.6,
        "β, share of zero entries in the frame; 0 for a dense frame, which is not optimized.",
        minimum=0,
        maximum=0.99,
    )
    initialization: str = option(
        "etf",
        "Initial matrix of the frame, before entries are set to zero (paper, table 9). If "
        "`sparsity` is 0, it is the frame, with columns scaled to length γ.",
        choices=("etf", "xavier", "gaussian", "uniform", "orthogonal", "kaiming"),
    )
    frame_loss: str = option(
        "cross_entropy",
        "Loss of the frame, which trains the backbone: cross_entropy or dot_regression (DR loss, "
        "which does not depend on γ; paper, table 8).",
        choices=("cross_entropy", "dot_regression"),
    )
    global_head: str = option(
        "psi",
        "Head of the global model: psi (after GA-FR) or frame (paper, table 8 and figure 3).",
        choices=("psi", "frame"),
    )
    scale: float = option(1.7, "Length of the columns of ψ after GA-FR.", above=0)
    realign: bool = option(True, "Realign ψ for the global model (GA-FR).")
    realign_bias: str = option(
        "keep", "Whether GA-FR keeps or drops the bias of ψ.", choices=("keep", "drop")
    )
    personal_head: str = option(
        "realigned",
        "Head of the personal model: realigned (φ', eq. 7), phi+realigned (authors' code), "
        "realigned+psi (authors' README) or phi+psi (without LA-FR).",
        choices=("realigned", "phi+realigned", "realigned+psi", "phi+psi"),
    )
    local_lengths: str = option(
        "phi",
        "Factors by which LA-FR multiplies the columns of ψ: phi (the lengths of φ's columns, eq. "
        "7) or counts (the shares of the classes in the client's training samples; table 7).",
        choices=("phi", "counts"),
    )
    finetune_epochs: int = option(
        0, "Epochs of fine-tuning the personal head after realignment.", minimum=0
    )

    def build(self, task):
        if self.sparsity:
            self._check_frame(task)
            frame = layers.SparseETF(
                task.num_classes,
                seed=task.seed,
                sparsity=self.sparsity,
                norm=self.norm,
                init=self.initialization,
            )
        elif self.initialization == "etf":
            frame = layers.FixedETF(
                task.num_classes, seed=task.seed, scale=self.norm, normalize=False
            )
        else:
            frame = layers.FixedHead(
                task.num_classes,
                layers.DenseFrameInitializer(task.seed, self.norm, self.initialization),
            )
        return {
            "backbone": task.backbone(),
            "frame": frame,
            "psi": linear_head(task),
            "phi": linear_head(task),
        }

    def _check_frame(self, task):
        width = task.feature_dim
        empty = layers.empty_class(width, task.num_classes, self.sparsity, task.seed)
        if empty is not None:
            reason = (
                f"leaves no entry for class {empty} among those of {width} features; "
                "choose a lower one, more features (projection_dim) or another seed"
            )
            raise SettingError(f"{self.prefix()}sparsity", self.sparsity, reason)

    @property
    def fixed_head(self):
        return "has a fixed head" if self.global_head == "frame" else None

    def least_features(self, num_classes):
        return num_classes

    def placement(self, part, layer):
        places = {"frame": Placement.FIXED, "phi": Placement.PERSONAL}
        return places.get(part, Placement.SHARED)

    def initial_personal(self, net, seed):
        """Draws φ independently for each client, uniformly in ±1/sqrt(d)."""
        bound = net["phi"].kernel.shape[0] ** -0.5
        return [
            tf.random.stateless_uniform(
                variable.shape,
                tf.random.experimental.stateless_fold_in(seed, number),
                -bound,
                bound,
            )
            for number, variable in enumerate(net.personal.all)
        ]

    def loss(self, net, batch, client):
        features = net["backbone"](batch.x, training=True)
        stopped = tf.stop_gradient(features)
        if self.frame_loss == "dot_regression":
            loss = losses.dot_regression(features, batch.y, net["frame"].kernel)
        else:
            loss = cross_entropy(batch.y, net["frame"](features))
        for head in ("psi", "phi"):
            loss += cross_entropy(batch.y, net[head](stopped))
        return loss, {}

    def global_logits(self, net, x):
        features = net["backbone"](x, training=False)
        psi = net["psi"]
        logits = {}
        if self.realign:
            logits["gafr"] = features @ realignment.global_realign(psi.kernel, self.scale)
            if self.realign_bias == "keep":
                # Keras cannot save a model with a variable outside of its layers.
                logits["gafr"] += tf.convert_to_tensor(psi.bias)
        logits |= {"psi": psi(features), "ssec": net["frame"](features)}
        chosen = "ssec" if self.global_head == "frame" else next(iter(logits))
        return {"": logits.pop(chosen), **logits}

    def personalize(self, net, client):
        """Sets φ to the client's whole head; a sum of linear heads is a linear head."""
        psi, phi = net["psi"], net["phi"]
        if self.local_lengths == "counts":
            samples = tf.reduce_sum(client.class_counts)
            # A client without training samples has ψ as it is.
            lengths = tf.where(samples > 0, client.class_counts / tf.maximum(samples, 1.0), 1.0)
            realigned = (psi.kernel * lengths, psi.bias)
        else:
            realigned = (realignment.local_realign(psi.kernel, phi.kernel), psi.bias)
        heads = {"phi": (phi.kernel, phi.bias), "psi": (psi.kernel, psi.bias)}
        chosen = [heads.get(name, realigned) for name in self.personal_head.split("+")]
        kernel, bias = sum(k for k, _ in chosen), sum(b for _, b in chosen)
        phi.kernel.assign(kernel)
        phi.bias.assign(bias)

    def personal_logits(self, net, x, client):
        return net["phi"](net["backbone"](x, training=False))

    def phases(self, net, epochs):
        # φ must not influence what the client sends, so its gradient is clipped separately.
        return [Phase(net.trainable, epochs, self.loss, apart=net.personal.trainable)]

    def personal_phases(self, net, epochs):
        def finetune(net, batch, client):
            features = net["backbone"](batch.x, training=False)
            return cross_entropy(batch.y, net["phi"](features)), {}

        return [Phase(net.personal.trainable, self.finetune_epochs, finetune)]

    def global_classifiers(self, net):
        """ψ as trained, before GA-FR equalizes the lengths of its columns, and the frame."""
        frame, psi = net["frame"].kernel, net["psi"].kernel
        return {"": frame, "psi": psi} if self.global_head == "frame" else {"": psi, "ssec": frame}
