"""Writes of result files, which fail with one kind of error and leave no half-written file.

Whatever fails to be written raises `WriteError`, which names the path and the reason. Also reads of
files of unknown origin.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from tff_pcdd.errors import DamagedFileError, WriteError

# The largest text file that is read; those of runs and studies have less than a tenth of it.
MOST_TEXT = 64_000_000

# Of a file whose checksum is computed: bytes that may have no place on the disk, and how many times
# as large as its place on the disk the file may be besides.
_MOST_WITHOUT_DATA = 1_000_000_000
_MOST_COMPRESSED = 1000

# How long temporary files are kept of processes of which this machine cannot know whether they run.
_KEPT_SECONDS = 24 * 60 * 60

# How many files are waited for at a time.
_SYNC_THREADS = 16

# Why a disk, or a limit such as that of `ulimit -f`, refuses to be written to.
_REASONS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
}


@contextlib.contextmanager
def writing(path: Path, *further: type[Exception]) -> Iterator[None]:
    """Turns errors of the system within the block into a `WriteError`.

    Args:
        *further: classes of errors with which a library repeats what the system said.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), os.fspath(path)) from error
    except further as error:
        for number in _REASONS:
            if os.strerror(number) in str(error):
                raise WriteError(number, os.strerror(number), os.fspath(path)) from error
        raise


class _Output:
    """A file to write, which remembers its first error, and ignores all writes after it.

    A half-written archive tries to complete itself when it is garbage-collected. That would fail
    again, where nobody can catch the error. It is not an `io` class, because those close themselves
    before that. It cannot seek, so no byte is written twice, and its checksum is known at the end.

    Attributes:
        error: the first error.
        sha256: the checksum so far.
    """

    def __init__(self, file: io.BufferedIOBase):
        self._file = file
        self.error: OSError | None = None
        self.sha256 = hashlib.sha256()

    def write(self, data: Any) -> int:
        if self.error is None and not self._file.closed:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
                raise
            self.sha256.update(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Archives call it; `write_atomically` flushes the file at the end."""

    def read(self, size: int = -1) -> bytes:
        """By this method, NumPy tells files from paths."""
        raise io.UnsupportedOperation("read")


def write_atomically(
    path: Path, write: Callable[[Any], None], *, sync_contents: bool = True, sync_name: bool = True
) -> str:
    """Calls `write(file)` with a temporary binary file, then renames that file to `path`.

    After the call, the file is also there if the machine loses power.

    Args:
        sync_contents: whether the contents are on the disk then; otherwise after `sync_files`.
        sync_name: whether the name is on the disk then; otherwise after `sync_directory`.

    Returns:
        The SHA-256 of the file, as hexadecimal digits.

    Raises:
        WriteError: the file cannot be written; if there was one at `path`, it is unchanged.
    """
    with writing(path), _opened(path.parent, os.O_RDONLY | os.O_DIRECTORY) as directory:
        # Who made the directory cannot have put a link there under this name.
        temporary = f".{path.name}.{secrets.token_hex(8)}.{process_name()}.tmp"
        try:
            with open(temporary, "xb", opener=_no_links(directory)) as file:
                output = _Output(file)
                try:
                    write(output)
                finally:
                    # A library may have ignored the error, or raised another one because of it.
                    if output.error is not None:
                        raise output.error
                file.flush()
                if sync_contents:
                    os.fsync(file.fileno())
            os.replace(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            if sync_name:
                _sync(directory)
            return output.sha256.hexdigest()
        finally:
            # If the disk became read-only, this fails too, and `remove_leftovers` does it later.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor, which stays that of this file or directory whatever is renamed."""
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _no_links(directory: int | None = None) -> Callable[[str, int], int]:
    """An `opener` of files, relative to a directory, that neither follows links nor waits."""
    further = os.O_NOFOLLOW | os.O_NONBLOCK
    return lambda path, flags: os.open(path, flags | further, 0o666, dir_fd=directory)


class _Input(io.FileIO):
    """A file whose errors name it; those of the system name only a file that cannot be opened."""

    def __init__(self, descriptor: int, path: str):
        super().__init__(descriptor)
        self._path = path

    def readinto(self, buffer):
        with self._naming():
            return super().readinto(buffer)

    def readall(self):
        with self._naming():
            return super().readall()

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._path) from None


