"""What a comparison answers: which method to take, which cannot be told apart, and who loses."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tff_pcdd import findings, measures, tables, text
from tff_pcdd.results import by_client, client_gains, federating
from tff_pcdd.results.by_client import ClientResult, of_method, paired
from tff_pcdd.results.client_gains import ClientGains
from tff_pcdd.results.federating import Federating
from tff_pcdd.results.gains import Gain, gain, is_ahead, units
from tff_pcdd.results.method_traits import (
    federated,
    has_global_model,
    is_baseline,
    starts_from_global,
)
from tff_pcdd.results.run_results import ALONE, Results
from tff_pcdd.tables import BASELINE

# What is compared: the value, what it is good for, and what the best is set beside.
POOLED = "central"
_QUESTIONS = (
    ("ga_final", "One model for all", (BASELINE, POOLED)),
    ("pa_final", "A model for each client, after local training", (BASELINE, ALONE, POOLED)),
)

_TOO_EASY = (
    "The task is too easy to tell them apart, with more seeds too: take harder data, such as a "
    "smaller --max_train_samples, or fewer --rounds to see which learns faster."
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The best method by one accuracy.

    Attributes:
        key: the accuracy, a key of summary.json.
        question: what it is good for.
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
        of_few: a sentence if its gain comes from clients with few test samples; empty otherwise.
    """

    key: str
    question: str
    best: str
    equal: Sequence[str]
    values: Sequence[float]
    over: Mapping[str, Gain]
    surest: str
    tied: Sequence[str]
    behind: Sequence[str]
    left_out: Sequence[str]
    units: str
    more_seeds: str
    sample: float = 0.0
    too_easy: bool = False
    of_few: str = ""

    @property
    def is_open(self) -> bool:
        """Whether FedAvg is among the best: it is the simplest, and no reason is known to leave it.

        Example:
            >>> Choice(
            ...     "ga_final", "", "ccvr", (), (), {}, "ccvr", ["fedavg"], (), (), "seed", ""
            ... ).is_open
            True
        """
        return bool(self.tied) and BASELINE in (self.best, *self.tied)

    @property
    def recommended(self) -> str:
        """The method to take."""
        return BASELINE if self.is_open else self.surest

    @property
    def heading(self) -> str:
        """What is asked, and the best methods."""
        names, alone = text.listed([self.best, *self.equal], 8), self.over.get(ALONE)
        leads = f"{names} lead with the same value" if self.equal else f"{names} leads"
        apart = alone is None or alone.is_more_than(self.sample)
        if alone is not None and apart and alone.mean < 0:
            found = f"training alone is better; {leads}"
        elif self.is_open or not apart:
            tied = [*self.tied, *["training alone"] * (not apart)]
            found = f"undecided {_between([self.best, *tied])}; {leads}"
        else:
            found = leads if self.tied else names
        return f"{self.question}: {found}."

    @property
    def sentence(self) -> str:
        """What was found, without the question."""
        heading = measures.heading(self.key)
        parts = [f"{heading} {tables.spread(self.values, 1)} %"]
        for method, found in self.over.items():
            beside = found.beside if method == POOLED else found.over
            parts.append(beside(method, self.sample))
        return " ".join([f"{', '.join(parts)}.", *self._apart()])

    @property
    def brief(self) -> str:
        """What is asked, the best methods, and the gain over FedAvg."""
        parts = [self.heading]
        if BASELINE in self.over:
            over = self.over[BASELINE].over(BASELINE, self.sample)
            parts.append(f"{measures.heading(self.key)} {over}.")
        return " ".join([*parts, *([_TOO_EASY] * self.too_easy), *self._reservations()])

    @property
    def lacks_seeds(self) -> bool:
        """Whether more seeds may tell methods apart: with few, even large differences may not."""
        few = len(self.values) < findings.FEW_SEEDS and self.units == "seed"
        return bool(self.tied) and few and not self.too_easy

    def _apart(self) -> Iterator[str]:
        """Which methods cannot be told apart from the best, which can, and which are left out."""
        tied = [method for method in self.tied if method not in self.equal]
        if tied:
            it = self.best if self.equal else "it"
            more = f"; take {self.more_seeds}" if self.lacks_seeds else ""
            units, names = text.plural(len(self.values), self.units), text.listed(tied, 8)
            yield f"{units} cannot tell {it} from {names}{more}."
        elif self.lacks_seeds:
            yield f"Take {self.more_seeds} to tell them apart."
        if self.too_easy:
            yield _TOO_EASY
        if self.behind:
            names, others = text.listed(self.behind, 8), len(self.behind)
            if self.tied:
                yield f"Behind for certain: {names}."
            elif self.left_out:
                yield f"It is ahead of {names}."
            else:
                each = "the other method" if others == 1 else f"all {others} other methods"
                yield f"It is ahead of {each}."
        yield from self._reservations()

    def _reservations(self) -> Iterator[str]:
        """What should be known before the answer is believed."""
        if self.left_out:
            names = text.listed(self.left_out, 8)
            yield f"Not ranked, because runs are missing or diverged: {names}."
        if self.of_few:
            yield self.of_few


