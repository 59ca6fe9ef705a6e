"""Accuracies from counts (global, personal, of groups of classes) and confusion matrices."""

from tff_pcdd.evaluation.accuracy import (
    accuracy,
    accuracy_bounds,
    accuracy_interval,
    balanced_accuracy,
    group_accuracy,
    personal_accuracy,
    personal_group_accuracy,
)
from tff_pcdd.evaluation.confusion import confusion_matrix

__all__ = [
    "accuracy",
    "accuracy_bounds",
    "accuracy_interval",
    "balanced_accuracy",
    "confusion_matrix",
    "group_accuracy",
    "personal_accuracy",
    "personal_group_accuracy",
]
