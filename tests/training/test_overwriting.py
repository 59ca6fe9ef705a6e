"""A run that is overwritten is the old one until it is gone; then it is the new one."""

import dataclasses
import os
import shutil

import pytest

from tests.training.runs import CONFIG, assert_same_run, summary
from tff_pcdd import files
from tff_pcdd.errors import SettingError, WriteError
from tff_pcdd.training import recovery, run_directory, run_experiment

pytestmark = pytest.mark.usefixtures("shared_computations")

OTHER = dataclasses.replace(CONFIG, training=dataclasses.replace(CONFIG.training, rounds=2))


def disk_that_fails(monkeypatch, name):
    """The operation of `files` fails; returns what repairs it."""

    def fail(path, *_):
        raise WriteError(5, "Input/output error", os.fspath(path))

    original = getattr(files, name)
    monkeypatch.setattr(files, name, fail)
    return lambda: monkeypatch.setattr(files, name, original)


def test_a_deletion_that_cannot_begin_leaves_the_old_run(unbroken, options, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    repair = disk_that_fails(monkeypatch, "rename")
    with pytest.raises(WriteError, match="Input/output error"):
        run_experiment(OTHER, directory, options, overwrite=True)
    repair()
    assert_same_run(directory, unbroken)
    assert run_experiment(CONFIG, directory, options)["rounds"] == 4


def test_a_half_deleted_run_is_gone(unbroken, options, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    repair = disk_that_fails(monkeypatch, "remove")
    with pytest.raises(WriteError):
        run_experiment(OTHER, directory, options, overwrite=True)
    repair()
    # Everything but its settings is still there, and is not taken for a run.
    assert (directory / "summary.json").exists()
    assert recovery.read_summary(directory) is None
    with pytest.raises(SettingError, match="holds no run"):
        run_directory.read_config(directory)
    run_experiment(OTHER, directory, options)
    run_experiment(OTHER, tmp_path / "new", options)
    assert_same_run(directory, tmp_path / "new")
    assert sorted(os.listdir(directory)) == sorted(os.listdir(tmp_path / "new"))


def test_a_run_in_a_directory_that_cannot_be_renamed(unbroken, options, tmp_path):
    """Such as a mount point: its parent is not needed, and the lock stays in force."""
    directory = tmp_path / "run"
    shutil.copytree(unbroken, directory)
    inode = (directory / ".lock").stat().st_ino
    run_experiment(CONFIG, directory, options, overwrite=True)
    assert summary(directory) == summary(unbroken)
    assert (directory / ".lock").stat().st_ino == inode
    assert os.listdir(tmp_path) == ["run"]
