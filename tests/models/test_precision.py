"""Backbones in bfloat16: what is computed in it, what is not, and where it is refused."""

import dataclasses
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.keras.layers import Dense, Flatten

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import layers, machine, models, runtime
from tff_pcdd.errors import SettingError
from tff_pcdd.models import precision
from tff_pcdd.models.config import ModelConfig
from tff_pcdd.training import (
    ComputeOptions,
    ExperimentConfig,
    RunOptions,
    Simulation,
    run_experiment,
)
from tff_pcdd.training.run_directory import check_directory

POLICY = "mixed_bfloat16"
SLOW = "the processor is slow"


def rounded(values):
    """Float32 values rounded to the nearest bfloat16, ties to even, by their bits."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def keras_backbone(*made):
    """A backbone of the given layers, behind one that flattens; each may be built once."""
    return models.KerasBackbone(
        lambda shape: tf.keras.Sequential([tf.keras.Input(shape), Flatten(), *(f() for f in made)])
    )


@pytest.fixture
def slow(monkeypatch):
    """This machine does not compute fast in bfloat16."""
    monkeypatch.setattr(machine, "slow_bfloat16", lambda *, gpus=True: SLOW)


@pytest.fixture
def fast(monkeypatch):
    """This machine computes fast in bfloat16."""
    monkeypatch.setattr(machine, "slow_bfloat16", lambda *, gpus=True: None)


def test_a_layer_rounds_its_input_its_weights_and_its_output():
    generator = np.random.default_rng(0)
    # Seven bits each, which rounding uncovers; sums of their products are exact in float32.
    coarse = [generator.integers(-127, 128, size) / 64 for size in ((5, 6), (6, 4))]
    x, kernel = ((values * (1 + 2**-10)).astype(np.float32) for values in coarse)
    model = keras_backbone(lambda: Dense(4)).build((6,), precision="bfloat16")
    model.set_weights([kernel, np.zeros(4, np.float32)])
    features = model(x)
    assert features.dtype == tf.float32
    np.testing.assert_array_equal(rounded(x), coarse[0])
    np.testing.assert_array_equal(features, rounded(coarse[0] @ coarse[1]))
    assert np.any(features.numpy() != coarse[0] @ coarse[1])
    np.testing.assert_array_equal(model.get_weights()[0], kernel)


def test_the_projection_does_not_round():
    x = (np.arange(12, dtype=np.float32).reshape(2, 6) / 8 - 0.5) * np.float32(1.003)
    kernel = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
    backbone = keras_backbone(lambda: tf.keras.layers.Activation("relu"))
    model = backbone.build((6,), projection_dim=3, precision="bfloat16")
    model.set_weights([kernel, np.zeros(3, np.float32)])
    wanted = np.maximum(rounded(x), 0).astype(np.float64) @ kernel
    np.testing.assert_allclose(model(x), wanted, rtol=1e-6, atol=1e-6)


def test_statistics_of_batches_are_float32():
    x = rounded(np.random.default_rng(0).normal(3, 2, size=(30, 4)))
    model = keras_backbone(layers.BatchNormalization).build((4,), precision="bfloat16")
    model(x, training=True)
    mean, variance = model.get_weights()[2:]
    np.testing.assert_allclose(mean, 0.1 * x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var(axis=0, ddof=1), rtol=1e-5)


def test_statistics_of_groups_are_float32():
    inputs = tf.keras.Input((3, 3, 4))
    with precision.scope("bfloat16"):
        model = tf.keras.Model(inputs, models.normalize(inputs, "group"))
    x = np.random.default_rng(0).normal(3, 2, size=(2, 3, 3, 4)).astype(np.float32)
    # Four groups of one channel.
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    wanted = (x - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "width"),
    support.rare_but(
        [(name, 0) for name in models.names() if name != "efficientnet_b0"] + [("simple_cnn", 7)],
        [(name, width) for name in models.names() for width in (0, 7)],
    ),
)
def test_every_backbone(name, width):
    cls = models.get(name)
    text = issubclass(cls, models.TextBackbone)
    shape, vocabulary_size = ((5,), 9) if text else ((32, 32, 3), None)
    build = {"projection_dim": width, "vocabulary_size": vocabulary_size}
    with tf.Graph().as_default():
        model = cls().build(shape, precision="bfloat16", **build)
    assert tf.keras.mixed_precision.global_policy().name == "float32"
    assert model.output.dtype == tf.float32
    assert {weight.dtype for weight in model.weights} <= {tf.float32}
    policies = {
        layer.name: layer.dtype_policy.name for layer in model.layers if layer.trainable_weights
    }
    if width:
        assert policies.pop("projection") == "float32"
    assert set(policies.values()) <= {POLICY}
    assert policies or name == "linear"


def test_group_normalization_of_backbones_computes_in_float32():
    with tf.Graph().as_default():
        model = models.create("resnet8", normalization="group").build(
            (8, 8, 1), precision="bfloat16"
        )
    kinds = {type(layer).__name__: layer.dtype_policy.name for layer in model.layers}
    assert kinds["GroupNormalization"] == kinds["GlobalAveragePooling2D"] == "float32"
    assert kinds["Conv2D"] == kinds["ReLU"] == kinds["Add"] == POLICY


def test_float32_is_the_default_and_leaves_models_as_they_are():
    for made in (
        models.create("mlp").build((4, 4, 1)),
        keras_backbone(lambda: Dense(3)).build((4,)),
    ):
        assert {layer.dtype_policy.name for layer in made.layers} == {"float32"}
        assert made.layers[-1].name != precision.CAST


def test_the_policy_is_that_of_before_also_after_an_error():
    def fails():
        assert tf.keras.mixed_precision.global_policy().name == POLICY
        raise KeyError

    with pytest.raises(KeyError):
        keras_backbone(fails).build((4,), precision="bfloat16")
    assert tf.keras.mixed_precision.global_policy().name == "float32"


def test_threads_wait_for_the_policy_of_others():
    built = []

    def build():
        with tf.Graph().as_default():
            built.append(models.create("mlp").build((4, 4, 1)))

    with precision.scope("bfloat16"):
        thread = threading.Thread(target=build)
        thread.start()
        thread.join(0.05)
        assert not built
    thread.join()
    assert {layer.dtype_policy.name for layer in built[0].layers} == {"float32"}


def test_models_of_half_precision_and_softmax_are_still_refused():
    half = keras_backbone(lambda: Dense(3, dtype="float16"))
    softmax = keras_backbone(lambda: Dense(3, "softmax"))
    for backbone, reason in ((half, "output is float16"), (softmax, "applies softmax")):
        with refuses("model", reason):
            backbone.build((4,), precision="bfloat16")


# Settings.


@pytest.mark.parametrize(("kind", "resolved"), [("fast", "bfloat16"), ("slow", "float32")])
def test_auto_is_replaced_by_what_the_machine_is_fast_in(kind, resolved, request):
    request.getfixturevalue(kind)
    config = ExperimentConfig.from_settings(precision="auto")
    assert config.model.precision == config.to_settings()["precision"] == resolved
    assert ExperimentConfig.from_settings(**config.to_settings()) == config


def test_unknown_precisions_are_refused():
    with refuses("precision", "choose one of float32, tf32, bfloat16, auto"):
        ModelConfig(precision="float16")


def test_runs_from_before_the_setting_are_the_same_experiments(tmp_path):
    """The digest is that of such runs, and their directory is accepted."""
    config = ExperimentConfig()
    assert config.digest() == "3dc0c27aeb6f"
    settings = config.to_settings()
    assert settings.pop("precision") == "float32"
    other = ExperimentConfig.from_settings(precision="bfloat16")
    assert other.digest() != config.digest()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    check_directory(tmp_path, config, overwrite=False)
    with refuses("output_dir", r"precision \(there float32, here bfloat16\)"):
        check_directory(tmp_path, other, overwrite=False)


def test_gpus_compute_in_tf32_only_if_it_was_chosen():
    """TensorFlow's flag is one of the process, in which runtimes may take turns."""
    allowed = tf.config.experimental.tensor_float_32_execution_enabled
    contexts = {name: ComputeOptions().create_context(name) for name in ("float32", "tf32")}
    seen = []

    @tff.tensorflow.computation
    def nothing():
        return tf.constant(1)

    for name in ("tf32", "float32", "tf32"):
        with tff.framework.get_context_stack().install(contexts[name]):
            nothing()
        seen.append(allowed())
    assert seen == [True, False, True]
    for context in contexts.values():
        context.close()


