"""Two processes in the directory of one study."""

import os
import subprocess
import sys
import time

import pytest

from tests.data.refusals import refuses
from tests.studies.made_runs import replace_training
from tff_pcdd import directories, files
from tff_pcdd.errors import LockedError, SettingError
from tff_pcdd.studies import Point, comparison, method_sweep, study
from tff_pcdd.training import ExperimentConfig

CONFIGS = [
    ExperimentConfig.from_settings(algorithm=name, seed=seed)
    for name in ("fedavg", "fedmr")
    for seed in (0, 1)
]


@pytest.fixture
def computed(monkeypatch):
    """Replaces training and pauses: the runs in the order in which they were tried."""
    tried, busy = [], {}

    def outcome(config):
        name = f"{config.algorithm} {config.seed}"
        tried.append(name)
        if tried.count(name) <= busy.get(name, 0):
            raise LockedError("output_dir", "its folder", "another process is writing")
        return {}

    replace_training(monkeypatch, outcome)
    monkeypatch.setattr(study.time, "sleep", lambda seconds: tried.append("pause"))
    return tried, busy


def test_runs_of_another_process_are_left_to_it_and_waited_for_at_the_end(computed, tmp_path):
    tried, busy = computed
    busy |= {"fedavg 0": 3, "fedmr 0": 2}
    result = comparison.compare(CONFIGS, tmp_path)
    free = ["fedavg 0", "fedavg 1", "fedmr 0", "fedmr 1"]
    assert tried == [*free, *["fedavg 0", "fedmr 0", "pause"], "fedavg 0", "fedmr 0", "fedavg 0"]
    assert not result.failures
    assert result.report.count("| 2 ") == 2
    rows = (tmp_path / "comparison.csv").read_text().splitlines()
    assert [" ".join(row.split(",")[1:3]) for row in rows[1:]] == free


def test_the_first_run_may_be_the_one_that_is_not_free(computed, tmp_path):
    tried, busy = computed
    busy["fedavg 0"] = 1
    comparison.compare(CONFIGS[:1], tmp_path)
    assert tried == ["fedavg 0", "pause", "fedavg 0"]


def test_a_run_that_another_process_computes_is_not_overwritten(computed, tmp_path):
    folder = tmp_path / "fedmr" / "seed_1"
    comparison.compare(CONFIGS, tmp_path)
    with directories.locked(folder):
        comparison.plan(CONFIGS, tmp_path)
        with refuses("output_dir", "another process is writing"):
            comparison.plan(CONFIGS, tmp_path, overwrite=True)
        # Its settings have to be the same all the same.
        other = [config.with_settings(rounds=3) for config in CONFIGS]
        with refuses("output_dir", "different settings"):
            comparison.plan(other, tmp_path)


def test_temporary_files_of_a_process_that_runs_are_kept(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    here = files.process_name().partition("-")[0]
    ended, day = done.stdout.strip(), 24 * 3600
    hours = {
        f".comparison.md.{here}-{os.getppid()}.tmp": 100,
        # Of other machines, and of earlier versions.
        f".a.md.{'0' * 8}-{ended}.tmp": 23,
        f".b.md.{ended}.tmp": 23,
        f".a.csv.{'0' * 8}-{os.getppid()}.tmp": 25,
        f".b.csv.{os.getppid()}.tmp": 25,
        f".c.csv.{here}-{ended}.tmp": 0,
        f".d.csv.{files.process_name()}.tmp": 0,
    }
    for name, age in hours.items():
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() - age * day / 24,) * 2)
    files.remove_leftovers(tmp_path)
    assert set(os.listdir(tmp_path)) == {*list(hours)[:3]}


def test_flagfiles_that_another_process_writes_are_kept(tmp_path):
    here = files.process_name().partition("-")[0]
    other = tmp_path / "best" / f".moon.flags.00.{here}-{os.getppid()}.tmp"
    other.parent.mkdir()
    other.touch()
    method_sweep._write_flags(tmp_path, {"fedavg": Point({"client_learning_rate": "0.1"}, [])})
    assert {path.name for path in other.parent.iterdir()} >= {other.name, "fedavg.flags"}


def test_a_locked_directory_is_an_error_of_its_own_kind(tmp_path):
    with directories.locked(tmp_path), pytest.raises(LockedError) as caught:
        directories.refuse_locked(tmp_path)
    assert isinstance(caught.value, SettingError)
