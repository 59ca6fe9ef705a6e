"""What a round of training reports, from the sums over its cohort."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_pcdd.training.nonfinite import NonfiniteLog

if TYPE_CHECKING:
    from tff_pcdd.federated import TrainingSpec

# Columns of a run in which local work is unequal: how many clients of the round dropped out of it,
# and the local steps of all others together.
WORK = ("dropped_clients", "local_steps")


def work_columns(spec: TrainingSpec) -> tuple[str, ...]:
    """The columns of a run about local work; none if all clients do all of it."""
    return () if spec.local_work.is_full or spec.method.pools_samples else WORK


def round_metrics(
    metrics: Mapping[str, Any], num_clients: int, nonfinite: NonfiniteLog
) -> dict[str, float]:
    """The means over the cohort's samples, and the counts of clients and steps.

    Args:
        metrics: what `FederatedProcess.next` returned.
        num_clients: number of clients that computed the round.
        nonfinite: receives what is not finite.

    Returns:
        `train_loss` and the method's own metrics; with unequal local work also `WORK`.
    """
    sums = {name: float(total) for name, total in metrics["sums"].items()}
    trained_on = sums.pop("samples")
    work = {}
    if "dropped" in sums:
        work = dict(zip(WORK, (round(sums.pop("dropped")), round(sums.pop("steps"))), strict=True))
    dropped = work.get("dropped_clients", 0)
    # If nothing is left, there is no mean loss either.
    samples = trained_on or (math.nan if dropped else 1.0)
    if excluded := num_clients - dropped - round(float(metrics["included"])):
        nonfinite.excluded(excluded, num_clients, lost=not trained_on)
        samples = trained_on or math.nan
    if not metrics["step_taken"]:
        nonfinite.note("the server's step is not finite; it is not taken", lost=True)
    train_loss = sums.pop("loss") / samples
    nonfinite.check_loss(train_loss)
    return {
        "train_loss": train_loss,
        **{name: total / samples for name, total in sums.items()},
        **work,
    }
