"""How many runs of a study are computed at the same time, and what of this machine each may use."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import ClassVar

from tff_pcdd.errors import SettingError
from tff_pcdd.settings import check_options, option
from tff_pcdd.training import RunOptions

# The runtime that itself divides the clients of a round among processes.
RAY_RUNTIME = "ray"
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"


@dataclasses.dataclass(frozen=True)
class ParallelOptions:
    """How the runs of a study are computed at the same time, each in a process of its own.

    By default, the results are those of serial runs, bit for bit. With `run_cpus`, TensorFlow may
    have another number of threads, and then rounds differently.

    The runs at the same time have places from 0 to `parallel_runs` - 1. A run has the cores and
    GPUs of its place.

    Raises:
        SettingError: a value is out of bounds, or applies only with several runs at a time.
    """

    heading: ClassVar[str] = "Parallel runs"

    parallel_runs: int = option(
        1,
        "Number of runs to compute at the same time, in further processes on this machine; with 1, "
        "this process computes one run after the other. To use several machines, start the same "
        "command on each of them, with a common output_dir.",
        minimum=1,
    )
    run_cpus: float | None = option(
        None,
        "CPU cores of each run, and threads of TensorFlow's operations in it. By default, the "
        "cores of this machine are divided among the runs, and each run has as many threads as "
        "without parallel_runs, so results are the same, bit for bit.",
        type=float,
        above=0,
    )
    run_gpus: float | None = option(
        None,
        "GPUs of each run; with a fraction such as 0.5, several runs share a GPU. By default, the "
        "GPUs are divided among the runs, at most one for each run.",
        type=float,
        minimum=0,
    )

    def __post_init__(self):
        check_options(self)
        if self.parallel_runs == 1:
            for name in ("run_cpus", "run_gpus"):
                if getattr(self, name) is not None:
                    reason = "applies only with parallel_runs above 1"
                    raise SettingError(name, getattr(self, name), reason)
        if self.run_gpus is not None and self.run_gpus > 1 and self.run_gpus % 1:
            raise SettingError("run_gpus", self.run_gpus, "must be a fraction or a whole number")

    def check(self, options: RunOptions | None) -> None:
        """Checks that runs can be computed in this way, before anything else happens.

        Raises:
            SettingError: the runtime cannot be used, or this machine has too few CPU cores or GPUs.
        """
        if self.parallel_runs == 1:
            return
        if options is not None and options.compute.runtime.name == RAY_RUNTIME:
            reason = "cannot be combined with parallel_runs above 1; choose another runtime"
            raise SettingError("runtime", RAY_RUNTIME, reason)
        if self.run_cpus is not None:
            needed = self.run_cpus * self.parallel_runs
            self._check_available("run_cpus", needed, _cores(), "CPU cores")
        if self.run_gpus:
            needed = self.parallel_runs * self.run_gpus
            if self.run_gpus < 1:
                needed = self._gpu_of(self.parallel_runs - 1) + 1
            self._check_available("run_gpus", needed, len(_gpus()), "GPUs")

    def _check_available(self, setting: str, needed: float, available: int, what: str) -> None:
        if needed > available:
            reason = (
                f"{self.parallel_runs} runs at a time need {needed:g} {what}, and this machine has "
                f"{available}"
            )
            raise SettingError(setting, getattr(self, setting), reason)

    def cores(self, place: int) -> frozenset[int]:
        """The CPU cores to which the run at a place is bound.

        Returns:
            The cores; none if `run_cpus` is given, or there are more runs than cores.
        """
        cores, runs = sorted(os.sched_getaffinity(0)), self.parallel_runs
        if self.run_cpus is not None or runs > len(cores):
            return frozenset()
        return frozenset(cores[len(cores) * place // runs : len(cores) * (place + 1) // runs])

    def clients_at_a_time(self, place: int) -> int:
        """How many clients the run at a place trains at the same time, unless its settings say."""
        return len(self.cores(place)) or max(1, int(self.run_cpus or 0))

    def gpus(self, place: int) -> list[str] | None:
        """The GPUs that the run at a place sees; None if it sees those that this process sees."""
        found = _gpus()
        if self.run_gpus is None:
            return [found[place % len(found)]] if found else None
        if self.run_gpus >= 1:
            first = place * int(self.run_gpus)
            return found[first : first + int(self.run_gpus)]
        return [found[self._gpu_of(place)]] if self.run_gpus else []

    def _gpu_of(self, place: int) -> int:
        """The index of the GPU that the run at a place shares with others."""
        assert self.run_gpus is not None
        return place // math.floor(1 / self.run_gpus)

    def environment(self, place: int) -> dict[str, str]:
        """The environment variables of the process that computes the runs at a place."""
        variables = dict(os.environ)
        if (gpus := self.gpus(place)) is not None:
            variables[_VISIBLE_GPUS] = ",".join(gpus)
        # Several runs may share a GPU.
        variables.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        within, among = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
        if self.run_cpus is not None:
            threads = str(max(1, int(self.run_cpus)))
            # Operations at the same time would be threads beyond those that were asked for.
            variables |= {within: threads, among: threads}
        else:
            # As many as in this process, even if a run has fewer cores.
            threads = str(_cores())
            variables.setdefault(within, threads)
        # Of linear algebra outside of TensorFlow.
        variables.setdefault("OMP_NUM_THREADS", threads)
        return variables


def _cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _gpus() -> list[str]:
    """The GPUs that this process sees, as CUDA names them; found without TensorFlow."""
    visible = os.environ.get(_VISIBLE_GPUS)
    if visible is None:
        return [str(index) for index, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
    names = [name.strip() for name in visible.split(",")]
    return [name for name in names if name and not name.startswith("-")]
