"""`tasks.export` as a user calls it."""

import csv
import functools
import json
import re

import pytest

from tests.cli.stages import without_stages

pytestmark = pytest.mark.integration

SMALL = (
    "--model=mlp",
    "--num_clients=5",
    "--max_train_samples=100",
    "--max_test_samples=60",
    "--rounds=1",
)


@pytest.fixture(scope="module")
def run_dir(succeed, tmp_path_factory):
    directory = tmp_path_factory.mktemp("train") / "run"
    # States on disk, to which the command line has to find the way by itself.
    flags = ("--algorithm=fedloge", "--client_store=disk", "--local_epochs=1", "--notensorboard")
    succeed("train", *SMALL, *flags, f"--output_dir={directory}")
    return directory


@pytest.fixture(scope="module")
def export(call):
    return functools.partial(call, "export")


def test_export(run_dir, export, call_here, tmp_path):
    out_dir = tmp_path / "out"
    flags = (f"--run_dir={run_dir}", f"--export_dir={out_dir}")
    status, out, err = export(*flags, "--clients=1,3")
    assert status == 0, err
    assert without_stages(err) == ""
    lines = out.splitlines()
    ga = json.loads((run_dir / "summary.json").read_text())["ga_final"]
    assert lines[0] == f"global/1: accuracy {ga:.2f} %"
    assert [line.split(":")[0] for line in lines[1:3]] == ["personal/1/1", "personal/3/1"]
    for line, client in zip(lines[1:3], ("1", "3"), strict=True):
        measured = (run_dir / "clients.csv").read_text().splitlines()
        row = next(row for row in csv.DictReader(measured) if row["client"] == client)
        label, own = (f"{float(row[name]):.2f} %" for name in ("pa", "pa_masked"))
        assert line == f"personal/{client}/1: accuracy {label}, own_label {own}"
    assert lines[3:] == [f"models in {out_dir}"]
    for folder in ("global", "personal/1", "personal/3"):
        version = out_dir / folder / "1"
        assert {p.name for p in version.iterdir()} >= {"saved_model.pb", "model_card.md"}
    assert sorted(p.name for p in out_dir.iterdir()) == ["global", "models.config", "personal"]

    check(call_here("export", *flags), f"--export_dir={out_dir}: already contains global/1; ")


def check(result, message):
    status, out, err = result
    assert status == 2, err
    assert out == ""
    err = without_stages(err)
    assert err.startswith("export: error: ")
    assert message in err
    assert err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nosuch=1"], "nosuch"),
        (["--format=onnx"], "--format=onnx: choose one of saved_model, tflite, keras"),
        (["--model_version=0"], "--model_version=0: must be at least 1"),
        (["--personal_model=best"], "--personal_model=best"),
        (["--run_dir="], "--run_dir: is required"),
        (["--export_dir="], "--export_dir: is required"),
        (["--run_dir=/no/such/run"], "--run_dir=/no/such/run: holds no run"),
        (["--clients=7"], "--clients=7: there is no client '7'; the 5 clients are 0, 1, 2, 3, 4"),
        (
            ["--temperature=fitted"],
            "--temperature=fitted: the run held no samples out; train with --validation_fraction "
            "of tasks.train, such as 0.2\n",
        ),
        (["--checkpoint_round=9"], "no checkpoint of round 9"),
        (["--checkpoint_round=1.5"], "--checkpoint_round=1.5: must be a whole number, or best"),
        (
            ["--checkpoint_round=best"],
            "--checkpoint_round=best: no round was measured on held-out samples; name a round, or "
            "train with --validation_fraction of tasks.train, such as 0.2\n",
        ),
    ],
)
def test_refusals(flags, message, run_dir, call_here, tmp_path):
    given = (f"--run_dir={run_dir}", f"--export_dir={tmp_path / 'out'}")
    check(call_here("export", *given, *flags), message)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_take_an_export(run_dir, call_here, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    check(
        call_here("export", f"--run_dir={run_dir}", f"--export_dir={tmp_path}"),
        f"--export_dir={tmp_path}: is not empty and holds no export",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_help_answers_without_tensorflow(call):
    status, out, err = call("export", "--help", python=("-X", "importtime"))
    assert status == 0
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert not {m for m in imported if m.split(".")[0] in ("tensorflow", "tensorflow_federated")}
    for flag in ("--run_dir", "--export_dir", "--clients", "--model_version", "--overwrite"):
        assert re.search(rf"^  {flag}\b", out, re.MULTILINE), flag
