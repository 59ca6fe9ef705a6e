"""A head calibration of a finished run, beside the run."""

import hashlib
import json
from string import ascii_lowercase

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import data, models
from tff_pcdd.errors import DataError
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.nonfinite import NonfiniteLog
from tff_pcdd.federated import state as states
from tff_pcdd.federated.head_statistics import Adopted
from tff_pcdd.federated.weights import load
from tff_pcdd.methods.head_calibration import registry as calibrations
from tff_pcdd.training import ExperimentConfig, RunOptions, evaluate_run, run_experiment
from tff_pcdd.training.post_hoc import calibrate_run
from tff_pcdd.training.restored import restore_run
from tff_pcdd.training.run_directory import check_calibration, read_config

pytestmark = pytest.mark.usefixtures("shared_computations")

X = tf.constant(support.TEST["x"])


def specs(method, name, **options):
    calibration = calibrations.create(name, **options)
    return support.training_spec(method), support.training_spec(
        method, head_calibration=calibration
    )


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *[("fedavg", "ccvr"), ("fedbn", "creff"), ("fedloge", "fednpc"), ("fedrod", "ccvr")],
        *[("scaffold", "creff"), ("fedbn", "fednpc")],
    ],
)
def test_both_models_are_those_of_the_run_before_the_head_is_trained(method, name):
    plain, spec = specs(method, name)
    trained = support.server_state(plain, 3)
    weights = dict(trained.weights)
    generator = np.random.default_rng(0)
    weights["trainable"] = [
        generator.normal(size=value.shape).astype(np.float32) for value in weights["trainable"]
    ]
    trained = trained._replace(weights=weights)
    adopted = Adopted(spec, plain)
    state = adopted.server(support.server_state(spec), trained)
    assert int(state.round) == 3
    nets = []
    for each, values in ((plain, trained), (spec, state)):
        net = each.network()
        load(net, values.weights)
        nets.append({n: v.numpy() for n, v in each.method.global_logits(net, X).items()})
    expected, found = nets
    assert found.keys() == expected.keys() | {method}
    for head, logits in expected.items():
        np.testing.assert_allclose(found[head], logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[method], expected[""], rtol=1e-5, atol=1e-5)
    client = states.initial_client_state(plain, support.seed_of(0))
    kept = adopted.client(client).personal
    with spec.outline() as net:
        assert [value.shape for value in kept] == [v.shape for v in net.kept]


def test_only_the_head_changes():
    plain, spec = specs("fedprox", "fednpc", epochs=3, features=20)
    adopted = Adopted(spec, plain)
    before = adopted.server(support.server_state(spec), support.server_state(plain))
    after = adopted.calibrated(before, {})
    changed = [
        np.any(a != b)
        for a, b in zip(before.weights["trainable"], after.weights["trainable"], strict=True)
    ]
    assert changed == [False] * (len(changed) - 2) + [True, True]
    support.assert_trees_equal(before.weights["statistics"], after.weights["statistics"])


