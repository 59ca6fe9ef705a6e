"""The examples of CONTRIBUTING.md: one component of each kind, chosen by its name or from Python.

They run in other processes, so that what they register stays out of this one.
"""

import csv
import hashlib
import json
import re
import shlex

import numpy as np
import pytest

from tests import preloaded, support
from tests.cli.conftest import ROOT

pytestmark = pytest.mark.integration

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
IMPORT = "--import=my_module"
# Names on the command line, and the options that belong to them.
OWN = {
    "algorithm": ("fedsmooth", "fedsmooth_smoothing"),
    "dataset": ("stripes", "samples"),
    "partition": ("blocks", "num_clients"),
    "model": ("tiny", "width"),
    "aggregator": ("clipped", "clipped_norm"),
    "client_optimizer": ("signsgd", None),
    "head_calibration": ("damped", "damped_factor"),
    "server_optimizer": ("signs", "server_step_size"),
    "schedule": ("inverse", "schedule_slowdown"),
    "metrics": ("half", None),
    "callbacks": ("norm", None),
    "runtime": ("serial", None),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the page's Python code as my_module.py."""
    directory = tmp_path_factory.mktemp("own")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert len(blocks) == 14
    (directory / "my_module.py").write_text("\n\n".join(blocks))
    return directory


@pytest.fixture(scope="module")
def trained(folder, succeed):
    """The directory of the run that the page's command makes, and what it printed."""
    (command,) = re.findall(r"^python -m tasks\.train (.*?)\n```$", PAGE, re.M | re.S)
    flags = shlex.split(command.replace("\\\n", " "))
    assert {f"--{name}={value}" for name, (value, _) in OWN.items()} < set(flags)
    assert "--output_dir=runs/own" in flags
    return folder / "runs" / "own", succeed("train", *flags, cwd=folder)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_train(trained):
    directory, printed = trained
    config = json.loads((directory / "config.json").read_text())
    for name, (value, option) in OWN.items():
        # How a run was computed and watched does not belong to its settings.
        assert config.get(name) == (None if name in ("runtime", "callbacks") else value)
        assert option is None or option in config
    assert (config["fedsmooth_smoothing"], config["samples"], config["width"]) == (0.1, 200, 32)
    # Not of what it imports itself.
    digest = hashlib.sha256((directory.parents[1] / "my_module.py").read_bytes()).hexdigest()
    assert config["import"] == {"my_module": digest}
    rows = read(directory / "metrics.csv")
    assert [row["round"] for row in rows] == ["1", "2"]
    for row in rows:
        assert np.isfinite(float(row["train_loss"]))
        # Of four classes; each has as many samples as the others.
        assert float(row["half_ga"]) in (0, 25, 50, 75, 100)
        assert float(row["half_ga"]) <= 2 * float(row["ga"])
        assert float(row["norm"]) > 0
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["rounds"] == 2
    assert printed.startswith(f"fedsmooth with damped: GA {summary['ga_final']:.2f} ")
    last = rows[-1]
    assert (summary["half_ga_final"], summary["norm_final"]) == (
        float(last["half_ga"]),
        float(last["norm"]),
    )
    # Neither a higher nor a lower norm is better.
    assert "half_ga_best" in summary and "norm_best" not in summary
    page = (directory / "report.html").read_text()
    assert "fedsmooth with damped on stripes" in page
    for heading, value in (
        ("half, GA", f"{summary['half_ga_final']:.1f} %"),
        ("weight norm", f"{summary['norm_final']:.4g}"),
    ):
        assert heading in page and value in page


def test_export(trained, folder, succeed):
    """The model card names own metrics and columns, under the names of the method and the data."""
    directory, _ = trained
    flags = (f"--run_dir={directory}", "--clients=none", "--export_dir=exported")
    succeed("export", IMPORT, *flags, cwd=folder)
    card = next((folder / "exported" / "global").rglob("model_card.md")).read_text()
    summary = json.loads((directory / "summary.json").read_text())
    assert card.startswith("# fedsmooth with damped on stripes: global model")
    cells = {
        name.strip(): value.strip()
        for name, value in re.findall(r"^\| whole run, (.*?) \| (.*?)\|$", card, re.M)
    }
    assert cells["half, GA: half of global model, whole test set"] == (
        f"{summary['half_ga_final']:.2f}"
    )
    assert cells["weight norm: L2 norm of the global weights"] == f"{summary['norm_final']:.4g}"


@pytest.mark.rare
def test_evaluate(trained, folder, succeed):
    directory, _ = trained
    printed = succeed("evaluate", IMPORT, f"--run_dir={directory}", cwd=folder)
    final = json.loads((directory / "summary.json").read_text())["ga_final"]
    assert re.search(rf"^ga +{final:.2f} %$", printed, re.M)


def test_evaluation_without_the_module_is_refused(trained, call_here):
    directory, _ = trained
    status, out, err = call_here("evaluate", f"--run_dir={directory}")
    assert (status, out) == (2, "")
    assert err.startswith(f"evaluate: error: --import=my_module: is needed for {directory}, which")
    assert "algorithm=fedsmooth: nothing of that name is registered; import my_module or, " in err
    assert err.count("\n") == 1


def test_compare(folder, succeed):
    """An own partition beside a built-in one."""
    succeed(
        "compare",
        IMPORT,
        "--algorithms=fedsmooth",
        "--partitions=blocks@3,class:2",
        "--dataset=stripes",
        "--model=tiny",
        "--aggregator=clipped",
        "--metrics=half",
        "--callbacks=norm",
        "--fedsmooth_smoothing=0.2",
        "--samples=120",
        "--width=16",
        "--rounds=1",
        "--local_epochs=1",
        "--output_dir=compared",
        cwd=folder,
    )
    runs = read(folder / "compared" / "comparison.csv")
    expected = [("fedsmooth", partition) for partition in ("blocks, 3 clients", "P10C2")]
    assert [(run["algorithm"], run["partition"]) for run in runs] == expected
    assert all(run["half_ga_final"] for run in runs)
    report = (folder / "compared" / "comparison.md").read_text()
    assert "| fedsmooth " in report
    assert "half, GA" in report
    assert "weight norm: L2 norm of the global weights." in report
    assert all(run["norm_final"] for run in runs)
    page = (folder / "compared" / "report.html").read_text()
    for text in ("fedsmooth", "stripes", "half, GA", "weight norm"):
        assert text in page
    for place, clients in (("blocks_3_clients", 3), ("class_2", 10)):
        run = folder / "compared" / place / "fedsmooth" / "seed_0"
        config = json.loads((run / "config.json").read_text())
        assert (config["dataset"], config["partition"]) == ("stripes", place.split("_")[0])
        assert config["num_clients"] == clients
        assert (config["fedsmooth_smoothing"], config["samples"], config["width"]) == (0.2, 120, 16)


@pytest.mark.parametrize("program", support.rare_but(["compare"], ["train", "compare"]))
def test_help_lists_names_and_options(program, folder, succeed):
    text = succeed(program, IMPORT, "--helpfull", cwd=folder)
    flags = {
        match[1]: " ".join(match[2].split())
        for match in re.finditer(r"^  --(\w+)[^\n]*\n((?:      .*(?:\n|$))+)", text, re.M)
    }
    for name, (value, option) in OWN.items():
        if name == "algorithm" and program == "compare":
            assert "Method fedsmooth:" in text
        else:
            assert re.search(rf"\b{value}\b", flags[name])
        assert option is None or option in flags
    assert flags["samples"] == "Number of training samples. Only with --dataset=stripes."
    assert "blocks" in flags["num_clients"].split("--partition=")[1]


def test_an_own_option_has_bounds_like_any_other(folder, call):
    flags = ("--model=tiny", "--width=0", "--output_dir=refused")
    status, out, err = call("train", IMPORT, *flags, cwd=folder)
    assert (status, out, err) == (2, "", "train: error: --width=0: must be at least 1\n")
    assert not (folder / "refused").exists()


def test_from_python(folder):
    """A federation, a network, an aggregator and a callback that nothing has registered."""
    code = """
import json, my_module
print(json.dumps([my_module.my_simulation(), my_module.my_run("mine")]))
"""
    (folder / "my_program.py").write_text(code)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    output = preloaded.run("my_program", cwd=folder, env=environment)
    measured, summary = json.loads(output.splitlines()[-1])
    assert 0 <= measured["ga"] <= 100
    assert 0 <= measured["half_ga"] <= 100
    assert summary["algorithm"] == "fedgela"
    rows = read(folder / "mine" / "metrics.csv")
    assert summary["rounds"] == len(rows)
    # The callback ends the run after the first round with such an accuracy.
    reached = [float(row["ga"]) >= 90 for row in rows]
    assert reached == [False] * (len(rows) - 1) + [reached[-1]]
    assert reached[-1] or len(rows) == 3
    config = json.loads((folder / "mine" / "config.json").read_text())
    assert (config["model"], config["aggregator"], config["metrics"]) == ("keras", "own", "half")
