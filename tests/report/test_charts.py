"""Curves as paths, and their axes."""

import itertools
import re

import pytest

from tff_pcdd.report import charts
from tff_pcdd.report.charts import Line
from tff_pcdd.training import colors


def places(path):
    """The points of a path."""
    return [tuple(map(float, pair.split())) for pair in re.split("[ML]", path)[1:]]


def test_a_curve():
    chart = charts.chart("GA", [Line("a", [(1, 0.0), (2, 50.0), (5, 100.0)])], percent=True)
    (line,) = chart.lines
    # From the first round to the last, and from 100 % at the top to 0 % at the bottom.
    assert places(line.path) == [(0, 1000), (250, 500), (1000, 0)]
    assert line.last == 100.0
    assert chart.y_labels == [(f"{20 * i}", 20.0 * i) for i in range(6)]
    assert chart.x_labels[0] == ("1", 0.0)
    assert chart.x_labels[-1] == ("5", 100.0)
    assert "a: 0 % in round 1, 100 % in round 5" in chart.description


def test_the_axis_of_percentages_fits_the_values():
    def labels(*values):
        line = Line("a", [*enumerate(values, 1)])
        return [text for text, _ in charts.chart("", [line], percent=True).y_labels]

    assert labels(83, 96)[0] == "80"
    assert labels(83, 96)[-1] == "100"
    # At least 20 points, so that noise does not look like progress.
    assert labels(99.1, 99.2)[0] == "80"
    assert float(labels(12, 13)[-1]) - float(labels(12, 13)[0]) >= 20


def test_an_outlier_is_drawn_at_the_edge():
    line = Line("loss", [(1, 1e30), (2, 2.0), (3, 1.0), (4, 0.5)])
    chart = charts.chart("Loss", [line], percent=False)
    assert places(chart.lines[0].path)[0] == (0, 0)
    assert chart.clipped == 2
    assert charts.chart("Loss", [Line("l", [(1, 2.0), (2, 1.0)])], percent=False).clipped is None


@pytest.mark.parametrize("percent", [False, True])
def test_infinite_values_are_left_out(percent):
    inf, nan = float("inf"), float("nan")
    line = Line("a", [(1, inf), (2, 40.0), (3, 60.0), (4, -inf)], spread=[nan, 1.0, 1.0, nan])
    chart = charts.chart("", [line, Line("b", [(1, inf), (2, inf)])], percent=percent)
    assert [(each.name, each.values) for each in chart.lines] == [("a", "2,40 3,60")]
    assert charts.chart("", [Line("b", [(1, inf), (2, inf)])], percent=percent) is None


def test_a_band_is_the_mean_plus_and_minus_the_deviation():
    line = Line("a", [(1, 40.0), (2, 50.0)], spread=[10.0, 20.0])
    chart = charts.chart("GA", [line], percent=True)
    # From 30 to 50 in round 1, and from 30 to 70 in round 2, all of which is on the axis.
    assert [text for text, _ in chart.y_labels] == ["30", "40", "50", "60", "70"]
    assert chart.lines[0].band.endswith("Z")
    assert places(chart.lines[0].band[:-1]) == [(0, 500), (1000, 0), (1000, 1000), (0, 1000)]


def test_a_band_ends_at_100_percent():
    """97 ± 5 and 94 ± 5: the axis ends at 100, and begins below 89."""
    chart = charts.chart("GA", [Line("a", [(1, 94.0), (2, 97.0)], spread=[5.0, 5.0])], percent=True)
    assert [text for text, _ in chart.y_labels][:: len(chart.y_labels) - 1] == ["80", "100"]
    assert places(chart.lines[0].band[:-1])[1] == (1000, 0)


def test_many_curves_have_no_bands():
    lines = [
        Line(f"{i}", [(1, 1.0), (2, 2.0)], spread=[1.0, 1.0], style=colors.numbered(i))
        for i in range(7)
    ]
    chart = charts.chart("GA", lines, percent=True)
    assert not any(line.band for line in chart.lines)


def test_curves_differ_in_color_or_dashes():
    lines = [Line("0", [(1, 1.0), (2, 2.0)])]
    lines += [Line(f"{i}", [(1, 1.0), (2, 2.0)], style=colors.numbered(i)) for i in range(25)]
    drawn = charts.chart("GA", lines, percent=True).lines
    assert len({(line.color, line.dashes) for line in drawn}) == 26
    assert (drawn[0].color, drawn[0].dashes) == ("#000000", "")


def test_long_curves_are_thinned():
    points = [(n, float(n % 7)) for n in range(1, 100_001)]
    path = charts.chart("GA", [Line("a", points)], percent=True).lines[0].path
    assert len(places(path)) <= 501
    assert places(path)[-1][0] == 1000
    assert not charts.chart("GA", [Line("a", points)], percent=True).lines[0].dots


def test_rounds_are_marked():
    line = Line("a", [(1, 1.0), (3, 2.0)])
    chart = charts.chart("GA", [line], percent=True, marked=[2, 9])
    # A cross in the middle, and none for a round that is not drawn.
    assert chart.crosses.count("M") == 2
    assert chart.crosses.startswith("M494 970L506 1000")


def test_nothing_is_drawn_of_a_single_round():
    assert charts.chart("GA", [Line("a", [(1, 5.0)]), Line("b", [])], percent=True) is None


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.003), (1, 2000), (70, 100), (0, 7e8)])
def test_ticks(low, high):
    ticks = charts.ticks(low, high)
    assert 2 <= len(ticks) <= 6
    assert low <= ticks[0]
    assert ticks[-1] <= high
    steps = {round((b - a) / (high - low), 9) for a, b in itertools.pairwise(ticks)}
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ((-2.0, -1.0), -2.0, 0.0),
        ((-1.0, 0.5, 2.0), -1.0, 2.0),
        ((0.0, 0.0), 0.0, 1.0),
        ((-7e-3, 0.0), -8e-3, 0.0),
    ],
)
def test_negative_values_are_below_zero(values, low, high):
    points = [*enumerate(values, 1)]
    chart = charts.chart("log-likelihood", [Line("a", points)], percent=False)
    labels = {float(text): place for text, place in chart.y_labels}
    assert (min(labels), max(labels)) == (low, high)
    assert (labels[low], labels[high]) == (0, 100)
    for (_, y), value in zip(places(chart.lines[0].path), values, strict=True):
        assert y == pytest.approx(1000 * (high - value) / (high - low), abs=0.06)
