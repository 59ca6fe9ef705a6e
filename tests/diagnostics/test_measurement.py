"""A run with diagnostics: its columns, its pictures, and that nothing else changes."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.training.runs import sharing_computations
from tff_pcdd import data, diagnostics
from tff_pcdd.diagnostics import geometry, tsne, views
from tff_pcdd.experiment.simulation import training_spec
from tff_pcdd.federated import ClientWork, make_message
from tff_pcdd.federated.weights import load
from tff_pcdd.settings import build
from tff_pcdd.training import Callback, ExperimentConfig, Run, RunOptions, evaluate_run

NAMES = diagnostics.names()
ALL = ",".join(NAMES)
FEATURES = [
    f"diag_feature_{name}" for name in ("norm", "mean", "variance", "constant", "nonpositive")
]
NEURAL_COLLAPSE = [
    "diag_nc1",
    "diag_nc2_equinorm",
    "diag_nc2_equiangularity",
    "diag_nc2_maximal_angle",
    "diag_nc3",
    "diag_nc4",
]


def config(algorithm="fedavg", **settings):
    return ExperimentConfig.from_settings(
        algorithm=algorithm,
        **{
            "model": "mlp",
            "rounds": 2,
            "local_epochs": 1,
            "max_train_samples": 204,  # which is not the same for every class
            "max_test_samples": 100,
            "personal_eval_every": 0,
            **settings,
        },
    )


def options(names):
    values = {"diagnostics": names, "tensorboard": False, "progress": False}
    return build(RunOptions, values)


def read(path):
    with open(path / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module", autouse=True)
def shared_computations():
    """Tracing takes most of the time of such short runs."""
    with sharing_computations({}):
        yield


@pytest.fixture(scope="module")
def runs(shared_computations, tmp_path_factory):
    """Two rounds of FedAvg on digits, without and with all diagnostics."""
    folder = tmp_path_factory.mktemp("runs")
    Run(config(), folder / "plain", options(None)).train()
    run = Run(config(), folder / "looked_at", options(ALL))
    run.train()
    return folder, run


def test_every_column_has_a_number(runs):
    folder, run = runs
    rows = read(folder / "looked_at")
    columns = [name for name in rows[0] if name.startswith("diag_")]
    assert columns == run.diagnostics.columns()
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
    assert pictures == {f"diag_{name}.png" for name in NAMES}
    assert not list((folder / "plain" / "plots").glob("diag_*"))


def test_pictures_of_a_run_that_a_callback_ends(runs, tmp_path):
    """With the round that has just been recorded: its row has what every round has."""

    class Stop(Callback):
        def on_round(self, run, row):
            run.stop_after(row["round"])

    folder, _ = runs
    run = Run(config(personal_eval_every=1), tmp_path, options(ALL), callbacks=[Stop()])
    assert run.train()["rounds"] == 1
    pictures = {path.name for path in (tmp_path / "plots").glob("diag_*.png")}
    assert pictures == {f"diag_{name}.png" for name in NAMES}
    (ended,), (first, _) = read(tmp_path), read(folder / "looked_at")
    columns = run.diagnostics.columns()
    assert [ended[name] for name in columns] == [first[name] for name in columns]


def test_global_numbers_are_those_of_the_global_model(runs):
    """Angles, norms and class means recomputed from the last weights."""
    folder, run = runs
    net = run.simulation.spec.network()
    load(net, run.simulation.state.weights)
    kernel = net["head"].kernel.numpy()
    test = run.simulation.federation.test
    x = data.normalize(tf.constant(test.x), run.simulation.spec.input_spec)
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
    order = np.argsort(np.abs(features).mean(axis=0))
    for name, first in (("smallest", order), ("largest", order[::-1])):
        for share, count in ((0, 0), (30, round(0.3 * len(order))), (100, len(order))):
            kept = features.copy()
            kept[:, first[:count]] = 0
            correct = (kept @ kernel + net["head"].bias.numpy()).argmax(axis=1) == test.y
            expected[f"diag_pruning_{name}_{share}"] = 100 * correct.mean()
    for name, value in expected.items():
        assert float(row[name]) == pytest.approx(value, rel=1e-4), name


def test_local_angles_are_those_after_the_clients_next_round(runs):
    """The local model is what `ClientWork.update` makes of the global one."""
    folder, run = runs
    held = run.simulation.federation.class_counts() > 0
    assert run.diagnostics.clients == [0, 1, 2]
    weights, state = run.simulation.state.weights, run.simulation.state
    angles = []
    for client in run.diagnostics.clients:
        work = ClientWork(run.simulation.spec)
        result = work.update(
            make_message(run.simulation.spec.method, state),
            run.simulation.store.get(client),
            run.simulation.client_data(client),
        )
        # Of FedAvg's trainable weights the head's kernel and bias are the last.
        kernel = weights["trainable"][-2] + result["update"].trainable[-2].numpy()
        angles.append(geometry.mean_angles(kernel.T, held[client]))
    row = read(folder / "looked_at")[-1]
    for pairs in ("existing", "missing", "between"):
        expected = np.mean([getattr(found, pairs) for found in angles])
        actual = float(row[f"diag_local_angle_classifier_{pairs}"])
        assert actual == pytest.approx(expected, rel=1e-4), pairs


@pytest.mark.integration
def test_a_run_is_resumed_with_other_diagnostics(tmp_path):
    """Columns of the first part stay; a row without a number has an empty cell."""
    first = Run(config(rounds=2), tmp_path, options("nc"))
    first.stop_after(1)
    first.train()
    Run(config(rounds=2), tmp_path, options("features")).train()
    before, after = read(tmp_path)
    assert list(before) == list(after)
    assert list(after)[-11:] == [*FEATURES, *NEURAL_COLLAPSE]
    for name in FEATURES:
        assert (before[name] == "", after[name] == "") == (True, False)
    for name in NEURAL_COLLAPSE:
        assert (before[name] == "", after[name] == "") == (False, True)


def test_evaluate_reports_them(runs):
    folder, _ = runs
    results = evaluate_run(config(), folder / "looked_at", options("nc"))
    row = read(folder / "looked_at")[-1]
    assert set(results["diagnostics"]) == {name for name in row if name.startswith("diag_nc")}
    assert results["diagnostics"]["diag_nc1"] == pytest.approx(float(row["diag_nc1"]))


@pytest.mark.integration
def test_methods_name_their_classifiers(tmp_path):
    """The frame of FedGELA never moves; FedLoGe has two classifiers."""
    run = Run(config("fedgela"), tmp_path, options("angles,norms"))
    run.simulation.next_round()
    numbers = run.diagnose()
    angle = geometry.simplex_angle(10)
    for name in ("angle_classifier", "angle_classifier_min", "local_angle_classifier_missing"):
        assert numbers[f"diag_{name}"] == pytest.approx(angle, abs=1e-3), name
    assert numbers["diag_norm_classifier"] == pytest.approx(1, abs=1e-5)
    assert math.isnan(numbers["diag_norm_classifier_count_correlation"])
    spec = training_spec(config("fedloge"), run.simulation.federation)
    names = ["angles", "nc", "norms"]
    columns = diagnostics.Diagnostics(spec, run.simulation.federation, names).columns()
    for name in ("angle_classifier", "angle_classifier_ssec", "nc3_ssec", "norm_classifier_ssec"):
        assert f"diag_{name}" in columns


@pytest.mark.integration
@pytest.mark.parametrize("name", support.rare_but(["ccvr"], ["ccvr", "creff"]))
def test_local_models_are_those_that_clients_train(name, tmp_path):
    """Clients train FedAvg's model, which the global model with its re-trained head is not."""
    found = []
    # The head that is trained again is not looked at.
    little = {f"{name}_epochs": 1}
    for each, settings in ((name, little), ("fedavg", {})):
        run = Run(config(each, **settings), tmp_path / each, options("angles"))
        run.simulation.next_round()
        found.append({key: value for key, value in run.diagnose().items() if "_local_" in key})
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.integration
def test_without_a_global_model_only_local_ones_are_looked_at(tmp_path):
    run = Run(config("fedper"), tmp_path, options("angles,features,nc,norms"))
    run.simulation.next_round()
    numbers = run.diagnose()
    assert list(numbers) == run.diagnostics.columns()
    assert numbers and all(name.startswith("diag_local_angle_") for name in numbers)
    assert all(0 < value < 180 for value in numbers.values())


