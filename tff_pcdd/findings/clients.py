"""Clients that are worse off, and clients that cannot be judged.

A difference counts if it is that of at least two test samples, and outside the interval that the
number of test samples allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tff_pcdd import text
from tff_pcdd.evaluation import accuracy_interval
from tff_pcdd.findings.advice import ALONE, BEFORE, Advice
from tff_pcdd.findings.evidence import Client
from tff_pcdd.findings.finding import Change, Finding
from tff_pcdd.findings.thresholds import LEAST_LOST_SAMPLES


def counts(own: float | None, other: float | None, samples: int) -> bool:
    """Whether two accuracies in percent on the samples of a client differ by more than chance.

    Example:
        >>> counts(50.0, 75.0, 4), counts(50.0, 75.0, 100)
        (False, True)
    """
    if own is None or other is None or not samples:
        return False
    if abs(own - other) * samples / 100 < LEAST_LOST_SAMPLES - 0.5:
        return False
    low, high = accuracy_interval(own, other, samples)
    return low > 0 or high < 0


def loses(gain: float | None, own: float | None, samples: int) -> bool:
    """Whether a gain over another accuracy, in points, is a loss by more than chance."""
    if gain is None or own is None or gain >= 0:
        return False
    return counts(own, min(100.0, own - gain), samples)


def of_clients(clients: Sequence[Client], advice: Advice) -> Iterator[Finding]:
    """Clients that are worse off, and clients that cannot be judged."""
    shared = Change("the global model there")
    for kind, column, what, instead in (
        ("below global", "over_global", "worse than the global model", shared),
        ("below local", "over_local", "worse than training alone", ALONE),
        ("below before", "over_before", "worse than before its local steps", BEFORE),
    ):
        lost = [
            (gain, each.name)
            for each in clients
            if (gain := _gain(each, column)) is not None
            and loses(gain, each.values["pa"], each.test)
        ]
        if lost:
            yield Finding.advised(
                kind,
                f"The personal model is {what} at {len(lost)} of "
                f"{text.plural(len(clients), 'client')}, by more than chance (difference in "
                f"points): {listed_losses(lost)}.",
                advice.fewer_epochs(instead),
            )
    for kind, noun in (("train", "training"), ("test", "test")):
        without = [each for each in clients if not getattr(each, kind)]
        if without:
            number = text.plural(len(without), "client")
            names = text.listed([label(each.name) for each in without])
            tested = [each for each in without if each.test]
            yield Finding.advised(
                f"no {noun} samples",
                f"{number} without {noun} samples: {names}{_counting(tested)}.",
                advice.samples(are_tested=bool(tested)),
            )


def _counting(tested: Sequence[Client]) -> str:
    """What follows the names of clients that are only tested: which means they count in."""
    means = [
        name
        for name, column in (("GA", "ga"), ("PA", "pa"))
        if any(each.values[column] is not None for each in tested)
    ]
    if not means:
        return ""
    count = "counts" if len(means) == 1 else "count"
    return f"; nothing is trained there, and {' and '.join(means)} {count} the test samples"


def _gain(client: Client, column: str) -> float | None:
    if column != "over_before":
        return client.values[column]
    after, before = client.values["pa"], client.values["pa_before"]
    return None if after is None or before is None else after - before


def listed_losses(lost: Iterable[tuple[float, str]]) -> str:
    """Clients with their losses in points, the largest first."""
    return text.listed([f"{label(name)} ({text.signed(gain)})" for gain, name in sorted(lost)])


def label(name: str) -> str:
    """The name of a client; a bare number would be taken for a value."""
    return f"client {name}" if name.isdecimal() else text.name_of(name)
