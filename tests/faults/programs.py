"""The programs on a few digits, in this process and so fast that each can run hundreds of times.

Their computations are traced once. Pictures and exported models have contents that cost no time,
and all rounds take the same time, so that results can be compared byte by byte.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import itertools
import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from tests.faults.case import SilentDifference, one_line
from tests.training.runs import _Kept, sharing_computations
from tff_pcdd import files
from tff_pcdd.evaluation import calibration
from tff_pcdd.experiment import simulation
from tff_pcdd.export import exporter, saved_model
from tff_pcdd.runtime import inprocess
from tff_pcdd.runtime.backends.inprocess import InProcess
from tff_pcdd.studies import method_sweep

_DATA = (
    "--dataset=digits",
    "--num_clients=3",
    "--classes_per_client=4",
    "--max_train_samples=60",
    "--max_test_samples=30",
    "--validation_fraction=0.2",
)
EXPERIMENT = (
    *_DATA,
    "--model=mlp",
    "--local_epochs=1",
    "--rounds=3",
    "--keep_checkpoints=2",
    "--notensorboard",
    "--noprogress",
)


# In commands of pages, the end of a directory's name.
_DIGEST = re.compile(rb"(?:(?<=runs/)|(?<=exported/))\w+_[0-9a-f]{6}\b")

# What has been traced, for the modules that use these programs in the same process.
_COMPUTATIONS: dict[str, Any] = {}


@functools.cache
def _context() -> _Kept:
    return _Kept(inprocess.create_context())


class Program(NamedTuple):
    """A command line, and the state of the directory in which it is called.

    Attributes:
        name: the program.
        flags: its flags; OUT stands for the directory that it writes, RUN for that of a run.
        earlier: what was called before in the same directory.
        out: name of the directory that it writes, within the directory of the case.
    """

    name: str
    flags: tuple[str, ...]
    earlier: tuple[Program, ...] = ()
    out: str = "out"

    def with_flags(self, *flags: str) -> Program:
        """The same program with further flags."""
        return self._replace(flags=(*self.flags, *flags))


OUT, RUN = "{out}", "{run}"
TRAIN = Program("train", (*EXPERIMENT, "--algorithm=fedavg", f"--output_dir={OUT}"))
DISK_STORE = TRAIN.with_flags("--client_store=disk")
COMPARE = Program("compare", (*EXPERIMENT, "--algorithms=fedavg,fedprox", f"--output_dir={OUT}"))
SWEEP = Program(
    "sweep",
    (*EXPERIMENT, "--algorithm=fedavg", "--grid=batch_seed=1,2", f"--output_dir={OUT}"),
)
SWEEP_METHODS = Program(
    "sweep",
    (
        *(*EXPERIMENT, "--algorithms=fedavg,fedproc", "--final_seeds=1,2", "--rungs=0.5"),
        *("--grid=client_learning_rate=0.01,0.1", "--grid=fedproc_contrast_weight=0.5,1"),
        *("--noreport", f"--output_dir={OUT}"),
    ),
)
PARTITION = Program("partition", (*_DATA, f"--output_dir={OUT}"))
_RUN = TRAIN._replace(out="run")
EVALUATE = Program("evaluate", (f"--run_dir={RUN}",), (_RUN,), "run")
REPORT = Program("report", (f"--run_dir={RUN}",), (_RUN,), "run")
EXPORT = Program("export", (f"--run_dir={RUN}", f"--export_dir={OUT}"), (_RUN,))


def overwriting(program: Program, *other: str) -> Program:
    """The program with --overwrite, after itself with other flags, whose results are replaced."""
    earlier = program._replace(earlier=()).with_flags(*other)
    return program.with_flags("--overwrite")._replace(earlier=(*program.earlier, earlier))


class Called(NamedTuple):
    """How a program ended."""

    status: int
    errors: str


class Programs:
    """Calls programs that share their computations.

    Args:
        directory: for the results of undisturbed calls.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self.start = functools.cache(self.start)
        self.wanted = functools.cache(self.wanted)
        self._numbers = itertools.count()
        # Folders of the models that the last call has exported.
        self.exported: list[str] = []

    @contextlib.contextmanager
    def _installed(self) -> Iterator[None]:
        with sharing_computations(_COMPUTATIONS), pytest.MonkeyPatch.context() as patch:
            patch.setattr(InProcess, "create_context", lambda _: _context())
            clock = types.SimpleNamespace(perf_counter=itertools.count().__next__)
            patch.setattr(simulation, "time", clock)
            # Pages hold pictures, if they begin like PNG files.
            picture = b"\x89PNG\r\n\x1a\n"
            patch.setattr(Figure, "savefig", lambda _, file, **__: file.write(picture))
            patch.setattr(exporter, "global_model", _Model)
            # The processes that are killed here are those of the tests, which go on.
            patch.setattr(files, "_may_be_written", lambda temporary: False)
            patch.setattr(exporter, "PersonalModels", _PersonalModels)
            patch.setattr(saved_model, "write", self._write_model)
            yield

    def _write_model(self, model: _Model, directory: Path, ranges: Any) -> None:
        del ranges
        self.exported.append(directory.parent.name)
        files.make_directory(directory / "variables")
        for name in ("saved_model.pb", "variables/variables.data"):
            with files.writing(directory), open(directory / name, "w") as file:
                file.write(model.content)

    def call(self, program: Program, directory: Path) -> Called:
        """Calls a program in a directory."""
        module = importlib.import_module(f"tff_pcdd.cli.{program.name}")
        flags = [
            flag.format(out=directory / program.out, run=directory / "run")
            for flag in program.flags
        ]
        errors, unraisable = io.StringIO(), []
        self.exported.clear()
        status: Any = 0
        with self._installed(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "unraisablehook", unraisable.append)
            # As in a process of its own, so that temporary files of earlier calls are not reused.
            number = os.getpid() + next(self._numbers)
            patch.setattr(os, "getpid", lambda: number)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                try:
                    module.run([program.name, *flags])
                except SystemExit as error:
                    status = error.code
        assert not unraisable, unraisable
        if not isinstance(status, int):
            # As Python does with what is no status.
            print(status, file=errors)
            status = 1
        return Called(status, errors.getvalue())

    def succeed(self, program: Program, directory: Path) -> None:
        """Calls a program that has to succeed."""
        called = self.call(program, directory)
        assert called.status == 0, called

    def start(self, program: Program) -> Path:
        """A directory in which the earlier programs were called; not to be written to."""
        directory = self._directory / f"start_{next(self._numbers)}"
        directory.mkdir()
        for earlier in program.earlier:
            self.succeed(earlier, directory)
        return directory

    def wanted(self, program: Program) -> Path:
        """A directory with the results of a program that nothing disturbed."""
        directory = self._directory / f"wanted_{next(self._numbers)}"
        shutil.copytree(self.start(program), directory)
        self.succeed(program, directory)
        return directory

    def prepare(self, program: Program, directory: Path) -> None:
        """Copies what the earlier programs have written."""
        shutil.copytree(self.start(program), directory, dirs_exist_ok=True)

    def check(self, program: Program, directory: Path) -> None:
        """Asserts that the results are those of a program that nothing disturbed."""
        assert_same_files(directory / program.out, self.wanted(program) / program.out)


