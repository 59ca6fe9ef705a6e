"""Local training that XLA compiles equals training that it does not, up to rounding."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import data, layers, machine, methods, runtime
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.federated import ClientWork, batches
from tff_pcdd.federated import state as states
from tff_pcdd.federated.local_work import LocalWork

SAMPLES = support.examples(12, [0, 1, 2], 1)


def trained(spec, *sizes):
    """What clients with so many samples send and keep after a round that is not the first."""
    message = states.make_message(spec.method, support.server_state(spec, 1))
    own = states.initial_client_state(spec, tf.constant([1, 2]))
    # After those, whose networks are in graphs: Keras must not make such a one in between.
    work = ClientWork(spec)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, *support.IMAGE]),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([2], tf.int32),
        ],
        autograph=False,
    )
    def update(x, y, seed):
        client = support.client_data(0, 0)._replace(train={"x": x, "y": y}, seed=seed)
        return work.update(message, own, tf.nest.map_structure(tf.convert_to_tensor, client))

    inputs = (
        # XLA's own key of a seed with a negative part is another one.
        (SAMPLES["x"][:size], SAMPLES["y"][:size], tf.constant([-3, 4 + number]))
        for number, size in enumerate(sizes)
    )
    return [tf.nest.map_structure(np.asarray, update(*each)) for each in inputs]


def assert_equal_to_rounding(result, expected):
    for a, b in zip(tf.nest.flatten(result), tf.nest.flatten(expected), strict=True):
        scale = np.max(np.abs(b), initial=0.01)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * scale)


# With draws in the loss, and with two gradients. Compiling takes seconds.
@pytest.mark.parametrize(
    "name",
    support.rare_but(["fedgen", "fedsol"], methods.names()),
)
def test_one_program_trains_like_single_operations(name):
    spec = support.training_spec(name)
    compiled = dataclasses.replace(spec, compile="client")
    # Two full batches, and one of three samples.
    assert_equal_to_rounding(trained(compiled, 11), trained(spec, 11))


def random_backbone():
    """With dropout."""
    inputs = tf.keras.Input(support.IMAGE)
    h = layers.StatelessDropout(0.4)(tf.keras.layers.Flatten()(inputs))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(6, activation="relu")(h))


@pytest.mark.parametrize(
    ("compile", "sizes", "stragglers"),
    [
        ("step", (11,), 0.0),
        # Without samples; without a full batch; with a single sample left over; with and without a
        # smaller last batch.
        ("client", (0, 1, 3, 9, 11, 12), 0.0),
        # Their shares of the steps end within an epoch, before its smaller last batch or after it.
        ("client", (9, 11, 11, 11, 11, 12), 1.0),
    ],
)
def test_augmentation_and_dropout_draw_the_same(compile, sizes, stragglers):
    spec = support.training_spec("fedavg")
    spec = dataclasses.replace(
        spec,
        input_spec=dataclasses.replace(support.SPEC, crop_padding=1, flip=True),
        task=dataclasses.replace(spec.task, backbone=random_backbone),
        local_work=LocalWork(straggler_share=stragglers),
    )
    compiled = dataclasses.replace(spec, compile=compile)
    assert_equal_to_rounding(trained(compiled, *sizes), trained(spec, *sizes))


def test_clients_of_similar_sizes_share_a_program():
    """XLA compiles for each shape, of which there are as many as powers of two."""
    for size in range(1, 70):
        values = np.arange(size * 2.0).reshape(size, 2)
        padded = batches.pad_to_bucket(tf.constant(values), 4).numpy()
        rows = next(4 * 2**power for power in range(10) if 4 * 2**power >= size)
        # Less than a batch is not padded, because a batch may be far larger than memory.
        rows = size if size < 4 else rows
        assert padded.shape == (rows, 2)
        np.testing.assert_array_equal(padded[:size], values)
        assert not padded[size:].any()
    assert batches.pad_to_bucket(tf.zeros([5, 2]), 2**31 - 1).shape == (5, 2)


FILES = data.InputSpec("image_file", (8, 8, 3), "string")
ROTATED = dataclasses.replace(support.SPEC, rotation=15.0)


def test_inputs_that_xla_cannot_prepare_are_refused_as_one_program():
    options = ComputeOptions(compile="client")
    assert options.compilation(support.SPEC) == "client"
    for spec, reason in (
        (
            FILES,
            "image files are decoded for each batch, which XLA cannot compile; use step",
        ),
        (ROTATED, "XLA has no operation that rotates images; use step or off"),
    ):
        with refuses("compile", reason):
            options.compilation(spec)
        for name in ("step", "off"):
            assert ComputeOptions(compile=name).compilation(spec) == name


@pytest.mark.parametrize(
    ("options", "is_gpu"),
    [
        ({"name": "inprocess"}, True),
        ({"name": "inprocess", "devices": "CPU:0"}, False),
        ({"name": "inprocess", "devices": "CPU:0,GPU:1"}, True),
        ({"name": "tff"}, False),
        ({"name": "ray"}, False),
        ({"name": "ray", "ray_gpus": 0.5}, True),
    ],
)
def test_auto_compiles_on_gpus_only(monkeypatch, options, is_gpu):
    monkeypatch.setattr(machine, "_gpu_capabilities", lambda: [(9, 0)])
    options = ComputeOptions(runtime=runtime.create(**options))
    expected = ("client", "step") if is_gpu else ("off", "off")
    assert (options.compilation(support.SPEC), options.compilation(ROTATED)) == expected
    # As is the size of batches in evaluations.
    assert options.evaluation_batch() == (2048 if is_gpu else 512)
    assert dataclasses.replace(options, eval_batch_size=7).evaluation_batch() == 7


def test_auto_does_not_compile_on_processors(monkeypatch):
    monkeypatch.setattr(machine, "_gpu_capabilities", list)
    assert ComputeOptions().compilation(support.SPEC) == "off"


def test_the_step_on_rotated_images_is_compiled():
    spec = dataclasses.replace(support.training_spec("fedavg"), input_spec=ROTATED)
    compiled = dataclasses.replace(spec, compile="step")
    assert_equal_to_rounding(trained(compiled, 8), trained(spec, 8))


# Run apart: XLA reads its flags once. Sizes are of 5 to 8 batches of four, with and without a
# smaller last one.
_SEVERAL_SIZES = """
import dataclasses
from tests import support
from tests.federated import test_compilation
test_compilation.SAMPLES = support.examples(32, [0, 1, 2], 1)
spec = dataclasses.replace(support.training_spec("fedavg"), compile={!r})
test_compilation.trained(spec, 20, 22, 24, 26, 27, 28, 30, 31, 32)
"""


# A program with the batches of all epochs, and one with those of an epoch; or one step.
@pytest.mark.parametrize(("compile", "programs"), [("client", 2), ("step", 1)])
def test_clients_of_several_sizes_share_programs(compile, programs, tmp_path):
    """XLA makes a program for each shape, and for each value of what it has to know in advance."""
    environment = os.environ | {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"}
    code = [sys.executable, "-c", _SEVERAL_SIZES.format(compile)]
    subprocess.run(code, env=environment, check=True)
    assert len(list(tmp_path.glob("*.before_optimizations.txt"))) == programs
