"""Section `actors`: bytes and seconds of a round on Ray actors, here and on larger clusters."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import TYPE_CHECKING, Any

from benchmarks import measure, processes
from benchmarks.report import Section, Table, Target
from benchmarks.workloads import QUICK_WORKLOADS, WORKLOADS, Rounds, Workload
from tff_pcdd import federated, runtime
from tff_pcdd.runtime.ray import cluster

if TYPE_CHECKING:
    from tff_pcdd.runtime.ray.context import RayContext

_TEXT = """\
**Bytes**: what {actors} actors on one machine receive and return in a round, in MB. The least
possible is the sum of the weights once, the partial sums of every actor, and the new states of the
clients that take part.

**Scale**: a model of the time of a round with n clients on A machines with one actor each, which
the driver reaches over a network of B bytes per second:

    T = c + ⌈n / A⌉ · t + A · W · (2 / B + m)

Every machine receives the weights of W bytes and returns sums of this size, and the driver merges
the sums. The constants are measured on this machine: t is the time that an actor with one core
needs to train a client, m the time to merge a byte, and c the remaining time of a round. The driver
becomes the bottleneck where its part, A · W · (2 / B + m), takes as long as that of the actors, at
A* = √(n · t / (W · (2 / B + m))) machines, or one. Client states are left out: states of S bytes
per client add n · S / B. The table `Model and measurement` compares the model with rounds on this
machine, which does not use a network: 2 / B is 0 there. docs/how-to/many_machines.md explains how
to use actors."""

_ACTORS = 2
# A method without client states, and one whose client states are as large as the weights.
_METHODS, _QUICK_METHODS = ("fedavg", "feddyn"), ("feddyn",)
_MOST_BYTES = 1.1

_SCALE_CLIENTS = (100, 1_000)
_SCALE_ACTORS = (1, 4, 16, 64)
_BANDWIDTHS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9}


@dataclasses.dataclass(frozen=True)
class RoundTime:
    """The model of the time of a round.

    Attributes:
        client: seconds that an actor needs to train a client.
        merge: seconds that the driver needs to merge a byte.
        weights: size of the weights in bytes.
        rest: the remaining seconds of a round.
    """

    client: float
    merge: float
    weights: float
    rest: float

    def seconds(self, clients: int, actors: int, bandwidth: float) -> float:
        """Seconds of a round; the bandwidth, in bytes per second, may be infinite."""
        training = math.ceil(clients / actors) * self.client
        return self.rest + training + actors * self._driver(bandwidth)

    def most_actors(self, clients: int, bandwidth: float) -> float:
        """The number of actors above which the driver takes longer than the actors; at least 1."""
        return max(1.0, math.sqrt(clients * self.client / self._driver(bandwidth)))

    def _driver(self, bandwidth: float) -> float:
        """Seconds that the driver needs for each actor."""
        return self.weights * (2 / bandwidth + self.merge)


# Ray itself starts only once.
@cluster.kept()
def run(plan: measure.Plan) -> Section:
    """Counts the bytes of rounds, and measures the constants of the model."""
    if not processes.has_ray():
        return Section("Ray actors", _text(), [processes.without_ray("Ray actors")])
    workloads = QUICK_WORKLOADS if plan.quick else WORKLOADS
    byte_rows: list[dict[str, Any]] = []
    targets, checks, scales = [], [], []
    for workload in workloads:
        for method in _QUICK_METHODS if plan.quick else _METHODS:
            measure.note(f"actors: bytes of {method}, {workload.model}")
            with runtime.use("ray", ray_actors=_ACTORS) as context:
                row = _bytes(workload, method, context)
            byte_rows.append(row)
            text = f"bytes of a round over the least possible, {method}, {workload.model}"
            targets.append(Target(text, row["ratio"], _MOST_BYTES))
        model, rows = _measure(workload, plan)
        checks += rows
        scales += _scale(workload, model)
    tables = [
        Table("Bytes of a round (MB)", _BYTE_COLUMNS, byte_rows),
        Table("Model and measurement", _CHECK_COLUMNS, checks),
        Table("Seconds of a round on larger clusters, by the model", _SCALE_COLUMNS, scales),
    ]
    return Section("Ray actors", _text(), tables, targets)


def _text() -> str:
    return _TEXT.format(actors=_ACTORS)


# Bytes.

_BYTE_COLUMNS = {
    "method": "method",
    "model": "model",
    "weights": "weights",
    "samples and first states, once": "samples",
    "to actors, each round": "clients",
    "from actors": "results",
    "sum": "sum",
    "least possible": "least",
    "ratio": "ratio",
}


def _bytes(workload: Workload, method: str, context: RayContext) -> dict[str, Any]:
    """Counts the bytes of the first round and of a later one."""
    spec, clients = workload.build(method)
    process = federated.build_process(spec)
    rounds = Rounds(process, clients)
    sent = []
    for _ in range(3):
        before = context.sent_bytes.copy()
        rounds.next()
        sent.append({kind: n - before[kind] for kind, n in context.sent_bytes.items()})
    first, last = sent[0], sent[-1]
    total = sum(last.values())
    least = (
        process.download_bytes
        + _ACTORS * process.update_bytes
        + workload.clients * process.personal_bytes
    )
    counts = {
        "weights": last["weights"],
        "samples": first["clients"] - last["clients"],
        "clients": last["clients"] + last["computations"],
        "results": last["results"],
        "sum": total,
        "least": least,
    }
    in_mb = {key: value / 1e6 for key, value in counts.items()}
    return {"method": method, "model": workload.model, **in_mb, "ratio": total / least}


# Time.

_CHECK_COLUMNS = {
    "model": "model",
    "weights (MB)": "weights_mb",
    "t (s)": "client",
    "m (s/GB)": "merge",
    "c (s)": "rest",
    "clients": "clients",
    "actors": "actors",
    "measured (s)": "seconds",
    "by the model (s)": "predicted",
}
_SCALE_COLUMNS = {
    "model": "model",
    "clients": "clients",
    "network": "network",
    **{f"A = {number}": f"seconds_{number}" for number in _SCALE_ACTORS},
    "A*": "most_actors",
}


def _measure(workload: Workload, plan: measure.Plan) -> tuple[RoundTime, list[dict[str, Any]]]:
    """Measures the model's constants, and compares the model with rounds on one and two actors."""
    measure.note(f"actors: constants of {workload.model}")
    sizes = (workload.clients, 2 * workload.clients)
    spec, clients = dataclasses.replace(workload, clients=sizes[-1]).build()
    process = federated.build_process(spec)
    seconds: dict[tuple[int, int], float] = {}
    driver: dict[tuple[int, int], float] = {}
    for actors in (1, _ACTORS):
        with runtime.use("ray", ray_actors=actors) as context:
            for size in sizes:
                rounds = Rounds(process, clients[:size])
                times = _times(rounds, context, plan)
                key = actors, size
                seconds[key], driver[key] = (statistics.median(column) for column in times)
    few, many = sizes
    weights = float(process.download_bytes)
    client = max(seconds[1, many] - seconds[1, few], 0.0) / (many - few)
    merge = max(driver[_ACTORS, few] - driver[1, few], 0.0) / (_ACTORS - 1) / weights
    rest = max(seconds[1, few] - few * client - merge * weights, 0.0)
    model = RoundTime(client, merge, weights, rest)
    rows = [
        {
            "model": workload.model,
            "weights_mb": weights / 1e6,
            "client": client,
            "merge": merge * 1e9,
            "rest": rest,
            "actors": actors,
            "clients": size,
            "seconds": measured,
            "driver_seconds": driver[actors, size],
            "predicted": model.seconds(size, actors, math.inf),
        }
        for (actors, size), measured in seconds.items()
    ]
    return model, rows


def _times(
    rounds: Rounds, context: RayContext, plan: measure.Plan
) -> tuple[list[float], list[float]]:
    """Seconds of each round after the first, in total and without waiting for actors."""
    rounds.next()
    whole, own = [], []
    for _ in range(max(plan.repeats, 2)):
        before = context.waited
        whole.append(measure.time_call(rounds.next))
        own.append(whole[-1] - (context.waited - before))
    return whole, own


def _scale(workload: Workload, model: RoundTime) -> list[dict[str, Any]]:
    """Seconds of a round on larger clusters, by the model."""
    return [
        {
            "model": workload.model,
            "clients": f"{clients:,}",
            "network": network,
            **{
                f"seconds_{actors}": model.seconds(clients, actors, bandwidth)
                for actors in _SCALE_ACTORS
            },
            "most_actors": round(model.most_actors(clients, bandwidth)),
        }
        for clients in _SCALE_CLIENTS
        for network, bandwidth in _BANDWIDTHS.items()
    ]
