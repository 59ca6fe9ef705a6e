"""Turns a method into TFF computations: broadcast, local update, aggregation, server step.

    initialize            ( → server_state@SERVER)
    initial_client_state  (seed → client_state)
    next                  (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS
                           → server_state@SERVER, {client_state}@CLIENTS, metrics@SERVER)
    evaluate_global       (server_state@SERVER, examples@SERVER → counts@SERVER)
    evaluate_personal     (server_state@SERVER, {client_state}@CLIENTS, {client_data}@CLIENTS
                           → {counts}@CLIENTS)
    evaluate_before       like evaluate_personal, but without local training: only counts before it

Client states are inputs and outputs placed at the clients, so that any TFF runtime can compute a
round; the caller stores them between rounds (`tff_pcdd.training`). All randomness is part of the
data: the seed in `client_data` is a function of (seed, round, client).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff

from tff_pcdd import stages
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import aggregators
from tff_pcdd.federated.aggregators import Aggregator, TffAggregator
from tff_pcdd.federated.evaluation import personal_epochs
from tff_pcdd.federated.own_code import explained, own_modules
from tff_pcdd.federated.records import ServerState
from tff_pcdd.federated.tensor_computations import TensorComputations, build_tensor_computations
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.type_sizes import count_bytes, message_bytes, tensor_sizes, tensors_of
from tff_pcdd.federated.upload import upload_of
from tff_pcdd.runtime import _tf_private


@dataclasses.dataclass(frozen=True)
class FederatedProcess:
    """The TFF computations of one method on one task; the module's docstring has their types.

    Evaluations of the package's methods are traced when they are first used.

    Attributes:
        tensors: what the computations consist of.
        initialize: makes the first state of the server.
        initial_client_state: makes the state of a client that has never taken part.
        next: computes a round.
        evaluate_global: counts the global model's correctly classified samples.
        evaluate_personal: counts those of the personal models, before and after local training.
        evaluate_before: counts those of the personal models before local training only.
        update_bytes: bytes that one client sends in a round as the change of its weights.
        extra_bytes: bytes of the other tensors that it sends, in a round in which it sends them.
        download_bytes: bytes that one client receives in every round.
        fixed_bytes: bytes that a client receives once, when it first trains.
        personal_bytes: bytes that one client keeps between rounds.
        personal_parameters: number of values that one client keeps between rounds.
        personal_epochs: local epochs between the two evaluations of a personal model.
        heads: names of the global model's heads in the counts of `evaluate_global`.
    """

    tensors: TensorComputations
    initialize: tff.Computation
    initial_client_state: tff.Computation
    next: tff.Computation
    update_bytes: int
    extra_bytes: int
    download_bytes: int
    fixed_bytes: int
    personal_bytes: int
    personal_parameters: int
    personal_epochs: int

    @functools.cached_property
    def heads(self) -> tuple[str, ...]:
        return tuple(dir(self.tensors.evaluate_global.type_signature.result["correct"]))

    @functools.cached_property
    def evaluate_global(self) -> tff.Computation:
        return self.at_server(self.tensors.evaluate_global)

    @functools.cached_property
    def evaluate_personal(self) -> tff.Computation:
        return self.at_clients(self.tensors.evaluate_personal)

    @functools.cached_property
    def evaluate_before(self) -> tff.Computation:
        return self.at_clients(self.tensors.evaluate_before)

    def at_server(self, compute: tff.Computation) -> tff.Computation:
        """Composes (server_state@SERVER, examples@SERVER → result@SERVER).

        Args:
            compute: what the server computes, (weights, examples → result).
        """
        _, examples_type = compute.type_signature.parameter

        @tff.federated_computation(
            self.initialize.type_signature.result, tff.FederatedType(examples_type, tff.SERVER)
        )
        def at_server(state, examples):
            return tff.federated_map(compute, (state.weights, examples))

        return at_server

    def at_clients(self, compute: tff.Computation) -> tff.Computation:
        """Composes a computation with the arguments of `next` and the clients' results.

        Args:
            compute: what a client computes, (message, client state, client data → result).
        """
        _, client_state_type, data_type = compute.type_signature.parameter

        @tff.federated_computation(
            self.initialize.type_signature.result,
            tff.FederatedType(client_state_type, tff.CLIENTS),
            tff.FederatedType(data_type, tff.CLIENTS),
        )
        def at_clients(state, client_states, client_data):
            message = _broadcast_message(self.tensors, state)
            return tff.federated_map(compute, (message, client_states, client_data))

        return at_clients


def build_process(
    spec: TrainingSpec,
    aggregator: Aggregator
    | tff.aggregators.WeightedAggregationFactory
    | tff.aggregators.UnweightedAggregationFactory
    | None = None,
    *,
    tensors: TensorComputations | None = None,
) -> FederatedProcess:
    """Builds the TFF computations of a method.

    Args:
        spec: method, task, optimizer and batches.
        aggregator: combines the clients' changes of the shared weights: an `Aggregator`, or any
            factory of `tff.aggregators` or `tff.learning`. The weighted mean by default.
        tensors: what was traced for the same spec, to build processes with several aggregators;
            tracing takes most of the time.

    Raises:
        SettingError: `spec` is no TrainingSpec, the aggregator cannot be used with the method or
            the size of the cohort, an optimizer cannot be used with the method, or a hook of a
            method that is not of the package fails.
    """
    if not isinstance(spec, TrainingSpec):
        raise SettingError("spec", spec, "must be a TrainingSpec, such as Simulation(config).spec")
    with explained(spec.method):
        return _build_process(spec, aggregator, tensors)


def _build_process(
    spec: TrainingSpec, aggregator: Any, tensors: TensorComputations | None
) -> FederatedProcess:
    if not spec.server_optimizer.adds_change:
        spec.server_optimizer.check(spec.method, upload_of(spec))
    spec.optimizer.check(spec.method)
    if aggregator is None:
        aggregator = aggregators.create("mean")
    elif not isinstance(aggregator, Aggregator):
        aggregator = TffAggregator(aggregator)
    if not aggregator.accepts_all:
        aggregator.check(spec.method, upload_of(spec))
    stages.enter(f"tracing the computations of {spec.method.name}")
    # Tracing starts TensorFlow; afterwards it would be too late.
    _tf_private.prepare()
    tensors = tensors or build_tensor_computations(spec)
    result_type = tensors.local_update.type_signature.result
    factory = aggregator.checked_factory(spec.task.cohort_size)
    aggregation = _Aggregation(
        update=_create(factory, result_type["update"]),
        statistics=_create(aggregator.statistics_factory(), result_type["statistics"]),
    )
    initialize = _compose_initialize(tensors, aggregation)
    state_type = initialize.type_signature.result
    weights_type = tensors.initial_weights.type_signature.result
    client_state_type = tensors.initial_client_state.type_signature.result
    kept_types = [client_state_type[part] for part in ("personal", "own")]
    message_type = tensors.make_message.type_signature.result
    fixed_bytes = count_bytes(weights_type["fixed"])
    process = FederatedProcess(
        tensors=tensors,
        initialize=initialize,
        initial_client_state=tensors.initial_client_state,
        next=_compose_next(tensors, aggregation, state_type),
        update_bytes=aggregator.upload_bytes(tensor_sizes(result_type["update"]))
        + count_bytes(result_type["statistics"]),
        extra_bytes=count_bytes(result_type["totals"]["sums"]),
        download_bytes=message_bytes(message_type) - fixed_bytes,
        fixed_bytes=fixed_bytes,
        personal_bytes=sum(map(count_bytes, kept_types)),
        personal_parameters=sum(sum(tensor_sizes(kept)) for kept in kept_types),
        personal_epochs=personal_epochs(spec),
    )
    if own_modules(spec.method):
        # Now, so that hooks that cannot be traced are refused before the first round.
        _ = process.evaluate_global, process.evaluate_personal
    return process


class _Aggregation(NamedTuple):
    """How the clients' changes are combined; None if clients send no such values."""

    update: tff.templates.AggregationProcess | None
    statistics: tff.templates.AggregationProcess | None


