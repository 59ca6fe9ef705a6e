"""The table of README and of the main page that says which method to take: gains over FedAvg.

Where further runs with another learning rate are better than tuned FedAvg, gains are over these.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from publication.federation_tables import SAME_TAIL, has_long_tail
from publication.published import Published
from tff_pcdd import tables
from tff_pcdd.findings import read_point
from tff_pcdd.tables import BASELINE, read_number

# What further runs have recorded of the accuracies of the table: that after the last round.
_OF_FURTHER = {"ga_second_half": "ga_final", "ga_final": "ga_final", "pa_final": "pa_final"}


class Gain(NamedTuple):
    """What a method gains over tuned FedAvg.

    Attributes:
        text: names the method; `{gain}` is replaced by the range over federations.
        method: its name.
        column: the accuracy of the method.
        baseline: the accuracy of FedAvg, if it is another column.
        fits: the federations.
        averaged: whether the mean over the federations is what counts.
    """

    text: str
    method: str
    column: str
    fits: Callable[[Published], bool]
    baseline: str = ""
    averaged: bool = False


def _kind(*, few: bool, tail: bool) -> Callable[[Published], bool]:
    """Whether clients of a federation have few classes each, and whether it has a long tail."""

    def fits(published: Published) -> bool:
        has_few = published.record["settings"].get("partition") == "class"
        return (has_few, has_long_tail(published)) == (few, tail)

    return fits


_FEW, _TAIL = _kind(few=True, tail=False), _kind(few=False, tail=True)
_BOTH, _NEITHER = _kind(few=True, tail=True), _kind(few=False, tail=False)


def _ccvr(fits: Callable[[Published], bool]) -> Gain:
    return Gain("**CCVR**: {gain}", "ccvr", "ga_second_half", fits)


def _untrained_ccvr(fits: Callable[[Published], bool]) -> Gain:
    """Of its personal models before local training, with the client's own classes only."""
    text = "**CCVR**'s without it: {gain}"
    return Gain(text, "ccvr", "pa_before_masked_final", fits, baseline="pa_final")


# FedBN's global model is that of FedAvg with equal weights: the network has no normalization.
_EQUAL = "equal weights: {gain}"
_AFTER = "FedAvg's after local training"
_LIGHT = Gain("**FedDecorr**: {gain}", "feddecorr", "ga_second_half", lambda _: True, averaged=True)
ROWS: tuple[tuple[str, Sequence[Gain | str], Sequence[Gain | str]], ...] = (
    ("have few classes each", [_ccvr(_FEW)], [_AFTER, _untrained_ccvr(_FEW)]),
    (
        "share a long tail; all classes matter",
        [
            _ccvr(_TAIL),
            Gain("without extra traffic **FedETF**: {gain}", "fedetf", "ga_second_half", _TAIL),
            Gain(_EQUAL, "fedbn", "ga_second_half", _TAIL),
        ],
        [
            Gain(
                "**FedRoD**'s before local training: {gain}",
                "fedrod",
                "pa_before_final",
                _TAIL,
                baseline="pa_final",
            )
        ],
    ),
    (
        "share a long tail; so do new data",
        [Gain(_EQUAL, "fedbn", SAME_TAIL, _TAIL)],
        ["**FedRoD**'s, as above"],
    ),
    (
        "have few classes each and a long tail",
        [
            _ccvr(_BOTH),
            Gain(f"without extra traffic {_EQUAL}", "fedbn", "ga_second_half", _BOTH),
        ],
        [
            Gain("equal weights' after local training: {gain}", "fedbn", "pa_final", _BOTH),
            _untrained_ccvr(_BOTH),
        ],
    ),
    ("are of any other kind", [_ccvr(_NEITHER)], [_AFTER]),
    ("may send nothing but weights", [_LIGHT, "with a long tail as above"], [_AFTER]),
)


def table(published: Sequence[Published]) -> str:
    """What to take for which clients, in Markdown.

    Args:
        published: the federations of the comparison.
    """
    lines = [["your clients", "one model for all", "a model for each client"]]
    for clients, *answers in ROWS:
        lines.append([clients, *(_answer(answer, published) for answer in answers)])
    return tables.table(lines)


def _answer(parts: Sequence[Gain | str], published: Sequence[Published]) -> str:
    texts = [part if isinstance(part, str) else _filled(part, published) for part in parts]
    return "; ".join(texts)


def _filled(gain: Gain, published: Sequence[Published]) -> str:
    found = [gains(one, gain) for one in published if gain.fits(one)]
    means = [statistics.fmean(values) for values in found if values]
    if not means:
        return gain.text.format(gain=tables.NO_VALUE)
    low, high = (f"{round(value):+d}" for value in (min(means), max(means)))
    text = low if low == high else f"{low} to {high}"
    if gain.averaged:
        text = f"{statistics.fmean(means):+.1f} on average, {text}"
    return gain.text.format(gain=text)


def gains(published: Published, gain: Gain) -> list[float]:
    """The differences to FedAvg's run with the same seed, in percentage points.

    FedAvg is the tuned one, or that of further runs if their mean is higher; both are then compared
    after the last round.
    """
    column, baseline = gain.column, gain.baseline or gain.column
    if found := better(published, baseline):
        # A personal model and its baseline are other columns, both of the last round.
        own = published.by_seed(gain.method, column if gain.baseline else _OF_FURTHER[column])
        return tables.differences(own, found)
    return tables.differences(
        published.by_seed(gain.method, column), published.by_seed(BASELINE, baseline)
    )


def better(published: Published, column: str) -> dict[str, float]:
    """An accuracy of FedAvg with a learning rate that is better than the one that was chosen.

    Further runs count if the learning rate is all that they change, and if there is one for each
    seed of tuned FedAvg.

    Args:
        published: the federation.
        column: the accuracy by which they are compared, after the last round.

    Returns:
        The accuracy by seed; empty if there are no such runs, or none is better on average.
    """
    recorded = _OF_FURTHER.get(column, "")
    tuned = published.by_seed(BASELINE, recorded)
    candidates = tables.grouped(
        (row["settings"], (row["seed"], value))
        for row in published.further
        if row["method"] == BASELINE and [*read_point(row["settings"])] == ["client_learning_rate"]
        if (value := read_number(row.get(recorded, ""))) is not None
    )
    by_seed = [dict(pairs) for pairs in candidates.values()]
    usable = [found for found in by_seed if found.keys() == tuned.keys()]
    best = max(usable, key=lambda found: statistics.fmean(found.values()), default={})
    if best and statistics.fmean(best.values()) > statistics.fmean(tuned.values()):
        return best
    return {}


def exceptions(published: Sequence[Published]) -> str:
    """A sentence that names the federations with such runs; empty if there are none."""
    found = [one.title for one in published if any(better(one, name) for name in _OF_FURTHER)]
    if not found:
        return ""
    return (
        f"On {', '.join(found)}, another learning rate than the chosen one is better for FedAvg\n"
        "with the same seeds. There, gains of GA, and those over PA after local training, are\n"
        "over FedAvg with this rate, after the last round; the other methods keep the rates that\n"
        "were chosen, so their gains may be greater."
    )
