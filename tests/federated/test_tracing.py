"""What is traced, which AutoGraph translates only if it is from elsewhere."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.methods.federation import Federation
from tests.support import IMAGE
from tff_pcdd import data, methods
from tff_pcdd.federated import SGD, TrainingSpec, build_process
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.federated.tracing import function, repeat
from tff_pcdd.layers.registration import register
from tff_pcdd.methods.network import Network

CLASSES, DIM = 3, 4


class Halving(tf.keras.layers.Layer):
    """A user's layer with a condition in Python."""

    def call(self, inputs):
        if tf.reduce_sum(inputs) > 0:
            return inputs / 2
        return inputs


class LoopingFedAvg(type(methods.create("fedavg"))):
    """A user's method with a loop and a condition in Python: the loss of FedAvg, three times."""

    name = "looping"

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)
        total = tf.zeros([])
        for _ in tf.range(3):
            total += loss
        if tf.size(batch.y) < 0:
            total = -total
        return total, metrics


def backbone(*more):
    layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(DIM), *more]
    return tf.keras.Sequential([tf.keras.Input(IMAGE), *layers])


def network(method, *more):
    task = methods.TaskSpec(CLASSES, DIM, lambda: backbone(*more), np.ones([1, CLASSES]))
    return Network(method.build(task), method, task)


def absolute(x):
    if x < 0:
        return -x
    return x


FEDAVG = methods.create("fedavg")
PLAIN = SGD(learning_rate=0.1, momentum=0.0, weight_decay=0.0)


@pytest.mark.parametrize("name", methods.names())
def test_methods_of_this_package_are_not_translated(name):
    method = methods.create(name)
    traced = function(absolute, network(method))
    with pytest.raises(tf.errors.OperatorNotAllowedInGraphError):
        traced(tf.constant(-2.0))


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        (LoopingFedAvg(), []),
        (FEDAVG, [Halving()]),
        (FEDAVG, [tf.keras.Sequential([Halving()])]),
        (FEDAVG, [tf.keras.layers.Lambda(lambda x: x)]),
    ],
    ids=["method", "layer", "nested_layer", "lambda"],
)
def test_what_is_from_elsewhere_is_translated(method, layers):
    traced = function(absolute, network(method, *layers))
    assert traced(tf.constant(-2.0)).numpy() == 2


class Halved(methods.Method):
    """A user's method that sends half of a number in later rounds."""

    name = "halved"

    def server_state(self, net, task):
        return {"number": tf.constant(3.0)}

    def broadcast(self, server):
        if server["number"] == 3:
            return {"number": server["number"]}
        return {"number": server["number"] / 2}


def test_what_is_sent_may_depend_on_conditions():
    spec = dataclasses.replace(support.training_spec("fedavg"), method=Halved())
    tensors = build_tensor_computations(spec)
    for number, sent in ((3.0, 3.0), (4.0, 2.0)):
        message = tensors.make_message(tensors.initial_weights(), {"number": number}, 0)
        assert message.server["number"] == sent


def test_models_from_before_are_usable_after_networks_in_graphs():
    """Keras alone refuses them then."""
    inputs = tf.keras.Input([2])
    head = tf.keras.layers.Dense(1, kernel_initializer=tf.constant_initializer([[3.0], [4.0]]))
    model = tf.keras.Model(inputs, head(inputs))

    def assert_usable():
        assert model(tf.constant([[1.0, 2.0]])).numpy().tolist() == [[11.0]]

    spec = support.training_spec("fedavg")
    process = build_process(spec)
    assert_usable()
    for later in ("evaluate_global", "evaluate_personal", "evaluate_before"):
        assert getattr(process, later)
        assert_usable()
    assert process.tensors.client_state_from
    assert_usable()
    # Layers of a graph work again when it is entered again, with another one within.
    with spec.outline() as net, dataclasses.replace(spec).outline():
        pass
    with spec.outline() as net:
        features = net["backbone"](tf.zeros([5, *IMAGE]))
    assert features.shape == [5, 6]
    assert_usable()


def test_values_are_compared_in_the_graphs_of_tff():
    def compare(labels, predicted):
        return labels == predicted, labels != predicted

    traced = function(compare, network(LoopingFedAvg()))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        equal, unequal = session.run(traced(tf.constant([0, 1, 2]), tf.constant([0, 2, 2])))
    assert equal.tolist() == [True, False, True]
    assert unequal.tolist() == [False, True, False]


@pytest.mark.parametrize("hook", ["begin", "personalize"])
def test_default_hooks_without_effect_can_be_translated(hook):
    """Otherwise TensorFlow asks users of own methods to report an error of AutoGraph."""
    tf.autograph.to_graph(getattr(methods.Method, hook))


