"""What a simulation, a run and a federation show in Python: clients, models, pictures, one line."""

import csv
import errno
import html
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, metrics
from tff_pcdd import data, files, methods
from tff_pcdd.errors import DataError
from tff_pcdd.export import ExportOptions
from tff_pcdd.studies import Comparison
from tff_pcdd.training import History, Run, callbacks, restore_run, run_experiment

pytestmark = pytest.mark.usefixtures("shared_computations")


@pytest.fixture(scope="module")
def run(unbroken, options, shared_computations):
    """Not trained here: the run that nothing disturbed, after its last round."""
    return restore_run(CONFIG, unbroken, options)


@pytest.fixture(scope="module")
def table(unbroken):
    """clients.csv as texts."""
    with open(unbroken / "clients.csv", newline="") as file:
        return list(csv.DictReader(file))


def accuracy(classes, labels):
    return 100 * np.mean(classes == labels)


def test_clients_are_the_rows_of_clients_csv(run, table):
    found = run.clients()
    assert len(found) == len(table) == 5
    for row, written in zip(found, table, strict=True):
        assert set(row) < set(written)
        for name, value in row.items():
            if isinstance(value, float):
                assert value == pytest.approx(float(written[name]), rel=1e-8)
            else:
                assert ("" if value is None else str(value)) == written[name]


def test_the_global_model_has_the_accuracy_of_the_run(run, unbroken):
    test = run.simulation.federation.test
    ga = json.loads((unbroken / "summary.json").read_text())["ga_final"]
    answers = run.keras_model().predict(test.x, verbose=0)
    assert set(answers) == {"probabilities", "class_id"}
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, rtol=1e-5)
    assert accuracy(answers["class_id"], test.y) == pytest.approx(ga)
    np.testing.assert_array_equal(run.predict(test.x), answers["class_id"])


def test_features_are_what_the_head_receives(run):
    """FedGELA's frame and the features, which have length 1, give the answers."""
    test, [frame] = run.simulation.federation.test, run.simulation.state.weights["fixed"]
    features = run.simulation.features(test.x)
    assert (features.shape, features.dtype) == ((len(test.x), 84), np.float32)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    answers = (features @ np.asarray(frame)).argmax(axis=1)
    np.testing.assert_array_equal(answers, run.predict(test.x))
    assert run.simulation.features(test.x[:0]).shape == (0, 84)
    assert run.predict(test.x[:0]).shape == (0,)


def test_personal_models_have_the_accuracies_of_the_clients(run, table):
    federation = run.simulation.federation
    _, third = federation.client_examples(2)
    model = run.keras_model(client=federation.client_ids[2])
    answers = model.predict(third.x, verbose=0)
    assert accuracy(answers["class_id"], third.y) == pytest.approx(float(table[2]["pa"]))
    own = federation.class_counts()[2] > 0
    assert (answers["own_probabilities"][:, ~own] == 0).all()
    # The number of a client does as well as its name, and another model leaves this one alone.
    before = run.keras_model(client=0, local_epochs=False)
    _, first = federation.client_examples(0)
    classes = before.predict(first.x, verbose=0)["class_id"]
    assert accuracy(classes, first.y) == pytest.approx(float(table[0]["pa_before"]))
    again = model.predict(third.x, verbose=0)
    np.testing.assert_array_equal(again["probabilities"], answers["probabilities"])


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ("7", "choose one of 0, 1, 2, 3, 4"),
        (5, "must be the name of a client, or a number from 0 to 4"),
        (-1, "must be the name of a client, or a number from 0 to 4"),
        (1.5, "must be the name of a client, or a number from 0 to 4"),
    ],
)
def test_a_client_that_is_not_there(client, reason, run):
    with refuses("client", reason):
        run.keras_model(client)
    for samples in (2, 0):
        with refuses("client", reason):
            run.predict(run.simulation.federation.test.x[:samples], client)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (np.s_[0], r"\[8, 8, 1\]; inputs are \[n, 8, 8, 1\]; x\[None\] is a batch of one$"),
        (np.s_[0, ..., 0], r"\[8, 8\]; inputs are \[n, 8, 8, 1\]; x\[None\] is a batch of one$"),
        (np.s_[0, 0, 0, 0], r"\[\]; inputs are \[n, 8, 8, 1\]$"),
        (np.s_[:2, :4], r"\[2, 4, 8, 1\]; inputs are \[n, 8, 8, 1\]$"),
    ],
)
def test_what_is_no_batch_is_refused_in_one_line(index, said, run):
    x = run.simulation.federation.test.x
    for function in (run.predict, run.simulation.features):
        with pytest.raises(DataError, match=f"^x has the shape {said}"):
            function(x[index])
    # A last dimension of 1 may be missing.
    for function in (run.predict, run.simulation.features):
        np.testing.assert_array_equal(function(x[:3, ..., 0]), function(x[:3]))


def test_clients_are_asked_one_after_another_without_warnings(run, caplog):
    """Of a Keras model for each, TensorFlow would warn after the fifth, since it traces each."""
    federation = run.simulation.federation
    log = tf.get_logger()
    log.addHandler(caplog.handler)
    try:
        with caplog.at_level("WARNING", log.name):
            for client in 2 * list(federation.client_ids):
                run.predict(federation.test.x[:3], client)
    finally:
        log.removeHandler(caplog.handler)
    assert caplog.messages == []


