"""Findings: what a reader should know before believing a run's numbers, and what to do next.

Each rule reads what a run has measured, and yields a sentence with a flag to change. The rules
and their thresholds are declared here, once. A run writes its findings into summary.json, programs
print them, and pages show them; pages compute them again, so runs of earlier versions have them
too. Comparisons collect the findings of their runs (`tff_pcdd.results.answers`).

    finding = next(of_run(settings, summary, history, evidence))
    print(finding.line)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tff_pcdd import measures, methods, tables, text
from tff_pcdd.errors import SettingError, shown
from tff_pcdd.evaluation import accuracy_interval, balanced_accuracy
from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.settings import build, describe

if TYPE_CHECKING:
    from tff_pcdd.experiment.config import ExperimentConfig

# How many standard errors above chance a model has to be, and its curve has to rise.
ERRORS = 2.0
# From this share of all predictions on, a model gives the same answer.
ONE_ANSWER = 0.95
# Fewer test samples of a class, or of a client's difference, say nothing.
LEAST_CLASS_SAMPLES, LEAST_LOST_SAMPLES = 5, 2
# Curves with fewer points are not judged. Their last fifth is compared with the fifth before.
LEAST_POINTS, WINDOW = 5, 0.2
# In percentage points: a gain of the last fifth that means that training was stopped too early; a
# difference of all points that is none; an accuracy from which a flat curve has no room to rise;
# and a distance from the best round that makes the last one unlucky.
RISE, FLAT, HIGH, DROP = 2.0, 1.0, 90.0, 5.0
# A training loss that falls by less than this share has hardly changed.
STILL = 0.01
# An accuracy of a group of classes that is none, in percent.
NOTHING = 0.0

# What to do if some runs ask for smaller steps, and others for larger ones or more of them.
_TUNE = (
    "Next: tune --client_learning_rate (tasks.sweep): some runs need a smaller one, others more "
    "training."
)
# The key of the findings in summary.json.
KEY = "findings"

# What stands before a change that may be made instead of the one before it, or after it.
OR, THEN = ", or ", "; if that is not enough, "


class Change(NamedTuple):
    """A part of an advice.

    Attributes:
        text: what to do, such as "--rounds=60 (now 30)".
        settings: the settings that it names.
        longer: whether it trains longer or in larger steps, or the opposite; None for neither.
        joined: what stands before it, unless it is the first.
    """

    text: str
    settings: Sequence[str] = ()
    longer: bool | None = None
    joined: str = OR


# Models to take instead: those before local training, and those of clients that train alone.
_BEFORE = Change("--personal_model=before in tasks.export", ("personal_model",))
_ALONE = Change("--algorithm=local there", ("algorithm",))


class Finding(NamedTuple):
    """What is wrong, and what to do about it.

    Attributes:
        kind: the rule, such as "chance".
        what: one sentence.
        next: what to do next, with a flag and its value; empty if nothing can be changed.
        changes: the parts of `next` that name a setting of a run, as data.
    """

    kind: str
    what: str
    next: str = ""
    changes: Sequence[Change] = ()

    @classmethod
    def advised(cls, kind: str, what: str, changes: Sequence[Change]) -> Finding:
        """A finding with the sentence that its changes make.

        Example:
            >>> Finding.advised("a", "A.", [Change("--x=1"), Change("--y=2", joined=THEN)]).next
            'Next: --x=1; if that is not enough, --y=2.'
        """
        if not changes:
            return cls(kind, what)
        first, *others = changes
        rest = "".join(each.joined + each.text for each in others)
        return cls(kind, what, f"Next: {first.text}{rest}.", tuple(changes))

    def record(self) -> dict[str, Any]:
        """The finding as summary.json has it."""
        changes = [{**each._asdict(), "settings": [*each.settings]} for each in self.changes]
        return {**self._asdict(), "changes": changes}

    @property
    def line(self) -> str:
        """Both sentences, as programs print them and pages show them."""
        return f"{self.what} {self.next}".rstrip()


def recorded(summary: Mapping[str, Any]) -> list[Finding]:
    """The findings in summary.json; none in that of an earlier version, or in what is no list."""
    return [
        Finding(
            shown(each.get("kind", "")),
            shown(each.get("what", "")),
            shown(each.get("next", "")),
            tuple(map(_change, _dicts(each.get("changes")))),
        )
        for each in _dicts(summary.get(KEY))
    ]


def are_recorded(summary: Mapping[str, Any]) -> bool:
    """Whether summary.json has all of its findings; earlier versions had no changes, or nothing."""
    return KEY in summary and all("changes" in each for each in _dicts(summary[KEY]))


def _dicts(values: Any) -> list[Mapping[str, Any]]:
    """Those of a list of unknown origin that are objects."""
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


def _change(values: Mapping[str, Any]) -> Change:
    names, longer = values.get("settings"), values.get("longer")
    return Change(
        shown(values.get("text", "")),
        tuple(map(shown, names)) if isinstance(names, list) else (),
        longer if isinstance(longer, bool) else None,
        THEN if values.get("joined") == THEN else OR,
    )


def printed(found: Iterable[Finding]) -> str:
    """Findings as a list for a terminal."""
    return "\n".join(tables.wrapped(f"- {finding.line}", "  ") for finding in advised_once(found))


def advised_once(found: Iterable[Finding]) -> list[Finding]:
    """Findings without what an earlier one has said to do already."""
    said: set[str] = set()
    kept = []
    for finding in found:
        repeated = finding.next in said
        kept.append(finding._replace(next="", changes=()) if repeated else finding)
        said.add(finding.next)
    return kept


class Client(Protocol):
    """A client of a run, as in clients.csv; see `tff_pcdd.results.by_client.Site`."""

    @property
    def name(self) -> str: ...
    @property
    def train(self) -> int: ...
    @property
    def test(self) -> int: ...
    @property
    def values(self) -> Mapping[str, float | None]: ...


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the models of a run have answered.

    Attributes:
        classes: the names of the C classes, as they are shown.
        of_global: confusion matrix of the global model on the test set, [C, C]; None without one.
        of_clients: those of the personal models, [K, C, C]; None if unknown.
        clients: the clients; empty if unknown.
    """

    classes: Sequence[str] = ()
    of_global: np.ndarray | None = None
    of_clients: np.ndarray | None = None
    clients: Sequence[Client] = ()

    @property
    def lacks_global_model(self) -> bool:
        """Whether the method has no global model, so that GA is not that of a model."""
        return bool(self.clients) and all(each.values["ga"] is None for each in self.clients)


