"""The points of a sweep and their results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tff_pcdd.training import ExperimentConfig


class Point(NamedTuple):
    """A combination of settings that a sweep tries.

    Attributes:
        settings: the values of the grid's settings, as written on the command line.
        configs: the experiments with these settings, one for each seed.
        finals: what is run with these settings if they are chosen: experiments with other seeds.
    """

    settings: Mapping[str, str]
    configs: Sequence[ExperimentConfig]
    finals: Sequence[ExperimentConfig] = ()

    @property
    def name(self) -> str:
        return ",".join(f"{flag}={value}" for flag, value in self.settings.items())


class Outcome(NamedTuple):
    """The results of a point's runs.

    Attributes:
        point: its settings and experiments.
        validation: the accuracy on held-out samples in the best round of each finished run.
        rounds, ga, pa: the best rounds, and the test accuracies in them, if they were measured.
        seeds: the number of runs that were planned.
        diverged: the number of finished runs that diverged, and so have no best round.
    """

    point: Point
    validation: list[float]
    rounds: list[int]
    ga: list[float]
    pa: list[float]
    seeds: int
    diverged: int = 0

    @property
    def complete(self) -> bool:
        return len(self.validation) == self.seeds

    @property
    def score(self) -> float:
        return statistics.fmean(self.validation)


def choose(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The point with the best mean over seeds, or None; points with missing runs do not count."""
    complete = [outcome for outcome in outcomes if outcome.complete]
    return max(complete, key=lambda outcome: outcome.score, default=None)
