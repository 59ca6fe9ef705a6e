"""How many runs of a study are computed at the same time, and where."""

from __future__ import annotations

import dataclasses
import math
import os

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import ray_cluster
from tff_pcdd.settings import check_options, option
from tff_pcdd.training import RunOptions

# Runtimes that share the clients of a round among processes of Ray themselves.
RAY_RUNTIME = "ray"


@dataclasses.dataclass(frozen=True)
class ParallelOptions:
    """How the runs of a study are computed at the same time; nothing here changes their results.

    Every run is computed in a process that Ray starts. Ray places a run where the CPU cores and
    GPUs that it needs are free.

    Raises:
        SettingError: a value is out of bounds, or applies only with several runs at a time.
    """

    parallel_runs: int = option(
        1,
        "Runs that are computed at the same time, in processes that Ray starts; with 1, this "
        "process computes one run after the other, without Ray. Needs the extra `ray`.",
        minimum=1,
        group="Parallel runs",
    )
    run_cpus: float | None = option(
        None,
        "CPU cores that a run needs, and the threads of TensorFlow's operations in it. By default, "
        "the runs share the cores of this machine, and each has as many threads as a run on its "
        "own, so that its results are the same, bit for bit. With ray_address, the default is 1.",
        type=float,
        above=0,
        group="Parallel runs",
    )
    run_gpus: float | None = option(
        None,
        "GPUs that a run needs; a fraction such as 0.5 lets runs share a GPU. By default, the runs "
        "share the GPUs that there are, at most one for each run.",
        type=float,
        minimum=0,
        group="Parallel runs",
    )
    ray_address: str | None = option(
        None,
        "Address of a running Ray cluster that computes the runs, such as 10.0.0.1:6379, or auto "
        "for the one of this machine; by default, Ray is started on this machine. All nodes have "
        "to reach output_dir, the data and the working directory under the same paths. With "
        "runtime=ray and one run at a time: the cluster of its actors.",
        type=str,
        group="Parallel runs",
    )

    def __post_init__(self):
        check_options(self)
        if self.parallel_runs == 1:
            for name in ("run_cpus", "run_gpus", "ray_address"):
                if getattr(self, name) is not None:
                    reason = "applies only with parallel_runs above 1"
                    raise SettingError(name, getattr(self, name), reason)
        if self.ray_address is not None:
            ray_cluster.check_address(self.ray_address)

    def check(self, options: RunOptions | None) -> None:
        """Checks, before anything else happens, that runs can be computed in this way.

        Raises:
            SettingError: Ray is not installed, the runtime cannot be used, or this machine has too
                few CPU cores.
        """
        if self.parallel_runs == 1:
            return
        if options is not None and options.compute.runtime.name == RAY_RUNTIME:
            reason = "cannot be combined with parallel_runs above 1; choose another runtime"
            raise SettingError("runtime", RAY_RUNTIME, reason)
        ray_cluster.check_installed("parallel_runs", self.parallel_runs)
        if self.ray_address is None and self.run_cpus is not None:
            check_available("run_cpus", self.run_cpus, self.parallel_runs, _cores(), "CPU cores")

    def cpus(self) -> float:
        """The CPU cores that are reserved for a run."""
        if self.run_cpus is not None:
            return self.run_cpus
        if self.ray_address is not None:
            return 1.0
        share = _cores() / self.parallel_runs
        return float(math.floor(share)) if share > 1 else _rounded_down(share)

    def cores(self, place: int) -> frozenset[int]:
        """The CPU cores of this machine that are a run's own.

        Args:
            place: which of the runs at the same time, from 0.

        Returns:
            No cores if the runs are elsewhere, have `run_cpus`, or are more than the cores.
        """
        cores, runs = sorted(os.sched_getaffinity(0)), self.parallel_runs
        if self.ray_address is not None or self.run_cpus is not None or runs > len(cores):
            return frozenset()
        return frozenset(cores[len(cores) * place // runs : len(cores) * (place + 1) // runs])

    def gpus(self, available: float) -> float:
        """The GPUs that are reserved for a run.

        Args:
            available: the GPUs of the cluster.

        Raises:
            SettingError: a GPU is needed on this machine, which has too few.
        """
        if self.run_gpus is None:
            return min(1.0, _rounded_down(available / self.parallel_runs))
        if self.ray_address is None:
            check_available("run_gpus", self.run_gpus, self.parallel_runs, available, "GPUs")
        return self.run_gpus


def check_available(setting: str, needed: float, runs: int, available: float, what: str) -> None:
    """Checks that this machine has what several runs need at the same time.

    Raises:
        SettingError: it has less.
    """
    if needed * runs > available:
        reason = (
            f"{runs} runs at a time need {needed * runs:g} {what}, and this machine has "
            f"{available:g}"
        )
        raise SettingError(setting, needed, reason)


def _rounded_down(share: float) -> float:
    """A share as Ray counts it, so that all shares together are not more than there is."""
    return math.floor(share * 10_000) / 10_000


def _cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))