@pytest.mark.usefixtures("slow")
def test_bfloat16_is_refused_where_it_is_slow_unless_insisted_upon(tmp_path):
    options = ComputeOptions()
    options.check_precision("float32")
    with refuses("precision", f"{SLOW}, so float32 is faster; use that, or set slow_bfloat16"):
        options.check_precision("bfloat16")
    with refuses("precision", SLOW):
        options.create_context("bfloat16")
    ComputeOptions(slow_bfloat16=True).check_precision("bfloat16")
    # Before the data are looked for, which are not there.
    config = ExperimentConfig.from_settings(
        precision="bfloat16", dataset="cifar10", data_dir=str(tmp_path / "none")
    )
    with refuses("precision", SLOW):
        run_experiment(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("fast")
def test_a_runtime_on_other_machines_asks_them():
    class Context:
        closed = False

        def slow_bfloat16(self):
            return "at Ray actor 1, it is slow"

        def close(self):
            self.closed = True

    @dataclasses.dataclass(frozen=True)
    class Elsewhere(runtime.RuntimeConfig):
        context = Context()

        def create_context(self):
            return self.context

    options = ComputeOptions(runtime=Elsewhere())
    assert options.create_context("float32") is Elsewhere.context
    with refuses("precision", "at Ray actor 1"):
        options.create_context("bfloat16")
    assert Elsewhere.context.closed


def test_a_refusal_of_what_auto_has_chosen_names_auto(monkeypatch, tmp_path):
    """The machine has a fast GPU, which the runtime does not use."""
    monkeypatch.setattr(machine, "slow_bfloat16", lambda *, gpus=True: None if gpus else SLOW)
    options = ComputeOptions(runtime=runtime.create("tff", insecure=True))
    auto, given = (
        ExperimentConfig.from_settings(precision=precision, model="mlp")
        for precision in ("auto", "bfloat16")
    )
    slower = f"{SLOW}, so float32 is faster; use that, or set slow_bfloat16"
    with pytest.raises(SettingError, match=f"^precision=bfloat16: {slower}$"):
        run_experiment(given, tmp_path / "run", RunOptions(compute=options))
    message = f"^precision=auto: has chosen bfloat16, but {slower}$"
    with pytest.raises(SettingError, match=message):
        run_experiment(auto, tmp_path / "run", RunOptions(compute=options))
    with pytest.raises(SettingError, match=message):
        Simulation(auto, compute=options).start()
    # Another precision that is put in its place was not chosen by it.
    model = dataclasses.replace(ModelConfig(precision="auto"), precision="float32")
    assert model.shown_precision == "float32"


def test_a_directory_is_refused_with_the_precision_that_auto_has_chosen(slow, tmp_path):
    settings = ExperimentConfig.from_settings(precision="bfloat16").to_settings()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    auto = ExperimentConfig.from_settings(precision="auto")
    with refuses("output_dir", r"precision \(there bfloat16, here float32, which auto chose\); "):
        check_directory(tmp_path, auto, overwrite=False)


def test_only_devices_that_are_used_are_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(machine, "slow_bfloat16", lambda *, gpus=True: asked.append(gpus))
    runtime.create("tff").slow_bfloat16()
    for devices in (None, "CPU:0", "CPU:0,GPU:1"):
        runtime.create("inprocess", devices=devices).slow_bfloat16()
    assert asked == [False, True, False, True]
