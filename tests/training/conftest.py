"""Fixtures of runs: a shared runtime, and a run that nothing disturbed."""

import dataclasses

import pytest


@pytest.fixture(scope="session")
def compute(simulation):
    """Computes on the runtime of the tests."""
    from tests.training.runs import SharedRuntime
    from tff_pcdd.training import ComputeOptions

    return ComputeOptions(runtime=SharedRuntime(simulation.context))


@pytest.fixture(scope="session")
def options(compute):
    """Writes only what results need."""
    from tff_pcdd.training import RunOptions

    return RunOptions(compute=compute, progress=False, tensorboard=False)


@pytest.fixture(scope="session")
def unbroken(options, _built, tmp_path_factory):
    """A run of four rounds that nothing disturbed; not to be written to."""
    from tests.training.runs import CONFIG, sharing_computations
    from tff_pcdd.training import run_experiment

    directory = tmp_path_factory.mktemp("runs") / "unbroken"
    with sharing_computations(_built):
        run_experiment(CONFIG, directory, dataclasses.replace(options, tensorboard=True))
    return directory
