"""What the tables of comparisons, sweeps, reports and published results have in common."""

from __future__ import annotations

from tff_pcdd.data import ClassGroups

# The method with which the others are compared.
BASELINE = "fedavg"

# Accuracies: the key in the summary of a run and the column of comparison.csv, and the heading.
HEADINGS = {
    "ga_final": "GA",
    "ga_second_half": "GA, 2nd half",
    "pa_before_final": "PA before",
    "pa_before_masked_final": "PA before, own classes",
    "pa_final": "PA after",
}

# Groups of classes, which have accuracies of their own if classes differ in size.
PARTS = ClassGroups._fields
GROUPS = {
    f"{measure}_{part}_final": f"{HEADINGS[f'{measure}_final']}, {part}"
    for measure in ("ga", "pa")
    for part in PARTS
}


def headings(*columns: str) -> dict[str, str]:
    """The headings of some columns, by column."""
    return {column: {**HEADINGS, **GROUPS}[column] for column in columns}


def label(method: str, has_global_model: bool) -> str:
    """The name of a method in tables; † if it has no global model.

    Example:
        >>> label("fedavg", True), label("fedper", False)
        ('fedavg', 'fedper †')
    """
    return method if has_global_model else f"{method} †"
