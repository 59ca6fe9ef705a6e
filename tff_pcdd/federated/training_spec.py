"""What is computed in a round, as one value."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from etils import epy

from tff_pcdd.federated.client_optimizers import ClientOptimizer
from tff_pcdd.federated.local_work import LocalWork
from tff_pcdd.federated.own_code import explained
from tff_pcdd.federated.schedules import Schedule
from tff_pcdd.federated.schedules.constant import Constant
from tff_pcdd.federated.server_optimizers import ServerOptimizer
from tff_pcdd.federated.server_optimizers.sgd import ServerSGD
from tff_pcdd.methods.calibrated import compose
from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.methods.network import Network
from tff_pcdd.methods.records import TaskSpec

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd.federated import initialization
    from tff_pcdd.runtime import _tf_private


@dataclasses.dataclass(frozen=True)
class TrainingSpec:
    """Everything that determines what a round computes.

    Attributes:
        method: the federated method, with its head calibration if it has one.
        task: what is learned.
        input_spec: `tff_pcdd.data.InputSpec` of the stored examples.
        optimizer: the clients' optimizer.
        local_epochs: passes over a client's samples per round.
        batch_size: samples per step.
        eval_batch_size: samples per forward pass in evaluation.
        compile: what XLA compiles of local training: "off", "step" or "client", as in
            `tff_pcdd.experiment.compute.ComputeOptions`.
        validation: whether personal models are also evaluated on their clients' validation samples.
        schedule: the factor of the clients' step size in each round.
        num_rounds: planned rounds, if the schedule depends on them; else None.
        server_optimizer: how the clients' mean change moves the shared weights.
        head_calibration: how the server re-trains the head of the global model, if it does.
        local_work: how much of the local epochs the clients of a round do.
    """

    method: Method
    task: TaskSpec
    input_spec: Any
    optimizer: ClientOptimizer
    local_epochs: int = 5
    batch_size: int = 32
    eval_batch_size: int = 512
    compile: str = "off"
    validation: bool = False
    schedule: Schedule = dataclasses.field(default_factory=Constant)
    num_rounds: int | None = None
    server_optimizer: ServerOptimizer = dataclasses.field(default_factory=ServerSGD)
    local_work: LocalWork = dataclasses.field(default_factory=LocalWork)
    head_calibration: HeadCalibration | None = None

    def __post_init__(self):
        object.__setattr__(self, "method", compose(self.method, self.head_calibration))

    def scheduled(self, learning_rate: float, round_number: tf.Tensor) -> float | tf.Tensor:
        """A step size in a round: the same number if the schedule is constant."""
        factor = self.schedule.factor(round_number, self.num_rounds)
        return learning_rate if factor is None else learning_rate * factor

    def network(self) -> Network:
        """Makes the method's network with fresh variables."""
        with explained(self.method):
            return Network(self.method.build(self.task), self.method, self.task)

    @contextlib.contextmanager
    def outline(self) -> Iterator[Network]:
        """The method's network, for questions about its structure; it is made once.

        What is computed with it has no effect. Its graph is the default one of the block.
        """
        graph, net = self._outline
        with _tf_private.layers_of_a_graph(), graph.as_default():
            yield net

    @functools.cached_property
    def _outline(self) -> tuple[tf.Graph, Network]:
        with (
            _tf_private.layers_of_a_graph(),
            tf.Graph().as_default() as graph,
            initialization.zeros(),
        ):
            return graph, self.network()
