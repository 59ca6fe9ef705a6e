"""Exported models have the accuracies that the run reports, also without this project."""

import csv
import dataclasses
import json
import pathlib
import subprocess
import sys
import sysconfig

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.export.conftest import EXPORTED
from tests.markdown_tables import table_rows
from tff_pcdd import data, export
from tff_pcdd.errors import SettingError
from tff_pcdd.export import exporter, lite
from tff_pcdd.export.checks import check_export
from tff_pcdd.training import ExperimentConfig, Simulation
from tff_pcdd.training.run_directory import read_config

_FRESH = pathlib.Path(__file__).with_name("fresh_process.py")


def summary(run):
    return json.loads((run / "summary.json").read_text())


def federation_of(run):
    return read_config(run).data.build()


def accuracy(predictions, labels):
    return 100 * np.mean(predictions == labels)


@pytest.fixture(scope="module")
def answers(runs, exported, tmp_path_factory):
    """Outputs of all models for their test samples, computed in a process without this project.

    By method: {"global" or "personal/<id>": ({output: values}, labels)}.
    """
    inputs, labels = {}, {}
    for method in exported:
        federation = federation_of(runs[method])
        parts = {"global": federation.test}
        for k, client_id in enumerate(federation.client_ids):
            parts[f"personal/{client_id}"] = federation.client_examples(k)[1]
        for folder, examples in parts.items():
            directory = str(exported[method] / folder / "1")
            inputs[directory] = examples.x
            labels[method, folder] = directory, examples.y
    folder = tmp_path_factory.mktemp("fresh")
    np.savez(folder / "inputs.npz", **inputs)
    site_packages = sysconfig.get_paths()["purelib"]
    command = [sys.executable, "-I", "-S", _FRESH, site_packages]
    subprocess.run(
        [*command, folder / "inputs.npz", folder / "outputs.npz"], cwd=folder, check=True
    )
    outputs = dict(np.load(folder / "outputs.npz"))
    result = {method: {} for method in exported}
    for (method, name), (directory, y) in labels.items():
        mine = {
            key.rpartition(":")[2]: value
            for key, value in outputs.items()
            if key.rpartition(":")[0] == directory
        }
        result[method][name] = mine, y
    return result


@pytest.mark.parametrize("method", EXPORTED)
def test_accuracies_equal_those_of_the_run(method, runs, answers):
    by_model, final = answers[method], summary(runs[method])
    outputs, labels = by_model.pop("global")
    assert accuracy(outputs["class_id"], labels) == pytest.approx(final["ga_final"], rel=1e-7)
    after = [accuracy(o["class_id"], y) for o, y in by_model.values()]
    masked = [accuracy(o["own_class_id"], y) for o, y in by_model.values()]
    assert len(after) == 3
    assert np.mean(after) == pytest.approx(final["pa_final"], rel=1e-7)
    assert np.mean(masked) == pytest.approx(final["pa_masked_final"], rel=1e-7)
    # The local epochs change the accuracy, so the test would detect models before them.
    if method != "fedloge":
        assert abs(final["pa_final"] - final["pa_before_final"]) > 1
    by_model["global"] = outputs, labels


def test_outputs(runs, answers):
    """Labels match ids, probabilities sum to 1, and own predictions cover own classes only."""
    federation = federation_of(runs["fedgela"])
    for folder, (outputs, _) in answers["fedgela"].items():
        ids = outputs["class_id"]
        assert outputs["label"].tolist() == [str(i).encode() for i in ids]
        np.testing.assert_allclose(outputs["probabilities"].sum(axis=1), 1, rtol=1e-5)
        if folder == "global":
            assert set(outputs) == {"probabilities", "class_id", "label"}
            continue
        client = federation.client_ids.index(folder.removeprefix("personal/"))
        own = federation.class_counts()[client] > 0
        assert own.sum() == 4
        assert (outputs["own_probabilities"][:, ~own] == 0).all()
        # Excluding classes from the softmax is the same as renormalizing.
        kept = outputs["probabilities"] * own
        np.testing.assert_allclose(
            outputs["own_probabilities"], kept / kept.sum(axis=1, keepdims=True), rtol=1e-4
        )
        assert outputs["own_label"].tolist() == [str(i).encode() for i in outputs["own_class_id"]]


