"""Programs called as a user does: in processes of their own, or quickly in this one."""

import contextlib
import importlib
import logging
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from absl import logging as absl_logging

from tests import preloaded
from tff_pcdd.cli.flags import Flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The environment variable that the fixture `simulation` reads too.
RUNTIME = os.environ.get("TFF_PCDD_TEST_RUNTIME", "inprocess")

TIMEOUT = 300


@pytest.fixture(scope="session")
def start():
    """Starts `python -m tasks.NAME FLAG…`; flags that name no runtime get that of the tests.

    Most of these processes have imported everything before they start; those whose Python has
    options have not, nor have those of test_outputs and test_working_directory.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    # JAX, which TFF imports, lowers it in the test's own process; a shell does not have it.
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)

    def start(name, *flags, python=(), cwd=ROOT):
        # These two have no such flag.
        given = name in ("benchmark", "partition") or any("--runtime" in flag for flag in flags)
        runtime = [] if given else [RUNTIME]
        command = [f"tasks.{name}", *map(str, flags), *(f"--runtime={name}" for name in runtime)]
        if python or name == "partition":
            start_process, command = subprocess.Popen, [sys.executable, *python, "-m", *command]
        else:
            start_process = preloaded.Process
        return start_process(
            command,
            cwd=cwd,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def call(start):
    """Runs a program to its end: (exit status, standard output, standard error)."""

    def call(*arguments, **options):
        with start(*arguments, **options) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT)
            finally:
                process.kill()
        return process.returncode, out, err

    return call


@pytest.fixture(scope="session")
def succeed(call):
    """As `call`, for a program that has to succeed: its standard output."""

    def succeed(*arguments, **options):
        status, out, err = call(*arguments, **options)
        assert status == 0, err
        assert "Traceback" not in err
        return out

    return succeed


def parsed(program, *arguments):
    """The flags of a module such as `tff_pcdd.cli.train`, with these arguments."""
    flags = Flags(["program", *arguments])
    program.define(flags)
    flags.parse()
    return flags


@pytest.fixture
def call_here(capsys):
    """As `call`, in this process, which takes milliseconds.

    For commands that are refused or only described: TFF's default context is not touched.
    """

    def call_here(name, *flags):
        program = importlib.import_module(f"tasks.{name}")
        capsys.readouterr()
        with _process_left_as_it_was():
            try:
                program.run([name, *map(str, flags)])
                status = 0
            except SystemExit as end:
                status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return call_here


@pytest.fixture(scope="module")
def trained_here(shared_computations, simulation, tmp_path_factory):
    """Trains and exports a run in this process: a directory with the folders `run` and `out`.

    For tests of what is done with them; the programs are tested in test_export, for instance.
    """
    from tests.training.runs import SharedRuntime
    from tff_pcdd import export, training

    compute = training.ComputeOptions(runtime=SharedRuntime(simulation.context))
    options = training.RunOptions(compute, predictions=True, progress=False, tensorboard=False)

    def trained_here(dataset, **settings):
        root = tmp_path_factory.mktemp(dataset)
        few = {"algorithm": "fedavg", "model": "mlp", "rounds": 2, "local_epochs": 2}
        config = training.ExperimentConfig.from_settings(dataset=dataset, **few | settings)
        training.run_experiment(config, root / "run", options)
        export.export_run(root / "run", root / "out", run_options=options)
        return root

    return trained_here


@contextlib.contextmanager
def _process_left_as_it_was():
    """Restores what a program sets up for its process: signals, logging and the module path."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    path, log_handlers = sys.path[:], logging.root.handlers[:]
    verbosity = absl_logging.get_verbosity()
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sys.path[:], logging.root.handlers[:] = path, log_handlers
        absl_logging.set_verbosity(verbosity)
