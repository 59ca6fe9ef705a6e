"""Computes the runs of a study one after the other, in the process of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_pcdd import heavy
from tff_pcdd.data import cache
from tff_pcdd.studies.run_process import Failure
from tff_pcdd.training import ExperimentConfig, RunOptions, planning, run_experiment

if TYPE_CHECKING:
    from tff_pcdd.studies.study import StudyRun


class ThisProcess:
    """Computes runs one after the other, with the methods of `RunProcesses`.

    As a context manager, this object keeps data sets in memory, because most runs of a study train
    on the same.
    """

    def __init__(self, options: RunOptions | None, *, overwrite: bool):
        self._options = options
        self._overwrite = overwrite
        self._next: tuple[int, StudyRun, str] | None = None

    def __enter__(self) -> ThisProcess:
        cache.keep()
        return self

    def __exit__(self, *exc_info: object) -> None:
        cache.forget()

    @property
    def busy(self) -> int:
        return int(self._next is not None)

    @property
    def free(self) -> bool:
        return self._next is None

    def check(self, configs: Sequence[ExperimentConfig]) -> None:
        if configs:
            heavy.load("tensorflow")
        planning.check_all(configs)

    def start(self, number: int, run: StudyRun, label: str) -> None:
        self._next = (number, run, label)

    def wait(self, seconds: float | None = None) -> tuple[int, Mapping[str, Any] | Failure] | None:
        assert self._next is not None
        (number, run, label), self._next = self._next, None
        try:
            return number, run_experiment(
                run.config,
                run.folder,
                self._options,
                overwrite=self._overwrite,
                label=label,
                **run.limits,
            )
        except Exception as error:
            return number, Failure.of(error)

    def count(self) -> None:
        """There is no display of all runs."""
