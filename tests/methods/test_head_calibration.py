"""Methods with head calibrations: which are refused, and that the methods train as without one."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.methods.federation import Federation
from tests.methods.refusing import FIXED_HEADS, SENDS
from tff_pcdd import methods
from tff_pcdd.cli import method_grids
from tff_pcdd.experiment import planning
from tff_pcdd.federated import build_personalization, build_process, upload
from tff_pcdd.methods import head_calibration
from tff_pcdd.methods.calibrated import Calibrated, compose
from tff_pcdd.training import ExperimentConfig, manifests, run_directory

calibrations = head_calibration.registry
# Little work.
OPTIONS = {
    "ccvr": {"epochs": 1, "virtual_features": 4},
    "creff": {"epochs": 1, "features": 4, "matching_steps": 1},
    "fednpc": {"epochs": 1, "features": 8},
}
NAMES = [*OPTIONS]
ALIASES = [name for name in methods.names() if methods.get(name).head_calibration]
ACCEPTED = [name for name in methods.names() if name not in FIXED_HEADS and name not in ALIASES]
SENT = {"ccvr": ["counts", "features", "products"], "creff": ["gradients", "holders"], "fednpc": []}
COHORTS = [[0, 1, 4], [4], [1, 3]]


def calibration(name, **options):
    return calibrations.create(name, **{**OPTIONS[name], **options})


def calibrated(method, name, **options):
    return support.training_spec(method, head_calibration=calibration(name), **options)


def test_all_calibrations_are_tested():
    assert set(calibrations.names()) == {"none", *NAMES}
    assert ALIASES == NAMES


@pytest.mark.parametrize("method", methods.names())
def test_methods_say_whether_their_head_can_be_retrained(method):
    """As their networks are: a dense layer with a bias, which clients train for all."""
    own = methods.create(method)
    assert own.fixed_head == FIXED_HEADS.get(method)
    if method in ALIASES:
        return
    if method in FIXED_HEADS:
        reason = f"algorithm={method} {FIXED_HEADS[method]}; choose head_calibration=none or"
        with refuses("head_calibration", reason):
            compose(own, calibration("ccvr"))
        return
    spec = support.training_spec(method)
    with spec.outline() as net:
        head = net[own.linear_head]
        assert type(head) is tf.keras.layers.Dense and head.use_bias
        trained = {variable.ref() for variable in net.shared.trainable}
        assert {variable.ref() for variable in head.weights} <= trained
        assert head.kernel is own.global_classifiers(net)[""]


def test_heads_that_options_fix():
    for method, options, reason in (
        ("fedloge", {"global_head": "frame"}, "has a fixed head"),
        ("fedgela", {"classifier": "trainable"}, "has a head that clients scale"),
    ):
        with refuses("head_calibration", reason):
            compose(methods.create(method, **options), calibration("creff"))


@pytest.mark.parametrize("name", NAMES)
def test_without_epochs_it_is_the_method_itself(name):
    for method in map(methods.create, ACCEPTED):
        assert compose(method, calibration(name, epochs=0)) is method
    assert compose(methods.create(name), calibration(name, epochs=0)) == methods.create("fedavg")
    warnings = []
    config = ExperimentConfig(head_calibration=calibration(name, epochs=0))
    planning.advise(config, warnings.append)
    expected = f"head_calibration={name}: has no effect, because {name}_epochs is 0"
    assert warnings == [expected]


# With each method one of the calibrations, in turn.
PAIRS = [(method, NAMES[number % 3]) for number, method in enumerate(ACCEPTED)]


# Neither what a method sends nor what a calibration does depends on the other.
@pytest.mark.parametrize(
    ("method", "name"),
    support.rare_but(PAIRS, [(method, name) for method in ACCEPTED for name in NAMES]),
)
def test_clients_send_what_both_need(method, name):
    spec = calibrated(method, name)
    own = SENDS[method].split(", ") if method in SENDS else []
    sent = upload.upload_of(spec).sums
    assert sent == sorted([*SENT[name], *(f"{method}_{each}" for each in own)])
    with spec.outline() as net:
        logits = spec.method.global_logits(net, tf.zeros([1, *support.IMAGE]))
        plain = support.training_spec(method)
        with plain.outline() as other:
            heads = set(plain.method.global_logits(other, tf.zeros([1, *support.IMAGE])))
    assert set(logits) == heads | {method}


def own_weights(federation):
    """The weights of the method itself, by piece, number in the piece, and placement."""
    method, weights, found = federation.spec.method, federation.server.weights, {}
    with federation.spec.outline() as net:
        view = method._trained(net) if isinstance(method, Calibrated) else net
        for group in ("trainable", "statistics"):
            values = {
                variable.ref(): value
                for variable, value in zip(getattr(net.shared, group), weights[group], strict=True)
            }
            for piece, layer in view.parts.items():
                for number, variable in enumerate(layer.weights):
                    if variable.ref() in values:
                        found[piece, number, group] = values[variable.ref()]
    return found


# Steps of their own at the server, in their units or with training; another head; own models.
KINDS = ("feddyn", "fednova", "fedprox", "fedloge", "fedrod")


@pytest.mark.parametrize(
    ("method", "name"), support.rare_but([p for p in PAIRS if p[0] in KINDS], PAIRS)
)
def test_the_method_trains_as_without_the_calibration(method, name):
    """The second round is one of a client without samples."""
    spec = calibrated(method, name)
    own = Federation(spec, support.CLIENTS)
    plain = Federation(support.training_spec(method), support.CLIENTS)
    for cohort in COHORTS:
        own.round(cohort)
        plain.round(cohort)
    found, expected = own_weights(own), own_weights(plain)
    assert found.keys() == expected.keys()
    for place, value in found.items():
        np.testing.assert_allclose(value, expected[place], rtol=1e-3, atol=1e-4, err_msg=place)
    x = tf.constant(support.TEST["x"])
    logits, before = own.global_logits(x), plain.global_logits(x)[""]
    np.testing.assert_allclose(logits[method], before, rtol=1e-2, atol=1e-2)
    assert np.abs(logits[""] - logits[method]).max() > 1e-4
    assert np.all(np.isfinite(own.personal_logits(0, x, True)))


def test_personal_models_of_the_method_stay():
    """FedRoD has its own; those of FedProx and MOON start from the calibrated global model."""
    x = tf.constant(support.TEST["x"])
    for method, is_global in (("fedrod", False), ("fedprox", True), ("moon", True)):
        own = Federation(calibrated(method, "ccvr"), support.CLIENTS).round([0, 1])
        plain = Federation(support.training_spec(method), support.CLIENTS).round([0, 1])
        found = own.personal_logits(0, x, False)
        wanted = own.global_logits(x)[""] if is_global else plain.personal_logits(0, x, False)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", support.rare_but(["fedntd", "ditto"], ACCEPTED))
def test_personal_models_have_values_of_all_variables(method):
    """Also of those of the global model that only a method's training would need."""
    spec = calibrated(method, "ccvr")
    process = build_process(spec)
    personalize = build_personalization(process, local_epochs=False)
    own = process.initial_client_state(support.seed_of(0, 1))
    state = process.initialize()
    (values,) = personalize(state, [own], [support.client_data(1, 0, test=support.TEST)])
    with spec.outline() as net:
        shapes = [tuple(variable.shape) for variable in net.variables]
    assert [np.shape(value) for value in values] == shapes


