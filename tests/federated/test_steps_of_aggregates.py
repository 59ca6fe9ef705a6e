"""Every server optimizer with every aggregator: the server steps along what the aggregator returns.

The aggregate comes from the aggregator's own TFF process, the step from NumPy.
"""

import collections
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import support
from tests.federated.test_server_optimizers import numpy_step, options_of
from tests.methods import parabola_oracle as oracle
from tests.methods import quadratic
from tff_pcdd.federated import aggregators, build_process, server_optimizers
from tff_pcdd.federated.records import ClientData
from tff_pcdd.federated.tensor_computations import build_tensor_computations

START = np.array([1.0, -0.5])
# The client of the second one has no samples.
COHORTS = [[0, 1, 2], [4], [1, 3, 0], [2, 3, 1]]
# Clips and adapts where it can; compresses all tensors; draws no noise, which differs each time.
OPTIONS = {
    "compressed": {"bits": 16, "threshold": 0},
    "dp": {"noise_multiplier": 0.0, "clip": 0.4},
}


def data_of(client, round_number, index):
    return ClientData(
        train=collections.OrderedDict(
            quadratic.samples(oracle.MINIMA[client], oracle.SIZES[client])
        ),
        seed=support.seed_of(client, round_number),
        cohort_index=np.int32(index),
    )


# Compiling it takes longer than all else here, and it is the same for every server optimizer.
@functools.cache
def aggregation(aggregator, value_type, cohort_size):
    """The aggregator's own process, built as TFF documents it."""
    factory = aggregator.factory(cohort_size)
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        return factory.create(value_type, tff.TensorType(np.float32))
    return factory.create(value_type)


ALL, SOME = tuple(aggregators.names()), ("compressed", "mean")


# What the server does with an aggregate does not depend on where that comes from; the steps of all
# server optimizers along the mean are in test_server_optimizers.
@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "chosen"),
    support.rare_but(
        [("fedadam", ALL)],
        [(name, chosen) for name in server_optimizers.names() for chosen in (SOME, ALL)],
    ),
    ids=lambda value: {ALL: "all", SOME: "some"}.get(value, value),
)
def test_the_step_follows_the_aggregate(name, chosen, simulation, monkeypatch):
    """In rounds of unequal cohorts, of which one sends nothing."""
    spec = quadratic.training_spec(
        monkeypatch, "fedavg", *START, rate=0.1, epochs=2, sizes=oracle.SIZES, statistics=False
    )
    optimizer = server_optimizers.create(name, **options_of(name))
    spec = dataclasses.replace(spec, server_optimizer=optimizer)
    tensors = build_tensor_computations(spec)
    for aggregator_name in chosen:
        aggregator = aggregators.create(aggregator_name, **OPTIONS.get(aggregator_name, {}))
        process = build_process(spec, aggregator, tensors=tensors)
        own = aggregation(
            aggregator,
            tensors.local_update.type_signature.result["update"],
            spec.task.cohort_size,
        )
        state, own_state = process.initialize(), own.initialize()
        w, memory = START, (np.zeros(2), np.full(2, 0.05**2))
        for number, cohort in enumerate(COHORTS):
            clients = [process.initial_client_state(support.seed_of(k)) for k in cohort]
            inputs = [data_of(k, number, index) for index, k in enumerate(cohort)]
            message = tensors.make_message(state.weights, state.server, number)
            sent = [tensors.local_update(message, *p) for p in zip(clients, inputs, strict=True)]
            weights = ([s["weight"] for s in sent],) if own.is_weighted else ()
            output = own.next(own_state, [s["update"] for s in sent], *weights)
            own_state = output.state
            change = np.array([float(delta[0]) for delta in output.result])
            if change.any():
                step, memory = numpy_step(name, change, memory, 0.3, 0.8, 0.7, 0.05)
                w = w + step
            state, _, metrics = process.next(state, clients, inputs)
            after = np.array([float(value[0]) for value in state.weights["trainable"]])
            np.testing.assert_allclose(after, w, rtol=1e-4, atol=1e-4, err_msg=aggregator_name)
            assert float(metrics["step_taken"]) == 1
        assert np.abs(w - START).max() > 0.05, aggregator_name
