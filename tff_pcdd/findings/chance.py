"""Whether models are better than always giving the same answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tff_pcdd.evaluation import balanced_accuracy
from tff_pcdd.experiment.history import History
from tff_pcdd.findings.advice import Advice
from tff_pcdd.findings.evidence import Evidence
from tff_pcdd.findings.finding import Finding
from tff_pcdd.findings.thresholds import ERRORS, LEAST_POINTS, LEAST_SAMPLES, ONE_ANSWER


def at_chance(evidence: Evidence, history: History, advice: Advice) -> Iterator[Finding]:
    """Models that are no better than always giving the same answer."""
    whole, matrix = _Models.of_global(evidence), evidence.of_global
    if whole is not None and matrix is not None:
        answers = matrix.sum(axis=0)
        total = matrix.sum()
        label = int(answers.argmax())
        ga = [value for _, value in history.points("ga")]
        always = len(ga) >= LEAST_POINTS and max(ga) - min(ga) == 0
        when = f" in each of {len(ga)} evaluated rounds" if always else ""
        share = matrix[label].sum() / total
        if answers[label] >= ONE_ANSWER * total and share < ONE_ANSWER - whole.chance.error / 100:
            yield Finding.advised(
                "one answer",
                f"The global model has not learned: it answers {evidence.classes[label]!r} for "
                f"{int(answers[label]):,} of {int(total):,} test samples: GA is "
                f"{whole.accuracy:.1f} %{when}, and {100 * share:.1f} % of the test samples are of "
                "that class.",
                advice.learn_more(),
            )
        elif not whole.exceeds_chance:
            yield Finding.advised(
                "chance",
                f"The global model has not learned: it is {whole.compared} always giving the "
                f"same answer: GA is {whole.accuracy:.1f} %{when}, and the largest class has "
                f"{whole.chance.share:.1f} % of the test samples "
                f"(± {ERRORS * whole.chance.error:.1f} by chance).",
                advice.learn_more(),
            )
    personal = _Models.personal(evidence)
    if personal is not None and not personal.exceeds_chance:
        yield Finding.advised(
            "personal chance",
            f"The personal models have not learned: they are {personal.compared} always "
            f"answering the client's largest class: PA is {personal.accuracy:.1f} %"
            f"{personal.where}, and that class has {personal.chance.share:.1f} % of a client's "
            f"test samples (± {ERRORS * personal.chance.error:.1f} by chance).",
            advice.learn_more(),
        )


def learned(evidence: Evidence) -> str:
    """How far the models of a run are above chance; empty if they are not, or if it is unknown."""
    said = []
    whole = _Models.of_global(evidence)
    if whole is not None and whole.exceeds_chance:
        said.append(
            f"The global model has learned: GA is {whole.accuracy:.1f} %, and always giving the "
            f"same answer would reach {whole.chance.share:.1f} %."
        )
    personal = _Models.personal(evidence)
    if personal is not None and personal.chance.share >= 100:
        said.append(
            f"PA of {personal.accuracy:.1f} %{personal.where} says nothing: all test samples of a "
            "client are of one class."
        )
    elif personal is not None and evidence.of_global is None and personal.exceeds_chance:
        said.append(
            f"The personal models have learned: PA is {personal.accuracy:.1f} %{personal.where}, "
            "and always answering the client's largest class would reach "
            f"{personal.chance.share:.1f} %. "
            "There is no global model: GA is the mean of the personal models on all test samples."
        )
    return " ".join(said)


def limit_of_chance(matrix: np.ndarray) -> float:
    """The accuracy in percent up to which a model may be one that always gives the same answer.

    Args:
        matrix: the answers of a model, [C, C], rows are true classes; at least one sample.
    """
    chance = _Chance.of([matrix])
    return min(100.0, chance.share + ERRORS * chance.error)


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


class _Models(NamedTuple):
    """How good the global model is, or the personal models on average, in percent.

    Attributes:
        accuracy, balanced: mean over models of the accuracy, and of the mean recall over classes.
        chance: what models reach that always give the same answer.
        where: at which clients, if not at all that have test samples.
    """

    accuracy: float
    balanced: float
    chance: _Chance
    where: str = ""

    @classmethod
    def of_global(cls, evidence: Evidence) -> _Models | None:
        """The global model of a run; None if nothing is known of it."""
        matrix = evidence.of_global
        return cls._mean([matrix]) if matrix is not None and matrix.sum() else None

    @classmethod
    def personal(cls, evidence: Evidence) -> _Models | None:
        """The personal models of a run; None if nothing is known of them.

        The models of clients with too few test samples, or with those of a single class, are left
        out, unless only with them the models are seen to be better than chance, or there are no
        others.
        """
        matrices = () if evidence.of_clients is None else evidence.of_clients
        tested = [own for own in matrices if own.sum()]
        if not tested:
            return None
        everywhere = cls._mean(tested)
        enough = [own for own in tested if own.sum() >= LEAST_SAMPLES]
        judged = [own for own in enough if np.count_nonzero(own.sum(axis=1)) > 1]
        if not judged or len(judged) == len(tested):
            return everywhere
        where = (
            f" at the {len(judged)} of {len(tested)} clients with at least {LEAST_SAMPLES} test "
            f"samples{'' if len(judged) == len(enough) else ' of at least two classes'}"
        )
        there = cls._mean(judged)._replace(where=where)
        return everywhere if everywhere.exceeds_chance and not there.exceeds_chance else there

    @classmethod
    def _mean(cls, matrices: Sequence[np.ndarray]) -> _Models:
        accuracy = float(np.mean([100 * own.trace() / own.sum() for own in matrices]))
        return cls(accuracy, float(np.mean([*map(_recall, matrices)])), _Chance.of(matrices))

    @property
    def compared(self) -> str:
        """How the accuracy compares with that of the largest class, in words."""
        least = self.chance.share - ERRORS * self.chance.error
        return "worse than" if self.accuracy < least else "no better than"

    @property
    def exceeds_chance(self) -> bool:
        """Whether the models are better, or no model could be seen to be."""
        share, error, balanced, balanced_error = self.chance
        limits = share + ERRORS * error, balanced + ERRORS * balanced_error
        # One of them suffices: where one class is nearly all, only the mean recall can tell.
        return (
            self.accuracy > limits[0]
            or self.balanced > limits[1]
            or all(limit >= 100 for limit in limits)
        )


def _recall(matrix: np.ndarray) -> float:
    """The mean recall over the classes with samples, in percent."""
    return balanced_accuracy(matrix.diagonal(), matrix.sum(axis=1))
