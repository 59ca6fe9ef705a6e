"""The personal models themselves, which evaluation computes and discards."""

from __future__ import annotations

import tensorflow_federated as tff

from tff_pcdd.federated.evaluation import PersonalEvaluation
from tff_pcdd.federated.process import FederatedProcess, compose_at_clients
from tff_pcdd.federated.training_spec import TrainingSpec


def build_personalization(
    spec: TrainingSpec, process: FederatedProcess, *, local_epochs: bool = True
) -> tff.Computation:
    """Builds the TFF computation that returns personal models.

    It runs on the current runtime. On the runtime of the evaluation, its weights are bit-identical
    to the evaluated ones; other runtimes round differently, which may change single predictions.

    Args:
        spec: what the process was built from.
        process: the method's computations.
        local_epochs: whether to return the models after the local epochs instead of before them.

    Returns:
        A computation (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS →
        {weights}@CLIENTS) with the arguments of `evaluate_personal`; `weights` are the values of
        `Network.variables`.
    """

    @tff.tensorflow.computation(*process.tensors.client_types())
    def personal_weights(message, client_state, data):
        return PersonalEvaluation(spec).personal_weights(message, client_state, data, local_epochs)

    state_type = process.initialize.type_signature.result
    return compose_at_clients(process.tensors, personal_weights, state_type)
