"""The runtime `ray` on a cluster of several nodes, one of which is lost and replaced."""

import time

import numpy as np
import pytest
import tree

from tests import ray_nodes
from tests.runtime import toy_rounds as toy
from tff_pcdd import runtime
from tff_pcdd.errors import SettingError

ray = pytest.importorskip("ray")
# Actors that are lost and replaced on one node are in test_ray, and what a cluster does not have.
pytestmark = [pytest.mark.integration, pytest.mark.rare]

_CPUS = 2


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with two CPUs each."""
    with ray_nodes.started(_CPUS) as found:
        yield found


@pytest.fixture(scope="module")
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
    before = context.sent_bytes["weights"]
    result = toy.next_round(server, *toy.clients(4))
    for a, b in zip(tree.flatten(result), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert len({actor.node for actor in context.actors.all}) == 2
    weights = sum(np.asarray(leaf).nbytes for leaf in tree.flatten(server["weights"]))
    assert 2 * weights <= context.sent_bytes["weights"] - before < 2 * (weights + 500)


def test_a_lost_node_does_not_change_the_result(context, cluster, caplog):
    server, delay = toy.initialize(), 30_000
    toy.next_round(server, *toy.clients(4))
    begin = time.monotonic()
    toy.next_round(server, *toy.clients(4, delay))
    delay = int(delay * 3 / (time.monotonic() - begin))
    expected = toy.next_round(server, *toy.clients(4, delay))

    remove = toy.while_all_compute(context.actors, lambda: cluster.lose_node(cluster.nodes[0]))
    _assert_equal(toy.next_round(server, *toy.clients(4, delay)), expected)
    remove.join()
    (lost,) = [actor for actor in context.actors.all if actor.lost]
    assert f"Ray actor {lost.number} is lost (" in caplog.text
    # There is no room for the second actor: the first one computes both shares.
    _assert_equal(toy.next_round(server, *toy.clients(4)), expected)
    assert lost.lost

    cluster.add_node()
    deadline = time.monotonic() + 300
    while lost.lost and time.monotonic() < deadline:
        _assert_equal(toy.next_round(server, *toy.clients(4, delay // 10)), expected)
    assert f"Ray actor {lost.number} is available again" in caplog.text
    assert len({actor.node for actor in context.actors.all}) == 2


def test_what_a_cluster_does_not_have_is_refused(cluster, context):
    # It goes on when those who use it leave.
    context.close()
    assert not ray.is_initialized()
    assert all(node.poll() is None for node in cluster.nodes)
    with pytest.raises(SettingError, match="the cluster has room for only 2 actors of 2 CPUs"):
        runtime.create(
            "ray", ray_address=cluster.address, ray_actors=3, ray_cpus=2
        ).create_context()
