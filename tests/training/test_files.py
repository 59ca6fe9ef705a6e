"""Atomic writes, trees of arrays in files, locks, and checks of output directories."""

import errno
import hashlib
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
from tests.data.refusals import refuses
from tff_pcdd import directories, files
from tff_pcdd.errors import DamagedFileError, SettingError, WriteError
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
    files.remove_leftovers(tmp_path, "**/.*.tmp", alone=True)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == {"below/b.json", "a.tmp", ".keep"}


def test_a_directory_has_one_writer(tmp_path):
    directory = tmp_path / "run"
    with directories.locked(directory):
        for setting, again in (
            ("export_dir", directories.locked(directory, "export_dir").__enter__),
            ("output_dir", lambda: directories.refuse_locked(directory)),
        ):
            with refuses(setting, "another process is writing", str(directory)):
                again()
    directories.refuse_locked(directory)
    with directories.locked(directory):
        pass
    # The remaining lock file does not count as foreign content.
    assert directories.check_output(directory, "run", []) is False


def test_a_lock_ends_when_its_process_is_killed(tmp_path):
    """The process cannot clean up, and its child process keeps running."""
    code = (
        "import pathlib, subprocess, sys\n"
        "from tff_pcdd import directories\n"
        "with directories.locked(pathlib.Path(sys.argv[1])):\n"
        "    child = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL)\n"
        "    print(child.pid, flush=True)\n"
        "    child.wait()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        try:
            with refuses("output_dir", "another process is writing", str(tmp_path)):
                directories.refuse_locked(tmp_path)
            process.kill()
            process.wait()
            directories.refuse_locked(tmp_path)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_checking_a_lock_creates_no_files(tmp_path):
    directories.refuse_locked(tmp_path)
    directories.refuse_locked(tmp_path / "none")
    assert not os.listdir(tmp_path)


def test_a_loaded_tree_equals_the_saved_one(tmp_path):
    path = tmp_path / "tree.npz"
    checksum = checkpoints.save_tree(path, TREE)
    template = tf.nest.map_structure(np.zeros_like, TREE)
    again = checkpoints.load_tree(path, template, checksum)
    support.assert_trees_equal(again, TREE)
    for loaded, saved in zip(tf.nest.flatten(again), tf.nest.flatten(TREE), strict=True):
        assert loaded.dtype == saved.dtype
        assert loaded.shape == saved.shape


def test_tensors_are_saved_as_arrays(tmp_path):
    path = tmp_path / "tree.npz"
    checksum = checkpoints.save_tree(path, {"a": tf.constant([1.0, 2.0])})
    loaded = checkpoints.load_tree(path, {"a": np.zeros(2, np.float32)}, checksum)
    np.testing.assert_array_equal(loaded["a"], [1, 2])
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
        checkpoints.load_tree(path, template, files.sha256(path))


def test_the_names_of_arrays_tell_them_apart(tmp_path):
    path = tmp_path / "tree.npz"
    tree = {"a/b": np.ones(1), "a": {"b": np.zeros(1)}, "list": (np.ones(2), [np.ones(3)])}
    checksum = checkpoints.save_tree(path, tree)
    names = checkpoints.load_arrays(path, checksum).keys()
    assert names == {"a~1b", "a/b", "list/0", "list/1/0"}
    assert checkpoints.load_arrays(path, checksum, "a/b".__eq__) == {"a/b": np.zeros(1)}
    support.assert_trees_equal(checkpoints.load_tree(path, tree, checksum), tree)


def test_arrays_that_are_larger_when_unpacked_are_not_read(tmp_path):
    path = tmp_path / "tree.npz"
    np.savez_compressed(path, a=np.zeros(10**6))
    with pytest.raises(DamagedFileError, match=r"tree.npz is damaged .*larger than the file"):
        checkpoints.load_arrays(path, files.sha256(path))


def test_usable_output_directories(tmp_path, monkeypatch):
    assert not directories.check_output(tmp_path, "run", ["config.json"])
    assert not directories.check_output(tmp_path / "new" / "below", "run", ["config.json"])
    monkeypatch.chdir(tmp_path)
    assert not directories.check_output(pathlib.Path("relative"), "run", ["config.json"])
    assert os.listdir(tmp_path) == []
    (tmp_path / ".config.json.12.tmp").touch()
    assert not directories.check_output(tmp_path, "run", ["config.json"])
    (tmp_path / "other").touch()
    (tmp_path / "config.json").touch()
    assert directories.check_output(tmp_path, "run", ["config.json"])


def test_unusable_output_directories(tmp_path, monkeypatch):
    def error(directory, *setting):
        with pytest.raises(SettingError) as caught:
            directories.check_output(directory, "run", ["config.json"], *setting)
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


# Links and files that are no files, in directories from elsewhere.


@pytest.fixture
def precious(tmp_path):
    """A file of the user's, outside of the directory."""
    path = tmp_path / "precious"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"


def test_no_link_is_written_through(tmp_path, precious, monkeypatch):
    """Neither in the place of the file nor of the temporary file, whatever the process's number."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.json").symlink_to(precious)
    (directory / f".config.json.{files.process_name()}.tmp").symlink_to(precious)
    tokens = iter(["00", "01"])
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: next(tokens))
    (directory / f".config.json.00.{files.process_name()}.tmp").symlink_to(precious)
    with pytest.raises(WriteError, match=r"cannot write .*config\.json: File exists"):
        files.write_text(directory / "config.json", "{}")
    files.write_text(directory / "config.json", "{}")
    assert (directory / "config.json").read_text() == "{}"
    assert not (directory / "config.json").is_symlink()


@pytest.mark.parametrize("link", [os.symlink, os.link, None], ids=["link", "second name", "pipe"])
def test_nothing_is_appended_to_what_has_another_name(link, tmp_path, precious):
    path = tmp_path / "metrics.csv"
    if link is None:
        os.mkfifo(path)
    else:
        link(precious, path)
    with pytest.raises(WriteError, match=r"cannot write .*metrics\.csv"):
        files.append_text(path, "1,2\n")


def test_a_part_of_a_text_is_not_appended(tmp_path, monkeypatch):
    """As on a disk that is full after five bytes."""
    path = tmp_path / "metrics.csv"
    files.append_text(path, "round,ga\n")
    files.append_text(path, "1,10\n")
    fsync = os.fsync

    def fail(descriptor):
        fsync(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match="No space left"):
        files.append_text(path, "2,20\n")
    assert path.read_text() == "round,ga\n1,10\n"


def test_the_temporary_file_stays_in_a_directory_that_is_renamed(tmp_path, precious):
    """What follows the start of a write is not moved by who may rename the directory."""
    directory, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    directory.mkdir()
    elsewhere.mkdir()

    def write(file):
        directory.rename(tmp_path / "moved")
        directory.symlink_to(elsewhere)
        file.write(b"text")

    files.write_atomically(directory / "file", write)
    assert os.listdir(tmp_path / "moved") == ["file"]
    assert os.listdir(elsewhere) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_lock_that_is_no_file(kind, tmp_path, precious):
    lock = tmp_path / "run" / ".lock"
    lock.parent.mkdir()
    if kind == "link":
        lock.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    for use in (
        directories.locked(lock.parent).__enter__,
        lambda: directories.refuse_locked(lock.parent),
    ):
        with pytest.raises(SettingError, match=r"\.lock is not a file; remove it"):
            use()


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/round_000001.npz", "metrics.csv"])
def test_links_in_a_directory_of_results_are_refused(place, tmp_path, precious):
    link = tmp_path / "run" / place
    link.parent.mkdir(parents=True)
    (tmp_path / "run" / "wandb").mkdir()
    (tmp_path / "run" / "wandb" / "latest").symlink_to(precious)
    directories.refuse_links(tmp_path / "run", ["checkpoints", "metrics.csv", "none"])
    link.symlink_to(precious)
    with pytest.raises(SettingError, match=f"{place} is a link, and results would be written"):
        directories.refuse_links(tmp_path / "run", ["checkpoints", "metrics.csv"])
    # The directory itself may be one.
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    directories.refuse_links(tmp_path / "latest", ["plots"])


@pytest.mark.parametrize("kind", ["pipe", "sparse", "file"])
def test_checksums_are_those_of_files_with_data(tmp_path, kind):
    path = tmp_path / "state.npz"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        with open(path, "wb") as file:
            file.write(b"arrays")
            file.truncate(200_000_000_000 if kind == "sparse" else 5_000_000)
    if kind == "file":
        assert files.sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        with pytest.raises(OSError, match=r"without data|not a regular file"):
            files.sha256(path)


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_what_cannot_be_read_whole(kind, tmp_path):
    path = tmp_path / "sites.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as file:
            file.truncate(200_000_000_000)
    with pytest.raises(OSError, match=r"more than 64000000 bytes|not a regular file"):
        files.read_bytes(path)
    with pytest.raises(DamagedFileError, match=r"sites\.json is damaged \((more|not)"):
        files.read_json(path)


def test_what_cannot_be_looked_at_is_damaged_and_not_missing(tmp_path, monkeypatch):
    for name in ("none.json", "folder/none.json", "file/none.json"):
        (tmp_path / "file").touch()
        with pytest.raises(FileNotFoundError):
            files.read_json(tmp_path / name)
    (tmp_path / "link.json").symlink_to("none.json")
    with pytest.raises(DamagedFileError, match=r"link\.json is damaged \(No such file"):
        files.read_json(tmp_path / "link.json")

    def fail(path, *_, **__):
        raise OSError(5, "Input/output error", str(path))

    for name in ("open", "stat", "lstat"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(DamagedFileError, match=r"none\.json is damaged \(Input/output error\)"):
        files.read_json(tmp_path / "none.json")


@pytest.mark.parametrize("read", [files.read_bytes, files.sha256])
def test_errors_of_reading_name_the_file(read):
    # There is nothing at address 0, which the kernel calls an input/output error.
    with pytest.raises(OSError, match="Input/output error") as caught:
        read("/proc/self/mem")
    assert caught.value.filename == "/proc/self/mem"
