"""Server optimizers against NumPy, in rounds of FedAvg and FedNova, and what they refuse."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.methods import parabola_oracle as oracle
from tests.methods import quadratic
from tests.methods.refusing import OWN_SERVER_STEP
from tff_pcdd import methods
from tff_pcdd.federated import build_process, server_optimizers
from tff_pcdd.methods.calibrated import compose

SOLVER = oracle.Solver(rate=0.1, epochs=2, momentum=0.5, decay=0.01)


def numpy_step(name, change, memory, rate, b1, b2, tau):
    """One step of Reddi et al., algorithm 2, and of Hsu et al., section 4.3, in float64."""
    m, v = memory
    if name == "sgd":
        return rate * change, memory
    if name == "fedavgm":
        m = b1 * m + change
        return rate * m, (m, v)
    m = b1 * m + (1 - b1) * change
    squared = change**2
    v = {
        "fedadagrad": v + squared,
        "fedadam": b2 * v + (1 - b2) * squared,
        "fedyogi": v - (1 - b2) * squared * np.sign(v - squared),
    }[name]
    return rate * m / (np.sqrt(v) + tau), (m, v)


def options_of(name, rate=0.3, b1=0.8, b2=0.7, tau=0.05):
    options = {"learning_rate": rate}
    options |= {"sgd": {}, "fedavgm": {"momentum": b1}}.get(name, {"beta1": b1, "tau": tau})
    return options | ({"beta2": b2} if name in ("fedadam", "fedyogi") else {})


@pytest.mark.parametrize("name", server_optimizers.names())
def test_steps_match_numpy(name):
    generator = np.random.default_rng(0)
    shapes = [(3, 2), (4,)]
    optimizer = server_optimizers.create(name, **options_of(name))
    state = optimizer.initial_state([tf.zeros(shape) for shape in shapes])
    memories = [(np.zeros(shape), np.full(shape, 0.05**2)) for shape in shapes]
    for scale in (1.0, 0.01, 5.0, 0.3):
        changes = [scale * generator.normal(size=shape) for shape in shapes]
        steps, state = optimizer.step([tf.constant(c, tf.float32) for c in changes], state)
        for i, change in enumerate(changes):
            wanted, memories[i] = numpy_step(name, change, memories[i], 0.3, 0.8, 0.7, 0.05)
            np.testing.assert_allclose(steps[i], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", server_optimizers.names())
@pytest.mark.parametrize("method", ["fedavg", "fednova"])
def test_rounds_match_numpy(monkeypatch, name, method):
    """With cohorts that are parts of the federation; one of them has no samples."""
    spec = quadratic.training_spec(
        monkeypatch,
        method,
        oracle.START,
        rate=SOLVER.rate,
        epochs=SOLVER.epochs,
        sizes=oracle.SIZES,
        momentum=SOLVER.momentum,
        decay=SOLVER.decay,
    )
    optimizer = server_optimizers.create(name, **options_of(name))
    spec = dataclasses.replace(spec, server_optimizer=optimizer)
    federation = quadratic.Federation(spec, oracle.MINIMA, oracle.SIZES)
    w, counter, memory = oracle.START, 0.0, (0.0, 0.05**2)
    for cohort in oracle.COHORTS:
        weights = oracle.by_samples(cohort)
        found = {k: SOLVER.solve(k, w) - w for k in cohort}
        if any(weights.values()):
            lengths = {k: SOLVER.effective_steps(k) or 1 for k in cohort}
            change = oracle.mean(found, weights)
            if method == "fednova":
                change = oracle.mean({k: found[k] / lengths[k] for k in cohort}, weights)
                change *= oracle.mean({k: SOLVER.effective_steps(k) for k in cohort}, weights)
            step, memory = numpy_step(name, change, memory, 0.3, 0.8, 0.7, 0.05)
            w += step
            # Statistics are averaged as without a server optimizer.
            counter += oracle.mean({k: SOLVER.steps(k) for k in cohort}, weights)
        federation.round(cohort)
        np.testing.assert_allclose(federation.weights, [w], rtol=1e-5, atol=1e-5)
        assert federation.steps == pytest.approx(counter, rel=1e-5)


COHORTS = [[0, 1, 2], [4], [1, 3, 0]]


def trained(optimizer=None, method="fedavg"):
    spec = support.training_spec(method)
    if optimizer is not None:
        spec = dataclasses.replace(spec, server_optimizer=optimizer)
    process = build_process(spec)
    return support.run_rounds(process, process.initialize(), {}, COHORTS)[0], process


# FedAvgM without momentum is SGD.
@pytest.mark.parametrize(
    ("name", "options"),
    support.rare_but(
        [("fedavgm", {"momentum": 0.0})],
        [("sgd", {"learning_rate": 1.0}), ("fedavgm", {"momentum": 0.0})],
    ),
)
def test_degenerate_optimizers_are_fedavg_bit_for_bit(simulation, name, options):
    expected, _ = trained()
    actual, _ = trained(server_optimizers.create(name, **options))
    support.assert_trees_equal(actual.weights, expected.weights)


def test_its_tensors_are_part_of_the_state_and_are_not_sent(simulation):
    plain, expected = trained()
    state, process = trained(server_optimizers.create("fedadam"))
    assert "server_optimizer" not in plain.server
    own = state.server["server_optimizer"]
    assert [m.shape for m in own["mean"]] == [w.shape for w in state.weights["trainable"]]
    assert np.any(own["mean"][0] != 0)
    assert process.download_bytes == expected.download_bytes
    assert process.update_bytes == expected.update_bytes


REFUSED = {*OWN_SERVER_STEP, "central"}


@pytest.mark.parametrize("name", methods.names())
def test_methods_with_a_step_of_their_own_are_refused(name):
    method, optimizer = compose(methods.create(name)), server_optimizers.create("fedadam")
    if name in REFUSED:
        with refuses("server_optimizer", f"{name} (has a server step|trains on all samples)"):
            optimizer.check_method(method)
    else:
        optimizer.check_method(method)
    server_optimizers.create("sgd").check_method(method)


def test_only_an_override_of_the_step_itself_is_refused():
    class OwnTensors(methods.get("fedgen")):
        def next_server_state(self, server, sums):
            return super().next_server_state(server, sums)

    class OwnStep(OwnTensors):
        def server_update(self, *arguments):
            return super().server_update(*arguments)

    assert OwnTensors.adds_mean()
    assert not OwnStep.adds_mean()