def open_regular(path: str | os.PathLike) -> io.BufferedReader:
    """Opens a file for reading; a pipe or a device would be waited for, or read, for ever.

    Raises:
        OSError: it is no regular file, or cannot be opened. Reading may raise one that names it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return io.BufferedReader(_Input(descriptor, os.fspath(path)))


def read_bytes(path: str | os.PathLike, most_bytes: int = MOST_TEXT) -> bytes:
    """The contents of a file of unknown origin, if it has at most so many bytes.

    Raises:
        OSError: it is no regular file, is larger, or cannot be read.
    """
    with open_regular(path) as file:
        # A file without data may have any size, and needs as much memory when it is read.
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"more than {most_bytes} bytes", os.fspath(path))
        return file.read(most_bytes)


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file of unknown origin, as hexadecimal digits.

    Raises:
        OSError: it is no regular file, has hardly any data for its size, or cannot be read.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        # A file without data takes no space and any time. File systems that compress do not get
        # files of numbers that small.
        if status.st_size > _MOST_WITHOUT_DATA + _MOST_COMPRESSED * 512 * status.st_blocks:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes without data", os.fspath(path))
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, most_bytes: int = 10_000_000) -> dict[str, Any]:
    """Reads a JSON object from a file of unknown origin.

    Args:
        most_bytes: the largest size that is read; files of runs have a few kilobytes.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: it is no regular file of at most this size, cannot be read, or holds
            something else.
    """
    try:
        # Parsing takes several times the memory of the text.
        values = json.loads(read_bytes(path, most_bytes).decode())
    except OSError as error:
        # Only what is known not to be there is missing.
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        if is_missing and not os.path.islink(path):
            raise FileNotFoundError(path) from None
        raise DamagedFileError(f"{path} is damaged ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error})") from None
    if not isinstance(values, dict):
        raise DamagedFileError(f"{path} is damaged (not a JSON object)")
    return values


def write_text(path: Path, text: str) -> None:
    """Writes a text file in UTF-8, as `write_atomically`."""
    write_atomically(path, lambda file: file.write(text.encode()))


def append_text(path: Path, text: str) -> None:
    """Appends to a text file, in UTF-8; after the call, the text is on the disk.

    Processes may append to a file at the same time.

    Raises:
        WriteError: the text cannot be written, and no part of it is. Or the file is a link, or has
            a second name, under which its owner would not expect the text.
    """
    with writing(path), open(path, "ab", buffering=0, opener=_no_links()) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise WriteError(errno.EMLINK, "is a link or no file; remove it", os.fspath(path))
        # Some file systems have no locks.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        length = os.fstat(file.fileno()).st_size
        try:
            left = memoryview(text.encode())
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fileno(), length)
            raise


def make_directory(path: Path) -> None:
    """Creates a directory and its parents, unless it exists."""
    with writing(path):
        if not path.is_dir():
            if not path.parent.exists():
                make_directory(path.parent)
            path.mkdir(exist_ok=True)
            sync_directory(path.parent)


def rename(source: Path, target: Path) -> None:
    """Renames a file or a directory, also across a loss of power."""
    with writing(target):
        os.replace(source, target)
        sync_directory(target.parent)


def remove(path: Path) -> None:
    """Deletes a file, or a directory with all that it contains; a link, but not its target."""
    with writing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sync_files(paths: Collection[Path]) -> None:
    """Waits until the contents of files are on the disk, of several at a time.

    Disks complete what is waited for together about as fast as a single file.
    """

    def sync(path: Path) -> None:
        with writing(path), _opened(path) as descriptor:
            os.fsync(descriptor)

    if paths:
        with concurrent.futures.ThreadPoolExecutor(_SYNC_THREADS) as threads:
            # Reading the results raises the errors.
            list(threads.map(sync, paths))


def sync_directory(path: Path) -> None:
    """Waits until the names in a directory are on the disk, as far as the file system can."""
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        _sync(descriptor)


def _sync(directory: int) -> None:
    # Some network file systems refuse it.
    with contextlib.suppress(PermissionError):
        os.fsync(directory)


def process_name() -> str:
    """This process among those of all machines that write to a directory: "MACHINE-NUMBER"."""
    return f"{_machine_name()}-{os.getpid()}"


def _machine_name() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def remove_leftovers(directory: Path, pattern: str = ".*.tmp", *, alone: bool = False) -> None:
    """Removes the temporary files of killed processes.

    Args:
        alone: whether no other process can write there, because this one holds the lock. Otherwise
            files of processes that run are kept, and those of other machines for a day.
    """
    for path in [*directory.glob(pattern)]:
        if alone or not _may_be_written(path):
            remove(path)


def _may_be_written(temporary: Path) -> bool:
    """Whether another process may be writing a temporary file."""
    machine, _, process = temporary.name.split(".")[-2].partition("-")
    if machine != _machine_name() or not process.isdecimal() or len(process) > 9:
        with contextlib.suppress(OSError):
            return time.time() - os.lstat(temporary).st_mtime < _KEPT_SECONDS
        return False
    if int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