def test_personal_models_before_the_local_epochs(runs, options, tmp_path):
    run = runs["fedloge"]
    models = export.iter_export(
        run,
        tmp_path / "out",
        export.ExportOptions(personal_model="before"),
        options,
    )
    shared, *personal = models
    accuracies = [m.accuracy for m in personal]
    assert np.mean(accuracies) == pytest.approx(summary(run)["pa_before_final"], rel=1e-7)
    # Own answers, by client as the run has measured them.
    assert np.isnan(shared.own_accuracy)
    with open(run / "clients.csv", newline="") as file:
        measured = {row["client"]: row for row in csv.DictReader(file)}
    for one in personal:
        row = measured[one.folder.removeprefix("personal/")]
        assert one.accuracy == pytest.approx(float(row["pa_before"]), rel=1e-7)
        assert one.own_accuracy == pytest.approx(float(row["pa_before_masked"]), rel=1e-7)
        assert one.own_accuracy > one.accuracy
        card = (tmp_path / "out" / one.folder / "1" / "model_card.md").read_text()
        rows = table_rows(card.split("## Calibration")[0])
        shown = {name.split(":")[0]: value for name, value in rows}
        assert shown["this model, `label`"] == f"{float(row['pa_before']):.2f}"
        assert shown["this model, `own_label`"] == f"{float(row['pa_before_masked']):.2f}"
        assert "of a class that the client lacks it is always wrong" in card.replace("\n", " ")
    card = (tmp_path / "out" / "personal" / "0" / "1" / "model_card.md").read_text()
    assert "before any local epoch" in card
    # FedLoGe's clients have a head of their own.
    assert "All clients have the global model" not in card
    final, cells = summary(run), table_rows(card)
    for name, measured in (
        ("PA before, own classes", "pa_before_masked_final"),
        ("PA after, own classes", "pa_masked_final"),
    ):
        (accuracy,) = (row[1] for row in cells if f"whole run, {name}:" in row[0])
        assert accuracy == f"{final[measured]:.2f}"


def test_cards_say_that_models_before_local_epochs_are_the_global_one(runs, options, tmp_path):
    """FedMR's clients keep no weights."""
    run = runs["fedmr"]
    for stage in ("before", "after"):
        chosen = export.ExportOptions(clients="1", personal_model=stage)
        export.export_run(run, tmp_path / stage, chosen, options)
    cards = [
        (tmp_path / stage / "personal" / "1" / "1" / "model_card.md").read_text().replace("\n", " ")
        for stage in ("before", "after")
    ]
    said = "All clients have the global model here: `label` is its answer, and `own_label` its"
    assert [said in card for card in cards] == [True, False]
    with open(run / "clients.csv", newline="") as file:
        assert all(row["ga"] == row["pa_before"] for row in csv.DictReader(file))


def test_chosen_clients_a_new_version_and_an_earlier_round(runs, options, tmp_path):
    """A second export adds to the first; an earlier round has the accuracy of that round."""
    run, out = runs["fedmr"], tmp_path / "out"
    config = read_config(run)
    first = export.export_run(run, out, export.ExportOptions(clients="1"), options, round_number=1)
    assert [model.folder for model in first] == ["global", "personal/1"]
    rows = (run / "metrics.csv").read_text().splitlines()
    ga = float(rows[1].split(",")[rows[0].split(",").index("ga")])
    assert first[0].accuracy == pytest.approx(ga, rel=1e-7)
    card = (out / "global" / "1" / "model_card.md").read_text()
    assert "1 of 2 rounds" in card
    assert "whole run" not in card

    newer = export.ExportOptions(clients="2, 0", model_version=2)
    second = export.export_run(run, out, newer, options, config=config)
    assert [model.folder for model in second] == ["global", "personal/0", "personal/2"]
    assert sorted(p.relative_to(out).as_posix() for p in out.glob("**/saved_model.pb")) == [
        "global/1/saved_model.pb",
        "global/2/saved_model.pb",
        "personal/0/2/saved_model.pb",
        "personal/1/1/saved_model.pb",
        "personal/2/2/saved_model.pb",
    ]
    listed = (out / "models.config").read_text()
    assert [n for n in ("global", *"012") if f'personal-{n}"' in listed or n in listed] == [
        "global", "0", "1", "2"
    ]  # fmt: skip


def test_model_card(runs, exported):
    run = runs["fedgela"]
    final, config, federation = summary(run), read_config(run), federation_of(run)
    card = (exported["fedgela"] / "personal" / "2" / "1" / "model_card.md").read_text()
    assert card.startswith("# fedgela on digits: personal model of client 2\n")
    for name in ("ga_final", "pa_final", "pa_before_final"):
        assert f"{final[name]:.2f}" in card
    assert f"`{config.digest()}`" in card
    cells = table_rows(card)
    for row in (
        ["fedgela_adaptation", "linear"],
        ["classes_per_client", "4"],
        ["tensorflow", tf.__version__],
    ):
        assert row in cells
    train_counts, test_counts = federation.class_counts(), federation.test_class_counts()
    for c in range(10):
        counts = train_counts[2, c], test_counts[2, c], train_counts[:, c].sum()
        assert [str(c), *map(str, counts)] in cells
    assert "own_probabilities" in card
    assert (
        "own_probabilities"
        not in (exported["fedgela"] / "global" / "1" / "model_card.md").read_text()
    )


