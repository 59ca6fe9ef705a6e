"""Tuning: for each of several methods, the settings that are best on held-out samples.

Every method tries the points of its grid with successive halving. A point that is stopped after a
rung is a run of the planned number of rounds that has paused, so it can go on at any time, also if
its training depends on that number. No decision reads an accuracy on test data.

The methods are compared after their last round, so points are compared by the mean of the last
three evaluations up to a rung, not by a round that happened to be good.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.studies import study
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.studies.sweeps import Point, rank
from tff_pcdd.tables import grouped
from tff_pcdd.training.file_names import SWEEP_RUNS

# The settings whose best value depends on the number of rounds.
_RATES = ("client_learning_rate", "server_learning_rate")

# By what points are compared: the mean of their last evaluations, or as earlier versions did, their
# best round. A sweep that is repeated keeps what it began with.
LAST, BEST = "last", "best"
HOW_SCORED = {LAST: "mean of the last three evaluations", BEST: "in the best round"}
_EVALUATIONS = 3
# The column of sweep.csv that says which of them it was.
SCORE = "score"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A point of a method's grid, and how far it has come.

    Attributes:
        point: its settings and experiments.
        runs: the runs of its experiments, with their results so far.
        stopped: the round after which it was stopped; None if it was not.
        score: the accuracy on held-out samples, in %, averaged over its runs; None if a run has
            diverged by then or failed, -inf before the first measurement.
        scores: the scores after the rungs and the end, by the round; without those that are None or
            -inf.
        best_rounds: the rounds in which the runs reached their best accuracy, if that is the score.
        rounds: the rounds that its runs have trained, in total.
        scored_by: what the score of a run is: "last", `last_held_out`, or "best", `best_held_out`.
    """

    point: Point
    runs: Sequence[StudyRun]
    stopped: int | None = None
    score: float | None = -math.inf
    scores: Mapping[float, float] = dataclasses.field(default_factory=dict)
    best_rounds: Sequence[int] = ()
    rounds: int = 0
    scored_by: str = LAST

    @property
    def distance(self) -> tuple[int, float]:
        """How far its settings are from the defaults, by which equal scores are ranked."""
        # Sweeps that earlier versions began preferred the first of equal points.
        return self.point.distance() if self.scored_by == LAST else (0, 0.0)

    @property
    def failed(self) -> bool:
        return any(run.failure for run in self.runs)

    @property
    def diverged(self) -> bool:
        return any(run.diverged for run in self.runs)

    @property
    def active(self) -> bool:
        """Whether it has not been stopped."""
        return self.stopped is None

    def measured(self, criterion: str, until: int | None) -> Trial:
        """The trial with its score after the round `until`, or after the last round."""
        if self.failed:
            return dataclasses.replace(self, score=None)
        histories = [run.history() for run in self.runs]
        best = [best_held_out(history, criterion, until) for history in histories]
        values = [value for _, value in best]
        if self.scored_by == LAST:
            best, values = [], [last_held_out(history, criterion, until) for history in histories]
        # Of a sweep that is repeated, runs may have diverged later than in this round.
        diverged = any(
            run.diverged and (until is None or history[-1]["round"] <= until)
            for run, history in zip(self.runs, histories, strict=True)
        )
        score = None if diverged else statistics.fmean(values)
        scores = dict(self.scores)
        if score is not None and score != -math.inf:
            scores[until or self.point.configs[0].training.rounds] = score
        return dataclasses.replace(
            self,
            score=score,
            scores=scores,
            best_rounds=[number for number, _ in best],
            rounds=sum(
                _trained(run, history, until)
                for run, history in zip(self.runs, histories, strict=True)
            ),
        )


