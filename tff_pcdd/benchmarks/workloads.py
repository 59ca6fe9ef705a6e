"""What is computed in the measured rounds: random images, divided evenly among clients."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict

import numpy as np

from tff_pcdd import data, federated
from tff_pcdd.federated import Learning
from tff_pcdd.training import ExperimentConfig, RunOptions
from tff_pcdd.training.experiment import build_learning, derive_seed

_NUM_CLASSES = 10
_TEST_SAMPLES = 100


@functools.cache
def synthetic(samples: int, shape: tuple[int, ...] = (32, 32, 3)) -> str:
    """Registers a data set of random images and returns its name.

    Args:
        samples: of its training part.
        shape: of an image, CIFAR-10's by default.
    """
    name = f"synthetic_{samples}_{'x'.join(map(str, shape))}"
    info = data.DatasetInfo(name, "image", _NUM_CLASSES, shape, mean=(0.5,) * shape[-1])

    @data.register_source(info)
    def load(info, options):
        generator = np.random.default_rng(0)
        train, test = (
            data.Examples(
                generator.integers(0, 256, (number, *shape), np.uint8),
                generator.integers(0, _NUM_CLASSES, number, np.int32),
            )
            for number in (samples, _TEST_SAMPLES)
        )
        names = tuple("0123456789")
        return data.Source(train, test, names, data.image_spec(info, options))

    return name


@dataclasses.dataclass(frozen=True)
class Workload:
    """One round: who takes part, and what each client does.

    Attributes:
        model: the backbone.
        clients: the cohort.
        samples: of each client.
        batch_size: samples in a step.
        epochs: passes over a client's samples.
    """

    model: str
    clients: int
    samples: int
    batch_size: int
    epochs: int

    def __str__(self):
        return (
            f"{self.model}, {self.clients} clients × {self.samples} images of 32×32×3, "
            f"batches of {self.batch_size}, E = {self.epochs}"
        )

    def config(self, algorithm: str = "fedavg", **settings) -> ExperimentConfig:
        """The experiment that such a round belongs to."""
        return ExperimentConfig(
            algorithm=algorithm,
            dataset=synthetic(self.clients * self.samples),
            partition="iid",
            num_clients=self.clients,
            model=self.model,
            batch_size=self.batch_size,
            local_epochs=self.epochs,
            **settings,
        )

    def build(self, algorithm: str = "fedavg", **settings) -> tuple[Learning, list[data.Examples]]:
        """What is learnt, and the clients' training examples."""
        config = self.config(algorithm, **settings)
        federation = config.data_config().build()
        learning = build_learning(config, federation, RunOptions())
        return learning, [federation.client_examples(k)[0] for k in range(self.clients)]


class Rounds:
    """Rounds of this project's computations, one after the other, in the context in force."""

    def __init__(self, process: federated.FederatedProcess, clients: list[data.Examples]):
        """Prepares the first round; it needs a context, like all that follow."""
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
            OrderedDict(train=examples, seed=derive_seed(0, self._round, k), slot=np.int32(k))
            for k, examples in enumerate(self._examples)
        ]
        self.state, self._client_states, _ = self._process.next(
            self.state, self._client_states, data_of_round
        )
        self._round += 1
