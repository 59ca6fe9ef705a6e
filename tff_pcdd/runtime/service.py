"""A gRPC service that lets other processes use an executor, with the protocol of TFF's workers.

TFF's C++ worker listens on every network interface and only uses the CPU. A worker made of the
runtime `inprocess` and this service listens on a given address and can use GPUs.
"""

import asyncio
import collections
import concurrent.futures
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import tensorflow_federated as tff
from absl import logging

from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.runtime._tff_private import TypeProto, executor_pb2, executor_pb2_grpc
from tff_pcdd.runtime.process import CHANNEL_OPTIONS

# A caller may disappear without closing its session, so the least recently used ones are dropped.
_SESSIONS_KEPT = 32
_CALLS_AT_A_TIME = 16
_LONGEST_ERROR = 4000  # gRPC sends it in a header, which is limited to 8 KiB.


class _Session:
    """The executor of one caller for one number of clients, with its values."""

    def __init__(self, executor):
        self.executor = executor
        self.values = {}


class ExecutorService(executor_pb2_grpc.ExecutorGroupServicer):
    """Executors and their values; callers refer to both by names that the service returned."""

    def __init__(self, factory: tff.framework.ExecutorFactory):
        """Creates the service.

        Args:
            factory: creates the executor for a number of clients.
        """
        self._factory = factory
        self._names = itertools.count()
        self._sessions: collections.OrderedDict[str, _Session] = collections.OrderedDict()
        self._lock = threading.Lock()
        # An executor's coroutines belong to one event loop.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="executor-loop", daemon=True).start()

    def _run(self, coroutine: Coroutine) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _answer(self, context: grpc.ServicerContext, answer: Callable[[], Any]) -> Any:
        try:
            return answer()
        except KeyError as error:
            # With this status code, the caller starts a new session.
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"No session or value {error}.")
        except Exception as error:
            logging.exception("A call failed.")
            message = f"{type(error).__name__}: {error}"
            context.abort(grpc.StatusCode.INTERNAL, message[:_LONGEST_ERROR])

    def _session(self, request) -> _Session:
        with self._lock:
            self._sessions.move_to_end(request.executor.id)
            return self._sessions[request.executor.id]

    def _keep(self, session: _Session, value: Any) -> executor_pb2.ValueRef:
        name = str(next(self._names))
        session.values[name] = value
        return executor_pb2.ValueRef(id=name)

    def GetExecutor(self, request, context):
        def answer():
            cardinalities = {
                tff.CLIENTS if item.placement.uri == tff.CLIENTS.uri else tff.SERVER: (
                    item.cardinality
                )
                for item in request.cardinalities
            }
            session = _Session(self._factory.create_executor(cardinalities))
            name = str(next(self._names))
            with self._lock:
                self._sessions[name] = session
                if len(self._sessions) > _SESSIONS_KEPT:
                    self._sessions.popitem(last=False)
            return executor_pb2.GetExecutorResponse(executor=executor_pb2.ExecutorId(id=name))

        return self._answer(context, answer)

    def CreateValue(self, request, context):
        def answer():
            session = self._session(request)
            value, type_spec = _deserialize(request.value)
            embedded = self._run(session.executor.create_value(value, type_spec))
            return executor_pb2.CreateValueResponse(value_ref=self._keep(session, embedded))

        return self._answer(context, answer)

    def CreateCall(self, request, context):
        def answer():
            session = self._session(request)
            function = session.values[request.function_ref.id]
            argument = None
            if request.HasField("argument_ref"):
                argument = session.values[request.argument_ref.id]
            result = self._run(session.executor.create_call(function, argument))
            return executor_pb2.CreateCallResponse(value_ref=self._keep(session, result))

        return self._answer(context, answer)

    def CreateStruct(self, request, context):
        def answer():
            session = self._session(request)
            elements = tff.structure.Struct(
                [
                    (element.name or None, session.values[element.value_ref.id])
                    for element in request.element
                ]
            )
            result = self._run(session.executor.create_struct(elements))
            return executor_pb2.CreateStructResponse(value_ref=self._keep(session, result))

        return self._answer(context, answer)

    def CreateSelection(self, request, context):
        def answer():
            session = self._session(request)
            source = session.values[request.source_ref.id]
            result = self._run(session.executor.create_selection(source, request.index))
            return executor_pb2.CreateSelectionResponse(value_ref=self._keep(session, result))

        return self._answer(context, answer)

    def Compute(self, request, context):
        def answer():
            session = self._session(request)
            embedded = session.values[request.value_ref.id]
            value = self._run(embedded.compute())
            message, _ = tff.framework.serialize_value(value, embedded.type_signature)
            return executor_pb2.ComputeResponse(value=message)

        return self._answer(context, answer)

    def Dispose(self, request, context):
        def answer():
            session = self._session(request)
            for reference in request.value_ref:
                session.values.pop(reference.id, None)
            return executor_pb2.DisposeResponse()

        return self._answer(context, answer)

    def DisposeExecutor(self, request, context):
        with self._lock:
            self._sessions.pop(request.executor.id, None)
        return executor_pb2.DisposeExecutorResponse()


def _deserialize(message: executor_pb2.Value) -> tuple[Any, tff.Type]:
    """Reads a value; TFF's own function fails if the data of clients differ in shape."""
    if not message.HasField("federated"):
        value, type_spec = tff.framework.deserialize_value(message)
        if isinstance(type_spec, tff.FunctionType):
            value = tff.framework.deserialize_computation(value)
        return value, type_spec
    type_spec = tff.types.deserialize_type(TypeProto(federated=message.federated.type))
    values = [
        tff.framework.deserialize_value(item, type_spec.member)[0]
        for item in message.federated.value
    ]
    return (values[0] if type_spec.all_equal else values), type_spec


def serve(factory: tff.framework.ExecutorFactory, host: str, port: int) -> tuple[grpc.Server, int]:
    """Starts a server with an `ExecutorService`.

    Args:
        factory: creates the executor for a number of clients.
        host: IP address to listen on.
        port: port to listen on; 0 means any free port.

    Returns:
        The server and its port.

    Raises:
        RuntimeStartError: if it cannot listen on this address and port.
    """
    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(_CALLS_AT_A_TIME),
        # Two servers on one port would receive each other's calls.
        options=(*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)),
    )
    executor_pb2_grpc.add_ExecutorGroupServicer_to_server(ExecutorService(factory), server)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise RuntimeStartError(f"A worker cannot listen on {address}: {error}.") from error
    if not port:
        raise RuntimeStartError(
            f"A worker cannot listen on {address}: the port is in use, or the address does not "
            "belong to this machine."
        )
    server.start()
    return server, port
