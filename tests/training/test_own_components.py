"""Own data, backbone, metric and aggregator, none of them registered, against NumPy."""

import dataclasses
import functools
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, rows
from tff_pcdd import data, methods, models
from tff_pcdd.evaluation import metrics
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.accuracy_columns import Groups, global_accuracies
from tff_pcdd.federated import aggregators
from tff_pcdd.federated.aggregators import TffAggregator
from tff_pcdd.federated.weights import load
from tff_pcdd.models import KerasBackbone
from tff_pcdd.training import ExperimentConfig, Simulation, restore_run, run_experiment

pytestmark = pytest.mark.integration

CLASSES, RATE = 3, 0.5
SHAPE = (2, 2, 1)


def flat(input_shape):
    """The pixels themselves are the features."""
    return tf.keras.Sequential([tf.keras.Input(input_shape), tf.keras.layers.Flatten()])


@pytest.fixture(scope="module")
def federation():
    """Three clients with 6, 3 and 2 samples of images that carry their class in their mean."""
    generator = np.random.default_rng(0)

    def examples(size):
        y = np.arange(size, dtype=np.int32) % CLASSES
        x = generator.normal(size=(size, *SHAPE)) + y[:, None, None, None]
        return data.Examples(x.astype(np.float32), y)

    parts = np.split(np.arange(11), [6, 9])
    clients = [
        data.ClientIndices(name, train, test)
        for name, train, test in zip("abc", parts, np.split(np.arange(20), [8, 12]), strict=True)
    ]
    spec = data.InputSpec("image", SHAPE, "float32", scale=1)
    return data.Federation("own", CLASSES, "xyz", spec, examples(11), examples(20), clients)


class Changed(methods.Method):
    """FedAvg with other functions as some of its hooks, which are called with FedAvg's results."""

    name = "changed"
    metric_names = ("known",)

    def __init__(self, **hooks):
        super().__init__()
        for hook, function in hooks.items():
            default = getattr(super(), hook)
            own = functools.partial(_called, function, default)
            object.__setattr__(self, hook, own)

    @classmethod
    def overrides(cls, hook):
        return hook.endswith("_state") or super().overrides(hook)


def _called(function, default, *arguments):
    return function(default(*arguments))


NUMBERS = {"numbers": np.zeros(3, np.float32)}


