"""Several workers have the same results as one worker, even if some of them are lost."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_pcdd import runtime
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import exposure, remote, service
from tff_pcdd.runtime.process import WorkerProcess, find_binary, unused_port

pytestmark = pytest.mark.integration

_ROOT = pathlib.Path(runtime.__file__).parents[2]
_FEATURES, _CLASSES = 5, 3

# ---------------------------------------------------------------------------------------------
# A round with all parts of the rounds of this project: a broadcast, local training with a client
# state, an aggregator, and further sums.

_weights_type = tff.to_type(
    OrderedDict(
        kernel=tff.TensorType(np.float32, [_FEATURES, _CLASSES]),
        bias=tff.TensorType(np.float32, [_CLASSES]),
    )
)
_aggregation = tff.aggregators.MeanFactory().create(_weights_type, tff.TensorType(np.float32))
_server_type = tff.to_type(
    OrderedDict(
        weights=_weights_type,
        aggregator=_aggregation.initialize.type_signature.result.member,
        round=np.int32,
    )
)
_state_type = tff.to_type(
    OrderedDict(own=[tff.TensorType(np.float32, [_CLASSES])], rounds=np.int32)
)
_data_type = tff.to_type(
    OrderedDict(
        examples=OrderedDict(
            x=tff.TensorType(np.float32, [None, _FEATURES]), y=tff.TensorType(np.int32, [None])
        ),
        seed=tff.TensorType(np.int32, [2]),
        # Iterations of an empty loop, to give tests time to interfere.
        delay=np.int64,
    )
)


def _train(weights, state, data):
    with tf.control_dependencies([tf.print("one client trains")]):
        start = tf.constant(0, tf.int64) + 0 * data["delay"]
    turns = tf.while_loop(lambda i: i < data["delay"], lambda i: (i + 1,), (start,))[0]
    kernel = weights["kernel"] + 0.0 * tf.cast(turns, tf.float32)
    bias = weights["bias"] + state["own"][0]
    x, y = data["examples"]["x"], tf.one_hot(data["examples"]["y"], _CLASSES)
    for _ in range(3):
        error = tf.nn.softmax(x @ kernel + bias) - y
        kernel -= 0.1 * tf.matmul(x, error, transpose_a=True)
        bias -= 0.1 * tf.reduce_sum(error, axis=0)
    kernel += 0.01 * tf.random.stateless_normal(kernel.shape, data["seed"])
    return OrderedDict(
        update=OrderedDict(kernel=kernel - weights["kernel"], bias=bias - weights["bias"]),
        weight=tf.cast(tf.shape(x)[0], tf.float32),
        classes=tf.reduce_sum(y, axis=0),
        state=OrderedDict(own=[bias], rounds=state["rounds"] + 1),
        loss=tf.reduce_sum(error**2),
    )


@tff.tensorflow.computation(_weights_type, _state_type, _data_type)
def _local_training(weights, state, data):
    return tf.function(_train)(weights, state, data)


@tff.tensorflow.computation(_server_type)
def _message(server):
    return server["weights"]


@tff.tensorflow.computation(_server_type, _weights_type, _server_type["aggregator"])
def _server_update(server, change, aggregator):
    return OrderedDict(
        weights=tf.nest.map_structure(lambda a, b: a + b, server["weights"], change),
        aggregator=aggregator,
        round=server["round"] + 1,
    )


@tff.tensorflow.computation
def _zeros():
    return OrderedDict(kernel=tf.zeros([_FEATURES, _CLASSES]), bias=tf.zeros([_CLASSES]))


@tff.federated_computation
def _initialize():
    return tff.federated_zip(
        OrderedDict(
            weights=tff.federated_eval(_zeros, tff.SERVER),
            aggregator=_aggregation.initialize(),
            round=tff.federated_value(0, tff.SERVER),
        )
    )


@tff.federated_computation(
    tff.FederatedType(_server_type, tff.SERVER),
    tff.FederatedType(_state_type, tff.CLIENTS),
    tff.FederatedType(_data_type, tff.CLIENTS),
)
def _next(server, states, data):
    weights = tff.federated_broadcast(tff.federated_map(_message, server))
    results = tff.federated_map(_local_training, (weights, states, data))
    mean = _aggregation.next(server["aggregator"], results["update"], results["weight"])
    server = tff.federated_map(_server_update, (server, mean.result, mean.state))
    metrics = OrderedDict(
        classes=tff.federated_sum(results["classes"]),
        loss=tff.federated_sum(results["loss"]),
        clients=tff.federated_sum(tff.federated_value(1, tff.CLIENTS)),
    )
    return server, results["state"], tff.federated_zip(metrics)


@tff.tensorflow.computation(_data_type)
def _count_labels(data):
    return tf.math.bincount(data["examples"]["y"], minlength=_CLASSES, dtype=tf.int32)


@tff.federated_computation(
    tff.FederatedType(_server_type, tff.SERVER), tff.FederatedType(_data_type, tff.CLIENTS)
)
def _label_shares(server, data):
    """Returns client results only, without any sum."""
    del server
    return tff.federated_map(_count_labels, data)


@tff.tensorflow.computation(np.float32, np.float32)
def _squared_difference(a, b):
    return (a - b) ** 2


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _variance(values):
    """Contains a sum that depends on another sum, so the computation cannot be split."""
    mean = tff.federated_broadcast(tff.federated_mean(values))
    return tff.federated_mean(tff.federated_map(_squared_difference, (values, mean)))


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _secure_sum(values):
    return tff.federated_secure_sum(values, 100)


@tff.tensorflow.computation(np.int32)
def _only_negative(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 0, message="not this one")]):
        return tf.identity(x)


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _sum_of_negatives(values):
    return tff.federated_sum(tff.federated_map(_only_negative, values))


def _clients(num_clients: int, delay: int = 0):
    random = np.random.default_rng(0)
    states = [
        OrderedDict(own=[np.full(_CLASSES, i / 10, np.float32)], rounds=np.int32(i))
        for i in range(num_clients)
    ]
    data = [
        OrderedDict(
            examples=OrderedDict(
                x=random.normal(size=(4 + i, _FEATURES)).astype(np.float32),
                y=random.integers(_CLASSES, size=4 + i).astype(np.int32),
            ),
            seed=np.array([i, 1], np.int32),
            delay=np.int64(delay),
        )
        for i in range(num_clients)
    ]
    return states, data


def _two_rounds(num_clients: int):
    server = _initialize()
    states, data = _clients(num_clients)
    for _ in range(2):
        server, states, metrics = _next(server, states, data)
    return server, states, metrics


def _assert_close(first, second, tolerance):
    tree.assert_same_structure(first, second, check_types=True)
    for a, b in zip(tree.flatten(first), tree.flatten(second), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.fixture
def start_workers():
    """A function that starts TFF workers and returns their processes; they end after the test."""
    started = []

    def start(number):
        processes = [WorkerProcess(find_binary(), unused_port()) for _ in range(number)]
        started.extend(processes)
        return processes

    yield start
    for process in started:
        process.stop()


def _addresses(processes):
    return [f"127.0.0.1:{process.port}" for process in processes]


@pytest.fixture(scope="module")
def expected():
    """Result of two rounds with five clients on the runtime `tff`."""
    with runtime.use("tff", insecure=True):
        return _two_rounds(5)


# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
def test_equals_one_worker_and_trains_every_client_once(start_workers, expected, number):
    processes = start_workers(number)
    with runtime.use("remote", workers=_addresses(processes)):
        result = _two_rounds(5)
    _assert_close(result, expected, 1e-6)
    trained = [process.stderr_tail().count("one client trains") for process in processes]
    assert sum(trained) == 2 * 5
    assert all(trained)


def test_fewer_clients_than_workers(start_workers):
    with runtime.use("tff", insecure=True):
        expected = _two_rounds(1)
    with runtime.use("remote", workers=_addresses(start_workers(2))):
        _assert_close(_two_rounds(1), expected, 1e-6)


def test_computations_that_are_not_split(start_workers, caplog):
    with runtime.use("remote", workers=_addresses(start_workers(2))):
        _, data = _clients(4)
        counts = _label_shares(_initialize(), data)
        for count, client in zip(counts, data, strict=True):
            expected = np.bincount(client["examples"]["y"], minlength=_CLASSES)
            np.testing.assert_array_equal(count, expected)
        assert _squared_difference(3.0, 1.0) == 4.0
        assert _secure_sum([1, 2, 3]) == 6
        assert not caplog.records
        assert _variance([1.0, 2.0, 3.0, 6.0]) == 3.5
        assert "A single worker runs" in caplog.text
        assert "depend on other sums" in caplog.text


def test_errors_of_a_computation_do_not_lose_a_worker(start_workers):
    with runtime.use("remote", workers=_addresses(start_workers(2))) as context:
        with pytest.raises(Exception, match="not this one"):
            _sum_of_negatives([-1, -2, 3, -4])
        assert [w.lost for w in context.workers] == [None, None]
        assert _sum_of_negatives([-1, -2, -3, -4]) == -10


def _delay_for(seconds: float) -> int:
    """Number of iterations of the empty loop that take about `seconds` per client."""
    server, (states, data) = _initialize(), _clients(2)
    _next(server, states, data)
    turns = 30_000
    begin = time.monotonic()
    _next(server, *_clients(2, turns))
    return int(turns * seconds / (time.monotonic() - begin))


def _signal_when_training(process: WorkerProcess, number: int) -> None:
    """Sends a signal to a worker as soon as it trains a client."""
    count = process.stderr_tail().count("one client trains")

    def wait_and_signal():
        while process.stderr_tail().count("one client trains") == count:
            time.sleep(0.01)
        os.kill(process.pid, number)

    threading.Thread(target=wait_and_signal, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_lost_during_a_round_does_not_change_the_result(start_workers, caplog, number):
    processes = start_workers(2)
    with runtime.use("remote", workers=_addresses(processes), worker_timeout=2.0) as context:
        delay = _delay_for(1.0)
        server = _initialize()
        expected = _next(server, *_clients(4, delay))
        assert not caplog.records

        _signal_when_training(processes[0], number)
        begin = time.monotonic()
        result = _next(server, *_clients(4, delay))
        assert time.monotonic() - begin < 30
        _assert_close(result, expected, 0)
        assert f"Worker {context.workers[0].address} is lost" in caplog.text
        assert [w.lost is None for w in context.workers] == [False, True]

        # The next round uses the remaining worker.
        _assert_close(_next(server, *_clients(4)), expected, 0)

        if number == signal.SIGSTOP:
            # A worker that answers again is used again.
            os.kill(processes[0].pid, signal.SIGCONT)
            deadline = time.monotonic() + 10
            while context.workers[0].lost is not None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert context.workers[0].lost is None
            _assert_close(_next(server, *_clients(4)), expected, 0)


def test_a_long_round_does_not_lose_a_worker(start_workers, caplog):
    with runtime.use("remote", workers=_addresses(start_workers(2)), worker_timeout=1.5):
        delay = _delay_for(4)
        _next(_initialize(), *_clients(2, delay))
    assert not caplog.records


def test_all_workers_lost(start_workers):
    processes = start_workers(2)
    with runtime.use("remote", workers=_addresses(processes), worker_timeout=2.0):
        delay = _delay_for(20)
        server = _initialize()
        for process in processes:
            _signal_when_training(process, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(runtime.WorkersLostError, match="No worker is left"):
            _next(server, *_clients(4, delay))
        assert time.monotonic() - begin < 10
        with pytest.raises(
            runtime.WorkersLostError, match=f"127.0.0.1:{processes[1].port}: "
        ):
            _next(server, *_clients(4))


def test_a_worker_that_does_not_answer_at_the_start(start_workers):
    (process,) = start_workers(1)
    silent = f"127.0.0.1:{unused_port()}"
    begin = time.monotonic()
    with pytest.raises(runtime.RuntimeStartError, match=f"within 1 s from worker {silent}"):
        remote.create_context(workers=[*_addresses([process]), silent], start_timeout=1.0)
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("workers", "reason"),
    [
        ([], "at least one worker as host:port"),
        ("localhost:1", "at least one worker as host:port"),
        (["localhost"], "'localhost' is not of the form host:port"),
        (["localhost:1", "localhost:1"], "a worker is named twice"),
    ],
)
def test_unusable_addresses(workers, reason):
    with pytest.raises(SettingError, match=reason) as error:
        remote.create_context(workers=workers)
    assert error.value.setting == "workers"


def test_unusable_timeout():
    with pytest.raises(SettingError, match="greater than 0") as error:
        remote.create_context(workers=["localhost:1"], worker_timeout=0)
    assert (error.value.setting, error.value.value) == ("worker_timeout", 0)


# ---------------------------------------------------------------------------------------------


def test_service(expected):
    with runtime.use("tff", insecure=True) as engine_context:
        server, port = service.serve(engine_context.executor_factory, "127.0.0.1", 0)
        try:
            with runtime.use("remote", workers=[f"127.0.0.1:{port}"]):
                _assert_close(_two_rounds(5), expected, 1e-6)
                with pytest.raises(Exception, match="not this one"):
                    _sum_of_negatives([1])
        finally:
            server.stop(None)


def test_service_raises_if_the_port_is_in_use():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(runtime.RuntimeStartError, match=r"cannot listen on 127\.0\.0\.1"):
            service.serve(tff.framework.local_cpp_executor_factory(), *other.getsockname())


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.5"])
def test_a_public_address_needs_insecure(bind):
    with pytest.raises(SettingError) as caught:
        exposure.check_bind(bind, insecure=False, engine="inprocess")
    assert (caught.value.setting, caught.value.value) == ("bind", bind)
    assert "not authenticated; set `insecure`" in caught.value.reason
    exposure.check_bind(bind, insecure=True, engine="inprocess")


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_a_loopback_address_is_accepted(bind):
    exposure.check_bind(bind, insecure=False, engine="inprocess")
    # TFF's worker cannot be restricted to an address.
    with pytest.raises(SettingError) as caught:
        exposure.check_bind(bind, insecure=False, engine="tff")
    assert (caught.value.setting, caught.value.value) == ("engine", "tff")
    assert "listens on every network interface" in caught.value.reason


def test_an_invalid_address_raises():
    with pytest.raises(SettingError) as caught:
        exposure.check_bind("everywhere", insecure=False, engine="inprocess")
    assert (caught.value.setting, caught.value.value) == ("bind", "everywhere")
    assert "is not an IP address" in caught.value.reason


@pytest.mark.parametrize("engine", ["tff", "inprocess"])
def test_worker_command(expected, engine):
    """A worker started on the command line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tasks.worker", "--port=0", f"--engine={engine}"]
        + (["--insecure"] if engine == "tff" else []),
        cwd=_ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = int(process.stdout.readline().partition("port ")[2].split()[0])
        assert _listens_on_loopback_only(port) == (engine == "inprocess")
        with runtime.use("remote", workers=[f"127.0.0.1:{port}"]):
            _assert_close(_two_rounds(5), expected, 1e-6)
        process.terminate()
        assert process.wait(10) == (0 if engine == "inprocess" else -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def _listens_on_loopback_only(port: int) -> bool:
    """Waits until the port accepts connections; returns whether only 127.0.0.1 does."""
    deadline = time.monotonic() + 20
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # All addresses of 127.0.0.0/8 belong to this machine, and this one was not bound.
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.3", port)) != 0