class Recommended(NamedTuple):
    """Models of one method that an answer recommends.

    Attributes:
        method: the method.
        keys: their accuracies; GA is that of one model for all.
        why: why these, although another method leads; else empty.
    """

    method: str
    keys: Sequence[str]
    why: str = ""

    @property
    def is_personal(self) -> bool:
        """Whether models for each client are among them."""
        return bool(self._stage)

    @property
    def _stage(self) -> str:
        """Which models for each client; empty without any."""
        personal = [key for key in self.keys if key in federating.PERSONAL]
        return ("after" if personal == ["pa_final"] else "before") if personal else ""

    @property
    def what(self) -> str:
        """Which models, in words."""
        found = ["one model for all"] * ("ga_final" in self.keys)
        if self._stage:
            found.append(f"a model for each client, {self._stage} local training")
        own = "pa_before_masked_final" in self.keys
        if self._stage == "before" and starts_from_global(self.method):
            found[-1] += " (the shared model"
            found[-1] += ", with answers among the client's own classes: own_label)" if own else ")"
        elif own:
            found[-1] += ", whose answer with own classes is own_label"
        return " and ".join(found)

    @property
    def flags(self) -> list[str]:
        """The flags of `tasks.export` for these models."""
        return [f"--personal_model={self._stage}" if self._stage else "--clients=none"]


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
        return [Recommended(name, own, self._why(name, own)) for name, own in keys.items()]

    def _why(self, method: str, keys: Sequence[str]) -> str:
        """Why models of a method are recommended that are not those that lead; else empty."""
        choices = {choice.key: choice for choice in self.choices}
        best = {key: choice.best for key, choice in choices.items()}
        found = []
        # Models before local training are recommended only as the best of all.
        own = [key for key in keys if key not in choices]
        if own and best.get("pa_final", method) != method:
            found.append("the best on the clients' own samples")
        undecided = [key for key in keys if best.get(key, method) != method and key in choices]
        if method == BASELINE and undecided:
            what = "it" if undecided == [*keys] else measures.heading(undecided[0])
            found.append(f"the simplest method, as {what} is undecided")
        for key in undecided:
            if choices[key].surest == method:
                found.append(f"ahead of {BASELINE} for certain, which {best[key]} is not")
                break
        return "".join(f", {each}" for each in found)

    def sentences(self) -> list[tuple[str, str]]:
        """Pairs of what is asked, with the best method, and what was found."""
        found = [(each.heading, each.sentence) for each in self.choices]
        if self.federating is not None:
            found.append((self.federating.heading, self.federating.sentence))
        return found + self._of_clients()

    def _of_clients(self) -> list[tuple[str, str]]:
        """Who gains and who loses with the recommended models; nothing if it is unknown."""
        if self.at_clients is None or not self.at_clients.gains:
            return []
        gains = self.recommended_gains or self.at_clients
        taken = [each.method for each in self.recommended if each.is_personal]
        personal = [each.best for each in self.choices if each.key == "pa_final"]
        order = [*taken, *personal, *gains.gains]
        return [("Clients.", gains.sentence(next(m for m in order if m in gains.gains)))]

    def brief(self) -> list[str]:
        """The answer in a few lines: what is best, whether federating pays, and what to take."""
        lines = [each.brief for each in self.choices]
        if self.federating is not None:
            lines.append(self.federating.brief)
        lines += [" ".join(pair) for pair in self._of_clients()]
        lines += [f"Take {each.method}: {each.what}{each.why}." for each in self.recommended]
        if more := [each.more_seeds for each in self.choices if each.lacks_seeds]:
            lines.append(f"More seeds decide more: {more[0]}.")
        return lines

    @property
    def recommended_gains(self) -> ClientGains | None:
        """What the recommended models gain at each client; None if unknown or in `at_clients`."""
        pays = self.federating
        if pays is None or pays.recommended != (pays.method, pays.key):
            return None
        return pays.at_clients


