"""Accuracies from counts: global, personal, and of groups of classes."""

from tff_pcdd.evaluation.accuracy import (
    accuracy,
    balanced_accuracy,
    group_accuracy,
    personal_accuracy,
    personal_group_accuracy,
)

__all__ = [
    "accuracy",
    "balanced_accuracy",
    "group_accuracy",
    "personal_accuracy",
    "personal_group_accuracy",
]
