"""An actor of the runtime `ray`: computes shares of rounds in a process of its own.

It runs computations as the runtime `inprocess` does, with as many threads as it has CPUs. It keeps
the data and states of its clients between rounds; see `transport`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import ray
import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd import machine
from tff_pcdd._version import __version__
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.runtime import _tff_private, inprocess
from tff_pcdd.runtime.ray import transport
from tff_pcdd.runtime.ray.transport import Named

# A function that returns arrays, such as the data of one client.
Source = Callable[[], Sequence[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Work:
    """A share of a computation.

    Attributes:
        computation: name of `Plan.local`.
        begin, end: the clients of the share, as a range of positions in the cohort.
        num_clients: number of clients in the cohort.
        clients: `Plan.client_argument` of the clients of the share, with `Named` arrays.
        kept_arguments: see `Plan`; the actor drops them, because new values replace them.
        kept_results: see `Plan`; the actor keeps them.
        tensor_float_32, deterministic: see `inprocess.InProcessContext`.
    """

    computation: bytes
    begin: int
    end: int
    num_clients: int
    clients: list
    kept_arguments: Sequence[int]
    kept_results: Sequence[int]
    tensor_float_32: bool = False
    deterministic: bool = False


class ShareActor:
    """Computes shares, one at a time.

    Args:
        threads: number of TensorFlow's threads, and, without a GPU, of clients that train at the
            same time.
        cache_bytes: maximum size of the clients' arrays that are kept.
        uses_gpus: whether Ray has given it GPUs; if not, it does not use those of the machine.
    """

    def __init__(self, threads: int, cache_bytes: float, uses_gpus: bool):
        if not uses_gpus:
            tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        gpus = tf.config.get_visible_devices("GPU")
        for gpu in gpus:
            # Several actors may share a GPU.
            tf.config.experimental.set_memory_growth(gpu, True)
        self._context = inprocess.create_context(client_parallelism=None if gpus else threads)
        self._computations: dict[bytes, tff.framework.ConcreteComputation] = {}
        self._arrays = transport.ArrayCache(cache_bytes)
        self._sources: dict[bytes, tuple[Source, int]] = {}
        self._names = transport.Names()

    def ping(self) -> tuple[str, str]:
        """Returns this package's version and the id of the node, even while a share is computed."""
        return __version__, ray.get_runtime_context().get_node_id()

    def slow_bfloat16(self) -> str | None:
        """Why this actor does not compute fast in bfloat16; None if it does."""
        return machine.slow_bfloat16()

    def load(self, sources: Callable[[], Iterable[Source]]) -> frozenset[bytes] | str:
        """Loads clients' data, which then need not be sent.

        Returns:
            The names of the arrays, or the reason why they cannot be loaded.
        """
        try:
            self._sources = {
                transport.name_of(array): (source, index)
                for source in sources()
                for index, array in enumerate(source())
            }
        except (DataError, SettingError, OSError, ImportError) as error:
            return str(error)
        return frozenset(self._sources)

    def add_computation(self, name: bytes, serialized: bytes) -> None:
        """Keeps a computation."""
        proto = _tff_private.ComputationProto.FromString(serialized)
        self._computations[name] = tff.framework.deserialize_computation(proto)

    def compute(self, work: Work, from_server: Any) -> tuple[Any, list] | None:
        """Computes a share, from the result of `Plan.before`.

        Returns:
            Partial sums and client results, as nested tuples, with `Named` arrays in the results
            that are kept. None if this actor lacks the computation or an array, which then has to
            be sent.
        """
        computation = self._computations.get(work.computation)
        if computation is None:
            return None
        try:
            clients = transport.map_leaves(self._resolve, work.clients)
        except KeyError:
            return None
        self._context.tensor_float_32 = work.tensor_float_32
        self._context.deterministic = work.deterministic
        try:
            sums, results = self._context.evaluate(
                computation, (from_server, clients), work.end - work.begin
            )
        except inprocess.ClientError as error:
            client, cause = work.begin + error.client, error.__cause__ or error
            raise inprocess.ClientError(client, work.num_clients, cause) from cause
        if work.kept_results:
            for position in work.kept_arguments:
                transport.map_leaves(self._drop, work.clients[position])
        return sums, [
            transport.map_leaves(self._keep, result) if position in work.kept_results else result
            for position, result in enumerate(results)
        ]

    def _resolve(self, leaf: Any) -> Any:
        """The array that a leaf stands for.

        Raises:
            KeyError: this actor does not have the array.
        """
        if not isinstance(leaf, Named):
            return leaf
        if leaf.array is not None:
            # The argument is in the node's shared memory, which is freed after the call.
            array = np.array(leaf.array)
            self._arrays.add(leaf.name, array)
            return array
        kept = self._arrays.get(leaf.name)
        if kept is not None:
            return kept
        source, index = self._sources[leaf.name]
        array = source()[index]
        self._arrays.add(leaf.name, array)
        return array

    def _drop(self, leaf: Any) -> None:
        if isinstance(leaf, Named):
            self._arrays.drop(leaf.name)

    def _keep(self, leaf: Any) -> Any:
        named = self._names.named(leaf)
        if isinstance(named, Named) and named.array is not None:
            self._arrays.add(named.name, named.array)
        return named