def test_cards_name_the_data_of_a_given_federation(runs, options, tmp_path):
    run = runs["fedmr"]
    given = dataclasses.replace(federation_of(run), name="stripes")
    choice = export.ExportOptions(clients="none")
    (model,) = export.export_run(run, tmp_path / "out", choice, options, federation=given)
    card = (tmp_path / "out" / "global" / "1" / "model_card.md").read_text()
    assert card.startswith("# fedmr on stripes: global model\n")
    assert ["federation", "stripes, given in Python"] in table_rows(card)
    assert "digits" not in card
    assert model.folder == "global"


def test_image_files_are_rescaled(runs, exported):
    """Files with pixels from 0 to 255, also of another size, match stored pixels from 0 to 16."""
    model = tf.saved_model.load(str(exported["fedgela"] / "global" / "1"))
    images = federation_of(runs["fedgela"]).test.x[:40]
    raw = model.signatures["serving_default"](images=tf.constant(images))
    pictures = np.round(images * (255 / 16)).astype(np.uint8)
    png = tf.map_fn(tf.io.encode_png, pictures, fn_output_signature=tf.string)
    decoded = model.signatures["serving_bytes"](image_bytes=png)
    np.testing.assert_allclose(decoded["probabilities"], raw["probabilities"], atol=0.02)
    larger = np.repeat(np.repeat(pictures, 4, axis=1), 4, axis=2)
    jpeg = [tf.io.encode_jpeg(image, quality=100).numpy() for image in larger]
    decoded = model.signatures["serving_bytes"](image_bytes=tf.constant(jpeg))
    np.testing.assert_allclose(decoded["probabilities"], raw["probabilities"], atol=0.1)


def test_training_images_are_not_copied(runs, options, tmp_path, monkeypatch):
    """Only the numbers of tables have ranges."""
    monkeypatch.setattr(data.Federation, "training_examples", lambda self: pytest.fail("copied"))
    choice = export.ExportOptions(clients="none", format="saved_model")
    assert export.export_run(runs["fedmr"], tmp_path / "out", choice, options)


@pytest.mark.parametrize(
    ("kind", "scales"), [("image", ""), ("vector", ", or train with inputs of similar scales")]
)
def test_a_loss_by_rounding_names_the_other_file(
    kind, scales, runs, options, tmp_path, monkeypatch, caplog
):
    """The inputs of images and texts have one scale, which nobody can change."""
    monkeypatch.setattr(lite, "write", lambda model, path, x: [lite.FLOAT, lite.INT8])
    monkeypatch.setattr(lite, "accuracy", lambda path, *_: 30.0 if "int8" in path.name else 81.5)
    monkeypatch.setattr(exporter, "VECTOR", "image" if kind == "vector" else "vector")
    choice = export.ExportOptions(clients="none", format="tflite")
    export.export_run(runs["fedmr"], tmp_path / "out", choice, options)
    (warning,) = [r.getMessage() for r in caplog.records if "accurate" in r.getMessage()]
    assert warning == (
        "global: model_int8.tflite is 51.5 points less accurate than model.tflite; use that file"
        + scales
    )


def test_a_method_without_global_model(runs, tmp_path, monkeypatch):
    """Only personal models are exported; without any clients, an error is raised."""
    run = runs["fedmr"]
    config = read_config(run)
    monkeypatch.setattr(type(config.method), "has_global_model", False)
    models = export.export_run(run, tmp_path / "out", export.ExportOptions(clients="1"))
    assert [model.folder for model in models] == ["personal/1"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["models.config", "personal"]
    with refuses("clients", "nothing to export: fedmr has no global model", "none"):
        export.export_run(run, tmp_path / "none", export.ExportOptions(clients="none"))
    assert not (tmp_path / "none").exists()


def test_a_refused_export_releases_the_runtime(runs, tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(Simulation, "close", lambda simulation: closed.append(simulation))
    run = runs["fedmr"]
    with pytest.raises(SettingError) as caught:
        export.export_run(run, tmp_path / "out", export.ExportOptions(clients="7"))
    assert caught.value.setting == "clients"
    assert len(closed) == 1


def test_ids_that_cannot_be_shown_are_not_looked_up_in_the_table(tmp_path):
    """Which escapes them; `export_run` has the ids themselves."""
    config = ExperimentConfig.from_settings(algorithm="fedavg")
    table = "client,train_samples,test_samples,warning\n7,1,1,\nMary{}Smith,1,1,\n"
    (tmp_path / "clients.csv").write_text(table.format("\\xa0"))
    options = export.ExportOptions(clients="Mary\u00a0Smith")
    check_export(config, tmp_path, tmp_path / "out", options)
    (tmp_path / "clients.csv").write_text(table.format(" "))
    with refuses("clients", "there is no client 'Mary"):
        check_export(config, tmp_path, tmp_path / "out", options)
