"""Workloads of the benchmark: random images, divided evenly among clients."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

import numpy as np

from tff_pcdd import data, federated, methods, models
from tff_pcdd.federated import TrainingSpec
from tff_pcdd.training import ExperimentConfig, TrainingConfig
from tff_pcdd.training.cohorts import derive_seed
from tff_pcdd.training.simulation import training_spec

_NUM_CLASSES = 10
_TEST_SAMPLES = 100


def synthetic(samples: int, clients: int, shape: tuple[int, ...] = (32, 32, 3)) -> data.DataConfig:
    """Random images with random labels, divided evenly among clients.

    Args:
        samples: number of training samples.
        clients: number of clients.
        shape: shape of an image, by default that of CIFAR-10.
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

    partition = data.partitions.create("iid", num_clients=clients)
    return data.DataConfig(source=Synthetic(), partition=partition)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The size of a round.

    Attributes:
        model: name of the backbone.
        clients: number of clients, all of which take part.
        samples: training samples of each client.
        batch_size: samples per local step.
        epochs: local epochs.
    """

    model: str
    clients: int
    samples: int
    batch_size: int
    epochs: int

    def __str__(self):
        epochs = "1 local epoch" if self.epochs == 1 else f"{self.epochs} local epochs"
        return (
            f"{self.model}, {self.clients} clients × {self.samples} images of 32×32×3, "
            f"batches of {self.batch_size}, {epochs}"
        )

    def config(
        self,
        algorithm: str = "fedavg",
        *,
        projection_dim: int | None = None,
        rounds: int = 30,
        precision: str = "float32",
    ) -> ExperimentConfig:
        """An experiment with rounds of this size."""
        return ExperimentConfig(
            method=methods.create(algorithm),
            data=synthetic(self.clients * self.samples, self.clients),
            model=models.ModelConfig(
                models.create(self.model), projection_dim, precision=precision
            ),
            training=TrainingConfig(
                rounds=rounds, batch_size=self.batch_size, local_epochs=self.epochs
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
            OrderedDict(
                train=examples, seed=derive_seed(0, self._round, k), cohort_index=np.int32(k)
            )
            for k, examples in enumerate(self._examples)
        ]
        self.state, self._client_states, _ = self._process.next(
            self.state, self._client_states, data_of_round
        )
        self._round += 1
