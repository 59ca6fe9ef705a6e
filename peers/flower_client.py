"""A client of `flower.py`, in a module of its own that Ray's workers import."""

from __future__ import annotations

import functools
import os

import torch
from common import Workload
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch_work import Client, network

# Ray's workers inherit the environment of the program, not its arguments.
WORKLOAD, PRECISION = "PEER_WORKLOAD", "PEER_PRECISION"

app = ClientApp()


@functools.cache
def work() -> Workload:
    """The workload."""
    return Workload(os.environ[WORKLOAD])


@functools.cache
def _client(number: int) -> Client:
    return Client(work(), number)


@functools.cache
def _network() -> torch.nn.Module:
    torch.set_num_threads(1)
    return network(work(), channels_last=True)


@app.train()
def train(message: Message, context) -> Message:
    """A client's part of a round."""
    model, client = _network(), _client(context.node_config["partition-id"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    bfloat16 = os.environ[PRECISION] == "bfloat16"
    client.train(model, message.content["config"]["number"], bfloat16=bfloat16, channels_last=True)
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(client)}),
        }
    )
    return Message(content=content, reply_to=message)
