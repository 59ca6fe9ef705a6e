"""What short names on a page mean: of accuracies, and of partitions such as P10C2."""

from __future__ import annotations

from collections.abc import Iterable

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
    partitions = [config.data.partition for config in configs if config is not None]
    meanings = {partition.describe(): partition.meaning() for partition in partitions}
    known = [(name, meaning) for name, meaning in meanings.items() if meaning]
    return [*((name, _ACCURACIES[name]) for name in names), *known]
