"""Pictures of a comparison: every method can be found on them, however many there are."""

import itertools

import numpy as np
import pytest

from tff_pcdd import methods as registered
from tff_pcdd.studies import comparison_plots
from tff_pcdd.training import History


def history(rounds, **columns):
    """The same values in so many rounds, None for a missing one."""
    made = History(["round", *columns])
    for number in range(1, rounds + 1):
        made.append({"round": number, **columns})
    return made


FINAL = {"pa": 90, "pa_before": 50, "pa_before_masked": 70}


def results(methods, partitions=1, seeds=(0, 2)):
    """Method number i has a GA of i + 1 on average, on every partition."""
    names = ["fedavg", *(name for name in registered.names() if name not in ("fedavg", "local"))]
    names = names[:methods]
    return {
        f"partition {number}": {
            name: [history(4, ga=index + seed, **FINAL) for seed in seeds]
            for index, name in enumerate(names)
        }
        for number in range(partitions)
    }


def check_layout(figure, panels):
    """Nothing that is written lies on another or outside of the picture."""
    figure.draw_without_rendering()
    box = figure.bbox
    (legend,) = figure.legends
    written = [legend, figure._suptitle, *panels]
    extents = [item.get_tightbbox() for item in written]
    for extent in extents:
        assert box.x0 - 1 <= extent.x0
        assert extent.x1 <= box.x1 + 1
        assert box.y0 - 1 <= extent.y0
        assert extent.y1 <= box.y1 + 1
    for a, b in itertools.combinations(extents, 2):
        assert not a.overlaps(b)
    for axes in panels:
        names = [label.get_window_extent() for label in axes.yaxis.get_ticklabels()]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(names))


def styles(axes):
    """The color and the dashes of each curve."""
    return {
        line.get_label(): (line.get_color(), repr(line._unscaled_dash_pattern))
        for line in axes.lines
    }


SIZES = [(1, 1), (3, 1), (23, 1), (7, 2), (23, 3), (5, 4)]


@pytest.mark.parametrize(("methods", "partitions"), SIZES)
def test_curves(methods, partitions):
    figure, panels = comparison_plots.curves(results(methods, partitions), "digits, simple_cnn")
    assert len(panels) == partitions
    for axes in panels:
        drawn = styles(axes)
        assert len(drawn) == len(set(drawn.values())) == methods
        assert drawn == styles(panels[0])
        for index, line in enumerate(axes.lines):
            np.testing.assert_allclose(line.get_ydata(), index + 1)
    check_layout(figure, panels)
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    names = list(results(methods)["partition 0"])
    if partitions == 1:
        # As the curves end, from the top.
        names = [f"{name}  {number + 1:.1f}" for number, name in enumerate(names)][::-1]
    assert entries == names


@pytest.mark.parametrize(("methods", "partitions"), SIZES)
def test_bars(methods, partitions):
    figure, panels = comparison_plots.bars(results(methods, partitions), "digits, simple_cnn")
    for axes in panels:
        widths = np.reshape([patch.get_width() for patch in axes.patches], [2, methods])
        np.testing.assert_allclose(widths[0], np.arange(methods) + 1)
        np.testing.assert_allclose(widths[1], 90)
        marks = {
            line.get_label(): line.get_xdata()
            for line in axes.lines
            if line.get_label().startswith("PA")
        }
        np.testing.assert_allclose(marks["PA before"], 50)
        np.testing.assert_allclose(marks["PA before, own classes"], 70)
        names = [label.get_text() for label in axes.yaxis.get_ticklabels()]
        assert names == list(results(methods)["partition 0"])
    check_layout(figure, panels)


def test_spread_is_drawn_and_explained_for_few_methods_with_seeds():
    for methods, seeds, bands in ((3, (0, 2), 3), (3, (0,), 0), (23, (0, 2), 0)):
        figure, (axes,) = comparison_plots.curves(results(methods, seeds=seeds), "title")
        assert len(axes.collections) == bands
        assert ("bands" in figure._suptitle.get_text()) == bool(bands)
    # The sample deviation of two values at a distance of 2.
    low, high = 1 - np.sqrt(2), 1 + np.sqrt(2)
    figure, (axes,) = comparison_plots.curves(results(1, seeds=(0, 2)), "title")
    edges = axes.collections[0].get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose((edges.min(), edges.max()), (low, high))


