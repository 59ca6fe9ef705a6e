"""File systems that fail while something is read: inputs, checkpoints, files of runs, exports.

A library that is loaded before all others (read_errors.c) lets the n-th operation of a kind in the
directory fail with EIO, whoever reads: Python, TensorFlow, SQLite, HDF5 or Arrow. The program has
to end with one line that names a path in the directory, or with the right results. Then the fault
is removed, and the same command has to end with the results of an undisturbed call.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults import programs
from tests.faults.case import (
    MARKED,
    REPAIRED,
    SAME,
    SILENT,
    Case,
    Result,
    SilentDifference,
    one_line,
    run,
)
from tests.faults.programs import Program, Programs
from tests.support import write_image, write_table, write_tfds

_KINDS = ("open", "stat", "read", "list")
_ALL = 2**62
_LIBRARY = "FAULTS_READ_ERRORS"
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
import pathlib, sys
import tff_pcdd
from tests.faults import failing_reads
failing_reads.serve(pathlib.Path(sys.argv[1]))
"""


def cases(directory: Path) -> Iterator[Case]:
    """Operations of each kind that fail, once or from then on, of each reader."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        raise unittest.SkipTest("faults of reading need Linux and a C compiler")
    child = functools.cache(functools.partial(_Child, directory))
    for name in _checks(directory):
        kind = f"input/output error while {name.partition(': ')[0]} are read"
        yield Case(kind, name, lambda _, name=name: child().outcome(name))


class _Child:
    """The process in which the library is loaded, and which runs cases by their names."""

    def __init__(self, directory: Path):
        library = directory / "read_errors.so"
        source = Path(__file__).with_name("read_errors.c")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]
        subprocess.run(command, check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library), _LIBRARY: str(library)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(directory)],
            cwd=_ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self._end)

    def _end(self) -> None:
        # It ends when no more names come.
        self._process.communicate()

    def outcome(self, name: str) -> str:
        assert self._process.stdin and self._process.stdout
        print(name, file=self._process.stdin, flush=True)
        result = Result(**json.loads(self._process.stdout.readline()))
        if result.failed:
            error = SilentDifference if result.outcome == SILENT else AssertionError
            raise error(result.detail)
        return result.outcome


def serve(directory: Path) -> None:
    """Runs the cases whose names come in, and answers with their results."""
    answers, sys.stdout = sys.stdout, sys.stderr
    checks = _checks(directory)
    for line in sys.stdin:
        name = line.rstrip("\n")
        (result,) = run([Case("", name, checks[name])])
        print(json.dumps(dataclasses.asdict(result)), file=answers, flush=True)


# The operations that fail.


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[_LIBRARY])
    library.fail_reads.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    library.seen_reads.restype = ctypes.c_long
    library.failed_read.restype = ctypes.c_char_p
    return library


@dataclasses.dataclass(frozen=True)
class _Fault:
    """What fails.

    Attributes:
        kind: the kind of operation.
        share: how many of the operations come before the first that fails.
        lasts: whether all later ones fail too.
    """

    kind: str
    share: float
    lasts: bool

    def call(self, function: Callable[[], Any], directory: Path, total: int) -> Any:
        """The result of a call in which the fault happens."""
        library = _library()
        first = int(self.share * total)
        place = os.fsencode(os.path.realpath(directory))
        library.fail_reads(place, _KINDS.index(self.kind), first, _ALL if self.lasts else first)
        try:
            return function()
        finally:
            library.fail_reads(place, -1, 0, 0)

    def is_named(self, text: str, directory: Path) -> bool:
        """Whether a text names what cannot be read, or a folder around it in the directory."""
        failed = Path(os.fsdecode(_library().failed_read()))
        below = [path for path in failed.parents if path.is_relative_to(directory)]
        names = [failed.name, *map(str, below)]
        if self.lasts:
            # Another one that could not be read either.
            names += [path.name for path in directory.rglob("*")]
        return any(name in text for name in names)

    def named(self, error: BaseException | str, directory: Path) -> str:
        """Checks that an error is one line that names what cannot be read."""
        assert self.is_named(str(error), directory), f"{_library().failed_read()}: {error}"
        return one_line(error)


def _count(kind: str, function: Callable[[], Any], directory: Path) -> int:
    """How many operations of a kind there are in an undisturbed call."""
    library = _library()
    library.fail_reads(os.fsencode(os.path.realpath(directory)), _KINDS.index(kind), _ALL, _ALL)
    function()
    total = library.seen_reads()
    library.fail_reads(b"/", -1, 0, 0)
    return total


def _checks(directory: Path) -> dict[str, Callable[[Path], str]]:
    """What checks each case, by its name; to be called where the library is loaded."""
    found: dict[str, Callable[[Path], str]] = {}

    def add(name: str, check: Callable, numbers: dict[str, int]) -> None:
        for kind, number in numbers.items():
            for index in range(number):
                fault = _Fault(kind, index / number, lasts=index % 3 == 2)
                title = f"{name}, {kind} {index + 1} of {number}"
                found[title] = functools.partial(check, fault)

    for name, source in _sources().items():
        numbers = {"open": 2, "stat": 2, "read": 3, "list": 3, **source.numbers}
        add(f"data: {name}", functools.partial(_check_source, source), numbers)
    called, operations = Programs(directory), functools.cache(_operations)
    for name, (program, number) in _PROGRAMS.items():
        numbers = {"open": number, "stat": number, "read": number, "list": max(1, number // 3)}
        check = functools.partial(_check_program, called, program, operations)
        add(f"files of runs: {name}", check, numbers)
    # TensorFlow's checkpoints are read as a whole before TensorFlow does so.
    for name, reads in {"a.h5": 8, "a.keras": 8, "a": 1}.items():
        check = functools.partial(_check_weights, name)
        add(f"weights: {name}", check, {"open": 2, "stat": 2, "read": reads})
    return found


# Data.


@dataclasses.dataclass(frozen=True)
class _Source:
    """A data set on the disk.

    Attributes:
        name: the source.
        write: writes the data into a directory, and returns `data_dir`.
        settings: further settings.
        partition: how it is divided.
        numbers: how many operations of some kinds fail, if they are others than usual.
    """

    name: str
    write: Callable[[Path], Path]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    partition: str = "natural"
    numbers: dict[str, int] = dataclasses.field(default_factory=dict)


def _write_npz(root: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 4, 4, 1)).astype(np.float32)
    np.savez(root / "a.npz", x=x, y=np.arange(24) % 3, site=np.arange(24) % 2)
    return root / "a.npz"


def _rows() -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {"a": draw.random(), "b": draw.random(), "label": f"c{i % 3}", "site": f"s{i % 2}"}
        for i in range(24)
    ]


def _write_csv(root: Path) -> Path:
    write_table(root / "a.csv", _rows())
    return root / "a.csv"


def _write_frame(name: str, root: Path) -> Path:
    import pandas as pd

    frame, path = pd.DataFrame(_rows()), root / name
    if path.suffix:
        frame.to_parquet(path, index=False)
    else:
        path.mkdir()
        for part, rows in (("train", frame[:16]), ("test", frame[16:])):
            rows.to_parquet(path / f"{part}-00000-of-00001.parquet", index=False)
    return path


def _write_table_of_images(root: Path) -> Path:
    rows = []
    for i in range(12):
        write_image(root / "images" / f"{i}.png", 6, 8, i * 9)
        rows.append({"path": f"images/{i}.png", "label": f"c{i % 2}", "site": f"s{i // 6}"})
    write_table(root / "a.csv", rows)
    return root / "a.csv"


def _write_folder(suffix: str, root: Path) -> Path:
    from PIL import Image

    for i in range(16):
        path = root / "photos" / f"s{i % 2}" / f"c{i // 2 % 2}" / f"{i}{suffix}"
        if suffix == ".tif":
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 6), (i, i, i)).save(path)
        else:
            write_image(path, 6, 8, i * 9)
    return root / "photos"


def _write_leaf(root: Path) -> Path:
    for part in ("train", "test"):
        users = {name: {"x": [[i / 255] * 784], "y": [i]} for i, name in enumerate("ab")}
        text = {"users": [*users], "num_samples": [1, 1], "user_data": users}
        (root / part).mkdir()
        (root / part / "data.json").write_text(json.dumps(text))
    return root


def _write_tfds(root: Path) -> Path:
    write_tfds(root, size=6)
    return root


def _write_images(source: str, root: Path) -> Path:
    from tests.faults.hostile_files import _write_images

    _write_images(source, root, "b.jpg", "c.jpg")
    images = next(root.rglob("a.jpg")).parent
    for name in "bc":
        write_image(images / f"{name}.jpg")
    return root


def _write_sqlite(root: Path) -> Path:
    from tests.faults.fuzzed_data import write_cache

    write_cache(root / "emnist_all.sqlite")
    return root


_TEST = {"test_fraction": 0.25}
_TABLE = {**_TEST, "feature_columns": "a,b"}


def _sources() -> dict[str, _Source]:
    part, files = functools.partial, {"list": 0}
    images = {**_TEST, "path_column": "path"}
    found = {
        "npz": _Source("npz", _write_npz, _TEST, numbers=files),
        "csv": _Source("table", _write_csv, _TABLE, numbers=files),
        "parquet": _Source("table", part(_write_frame, "a.parquet"), _TABLE, numbers=files),
        "parquet files": _Source("table", part(_write_frame, "a"), {"feature_columns": "a,b"}),
        "table of images": _Source("table", _write_table_of_images, images, numbers=files),
        # SQLite opens files for writing, too.
        "tff_emnist": _Source("tff_emnist", _write_sqlite, numbers={"open": 0, "list": 0}),
        # LEAF's files are mapped into memory.
        "femnist": _Source("femnist", _write_leaf, numbers={"read": 0}),
        "fashion_mnist": _Source("fashion_mnist", _write_tfds, {}, "iid"),
        "imagenet_lt": _Source("imagenet_lt", part(_write_images, "imagenet_lt"), {}, "iid"),
        "inaturalist": _Source("inaturalist", part(_write_images, "inaturalist")),
        "fed_isic2019": _Source("fed_isic2019", part(_write_images, "fed_isic2019")),
    }
    for suffix in (".png", ".tif"):
        found[f"folder of {suffix}"] = _Source("folder", part(_write_folder, suffix), _TEST)
    return found


def _load(source: _Source, path: Path) -> list[bytes]:
    """All that is read: the samples, the images in files among them, and the labels."""
    import tensorflow as tf

    from tff_pcdd import data
    from tff_pcdd.data.sources._image_files import _decoder
    from tff_pcdd.data.transforms import broken_images
    from tff_pcdd.errors import DataError

    clients = {} if source.partition == "natural" else {"num_clients": 2}
    made = data.load_federation(
        source.name, source.partition, data_dir=str(path), **clients, **source.settings
    )
    found = [made.fingerprint.encode()]
    for part in (made.train, made.test):
        x = np.asarray(part.x)
        if made.input_spec.kind == "image_file":
            # As in a round, whose errors are texts.
            try:
                x = np.asarray(_decoder(made.input_spec)(x))
            except tf.errors.InvalidArgumentError as error:
                raise DataError(broken_images(str(error))) from None
        found += [x.tobytes(), np.asarray(part.y).tobytes()]
    return found


def _check_source(source: _Source, fault: _Fault, directory: Path) -> str:
    from tff_pcdd.errors import DataError

    path = source.write(directory)
    wanted = _load(source, path)
    total = _count(fault.kind, lambda: _load(source, path), directory)
    assert total, "nothing of this kind happens"
    try:
        found = fault.call(lambda: _load(source, path), directory, total)
    except (DataError, OSError) as error:
        outcome = fault.named(error, directory)
    else:
        if found != wanted:
            raise SilentDifference("other samples")
        outcome = SAME
    if _load(source, path) != wanted:
        raise SilentDifference("other samples after the fault")
    return outcome


# Runs, studies and exports.

_LONGER = programs.TRAIN.with_flags("--rounds=5")
_PROGRAMS = {
    "train, repeated": (programs.TRAIN._replace(earlier=(programs.TRAIN,)), 3),
    "train, continued": (_LONGER._replace(earlier=(programs.TRAIN,)), 4),
    "train, states on disk": (
        _LONGER.with_flags("--client_store=disk")._replace(earlier=(programs.DISK_STORE,)),
        4,
    ),
    "train --overwrite": (programs.overwriting(programs.TRAIN, "--rounds=1"), 4),
    "compare, repeated": (programs.COMPARE._replace(earlier=(programs.COMPARE,)), 4),
    "sweep, repeated": (programs.SWEEP._replace(earlier=(programs.SWEEP,)), 4),
    "evaluate": (programs.EVALUATE, 4),
    "export": (programs.EXPORT, 3),
    "export --overwrite": (programs.overwriting(programs.EXPORT, "--checkpoint_round=2"), 4),
    "report": (programs.REPORT, 3),
}


def _operations(called: Programs, program: Program, kind: str) -> int:
    """How many operations of a kind there are in an undisturbed call of a program."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        called.prepare(program, directory)
        total = _count(kind, lambda: called.succeed(program, directory), directory)
    assert total, "nothing of this kind happens"
    return total


