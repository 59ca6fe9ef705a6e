"""Initial states of server and clients, and the message from the server to the clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_pcdd.federated import initialization
from tff_pcdd.federated.records import ClientState, Message, ServerState
from tff_pcdd.federated.tracing import function
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import load, weights_of
from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.network import Network, read

# The entry of the server optimizer's tensors among those of the method at the server; not sent.
OPTIMIZER = "server_optimizer"


def ordered(value: Any) -> Any:
    """Replaces dicts by ordered dicts with sorted keys at every level, so that types are stable."""
    if isinstance(value, Mapping):
        return OrderedDict((key, ordered(value[key])) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return [ordered(element) for element in value]
    return value


def make_message(method: Method, state: ServerState) -> Message:
    """What the server sends to the clients, for a training round and for a personal evaluation."""
    return Message(
        weights=state.weights,
        server=ordered(method.broadcast(without_optimizer(state.server))),
        round=state.round,
    )


def without_optimizer(server: Mapping[str, Any]) -> dict[str, Any]:
    """The server's tensors of the method alone."""
    return {name: value for name, value in server.items() if name != OPTIMIZER}


def initial_weights(spec: TrainingSpec) -> OrderedDict[str, list[tf.Tensor]]:
    """The initial weights, a function of the task's seed."""
    return _with_initial_values(spec, weights_of)


def initial_server(spec: TrainingSpec) -> OrderedDict[str, Any]:
    """What the server keeps besides the weights before the first round."""
    server: OrderedDict[str, Any] = OrderedDict()
    if spec.method.overrides("server_state"):
        server = _with_initial_values(
            spec, lambda net: ordered(spec.method.server_state(net, spec.task))
        )
    if not spec.server_optimizer.adds_change:
        with spec.outline() as net:
            shapes = [variable.shape for variable in net.shared.trainable]
        if own := spec.server_optimizer.initial_state([tf.zeros(shape) for shape in shapes]):
            server[OPTIMIZER] = ordered(own)
    return ordered(server)


def initial_client_state(
    spec: TrainingSpec,
    seed: tf.Tensor,
    weights: Mapping[str, Sequence[tf.Tensor]] | None = None,
) -> ClientState:
    """The state of a client that has never taken part.

    Args:
        spec: what is computed in a round.
        seed: int32 [2], different for every client.
        weights: the first weights of the server; by default `initial_weights`.
    """

    if not _needs_initial_values(spec):
        return ClientState(personal=[], own=OrderedDict(), participations=tf.zeros([], tf.int32))

    def state(net: Network, seed: tf.Tensor, *given: Any) -> ClientState:
        for weights in given:
            load(net, weights)
        return ClientState(
            personal=[
                *spec.method.initial_personal(net, seed),
                *read(net.mirrored.all),
            ],
            own=ordered(spec.method.client_state(net, spec.task, seed)),
            participations=tf.zeros([], tf.int32),
        )

    return _with_initial_values(spec, state, seed, *([] if weights is None else [weights]))


def _needs_initial_values(spec: TrainingSpec) -> bool:
    """Whether the first state of a client depends on a network; to make one takes time."""
    if spec.method.overrides("client_state") or spec.method.overrides("initial_personal"):
        return True
    with spec.outline() as net:
        return bool(net.kept)


def _with_initial_values(spec: TrainingSpec, compute: Callable[..., Any], *arguments: Any) -> Any:
    """`compute(net, *arguments)` for a network with its initial values."""
    with initialization.deferred() as first:
        net = spec.network()

    def run(*arguments):
        first.assign(net.parts, spec.task.seed)
        return compute(net, *arguments)

    return function(run, net)(*arguments)
