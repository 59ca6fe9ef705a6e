"""Evaluation of the global and the personal models: counts of correctly classified samples.

Evaluation is plain TensorFlow, like client and server work. To evaluate, client data contain `test`
examples besides those of a training round, and `validation` examples where samples were held out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_pcdd import losses
from tff_pcdd.federated import initialization
from tff_pcdd.federated.batches import count_classes, count_correct, reduce_batches
from tff_pcdd.federated.local_training import LocalTraining, moved_by
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import load, read
from tff_pcdd.methods.contract import Client
from tff_pcdd.methods.network import Network


class PersonalEvaluation:
    """Evaluation of one client's personal model at a time.

    Args:
        spec: what is computed in a round.

    Attributes:
        evaluate, evaluate_before: `tf.function`s of (message, state, data); see `_evaluate` and
            `_evaluate_before`.
        personal_weights: a `tf.function` of (message, state, data, local_epochs); see
            `_personal_weights`.
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        self._method = spec.method
        with initialization.zeros():
            self._net = spec.network()
            self._phases = spec.method.personal_phases(self._net, spec.local_epochs)
            self._training = LocalTraining(spec, self._net, moved_by(self._phases))
        self.evaluate: Callable[..., Any] = tf.function(self._evaluate)
        self.evaluate_before: Callable[..., Any] = tf.function(self._evaluate_before)
        self.personal_weights: Callable[..., Any] = tf.function(self._personal_weights)

    @property
    def net(self) -> Network:
        """The network; after `evaluate` it holds the client's personal model."""
        return self._net

    def personal_model(
        self, message: Mapping[str, Any], state: Mapping[str, Any], data: Mapping[str, Any]
    ) -> tuple[Network, Client]:
        """The arguments of `Method.personal_logits` besides the inputs.

        The variables of the network do not hold the personal model yet: assign the values that
        `personal_weights` returns.
        """
        return self._net, self._training.begin(message, state, data, self._phases)

    def _evaluate(
        self, message: Mapping[str, Any], state: Mapping[str, Any], data: Mapping[str, Any]
    ) -> OrderedDict[str, tf.Tensor]:
        """Evaluates the personal model on the client's test part, before and after local training.

        Returns:
            An ordered dict of int32 [C]: `total` test samples of each class, and correctly
            classified samples `before`, `before_masked`, `after` and `after_masked`, where "masked"
            means that only classes of the client's training part can be predicted. The same for the
            validation part, if there is one, as `validation_total` and so on.
        """
        parts = {"": data["test"]}
        if self._spec.validation:
            parts["validation_"] = data["validation"]
        counts = OrderedDict()
        client = self._begin(message, state, data)
        for prefix, part in parts.items():
            counts[f"{prefix}total"] = count_classes(part["y"], self._spec.task.num_classes)
            counts |= self._score(part, client, f"{prefix}before")
        self._training.run(self._phases, data["train"], client, data["seed"])
        for prefix, part in parts.items():
            counts |= self._score(part, client, f"{prefix}after")
        return counts

    def _evaluate_before(
        self, message: Mapping[str, Any], state: Mapping[str, Any], data: Mapping[str, Any]
    ) -> OrderedDict[str, tf.Tensor]:
        """Like `_evaluate`, but without training; returns only `total` and `before`."""
        client = self._begin(message, state, data)
        before = self._score(data["test"], client, "before")["before"]
        total = count_classes(data["test"]["y"], self._spec.task.num_classes)
        return OrderedDict(total=total, before=before)

    def _personal_weights(
        self,
        message: Mapping[str, Any],
        state: Mapping[str, Any],
        data: Mapping[str, Any],
        local_epochs: bool,
    ) -> list[tf.Tensor]:
        """The personal model that is evaluated.

        Returns:
            The values of `Network.variables`, after or before local training.
        """
        client = self._begin(message, state, data)
        if local_epochs:
            self._training.run(self._phases, data["train"], client, data["seed"])
        return read(self._net.variables)

    def _begin(
        self, message: Mapping[str, Any], state: Mapping[str, Any], data: Mapping[str, Any]
    ) -> Client:
        client = self._training.begin(message, state, data, self._phases)
        self._method.personalize(self._net, client)
        return client

    def _score(
        self, examples: Mapping[str, tf.Tensor], client: Client, name: str
    ) -> dict[str, tf.Tensor]:
        """Correctly classified samples of each class.

        Returns:
            int32 [C] under `name`, where all classes can be predicted, and under `<name>_masked`,
            where only the client's own classes can.
        """

        def score(totals, x, y):
            logits = self._method.personal_logits(self._net, x, client)
            masked = losses.mask_logits(logits, client.class_counts > 0)
            return (
                totals[0] + count_correct(logits, y),
                totals[1] + count_correct(masked, y),
            )

        zero = tf.zeros([self._spec.task.num_classes], tf.int32)
        correct, masked = reduce_batches(score, (zero, zero), examples, self._spec)
        return {name: correct, f"{name}_masked": masked}


class GlobalEvaluation:
    """Evaluation of the global model.

    Args:
        spec: what is computed in a round.

    Attributes:
        evaluate: `evaluate(weights, examples)`, a `tf.function`; see `_evaluate`.
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        with initialization.zeros():
            self._net = spec.network()
        self.evaluate: Callable[..., Any] = tf.function(self._evaluate)

    def _evaluate(
        self, weights: Mapping[str, Sequence[tf.Tensor]], examples: Mapping[str, tf.Tensor]
    ) -> OrderedDict[str, Any]:
        """Evaluates the global model on pooled examples.

        Returns:
            An ordered dict: `total`, int32 [C], samples of each class, and `correct`, a dict of
            int32 [C], correctly classified samples for each head of the method; "head" is the one
            on which GA is measured.
        """
        load(self._net, weights)
        num_classes = self._spec.task.num_classes
        names = list(_head_names(self._spec))

        def score(totals, x, y):
            logits = self._spec.method.global_logits(self._net, x)
            return tuple(
                total + count_correct(logits[name], y)
                for name, total in zip(names, totals, strict=True)
            )

        zeros = tuple(tf.zeros([num_classes], tf.int32) for _ in names)
        totals = reduce_batches(score, zeros, examples, self._spec)
        return OrderedDict(
            total=count_classes(examples["y"], num_classes),
            correct=OrderedDict(
                (name or "head", total) for name, total in zip(names, totals, strict=True)
            ),
        )


def _head_names(spec: TrainingSpec) -> Sequence[str]:
    """The names of the global model's heads, found by tracing in a separate graph."""
    with tf.Graph().as_default(), initialization.zeros():
        net = spec.network()
        x = tf.zeros([1, *spec.input_spec.shape], spec.input_spec.model_dtype)
        return tuple(spec.method.global_logits(net, x))


def personal_epochs(spec: TrainingSpec) -> int:
    """Local epochs between the two evaluations of a client's personal model."""
    with tf.Graph().as_default(), initialization.zeros():
        phases = spec.method.personal_phases(spec.network(), spec.local_epochs)
    return sum(phase.epochs for phase in phases)
