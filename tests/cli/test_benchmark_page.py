"""The page of results that the benchmark writes shows changes by hand."""

from tff_pcdd.benchmarks import report


def test_a_change_of_a_page_is_noticed():
    machine = report.describe_machine()
    settings = {"repeats": 1, "seconds": 1.0, "quick": True}
    table = report.Table("Rows", {"number": "n"}, [{"n": 1.5}])
    section = report.Section("Speed", "What is measured.", [table])
    page = report.to_markdown(machine, settings, {"speed": section})
    assert "<!-- section speed -->\n## Speed\n\nWhat is measured.\n\n| number |" in page
    assert "| 1.50 |" in page
    assert report.is_unchanged(page)
    assert not report.is_unchanged(page.replace("1.50", "1.51"))
    assert not report.is_unchanged("# Benchmark\n")
