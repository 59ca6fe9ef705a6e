"""Section `blazefl`: BlazeFL's own benchmark, in BlazeFL, Flower, PyTorch and this project."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks import measure, peers
from benchmarks.report import Section, Table

if TYPE_CHECKING:
    from benchmarks.workloads import Workload

_TEXT = """\
The benchmark with which the authors of BlazeFL compare it with Flower: FedAvg on CIFAR-10, with 100
clients that have two shards of the sorted training set each and all take part in five rounds;
batches of 50, five local epochs, and SGD with a learning rate of 0.1, without momentum, weight
decay or clipping. BlazeFL's network `CNN` has the layers of Simple-CNN. Sources: arXiv 2604.03606;
`benchmarks` and `examples/quickstart-fedavg` in the repository blazefl/blazefl, commit 6dcb310.

Here: {workload}. There are ten clients for each core, at most 100; the work of a client is
BlazeFL's, so the ratios are comparable with those for 100 clients.

- `inprocess`: this project, with its default settings.
- `blazefl`: BlazeFL's FedAvg in its process mode, with one process with one thread for each core.
- `pytorch` and `flower`: the programs of section `peers`.

This differs from BlazeFL's benchmark in the following points, for all contenders:

- Images and labels are random, as in the other sections, which does not change the work.
- PyTorch's programs have normalized images in memory. BlazeFL's program loads a client's images
  from a file in every round, and normalizes, flips and crops each image whenever it is used.
- The global model is not evaluated after each round.
- All have the same initial weights and the same order of samples.

BlazeFL starts its processes anew in every round. Its program lets each of them start Python and
import PyTorch again; here, they are forked from a process that has imported everything and loaded
the samples, and they return the weights in shared memory, which is faster. BlazeFL's other mode,
with threads, needs a Python without the global interpreter lock, and is not measured.

Seconds, memory and *deviation* are measured as in section `peers`; seconds are medians of {repeats}
rounds after two that are not counted."""

# BlazeFL's FedAvg trains by plain SGD only, so section `peers` cannot measure it.
PEERS = {
    "blazefl": peers.Peer("blazefl", "blazefl_program.py", ("float32",)),
    **{name: peers.PEERS[name] for name in ("pytorch", "pytorch, channels_last", "flower")},
}

# The lower bounds on the ratio of speeds.
_LIMITS = {"blazefl": 1.5, "pytorch": 1.0, "flower": 1.0}


def workload_of(cores: int, quick: bool) -> Workload:
    """The work of a round: BlazeFL's, with fewer clients if there are fewer than ten cores.

    Args:
        cores: number of cores.
        quick: whether to make it tiny.
    """
    from benchmarks.workloads import Workload

    clients, samples, batch_size, epochs = (
        (2, 20, 5, 2) if quick else (min(100, 10 * cores), 500, 50, 5)
    )
    sgd = {"learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0, "clip_norm": 0.0}
    return Workload("simple_cnn", clients, samples, batch_size, epochs, shards=2, sgd=sgd)


def run(plan: measure.Plan) -> Section:
    """Measures all contenders; if quick, with a tiny workload."""
    workload = workload_of(len(os.sched_getaffinity(0)), plan.quick)
    rows = peers.measure_workload(
        workload, "float32", plan, PEERS, own=("inprocess",), label="blazefl"
    )
    text = _TEXT.format(workload=workload, repeats=plan.repeats)
    targets = peers.targets_of("BlazeFL's benchmark", rows, _LIMITS)
    return Section("BlazeFL's benchmark", text, [Table("", peers.COLUMNS, rows)], targets)
