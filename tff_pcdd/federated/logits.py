"""The logits of the global and the personal models; evaluation returns only predicted classes."""

from __future__ import annotations

import tensorflow_federated as tff

from tff_pcdd.federated.evaluation import GlobalEvaluation, PersonalEvaluation
from tff_pcdd.federated.process import FederatedProcess, compose_at_clients
from tff_pcdd.federated.training_spec import TrainingSpec


def build_global_logits(spec: TrainingSpec, process: FederatedProcess) -> tff.Computation:
    """Builds the TFF computation that returns the global model's logits.

    Args:
        spec: what the process was built from.
        process: the method's computations.

    Returns:
        A computation (server_state@SERVER, examples@SERVER → logits@SERVER) with the arguments of
        `evaluate_global`; `logits` are float32 [n, C].
    """
    state_type, examples_type = process.evaluate_global.type_signature.parameter

    @tff.tensorflow.computation(state_type.member, examples_type.member)
    def answer(state, examples):
        return GlobalEvaluation(spec).logits(state.weights, examples)

    @tff.federated_computation(state_type, examples_type)
    def global_logits(state, examples):
        return tff.federated_map(answer, (state, examples))

    return global_logits


def build_personal_logits(spec: TrainingSpec, process: FederatedProcess) -> tff.Computation:
    """Builds the TFF computation that returns the personal models' logits after local training.

    Args:
        spec: what the process was built from.
        process: the method's computations.

    Returns:
        A computation (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS →
        {logits}@CLIENTS) with the arguments of `evaluate_personal`; `logits` are float32 [n, C] for
        `test` and, if there is one, `validation`.
    """

    @tff.tensorflow.computation(*process.tensors.client_types())
    def answer(message, client_state, data):
        return PersonalEvaluation(spec).logits(message, client_state, data)

    return compose_at_clients(process.tensors, answer, process.initialize.type_signature.result)
