"""The settings of training of each combination.

They are not axes of their own: that would multiply the number of combinations by more than a
thousand. Combinations that share their traced computations share a profile, which has one value for
each kind of setting. Within a method, the values of a kind take turns in an order that is drawn for
each method and kind, so every value meets every method. Where a method or an aggregator refuses a
value, the plain one takes its place.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterable, Mapping
from typing import Any

from tests.matrix import combinations
from tests.matrix.combinations import Cell
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.cohorts import BY_SAMPLES
from tff_pcdd.federated import LocalWork, client_optimizers, schedules, server_optimizers
from tff_pcdd.settings import describe, option_fields
from tff_pcdd.training import ExperimentConfig, TrainingConfig


def _sampling() -> list[str]:
    """The ways to draw a cohort."""
    return next(list(s.choices) for s in describe(TrainingConfig) if s.name == "cohort_sampling")


# The kinds of settings, from the registries and the declarations of settings.
AXES: Mapping[str, list] = {
    "schedule": schedules.names(),
    "warmup_rounds": [0, 1],
    "client_optimizer": client_optimizers.names(),
    # "sgd" has another step size than the 1 with which the mean change is added.
    "server_optimizer": ["none", *server_optimizers.names()],
    "local_work": ["full", *(field.name for field in option_fields(LocalWork))],
    "cohort_sampling": _sampling(),
}
# The values that are used by default; nothing refuses them.
PLAIN = {
    "schedule": "constant",
    "warmup_rounds": 0,
    "client_optimizer": "sgd",
    "server_optimizer": "none",
    "local_work": "full",
    "cohort_sampling": "uniform",
}
# The kinds of the settings that a refusal may name.
_KINDS = {axis: axis for axis in AXES} | {"server_learning_rate": "server_optimizer"}
# The computations of a method that are traced separately, in a fixed order.
_TRACED = list(
    itertools.product(combinations.AXES["normalization"], combinations.AXES["precision"])
)


@dataclasses.dataclass(frozen=True)
class Profile:
    """A value of each kind of setting; see `AXES`."""

    schedule: str
    warmup_rounds: int
    client_optimizer: str
    server_optimizer: str
    local_work: str
    cohort_sampling: str

    def applied(self, config: ExperimentConfig) -> ExperimentConfig:
        """The settings with those of this profile.

        Raises:
            SettingError: the method or the aggregator refuses one of them.
        """
        optimizer = config.training.optimizer
        if self.client_optimizer != optimizer.name:
            optimizer = client_optimizers.create(
                self.client_optimizer,
                weight_decay=optimizer.weight_decay,
                clip_norm=optimizer.clip_norm,
            )
        method, sampling = config.method, PLAIN["cohort_sampling"]
        # Nothing is drawn where all clients take part.
        if config.training.clients_per_round:
            sampling = self.cohort_sampling
        if self.cohort_sampling == BY_SAMPLES:
            # With the draw and the mean, samples would be counted twice.
            method = dataclasses.replace(method, client_weighting="uniform")
        return dataclasses.replace(
            config,
            method=method,
            server_optimizer=self._server_optimizer(),
            training=dataclasses.replace(
                config.training,
                optimizer=optimizer,
                schedule=schedules.create(self.schedule, warmup_rounds=self.warmup_rounds),
                local_work=self._local_work(),
                cohort_sampling=sampling,
            ),
        )

    def _server_optimizer(self) -> server_optimizers.ServerOptimizer:
        if self.server_optimizer == PLAIN["server_optimizer"]:
            return server_optimizers.create("sgd")
        made = server_optimizers.create(self.server_optimizer)
        return dataclasses.replace(made, learning_rate=0.5) if made.adds_change else made

    def _local_work(self) -> LocalWork:
        if self.local_work == PLAIN["local_work"]:
            return LocalWork()
        field = next(f for f in option_fields(LocalWork) if f.name == self.local_work)
        # From one epoch to the two of all combinations, or a share of the clients.
        return LocalWork(**{self.local_work: 1 if field.metadata["type"] is int else 0.5})


def wanted(method: str, normalization: str, precision: str) -> Profile:
    """The profile of traced computations, whatever is refused."""
    number = _TRACED.index((normalization, precision))

    def value(axis: str) -> Any:
        values = list(AXES[axis])
        random.Random(f"{axis} {method}").shuffle(values)
        return values[number % len(values)]

    return Profile(**{axis: value(axis) for axis in AXES})


@functools.cache
def _chosen(
    method: str, normalization: str, precision: str, aggregator: str
) -> tuple[Profile, Mapping[str, SettingError]]:
    cell = Cell(method, aggregator, normalization, precision, "partial", "empty", "personal")
    profile, refused = wanted(*cell.traced), {}
    while (error := combinations.error_of(cell, profile.applied)) is not None:
        kind = _KINDS[error.setting]
        assert kind not in refused, f"{cell}: {error}"
        refused[kind] = error
        profile = dataclasses.replace(profile, **{kind: PLAIN[kind]})
    return profile, refused


def profile_of(
    method: str, normalization: str, precision: str, aggregator: str = "mean"
) -> Profile:
    """The profile of traced computations, with the plain value of every kind that is refused."""
    return _chosen(method, normalization, precision, aggregator)[0]


def refused(
    method: str, normalization: str, precision: str, aggregator: str = "mean"
) -> Mapping[str, SettingError]:
    """The reasons for plain values that took the place of others, by kind."""
    return _chosen(method, normalization, precision, aggregator)[1]


def sampling_of(cell: Cell) -> str | None:
    """How the cohorts of a combination are drawn; None if all clients take part."""
    if cell.participation == "full":
        return None
    return profile_of(*cell.traced, cell.aggregator).cohort_sampling


def methods_by_value(cells: Iterable[Cell]) -> Mapping[tuple[str, Any], set[str]]:
    """The methods that are trained with each value of each kind, in some combinations."""
    found = collections.defaultdict(set)
    for cell in cells:
        values = dataclasses.asdict(profile_of(*cell.traced))
        values["cohort_sampling"] = sampling_of(cell)
        for item in values.items():
            found[item].add(cell.method)
    return found
