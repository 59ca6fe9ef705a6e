"""A method's TensorFlow functions as TFF computations without placements."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_pcdd.federated import state as states
from tff_pcdd.federated.client_work import ClientWork
from tff_pcdd.federated.evaluation import GlobalEvaluation, PersonalEvaluation
from tff_pcdd.federated.own_code import explained
from tff_pcdd.federated.records import ClientData, ServerState
from tff_pcdd.federated.server_work import ServerWork, accept_if_finite
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import WeightsChange
from tff_pcdd.runtime import _tf_private

_SEED = tff.TensorType(np.int32, [2])
_TOTALS = ("sums", "metrics", "sent", "included")


@dataclasses.dataclass(frozen=True)
class TensorComputations:
    """What server and clients compute, one TFF computation for each step.

    Evaluations and `client_state_from` are traced when they are first used: few uses need all of
    them.

    Attributes:
        spec: what the computations were traced from.
        initial_weights: ( → weights)
        initial_server: ( → server tensors)
        initial_client_state: (seed → client state)
        client_state_from: (weights, seed → client state), if these are the server's first weights
        make_message: (weights, server tensors, round → message)
        local_update: (message, client state, client data → result of `ClientWork.update`, in which
            `update` is a list of the changes of trainable variables, shared and mirrored,
            `statistics` the list of the other changes, and `totals` a struct of all that is added
            up over the cohort: `sums`, `metrics`, `sent` and `included`)
        server_update: (state, without the aggregator's, update, statistics, sums, cohort size
            → weights, server tensors, round, float32 scalar: 1 if the step was taken, 0 if it was
            not finite)
        evaluate_global: (weights, examples → counts)
        evaluate_personal, evaluate_before: (message, client state, client data → counts)
    """

    spec: TrainingSpec
    initial_weights: tff.Computation
    initial_server: tff.Computation
    initial_client_state: tff.Computation
    make_message: tff.Computation
    local_update: tff.Computation
    server_update: tff.Computation

    def traced(self, *types: Any) -> Callable[[Callable[..., Any]], tff.Computation]:
        """Makes a function of these types a computation, later than the others."""

        def trace(python_function):
            with explained(self.spec.method), _tf_private.layers_of_a_graph():
                return tff.tensorflow.computation(*types)(python_function)

        return trace

    @functools.cached_property
    def client_state_from(self) -> tff.Computation:
        @self.traced(self.initial_weights.type_signature.result, _SEED)
        def client_state_from(weights, seed):
            return states.initial_client_state(self.spec, seed, weights)

        return client_state_from

    @functools.cached_property
    def evaluate_global(self) -> tff.Computation:
        weights_type = self.initial_weights.type_signature.result

        @self.traced(weights_type, examples_type(self.spec))
        def evaluate_global(weights, examples):
            return GlobalEvaluation(self.spec).evaluate(weights, examples)

        return evaluate_global

    @functools.cached_property
    def evaluate_personal(self) -> tff.Computation:
        return self.of_personal_model(lambda evaluation: evaluation.evaluate)

    @functools.cached_property
    def evaluate_before(self) -> tff.Computation:
        return self.of_personal_model(lambda evaluation: evaluation.evaluate_before)

    def of_personal_model(
        self, choose: Callable[[PersonalEvaluation], Callable[..., Any]]
    ) -> tff.Computation:
        """Traces what a client computes of its personal model, (message, state, data → result).

        Args:
            choose: gives the function of a `PersonalEvaluation` that is traced.
        """
        # Validation samples are evaluated together with the test samples, because most of the time
        # is spent on what precedes.
        parts = ("train", "test", "validation") if self.spec.validation else ("train", "test")

        @self.traced(
            self.make_message.type_signature.result,
            self.initial_client_state.type_signature.result,
            client_data_type(self.spec, *parts),
        )
        def at_client(message, state, data):
            return choose(PersonalEvaluation(self.spec))(message, state, data)

        return at_client


def examples_type(spec: TrainingSpec) -> tff.Type:
    """The type of examples as stored."""
    # TFF's dtype of strings is np.str_.
    dtype = np.dtype("str" if spec.input_spec.dtype == "string" else spec.input_spec.dtype).type
    return tff.to_type(
        OrderedDict(
            x=tff.TensorType(dtype, [None, *spec.input_spec.raw_shape]),
            y=tff.TensorType(np.int32, [None]),
        )
    )


def client_data_type(spec: TrainingSpec, *parts: str) -> tff.Type:
    """The type of a client's data, of which evaluations need further parts than "train"."""
    examples = examples_type(spec)
    return tff.to_type(
        ClientData(
            **dict.fromkeys(parts, examples), seed=_SEED, cohort_index=tff.TensorType(np.int32)
        )
    )


@_tf_private.layers_of_a_graph()
def build_tensor_computations(spec: TrainingSpec) -> TensorComputations:
    """Traces what a method computes."""

    @tff.tensorflow.computation
    def initial_weights():
        return states.initial_weights(spec)

    @tff.tensorflow.computation
    def initial_server():
        return states.initial_server(spec)

    @tff.tensorflow.computation(_SEED)
    def initial_client_state(seed):
        return states.initial_client_state(spec, seed)

    weights_type = initial_weights.type_signature.result
    server_type = initial_server.type_signature.result
    client_state_type = initial_client_state.type_signature.result

    @tff.tensorflow.computation(weights_type, server_type, np.int32)
    def make_message(weights, server, round_number):
        state = ServerState(aggregator=(), round=round_number, server=server, weights=weights)
        with spec.outline() as net:
            pass
        return function(functools.partial(states.make_message, spec.method), net)(state)

    message_type = make_message.type_signature.result

    @tff.tensorflow.computation(message_type, client_state_type, client_data_type(spec, "train"))
    def local_update(message, state, data):
        result = ClientWork(spec).update(message, state, data)
        change = result["update"]
        result["update"] = [*change.trainable, *change.mirrored]
        result["statistics"] = list(change.statistics)
        # One struct, because a sum over a cohort takes time for each client and each sum.
        result["totals"] = OrderedDict((name, result.pop(name)) for name in _TOTALS)
        return result

    result_type = local_update.type_signature.result

    @tff.tensorflow.computation(
        ServerState(aggregator=(), round=np.int32, server=server_type, weights=weights_type),
        result_type["update"],
        result_type["statistics"],
        result_type["totals"]["sums"],
        np.float32,
    )
    def server_update(state, update, statistics, sums, cohort_size):
        num_shared = len(weights_type["trainable"])
        change = WeightsChange(update[:num_shared], update[num_shared:], statistics)
        new = ServerWork(spec).step(state, change, sums, cohort_size)
        old = state.weights, state.server
        (weights, server), step_taken = accept_if_finite(new, old)
        return weights, server, state.round + 1, step_taken

    return TensorComputations(
        spec=spec,
        initial_weights=initial_weights,
        initial_server=initial_server,
        initial_client_state=initial_client_state,
        make_message=make_message,
        local_update=local_update,
        server_update=server_update,
    )
