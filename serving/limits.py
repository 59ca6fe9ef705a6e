"""What requests may cost: bytes, pixels, seconds, and how many are answered at the same time."""

from __future__ import annotations

import argparse
import asyncio
import collections
import concurrent.futures
import contextvars
import dataclasses
import io
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import images
from kserve.errors import InvalidInput
from PIL import Image

# Anyone who reaches the port could unload models by KServe's control of its repository.
_CLOSED = "/v2/repository"
_MEGA = 1_000_000
_LARGEST = 1_000_000_000
_BUSY = "too many requests are waiting; try again later"


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a server.

    Attributes:
        request_bytes: bytes of a request's body.
        samples: samples of a request.
        pixels: pixels of all image files of a request together, after decompression.
        seconds: time in which a body has to arrive, and then the answer has to be computed.
        workers: requests that are computed at the same time.
        queue: further requests that wait.
    """

    request_bytes: int
    samples: int
    pixels: int
    seconds: float
    workers: int
    queue: int

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Adds the command-line arguments that `parsed` reads."""
        cores = len(os.sched_getaffinity(0))
        for name, default, meaning in (
            ("max_request_mb", 32.0, "Megabytes of a request's body."),
            ("max_samples", 10_000, "Samples of a request."),
            ("max_megapixels", 64.0, "Megapixels of all image files of a request together."),
            ("timeout", 30.0, "Seconds in which a request has to arrive, and to be answered."),
            ("workers", cores, "Requests that are computed at the same time."),
            ("queue", 256, "Requests that wait; further ones are answered with status 503."),
        ):
            kind = type(default)
            parser.add_argument(f"--{name}", type=_positive(kind), default=default, help=meaning)

    @classmethod
    def parsed(cls, flags: argparse.Namespace) -> Limits:
        """The limits that the command line gives."""
        return cls(
            request_bytes=int(flags.max_request_mb * _MEGA),
            samples=flags.max_samples,
            pixels=int(flags.max_megapixels * _MEGA),
            seconds=flags.timeout,
            workers=flags.workers,
            queue=flags.queue,
        )

    def check_images(self, files: Sequence[bytes]) -> None:
        """Reads the sizes of image files from their headers, without decoding them.

        Raises:
            InvalidInput: a file is no image, or all of them together have too many pixels.
        """
        pixels = 0
        for number, file in enumerate(files):
            try:
                with Image.open(io.BytesIO(file), formats=images.FORMATS) as image:
                    pixels += image.width * image.height
            # The parsers of the formats raise exceptions of many kinds.
            except Exception:
                raise InvalidInput(
                    f"image_bytes[{number}]: {images.what_it_is(file)}; must be a JPEG, PNG, TIFF, "
                    "WebP, BMP or GIF file"
                ) from None
            if pixels > self.pixels:
                raise InvalidInput(
                    f"image_bytes[{number}]: the images have more than {self.pixels / _MEGA:g} "
                    "megapixels together"
                )


def _positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        value = kind(text)
        if not 0 < value <= _LARGEST:
            raise ValueError
        return value

    convert.__name__ = "positive number of at most a billion"  # argparse puts it into its error.
    return convert


class Refusal(Exception):
    """A request that is not answered.

    Attributes:
        status: the HTTP status.
        reason: why, for the caller.
    """

    def __init__(self, status: int, reason: str):
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


# The address from which the current request comes.
client: contextvars.ContextVar[str] = contextvars.ContextVar("client", default="")