def _trained(run: StudyRun, history: History, until: int | None) -> int:
    """The rounds that a run has trained, at least until the round `until` if it has paused there.

    In runs of earlier versions, the round of a pause has no row if it was not evaluated.
    """
    recorded = history[-1]["round"] if len(history) else 0
    return recorded if until is None or run.summary is not None else max(recorded, until)


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The trials of a method.

    Attributes:
        method: its name.
        trials: in the order of the grid.
    """

    method: str
    trials: Sequence[Trial]

    @property
    def failed(self) -> bool:
        """Whether a run failed; then nothing is chosen until the run has been repeated."""
        return any(trial.failed for trial in self.trials)

    @property
    def scored_by(self) -> str:
        """What the scores are, as of `Trial`."""
        return self.trials[0].scored_by

    @property
    def scored(self) -> list[Trial]:
        """The trials with a score that were not stopped."""
        return [each for each in self.trials if each.active and known_score(each) is not None]

    @property
    def best(self) -> Trial | None:
        """The one of them with the best score; of equal ones the nearest to the defaults."""
        if self.failed:
            return None
        return min(self.scored, key=lambda trial: rank(trial.score, trial.distance), default=None)


def plan(
    points: Mapping[str, Sequence[Point]], directory: Path, scored_by: str = LAST
) -> list[Tuned]:
    """The trials of all methods, before their first round, in METHOD/SETTING=VALUE,…/seed_N."""

    def trial(method: str, point: Point) -> Trial:
        folder = directory / SWEEP_RUNS / method / (point.name or "default")
        runs = point.runs(folder, f"{method} {point.name}".strip())
        return Trial(point, runs, scored_by=scored_by)

    return [
        Tuned(method, [trial(method, point) for point in grid]) for method, grid in points.items()
    ]


def scored_by(rows: Iterable[Mapping[str, str]]) -> str:
    """By what the points of a sweep were compared, from the rows of sweep.csv.

    Example:
        >>> scored_by([{"score": "last"}]), scored_by([{"va": "50.0"}])
        ('last', 'best')
    """
    # Earlier versions did not record it.
    return LAST if all(row.get(SCORE) == LAST for row in rows) else BEST


def most_rounds(grid: Sequence[Point], criterion: str, halving: Halving) -> int:
    """The number of rounds that a method's trials train at most, in total."""
    planned = grid[0].configs[0].training.rounds
    rates = [learning_rates(point) for point in grid]
    # After how many rounds every trial has been measured, by settings alone: when personal models
    # are evaluated depends on the data. Until then no trial is stopped.
    every = max(config.evaluation.eval_every for point in grid for config in point.configs)
    measured = planned if criterion == "va_personal" else every
    before = total = 0
    for rung in (*halving.rounds(planned), planned):
        total += len(rates) * (rung - before)
        before = rung
        scores = [0.0 if measured <= rung else -math.inf] * len(rates)
        rates = [rates[index] for index in halving.kept(scores, rates)]
    return total * len(grid[0].configs)


def may_stop(grid: Sequence[Point], halving: Halving) -> bool:
    """Whether points of a method can be stopped although none diverges."""
    rates = [learning_rates(point) for point in grid]
    kept = halving.kept([0.0] * len(rates), rates)
    planned = grid[0].configs[0].training.rounds
    return bool(halving.rounds(planned)) and len(kept) < len(rates)


def learning_rates(point: Point) -> tuple[str, ...]:
    """The learning rates of the clients and of the server at a point, where the grid varies them.

    Example:
        >>> learning_rates(Point({"client_learning_rate": "0.01", "fedprox_mu": "1"}, []))
        ('0.01',)
    """
    return tuple(value for name, value in point.settings.items() if name in _RATES)


def tune(
    tuned: Sequence[Tuned],
    directory: Path,
    computer: study.Computer,
    *,
    criterion: str,
    halving: Halving,
    overwrite: bool,
    after_each: Callable[[Sequence[Tuned]], None],
) -> list[Tuned]:
    """Runs all trials, up to the rungs at which they are stopped.

    A method of which a run fails goes no further than that rung, because its choice would depend
    on what failed; the others go on.

    Args:
        tuned: what `plan` returns.
        directory: the directory of the sweep.
        computer, overwrite: as for `study.run_all`.
        criterion: the column of the history by which trials are compared.
        halving: when trials are stopped.
        after_each: called after each rung and at the end, with the results so far.
    """
    planned = tuned[0].trials[0].point.configs[0].training.rounds
    failed: list[StudyRun] = []
    for position, rung in enumerate([*halving.rounds(planned), None]):
        runs = [
            dataclasses.replace(run, pause_after=rung)
            for method in tuned
            if not method.failed
            for trial in method.trials
            if trial.active
            for run in trial.runs
        ]
        done = study.run_all(
            runs,
            directory,
            computer,
            # What was computed up to an earlier rung is of this call.
            overwrite=overwrite and position == 0,
            after_each=lambda _: None,
        )
        failed += [run for run in done if run.failure]
        results = {run.folder: run for run in done}
        tuned = [_after_rung(method, results, rung, criterion, halving) for method in tuned]
        after_each(tuned)
    # The last call has written only those of the last rung.
    study.write_failures(directory, failed)
    return list(tuned)


def _after_rung(
    method: Tuned,
    results: Mapping[Path, StudyRun],
    rung: int | None,
    criterion: str,
    halving: Halving,
) -> Tuned:
    """The trials of a method with their results up to a rung, and which of them stop there."""
    trials = [
        dataclasses.replace(
            trial, runs=[results.get(run.folder, run) for run in trial.runs]
        ).measured(criterion, rung)
        if trial.active and not method.failed
        else trial
        for trial in method.trials
    ]
    after = Tuned(method.method, trials)
    if rung is None or after.failed:
        return after
    active = [index for index, trial in enumerate(trials) if trial.active]
    scores = [trials[index].score for index in active]
    rates = [learning_rates(trials[index].point) for index in active]
    distances = [trials[index].distance for index in active]
    kept = {active[place] for place in halving.kept(scores, rates, distances)}
    for index in active:
        if index not in kept:
            trials[index] = dataclasses.replace(trials[index], stopped=rung)
    return Tuned(method.method, trials)


def known_score(trial: Trial) -> float | None:
    """The score of a trial; None if it was not measured."""
    return None if trial.score == -math.inf else trial.score


