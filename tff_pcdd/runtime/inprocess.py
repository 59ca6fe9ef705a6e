"""Runtime `inprocess`: runs TFF computations with the TensorFlow of this Python process.

It serializes nothing, starts no processes, and uses the GPUs that TensorFlow finds. Clients are
assigned to the devices in turn (client i to device i mod n), and several can run on a device at the
same time. The server's work runs on the first device. The results of clients are moved to host
memory, so that a cohort does not have to fit into a GPU. Those of the server's own GPU stay there
up to 1 GiB, or an eighth of its memory if that is limited.

Results are always combined in the order of the clients, so they do not depend on how many clients
run at the same time. The exception is TensorFlow's stateful random ops with a seed: all clients
draw from one sequence, in order of execution. Use `tf.random.stateless_*` instead.

Secure aggregation is computed in the clear, with its usual bounds and moduli, because a simulation
has no secrets to protect.

    context = create_context(client_parallelism=2)
    tff.framework.set_default_context(context)
"""

import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import _graphs, _tf_private, _tff_private, _values, logical_devices
from tff_pcdd.runtime._computations import Computations, translate
from tff_pcdd.runtime.config import MAX_DEFAULT_PARALLELISM

_HOST = "/device:CPU:0"
# Bytes of clients' results that stay on a GPU, and the share of a limited memory.
_STAYS, _STAYING_SHARE = 1 << 30, 8


class ClientError(RuntimeError):
    """The work of a client failed; `__cause__` is the error that TensorFlow raised.

    Attributes:
        client: index of the client in the cohort.
    """

    def __init__(self, client: int, num_clients: int, cause: BaseException):
        super().__init__(f"Client {client} of {num_clients} failed: {cause}")
        self.__cause__ = cause
        self.client = client
        self._arguments = client, num_clients, cause

    def __reduce__(self):
        return type(self), self._arguments


def create_context(
    *,
    client_parallelism: int | None = None,
    devices: Sequence[str] = (),
) -> "InProcessContext":
    """Creates an execution context for `tff.framework.set_default_context`.

    Args:
        client_parallelism: number of clients that run at the same time, rounded up to a multiple of
            the number of devices. The default is one per GPU, or one per CPU core up to eight.
        devices: logical devices such as "CPU:1" or "GPU:0"; by default all GPUs, or the CPU if
            there are none.

    Raises:
        SettingError: TensorFlow has no such device, or `client_parallelism` is not positive.
    """
    _tf_private.prepare()
    logical = {
        device.name.removeprefix("/device:"): device.name
        for device in tf.config.list_logical_devices()
    }
    for name in devices:
        if name.removeprefix("/device:") not in logical:
            reason = f"TensorFlow has no device {name}, only {', '.join(logical)}"
            raise SettingError("devices", ",".join(devices), reason)
    names = [logical[name.removeprefix("/device:")] for name in devices]
    names = names or [name for name in logical.values() if "GPU" in name] or [_HOST]
    if client_parallelism is None:
        # A single small model cannot use several cores; large models can share them.
        cores = min(len(os.sched_getaffinity(0)), MAX_DEFAULT_PARALLELISM)
        client_parallelism = max(len(names), cores if "CPU" in names[0] else 1)
    if client_parallelism < 1:
        raise SettingError("client_parallelism", client_parallelism, "must be at least 1")
    return InProcessContext(_Workers(names, client_parallelism))


class InProcessContext(tff.framework.SyncContext):
    """An execution context that can be interrupted and closed.

    Attributes:
        tensor_float_32: whether GPUs may compute float32 products in TF32.
        deterministic: whether the same call has the same result on the same card; operations
            without a deterministic implementation then fail.
    """

    tensor_float_32 = False
    deterministic = False

    def __init__(self, workers: "_Workers"):
        self._workers = workers
        on_host = all("CPU" in name for name in workers.devices)
        self._computations = Computations(functools.partial(translate, on_host=on_host))
        self._running: set[_graphs.Cancellation] = set()

    def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
        """Called by TFF with a computation and its argument."""
        parameter, result_type = comp.type_signature.parameter, comp.type_signature.result
        counts = _tff_private.infer_cardinalities(arg, parameter)
        num_clients = counts.get(tff.CLIENTS, 0)
        cancel = _graphs.Cancellation()
        # This thread can be interrupted while it waits, and not while TensorFlow computes in it.
        future = self._workers.submit_server(self._call, comp, arg, num_clients, cancel)
        try:
            result = future.result()
        except Exception:
            raise
        except BaseException:
            cancel.start_cancel()
            raise
        return tff.types.type_to_py_container(_values.to_python(result, result_type), result_type)

    def evaluate(
        self, computation: tff.framework.ConcreteComputation, argument: Any, num_clients: int
    ) -> Any:
        """Evaluates a computation in this thread.

        Args:
            computation: a computation without sequences in its result.
            argument: its argument; names of fields may be left out.
            num_clients: the number of clients.

        Returns:
            Nested tuples of NumPy arrays, without names of fields; values at the clients are lists.
        """
        cancel = _graphs.Cancellation()
        return _values.to_arrays(self._call(computation, argument, num_clients, cancel))

    def _call(
        self,
        computation: tff.framework.ConcreteComputation,
        argument: Any,
        num_clients: int,
        cancel: "_graphs.Cancellation",
    ) -> Any:
        """The result, as `_values` describes it."""
        run = _Run(self._workers, num_clients, self._workers.devices[0], cancel)
        self._running.add(cancel)
        try:
            with _tf_private.numerics_of_calls.of(
                tensor_float_32=self.tensor_float_32, deterministic=self.deterministic
            ):
                function = self._computations.get(computation)(run, {})
                value = None
                if computation.type_signature.parameter is not None:
                    with tf.device(_HOST):
                        value = _values.from_python(argument, computation.type_signature.parameter)
                return function(run, value)
        finally:
            self._running.discard(cancel)

    def close(self) -> None:
        """Cancels what is running, and ends the threads; the next call starts new ones."""
        for cancel in [*self._running]:
            cancel.start_cancel()
        self._workers.close()
        if self.deterministic:
            _tf_private.require_determinism(False)


