"""FedAvg in BlazeFL's process mode, with a process with one thread for each core.

    python peers/blazefl_program.py WORKLOAD float32

BlazeFL starts its processes anew in every round. Here, they are forked from this process, which has
loaded everything that they need, and weights pass through shared memory.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # or else the first optimizer of each process imports it
from blazefl.contrib import (
    FedAvgBaseServerHandler,
    FedAvgPartitionType,
    FedAvgProcessPoolClientTrainer,
)
from blazefl.core import IPCMode, ModelSelector, PartitionedDataset
from common import Workload, serve
from torch_work import Client, keras_weights, network

# Forked processes find what these functions have returned before.


@functools.cache
def _work(path: str) -> Workload:
    return Workload(path)


@functools.cache
def _client(path: str, number: int) -> Client:
    return Client(_work(path), number)


@functools.cache
def _network(path: str) -> torch.nn.Module:
    # BlazeFL flattens weights in a way that does not allow for `channels_last`.
    return network(_work(path), channels_last=False)


class Samples(PartitionedDataset[FedAvgPartitionType]):
    """The clients' samples in the workload's order.

    It is sent to a process with every client, so it contains no samples.
    """

    def __init__(self, path: str):
        self._path = path
        self.round = 0

    def get_dataset(self, type_, cid):
        """The samples of a client."""
        return _client(self._path, cid).batches(self.round).dataset

    def set_dataset(self, type_, cid, dataset):
        """Nothing: samples do not change."""

    def get_dataloader(self, type_, cid, batch_size, generator):
        """The batches of a client in this round."""
        return _client(self._path, cid).batches(self.round)


class Networks(ModelSelector[str]):
    """Makes the workload's network."""

    def __init__(self, path: str):
        self._path = path

    def select_model(self, model_name):
        """The network, in which BlazeFL replaces the weights."""
        return _network(self._path)


def make(path: str, folder: Path):
    """The global network, and a function that computes a round.

    Args:
        path: of the workload.
        folder: where the states of random generators are kept.
    """
    work, samples = _work(path), Samples(path)
    for number in range(work.clients):
        _client(path, number)
    shared = {
        "model_selector": Networks(path),
        "model_name": work.model,
        "dataset": samples,
        "device": "cpu",
        "num_clients": work.clients,
        "batch_size": work.batch_size,
        "seed": 0,
    }
    handler = FedAvgBaseServerHandler(**shared, global_round=10**9, sample_ratio=1.0)
    trainer = FedAvgProcessPoolClientTrainer(
        **shared,
        epochs=work.epochs,
        lr=work.learning_rate,
        num_parallels=len(os.sched_getaffinity(0)),
        ipc_mode=IPCMode.SHARED_MEMORY,
        share_dir=folder,
        state_dir=folder,
    )

    def next_round():
        samples.round = handler.round
        trainer.local_process(handler.downlink_package(), handler.sample_clients())
        for package in trainer.uplink_package():
            handler.load(package)

    return handler.model, next_round


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("fork")
    torch.set_num_threads(1)
    path = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        model, next_round = make(path, Path(folder))
        serve(next_round, lambda: keras_weights(model, _work(path)), ["blazefl", "torch"])
