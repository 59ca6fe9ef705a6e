"""Checks that the nodes of a Ray cluster can compute the runs of a study."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tff_pcdd import files
from tff_pcdd._version import __version__
from tff_pcdd.errors import SettingError, WriteError

# Seconds within which all nodes have to answer.
_PATIENCE = 60.0


def check(address: str, directory: Path, *, cpus: float, gpus: float) -> None:
    """Checks the nodes of the cluster to which this process is connected.

    Args:
        address: the address of the cluster, for errors.
        directory: the directory of the study; it is created.
        cpus, gpus: what a run needs.

    Raises:
        SettingError: no node has what a run needs, or a node does not see the files of this
            machine, cannot write to the directory, or has another version of the package.
        WriteError: this process cannot write to the directory.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    for setting, needed, name in (("run_cpus", cpus, "CPU"), ("run_gpus", gpus, "GPU")):
        largest = max(node["Resources"].get(name, 0.0) for node in nodes)
        if needed > largest:
            reason = f"no node of the cluster has as many; the largest has {largest:g}"
            raise SettingError(setting, needed, reason)

    files.make_directory(directory)
    # As the temporary files of this process are called, so a study removes it if this is killed.
    shared = directory.absolute() / f".nodes.{os.getpid()}.tmp"
    text = secrets.token_hex()
    files.write_text(shared, text)
    try:
        asked = {
            ray.remote(look)
            .options(
                num_cpus=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(shared, text, os.getcwd(), __version__): node["NodeManagerAddress"]
            for node in nodes
        }
        _, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE)
        for reference, node in asked.items():
            reason = "does not answer"
            if reference not in silent:
                try:
                    reason = ray.get(reference)
                except ray.exceptions.RayError as error:
                    reason = f"cannot run the package: {str(error).strip().splitlines()[-1]}"
            if reason:
                raise SettingError("ray_address", address, f"node {node} {reason}")
    finally:
        files.remove(shared)


def look(shared: Path, text: str, working_directory: str, version: str) -> str:
    """What is wrong with a node, on which this function is called; empty if nothing is.

    Args:
        shared: a file that the process of the study has written to its directory.
        text: the contents of this file.
        working_directory: the working directory of that process.
        version: the version of the package there.
    """
    if version != __version__:
        return f"has version {__version__} of tff_pcdd instead of {version}"
    if not os.path.isdir(working_directory):
        return f"does not have the working directory {working_directory}"
    try:
        if shared.read_text() != text:
            raise FileNotFoundError
    except OSError:
        return (
            f"does not see the files in {shared.parent}; choose an output_dir that all nodes share"
        )
    written = shared.with_name(f".node_{secrets.token_hex(4)}.{os.getpid()}.tmp")
    try:
        files.write_text(written, text)
        files.remove(written)
    except WriteError as error:
        return f"cannot write to {shared.parent}: {error.strerror}"
    return ""