def test_a_method_without_a_global_model_has_personal_ones_only(run, monkeypatch):
    monkeypatch.setattr(methods.get("fedgela"), "has_global_model", False)
    with refuses("client", "fedgela has no global model; name a client"):
        run.keras_model()


def test_the_picture_of_a_run_has_the_values_of_metrics_csv(run, unbroken):
    figure = run.plot()
    (axes,) = figure.axes
    assert axes.get_title() == "fedgela on digits, P5C2, mlp"
    header, *rows = metrics(unbroken)
    (curve,) = [line for line in axes.get_lines() if line.get_label().startswith("GA")]
    expected = [(int(row[0]), float(row[header.index("ga")])) for row in rows]
    np.testing.assert_allclose(curve.get_xydata(), expected)


def test_each_is_shown_in_one_line(run, unbroken, options, tmp_path):
    name = "fedgela on digits, P5C2, mlp"
    assert repr(run) == f"Run({name}: round 4 of 4, in {unbroken})"
    assert repr(run.simulation) == f"Simulation({name}: 4 rounds)"
    federation = run.simulation.federation
    line = "Federation(digits: 5 clients, 10 classes, 100 training and 60 test samples)"
    assert repr(federation) == line
    last = run.history[-1]
    assert repr(run.history) == f"History(4 rounds, ga={last['ga']:.1f}, pa={last['pa']:.1f})"
    assert repr(History(["round"])) == "History(0 rounds)"
    assert "\n" not in repr(Comparison("a\ntable", ["one failed"]))


def frame(shown):
    """The page in a frame, which may execute nothing and load nothing."""
    (page,) = re.findall(r'^<iframe sandbox srcdoc="([^"]*)" title="[^"<]*" style=', shown)
    page = html.unescape(page)
    assert "<script" not in page
    assert "default-src 'none'" in page
    return page


def test_an_experiment_ends_with_its_page(unbroken, options, caplog, tmp_path):
    """Without computing anything: the run has finished."""
    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    page = directory / "report.html"
    page.unlink(missing_ok=True)
    summary = run_experiment(CONFIG, directory, options, report=False)
    assert not page.exists()
    assert run_experiment(CONFIG, directory, options) == summary
    assert f"{summary['ga_final']:.1f}" in page.read_text()
    assert not caplog.records


def test_an_experiment_succeeds_without_its_page(unbroken, options, monkeypatch, caplog, tmp_path):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    (directory / "report.html").unlink(missing_ok=True)
    monkeypatch.setattr(files, "write_atomically", fail)
    assert run_experiment(CONFIG, directory, options)["rounds"] == CONFIG.training.rounds
    assert caplog.records[-1].getMessage().startswith("report.html was not written: ")


def test_a_run_writes_its_page_if_it_is_asked(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    (directory / "report.html").unlink(missing_ok=True)
    run = restore_run(CONFIG, directory, options)
    assert not (directory / "report.html").exists()
    assert run.report() == directory / "report.html"
    assert (directory / "report.html").read_text().startswith("<!doctype html>")


def test_a_run_exports_its_models(run, tmp_path):
    exported = run.export(tmp_path / "exported", ExportOptions(clients="3"))
    assert [each.folder for each in exported] == ["global", "personal/3"]
    assert exported[0].accuracy == pytest.approx(run.history[-1]["ga"])
    with refuses("export_dir", "overwrite"):
        run.export(tmp_path / "exported", ExportOptions(clients="3"))
    again = run.export(tmp_path / "exported", ExportOptions(clients="3"), overwrite=True)
    # From Python 3.13 on, a dataclass with NaN does not equal itself.
    assert repr(again) == repr(exported)


def test_a_notebook_shows_the_figures_and_curves_of_a_run(run, unbroken, options, tmp_path):
    page = frame(run._repr_html_())
    ga = json.loads((unbroken / "summary.json").read_text())["ga_final"]
    assert f"{ga:.1f}" in re.search(r'<dl class="figures">.*?</dl>', page, re.DOTALL)[0]
    assert page.count('<figure class="chart">') >= 1
    assert Run(CONFIG, tmp_path / "new", options)._repr_html_() is None


def test_a_notebook_shows_who_holds_what(run):
    federation = run.simulation.federation
    page = frame(federation._repr_html_())
    cells = re.findall(r'<td class="s\d+">(\d*)</td>', page)
    counts = [int(cell or 0) for cell in cells]
    expected = np.zeros((5, 10), int)
    for client, own in enumerate(federation.clients):
        np.add.at(expected[client], federation.train.y[own.train], 1)
    assert counts == expected.ravel().tolist()
    hostile = "<script>x</script>"
    named = data.from_arrays(
        np.zeros((4, 3), np.float32),
        np.array([0, 1, 0, 1]),
        [hostile, hostile, "b", "b"],
        ["train", "test"] * 2,
    )
    assert "&lt;script&gt;x" in frame(named._repr_html_())


def test_progress_is_a_widget_where_a_notebook_can_show_one(monkeypatch):
    from tqdm import auto

    bar = callbacks.bar(total=3, disable=True)
    assert type(bar) is auto.tqdm

    class Widget:
        def __init__(self, **options):
            self.options = options

    monkeypatch.setattr(auto, "tqdm", Widget)
    assert callbacks.bar(total=3).options == {"total": 3, "mininterval": 10}
    # What is drawn there is not written to a log file.
    monkeypatch.setattr(auto, "notebook_tqdm", Widget)
    assert callbacks.bar(total=3).options == {"total": 3, "mininterval": 0.5}
