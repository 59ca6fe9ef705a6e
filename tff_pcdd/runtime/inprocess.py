"""Runtime `inprocess`: runs TFF computations with the TensorFlow of this Python process.

It serializes nothing, starts no processes, and uses the GPUs that TensorFlow finds. Clients are
assigned to the devices in turn (client i to device i mod n), and several can run on a device at the
same time. The server's work runs on the first device. The results of clients are kept in host
memory, so a cohort does not have to fit into a GPU.

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
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import _graphs, _tf_private, _tff_private, _values
from tff_pcdd.runtime._computations import Computations, translate

_HOST = "/device:CPU:0"
# Every running client needs its own memory.
_MAX_DEFAULT_PARALLELISM = 8


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
    default_num_clients: int = 0,
) -> "InProcessContext":
    """Creates an execution context for `tff.framework.set_default_context`.

    Args:
        client_parallelism: number of clients that run at the same time, rounded up to a multiple of
            the number of devices. The default is one per GPU, or one per CPU core up to eight.
        devices: logical devices such as "CPU:1" or "GPU:0"; by default all GPUs, or the CPU if
            there are none.
        default_num_clients: number of clients if no argument is placed at clients.

    Raises:
        SettingError: TensorFlow has no such device, or `client_parallelism` is not positive.
        ValueError: `default_num_clients` is negative.
    """
    _tf_private.avoid_thread_switches()
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
        cores = min(len(os.sched_getaffinity(0)), _MAX_DEFAULT_PARALLELISM)
        client_parallelism = max(len(names), cores if "CPU" in names[0] else 1)
    if client_parallelism < 1:
        raise SettingError("client_parallelism", client_parallelism, "must be at least 1")
    if default_num_clients < 0:
        raise ValueError(f"default_num_clients must not be negative, found {default_num_clients}.")
    return InProcessContext(_Factory(_Workers(names, client_parallelism), default_num_clients))


class InProcessContext(tff.framework.SyncExecutionContext):
    """An execution context that can be interrupted and closed."""

    def __init__(self, factory: "_Factory"):
        # No compiler is passed, because its cache would compare whole computations in every call.
        super().__init__(factory)

    def invoke(self, comp, arg):
        try:
            return super().invoke(comp, arg)
        except Exception:
            raise
        except BaseException:
            # TFF evaluates in another thread, which does not receive KeyboardInterrupt.
            self.executor_factory.cancel()
            raise

    def evaluate(
        self, computation: tff.framework.ConcreteComputation, argument: Any, num_clients: int
    ) -> Any:
        """Evaluates a computation in this thread, without an event loop.

        Args:
            computation: a computation without sequences in its result.
            argument: its argument; names of fields may be left out.
            num_clients: the number of clients.

        Returns:
            Nested tuples of NumPy arrays, without names of fields; values at the clients are lists.
        """
        executor = self.executor_factory.create_executor({tff.CLIENTS: num_clients})
        return executor.evaluate(computation, argument)

    def close(self) -> None:
        """Ends the client threads; the next call starts new ones."""
        self.executor_factory.close()


class _Workers:
    """A thread pool per device."""

    def __init__(self, devices: Sequence[str], parallelism: int):
        self.devices = devices
        self._threads_per_device = -(-parallelism // len(devices))
        self._pools: list[concurrent.futures.ThreadPoolExecutor] = []

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
        def client_work(device, client):
            if self.cancel.is_cancelled:
                raise tf.errors.CancelledError(None, None, "The evaluation was cancelled.")
            result = work(_Run(self._workers, self.num_clients, device, self.cancel), client)
            return result if device == _HOST else _on_host(result)

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


def _on_host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_on_host, value))
    with tf.device(_HOST):
        return tf.identity(value)


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, tf.errors.CancelledError)


class _Factory(tff.framework.ExecutorFactory):
    """Creates a new executor for each call, which is cheap."""

    def __init__(self, workers: _Workers, default_num_clients: int):
        self._workers = workers
        self._default_num_clients = default_num_clients
        on_host = all("CPU" in name for name in workers.devices)
        self._computations = Computations(functools.partial(translate, on_host=on_host))
        self._running: weakref.WeakSet[_Executor] = weakref.WeakSet()

    def create_executor(self, cardinalities) -> "_Executor":
        num_clients = cardinalities.get(tff.CLIENTS, self._default_num_clients)
        cancel = _graphs.Cancellation()
        run = _Run(self._workers, num_clients, self._workers.devices[0], cancel)
        executor = _Executor(self._computations, run)
        self._running.add(executor)
        return executor

    def clean_up_executor(self, cardinalities) -> None:
        pass

    def cancel(self) -> None:
        for executor in list(self._running):
            executor.close()

    def close(self) -> None:
        self.cancel()
        self._workers.close()


class _Value(_tff_private.ExecutorValue):
    """A value and its type; `_values` describes the representation."""

    def __init__(self, value: Any, type_signature: tff.Type):
        self._value = value
        self._type_signature = type_signature

    @property
    def reference(self) -> Any:
        return self._value

    @property
    def type_signature(self) -> tff.Type:
        return self._type_signature

    async def compute(self) -> Any:
        return _values.to_python(self._value, self._type_signature)


class _Executor(_tff_private.Executor):
    """Evaluates computations for one number of clients."""

    def __init__(self, computations: Computations, run: _Run):
        self._computations = computations
        self._run = run

    def close(self) -> None:
        """Cancels the running calls."""
        self._run.cancel.start_cancel()

    def evaluate(self, computation: tff.framework.ConcreteComputation, argument: Any) -> Any:
        function = self._computations.get(computation)(self._run, {})
        with tf.device(_HOST):
            value = _values.from_python(argument, computation.type_signature.parameter)
        return _values.to_arrays(function(self._run, value))

    async def create_value(self, value, type_spec=None) -> _Value:
        if isinstance(value, tff.framework.ConcreteComputation):
            function = self._computations.get(value)(self._run, {})
            return _Value(function, type_spec or value.type_signature)
        type_spec = tff.to_type(type_spec)
        with tf.device(_HOST):
            return _Value(_values.from_python(value, type_spec), type_spec)

    async def create_call(self, comp, arg=None) -> _Value:
        argument = None if arg is None else arg.reference
        result = comp.reference(self._run, argument)
        return _Value(result, comp.type_signature.result)

    async def create_struct(self, elements) -> _Value:
        fields = tff.structure.to_elements(tff.structure.from_container(elements))
        type_spec = tff.StructType(
            [(n, v.type_signature) if n else v.type_signature for n, v in fields]
        )
        return _Value(tuple(v.reference for _, v in fields), type_spec)

    async def create_selection(self, source, index) -> _Value:
        return _Value(source.reference[index], source.type_signature[index])
