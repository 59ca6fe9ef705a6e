"""`installed` puts a context in force for a block of one thread, and leaves the default alone."""

import threading

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_pcdd import runtime

STACK = tff.framework.get_context_stack()


class Named(tff.framework.SyncContext):
    """It answers every call with its own name."""

    def __init__(self, name):
        self.name = name
        self.closed = False

    def invoke(self, comp, arg):
        return self.name

    def close(self):
        self.closed = True


@tff.tensorflow.computation(np.int32)
def who(x):
    return x


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(values):
    return tff.federated_sum(values)


@pytest.fixture(autouse=True)
def default():
    """The default context, which is in force again after every test."""
    before = STACK.current
    yield before
    assert STACK.current is before


def test_blocks_nest():
    outer, inner = Named("outer"), Named("inner")
    with runtime.installed(outer) as context:
        assert context is outer
        assert who(1) == "outer"
        with runtime.installed(inner):
            assert who(1) == "inner"
            with runtime.installed(outer):
                assert who(1) == "outer"
        assert who(1) == "outer"
    assert not outer.closed


def test_errors_end_a_block(default):
    with pytest.raises(ZeroDivisionError), runtime.installed(Named("outer")):
        with pytest.raises(KeyError), runtime.installed(Named("inner")):
            raise KeyError
        assert who(1) == "outer"
        raise ZeroDivisionError
    assert STACK.current is default
    with pytest.raises(TypeError), runtime.installed("no context"):
        pass


def test_every_thread_has_blocks_of_its_own():
    barrier = threading.Barrier(3)
    answers = {}

    def work(name):
        with runtime.installed(Named(name)):
            barrier.wait(10)
            first = who(1)
            barrier.wait(10)
            answers[name] = (first, who(1))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    with runtime.installed(Named("main")):
        for thread in threads:
            thread.start()
        barrier.wait(10)
        assert who(1) == "main"
        barrier.wait(10)
        for thread in threads:
            thread.join(10)
        assert who(1) == "main"
    assert answers == {"a": ("a", "a"), "b": ("b", "b")}


def test_one_context_computes_in_two_threads_at_a_time():
    context = runtime.create("inprocess", client_parallelism=2).create_context()
    results = {}

    def work(number):
        with runtime.installed(context):
            results[number] = [int(total([number, i])) for i in range(5)]

    threads = [threading.Thread(target=work, args=(number,)) for number in (10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    context.close()
    assert results == {10: [10, 11, 12, 13, 14], 20: [20, 21, 22, 23, 24]}


def test_a_runtime_put_in_force_inside_is_the_default_and_no_more(default, monkeypatch):
    """Also if none was in force before: then TFF's own default context comes back."""
    monkeypatch.setattr(runtime.contexts, "_active", None)
    context = Named("installed")
    with runtime.installed(context):
        with runtime.use("inprocess") as used:
            assert who(1) == "installed"
            seen = []
            with runtime.installed(used):
                seen.append(who(1))
            assert seen == [1]
        assert STACK.current is context
    assert STACK.current is default


def test_the_default_changes_nothing_inside():
    with runtime.use("inprocess"):
        with runtime.installed(Named("installed")):
            assert who(1) == "installed"
        assert who(1) == 1
