"""Pictures: what is on them, for small and large federations."""

import itertools

import matplotlib.image
import numpy as np
import pytest

from tff_pcdd import measures
from tff_pcdd.diagnostics import plots as diagnostic_plots
from tff_pcdd.training import ExperimentConfig, History, plots


def counts(clients, classes):
    generator = np.random.default_rng(0)
    table = generator.integers(0, 3, (clients, classes)) * 100
    table[0, 0] = 300
    return table


def history(rounds, *more, **columns):
    """The same values in so many rounds, None for a missing one, and further rows."""
    made = History(["round", *columns])
    for number in range(1, rounds + 1):
        made.append({"round": number, **columns})
    for row in more:
        made.append(row)
    return made


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
    """A line of the picture is one client, and stands at its place in the order."""
    table = counts(clients, 5)
    table[3] = 0
    _, axes = plots.class_counts(table, list("abcde"), "many")
    image = axes.get_images()[0]
    order = np.arange(clients)
    if every > 1:
        keys = [
            (row.sum() == 0, row.argmax(), -row.max() / max(row.sum(), 1), k)
            for k, row in enumerate(table)
        ]
        order = np.array([k for *_, k in sorted(keys)])
        assert not table[order[-1]].any()
    np.testing.assert_array_equal(image.get_array().filled(0), table[order[::every]])
    lines = len(table[::every])
    _left, _right, bottom, top = image.get_extent()
    middles = np.linspace(top, bottom, 2 * lines + 1)[1::2]
    np.testing.assert_allclose(middles, np.arange(0, clients, every))
    ending = "" if every == 1 else f"s, sorted by their largest class (one in {every} of {clients})"
    assert axes.get_ylabel() == f"client{ending}"


def test_few_samples_are_told_from_many_and_from_none():
    """With one large count among small ones; the colors of 1, 9 and 2,000 samples differ."""
    table = np.array([[1, 9, 0], [2, 8, 2000]])
    _, axes = plots.class_counts(table, list("abc"), "skewed")
    image = axes.get_images()[0]
    colors = {
        value: image.cmap(image.norm(np.ma.masked_equal([value], 0)))[0][:3]
        for value in (0, 1, 9, 2000)
    }
    for one, other in itertools.combinations(colors.values(), 2):
        assert np.abs(one - other).max() > 0.2
    # Equally large classes keep a scale from 0.
    _, axes = plots.class_counts(np.array([[71, 146], [0, 36]]), list("ab"), "even")
    assert axes.get_images()[0].norm(0) == 0


def test_no_samples_at_all():
    figure, _ = plots.class_counts(np.zeros((2, 3), int), list("abc"), "empty")
    figure.draw_without_rendering()


def test_accuracy_curves_leave_missing_values_out():
    run = history(3, {"round": 4, "ga": 30, "pa": 80}, ga=20, pa=None)
    _, axes = plots.accuracy_curves(run, "title")
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {
        measures.of("ga").label: [[1, 20], [2, 20], [3, 20], [4, 30]],
        measures.of("pa").label: [[4, 80]],
    }
    assert axes.get_ylim()[1] >= 100


def test_dots_of_many_rounds_do_not_merge_into_a_band():
    rows = [{"round": number, "ga": 20, "pa": 80} for number in range(2, 41)]
    for more, marker in (([], "."), ([{"round": 41, "ga": 20, "pa": None}], "")):
        _, axes = plots.accuracy_curves(history(1, *rows, *more, ga=20, pa=80), "title")
        # PA has no value in the last round.
        assert [line.get_marker() or "" for line in axes.lines] == [marker, "."]


def test_a_single_round_has_a_whole_number():
    figure, axes = plots.accuracy_curves(history(1, ga=20, pa=30), "title")
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


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
            "femnist, simple_cnn",
        ),
    ],
)
def test_description(values, text):
    config = ExperimentConfig.from_settings(**values)
    assert config.describe() == text
    assert config.with_settings(rounds=3).describe() == text


@pytest.mark.parametrize(
    ("has_global_model", "label"),
    [
        (True, "GA: global model, whole test set"),
        (False, "GA: mean of the personal models, whole test set"),
    ],
)
def test_curves_say_which_models_ga_is_of(has_global_model, label):
    _, axes = plots.accuracy_curves(
        history(3, ga=50, pa=60), "a run", has_global_model=has_global_model
    )
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == [label, "PA after: personal models after local epochs, mean over clients"]


def test_names_that_look_like_formulas_are_drawn(tmp_path):
    """Classes of a table of incomes, of which matplotlib would take two for broken formulas."""
    names = ["income_$50k_to_$100k", "$$", "_other"]
    norms, _ = diagnostic_plots.norms_and_counts(
        {"head": np.eye(3)}, np.array([3, 2, 1]), names, "title"
    )
    points, labels = np.arange(12.0).reshape(6, 2), np.arange(6) % 3
    features, _ = diagnostic_plots.feature_map(points, labels, names, "title")
    for number, figure in enumerate((norms, features)):
        plots.save(figure, tmp_path / f"{number}.png")
    shown = [text.get_text() for text in features.legends[0].get_texts()]
    assert [text.strip().replace("\\$", "$") for text in shown] == names
