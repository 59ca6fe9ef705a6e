"""FedAvg as a PyTorch loop on a GPU: the clients one after the other, with their samples on it.

    python peers/torch_gpu.py WORKLOAD cuda|cpu ROUNDS CASES

CASES is a list of {"mode", "precision"} as JSON: mode is "eager", "channels_last" or "compile"
(`torch.compile` and channels_last); precision is "float32", "tf32" or "bfloat16" (autocast). Prints
a line of JSON for each case, as `benchmarks.gpu.speed_case` does.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import statistics
import sys
import time

import torch
from common import Workload
from torch.nn import functional
from torch_work import keras_weights, network


class Loop:
    """Consecutive rounds of a case."""

    def __init__(self, work: Workload, device: str, mode: str, precision: str):
        self._work, self._device, self._precision = work, device, precision
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True
        channels_last = mode != "eager" and work.images.ndim > 3
        self.model = network(work, channels_last).to(device)
        self._local = copy.deepcopy(self.model)
        self._call = torch.compile(self._local) if mode == "compile" else self._local
        samples = torch.from_numpy(work.images)
        if samples.ndim > 3:
            samples = samples.permute(0, 1, 4, 2, 3).contiguous()
        else:
            samples = samples.long()
        self._samples = samples.to(device)
        self._labels = torch.from_numpy(work.labels).long().to(device)
        self._layout = {"memory_format": torch.channels_last} if channels_last else {}
        self._round = 0

    def next(self) -> None:
        """Computes a round, and waits for it."""
        total = {name: torch.zeros_like(value) for name, value in self.model.state_dict().items()}
        for client in range(self._work.clients):
            self._local.load_state_dict(self.model.state_dict())
            self._train(client)
            for name, value in self._local.state_dict().items():
                if value.is_floating_point():
                    total[name] += value / self._work.clients
        self.model.load_state_dict(total)
        self._round += 1
        if self._device == "cuda":
            torch.cuda.synchronize()

    def _train(self, client: int) -> None:
        work = self._work
        trained = [p for p in self._local.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(
            trained, lr=work.learning_rate, momentum=work.momentum, weight_decay=work.weight_decay
        )
        autocast = contextlib.nullcontext()
        if self._precision == "bfloat16":
            autocast = torch.autocast(self._device, torch.bfloat16)
        self._local.train()
        for epoch in range(work.epochs):
            order = torch.from_numpy(work.order(self._round, client, epoch)).to(self._device)
            for index in order.long().split(work.batch_size):
                x = self._samples[client][index].contiguous(**self._layout)
                optimizer.zero_grad(set_to_none=True)
                with autocast:
                    loss = functional.cross_entropy(self._call(x), self._labels[client][index])
                loss.backward()
                if work.clip_norm:
                    torch.nn.utils.clip_grad_norm_(trained, work.clip_norm)
                optimizer.step()


def measure(work: Workload, device: str, rounds: int, case: dict) -> dict:
    """Seconds of the first round and of the others, memory, and samples per second."""
    loop = Loop(work, device, **case)
    start = time.perf_counter()
    loop.next()
    first = time.perf_counter() - start
    weights = keras_weights(copy.deepcopy(loop.model).cpu(), work)
    seconds = []
    for number in range(1 + rounds):
        start = time.perf_counter()
        loop.next()
        if number:
            seconds.append(time.perf_counter() - start)
    samples = work.labels.size * work.epochs
    norms = {n: float((v.astype("float64") ** 2).sum() ** 0.5) for n, v in weights.items()}
    return {
        "first_round": first,
        "seconds": seconds,
        "samples_per_second": samples / statistics.median(seconds),
        "memory_mb": torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else None,
        "norms": {name: norm for name, norm in norms.items() if "/moving_" not in name},
        "version": torch.__version__,
    }


if __name__ == "__main__":
    work = Workload(sys.argv[1])
    for case in json.loads(sys.argv[4]):
        try:
            found = measure(work, sys.argv[2], int(sys.argv[3]), case)
        except Exception as error:
            found = {"note": " ".join(str(error).split())[:300]}
        print(json.dumps(found), flush=True)
        # What has been compiled for a case holds its network.
        torch.compiler.reset()
        gc.collect()
        if sys.argv[2] == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
