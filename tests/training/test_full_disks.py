"""Writes that fail: one kind of error, and what was there before stays."""

import contextlib
import errno
import gc
import io
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import directories, files
from tff_pcdd.errors import SettingError, WriteError


class _FullDisk(io.FileIO):
    """A file on a disk with room for 100 bytes."""

    def write(self, data):
        if self.tell() + len(data) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.fixture
def full(monkeypatch):
    """New binary files have room for 100 bytes."""

    def full_open(path, mode, opener):
        return io.BufferedWriter(_FullDisk(path, mode.replace("b", ""), opener=opener))

    monkeypatch.setattr(files, "open", full_open, raising=False)


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path, monkeypatch, full):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    path = tmp_path / "a.npz"
    files.write_text(path, "old")
    with pytest.raises(WriteError) as caught:
        files.write_atomically(path, lambda file: np.savez(file, np.zeros(9999), np.ones(3)))
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert caught.value.errno == errno.ENOSPC
    assert isinstance(caught.value, OSError)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.npz"]
    # A half-written archive tries to complete itself when it is collected.
    del caught
    gc.collect()
    assert not unraisable


def test_an_error_that_a_library_hides(tmp_path, full):
    def write(file):
        with contextlib.suppress(OSError):
            file.write(bytes(200))
            file.flush()

    with pytest.raises(WriteError, match="No space left"):
        files.write_atomically(tmp_path / "a", write)
    assert not os.listdir(tmp_path)


def test_a_limit_of_the_size_of_files_that_a_library_repeats(tmp_path):
    """With `ulimit -f`, TensorFlow's writer of events fails by an error of its own."""
    folder = tmp_path / "tensorboard"
    with pytest.raises(WriteError) as caught, files.writing(folder, ValueError):
        raise ValueError("events.out.v2; File too large\nCould not flush events file.")
    assert str(caught.value) == f"cannot write {folder}: File too large"


def test_an_archive_is_as_if_written_directly(tmp_path):
    arrays = [np.arange(70000), np.float32(3), np.zeros([0, 2])]
    files.write_atomically(tmp_path / "a.npz", lambda file: np.savez(file, *arrays))
    with np.load(tmp_path / "a.npz") as loaded:
        for name, array in zip(loaded.files, arrays, strict=True):
            np.testing.assert_array_equal(loaded[name], array)


def test_every_write_names_its_path(tmp_path):
    file = tmp_path / "file"
    file.write_text("a")
    for call, path in (
        (lambda: files.write_text(file / "a", ""), file / "a"),
        (lambda: files.append_text(tmp_path / "none" / "a", ""), tmp_path / "none" / "a"),
        (lambda: files.make_directory(file / "a" / "b"), file / "a"),
        (lambda: files.rename(tmp_path / "none", tmp_path / "b"), tmp_path / "b"),
        (lambda: files.remove(file / "a"), file / "a"),
        (lambda: directories.locked(file).__enter__(), file),
    ):
        with pytest.raises(WriteError) as caught:
            call()
        assert str(caught.value).startswith(f"cannot write {path}: ")
    assert os.listdir(tmp_path) == ["file"]


def test_errors_of_libraries_that_repeat_what_the_system_said(tmp_path):
    with pytest.raises(WriteError) as caught, files.writing(tmp_path, RuntimeError):
        raise RuntimeError(f"{{op}} {tmp_path}/x; Read-only file system\nop: Save")
    assert str(caught.value) == f"cannot write {tmp_path}: Read-only file system"
    assert caught.value.errno == errno.EROFS
    with pytest.raises(RuntimeError, match="shape"), files.writing(tmp_path, RuntimeError):
        raise RuntimeError("shape")


def test_directories_are_created_renamed_and_removed(tmp_path):
    files.make_directory(tmp_path / "a" / "b")
    files.make_directory(tmp_path / "a" / "b")
    files.append_text(tmp_path / "a" / "b" / "c", "1\n")
    files.append_text(tmp_path / "a" / "b" / "c", "Φ\n")
    files.rename(tmp_path / "a", tmp_path / "d")
    assert (tmp_path / "d" / "b" / "c").read_text() == "1\nΦ\n"
    (tmp_path / "link").symlink_to(tmp_path / "d")
    files.remove(tmp_path / "link")
    assert (tmp_path / "d" / "b" / "c").exists()
    files.remove(tmp_path / "d")
    files.remove(tmp_path / "none")
    assert not os.listdir(tmp_path)


def test_a_directory_is_tried_out(tmp_path, monkeypatch):
    directories.check_writable(tmp_path / "new" / "below")
    assert not os.listdir(tmp_path)

    def fails(_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", fails)
    with refuses(
        "export_dir", f"cannot write to {tmp_path}: Disk quota exceeded", str(tmp_path / "new")
    ):
        directories.check_writable(tmp_path / "new", "export_dir")
    assert not os.listdir(tmp_path)


def test_too_little_space(tmp_path, monkeypatch):
    usage = type("usage", (), {"free": 2_500_000})
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage)
    directories.check_space(tmp_path / "new", 2_500_000, "the checkpoints")
    with pytest.raises(SettingError) as caught:
        directories.check_space(tmp_path / "new", 3_210_000_000, "the checkpoints")
    assert caught.value.reason.startswith("the checkpoints need up to 3.21 GB, and 2.5 MB are free")


@pytest.mark.integration
def test_a_real_disk_that_is_full(tmp_path):
    """Needs the right to mount a file system of one megabyte."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        path = tmp_path / "a.npz"
        files.write_atomically(path, lambda file: np.savez(file, np.arange(9)))
        with pytest.raises(WriteError, match=r"cannot write .*: No space left on device"):
            files.write_atomically(path, lambda file: np.savez(file, np.zeros(10**6)))
        assert os.listdir(tmp_path) == ["a.npz"]
        assert np.load(path)["arr_0"].size == 9
        with pytest.raises(SettingError, match=r"the states need up to 2 MB, and .* are free"):
            directories.check_space(tmp_path, 2 * 10**6, "the states")
        with contextlib.suppress(OSError):
            (tmp_path / "all").write_bytes(bytes(2**20))
        with pytest.raises(SettingError, match="No space left on device"):
            directories.check_writable(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
