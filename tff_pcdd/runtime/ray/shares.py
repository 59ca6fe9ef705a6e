"""Assigns shares of a computation to Ray actors, and reassigns the share of a lost actor.

An actor is lost if its process or its node ends, or if it does not answer a ping within a time
limit. Busy actors answer too, so this does not limit the duration of a round. Ray restarts a lost
actor, on another node if necessary; until it answers, other actors compute its shares.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray import exceptions

from tff_pcdd.errors import ActorsLostError
from tff_pcdd.runtime.ray import cluster

_logger = logging.getLogger(__name__)

_MOST_ATTEMPTS = 3
_MOST_SECONDS_BETWEEN_PINGS = 5.0
_STEP = 0.5


@dataclasses.dataclass(frozen=True)
class _Lost:
    """In place of a result: why the actor was lost."""

    reason: str


# Submits a share to an actor. The arguments are the actor, and whether to send everything, even
# what the actor may already have.
Share = Callable[["Actor", bool], Any]


@dataclasses.dataclass(eq=False)
class Actor:
    """An actor and its state as known to this process.

    Attributes:
        number: its number, from 0.
        handle: Ray's handle.
        node: id of the node on which it runs.
        held: names of the arrays and computations that it has.
        share: number of the share that it computes; -1 if there is none.
        result: Ray's reference to the result of this share.
        ping: Ray's reference to the pending ping.
        asked: when the last ping was sent.
        answered: when the last ping was answered.
        lost: why it is lost; empty if it is not.
    """

    number: int
    handle: Any
    node: str = ""
    held: set[bytes] = dataclasses.field(default_factory=set)
    share: int = -1
    result: Any = None
    ping: Any = None
    asked: float = 0.0
    answered: float = 0.0
    lost: str = ""

    def send_ping(self) -> None:
        """Sends a ping."""
        self.asked = time.monotonic()
        self.ping = self.handle.ping.options(concurrency_group="control").remote()


class Actors:
    """A group of actors that compute shares.

    Args:
        handles: Ray's handles; all of them are ready.
        timeout: seconds after which an actor that does not answer counts as lost.
    """

    def __init__(self, handles: Sequence[Any], timeout: float):
        self.all = [Actor(number, handle) for number, handle in enumerate(handles)]
        self.timeout = timeout
        # When it was last looked at answers.
        self._looked = 0.0

    def run(self, shares: Sequence[Share]) -> list[tuple[Actor, Any]]:
        """Computes shares.

        Args:
            shares: share i is assigned to actor i, or to another actor if that one is lost.

        Returns:
            For each share, the actor that computed it and its result.

        Raises:
            ActorsLostError: a share was lost with its actor three times, no actor is left, one
                asks for everything again and again, or Ray has ended.
            Exception: an error of the computation.
        """
        results: dict[int, tuple[Actor, Any]] = {}
        waiting = list(range(len(shares)))
        losses: collections.Counter[int] = collections.Counter()
        asked: collections.Counter[int] = collections.Counter()
        since = time.monotonic()
        try:
            while len(results) < len(shares):
                cluster.check()
                self._assign(waiting, shares)
                if any(actor.result is not None for actor in self.all):
                    since = time.monotonic()
                elif time.monotonic() - since > self.timeout:
                    reasons = "; ".join(f"actor {a.number} {a.lost}" for a in self.all if a.lost)
                    raise ActorsLostError(f"no Ray actor is left: {reasons}; {_hint()}")
                for actor, outcome in self._outcomes():
                    share, actor.share, actor.result = actor.share, -1, None
                    if isinstance(outcome, _Lost):
                        self._lose(actor, outcome.reason)
                        losses[share] += 1
                        waiting.append(share)
                        if losses[share] == _MOST_ATTEMPTS:
                            raise ActorsLostError(
                                f"share {share + 1} of {len(shares)} of the clients was lost with "
                                f"its Ray actor {_MOST_ATTEMPTS} times: {outcome.reason}; {_hint()}"
                            )
                    elif outcome is None:
                        asked[share] += 1
                        if asked[share] > _MOST_ATTEMPTS:
                            raise ActorsLostError(
                                f"Ray actor {actor.number} cannot use what it is sent; {_hint()}"
                            )
                        actor.held.clear()
                        self._start(actor, share, shares[share], True)
                    else:
                        results[share] = actor, outcome
        finally:
            for actor in self.all:
                actor.share, actor.result = -1, None
        return [results[number] for number in range(len(shares))]

    def _assign(self, waiting: list[int], shares: Sequence[Share]) -> None:
        """Assigns waiting shares to free actors, each to the actor of its number if possible."""
        free = {actor.number: actor for actor in self.all if actor.share < 0 and not actor.lost}
        for share in sorted(waiting, key=lambda share: share not in free):
            if not free:
                return
            actor = free.pop(share if share in free else min(free))
            waiting.remove(share)
            self._start(actor, share, shares[share], False)

    def _start(self, actor: Actor, number: int, share: Share, everything: bool) -> None:
        actor.share, actor.result = number, share(actor, everything)
        actor.answered = time.monotonic()

    def _outcomes(self) -> Iterator[tuple[Actor, Any]]:
        """Waits for results and pings; yields results, or `_Lost`."""
        by_reference = {actor.result: actor for actor in self.all if actor.result is not None}
        by_reference |= {actor.ping: actor for actor in self.all if actor.ping is not None}
        ready: Sequence[Any] = ()
        if by_reference:
            ray.wait(list(by_reference), timeout=_STEP)
        now = time.monotonic()
        if now - self._looked > 4 * _STEP:
            # This process was stopped or busy, which is not the actors' fault.
            for actor in self.all:
                actor.answered = now
        self._looked = now
        if by_reference:
            ready, _ = ray.wait(list(by_reference), num_returns=len(by_reference), timeout=0)
        else:
            time.sleep(_STEP)
        for reference in ready:
            actor = by_reference[reference]
            # If the actor has just been lost, the reference is neither of the two.
            if reference == actor.ping:
                self._note_answer(actor)
            elif reference == actor.result:
                yield actor, _outcome(reference)
        pause = min(_MOST_SECONDS_BETWEEN_PINGS, self.timeout / 4)
        for actor in self.all:
            if actor.ping is None:
                wanted = actor.lost or actor.result is not None
                if wanted and now - actor.asked > (_STEP if actor.lost else pause):
                    actor.send_ping()
            elif now - max(actor.asked, actor.answered) > self.timeout:
                actor.ping = None
                # Ray starts it again.
                ray.kill(actor.handle, no_restart=False)
                reason = f"it did not answer for {self.timeout:g} s"
                if actor.result is not None:
                    yield actor, _Lost(reason)
                elif not actor.lost:
                    self._lose(actor, reason)

    def _note_answer(self, actor: Actor) -> None:
        reference, actor.ping = actor.ping, None
        try:
            _, actor.node = ray.get(reference)
        except exceptions.RayError:
            # If it computes a share, that fails too.
            return
        actor.answered = time.monotonic()
        if actor.lost:
            _logger.warning("Ray actor %d is available again", actor.number)
            actor.lost = ""

    def _lose(self, actor: Actor, reason: str) -> None:
        _logger.warning(
            "Ray actor %d is lost (%s); its clients are given to another one, or to itself when it "
            "has started again",
            actor.number,
            reason,
        )
        cluster.keep_logs()
        actor.lost = reason
        actor.held.clear()
        actor.ping = None


def _outcome(reference: Any) -> Any:
    """The result of a share, or `_Lost`.

    Raises:
        Exception: an error of the computation.
    """
    try:
        return ray.get(reference)
    except exceptions.RayTaskError as error:
        if type(error.cause) is exceptions.RayError:
            # The actor's error cannot be sent; this one has its text.
            raise RuntimeError(str(error)) from error
        if not isinstance(error.cause, exceptions.RayError):
            raise error.cause from error.cause.__cause__
        return _Lost(explain(error.cause))
    except exceptions.RayError as error:
        return _Lost(explain(error))


def explain(error: Exception) -> str:
    """A short explanation of an error of Ray."""
    if isinstance(error, exceptions.OutOfMemoryError):
        return "it ran out of memory"
    if isinstance(error, exceptions.ActorUnavailableError):
        return "its process has ended"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]


def _hint() -> str:
    return f"the logs of the actors are in {cluster.logs()}"
