"""Details of single methods that rounds do not show."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.federation import Federation
from tff_pcdd import methods
from tff_pcdd.federated import SGD
from tff_pcdd.federated import state as states
from tff_pcdd.methods.records import Phase


def test_groups_of_a_phase():
    variables = [tf.Variable(float(number)) for number in range(3)]
    together = Phase(variables, 1, None).groups
    assert [[float(v) for v in group] for group in together] == [[0, 1, 2]]
    apart = Phase(variables, 1, None, apart=variables[1:2]).groups
    assert [[float(v) for v in group] for group in apart] == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("control", "momentum", "warns"),
    [("code", 0.9, True), ("paper", 0.51, True), ("code", 0.5, False), ("none", 0.9, False)],
)
def test_feddc_warns_of_a_large_momentum(control, momentum, warns):
    method = methods.create("feddc", control=control)
    advice = method.advice(SGD(momentum=momentum))
    assert (advice is not None) == warns
    if warns:
        assert f"client_momentum={momentum:g}" in advice


def test_scaffold_without_control_keeps_and_sends_nothing():
    spec = support.training_spec("scaffold", control=False)
    server = states.initial_server(spec)
    assert server == {} and spec.method.broadcast(server) == {}
    assert states.initial_client_state(spec, support.seed_of(0, 0)).own == {}


def test_scaffold_broadcasts_its_control_variate_only():
    """One for each trained variable, and none for averages of normalization layers."""
    spec = support.training_spec("scaffold")
    sent = spec.method.broadcast(states.initial_server(spec))
    own = states.initial_client_state(spec, support.seed_of(0, 0)).own
    shapes = [variable.shape for variable in spec.network().shared.trainable]
    assert list(sent) == list(own) == ["control"]
    for control in (sent["control"], own["control"]):
        assert [value.shape for value in control] == shapes
        assert not any(np.any(value) for value in control)


@pytest.mark.parametrize(
    ("name", "weight", "metric"),
    [
        ("fedntd", "beta", "distillation"),
        ("feddecorr", "beta", "correlation"),
        ("moon", "mu", "contrast"),
    ],
)
def test_a_term_without_weight_is_not_computed(name, weight, metric):
    spec = support.training_spec(name, statistics=False, **{weight: 0.0})
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    net = spec.network()
    _, metrics = spec.method.loss(net, batch, None)
    assert float(metrics[metric]) == 0
    assert set(net.parts) - {"projection"} == {"backbone", "head"}


def test_fedntd_distills_the_model_that_the_round_began_with():
    spec = support.training_spec("fedntd", statistics=False, temperature=2.0)
    net, x, y = spec.network(), support.TEST["x"], support.TEST["y"]
    batch = methods.Batch(tf.constant(x), tf.constant(y), None)
    spec.method.begin(net, None)
    before = spec.method.global_logits(net, batch.x)[""].numpy().astype(np.float64)
    _, metrics = spec.method.loss(net, batch, None)
    assert float(metrics["distillation"]) == 0
    for variable in net.shared.trainable:
        shift = 0.3 * np.cos(np.arange(np.prod(variable.shape))).reshape(variable.shape)
        variable.assign_add(shift.astype(np.float32))
    after = spec.method.global_logits(net, batch.x)[""].numpy().astype(np.float64)
    wrong = np.arange(4) != y[:, None]

    def shares(logits):
        powers = np.where(wrong, np.exp(logits / 2), 0)
        return powers / powers.sum(axis=1, keepdims=True)

    gaps = np.log(shares(before), where=wrong) - np.log(shares(after), where=wrong)
    expected = 2**2 * np.where(wrong, shares(before) * gaps, 0).sum(axis=1).mean()
    _, metrics = spec.method.loss(net, batch, None)
    assert float(metrics["distillation"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["fedproto", "fedproc", "fedmr"])
def test_prototypes_are_unknown_at_first(name):
    spec = support.training_spec(name)
    server = states.initial_server(spec)
    assert not np.any(server["prototypes"]) and not np.any(server["valid"])
    assert server["prototypes"].shape[0] == support.NUM_CLASSES


def test_a_task_has_defaults_that_change_nothing():
    defaults = {f.name: f.default for f in dataclasses.fields(methods.TaskSpec)}
    assert (defaults["seed"], defaults["num_rounds"], defaults["cohort_size"]) == (0, None, 1)
    assert defaults["server_samples"] is None and defaults["personal_norms"] is False


@pytest.mark.parametrize("term", ["generative", "distillation"])
def test_each_term_of_fedgen_alone_ends_after_twenty_epochs(term):
    options = {"generative": 0.0, "distillation": 0.0, term: 1.0}
    spec = support.training_spec("fedgen", **options)
    phases = spec.method.phases(spec.network(), 25)
    assert [phase.epochs for phase in phases] == [20, 5]


def test_fedgen_takes_all_seeds():
    """They may have 63 bits; the state of the server then has integers of 64."""
    spec = support.training_spec("fedgen", generator_steps=1, seed=2**40)
    assert Federation(spec, support.CLIENTS).round([0, 1]).server.server["seed"].numpy()[1] == 1


def test_fedgen_does_not_train_its_generator_without_samples():
    spec = support.training_spec("fedgen", generator_steps=2)
    server = states.initial_server(spec)
    sums = {
        "kernels": tf.ones([3, 6, 4]),
        "biases": tf.ones([3, 4]),
        "counts": tf.zeros([3, 4]),
    }
    _, after = spec.method.server_update([], [], server, sums, 3.0)
    for part in ("generator", "adam", "labels"):
        support.assert_trees_equal(after[part], server[part])


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("fedavg", {}, 1),
        ("fedge", {}, 10),
        ("fedgela", {}, 10),
        ("fedgela", {"classifier": "trainable"}, 1),
        ("fedloge", {}, 10),
    ],
)
def test_least_width_of_features(name, options, least):
    """A simplex of ten vectors needs ten dimensions here, though nine would do."""
    assert methods.create(name, **options).least_features(10) == least


def test_fedavg_reports_its_head_realigned():
    spec = support.training_spec("fedavg", statistics=False, realign=True)
    net = spec.network()
    net["head"].bias.assign([1.0, 2, 3, 4])
    x = tf.constant(support.TEST["x"])
    features, kernel = net["backbone"](x).numpy(), net["head"].kernel.numpy()
    logits = spec.method.global_logits(net, x)
    expected = features @ (1.7 * kernel / np.linalg.norm(kernel, axis=0)) + [1, 2, 3, 4]
    np.testing.assert_allclose(logits["gafr"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits[""], features @ kernel + [1, 2, 3, 4], rtol=1e-4, atol=1e-5)
    plain = support.training_spec("fedavg", statistics=False).method
    assert set(plain.global_logits(net, x)) == {""}


# FedYoYo's effective numbers are those of mini-batches: see test_fedyoyo.
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ccvr", {"epochs": 1, "virtual_features": 4}),
        ("creff", {"epochs": 1, "features": 4, "matching_steps": 1}),
        *((name, {}) for name in ("fedmr", "fedpac", "fedproc", "fedproto")),
    ],
)
def test_what_clients_send_is_of_all_batches(name, options):
    """In whole batches and in batches of five, of clients with 12 and 9 samples."""
    whole = support.training_spec(name, **options)
    assert whole.eval_batch_size >= 12
    results = [
        Federation(spec, support.CLIENTS).round([0, 1]).results
        for spec in (whole, dataclasses.replace(whole, eval_batch_size=5))
    ]
    for one, several in zip(*results, strict=True):
        tf.nest.assert_same_structure(one["sums"], several["sums"])
        for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(several), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
