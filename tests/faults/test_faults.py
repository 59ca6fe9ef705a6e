"""A few of the injected faults of each kind; `make faults` runs all of them."""

import pathlib
import re

import pytest

from tests import support
from tests.faults import case, disk, modules
from tests.faults.__main__ import table
from tests.faults.case import Case, Result, SilentDifference
from tff_pcdd import files

TESTED_ELSEWHERE = (
    *("damaged", "diverged", "full_disks", "fuzzed_exports", "killed", "killed_studies"),
)


@pytest.mark.slow
# There are other tests of what is left out: of damaged runs and full disks in tests/training and
# tests/cli, of requests to models in all formats in export/test_tables_of_cases, of killed runs in
# cli/test_programs, of killed studies in cli/test_parallel, and of diverged runs in
# training/test_nonfinite, cli/test_diverged and studies/test_diverged.
@pytest.mark.parametrize(
    ("module", "size"),
    support.rare_but(
        [(name, 1) for name in modules.names() if name not in TESTED_ELSEWHERE],
        [(name, size) for name in modules.names() for size in (1, 3)],
    ),
)
def test_sample(module, size, tmp_path, simulation):
    """That many cases of each kind."""
    cases = case.sample(modules.cases(module, tmp_path), size)
    assert cases
    failed = [result for result in case.run(cases) if result.failed]
    assert not failed, "\n".join(f"{r.kind}, {r.name}: {r.outcome}\n{r.detail}" for r in failed)


def test_every_outcome_is_told_apart():
    """Cases that fail in each possible way do not pass, and the table counts them."""

    def silent(_):
        raise SilentDifference("other weights")

    def broken(_):
        raise KeyError("round")

    faults = {"equal": lambda _: case.SAME, "silent": silent, "broken": broken, "odd": lambda _: ""}
    results = list(case.run(Case("file", name, check) for name, check in faults.items()))
    outcomes = [result.outcome for result in results]
    assert outcomes == [case.SAME, case.SILENT, case.TRACEBACK, case.TRACEBACK]
    assert [result.failed for result in results] == [False, True, True, True]
    assert "KeyError" in results[2].detail
    assert table(results).splitlines()[-1] == "| all | 4 | 1 | 0 | 0 | 0 | 1 | 2 |"


@pytest.mark.parametrize("error", ["", "two\nlines", "long " * 200, "without the path"])
def test_errors_are_one_line_that_names_the_place(error):
    with pytest.raises(AssertionError):
        case.one_line(error, "/data")
    assert case.one_line("/data: is not a directory", "/data") == case.REFUSED


def test_operations_in_a_directory_are_noticed(tmp_path):
    """Also those that name files from the number of a folder."""
    kinds = []
    with disk.intercepted(tmp_path, lambda kind, path: kinds.append(kind)):
        files.write_text(tmp_path / "a", "text")
        files.append_text(tmp_path / "b", "text")
        files.remove(tmp_path / "a")
    write = ["create", "write", "sync", "rename", "sync", "delete"]
    assert kinds == [*write, "create", "write", "sync", "delete"]


def test_a_sample_has_cases_of_each_kind():
    cases = [Case(kind, str(i), lambda _: case.SAME) for kind in ("a", "b") for i in range(5)]
    drawn = case.sample(cases, 2)
    assert [c.kind for c in drawn] == ["a", "a", "b", "b"]
    assert drawn == case.sample(cases, 2)
    assert Result("a", "0", case.SAME) in case.run(cases)


def test_the_numbers_on_the_page_add_up():
    """Rows of kinds that were run again replace those of the complete run."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "trust.md"
    rows = re.findall(r"(?m)^\| (.+?) \| ((?:\d+ \| ){6}\d+) \|$", page.read_text("utf-8"))
    counts = [[int(number) for number in cells.split(" | ")] for _, cells in rows]
    assert [name for name, _ in rows][-1] == "all"
    assert all(cases == sum(outcomes) for cases, *outcomes in counts)
    assert [sum(column) for column in zip(*counts[:-1], strict=True)] == counts[-1]
