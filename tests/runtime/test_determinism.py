"""What `deterministic` changes in TensorFlow, and what is said of operations that cannot be so."""

import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.framework import config as tf_config

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import machine, runtime
from tff_pcdd.cli import program
from tff_pcdd.export import model_card
from tff_pcdd.methods import cross_entropy
from tff_pcdd.runtime import _interpreter, _tf_private, inprocess
from tff_pcdd.training import ComputeOptions, ExperimentConfig, Simulation


@pytest.fixture
def contexts():
    found = [ComputeOptions().create_context() for _ in range(2)]
    found[0].deterministic = True
    yield found
    _tf_private.require_determinism(False)
    for context in found:
        context.close()


def test_operations_are_deterministic_only_in_calls_that_ask_for_it(contexts):
    """TensorFlow's flag is one of the process, in which runtimes may take turns."""
    nothing = tff.tensorflow.computation(lambda: tf.constant(1))
    seen = []
    for context in (*contexts, contexts[0]):
        with runtime.installed(context):
            nothing()
        # Whether cuDNN chooses algorithms by their speed is said in the environment.
        tuned = os.environ.get("TF_CUDNN_USE_AUTOTUNE")
        seen.append((tf_config.is_op_determinism_enabled(), tuned))
    assert seen == [(True, "0"), (False, None), (True, "0")]


def test_xla_is_told_not_to_choose_programs_by_their_speed(monkeypatch):
    """It reads its flags when it first compiles, and keeps to them."""
    monkeypatch.setattr(machine, "_gpu_capabilities", lambda: [(9, 0)])
    monkeypatch.setattr(_tf_private, "_xla_has_read", None)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=4")
    config = ExperimentConfig.from_settings(deterministic=True)
    try:
        _tf_private.require_determinism(True)
        told = "--xla_gpu_graph_min_graph_size=4 --xla_gpu_deterministic_ops=true"
        assert os.environ["XLA_FLAGS"] == told
        _tf_private.note_use_of_xla()
        _tf_private.require_determinism(False)
        assert os.environ["XLA_FLAGS"] == "--xla_gpu_graph_min_graph_size=4"
        ComputeOptions().check(config)
        monkeypatch.setattr(_tf_private, "_xla_has_read", None)
        _tf_private.note_use_of_xla()
    finally:
        _tf_private.require_determinism(False)
    reason = "XLA has chosen .* `compile` is client, use off or a new process"
    with refuses("deterministic", reason):
        ComputeOptions().check(config)
    ComputeOptions(compile="off").check(config)
    ComputeOptions().check(ExperimentConfig.from_settings())


