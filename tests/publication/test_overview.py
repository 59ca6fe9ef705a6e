"""The short tables at the top of the page about published results."""

from tests.markdown_tables import table_rows
from tff_pcdd.publication import federation_tables, overview
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


def long_tailed(name, results):
    """Published results whose runs have an accuracy on few classes and one on held-out samples."""
    rows = [
        Result(name, method, "1", "", False, {"ga_final": ga, "ga_few_final": few, "va_best": tail})
        for method, ga, few, tail in results
    ]
    record = {"rounds": 5, "final_seeds": [1]}
    return Published(name, name, record, rows, ["fedper"], (), ())


def test_with_a_long_tail_the_accuracy_on_held_out_samples_is_shown_too():
    tail = long_tailed(
        "tail",
        [
            ("fedavg", 60.0, 20.0, 90.0),
            ("ccvr", 70.0, 50.0, 80.0),
            ("fedper", 30.0, 10.0, 95.0),
        ],
    )
    head, *rows = table_rows(federation_tables.results(tail))
    column = head.index("GA, same tail")
    # A method without a global model is not compared.
    assert [row[column] for row in rows] == ["80.0", "**90.0**", "95.0"]
    measures = {row[1]: row[2] for row in table_rows(overview.in_short([tail]))}
    assert measures["GA, few"] == "ccvr (50.0)"
    assert measures["GA, same tail"] == "fedavg (90.0)"
    # Where classes are equally frequent, held-out samples say no more than the test set.
    for result in tail.results:
        del result.values["ga_few_final"]
    assert "same tail" not in federation_tables.results(tail) + overview.in_short([tail])