def error_line(called: Called, *names: str) -> str:
    """Checks that a program failed with a single line, which contains `names`."""
    assert called.status in (1, 2), called
    lines = [line for line in called.errors.splitlines() if ": error: " in line]
    assert len(lines) == 1, called.errors
    assert "Traceback" not in called.errors, called.errors
    return one_line(lines[0], *names)


def assert_same_files(directory: Path, wanted: Path) -> None:
    """Asserts that two directories have the same results and nothing else, byte by byte."""
    found, expected = results(directory), results(wanted)
    if found.keys() != expected.keys():
        raise SilentDifference(f"files: {sorted(found.keys() ^ expected.keys())}")
    for name, own in found.items():
        if own != expected[name]:
            raise SilentDifference(f"{name}: {own!r}")


def results(directory: Path) -> dict[str, bytes]:
    """The contents of all files below a directory that do not depend on when they were written.

    So without those from which runs are resumed, and without the record of the calls.
    """
    return {
        path.relative_to(directory).as_posix(): content(path, directory)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.name not in (".lock", method_sweep.CALLS)
        and ({"checkpoints", "client_states"}.isdisjoint(path.parts) or path.suffix == ".tmp")
    }


def content(path: Path, directory: Path) -> bytes:
    """The content of a result, without the path of its directory or a digest of it.

    Pages have both in the commands that they show.
    """
    return _DIGEST.sub(b"", path.read_bytes().replace(bytes(directory), b"."))


class _Model:
    """Stands for a trained model; its content depends on the state of the simulation."""

    def __init__(self, simulation, client: int | None = None):
        digest = hashlib.sha256(f"{client}".encode())
        for leaf in tf.nest.flatten(simulation.state):
            digest.update(np.asarray(leaf).tobytes())
        self.content = digest.hexdigest()
        self.temperature = 1.0

    def check_weights(self) -> None:
        """All weights are finite."""

    def calibrate(self, test, held_out, batch_size: int) -> calibration.Calibration:
        """That of random answers, which depend on the content."""
        del held_out, batch_size
        rng = np.random.default_rng(int(self.content, 16))
        measured = calibration.reliability(rng.normal(size=[len(test), 10]), test.y)
        return calibration.Calibration(measured, measured, float("nan"), 0)


class _PersonalModels:
    def __init__(self, simulation, **_):
        self.model: Callable[[int], _Model] = functools.partial(_Model, simulation)
