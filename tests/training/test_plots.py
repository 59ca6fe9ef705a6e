"""Pictures: what is on them, for small and large federations and many methods."""

import dataclasses
import itertools

import matplotlib.image
import numpy as np
import pytest

from tff_pcdd.training import ExperimentConfig, plots


def counts(clients, classes):
    generator = np.random.default_rng(0)
    table = generator.integers(0, 3, (clients, classes)) * 100
    table[0, 0] = 300
    return table


def rows(rounds, **columns):
    """Rows of a metrics file; a column is a number for every round, None for an empty cell."""
    values = {name: "" if value is None else str(value) for name, value in columns.items()}
    return [{"round": str(number), **values} for number in range(1, rounds + 1)]


FINAL = {"pa": 90, "pa_before": 50, "pa_before_masked": 70}


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_small_federation_has_numbers_and_names():
    table = counts(4, 3)
    _, axes = plots.class_counts(table, ["cat", "dog", "eel"], "pets, P4C2")
    assert labels(axes.xaxis) == ["cat", "dog", "eel"]
    assert labels(axes.yaxis) == ["0", "1", "2", "3"]
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(c, k): str(table[k, c]) for k, c in np.argwhere(table > 0)}
    assert axes.get_title() == "pets, P4C2"


@pytest.mark.parametrize(("clients", "classes"), [(50, 10), (10, 100), (3500, 62)])
def test_large_federation_has_few_labels_and_no_numbers(clients, classes):
    names = [f"class {number}" for number in range(classes)]
    figure, axes = plots.class_counts(counts(clients, classes), names, "many")
    figure.draw_without_rendering()
    assert not axes.texts
    assert len(labels(axes.yaxis)) <= 15
    assert len(labels(axes.xaxis)) <= 30


@pytest.mark.parametrize(("clients", "every"), [(500, 1), (501, 2), (3500, 7)])
def test_more_clients_than_lines_are_thinned_out_and_it_is_said(clients, every):
    """A line of the picture is one client, and stands at this client's number."""
    table = counts(clients, 5)
    _, axes = plots.class_counts(table, list("abcde"), "many")
    image = axes.get_images()[0]
    np.testing.assert_array_equal(image.get_array().filled(0), table[::every])
    lines = len(table[::every])
    _left, _right, bottom, top = image.get_extent()
    middles = np.linspace(top, bottom, 2 * lines + 1)[1::2]
    np.testing.assert_allclose(middles, np.arange(0, clients, every))
    wanted = "client" if every == 1 else f"client (one in {every} of {clients})"
    assert axes.get_ylabel() == wanted


def test_accuracy_curves_leave_empty_cells_out():
    run = [*rows(3, ga=20, pa=None), {"round": "4", "ga": "30", "pa": "80"}]
    _, axes = plots.accuracy_curves(run, "title")
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {
        plots._LABELS["ga"]: [[1, 20], [2, 20], [3, 20], [4, 30]],
        plots._LABELS["pa"]: [[4, 80]],
    }
    assert axes.get_ylim()[1] >= 100


def test_a_single_round_has_a_whole_number():
    figure, axes = plots.accuracy_curves(rows(1, ga=20, pa=30), "title")
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


@pytest.mark.parametrize("number", [1, 5, 8, 23])
def test_comparison_of_methods(number, tmp_path):
    """Curves are told apart, and what is drawn lies within the picture."""
    results = {
        f"method{index}": [rows(4, ga=index + seed, **FINAL) for seed in (0, 2)]
        for index in range(number)
    }
    figure, (curves, bars) = plots.comparison(results, "title")
    figure.draw_without_rendering()
    styles = {(line.get_color(), line.get_linestyle()) for line in curves.lines}
    assert len(styles) == number
    np.testing.assert_allclose(curves.lines[-1].get_ydata(), number)
    assert labels(bars.xaxis) == list(results)
    heights = [patch.get_height() for patch in bars.patches]
    np.testing.assert_allclose(heights[:number], np.arange(number) + 1)
    box = figure.bbox
    legends = [legend for legend in (curves.get_legend(), *figure.legends) if legend]
    extents = [legend.get_window_extent() for legend in legends]
    assert len(legends) == 2
    assert not extents[0].overlaps(extents[1])
    for legend in legends:
        extent = legend.get_window_extent()
        assert box.x0 <= extent.x0
        assert extent.x1 <= box.x1
        assert extent.y1 <= box.y1
    names = [label.get_window_extent() for label in bars.xaxis.get_ticklabels()]
    if number != 8:  # where names are turned, their boxes overlap and they do not
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(names))
    assert not any(
        legend.get_window_extent().overlaps(name) for legend in legends for name in names
    )


def test_comparison_with_a_method_without_global_model():
    results = {"fedavg": [rows(3, ga=10, **FINAL)], "local": [rows(3, ga=None, **FINAL)]}
    figure, (curves, _) = plots.comparison(results, "title")
    figure.draw_without_rendering()
    assert len(curves.lines[1].get_xdata()) == 0


def test_save_makes_the_folder(tmp_path):
    figure, _ = plots.class_counts(counts(3, 2), ["a", "b"], "title")
    plots.save(figure, tmp_path / "new" / "picture.png")
    assert matplotlib.image.imread(tmp_path / "new" / "picture.png").shape[2] == 4


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "digits, P10C2, simple_cnn"),
        ({"partition": "iid", "num_clients": 3}, "digits, IID, 3 clients, simple_cnn"),
        (
            {"partition": "dirichlet", "concentration": 0.1, "imbalance_factor": 50},
            "digits, Dirichlet(0.1), 10 clients, imbalance factor 50, simple_cnn",
        ),
        (
            {"partition": "natural", "dataset": "femnist", "data_dir": "x"},
            "femnist, natural clients, simple_cnn",
        ),
    ],
)
def test_description(values, text):
    config = ExperimentConfig(**values)
    assert plots.describe(config) == text
    assert plots.describe(dataclasses.replace(config, rounds=3)) == text
