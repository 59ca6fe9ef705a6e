"""Methods with state against programs of their own: unequal sizes, partial cohorts, momentum."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods import (
    feature_oracle,
    forgetting_oracle,
    network_oracle,
    numpy_network,
    parabola_oracle,
    personal_oracle,
    quadratic,
)
from tests.methods.network_federation import (
    network_federation,
    own_values,
    placed,
    server_values,
)

PFEDME = {"pull": 2.0, "inner_steps": 3, "inner_learning_rate": 0.2, "beta": 0.8}
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
    ("scaffold", "uniform", {"server_step": 1.0}),
    ("scaffold", "uniform", {"server_step": 1.4}),
    ("scaffold", "samples", {"server_step": 0.8, "client_weighting": "samples"}),
    ("ditto", "uniform", {"pull": 0.7}),
    ("ditto", "samples", {"pull": 0.7, "client_weighting": "samples"}),
    ("apfl", "uniform", {"alpha": 0.3, "adaptive": False}),
    ("apfl", "uniform", {"alpha": 0.3, "adaptive": True}),
    ("apfl", "samples", {"alpha": 0.3, "adaptive": True, "client_weighting": "samples"}),
    ("pfedme", "uniform", PFEDME | {"client_weighting": "uniform"}),
    ("pfedme", "samples", PFEDME),
    ("fedala", "samples", {"weight_learning_rate": 0.3, "weight_epochs": 2, "layers": 1}),
]
PLAIN, WITH_MOMENTUM = (0.0, 0.0), (0.9, 0.05)


def _identifiers(cases):
    return ["-".join(map(str, (name, *options.values()))) for name, _, options in cases]


@pytest.mark.parametrize(
    ("name", "weighting", "options", "solver"),
    support.rare_but(
        # Momentum and decay change nothing of the methods themselves.
        [*((*case, WITH_MOMENTUM) for case in PARABOLAS), (*PARABOLAS[0], PLAIN)],
        [(*case, solver) for case in PARABOLAS for solver in (PLAIN, WITH_MOMENTUM)],
    ),
)
def test_rounds_on_parabolas(monkeypatch, name, weighting, options, solver):
    """The global and the personal numbers after every round, to about six digits."""
    oracle, (momentum, decay) = parabola_oracle, solver
    solver = oracle.Solver(rate=0.07, epochs=2, momentum=momentum, decay=decay)
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


NETWORKS = [
    ("fedavg", network_oracle.FedAvg, {}),
    ("fedprox", network_oracle.FedProx, {"mu": 0.5}),
    ("fedbn", network_oracle.FedBN, {}),
    ("fedper", network_oracle.FedPer, {}),
    ("local", network_oracle.Local, {}),
    ("fedrep", network_oracle.FedRep, {"body_epochs": 1}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "full"}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "head"}),
    ("fedbabu", network_oracle.FedBABU, {"finetune": "body"}),
    ("fedrod", network_oracle.FedRoD, {"gamma": 0.8}),
    ("fedntd", network_oracle.FedNTD, {"beta": 0.7, "temperature": 2.0}),
    ("logitadjust", network_oracle.LogitAdjust, {"tau": 1.3}),
    ("scaffold", network_oracle.Scaffold, {"server_step": 1.2}),
    ("fedrs", network_oracle.FedRS, {"alpha": 0.3}),
    ("fedrs", network_oracle.FedRS, {"alpha": 0.3, "graded": True}),
    ("fedlc", network_oracle.FedLC, {"tau": 0.8}),
    ("fedmr", feature_oracle.FedMR, {"mu1": 0.02, "mu2": 0.5}),
    ("feddecorr", feature_oracle.FedDecorr, {"beta": 0.4}),
    ("feddecorr", feature_oracle.FedDecorr, {"beta": 0.9, "form": "paper"}),
    ("ditto", network_oracle.Ditto, {"pull": 0.7}),
    ("ditto", network_oracle.Ditto, {"pull": 0.7, "client_weighting": "samples"}),
    ("apfl", personal_oracle.APFL, {"alpha": 0.4, "adaptive": True}),
    ("apfl", personal_oracle.APFL, {"alpha": 0.4, "adaptive": False}),
    ("pfedme", personal_oracle.PFedMe, PFEDME),
    ("fedala", personal_oracle.FedALA, {"layers": 1, "share": 1.0, "weight_epochs": 2}),
    ("fedala", personal_oracle.FedALA, {"layers": 3, "share": 1.0, "weight_epochs": 1}),
    ("fedvls", forgetting_oracle.FedVLS, {"distillation": 0.7, "suppression": 0.4}),
    ("fedsol", forgetting_oracle.FedSOL, {"rho": 0.8, "temperature": 2.0}),
    ("fedsol", forgetting_oracle.FedSOL, {"rho": 0.8, "temperature": 2.0, "perturb": "head"}),
    ("fedbn", network_oracle.FedBN, {"client_weighting": "samples"}),
    ("fedavg", network_oracle.FedAvg, {"client_weighting": "uniform"}),
    ("moon", feature_oracle.Moon, {"mu": 2.0, "temperature": 0.4}),
    ("fedproto", feature_oracle.FedProto, {"distance_weight": 0.6}),
    ("fedproto", feature_oracle.FedProto, {"distance_weight": 0.6, "candidates": "all"}),
    ("fedproc", feature_oracle.FedProc, {"temperature": 0.4}),
    ("fedproc", feature_oracle.FedProc, {"temperature": 0.4, "contrast_weight": 0.6}),
    ("fedloge", feature_oracle.FedLoGe, {"finetune_epochs": 2}),
    ("fedetf", feature_oracle.FedETF, {"finetune_cycles": 2, "finetune_epochs": 2}),
    ("fedge", feature_oracle.FedGE, {"scale": 3.0}),
    ("fedgela", feature_oracle.FedGELA, {"scale": 3.0}),
    ("fedgela", feature_oracle.FedGELA, {"scale": 3.0, "masked": True}),
    ("fedgela", feature_oracle.LocalAdaptation, {"classifier": "trainable"}),
]


@pytest.mark.parametrize(
    ("name", "oracle", "options"),
    # Weights of clients are those of the parabolas.
    support.rare_but([case for case in NETWORKS if "client_weighting" not in case[2]], NETWORKS),
    ids=_identifiers(NETWORKS),
)
def test_rounds_of_a_network(name, oracle, options):
    """All weights after every round, and what global and personal models answer at the end."""
    federation = network_federation(name, **options)
    server_names, own_names = placed(federation)
    own = [own_values(federation, own_names, k) for k in numpy_network.EVERYBODY]
    first = server_values(federation, server_names)
    expected = oracle(first, own, **options)
    for k in numpy_network.EVERYBODY:
        for key, value in own[k].items():
            np.testing.assert_array_equal(value, expected.start(key, value))
    for cohort in numpy_network.COHORTS:
        federation.round(cohort)
        expected.round(cohort)
        for key, value in server_values(federation, server_names).items():
            np.testing.assert_allclose(value, expected.server[key], rtol=3e-4, atol=1e-4)
        for k in expected.began:
            for key, value in own_values(federation, own_names, k).items():
                np.testing.assert_allclose(value, expected.own[k][key], rtol=3e-4, atol=1e-4)
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
