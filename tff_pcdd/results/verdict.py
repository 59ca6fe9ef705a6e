"""The verdict of a comparison: the best methods, those that are behind, and what is recommended.

`tff_pcdd.results.wording` says it in sentences.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tff_pcdd import findings, tables
from tff_pcdd.results import by_client, client_gains, federating
from tff_pcdd.results.by_client import ClientResult, of_method, paired
from tff_pcdd.results.client_gains import ClientGains
from tff_pcdd.results.federating import Federating
from tff_pcdd.results.gains import BySeed, Gain, gain_over, is_ahead, units
from tff_pcdd.results.method_traits import federated, has_global_model, is_baseline
from tff_pcdd.results.run_results import ALONE, Results
from tff_pcdd.tables import BASELINE

# What is compared, and what the best is set beside.
POOLED = "central"
_COMPARED = {"ga_final": (BASELINE, POOLED), "pa_final": (BASELINE, ALONE, POOLED)}


class FromFew(NamedTuple):
    """Clients with few test samples, from which the gain over another method comes.

    Attributes:
        other: the other method.
        gains: the gains at those of them that gain, in points, by client.
        samples: the numbers of test samples of all clients.
        rest: the mean gain of the clients with enough test samples.
    """

    other: str
    gains: Mapping[str, float]
    samples: Mapping[str, int]
    rest: float


@dataclasses.dataclass(frozen=True)
class Choice:
    """The best method by one accuracy.

    Attributes:
        key: the accuracy, a key of summary.json.
        best: the method with the highest mean; of several the first.
        equal: the other methods with the same mean, which are among `tied`.
        values: its values by unit.
        over: its gain over FedAvg and over the baselines, by method.
        surest: the method to take if FedAvg is behind: of those that may be the best, the one with
            the highest mean that is ahead of FedAvg for certain; `best` if there is none.
        tied: the other methods that may be the best, as none is ahead of them for certain.
        behind: the methods that some other is ahead of for certain.
        left_out: the methods that lack runs, or of which a run has diverged.
        units: what the units are, seeds or partitions.
        more_seeds: the flag that adds seeds up to `findings.FEW_SEEDS`.
        sample: the points that one test sample changes; 0 if unknown.
        too_easy: whether all that cannot be told apart are right for all test samples but one.
        from_few: the clients with few test samples from which its gain comes; None for none.
    """

    key: str
    best: str
    equal: Sequence[str] = ()
    values: Sequence[float] = ()
    over: Mapping[str, Gain] = dataclasses.field(default_factory=dict)
    surest: str = ""
    tied: Sequence[str] = ()
    behind: Sequence[str] = ()
    left_out: Sequence[str] = ()
    units: str = "seed"
    more_seeds: str = ""
    sample: float = 0.0
    too_easy: bool = False
    from_few: FromFew | None = None

    @property
    def is_open(self) -> bool:
        """Whether FedAvg is among the best: it is the simplest, and no reason is known to leave it.

        Example:
            >>> Choice("ga_final", "ccvr", tied=["fedavg"]).is_open
            True
        """
        return bool(self.tied) and BASELINE in (self.best, *self.tied)

    @property
    def recommended(self) -> str:
        """The method to take."""
        return BASELINE if self.is_open else self.surest

    @property
    def lacks_seeds(self) -> bool:
        """Whether more seeds may tell methods apart: with few, even large differences may not."""
        few = len(self.values) < findings.FEW_SEEDS and self.units == "seed"
        return bool(self.tied) and few and not self.too_easy


class Recommended(NamedTuple):
    """Models of one method that an answer recommends.

    Attributes:
        method: the method.
        keys: their accuracies; GA is that of one model for all.
    """

    method: str
    keys: Sequence[str]

    @property
    def is_personal(self) -> bool:
        """Whether models for each client are among them."""
        return bool(self.stage)

    @property
    def stage(self) -> str:
        """Which models for each client, before or after local training; empty without any."""
        personal = [key for key in self.keys if key in federating.PERSONAL]
        return ("after" if personal == ["pa_final"] else "before") if personal else ""

    @property
    def flags(self) -> list[str]:
        """The flags of `tasks.export` for these models."""
        return [f"--personal_model={self.stage}" if self.stage else "--clients=none"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer on one partition, or over all of them.

    Attributes:
        partition: its name; empty for all.
        choices: the best methods.
        at_clients: what the methods gain at each client; None if unknown.
        federating: whether federating pays; None if no client has trained alone.
    """

    partition: str
    choices: Sequence[Choice]
    at_clients: ClientGains | None = None
    federating: Federating | None = None

    @property
    def recommended(self) -> list[Recommended]:
        """The models to take: one for each client, and one for all.

        See `Choice.recommended`, and `Federating.recommended` where it is known whether it pays.
        """
        methods = {choice.key: choice.recommended for choice in self.choices}
        if self.federating is not None:
            methods.pop("pa_final", None)
            method, key = self.federating.recommended
            methods[key] = method
        keys: dict[str, list[str]] = {}
        for key in (*federating.PERSONAL, "ga_final"):
            if key in methods:
                keys.setdefault(methods[key], []).append(key)
        return [Recommended(name, own) for name, own in keys.items()]

    @property
    def recommended_gains(self) -> ClientGains | None:
        """What the recommended models gain at each client; None if unknown or in `at_clients`."""
        return None if self.federating is None else self.federating.at_clients


