"""A run with --diagnostics: its columns, its pictures, and that nothing else changes."""

import csv
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.evaluation import geometry, tsne
from tff_pcdd.federated import programs
from tff_pcdd.options import OptionError
from tff_pcdd.training import (
    Experiment,
    ExperimentConfig,
    RunOptions,
    diagnostics,
    evaluate_run,
    sinks,
)
from tff_pcdd.training.config import DIAGNOSTICS
from tff_pcdd.training.experiment import build_learning

ALL = ",".join(DIAGNOSTICS)


def config(algorithm="fedavg", **settings):
    return ExperimentConfig.from_settings(
        algorithm=algorithm,
        **{
            "rounds": 2,
            "local_epochs": 1,
            "max_train_samples": 204,  # which is not the same for every class
            "max_test_samples": 100,
            "personal_eval_every": 0,
            **settings,
        },
    )


def options(names):
    return RunOptions(diagnostics=names, tensorboard=False, progress=False)


def read(path):
    with open(path / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two rounds of FedAvg on digits, without and with all diagnostics."""
    folder = tmp_path_factory.mktemp("runs")
    Experiment(config(), folder / "plain", options(None)).run()
    experiment = Experiment(config(), folder / "looked_at", options(ALL))
    experiment.run()
    return folder, experiment


def test_every_column_has_a_number(runs):
    folder, experiment = runs
    rows = read(folder / "looked_at")
    columns = [name for name in rows[0] if name.startswith("diag_")]
    assert columns == experiment.diagnostics.columns()
    for expected in (
        "diag_angle_classifier",
        "diag_angle_features_min",
        "diag_local_angle_classifier_missing",
        "diag_local_angle_features_between",
        "diag_eigen_variance",
        "diag_nc1",
        "diag_nc4",
        "diag_norm_classifier_count_correlation",
        "diag_feature_constant",
        "diag_tsne_trustworthiness",
        "diag_tsne_silhouette",
    ):
        assert expected in columns
    assert len(rows) == 2
    for row in rows:
        for name in columns:
            if row is not rows[-1] and name.startswith("diag_tsne"):
                assert row[name] == ""  # which takes seconds, and is left for the last round
            else:
                assert math.isfinite(float(row[name])), name


def test_no_other_number_changes(runs):
    folder, _ = runs
    plain, looked_at = read(folder / "plain"), read(folder / "looked_at")
    assert not any(name.startswith("diag_") for name in plain[0])
    for before, after in zip(plain, looked_at, strict=True):
        for name in before:
            assert name == "seconds" or before[name] == after[name], name
    summaries = [
        json.loads((folder / name / "summary.json").read_text()) for name in ("plain", "looked_at")
    ]
    for summary in summaries:
        del summary["seconds_per_round"]
    assert summaries[0] == summaries[1]


def test_a_picture_for_each_name(runs):
    folder, _ = runs
    pictures = {path.name for path in (folder / "looked_at" / "plots").glob("diag_*.png")}
    assert pictures == {f"diag_{name}.png" for name in DIAGNOSTICS}
    assert not list((folder / "plain" / "plots").glob("diag_*"))


def test_global_numbers_are_those_of_the_global_model(runs):
    """Angles, norms and class means recomputed from the last weights."""
    folder, experiment = runs
    net = experiment.learning.network()
    programs.load(net, experiment.state["weights"])
    kernel = net["head"].kernel.numpy()
    test = experiment.federation.test
    x = data.normalize(tf.constant(test.x), experiment.learning.input_spec)
    features = net["backbone"](x, training=False).numpy()
    row = read(folder / "looked_at")[-1]
    expected = {
        "diag_angle_classifier": geometry.mean_angles(kernel.T).all,
        "diag_norm_classifier": np.linalg.norm(kernel, axis=0).mean(),
        "diag_nc1": geometry.nc1(features, test.y, 10),
        "diag_nc4": geometry.nc4(
            (features @ kernel + net["head"].bias.numpy()).argmax(axis=1),
            features,
            geometry.class_means(features, test.y, 10),
        ),
        "diag_feature_norm": np.linalg.norm(features, axis=1).mean(),
        "diag_tsne_trustworthiness": tsne.trustworthiness(features, tsne.project(features)),
    }
    for name, value in expected.items():
        assert float(row[name]) == pytest.approx(value, rel=1e-4), name


def test_local_angles_are_those_after_the_clients_next_round(runs):
    """The local model is what `ClientProgram.update` makes of the global one."""
    folder, experiment = runs
    held = experiment.federation.class_counts() > 0
    assert experiment.diagnostics.clients == [0, 1, 2]
    weights, state = experiment.state["weights"], experiment.state
    angles = []
    for client in experiment.diagnostics.clients:
        program = programs.ClientProgram(experiment.learning)
        result = program.update(
            {"weights": weights, "server": state["server"], "round": state["round"]},
            experiment.store.get(client),
            experiment._client_data(client),
        )
        # Of FedAvg's trainable weights the head's kernel and bias are the last.
        kernel = weights["trainable"][-2] + result["update"][-2].numpy()
        angles.append(geometry.mean_angles(kernel.T, held[client]))
    row = read(folder / "looked_at")[-1]
    for pairs in ("existing", "missing", "between"):
        expected = np.mean([getattr(found, pairs) for found in angles])
        actual = float(row[f"diag_local_angle_classifier_{pairs}"])
        assert actual == pytest.approx(expected, rel=1e-4), pairs


def test_run_goes_on_with_other_diagnostics(tmp_path):
    """Columns of the first part stay; a row without a number has an empty cell."""
    path = tmp_path / "metrics.csv"
    first = sinks.CsvSink(path, ["round", "ga", "diag_nc1"])
    first.start(1, 2)
    first.row({"round": 1, "ga": 50.0, "diag_nc1": 1.5})
    second = sinks.CsvSink(path, ["round", "ga", "diag_feature_norm"])
    second.start(2, 2)
    second.row({"round": 2, "ga": 60.0, "diag_feature_norm": 2.5})
    assert read(tmp_path) == [
        {"round": "1", "ga": "50", "diag_feature_norm": "", "diag_nc1": "1.5"},
        {"round": "2", "ga": "60", "diag_feature_norm": "2.5", "diag_nc1": ""},
    ]


def test_evaluate_reports_them(runs):
    folder, _ = runs
    results = evaluate_run(config(), folder / "looked_at", options("nc"))
    row = read(folder / "looked_at")[-1]
    assert set(results["diagnostics"]) == {name for name in row if name.startswith("diag_nc")}
    assert results["diagnostics"]["diag_nc1"] == pytest.approx(float(row["diag_nc1"]))


def test_methods_name_their_classifiers(tmp_path):
    """The frame of FedGELA never moves; FedLoGe has two classifiers."""
    experiment = Experiment(config("fedgela"), tmp_path, options("angles,norms"))
    experiment.initialize()
    experiment.next_round()
    numbers = experiment.diagnose()
    angle = geometry.simplex_angle(10)
    for name in ("angle_classifier", "angle_classifier_min", "local_angle_classifier_missing"):
        assert numbers[f"diag_{name}"] == pytest.approx(angle, abs=1e-3), name
    assert numbers["diag_norm_classifier"] == pytest.approx(1, abs=1e-5)
    assert math.isnan(numbers["diag_norm_classifier_count_correlation"])
    learning = build_learning(config("fedloge"), experiment.federation, RunOptions())
    names = ["angles", "nc", "norms"]
    columns = diagnostics.Diagnostics(learning, experiment.federation, names).columns()
    for name in ("angle_classifier", "angle_classifier_ssec", "nc3_ssec", "norm_classifier_ssec"):
        assert f"diag_{name}" in columns


def test_without_a_global_model_only_local_ones_are_looked_at(tmp_path):
    experiment = Experiment(config("fedper"), tmp_path, options("angles,features,nc,norms"))
    experiment.initialize()
    experiment.next_round()
    numbers = experiment.diagnose()
    assert list(numbers) == experiment.diagnostics.columns()
    assert numbers and all(name.startswith("diag_local_angle_") for name in numbers)
    assert all(0 < value < 180 for value in numbers.values())


def test_model_that_diverged_ends_no_run(runs):
    _, experiment = runs
    state = dict(experiment.state)
    weights = dict(state["weights"])
    weights["trainable"] = [np.full_like(w, np.nan) for w in weights["trainable"]]
    state["weights"] = weights
    numbers = experiment.diagnostics.measure(
        state,
        [
            (experiment.store.get(client), experiment._client_data(client))
            for client in experiment.diagnostics.clients
        ],
    )
    assert list(numbers) == experiment.diagnostics.columns()
    for name in ("nc1", "eigen_variance", "tsne_silhouette"):
        assert math.isnan(numbers[f"diag_{name}"]), name


def test_map_takes_its_share_of_every_class(monkeypatch):
    monkeypatch.setattr(diagnostics, "MAX_MAPPED", 8)
    labels = np.repeat([0, 1], [30, 10])
    view = diagnostics.View(
        np.arange(80.0).reshape(40, 2), labels, labels, {}, np.array([30, 10])
    ).mapped()
    assert np.bincount(view.labels).tolist() == [6, 2]
    np.testing.assert_array_equal(view.labels, (view.features[:, 0] >= 60).astype(int))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # No samples; all classes; two of four; one; two of four; two of four.
        (
            [
                [0, 0, 0, 0],
                [1, 1, 1, 1],
                [1, 0, 2, 0],
                [0, 9, 0, 0],
                [3, 3, 0, 0],
                [0, 1, 1, 0],
                [0, 1, 1, 0],
            ],
            [2, 4, 5],
        ),
        ([[1, 1], [0, 0], [1, 1]], [0, 2]),
    ],
)
def test_clients_with_something_to_compare_come_first(counts, expected):
    assert diagnostics.choose_clients(np.array(counts)) == expected


@pytest.mark.parametrize("value", ["angels", "angles,", "angles;nc"])
def test_unknown_name_is_refused_in_one_line(value):
    with pytest.raises(OptionError) as error:
        RunOptions(diagnostics=value)
    message = str(error.value)
    assert message.startswith(f"--diagnostics={value}: ") and "\n" not in message
    assert all(name in message for name in DIAGNOSTICS)


def test_names_are_read_in_any_order():
    assert RunOptions(diagnostics="nc, angles").diagnostic_names() == ["nc", "angles"]
    assert RunOptions().diagnostic_names() == []
