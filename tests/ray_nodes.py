"""A Ray cluster of several nodes on this machine, started by `ray start` as users do."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

import pytest

from tff_pcdd.runtime.processes import children

_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Cluster:
    """A head, which computes nothing, and nodes with a number of CPUs each.

    Attributes:
        address: where programs connect.
        nodes: the processes that are the nodes beside the head.
    """

    def __init__(self, directory, cpus):
        head = ["--head", "--port=0", "--include-dashboard=false", "--num-cpus=0"]
        self._head, said = _start(*head, f"--temp-dir={directory}")
        self.address = re.search(r"--address='([\d.:]+)'", said)[1]
        self._cpus = cpus
        self.nodes = []

    def add_node(self):
        """Adds a node; those of one machine must not start at the same time."""
        node, _ = _start(f"--address={self.address}", f"--num-cpus={self._cpus}")
        self.nodes.append(node)

    def lose_node(self, node):
        """Kills all processes of a node at once, as if its machine were switched off."""
        for pid in (*children(node.pid), node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.communicate()
        self.nodes.remove(node)

    def close(self):
        for process in (*self.nodes, self._head):
            pids = children(process.pid)
            process.terminate()
            process.communicate()
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _start(*arguments):
    """Starts a node and waits until it is part of the cluster; returns what it has printed, too."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    said = ""
    # On a busy machine, a node may not start within Ray's own time limit.
    for _ in range(3):
        process = subprocess.Popen(
            [*command, "--node-ip-address=127.0.0.1", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        limit = threading.Timer(120, process.kill)
        limit.start()
        for line in process.stdout:
            said += line
            if "Ray runtime started" in line:
                limit.cancel()
                return process, _rest(process, said)
        limit.cancel()
        process.communicate()
    raise AssertionError(said)


def _rest(process, said):
    """What is printed until the end of the instructions for further nodes."""
    for line in process.stdout:
        said += line
        if "--block" in line:
            break
    return said


@contextlib.contextmanager
def started(cpus):
    """Two nodes with a number of CPUs each, and a token in the environment of this process."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        found = Cluster(folder, cpus)
        try:
            found.add_node()
            found.add_node()
            yield found
        finally:
            found.close()
