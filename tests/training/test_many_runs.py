"""Runs in one process leave no threads, descriptors, functions or memory behind."""

import ctypes
import gc
import os
import pathlib
import threading

import pytest
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from tests import support
from tests.training.runs import CONFIG
from tff_pcdd import runtime
from tff_pcdd.runtime import _interpreter
from tff_pcdd.training import RunOptions, run_experiment


def left():
    """What grows if something is left behind; memory in MB."""
    # A number of them are kept for the next run.
    _interpreter._recent.clear()
    gc.collect()
    # What is free in the process, of these runs or of other tests, is no leak.
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "functions": len(context.context().list_function_names()),
        "gradients": len(ops.gradient_registry.list()),
        "memory": resident * os.sysconf("SC_PAGE_SIZE") / 1e6,
    }


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "algorithm"),
    support.rare_but([(3, "fedmr")], [(3, "fedmr"), (40, "fedmr"), (40, "fedgela")]),
)
def test_runs_leave_nothing_behind(number, algorithm, tmp_path):
    """The graphs of each run differ by a constant; those of FedMR have custom gradients."""
    options = RunOptions(progress=False)
    before = {}
    for run in range(number):
        if run == number // 2:
            before = left()
        config = CONFIG.with_settings(rounds=1, algorithm=algorithm, batch_size=8 + run)
        run_experiment(config, tmp_path / str(run), options)
    after = left()
    grown = {name: after[name] - before[name] for name in after}
    assert grown.pop("memory") < 10 * (number - number // 2), grown
    assert grown == dict.fromkeys(grown, 0)


@pytest.mark.parametrize("name", ["inprocess", "tff"])
def test_a_closed_context_has_no_threads(name):
    """Nor after a failure; TFF's own contexts keep a thread with an event loop for ever."""
    from tests.runtime import toy_rounds

    options = {"insecure": True} if name == "tff" else {}
    counts = []
    for _ in range(8):
        made = runtime.create(name, **options).create_context()
        with runtime.installed(made):
            toy_rounds.initialize()
        made.close()
        counts.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
    assert counts[1][0] == counts[-1][0]
    # gRPC closes its own descriptors later.
    assert counts[-1][1] - counts[1][1] < 5
