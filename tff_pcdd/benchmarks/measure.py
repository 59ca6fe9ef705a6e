"""Taking time: contenders that alternate, medians, ratios within a repeat."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

_STARTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        repeats: how often each contender is measured.
        quick: tiny sizes, whose numbers mean nothing, to see that everything runs.
    """

    repeats: int = 5
    quick: bool = False


def note(text: str) -> None:
    """Says on stderr what is being measured."""
    print(f"[{time.perf_counter() - _STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def time_call(call: Callable[[], object]) -> float:
    """Seconds that a call takes, without those of a garbage collection that happens to be due."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    finally:
        gc.enable()


def alternate(
    contenders: Mapping[str, Callable[[], object]], repeats: int, label: str = ""
) -> dict[str, list[float]]:
    """Times contenders in turn, so that what slows the machine down for a while meets all of them.

    The first call of each, which traces graphs, is not counted. Every other repeat goes through
    them backwards.

    Args:
        contenders: by name, what is to be timed.
        repeats: timed calls of each.
        label: for the progress on stderr; no progress without it.

    Returns:
        For each contender the seconds of its repeats.
    """
    for name, call in contenders.items():
        if label:
            note(f"{label}: {name}, first round")
        call()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        if label:
            note(f"{label}: repeat {repeat + 1} of {repeats}")
        names = list(contenders)
        for name in names if repeat % 2 == 0 else reversed(names):
            seconds[name].append(time_call(contenders[name]))
    return seconds


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median over the repeats of the ratio within a repeat."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))
