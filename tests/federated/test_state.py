"""States of server and clients, and weights of a network as tensors."""

from collections import OrderedDict

import numpy as np
import tensorflow as tf

from tests import support
from tff_pcdd.federated import make_message, state
from tff_pcdd.federated.weights import WeightsChange, load, weights_of


def test_ordered_sorts_all_the_way_down():
    value = {"b": 1, "a": {"d": (2, {"f": 3, "e": 4}), "c": []}}
    actual = state.ordered(value)
    assert actual == OrderedDict(a=OrderedDict(c=[], d=[2, OrderedDict(e=4, f=3)]), b=1)
    assert list(actual) == ["a", "b"]
    assert list(actual["a"]["d"][1]) == ["e", "f"]


def test_weights_of_a_network_load_into_another():
    spec = support.training_spec("fedgela")
    weights = state.initial_weights(spec)
    net = spec.network()
    load(net, weights)
    support.assert_trees_equal(weights_of(net), weights)
    support.assert_trees_equal(state.initial_weights(support.training_spec("fedgela")), weights)
    other = state.initial_weights(support.training_spec("fedgela", seed=1))
    assert np.any(other["trainable"][0] != weights["trainable"][0])
    assert np.any(other["fixed"][0] != weights["fixed"][0])


def test_the_message_has_what_the_method_sends():
    """FedGen keeps its optimizer and its seed at the server."""
    spec = support.training_spec("fedgen")
    kept = support.server_state(spec, 3)
    sent = make_message(spec.method, kept)
    assert list(sent.server) == ["generator", "labels"]
    assert {"adam", "seed"} < set(kept.server)
    assert int(sent.round) == 3


def test_changes_are_flattened_in_the_order_of_their_placements():
    """Aggregators add up squares of entries in this order, and rounding depends on it."""
    change = WeightsChange(trainable=[1, 2], mirrored=[3], statistics=[4])
    assert tf.nest.flatten(change) == [1, 2, 3, 4]