def _between(names: Sequence[str]) -> str:
    """Between which an answer is undecided.

    Example:
        >>> _between(["ccvr", "fedavg"]), _between(["ccvr", "fedavg", "fedgela", "fedge", "fedetf"])
        ('between ccvr and fedavg', 'between ccvr and 4 others')
    """
    if len(names) > 4:
        return f"between {names[0]} and {len(names) - 1} others"
    return f"between {', '.join(names[:-1])} and {names[-1]}"


def read(
    results: Results, clients: Sequence[ClientResult], tuned_with: Collection[int] = ()
) -> list[Answer]:
    """The answer on each partition; before them that over all, if there are several.

    Args:
        tuned_with: the seeds with which a sweep has chosen the settings; empty without a sweep.
    """
    partitions = results.partitions
    found = []
    for partition in partitions:
        own = [client for client in clients if client.run[0] == partition]
        choices = _choices(results.of(partition=partition), tuned_with, _of_a_sample(own))
        choices = [
            dataclasses.replace(each, of_few=_of_few(each, own)) if each.key == "pa_final" else each
            for each in choices
        ]
        pays = _federating(results.of(partition=partition), choices, own)
        found.append(Answer(partition, choices, client_gains.read(own), pays))
    if len(partitions) > 1:
        choices = _choices(results, tuned_with)
        found.insert(0, Answer("", choices, federating=_federating(results, choices, ())))
    return found


def _federating(
    results: Results, choices: Sequence[Choice], clients: Sequence[ClientResult]
) -> Federating | None:
    """Whether federating pays on one partition, or over several."""
    methods = federated(results.methods)
    best = {choice.key: choice.best for choice in choices}
    personal, shared = (best.get(key, "") for key in ("pa_final", "ga_final"))
    sample = _of_a_sample(clients).get("pa_final", 0.0)
    return federating.read(results, methods, personal, shared, clients, sample)


def _of_a_sample(clients: Sequence[ClientResult]) -> dict[str, float]:
    """The most points that one test sample changes, by the accuracy; empty if unknown."""
    runs = tables.grouped((client.run, client.test) for client in clients if client.test).values()
    if not runs:
        return {}
    # PA is a mean over clients, and a sample counts most where there are the fewest.
    return {
        "ga_final": max(100 / sum(samples) for samples in runs),
        "pa_final": max(100 / (len(samples) * min(samples)) for samples in runs),
    }


