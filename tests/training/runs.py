"""What the tests of runs share: a small configuration, and how results are read and compared."""

import contextlib
import csv
import dataclasses
import functools
import json
import re
from typing import Any

import pytest
import tensorflow_federated as tff

from tff_pcdd.experiment import client_store, simulation
from tff_pcdd.federated import process
from tff_pcdd.runtime import RuntimeConfig
from tff_pcdd.training import ExperimentConfig, disk_store

# Convolutions, which take longer to trace, are in the runs of programs and of exports.
CONFIG = ExperimentConfig.from_settings(
    algorithm="fedgela",
    model="mlp",
    num_clients=5,
    clients_per_round=3,
    max_train_samples=100,
    max_test_samples=60,
    rounds=4,
    local_epochs=2,
    batch_size=8,
    client_learning_rate=0.05,
    personal_eval_every=1,
)


def rows(directory):
    """metrics.csv as dicts of strings."""
    with open(directory / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def metrics(directory, leave_out=("seconds",)):
    """metrics.csv, every character of it, without the columns of times."""
    header, *lines = (directory / "metrics.csv").read_text().splitlines()
    kept = [i for i, name in enumerate(header.split(",")) if name not in leave_out]
    return [[line.split(",")[i] for i in kept] for line in (header, *lines)]


def summary(directory, leave_out=("seconds_per_round",)):
    """summary.json without the times."""
    values = json.loads((directory / "summary.json").read_text())
    return {name: value for name, value in values.items() if name not in leave_out}


def assert_same_run(directory, other):
    """Asserts that two runs have the same results, and that no temporary file is left."""
    assert metrics(directory) == metrics(other)
    assert summary(directory) == summary(other)
    for name in ("clients.csv", "clients.md", "confusion.npz"):
        assert (directory / name).read_bytes() == (other / name).read_bytes(), name
    assert not list(directory.rglob("*.tmp"))


class _Kept(tff.framework.SyncContext):
    """A context that stays open when a run closes it."""

    def __init__(self, context):
        self._context = context

    def invoke(self, comp, arg):
        return self._context.invoke(comp, arg)


@dataclasses.dataclass(frozen=True)
class SharedRuntime(RuntimeConfig):
    """A runtime that all runs of the tests share: starting one for each run would take seconds."""

    context: Any

    name = "shared"

    def create_context(self):
        return _Kept(self.context)


_MOST_BUILT = 32


@contextlib.contextmanager
def sharing_computations(built):
    """Builds the computations of equal settings once: tracing takes most of a short run's time.

    Args:
        built: gets the computations; the oldest leave it, since each keeps its graphs in memory.
    """

    def once(build):
        @functools.wraps(build)
        def found(spec, *aggregator, **tensors):
            # A partial of the same arguments is equal in all but identity.
            key = re.sub(r" at 0x[0-9a-f]+", "", f"{build.__name__} {spec} {aggregator}")
            built[key] = built.pop(key, None) or build(spec, *aggregator, **tensors)
            while len(built) > _MOST_BUILT:
                del built[next(iter(built))]
            return built[key]

        return found

    with pytest.MonkeyPatch.context() as patch:
        # What is traced does not depend on the aggregator.
        for module, name in (
            (simulation.federated, "build_process"),
            (process, "build_tensor_computations"),
        ):
            patch.setattr(module, name, once(getattr(module, name)))
        yield


class StoppedError(Exception):
    """What interrupts a run in these tests."""


@contextlib.contextmanager
def stopped_in_round(number):
    """Expects a run to be interrupted after the first client of a round has returned its state."""
    with pytest.MonkeyPatch.context() as patch:
        for store in (client_store.MemoryStore, disk_store.DiskStore):

            def put(self, client, state, version, original=store.put, seen=[]):  # noqa: B006
                if version == number and len(seen) == 1:
                    raise StoppedError
                if version == number:
                    seen.append(client)
                original(self, client, state, version)

            patch.setattr(store, "put", put)
        with pytest.raises(StoppedError):
            yield
