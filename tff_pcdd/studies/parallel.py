"""How many runs of a study are computed at the same time, and where."""

from __future__ import annotations

import dataclasses
import math
import os

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.ray import cluster
from tff_pcdd.settings import check_options, option
from tff_pcdd.training import RunOptions

# The runtime that itself divides the clients of a round among Ray processes.
RAY_RUNTIME = "ray"
# Prefixes of environment variables that locate experiment trackers and the user's secret.
_PASSED_ON = ("MLFLOW_", "WANDB_", "XDG_STATE_HOME")


@dataclasses.dataclass(frozen=True)
class ParallelOptions:
    """How the runs of a study are computed at the same time.

    Every run is computed in a process that Ray starts where the CPU cores and GPUs that the run
    needs are free. By default, the results are those of serial runs, bit for bit. With `run_cpus`
    or `ray_address`, TensorFlow may have another number of threads, and then rounds differently.

    Raises:
        SettingError: a value is out of bounds, or applies only with several runs at a time.
    """

    parallel_runs: int = option(
        1,
        "Number of runs to compute at the same time, in processes that Ray starts; with 1, this "
        "process computes one run after the other, without Ray. More than 1 needs the extra `ray`.",
        minimum=1,
        group="Parallel runs",
    )
    run_cpus: float | None = option(
        None,
        "CPU cores of each run, and threads of TensorFlow's operations in it. By default, the "
        "cores of this machine are divided among the runs, and each run has as many threads as "
        "without Ray, so results are the same, bit for bit. With ray_address, the default is 1.",
        type=float,
        above=0,
        group="Parallel runs",
    )
    run_gpus: float | None = option(
        None,
        "GPUs of each run; with a fraction such as 0.5, several runs share a GPU. By default, the "
        "GPUs are divided among the runs, at most one for each run.",
        type=float,
        minimum=0,
        group="Parallel runs",
    )
    ray_address: str | None = option(
        None,
        "Address of the Ray cluster that computes the runs, such as 10.0.0.1:6379, or auto for the "
        "one that runs on this machine; by default, Ray is started on this machine. All nodes must "
        "reach output_dir, the data and the working directory under the same paths. With "
        "runtime=ray and parallel_runs=1, the cluster on which the actors run.",
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
            cluster.check_address(self.ray_address)

    def check(self, options: RunOptions | None) -> None:
        """Checks that runs can be computed in this way, before anything else happens.

        Raises:
            SettingError: Ray is not installed, the runtime cannot be used, or this machine has too
                few CPU cores.
        """
        if self.parallel_runs == 1:
            return
        if options is not None and options.compute.runtime.name == RAY_RUNTIME:
            reason = "cannot be combined with parallel_runs above 1; choose another runtime"
            raise SettingError("runtime", RAY_RUNTIME, reason)
        cluster.check_installed("parallel_runs", self.parallel_runs)
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
        """The CPU cores of this machine to which a run is bound.

        Args:
            place: index of the run among those at the same time, from 0.

        Returns:
            The cores; none if the runs are on a cluster, `run_cpus` is given, or there are more
            runs than cores.
        """
        cores, runs = sorted(os.sched_getaffinity(0)), self.parallel_runs
        if self.ray_address is not None or self.run_cpus is not None or runs > len(cores):
            return frozenset()
        return frozenset(cores[len(cores) * place // runs : len(cores) * (place + 1) // runs])

    def gpus(self, available: float) -> float:
        """The GPUs that are reserved for a run.

        Args:
            available: the number of GPUs of the cluster.

        Raises:
            SettingError: the runs are on this machine, which has too few GPUs.
        """
        if self.run_gpus is None:
            return min(1.0, _rounded_down(available / self.parallel_runs))
        if self.ray_address is None:
            check_available("run_gpus", self.run_gpus, self.parallel_runs, available, "GPUs")
        return self.run_gpus

    def cluster_environment(self) -> dict[str, str]:
        """Environment variables of a cluster that is started on this machine for the runs."""
        if self.run_cpus is not None:
            return {}
        # Otherwise, Ray limits the number of threads in linear algebra, which changes rounding.
        return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(_cores()))}

    def environment(self) -> dict[str, str | None]:
        """Environment variables of the runs' processes; None removes one."""
        found: dict[str, str | None] = {
            name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)
        }
        if self.run_gpus == 0:
            # Ray hides GPUs only from those who want some of them.
            found["CUDA_VISIBLE_DEVICES"] = ""
        # Several runs may share a GPU.
        name = "TF_FORCE_GPU_ALLOW_GROWTH"
        found[name] = os.environ.get(name, "true")
        within, among = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
        if self.run_cpus is not None or self.ray_address is not None:
            # Operations at the same time would be threads beyond those that were asked for.
            found[within] = found[among] = str(max(1, int(self.cpus())))
        else:
            # As many as in this process, even if a run has fewer cores.
            found[within] = os.environ.get(within, str(_cores()))
        return found


def check_available(setting: str, needed: float, runs: int, available: float, what: str) -> None:
    """Checks that this machine has enough cores or GPUs for several runs at the same time.

    Raises:
        SettingError: it has too few.
    """
    if needed * runs > available:
        reason = (
            f"{runs} runs at a time need {needed * runs:g} {what}, and this machine has "
            f"{available:g}"
        )
        raise SettingError(setting, needed, reason)


def _rounded_down(share: float) -> float:
    """Rounds a share down to Ray's precision, so that all shares fit together."""
    return math.floor(share * 10_000) / 10_000


def _cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))
