"""Fixtures that every test may use."""

import ctypes
import gc
import logging
import os
import pathlib
import signal
import sys

import numpy as np
import pytest

import tff_pcdd  # noqa: F401  (before modules of the tests import TFF)
from tff_pcdd.cli import messages

# A shell starts jobs in its background with SIGINT ignored, which every process here would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads share two of the C library's heaps (M_ARENA_MAX). With its default of eight per core, each
# keeps parts of what it had, and a process with many tests grows by another 0.3 GB.
ctypes.CDLL(None).mallopt(-8, 2)

# After an error in a loop that runs op by op, TensorFlow says that the loop's arrays were not used,
# perhaps not before another test reads what a program writes.
logging.getLogger("tensorflow").addFilter(messages.may_concern_users)

_ROOT = pathlib.Path(__file__).resolve().parents[1]


# The tests of these folders share runs, traced computations and a model server.
_SHARING = ("tests/export/", "tests/training/")
# These take hundreds of MB, some of which stays. They run in the processes of three groups with
# many tests, which come first, while processes are small.
_LARGE_TESTS = {
    "tests/federated/test_compilation.py": "tests/cli/test_flagfiles.py",
    "tests/models/": "tests/methods/test_contract.py",
    "tests/faults/": "tests/training/",
    "tests/publication/test_calibrations.py": "tests/training/",
}
# Tests of these folders compare what a graph computes with a formula or with another graph of this
# process. In bfloat16, optimized graphs round otherwise.
_UNOPTIMIZED = (
    "tests/diagnostics/",
    "tests/federated/",
    "tests/layers/",
    "tests/losses/",
    "tests/methods/",
    "tests/training/",
)
# Tests with these fixtures start processes, or train for longer than a few seconds.
_LONG_FIXTURES = {"ray_here", "start", "call", "succeed", "runs", "exported"}
# With this one, all sections of the benchmark run.
_RARE_FIXTURE = "quick_run"


def pytest_addoption(parser):
    """Adds the choice of combinations for test_matrix."""
    parser.addoption(
        "--matrix",
        choices=("short", "pairs", "all"),
        default="short",
        help="which combinations of tests/matrix to train",
    )
    parser.addoption(
        "--gpu-stand-in",
        action="store_true",
        help="run the tests marked gpu on a second logical CPU device in the place of a GPU",
    )


def pytest_configure(config):
    """Makes the device that stands in for a GPU, before TensorFlow's first operation."""
    if config.getoption("gpu_stand_in"):
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)


def pytest_collection_modifyitems(items):
    """Marks tests whose fixtures take long."""
    for item in items:
        # Not parameters of the same name.
        fixtures = set(item.fixturenames) - set(item.callspec.params if "[" in item.name else ())
        if _LONG_FIXTURES & fixtures:
            item.add_marker(pytest.mark.integration)
        if _RARE_FIXTURE in fixtures:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.rare)


@pytest.hookimpl(optionalhook=True)  # xdist may be switched off
def pytest_xdist_make_scheduler(config, log):
    """With `--dist=loadfile`, tests that share something run in one process, which makes it."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            for large, beside in _LARGE_TESTS.items():
                if file.startswith(large):
                    return beside
            return next((folder for folder in _SHARING if file.startswith(folder)), file)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection():
    """Imports of TensorFlow and of the tests leave no garbage that would be worth a search."""
    gc.disable()


def pytest_collection_finish(session):
    """Searches for garbage rarely, and not among the half a million objects of imported modules."""
    gc.enable()
    gc.collect()
    gc.freeze()
    # Traced graphs are many small objects, and few are garbage: by default, a fifteenth of the time
    # of tests that trace goes into looking at them.
    gc.set_threshold(50_000)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory):
    """Keeps the secret with which runs are signed out of the user's own directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_keeps_running():
    """Ends the processes that tests share; pytest-xdist may kill this one before it ends them."""
    from benchmarks.processes import ended_afterwards

    with ended_afterwards():
        yield