def test_a_head_of_another_kind_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Cosine(methods.Method):
        name = "cosine"

        def build(self, task):
            return {"backbone": task.backbone(), "head": tf.keras.layers.Dense(4, use_bias=False)}

    spec = dataclasses.replace(support.training_spec("fedavg"), method=Cosine())
    spec = dataclasses.replace(spec, head_calibration=calibration("ccvr"))
    with refuses("head_calibration", "cosine has no dense layer with a bias as its 'head'"):
        spec.network()


# Settings.


def test_names_of_fedavg_with_a_calibration():
    for name in ALIASES:
        config = ExperimentConfig.from_settings(algorithm=name, **{f"{name}_epochs": 2})
        assert config.head_calibration == calibrations.create(name, epochs=2)
        settings = config.to_settings()
        assert settings["head_calibration"] == name and settings[f"{name}_epochs"] == 2
        assert ExperimentConfig.from_record(settings) == config
        assert ExperimentConfig(method=name).to_settings()["head_calibration"] == name
        assert config.method_title == name
        other = config.with_settings(algorithm="fedprox")
        assert other.head_calibration.name == "none"
        options = {f"{name}_epochs": 2}
        assert other.with_settings(algorithm=name, **options) == config
        other = other.with_settings(head_calibration=name, **options)
        assert other.method_title == f"fedprox with {name}"
        assert other.with_settings(algorithm="moon").head_calibration.epochs == 2
        assert config.with_settings(seed=3).head_calibration.epochs == 2


def test_what_contradicts_a_name_is_refused():
    reason = "algorithm=ccvr is fedavg with head_calibration=ccvr; choose fedavg"
    for other in ("none", "creff"):
        with refuses("head_calibration", reason):
            ExperimentConfig.from_settings(algorithm="ccvr", head_calibration=other)
    with refuses("ccvr_epochs", "applies only with head_calibration=ccvr"):
        ExperimentConfig.from_settings(algorithm="fedavg", ccvr_epochs=3)
    with refuses("head_calibration", "algorithm=fedper has no global model; choose"):
        ExperimentConfig.from_settings(algorithm="fedper", head_calibration="ccvr")
    reason = "fedprox with head_calibration=ccvr has a server step of its own"
    with refuses("server_optimizer", reason):
        ExperimentConfig(method="fedprox", head_calibration="ccvr", server_optimizer="fedadam")
    ExperimentConfig(method="fedprox", head_calibration="fednpc", server_optimizer="fedadam")


