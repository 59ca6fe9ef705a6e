"""Every method's rounds on a GPU: where they are computed, and that they equal the processor's."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods, runtime
from tff_pcdd.runtime import _tf_private

# The largest difference after two rounds and an evaluation, relative to an array's largest value,
# or to 0.01 if that is larger. Initial weights that differ by 1e-7 of their values change these
# arrays by at most 6e-5, on a processor (FedGen; FedETF 2e-5).
BOUND = 1e-3
# Not the client with a single sample: batch normalization makes zeros of it, which a processor
# computes exactly and a GPU does not, and behind them is a ReLU, whose gradient jumps at 0.
COHORTS = [[0, 1, 3], [3, 0, 1]]


def two_rounds(context, process):
    """The states of server and clients after two rounds, and what the evaluations count."""
    with runtime.installed(context):
        state, own, metrics = support.run_rounds(process, process.initialize(), {}, COHORTS)
        found = process.evaluate_global(state, support.TEST)
        part = support.client_data(0, 2, test=support.TEST)
        personal = process.evaluate_personal(state, [own[0]], [part])[0]
    counts = [*found["correct"].values(), personal["before"], personal["after"]]
    return [state.server, state.weights, [own[k] for k in sorted(own)], metrics], counts


def differences(found, expected):
    """The largest difference of each array, relative to its largest value or to 0.01."""
    tf.nest.assert_same_structure(found, expected, check_types=False)
    result = []
    for a, b in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if not np.issubdtype(b.dtype, np.floating):
            np.testing.assert_array_equal(a, b)
        else:
            assert np.isfinite(a).all()
            result.append(np.max(np.abs(a - b), initial=0) / np.max(np.abs(b), initial=0.01))
    return result


@pytest.mark.parametrize("name", methods.names())
def test_rounds_on_the_card_equal_those_on_the_processor(name, contexts, placed, card):
    process = support.process(name)
    (found, counts), products = placed(lambda: two_rounds(contexts["card"], process))
    # Clients, server and evaluations alike.
    elsewhere = {product for product in products if product[0] != card}
    assert products and not elsewhere
    expected, expected_counts = two_rounds(contexts["processor"], process)
    assert max(differences(found, expected)) < BOUND
    # A sample at the boundary between two classes may be classified otherwise.
    for a, b in zip(counts, expected_counts, strict=True):
        np.testing.assert_allclose(a, b, atol=2)


@pytest.fixture
def deterministic_forms():
    """Some operations have another form in deterministic programs, chosen when they are traced."""
    support._traced.cache_clear()
    _tf_private.require_determinism(True)
    yield
    _tf_private.require_determinism(False)
    support._traced.cache_clear()


@pytest.mark.usefixtures("deterministic_forms")
@pytest.mark.parametrize("name", methods.names())
def test_deterministic_rounds_are_repeated_bit_for_bit(name, contexts):
    process = support.process(name)
    first, second = (two_rounds(contexts["again"], process) for _ in range(2))
    support.assert_trees_equal(first, second)
