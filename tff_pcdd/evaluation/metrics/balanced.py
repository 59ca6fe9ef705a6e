"""Balanced accuracy."""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.evaluation.accuracy import balanced_accuracy
from tff_pcdd.evaluation.metrics.metric import Metric, register


@register
@dataclasses.dataclass(frozen=True)
class Balanced(Metric):
    """Mean of the accuracies on each class; classes without samples are left out."""

    name = "balanced"

    def measure(self, correct: np.ndarray, total: np.ndarray) -> float:
        return balanced_accuracy(correct, total)
