"""FedAvg in pfl-research, which trains the clients one after the other in this process.

    python peers/pfl_research.py WORKLOAD float32|bfloat16

The model that pfl-research averages has parameters only: the statistics of batch normalization stay
as the last client left them.
"""

from __future__ import annotations

import functools
import logging
import sys

import numpy as np
import torch
from common import Workload, serve
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional
from torch_work import keras_weights, network


class Samples(Dataset):
    """A client's samples in the workload's order; pfl-research does not shuffle."""

    def __init__(self, work: Workload, number: int):
        images = torch.from_numpy(work.images[number].transpose(0, 3, 1, 2).copy())
        super().__init__((images, torch.from_numpy(work.labels[number]).long()), str(number))
        self._work, self._number = work, number
        self._epochs = 0

    def iter(self, batch_size):
        """The batches of an epoch."""
        x, y = self.raw_data
        if batch_size == len(self):  # evaluation, before and after the first round
            yield x, y
            return
        round_number, epoch = divmod(self._epochs, self._work.epochs)
        order = torch.from_numpy(self._work.order(round_number, self._number, epoch))
        self._epochs += 1
        for index in order.split(batch_size):
            yield x[index].contiguous(memory_format=torch.channels_last), y[index]


class StopAfterRound(TrainingProcessCallback):
    """Ends `FederatedAveraging.run`, which continues when it is called again."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Says that training stops."""
        return True, Metrics()


def make(work: Workload, bfloat16: bool):
    """The network, and a function that computes a round."""
    module = network(work, channels_last=True)

    def loss(x, y):
        module.train()
        return functional.cross_entropy(module(x), y)

    def metrics(x, y):
        return {"samples": Weighted(len(x), len(x))}

    module.loss, module.metrics = loss, metrics
    sgd = functools.partial(torch.optim.SGD, momentum=work.momentum, weight_decay=work.weight_decay)
    central = torch.optim.SGD(module.parameters(), lr=1.0)
    amp_dtype = torch.bfloat16 if bfloat16 else None
    model = PyTorchModel(module, sgd, central, amp_dtype=amp_dtype)
    users = FederatedDataset(
        functools.cache(lambda number: Samples(work, number)),
        get_user_sampler("minimize_reuse", list(range(work.clients))),
    )
    backend = SimulatedBackend(users, None)
    local = NNTrainHyperParams(
        local_learning_rate=work.learning_rate,
        local_num_epochs=work.epochs,
        local_batch_size=work.batch_size,
        local_max_grad_norm=work.clip_norm or None,
    )
    settings = NNAlgorithmParams(
        central_num_iterations=10**9,
        evaluation_frequency=10**9,
        train_cohort_size=work.clients,
        val_cohort_size=0,
    )
    algorithm = FederatedAveraging()

    def next_round():
        algorithm.run(settings, backend, model, local, callbacks=[StopAfterRound()])

    return module, next_round


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    np.random.seed(0)
    work = Workload(sys.argv[1])
    module, next_round = make(work, sys.argv[2] == "bfloat16")
    serve(next_round, lambda: keras_weights(module, work), ["pfl", "torch"])
