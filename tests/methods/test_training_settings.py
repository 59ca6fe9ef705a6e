"""What a method refuses of the settings of training, whether or not a program has checked them.

tests/test_matrix.py trains all methods with all settings.
"""

import dataclasses

import pytest

from tests import support
from tests.data.refusals import refuses
from tests.methods.refusing import OWN_SERVER_STEP, SENDS_NO_WEIGHTS
from tff_pcdd import methods
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import build_process, client_optimizers, server_optimizers

# What refuses a server optimizer: a step of one's own, samples in one place, no shared weights.
_WITHOUT_SERVER_OPTIMIZER = sorted({*OWN_SERVER_STEP, *SENDS_NO_WEIGHTS, "central"})


@pytest.mark.parametrize("name", [n for n in methods.names() if methods.get(n).assumes_sgd])
@pytest.mark.parametrize("optimizer", [n for n in client_optimizers.names() if n != "sgd"])
def test_an_optimizer_that_does_not_fit_the_formulas(name, optimizer):
    spec = support.training_spec(name)
    with pytest.raises(SettingError, match="client_optimizer"):
        build_process(dataclasses.replace(spec, optimizer=client_optimizers.create(optimizer)))


@pytest.mark.parametrize("name", _WITHOUT_SERVER_OPTIMIZER)
def test_a_server_optimizer_without_a_mean_to_take_a_step_along(name):
    spec = support.training_spec(name)
    server = server_optimizers.create("fedadam")
    reasons = f"{name} (has a server step|trains on all samples)|clients of {name} send no weights"
    with refuses("server_optimizer", reasons):
        build_process(dataclasses.replace(spec, server_optimizer=server))