def test_actors_compile_in_processes_of_their_own(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(_tf_private, "_xla_has_read", "")
    actors = runtime.create("ray", ray_gpus=1.0)
    ComputeOptions(runtime=actors).check(ExperimentConfig.from_settings(deterministic=True))


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_simulation_asks_its_runtime_for_it_on_gpus(has_gpu, monkeypatch):
    monkeypatch.setattr(machine, "has_gpu", lambda: has_gpu)
    for value in (True, False):
        simulation = object.__new__(Simulation)
        simulation.config = ExperimentConfig.from_settings(deterministic=value)
        simulation._compute = ComputeOptions()
        with simulation:
            assert simulation._context.deterministic is (value and has_gpu)


def test_nothing_stays_deterministic_after_a_context_is_closed(contexts, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=4")
    monkeypatch.delenv("TF_CUDNN_USE_AUTOTUNE", raising=False)
    with runtime.installed(contexts[0]):
        tff.tensorflow.computation(lambda: tf.constant(1))()
    assert tf_config.is_op_determinism_enabled()
    contexts[0].close()
    assert not tf_config.is_op_determinism_enabled()
    tf.random.normal([2])  # Fails where operations have to be deterministic.
    assert os.environ["XLA_FLAGS"] == "--xla_gpu_graph_min_graph_size=4"
    assert "TF_CUDNN_USE_AUTOTUNE" not in os.environ


def test_a_value_that_was_set_meanwhile_is_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_graph_min_graph_size=4")
    _tf_private.require_determinism(True)
    os.environ["XLA_FLAGS"] = "--xla_gpu_graph_min_graph_size=5"
    _tf_private.require_determinism(False)
    assert os.environ["XLA_FLAGS"] == "--xla_gpu_graph_min_graph_size=5"


def test_flags_of_xla_may_be_in_a_file(monkeypatch, tmp_path):
    """XLA takes a value that does not begin with a dash for the name of a file."""
    flags = "--xla_gpu_graph_min_graph_size=4\n--xla_gpu_autotune_level=2\n"
    (tmp_path / "flags").write_text(flags)
    monkeypatch.setenv("XLA_FLAGS", f"{tmp_path}/flags")
    try:
        _tf_private.require_determinism(True)
        found = os.environ["XLA_FLAGS"].split()
    finally:
        _tf_private.require_determinism(False)
    assert found == [
        "--xla_gpu_graph_min_graph_size=4",
        "--xla_gpu_autotune_level=2",
        "--xla_gpu_deterministic_ops=true",
    ]
    assert os.environ["XLA_FLAGS"] == f"{tmp_path}/flags"


@pytest.mark.parametrize(
    ("contents", "why"), [(None, "No such file or directory"), (b"\xff", "it is no text")]
)
def test_flags_of_xla_in_a_file_that_cannot_be_read(contents, why, monkeypatch, tmp_path):
    """XLA would end the process; nothing has been changed when it is said."""
    if contents is not None:
        (tmp_path / "flags").write_bytes(contents)
    monkeypatch.setenv("XLA_FLAGS", f"{tmp_path}/flags")
    monkeypatch.setattr(_tf_private, "_xla_has_read", None)
    reason = f"^names a file that cannot be read: {why}; flags begin with two dashes$"
    with refuses("XLA_FLAGS", reason):
        _tf_private.require_determinism(True)
    assert not tf_config.is_op_determinism_enabled()
    with refuses("XLA_FLAGS", reason):
        _tf_private.note_use_of_xla()
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=2")
    try:
        _tf_private.require_determinism(True)
        told = os.environ["XLA_FLAGS"]
    finally:
        _tf_private.require_determinism(False)
    assert told == "--xla_gpu_autotune_level=2 --xla_gpu_deterministic_ops=true"


def test_calls_of_other_numerics_take_turns(contexts):
    """TF32 and determinism are of the process, and contexts may be used in several threads."""
    seen: dict[bool, set] = {True: set(), False: set()}

    def look(mine):
        seen[mine].add(tf_config.tensor_float_32_execution_enabled())
        time.sleep(0.02)
        seen[mine].add(tf_config.tensor_float_32_execution_enabled())
        return np.int32(0)

    def compute(context, mine):
        context.tensor_float_32 = mine
        number = tff.tensorflow.computation(
            lambda: tf.numpy_function(lambda: look(mine), [], tf.int32)
        )
        with runtime.installed(context):
            for _ in range(5):
                number()

    threads = [
        threading.Thread(target=compute, args=(context, mine))
        for context, mine in zip(contexts, (True, False), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {True: {True}, False: {False}}


def test_actors_of_ray_get_it_with_each_share():
    pytest.importorskip("ray")
    from tff_pcdd.runtime.ray import actor

    class Context:
        def evaluate(self, computation, argument, num_clients):
            seen.append((self.tensor_float_32, self.deterministic))
            return (), []

    seen = []
    share = object.__new__(actor.ShareActor)
    share._computations, share._context = {b"name": object()}, Context()
    for value in (True, False):
        work = actor.Work(b"name", 0, 1, 1, [], (), (), deterministic=value)
        assert share.compute(work, None) == ((), [])
    assert seen == [(False, True), (False, False)]


@pytest.mark.parametrize("compile", ["step", "client"])
def test_xla_for_processors_is_refused(compile, monkeypatch):
    """In a convolution's gradient, entries were seen to differ in their last bit under load."""
    monkeypatch.setattr(machine, "_gpu_capabilities", list)
    config = ExperimentConfig.from_settings(deterministic=True)
    ComputeOptions().check(config)
    with refuses(
        "deterministic", f"XLA's programs for processors .* `compile` is {compile}, use off"
    ):
        ComputeOptions(compile=compile).check(config)
    ComputeOptions(compile=compile).check(ExperimentConfig.from_settings())
    # Other tests of this process may have compiled.
    monkeypatch.setattr(_tf_private, "_xla_has_read", None)
    monkeypatch.setattr(machine, "_gpu_capabilities", lambda: [(9, 0)])
    ComputeOptions(compile=compile).check(config)


def test_model_cards_say_so():
    rows = dict(model_card._settings(ExperimentConfig.from_settings(deterministic=True)))
    assert rows["deterministic"] is True


def test_a_program_that_is_deterministic_itself_stays_so(contexts):
    tf_config.enable_op_determinism()
    try:
        with runtime.installed(contexts[1]):
            tff.tensorflow.computation(lambda: tf.constant(1))()
        assert tf_config.is_op_determinism_enabled()
        _tf_private.require_determinism(True)
        assert "--xla_gpu_deterministic_ops=true" in os.environ["XLA_FLAGS"]
        _tf_private.require_determinism(False)
        assert "XLA_FLAGS" not in os.environ
        assert tf_config.is_op_determinism_enabled()
    finally:
        tf_config.disable_op_determinism()


@pytest.mark.parametrize("name", support.rare_but(["fedgen"], ["fedgen", "fedmr", "fedavg"]))
def test_numbers_on_processors_are_the_same_with_and_without_it(name, contexts):
    process = support.process(name)
    states = []
    for context in (*contexts, contexts[0]):
        with runtime.installed(context):
            state, own, _ = support.run_rounds(process, process.initialize(), {}, [[0, 1], [1, 3]])
        states.append([state.weights, own])
    support.assert_trees_equal(states[0], states[1])
    support.assert_trees_equal(states[0], states[2])


def test_an_operation_that_cannot_be_deterministic_is_named_in_a_line(contexts):
    scalar = np.zeros([0], np.int32)
    draw = tff.tensorflow.computation(
        lambda x: x + tf.raw_ops.RandomUniform(shape=scalar, dtype=tf.float32), np.float32
    )
    everywhere = tff.federated_computation(
        lambda values: tff.federated_map(draw, values), tff.FederatedType(np.float32, tff.CLIENTS)
    )
    with runtime.installed(contexts[1]):
        everywhere([1.0, 2.0])
    with runtime.installed(contexts[0]), pytest.raises(inprocess.ClientError) as error:
        everywhere([1.0, 2.0])
    line = program._lacking(error.value)
    assert line.startswith("--deterministic: TensorFlow says: ")
    assert "seed" in line
    assert line.endswith("; leave it out")


def test_graphs_are_compiled_anew_for_another_numerical_mode(contexts):
    """XLA has compiled them for one of TF32 and determinism."""
    double = tff.tensorflow.computation(
        lambda x: tf.function(lambda y: 2 * y, jit_compile=True)(x), np.float32
    )
    for context in (*contexts, *contexts):
        with runtime.installed(context):
            assert double(2.0) == 4.0
    modes = {("/device:CPU:0", False, deterministic) for deterministic in (True, False)}
    assert any(modes <= set(found._idle) for found in list(_interpreter._functions.values()))


def test_losses_are_traced_in_the_form_that_gpus_can_repeat(monkeypatch):
    """The usual form has no deterministic implementation there, and is chosen when it is traced."""
    usual = "SparseSoftmaxCrossEntropyWithLogits"

    def operations():
        with tf.Graph().as_default() as graph:
            cross_entropy(tf.zeros([4], tf.int32), tf.zeros([4, 3]))
        return {operation.type for operation in graph.get_operations()}

    options = ComputeOptions()
    try:
        for gpus, deterministic, expected in (
            (True, True, False),
            (True, False, True),
            # Results on processors stay as they are.
            (False, True, True),
        ):
            monkeypatch.setattr(type(options.runtime), "uses_gpus", lambda self, gpus=gpus: gpus)
            options.prepare_tracing(deterministic=deterministic)
            assert (usual in operations()) == expected
    finally:
        _tf_private.require_determinism(False)
