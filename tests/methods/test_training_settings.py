"""All methods with all settings of training at once: refused in one line, or rounds that work."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import methods
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import (
    LocalWork,
    build_process,
    client_optimizers,
    schedules,
    server_optimizers,
)

pytestmark = [pytest.mark.usefixtures("simulation"), pytest.mark.integration]

_COHORTS = [[0, 1, 2], [3, 4, 0], [1, 0, 3]]

# What refuses a server optimizer: a step of one's own, samples in one place, no shared weights.
_WITHOUT_SERVER_OPTIMIZER = {
    *("ccvr", "creff", "feddc", "feddc_prototypes", "feddyn", "feddyn_prototypes", "pfedme"),
    *("central", "fedproto", "local"),
}


def build(name, optimizer, server_optimizer):
    spec = dataclasses.replace(
        support.training_spec(name),
        optimizer=client_optimizers.create(optimizer),
        server_optimizer=server_optimizers.create(server_optimizer),
        schedule=schedules.create("cosine", warmup_rounds=1),
        num_rounds=4,
        local_work=LocalWork(min_local_epochs=1, straggler_share=0.5),
    )
    return build_process(spec)


@pytest.mark.parametrize("name", methods.names())
def test_a_method_trains_or_refuses(name):
    """And where it trains, two rounds and one are three, as after a resume."""
    method = methods.get(name)
    optimizer = "sgd" if method.assumes_sgd else "adamw"
    server_optimizer = "sgd" if name in _WITHOUT_SERVER_OPTIMIZER else "fedyogi"
    for refused in {"sgd", "adam"} - {optimizer} if method.assumes_sgd else ():
        with pytest.raises(SettingError, match="client_optimizer"):
            build(name, refused, "sgd")
    if server_optimizer == "sgd":
        with pytest.raises(SettingError, match="server_optimizer"):
            build(name, optimizer, "fedadam")
    process = build(name, optimizer, server_optimizer)
    first = process.initialize()
    state, clients, _ = support.run_rounds(process, first, {}, _COHORTS[:2])
    saved = tf.nest.map_structure(np.asarray, (state, clients))
    state, clients, metrics = support.run_rounds(process, state, clients, _COHORTS[2:], first=2)
    again = support.run_rounds(process, *saved, _COHORTS[2:], first=2)
    support.assert_trees_equal(again[:2], (state, clients))
    for leaf in map(np.asarray, tf.nest.flatten((state, clients, metrics))):
        assert leaf.dtype.kind != "f" or np.isfinite(leaf).all()
    moved = [*state["weights"]["trainable"], *(c["participations"] for c in clients.values())]
    started = [*first["weights"]["trainable"], *([0] * len(clients))]
    assert any(np.any(a != b) for a, b in zip(moved, started, strict=True))