@pytest.mark.parametrize(
    ("hooks", "reason"),
    [
        (
            {"loss": lambda pair: pair[0]},
            "its loss has to return a pair, the mean over the batch (a scalar) and a dictionary of "
            "metrics, such as `return tf.reduce_mean(losses), {}`, not SymbolicTensor",
        ),
        ({"loss": lambda pair: (tf.fill([4], pair[0]), {})}, "not a tensor of shape (4,)"),
        (
            {"loss": lambda pair: (tf.stop_gradient(pair[0]), {})},
            "its loss depends on none of the 2 trained variables; compute it with TensorFlow from "
            "answers of `net`, without tf.stop_gradient",
        ),
        ({"loss": lambda pair: (1.0, {})}, "its loss depends on none of the 2 trained variables"),
        ({"loss": lambda pair: (*pair, 1)}, "not tuple"),
        (
            {"loss": lambda pair: (pair[0], {"own": 1.0})},
            "its loss returns 'own', not in metric_names; declare `metric_names = ('known', 'own')`"
            " in the class",
        ),
        (
            {"loss": lambda pair: (pair[0], {"known": tf.zeros([4])})},
            "the metric 'known' of its loss has to be a float32 scalar, such as a mean, not a "
            "tensor of shape (4,)",
        ),
        (
            {"loss": lambda pair: (pair[0], {"known": tf.constant(3)})},
            "the metric 'known' of its loss has to be a float32 scalar, such as a mean, not a "
            "tensor of type int32",
        ),
        (
            {"loss": lambda pair: (pair[0], {"known": None})},
            "the metric 'known' of its loss has to be a float32 scalar, such as a mean, not "
            "NoneType",
        ),
        (
            {"loss": lambda pair: (tf.cast(pair[0], tf.float64), {})},
            "such as `return tf.reduce_mean(losses), {}`, not a tensor of type float64",
        ),
        (
            {"upload": lambda upload: {}},
            "upload has to return methods.Upload(sums, state) of two dictionaries, not dict",
        ),
        (
            {"upload": lambda _: methods.Upload({}, None)},
            "of two dictionaries, not dict and NoneType",
        ),
        (
            {"client_state": lambda _: NUMBERS, "upload": lambda _: methods.Upload({}, {})},
            "the state that upload returns must be like that of client_state: 'numbers' is missing "
            "here, and float32 of shape (3,) there",
        ),
        (
            {"upload": lambda _: methods.Upload({}, {"numbers": [0, 1]})},
            "the state that upload returns must be like that of client_state: 'numbers/0' is int32 "
            "of shape () here, and missing there",
        ),
        (
            {
                "client_state": lambda _: NUMBERS,
                "upload": lambda _: methods.Upload({}, {"numbers": None}),
            },
            "'numbers' is missing here, and float32 of shape (3,) there",
        ),
        (
            {
                "client_state": lambda _: NUMBERS,
                "upload": lambda _: methods.Upload({}, {"numbers": np.zeros(3)}),
            },
            "'numbers' is float64 of shape (3,) here, and float32 of shape (3,) there",
        ),
        (
            {"upload": lambda _: methods.Upload({"counts": None}, {})},
            "upload can only send sums of numbers; 'counts' is None",
        ),
        (
            {"upload": lambda _: methods.Upload({"kernels": [1.0, "a"]}, {})},
            "upload can only send sums of numbers; 'kernels/1' is string of shape ()",
        ),
        (
            {"upload": lambda _: methods.Upload({"holds": tf.constant([True])}, {})},
            "upload can only send sums of numbers; 'holds' is bool of shape (1,)",
        ),
        (
            {"personal_logits": lambda logits: logits[:, :2]},
            "personal_logits has to return logits of shape (batch, 3), not (None, 2)",
        ),
        (
            {"global_logits": lambda answers: {"": answers[""][:, :2]}},
            "global_logits has to return logits of shape (batch, 3), not (1, 2)",
        ),
        (
            {"global_logits": lambda answers: {"head": answers[""]}},
            "global_logits has to return the logits of the global model as the entry '', not only "
            "['head']",
        ),
        (
            {"placement": lambda _: "shared"},
            "placement has to return one of methods.Placement, such as Placement.SHARED, not "
            "'shared' for 'head'",
        ),
        (
            {"server_change": lambda _: None},
            "server_change has to return a list of tensors like those of `change`, not NoneType",
        ),
        (
            {"server_change": lambda change: change[:1]},
            "the tensors that server_change returns must be like those of `change`: '1' is missing "
            "here, and float32 of shape (3,) there",
        ),
        (
            {"server_update": lambda pair: pair[0]},
            "server_update has to return a pair, a list of the new weights and a dictionary of the "
            "server's own tensors, such as `return new, self.next_server_state(server, sums)`, not "
            "SymbolicTensor and SymbolicTensor",
        ),
        ({"server_update": lambda pair: (None, pair[1])}, "not NoneType and dict"),
        (
            {"server_update": lambda pair: (pair[0][:1], pair[1])},
            "the weights that server_update returns must be like those before the step: '1' is "
            "missing here, and float32 of shape (3,) there",
        ),
        (
            {"update": lambda change: change[:1]},
            "the tensors that update returns must be like the shared trainable variables: '1' is "
            "missing here, and float32 of shape (3,) there",
        ),
        (
            {"weight": lambda weight: tf.fill([2], weight)},
            "weight has to return a scalar, not a tensor of shape (2,)",
        ),
        (
            {"server_state": lambda _: NUMBERS, "next_server_state": lambda _: {"numbers": 0.0}},
            "the server's tensors after its step must be like those of server_state: 'numbers' is "
            "float32 of shape () here, and float32 of shape (3,) there",
        ),
    ],
)
def test_what_a_hook_must_return_is_explained(hooks, reason, federation):
    config = ExperimentConfig(
        method=Changed(**hooks), model=models.ModelConfig(KerasBackbone(flat))
    )
    with pytest.raises((TypeError, ValueError), match=f"changed: [^\n]*{re.escape(reason)}"):
        Simulation(config, federation)


def returning(hook, result):
    """A method of a class with another hook, as users write it."""
    members = {"name": "returning", hook: lambda *arguments, **named: result}
    return type("Returning", (methods.Method,), members)()


