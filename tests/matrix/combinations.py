"""The combinations, which of them are refused, and a sample of the others."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Collection
from unittest import mock

import tensorflow as tf

from tff_pcdd import data, export, methods, models
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment import planning
from tff_pcdd.export import exporter
from tff_pcdd.federated import SGD, aggregators, upload
from tff_pcdd.models.precision import PRECISIONS
from tff_pcdd.training import ExperimentConfig, TrainingConfig

# Numbers of the clients of `support` with few samples.
CLIENTS = {"empty": 4, "one sample": 2, "one class": 3}
AXES = {
    "method": methods.names(),
    "aggregator": aggregators.names(),
    "normalization": ["batch", "group", "personal"],
    "precision": [*PRECISIONS],
    "participation": ["full", "partial"],
    "client": list(CLIENTS),
    "export": ["global", "personal"],
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A combination; `client` takes part in every round, and it is its model that is exported."""

    method: str
    aggregator: str
    normalization: str
    precision: str
    participation: str
    client: str
    export: str

    @property
    def traced(self) -> tuple[str, str, str]:
        """What combinations that share their traced computations have in common."""
        return self.method, self.normalization, self.precision

    @functools.cached_property
    def pairs(self) -> frozenset[tuple]:
        """All pairs of two values, with their axes."""
        values = zip(AXES, dataclasses.astuple(self), strict=True)
        return frozenset(itertools.combinations(values, 2))

    @property
    def values_without_method(self) -> frozenset[tuple]:
        """The values but for the method, with their axes."""
        return frozenset(zip(AXES, dataclasses.astuple(self), strict=True)) - {
            ("method", self.method)
        }

    def __str__(self) -> str:
        rest = (self.aggregator, self.participation, self.client, self.export)
        return "-".join((*self.traced, *rest)).replace(" ", "_")


@functools.cache
def cells() -> tuple[Cell, ...]:
    """All combinations."""
    return tuple(Cell(*values) for values in itertools.product(*AXES.values()))


# A few combinations for a quick look, of different methods, aggregators and clients.
HANDFUL = (
    Cell("fedavg", "robust", "batch", "float32", "partial", "one class", "global"),
    Cell("fedloge", "dp", "group", "float32", "partial", "one sample", "personal"),
    Cell("fedmr", "mean", "personal", "bfloat16", "full", "empty", "personal"),
)


@dataclasses.dataclass(frozen=True)
class Tiny(models.NormalizationOption, models.ImageBackbone):
    """Two dense layers with a normalization between them."""

    name = "tiny"

    def network(self, input_shape, projection_dim):
        inputs = tf.keras.Input(input_shape)
        h = tf.keras.layers.Dense(8)(tf.keras.layers.Flatten()(inputs))
        h = models.normalize(h, self.normalization)
        h = tf.keras.layers.Dense(16, activation="relu")(h)
        return tf.keras.Model(inputs, models.project(h, projection_dim))


def config_of(cell: Cell) -> ExperimentConfig:
    """The settings of a combination.

    Raises:
        SettingError: they are refused.
    """
    personal = cell.normalization == "personal"
    backbone = Tiny(normalization="batch" if personal else cell.normalization)
    return ExperimentConfig(
        method=methods.create(cell.method),
        data=data.DataConfig(partition=data.partitions.create("class", num_clients=5)),
        model=models.ModelConfig(
            backbone=backbone,
            bn="personal" if personal else "averaged",
            precision=cell.precision,
        ),
        aggregator=aggregators.create(cell.aggregator),
        training=TrainingConfig(
            rounds=3,
            clients_per_round=3 if cell.participation == "partial" else 0,
            local_epochs=2,
            batch_size=4,
            optimizer=SGD(learning_rate=0.05, weight_decay=1e-3, clip_norm=5.0),
        ),
    )


def refusal(cell: Cell) -> SettingError | None:
    """Why a combination is refused, decided without training; None if it is not."""
    error = _refusal(cell.method, cell.aggregator, cell.normalization)
    return error or _refused_export(cell.method, cell.export)


@functools.cache
def _refused_export(method: str, models: str) -> SettingError | None:
    clients = "none" if models == "global" else "all"
    try:
        config = ExperimentConfig.from_settings(algorithm=method)
        exporter.check_options(config, export.ExportOptions(clients=clients))
    except SettingError as error:
        return error
    return None


@functools.cache
def _refusal(method: str, aggregator: str, normalization: str) -> SettingError | None:
    return error_of(
        Cell(method, aggregator, normalization, "float32", "partial", "empty", "personal")
    )


def error_of(
    cell: Cell, change: Callable[[ExperimentConfig], ExperimentConfig] = lambda config: config
) -> SettingError | None:
    """Why the settings of a combination are refused, whatever is exported; None if they are not.

    Args:
        cell: the combination.
        change: makes other settings of them, which have the same network and send the same.
    """
    # Neither the network nor what clients send depends on the aggregator, and they take most of
    # the time.
    spec, sent = _planned(cell.method, cell.normalization)
    with (
        mock.patch.object(planning, "planned_spec", lambda _: spec),
        mock.patch.object(upload, "upload_of", lambda _: sent),
    ):
        try:
            planning.check(change(config_of(cell)))
        except SettingError as error:
            return error
    return None


@functools.cache
def _planned(method: str, normalization: str):
    cell = Cell(method, "mean", normalization, "float32", "partial", "empty", "personal")
    spec = planning.planned_spec(config_of(cell))
    return spec, upload.upload_of(spec)


@functools.cache
def sample(seed: int = 0) -> list[Cell]:
    """Combinations that are not refused and contain every pair of values that any of them has."""
    return _covering(lambda cell: cell.pairs, seed)


@functools.cache
def short_sample(seed: int = 0) -> list[Cell]:
    """The handful, and what it lacks for every value of each axis but for the method.

    The others are of the methods of the handful, too.
    """
    chosen = {cell.method for cell in HANDFUL}
    return _covering(lambda cell: cell.values_without_method, seed, HANDFUL, chosen)


def _covering(
    contents: Callable[[Cell], frozenset],
    seed: int,
    first: Collection[Cell] = (),
    of_methods: Collection[str] = AXES["method"],
) -> list[Cell]:
    """Combinations that are not refused and contain all that any of them contains.

    Chosen greedily: of those with the most that is new, one that shares its computations with a
    chosen one.

    Args:
        contents: what a combination contains.
        seed: decides between combinations that are equally good.
        first: combinations that are chosen in any case.
        of_methods: the methods of the others.
    """
    allowed = {cell: contents(cell) for cell in cells() if refusal(cell) is None}
    missing = set().union(*allowed.values()).difference(*map(contents, first))
    order = [cell for cell in allowed if cell.method in of_methods]
    random.Random(seed).shuffle(order)
    chosen = [*first]
    traced = {cell.traced for cell in first}
    while missing:
        best = max(order, key=lambda c: (len(allowed[c] & missing), c.traced in traced))
        chosen.append(best)
        traced.add(best.traced)
        missing -= allowed[best]
    return sorted(chosen, key=str)
