"""The contract of a federated method; every default is that of FedAvg.

A method is a frozen dataclass whose options are its hyperparameters. It is plain TensorFlow: the
federated computations around it (`tff_pcdd.federated`) decide where and when its parts run. A
subclass overrides only what differs from FedAvg:

    part                        hooks                   default (FedAvg)
    model                       build, embed,           backbone and linear head; features of
                                least_features          any width
    placement of variables      placement               all shared: broadcast and averaged
    constants of a client       constants               none
    local loss and steps        loss, phases,           cross-entropy; all trainable variables
                                trained_variables
    client state                client_state,           none
                                initial_personal
    before training             begin, prepare          nothing; the client's labels as they are
    server state                server_state            none besides the weights
    communication               broadcast, update,      the weights; their change, weighted by
                                weight, upload          `client_weighting`; nothing else
    server step                 server_learning,        no training at the server; the mean
                                server_change,          change is added to the weights
                                server_update,
                                next_server_state
    global model                global_logits           logits of the head
    personal model              personalize,            the global model, before and after the
                                personal_logits,        local epochs
                                personal_phases
    head calibration            fixed_head              the server may re-train the head
    warnings                    advice                  none
    diagnostics                 global_classifiers,     the matrix of the head; the pieces of the
                                local_view              global model

Example, FedProx in full:

    @register
    @dataclasses.dataclass(frozen=True)
    class FedProx(Method):
        name = "fedprox"
        mu: float = option(0.01, "Weight of the proximal term.", minimum=0)

        def loss(self, net, batch, client):
            distance = sum(
                tf.nn.l2_loss(w - anchor)
                for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)
            )
            loss, metrics = super().loss(net, batch, client)
            return loss + self.mu * distance, metrics
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from etils import epy

from tff_pcdd.methods.hooks import CheckedHooks
from tff_pcdd.methods.network import Network, Placement, cross_entropy, linear_head, read
from tff_pcdd.methods.records import Batch, Client, Phase, TaskSpec, Upload
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Method(CheckedHooks, Component):
    """FedAvg, in parts that a method may replace; see the module docstring.

    Attributes:
        name: the name by which it is chosen; its settings are called `<name>_<option>`.
        metric_names: names of the scalars that `loss` returns besides the loss. Their means are
            reported as metrics of the round; each mean is over the samples of the phases that
            return the scalar.
        degenerate: options with which the method equals FedAvg bit for bit; None if there are none.
        projection_dim: default width of a linear layer behind the backbone; 0 for none.
        has_global_model: whether there is one model for all clients, on which GA can be measured.
        linear_head: the piece that classifies the features of `embed` in the global model, if it is
            a dense layer with a bias; `fixed_head` says whether the server may re-train it.
        head_calibration: the head calibration with which the name stands for FedAvg; "" for none.
        baseline: whether it is not federated, but a baseline for federated methods.
        pools_samples: whether the samples of all clients are in one place, which trains like a
            single client without client state. Nothing is sent in this case.
        tuning: what fair comparisons tune besides the learning rate: the option that is the
            method's main coefficient, with three values to try, including the default. Empty if the
            method has no such option.
        has_schedule: whether training depends on the planned number of rounds, `task.num_rounds`,
            which is None otherwise. More rounds cannot be added to such a run later. Schedules of
            the step size are settings of all methods and do not need this attribute.
        needs_images: whether local training transforms images, so that other inputs are refused.
        assumes_sgd: whether formulas of the method contain the step size or the momentum of SGD. If
            they do, other local optimizers are refused.
        published_weighting: the published weights of clients in means over the cohort: "samples"
            (their numbers of samples) or "uniform" (equal).
        client_weighting: the weights that are used.
    """

    metric_names: ClassVar[tuple[str, ...]] = ()
    degenerate: ClassVar[Mapping[str, Any] | None] = None
    projection_dim: ClassVar[int] = 0
    has_global_model: ClassVar[bool] = True
    linear_head: ClassVar[str] = "head"
    head_calibration: ClassVar[str] = ""
    baseline: ClassVar[bool] = False
    pools_samples: ClassVar[bool] = False
    tuning: ClassVar[Mapping[str, tuple[Any, Any, Any]]] = {}
    has_schedule: ClassVar[bool] = False
    needs_images: ClassVar[bool] = False
    assumes_sgd: ClassVar[bool] = False
    published_weighting: ClassVar[str] = "samples"

    # The options of subclasses stay the first positional arguments.
    _: dataclasses.KW_ONLY
    client_weighting: str = option(
        "published",
        "Weights of the clients of a round in the mean of their changes: samples (numbers of "
        "samples), uniform (equal for all clients with samples), or published (the one of them "
        "that the method's authors use). The aggregator dp is always uniform.",
        choices=("published", "uniform", "samples"),
        setting="client_weighting",
    )

    @classmethod
    def prefix(cls) -> str:
        return f"{cls.name}_"

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether a hook is not the default one, so that what it returns has to be computed."""
        return getattr(cls, hook) is not getattr(Method, hook)

    @classmethod
    def starts_from_global(cls) -> bool:
        """Whether all personal models are certainly the global model until their local steps."""
        return not any(map(cls.overrides, ("placement", "personalize", "personal_logits")))

    @property
    def code(self) -> Sequence[Any]:
        """The objects whose hooks are called, which may come from elsewhere."""
        return (self,)

    # The model.

    def build(self, task: TaskSpec) -> dict[str, tf.keras.layers.Layer]:
        """Makes the named Keras pieces of the network, with fresh variables each time."""
        return {"backbone": task.backbone(), "head": linear_head(task)}

    def least_features(self, num_classes: int) -> int:
        """The smallest width of features that the method's classifier can work with."""
        return 1

    @property
    def fixed_head(self) -> str | None:
        """Why the server cannot re-train the head of the global model; None if it can."""
        return None if self.has_global_model else "has no global model"

    def embed(self, net: Network, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Features [batch, d] that the global classifier receives."""
        return net["backbone"](x, training=training)

    def placement(self, part: str, layer: tf.keras.layers.Layer) -> Placement:
        """The placement of the variables that `layer`, somewhere inside piece `part`, owns."""
        return Placement.SHARED

    # Local training.

    def begin(self, net: Network, client: Client) -> None:
        """Fills scratch variables from the loaded weights, before training or evaluation."""
        del net, client  # AutoGraph cannot translate a function without a statement.

    def prepare(
        self, net: Network, client: Client, labels: tf.Tensor, apply: Callable[..., tf.Tensor]
    ) -> tuple[Client, tf.Tensor]:
        """What a client knows while it trains in a round, and the labels that it trains with.

        It is called after `begin`, for rounds and not for evaluations. Its own tensors, in
        `client.state`, are those that `upload` receives. Class counts and `upload` keep to the
        labels of the data.

        Args:
            net: the network before training.
            client: as after `begin`; `constants`, `state` and `optimizer` may be replaced.
            labels: int32 [n], those of the client's training samples.
            apply: `apply(function, width)` is `function(x)`, float32 [n, width], for all of these
                samples, in order and without augmentation.
        """
        return client, labels

    def constants(self, class_counts: tf.Tensor, task: TaskSpec) -> dict[str, tf.Tensor]:
        """Tensors that depend on the client's class counts, float32 [C]; computed once a round."""
        return {}

    def loss(
        self, net: Network, batch: Batch, client: Client
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The scalar training loss of a batch, and the scalars listed in `metric_names`."""
        logits = net["head"](self.embed(net, batch.x, training=True))
        return cross_entropy(batch.y, logits), {}

    def phases(self, net: Network, epochs: int) -> list[Phase]:
        """The stages of local training in order; each starts with zero momentum."""
        return [Phase(self.trained_variables(net), epochs, self.loss)]

    def trained_variables(self, net: Network) -> list[tf.Variable]:
        """What local training and fine-tuning move, unless their phases name other variables."""
        return net.trainable

    # State and communication.

    @property
    def weighting(self) -> str:
        """The weights of clients in means over the cohort: "samples" or "uniform"."""
        published = self.client_weighting == "published"
        return self.published_weighting if published else self.client_weighting

    @property
    def uses_federation_counts(self) -> bool:
        """Whether what clients compute depends on the exact class counts of other clients.

        Differential privacy of what clients send would not protect these counts, so it is refused
        for such methods.
        """
        return False

    def total_weight(self, task: TaskSpec) -> tf.Tensor:
        """The sum of the weights of all clients, for means over them; float32 scalar, from 1 on."""
        samples = task.class_counts.sum(axis=1)
        weights = samples > 0 if self.weighting == "uniform" else samples
        return tf.constant(float(max(1, weights.sum())))

    def server_state(self, net: Network, task: TaskSpec) -> dict[str, Any]:
        """Tensors that the server keeps besides the weights; `net` has its initial values."""
        return {}

    def broadcast(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """The part of the server's own tensors that is sent to the clients."""
        return dict(server)

    def client_state(self, net: Network, task: TaskSpec, seed: tf.Tensor) -> dict[str, Any]:
        """Initial own tensors of a client, besides its variables; `seed` is int32 [2]."""
        return {}

    def initial_personal(self, net: Network, seed: tf.Tensor) -> list[tf.Tensor]:
        """Initial values of a client's personal variables, by default the same for all clients."""
        return read(net.personal.all)

    def update(self, net: Network, client: Client) -> list[tf.Tensor]:
        """The change of the shared trainable variables that the client uploads."""
        return [w - anchor for w, anchor in zip(net.shared.trainable, client.anchor, strict=True)]

    def weight(self, client: Client) -> tf.Tensor:
        """The client's weight in the mean over the cohort, float32 scalar; 0 without samples."""
        samples = tf.reduce_sum(client.class_counts)
        return tf.cast(samples > 0, tf.float32) if self.weighting == "uniform" else samples

    def upload(self, net: Network, client: Client, reduce: Callable[..., Any]) -> Upload:
        """What the client returns after training besides the change of its weights.

        Args:
            net: the network after local training.
            client: the same as during training.
            reduce: `reduce(function, initial)` folds `function(total, x, y)` over the client's
                training samples in large batches, in order and without augmentation.
        """
        return Upload({}, dict(client.state))

    def server_learning(
        self,
        net: Network,
        server: Mapping[str, Any],
        change: Sequence[tf.Tensor],
        sums: Mapping[str, tf.Tensor],
        task: TaskSpec,
        learn: Callable[..., None],
    ) -> dict[str, Any]:
        """Training at the server, before its step.

        Args:
            net: the network as it was broadcast.
            server: the server's own tensors before the round.
            change: weighted mean over the cohort of the clients' `update`.
            sums: the clients' `Upload.sums`, summed.
            task: what is learned; `task.server_samples` gives the server's own samples.
            learn: `learn(x, y, loss, number)` trains all trainable variables of `net`, starting
                from the broadcast weights, on stored inputs x and labels y with the clients'
                optimizer and epochs. Different numbers give different random draws.

        Returns:
            The server's own tensors, as `server_update` will receive them.
        """
        return dict(server)

    @classmethod
    def adds_mean(cls) -> bool:
        """Whether the server adds what `server_change` returns, so that optimizers can step."""
        return not cls.overrides("server_update")

    def server_change(
        self, change: Sequence[tf.Tensor], sums: Mapping[str, tf.Tensor]
    ) -> list[tf.Tensor]:
        """What the server optimizer receives as the clients' mean change.

        A method whose step is another multiple or mixture of what clients send overrides this hook
        and not `server_update`, so that it can be used with all server optimizers.

        Args:
            change: weighted mean over the cohort of the clients' `update`.
            sums: the clients' `Upload.sums`, summed.
        """
        return list(change)

    def server_update(
        self,
        weights: Sequence[tf.Tensor],
        change: Sequence[tf.Tensor],
        server: Mapping[str, Any],
        sums: Mapping[str, tf.Tensor],
        cohort_size: tf.Tensor,
    ) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """The server's step. A method that overrides it is refused with server optimizers.

        Args:
            weights: shared trainable variables before the round.
            change: the step that the server optimizer computed from `server_change`; without a
                server optimizer, the result of `server_change` itself.
            server: the server's own tensors, as `server_learning` returned them.
            sums: the clients' `Upload.sums`, summed.
            cohort_size: float32 scalar, number of clients in the round, without those that were
                excluded because what they sent was NaN or infinite.

        Returns:
            The new weights and the server's new own tensors.
        """
        new = [w + delta for w, delta in zip(weights, change, strict=True)]
        return new, self.next_server_state(server, sums)

    def next_server_state(
        self, server: Mapping[str, Any], sums: Mapping[str, tf.Tensor]
    ) -> dict[str, Any]:
        """The server's own tensors after the round.

        Args:
            server: its own tensors, as `server_learning` returned them.
            sums: the clients' `Upload.sums`, summed.
        """
        return dict(server)

    # The resulting models.

    def global_logits(self, net: Network, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Logits [batch, C] of the global model in eval mode; GA is measured on the entry "".

        Further entries are heads evaluated in the same pass, reported as `ga_<name>`.
        """
        return {"": net["head"](self.embed(net, x, training=False))}

    def personalize(self, net: Network, client: Client) -> None:
        """Turns the loaded weights into the client's personal model, before any local step."""
        del net, client  # As in `begin`.

    def personal_logits(self, net: Network, x: tf.Tensor, client: Client) -> tf.Tensor:
        """Logits [batch, C] of the client's personal model, in eval mode."""
        return self.global_logits(net, x)[""]

    def personal_phases(self, net: Network, epochs: int) -> list[Phase]:
        """Local training of the personal model before it is evaluated a second time.

        By default the variables of `trained_variables` are fine-tuned by plain cross-entropy, as
        the papers do for methods whose result is the global model.
        """
        loss = functools.partial(Method.loss, self)
        return [Phase(self.trained_variables(net), epochs, loss)]

    # For users.

    def advice(self, optimizer: Any) -> str | None:
        """A warning for the start of a run, if the method is known to fail with these settings.

        Args:
            optimizer: the clients' optimizer: `learning_rate`, and for sgd `momentum`, ….

        Returns:
            One sentence that names settings that work; None if there is nothing to warn about.
        """
        return None

    def advice_on_backbone(self, has_normalization: bool | None) -> str | None:
        """A warning for the start of a run, if the method is known to fail with the backbone.

        Args:
            has_normalization: whether the backbone has normalization layers; None if unknown.

        Returns:
            As `advice`.
        """
        return None

    def advice_on_width(self, feature_dim: int) -> str | None:
        """A warning for the start of a run, if settings do not fit the width of the features.

        Args:
            feature_dim: number of features, after the projection.

        Returns:
            As `advice`.
        """
        del feature_dim
        return None

    # For diagnostics.

    def global_classifiers(self, net: Network) -> dict[str, tf.Tensor]:
        """Matrices [d, C] of linear classifiers of the features that `embed` returns.

        The entry "" belongs to the global model; it is absent if the method does not classify by a
        linear head. Further entries are reported under their names.
        """
        matrix = getattr(net.parts.get("head"), "kernel", None)
        return {} if matrix is None else {"": matrix}

    def local_view(self, net: Network) -> Network:
        """The network after local training, with what clients train in the global model's place."""
        return net


registry: Registry[Method] = Registry("algorithm", "tff_pcdd.methods")
register = registry.register
