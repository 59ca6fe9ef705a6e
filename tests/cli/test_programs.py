"""The programs from end to end, on a hundred digits."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import waiting
from tff_pcdd.experiment import planning
from tff_pcdd.training import ExperimentConfig

pytestmark = pytest.mark.integration

SMALL = (
    "--model=mlp",
    "--num_clients=5",
    "--max_train_samples=100",
    "--max_test_samples=60",
    "--local_epochs=1",
    "--rounds=2",
    "--keep_checkpoints=2",
)
TIMES = ("seconds", "seconds_per_round")


def summary(directory, leave_out=TIMES):
    values = json.loads((directory / "summary.json").read_text())
    return {name: value for name, value in values.items() if name not in leave_out}


def metrics(directory):
    with open(directory / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


def touched(directory):
    return {p: p.stat().st_mtime_ns for p in directory.rglob("*") if p.is_file()}


# Rounds take long enough to be stopped in the middle; few clients of many take part in each.
LONGER = (
    "--algorithm=fedgela",
    *SMALL,
    "--model=simple_cnn",
    "--rounds=8",
    "--local_epochs=30",
    "--batch_size=4",
    "--clients_per_round=3",
    "--client_store=disk",
    "--personal_eval_every=0",
)


@pytest.fixture(scope="module")
def trained(start, tmp_path_factory):
    """`train … | cat`, which ends only when no process keeps the pipe open."""
    directory = tmp_path_factory.mktemp("train") / "run"
    with start("train", f"--output_dir={directory}", *LONGER) as process:
        with subprocess.Popen(
            ["cat"], stdin=process.stdout, stdout=subprocess.PIPE, text=True
        ) as cat:
            process.stdout.close()
            printed, _ = cat.communicate(timeout=300)
        err = process.stderr.read()
    assert process.returncode == 0, err
    return directory, printed, err


def test_train(trained):
    directory, printed, err = trained
    final = summary(directory)
    assert final["rounds"] == 8
    assert final["algorithm"] == "fedgela"
    assert [int(row["round"]) for row in metrics(directory)] == list(range(1, 9))
    assert os.listdir(directory / "tensorboard")
    settings = json.loads((directory / "config.json").read_text())
    config = ExperimentConfig.from_settings(**settings)
    assert config.to_settings() == settings
    assert (config.algorithm, config.training.rounds) == ("fedgela", 8)
    assert config.data.partition.known_clients() == 5
    assert printed.startswith(f"fedgela: GA {final['ga_final']:.2f} (best {final['ga_best']:.2f})")
    # What was found, and the page.
    first, *found, last = printed.splitlines()
    assert first.endswith(f"results in {directory}")
    assert all(line.startswith(("- ", "  ", "More --rounds ")) for line in found)
    assert last == str(directory / "report.html")
    # The progress bar, and nothing that a reader would take for a problem.
    assert "8/8" in err
    others = [line for line in err.splitlines() if line.strip() and "fedgela" not in line]
    assert not [line for line in others if not line.startswith("train: ") or line[-1] != "…"], err
    # Of the bar and of the line that the program prints.
    shown = re.findall(r"8/8 \[[^\]]*?, (\S+) s/round, GA=", err)[-1]
    assert f" {shown} s a round" in printed


def test_a_finished_run_is_only_read(trained, call_here):
    directory, printed, _ = trained
    before = touched(directory)
    status, again, _ = call_here("train", f"--output_dir={directory}", *LONGER)
    assert (status, again) == (0, printed)
    assert touched(directory) == before


def test_evaluate(trained, succeed):
    directory, _, _ = trained
    printed = succeed("evaluate", f"--run_dir={directory}/")
    assert printed.endswith(f"after round 8; by client in {directory}/evaluation.json\n")
    results = json.loads((directory / "evaluation.json").read_text())
    assert results["round"] == 8
    final = summary(directory)
    for name, value in results["accuracies"].items():
        assert value == pytest.approx(final[f"{name}_final"], rel=1e-8), name
        assert f"{value:.2f} %" in printed
    assert len(results["clients"]) == 5
    (directory / "evaluation.json").unlink()


def test_a_run_survives_kill_and_interrupt(trained, start, succeed, tmp_path):
    """Stopped in two ways, each in the middle of a round; ends as the run left alone."""
    whole, broken = trained[0], tmp_path / "broken"
    rows = 0
    # SIGTERM is sent to a comparison in test_parallel.
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        rows += 2
        with start("train", f"--output_dir={broken}", *LONGER) as process:
            err = _kill_after(process, broken, rows, number)
        assert process.returncode == status, err
        assert "Traceback" not in err
        assert not (broken / "summary.json").exists()
        if number == signal.SIGINT:
            assert "train: interrupted; the same command resumes it" in err
    succeed("train", f"--output_dir={broken}", *LONGER)
    assert metrics(broken) == metrics(whole)
    assert summary(broken) == summary(whole)
    files = [
        sorted(str(p.relative_to(d)) for p in d.rglob("*") if "tfevents" not in p.name)
        for d in (broken, whole)
    ]
    assert files[0] == files[1]


def _kill_after(process, directory, rows, number):
    """Sends a signal in the middle of the round after those that have rows; gives the errors."""
    waiting.until(lambda: _has_rows(directory, rows), process)
    time.sleep(0.03)
    process.send_signal(number)
    return process.communicate(timeout=300)[1]


def _has_rows(directory, number):
    path = directory / "metrics.csv"
    return path.exists() and path.read_text().count("\n") > number


COMPARED = ("--algorithms=fedavg,fedgela", "--seeds=0,3", *SMALL)
RUNS = [(method, seed) for method in ("fedavg", "fedgela") for seed in (0, 3)]


@pytest.fixture(scope="module")
def compared(succeed, tmp_path_factory):
    """A comparison of two methods with two seeds, and what it printed."""
    directory = tmp_path_factory.mktemp("compare") / "whole"
    flags = (*COMPARED, "--nofedgela_masked", f"--output_dir={directory}")
    return directory, succeed("compare", *flags), flags


def test_compare(compared):
    directory, printed, _ = compared
    folders = {(method, seed): directory / method / f"seed_{seed}" for method, seed in RUNS}
    with open(directory / "comparison.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["algorithm"], int(row["seed"])) for row in table] == RUNS
    for row, folder in zip(table, folders.values(), strict=True):
        for name, value in summary(folder, leave_out=("findings",)).items():
            written = value if isinstance(value, (int, str)) else f"{value:.9g}"
            assert row[name] == str(written), name
        assert row["partition"] == "P5C2"
        assert row["personal_epochs"] == "1"
        assert row["clients_per_round"] == "5"
    text = (directory / "comparison.md").read_text()
    for method in ("fedavg", "fedgela"):
        finals = [summary(folders[method, seed])["ga_final"] for seed in (0, 3)]
        cell = f"{sum(finals) / 2:.1f} ± {np.std(finals, ddof=1):.1f}"
        for shown in (printed, text):
            line = next(line for line in shown.splitlines() if line.startswith(f"| {method} "))
            assert line.split("|")[2].strip(" *") == cell
    for name in ("comparison.png", "comparison_bars.png"):
        assert (directory / name).stat().st_size > 10_000
    assert not (directory / "failures.txt").exists()


def test_a_finished_comparison_computes_nothing(compared, call_here):
    directory, printed, flags = compared
    runs = [directory / method for method in ("fedavg", "fedgela")]
    before = [touched(folder) for folder in runs]
    assert call_here("compare", *flags)[:2] == (0, printed)
    assert [touched(folder) for folder in runs] == before


@pytest.mark.rare
def test_two_processes_share_a_comparison(compared, start, tmp_path):
    """Started at the same time, both end with all results, and no run is computed twice."""
    whole, printed, _ = compared
    shared = tmp_path / "shared"
    flags = (*COMPARED, "--nofedgela_masked", f"--output_dir={shared}")
    processes = [start("compare", *flags) for _ in range(2)]
    ended = [process.communicate(timeout=300) for process in processes]
    for process, (out, err) in zip(processes, ended, strict=True):
        assert process.returncode == 0, err
        assert out.replace(str(shared), str(whole)) == printed
    for method, seed in RUNS:
        folders = [directory / method / f"seed_{seed}" for directory in (shared, whole)]
        assert metrics(folders[0]) == metrics(folders[1])
        assert summary(folders[0]) == summary(folders[1])
    assert not list(shared.glob("**/.*.tmp"))


def test_compare_partitions_where_one_cannot_be(call, tmp_path):
    """The Dirichlet partition finds no draw with 90 samples for each of five clients."""
    status, out, err = call(
        "compare",
        "--algorithms=fedavg",
        "--partitions=class:2,dirichlet:0.5,iid@4",
        "--min_samples=90",
        *SMALL,
        "--rounds=1",
        f"--output_dir={tmp_path / 'out'}",
    )
    assert status == 1
    assert "compare: error: 1 of 3 runs failed" in err
    assert "fedavg seed 0 on Dirichlet(0.5), 5 clients: " in err
    assert "Traceback" not in err
    assert "P5C2" in out
    assert "IID, 4 clients" in out
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert folders == ["class_2", "iid_4_clients"]
    config = tmp_path / "out" / "iid_4_clients" / "fedavg" / "seed_0" / "config.json"
    assert json.loads(config.read_text())["num_clients"] == 4
    assert "Traceback" in (tmp_path / "out" / "failures.txt").read_text()


def test_sweep(succeed, call_here, tmp_path):
    """A flag of the method and one of the optimizer; a second call computes nothing."""
    directory = tmp_path / "sweep"
    flags = (
        "--algorithm=fedgela",
        "--grid=fedgela_scale=1,4",
        "--grid=client_learning_rate=0.05",
        "--validation_fraction=0.2",
        *SMALL,
        f"--output_dir={directory}",
    )
    printed = succeed("sweep", *flags)
    runs = [directory / f"fedgela_scale={s},client_learning_rate=0.05/seed_0" for s in (1, 4)]
    config = json.loads((runs[1] / "config.json").read_text())
    assert (config["fedgela_scale"], config["client_learning_rate"]) == (4.0, 0.05)
    values = [summary(run)["va_best"] for run in runs]
    chosen = (directory / "best.flags").read_text()
    wanted = 4 if values[1] > values[0] else 1
    assert chosen == f"--algorithm=fedgela\n--fedgela_scale={wanted}\n--client_learning_rate=0.05\n"
    assert f"--fedgela_scale={wanted} --client_learning_rate=0.05" in printed
    before = [touched(run) for run in runs]
    assert call_here("sweep", *flags)[:2] == (0, printed)
    assert [touched(run) for run in runs] == before


def test_partition(succeed, tmp_path):
    printed = succeed("partition", "--num_clients=7", "--seed=4", f"--output_dir={tmp_path / 'p'}")
    assert "7 clients, 10 classes, 1438 training and 359 test samples." in printed
    names = ["clients.png", "partition.csv", "partition.md"]
    assert sorted(os.listdir(tmp_path / "p")) == names


@pytest.mark.parametrize("name", ["train", "compare", "sweep", "evaluate", "partition"])
def test_help_answers_without_tensorflow(name, call):
    """The whole help names every flag of the program, and is there at once."""
    status, out, err = call(name, "--helpfull", python=("-X", "importtime"))
    assert status == 0
    assert f"python -m tasks.{name}" in out
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert "absl.flags" in imported
    # Packages that take seconds, or tenths of them.
    slow = {"tensorflow", "tensorflow_federated", "scipy", "matplotlib", "pandas"}
    assert not {m for m in imported if m.split(".")[0] in slow}
    wanted = {
        "train": ["--algorithm", "--fedgela_scale", "--concentration", "--runtime", "--overwrite"],
        "compare": ["--algorithms", "--seeds", "--partitions", "--rounds", "--runtime"],
        "sweep": ["--grid", "--criterion", "--seeds", "--algorithm", "--validation_fraction"],
        "evaluate": ["--run_dir", "--checkpoint_round", "--runtime"],
        "partition": ["--num_clients", "--data_seed"],
    }[name]
    lines = out.splitlines()
    for flag in (*wanted, "--output_dir" if name != "evaluate" else "--data_dir"):
        assert any(line.strip().split(" ")[0] == flag for line in lines), flag
    absent = {"compare": ["--algorithm", "--seed"], "partition": ["--rounds", "--model_seed"]}
    for flag in absent.get(name, []):
        assert not any(line.strip().split(" ")[0] == flag for line in lines), flag


def test_results_may_lie_in_the_home_directory(call_here, monkeypatch, tmp_path):
    """After an equals sign, shells leave the tilde as it is."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    status, _, err = call_here("partition", "--num_clients=5", "--output_dir=~/a/b")
    assert status == 0, err
    assert os.listdir(tmp_path) == ["home"]
    assert "partition.csv" in os.listdir(tmp_path / "home/a/b")
    (tmp_path / "home/c").mkdir()
    status, _, err = call_here("report", "--comparison_dirs=~/a,~/c", "--output_dir=~/d")
    assert (status, f"--comparison_dirs={tmp_path}/home/a: holds no comparison" in err) == (2, True)


