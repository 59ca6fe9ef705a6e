"""The programs from end to end, on a hundred digits."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tff_pcdd.training import ExperimentConfig

SMALL = (
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
    config = ExperimentConfig.from_json(json.loads((directory / "config.json").read_text()))
    assert (config.algorithm, config.num_clients, config.rounds) == ("fedgela", 5, 8)
    assert printed.startswith(f"fedgela: GA {final['ga_final']:.2f} (best {final['ga_best']:.2f})")
    assert printed.count("\n") == 1
    assert str(directory) in printed
    # The progress bar, and nothing that a reader would take for a problem.
    assert "8/8" in err
    assert not [line for line in err.splitlines() if line.strip() and "fedgela" not in line], err


def test_a_finished_run_is_only_read(trained, succeed):
    directory, printed, _ = trained
    before = touched(directory)
    again = succeed("train", f"--output_dir={directory}", *LONGER)
    assert again == printed
    assert touched(directory) == before


def test_evaluate(trained, succeed):
    directory, _, _ = trained
    printed = succeed("evaluate", f"--run_dir={directory}")
    results = json.loads((directory / "evaluation.json").read_text())
    assert results["round"] == 8
    final = summary(directory)
    for name, value in results["accuracies"].items():
        assert value == pytest.approx(final[f"{name}_final"], rel=1e-8), name
        assert f"{value:.2f} %" in printed
    assert len(results["clients"]) == 5
    (directory / "evaluation.json").unlink()


def test_a_run_survives_kill_interrupt_and_termination(trained, start, succeed, tmp_path):
    """Stopped in three ways, each in the middle of a round; ends as the run left alone."""
    whole, broken = trained[0], tmp_path / "broken"
    rows = 0
    for number, status in (
        (signal.SIGKILL, -signal.SIGKILL),
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
    ):
        rows += 2
        with start("train", f"--output_dir={broken}", *LONGER) as process:
            deadline = time.monotonic() + 200
            while not _has_rows(broken, rows) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.03)
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        assert process.returncode == status, err
        assert "Traceback" not in err
        assert not (broken / "summary.json").exists()
        if number == signal.SIGINT:
            assert "train: interrupted; the same command goes on from here" in err
    succeed("train", f"--output_dir={broken}", *LONGER)
    assert metrics(broken) == metrics(whole)
    assert summary(broken) == summary(whole)
    files = [
        sorted(str(p.relative_to(d)) for p in d.rglob("*") if "tfevents" not in p.name)
        for d in (broken, whole)
    ]
    assert files[0] == files[1]


def _has_rows(directory, number):
    path = directory / "metrics.csv"
    return path.exists() and path.read_text().count("\n") > number


def test_compare(succeed, tmp_path):
    """Two methods with two seeds; a second call computes nothing."""
    directory = tmp_path / "compare"
    flags = ("--algorithms=fedavg,fedgela", "--seeds=0,3", *SMALL, "--nofedgela_masked")
    printed = succeed("compare", *flags, f"--output_dir={directory}")
    runs = {(m, s): directory / m / f"seed_{s}" for m in ("fedavg", "fedgela") for s in (0, 3)}
    with open(directory / "comparison.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["algorithm"], int(row["seed"])) for row in table] == list(runs)
    for row, folder in zip(table, runs.values(), strict=True):
        for name, value in summary(folder, leave_out=()).items():
            written = value if isinstance(value, (int, str)) else f"{value:.9g}"
            assert row[name] == str(written), name
    text = (directory / "comparison.md").read_text()
    for method in ("fedavg", "fedgela"):
        finals = [summary(runs[method, seed])["ga_final"] for seed in (0, 3)]
        cell = f"{sum(finals) / 2:.1f} ± {abs(finals[0] - finals[1]) / 2:.1f}"
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {method} ")]
        assert line.split("|")[2].strip() == cell
        assert line in printed
    assert (directory / "comparison.png").stat().st_size > 10_000

    before = {path: time_ for folder in runs.values() for path, time_ in touched(folder).items()}
    assert succeed("compare", *flags, f"--output_dir={directory}") == printed
    after = {path: time_ for folder in runs.values() for path, time_ in touched(folder).items()}
    assert after == before


def test_partition(succeed, tmp_path):
    printed = succeed("partition", "--num_clients=7", "--seed=4", f"--output_dir={tmp_path / 'p'}")
    assert "7 clients, 10 classes, 1438 training and 359 test samples." in printed
    names = ["clients.png", "partition.csv", "partition.md"]
    assert sorted(os.listdir(tmp_path / "p")) == names


@pytest.mark.parametrize("name", ["train", "compare", "evaluate", "partition"])
def test_help_answers_without_tensorflow(name, call):
    """It names every flag of the program, and is there at once."""
    start = time.monotonic()
    status, out, err = call(name, "--help", python=("-X", "importtime"))
    assert time.monotonic() - start < 10
    assert status == 0
    assert f"python -m tasks.{name}" in out
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert "absl.flags" in imported
    assert not {m for m in imported if m.split(".")[0] in ("tensorflow", "tensorflow_federated")}
    wanted = {
        "train": ["--algorithm", "--fedgela_scale", "--concentration", "--runtime", "--overwrite"],
        "compare": ["--algorithms", "--seeds", "--rounds", "--runtime"],
        "evaluate": ["--run_dir", "--checkpoint_round", "--runtime"],
        "partition": ["--num_clients", "--data_seed"],
    }[name]
    lines = out.splitlines()
    for flag in (*wanted, "--output_dir" if name != "evaluate" else "--data_dir"):
        assert any(line.strip().split(" ")[0] == flag for line in lines), flag
    absent = {"compare": ["--algorithm", "--seed"], "partition": ["--rounds", "--model_seed"]}
    for flag in absent.get(name, []):
        assert not any(line.strip().split(" ")[0] == flag for line in lines), flag


def test_help_of_a_console_script():
    """Where __main__ is the script that pip wrote, not the program's module."""
    code = "import sys; sys.argv = ['tff-pcdd-train', '--help']; from tasks.train import run; run()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "python -m tasks.train" in out.stdout, shlex.join(out.args)


def test_flagfile(call, tmp_path):
    """Flags may come from a file, and later ones win."""
    flagfile = tmp_path / "small.flags"
    flagfile.write_text("# a comment\n--num_clients=5\n--seed=4\n")
    status, out, _ = call(
        "partition", f"--flagfile={flagfile}", "--num_clients=6", f"--output_dir={tmp_path / 'p'}"
    )
    assert status == 0
    assert "6 clients" in out