def test_a_layer_that_is_called_as_it_is_written_is_not_translated():
    @register
    class Plain(tf.keras.layers.Layer):
        def call(self, inputs):
            return inputs

    class Derived(Plain):
        def call(self, inputs):
            return inputs

    assert not network(FEDAVG, Plain()).autograph
    assert network(FEDAVG, Derived()).autograph


def test_options_are_those_of_tf_function():
    traced = function(lambda x: x + 1, network(FEDAVG), reduce_retracing=True)
    for size in range(1, 5):
        traced(tf.zeros([size]))
    assert traced.experimental_get_tracing_count() < 4


def test_repeating_is_a_loop_in_the_graph():
    traces = []

    @tf.function(autograph=False)
    def run(times):
        def body(number, state):
            traces.append(number)
            total, _ = state
            return total + number * number, number

        return repeat(times, body, (tf.constant(0), tf.constant(-1)))

    for times in (0, 1, 5):
        total, last = run(tf.constant(times))
        assert total.numpy() == sum(n * n for n in range(times))
        assert last.numpy() == times - 1
    assert len(traces) == 1


def test_methods_with_loops_in_python_train():
    """Three times the loss is three times the step: plain SGD, one step of one client."""
    random = np.random.default_rng(0)
    x = random.normal(size=[8, *IMAGE]).astype(np.float32)
    parts = [{"x": tf.constant(x), "y": tf.constant(np.arange(8) % CLASSES, tf.int32)}]

    def change(method):
        task = methods.TaskSpec(CLASSES, DIM, backbone, np.ones([1, CLASSES]))
        input_spec = data.InputSpec("image", IMAGE, "float32")
        spec = TrainingSpec(method, task, input_spec, PLAIN, local_epochs=1)
        federation = Federation(spec, parts, traced=True)
        before = [value.numpy() for value in federation.server.weights["trainable"]]
        federation.round([0])
        after = [value.numpy() for value in federation.server.weights["trainable"]]
        return [new - old for new, old in zip(after, before, strict=True)]

    for three, one in zip(change(LoopingFedAvg()), change(FEDAVG), strict=True):
        np.testing.assert_allclose(three, 3 * one, rtol=1e-4, atol=1e-6)


class Factors(tf.keras.layers.Layer):
    """A layer as the guide of Keras writes it: `build` leaves `built` to the first call."""

    def build(self, shape):
        self.factors = self.add_weight(name="factors", shape=[shape[-1]], initializer="ones")

    def call(self, inputs):
        return inputs * self.factors


class Late(tf.keras.layers.Layer):
    """A layer with another one inside, which it does not build."""

    def __init__(self):
        super().__init__()
        self.inner = Factors()

    def call(self, inputs):
        return self.inner(inputs)


class Scaled(type(FEDAVG)):
    """A user's method with a piece of its own, whose factors the loss makes larger."""

    name = "scaled"

    def __init__(self, layer):
        super().__init__()
        object.__setattr__(self, "layer", layer)

    def build(self, task):
        return {**super().build(task), "own": self.layer()}

    def placement(self, part, layer):
        return methods.Placement.PERSONAL if part == "own" else methods.Placement.SHARED

    def loss(self, net, batch, client):
        loss, metrics = super().loss(net, batch, client)
        return loss - tf.reduce_sum(net["own"](tf.ones([1, DIM]))), metrics


def scaled(layer):
    """A federation of one client with one batch."""
    task = methods.TaskSpec(CLASSES, DIM, backbone, np.ones([1, CLASSES]))
    input_spec = data.InputSpec("image", IMAGE, "float32")
    spec = TrainingSpec(Scaled(layer), task, input_spec, PLAIN, local_epochs=1)
    part = {"x": tf.zeros([4, *IMAGE]), "y": tf.zeros([4], tf.int32)}
    return Federation(spec, [part], traced=True)


def test_layers_that_leave_built_to_keras_are_trained_and_kept():
    """The gradient of each factor is -1, so a step of 0.1 leads from 1 to 1.1."""
    federation = scaled(Factors)
    for number in (1, 2):
        federation.round([0])
        (factors,) = federation.state(0).personal
        np.testing.assert_allclose(factors, np.full(DIM, 1 + 0.1 * number), rtol=1e-6)


def test_layers_that_make_variables_in_calls_are_refused():
    with pytest.raises(TypeError, match=r"scaled: the piece 'own' makes the variable .*factors"):
        scaled(Late).round([0])
