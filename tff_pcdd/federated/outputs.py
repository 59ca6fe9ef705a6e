"""What evaluation computes and discards: the logits, and the personal models themselves."""

from __future__ import annotations

import tensorflow_federated as tff

from tff_pcdd.federated.evaluation import GlobalEvaluation, PersonalEvaluation
from tff_pcdd.federated.process import (
    FederatedProcess,
    compose_at_clients,
    compose_global_evaluation,
)


def build_global_logits(process: FederatedProcess) -> tff.Computation:
    """Builds the TFF computation that returns the global model's logits.

    Args:
        process: the method's computations.

    Returns:
        A computation (server_state@SERVER, examples@SERVER → logits@SERVER) with the arguments of
        `evaluate_global`; `logits` are float32 [n, C].
    """
    tensors = process.tensors

    @tff.tensorflow.computation(*tensors.evaluate_global.type_signature.parameter)
    def answer(weights, examples):
        return GlobalEvaluation(tensors.spec).logits(weights, examples)

    return compose_global_evaluation(answer, process.initialize.type_signature.result)


def build_personal_logits(process: FederatedProcess) -> tff.Computation:
    """Builds the TFF computation that returns the personal models' logits after local training.

    Args:
        process: the method's computations.

    Returns:
        A computation (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS →
        {logits}@CLIENTS) with the arguments of `evaluate_personal`; `logits` are float32 [n, C] for
        `test` and, if there is one, `validation`.
    """
    tensors = process.tensors

    @tff.tensorflow.computation(*tensors.client_types())
    def answer(message, client_state, data):
        return PersonalEvaluation(tensors.spec).logits(message, client_state, data)

    return compose_at_clients(tensors, answer, process.initialize.type_signature.result)


def build_personalization(
    process: FederatedProcess, *, local_epochs: bool = True
) -> tff.Computation:
    """Builds the TFF computation that returns personal models.

    It runs on the current runtime. On the runtime of the evaluation, its weights are bit-identical
    to the evaluated ones; other runtimes round differently, which may change single predictions.

    Args:
        process: the method's computations.
        local_epochs: whether to return the models after the local epochs instead of before them.

    Returns:
        A computation (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS →
        {weights}@CLIENTS) with the arguments of `evaluate_personal`; `weights` are the values of
        `Network.variables`.
    """
    tensors = process.tensors

    @tff.tensorflow.computation(*tensors.client_types())
    def personal_weights(message, client_state, data):
        evaluation = PersonalEvaluation(tensors.spec)
        return evaluation.personal_weights(message, client_state, data, local_epochs)

    return compose_at_clients(tensors, personal_weights, process.initialize.type_signature.result)
