"""Accuracies, as the columns of metrics.csv, from the counts of an evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tff_pcdd import data, evaluation
from tff_pcdd.errors import SettingError, shown
from tff_pcdd.evaluation.metrics import Metric

# Columns of metrics.csv for the counts of a personal evaluation.
PERSONAL_COLUMNS = {
    "after": "pa",
    "before": "pa_before",
    "after_masked": "pa_masked",
    "before_masked": "pa_before_masked",
}
# The columns for which groups of classes and further metrics are reported too.
_DETAILED_COLUMNS = {"after": "pa", "before": "pa_before"}
# Accuracies of the global model on all samples that clients held out: of all samples, and the mean
# over their classes.
GLOBAL_VALIDATION = ("va", "va_balanced")
# Columns for the counts on the test samples of clients that take no part in training: of the global
# model, and of a personal evaluation.
_NEW_COLUMNS = {
    "global": "new_clients_ga",
    "before": "new_clients_pa_before",
    "after": "new_clients_pa",
}
# Columns for the counts on the samples that clients held out.
_VALIDATION_COLUMNS = {"validation_after": "va_personal", "validation_before": "va_personal_before"}


@dataclasses.dataclass(frozen=True)
class Groups:
    """Many, medium and few classes; empty if all classes are of similar size.

    Attributes:
        federation: the classes of each group, by their sizes in the federation.
        clients: which classes belong to each group by their sizes at the client, bool [K, C].
    """

    federation: Mapping[str, Sequence[int]]
    clients: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, class_counts: np.ndarray) -> Groups:
        """Groups the classes if the largest has at least twice as many samples as the smallest.

        Args:
            class_counts: training samples of each client and class, [K, C].
        """
        totals = class_counts.sum(axis=0)
        if totals.max() < 2 * max(totals.min(), 1):
            return cls({}, {})
        return cls(
            data.class_groups(totals)._asdict(), data.class_group_masks(class_counts)._asdict()
        )


def global_accuracies(
    total: np.ndarray,
    heads: Mapping[str, np.ndarray],
    answers: np.ndarray,
    groups: Groups,
    metrics: Sequence[Metric] = (),
) -> dict[str, float]:
    """Accuracies of the global model, in percent.

    Args:
        total: test samples by class, [C].
        heads: correctly classified samples by class, [C], for each head; "head" is the main one.
        answers: test samples by the class that the main head predicts, [C].
        groups: groups of classes to report separately.
        metrics: further metrics of the main head.
    """
    results = {}
    for head, correct in heads.items():
        column = _head_column(head)
        correct = np.asarray(correct)
        results[column] = evaluation.accuracy(correct, total)
        by_group = evaluation.group_accuracy(correct, total, groups.federation)
        results.update({f"{column}_{name}": value for name, value in by_group.items()})
    for metric in metrics:
        results[f"{metric.name}_ga"] = _measured(metric, np.asarray(heads["head"]), total, answers)
    return results


def held_out_accuracies(total: np.ndarray, correct: np.ndarray) -> dict[str, float]:
    """Accuracies of the global model in percent, as `GLOBAL_VALIDATION` lists.

    They are made from held-out samples by class and those that are classified correctly, [C].
    """
    measured = evaluation.accuracy(correct, total), evaluation.balanced_accuracy(correct, total)
    return dict(zip(GLOBAL_VALIDATION, measured, strict=True))


def personal_accuracies(
    counts: Mapping[str, np.ndarray], groups: Groups, metrics: Sequence[Metric] = ()
) -> dict[str, float]:
    """Mean accuracies of the personal models on their clients' own samples, in percent.

    Args:
        counts: for each kind of count, its values by client and class, [K, C]; of what was not
            counted there are no accuracies.
        groups: groups of classes to report separately, formed at each client by its own sizes.
        metrics: further metrics, reported as means over clients.
    """
    total = counts["total"]
    results = {
        column: evaluation.personal_accuracy(counts[key], total)
        for key, column in PERSONAL_COLUMNS.items()
        if key in counts
    }
    for key, column in _DETAILED_COLUMNS.items():
        if key not in counts:
            continue
        if groups.clients:
            by_group = evaluation.personal_group_accuracy(counts[key], total, groups.clients)
            results.update({f"{column}_{name}": value for name, value in by_group.items()})
        results.update(_means(metrics, counts, key, column))
    if "validation_total" in counts:
        for key, column in _VALIDATION_COLUMNS.items():
            if key in counts:
                held_out = counts["validation_total"]
                results[column] = evaluation.personal_accuracy(counts[key], held_out)
    return results


def at_new_clients(
    counts: Mapping[str, np.ndarray], metrics: Sequence[Metric] = ()
) -> dict[str, float]:
    """Mean accuracies at clients that take no part in training, in percent.

    Args:
        counts: `total`, their test samples by client and class, and of these those that a model
            classifies correctly: `global`, the global model; `before` and `after`, the personal
            models; and `global_answers` and so on, the test samples by the class that it predicts.
            Of what was not counted there are no accuracies. Empty without such clients.
        metrics: further metrics, reported as means over these clients.
    """
    results = {}
    for key, column in _NEW_COLUMNS.items():
        if key in counts:
            results[column] = evaluation.personal_accuracy(counts[key], counts["total"])
            results.update(_means(metrics, counts, key, column))
    return results


def _means(
    metrics: Sequence[Metric], counts: Mapping[str, np.ndarray], key: str, column: str
) -> dict[str, float]:
    """The means over clients of metrics of one kind of count, by their columns."""
    found = {}
    for metric in metrics:
        of_clients = zip(counts[key], counts["total"], counts[f"{key}_answers"], strict=True)
        found[f"{metric.name}_{column}"] = _mean([_measured(metric, *own) for own in of_clients])
    return found


def columns(
    heads: Sequence[str],
    groups: Groups,
    metrics: Sequence[Metric],
    *,
    validation: bool,
    new_clients: bool = False,
    has_global_model: bool = True,
) -> list[str]:
    """The names of all accuracies that an experiment can report, in the order of metrics.csv."""
    of_heads = [_head_column(head) for head in heads]
    of_new = [
        column
        for key, column in _NEW_COLUMNS.items()
        if new_clients and (has_global_model or key != "global")
    ]
    return [
        *of_heads,
        *PERSONAL_COLUMNS.values(),
        *((*GLOBAL_VALIDATION, *_VALIDATION_COLUMNS.values()) if validation else ()),
        *of_new,
        *(f"{head}_{group}" for head in of_heads for group in groups.federation),
        *(f"{pa}_{group}" for pa in _DETAILED_COLUMNS.values() for group in groups.federation),
        *metric_columns(metrics, ("ga", *_DETAILED_COLUMNS.values(), *of_new)),
    ]


def metric_columns(
    metrics: Sequence[Metric],
    accuracies: Sequence[str] = ("ga", *_DETAILED_COLUMNS.values(), *_NEW_COLUMNS.values()),
) -> list[str]:
    """The columns that metrics may have, of the models whose accuracies are named."""
    return [f"{metric.name}_{accuracy}" for metric in metrics for accuracy in accuracies]


def _head_column(head: str) -> str:
    return "ga" if head == "head" else f"ga_{head}"


def _measured(metric: Metric, correct: np.ndarray, total: np.ndarray, answers: np.ndarray) -> float:
    """What a metric, which may be one of the user's own, makes of a model's counts."""
    value = metric.measure_answers(correct, total, answers)
    try:
        return float(value)
    except (TypeError, ValueError):
        reason = f"its measure has returned {shown(repr(value), 80)} instead of a number"
        raise SettingError("metrics", metric.name, reason) from None


def _mean(values: Sequence[float]) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    defined = [value for value in values if value == value]
    return float(np.mean(defined)) if defined else float("nan")
