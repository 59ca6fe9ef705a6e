"""The base class of metrics, and their registry."""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.registry import Component, Registry


@dataclasses.dataclass(frozen=True)
class Metric(Component):
    """A number computed from counts of correctly classified samples; subclasses add `measure`."""

    def measure(self, correct: np.ndarray, total: np.ndarray) -> float:
        """The metric of one model.

        Args:
            correct: correctly classified samples of each class [C].
            total: samples of each class [C].

        Returns:
            Percent; NaN where it is undefined.
        """
        raise NotImplementedError


registry: Registry[Metric] = Registry("metrics", "tff_pcdd.evaluation.metrics")
register = registry.register
