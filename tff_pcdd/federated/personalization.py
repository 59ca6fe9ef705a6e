"""The personal models themselves, which evaluation makes, scores and drops."""

from __future__ import annotations

from collections import OrderedDict

import tensorflow_federated as tff

from tff_pcdd.federated.process import FederatedProcess
from tff_pcdd.federated.programs import ClientProgram, Learning, ordered


def build_personalization(
    learning: Learning, process: FederatedProcess, *, local_epochs: bool = True
) -> tff.Computation:
    """Builds the TFF computation that hands personal models out.

    It runs where evaluation ran, so that not a bit of a weight is another: training in another
    runtime rounds otherwise, and a network of which a sample or two depend on that is another one.

    Args:
        learning: what the process was built from.
        process: the method's computations.
        local_epochs: whether the models are those after the local epochs, or before.

    Returns:
        A computation (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS →
        {weights}@CLIENTS), its arguments those of `evaluate_personal`, its result the values of
        `Network.variables` for each client.
    """
    method = learning.method
    state_type, states_type, data_type = process.evaluate_personal.type_signature.parameter

    @tff.tensorflow.computation(state_type.member, states_type.member, data_type.member)
    def personal_weights(state, client_state, data):
        message = OrderedDict(
            weights=state["weights"],
            server=ordered(method.broadcast(state["server"])),
            round=state["round"],
        )
        return ClientProgram(learning).personal_weights(message, client_state, data, local_epochs)

    @tff.federated_computation(state_type, states_type, data_type)
    def personalize(state, client_states, client_data):
        return tff.federated_map(
            personal_weights, (tff.federated_broadcast(state), client_states, client_data)
        )

    return personalize
