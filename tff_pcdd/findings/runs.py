"""The findings of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from tff_pcdd import measures, methods, text
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.findings.advice import BEFORE, Advice
from tff_pcdd.findings.chance import at_chance
from tff_pcdd.findings.clients import of_clients
from tff_pcdd.findings.evidence import Client, Evidence
from tff_pcdd.findings.finding import Change, Finding
from tff_pcdd.findings.thresholds import (
    DROP,
    ERRORS,
    FLAT,
    HIGH,
    LEAST_FALLING,
    LEAST_POINTS,
    LEAST_SAMPLES,
    NOTHING,
    RISE,
    WINDOW,
)


def of_run(
    settings: Mapping[str, Any], summary: Mapping[str, Any], history: History, evidence: Evidence
) -> Iterator[Finding]:
    """The findings of a finished run, the most important first."""
    # Advice depends on all that is found, which does not depend on the advice.
    found = _found(settings, summary, history, evidence, Advice(settings, history))
    kinds = {finding.kind for finding in found}
    yield from _found(settings, summary, history, evidence, Advice(settings, history, kinds))


def _found(
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    history: History,
    evidence: Evidence,
    advice: Advice,
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
        poor = [*at_chance(evidence, history, advice)]
        yield from poor
        kinds = {finding.kind for finding in poor}
        yield from _never_predicted(evidence, advice, kinds)
        yield from _groups(summary, advice, kinds)
        yield from _shape(evidence, history, advice, kinds)
        yield from _re_trained(settings, summary, evidence)
        yield from _after_local(evidence, summary, advice)
        yield from of_clients(evidence.clients, advice)


def _never_predicted(evidence: Evidence, advice: Advice, kinds: Set[str]) -> Iterator[Finding]:
    """Classes that the global model never answers, although it is asked about them."""
    if evidence.of_global is None or kinds & {"one answer", "chance"}:
        return
    tested = evidence.of_global.sum(axis=1) >= LEAST_SAMPLES
    missing = np.flatnonzero(tested & (evidence.of_global.sum(axis=0) == 0))
    if len(missing):
        names = text.listed([evidence.classes[int(index)] for index in missing])
        yield Finding.advised(
            "never predicted",
            f"The global model never answers {len(missing)} of "
            f"{text.plural(len(evidence.classes), 'class')}: {names}.",
            advice.missing_classes(),
        )


def _groups(summary: Mapping[str, Any], advice: Advice, kinds: Set[str]) -> Iterator[Finding]:
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
    evidence: Evidence, history: History, advice: Advice, kinds: Set[str]
) -> Iterator[Finding]:
    """Curves that do not rise, still rise, or end far below their best round."""
    column = "pa" if evidence.lacks_global_model else "ga"
    found = [*_shape_of(column, _test_error, evidence, history, advice, kinds)]
    yield from found
    said = {finding.kind for finding in found}
    if column == "ga":
        # Of PA only that it has been better: GA tells whether training was long enough.
        of_pa = _shape_of("pa", _mean_test_error, evidence, history, advice, kinds)
        # The last PA may be a bad one for the same reason.
        known = said | {"unstable"} if said & {"rising", "falling"} else said
        yield from (each for each in of_pa if each.kind in {"falling", "unstable"} - known)


def _shape_of(
    column: str,
    test_error: Callable[[Evidence, float], float],
    evidence: Evidence,
    history: History,
    advice: Advice,
    kinds: Set[str],
) -> Iterator[Finding]:
    heading = measures.of(column).heading
    usable = [row for row in history if not is_lost(row) and row.get(column) is not None]
    curve = [row[column] for row in usable]
    if len(curve) < LEAST_POINTS:
        return
    last, best = curve[-1], max(curve)
    number = usable[int(np.argmax(curve))]["round"]
    points = [(row["round"], row[column]) for row in usable]
    rise = _rises(points)
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
    elif best - last > DROP and rise is None and _falls(points):
        yield Finding.advised(
            "falling",
            f"{heading} has been falling since round {number}: it was {best:.1f} % then, and is "
            f"{last:.1f} % after the last round.",
            advice.best_round(),
        )
    elif best - last > DROP and best - last > ERRORS * test_error(evidence, best):
        if rise is not None:
            yield Finding.advised(
                "rising",
                f"{heading} was still rising, unevenly: by {rise:.1f} points a round, although it "
                f"is {last:.1f} % after the last round, and was {best:.1f} % after round {number}.",
                advice.more_rounds(),
            )
            return
        yield Finding.advised(
            "unstable",
            f"{heading} is {last:.1f} % after the last round, and was {best:.1f} % after round "
            f"{number}: {'it still varies' if advice.is_early else 'training is unstable'}.",
            advice.steadier(),
        )
    elif gain > RISE and gain > ERRORS * error:
        yield Finding.advised(
            "rising",
            f"{heading} was still rising: {gain:+.1f} points in the last {width} of "
            f"{len(curve)} evaluations.",
            advice.more_rounds(),
        )


def _falls(points: Sequence[tuple[float, float]]) -> bool:
    """Whether a curve falls from its best point on: the slope of its line is more than chance."""
    first = int(np.argmax([value for _, value in points]))
    slope, error = _line(points[first:])
    return slope < 0 and -slope > ERRORS * error


def _rises(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of the line through the last two thirds of a curve; None on a plateau.

    It rises by more than chance, or by more than what makes the last round unlucky. Rounds that
    differ are no reason for smaller steps before the curve has reached a plateau.
    """
    late = points[len(points) // 3 :]
    slope, error = _line(late)
    rises = slope > ERRORS * error or slope * (late[-1][0] - late[0][0]) > DROP
    return slope if rises else None


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The slope of the line through points and its standard error; no slope of too few points."""
    if len(points) < LEAST_FALLING:
        return 0.0, 0.0
    rounds, values = np.array(points, float).T
    rounds = rounds - rounds.mean()
    squares = rounds @ rounds
    slope = (rounds @ values) / squares
    rest = values - values.mean() - slope * rounds
    return float(slope), math.sqrt(rest @ rest / (len(values) - 2) / squares)


def _mean_test_error(evidence: Evidence, accuracy: float) -> float:
    """As `_test_error`, of two means over clients of accuracies on their own test samples."""
    samples = [each.test for each in evidence.clients if each.test]
    if not samples:
        return math.inf
    share = accuracy / 100
    variance = sum(2 * share * (1 - share) / number for number in samples)
    return 100 * math.sqrt(variance) / len(samples)


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
    evidence: Evidence, summary: Mapping[str, Any], advice: Advice
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
            advice.fewer_epochs(BEFORE),
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
