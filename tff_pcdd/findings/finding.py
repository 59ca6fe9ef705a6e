"""A finding, its advice, and lists of findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tff_pcdd import tables, text
from tff_pcdd.errors import shown

# The key of the findings in summary.json.
KEY = "findings"

# What to do if some runs ask for smaller steps, and others for larger ones or more of them.
_TUNE = (
    "Next: tune --client_learning_rate (tasks.sweep): some runs need a smaller one, others more "
    "training."
)

# What a terminal says below advice with another value of a setting, and with another grid.
CONTINUES = "More --rounds continue in the same --output_dir"
_ANEW = f"{CONTINUES}; other settings need a new one."
_GRIDS = (
    "Another --grid continues in the same --output_dir. Several may be given, one for each setting."
)
# What advice names besides settings of a run: flags of other programs, and another method's models.
_NOT_OF_RUNS = {"personal_model", "grid", "algorithm", "checkpoint_round"}

_ROUNDS = re.compile(r"--rounds=(\d+) \(now (\d+)")
# Seconds that nobody asks about.
_SHORT = 10

# What stands before a change that may be made instead of the one before it, or after it.
OR, THEN = ", or ", "; if that is not enough, "


class Change(NamedTuple):
    """A part of an advice.

    Attributes:
        text: what to do, such as "--rounds=60 (now 30)".
        settings: the settings that it names.
        longer: whether it trains longer or in larger steps, or the opposite; None for neither.
        joined: what stands before it, unless it is the first.
    """

    text: str
    settings: Sequence[str] = ()
    longer: bool | None = None
    joined: str = OR


class Finding(NamedTuple):
    """What is wrong, and what to do about it.

    Attributes:
        kind: the rule, such as "chance".
        what: one sentence.
        next: what to do next, with a flag and its value; empty if nothing can be changed.
        changes: the parts of `next` that name a setting of a run, as data.
    """

    kind: str
    what: str
    next: str = ""
    changes: Sequence[Change] = ()

    @classmethod
    def advised(cls, kind: str, what: str, changes: Sequence[Change]) -> Finding:
        """A finding with the sentence that its changes make.

        Example:
            >>> Finding.advised("a", "A.", [Change("--x=1"), Change("--y=2", joined=THEN)]).next
            'Next: --x=1; if that is not enough, --y=2.'
        """
        if not changes:
            return cls(kind, what)
        first, *others = changes
        rest = "".join(each.joined + each.text for each in others)
        return cls(kind, what, f"Next: {first.text}{rest}.", tuple(changes))

    def record(self) -> dict[str, Any]:
        """The finding as summary.json has it."""
        changes = [{**each._asdict(), "settings": [*each.settings]} for each in self.changes]
        return {**self._asdict(), "changes": changes}

    @property
    def line(self) -> str:
        """Both sentences, as programs print them and pages show them."""
        return f"{self.what} {self.next}".rstrip()


def recorded(summary: Mapping[str, Any]) -> list[Finding]:
    """The findings in summary.json; none in that of an earlier version, or in what is no list."""
    return [
        Finding(
            shown(each.get("kind", "")),
            shown(each.get("what", "")),
            shown(each.get("next", "")),
            tuple(map(_change, _dicts(each.get("changes")))),
        )
        for each in _dicts(summary.get(KEY))
    ]


def are_recorded(summary: Mapping[str, Any]) -> bool:
    """Whether summary.json has all of its findings; earlier versions had no changes, or nothing."""
    return KEY in summary and all("changes" in each for each in _dicts(summary[KEY]))


def _dicts(values: Any) -> list[Mapping[str, Any]]:
    """Those of a list of unknown origin that are objects."""
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _change(values: Mapping[str, Any]) -> Change:
    names, longer = values.get("settings"), values.get("longer")
    return Change(
        shown(values.get("text", "")),
        tuple(map(shown, names)) if isinstance(names, list) else (),
        longer if isinstance(longer, bool) else None,
        THEN if values.get("joined") == THEN else OR,
    )


def printed(found: Iterable[Finding]) -> str:
    """Findings as a list for a terminal, and how their advice is given."""
    once = advised_once(found)
    lines = [tables.wrapped(f"- {finding.line}", "  ") for finding in once]
    if any("--grid=" in finding.next for finding in once):
        lines.append(tables.wrapped(_GRIDS))
    elif any(set(re.findall(r"--(\w+)", finding.next)) - _NOT_OF_RUNS for finding in once):
        lines.append(tables.wrapped(_ANEW))
    return "\n".join(lines)


def advised_once(found: Iterable[Finding]) -> list[Finding]:
    """Findings without what an earlier one has said to do already."""
    said: set[str] = set()
    kept = []
    for finding in found:
        repeated = finding.next in said
        kept.append(finding._replace(next="", changes=()) if repeated else finding)
        said.add(finding.next)
    return kept


def with_times(found: Iterable[Finding], seconds: float | None, runs: int = 1) -> list[Finding]:
    """Findings whose advice to train longer says about how long that takes, if it takes a while.

    Args:
        seconds: the time of a round, of all runs that are continued; None if it is unknown.
        runs: how many these are.

    Example:
        >>> advice = Finding.advised("a", "A.", [Change("--rounds=60 (now 20)")])
        >>> with_times([advice], 2.0)[0].next
        'Next: --rounds=60 (now 20, about 1 min 20 s more).'
        >>> with_times([advice], 3.0, runs=2)[0].next
        'Next: --rounds=60 (now 20, about 2 min more, one run after the other).'
    """

    def timed(match: re.Match) -> str:
        more = (int(match[1]) - int(match[2])) * (seconds or 0)
        if more < _SHORT:
            return match[0]
        how = ", one run after the other" * (runs > 1)
        return f"{match[0]}, about {text.seconds(float(f'{more:.2g}'))} more{how}"

    if seconds is None:
        return [*found]
    return [each._replace(next=_ROUNDS.sub(timed, each.next)) for each in found]


def agreeing(found: Sequence[Finding], refused: Collection[str] = ()) -> list[Finding]:
    """Findings of runs with the same flags: without advice that contradicts other advice.

    Args:
        refused: settings that may not be given for these runs, which no advice names.
    """
    found = [_without(finding, refused) for finding in found]
    longer = [
        next((c.longer for c in each.changes if c.longer is not None), None) for each in found
    ]
    if not {True, False} <= {*longer}:
        return found
    said = iter([_TUNE])
    return [
        finding if direction is None else finding._replace(next=next(said, ""), changes=())
        for finding, direction in zip(found, longer, strict=True)
    ]


def _without(finding: Finding, refused: Collection[str]) -> Finding:
    """A finding without the changes that name such settings."""
    kept = [each for each in finding.changes if not {*each.settings} & {*refused}]
    if len(kept) == len(finding.changes):
        return finding
    return Finding.advised(finding.kind, finding.what, kept)
