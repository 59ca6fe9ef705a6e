"""Ray actors have the same results as one process, even if some of them are lost."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tree

from tests import support, waiting
from tests.runtime import toy_rounds as toy
from tff_pcdd import machine, runtime, settings
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.processes import children

pytest.importorskip("ray")
pytestmark = pytest.mark.integration


def _two_rounds(num_clients):
    server = toy.initialize()
    states, data = toy.clients(num_clients)
    for _ in range(2):
        server, states, metrics = toy.next_round(server, states, data)
    return server, states, metrics


def _assert_close(first, second, tolerance):
    tree.assert_same_structure(first, second, check_types=True)
    for a, b in zip(tree.flatten(first), tree.flatten(second), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def _pids():
    """The processes of all actors that this process has started."""
    found = []
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            if b"ray::ShareActor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


@pytest.fixture
def on_ray(ray_actors):
    """Two actors, with no data of clients."""
    for actor in ray_actors.actors.all:
        actor.held.clear()
    with runtime.installed(ray_actors):
        yield ray_actors


@pytest.fixture(scope="module")
def own_actors(ray_here, ray_actors):
    """Two actors, of which a test may end some: they are started again."""
    others = _pids()
    context = runtime.create("ray", ray_actors=2, ray_timeout=30.0).create_context()
    context.pids = lambda: [pid for pid in _pids() if pid not in others]
    yield context
    context.close()
    waiting.until(lambda: not context.pids())


@pytest.fixture
def on_own_actors(own_actors):
    with runtime.installed(own_actors):
        yield own_actors


# Values.


@pytest.mark.parametrize("num_clients", [1, 2, 5])
def test_rounds_are_those_of_one_process(on_ray, num_clients):
    with runtime.use("inprocess"):
        expected = _two_rounds(num_clients)
    _assert_close(_two_rounds(num_clients), expected, 1e-6)


def test_shares_are_cut_by_the_number_of_actors():
    from tff_pcdd.runtime.ray import context as ray_context

    assert ray_context.ranges(5, 2) == [(0, 2), (2, 5)]
    assert ray_context.ranges(1, 2) == [(0, 1)]
    assert ray_context.ranges(4, 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_actors_say_whether_they_are_fast_in_bfloat16(on_ray):
    """They are on this machine, and use no GPU."""
    reason = machine.slow_bfloat16(gpus=False)
    assert on_ray.slow_bfloat16() == (reason and f"at Ray actor 0, {reason}")


def test_what_cannot_be_divided_is_computed_here(on_ray, caplog):
    _, data = toy.clients(4)
    counts = toy.label_shares(toy.initialize(), data)
    for count, client in zip(counts, data, strict=True):
        expected = np.bincount(client["examples"]["y"], minlength=toy.CLASSES)
        np.testing.assert_array_equal(count, expected)
    assert toy.squared_difference(3.0, 1.0) == 4.0
    assert toy.secure_sum([1, 2, 3]) == 6
    assert toy.secure_sum([]) == 0
    assert not caplog.records
    assert toy.variance([1.0, 2.0, 3.0, 6.0]) == 3.5
    assert "is not divided, because it has sums over clients that depend on other" in caplog.text


def test_an_error_of_a_computation_is_that_of_one_process(on_ray, caplog):
    with runtime.use("inprocess"), pytest.raises(Exception, match="not this one") as expected:
        toy.sum_of_negatives([-1, -2, -3, 4])
    with pytest.raises(Exception, match="not this one") as found:
        toy.sum_of_negatives([-1, -2, -3, 4])
    assert type(found.value) is type(expected.value)
    assert found.value.client == expected.value.client == 3
    assert str(found.value).startswith("Client 3 of 4 failed: ")
    assert isinstance(found.value.__cause__, tf.errors.InvalidArgumentError)
    assert not caplog.records
    assert toy.sum_of_negatives([-1, -2, -3, -4]) == -10


def test_different_numbers_of_clients_are_refused(on_ray):
    states, data = toy.clients(3)
    with pytest.raises(ValueError, match=r"numbers of clients differ: \[2, 3\]"):
        toy.next_round(toy.initialize(), states[:2], data)


# What is sent.


def _sent(context, function, *arguments):
    """The result of a call, and the bytes that it sent."""
    before = context.sent_bytes.copy()
    result = function(*arguments)
    return result, {kind: n - before[kind] for kind, n in context.sent_bytes.items()}


def _nbytes(value):
    return sum(np.asarray(leaf).nbytes for leaf in tree.flatten(value))


def test_samples_and_states_are_sent_once(on_ray):
    # A client has 100 samples of 5 float32 values; its state has 1,000 values.
    states, data = toy.clients(4, samples=100)
    inputs = sum(client["examples"]["x"].nbytes for client in data)
    labels = sum(client["examples"]["y"].nbytes for client in data)
    server = toy.initialize()
    (server, states, _), first = _sent(on_ray, toy.next_round, server, states, data)
    (server, states, _), second = _sent(on_ray, toy.next_round, server, states, data)
    assert inputs < first["clients"] < 1.6 * (inputs + labels)
    # Labels are too few to get a name.
    assert second["clients"] < labels + 2000
    weights = _nbytes(server["weights"])
    assert weights <= second["weights"] < weights + 500
    # Two sums of weights, further sums, and four states.
    assert second["results"] < 2 * weights + _nbytes(states) + 2500
    assert second["computations"] == 0
    # Samples with other values are sent, even if they are at the same place in memory.
    data[0]["examples"]["x"] += 1
    _, third = _sent(on_ray, toy.next_round, server, states, data)
    assert third["clients"] > second["clients"] + data[0]["examples"]["x"].nbytes


def test_large_states_stay_with_the_actors(on_ray):
    states = [np.full(2000, i, np.float32) for i in range(4)]
    new, first = _sent(on_ray, toy.add_one, states)
    newer, second = _sent(on_ray, toy.add_one, new)
    assert first["clients"] > _nbytes(states)
    assert second["clients"] < 1500
    np.testing.assert_array_equal(newer, np.asarray(states) + 2)
    # Both have the state of client 0: actor 0 the new one, actor 1 none.
    swapped, third = _sent(on_ray, toy.add_one, newer[::-1])
    assert third["clients"] > _nbytes(states)
    np.testing.assert_array_equal(swapped, np.asarray(states)[::-1] + 3)
    # An actor that has dropped them asks for them.
    for actor in on_ray.actors.all:
        actor.held.update(on_ray._names.named(array).name for array in swapped)
    moved, _ = _sent(on_ray, toy.add_one, swapped[::-1])
    np.testing.assert_array_equal(moved, np.asarray(states) + 4)
    # Old states are forgotten, whoever had them: four new ones, and the computation.
    assert len(set().union(*(actor.held for actor in on_ray.actors.all))) <= 4 + 1


def test_results_cannot_be_changed_behind_their_names(on_ray):
    (new,) = toy.add_one([np.zeros(2000, np.float32)])
    with pytest.raises(ValueError, match="read-only"):
        new += 1


# Lost actors.


def _delay_for(seconds):
    """Number of iterations of the empty loop that take about `seconds` per client."""
    server, (states, data) = toy.initialize(), toy.clients(2)
    toy.next_round(server, states, data)
    turns = 30_000
    begin = time.monotonic()
    toy.next_round(server, *toy.clients(2, turns))
    return int(turns * seconds / (time.monotonic() - begin))


def _kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_killed_actors_do_not_change_the_result(on_own_actors, caplog):
    delay = _delay_for(1.5)
    server = toy.initialize()
    expected = toy.next_round(server, *toy.clients(4))
    assert not caplog.records
    toy.while_all_compute(on_own_actors.actors, lambda: _kill(on_own_actors.pids()))
    _assert_close(toy.next_round(server, *toy.clients(4, delay)), expected, 0)
    assert caplog.text.count("is lost (") == 2
    # Also between rounds, and with those that have started again.
    _kill(on_own_actors.pids())
    _assert_close(toy.next_round(server, *toy.clients(4)), expected, 0)


def test_an_actor_that_does_not_answer_is_replaced(on_own_actors, caplog, monkeypatch):
    monkeypatch.setattr(on_own_actors.actors, "timeout", 3.0)
    delay = _delay_for(2.0)
    server = toy.initialize()
    expected = toy.next_round(server, *toy.clients(4))
    # One that an earlier test has killed may not be back, and would get no clients.
    deadline = time.monotonic() + 60
    while any(actor.lost for actor in on_own_actors.actors.all) and time.monotonic() < deadline:
        toy.next_round(server, *toy.clients(4))
    (stopped, _) = on_own_actors.pids()
    os.kill(stopped, signal.SIGSTOP)
    _assert_close(toy.next_round(server, *toy.clients(4, delay)), expected, 0)
    assert "did not answer for 3 s" in caplog.text
    waiting.until_ended(stopped)


def test_a_long_round_does_not_lose_an_actor(on_ray, caplog, monkeypatch):
    monkeypatch.setattr(on_ray.actors, "timeout", 2.0)
    toy.next_round(toy.initialize(), *toy.clients(2, _delay_for(4.0)))
    assert not caplog.records


def _kill_again_and_again(pids, over, condition):
    """Kills processes while the condition is true."""
    while not over.wait(0.5):
        for pid in pids() if condition() else ():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("when", support.rare_but(["always"], ["while they compute", "always"]))
def test_actors_that_are_lost_again_and_again_end_the_call(on_own_actors, monkeypatch, when):
    actors, server = on_own_actors.actors, toy.initialize()
    message = r"^share \d of 2 of the clients was lost with its Ray actor 3 times: .*; the logs of"
    if when == "always":
        monkeypatch.setattr(actors, "timeout", 5.0)
        monkeypatch.setattr("tff_pcdd.runtime.ray.shares._MOST_ATTEMPTS", 1000)
        message = "^no Ray actor is left: actor 0 .*; actor 1 .*; the logs of the actors are in /"
    over = threading.Event()

    def condition():
        return when == "always" or any(actor.result is not None for actor in actors.all)

    arguments = on_own_actors.pids, over, condition
    threading.Thread(target=_kill_again_and_again, args=arguments, daemon=True).start()
    try:
        with pytest.raises(runtime.ActorsLostError, match=message):
            toy.next_round(server, *toy.clients(4, 10**9))
    finally:
        over.set()


def test_an_actor_that_always_asks_for_everything_ends_the_call(on_ray, monkeypatch):
    monkeypatch.setattr("tff_pcdd.runtime.ray.shares._outcome", lambda reference: None)
    with pytest.raises(runtime.ActorsLostError, match=r"^Ray actor 0 cannot use what it is sent; "):
        toy.next_round(toy.initialize(), *toy.clients(1))


def test_only_the_process_that_is_meant_is_killed():
    from tff_pcdd.runtime.ray import watchdog

    with subprocess.Popen(["sleep", "60"]) as process:
        name = watchdog.identify(process.pid)
        # A process with the same number that has started at another time.
        watchdog.kill(f"{process.pid}:{int(name.partition(':')[2]) + 1}")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        watchdog.kill(name)
        assert process.wait(10) == -signal.SIGKILL
    watchdog.kill(name)


@pytest.mark.parametrize("first", ["raylet", "program"])
def test_the_watchdog_speaks_for_a_program_that_ray_has_ended(tmp_path, first):
    from tff_pcdd.runtime.ray import watchdog

    with subprocess.Popen(["sleep", "60"]) as raylet, subprocess.Popen(["sleep", "60"]) as other:
        found = {
            "program": "train",
            "logs": "/logs",
            "directory": str(tmp_path / "files"),
            "vital": {"raylet": raylet.pid},
            "started": [watchdog.identify(pid.pid) for pid in (raylet, other)],
        }
        (tmp_path / "files").mkdir()
        # A worker, of which only its open file is known.
        with open(tmp_path / "files" / "worker.err", "wb") as errors:
            worker = subprocess.Popen(["sleep", "60"], stderr=errors)
        command = [sys.executable, "-I", "-S", watchdog.__file__, json.dumps(found)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as process:
            _wait_until_sleeping(process.pid)
            if first == "raylet":
                raylet.kill()
                raylet.wait()
                _wait_until_sleeping(process.pid)
            _, said = process.communicate()
        assert [each.wait(10) for each in (raylet, other, worker)] == [-signal.SIGKILL] * 3
    if first == "raylet":
        line = "train: error: Ray's process raylet has ended, without which no actor can be reached"
        assert said == f"{line}; Ray's logs are in /logs\n"
    else:
        assert not said
    assert (tmp_path / "files").exists() == (first == "raylet")


def _wait_until_sleeping(pid):
    """Waits until a process waits for something else than its start."""
    for _ in range(200):
        time.sleep(0.05)
        where = pathlib.Path(f"/proc/{pid}/wchan").read_text()
        if "poll" in where:
            return
    raise AssertionError(where)


# Settings and connections.


def _refusal(**options):
    with pytest.raises(SettingError) as error:
        runtime.create("ray", **options).create_context()
    return error.value.setting, error.value.reason


def test_what_the_cluster_does_not_have_is_refused_before_actors_start(ray_here, monkeypatch):
    from tff_pcdd.runtime.ray import startup

    monkeypatch.setattr(startup, "_wait_until_ready", lambda group: pytest.fail("it waits"))
    assert _refusal(ray_cpus=9) == ("ray_cpus", "no machine has more than 8")
    assert _refusal(ray_gpus=0.5) == ("ray_gpus", "no machine has more than 0")
    reason = "the cluster has room for only 4 actors of 2 CPUs each"
    assert _refusal(ray_cpus=2, ray_actors=5) == ("ray_actors", reason)
    reason = "this process is connected to a cluster of its own; close that runtime first"
    assert _refusal(ray_address="127.0.0.1:1") == ("ray_address", reason)


def test_actors_share_gpus_by_fractions():
    from tff_pcdd.runtime.ray import startup

    def room(gpus):
        return startup._room_on({"CPU": 10.0, "GPU": 2.0}, 1, gpus)

    assert [room(gpus) for gpus in (0, 0.1, 0.25, 0.3, 0.5, 0.75, 1, 2)] == [
        *(10, 10, 8, 6, 4, 2, 2, 1)
    ]


def test_a_missing_package_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r'pip install "tff_pcdd\[ray\]", or make install-ray'):
        runtime.create("ray")


def test_settings_are_kept():
    flat = {"ray_actors": 2, "ray_gpus": 0.5, "ray_timeout": 3.0, "data_placement": "local"}
    flattened = settings.flatten(runtime.create("ray", **flat))
    assert flattened == {"ray_address": None, "ray_cpus": 1, **flat}


def test_an_address_without_a_cluster_is_refused():
    """In a process of its own, because this one may be connected."""
    program = """
from tff_pcdd import runtime
from tff_pcdd.runtime.ray import cluster
try:
    cluster.connect("127.0.0.1:9")
except runtime.RuntimeStartError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300)
    assert found.stdout == b"Ray cannot connect to 127.0.0.1:9: [Errno 111] Connection refused\n"


def test_files_of_processes_that_were_killed_are_removed(ray_here):
    from tff_pcdd.runtime.ray import cluster

    directory = pathlib.Path(cluster.logs()).parents[2]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    old = directory.with_name("tff_ray_999999999_old")
    old.mkdir()
    cluster.sweep()
    assert not old.exists()
    assert directory.exists()