def _of_few(choice: Choice, clients: Sequence[ClientResult]) -> str:
    """Says if the gain of the best method in PA comes from clients with few test samples."""
    samples = by_client.tested(clients)
    few = {name for name, number in samples.items() if number < findings.LEAST_SAMPLES}
    best = of_method(clients, choice.best, "pa")
    others = [method for method, found in choice.over.items() if found.mean > 0]
    for other in others or choice.tied or choice.behind:
        pairs = paired(best, of_method(clients, other, "pa"))
        gains = {
            name: statistics.fmean(own - base for own, base in pairs[name])
            for name in sorted(pairs)
        }
        ahead = {name: each for name, each in gains.items() if name in few and each > 0}
        kept = [each for name, each in gains.items() if name not in few]
        if not ahead or not kept:
            continue
        whole, rest = statistics.fmean(gains.values()), statistics.fmean(kept)
        if whole > 0 and rest < whole / 2:
            names = text.listed(
                [
                    f"{findings.label(name)} ({text.signed(each)} points, "
                    f"{text.plural(samples[name], 'test sample')})"
                    for name, each in ahead.items()
                ],
                3,
            )
            return (
                f"The gain over {other} comes from {names}: without clients with fewer than "
                f"{findings.LEAST_SAMPLES} test samples, it is {text.signed(rest)}."
            )
    return ""


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
    for key, question, references in _QUESTIONS:
        sample = (of_a_sample or {}).get(key, 0.0)
        # By method, and for each partition by seed.
        values = {
            method: [own.of(partition=name).by_seed(key) for name in results.partitions]
            for method, own in results.by_method().items()
        }
        candidates = [
            method
            for method in values
            if not is_baseline(method) and (key != "ga_final" or has_global_model(method))
        ]
        complete = _complete(results, {method: values[method] for method in candidates})
        if not complete:
            continue
        means = {method: statistics.fmean(own) for method, own in complete.items()}
        best = max(means, key=means.__getitem__)
        over = functools.partial(_over, values, complete)
        behind = _behind(complete, over, sample) - {best}
        others = [method for method in complete if method != best]
        tied = [method for method in others if method not in behind]
        sure = [
            method
            for method in (best, *tied)
            if BASELINE in behind and is_ahead(over(method, BASELINE), sample)
        ]
        gains = {method: over(best, method) for method in references if method in values}
        found.append(
            Choice(
                key,
                question,
                best,
                [method for method in tied if tables.is_equal(means[best], means[method])],
                complete[best],
                {m: each for m, each in gains.items() if m != best and each is not None},
                max(sure, key=means.__getitem__, default=best),
                tied,
                [method for method in others if method in behind],
                [method for method in candidates if method not in complete],
                "seed" if len(results.partitions) == 1 else "partition",
                more_seeds,
                sample,
                bool(tied) and all(_is_full(means[method], sample) for method in (best, *tied)),
            )
        )
    return found


# Of a method, the values by seed for each partition.
_BySeed = Sequence[Mapping[str, float]]


def _over(
    values: Mapping[str, _BySeed],
    compared: Collection[str],
    method: str,
    other: str,
) -> Gain | None:
    """The gain of a method over another one, of which the compared methods have one each.

    None if failed runs have left no federation or seed that both have.

    Args:
        values: by method, and for each partition by seed.
        compared: the methods of which the best is sought.
        method, other: the two methods.
    """
    pairs = zip(values[method], values[other], strict=True)
    others = len(compared) - (other in compared)
    return gain(units([tables.differences(*pair) for pair in pairs]), others)


def _behind(
    methods: Collection[str], over: Callable[[str, str], Gain | None], sample: float
) -> set[str]:
    """The methods that some other is ahead of for certain, so that they are not the best.

    The best is among the rest with at least 95 %: if not, one of the intervals of its differences
    to the others, which hold together, is wrong.

    Multiple Comparisons: Theory and Methods; J. C. Hsu; Chapman & Hall, 1996 (multiple comparisons
    with the best; here of paired differences, with Bonferroni's inequality).
    """
    behind = set()
    for first, second in itertools.combinations(methods, 2):
        found = over(first, second)
        if found is not None and found.is_more_than(sample):
            behind.add(second if found.mean > 0 else first)
    return behind


def _complete(results: Results, values: Mapping[str, _BySeed]) -> dict[str, list[float]]:
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


def _is_full(accuracy: float, sample: float) -> bool:
    """Whether an accuracy in percent leaves room for no more than one test sample."""
    room = 100.0 - accuracy
    return room < sample or tables.is_equal(room, sample)
