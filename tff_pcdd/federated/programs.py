"""What a client and the server compute, in plain TensorFlow.

Each program holds the variables of one network and does its work inside one `tf.function`, so that
it can be traced into a TFF computation, or called as it is. Nothing here knows where it runs.

Structures that cross the border are ordered dicts and lists of tensors:

    weights         {"trainable": [...], "statistics": [...], "mirrored": [...], "fixed": [...]}
    message         {"weights": weights, "server": {...}, "round": int32}
    client state    {"personal": [...], "own": {...}, "participations": int32}
    examples        {"x": [n, ...] as stored, "y": int32 [n]}
    client data     {"train": examples, "seed": int32 [2], "slot": int32}; to evaluate also "test",
                    and "validation" where samples were held out
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_pcdd import layers, losses
from tff_pcdd.data import preprocessing
from tff_pcdd.federated import initialization
from tff_pcdd.federated.optimizer import SGD
from tff_pcdd.methods.method import Batch, Client, Method, Network, Phase, Task

# Number folded into a client's seed for its own draws; phases are numbered from 0.
_CLIENT_DRAWS = 1 << 20
# Stands in the seeds of what the server draws for itself.
_SERVER_DRAWS = 1 << 21


@dataclasses.dataclass(frozen=True)
class Learning:
    """All that defines what is computed in a round.

    Attributes:
        method: the federated method.
        task: what is to be learnt.
        input_spec: `tff_pcdd.data.InputSpec` of the stored examples.
        optimizer: the clients' optimiser.
        local_epochs: passes over a client's samples per round.
        batch_size: samples per step.
        eval_batch_size: samples per forward pass in evaluation.
        jit_compile: compile the local step with XLA.
        validation: whether clients bring validation samples to the evaluation of personal models.
    """

    method: Method
    task: Task
    input_spec: Any
    optimizer: SGD
    local_epochs: int = 5
    batch_size: int = 32
    eval_batch_size: int = 512
    jit_compile: bool = False
    validation: bool = False

    def network(self) -> Network:
        """Makes the method's network with fresh variables."""
        return Network(self.method.build(self.task), self.method, self.task)


