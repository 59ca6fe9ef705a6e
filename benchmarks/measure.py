"""Measures time: contenders take turns, and ratios are computed within a repeat."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# The precisions that differ on processors, where tf32 is float32.
PRECISIONS = ("float32", "bfloat16")

_STARTED = time.perf_counter()


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        repeats: how often each contender is measured.
        quick: whether to use tiny sizes, which only show that everything runs.
        folder: the output directory, in which the sections for GPUs keep what they have measured.
        minutes: after which each of these sections stops.
        torch_python: a Python with PyTorch, to compare with; None for no comparison.
        data_dir: the folder with CIFAR-10; None for random images.
    """

    repeats: int = 5
    quick: bool = False
    folder: Path | None = None
    minutes: float = 8.0
    torch_python: str | None = None
    data_dir: str | None = None


def note(text: str) -> None:
    """Prints the seconds since the start and what is being measured to stderr."""
    print(f"[{time.perf_counter() - _STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def time_call(call: Callable[[], object]) -> float:
    """Seconds that a call takes, with garbage collection postponed."""
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
    """Times contenders in turn, so that a slow phase of the machine affects all of them.

    The first call of each contender, which traces graphs, is not counted. Every other repeat runs
    in reverse order.

    Args:
        contenders: the calls to be timed, by name.
        repeats: timed calls of each contender.
        label: prefix of the progress lines on stderr; none are printed if it is empty.

    Returns:
        The seconds of each contender's repeats.
    """
    for name, call in contenders.items():
        if label:
            note(f"{label}: {name}, first round")
        call()
    # What exists by now is not searched for garbage before each timed call: late in a process, that
    # takes several times as long as a call.
    gc.collect()
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    try:
        for repeat in range(repeats):
            if label:
                note(f"{label}: repeat {repeat + 1} of {repeats}")
            names = list(contenders)
            for name in names if repeat % 2 == 0 else reversed(names):
                seconds[name].append(time_call(contenders[name]))
    finally:
        gc.unfreeze()
    return seconds


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median over repeats of the ratio within each repeat."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))
