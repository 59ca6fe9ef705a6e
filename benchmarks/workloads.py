"""Workloads of the benchmark: random images or text, divided evenly among clients."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from tff_pcdd import data, federated, methods, models
from tff_pcdd.data import partitions
from tff_pcdd.data.sources.leaf import ALPHABET
from tff_pcdd.experiment.cohorts import derive_seed
from tff_pcdd.experiment.simulation import training_spec
from tff_pcdd.federated import TrainingSpec, client_optimizers
from tff_pcdd.federated.records import ClientData
from tff_pcdd.training import ExperimentConfig, TrainingConfig

_NUM_CLASSES = 10
# Characters of a text, as in LEAF's Shakespeare.
_LENGTH = 80
_TEST_SAMPLES = 100


def divided(clients: int, shards: int) -> partitions.Partition:
    """Clients with so many shards each; 0 for samples of all classes."""
    if not shards:
        return partitions.create("iid", num_clients=clients)
    return partitions.create("shards", num_clients=clients, shards_per_client=shards)


def synthetic(
    samples: int, clients: int, shape: tuple[int, ...] = (32, 32, 3), *, shards: int = 0
) -> data.DataConfig:
    """Random images with random labels, divided evenly among clients.

    Args:
        samples: number of training samples.
        clients: number of clients.
        shape: shape of an image, by default that of CIFAR-10.
        shards: number of shards of each client; 0 for samples of all classes.
    """

    class Synthetic(data.sources.ImageSource):
        info = data.DatasetInfo("synthetic", "image", _NUM_CLASSES, shape, mean=(0.5,) * shape[-1])

        def load(self, request):
            generator = np.random.default_rng(0)
            train, test = (
                data.Examples(
                    generator.integers(0, 256, (number, *shape), np.uint8),
                    generator.integers(0, _NUM_CLASSES, number, np.int32),
                )
                for number in (samples, _TEST_SAMPLES)
            )
            names = tuple("0123456789")
            return data.sources.PooledData(train, test, names, self.image_spec())

    return data.DataConfig(source=Synthetic(), partition=divided(clients, shards))


def synthetic_text(samples: int, clients: int) -> data.DataConfig:
    """Random text whose next character is random, divided evenly among clients.

    Args:
        samples: number of training samples.
        clients: number of clients.
    """
    characters = tuple(ALPHABET)

    class SyntheticText(data.sources.TextSource):
        info = data.DatasetInfo(
            "synthetic_text", "text", len(characters), (_LENGTH,), vocabulary=ALPHABET
        )

        def load(self, request):
            generator = np.random.default_rng(0)
            train, test = (
                data.Examples(
                    generator.integers(0, len(characters), (number, _LENGTH), np.uint8),
                    generator.integers(0, len(characters), number, np.int32),
                )
                for number in (samples, _TEST_SAMPLES)
            )
            return data.sources.PooledData(train, test, characters, self.text_spec())

    return data.DataConfig(
        source=SyntheticText(), partition=partitions.create("iid", num_clients=clients)
    )


@dataclasses.dataclass(frozen=True)
class Workload:
    """The size of a round.

    Attributes:
        model: name of the backbone.
        clients: number of clients, all of which take part.
        samples: training samples of each client.
        batch_size: samples per local step.
        epochs: local epochs.
        shards: number of shards of each client; 0 for samples of all classes.
        sgd: settings of the clients' SGD that differ from the defaults.
    """

    model: str
    clients: int
    samples: int
    batch_size: int
    epochs: int
    shards: int = 0
    sgd: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self):
        return f"{self.model}, {self.size}"

    @property
    def size(self) -> str:
        """The work of a round in words, without the backbone."""
        shards = f" in {self.shards} shards" if self.shards else ""
        epochs = "1 local epoch" if self.epochs == 1 else f"{self.epochs} local epochs"
        samples = f"texts of {_LENGTH} characters" if self.is_text else "images of 32×32×3"
        return (
            f"{self.clients} clients × {self.samples} {samples}{shards}, "
            f"batches of {self.batch_size}, {epochs}"
        )

    @property
    def is_text(self) -> bool:
        """Whether the samples are texts."""
        return issubclass(models.get(self.model), models.TextBackbone)

    def config(
        self,
        algorithm: str = "fedavg",
        *,
        projection_dim: int | None = None,
        rounds: int = 30,
        precision: str = "float32",
    ) -> ExperimentConfig:
        """An experiment with rounds of this size."""
        samples = self.clients * self.samples
        if self.is_text:
            source = synthetic_text(samples, self.clients)
        else:
            source = synthetic(samples, self.clients, shards=self.shards)
        return ExperimentConfig(
            method=methods.create(algorithm),
            data=source,
            model=models.ModelConfig(
                models.create(self.model), projection_dim, precision=precision
            ),
            training=TrainingConfig(
                rounds=rounds,
                batch_size=self.batch_size,
                local_epochs=self.epochs,
                optimizer=client_optimizers.create("sgd", **self.sgd),
            ),
        )

    def build(
        self,
        algorithm: str = "fedavg",
        *,
        projection_dim: int | None = None,
        precision: str = "float32",
    ) -> tuple[TrainingSpec, list[data.Examples]]:
        """What a round computes, and the training examples of each client."""
        config = self.config(algorithm, projection_dim=projection_dim, precision=precision)
        federation = config.data.build()
        spec = training_spec(config, federation)
        return spec, [federation.client_examples(k)[0] for k in range(self.clients)]


# What the runtimes are measured with, and the tiny one of a quick run.
WORKLOADS = (Workload("simple_cnn", 10, 320, 32, 2), Workload("resnet18", 2, 64, 32, 1))
QUICK_WORKLOADS = (Workload("simple_cnn", 2, 16, 8, 1),)


class Rounds:
    """Consecutive rounds of this project's computations, in TFF's current context.

    Args:
        process: the computations; the constructor calls some of them.
        clients: the training examples of each client.
    """

    def __init__(self, process: federated.FederatedProcess, clients: list[data.Examples]):
        self._process = process
        self._examples = [OrderedDict(x=client.x, y=client.y) for client in clients]
        self.state = process.initialize()
        self._client_states = [
            process.initial_client_state(derive_seed(0, k)) for k in range(len(clients))
        ]
        self._round = 0

    def next(self) -> None:
        """Computes a round."""
        data_of_round = [
            ClientData(
                train=examples, seed=derive_seed(0, self._round, k), cohort_index=np.int32(k)
            )
            for k, examples in enumerate(self._examples)
        ]
        self.state, self._client_states, _ = self._process.next(
            self.state, self._client_states, data_of_round
        )
        self._round += 1