def test_seeds_that_ended_in_different_rounds_are_averaged_where_all_have_measured():
    ended_early, longer, alone = (History(["round", "ga"]) for _ in range(3))
    for history, values in (
        (ended_early, {2: 10.0, 4: 20.0, 5: 30.0}),
        (longer, {2: 30.0, 4: 60.0, 6: 90.0}),
        (alone, {1: 50.0}),
    ):
        for number, value in values.items():
            history.append({"round": number, "ga": value})
    found = {"fedavg": [ended_early, longer], "fedgela": [ended_early, alone]}
    figure, (axes,) = comparison_plots.curves({"digits, P10C2": found}, "title")
    # FedGELA's seeds have no round in common, so there is nothing to average.
    (line,) = axes.lines
    assert list(line.get_xdata()) == [2, 4]
    np.testing.assert_allclose(line.get_ydata(), [20.0, 40.0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg  40.0"]


def test_a_method_without_accuracies_leaves_the_others_in_place():
    some = {
        "P": {"fedavg": [history(3, ga=10, **FINAL)], "fedproto": [history(3, ga=None, **FINAL)]}
    }
    figure, (axes,) = comparison_plots.curves(some, "title")
    figure.draw_without_rendering()
    assert [line.get_label() for line in axes.lines] == ["fedavg"]
    figure, (axes,) = comparison_plots.bars(some, "title")
    figure.draw_without_rendering()
    assert [patch.get_width() for patch in axes.patches[2:]] == [90, 90]


def test_pruning_has_two_curves_for_each_method():
    columns = {
        f"diag_pruning_{order}_{share}": share / 2 + (order == "largest")
        for order in ("smallest", "largest")
        for share in range(0, 101, 10)
    }
    runs = {"all": {name: [history(2, ga=1, **columns)] for name in ("fedavg", "fedloge")}}
    assert comparison_plots.has_pruning(runs)
    figure, (axes,) = comparison_plots.pruning_curves(runs, "digits")
    check_layout(figure, [axes])
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines) == [
        "fedavg, smallest means first",
        "fedavg, largest means first",
        "fedloge, smallest means first",
        "fedloge, largest means first",
    ]
    largest = lines["fedloge, largest means first"]
    assert largest.get_xdata().tolist() == list(range(0, 101, 10))
    np.testing.assert_allclose(largest.get_ydata(), np.arange(0, 51, 5) + 1)
    assert not comparison_plots.has_pruning(results(2))


def test_training_alone_does_not_squeeze_the_curves():
    """It has no global model; where it is the only method, it is drawn."""
    runs = {"fedavg": [history(3, ga=85, **FINAL)], "local": [history(3, ga=10, **FINAL)]}
    figure, (axes,) = comparison_plots.curves({"P": runs}, "title")
    assert [line.get_label() for line in axes.lines] == ["fedavg"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg  85.0"]
    _, (axes,) = comparison_plots.bars({"P": runs}, "title")
    assert len(axes.patches) == 4, "GA and PA of both"
    _, (axes,) = comparison_plots.curves({"P": {"local": runs["local"]}}, "title")
    assert [line.get_label() for line in axes.lines] == ["local"]


def test_lost_rounds_are_left_out():
    """A mean over the seeds that leaves out what one of them has lost, as in all tables."""
    histories = [History(["round", "ga", "last_lost_round"]) for _ in range(2)]
    for number, values in ((1, (40.0, 60.0)), (2, (10.0, 60.0)), (3, (60.0, 80.0))):
        for seed, value in enumerate(values):
            lost = 2 if seed == 0 and number > 1 else 0
            histories[seed].append({"round": number, "ga": value, "last_lost_round": lost})
    _, (axes,) = comparison_plots.curves({"digits": {"fedavg": histories}}, "title")
    (line,) = axes.lines
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == {1: 50.0, 3: 70.0}
