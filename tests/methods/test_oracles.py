"""Methods with state against programs of their own: unequal sizes, partial cohorts, momentum."""

import numpy as np
import pytest
import tensorflow as tf

from tests.methods import feature_oracle, network_oracle, numpy_network, parabola_oracle, quadratic
from tests.methods.federation import Federation
from tff_pcdd import data, layers, methods
from tff_pcdd.federated import SGD, TrainingSpec

PARABOLAS = [
    ("fedavg", "samples", {}),
    ("fedavg", "uniform", {"client_weighting": "uniform"}),
    ("fedprox", "samples", {"mu": 0.5}),
    ("fednova", "samples", {}),
    ("fednova", "uniform", {"client_weighting": "uniform"}),
    ("feddyn", "uniform", {"alpha": 0.4}),
    ("feddyn", "samples", {"alpha": 0.4, "client_weighting": "samples"}),
    ("feddc", "uniform", {"alpha": 0.4, "control": "code"}),
    ("feddc", "uniform", {"alpha": 0.4, "control": "paper"}),
    ("feddc", "uniform", {"alpha": 0.4, "control": "none"}),
    ("feddc", "samples", {"alpha": 0.4, "control": "code", "client_weighting": "samples"}),
    ("ditto", "uniform", {"pull": 0.7}),
    ("ditto", "samples", {"pull": 0.7, "client_weighting": "samples"}),
]
PLAIN, WITH_MOMENTUM = (0.0, 0.0), (0.9, 0.05)


def _identifiers(cases):
    return ["-".join(map(str, (name, *options.values()))) for name, _, options in cases]


@pytest.mark.parametrize(
    ("name", "weighting", "options", "solver"),
    [(*case, solver) for case in PARABOLAS for solver in (PLAIN, WITH_MOMENTUM)],
)
def test_rounds_on_parabolas(monkeypatch, name, weighting, options, solver):
    """The global and the personal numbers after every round, to about six digits."""
    oracle, (momentum, decay) = parabola_oracle, solver
    solver = oracle.Solver(rate=0.07, epochs=3, momentum=momentum, decay=decay)
    settings = {"rate": solver.rate, "epochs": solver.epochs, "momentum": momentum, "decay": decay}
    spec = quadratic.training_spec(
        monkeypatch, name, oracle.START, sizes=oracle.SIZES, **settings, **options
    )
    federation = quadratic.Federation(spec, oracle.MINIMA, oracle.SIZES, traced=False)
    weights = {"samples": oracle.by_samples, "uniform": oracle.alike}[weighting]
    known = {key: value for key, value in options.items() if key != "client_weighting"}
    rounds = getattr(oracle, name)(solver, weights, **known)
    for cohort, expected in zip(oracle.COHORTS, rounds, strict=True):
        federation.round(cohort)
        actual = [*federation.weights, federation.steps]
        np.testing.assert_allclose(actual, expected[:2], rtol=2e-6, atol=1e-6)
        if expected.own:
            own = [federation.kept(k) for k in oracle.EVERYBODY]
            np.testing.assert_allclose(own, expected.own, rtol=2e-6, atol=2e-6)
    # The personal models of the last round, also of clients that never took part.
    tuned = [federation.personal_number(k) for k in oracle.EVERYBODY]
    np.testing.assert_allclose(tuned, expected.tuned, rtol=2e-6, atol=1e-6)


# Names of the package's pieces in the oracle: kernel and bias of dense layers, in order.
PIECES = {
    "backbone": [*numpy_network.BACKBONE, *numpy_network.STATISTICS],
    "head": numpy_network.HEAD,
    "psi": numpy_network.HEAD,
    "phi": ["V", "c"],
    "personal_head": ["V", "c"],
    "projection": ["P", "p", "Q", "q"],
    "temperature": ["s"],
    "frame": ["F"],
}

NETWORKS = [
    ("fedavg", network_oracle.FedAvg, {}),
    ("fedprox", network_oracle.FedProx, {"mu": 0.5}),
    ("fedbn", network_oracle.FedBN, {}),
    ("fedper", network_oracle.FedPer, {}),
    ("fedrep", network_oracle.FedRep, {"body_epochs": 1}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "full"}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "head"}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "body"}),
    ("fedrod", network_oracle.FedRoD, {"gamma": 0.8}),
    ("ditto", network_oracle.Ditto, {"pull": 0.7}),
    ("ditto", network_oracle.Ditto, {"pull": 0.7, "client_weighting": "samples"}),
    ("fedbn", network_oracle.FedBN, {"client_weighting": "samples"}),
    ("fedavg", network_oracle.FedAvg, {"client_weighting": "uniform"}),
    ("moon", feature_oracle.Moon, {"mu": 2.0, "temperature": 0.4}),
    ("fedproto", feature_oracle.FedProto, {"distance_weight": 0.6}),
    ("fedproto", feature_oracle.FedProto, {"distance_weight": 0.6, "candidates": "all"}),
    ("fedproc", feature_oracle.FedProc, {"temperature": 0.4}),
    ("fedloge", feature_oracle.FedLoGe, {"finetune_epochs": 2}),
    ("fedetf", feature_oracle.FedETF, {"finetune_cycles": 2, "finetune_epochs": 2}),
    ("fedge", feature_oracle.FedGE, {"scale": 3.0}),
    ("fedgela", feature_oracle.FedGELA, {"scale": 3.0}),
]


