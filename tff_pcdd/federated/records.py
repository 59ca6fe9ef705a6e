"""What travels between server and clients, and what each of them keeps.

The fields stand in alphabetical order, in which TensorFlow flattens dicts: checkpoints of earlier
versions, which number the tensors of dicts with the same names, stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf


class ServerState(NamedTuple):
    """What the server keeps between rounds.

    Attributes:
        aggregator: the state of the aggregator; empty within the server's step.
        round: int32 scalar, number of rounds so far.
        server: the method's tensors, see `Method.server_state`; if a server optimizer has tensors,
            they are the entry `state.OPTIMIZER`.
        weights: tensors by placement, as `weights.weights_of` returns them.
    """

    aggregator: Any
    round: Any
    server: Mapping[str, Any]
    weights: Mapping[str, Sequence[tf.Tensor]]


class Message(NamedTuple):
    """What the server sends to the clients, for a round and for a personal evaluation.

    Attributes:
        round: as in `ServerState`.
        server: what `Method.broadcast` returns.
        weights: as in `ServerState`.
    """

    round: Any
    server: Mapping[str, Any]
    weights: Mapping[str, Sequence[tf.Tensor]]


class ClientState(NamedTuple):
    """What a client keeps between rounds.

    Attributes:
        own: the method's tensors, see `Method.client_state`.
        participations: int32 scalar, rounds in which the client took part and had samples to train
            on.
        personal: the values of `Network.kept`; before the first of these rounds, those of mirrored
            variables are without effect.
    """

    own: Mapping[str, Any]
    participations: Any
    personal: Sequence[tf.Tensor]


class ClientData(NamedTuple):
    """The samples of a client, and what else a round depends on.

    Examples are `x`, inputs as stored [n, …], and `y`, labels int32 [n].

    Attributes:
        cohort_index: int32 scalar, the client's position in the cohort, from 0.
        seed: int32 [2], a function of seed, round and client: all draws depend on it.
        train: the examples of local training.
        test: those on which the personal model is evaluated; empty in a training round.
        validation: those that were held out; empty in a training round and where none are.
    """

    cohort_index: Any
    seed: Any
    train: Mapping[str, Any]
    # As an empty structure: TFF's types know no None.
    test: Any = ()
    validation: Any = ()