def read(
    results: Results, clients: Sequence[ClientResult], tuned_with: Collection[int] = ()
) -> list[Answer]:
    """The answer on each partition; before them that over all, if there are several.

    Args:
        clients: those of the runs, with the ones that take no part in training.
        tuned_with: the seeds with which a sweep has chosen the settings; empty without a sweep.
    """
    partitions = results.partitions
    found = []
    for partition in partitions:
        every = [client for client in clients if client.run[0] == partition]
        own, sample = [client for client in every if not client.new], _of_a_sample(every)
        choices = _choices(results.of(partition=partition), tuned_with, sample)
        choices = [
            dataclasses.replace(each, from_few=_from_few(each, own))
            if each.key == "pa_final"
            else each
            for each in choices
        ]
        pays = _federating(results.of(partition=partition), choices, own, sample)
        found.append(Answer(partition, choices, client_gains.read(own), pays))
    if len(partitions) > 1:
        choices = _choices(results, tuned_with)
        found.insert(0, Answer("", choices, federating=_federating(results, choices, (), {})))
    return found


def _federating(
    results: Results,
    choices: Sequence[Choice],
    clients: Sequence[ClientResult],
    of_a_sample: Mapping[str, float],
) -> Federating | None:
    """Whether federating pays on one partition, or over several."""
    methods = federated(results.methods)
    best = {choice.key: choice.best for choice in choices}
    personal, shared = (best.get(key, "") for key in ("pa_final", "ga_final"))
    sample = of_a_sample.get("pa_final", 0.0)
    return federating.read(results, methods, personal, shared, clients, sample)


def _of_a_sample(clients: Sequence[ClientResult]) -> dict[str, float]:
    """The most points that one test sample changes, by the accuracy; empty if unknown."""
    tested = [client for client in clients if client.test]
    if not tested:
        return {}
    # GA is on all test samples. PA is a mean over the clients that train, and a sample counts most
    # where there are the fewest.
    whole = tables.grouped((each.run, each.test) for each in tested)
    own = tables.grouped((each.run, each.test) for each in tested if not each.new)
    return {
        "ga_final": max(100 / sum(samples) for samples in whole.values()),
        "pa_final": max((100 / (len(each) * min(each)) for each in own.values()), default=0.0),
    }


def _from_few(choice: Choice, clients: Sequence[ClientResult]) -> FromFew | None:
    """The clients with few test samples from which the gain of the best method in PA comes.

    That is so if the gain without them is less than half of that with them.
    """
    samples = by_client.tested(clients)
    few = {name for name, number in samples.items() if number < findings.LEAST_SAMPLES}
    behind = [method for method, found in choice.over.items() if found.mean > 0]
    for other in behind or choice.tied or choice.behind:
        gains = _gains_at_clients(clients, choice.best, other)
        ahead = {name: each for name, each in gains.items() if name in few and each > 0}
        kept = [each for name, each in gains.items() if name not in few]
        if not ahead or not kept:
            continue
        whole, rest = statistics.fmean(gains.values()), statistics.fmean(kept)
        if whole > 0 and rest < whole / 2:
            return FromFew(other, ahead, samples, rest)
    return None


def _gains_at_clients(clients: Sequence[ClientResult], method: str, other: str) -> dict[str, float]:
    """The gain of a method in PA over another one at each client, averaged over seeds."""
    pairs = paired(of_method(clients, method, "pa"), of_method(clients, other, "pa"))
    return {
        name: statistics.fmean(own - base for own, base in pairs[name]) for name in sorted(pairs)
    }


def _more_seeds(results: Results, tuned_with: Collection[int]) -> str:
    """The flag that adds seeds that had no part in a choice."""
    own = dict.fromkeys(result.seed for result in results)
    seeds = findings.more_seeds([*own], tuned_with)
    return f"--{'final_seeds' if tuned_with else 'seeds'}={','.join(map(str, seeds))}"


