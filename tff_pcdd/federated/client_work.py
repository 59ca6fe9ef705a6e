"""One client's part of a training round, in plain TensorFlow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

from tff_pcdd.federated import initialization
from tff_pcdd.federated.batches import map_batches, may_be_nonfinite, reduce_batches
from tff_pcdd.federated.local_training import LocalTraining, moved_by
from tff_pcdd.federated.records import ClientData, ClientState, Message
from tff_pcdd.federated.returned import checked_update, checked_upload, checked_weight
from tff_pcdd.federated.state import ordered
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import WeightsChange, all_finite, can_be_summed, subtract
from tff_pcdd.methods.calibrated import Calibrated
from tff_pcdd.methods.network import read
from tff_pcdd.methods.records import Client


class ClientWork:
    """Local training of one client at a time.

    Attributes:
        update: `update(message, state, data)`, a `tf.function`; see `_update`.
        head_sums: a `tf.function` with the same arguments: what a client sends for a head
            calibration, without training.
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        with initialization.zeros():
            # After `update`, it holds the client's local model.
            self.net = spec.network()
            self._phases = spec.method.phases(self.net, spec.local_epochs)
            self._training = LocalTraining(spec, self.net, moved_by(self._phases))
        self.update: Callable[..., Any] = function(self._update, self.net)
        self.head_sums: Callable[..., Any] = function(self._head_sums, self.net)

    def _update(
        self, message: Message, state: ClientState, data: ClientData
    ) -> OrderedDict[str, Any]:
        """Trains a client for one round.

        Returns:
            An ordered dict:
                update: the `WeightsChange`.
                weight: float32 scalar, the client's weight in the mean over the cohort.
                sums: the other tensors that the client sends; the server receives their sums.
                state: the client's new state.
                metrics: what `LocalTraining.run` returns; if local work is unequal, also the number
                    of `steps`.
                sent: float32 scalar, the share of `sums` that is not zero.
                included: float32 scalar, 1 if all of these values can be summed and all samples are
                    finite, else 0. Then the client is excluded: it has its earlier state, and the
                    other values are 0, like those of a client without samples.
        """
        method, net, work = self._spec.method, self.net, self._spec.local_work
        # What is in one place has no clients that could do less.
        uneven = not (work.is_full or method.pools_samples)
        draws = work.draw(data.seed, self._spec.local_epochs) if uneven else None
        client = self._training.begin(message, state, data, self._phases, draws)

        def apply(function: Callable[[tf.Tensor], tf.Tensor], width: int) -> tf.Tensor:
            return map_batches(function, data.train, self._spec, tf.float32, width)

        client, labels = method.prepare(net, client, data.train["y"], apply)
        examples = {"x": data.train["x"], "y": labels}
        totals = self._training.run(self._phases, examples, client, data.seed, draws)
        # First, because a method may set statistics of the network in it.
        upload = checked_upload(method.upload(net, client, self._reducer(data)), method, state.own)
        result = OrderedDict(
            update=self._change(client, message.weights),
            weight=checked_weight(method.weight(client), method),
            sums=ordered(upload.sums),
            state=ClientState(
                personal=read(net.kept),
                own=ordered(upload.state),
                # A client without samples has not trained.
                participations=state.participations
                + tf.cast(tf.size(data.train["y"]) > 0, tf.int32),
            ),
            metrics=totals,
            sent=tf.cast(upload.sent, tf.float32),
        )
        included = can_be_summed(result)
        if may_be_nonfinite(self._spec):
            included = tf.logical_and(included, all_finite(data.train["x"]))
        if draws is not None:
            totals["steps"] = tf.cast(client.steps, tf.float32)
        # A branch and not a choice by value, which would copy the tensors of every client.
        result = tf.cond(included, lambda: result, lambda: _without_effect(result, state))
        result["included"] = tf.cast(included, tf.float32)
        return result

    def _head_sums(
        self, message: Message, state: ClientState, data: ClientData
    ) -> OrderedDict[str, Any]:
        client = self._training.begin(message, state, data, self._phases)
        method = cast(Calibrated, self._spec.method)
        return ordered(method.head_sums(self.net, client, self._reducer(data)))

    def _reducer(self, data: ClientData) -> Callable[..., Any]:
        """The argument `reduce` of `Method.upload`."""
        return lambda function, initial: reduce_batches(function, initial, data.train, self._spec)

    def _change(self, client: Client, weights: Mapping[str, Sequence[tf.Tensor]]) -> WeightsChange:
        """The change of the averaged weights since the broadcast ones."""
        net, method = self.net, self._spec.method
        mirrored = subtract(net.mirrored.all, weights["mirrored"])
        num_trainable = len(net.mirrored.trainable)
        statistics = subtract(net.shared.statistics, weights["statistics"])
        return WeightsChange(
            trainable=checked_update(method.update(net, client), method, client.anchor),
            mirrored=mirrored[:num_trainable],
            statistics=[*statistics, *mirrored[num_trainable:]],
        )


def _without_effect(result: Mapping[str, Any], state: ClientState) -> OrderedDict[str, Any]:
    """The result of a client that changes nothing and stays in `state`."""
    kept = tf.nest.pack_sequence_as(result["state"], tf.nest.flatten(state))
    return OrderedDict(tf.nest.map_structure(tf.zeros_like, result), state=kept)
