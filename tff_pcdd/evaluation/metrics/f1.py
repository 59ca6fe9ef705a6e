"""F1 scores."""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.evaluation.metrics.metric import Metric, register


@register
@dataclasses.dataclass(frozen=True)
class MacroF1(Metric):
    """Mean of the F1 scores of the classes; classes without samples and answers are left out.

    The F1 score of a class is the harmonic mean of the share of its samples that are classified
    correctly (recall) and of the share of its answers that are right (precision). A class that is
    answered but has no samples has an F1 score of 0, as in scikit-learn.
    """

    name = "macro_f1"

    def measure_answers(self, correct, total, answers):
        occurs = np.asarray(total) + answers > 0
        return _mean(correct, total, answers, occurs)


@register
@dataclasses.dataclass(frozen=True)
class WeightedF1(Metric):
    """As `macro_f1`, but the classes are weighted by their numbers of samples."""

    name = "weighted_f1"

    def measure_answers(self, correct, total, answers):
        return _mean(correct, total, answers, np.asarray(total))


def _mean(
    correct: np.ndarray, total: np.ndarray, answers: np.ndarray, weights: np.ndarray
) -> float:
    if not np.sum(total):
        return float("nan")
    scores = 2 * np.asarray(correct) / np.maximum(np.asarray(total) + answers, 1)
    return float(100 * np.average(scores, weights=weights))