@pytest.mark.parametrize(
    ("hook", "result", "reason"),
    [
        ("build", None, "`dict[str, tf.keras.layers.Layer]`, not NoneType"),
        ("embed", None, "`tf.Tensor`, not NoneType"),
        ("constants", None, "`dict[str, tf.Tensor]`, not NoneType"),
        ("prepare", None, "`tuple[Client, tf.Tensor]`, not NoneType"),
        ("phases", methods.Phase([], 1, None), "`list[Phase]`, not Phase"),
        ("trained_variables", None, "`list[tf.Variable]`, not NoneType"),
        ("client_state", [np.zeros(3)], "`dict[str, Any]`, not list"),
        ("server_state", None, "`dict[str, Any]`, not NoneType"),
        ("broadcast", None, "`dict[str, Any]`, not NoneType"),
        ("update", None, "`list[tf.Tensor]`, not NoneType"),
        ("weight", None, "`tf.Tensor`, not NoneType"),
        ("next_server_state", None, "`dict[str, Any]`, not NoneType"),
        ("global_logits", np.zeros([1, 3]), "`dict[str, tf.Tensor]`, not ndarray"),
        ("personal_logits", {}, "`tf.Tensor`, not dict"),
        ("personal_phases", None, "`list[Phase]`, not NoneType"),
    ],
)
def test_a_result_of_the_wrong_kind_names_the_hook(hook, result, reason, federation):
    config = ExperimentConfig(
        method=returning(hook, result), model=models.ModelConfig(KerasBackbone(flat))
    )
    reason = f"^cannot be traced.*: TypeError: returning: {hook} has to return {re.escape(reason)}$"
    with refuses("algorithm", reason, "returning"):
        Simulation(config, federation)


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        ("sums", "dict[str, tf.Tensor]"),
        ("server_state", "dict[str, Any]"),
        ("retrain", "tuple[Head, dict[str, Any]]"),
    ],
)
def test_a_result_of_the_wrong_kind_names_the_hook_of_a_calibration(hook, kind, federation):
    members = {"name": "own", "retrain": lambda self, head, *others: (head, {})}
    members |= {hook: lambda *arguments: None}
    calibration = type("Own", (methods.HeadCalibration,), members)()
    config = ExperimentConfig(
        head_calibration=calibration, model=models.ModelConfig(KerasBackbone(flat))
    )
    with refuses("algorithm", re.escape(f"own: {hook} has to return `{kind}`, not NoneType")):
        Simulation(config, federation)


def test_hooks_of_the_package_stay_the_same_objects():
    """So that a class may take the default back, and helpers of users are not checked."""

    class Back(type(methods.create("ditto"))):
        name = "back"
        personal_logits = methods.Method.personal_logits

        def helper(self) -> list[int]:
            return [1]

    class Further(Back):
        def helper(self):
            return None

    assert not Further.overrides("personal_logits")
    assert Further().helper() is None


def test_metric_names_are_a_tuple():
    class Named(methods.Method):
        name = "named"
        metric_names = "mine"

    with refuses("algorithm", re.escape("must be a tuple, such as `metric_names = ('mine',)`")):
        ExperimentConfig(method=Named())


def test_tensors_may_be_in_double_precision(federation):
    """As NumPy makes them, if nothing is said."""
    hooks = {"server_state": lambda _: {"numbers": np.ones(3)}}
    config = ExperimentConfig(
        method=Changed(**hooks), model=models.ModelConfig(KerasBackbone(flat))
    )
    with Simulation(config, federation) as simulation:
        simulation.next_round()
        np.testing.assert_array_equal(simulation.state.server["numbers"], [1.0, 1.0, 1.0])


def test_what_hooks_return_may_be_of_unknown_rank_or_in_lists(federation):
    def loss(pair):
        # TensorFlow does not know the rank before the graph runs.
        return pair[0], {"known": tf.squeeze(tf.boolean_mask([2 * pair[0]], pair[0][None] > 0))}

    config = ExperimentConfig(
        method=Changed(loss=loss, server_update=list),
        model=models.ModelConfig(KerasBackbone(flat)),
    )
    with Simulation(config, federation) as simulation:
        row = simulation.next_round()
    assert row["known"] == pytest.approx(2 * row["train_loss"])


@dataclasses.dataclass(frozen=True)
class FirstClass(metrics.Metric):
    """Accuracy on the first class."""

    name = "first_class"

    def measure(self, correct, total):
        return 100 * correct[0] / total[0] if total[0] else float("nan")


