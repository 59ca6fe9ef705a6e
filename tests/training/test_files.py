"""Atomic writes, trees of arrays in files, locks, and checks of output directories."""

import os
import pathlib
import signal
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.experiment.client_store import to_numpy
from tff_pcdd.training import checkpoints

TREE = OrderedDict(
    weights=[np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(0.5)],
    round=np.int32(3),
    empty=[],
    own=OrderedDict(counts=np.zeros([0, 2], np.int64), on=np.array([True, False])),
)


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "file"
    files.write_text(path, "a long first text")
    files.write_text(path, "Φ")
    assert path.read_bytes() == "Φ".encode()
    assert os.listdir(tmp_path) == ["file"]


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    files.write_text(path, "old")

    def write(file):
        file.write(b"half of the n")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        files.write_atomically(path, write)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    (tmp_path / "below").mkdir()
    for name in (".a.npz.17.tmp", "below/.b.json.3.tmp", "below/b.json", "a.tmp", ".keep"):
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"below/b.json", "a.tmp", ".keep"}


def test_a_directory_has_one_writer(tmp_path):
    directory = tmp_path / "run"
    with files.locked(directory):
        for again in (
            files.locked(directory, "export_dir").__enter__,
            lambda: files.refuse_locked(directory, "export_dir"),
        ):
            with pytest.raises(SettingError) as caught:
                again()
            assert (caught.value.setting, caught.value.value) == ("export_dir", str(directory))
            assert "another process is writing" in caught.value.reason
    files.refuse_locked(directory)
    with files.locked(directory):
        pass
    # The remaining lock file does not count as foreign content.
    assert files.check_output(directory, "run", lambda path: False) is False


def test_a_lock_ends_when_its_process_is_killed(tmp_path):
    """The process cannot clean up, and its child process keeps running."""
    code = (
        "import pathlib, subprocess, sys\n"
        "from tff_pcdd import files\n"
        "with files.locked(pathlib.Path(sys.argv[1])):\n"
        "    child = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            with pytest.raises(SettingError) as caught:
                files.refuse_locked(tmp_path)
            assert (caught.value.setting, caught.value.value) == ("output_dir", str(tmp_path))
            assert "another process is writing" in caught.value.reason
            process.kill()
            process.wait()
            files.refuse_locked(tmp_path)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_checking_a_lock_creates_no_files(tmp_path):
    files.refuse_locked(tmp_path)
    files.refuse_locked(tmp_path / "none")
    assert not os.listdir(tmp_path)


def test_a_loaded_tree_equals_the_saved_one(tmp_path):
    path = tmp_path / "tree.npz"
    checkpoints.save_tree(path, TREE)
    template = tf.nest.map_structure(np.zeros_like, TREE)
    support.assert_trees_equal(checkpoints.load_tree(path, template), TREE)
    for loaded, saved in zip(
        tf.nest.flatten(checkpoints.load_tree(path, template)), tf.nest.flatten(TREE), strict=True
    ):
        assert loaded.dtype == saved.dtype
        assert loaded.shape == saved.shape


def test_tensors_are_saved_as_arrays(tmp_path):
    path = tmp_path / "tree.npz"
    checkpoints.save_tree(path, {"a": tf.constant([1.0, 2.0])})
    np.testing.assert_array_equal(
        checkpoints.load_tree(path, {"a": np.zeros(2, np.float32)})["a"], [1, 2]
    )
    converted = to_numpy({"a": tf.constant([1.0]), "b": [2]})
    assert isinstance(converted["a"], np.ndarray)
    assert isinstance(converted["b"][0], np.ndarray)


@pytest.mark.parametrize(
    "template",
    [
        {"a": np.zeros(2, np.float32)},
        {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32), "c": np.zeros(1)},
        {"a": np.zeros(3, np.float32), "b": np.zeros(2, np.float32)},
        {"a": np.zeros(2, np.float64), "b": np.zeros(2, np.float32)},
    ],
    ids=["fewer", "more", "shape", "dtype"],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "numbered"])
def test_loading_with_another_structure_raises(tmp_path, template, named):
    path, leaves = tmp_path / "tree.npz", [np.ones(2, np.float32)] * 2
    if named:
        checkpoints.save_tree(path, dict(zip("ab", leaves, strict=True)))
    else:
        np.savez(path, *leaves)
    with pytest.raises(ValueError, match=r"tree.npz was written for another model or method"):
        checkpoints.load_tree(path, template)


def test_the_names_of_arrays_tell_them_apart(tmp_path):
    path = tmp_path / "tree.npz"
    tree = {"a/b": np.ones(1), "a": {"b": np.zeros(1)}, "list": (np.ones(2), [np.ones(3)])}
    checkpoints.save_tree(path, tree)
    names = checkpoints.load_arrays(path).keys()
    assert names == {"a~1b", "a/b", "list/0", "list/1/0"}
    assert checkpoints.load_arrays(path, wanted="a/b".__eq__) == {"a/b": np.zeros(1)}
    support.assert_trees_equal(checkpoints.load_tree(path, tree), tree)


def test_arrays_that_are_larger_when_unpacked_are_not_read(tmp_path):
    np.savez_compressed(tmp_path / "tree.npz", a=np.zeros(10**6))
    with pytest.raises(DamagedFileError, match=r"tree.npz is damaged .*larger than the file"):
        checkpoints.load_arrays(tmp_path / "tree.npz")


def is_ours(path: pathlib.Path) -> bool:
    return path.name == "config.json"


def test_usable_output_directories(tmp_path, monkeypatch):
    assert not files.check_output(tmp_path, "run", is_ours)
    assert not files.check_output(tmp_path / "new" / "below", "run", is_ours)
    monkeypatch.chdir(tmp_path)
    assert not files.check_output(pathlib.Path("relative"), "run", is_ours)
    assert os.listdir(tmp_path) == []
    (tmp_path / ".config.json.12.tmp").touch()
    assert not files.check_output(tmp_path, "run", is_ours)
    (tmp_path / "other").touch()
    (tmp_path / "config.json").touch()
    assert files.check_output(tmp_path, "run", is_ours)


def test_unusable_output_directories(tmp_path, monkeypatch):
    def error(directory, *setting):
        with pytest.raises(SettingError) as caught:
            files.check_output(directory, "run", is_ours, *setting)
        assert caught.value.setting == (setting[0] if setting else "output_dir")
        assert caught.value.value == str(directory)
        return caught.value.reason

    (tmp_path / "file").touch()
    assert f"{tmp_path}/file is a file" in error(tmp_path / "file")
    assert f"{tmp_path}/file is a file" in error(tmp_path / "file" / "a" / "b", "export_dir")
    assert "is not empty and holds no run; choose another" in error(tmp_path)
    # Replaced, because root can write everywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert f"{tmp_path} is not writable" in error(tmp_path / "new")