def of_run(
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    history: History,
    evidence: Evidence,
) -> Iterator[Finding]:
    """The findings of a finished run, the most important first.

    Args:
        settings: its flat settings.
        summary: its numbers, as in summary.json.
        history: its measurements by round.
        evidence: what its models answer.
    """
    # Advice depends on all that is found, which does not depend on the advice.
    found = _found(settings, summary, history, evidence, _Advice(settings, history))
    kinds = {finding.kind for finding in found}
    yield from _found(settings, summary, history, evidence, _Advice(settings, history, kinds))


def _found(
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    history: History,
    evidence: Evidence,
    advice: _Advice,
) -> Iterator[Finding]:
    """As `of_run`, with what to change."""
    if summary.get("diverged"):
        yield Finding.advised(
            "diverged",
            "The run has diverged: values were NaN, infinite or far too large. Its results are not "
            "usable.",
            advice.smaller_rate(),
        )
    elif summary.get("rounds") != settings.get("rounds"):
        yield Finding.advised(
            "ended",
            f"The run ended after round {summary.get('rounds')} of {settings.get('rounds')}.",
            advice.patience(),
        )
    excluded = summary.get("excluded_clients")
    if isinstance(excluded, int) and excluded:
        rounds = summary.get("nonfinite_rounds")
        yield Finding.advised(
            "excluded",
            "Clients were excluded from a round because what they computed was NaN or infinite: "
            f"{text.plural(excluded, 'time')}, in "
            f"{text.plural(rounds if isinstance(rounds, int) else 0, 'round')}.",
            advice.smaller_rate(),
        )
    if lost := [f"{row['round']}" for row in history if is_lost(row)]:
        what = f"These rounds gave no usable model: {text.listed(lost, 12)}."
        yield Finding.advised("lost", what, advice.smaller_rate())
    if not summary.get("diverged"):
        poor = [*_at_chance(evidence, history, advice)]
        yield from poor
        kinds = {finding.kind for finding in poor}
        yield from _never_predicted(evidence, advice, kinds)
        yield from _groups(summary, advice, kinds)
        yield from _shape(evidence, history, advice, kinds)
        yield from _re_trained(settings, summary, evidence)
        yield from _after_local(evidence, summary, advice)
        yield from of_clients(evidence.clients, advice)