def config(**components):
    """One local step on all samples of a client, without momentum."""
    plain = ExperimentConfig.from_settings(
        rounds=2,
        local_epochs=1,
        client_learning_rate=RATE,
        client_momentum=0.0,
        client_weight_decay=0.0,
        client_clip_norm=0.0,
    )
    return dataclasses.replace(
        plain,
        model=dataclasses.replace(plain.model, backbone=KerasBackbone(flat, name="flat")),
        evaluation=dataclasses.replace(plain.evaluation, metrics=(FirstClass(),)),
        **components,
    )


def logits(examples, kernel, bias):
    return examples.x.reshape(len(examples), -1) @ kernel + bias


def local_step(examples, kernel, bias):
    """The changes by a step of gradient descent on the mean cross-entropy."""
    scores = np.exp(logits(examples, kernel, bias))
    error = scores / scores.sum(axis=1, keepdims=True) - np.eye(CLASSES)[examples.y]
    error /= len(examples)
    x = examples.x.reshape(len(examples), -1)
    return -RATE * x.T @ error, -RATE * error.sum(axis=0)


@pytest.mark.parametrize("aggregator", ["mean", "own"])
def test_rounds_and_evaluation_match_numpy(aggregator, federation, compute):
    """FedAvg of softmax regression; the factory of the test weighs all clients alike."""
    weights, components = np.array([6, 3, 2]) / 11, {}
    if aggregator == "own":
        factory = tff.aggregators.UnweightedMeanFactory()
        weights = np.full(3, 1 / 3)
        components["aggregator"] = TffAggregator(factory, name="alike")
    simulation = Simulation(config(**components), federation, compute=compute)
    kernel, bias = (np.array(w, np.float64) for w in simulation.state.weights["trainable"])
    for _ in range(2):
        changes = [
            local_step(federation.client_examples(client)[0], kernel, bias) for client in range(3)
        ]
        simulation.next_round()
        kernel += sum(w * change for w, (change, _) in zip(weights, changes, strict=True))
        bias += sum(w * change for w, (_, change) in zip(weights, changes, strict=True))
    for actual, expected in zip(simulation.state.weights["trainable"], (kernel, bias), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

    results = simulation.evaluate()
    test = federation.test
    correct = logits(test, kernel, bias).argmax(axis=1) == test.y
    assert results["ga"] == pytest.approx(100 * correct.mean())
    assert results["first_class_ga"] == pytest.approx(100 * correct[test.y == 0].mean())
    shares = {"pa_before": [], "pa": [], "first_class_pa": []}
    for client in range(3):
        train, own = federation.client_examples(client)
        right = logits(own, kernel, bias).argmax(axis=1) == own.y
        shares["pa_before"].append(right.mean())
        change, shift = local_step(train, kernel, bias)
        right = logits(own, kernel + change, bias + shift).argmax(axis=1) == own.y
        shares["pa"].append(right.mean())
        shares["first_class_pa"].append(right[own.y == 0].mean())
    for name, values in shares.items():
        assert results[name] == pytest.approx(100 * np.mean(values)), name


def test_a_run_with_own_components(federation, options, tmp_path):
    """They are in the files by their names, and a finished run is recognized by them."""
    run_dir, mine = tmp_path / "run", config()
    summary = run_experiment(mine, run_dir, options, federation=federation)
    written = rows(run_dir)
    assert summary["first_class_ga_final"] == float(written[-1]["first_class_ga"])
    settings = mine.to_settings()
    assert (settings["model"], settings["metrics"]) == ("flat", "first_class")
    assert run_experiment(mine, run_dir, options, federation=federation) == summary
    with restore_run(mine, run_dir, options, federation=federation).simulation as simulation:
        assert simulation.evaluate_global()["ga"] == pytest.approx(summary["ga_final"])
    # By its name alone a component that is not registered cannot be made again.
    with refuses("model", "choose one of"):
        mine.with_settings(rounds=3)


@pytest.mark.usefixtures("shared_computations")
def test_metrics_of_a_run_match_numpy(options, tmp_path):
    """The registered metrics in metrics.csv and summary.json, from predictions and counts."""
    mine = CONFIG.with_settings(metrics="balanced,worst_class", rounds=2)
    summary = run_experiment(mine, tmp_path / "run", options)
    simulation = restore_run(mine, tmp_path / "run", options).simulation
    net, test = simulation.spec.network(), simulation.federation.test
    load(net, simulation.state.weights)
    x = data.normalize(test.x, simulation.spec.input_spec)
    predicted = simulation.spec.method.global_logits(net, x)[""].numpy().argmax(axis=1)
    shares = [np.mean(predicted[test.y == label] == label) for label in range(10)]
    counts = simulation.personal_counts()
    expected = {"balanced_ga": np.mean(shares), "worst_class_ga": np.min(shares)}
    for key, column in (("after", "pa"), ("before", "pa_before")):
        own = [
            (correct[total > 0] / total[total > 0])
            for correct, total in zip(counts[key], counts["total"], strict=True)
        ]
        expected[f"balanced_{column}"] = np.mean([values.mean() for values in own])
        expected[f"worst_class_{column}"] = np.mean([values.min() for values in own])
    written = rows(tmp_path / "run")
    for name, share in expected.items():
        assert float(written[-1][name]) == pytest.approx(100 * share, rel=1e-6), name
        column = [float(row[name]) for row in written]
        assert summary[f"{name}_final"] == column[-1]
        assert summary[f"{name}_best"] == max(column)


def own_method(*names):
    """FedAvg with metrics of the given names."""

    @dataclasses.dataclass(frozen=True)
    class Own(methods.Method):
        name = "own_names"
        metric_names = names

        def loss(self, net, batch, client):
            loss, _ = super().loss(net, batch, client)
            return loss, dict.fromkeys(names, loss)

    return dataclasses.replace(config(), method=Own())


@pytest.mark.parametrize(
    "name",
    [
        *("ga", "pa_before", "va", "diag_mine", "loss", "samples", "steps", "seconds", "round"),
        *("measured", "train_loss", "upload_bytes", "dropped_clients", "first_class_ga"),
    ],
)
def test_metrics_with_the_names_of_other_columns_are_refused(name):
    with refuses("algorithm", f"its metric_names contain '{name}', the name of another column"):
        planning.check(own_method(name))


@pytest.mark.parametrize("name", ["new_clients", "mine_new_clients", "ga", "ga_mine", "diag_x"])
def test_metrics_whose_columns_would_be_taken_for_others_are_refused(name):
    @dataclasses.dataclass(frozen=True)
    class Own(metrics.Metric):
        def measure(self, correct, total):
            return 0.0

    Own.name = name
    evaluation = dataclasses.replace(config().evaluation, metrics=(Own(),))
    with refuses("metrics", f"its column '{name}_ga' would be taken for "):
        planning.check(dataclasses.replace(config(), evaluation=evaluation))


def test_names_of_metrics_are_different():
    with refuses("algorithm", "its metric_names contain 'mine' twice"):
        planning.check(own_method("mine", "mine"))
    planning.check(own_method("mine", "gain", "loss_of_mine"))


def test_a_metric_is_averaged_over_the_phases_that_return_it(federation, compute):
    """One epoch of three without the metric, which is 2 in all batches of the others."""

    @dataclasses.dataclass(frozen=True)
    class Phased(methods.Method):
        name = "phased"
        metric_names = ("mine", "never")

        def phases(self, net, epochs):
            trained = net.shared.trainable
            plain, measured = (
                methods.Phase(trained, 1, super().loss),
                methods.Phase(trained, 2, self.loss),
            )
            return [plain, measured]

        def loss(self, net, batch, client):
            loss, _ = super().loss(net, batch, client)
            return loss, {"mine": tf.constant(2.0)}

    simulation = Simulation(
        dataclasses.replace(config(), method=Phased()), federation, compute=compute
    )
    found = simulation.next_round()
    assert found["mine"] == pytest.approx(2.0)
    assert np.isnan(found["never"])
    assert found["train_loss"] > 0


def test_an_aggregator_without_a_factory_is_refused(federation, compute):
    @dataclasses.dataclass(frozen=True)
    class Nothing(aggregators.Aggregator):
        name = "nothing"

        def factory(self, cohort_size):
            return None

    with refuses("aggregator", "its factory has returned None, not an aggregation factory of TFF"):
        Simulation(config(aggregator=Nothing()), federation, compute=compute)


@pytest.mark.parametrize("value", [None, "good", [1.0, 2.0]])
def test_a_metric_that_is_no_number_is_refused(value):
    @dataclasses.dataclass(frozen=True)
    class Odd(metrics.Metric):
        name = "odd"

        def measure(self, correct, total):
            return value

    counts = np.ones(CLASSES, int)
    with refuses("metrics", "its measure has returned .* instead of a number"):
        global_accuracies(counts, {"head": counts}, counts, Groups({}, {}), [Odd()])
