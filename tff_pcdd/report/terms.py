"""What short names on a page mean: of accuracies, and of partitions such as P10C2."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tff_pcdd.experiment.config import ExperimentConfig

_ACCURACIES = {
    "GA": "accuracy of the global model on the whole test set",
    "PA": "accuracy of the clients' personal models on their own test samples, mean over clients",
    "VA": "accuracy on samples that clients held out from training",
    "VA, balanced": "mean over classes of the global model's accuracy on samples that clients held "
    "out from training",
    "VA, personal": "accuracy of the clients' personal models on samples that the client held out "
    "from training, mean over clients",
}


def shown(
    names: Iterable[str], configs: Iterable[ExperimentConfig | None] = ()
) -> list[tuple[str, str]]:
    """Pairs of names and their meanings.

    Args:
        names: accuracies, such as "GA".
        configs: the settings of runs, whose partitions are explained; None where unknown.
    """
    known_data = [config.data for config in configs if config is not None]
    meanings = {own.partition.describe(): own.partition.meaning() for own in known_data}
    new: dict[str, set[int]] = {}
    for own in known_data:
        new.setdefault(own.partition.describe(), set()).add(own.new.count)
    known = [(name, meaning + _new(new[name])) for name, meaning in meanings.items() if meaning]
    return [*((name, _ACCURACIES[name]) for name in names), *known]


def _new(counts: Collection[int]) -> str:
    """How many clients of a partition take no part in training, if that is the same in all runs."""
    (count, *others) = counts
    if others or not count:
        return ""
    verbs = "is new and takes" if count == 1 else "are new and take"
    return f" ({count} of the clients {verbs} no part in training)"
