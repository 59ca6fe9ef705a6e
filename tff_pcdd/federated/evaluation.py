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
from tff_pcdd.federated.batches import (
    count_classes,
    count_correct,
    count_nonfinite,
    reduce_batches,
    without_answers,
)
from tff_pcdd.federated.local_training import LocalTraining, moved_by
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import load, read
from tff_pcdd.methods.network import Network
from tff_pcdd.methods.records import Client


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
            validation part, if there is one, as `validation_total` and so on. `nonfinite`, int32
            scalar: how often, in all of these, a logit of a sample was NaN or infinite.
        """
        parts = {"": data["test"]}
        if self._spec.validation:
            parts["validation_"] = data["validation"]
        counts = OrderedDict(nonfinite=tf.zeros([], tf.int32))
        client = self._begin(message, state, data)

        def score(stage):
            for prefix, part in parts.items():
                correct, masked, nonfinite = self._score(part, client)
                counts[f"{prefix}{stage}"] = correct
                counts[f"{prefix}{stage}_masked"] = masked
                counts["nonfinite"] += nonfinite

        for prefix, part in parts.items():
            counts[f"{prefix}total"] = count_classes(part["y"], self._spec.task.num_classes)
        score("before")
        self._training.run(self._phases, data["train"], client, data["seed"])
        score("after")
        return counts

    def _evaluate_before(
        self, message: Mapping[str, Any], state: Mapping[str, Any], data: Mapping[str, Any]
    ) -> OrderedDict[str, tf.Tensor]:
        """Like `_evaluate`, but without training: only `total`, `before` and `nonfinite`."""
        client = self._begin(message, state, data)
        before, _, nonfinite = self._score(data["test"], client)
        total = count_classes(data["test"]["y"], self._spec.task.num_classes)
        return OrderedDict(total=total, before=before, nonfinite=nonfinite)

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
        self, examples: Mapping[str, tf.Tensor], client: Client
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Counts what the network, as it is, classifies correctly.

        Returns:
            Correctly classified samples of each class, int32 [C]; the same if only the client's own
            classes can be predicted; samples of which a logit is NaN or infinite, int32 scalar.
        """

        def score(totals, x, y):
            logits = self._method.personal_logits(self._net, x, client)
            logits = without_answers(logits, x, self._spec)
            masked = losses.mask_logits(logits, client.class_counts > 0)
            return (
                totals[0] + count_correct(logits, y),
                totals[1] + count_correct(masked, y),
                totals[2] + count_nonfinite(logits),
            )

        zero = tf.zeros([self._spec.task.num_classes], tf.int32)
        initial = (zero, zero, tf.zeros([], tf.int32))
        return reduce_batches(score, initial, examples, self._spec)


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
            An ordered dict: `total`, int32 [C], samples of each class; `correct`, a dict of int32
            [C], correctly classified samples for each head of the method, where "head" is the one
            on which GA is measured; `nonfinite`, int32 scalar, samples of which a logit or the
            input is NaN or infinite, which are never counted as correct.
        """
        load(self._net, weights)
        num_classes = self._spec.task.num_classes
        names = list(_head_names(self._spec))

        def score(totals, x, y):
            answers = self._spec.method.global_logits(self._net, x)
            logits = {name: without_answers(answers[name], x, self._spec) for name in names}
            counts = [
                total + count_correct(logits[name], y)
                for name, total in zip(names, totals[0], strict=True)
            ]
            every = tf.concat([logits[name] for name in names], axis=1)
            return counts, totals[1] + count_nonfinite(every)

        zeros = [tf.zeros([num_classes], tf.int32) for _ in names]
        totals, nonfinite = reduce_batches(
            score, (zeros, tf.zeros([], tf.int32)), examples, self._spec
        )
        return OrderedDict(
            total=count_classes(examples["y"], num_classes),
            correct=OrderedDict(
                (name or "head", total) for name, total in zip(names, totals, strict=True)
            ),
            nonfinite=nonfinite,
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