def _check_program(
    called: Programs, program: Program, operations: Callable, fault: _Fault, directory: Path
) -> str:
    total = operations(called, program, fault.kind)
    called.prepare(program, directory)
    failed = fault.call(lambda: called.call(program, directory), directory, total)
    if failed.status:
        said = [line for line in failed.errors.splitlines() if ": error: " in line]
        assert len(said) == 1 and "Traceback" not in failed.errors, failed.errors
        outcome = fault.named(said[0], directory)
    elif program.name in ("evaluate", "export") and "checkpoint" in failed.errors:
        # What an earlier checkpoint gives, after a warning.
        assert fault.is_named(failed.errors, directory), failed.errors
        outcome = MARKED
    else:
        outcome = _with_report(called, program, failed.errors, directory)
    if program.name == "export" and not failed.status:
        # A complete export is not repeated otherwise.
        program = program.with_flags("--overwrite")
    called.succeed(program, directory)
    called.check(program, directory)
    return outcome


def _with_report(called: Programs, program: Program, errors: str, directory: Path) -> str:
    """Compares results, of which reports may be missing or lack what could not be read.

    Tables may lack what a warning names, too.
    """
    out, wanted = directory / program.out, called.wanted(program) / program.out
    name, lacking = os.path.basename(_library().failed_read()).decode(), False
    for page in [*wanted.rglob("report.html"), *wanted.rglob("comparison.md")]:
        path = out / page.relative_to(wanted)
        expected = programs.content(page, wanted)
        if not path.is_file() or programs.content(path, out) != expected:
            said = path.read_text() if path.is_file() else ""
            known = said if page.suffix == ".html" else errors
            if name not in known and "report.html was not written" not in errors:
                raise SilentDifference(f"{path} lacks something without naming {name}: {errors}")
            path.write_bytes(expected)
            lacking = True
    called.check(program, directory)
    return REPAIRED if lacking or "warning" in errors.lower() else SAME


# Weights to start from.


def _check_weights(name: str, fault: _Fault, directory: Path) -> str:
    from tests.faults import hostile_models
    from tff_pcdd.errors import SettingError

    path = directory / name
    hostile_models._write(path)
    wanted = hostile_models._read(path)
    total = _count(fault.kind, lambda: hostile_models._read(path), directory)
    assert total, "nothing of this kind happens"
    try:
        found = fault.call(lambda: hostile_models._read(path), directory, total)
    except (SettingError, OSError) as error:
        return fault.named(error, directory)
    if not all(map(np.array_equal, found, wanted)):
        raise SilentDifference("other weights")
    return SAME
