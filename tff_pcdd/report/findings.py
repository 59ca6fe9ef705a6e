"""What a reader should know before believing the numbers, in one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.report import text
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import Site

# Differences of accuracies below this many points are not reported.
_NEGLIGIBLE = 0.05


def of_run(
    settings: Mapping[str, Any], summary: Mapping[str, Any], history: History
) -> Iterator[str]:
    """Whether the run is finished and usable."""
    planned = settings.get("rounds")
    computed = history[-1]["round"] if len(history) else 0
    if summary.get("diverged"):
        yield (
            "The run has diverged: values were NaN, infinite or far too large. Its results are not "
            "usable."
        )
    elif not summary:
        yield f"The run is not finished: round {computed} of {planned} was recorded last."
    elif summary.get("rounds") != planned:
        yield f"The run ended after round {summary.get('rounds')} of {planned}."
    excluded = summary.get("excluded_clients")
    if isinstance(excluded, int) and excluded:
        yield (
            "Clients were excluded from a round because what they computed was NaN or infinite: "
            f"{text.plural(excluded, 'time')}, in "
            f"{text.plural(_whole(summary, 'nonfinite_rounds'), 'round')}."
        )
    if lost := [f"{row['round']}" for row in history if is_lost(row)]:
        yield f"These rounds gave no usable model: {text.listed(lost, 12)}."


def _whole(summary: Mapping[str, Any], name: str) -> int:
    value = summary.get(name)
    return value if isinstance(value, int) else 0


def of_sites(found: Sequence[Site]) -> Iterator[str]:
    """Clients that are worse off, and clients that cannot be judged."""
    for column, other in (("over_global", "the global model"), ("over_local", "training alone")):
        gains = by_client.mean_by_name(found, column)
        yield from losses(f"The personal model is worse than {other}", gains)
    for kind, noun in (("train", "training"), ("test", "test")):
        without = [_label(site.name) for site in found if not getattr(site, kind)]
        if without:
            clients = text.plural(len(without), "client")
            yield f"{clients} without {noun} samples: {text.listed(without)}."


def losses(what: str, gains: Mapping[str, float]) -> Iterator[str]:
    """A sentence about the clients whose gain is negative, if there are any.

    Args:
        what: the beginning of the sentence.
        gains: differences of accuracies, in points, by client.
    """
    worse = sorted((gain, name) for name, gain in gains.items() if gain <= -_NEGLIGIBLE)
    if worse:
        names = [f"{_label(name)} ({text.signed(gain)})" for gain, name in worse]
        clients = text.plural(len(gains), "client")
        yield f"{what} at {len(worse)} of {clients} (difference in points): {text.listed(names)}."


def _label(name: str) -> str:
    """The name of a client; a bare number would be taken for a value."""
    return f"client {name}" if name.isdecimal() else name
