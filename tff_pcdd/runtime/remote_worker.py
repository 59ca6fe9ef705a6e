"""The connection of the runtime `remote` to one worker."""

import asyncio
import functools
import threading
from typing import Any

import grpc
import tensorflow_federated as tff
from absl import logging

from tff_pcdd.runtime.process import CHANNEL_OPTIONS, ping
from tff_pcdd.runtime.worker import ExecutorFactory, GuardedStub

_MOST_SECONDS_BETWEEN_PROBES = 5.0

# These codes mean that a call did not reach a worker, or reached a worker that was restarted.
_LOST_CODES = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.FAILED_PRECONDITION,
)


class WorkerLost(Exception):
    """A worker was lost during a call."""


class RemoteWorker:
    """The connection to one worker, monitored by a thread.

    Attributes:
        address: "host:port".
        lost: the reason why the worker is lost; None if it is not.
    """

    def __init__(self, address: str, timeout: float):
        """Connects without waiting; the worker is considered lost until it answers.

        Args:
            address: "host:port".
            timeout: time in seconds after which a worker that does not answer is lost.
        """
        self.address = address
        self.lost: str | None = "it has not answered yet"
        self._timeout = timeout
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._connect()
        threading.Thread(target=self._watch, name=f"watch-worker-{address}", daemon=True).start()

    def _connect(self) -> None:
        channel = grpc.insecure_channel(self.address, CHANNEL_OPTIONS)
        stub = GuardedStub(channel, functools.partial(self._explain, channel))

        def make_executor(cardinalities):
            executor = tff.framework.RemoteExecutor(stub, dispose_batch_size=1)
            executor.set_cardinalities(cardinalities)
            return executor

        self._channel = channel
        self._executors = ExecutorFactory(make_executor)

    def _watch(self) -> None:
        pause = min(_MOST_SECONDS_BETWEEN_PROBES, self._timeout / 4)
        while not self._closed.is_set():
            channel = self._channel
            if ping(channel, timeout=self._timeout - pause):
                with self._lock:
                    if channel is self._channel and self.lost is not None:
                        logging.info("Worker %s is available.", self.address)
                        self.lost = None
            else:
                self._lose(channel, f"it has not answered for {self._timeout:g} s")
            self._closed.wait(pause)

    def _lose(self, channel: grpc.Channel, reason: str) -> None:
        with self._lock:
            if self._closed.is_set() or channel is not self._channel or self.lost is not None:
                return
            logging.warning("Worker %s is lost: %s.", self.address, reason)
            self.lost = reason
            # New executors too: the values on the worker belong to the old connection.
            self._connect()
        channel.close()  # Ends the running calls.

    def _explain(self, channel: grpc.Channel, error: grpc.RpcError | ValueError) -> Exception:
        if isinstance(error, ValueError):
            return WorkerLost("its connection was closed")
        code = error.code()
        if code in _LOST_CODES or not ping(channel, timeout=self._timeout):
            self._lose(channel, f"a call failed ({code.name}: {error.details()})")
            return WorkerLost(error.details())
        return error  # An error of the computation.

    def run(self, computation, argument: Any, num_clients: int) -> Any:
        """Invokes a computation.

        Raises:
            WorkerLost: if the worker was lost during the call.
            Exception: an error of the computation itself.
        """
        cardinalities = {tff.CLIENTS: num_clients}
        executors = self._executors
        try:
            executor = executors.create_executor(cardinalities)
            return asyncio.run(_invoke(executor, computation, argument))
        except BaseException:
            executors.clean_up_executor(cardinalities)
            raise

    def close(self) -> None:
        """Ends the connection and the monitoring, but not the worker."""
        with self._lock:
            self._closed.set()
            self.lost = "the runtime was closed"
        self._channel.close()


async def _invoke(executor, computation, argument):
    signature = computation.type_signature
    function = await executor.create_value(computation, signature)
    value = None
    if signature.parameter is not None:
        value = await _embed(executor, argument, signature.parameter)
    return await (await executor.create_call(function, value)).compute()


async def _embed(executor, value, type_spec):
    """Sends a value element by element, because the size of a message is limited."""
    if not isinstance(type_spec, tff.StructType):
        return await executor.create_value(value, type_spec)
    elements = [
        (name, await _embed(executor, value[i], element))
        for i, (name, element) in enumerate(tff.structure.iter_elements(type_spec))
    ]
    return await executor.create_struct(tff.structure.Struct(elements))
