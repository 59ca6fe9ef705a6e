"""Weights from which a simulation starts, instead of random ones."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd.errors import SettingError
from tff_pcdd.federated.records import ClientState, ServerState
from tff_pcdd.federated.state import ordered
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import variables_of
from tff_pcdd.methods import Method
from tff_pcdd.methods.calibrated import Calibrated


@dataclasses.dataclass(frozen=True)
class InitialWeights:
    """The weights of another simulation, of the same method or of another one.

    Attributes:
        weights: the server's weights, as `simulation.state.weights`.
        clients: states of clients by their numbers, as `simulation.store.get(client)`; only
            `personal` and `participations` are used. Without effect unless both methods keep
            variables at the clients.
        source: where the weights are from, for errors.
        trained: False for weights before the first round; with a head calibration, the method and
            the global model then start with the same weights.
    """

    weights: Mapping[str, Sequence[Any]]
    clients: Mapping[int, ClientState] = dataclasses.field(default_factory=dict)
    source: str = "initial"
    trained: bool = True

    def fitting(self, spec: TrainingSpec, num_clients: int) -> InitialWeights:
        """The same weights, without states of clients if the method keeps no variables there.

        Raises:
            SettingError: the network or a client's personal part has other variables, or there are
                more clients.
        """
        with spec.outline() as net:
            variables, kept = variables_of(net), net.kept
            differences = [
                _difference(f"server/weights/{name}", self.weights.get(name, ()), of_group)
                for name, of_group in variables.items()
            ]
            clients = with_variables(self.clients) if kept else {}
            differences += [
                _difference(f"clients/{client}/personal", clients[client].personal, kept)
                for client in clients
            ]
        differences = [text for text in differences if text]
        if not differences and max(clients, default=-1) >= num_clients:
            differences = [f"it has a client {max(clients)}, and there are {num_clients} clients"]
        if differences:
            reason = f"does not fit the network of {spec.method.name}: {differences[0]}"
            raise SettingError("warm_start", self.source, reason)
        return dataclasses.replace(self, clients=clients)

    def in_place_of(self, state: ServerState, method: Method) -> ServerState:
        """The server's first state with these weights."""
        weights = [(name, [*self.weights.get(name, ())]) for name in state.weights]
        own = state.server
        if isinstance(method, Calibrated) and self.trained:
            own = tf.nest.map_structure(np.asarray, ordered(method.given_weights(own)))
        return state._replace(weights=OrderedDict(weights), server=own)


def as_trained(state: ServerState, spec: TrainingSpec) -> Mapping[str, Sequence[Any]]:
    """The server's weights with which networks of clients begin.

    With a head calibration, those of the method itself are also in the place of the global model.
    """
    if not isinstance(spec.method, Calibrated):
        return state.weights
    with spec.outline() as net:
        groups = variables_of(net)
        values = {
            variable.ref(): value
            for name, group in groups.items()
            for variable, value in zip(group, state.weights[name], strict=True)
        }
        own = {shown.ref(): v.ref() for shown, v in spec.method.both_models(net, state.server)}
        # The server has no values of variables that clients keep.
        own = {ref: other for ref, other in own.items() if other in values}
        return OrderedDict(
            (name, [values[own.get(variable.ref(), variable.ref())] for variable in group])
            for name, group in groups.items()
        )


def with_variables(clients: Mapping[int, ClientState]) -> Mapping[int, ClientState]:
    """The states of clients that keep variables: a method keeps some at all clients or at none."""
    first = next(iter(clients.values()), None)
    return clients if first is not None and first.personal else {}


def _difference(place: str, given: Sequence[Any], variables: Sequence[Any]) -> str | None:
    """How given arrays differ from variables in number, shape or type; None if they do not."""
    if len(given) != len(variables):
        return f"{place} has {len(given)} variables there, and {len(variables)} here"
    for index, (array, variable) in enumerate(zip(given, variables, strict=True)):
        there, here = (
            f"{value.dtype.name}{list(value.shape)}".replace(" ", "") for value in (array, variable)
        )
        if there != here:
            return f"{place}/{index} is {there} there, and {here} here"
    return None