SETTINGS = {
    "model": "mlp", "num_clients": 5, "rounds": 2, "local_epochs": 1, "max_train_samples": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a finished run, and its summary."""
    directory = tmp_path_factory.mktemp("runs") / "run"
    config = ExperimentConfig.from_settings(algorithm="fedprox", clients_per_round=3, **SETTINGS)
    return directory, config, run_experiment(config, directory, RunOptions(progress=False))


def digests(directory):
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.integration
def test_the_result_is_a_run_of_its_own(run, simulation):
    directory, config, summary = run
    calibrated = config.with_settings(
        head_calibration="ccvr", ccvr_virtual_features=9, ccvr_epochs=2
    )
    before, target = digests(directory), directory.with_name("calibrated")
    options = RunOptions(progress=False)
    found = calibrate_run(config, calibrated, directory, target, options)
    assert digests(directory) == before
    assert not list(target.parent.glob(".*"))
    assert found["ga_fedprox_final"] == summary["ga_final"]
    assert json.loads((target / "summary.json").read_text())["ga_final"] == found["ga_final"]
    assert read_config(target) == calibrated
    assert evaluate_run(calibrated, target, options)["accuracies"]["ga"] == pytest.approx(
        found["ga_final"]
    )
    again = restore_run(calibrated, target, options)
    with again.simulation as simulation:
        spec, state, federation = simulation.spec, simulation.state, simulation.federation
        net = spec.network()
        load(net, state.weights)
        examples = federation.train.take(federation.trained_samples())
        x = data.normalize(tf.convert_to_tensor(examples.x), spec.input_spec)
        features = spec.method.embed(net, x, training=False).numpy().astype(np.float64)
        for label in np.unique(examples.y):
            own = features[examples.y == label]
            np.testing.assert_allclose(
                state.server["means"][label], own.mean(axis=0), rtol=1e-4, atol=1e-4
            )
            np.testing.assert_allclose(
                state.server["covariances"][label], np.cov(own.T), rtol=1e-3, atol=1e-3
            )
    with refuses("output_dir", "exists already; name another directory"):
        calibrate_run(config, calibrated, directory, target, options)
    # Its history lacks round 1, and training would have calibrated the head after it.
    before = digests(target)
    with refuses("rounds", "has only round 2, after which its head was re-trained"):
        run_experiment(calibrated.with_settings(rounds=3), target, options)
    assert before.items() <= digests(target).items()


def test_what_cannot_be_calibrated(tmp_path):
    config = ExperimentConfig.from_settings(algorithm="fedprox", **SETTINGS)
    ccvr = config.with_settings(head_calibration="ccvr")
    with refuses("head_calibration", "the run was trained with head_calibration=ccvr"):
        check_calibration(ccvr, config.with_settings(head_calibration="creff"), tmp_path / "new")
    with refuses("ccvr_epochs", "must be at least 1, or nothing is re-trained"):
        check_calibration(config, ccvr.with_settings(ccvr_epochs=0), tmp_path / "new")
    with refuses("output_dir", "exists already"):
        check_calibration(config, ccvr, tmp_path)
    with refuses("head_calibration", "algorithm=fedetf has a fixed head"):
        config.with_settings(algorithm="fedetf", head_calibration="ccvr")


def test_clients_keep_their_states_whichever_store_the_run_has(tmp_path, monkeypatch):
    """The disk store lists the states by round, and there are more rounds than clients."""

    def network(self, input_shape, projection_dim):
        inputs = tf.keras.Input(input_shape)
        h = tf.keras.layers.Dense(9)(tf.keras.layers.Flatten()(inputs))
        return tf.keras.Model(inputs, tf.keras.layers.BatchNormalization()(h))

    monkeypatch.setattr(models.get("simple_cnn_bn"), "network", network)
    config = ExperimentConfig.from_settings(
        **{**SETTINGS, "model": "simple_cnn_bn", "rounds": 6},
        algorithm="fedbn",
        clients_per_round=2,
    )
    calibrated = config.with_settings(head_calibration="ccvr", ccvr_virtual_features=9)
    options = RunOptions(progress=False, tensorboard=False, client_store="disk")
    run_experiment(config, tmp_path / "run", options)
    calibrate_run(config, calibrated, tmp_path / "run", tmp_path / "new", options)
    stores = [
        restore_run(settings, tmp_path / name, options).simulation.store
        for settings, name in ((config, "run"), (calibrated, "new"))
    ]
    trained, kept = ([store.get(client) for client in range(5)] for store in stores)
    assert sum(int(state.participations) for state in trained) == 6 * 2
    for before, after in zip(trained, kept, strict=True):
        assert int(after.participations) == int(before.participations)
        # With the calibration, clients keep further variables, and in another order.
        values, others = ({each.tobytes() for each in state.personal} for state in (before, after))
        assert values <= others
    assert stores[1].clients == stores[0].clients


@pytest.mark.integration
def test_a_given_federation_is_planned_with_its_own_data(tmp_path, monkeypatch):
    """It holds texts, and the data of the settings are images."""

    def embed(self, input_shape, projection_dim, vocabulary_size):
        inputs = tf.keras.Input(input_shape, dtype="int32")
        h = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(vocabulary_size, 3)(inputs))
        return tf.keras.Model(inputs, models.project(h, projection_dim))

    # Tracing an LSTM takes seconds.
    monkeypatch.setattr(models.get("lstm"), "network", embed)
    x, y = np.random.default_rng(0).integers(0, 20, (60, 4), np.int32), np.arange(60) % 3
    clients = [
        data.ClientIndices(name, train=np.flatnonzero(y != k), test=np.flatnonzero(y == 2 - k))
        for k, name in enumerate("abc")
    ]
    samples, spec = (
        data.Examples(x, y),
        data.InputSpec("text", (4,), "int32", vocabulary=ascii_lowercase),
    )
    own = data.Federation("own", 3, tuple("xyz"), spec, samples, samples, clients)
    config = ExperimentConfig.from_settings(
        dataset="digits", model="lstm", rounds=1, local_epochs=1
    )
    options = RunOptions(progress=False, tensorboard=False)
    run_experiment(config, tmp_path / "run", options, federation=own)
    calibrated = config.with_settings(head_calibration="ccvr", ccvr_virtual_features=9)
    found = calibrate_run(
        config, calibrated, tmp_path / "run", tmp_path / "new", options, federation=own
    )
    assert found["ga_final"] is not None


@pytest.mark.integration
def test_a_diverged_run_is_refused(run, monkeypatch):
    directory, config, _ = run
    calibrated = config.with_settings(head_calibration="fednpc")
    monkeypatch.setattr(NonfiniteLog, "diverged", property(lambda self: True))
    with pytest.raises(DataError, match="is not calibrated: the run has diverged"):
        calibrate_run(config, calibrated, directory, directory.with_name("other"))
    assert not directory.with_name("other").exists()
    assert planning.check(calibrated).method.name == "fedprox with head_calibration=fednpc"


def test_the_result_has_diagnostics(tmp_path):
    """Also where clients compute features, which makes further networks."""
    config = ExperimentConfig.from_settings(
        model="linear", num_clients=2, partition="iid", max_train_samples=40, rounds=1
    )
    options = RunOptions(progress=False, tensorboard=False, diagnostics="norms")
    run_experiment(config, tmp_path / "run", options)
    calibrated = config.with_settings(head_calibration="ccvr", ccvr_virtual_features=9)
    calibrate_run(config, calibrated, tmp_path / "run", tmp_path / "calibrated", options)
    assert "diag_" in (tmp_path / "calibrated" / "metrics.csv").read_text()