# Kinds of findings that larger or more steps would make worse, all that larger steps would make
# worse, those that ask for larger ones, and those that say that personal models have been trained
# for too long, unless the model they start from is to blame.
_BREAKS = {"diverged", "excluded", "lost", "unstable"}
_TOO_LARGE = _BREAKS | {"after local", "below before"}
_TOO_LITTLE = {"one answer", "chance", "personal chance", "flat"}
_WORSE = {"below global", "below local"}


class _Advice:
    """What to change, with the values that a run had; no two findings get opposite advice.

    Args:
        settings: its flat settings.
        history: its measurements.
        kinds: the kinds of all findings of the run.
    """

    def __init__(
        self, settings: Mapping[str, Any], history: History, kinds: Set[str] = frozenset()
    ):
        self._settings, self._kinds = settings, kinds
        losses = [value for _, value in history.points("train_loss")]
        ga = [value for _, value in history.points("ga")]
        # After so few rounds, more of them are the first thing to try.
        self._few = len(history) > 0 and history[-1]["round"] < LEAST_POINTS
        judged = len(losses) > 1 and not self._few
        # Larger steps would make it worse if the loss grows, or if the model has been much better.
        self._grows = judged and losses[-1] > losses[0]
        self._collapsed = not self._few and bool(ga) and max(ga) - ga[-1] > DROP
        self._stands_still = judged and losses[-1] > (1 - STILL) * losses[0]
        self._breaks = bool(kinds & _BREAKS) or self._grows or self._collapsed
        self._too_large = bool(kinds & _TOO_LARGE) or self._breaks

    def _number(self, name: str) -> float | None:
        value = self._settings.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if 0 < value < math.inf else None

    def _rate(self, factor: float) -> Change:
        rate = self._number("client_learning_rate")
        if rate is None:
            said = f"another --client_learning_rate, {factor:.2g} times as large"
        else:
            said = f"--client_learning_rate={factor * rate:.1g} (now {rate:g})"
        return Change(said, ("client_learning_rate",), factor > 1)

    def _smaller(self) -> Change:
        return self._rate(1 / 10 if self._grows or "diverged" in self._kinds else 1 / 3)

    def _larger(self) -> Change:
        return self._rate(10 if self._stands_still else 3)

    def smaller_rate(self) -> list[Change]:
        """A smaller learning rate."""
        return [self._smaller()]

    def learn_more(self) -> list[Change]:
        """What makes models learn that have not learned enough."""
        if self._grows:
            return [_because(self._smaller(), "the training loss has grown")]
        if self._collapsed:
            return [_because(self._smaller(), "it was better in earlier rounds")]
        if self._too_large:
            return self.smaller_rate()
        if self._few:
            return self.more_rounds()
        if self._stands_still:
            return [_because(self._larger(), "the training loss has hardly changed")]
        return [self._larger(), self._rounds()._replace(joined=THEN)]

    def more_rounds(self) -> list[Change]:
        """A longer run, unless it would go on as badly."""
        return self.smaller_rate() if self._breaks else [self._rounds()]

    def _rounds(self) -> Change:
        rounds = self._number("rounds")
        if rounds is None:
            return Change("more rounds", ("rounds",), True)
        more = max(2 * rounds, 2 * LEAST_POINTS) if self._few else 2 * rounds
        return Change(f"--rounds={more:g} (now {rounds:g})", ("rounds",), True)

    def steadier(self) -> list[Change]:
        """What makes rounds more alike."""
        cohort = self._number("clients_per_round")
        if cohort is not None:
            larger = min(2 * cohort, self._number("num_clients") or math.inf)
            if larger > cohort:
                return [_value("clients_per_round", larger, cohort), self._smaller()]
        return self.smaller_rate()

    def missing_classes(self) -> list[Change]:
        """What helps classes that are not learned."""
        if self._number("imbalance_factor") is not None:
            return self.rare_classes()
        if self._too_large:
            return self.smaller_rate()
        if self._few or self._kinds & _WORSE:
            return self.more_rounds()
        return [self._rounds(), self._larger()._replace(joined=THEN)]

    def rare_classes(self) -> list[Change]:
        """What helps classes with few samples."""
        retrained = Change("--head_calibration=ccvr", ("head_calibration",))
        changes = [retrained] if can_retrain(self._settings) else []
        weighting = self._settings.get("client_weighting")
        if weighting == "uniform" or self._settings.get("algorithm") not in (None, "fedavg"):
            alike = f"{retrained.text}, which retrains the head for all classes alike"
            return [each._replace(text=alike) for each in changes]
        return [Change("--client_weighting=uniform", ("client_weighting",)), *changes]

    def fewer_epochs(self, instead: Change) -> list[Change]:
        """Less local training, or something instead of it."""
        epochs = self._number("local_epochs")
        if self._few and not self._too_large:
            less = self._rounds()
        elif (self._kinds & _TOO_LITTLE and not self._too_large) or "rising" in self._kinds:
            return [instead]
        elif epochs is None or epochs < 2:
            less = self._smaller()
        else:
            less = _value("local_epochs", epochs // 2, epochs)
        return [instead, less]

    def patience(self) -> list[Change]:
        patience = self._number("early_stopping_patience")
        if patience is None:
            return []
        longer = _value("early_stopping_patience", 2 * patience, patience)
        return [longer._replace(text=f"{longer.text} for a longer run")]

    def samples(self) -> list[Change]:
        """What gives every client samples."""
        clients = self._number("num_clients")
        if self._settings.get("partition") in (None, "natural") or clients is None or clients < 2:
            return [Change("leave them out of the data, or give them samples")]
        return [_value("num_clients", clients // 2, clients)]


def _value(name: str, value: float, now: float) -> Change:
    """Another value of a setting."""
    return Change(f"--{name}={value:g} (now {now:g})", (name,))


def _because(change: Change, reason: str) -> Change:
    return change._replace(text=f"{change.text}; {reason}")


def _at_chance(evidence: Evidence, history: History, advice: _Advice) -> Iterator[Finding]:
    """Models that are no better than always giving the same answer."""
    matrix = evidence.of_global
    if matrix is not None and matrix.sum():
        answers = matrix.sum(axis=0)
        total = matrix.sum()
        label = int(answers.argmax())
        chance = _Chance.of([matrix])
        accuracy = 100 * matrix.trace() / total
        ga = [value for _, value in history.points("ga")]
        always = len(ga) >= LEAST_POINTS and max(ga) - min(ga) == 0
        when = f" in each of {len(ga)} evaluated rounds" if always else ""
        share = matrix[label].sum() / total
        if answers[label] >= ONE_ANSWER * total and share < ONE_ANSWER - chance.error / 100:
            yield Finding.advised(
                "one answer",
                f"The global model has not learned: it answers {evidence.classes[label]!r} for "
                f"{int(answers[label]):,} of {int(total):,} test samples: GA is "
                f"{accuracy:.1f} %{when}, and {100 * share:.1f} % of the test samples are of that "
                "class.",
                advice.learn_more(),
            )
        elif not chance.exceeded(accuracy, _recall(matrix)):
            yield Finding.advised(
                "chance",
                f"The global model has not learned: it is {chance.compared(accuracy)} always "
                "giving the same answer: "
                f"GA is {accuracy:.1f} %{when}, and the largest class has {chance.share:.1f} % of "
                f"the test samples (± {ERRORS * chance.error:.1f} by chance).",
                advice.learn_more(),
            )
    personal = _Personal.of(evidence)
    if personal is not None and not personal.exceeds_chance:
        yield Finding.advised(
            "personal chance",
            f"The personal models have not learned: they are "
            f"{personal.chance.compared(personal.accuracy)} always "
            f"answering the client's largest class: PA is {personal.accuracy:.1f} %, and that "
            f"class has {personal.chance.share:.1f} % of a client's test samples (± "
            f"{ERRORS * personal.chance.error:.1f} by chance).",
            advice.learn_more(),
        )


def learned(evidence: Evidence) -> str:
    """How far the models of a run are above chance; empty if they are not, or if it is unknown."""
    said = []
    matrix = evidence.of_global
    if matrix is not None and matrix.sum():
        chance, accuracy = _Chance.of([matrix]), 100 * matrix.trace() / matrix.sum()
        if chance.exceeded(accuracy, _recall(matrix)):
            said.append(
                f"The global model has learned: GA is {accuracy:.1f} %, and always giving the same "
                f"answer would reach {chance.share:.1f} %."
            )
    personal = _Personal.of(evidence)
    if personal is not None and personal.chance.share >= 100:
        said.append(
            f"PA of {personal.accuracy:.1f} % says nothing: all test samples of a client are of "
            "one class."
        )
    elif personal is not None and matrix is None and personal.exceeds_chance:
        said.append(
            f"The personal models have learned: PA is {personal.accuracy:.1f} %, and always "
            f"answering the client's largest class would reach {personal.chance.share:.1f} %. "
            "There is no global model: GA is the mean of the personal models on all test samples."
        )
    return " ".join(said)


class _Chance(NamedTuple):
    """What models reach that always give the same answer, in percent, averaged over models.

    Attributes:
        share, error: the share of the largest class, and its standard error.
        balanced, balanced_error: the same of the mean recall over classes.
    """

    share: float
    error: float
    balanced: float
    balanced_error: float

    @classmethod
    def of(cls, matrices: Sequence[np.ndarray]) -> _Chance:
        shares, variances, recalls, recall_variances = [], [], [], []
        for matrix in matrices:
            samples = matrix.sum(axis=1)
            held = samples[samples > 0]
            share, recall = held.max() / held.sum(), 1 / len(held)
            shares.append(share)
            variances.append(share * (1 - share) / held.sum())
            recalls.append(recall)
            recall_variances.append(np.sum(recall * (1 - recall) / held) * recall**2)
        number = len(matrices)
        return cls(
            100 * float(np.mean(shares)),
            100 * math.sqrt(sum(variances)) / number,
            100 * float(np.mean(recalls)),
            100 * math.sqrt(sum(recall_variances)) / number,
        )

    def compared(self, accuracy: float) -> str:
        """How an accuracy compares with that of the largest class, in words."""
        return "worse than" if accuracy < self.share - ERRORS * self.error else "no better than"

    def exceeded(self, accuracy: float, balanced: float) -> bool:
        """Whether a model is better, or no model could be seen to be."""
        limits = self.share + ERRORS * self.error, self.balanced + ERRORS * self.balanced_error
        # One of them suffices: where one class is nearly all, only the mean recall can tell.
        return any(
            value > limit for value, limit in zip((accuracy, balanced), limits, strict=True)
        ) or all(limit >= 100 for limit in limits)


class _Personal(NamedTuple):
    """How good the personal models are on average, in percent.

    Attributes:
        accuracy, balanced: mean over clients of the accuracy, and of the mean recall over classes.
        chance: what models reach that always give the same answer.
    """

    accuracy: float
    balanced: float
    chance: _Chance

    @classmethod
    def of(cls, evidence: Evidence) -> _Personal | None:
        """Those of a run; None if nothing is known of them."""
        matrices = () if evidence.of_clients is None else evidence.of_clients
        tested = [own for own in matrices if own.sum()]
        if not tested:
            return None
        accuracy = float(np.mean([100 * own.trace() / own.sum() for own in tested]))
        return cls(accuracy, float(np.mean([*map(_recall, tested)])), _Chance.of(tested))

    @property
    def exceeds_chance(self) -> bool:
        return self.chance.exceeded(self.accuracy, self.balanced)


def _recall(matrix: np.ndarray) -> float:
    """The mean recall over the classes with samples, in percent."""
    return balanced_accuracy(matrix.diagonal(), matrix.sum(axis=1))


def _never_predicted(evidence: Evidence, advice: _Advice, kinds: Set[str]) -> Iterator[Finding]:
    """Classes that the global model never answers, although it is asked about them."""
    if evidence.of_global is None or kinds & {"one answer", "chance"}:
        return
    tested = evidence.of_global.sum(axis=1) >= LEAST_CLASS_SAMPLES
    missing = np.flatnonzero(tested & (evidence.of_global.sum(axis=0) == 0))
    if len(missing):
        names = text.listed([evidence.classes[int(index)] for index in missing])
        yield Finding.advised(
            "never predicted",
            f"The global model never answers {len(missing)} of "
            f"{text.plural(len(evidence.classes), 'class')}: {names}.",
            advice.missing_classes(),
        )


def _groups(summary: Mapping[str, Any], advice: _Advice, kinds: Set[str]) -> Iterator[Finding]:
    """Groups of classes of which nothing is classified correctly."""
    if kinds & {"one answer", "chance"}:
        return
    found = []
    for part in measures.PARTS:
        zero = [
            measures.heading(name)
            for name in ("ga", "pa")
            if _is_nothing(summary.get(measures.of(f"{name}_{part}").final))
        ]
        if zero:
            found.append(f"the {part} classes ({' and '.join(zero)})")
    if found:
        yield Finding.advised(
            "groups",
            f"Nothing is classified correctly of {' and of '.join(found)}, grouped by their number "
            "of training samples.",
            advice.rare_classes(),
        )


def _is_nothing(value: Any) -> bool:
    return isinstance(value, int | float) and value <= NOTHING


def _shape(
    evidence: Evidence, history: History, advice: _Advice, kinds: Set[str]
) -> Iterator[Finding]:
    """Curves that do not rise, still rise, or end far below their best round."""
    column = "pa" if evidence.lacks_global_model else "ga"
    heading = measures.of(column).heading
    usable = [row for row in history if not is_lost(row) and row.get(column) is not None]
    curve = [row[column] for row in usable]
    if len(curve) < LEAST_POINTS:
        return
    last, best = curve[-1], max(curve)
    width = max(2, round(WINDOW * len(curve)))
    late, before = np.array(curve[-width:]), np.array(curve[-2 * width : -width])
    gain = late.mean() - before.mean()
    error = math.sqrt((late.var(ddof=1) + before.var(ddof=1)) / width)
    if best - min(curve) <= FLAT:
        # What the first round has learned may be all there is to learn.
        if last < HIGH and not kinds & {"one answer", "chance"}:
            yield Finding.advised(
                "flat",
                f"{heading} has not changed since round {usable[0]['round']}: all values are "
                f"between {min(curve):.1f} and {best:.1f} %.",
                advice.learn_more(),
            )
    elif best - last > DROP and best - last > ERRORS * _test_error(evidence, best):
        number = usable[int(np.argmax(curve))]["round"]
        yield Finding.advised(
            "unstable",
            f"{heading} is {last:.1f} % after the last round, and was {best:.1f} % after round "
            f"{number}: training is unstable.",
            advice.steadier(),
        )
    elif gain > RISE and gain > ERRORS * error:
        yield Finding.advised(
            "rising",
            f"{heading} was still rising: {gain:+.1f} points in the last {width} of "
            f"{len(curve)} evaluations.",
            advice.more_rounds(),
        )


def _test_error(evidence: Evidence, accuracy: float) -> float:
    """The standard error of the difference of two accuracies on the test set, in points."""
    if evidence.of_global is None or not evidence.of_global.sum():
        return 0.0
    share = accuracy / 100
    return 100 * math.sqrt(2 * share * (1 - share) / evidence.of_global.sum())


def re_trained_method(settings: Mapping[str, Any]) -> str:
    """The method whose head a calibration re-trains; empty for none.

    The accuracy of the method's own model is in the column `ga_METHOD`.

    Example:
        >>> re_trained_method({"algorithm": "ccvr"}), re_trained_method({"algorithm": "fedavg"})
        ('fedavg', '')
    """
    method = settings.get("algorithm") or "fedavg"
    try:
        if methods.get(method).head_calibration:
            return "fedavg"
    except SettingError:  # A method of a module that was not imported.
        pass
    return "" if settings.get("head_calibration") in (None, "none") else method


def _re_trained(
    settings: Mapping[str, Any], summary: Mapping[str, Any], evidence: Evidence
) -> Iterator[Finding]:
    """A re-trained head that is worse than the head that clients have trained."""
    method = re_trained_method(settings)
    # The name of the method may stand for FedAvg with a calibration.
    stands = settings.get("algorithm") not in (None, method)
    instead = "algorithm=fedavg" if stands else "head_calibration=none"
    ga, trained = summary.get("ga_final"), summary.get(f"ga_{method}_final")
    if not isinstance(ga, int | float) or not isinstance(trained, int | float):
        return
    if trained - ga > max(FLAT, ERRORS * _test_error(evidence, trained)):
        yield Finding.advised(
            "re-trained",
            f"GA is {ga:.1f} % with the re-trained head, and {trained:.1f} % with the head that "
            "clients have trained: re-training makes the global model worse.",
            [Change(f"--{instead}", (instead.partition("=")[0],))],
        )


def _after_local(
    evidence: Evidence, summary: Mapping[str, Any], advice: _Advice
) -> Iterator[Finding]:
    """Local training that makes the personal models worse on average."""
    before, after = summary.get("pa_before_final"), summary.get("pa_final")
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return
    if before - after > DROP and before - after > ERRORS * _personal_error(evidence.clients):
        yield Finding.advised(
            "after local",
            f"PA is {after:.1f} % after local training, and was {before:.1f} % before it: local "
            "training makes the personal models worse.",
            advice.fewer_epochs(_BEFORE),
        )


def _personal_error(clients: Sequence[Client]) -> float:
    """The standard error of the difference of PA before and after local training, in points."""
    pairs = [(each.values["pa_before"], each.values["pa"], each.test) for each in clients]
    variances = [
        sum(share * (1 - share) / samples for share in (before / 100, after / 100))
        for before, after, samples in pairs
        if before is not None and after is not None and samples
    ]
    return 100 * math.sqrt(sum(variances)) / len(variances) if variances else 0.0


# Clients. A difference counts if it is that of at least two test samples, and outside the interval
# that the number of test samples allows.


def counts(own: float | None, other: float | None, samples: int) -> bool:
    """Whether two accuracies on the same test samples of a client differ by more than chance.

    Args:
        own: an accuracy in percent; None where not defined.
        other: another one.
        samples: number of test samples.

    Example:
        >>> counts(50.0, 75.0, 4), counts(50.0, 75.0, 100)
        (False, True)
    """
    if own is None or other is None or not samples:
        return False
    if abs(own - other) * samples / 100 < LEAST_LOST_SAMPLES - 0.5:
        return False
    low, high = accuracy_interval(own, other, samples)
    return low > 0 or high < 0


def loses(gain: float | None, own: float | None, samples: int) -> bool:
    """Whether a gain over another model, in points, is a loss by more than chance.

    Args:
        gain: the own accuracy minus the other one.
        own: the own accuracy in percent.
        samples: number of test samples.
    """
    if gain is None or own is None or gain >= 0:
        return False
    return counts(own, min(100.0, own - gain), samples)


def of_clients(clients: Sequence[Client], advice: _Advice | None = None) -> Iterator[Finding]:
    """Clients that are worse off, and clients that cannot be judged.

    Args:
        clients: the clients of a run.
        advice: what to change; by default nothing is named.
    """
    advice = advice or _Advice({}, History(["round"]))
    for kind, column, what, instead in (
        (
            "below global",
            "over_global",
            "worse than the global model",
            Change("the global model there"),
        ),
        ("below local", "over_local", "worse than training alone", _ALONE),
        ("below before", "over_before", "worse than before its local steps", _BEFORE),
    ):
        lost = [
            (gain, each.name)
            for each in clients
            if (gain := _gain(each, column)) is not None
            and loses(gain, each.values["pa"], each.test)
        ]
        if lost:
            yield Finding.advised(
                kind,
                f"The personal model is {what} at {len(lost)} of "
                f"{text.plural(len(clients), 'client')}, by more than chance (difference in "
                f"points): {listed_losses(lost)}.",
                advice.fewer_epochs(instead),
            )
    for kind, noun in (("train", "training"), ("test", "test")):
        without = [label(each.name) for each in clients if not getattr(each, kind)]
        if without:
            number = text.plural(len(without), "client")
            yield Finding.advised(
                f"no {noun} samples",
                f"{number} without {noun} samples: {text.listed(without)}.",
                advice.samples(),
            )


def _gain(client: Client, column: str) -> float | None:
    if column != "over_before":
        return client.values[column]
    after, before = client.values["pa"], client.values["pa_before"]
    return None if after is None or before is None else after - before


def listed_losses(lost: Iterable[tuple[float, str]]) -> str:
    """Clients with their losses in points, the largest first."""
    return text.listed([f"{label(name)} ({text.signed(gain)})" for gain, name in sorted(lost)])


def label(name: str) -> str:
    """The name of a client; a bare number would be taken for a value."""
    return f"client {name}" if name.isdecimal() else text.name_of(name)


# Comparisons.


def can_retrain(settings: Mapping[str, Any]) -> bool:
    """Whether the server may re-train a run's head: not where it is fixed, or is re-trained."""
    try:
        cls = methods.get(settings.get("algorithm") or "fedavg")
        names = [each.name for each in describe(cls)]
        method = build(cls, {name: settings[name] for name in names if name in settings})
    except SettingError:  # Such as a method of a module that was not imported.
        return False
    calibrated = method.head_calibration or settings.get("head_calibration") or "none"
    return calibrated == "none" and method.fixed_head is None


def agreeing(found: Sequence[Finding], refused: Collection[str] = ()) -> list[Finding]:
    """Findings of runs with the same flags: without advice that contradicts other advice.

    Args:
        found: what was found.
        refused: settings that may not be given for these runs, which no advice names.
    """
    found = [_without(finding, refused) for finding in found]
    longer = [
        next((c.longer for c in each.changes if c.longer is not None), None) for each in found
    ]
    if not {True, False} <= {*longer}:
        return found
    said = iter([_TUNE])
    return [
        finding if direction is None else finding._replace(next=next(said, ""), changes=())
        for finding, direction in zip(found, longer, strict=True)
    ]


def _without(finding: Finding, refused: Collection[str]) -> Finding:
    """A finding without the changes that name such settings."""
    kept = [each for each in finding.changes if not {*each.settings} & {*refused}]
    if len(kept) == len(finding.changes):
        return finding
    return Finding.advised(finding.kind, finding.what, kept)


# Grids of sweeps.


def of_choice(
    scores: Mapping[str, float | None],
    chosen: str,
    config: ExperimentConfig | None = None,
) -> Iterator[Finding]:
    """Points that are as good as the chosen one, and values at an edge; arguments as `of_grid`."""
    yield from of_ties(scores, chosen)
    yield from of_grid(scores, chosen, config)


def of_grid(
    scores: Mapping[str, float | None],
    chosen: str,
    config: ExperimentConfig | None = None,
) -> Iterator[Finding]:
    """Chosen values at the edge of a grid.

    Args:
        scores: the accuracy by which points are compared, by their settings, such as "a=1,b=2";
            None for points that were not measured.
        chosen: the settings of the chosen point.
        config: the settings of a run; values that it refuses do not extend the grid.

    Example:
        >>> [found] = of_grid({"local_epochs=1": 50.0, "local_epochs=2": 60.0}, "local_epochs=2")
        >>> found.next
        'Next: the same command with --grid=local_epochs=1,2,4, which repeats no finished run.'
    """
    if not chosen or list(scores.values()).count(scores.get(chosen)) != 1:
        # Of equal points the first was chosen, which says nothing about the edge.
        return
    tried: dict[str, list[str]] = {}
    for point in scores:
        for name, value in read_point(point).items():
            tried.setdefault(name, []).append(value)
    for name, value in read_point(chosen).items():
        values, own = _numbers(tried[name]), _numbers([value])
        if not own or not values or len(values) < 2 or own[0] not in (values[0], values[-1]):
            continue
        is_least = own[0] == values[0]
        further = _beyond(values[::-1] if is_least else values)
        if further is None or not _allows(config, name, further):
            continue
        grid = sorted({*tried[name], f"{further:g}"}, key=float)
        yield Finding(
            "edge",
            f"The chosen {name}={value} is the {'smallest' if is_least else 'largest'} value "
            "of the grid, so the best may lie outside.",
            f"Next: the same command with --grid={name}={','.join(grid)}, which repeats no "
            "finished run.",
        )


def of_ties(scores: Mapping[str, float | None], chosen: str) -> Iterator[Finding]:
    """Points that are as good as the chosen one; arguments as `of_grid`.

    Example:
        >>> [found] = of_ties({"local_epochs=1": 60.0, "local_epochs=2": 60.0}, "local_epochs=1")
        >>> found.what
        'Points with the same VA as the chosen one, which comes first in the grid: local_epochs=2.'
    """
    best = scores.get(chosen)
    if best is None:
        return
    equal = [
        text.name_of(point or "defaults")
        for point, score in scores.items()
        if point != chosen and score is not None and tables.is_equal(score, best)
    ]
    if equal:
        what = "Points with the same VA as the chosen one, which comes first in the grid:"
        yield Finding("tie", f"{what} {text.listed(equal)}.")


def merged(by_method: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Findings that several methods share, in one line with their names."""
    methods: dict[Finding, list[str]] = {}
    for method, found in by_method.items():
        for each in found:
            methods.setdefault(each, []).append(method)
    return [
        each._replace(what=f"{text.listed(names, 8)}: {each.what[0].lower()}{each.what[1:]}")
        for each, names in methods.items()
    ]


def read_point(point: str) -> dict[str, str]:
    """The settings of a point of a grid, from its name.

    Example:
        >>> read_point("client_learning_rate=0.1,local_epochs=2")
        {'client_learning_rate': '0.1', 'local_epochs': '2'}
    """
    pairs = (part.partition("=") for part in point.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def _allows(config: ExperimentConfig | None, name: str, value: float) -> bool:
    """Whether a setting can have a value."""
    if config is None:
        return True
    setting: dict[str, Any] = {name: value}
    try:
        config.with_settings(**setting).check_data()
    except SettingError:
        return False
    return True


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """The different values in ascending order; None if one of them is no finite number."""
    try:
        found = sorted({float(each) for each in texts})
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _beyond(values: Sequence[float]) -> float | None:
    """The next value of a sequence, as its last two go on; None if it ends at 0."""
    last, before = values[-1], values[-2]
    if last == 0:
        return None
    # Values of a grid differ by factors as a rule, unless there is a 0 among them.
    further = last * last / before if min(values) > 0 else 2 * last - before
    if all(value == int(value) for value in values) and further >= 1:
        return int(further)
    # With as few digits as lie beyond the last value.
    rounded = (float(f"{further:.{digits}g}") for digits in (1, 2, 3))
    return next((each for each in rounded if (each - last) * (last - before) > 0), further)
