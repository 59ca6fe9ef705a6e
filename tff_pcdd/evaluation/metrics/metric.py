"""The base class of metrics, and their registry."""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.registry import Component, Registry


@dataclasses.dataclass(frozen=True)
class Metric(Component):
    """A number computed from counts of samples.

    Subclasses add `measure`, or `measure_answers` if false answers count by their class.
    """

    def measure(self, correct: np.ndarray, total: np.ndarray) -> float:
        """The metric of one model.

        Args:
            correct: correctly classified samples of each class [C].
            total: samples of each class [C].

        Returns:
            Percent; NaN where it is undefined.
        """
        raise NotImplementedError

    def measure_answers(self, correct: np.ndarray, total: np.ndarray, answers: np.ndarray) -> float:
        """As `measure`, which is the default; `answers` are samples by their predicted class [C].

        Samples without an answer, because it is NaN or infinite, count in `total` alone.
        """
        return self.measure(correct, total)


registry: Registry[Metric] = Registry("metrics", "tff_pcdd.evaluation.metrics")
register = registry.register
