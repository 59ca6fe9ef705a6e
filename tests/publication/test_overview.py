"""The short tables at the top of the page about published results."""

from tests.markdown_tables import table_rows
from tff_pcdd.publication import overview
from tff_pcdd.publication.published import Curve, Published
from tff_pcdd.report.comparison_results import Result


def test_early_and_late_accuracies_are_of_the_same_runs():
    """A run that diverged has no part in either."""
    runs = [
        ("fedavg", "1", 50.0, False),
        ("scaffold", "1", 80.0, False),
        ("scaffold", "2", 10.0, True),
    ]
    results = [
        Result("digits", method, seed, "", diverged, {"ga_final": ga})
        for method, seed, ga, diverged in runs
    ]
    curves = [Curve(method, seed, [(1, ga - 20), (5, ga)]) for method, seed, ga, _ in runs]
    published = Published("digits", "digits", {"rounds": 5}, results, (), (), curves)
    _, *rows = table_rows(overview.speed([published]))
    assert rows == [["scaffold", "60.0 → 80.0"], ["fedavg", "30.0 → 50.0"]]