def _create(factory: Any, value_type: tff.Type) -> tff.templates.AggregationProcess | None:
    """The aggregation process of a factory, weighted or not; None if there are no tensors."""
    if not tensors_of(value_type):
        return None
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        return factory.create(value_type, tff.TensorType(np.float32))
    return factory.create(value_type)


def _compose_initialize(tensors: TensorComputations, aggregation: _Aggregation) -> tff.Computation:
    """The server's state before the first round."""

    def initial_state(process):
        return tff.federated_value((), tff.SERVER) if process is None else process.initialize()

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            ServerState(
                weights=tff.federated_eval(tensors.initial_weights, tff.SERVER),
                server=tff.federated_eval(tensors.initial_server, tff.SERVER),
                aggregator=tff.federated_zip(
                    OrderedDict(
                        update=initial_state(aggregation.update),
                        statistics=initial_state(aggregation.statistics),
                    )
                ),
                round=tff.federated_value(0, tff.SERVER),
            )
        )

    return initialize


def _broadcast_message(tensors: TensorComputations, state: Any) -> Any:
    """The server's message at the clients; `state` is the server's state as a TFF value."""
    message = tff.federated_map(tensors.make_message, (state.weights, state.server, state.round))
    return tff.federated_broadcast(message)


def _compose_next(
    tensors: TensorComputations, aggregation: _Aggregation, state_type: tff.Type
) -> tff.Computation:
    """One round of training."""
    _, client_state_type, data_type = tensors.local_update.type_signature.parameter

    def aggregate(process, process_state, values, weight):
        """The new state of an aggregation process, and the aggregate of the clients' values."""
        if process is None:
            return process_state, tff.federated_value([], tff.SERVER)
        weights = (weight,) if process.is_weighted else ()
        output = process.next(process_state, values, *weights)
        return output.state, output.result

    @tff.federated_computation(
        state_type,
        tff.FederatedType(client_state_type, tff.CLIENTS),
        tff.FederatedType(data_type, tff.CLIENTS),
    )
    def next_round(state, client_states, client_data):
        message = _broadcast_message(tensors, state)
        results = tff.federated_map(tensors.local_update, (message, client_states, client_data))
        update_state, update = aggregate(
            aggregation.update, state.aggregator.update, results.update, results.weight
        )
        statistics_state, statistics = aggregate(
            aggregation.statistics, state.aggregator.statistics, results.statistics, results.weight
        )
        aggregator_state = tff.federated_zip(
            OrderedDict(update=update_state, statistics=statistics_state)
        )
        totals = tff.federated_sum(results.totals)
        server_state = tff.federated_zip(
            ServerState(
                aggregator=(), round=state.round, server=state.server, weights=state.weights
            )
        )
        weights, server, round_number, step_taken = tff.federated_map(
            tensors.server_update,
            (server_state, update, statistics, totals.sums, totals.included),
        )
        new_state = tff.federated_zip(
            ServerState(
                weights=weights, server=server, aggregator=aggregator_state, round=round_number
            )
        )
        metrics = tff.federated_zip(
            OrderedDict(
                sums=totals.metrics,
                sent=totals.sent,
                included=totals.included,
                step_taken=step_taken,
            )
        )
        return new_state, results.state, metrics

    return next_round