def _network_federation(name, **options):
    oracle = numpy_network

    def backbone():
        inputs = tf.keras.Input((1, 1, oracle.INPUTS))
        h = tf.keras.layers.Dense(oracle.WIDTH, "tanh")(tf.keras.layers.Flatten()(inputs))
        return tf.keras.Model(inputs, layers.BatchNormalization()(h))

    task = methods.TaskSpec(
        num_classes=oracle.CLASSES,
        feature_dim=oracle.WIDTH,
        backbone=backbone,
        class_counts=np.stack([oracle.counts(k) for k in oracle.EVERYBODY]),
        num_rounds=oracle.ROUNDS,
        cohort_size=3,
    )
    if name in ("moon", "fedproc"):
        options["projection_width"] = 5
    spec = TrainingSpec(
        method=methods.create(name, **options),
        task=task,
        input_spec=data.InputSpec("image", (1, 1, oracle.INPUTS), "float32"),
        optimizer=SGD(oracle.RATE, oracle.MOMENTUM, oracle.DECAY, clip_norm=0.0),
        local_epochs=oracle.EPOCHS,
        batch_size=8,
    )
    parts = [
        {
            "x": tf.reshape(oracle.inputs(k), [-1, 1, 1, oracle.INPUTS]),
            "y": tf.constant(oracle.LABELS[k], tf.int32),
        }
        for k in oracle.EVERYBODY
    ]
    return Federation(spec, parts)


def _names(net):
    """The oracle's name of each variable of a network."""
    names = {}
    for part, layer in net.parts.items():
        prefix, known = "", part
        for start in ("own_", "previous_", "global_"):
            if part.startswith(start):
                prefix, known = start, part.removeprefix(start)
        wanted = PIECES.get(known, [])
        if known == "head" and len(layer.weights) == 1:
            wanted = ["F"]
        if known == "projection":
            wanted = wanted[: len(layer.weights)]
        for name, variable in zip(wanted, layer.weights, strict=True):
            names[variable.ref()] = prefix + name
    return names


def _placed(federation):
    """The oracle's names of the server's and of a client's variables, as states have them."""
    net = federation.spec.network()
    names = _names(net)
    groups = {
        "trainable": net.shared.trainable,
        "statistics": net.shared.statistics,
        "mirrored": net.mirrored.all,
        "fixed": net.fixed,
    }
    server = {group: [names[v.ref()] for v in group_] for group, group_ in groups.items()}
    return server, [names[v.ref()] for v in net.kept]


def _server_values(federation, names):
    return {
        name: value.numpy().astype(np.float64)
        for group, wanted in names.items()
        for name, value in zip(wanted, federation.server["weights"][group], strict=True)
    }


def _own_values(federation, names, client):
    values = federation.state(client)["personal"]
    return {n: v.numpy().astype(np.float64) for n, v in zip(names, values, strict=True)}


@pytest.mark.parametrize(
    ("name", "oracle", "options"),
    NETWORKS,
    ids=_identifiers(NETWORKS),
)
def test_rounds_of_a_network(name, oracle, options):
    """All weights after every round, and what global and personal models answer at the end."""
    federation = _network_federation(name, **options)
    server_names, own_names = _placed(federation)
    own = [_own_values(federation, own_names, k) for k in numpy_network.EVERYBODY]
    first = _server_values(federation, server_names)
    expected = oracle(first, own, **options)
    for k in numpy_network.EVERYBODY:
        for key, value in own[k].items():
            np.testing.assert_array_equal(value, expected.start(key, value))
    for cohort in numpy_network.COHORTS:
        federation.round(cohort)
        expected.round(cohort)
        for key, value in _server_values(federation, server_names).items():
            np.testing.assert_allclose(value, expected.server[key], rtol=1e-4, atol=1e-5)
        for k in expected.began:
            for key, value in _own_values(federation, own_names, k).items():
                np.testing.assert_allclose(value, expected.own[k][key], rtol=1e-4, atol=1e-5)
    x = np.random.default_rng(9).normal(size=(20, numpy_network.INPUTS)).astype(np.float32)
    images = tf.reshape(x, [-1, 1, 1, numpy_network.INPUTS])
    if federation.spec.method.has_global_model:
        actual = federation.global_logits(images)[""]
        np.testing.assert_allclose(actual, expected.overall(x), rtol=1e-3, atol=1e-4)
    for k in numpy_network.EVERYBODY:
        for tuned in (False, True):
            actual = federation.personal_logits(k, images, tuned)
            if name == "fedproto":
                answer = expected.classify(k, x, tuned)
                np.testing.assert_array_equal(actual.argmax(axis=1), answer)
            else:
                answer = expected.personal(k, x, tuned)
                np.testing.assert_allclose(actual, answer, rtol=1e-3, atol=1e-4)