def test_model_that_diverged_ends_no_run(runs):
    _, run = runs
    state = run.simulation.state
    weights = dict(state.weights)
    weights["trainable"] = [np.full_like(w, np.nan) for w in weights["trainable"]]
    state = state._replace(weights=weights)
    numbers = run.diagnostics.measure(
        state,
        [
            (run.simulation.store.get(client), run.simulation.client_data(client))
            for client in run.diagnostics.clients
        ],
    )
    assert list(numbers) == run.diagnostics.columns()
    for name in ("nc1", "eigen_variance", "tsne_silhouette"):
        assert math.isnan(numbers[f"diag_{name}"]), name


@pytest.mark.integration
@pytest.mark.parametrize("model", ["mlp", "simple_cnn"])
def test_without_test_samples_nothing_is_measured_of_features(model, runs, tmp_path):
    """Only the classifier is there: the norms of its rows do not depend on samples."""
    _, run = runs
    federation = run.simulation.federation
    none = np.zeros(0, int)
    clients = [dataclasses.replace(each, test=none) for each in federation.clients]
    empty = dataclasses.replace(federation, test=federation.test.take(none), clients=clients)
    run = Run(config(model=model, rounds=1), tmp_path, options(ALL), federation=empty)
    run.train()
    row = run.history[-1]
    kernel = np.asarray(run.simulation.state.weights["trainable"][-2])
    norms = np.linalg.norm(kernel, axis=0)
    assert row["diag_norm_classifier"] == pytest.approx(norms.mean(), rel=1e-6)
    for name in ("feature_norm", "nc1", "eigen_variance", "tsne_silhouette", "angle_features"):
        assert row.get(f"diag_{name}") is None, name


