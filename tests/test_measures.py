"""Declarations of measures: those of the package, and those that follow from a name."""

import csv
import pathlib

import numpy as np
import pytest

from tff_pcdd import measures
from tff_pcdd.evaluation import metrics
from tff_pcdd.measures import ACCURACY, DIAGNOSTIC, HELD_OUT, METRIC, OWN, Measure

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("name", "heading", "group"),
    [
        ("ga", "GA", ACCURACY),
        ("ga_many", "GA, many", ACCURACY),
        ("ga_ssec", "GA with head ssec", ACCURACY),
        ("ga_ssec_few", "GA with head ssec, few", ACCURACY),
        ("pa_before_masked", "PA before, own classes", ACCURACY),
        ("pa_before_medium", "PA before, medium", ACCURACY),
        ("va_personal", "VA, personal", HELD_OUT),
        ("worst_class_pa_before", "worst_class, PA before", METRIC),
        ("diag_angles", "diag_angles", DIAGNOSTIC),
        ("energy", "energy", OWN),
    ],
)
def test_a_column_has_a_heading_and_a_group(name, heading, group):
    measure = measures.of(name)
    assert (measure.name, measure.heading, measure.group) == (name, heading, group)
    assert (measure.final, measure.best) == (f"{name}_final", f"{name}_best")


def test_macro_f1_says_what_a_class_without_samples_does():
    """20 and 20 samples; one of the second class is taken for a third one, which has none."""
    correct, total, answers = np.array([20, 19, 0]), np.array([20, 20, 0]), np.array([20, 19, 1])
    measured = metrics.create("macro_f1").measure_answers(correct, total, answers)
    # F1 of 1, 2 · 19 / (20 + 19) = 0.974 and 0.
    assert measured == pytest.approx(100 * (1 + 38 / 39) / 3)
    assert measures.of("macro_f1_pa").meaning.endswith(
        "; a single answer of a class without test samples there adds a class with F1 = 0"
    )
    assert "F1 = 0" not in measures.of("weighted_f1_pa").meaning


def test_every_column_of_a_published_table_is_known():
    """The columns of accuracies in docs/comparison are accuracies and metrics by their names."""
    tables = sorted((ROOT / "docs" / "comparison").glob("*/final.csv"))
    assert tables
    for path in tables:
        with path.open() as file:
            header = next(csv.reader(file))
        found = {measures.of_key(name).group for name in header if name.endswith("_final")}
        assert found <= {ACCURACY}


def test_values_of_a_summary_have_the_measure_of_their_column():
    keys = (
        "ga_final",
        "ga_best",
        "ga_second_half",
        "ga_at_best_round",
        "ga_at_best_personal_round",
    )
    assert {measures.of_key(key).name for key in keys} == {"ga"}
    assert measures.heading("pa_at_best_round") == "PA after, there"


def test_tables_show_accuracies_then_metrics_then_the_best_round():
    keys = ["energy_final", "balanced_ga_final", "balanced_pa_before_final", "best_round"]
    assert measures.tabled(keys) == [
        *("ga_final", "ga_second_half", "pa_before_final", "pa_before_masked_final", "pa_final"),
        *("energy_final", "balanced_ga_final"),
        *("va_best", "ga_at_best_round", "pa_at_best_round"),
    ]
    assert measures.tabled([]) == list(measures.TABLE)


def test_new_clients_have_the_same_order_whichever_method_is_first():
    """A method without a global model has no GA there."""
    personal = ["new_clients_pa_before_final", "new_clients_pa_final"]
    keys = ["balanced_ga_final", *personal, "energy_final", "new_clients_ga_final"]
    assert measures.tabled(keys)[len(measures.TABLE) :] == [
        *("balanced_ga_final", "new_clients_ga_final", *personal, "energy_final")
    ]


def test_metrics_at_new_clients_have_the_headings_of_both():
    found = measures.of("macro_f1_new_clients_pa_before")
    assert (found.heading, found.group) == ("macro_f1, PA before, new clients", measures.METRIC)
    keys = [f"balanced_new_clients_{name}_final" for name in ("ga", "pa_before", "pa")]
    assert measures.tabled(keys)[len(measures.TABLE) :] == [keys[0], keys[2]]


def test_rounds_may_be_chosen_by_held_out_samples_only():
    assert measures.best_rounds() == {
        "va": "best_round",
        "va_balanced": "best_balanced_round",
        "va_personal": "best_personal_round",
    }


@pytest.mark.parametrize("name", ["ga", "pa_mine", "va_x", "diag_x", "seconds", "loss", "round"])
def test_names_of_built_in_columns_are_taken(name):
    with pytest.raises(ValueError, match=f"'{name}' is the name of another column"):
        measures.declare(Measure(name, "mine", "mine"))
    assert measures.check_names([name]) == f"{name!r}, the name of another column of metrics.csv"


def test_an_own_measure_can_be_declared_again(monkeypatch):
    """As when a cell of a notebook is run once more."""
    monkeypatch.setattr(measures, "_BY_NAME", dict(measures._BY_NAME))
    for heading in ("energy (J)", "energy (kJ)"):
        measures.declare(Measure("energy", heading, "energy of the phones", "J", "lower", OWN))
        assert measures.heading("energy_final") == heading


def test_names_of_own_columns_differ():
    assert measures.check_names(["mine", "other"]) == ""
    assert measures.check_names(["mine", "mine"]) == "'mine' twice"
    assert measures.check_names(["mine"], ["mine"]).startswith("'mine', the name of another")
