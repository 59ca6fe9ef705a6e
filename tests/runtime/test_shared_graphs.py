"""Equal graphs that are traced several times are imported once; random sequences are not shared."""

import gc

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context as eager

from tff_pcdd import runtime
from tff_pcdd.runtime import _graphs, _interpreter, inprocess


@pytest.fixture
def imported(monkeypatch):
    """A list that gets an entry for each imported graph."""
    graphs = []

    class Graph(_graphs.Graph):
        def __init__(self, *arguments):
            graphs.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(_graphs, "Graph", Graph)
    monkeypatch.setattr(_interpreter, "_recent", type(_interpreter._recent)())
    # Those of earlier tests may still wait for being collected.
    monkeypatch.setattr(_interpreter, "_functions", type(_interpreter._functions)())
    return graphs


def _call(computation, *arguments):
    """Calls a computation in a context of its own, which is closed afterwards."""
    context = inprocess.create_context(client_parallelism=1)
    with runtime.installed(context):
        result = computation(*arguments)
    context.close()
    return result


def _powers(base):
    """A computation with a loop, a condition and a function in a function."""

    @tf.function
    def step(number, value):
        return tf.cond(value < 1000, lambda: value * base, lambda: value + number)

    @tff.tensorflow.computation(np.int32)
    def powers(times):
        @tf.function
        def loop():
            body = lambda number, value: (number + 1, step(number, value))  # noqa: E731
            return tf.while_loop(lambda number, _: number < times, body, (0, 1))[1]

        return loop()

    return powers


def _expected(base, times):
    value = 1
    for number in range(times):
        value = value * base if value < 1000 else value + number
    return value


def test_the_graph_of_an_earlier_run_is_found_again(imported):
    assert _call(_powers(3), 9) == _expected(3, 9)
    assert len(imported) == 1
    assert _call(_powers(3), 4) == _expected(3, 4)
    assert len(imported) == 1
    # Another constant makes another graph.
    assert _call(_powers(5), 9) == _expected(5, 9)
    assert len(imported) == 2


def test_their_number_is_bounded(imported, monkeypatch):
    monkeypatch.setattr(_interpreter, "_MAX_RECENT", 2)
    for base in (2, 3, 4):
        _call(_powers(base), 3)
        assert len(_interpreter._recent) <= 2
    assert len(imported) == 3
    _call(_powers(4), 3)
    assert len(imported) == 3
    assert _call(_powers(2), 3) == _expected(2, 3)
    assert len(imported) == 4


def test_their_functions_leave_tensorflow_with_them(imported):
    """Also those that are called by others: loops, conditions and functions."""

    def functions():
        gc.collect()
        names = eager.context().list_function_names()
        return {name for name in names if not name.startswith("__wrapped__")}

    before = functions()
    computation = _powers(6)
    assert _call(computation, 9) == _expected(6, 9)
    assert len(functions() - before) > 3
    imported.clear()
    _interpreter._recent.clear()
    del computation
    assert not functions() - before
    # They come back when they are needed.
    assert _call(_powers(6), 4) == _expected(6, 4)


def test_runs_do_not_share_random_sequences(imported):
    def make():
        @tff.tensorflow.computation
        def draw():
            return tf.function(lambda: tf.random.uniform([4], seed=7))()

        return draw

    first, second = make(), make()
    context, other = (inprocess.create_context(client_parallelism=1) for _ in range(2))
    with runtime.installed(context):
        drawn = [first(), first()]
    with runtime.installed(other):
        again = [second(), second()]
    assert not np.array_equal(*drawn)
    np.testing.assert_array_equal(drawn, again)
    assert not _interpreter._recent
    context.close()
    other.close()