def _choices(
    results: Results, tuned_with: Collection[int], of_a_sample: Mapping[str, float] | None = None
) -> list[Choice]:
    """The best methods on one partition, or over several; arguments as from `_of_a_sample`."""
    more_seeds, found = _more_seeds(results, tuned_with), []
    for key in _COMPARED:
        values = {method: results.by_partition(method, key) for method in results.methods}
        candidates = [
            method
            for method in values
            if not is_baseline(method) and (key != "ga_final" or has_global_model(method))
        ]
        complete = _complete(results, {method: values[method] for method in candidates})
        if complete:
            ranking = _Ranking(values, complete, (of_a_sample or {}).get(key, 0.0))
            found.append(
                Choice(
                    key=key,
                    best=ranking.best,
                    equal=ranking.equal,
                    values=complete[ranking.best],
                    over=ranking.over_any(_COMPARED[key]),
                    surest=ranking.surest,
                    tied=ranking.tied,
                    behind=ranking.behind,
                    left_out=[method for method in candidates if method not in complete],
                    units="seed" if len(results.partitions) == 1 else "partition",
                    more_seeds=more_seeds,
                    sample=ranking.sample,
                    too_easy=ranking.is_too_easy,
                )
            )
    return found


def _complete(results: Results, values: Mapping[str, Sequence[BySeed]]) -> dict[str, list[float]]:
    """The values by unit of the methods with the most runs, none of which has diverged."""
    runs = {
        method: sum(map(len, own))
        for method, own in values.items()
        if not results.of(method=method).diverged
    }
    most = max(runs.values(), default=0)
    return {
        method: units([[*own.values()] for own in values[method]])
        for method, number in runs.items()
        if number == most > 0
    }


@dataclasses.dataclass(frozen=True)
class _Ranking:
    """Which of several methods is the best by an accuracy, and which may be.

    Attributes:
        by_seed: the accuracy of these methods and of baselines, for each partition by seed.
        by_unit: that of these methods by unit.
        sample: the points that one test sample changes; 0 if unknown.
    """

    by_seed: Mapping[str, Sequence[BySeed]]
    by_unit: Mapping[str, Sequence[float]]
    sample: float

    @functools.cached_property
    def means(self) -> dict[str, float]:
        """The mean over units of each method."""
        return {method: statistics.fmean(own) for method, own in self.by_unit.items()}

    @functools.cached_property
    def best(self) -> str:
        """The method with the highest mean; of several the first."""
        return max(self.means, key=self.means.__getitem__)

    @functools.cached_property
    def behind(self) -> list[str]:
        """The methods that some other is ahead of for certain, so that they are not the best.

        The best is among the rest with at least 95 %: if not, one of the intervals of its
        differences to the others, which hold together, is wrong.

        Multiple Comparisons: Theory and Methods; J. C. Hsu; Chapman & Hall, 1996 (multiple
        comparisons with the best; here of paired differences, with Bonferroni's inequality).
        """
        behind = set()
        for first, second in itertools.combinations(self.by_unit, 2):
            found = self.over(first, second)
            if found is not None and found.is_more_than(self.sample):
                behind.add(second if found.mean > 0 else first)
        return [method for method in self.by_unit if method in behind - {self.best}]

    @property
    def tied(self) -> list[str]:
        """The methods beside the best one that are not behind."""
        return [method for method in self.by_unit if method not in (self.best, *self.behind)]

    @property
    def equal(self) -> list[str]:
        """Those of `tied` that have the mean of the best one."""
        means = self.means
        return [m for m in self.tied if tables.is_equal(means[self.best], means[m])]

    @property
    def surest(self) -> str:
        """See `Choice`."""
        sure = [
            method
            for method in (self.best, *self.tied)
            if BASELINE in self.behind and is_ahead(self.over(method, BASELINE), self.sample)
        ]
        return max(sure, key=self.means.__getitem__, default=self.best)

    @property
    def is_too_easy(self) -> bool:
        """Whether all that cannot be told apart have room for no more than one test sample."""
        tied = self.tied
        return bool(tied) and all(
            _is_full(self.means[method], self.sample) for method in (self.best, *tied)
        )

    def over(self, method: str, other: str) -> Gain | None:
        """The gain of a method over another one, of which the ranked methods have one each.

        None if failed runs have left no federation or seed that both have.
        """
        among = len(self.by_unit) - (other in self.by_unit)
        return gain_over(self.by_seed[method], self.by_seed[other], among)

    def over_any(self, others: Sequence[str]) -> dict[str, Gain]:
        """The gains of the best method over others, as far as they are known."""
        known = [other for other in others if other in self.by_seed and other != self.best]
        gains = {other: self.over(self.best, other) for other in known}
        return {other: each for other, each in gains.items() if each is not None}


def _is_full(accuracy: float, sample: float) -> bool:
    """Whether an accuracy in percent leaves room for no more than one test sample."""
    room = 100.0 - accuracy
    return room < sample or tables.is_equal(room, sample)