# Successive halving: settings that look hopeless on held-out samples are stopped early.
#
# Non-stochastic Best Arm Identification and Hyperparameter Optimization; K. Jamieson, A. Talwalkar;
# AISTATS 2016 (algorithm of section 3). All settings train up to the first rung; the best of them,
# one of `reduction`, train up to the second, and so on. Unlike in the paper, the rungs are shares
# of the planned rounds, and the best of the last rung train until the end. Small learning rates
# start slowly, also where they are the best in the end; therefore, only settings with the same
# learning rates compete, by default.

SAME_RATE, ALL = "same_rate", "all"
AMONG = (SAME_RATE, ALL)
# Why settings were stopped.
WHY_STOPPED = {
    SAME_RATE: "because others with the same learning rates had a higher VA",
    ALL: "because others had a higher VA",
}


@dataclasses.dataclass(frozen=True)
class Halving:
    """When settings are stopped.

    Attributes:
        rungs: shares of the planned rounds after which settings are stopped, in ascending order;
            without any, all settings train until the end.
        reduction: η; one of so many settings goes on after each rung.
        among: the settings of a method that compete: "same_rate", those with the same learning
            rates of clients and server, or "all".

    Raises:
        SettingError: a rung is not between 0 and 1, they do not ascend, η is not above 1, or
            `among` is something else.
    """

    rungs: Sequence[float] = (0.25, 0.5)
    reduction: float = 2.0
    among: str = SAME_RATE

    def __post_init__(self):
        ordered = all(low < high for low, high in itertools.pairwise((0, *self.rungs, 1)))
        if not ordered:
            shown = ",".join(f"{share:g}" for share in self.rungs)
            reason = "must be ascending shares of the rounds between 0 and 1, such as 0.25,0.5"
            raise SettingError("rungs", shown, reason)
        if not 1 < self.reduction < math.inf:
            raise SettingError("reduction", self.reduction, "must be a number greater than 1")
        if self.among not in AMONG:
            raise SettingError("halving", self.among, f"choose one of {', '.join(AMONG)}")

    def rounds(self, planned: int) -> list[int]:
        """The rounds after which settings are stopped, for a planned number of rounds.

        Example:
            >>> Halving().rounds(30), Halving().rounds(2)
            ([8, 15], [1])
        """
        rounds = {max(1, math.floor(share * planned + 0.5)) for share in self.rungs}
        return sorted(number for number in rounds if number < planned)

    def kept(
        self,
        scores: Sequence[float | None],
        rates: Sequence[tuple[str, ...]],
        distances: Sequence[tuple[int, float]] = (),
    ) -> list[int]:
        """The settings that go on after a rung.

        Args:
            scores: the accuracy of each setting on held-out samples; None if it has diverged.
                Settings with -inf have not been measured yet, so all of them go on.
            rates: the learning rates of each setting.
            distances: how far each setting is from the defaults; by default all are as far.

        Returns:
            Their indices, in ascending order. Of equal settings, those nearest to the defaults go
            on, and of these the first ones.
        """
        ranks = [
            rank(score, distance)
            for score, distance in zip(scores, distances or [(0, 0.0)] * len(scores), strict=True)
        ]
        competing = rates if self.among == SAME_RATE else [()] * len(rates)
        groups = grouped((own, index) for index, own in enumerate(competing))
        return sorted(
            index for group in groups.values() for index in self._best(group, scores, ranks)
        )

    def _best(
        self, group: Sequence[int], scores: Sequence[float | None], ranks: Sequence[Any]
    ) -> set[int]:
        """Those of a group of settings that go on."""
        usable = [index for index in group if scores[index] is not None]
        measured = [index for index in usable if scores[index] != -math.inf]
        number = math.ceil(len(group) / self.reduction)
        # Sorting is stable.
        ranked = sorted(measured, key=lambda index: ranks[index])
        return {*ranked[:number], *(i for i in usable if i not in measured)}


def best_held_out(history: History, criterion: str, until: int | None = None) -> tuple[int, float]:
    """The first round with the highest accuracy on held-out samples, and that accuracy in %.

    No accuracy on test data is read.

    Args:
        until: the last round that counts; by default all do.

    Returns:
        The round and the accuracy; 0 and -inf if it was not measured in these rounds.
    """
    best = 0, -math.inf
    for row in history:
        value = row.get(criterion)
        counts = (until is None or row["round"] <= until) and not is_lost(row)
        if counts and value is not None and value > best[1]:
            best = row["round"], value
    return best


def last_held_out(history: History, criterion: str, until: int | None = None) -> float:
    """The mean of the last three accuracies on held-out samples in %, of fewer if there are fewer.

    Arguments as for `best_held_out`; -inf if it was not measured in these rounds.
    """
    values = [
        value
        for row in history
        if (until is None or row["round"] <= until) and not is_lost(row)
        if (value := row.get(criterion)) is not None
    ]
    return statistics.fmean(values[-_EVALUATIONS:]) if values else -math.inf