def test_what_clients_send_decides_about_aggregators():
    settings = {"model": "mlp", "aggregator": "dp", "num_clients": 5}
    with refuses("aggregator", "clients of fedprox with head_calibration=ccvr also send counts"):
        config = ExperimentConfig.from_settings(
            algorithm="fedprox", head_calibration="ccvr", **settings
        )
        planning.check(config)
    config = ExperimentConfig.from_settings(
        algorithm="fedprox", head_calibration="fednpc", **settings
    )
    assert isinstance(planning.check(config).method, Calibrated)


# The features and counts of FedMR, alone and beside those of CCVR, which also has products.
@pytest.mark.parametrize(
    ("calibration", "sent"),
    [("fednpc", "counts, features, which"), ("ccvr", "counts, features, products, which")],
)
def test_what_a_method_sends_keeps_its_name_with_a_calibration(calibration, sent):
    config = ExperimentConfig.from_settings(
        algorithm="fedmr", head_calibration=calibration, aggregator="secure", num_clients=5
    )
    reason = f"clients of fedmr with head_calibration={calibration} also send {sent} would not be"
    with refuses("aggregator", reason):
        planning.check(config)


@pytest.mark.parametrize(
    ("algorithm", "calibration", "instead"),
    [
        ("fedprox", "ccvr", "head_calibration=none"),  # FedProx's own step is the mean
        ("feddyn", "ccvr", "another method"),
        ("creff", None, "algorithm=fedavg"),  # FedAvg with the calibration of that name
        ("feddyn", None, "another method"),
    ],
)
def test_what_refuses_a_calibration_does_not_send_to_another_method(
    algorithm, calibration, instead
):
    settings = {"algorithm": algorithm, "head_calibration": calibration, "num_clients": 5}
    choice = f"choose server_optimizer=sgd with server_learning_rate=1, or {instead}$"
    with refuses("server_optimizer", choice):
        ExperimentConfig.from_settings(server_optimizer="fedadam", **settings)
    with refuses("server_learning_rate", f"choose server_learning_rate=1, or {instead}$"):
        ExperimentConfig.from_settings(server_learning_rate=0.5, **settings)
    config = ExperimentConfig.from_settings(aggregator="secure", model="mlp", **settings)
    with refuses("aggregator", f"choose aggregator=mean or {instead}$"):
        planning.check(config)


@pytest.mark.parametrize(
    ("chosen", "instead"),
    [
        ({"algorithm": "fedprox", "head_calibration": "ccvr"}, "head_calibration=none"),
        # FedAvg with it, by another name.
        ({"algorithm": "ccvr"}, "algorithm=fedavg"),
        # Its prototypes are sent without the calibration too.
        ({"algorithm": "fedmr", "head_calibration": "ccvr"}, "another method"),
    ],
)
def test_a_refused_aggregator_names_what_would_do(chosen, instead):
    settings = {"model": "mlp", "num_clients": 5, "aggregator": "compressed"}
    with refuses("aggregator", f"choose aggregator=mean or {instead}$"):
        planning.check(ExperimentConfig.from_settings(**chosen, **settings))
    if instead != "another method":
        name, _, value = instead.partition("=")
        planning.check(ExperimentConfig.from_settings(**{**chosen, name: value}, **settings))


def test_earlier_runs_are_the_same_experiments(tmp_path):
    """The digest was recorded before head calibrations were components."""
    wanted = ExperimentConfig.from_settings(
        algorithm="ccvr", num_clients=5, clients_per_round=3, local_epochs=1, seed=3, rounds=4
    )
    assert wanted.digest() == "480c63828bb0"
    settings = wanted.to_settings()
    earlier = {name: value for name, value in settings.items() if name != "head_calibration"}
    assert manifests.settings_digest(earlier) == manifests.settings_digest(settings)
    (tmp_path / "config.json").write_text(json.dumps(earlier))
    run_directory.check_directory(tmp_path, wanted, overwrite=False)
    assert run_directory.read_config(tmp_path) == wanted
    other = wanted.with_settings(algorithm="fedprox", head_calibration="ccvr")
    with refuses("output_dir", r"algorithm \(there ccvr, here fedprox\)"):
        run_directory.check_directory(tmp_path, other, overwrite=False)


def test_sweeps_tune_the_calibration_of_a_name():
    assert method_grids.tuning("fednpc") == {"fednpc_epochs": {"3": 3, "9": 9, "14": 14}}


@pytest.mark.parametrize("name", ["ccvr", "creff"])
def test_before_the_first_round_there_is_no_model_beside_the_re_trained_one(name):
    """So clients begin with the global model, as the first broadcast says."""
    spec = calibrated("fedprox", name)
    server = support.server_state(spec).server
    assert not server["trained"]
    assert not spec.method.broadcast(server)["trained"]
