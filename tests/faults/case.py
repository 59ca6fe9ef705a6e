"""A case, its possible outcomes, and how all cases of a module are run."""

from __future__ import annotations

import collections
import dataclasses
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

# What may happen in a case. Everything else is a failure.
SAME = "same"  # The results equal those without the fault.
REPAIRED = "repaired"  # The same, after a warning that says what was damaged.
REFUSED = "refused"  # One line that names what is wrong.
MARKED = "marked"  # There are results, and wherever they are shown they are marked as unusable.
OUTCOMES = (SAME, REPAIRED, REFUSED, MARKED)
# Failures: results that differ without a word, and everything that is not expected.
SILENT, TRACEBACK = "silent difference", "traceback"

# The most characters that an error may have.
_LINE = 600


class SilentDifference(AssertionError):
    """The results are wrong, and nothing said so."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A fault and what has to happen.

    Attributes:
        kind: what is faulty, a row of the table in docs/trust.md, such as "killed run".
        name: which fault it is; unique within the kind.
        check: causes the fault in an empty directory and returns one of `OUTCOMES`. It raises
            `SilentDifference` if the results are wrong without a word.
    """

    kind: str
    name: str
    check: Callable[[Path], str]


@dataclasses.dataclass(frozen=True)
class Result:
    """What came out of a case.

    Attributes:
        kind, name: those of the case.
        outcome: one of `OUTCOMES`, or of the failures.
        detail: the error of a failure.
    """

    kind: str
    name: str
    outcome: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether the outcome is a failure."""
        return self.outcome not in OUTCOMES


def one_line(error: BaseException | str, *names: str) -> str:
    """Checks that an error is one line of bearable length that contains `names`.

    Args:
        error: the error, or what a program wrote.
        *names: what it has to name, such as a path.

    Returns:
        REFUSED.
    """
    text = str(error).strip()
    assert text, "the error says nothing"
    assert "\n" not in text, f"more than one line: {text}"
    assert len(text) <= _LINE, f"{len(text)} characters: {text}"
    for name in names:
        assert name in text, f"{name} is not in: {text}"
    return REFUSED


def run(cases: Iterable[Case]) -> Iterator[Result]:
    """Runs cases one after another, each in an empty directory of its own."""
    for case in cases:
        directory = Path(tempfile.mkdtemp(prefix="faults_"))
        try:
            outcome, detail = case.check(directory), ""
            assert outcome in OUTCOMES, f"{outcome} is no outcome"
        except SilentDifference as error:
            outcome, detail = SILENT, str(error)
        except Exception:
            outcome, detail = TRACEBACK, traceback.format_exc()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        yield Result(case.kind, case.name, outcome, detail)


def sample(cases: Iterable[Case], size: int) -> list[Case]:
    """At most `size` cases of each kind, drawn at random."""
    by_kind: dict[str, list[Case]] = collections.defaultdict(list)
    for case in cases:
        by_kind[case.kind].append(case)
    draw = random.Random(0)
    return [
        case
        for kind in sorted(by_kind)
        for case in draw.sample(by_kind[kind], min(size, len(by_kind[kind])))
    ]
