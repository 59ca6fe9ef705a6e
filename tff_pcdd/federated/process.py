"""Turns a method into TFF computations: broadcast, local update, aggregate, evaluate.

    initialize            ( → server_state@SERVER)
    initial_client_state  (seed → client_state)
    next                  (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS
                           → server_state@SERVER, {client_state}@CLIENTS, metrics@SERVER)
    evaluate_global       (server_state@SERVER, examples@SERVER → counts@SERVER)
    evaluate_personal     (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS
                           → {counts}@CLIENTS)
    evaluate_before       the same without any local training, and so only the counts before it

Client states enter and leave placed at the clients, so that any TFF runtime can run the round; who
keeps them between rounds is the caller's business (`tff_pcdd.training`). All randomness enters as
data: the seed in `client_data` is a function of (seed, round, client).
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict

import numpy as np
import tensorflow_federated as tff

from tff_pcdd.federated import programs
from tff_pcdd.federated.aggregators import Aggregation
from tff_pcdd.federated.programs import (
    ClientProgram,
    GlobalProgram,
    Learning,
    ServerProgram,
    ordered,
)


@dataclasses.dataclass(frozen=True)
class FederatedProcess:
    """The computations of one method on one task.

    Attributes:
        initialize, initial_client_state, next, evaluate_global, evaluate_personal,
            evaluate_before: TFF computations as the module's docstring gives them.
        update_bytes: what one client sends in a round as the change of its weights.
        extra_bytes: what it sends beside that, in a round in which it does.
        download_bytes: what one client receives in every round.
        fixed_bytes: what a client receives once, when it first takes part.
        personal_bytes: what one client keeps between rounds.
        personal_parameters: of how many numbers that consists.
        personal_epochs: local epochs between the two evaluations of a personal model.
        heads: names of the global model's heads in the counts of `evaluate_global`.
    """

    initialize: tff.Computation
    initial_client_state: tff.Computation
    next: tff.Computation
    evaluate_global: tff.Computation
    evaluate_personal: tff.Computation
    evaluate_before: tff.Computation
    update_bytes: int
    extra_bytes: int
    download_bytes: int
    fixed_bytes: int
    personal_bytes: int
    personal_parameters: int
    personal_epochs: int
    heads: tuple[str, ...]


def build_process(
    learning: Learning,
    aggregator: Aggregation
    | tff.aggregators.WeightedAggregationFactory
    | tff.aggregators.UnweightedAggregationFactory
    | None = None,
) -> FederatedProcess:
    """Builds the TFF computations of a method.

    Args:
        learning: method, task, optimiser and batches.
        aggregator: how the clients' changes of the shared weights become one: an `Aggregation`, or
            any factory of `tff.aggregators` or `tff.learning`. The weighted mean by default.

    Returns:
        A `FederatedProcess`.

    Raises:
        OptionError: the method's upload would pass the `Aggregation` by, or it cannot be.
    """
    method, spec = learning.method, learning.input_spec
    aggregator = aggregator or Aggregation()

    @tff.tensorflow.computation
    def initial_weights():
        return programs.initial_weights(learning)

    @tff.tensorflow.computation
    def initial_server():
        return programs.initial_server(learning)

    seed_type = tff.TensorType(np.int32, [2])

    @tff.tensorflow.computation(seed_type)
    def initial_client_state(seed):
        return programs.initial_client_state(learning, seed)

    weights_type = initial_weights.type_signature.result
    server_type = initial_server.type_signature.result
    client_state_type = initial_client_state.type_signature.result
    examples_type = tff.to_type(
        OrderedDict(
            x=tff.TensorType(
                # TFF calls strings np.str_.
                np.dtype("str" if spec.dtype == "string" else spec.dtype).type,
                [None, *spec.raw_shape],
            ),
            y=tff.TensorType(np.int32, [None]),
        )
    )
    slot_type = tff.TensorType(np.int32)
    train_type = tff.to_type(OrderedDict(train=examples_type, seed=seed_type, slot=slot_type))
    test_type = tff.to_type(
        OrderedDict(train=examples_type, test=examples_type, seed=seed_type, slot=slot_type)
    )
    # Whatever is held out is measured beside the test part, since training before it is what costs.
    personal_type = test_type
    if learning.validation:
        personal_type = tff.to_type(
            OrderedDict(
                train=examples_type,
                test=examples_type,
                validation=examples_type,
                seed=seed_type,
                slot=slot_type,
            )
        )

    # The same message opens a training round and a personal evaluation.
    @tff.tensorflow.computation(weights_type, server_type, np.int32)
    def make_message(weights, server, round_number):
        return OrderedDict(
            weights=weights, server=ordered(method.broadcast(server)), round=round_number
        )

    message_type = make_message.type_signature.result

    @tff.tensorflow.computation(message_type, client_state_type, train_type)
    def local_update(message, state, data):
        return ClientProgram(learning).update(message, state, data)

    @tff.tensorflow.computation(message_type, client_state_type, personal_type)
    def local_evaluation(message, state, data):
        return ClientProgram(learning).evaluate(message, state, data)

    @tff.tensorflow.computation(message_type, client_state_type, test_type)
    def local_evaluation_before(message, state, data):
        return ClientProgram(learning).evaluate_before(message, state, data)

    @tff.tensorflow.computation(weights_type, examples_type)
    def global_evaluation(weights, examples):
        return GlobalProgram(learning).evaluate(weights, examples)

    result_type = local_update.type_signature.result
    sizes = [math.prod(tensor.shape) for tensor in _tensors(result_type["update"])]
    update_bytes = _bytes(result_type["update"])
    if isinstance(aggregator, Aggregation):
        aggregator.check(method.name, sizes, dir(result_type["sums"]))
        update_bytes = aggregator.upload_bytes(sizes)
        aggregator = aggregator.factory(learning.task.cohort_size)
    shares_weights = bool(sizes)
    aggregation = _create(aggregator, result_type["update"]) if shares_weights else None

    @tff.federated_computation
    def initial_aggregation():
        if aggregation is None:
            return tff.federated_value((), tff.SERVER)
        return aggregation.initialize()

    @tff.tensorflow.computation(
        OrderedDict(weights=weights_type, server=server_type, round=np.int32),
        result_type["update"],
        result_type["sums"],
        np.float32,
    )
    def server_update(state, change, sums, cohort_size):
        weights, server = ServerProgram(learning).step(state, change, sums, cohort_size)
        return weights, server, state["round"] + 1

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            OrderedDict(
                weights=tff.federated_eval(initial_weights, tff.SERVER),
                server=tff.federated_eval(initial_server, tff.SERVER),
                aggregator=initial_aggregation(),
                round=tff.federated_value(0, tff.SERVER),
            )
        )

    state_type = initialize.type_signature.result

    def message_of(state):
        return tff.federated_broadcast(
            tff.federated_map(make_message, (state.weights, state.server, state.round))
        )

    @tff.federated_computation(
        state_type,
        tff.FederatedType(client_state_type, tff.CLIENTS),
        tff.FederatedType(train_type, tff.CLIENTS),
    )
    def next_round(state, client_states, client_data):
        results = tff.federated_map(local_update, (message_of(state), client_states, client_data))
        aggregator_state = state.aggregator
        change = tff.federated_value((), tff.SERVER)
        if aggregation is not None:
            arguments = [aggregator_state, results.update]
            if aggregation.is_weighted:
                arguments.append(results.weight)
            output = aggregation.next(*arguments)
            aggregator_state, change = output.state, output.result
        sums = tff.federated_sum(results.sums)
        ones = tff.federated_value(1.0, tff.CLIENTS)
        weights, server, round_number = tff.federated_map(
            server_update,
            (
                tff.federated_zip(
                    OrderedDict(weights=state.weights, server=state.server, round=state.round)
                ),
                change,
                sums,
                tff.federated_sum(ones),
            ),
        )
        new_state = tff.federated_zip(
            OrderedDict(
                weights=weights, server=server, aggregator=aggregator_state, round=round_number
            )
        )
        metrics = tff.federated_zip(
            OrderedDict(
                sums=tff.federated_sum(results.metrics), sent=tff.federated_sum(results.sent)
            )
        )
        return new_state, results.state, metrics

    @tff.federated_computation(state_type, tff.FederatedType(examples_type, tff.SERVER))
    def evaluate_global(state, examples):
        return tff.federated_map(global_evaluation, (state.weights, examples))

    @tff.federated_computation(
        state_type,
        tff.FederatedType(client_state_type, tff.CLIENTS),
        tff.FederatedType(personal_type, tff.CLIENTS),
    )
    def evaluate_personal(state, client_states, client_data):
        return tff.federated_map(local_evaluation, (message_of(state), client_states, client_data))

    @tff.federated_computation(
        state_type,
        tff.FederatedType(client_state_type, tff.CLIENTS),
        tff.FederatedType(test_type, tff.CLIENTS),
    )
    def evaluate_before(state, client_states, client_data):
        return tff.federated_map(
            local_evaluation_before, (message_of(state), client_states, client_data)
        )

    return FederatedProcess(
        initialize=initialize,
        initial_client_state=initial_client_state,
        next=next_round,
        evaluate_global=evaluate_global,
        evaluate_personal=evaluate_personal,
        evaluate_before=evaluate_before,
        update_bytes=update_bytes,
        extra_bytes=_bytes(result_type["sums"]),
        download_bytes=_bytes(message_type) - _bytes(weights_type["fixed"]),
        fixed_bytes=_bytes(weights_type["fixed"]),
        personal_bytes=sum(_bytes(client_state_type[part]) for part in ("personal", "own")),
        personal_parameters=sum(_elements(client_state_type[part]) for part in ("personal", "own")),
        personal_epochs=programs.personal_epochs(learning),
        heads=tuple(dir(global_evaluation.type_signature.result["right"])),
    )


def _create(aggregator, value_type):
    """The aggregation process of a factory, weighted or not, for values of a type."""
    if isinstance(aggregator, tff.aggregators.WeightedAggregationFactory):
        return aggregator.create(value_type, tff.TensorType(np.float32))
    return aggregator.create(value_type)


def _tensors(type_spec: tff.Type) -> list[tff.TensorType]:
    """The tensors that a type consists of."""
    if isinstance(type_spec, tff.TensorType):
        return [type_spec]
    return [tensor for element in type_spec.children() for tensor in _tensors(element)]


def _elements(type_spec: tff.Type) -> int:
    """Numbers in a value of a type whose shapes are all known."""
    return sum(math.prod(tensor.shape) for tensor in _tensors(type_spec))


def _bytes(type_spec: tff.Type) -> int:
    """Size of a value of a type whose shapes are all known."""
    return sum(
        math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in _tensors(type_spec)
    )
