"""Finished runs and their exported models."""

import functools

import pytest

from tests.training.runs import sharing_computations
from tff_pcdd import export, runtime
from tff_pcdd.training import ComputeOptions, ExperimentConfig, RunOptions, run_experiment

# One with a plain head, one whose clients adapt the head, one whose clients keep their own heads.
METHODS = ("fedmr", "fedgela", "fedloge")
# Those whose models are all exported. The others are, in part, in test_exporter.
EXPORTED = METHODS[1:]
# Those that are exported in all formats, the second one in `make test-all` only: converting takes
# most of an export's time.
CONVERTED = EXPORTED
_ALL = export.ExportOptions(format="saved_model,tflite,keras")


def train(directory, options, algorithm, **settings):
    """Trains for a few seconds; returns the settings of the run."""
    few = {"num_clients": 3, "classes_per_client": 4, "rounds": 2, "local_epochs": 2}
    config = ExperimentConfig.from_settings(algorithm=algorithm, **few | settings)
    run_experiment(config, directory, options)
    return config


@pytest.fixture(scope="session")
def options(simulation):
    """Runs and exports use the runtime of the tests."""
    settings = {"ray_actors": 2} if simulation.name == "ray" else {}
    compute = ComputeOptions(runtime=runtime.create(simulation.name, **settings))
    return RunOptions(compute=compute, progress=False, tensorboard=False)


@pytest.fixture(scope="module", autouse=True)
def shared(shared_computations):
    """Training and exports share computations."""


@pytest.fixture(scope="session")
def runs(options, _built, tmp_path_factory):
    """Directories of finished runs, by method."""
    root = tmp_path_factory.mktemp("runs")
    with sharing_computations(_built):
        for algorithm in METHODS:
            # Convolutions are exported once.
            backbone = {} if algorithm == "fedgela" else {"model": "mlp"}
            train(root / algorithm, options, algorithm, **backbone)
    return {algorithm: root / algorithm for algorithm in METHODS}


@pytest.fixture(scope="session")
def exported(runs, options, _built, tmp_path_factory):
    """Directories of the exported runs by method."""
    root = tmp_path_factory.mktemp("exported")
    with sharing_computations(_built):
        for algorithm in EXPORTED:
            formats = _ALL if algorithm == CONVERTED[0] else export.ExportOptions()
            export.export_run(runs[algorithm], root / algorithm, formats, options)
    return {algorithm: root / algorithm for algorithm in EXPORTED}


@pytest.fixture(scope="session")
def converted(runs, exported, options, _built, tmp_path_factory):
    """A function of a method of `CONVERTED`: the directory of its models in all formats."""

    @functools.cache
    def converted(algorithm):
        if algorithm == CONVERTED[0]:
            return exported[algorithm]
        directory = tmp_path_factory.mktemp("converted") / algorithm
        with sharing_computations(_built):
            export.export_run(runs[algorithm], directory, _ALL, options)
        return directory

    return converted
