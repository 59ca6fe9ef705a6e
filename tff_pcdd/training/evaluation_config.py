"""The settings of evaluation."""

from __future__ import annotations

import dataclasses

from tff_pcdd.evaluation import metrics
from tff_pcdd.settings import check_options, option, selection


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """When models are evaluated, and with which metrics.

    Raises:
        SettingError: a value is of the wrong type or out of bounds.
    """

    eval_every: int = option(
        1, "Rounds between two evaluations of the global model.", minimum=1, group="Evaluation"
    )
    personal_eval_every: int | None = option(
        None,
        "Rounds between two evaluations of the personal models; 0 for the last round only. By "
        "default, they are evaluated before their local epochs whenever the global model is, and "
        "also after them in rounds at growing distances (about ten times in 100 rounds) and in the "
        "last one; less often if that would take more than half of the time of training (10 % "
        "before their local epochs, 40 % after them).",
        type=int,
        minimum=0,
        group="Evaluation",
    )
    metrics: tuple[metrics.Metric, ...] = selection(
        metrics.registry,
        "Further metrics of the global and the personal models, in addition to the accuracies.",
        group="Evaluation",
    )
    early_stopping_patience: int | None = option(
        None,
        "Stop when va, the accuracy on held-out samples (validation_fraction), has not improved "
        "for this many evaluations, also in sweeps with another criterion; by default, never.",
        type=int,
        minimum=1,
        group="Evaluation",
    )

    def __post_init__(self):
        check_options(self)