class _Workers:
    """A thread for the server, and a thread pool per device for the clients."""

    def __init__(self, devices: Sequence[str], parallelism: int):
        self.devices = devices
        self._threads_per_device = -(-parallelism // len(devices))
        self._server: concurrent.futures.ThreadPoolExecutor | None = None
        self._pools: list[concurrent.futures.ThreadPoolExecutor] = []

    def submit_server(self, work: Callable[..., Any], *arguments: Any) -> concurrent.futures.Future:
        """Runs `work(*arguments)` in the thread of the server."""
        if self._server is None:
            self._server = concurrent.futures.ThreadPoolExecutor(1, "server")
        return self._server.submit(work, *arguments)

    def submit(self, client: int, work: Callable[[str, int], Any]) -> concurrent.futures.Future:
        """Runs `work(device, client)` in a thread of the client's device."""
        if not self._pools:
            self._pools = [
                concurrent.futures.ThreadPoolExecutor(self._threads_per_device, f"clients-{device}")
                for device in self.devices
            ]
        index = client % len(self.devices)
        return self._pools[index].submit(work, self.devices[index], client)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # First, because it gives work to the others.
            server.shutdown()
        pools, self._pools = self._pools, []
        for pool in pools:
            pool.shutdown()


class _Run:
    """Implements `_interpreter.Run`."""

    def __init__(self, workers: _Workers, num_clients: int, device: str, cancel):
        self.num_clients = num_clients
        self.device = device
        self.cancel = cancel
        self._workers = workers

    def for_each_client(self, work: Callable[["_Run", int], Any]) -> list:
        space = _Space(self.device)

        def client_work(device, client):
            if self.cancel.is_cancelled:
                raise tf.errors.CancelledError(None, None, "The evaluation was cancelled.")
            result = work(_Run(self._workers, self.num_clients, device, self.cancel), client)
            return result if device == _HOST or space.has(result, device) else _on_host(result)

        futures = [self._workers.submit(c, client_work) for c in range(self.num_clients)]
        try:
            concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        finally:
            if not all(future.done() for future in futures):
                # A client failed or the wait was interrupted, so the other results are not needed.
                self.cancel.start_cancel()
                for future in futures:
                    future.cancel()
                concurrent.futures.wait(futures)
        errors = {
            client: error
            for client, future in enumerate(futures)
            if not future.cancelled() and (error := future.exception()) is not None
        }
        # TensorFlow also cancels calls that run next to a failing one; report the original error.
        for client, error in sorted(errors.items(), key=lambda item: _is_cancellation(item[1])):
            raise ClientError(client, self.num_clients, error) from error
        return [future.result() for future in futures]


class _Space:
    """How much of the clients' results may stay on the server's device, which combines them."""

    def __init__(self, device: str):
        self._device, self._left, self._lock = device, 0, threading.Lock()
        if device != _HOST:
            limit = logical_devices.memory_limit(device)
            self._left = _STAYS if limit is None else min(_STAYS, limit // _STAYING_SHARE)

    def has(self, result: Any, device: str) -> bool:
        """Whether a result on a device may stay there, which takes up its bytes."""
        size = sum(x.shape.num_elements() * x.dtype.size for x in tf.nest.flatten(result))
        with self._lock:
            stays = device == self._device and size <= self._left
            self._left -= size if stays else 0
        return stays


def _on_host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_on_host, value))
    with tf.device(_HOST):
        return tf.identity(value)


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, tf.errors.CancelledError)
