"""Every method gives the same numbers wherever it runs."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods, runtime
from tff_pcdd.federated import build_process

pytestmark = pytest.mark.integration

COHORTS = [[0, 1, 2], [1, 3, 4], [0, 2, 3]]


def three_rounds(process, block):
    """Server and client states after three rounds on a runtime."""
    with block:
        state, clients, _ = support.run_rounds(process, process.initialize(), {}, COHORTS)
        return tf.nest.map_structure(np.asarray, (state, clients))


@pytest.mark.parametrize("name", methods.names())
def test_three_rounds_agree_on_every_runtime(name, ray_actors):
    process = build_process(support.training_spec(name))
    alone = three_rounds(process, runtime.use("inprocess", client_parallelism=1))
    two = three_rounds(process, runtime.use("inprocess", client_parallelism=2))
    support.assert_trees_equal(alone, two)
    for result in (
        three_rounds(process, runtime.use("tff", insecure=True)),
        three_rounds(process, runtime.installed(ray_actors)),
    ):
        tf.nest.assert_same_structure(alone, result, check_types=False)
        for a, b in zip(tf.nest.flatten(alone), tf.nest.flatten(result), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
