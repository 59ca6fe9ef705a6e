"""FedAvg in Flower's simulation, with a Ray worker with one thread for each core.

python peers/flower.py WORKLOAD float32|bfloat16
"""

from __future__ import annotations

import logging
import os
import sys

import flower_client
from common import serve
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_work import keras_weights, network

app = ServerApp()


@app.main()
def main(grid, context) -> None:
    """Answers the benchmark's requests."""
    work = flower_client.work()
    model = network(work, channels_last=True)
    strategy = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=work.clients,
        min_available_nodes=work.clients,
    )
    number = 0

    def next_round():
        nonlocal number
        arrays, config = ArrayRecord(model.state_dict()), ConfigRecord({"number": number})
        result = strategy.start(grid, arrays, num_rounds=1, train_config=config)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        number += 1

    serve(next_round, lambda: keras_weights(model, work), ["flwr", "ray", "torch"])


if __name__ == "__main__":
    os.environ[flower_client.WORKLOAD] = os.path.abspath(sys.argv[1])
    os.environ[flower_client.PRECISION] = sys.argv[2]
    logging.getLogger("flwr").setLevel(logging.ERROR)
    cores = len(os.sched_getaffinity(0))
    run_simulation(
        app,
        flower_client.app,
        num_supernodes=flower_client.work().clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
