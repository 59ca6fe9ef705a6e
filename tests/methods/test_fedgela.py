"""FedGELA: Φ as the method makes it, from one client's counts and those of all."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods

# Three clients, four classes; the last class is rare everywhere.
COUNTS = np.array([[10, 0, 4, 2], [6, 12, 0, 1], [4, 8, 12, 1]])


def phi(adaptation, counts, client):
    task = dataclasses.replace(support.training_spec("fedavg").task, class_counts=counts)
    method = methods.create("fedgela", adaptation=adaptation)
    return method.constants(tf.constant(counts[client], tf.float32), task)["phi"].numpy()


@pytest.mark.parametrize("client", range(3))
def test_stretch(client):
    share = COUNTS[client] / COUNTS[client].sum()
    np.testing.assert_allclose(phi("linear", COUNTS, client), 4 * share, rtol=1e-6)
    federation = COUNTS.sum(axis=0) / COUNTS.sum()
    np.testing.assert_allclose(phi("relative", COUNTS, client), share / federation, rtol=1e-6)
    np.testing.assert_array_equal(phi("none", COUNTS, client), np.ones(4))


def test_relative_is_linear_where_the_whole_is_balanced():
    counts = np.array([[10, 0, 4, 6], [10, 12, 0, 2], [0, 8, 16, 12]])
    np.testing.assert_allclose(phi("relative", counts, 0), phi("linear", counts, 0), rtol=1e-6)


def test_relative_is_fedge_where_all_clients_are_alike():
    counts = np.array([[8, 4, 2, 0], [16, 8, 4, 0]])
    np.testing.assert_allclose(phi("relative", counts, 1), [1, 1, 1, 0], rtol=1e-6)