@pytest.fixture(scope="module", autouse=True)
def unoptimized(request):
    """TensorFlow does not optimize the graphs of some tests, which run each of them a few times.

    Optimization takes half of the time of a first round. Tests of programs, exports and runtimes
    run the graphs that users run.
    """
    if not request.node.nodeid.startswith(_UNOPTIMIZED):
        yield
        return
    import tensorflow as tf

    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False} | before)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Gives memory back to the system after tests that left much of it unused.

    Traced graphs are freed by the garbage collector alone, TensorFlow keeps the kernels of every
    operation that ran outside of a graph, and the C library keeps what is freed.
    """
    global _kept
    if _resident_megabytes() - _kept > 100:
        if _resident_megabytes() > _LARGE:
            _forget()
        gc.collect()
        if "tensorflow" in sys.modules:
            from tensorflow.python.eager import context

            context.context().clear_kernel_cache()
        ctypes.CDLL(None).malloc_trim(0)
        _kept = _resident_megabytes()


# After the last time that memory was given back.
_kept = 0.0
# From so many MB on, traced computations that tests share are dropped and made again when needed.
_LARGE = 1800


def _forget():
    _BUILT.clear()
    if support := sys.modules.get("tests.support"):
        support._traced.cache_clear()
    if diverged := sys.modules.get("tests.faults.diverged"):
        diverged._built.clear()
    if interpreter := sys.modules.get("tff_pcdd.runtime._interpreter"):
        interpreter._recent.clear()


def _resident_megabytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.fixture
def undrawn(request, monkeypatch):
    """Pictures of studies are empty files: drawing takes most of the time if nothing is trained.

    A test with the mark `draws` draws them.
    """
    from tff_pcdd import files
    from tff_pcdd.training import plots

    def save(figure, path):
        files.make_directory(path.parent)
        files.write_text(path, "")

    if request.node.get_closest_marker("draws") is None:
        monkeypatch.setattr(plots, "save", save)


@pytest.fixture
def golden():
    """Loads a golden file by name: `golden("fedgela")` is a mapping of names to arrays.

    The files are looked up in `$TFF_PCDD_SHARED`, else in `../shared/golden` beside the checkout.
    Without them the test is skipped: the same quantities are also checked against NumPy.
    """
    folder = pathlib.Path(os.environ.get("TFF_PCDD_SHARED") or _ROOT.parent / "shared" / "golden")

    def load(name: str):
        for path in (folder / f"{name}.npz", folder / "golden" / f"{name}.npz"):
            if path.is_file():
                with np.load(path) as arrays:
                    return dict(arrays)
        pytest.skip(f"golden file {name}.npz is not in {folder}")

    return load


@pytest.fixture
def op_by_op():
    """Functions run op by op, which takes less time than tracing them for a single call."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def simulation(request):
    """Puts the runtime in force that `$TFF_PCDD_TEST_RUNTIME` names, else the default one."""
    from tff_pcdd import runtime

    name = os.environ.get("TFF_PCDD_TEST_RUNTIME", "inprocess")
    options = {"tff": {"insecure": True}, "ray": {"ray_actors": 2}}.get(name, {})
    if name == "ray":
        request.getfixturevalue("ray_here")
    # As a block, which stays in force when a test uses another runtime in between.
    used = runtime.use(name, **options)
    with used, pytest.MonkeyPatch.context() as patch:
        # Those of methods that were tested would stay in memory.
        patch.setattr("tff_pcdd.runtime._computations._COMPUTATIONS_KEPT", 8)
        yield used


_BUILT = {}


@pytest.fixture(scope="session")
def _built():
    return _BUILT


@pytest.fixture(scope="module")
def shared_computations(_built):
    """Shares computations between the runs of these tests; see `sharing_computations`.

    Runs in processes of their own, with all that belongs to them, are tested in tests/cli.
    """
    from tests.training.runs import sharing_computations

    with sharing_computations(_built):
        yield


@pytest.fixture(scope="module")
def ray_here():
    """Ray on this machine, with room for eight actors of one core each.

    Not for the whole session, because some modules start a cluster as programs do.
    """
    pytest.importorskip("ray")
    from tff_pcdd.runtime.ray import cluster

    cluster.connect(None, num_cpus=8)
    yield
    # Tests lose actors on purpose, and nobody reads their logs.
    cluster._keeps_logs = False
    cluster.release()


@pytest.fixture(scope="module")
def ray_actors(ray_here):
    """A context of the runtime `ray` with two actors.

    They have as many threads as this process: the rounding of TensorFlow's sums depends on that.
    """
    from tff_pcdd import runtime

    threads = min(4, len(os.sched_getaffinity(0)))
    settings = {"ray_actors": 2, "ray_cpus": threads, "ray_timeout": 30.0}
    context = runtime.create("ray", **settings).create_context()
    yield context
    context.close()
