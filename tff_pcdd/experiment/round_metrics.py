"""What a round of training reports, from the sums over its cohort."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_pcdd.experiment.nonfinite import NonfiniteLog

if TYPE_CHECKING:
    from tff_pcdd.federated import FederatedProcess, TrainingSpec

# Columns of a run in which local work is unequal: how many clients of the round dropped out of it,
# and the local steps of all others together.
WORK = ("dropped_clients", "local_steps")


def work_columns(spec: TrainingSpec) -> tuple[str, ...]:
    """The columns of a run about local work; none if all clients do all of it."""
    return () if spec.local_work.is_full or spec.method.pools_samples else WORK


def round_metrics(
    spec: TrainingSpec,
    metrics: Mapping[str, Any] | None,
    num_clients: int,
    num_dropped: int,
    nonfinite: NonfiniteLog,
) -> dict[str, float]:
    """The means over the cohort's samples, and the counts of clients and steps.

    Returns:
        `train_loss` and the method's own metrics, NaN if there is nothing to average; with unequal
        local work also `WORK`. A metric is averaged over the samples of the phases that return it.
    """
    if metrics is None:
        nonfinite.all_dropped(num_dropped)
        names = ("train_loss", *spec.method.metric_names)
        work = dict(zip(WORK, (num_dropped, 0), strict=True))
        return {**dict.fromkeys(names, math.nan), **work}
    sums = dict(metrics["sums"])
    measured = sums.pop("measured", {})
    sums = {name: float(total) for name, total in sums.items()}
    trained_on = sums.pop("samples")
    work = {}
    if "steps" in sums:
        work = dict(zip(WORK, (num_dropped, round(sums.pop("steps"))), strict=True))
    # Without samples, there is no mean loss either.
    samples = trained_on or math.nan
    if excluded := num_clients - round(float(metrics["included"])):
        nonfinite.excluded(excluded, num_clients, num_dropped, everyone=not trained_on)
    if not metrics["step_taken"]:
        nonfinite.note("the server's step is not finite; it is not taken", lost=True)
    train_loss = sums.pop("loss") / samples
    nonfinite.check_loss(train_loss)
    return {
        "train_loss": train_loss,
        **{name: sums[name] / (float(count) or math.nan) for name, count in measured.items()},
        **work,
    }


def traffic(
    process: FederatedProcess,
    metrics: Mapping[str, Any] | None,
    senders: int,
    receivers: int,
    newcomers: int,
) -> dict[str, int]:
    """The bytes that all clients of a round send and receive; newcomers also the fixed weights."""
    sent = 0.0 if metrics is None else float(metrics["sent"])
    return {
        "upload_bytes": process.update_bytes * senders + round(process.extra_bytes * sent),
        "download_bytes": process.download_bytes * receivers + process.fixed_bytes * newcomers,
    }