def assign(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
    """Sets every variable to its value."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def read(variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """The values of variables, as tensors that later assignments leave alone."""
    return [tf.identity(variable) for variable in variables]


def weights_of(net: Network) -> OrderedDict[str, list[tf.Tensor]]:
    """The shared and fixed variables of a network, as they travel."""
    return OrderedDict(
        trainable=read(net.shared.trainable),
        statistics=read(net.shared.statistics),
        mirrored=read(net.mirrored.all),
        fixed=read(net.fixed),
    )


def load(net: Network, weights: Mapping[str, Sequence], personal: Sequence | None = None) -> None:
    """Sets a network's variables to given weights, and those that a client keeps where given."""
    assign(net.shared.trainable, weights["trainable"])
    assign(net.shared.statistics, weights["statistics"])
    assign(net.mirrored.all, weights["mirrored"])
    assign(net.fixed, weights["fixed"])
    if personal is not None:
        assign(net.kept, personal)


def _with_first_weights(learning: Learning, compute: Callable, *arguments):
    """`compute(net, *arguments)` on a network with its first weights."""
    with initialization.deferred() as first:
        net = learning.network()

    @tf.function
    def run(*arguments):
        first.assign(net.parts, learning.task.seed)
        return compute(net, *arguments)

    return run(*arguments)


def initial_weights(learning: Learning) -> OrderedDict[str, list[tf.Tensor]]:
    """The first weights: a function of the task's seed."""
    return _with_first_weights(learning, weights_of)


def initial_server(learning: Learning) -> OrderedDict[str, Any]:
    """What the server keeps beside the weights before the first round."""
    return _with_first_weights(
        learning, lambda net: ordered(learning.method.server_state(net, learning.task))
    )


def initial_client_state(learning: Learning, seed: tf.Tensor) -> OrderedDict[str, Any]:
    """The state of a client that never took part; `seed` int32 [2] is the client's own."""

    def state(net, seed):
        return OrderedDict(
            personal=[
                *learning.method.initial_personal(net, seed),
                *read(net.mirrored.all),
            ],
            own=ordered(learning.method.client_state(net, learning.task, seed)),
            participations=tf.zeros([], tf.int32),
        )

    return _with_first_weights(learning, state, seed)


def ordered(value: Any) -> Any:
    """Dicts as ordered dicts with sorted keys, all the way down, so that types are stable."""
    if isinstance(value, Mapping):
        return OrderedDict((key, ordered(value[key])) for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return [ordered(element) for element in value]
    return value


def steps_per_epoch(num_samples: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Steps of one pass. A last batch of a single sample is left out unless it is the only one.

    Batch normalisation has no variance to normalise by in a batch of one.
    """
    full, rest = num_samples // batch_size, num_samples % batch_size
    keep = tf.logical_or(rest > 1, tf.logical_and(rest == 1, full == 0))
    return full + tf.cast(keep, num_samples.dtype)


class ClientProgram:
    """Local training and personal evaluation of one client."""

    def __init__(self, learning: Learning):
        self._learning = learning
        self._method = learning.method
        with initialization.zeros():
            self._net = learning.network()
            self._phases = learning.method.phases(self._net, learning.local_epochs)
            self._personal_phases = learning.method.personal_phases(
                self._net, learning.local_epochs
            )
            phases = (*self._phases, *self._personal_phases)
            self._slots = {
                variable.ref(): slot
                for variable in {v.ref(): v for p in phases for v in p.variables}.values()
                for slot in learning.optimizer.slots([variable])
            }
        self.update = tf.function(self._update)
        self.evaluate = tf.function(self._evaluate)
        self.evaluate_before = tf.function(self._evaluate_before)
        self.personal_weights = tf.function(self._personal_weights)

    def _update(self, message, state, data):
        """One round at the client.

        Args:
            message: what the server sent.
            state: the client's state.
            data: its examples, its seed (a function of seed, round and client), its slot.

        Returns:
            An ordered dict: `update`, the change of the shared weights (trainable, then
            statistics) and of the mirrored ones; `weight`; `sums`; `state`; `metrics`, sums over
            samples, with the number of `samples`; `sent`.
        """
        method, net, train = self._method, self._net, data["train"]
        client = self._begin(message, state, data, self._phases)
        totals = self._train(self._phases, train, client, data["seed"])
        upload = method.upload(
            net, client, lambda function, initial: self._reduce(function, initial, train)
        )
        before = [*message["weights"]["statistics"], *message["weights"]["mirrored"]]
        changes = [
            now - then
            for now, then in zip([*net.shared.statistics, *net.mirrored.all], before, strict=True)
        ]
        return OrderedDict(
            update=[*method.update(net, client), *changes],
            weight=tf.cast(method.weight(client), tf.float32),
            sums=ordered(upload.sums),
            state=OrderedDict(
                personal=read(net.kept),
                own=ordered(upload.state),
                participations=state["participations"] + 1,
            ),
            metrics=totals,
            sent=tf.cast(upload.sent, tf.float32),
        )

    def _evaluate(self, message, state, data):
        """The client's personal model on its own test part, before and after local training.

        Returns:
            An ordered dict of int32 [C]: `total` test samples of each class, and samples rightly
            classified `before`, `before_masked`, `after` and `after_masked`; "masked" means that
            only classes of the client's training part can be predicted. Of a validation part the
            same under `validation_total` and so on.
        """
        parts = {"": data["test"]}
        if self._learning.validation:
            parts["validation_"] = data["validation"]
        counts = OrderedDict()
        client = self._begin(message, state, data, self._personal_phases)
        self._method.personalize(self._net, client)
        for prefix, part in parts.items():
            counts[f"{prefix}total"] = count_classes(part["y"], self._learning.task.num_classes)
            counts |= self._score(part, client, f"{prefix}before")
        self._train(self._personal_phases, data["train"], client, data["seed"])
        for prefix, part in parts.items():
            counts |= self._score(part, client, f"{prefix}after")
        return counts

    def _evaluate_before(self, message, state, data):
        """As `evaluate`, without training: `total` and `before` only."""
        client = self._begin(message, state, data, self._personal_phases)
        self._method.personalize(self._net, client)
        before = self._score(data["test"], client, "before")["before"]
        total = count_classes(data["test"]["y"], self._learning.task.num_classes)
        return OrderedDict(total=total, before=before)

    def _personal_weights(self, message, state, data, local_epochs: bool):
        """What the network's variables are in the client's personal model, that `evaluate` scores.

        Returns:
            A list with the values of `Network.variables`, after local training or before.
        """
        client = self._begin(message, state, data, self._personal_phases)
        self._method.personalize(self._net, client)
        if local_epochs:
            self._train(self._personal_phases, data["train"], client, data["seed"])
        return read(self._net.variables)

    def personal_model(self, message, state, data) -> tuple[Network, Client]:
        """What `Method.personal_logits` needs; the network lacks its `personal_weights` still."""
        return self._net, self._begin(message, state, data, self._personal_phases)

    def _begin(self, message, state, data, phases) -> Client:
        """Loads what the client trains or evaluates; returns what it knows."""
        net, weights, task = self._net, message["weights"], self._learning.task
        load(net, weights, state["personal"])
        # A client that never trained has no mirrored variables of its own: it takes the mean's.
        fresh = tf.equal(state["participations"], 0)
        for variable, mean in zip(net.mirrored.all, weights["mirrored"], strict=True):
            variable.assign(tf.where(fresh, mean, variable))
        labels = data["train"]["y"]
        counts = tf.cast(count_classes(labels, task.num_classes), tf.float32)
        steps = steps_per_epoch(tf.size(labels), self._learning.batch_size)
        client = Client(
            class_counts=counts,
            constants=self._method.constants(counts, task),
            anchor=weights["trainable"],
            state=state["own"],
            server=message["server"],
            round=message["round"],
            steps=steps * sum(phase.epochs for phase in phases),
            seed=fold_in(data["seed"], _CLIENT_DRAWS),
            slot=data["slot"],
            optimizer=self._learning.optimizer,
        )
        self._method.begin(net, client)
        return client

    def _train(self, phases: Sequence[Phase], train, client, seed) -> OrderedDict[str, tf.Tensor]:
        """Runs the phases; returns metrics summed over samples, and the samples."""
        batch_size = self._learning.batch_size
        num_samples = tf.size(train["y"])
        steps = steps_per_epoch(num_samples, batch_size)
        names = ("loss", *self._method.metric_names)
        totals = tf.zeros([len(names) + 1])
        for number, phase in enumerate(phases):
            slots = [self._slots[v.ref()] for v in phase.variables if self._slots]
            for slot in slots:
                slot.assign(tf.zeros_like(slot))
            step = self._make_step(phase, slots, client)
            phase_seed = fold_in(seed, number)
            for epoch in tf.range(phase.epochs):
                epoch_seed = fold_in(phase_seed, epoch)
                order = tf.random.experimental.stateless_shuffle(
                    tf.range(num_samples), seed=epoch_seed
                )
                for number_of_step in tf.range(steps):
                    index = order[number_of_step * batch_size : (number_of_step + 1) * batch_size]
                    batch_seed = fold_in(epoch_seed, number_of_step)
                    totals += step(
                        tf.gather(train["x"], index), tf.gather(train["y"], index), batch_seed
                    )
        return OrderedDict(zip((*names, "samples"), tf.unstack(totals), strict=True))

    def _make_step(self, phase: Phase, slots, client) -> Callable:
        spec, method, net = self._learning.input_spec, self._method, self._net
        optimizer = self._learning.optimizer
        if phase.learning_rate is not None:
            optimizer = dataclasses.replace(optimizer, learning_rate=phase.learning_rate)

        def step(x, y, seed):
            """One optimiser step; returns metrics times samples, then samples, float32 [m + 1]."""
            x = preprocessing.normalize(preprocessing.augment(x, spec, seed), spec)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(phase.variables)
                with layers.dropout_seed(seed):
                    loss, metrics = phase.loss(net, Batch(x, y, seed), client)
            optimizer.apply(tape.gradient(loss, phase.variables), phase.variables, slots)
            # Fine-tuning of the personal model has no other scalars than its loss.
            scalars = [loss, *(metrics.get(name, 0.0) for name in method.metric_names), 1.0]
            return tf.stack(scalars) * tf.cast(tf.size(y), tf.float32)

        return tf.function(step, jit_compile=True) if self._learning.jit_compile else step

    def _score(self, examples, client, name: str) -> dict[str, tf.Tensor]:
        """Right answers of the personal model by class: under `name` where all classes can be
        predicted, under `<name>_masked` where only the client's own can.
        """

        def score(totals, x, y):
            logits = self._method.personal_logits(self._net, x, client)
            masked = losses.mask_logits(logits, client.class_counts > 0)
            return (
                totals[0] + count_right(logits, y),
                totals[1] + count_right(masked, y),
            )

        zero = tf.zeros([self._learning.task.num_classes], tf.int32)
        right, masked = self._reduce(score, (zero, zero), examples)
        return {name: right, f"{name}_masked": masked}

    def _reduce(self, function, initial, examples):
        return reduce_batches(function, initial, examples, self._learning)


class ServerProgram:
    """The server's step between two broadcasts."""

    def __init__(self, learning: Learning):
        self._method = learning.method
        learns = type(self._method).server_learning is not Method.server_learning
        self._trainer = _ServerTrainer(learning) if learns else None
        self.step = tf.function(self._step)

    def _step(self, state, change, sums, cohort_size):
        """Folds in what the cohort sent.

        Args:
            state: the server's state: `weights`, `server` and `round`.
            change: the mean of the clients' `update`.
            sums: the clients' `sums`, summed.
            cohort_size: float32 scalar.

        Returns:
            The new weights and the server's new own tensors.
        """
        weights, server = state["weights"], state["server"]
        if self._trainer is not None:
            server = self._trainer.learn(state, change, sums)
        count, end = len(weights["trainable"]), len(change) - len(weights["mirrored"])
        trainable, server = self._method.server_update(
            weights["trainable"], change[:count], server, sums, cohort_size
        )
        weights = OrderedDict(
            trainable=trainable,
            statistics=_add(weights["statistics"], change[count:end]),
            mirrored=_add(weights["mirrored"], change[end:]),
            fixed=weights["fixed"],
        )
        return weights, ordered(server)


class _ServerTrainer(ClientProgram):
    """Training at the server, by the clients' recipe."""

    def learn(self, state, change, sums):
        """What the method's `server_learning` makes of the server's own tensors."""
        method, net, weights = self._method, self._net, state["weights"]
        task, server = self._learning.task, state["server"]
        epochs = self._learning.local_epochs
        seed = fold_in(tf.constant([task.seed, _SERVER_DRAWS]), state["round"])

        def learn(x, y, loss, number):
            data = {"train": {"x": x, "y": y}, "seed": fold_in(seed, number), "slot": 0}
            message = {"weights": weights, "server": server, "round": state["round"]}
            personal = {"personal": read(net.kept), "own": {}, "participations": 0}
            phase = Phase(net.trainable, epochs, loss)
            client = self._begin(message, personal, data, [phase])
            self._train([phase], data["train"], client, data["seed"])

        load(net, weights)
        return method.server_learning(net, server, change, sums, task, learn)


def _add(values, changes):
    return [value + change for value, change in zip(values, changes, strict=True)]


class GlobalProgram:
    """Evaluation of the global model."""

    def __init__(self, learning: Learning):
        self._learning = learning
        with initialization.zeros():
            self._net = learning.network()
        self.evaluate = tf.function(self._evaluate)

    def _evaluate(self, weights, examples):
        """Right answers of the global model on pooled examples.

        Returns:
            An ordered dict of int32 [C]: `total` samples of each class, and under `right` for each
            of the method's heads, "head" for the one that GA means, samples rightly classified.
        """
        load(self._net, weights)
        num_classes = self._learning.task.num_classes
        names = list(_head_names(self._learning))

        def score(totals, x, y):
            logits = self._learning.method.global_logits(self._net, x)
            return tuple(
                total + count_right(logits[name], y)
                for name, total in zip(names, totals, strict=True)
            )

        zeros = tuple(tf.zeros([num_classes], tf.int32) for _ in names)
        totals = reduce_batches(score, zeros, examples, self._learning)
        return OrderedDict(
            total=count_classes(examples["y"], num_classes),
            right=OrderedDict(
                (name or "head", total) for name, total in zip(names, totals, strict=True)
            ),
        )


def _head_names(learning: Learning) -> Sequence[str]:
    """The names of the global model's heads, found by tracing it once on the side."""
    with tf.Graph().as_default(), initialization.zeros():
        net = learning.network()
        x = tf.zeros([1, *learning.input_spec.shape], learning.input_spec.model_dtype)
        return tuple(learning.method.global_logits(net, x))


def personal_epochs(learning: Learning) -> int:
    """Local epochs that lie between the two evaluations of a client's personal model."""
    with tf.Graph().as_default(), initialization.zeros():
        phases = learning.method.personal_phases(learning.network(), learning.local_epochs)
    return sum(phase.epochs for phase in phases)


def reduce_batches(function, initial, examples, learning: Learning):
    """Folds `function(total, x, y)` over examples in batches, in order, normalised only."""
    num_samples = tf.size(examples["y"])
    size = learning.eval_batch_size

    def body(start, total):
        x = preprocessing.normalize(examples["x"][start : start + size], learning.input_spec)
        return start + size, function(total, x, examples["y"][start : start + size])

    _, total = tf.while_loop(lambda start, _: start < num_samples, body, (tf.constant(0), initial))
    return total


def fold_in(seed: tf.Tensor, number) -> tf.Tensor:
    """Derives a seed, int32 [2], from a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, number)


def count_classes(labels: tf.Tensor, num_classes: int) -> tf.Tensor:
    """How often each class occurs among labels [n], int32 [C]."""
    return tf.math.unsorted_segment_sum(tf.ones_like(labels), labels, num_classes)


def count_right(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Samples of each class that the largest logit names rightly, int32 [C]."""
    # tf.equal, as TFF traces in graphs where == between tensors compares Python objects.
    right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    return tf.math.unsorted_segment_sum(tf.cast(right, tf.int32), labels, logits.shape[1])
