"""The short tables at the top of the page about published results."""

import dataclasses

from publication import federation_tables, overview
from publication.published import Curve, Published
from tests.markdown_tables import table_rows
from tff_pcdd.results.run_results import Result, Results


def test_early_and_late_accuracies_are_of_the_same_runs():
    """A run that diverged has no part in either."""
    runs = [
        ("fedavg", "1", 50.0, False),
        ("scaffold", "1", 80.0, False),
        ("scaffold", "2", 10.0, True),
    ]
    results = [
        Result("digits", method, seed, diverged, {"ga_final": ga})
        for method, seed, ga, diverged in runs
    ]
    curves = [Curve(method, seed, [(1, ga - 20), (5, ga)]) for method, seed, ga, _ in runs]
    published = Published("digits", "digits", {"rounds": 5}, Results(results), (), (), curves)
    _, *rows = table_rows(overview.speed([published]))
    assert rows == [["scaffold", "60.0 → 80.0"], ["fedavg", "30.0 → 50.0"]]


def unequal(name, results, **settings):
    """Published results whose runs have an accuracy on few classes and one on held-out samples."""
    rows = [
        Result(name, method, "1", diverged, dict(zip(_COLUMNS, values, strict=True)))
        for method, diverged, *values in results
    ]
    record = {"rounds": 5, "final_seeds": [1], "settings": settings}
    return Published(name, name, record, Results(rows), ["fedper"], (), ())


_COLUMNS = ("ga_final", "ga_few_final", "va_best")


def test_with_a_long_tail_the_accuracy_on_held_out_samples_is_shown_too():
    runs = [
        ("fedavg", False, 60.0, 20.0, 90.0),
        ("ccvr", False, 70.0, 50.0, 80.0),
        ("fedper", False, 30.0, 10.0, 95.0),
    ]
    tail = unequal("tail", runs, imbalance_factor=100)
    head, *rows = table_rows(federation_tables.results(tail))
    column = head.index("GA, same tail (best round)")
    # A method without a global model is not compared.
    assert [row[column] for row in rows] == ["80.0", "**90.0**", "95.0"]
    # Users of a data set also hold classes of unequal size, but so do the test samples; and a run
    # there that diverged counts as an accuracy of 0 only in what is measured there.
    users = unequal("users", [*runs[:2], ("moon", True, 0.0, None, None)])
    measures = {row[1]: row[2] for row in table_rows(overview.in_short([tail, users]))}
    assert measures["GA, few"] == "ccvr (50.0)"
    assert measures["GA, same tail (best round)"] == "fedavg (90.0)"
    assert "same tail" not in federation_tables.results(users) + overview.in_short([users])


def test_accuracies_are_those_of_runs_that_did_not_diverge():
    """Their ranks are below all others; what is shown is no mean with a 0."""
    one = unequal("one", [("fedavg", False, 60.0, None, None), ("ccvr", True, 0.0, None, None)])
    two = unequal("two", [("fedavg", False, 50.0, None, None), ("ccvr", False, 70.0, None, None)])
    also = Result("two", "ccvr", "2", True, {"ga_final": 1.0})
    two = dataclasses.replace(two, results=Results([*two.results, also]))
    ccvr = {
        number: [cell for cell in table_rows(overview.in_short(group))[1] if "ccvr" in cell]
        for number, group in ((1, [two]), (2, [one, two]))
    }
    assert ccvr == {1: ["ccvr (70.0, 1 diverged)"], 2: ["ccvr (rank 2.0; –, 2 diverged)"]}
