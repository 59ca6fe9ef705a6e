"""Starts the actors of the runtime `ray` on a cluster that has room for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import ray

from tff_pcdd._version import __version__
from tff_pcdd.errors import RuntimeStartError, SettingError
from tff_pcdd.runtime.ray import cluster
from tff_pcdd.runtime.ray.actor import ShareActor
from tff_pcdd.runtime.ray.shares import Actors, explain

_START_TIMEOUT = 120.0


def start(
    address: str | None, actors: int | None, cpus: int, gpus: float, timeout: float
) -> Actors:
    """Starts Ray or connects to a cluster, and starts actors; `end` is its counterpart.

    Raises:
        SettingError: the cluster has no room for the actors.
        RuntimeStartError: there is no cluster, or the actors do not start.
    """
    cluster.connect(address)
    handles: list[Any] = []
    try:
        count = _room(actors, cpus, gpus)
        cache_bytes = _cache_bytes(count, cpus, gpus)
        # A separate thread answers pings, so an actor also answers while it computes a share.
        remote: Any = ray.remote  # its annotations do not know the argument
        actor_class = remote(concurrency_groups={"control": 1})(ShareActor).options(
            num_cpus=cpus,
            num_gpus=gpus,
            # Ray restarts a lost actor; `Actors` has its share computed again.
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )
        for _ in range(count):
            handles.append(actor_class.remote(cpus, cache_bytes, gpus > 0))
        group = Actors(handles, timeout)
        _wait_until_ready(group)
    except BaseException:
        end(handles)
        raise
    return group


def end(handles: Iterable[Any]) -> None:
    """Ends actors, and disconnects from Ray, which ends if it was started for them."""
    try:
        if ray.is_initialized() and not cluster.is_lost():
            for handle in handles:
                ray.kill(handle)
    finally:
        cluster.release()


def _room(actors: int | None, cpus: int, gpus: float) -> int:
    """The number of actors to start."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    most_cpus = max(node.get("CPU", 0) for node in nodes)
    if cpus > most_cpus:
        raise SettingError("ray_cpus", cpus, f"no machine has more than {most_cpus:g}")
    most_gpus = max(node.get("GPU", 0) for node in nodes)
    if gpus > most_gpus:
        raise SettingError("ray_gpus", gpus, f"no machine has more than {most_gpus:g}")
    room = sum(_room_on(node, cpus, gpus) for node in nodes)
    if (actors or 1) > room:
        of = f"{cpus} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
        reason = f"the cluster has room for only {room} actors of {of} each"
        raise SettingError("ray_actors", actors, reason)
    return actors or room


def _cache_bytes(count: int, cpus: int, gpus: float) -> float:
    """The most bytes that an actor may keep on whatever node it is: half of its share there.

    The other half is for the computation; what an actor has dropped, it can fetch again.
    """
    shares = []
    for node in (node["Resources"] for node in ray.nodes() if node["Alive"]):
        if room := _room_on(node, cpus, gpus):
            shares.append(node.get("memory", 0) / min(count, room))
    return min(shares) / 2


def _room_on(node: dict[str, float], cpus: int, gpus: float) -> int:
    """How many actors fit on a machine."""
    by_cpus = int(node.get("CPU", 0) // cpus)
    if not gpus:
        return by_cpus
    devices = node.get("GPU", 0)
    # A fraction of a GPU has to be on a single device.
    by_gpus = int(devices) * int(1 / gpus + 1e-9) if gpus < 1 else int(devices // gpus)
    return min(by_cpus, by_gpus)


def _wait_until_ready(group: Actors) -> None:
    """Waits until all actors have answered."""
    waiting = {actor.handle.ping.remote(): actor for actor in group.all}
    deadline = time.monotonic() + _START_TIMEOUT
    while waiting:
        cluster.check()
        ready, _ = ray.wait(list(waiting), timeout=0.5)
        for reference in ready:
            try:
                version, node = ray.get(reference)
            except ray.exceptions.RayError as error:
                raise RuntimeStartError(f"a Ray actor cannot start: {explain(error)}") from error
            if version != __version__:
                raise RuntimeStartError(
                    f"tff_pcdd is {version} on a machine of the Ray cluster, but {__version__} here"
                )
            waiting.pop(reference).node = node
        if time.monotonic() > deadline:
            free = ray.available_resources().get("CPU", 0)
            raise RuntimeStartError(
                f"{len(waiting)} of {len(group.all)} Ray actors have not started within "
                f"{_START_TIMEOUT:g} s; the cluster has {free:g} free CPUs"
            )
