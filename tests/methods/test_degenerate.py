"""Settings with which a method is FedAvg, bit for bit, after two rounds."""

import functools

import pytest

from tests import support
from tests.methods.federation import Federation
from tff_pcdd import methods

DEGENERATE = [
    name
    for name in methods.names()
    if name != "fedavg" and methods.get(name).degenerate is not None
]


@functools.cache
def weights(name):
    """The shared weights after two rounds, the second with what the server learned in the first."""
    options = dict(methods.get(name).degenerate)
    federation = Federation(support.training_spec(name, **options), support.CLIENTS)
    return federation.round([0, 1, 4]).round([1, 3]).server.weights


def test_methods_with_such_a_setting():
    assert set(DEGENERATE) == {
        "apfl", "ditto", "fedala", "feddecorr", "fedgen", "fedlc", "fedmr",
        "fedntd", "fedproc", "fedprox", "fedprox_prototypes", "fedrela", "fedrod", "fedrs",
        "fedsol", "fedyoyo", "logitadjust", "moon", "moon_prototypes", "ratioloss", "scaffold",
    }  # fmt: skip


@pytest.mark.parametrize("name", DEGENERATE)
def test_two_rounds_are_those_of_fedavg(name):
    support.assert_trees_equal(weights(name), weights("fedavg"))
