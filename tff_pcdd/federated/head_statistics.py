"""A head calibration of weights that were trained without one: states, and a pass over samples."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.federated.client_work import ClientWork
from tff_pcdd.federated.process import FederatedProcess
from tff_pcdd.federated.records import ClientState, ServerState
from tff_pcdd.federated.state import ordered, without_optimizer
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import variables_of
from tff_pcdd.methods.calibrated import Calibrated

# A variable of a method's network: the name of its piece, and its number among the piece's weights.
_Place = tuple[str, int]


def build_head_sums(process: FederatedProcess) -> tff.Computation:
    """The sums of what clients send for a head calibration, without training, at the server.

    It takes the arguments of `next`.
    """
    tensors = process.tensors

    @tensors.traced(*tensors.local_update.type_signature.parameter)
    def send(message, client_state, data):
        return ClientWork(tensors.spec).head_sums(message, client_state, data)

    sends = process.at_clients(send)

    @tff.federated_computation(*sends.type_signature.parameter)
    def head_sums(state, client_states, client_data):
        return tff.federated_sum(sends(state, client_states, client_data))

    return head_sums


class Adopted:
    """The states of a method with a head calibration, made from those of the method alone.

    `spec` is what the method computes with the calibration, `plain` what it computes without it.
    """

    def __init__(self, spec: TrainingSpec, plain: TrainingSpec):
        self._method = cast(Calibrated, spec.method)
        self._there, self._kept_there = _places(plain, lambda piece: piece)
        self._here, self._kept_here = _places(spec, self._method.piece_of)

    def server(self, initial: ServerState, trained: ServerState) -> ServerState:
        """The server's state with two equal models, from the state without the calibration."""
        values = {
            place: value
            for group, places in self._there.items()
            for place, value in zip(places, trained.weights[group], strict=True)
        }
        server = self._method.calibrated_server(initial.server, without_optimizer(trained.server))
        weights = [(group, [values[p] for p in self._here[group]]) for group in initial.weights]
        return initial._replace(
            weights=OrderedDict(weights),
            server=tf.nest.map_structure(np.asarray, ordered(server)),
            round=trained.round,
        )

    def client(self, trained: ClientState) -> ClientState:
        """The state of a client from its state without the calibration."""
        values = dict(zip(self._kept_there, trained.personal, strict=True))
        return trained._replace(personal=[values[place] for place in self._kept_here])

    def calibrated(self, state: ServerState, sums: Mapping[str, Any]) -> ServerState:
        """The state with a re-trained head."""

        @tf.function(autograph=False)
        def retrain(weights: Sequence[tf.Tensor], server, sums):
            return self._method.calibrate(weights, server, sums)

        arguments = (list(state.weights["trainable"]), state.server, dict(sums))
        trainable, server = retrain(*tf.nest.map_structure(tf.convert_to_tensor, arguments))
        weights = OrderedDict(state.weights, trainable=[w.numpy() for w in trainable])
        return state._replace(
            weights=weights, server=tf.nest.map_structure(np.asarray, ordered(server))
        )


def _places(
    spec: TrainingSpec, piece_of: Callable[[str], str]
) -> tuple[dict[str, list[_Place]], list[_Place]]:
    """The variables of the weights, by group, and those that clients keep."""
    with spec.outline() as net:
        places = {
            variable.ref(): (piece_of(name), number)
            for name, part in net.parts.items()
            for number, variable in enumerate(part.weights)
        }
        weights = {
            group: [places[variable.ref()] for variable in variables]
            for group, variables in variables_of(net).items()
        }
        return weights, [places[variable.ref()] for variable in net.kept]
