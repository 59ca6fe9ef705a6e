"""Clients without samples, and rounds in which the whole cohort drops out, change nothing."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods import numpy_network
from tests.methods.network_federation import network_federation
from tff_pcdd import methods
from tff_pcdd.federated import ClientWork, make_message
from tff_pcdd.federated import state as states


def moved(tree):
    """Numbers that no first round starts with."""
    return tf.nest.map_structure(lambda v: v + 0.25 if v.dtype == tf.float32 else v, tree)


# Methods with numbers of a client's besides its personal model: control variates, labels, rows.
KEEPING = ["feddc", "feddyn", "fedpac", "fedrela", "pfedme", "scaffold"]


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("name", support.rare_but(KEEPING, methods.names()))
def test_a_client_without_samples_keeps_what_is_its_own_and_sends_zeros(name):
    spec = support.training_spec(name)
    message = make_message(spec.method, support.server_state(spec))
    message = message._replace(server=moved(message.server))
    state = states.initial_client_state(spec, support.seed_of(0))
    state = state._replace(own=moved(state.own))
    nothing = {key: value[:0] for key, value in support.CLIENTS[0].items()}
    data = support.client_data(0, 0)._replace(train=nothing)
    result = ClientWork(spec).update(message, state, data)
    support.assert_trees_equal(result["state"].own, state.own)
    # FedGen's server multiplies the row of a client's head by its counts.
    sums = {
        key: value for key, value in result["sums"].items() if (name, key) != ("fedgen", "kernels")
    }
    assert not any(np.any(value) for value in tf.nest.flatten(sums))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        # Little re-training, which these weights do not depend on.
        ("ccvr", {"epochs": 1, "virtual_features": 4}),
        ("creff", {"epochs": 1, "features": 4, "matching_steps": 1}),
    ],
    ids=["ccvr", "creff"],
)
def test_clients_start_from_fedavgs_initial_model_in_the_first_round_that_trains(name, options):
    federation, fedavg = network_federation(name, **options), network_federation("fedavg")
    for each in (federation, fedavg):
        each.round_of_nobody().round([0, 1]).round_of_nobody().round([1, 2])
    expected = [value.numpy() for value in fedavg.server.weights["trainable"]]
    found = [value.numpy() for value in federation.server.weights["trainable"]]
    # The first half are the pieces of the global model.
    for value, wanted in zip(found[len(expected) :], expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    assert bool(federation.server.server["trained"])


def test_fedgen_does_not_learn_from_a_generator_that_was_never_trained():
    federation = network_federation("fedgen").round_of_nobody().round([0, 1])
    plain = network_federation("fedgen", generative=0.0, distillation=0.0)
    plain.round_of_nobody().round([0, 1])
    support.assert_trees_equal(federation.server.weights, plain.server.weights)


def test_fedpac_counts_a_clients_own_head_once():
    federation = network_federation("fedpac").round([0, 1]).round([1, 2])
    x = np.random.default_rng(3).normal(size=(20, numpy_network.INPUTS)).astype(np.float32)
    images = tf.reshape(x, [-1, 1, 1, numpy_network.INPUTS])
    before = [federation.personal_logits(k, images, False) for k in numpy_network.EVERYBODY]
    federation.round_of_nobody()
    after = [federation.personal_logits(k, images, False) for k in numpy_network.EVERYBODY]
    support.assert_trees_equal(before, after)


@pytest.mark.parametrize(("name", "option"), [("fedrep", "body_epochs"), ("fedpac", "head_epochs")])
def test_two_parts_that_train_in_turn_share_the_local_epochs(name, option):
    for asked, epochs, expected in ((1, 5, 1), (4, 5, 4), (4, 2, 1), (9, 3, 2), (4, 1, 1)):
        spec = support.training_spec(name, **{option: asked})
        head, body = (phase.epochs for phase in spec.method.phases(spec.network(), epochs))
        limited = body if name == "fedrep" else head
        assert limited == expected
        assert head + body == max(2, epochs)
