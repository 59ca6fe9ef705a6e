"""The summary of a run, from its history alone."""

import pytest

from tff_pcdd.evaluation import metrics
from tff_pcdd.training import History, summary


def history(*rows):
    """A history with the columns of its rows, which are written as in a csv file."""
    made = History(rows[0])
    for row in rows:
        made.append({name: value or None for name, value in row.items()})
    return made


def test_summary_of_accuracies():
    """Missing values: not evaluated in that round, or nothing to be measured on."""
    measured = history(
        {"round": "1", "ga": "10", "pa": "", "ga_few": "5", "pa_few": "9", "pa_before": ""},
        {"round": "2", "ga": "40", "pa": "70", "ga_few": "", "pa_few": "", "pa_before": ""},
        {"round": "3", "ga": "", "pa": "60", "ga_few": "", "pa_few": "", "pa_before": ""},
        {"round": "4", "ga": "30", "pa": "65", "ga_few": "7", "pa_few": "8", "pa_before": ""},
    )
    assert summary.summarize_accuracies(measured) == {
        "ga_final": 30,
        "ga_best": 40,
        "ga_second_half": 30,
        "pa_final": 65,
        "pa_best": 70,
        "pa_before_final": None,
        "pa_before_best": None,
        "ga_few_final": 7,
        "ga_few_best": 7,
        "ga_few": 7,
        "pa_few_final": 8,
        "pa_few_best": 9,
        "pa_few": 8,
    }
    without = summary.summarize_accuracies(history({"round": "1", "ga": "", "pa": "3"}))
    assert without["ga_final"] is None
    assert without["ga_second_half"] is None


def test_a_methods_own_metrics_are_no_accuracies():
    """Whatever their names begin with."""
    measured = history({"round": "1", "ga": "4", "gate": "1", "paths": "2", "variance": "3"})
    assert [*summary.summarize_accuracies(measured)] == ["ga_final", "ga_best", "ga_second_half"]


def test_best_round_where_personal_models_were_not_evaluated():
    results = summary.summarize_accuracies(
        history(
            {"round": "2", "ga": "50", "pa": "", "va": "60"},
            {"round": "4", "ga": "70", "pa": "", "va": "60"},
            {"round": "6", "ga": "90", "pa": "80", "va": "50"},
        )
    )
    assert results["best_round"] == 2
    assert results["ga_at_best_round"] == 50
    assert results["pa_at_best_round"] is None
    assert "best_personal_round" not in results
    assert results["ga_best"] == 90


def test_the_best_round_is_one_in_which_everything_was_measured():
    """So is the accuracy on held-out samples by which a sweep chooses."""
    measured = (
        {"round": "2", "ga": "50", "pa": "40", "va": "60", "va_personal": "70"},
        {"round": "4", "ga": "70", "pa": "", "va": "65", "va_personal": ""},
    )
    results = summary.summarize_accuracies(history(*measured), whole=True)
    assert (results["best_round"], results["va_best"], results["ga_best"]) == (2, 60, 70)
    # Clients without test samples have no PA in any round.
    without = history(*({**row, "pa": ""} for row in measured))
    assert summary.summarize_accuracies(without, whole=True)["best_round"] == 2


def test_metrics_have_the_same_values_as_accuracies():
    measured = history(
        {"round": "2", "ga": "50", "va": "60", "worst_class_ga": "8", "worst_class_pa": "9"},
        {"round": "4", "ga": "70", "va": "40", "worst_class_ga": "5", "worst_class_pa": ""},
    )
    results = summary.summarize_accuracies(measured, [metrics.create("worst_class")])
    found = {name: value for name, value in results.items() if name.startswith("worst_class")}
    assert found == {
        "worst_class_ga_final": 5,
        "worst_class_ga_best": 8,
        "worst_class_pa_final": None,
        "worst_class_pa_best": 9,
        "worst_class_ga_at_best_round": 8,
        "worst_class_pa_at_best_round": 9,
    }
    without = summary.summarize_accuracies(measured)
    assert results == {**without, **found}
    assert not [name for name in without if name.startswith("worst_class")]


@pytest.mark.parametrize(
    ("seconds", "expected"), [([9.0], 9.0), ([9.0, 1.0], 1.0), ([9.0, 1.0, 2.0, 4.0], 2.0)]
)
def test_typical_seconds_leave_the_first_round_out(seconds, expected):
    rows = [{"round": number, "seconds": value} for number, value in enumerate(seconds, 1)]
    assert summary.typical_seconds(history(*rows)) == expected


def test_typical_seconds_leave_out_rounds_in_which_nobody_trained():
    rows = [
        {"round": number, "seconds": str(seconds), "local_steps": str(steps)}
        for number, (seconds, steps) in enumerate([(9, 5), (0, 0), (2, 5), (0, 0), (0, 0)], 1)
    ]
    assert summary.typical_seconds(history(*rows)) == 2
    assert summary.typical_seconds(history(*rows[3:])) == 0
