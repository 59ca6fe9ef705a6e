"""Evaluation of the global and the personal models: predicted classes, and counts of correct ones.

Evaluation is plain TensorFlow, like client and server work. To evaluate, client data contain `test`
examples besides those of a training round, and `validation` examples where samples were held out.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_pcdd import losses
from tff_pcdd.federated import initialization
from tff_pcdd.federated.batches import (
    classify,
    count_classes,
    count_correct,
    count_nonfinite,
    map_batches,
    without_answers,
)
from tff_pcdd.federated.local_training import LocalTraining, moved_by
from tff_pcdd.federated.records import ClientData, ClientState, Message
from tff_pcdd.federated.returned import checked_logits
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import load
from tff_pcdd.methods.network import Network, read
from tff_pcdd.methods.records import Client


class PersonalEvaluation:
    """Evaluation of one client's personal model at a time.

    Attributes:
        evaluate, evaluate_before: `tf.function`s of (message, state, data); see `_evaluate` and
            `_evaluate_before`.
        personal_weights: a `tf.function` of (message, state, data, local_epochs); see
            `_personal_weights`.
        logits: a `tf.function` of (message, state, data); see `_logits_after`.
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        self._method = spec.method
        with initialization.zeros():
            # After `evaluate`, it holds the client's personal model.
            self.net = spec.network()
            self._phases = spec.method.personal_phases(self.net, spec.local_epochs)
            self._training = LocalTraining(spec, self.net, moved_by(self._phases))
        traced = functools.partial(function, net=self.net)
        self.evaluate: Callable[..., Any] = traced(self._evaluate)
        self.evaluate_before: Callable[..., Any] = traced(self._evaluate_before)
        self.personal_weights: Callable[..., Any] = traced(self._personal_weights)
        self.logits: Callable[..., Any] = traced(self._logits_after)

    def personal_model(
        self, message: Message, state: ClientState, data: ClientData
    ) -> tuple[Network, Client]:
        """The arguments of `Method.personal_logits` besides the inputs.

        The variables of the network do not hold the personal model yet: assign the values that
        `personal_weights` returns.
        """
        return self.net, self._training.begin(message, state, data, self._phases)

    def _evaluate(
        self, message: Message, state: ClientState, data: ClientData
    ) -> OrderedDict[str, tf.Tensor]:
        """Evaluates the personal model on the client's test part, before and after local training.

        Returns:
            An ordered dict of int32 [C]: `total` test samples of each class, and correctly
            classified samples `before`, `before_masked`, `after` and `after_masked`, where "masked"
            means that only classes of the client's training part can be predicted. The same for the
            validation part, if there is one, as `validation_total` and so on. `before_answers` and
            `after_answers`: test samples for which each class is predicted. `nonfinite`, int32
            scalar: how often, in all of these, a logit of a sample was NaN or infinite.
            `predicted_before` and `predicted_after`, int32 [n]: the predicted class of each test
            sample, -1 if a logit was NaN or infinite.
        """
        client = self._begin(message, state, data)
        counts = self._count("before", client, data)
        self._training.run(self._phases, data.train, client, data.seed)
        return self._count("after", client, data, counts)

    def _evaluate_before(
        self, message: Message, state: ClientState, data: ClientData
    ) -> OrderedDict[str, tf.Tensor]:
        """Like `_evaluate`, but without training and what counts after it, and without predictions.

        For methods without a global model, each client predicts the whole test set.
        """
        counts = self._count("before", self._begin(message, state, data), data)
        del counts["predicted_before"]
        return counts

    def _count(
        self,
        stage: str,
        client: Client,
        data: ClientData,
        counts: OrderedDict[str, tf.Tensor] | None = None,
    ) -> OrderedDict[str, tf.Tensor]:
        """Adds what `_evaluate` returns for a stage, "before" or "after", to the counts so far."""
        parts = {"": data.test}
        if self._spec.validation:
            parts["validation_"] = data.validation
        if counts is None:
            counts = OrderedDict(nonfinite=tf.zeros([], tf.int32))
            for prefix, part in parts.items():
                counts[f"{prefix}total"] = count_classes(part["y"], self._spec.task.num_classes)
        for prefix, part in parts.items():
            predicted, masked = self._predict(part, client)
            counts[f"{prefix}{stage}"] = self._correct(predicted, part)
            counts[f"{prefix}{stage}_masked"] = self._correct(masked, part)
            counts["nonfinite"] += count_nonfinite(predicted[:, None])
            if not prefix:
                counts[f"{stage}_answers"] = count_classes(predicted, self._spec.task.num_classes)
                counts[f"predicted_{stage}"] = predicted
        return counts

    def _personal_weights(
        self,
        message: Message,
        state: ClientState,
        data: ClientData,
        local_epochs: bool,
    ) -> list[tf.Tensor]:
        """The values of `Network.variables` that are evaluated, after or before local training."""
        client = self._begin(message, state, data)
        if local_epochs:
            self._training.run(self._phases, data.train, client, data.seed)
        return read(self.net.variables)

    def _logits_after(
        self, message: Message, state: ClientState, data: ClientData
    ) -> OrderedDict[str, tf.Tensor]:
        """The logits of the personal model after local training, float32 [n, C].

        They are those of the samples of `test` and, if there is one, of `validation`.
        """
        client = self._begin(message, state, data)
        self._training.run(self._phases, data.train, client, data.seed)
        parts = ("test", "validation") if self._spec.validation else ("test",)

        def answer(x):
            return tf.cast(self._logits(x, client), tf.float32)

        width = self._spec.task.num_classes
        return OrderedDict(
            (part, map_batches(answer, getattr(data, part), self._spec, tf.float32, width))
            for part in parts
        )

    def _begin(self, message: Message, state: ClientState, data: ClientData) -> Client:
        client = self._training.begin(message, state, data, self._phases)
        self._method.personalize(self.net, client)
        return client

    def _logits(self, x: tf.Tensor, client: Client) -> tf.Tensor:
        logits = checked_logits(
            self._method.personal_logits(self.net, x, client),
            self._method,
            "personal_logits",
            self._spec.task.num_classes,
        )
        return without_answers(logits, x, self._spec)

    def _predict(
        self, examples: Mapping[str, tf.Tensor], client: Client
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Classifies samples by the network as it is.

        Returns:
            The predicted classes, int32 [n], and the same if only the client's own classes can be
            predicted; -1 where a logit is NaN or infinite.
        """

        def predict(x):
            logits = self._logits(x, client)
            # A client without training samples has no classes of its own: all of them count.
            own = client.class_counts > 0
            own = tf.logical_or(own, tf.logical_not(tf.reduce_any(own)))
            masked = losses.mask_logits(logits, own)
            return tf.stack([classify(logits), classify(masked)], axis=1)

        predicted = map_batches(predict, examples, self._spec, tf.int32, 2)
        return predicted[:, 0], predicted[:, 1]

    def _correct(self, predicted: tf.Tensor, examples: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return count_correct(predicted, examples["y"], self._spec.task.num_classes)


class GlobalEvaluation:
    """Evaluation of the global model.

    Attributes:
        evaluate: `evaluate(weights, examples)`, a `tf.function`; see `_evaluate`.
        logits: `logits(weights, examples)`, a `tf.function` that returns float32 [n, C].
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        with initialization.zeros():
            self._net = spec.network()
        self.evaluate: Callable[..., Any] = function(self._evaluate, self._net)
        self.logits: Callable[..., Any] = function(self._main_logits, self._net)

    def _evaluate(
        self, weights: Mapping[str, Sequence[tf.Tensor]], examples: Mapping[str, tf.Tensor]
    ) -> OrderedDict[str, Any]:
        """Evaluates the global model on pooled examples.

        Returns:
            An ordered dict: `total`, int32 [C], samples of each class; `correct`, a dict of int32
            [C], correctly classified samples for each head of the method, where "head" is the one
            on which GA is measured; `predicted`, int32 [n], the class that this one predicts for
            each sample; `nonfinite`, int32 scalar, samples of which a logit or the input is NaN or
            infinite, which are never counted as correct, and for which -1 is predicted.
        """
        load(self._net, weights)
        # Without a global model, the answers mean nothing, but variables have to have values.
        for variable in self._net.personal.all if not self._spec.method.has_global_model else ():
            variable.assign(tf.zeros(variable.shape))
        num_classes = self._spec.task.num_classes
        names = list(_head_names(self._spec))

        def predict(x):
            answers = self._spec.method.global_logits(self._net, x)
            return tf.stack(
                [classify(without_answers(answers[name], x, self._spec)) for name in names], axis=1
            )

        predicted = map_batches(predict, examples, self._spec, tf.int32, len(names))
        return OrderedDict(
            total=count_classes(examples["y"], num_classes),
            correct=OrderedDict(
                (name or "head", count_correct(predicted[:, index], examples["y"], num_classes))
                for index, name in enumerate(names)
            ),
            predicted=predicted[:, names.index("")],
            nonfinite=count_nonfinite(predicted),
        )

    def _main_logits(
        self, weights: Mapping[str, Sequence[tf.Tensor]], examples: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        load(self._net, weights)

        def answer(x):
            logits = self._spec.method.global_logits(self._net, x)[""]
            return tf.cast(without_answers(logits, x, self._spec), tf.float32)

        width = self._spec.task.num_classes
        return map_batches(answer, examples, self._spec, tf.float32, width)


def _head_names(spec: TrainingSpec) -> Sequence[str]:
    """The names of the global model's heads, found by tracing in a separate graph."""
    with spec.outline() as net:
        x = tf.zeros([1, *spec.input_spec.shape], spec.input_spec.model_dtype)
        answers = spec.method.global_logits(net, x)
    for logits in answers.values():
        checked_logits(logits, spec.method, "global_logits", spec.task.num_classes)
    if "" not in answers:
        reason = "has to return the logits of the global model as the entry ''"
        raise ValueError(f"{spec.method.name}: global_logits {reason}, not only {sorted(answers)}")
    return tuple(answers)


def personal_epochs(spec: TrainingSpec) -> int:
    """Local epochs between the two evaluations of a client's personal model."""
    with spec.outline() as net:
        phases = spec.method.personal_phases(net, spec.local_epochs)
    return sum(phase.epochs for phase in phases)
