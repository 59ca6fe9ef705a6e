"""The in-process runtime has the same results as TFF's C++ worker, and isolates clients."""

import collections
import os
import pathlib
import re
import textwrap
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from google.protobuf import text_format

from tests import preloaded
from tests.data.refusals import refuses
from tff_pcdd.runtime import _graphs, _interpreter, _values, inprocess, worker

_ITEM = tff.to_type(collections.OrderedDict(a=np.float32, b=tff.TensorType(np.int32, [2])))
_BITS = 8
_ROOT = pathlib.Path(inprocess.__file__).parents[2]


@pytest.fixture(scope="module")
def reference():
    context = worker.create_context(insecure=True)
    yield context
    context.close()


@pytest.fixture(scope="module")
def ours():
    context = inprocess.create_context(client_parallelism=2)
    yield context
    context.close()


def _within(context, function, *arguments):
    with tff.framework.get_context_stack().install(context):
        return function(*arguments)


def _assert_same(left, right, **tolerance):
    """Compares values and the Python types of containers and leaves."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        left, right = list(left.values()), list(right.values())
    elif hasattr(left, "__attrs_attrs__"):
        names = [field.name for field in left.__attrs_attrs__]
        left, right = ([getattr(side, name) for name in names] for side in (left, right))
    elif isinstance(left, tf.data.Dataset):
        assert left.element_spec == right.element_spec
        left, right = list(left.as_numpy_iterator()), list(right.as_numpy_iterator())
    if isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            _assert_same(one, other, **tolerance)
    elif isinstance(left, (str, bytes)) or left.dtype == object:
        np.testing.assert_array_equal(left, right)
    else:
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, **(tolerance or {"rtol": 0}))


def _tensorflow(*types):
    return lambda function: tff.tensorflow.computation(function, *types)


def _at_clients(member):
    return tff.FederatedType(member, tff.CLIENTS)


def _at_server(member):
    return tff.FederatedType(member, tff.SERVER)


# --- Comparison with TFF's worker -----------------------------------------------------------------


@_tensorflow(_ITEM)
def _double(item):
    return collections.OrderedDict(a=2.0 * item["a"], b=2 * item["b"])


@_tensorflow(np.float32, np.float32)
def _add(left, right):
    return left + right


@_tensorflow(np.float32)
def _halve(value):
    return value / 2.0, value


@_tensorflow(np.float32)
def _add_one(value):
    return value + 1.0


@_tensorflow(tff.TensorType(np.float32, [4]), np.int32)
def _pick(values, key):
    return values[key]


@tff.federated_computation(_at_clients(_ITEM), _at_server(np.float32))
def _all_placements(items, number):
    doubled = tff.federated_map(_double, items)
    broadcast = tff.federated_broadcast(number)
    zipped = tff.federated_zip((doubled, broadcast))
    return (
        zipped,
        tff.federated_sum(doubled),
        tff.federated_map(_halve, number),
        tff.federated_zip((number, tff.federated_value(3, tff.SERVER))),
        tff.federated_map(_add_one, tff.federated_broadcast(number)),
        tff.federated_value([1, 2.0], tff.CLIENTS),
    )


@tff.federated_computation(_at_clients(np.float32), _at_clients(np.float32))
def _aggregations(values, weights):
    zero = tff.tensorflow.computation(lambda: 100.0)()
    return collections.OrderedDict(
        mean=tff.federated_mean(values),
        weighted=tff.federated_mean(values, weights),
        min=tff.federated_min(values),
        max=tff.federated_max(values),
        aggregate=tff.federated_aggregate(values, zero, _add, _add, _halve),
    )


@tff.federated_computation
def _evals():
    ones = tff.tensorflow.computation(lambda: np.ones([2], np.float32))
    return tff.federated_eval(ones, tff.SERVER), tff.federated_eval(ones, tff.CLIENTS)


@tff.federated_computation(
    _at_clients(tff.TensorType(np.int32, [2])),
    _at_server(np.int32),
    _at_server(tff.TensorType(np.float32, [4])),
)
def _select(keys, max_key, values):
    return tff.federated_select(keys, max_key, values, _pick)


@tff.federated_computation(_at_clients(tff.SequenceType(np.float32)))
def _sequences(sequences):
    @tff.federated_computation(tff.SequenceType(np.float32))
    def reduce(sequence):
        zero = tff.tensorflow.computation(lambda: 0.5)()
        return tff.sequence_reduce(sequence, zero, _add)

    return tff.federated_map(reduce, sequences)


@_tensorflow(np.str_, tff.TensorType(np.str_, [None]), np.bool_)
def _leaves(string, strings, flag):
    dataset = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(z=[1, 2], a=[3.0, 4.0]))
    return [string, strings], {"flag": flag}, dataset, ()


def _item(number):
    return collections.OrderedDict(a=np.float32(number), b=np.array([number, -number], np.int32))


@pytest.mark.parametrize(
    ("computation", "arguments"),
    [
        (_all_placements, ([_item(k) for k in range(5)], np.float32(0.1))),
        (_aggregations, (list(np.linspace(0, 1, 7, dtype=np.float32)), [np.float32(0.3)] * 7)),
        (_select, ([np.array([0, 3], np.int32), np.array([2, 2], np.int32)], 4, [0.0, 1, 2, 3])),
        (_sequences, ([tf.data.Dataset.from_tensor_slices([1.0, 2.5]), [3.0]],)),
        (_leaves, ("e", ["a", "b"], True)),
        (_add, (0.1, np.float32(0.2))),
    ],
)
def test_results_equal_those_of_the_worker(reference, ours, computation, arguments):
    if computation is _select:
        arguments = (*arguments[:2], np.array(arguments[2], np.float32))
    expected = _within(reference, computation, *arguments)
    _assert_same(_within(ours, computation, *arguments), expected)


def test_clients_without_arguments(ours):
    at_server, at_clients = ours.evaluate(_evals, None, 3)
    _assert_same([at_server] * 3, at_clients)


def test_sequence_map_and_sum(ours):
    @_tensorflow(_ITEM)
    def swap(item):
        return item["b"], item["a"] + 1.0

    @tff.federated_computation(tff.SequenceType(_ITEM))
    def computation(items):
        return tff.sequence_map(swap, tff.sequence_map(_double, items)), tff.sequence_sum(items)

    mapped, total = _within(ours, computation, [_item(1), _item(2)])
    _assert_same(total, _item(3))
    for (b, a), item in zip(mapped.as_numpy_iterator(), [_item(1), _item(2)], strict=True):
        np.testing.assert_array_equal(b, 2 * item["b"])
        assert a == 2 * item["a"] + 1


def test_empty_cohort(ours):
    values, total = _within(ours, lambda: _sum_and_values([]))
    assert values == []
    assert total == 0


@tff.federated_computation(_at_clients(np.float32))
def _sum_and_values(values):
    return values, tff.federated_sum(values)


# --- TFF's learning algorithms --------------------------------------------------------------------


def _model_fn():
    def dense(units, seed, **kwargs):
        initializer = tf.keras.initializers.GlorotUniform(seed)
        return tf.keras.layers.Dense(units, kernel_initializer=initializer, **kwargs)

    network = tf.keras.Sequential(
        [tf.keras.layers.Input((6,)), dense(8, 1, activation="relu"), dense(3, 2)]
    )
    return tff.learning.models.from_keras_model(
        network,
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int32)),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


def _client_datasets(num_clients=4):
    rng = np.random.default_rng(0)
    sizes = [12 + 5 * client for client in range(num_clients)]
    return [
        tf.data.Dataset.from_tensor_slices(
            (rng.normal(size=(n, 6)).astype(np.float32), rng.integers(0, 3, n, np.int32))
        ).batch(8)
        for n in sizes
    ]


def _fed_avg(aggregator=None, weighted=True):
    algorithms = tff.learning.algorithms
    build = algorithms.build_weighted_fed_avg if weighted else algorithms.build_unweighted_fed_avg
    return build(
        _model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
        model_aggregator=aggregator,
    )


def _train(process, num_rounds=2):
    state = process.initialize()
    for _ in range(num_rounds):
        output = process.next(state, _client_datasets())
        state = output.state
    return output


@pytest.mark.integration
def test_fed_avg_and_evaluation_equal_those_of_the_worker(reference, ours, fed_avg):
    process, evaluation = fed_avg, tff.learning.algorithms.build_fed_eval(_model_fn)

    def run():
        output = _train(process)
        state = evaluation.set_model_weights(
            evaluation.initialize(), process.get_model_weights(output.state)
        )
        return output, evaluation.next(state, _client_datasets()).metrics

    _assert_same(_within(ours, run), _within(reference, run), rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def fed_avg():
    return _fed_avg()


# Averaging with them, in processes of this package, is in federated/test_process.
@pytest.mark.rare
@pytest.mark.integration
@pytest.mark.parametrize("name", ["robust", "compression", "secure"])
def test_aggregators(ours, fed_avg, name):
    aggregator = getattr(tff.learning, f"{name}_aggregator")()
    plain = _within(ours, _train, fed_avg)
    other = _within(ours, _train, _fed_avg(aggregator))
    # In the first rounds these aggregators do not clip, and their quantization is fine.
    _assert_same(
        plain.state.global_model_weights.trainable,
        other.state.global_model_weights.trainable,
        atol=2e-3,
    )


@pytest.mark.integration
def test_differential_privacy(ours):
    aggregator = tff.learning.dp_aggregator(noise_multiplier=0.1, clients_per_round=4)
    output = _within(ours, _train, _fed_avg(aggregator, weighted=False))
    assert all(np.isfinite(w).all() for w in output.state.global_model_weights.trainable)


@tff.federated_computation(_at_clients(np.int32))
def _secure_sums(values):
    return tff.federated_secure_sum_bitwidth(values, _BITS), tff.federated_secure_sum(values, 200)


def test_secure_sums_and_their_bounds(ours):
    assert _within(ours, _secure_sums, [1, 200, 3]) == (204, 204)
    with pytest.raises(tf.errors.InvalidArgumentError, match="larger than maximum"):
        _within(ours, _secure_sums, [1, 201, 3])


def test_secure_sum_factory(ours):
    factory = tff.aggregators.SecureSumFactory(1.0, -1.0)
    process = factory.create(tff.TensorType(np.float32, [2]))
    values = [np.array([0.25, -0.5], np.float32), np.array([0.5, 5.0], np.float32)]
    result = _within(ours, lambda: process.next(process.initialize(), values)).result
    np.testing.assert_allclose(result, [0.75, 0.5], atol=1e-5)  # 5 is clipped to 1.


# --- Concurrent clients ---------------------------------------------------------------------------


@pytest.mark.integration
def test_results_do_not_depend_on_parallelism(fed_avg):
    results = []
    for parallelism in (1, 2, 3):
        context = inprocess.create_context(client_parallelism=parallelism)
        results.append(_within(context, _train, fed_avg))
        context.close()
    _assert_same(results[0], results[1])
    _assert_same(results[0], results[2])


@_tensorflow(np.int32)
def _counter(start):
    # State of three kinds: a variable, a table with an initializer, and a mutable table.
    count = tf.Variable(0, name="count")
    names = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.range(100), tf.range(100) * 10), -1
    )
    seen = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, default_value=0)

    @tf.function
    def work(start):
        count.assign_add(start)
        before = count.read_value()
        for _ in tf.range(500):
            count.assign_add(1)
            seen.insert(start, seen.lookup(start) + 1)
        return before, count.read_value(), names.lookup(start), seen.lookup(start), seen.size()

    return work(start)


def test_clients_share_no_state():
    context = inprocess.create_context(client_parallelism=4)
    computation = tff.federated_computation(
        lambda starts: tff.federated_map(_counter, starts), _at_clients(np.int32)
    )
    for _ in range(3):
        results = _within(context, computation, list(range(16)))
        assert results == [(k, k + 500, 10 * k, 500, 1) for k in range(16)]
    context.close()


def test_overlapping_calls_never_share_a_graph(monkeypatch):
    run, running, shared = _graphs.Graph.__call__, [], []
    together = threading.Barrier(3, timeout=60)

    def watched(graph, parameters, cancel=None):
        shared.extend(other for other in running if other is graph)
        running.append(graph)
        if len(running) <= 3 and threading.current_thread().name.startswith("clients"):
            together.wait()  # Makes three calls overlap.
        result = run(graph, parameters, cancel)
        running.remove(graph)
        return result

    monkeypatch.setattr(_graphs.Graph, "__call__", watched)
    context = inprocess.create_context(client_parallelism=3)
    computation = tff.federated_computation(
        lambda starts: tff.federated_map(_counter, starts), _at_clients(np.int32)
    )
    assert len(_within(context, computation, [0, 1, 2])) == 3
    context.close()
    assert not shared


def _with_function_names(computation, name):
    """The computation, with the functions inside it renamed to `name`0, `name`1, …"""
    proto = tff.framework.ConcreteComputation.get_proto(computation)
    graph_def = tf.compat.v1.GraphDef()
    proto.tensorflow.graph_def.Unpack(graph_def)
    text = text_format.MessageToString(graph_def)
    for index, function in enumerate(graph_def.library.function):
        text = re.sub(rf"\b{function.signature.name}\b", f"{name}{index}", text)
    renamed = type(proto)()
    renamed.CopyFrom(proto)
    renamed.tensorflow.graph_def.Pack(text_format.Parse(text, tf.compat.v1.GraphDef()))
    return tff.framework.ConcreteComputation(
        computation_proto=renamed, context_stack=tff.framework.get_context_stack()
    )


def test_functions_with_equal_names_stay_separate(ours):
    def plus(c):
        return tf.function(lambda x: tf.cond(x > 0, lambda: x + c, lambda: c))

    computations = [tff.tensorflow.computation(plus(c), np.float32) for c in (1.0, 10.0, 100.0)]
    renamed = [_with_function_names(c, "collision") for c in computations]
    with tff.framework.get_context_stack().install(ours):
        assert [c(1.0) for c in renamed] == [2.0, 11.0, 101.0]
        assert [c(-1.0) for c in renamed] == [1.0, 10.0, 100.0]


def test_compiled_functions(ours):
    @_tensorflow(tff.TensorType(np.float32, [3]))
    def computation(x):
        scale = tf.Variable(2.0)
        return tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True)(x) * scale

    mapped = tff.federated_computation(
        lambda xs: tff.federated_sum(tff.federated_map(computation, xs)),
        _at_clients(computation.type_signature.parameter),
    )
    assert _within(ours, mapped, [np.arange(3, dtype=np.float32)] * 2) == 20.0


@_tensorflow(np.int64)
def _count_to(end):
    """Takes a long time for a large number, and fails for a negative one."""

    @tf.function
    def count(end):
        tf.debugging.assert_non_negative(end, "negative end")
        return tf.while_loop(lambda i: i < end, lambda i: [i + 1], [np.int64(0)])[0]

    return count(end)


_count_all = tff.federated_computation(
    lambda ends: tff.federated_sum(tff.federated_map(_count_to, ends)), _at_clients(np.int64)
)
_FOREVER = np.int64(10**8)  # Takes minutes, so a failing test ends.


@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_error_of_a_client_ends_the_round(parallelism):
    context = inprocess.create_context(client_parallelism=parallelism)
    ends = [np.int64(1), np.int64(-1), _FOREVER, _FOREVER, np.int64(2)]
    with pytest.raises(inprocess.ClientError, match=r"Client 1 of 5 failed.*negative end") as info:
        _within(context, _count_all, ends)
    assert info.value.client == 1
    assert isinstance(info.value.__cause__, tf.errors.InvalidArgumentError)
    assert _within(context, _count_all, [np.int64(3), np.int64(4)]) == 7
    context.close()


def test_close_ends_a_round_from_another_thread(monkeypatch):
    run, context = _graphs.Graph.__call__, inprocess.create_context(client_parallelism=1)
    closing = threading.Thread(target=context.close)

    def watched(graph, parameters, cancel=None):
        if threading.current_thread().name.startswith("clients"):
            closing.start()
        return run(graph, parameters, cancel)

    monkeypatch.setattr(_graphs.Graph, "__call__", watched)
    with pytest.raises(inprocess.ClientError):
        _within(context, _count_all, [_FOREVER, _FOREVER])


def test_unsupported_intrinsics_and_ops_raise(ours):
    unknown = tff.framework.Intrinsic(
        "federated_min", tff.FunctionType(_at_clients(np.int32), _at_server(np.int32))
    )
    with pytest.raises(NotImplementedError, match="'federated_min'"):
        _interpreter.translate(unknown)

    queue = tff.tensorflow.computation(
        lambda: tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]]).size()
    )
    with pytest.raises(NotImplementedError, match="FIFOQueueV2"):
        _within(ours, queue)


@pytest.mark.parametrize(
    "value", [1.5, np.int64(1), np.array([1], np.int32), "1", tf.constant(1.0), [1]]
)
def test_values_of_another_type_raise(ours, value):
    increment = tff.tensorflow.computation(lambda x: x + 1, np.int32)
    with pytest.raises((TypeError, ValueError)):
        _within(ours, increment, value)


def test_tensors_variables_and_narrower_numbers_are_accepted(ours):
    identity = tff.tensorflow.computation(lambda x: x, np.int64)
    for value in (7, np.int64(7), np.int32(7), tf.constant(7), tf.Variable(7, dtype=tf.int64)):
        assert _within(ours, identity, value) == 7


_Pair = collections.namedtuple("_Pair", ["a", "b"])
_Other = collections.namedtuple("_Other", ["a", "c"])


def test_containers_of_arguments_and_shapes_that_are_not_fixed():
    pair = tff.to_type(collections.OrderedDict(a=np.int32, b=tff.TensorType(np.uint8, [None, 2])))
    one, x = np.int32(1), np.arange(6, dtype=np.uint8).reshape(3, 2)
    struct = tff.structure.Struct([("a", one), ("b", x)])
    for value in (_Pair(one, x), (one, x), [one, x], {"a": one, "b": x}, struct):
        a, b = _values.from_python(value, pair)
        assert (a.dtype, a.numpy(), b.dtype) == (tf.int32, 1, tf.uint8)
        np.testing.assert_array_equal(b, x)
    wrong = [_Other(one, x), {"a": one, "c": x}, (one,), _Pair(one, x.T), _Pair(one, x[0])]
    for value in wrong:
        with pytest.raises(TypeError, match="Expected a value of type"):
            _values.from_python(value, pair)


def test_checks_options():
    with refuses("devices", "no device GPU:7, only CPU:0", "CPU:0,GPU:7"):
        inprocess.create_context(devices=["CPU:0", "GPU:7"])
    with refuses("client_parallelism", "at least 1", 0):
        inprocess.create_context(client_parallelism=0)


def _resident_megabytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.integration
def test_memory_does_not_grow_over_rounds_and_cohort_sizes(ours):
    size = 50_000  # 0.2 MB per variable: leaking one per client and round would need 40 MB.

    @_tensorflow(tff.SequenceType(np.float32), tff.TensorType(np.float32, [size]))
    def work(dataset, weights):
        variable = tf.Variable(tf.zeros([size]))

        @tf.function
        def train(dataset, weights):
            variable.assign(weights)
            for x in dataset:
                variable.assign_add(tf.fill([size], x))
            return variable.read_value()

        return train(dataset, weights)

    @tff.federated_computation(
        _at_clients(tff.SequenceType(np.float32)), _at_server(tff.TensorType(np.float32, [size]))
    )
    def round_(datasets, weights):
        pairs = (datasets, tff.federated_broadcast(weights))
        return tff.federated_mean(tff.federated_map(work, pairs))

    dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0]).map(lambda x: -x)
    weights = np.zeros(size, np.float32)
    with tff.framework.get_context_stack().install(ours):
        for number in range(50):
            if number == 20:
                before = _resident_megabytes()
            weights = round_([dataset] * (1 + number % 14), weights)
    np.testing.assert_allclose(weights, -150.0)
    assert _resident_megabytes() - before < 20


# --- Tests in a separate process ------------------------------------------------------------------


def _run_script(tmp_path, script):
    # A file, because AutoGraph does not convert code without readable source.
    path = tmp_path / "round_in_a_script.py"
    preamble = """
        import os, signal, threading, time
        import tff_pcdd
        import numpy as np
        import tensorflow as tf
        import tensorflow_federated as tff
        from tff_pcdd.runtime import inprocess
    """
    path.write_text(textwrap.dedent(preamble) + textwrap.dedent(script))
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    return preloaded.run(path.stem, cwd=tmp_path, env=environment).split()


@pytest.mark.integration
def test_work_runs_on_the_given_devices(tmp_path):
    output = _run_script(
        tmp_path,
        """
        from tensorflow.python.eager import context as eager

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
        )
        tff.framework.set_default_context(
            inprocess.create_context(devices=["CPU:1", "CPU:2"], client_parallelism=2)
        )

        @tff.tensorflow.computation(tff.SequenceType(np.float32), np.float32)
        def work(dataset, x):
            @tf.function
            def loop(dataset, x):
                with tf.device("/device:CPU:0"):
                    total = tf.sqrt(x)
                for element in dataset:
                    total += element
                for _ in tf.range(3):
                    total = tf.sin(total)
                return total

            return loop(dataset, x)

        @tff.tensorflow.computation(np.float32)
        def server(x):
            return tf.cos(x)

        @tff.federated_computation(tff.FederatedType(work.type_signature.parameter, tff.CLIENTS))
        def computation(values):
            return tff.federated_map(server, tff.federated_sum(tff.federated_map(work, values)))

        dataset = tf.data.Dataset.from_tensor_slices([1.0, 2.0]).map(lambda x: -x)
        eager.context().enable_run_metadata()
        computation([(dataset, 4.0)] * 3)
        for graph in eager.context().export_run_metadata().function_graphs:
            for partition in graph.partition_graphs:
                for node in partition.node:
                    if node.op in ("Sqrt", "Sin", "Cos"):
                        print(node.op + node.device.rpartition(":")[2])
    """,
    )
    assert sorted(output) == ["Cos1", "Sin1", "Sin2", "Sqrt1", "Sqrt2"]


@pytest.mark.integration
def test_interrupt(tmp_path):
    output = _run_script(
        tmp_path,
        """
        tff.framework.set_default_context(inprocess.create_context(client_parallelism=2))
        count = tff.tensorflow.computation(
            lambda n: tf.while_loop(lambda i: i < n, lambda i: [i + 1], [np.int64(0)])[0], np.int64
        )
        computation = tff.federated_computation(
            lambda ns: tff.federated_sum(tff.federated_map(count, ns)),
            tff.FederatedType(np.int64, tff.CLIENTS),
        )
        computation([1])
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            # Takes hours.
            computation([10**10] * 5)
        except KeyboardInterrupt:
            print("interrupted", computation([1, 2]))
    """,
    )
    assert output == ["interrupted", "3"]


def test_threads_are_as_the_environment_says(monkeypatch):
    name = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
    monkeypatch.setenv(name, "0")
    inprocess.create_context().close()
    assert os.environ[name] == "0"
    monkeypatch.delenv(name)
    inprocess.create_context().close()
    assert os.environ[name] == "1"


@pytest.mark.parametrize(("limit", "stay"), [(None, 2), (8 * 399, 0), (8 * 400, 1)])
def test_results_stay_on_the_servers_gpu_while_there_is_space(limit, stay, monkeypatch):
    """A GiB, or an eighth of what the device may take."""
    monkeypatch.setattr(inprocess, "_STAYS", 800)
    monkeypatch.setattr(inprocess.logical_devices, "memory_limit", lambda device: limit)
    space = inprocess._Space("/device:GPU:0")
    result = (tf.zeros([5, 10]), (tf.zeros([25], tf.int64),))  # 400 bytes.
    assert not space.has(result, "/device:GPU:1")
    assert [space.has(result, "/device:GPU:0") for _ in range(3)] == [True] * stay + [False] * (
        3 - stay
    )
    on_host = inprocess._Space("/device:CPU:0")
    assert not on_host.has(result, "/device:GPU:0")
