"""The runtime `ray` on a cluster of several nodes, one of which is lost and replaced."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
import tree

from tests.runtime import toy_rounds as toy
from tff_pcdd import runtime
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.process import unused_port
from tff_pcdd.runtime.processes import children

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration

_CPUS = 2
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    "RAY_USAGE_STATS_ENABLED": "0",
}


class _Cluster:
    """Nodes on this machine, each started by `ray start`; the first one computes nothing.

    Attributes:
        address: where programs connect.
        nodes: the processes that are the other nodes.
    """

    def __init__(self, directory):
        self.address = f"127.0.0.1:{unused_port()}"
        port = self.address.partition(":")[2]
        head = ["--head", f"--port={port}", "--include-dashboard=false"]
        self._head = _start(*head, "--num-cpus=0", f"--temp-dir={directory}")
        self.nodes = []

    def add_node(self):
        """Adds a node; those of one machine must not start at the same time."""
        self.nodes.append(_start(f"--address={self.address}", f"--num-cpus={_CPUS}"))

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
    """Starts a node and waits until it is part of the cluster."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    said = []
    # On a busy machine, a node may not start within Ray's own time limit.
    for _ in range(3):
        process = subprocess.Popen(
            [*command, "--node-ip-address=127.0.0.1", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for line in process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return process
        process.communicate()
    raise AssertionError("".join(said))


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with two CPUs each, and a token."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        found = _Cluster(folder)
        try:
            found.add_node()
            found.add_node()
            yield found
        finally:
            found.close()


@pytest.fixture
def context(cluster):
    """An actor on each of the two nodes."""
    settings = {"ray_address": cluster.address, "ray_actors": 2, "ray_cpus": _CPUS}
    context = runtime.create("ray", **settings).create_context()
    with runtime.installed(context):
        yield context
    context.close()


def _assert_equal(first, second):
    for a, b in zip(tree.flatten(first), tree.flatten(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_actors_are_spread_over_the_nodes(context):
    server = toy.initialize()
    with runtime.use("inprocess"):
        expected = toy.next_round(server, *toy.clients(4))
    result = toy.next_round(server, *toy.clients(4))
    for a, b in zip(tree.flatten(result), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert len({actor.node for actor in context.actors.all}) == 2
    weights = sum(np.asarray(leaf).nbytes for leaf in tree.flatten(server["weights"]))
    assert 2 * weights <= context.sent_bytes["weights"] < 2 * (weights + 500)


def test_a_lost_node_does_not_change_the_result(context, cluster, caplog):
    server, delay = toy.initialize(), 30_000
    toy.next_round(server, *toy.clients(4))
    begin = time.monotonic()
    toy.next_round(server, *toy.clients(4, delay))
    delay = int(delay * 3 / (time.monotonic() - begin))
    expected = toy.next_round(server, *toy.clients(4, delay))

    remove = threading.Timer(1.0, cluster.lose_node, [cluster.nodes[0]])
    remove.start()
    _assert_equal(toy.next_round(server, *toy.clients(4, delay)), expected)
    remove.join()
    (lost,) = [actor for actor in context.actors.all if actor.lost]
    assert f"Ray actor {lost.number} is lost (" in caplog.text
    # There is no room for the second actor: the first one computes both shares.
    _assert_equal(toy.next_round(server, *toy.clients(4)), expected)
    assert lost.lost

    cluster.add_node()
    deadline = time.monotonic() + 60
    while lost.lost and time.monotonic() < deadline:
        _assert_equal(toy.next_round(server, *toy.clients(4, delay // 10)), expected)
    assert f"Ray actor {lost.number} is available again" in caplog.text
    assert len({actor.node for actor in context.actors.all}) == 2


def test_what_a_cluster_does_not_have_is_refused(cluster):
    # It goes on when those who use it leave.
    assert not ray.is_initialized()
    assert all(node.poll() is None for node in cluster.nodes)
    with pytest.raises(SettingError, match="the cluster has room for only 2 actors of 2 CPUs"):
        runtime.create(
            "ray", ray_address=cluster.address, ray_actors=3, ray_cpus=2
        ).create_context()
