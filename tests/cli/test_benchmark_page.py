"""The page of results in the repository is what the benchmark wrote, for all sections."""

import re

import pytest
from matplotlib.figure import Figure

from benchmarks import SECTIONS, processes, report
from tests.markdown_tables import table_rows
from tff_pcdd.calls import describe_machine


@pytest.fixture(scope="module")
def page():
    return (processes.ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")


def test_page_was_written_by_the_benchmark(page):
    """A change by hand is noticed by the digest in its last line."""
    assert report.is_unchanged(page)


def test_page_has_all_sections_of_one_run(page):
    found = re.findall(r"^<!-- section (\w+) -->$", page, re.M)
    assert found == list(SECTIONS)
    assert len(re.findall(r"commit [0-9a-f]{12}[a-z ]*; \d{4}-\d\d-\d\d", page)) == 1
    assert "numbers mean nothing" not in page
    assert "not measured: " not in page


def test_a_change_of_a_page_is_noticed():
    machine = describe_machine()
    settings = {"repeats": 1, "seconds": 1.0, "quick": True}
    table = report.Table("Rows", {"number": "n"}, [{"n": 1.5}])
    section = report.Section("Speed", "What is measured.", [table])
    page = report.to_markdown(machine, settings, {"speed": section})
    assert "<!-- section speed -->\n## Speed\n\nWhat is measured.\n\n| number |" in page
    assert table_rows(page)[-1] == ["1.50"]
    assert report.is_unchanged(page)
    assert not report.is_unchanged(page.replace("1.50", "1.51"))
    assert not report.is_unchanged("# Benchmark\n")


def test_a_section_shows_its_figures():
    figure = Figure()
    figure.suptitle("Speed of layers")
    section = report.Section("Speed", "", [], figures={"layers.png": figure})
    settings = {"repeats": 1, "seconds": 1.0, "quick": False}
    page = report.to_markdown(describe_machine(), settings, {"speed": section})
    assert "\n\n![Speed of layers](images/layers.png)\n" in page


def test_a_column_of_notes_is_left_out_where_there_are_none():
    columns = {"number": "n", "": "note"}
    tables = [
        report.Table("Without", columns, [{"n": 12345}]),
        report.Table("With", columns, [{"n": 1}, {"n": 2, "note": "failed"}]),
    ]
    settings = {"repeats": 1, "seconds": 1.0, "quick": False}
    section = report.Section("Numbers", "", tables)
    page = report.to_markdown(describe_machine(), settings, {"numbers": section})
    assert table_rows(page) == [["number"], ["12,345"], ["number", ""], ["1", ""], ["2", "failed"]]
