"""Runs that diverged: left out of means and choices, and marked in tables and pictures."""

import csv
import dataclasses

import numpy as np
import pytest

from tests.studies.made_runs import replace_training
from tests.studies.test_comparison import configs, runs_of, table
from tests.studies.test_comparison_plots import FINAL, check_layout, history
from tff_pcdd.studies import Point, comparison, comparison_plots, comparison_tables, sweep
from tff_pcdd.training import ExperimentConfig

USABLE = {"ga_final": 40.0, "pa_final": 60.0, "diverged": False}
DIVERGED = {"ga_final": 99.0, "pa_final": 99.0, "diverged": True}


def test_diverged_runs_are_left_out_of_means_and_marked():
    runs = runs_of({"fedavg": [USABLE, DIVERGED], "fedgela": [DIVERGED, DIVERGED]})
    rows = table(comparison_tables.accuracies(runs))
    assert [row["method"] for row in rows] == ["fedavg ‡", "fedgela ‡"]
    assert [row["GA"] for row in rows] == ["40.0", "–"]
    assert [row["seeds"] for row in rows] == ["1 of 2, 1 diverged", "0 of 2, 2 diverged"]
    assert [row["method"] for row in table(comparison_tables.costs(runs))] == [
        "fedavg ‡",
        "fedgela ‡",
    ]


def test_without_diverged_runs_nothing_is_marked():
    older = {"ga_final": 40.0}
    text = comparison_tables.accuracies(runs_of({"fedavg": [USABLE, older]}))
    assert "‡" not in text
    assert [row["seeds"] for row in table(text)] == ["2"]


def test_excluded_clients_are_said(tmp_path):
    """Also if the run has not diverged: its values belong to the other clients."""
    (tmp_path / "metrics.csv").write_text("round,ga\n1,40\n")
    summaries = [{**USABLE, "excluded_clients": number} for number in (7, 0)]
    runs = runs_of({"fedavg": summaries}, tmp_path)
    runs = [dataclasses.replace(run, label=f"fedavg seed {run.config.seed}") for run in runs]
    assert "how often: fedavg seed 0 (7 times)." in " ".join(
        comparison_tables.document(runs).split()
    )
    usable = runs_of({"fedavg": summaries[1:]}, tmp_path)
    assert "excluded" not in comparison_tables.document(usable)


@pytest.fixture
def computed(monkeypatch):
    """Replaces training: the runs of FedGELA and those with seed 1 diverge after two rounds."""

    def outcome(config):
        diverged = config.seed == 1 or config.algorithm == "fedgela"
        lines = ["round,ga,pa,pa_before,pa_before_masked,last_lost_round"]
        lines += [f"{n},{10 * n},50,,,{n * diverged}" for n in range(1, 3 if diverged else 5)]
        best = {} if diverged else {"va_best": 70.0, "best_round": 4, "ga_at_best_round": 30.0}
        metrics = "\n".join(lines) + "\n"
        return {"metrics": metrics, "diverged": diverged, "va_best": None, **best}

    replace_training(monkeypatch, outcome)


def test_a_comparison_goes_on_and_says_what_diverged(computed, tmp_path):
    """A diverged run has finished: it is no failure, and is not tried again."""
    result = comparison.compare(configs(), tmp_path)
    assert result.failures == []
    labels = "fedavg seed 1, fedgela seed 0, fedgela seed 1"
    assert f"‡ diverged and left out: {labels}" in result.report
    assert f"Diverged: {labels}." in (tmp_path / "comparison.md").read_text()
    with open(tmp_path / "comparison.csv", newline="") as file:
        assert [row["diverged"] for row in csv.DictReader(file)] == ["False", *["True"] * 3]
    assert (tmp_path / "comparison.png").exists()
    assert (tmp_path / "comparison_bars.png").exists()


def test_a_sweep_chooses_no_point_with_a_diverged_run(computed, tmp_path):
    def point(algorithm, rate, seeds):
        made = [
            ExperimentConfig.from_settings(
                algorithm=algorithm, client_learning_rate=rate, seed=seed, validation_fraction=0.2
            )
            for seed in seeds
        ]
        return Point({"client_learning_rate": str(rate)}, made)

    points = [point("fedavg", 0.1, (0,)), point("fedavg", 0.2, (1,)), point("fedgela", 1.0, (0,))]
    result = sweep(points, tmp_path)
    assert result.best == {"client_learning_rate": "0.1"}
    assert result.failures == []
    assert [row["seeds"] for row in table(result.report.split("\n\n")[1])] == [
        "**1**",
        "0 of 1, 1 diverged",
        "0 of 1, 1 diverged",
    ]
    assert (tmp_path / "sweep.png").exists()


def test_pictures_mark_diverged_runs():
    short = [history(2, ga=5, **FINAL)]
    usable = {"P": {"fedavg": [history(4, ga=50, **FINAL)], "fedgela": []}}
    diverged = {"P": {"fedavg": short, "fedgela": short}}
    figure, panels = comparison_plots.curves(usable, "title", diverged)
    check_layout(figure, panels)
    crosses = [line for line in panels[0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1, 2], [1, 2]]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["fedavg  50.0", "fedgela  diverged"]
    assert "×: diverged" in figure._suptitle.get_text()
    figure, panels = comparison_plots.bars(usable, "title", diverged)
    check_layout(figure, panels)
    names = [label.get_text() for label in panels[0].yaxis.get_ticklabels()]
    assert names == ["fedavg (1 diverged)", "fedgela (1 diverged)"]
    widths = [bar.get_width() for bar in panels[0].patches]
    np.testing.assert_array_equal(widths, [50, np.nan, 90, np.nan])


def test_pictures_without_usable_runs():
    short = [history(2, ga=5, **FINAL)]
    figure, panels = comparison_plots.curves(
        {"P": {"fedavg": []}}, "title", {"P": {"fedavg": short}}
    )
    check_layout(figure, panels)
    figure, panels = comparison_plots.bars({"P": {"fedavg": []}}, "title", {"P": {"fedavg": short}})
    check_layout(figure, panels)