def test_help_of_a_console_script():
    """Where __main__ is the script that pip wrote; its examples say so."""
    code = "import sys; sys.argv = ['/bin/tff-pcdd', 'train', '--help']; "
    code += "from tff_pcdd.cli.front_door import run; run()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "\n    tff-pcdd train --algorithm=" in out.stdout, shlex.join(out.args)
    assert "python -m" not in out.stdout


def test_flagfile(call_here, tmp_path):
    """Flags may come from a file, and later ones win."""
    flagfile = tmp_path / "small.flags"
    flagfile.write_text("# a comment\n--num_clients=5\n--seed=4\n")
    status, out, _ = call_here(
        "partition", f"--flagfile={flagfile}", "--num_clients=6", f"--output_dir={tmp_path / 'p'}"
    )
    assert status == 0
    assert "6 clients" in out


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("train", ("--algorithm=feddc",)),
        ("compare", ("--algorithms=fedavg,feddc", "--seeds=0,1")),
        (
            "sweep",
            (
                "--algorithm=feddc",
                "--grid=client_learning_rate=0.1,0.01",
                "--validation_fraction=0.2",
            ),
        ),
    ],
)
def test_advice_is_given_at_the_start(program, flags, call_here, tmp_path):
    """Also by dry runs, and not once for every run."""
    planning._warn.cache_clear()
    status, _, err = call_here(program, *flags, "--dry_run", f"--output_dir={tmp_path / 'out'}")
    assert status == 0, err
    assert err.count("feddc with --client_momentum=0.9 can stay at chance level") == 1
