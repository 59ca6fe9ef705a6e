"""Connections that cannot be held: deadlines for headers and for reading answers, and limits.

uvicorn limits what a request may do once its headers have arrived. Until then, and while an answer
waits to be read, it waits for ever.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import resource
from typing import Any

import httptools
from limits import Limits
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEADER_BYTES = 64 * 1024
# What is left of the process's descriptors for its own files.
_RESERVED = 64
_MOST_CONNECTIONS = 4096
# Requests of a connection that wait for the answer before theirs.
_MOST_WAITING = 64

# After headers that are too large. Whoever sends them again and again waits this long in between.
_PAUSE_SECONDS = 1.0

_OF_UPGRADES = (b"connection", b"upgrade", b"http2-settings")

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n"


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """What a connection may cost.

    Attributes:
        seconds: time for the headers of a request, and for reading an answer.
        request_bytes: the most bytes that arrive for a request, with headers and separators.
        connections: the most connections; a further one takes the place of the one that has been
            idle for the longest time.
    """

    seconds: float
    request_bytes: int
    connections: int

    @classmethod
    def of(cls, limits: Limits) -> ConnectionLimits:
        """Raises the process's limit of descriptors as far as it may, and stays below it."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST_CONNECTIONS + _RESERVED
        number = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
        request_bytes = _HEADER_BYTES + 2 * limits.request_bytes
        return cls(limits.seconds, request_bytes, max(1, number - _RESERVED))


# Connections on which no request is being answered, the one that is so for the longest time first.
_idle: dict[Connection, None] = {}


class _Parser(httptools.HttpRequestParser):
    """uvicorn's parser, for a connection that declines upgrades."""

    def __init__(self, connection: Connection):
        super().__init__(connection)
        # As uvicorn's own.
        self.set_dangerous_leniencies(lenient_data_after_close=True)
        self._connection = connection

    def feed_data(self, data: bytes) -> None:
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._connection._declines:
                raise
            self._connection.decline(self.get_method(), data[upgrade.args[0] :])


class Connection(HttpToolsProtocol):
    """A connection of uvicorn's, with limits."""

    def __init__(self, *arguments: Any, limits: ConnectionLimits, **options: Any):
        super().__init__(*arguments, **options)
        self.parser = _Parser(self)
        self._limits = limits
        # Whether the request asks for another protocol, which is declined.
        self._declines = False
        # Since the last answer.
        self._bytes = 0
        self._in_headers = True
        # They end the connection: headers may arrive while an answer waits to be read.
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None
        self._answered: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Every byte of an answer that is not read at once is noticed.
        transport.set_write_buffer_limits(high=0)
        _idle[self] = None
        self._headers_due = self._end_later()
        if len(self.connections) > self._limits.connections:
            next(iter(_idle)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        _idle.pop(self, None)
        if self._answered is not None:
            # uvicorn tells only the last request that has arrived, which may wait for this one.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        _cancel(self._headers_due)
        _cancel(self._reading_due)

    def data_received(self, data: bytes) -> None:
        self._bytes += len(data)
        super().data_received(data)
        # What has arrived with the last header is a part of the body.
        if self._in_headers and self._bytes > _HEADER_BYTES:
            self.transport.write(_TOO_LARGE)
            # Closed at once, the answer would be lost with what has not been read.
            self.transport.pause_reading()
            self.loop.call_later(_PAUSE_SECONDS, self.transport.abort)
        elif self._bytes > self._limits.request_bytes:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= _MOST_WAITING:
            # uvicorn answers with status 400. It would parse thousands in a packet, and nothing
            # else meanwhile.
            raise ValueError("too many requests without reading an answer")
        super().on_message_begin()
        self._in_headers = True
        _cancel(self._headers_due)
        self._headers_due = self._end_later()

    def on_headers_complete(self) -> None:
        self._declines = self.parser.should_upgrade() and not self._should_upgrade()
        if self._declines:
            return
        self._in_headers = False
        _idle.pop(self, None)
        _cancel(self._headers_due)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._declines:
            super().on_message_complete()

    def decline(self, method: bytes, rest: bytes) -> None:
        """Reads a request again, with `rest` behind its headers, as if it asked for no upgrade.

        Java's HttpClient and `curl --http2` ask for HTTP/2 in this way, and take HTTP/1.1. uvicorn
        would drop the body.
        """
        kept = [(name, value) for name, value in self.headers if name not in _OF_UPGRADES]
        lines = [method + b" " + self.url + b" HTTP/1.1", *(b": ".join(pair) for pair in kept)]
        self.parser = _Parser(self)
        self.parser.feed_data(b"\r\n".join([*lines, b"", rest]))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._bytes = 0
        if not self.pipeline and not self.transport.is_closing():
            _idle[self] = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._reading_due)
        self._reading_due = self._end_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._reading_due)

    def timeout_keep_alive_handler(self) -> None:
        # Not `close`, which would wait until what is left of an answer has been read.
        self.transport.abort()

    def _end_later(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self._limits.seconds, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def protocol(limits: Limits) -> Any:
    """The protocol for uvicorn's configuration."""
    return functools.partial(Connection, limits=ConnectionLimits.of(limits))