def test_map_takes_its_share_of_every_class(monkeypatch):
    monkeypatch.setattr(views, "MAX_MAPPED", 8)
    labels = np.repeat([0, 1], [30, 10])
    view = diagnostics.View(
        np.arange(80.0).reshape(40, 2), labels, labels, {}, np.array([30, 10])
    ).mapped()
    assert np.bincount(view.labels).tolist() == [6, 2]
    np.testing.assert_array_equal(view.labels, (view.features[:, 0] >= 60).astype(int))


def test_table_7_is_measured_on_a_mini_batch_and_ignores_lengths():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [300, 100])
    features = generator.normal(size=(400, 5)) @ generator.normal(size=(5, 5))
    view = diagnostics.View(features, labels, labels, {}, np.array([300, 100]))
    batch = view.mini_batch()
    assert np.bincount(batch.labels).tolist() == [96, 32]
    total = np.zeros((5, 5))
    for x in (batch.features[batch.labels == label] for label in (0, 1)):
        z = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
        total += z.T @ z
    eigenvalues = np.linalg.eigvalsh(total / 126)
    expected = np.sum((eigenvalues - eigenvalues.mean()) ** 2) / 128
    for scaled in (view, view._replace(features=100 * features)):
        numbers = views.GROUPS["eigen"](scaled)
        assert numbers["eigen_variance"] == pytest.approx(expected)


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


@pytest.mark.parametrize("value", ["angels", "angles,nd", "angles;nc"])
def test_unknown_name_is_refused_in_one_line(value):
    with refuses("diagnostics", "is not one of") as caught:
        RunOptions(diagnostics=value)
    assert caught.value.value == value
    assert all(name in caught.value.reason for name in NAMES)


def test_names_are_read_in_any_order():
    assert RunOptions(diagnostics="nc, angles,").diagnostic_names() == ["nc", "angles"]
    assert RunOptions().diagnostic_names() == []
