"""What evaluation computes and discards: the logits, and the personal models themselves.

Each function builds a TFF computation with the arguments of one of the process's evaluations.
"""

from __future__ import annotations

import functools

import tensorflow_federated as tff

from tff_pcdd.federated.evaluation import GlobalEvaluation
from tff_pcdd.federated.process import FederatedProcess


def build_global_logits(process: FederatedProcess) -> tff.Computation:
    """The global model's logits at the server, float32 [n, C]; arguments of `evaluate_global`."""
    tensors = process.tensors

    @tensors.traced(*tensors.evaluate_global.type_signature.parameter)
    def answer(weights, examples):
        return GlobalEvaluation(tensors.spec).logits(weights, examples)

    return process.at_server(answer)


def build_personal_logits(process: FederatedProcess) -> tff.Computation:
    """The personal models' logits after local training; arguments of `evaluate_personal`.

    Of each client, float32 [n, C] for `test` and, if there is one, `validation`.
    """
    return process.at_clients(process.tensors.of_personal_model(lambda of: of.logits))


def build_personalization(
    process: FederatedProcess, *, local_epochs: bool = True
) -> tff.Computation:
    """The personal models, as the values of `Network.variables`; arguments of `evaluate_personal`.

    It runs on the current runtime. On the runtime of the evaluation, its weights are bit-identical
    to the evaluated ones; other runtimes round differently, which may change single predictions.

    Args:
        process: the method's computations.
        local_epochs: whether to return the models after the local epochs instead of before them.
    """
    return process.at_clients(
        process.tensors.of_personal_model(
            lambda of: functools.partial(of.personal_weights, local_epochs=local_epochs)
        )
    )
