"""Accuracy on the worst class."""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.evaluation.metrics.metric import Metric, register


@register
@dataclasses.dataclass(frozen=True)
class WorstClass(Metric):
    """The lowest of the accuracies on each class; classes without samples are left out."""

    name = "worst_class"

    def measure(self, correct: np.ndarray, total: np.ndarray) -> float:
        correct, total = np.asarray(correct), np.asarray(total)
        present = total > 0
        if not present.any():
            return float("nan")
        return float(100.0 * np.min(correct[present] / total[present]))
