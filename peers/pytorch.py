"""FedAvg as a plain PyTorch loop, in the manner of PFLlib: the clients one after the other.

    python peers/pytorch.py WORKLOAD float32|bfloat16 contiguous|channels_last

Every client has a copy of the network, loads the global weights, trains with a DataLoader and
`torch.optim.SGD`, and the server adds up weighted copies. PFLlib averages parameters only; here,
the statistics of batch normalization are averaged as well, like in the other programs.
"""

from __future__ import annotations

import copy
import sys

import torch
from common import Workload, serve
from torch_work import Client, keras_weights, network


class Loop:
    """Consecutive rounds."""

    def __init__(self, work: Workload, precision: str, channels_last: bool):
        self._work = work
        self._options = {"bfloat16": precision == "bfloat16", "channels_last": channels_last}
        self.model = network(work, channels_last)
        self._clients = [(copy.deepcopy(self.model), Client(work, k)) for k in range(work.clients)]
        self._round = 0

    def next(self) -> None:
        """Computes a round."""
        for model, client in self._clients:
            model.load_state_dict(self.model.state_dict())
            client.train(model, self._round, **self._options)
        self._average()
        self._round += 1

    @torch.no_grad()
    def _average(self) -> None:
        total = sum(len(client) for _, client in self._clients)
        states = [(model.state_dict(), len(client) / total) for model, client in self._clients]
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                value.zero_()
                for state, share in states:
                    value += share * state[name]


if __name__ == "__main__":
    work = Workload(sys.argv[1])
    loop = Loop(work, sys.argv[2], channels_last=sys.argv[3] == "channels_last")
    serve(loop.next, lambda: keras_weights(loop.model, work), ["torch"])