class Workers:
    """Threads that compute answers, with a queue of limited length.

    The client on which the least time was spent comes next, so neither many requests of one client
    nor expensive ones hold up those of others. If the queue is full, the client with the most
    requests in it loses the last one.
    """

    def __init__(self, limits: Limits):
        self._limits = limits
        self._pool = concurrent.futures.ThreadPoolExecutor(limits.workers, "answers")
        # By client: requests that are computed, the turns for which others wait, and seconds of
        # processor time of the whole process: TensorFlow has threads of its own, and what other
        # programs take does not count.
        self._running: collections.Counter[str] = collections.Counter()
        self._waiting: dict[str, collections.deque[asyncio.Future]] = {}
        self._spent: dict[str, float] = {}
        # What was spent on the client that came last: others do not save up time while they rest.
        self._clock = 0.0

    async def answer(self, compute: Callable[[Callable[[], None], Any], Any], payload: Any) -> Any:
        """Runs `compute(check, payload)` in a thread.

        Args:
            compute: calls `check` between its steps, which raises once the answer is too late.
            payload: its argument.

        Raises:
            Refusal: too many requests wait already, or the answer takes too long. A step that has
                begun occupies its thread until it ends.
        """
        name, loop, seconds = client.get(), asyncio.get_running_loop(), self._limits.seconds
        self._make_room(name)
        late = Refusal(504, f"no answer within {seconds:g} s")
        deadline = time.monotonic() + seconds

        def check() -> None:
            if time.monotonic() > deadline:
                raise late

        turn = loop.create_future()
        self._waiting.setdefault(name, collections.deque()).append(turn)
        self._spent[name] = max(self._spent.get(name, 0.0), self._clock)
        self._start()
        started = False
        try:
            async with asyncio.timeout(seconds):
                await turn
                started = True
                begin = time.process_time()
                future = self._pool.submit(compute, check, payload)

                def finish(_: Any) -> None:
                    loop.call_soon_threadsafe(self._finish, name, time.process_time() - begin)

                future.add_done_callback(finish)
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise late from None
        finally:
            # A turn that came when nobody waited for it any more.
            if turn.done() and not (started or turn.cancelled() or turn.exception()):
                self._finish(name, 0.0)

    def _make_room(self, name: str) -> None:
        """Refuses a request of the client with the most of them, if as many wait as may."""
        # Those that were given up stay until their turn.
        numbers = {
            client: sum(not turn.done() for turn in turns)
            for client, turns in self._waiting.items()
        }
        if sum(numbers.values()) < self._limits.queue + self._free():
            return
        most = max(numbers, key=numbers.__getitem__)
        if numbers[most] <= numbers.get(name, 0) + 1:
            raise Refusal(503, _BUSY)
        last = next(turn for turn in reversed(self._waiting[most]) if not turn.done())
        last.set_exception(Refusal(503, _BUSY))

    def _free(self) -> int:
        return self._limits.workers - self._running.total()

    def _start(self) -> None:
        """Gives the free threads to those whose turn it is."""
        while self._free() and self._waiting:
            # What the requests that are being computed take is not known yet.
            name = min(self._waiting, key=lambda name: (self._running[name], self._spent[name]))
            turns = self._waiting[name]
            turn = turns.popleft()
            if not turns:
                del self._waiting[name]
            if not turn.done():
                self._running[name] += 1
                self._clock = max(self._clock, self._spent[name])
                turn.set_result(None)

    def _finish(self, name: str, seconds: float) -> None:
        self._running[name] -= 1
        self._running += collections.Counter()  # Removes zeros.
        self._spent[name] += seconds
        self._start()
        known = self._running.keys() | self._waiting.keys()
        self._spent = {
            name: spent
            for name, spent in self._spent.items()
            if spent > self._clock or name in known
        }


class Guard:
    """ASGI middleware: reads the body of a request within the limits before anything parses it."""

    def __init__(self, app: Any, limits: Limits):
        self._app = app
        self._limits = limits
        # Requests whose bodies may be in memory. Those that wait are counted again by `Workers`,
        # because a body that arrives slowly must not take the place of one that is complete.
        self._most = 2 * (limits.workers + limits.queue)
        # By client, none of which may have all of them.
        self._open: collections.Counter[str] = collections.Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = scope["client"][0] if scope["client"] else ""
        client.set(name)
        self._open[name] += 1
        try:
            await self._pass(scope, receive, send)
        finally:
            self._open[name] -= 1
            self._open += collections.Counter()  # Removes zeros.

    async def _pass(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            if scope["path"].startswith(_CLOSED):
                raise Refusal(404, "the repository cannot be controlled by requests")
            if max(self._open.total(), 2 * self._open[client.get()]) > self._most:
                raise Refusal(503, _BUSY)
            body = await self._body(scope, receive)
        except Refusal as refusal:
            await _respond(send, refusal)
            return
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay():
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)

    async def _body(self, scope: Any, receive: Any) -> bytes:
        limits = self._limits
        too_large = Refusal(413, f"the request has more than {limits.request_bytes / _MEGA:g} MB")
        # uvicorn has checked that the length is a number.
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared) > limits.request_bytes:
            raise too_large
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(limits.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "the connection was closed")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > limits.request_bytes:
                        raise too_large
        except TimeoutError:
            raise Refusal(408, f"the request did not arrive within {limits.seconds:g} s") from None
        return b"".join(parts)


async def _respond(send: Any, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # Whatever is still to come of the body is not read.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
