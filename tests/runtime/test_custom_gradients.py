"""Graphs with custom gradients are freed, and differentiated as long as they live."""

import gc
import weakref

import pytest
import tensorflow as tf

from tff_pcdd.runtime import inprocess


@pytest.fixture(autouse=True)
def prepared():
    """A context of this package prepares TensorFlow for all graphs of the process."""
    inprocess.create_context(client_parallelism=1).close()


@tf.custom_gradient
def _squared(x):
    """x², with 3x in the place of its derivative 2x, which TensorFlow would find itself."""
    return tf.square(x), lambda upstream: 3 * x * upstream


def test_a_loop_is_differentiated_and_freed():
    def power(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, _squared(v)), (0, x))[1]
        return y, tape.gradient(y, x)

    function = tf.function(power)
    y, gradient = function(tf.constant(2.0))
    # The values are 2, 4 and 16.
    assert (float(y), float(gradient)) == (16.0, 3 * 4 * 3 * 2)
    graph = weakref.ref(function.get_concrete_function(tf.constant(2.0)).graph)
    del function
    gc.collect()
    assert graph() is None


def test_a_graph_is_differentiated_after_it_was_traced():
    function = tf.function(_squared)
    graph = weakref.ref(function.get_concrete_function(tf.constant(2.0)).graph)
    gc.collect()
    for x in (tf.constant(2.0), tf.constant(5.0)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        assert float(tape.gradient(y, x)) == 3 * float(x)
    del function, tape, y
    gc.collect()
    assert graph() is None


def test_graphs_as_tff_traces_them():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant(2.0)
        gradient = tf.gradients(_squared(x), x)[0]
        with tf.compat.v1.Session() as session:
            assert session.run(gradient) == 6.0
    graph = weakref.ref(graph)
    del x, gradient, session
    gc.collect()
    assert graph() is None


def test_saved_models_keep_their_gradients(tmp_path):
    module = tf.Module()
    module.squared = tf.function(_squared, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(
        module, tmp_path, options=tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    )
    loaded = tf.saved_model.load(tmp_path)
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = loaded.squared(x)
    assert (float(y), float(tape.gradient(y, x))) == (4.0, 6.0)
