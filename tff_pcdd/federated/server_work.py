"""The server's part of a training round, in plain TensorFlow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tff_pcdd.draws import fold_in
from tff_pcdd.federated import initialization
from tff_pcdd.federated.local_training import LocalTraining
from tff_pcdd.federated.records import ClientData, ClientState, Message, ServerState
from tff_pcdd.federated.returned import checked_change, checked_step
from tff_pcdd.federated.state import OPTIMIZER, ordered, without_optimizer
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import WeightsChange, add, can_be_summed, load
from tff_pcdd.methods.network import read
from tff_pcdd.methods.records import Phase

# Part of the seeds of the server's own random draws.
_SERVER_DRAWS = 1 << 21


class ServerWork:
    """The server's step between two broadcasts.

    Attributes:
        step: `step(state, change, sums, cohort_size)`, a `tf.function`; see `_step`.
    """

    def __init__(self, spec: TrainingSpec) -> None:
        self._method, self._optimizer = spec.method, spec.server_optimizer
        with spec.outline() as net:
            self._variances = {
                "statistics": [net.is_variance(variable) for variable in net.shared.statistics],
                "mirrored": [net.is_variance(variable) for variable in net.mirrored.all],
            }
        learns = spec.method.overrides("server_learning")
        self._training = _ServerTraining(spec) if learns else None
        self.step: Callable[..., Any] = function(self._step, net)

    def _step(
        self,
        state: ServerState,
        change: WeightsChange,
        sums: Mapping[str, Any],
        cohort_size: tf.Tensor,
    ) -> tuple[OrderedDict[str, Any], OrderedDict[str, Any]]:
        """Updates the server with the cohort's mean `WeightsChange` and the sums of its `sums`.

        Returns:
            The new weights and the server's new own tensors.
        """
        method, weights = self._method, state.weights
        before = server = without_optimizer(state.server)
        if self._training is not None:
            server = self._training.learn(state._replace(server=server), change, sums)
        mean = checked_change(
            method.server_change(change.trainable, sums), method, change.trainable
        )
        step, own = self._optimizer.step(mean, state.server.get(OPTIMIZER, {}))
        trainable, server = checked_step(
            method.server_update(weights["trainable"], step, server, sums, cohort_size),
            method,
            weights["trainable"],
            before,
        )
        if own:
            server = {**server, OPTIMIZER: own}
        num_shared = len(weights["statistics"])
        mirrored = [*change.mirrored, *change.statistics[num_shared:]]
        weights = OrderedDict(
            trainable=trainable,
            statistics=add(weights["statistics"], change.statistics[:num_shared]),
            mirrored=add(weights["mirrored"], mirrored),
            fixed=weights["fixed"],
        )
        # Rounding, in the addition or by the aggregator, must not make a small variance negative.
        for part, flags in self._variances.items():
            weights[part] = [
                tf.maximum(value, 0.0) if is_variance else value
                for value, is_variance in zip(weights[part], flags, strict=True)
            ]
        return weights, ordered(server)


def accept_if_finite(new: Any, old: Any) -> tuple[Any, tf.Tensor]:
    """Prevents a step of the server from making its state unusable.

    Returns:
        The state after the step if it is finite, else the one before; and which of them it is, a
        float32 scalar: 1 for the new one, else 0.
    """
    finite = can_be_summed(new)
    kept = tf.nest.pack_sequence_as(new, tf.nest.flatten(old))
    return tf.cond(finite, lambda: new, lambda: kept), tf.cast(finite, tf.float32)


class _ServerTraining:
    """Training at the server, with the clients' optimizer, step size of the round and epochs."""

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec = spec
        with initialization.zeros():
            self._net = spec.network()
            self._training = LocalTraining(spec, self._net, self._net.trainable)

    def learn(
        self, state: ServerState, change: WeightsChange, sums: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The server's own tensors after the method's `server_learning`."""
        spec, net, weights = self._spec, self._net, state.weights
        server = state.server
        seed = fold_in(tf.constant([spec.task.seed, _SERVER_DRAWS]), state.round)

        def learn(x, y, loss, number):
            examples = {"x": x, "y": y}
            data = ClientData(train=examples, seed=fold_in(seed, number), cohort_index=0)
            message = Message(weights=weights, server=server, round=state.round)
            own = ClientState(personal=read(net.kept), own={}, participations=0)
            phases = [Phase(net.trainable, spec.local_epochs, loss)]
            client = self._training.begin(message, own, data, phases)
            self._training.run(phases, examples, client, data.seed)

        load(net, weights)
        return spec.method.server_learning(net, server, change.trainable, sums, spec.task, learn)
