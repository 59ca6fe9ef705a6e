"""The settings of rounds, cohorts and local training."""

from __future__ import annotations

import dataclasses

from tff_pcdd.errors import SettingError
from tff_pcdd.federated import client_optimizers, schedules
from tff_pcdd.federated.local_work import LocalWork
from tff_pcdd.settings import check_options, choice, option, part
from tff_pcdd.training.cohorts import BY_SAMPLES, ROUND_ROBIN, UNIFORM
from tff_pcdd.training.nonfinite import EXCLUDE, PATIENCE, STOP


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Rounds, cohorts and local training.

    Raises:
        SettingError: a value is of the wrong type or out of bounds, or does not fit the others.
    """

    rounds: int = option(30, "Rounds of federated training.", minimum=1, group="Training")
    clients_per_round: int = option(
        0, "Clients drawn for each round (the cohort); 0 for all.", minimum=0, group="Training"
    )
    local_epochs: int = option(
        5, "Passes over a client's samples in a round (E).", minimum=1, group="Training"
    )
    batch_size: int = option(32, "Samples per local step.", minimum=1, group="Training")
    optimizer: client_optimizers.ClientOptimizer = choice(
        client_optimizers.registry,
        "sgd",
        "The clients' optimizer, which starts afresh in each round.",
        group="Training",
        implied=True,
    )
    schedule: schedules.Schedule = choice(
        schedules.registry,
        "constant",
        "How the clients' step size changes from round to round.",
        group="Training",
        implied=True,
    )
    local_work: LocalWork = part(LocalWork)
    cohort_sampling: str = option(
        UNIFORM,
        "How the cohort of a round is drawn: uniform; samples (with probabilities proportional to "
        "the clients' numbers of training samples, without replacement); or round_robin (all "
        "clients in turn, in an order drawn once).",
        choices=(UNIFORM, BY_SAMPLES, ROUND_ROBIN),
        group="Training",
        implied=True,
    )
    nonfinite: str = option(
        STOP,
        "Client updates that are NaN or infinite are left out. stop: the run ends, as diverged, "
        f"after {PATIENCE} rounds in a row with such values; exclude: after {PATIENCE} without a "
        "model.",
        choices=(STOP, EXCLUDE),
        group="Training",
    )
    cohort_seed: int | None = option(
        None,
        "Seed of the cohorts; the value of seed by default.",
        type=int,
        minimum=0,
        group="Seeds",
    )
    batch_seed: int | None = option(
        None,
        "Seed of the order of samples; the value of seed by default.",
        type=int,
        minimum=0,
        group="Seeds",
    )

    def __post_init__(self):
        check_options(self)
        least = self.local_work.min_local_epochs
        if least > self.local_epochs:
            reason = f"must be at most local_epochs={self.local_epochs}"
            raise SettingError("min_local_epochs", least, reason)
        self.schedule.check_rounds(self.rounds)

    def advice(self) -> list[str]:
        """Warnings of settings that have no effect."""
        least = self.local_work.min_local_epochs
        equal = (
            f"min_local_epochs={least}: has no effect, because local_epochs is {least} too; all "
            "clients train for as many epochs"
        )
        return [
            *self.schedule.advice(self.rounds),
            *([equal] if least == self.local_epochs else []),
        ]
