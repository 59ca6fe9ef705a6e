"""Local training: phases of the optimizer on one client's samples, or on the server's own."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from tff_pcdd import layers
from tff_pcdd.data import transforms
from tff_pcdd.draws import fold_in
from tff_pcdd.federated.batches import count_classes, pad_to_bucket, steps_per_epoch
from tff_pcdd.federated.client_optimizers import ClientOptimizer
from tff_pcdd.federated.client_optimizers.sgd import SGD
from tff_pcdd.federated.local_work import Draws
from tff_pcdd.federated.records import ClientData, ClientState, Message
from tff_pcdd.federated.returned import check_gradients, checked_loss
from tff_pcdd.federated.tracing import compiled, repeat
from tff_pcdd.federated.training_spec import TrainingSpec
from tff_pcdd.federated.weights import load
from tff_pcdd.methods.network import Network
from tff_pcdd.methods.records import Batch, Client, Phase

# Folded into a client's seed for the method's own draws; phases use the numbers from 0.
_CLIENT_DRAWS = 1 << 20


def moved_by(phases: Iterable[Phase]) -> list[tf.Variable]:
    """The variables that phases of local training change, each listed once."""
    return list({v.ref(): v for phase in phases for v in phase.variables}.values())


class LocalTraining:
    """Loads a client and trains its network. To be called inside a `tf.function`.

    `variables` are all that training may move; each of them gets accumulators.
    """

    def __init__(self, spec: TrainingSpec, net: Network, variables: Sequence[tf.Variable]) -> None:
        self._spec = spec
        self._net = net
        self._accumulators = {
            variable.ref(): spec.optimizer.accumulators(variable) for variable in variables
        }

    def begin(
        self,
        message: Message,
        state: ClientState,
        data: ClientData,
        phases: Sequence[Phase],
        draws: Draws | None = None,
    ) -> Client:
        """Loads what a client trains or evaluates, and returns what is known at the client.

        The phases are those of the training that follows, and `draws` what the client does of them,
        all by default.
        """
        spec, net, weights = self._spec, self._net, message.weights
        load(net, weights, state.personal)
        # A client that has never trained has no mirrored variables of its own; it starts from the
        # mean.
        fresh = tf.equal(state.participations, 0)
        for variable, mean in zip(net.mirrored.all, weights["mirrored"], strict=True):
            variable.assign(tf.where(fresh, mean, variable))
        labels = data.train["y"]
        counts = tf.cast(count_classes(labels, spec.task.num_classes), tf.float32)
        rate = spec.scheduled(spec.optimizer.learning_rate, message.round)
        client = Client(
            class_counts=counts,
            constants=spec.method.constants(counts, spec.task),
            anchor=weights["trainable"],
            state=state.own,
            server=message.server,
            round=message.round,
            steps=self._total_steps(phases, tf.size(labels), draws),
            seed=fold_in(data.seed, _CLIENT_DRAWS),
            cohort_index=data.cohort_index,
            optimizer=spec.optimizer.with_rate(rate),
        )
        spec.method.begin(net, client)
        return client

    def _total_steps(
        self, phases: Sequence[Phase], num_samples: tf.Tensor, draws: Draws | None
    ) -> tf.Tensor:
        """The optimizer steps that a client takes."""
        steps = steps_per_epoch(num_samples, self._spec.batch_size)
        if draws is not None:
            return sum(draws.steps(phases, steps), tf.constant(0))
        return steps * sum(phase.epochs for phase in phases)

    def run(
        self,
        phases: Sequence[Phase],
        examples: Mapping[str, tf.Tensor],
        client: Client,
        seed: tf.Tensor,
        draws: Draws | None = None,
    ) -> OrderedDict[str, tf.Tensor]:
        """Runs phases of training, each with accumulators from zero.

        Args:
            phases: in order.
            examples: the training samples, as stored.
            client: as returned by `begin`.
            seed: int32 [2], determines the order of samples, augmentation and dropout.
            draws: as for `begin`.

        Returns:
            Float32 scalars: `loss` and the method's metrics, summed over samples, and the number of
            `samples`, where a sample counts once per epoch. If the method has metrics, `measured`
            holds the number of samples for each of them: phases may leave metrics out.
        """
        metric_names = self._spec.method.metric_names
        totals = tf.zeros([len(metric_names) + 2])
        measured = {name: tf.zeros([]) for name in metric_names}
        for number, phase in enumerate(phases):
            for variable in phase.variables:
                for accumulator in self._accumulators[variable.ref()]:
                    accumulator.assign(tf.zeros_like(accumulator))
            # Known once the step has been traced.
            returned: set[str] = set()
            step = self._make_step(phase, client, returned)
            phase_seed = fold_in(seed, number)
            steps = steps_per_epoch(tf.size(examples["y"]), self._spec.batch_size)
            limit = None if draws is None else draws.steps([phase], steps)[0]
            earlier = totals
            if self._spec.compile == "client":
                limit = steps * phase.epochs if limit is None else limit
                totals = self._programs(step, examples, phase_seed, phase.epochs, limit, totals)
            else:
                # An epoch of a client without samples has no steps.
                epochs = phase.epochs if limit is None else -(-limit // tf.maximum(steps, 1))
                epoch = functools.partial(self._epoch, step, examples, phase_seed, limit)
                totals = repeat(epochs, epoch, totals)
            for name in metric_names:
                if name in returned:
                    measured[name] += totals[-1] - earlier[-1]
        names = ("loss", *metric_names, "samples")
        sums = OrderedDict(zip(names, tf.unstack(totals), strict=True))
        if measured:
            sums["measured"] = OrderedDict(measured)
        return sums

    def _epoch(
        self,
        step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
        examples: Mapping[str, tf.Tensor],
        phase_seed: tf.Tensor,
        limit: tf.Tensor | None,
        epoch: tf.Tensor,
        totals: tf.Tensor,
    ) -> tf.Tensor:
        """Takes the steps of an epoch, up to a limit of the phase; the totals with theirs."""
        batch_size = self._spec.batch_size
        num_samples = tf.size(examples["y"])
        order, epoch_seed = _order(num_samples, phase_seed, epoch)

        def add_step(number, totals):
            index = order[number * batch_size : (number + 1) * batch_size]
            x, y = tf.gather(examples["x"], index), tf.gather(examples["y"], index)
            return totals + step(x, y, fold_in(epoch_seed, number))

        steps = steps_per_epoch(num_samples, batch_size)
        if limit is not None:
            steps = tf.minimum(steps, limit - epoch * steps)
        return repeat(steps, add_step, totals)

    def _programs(
        self,
        step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
        examples: Mapping[str, tf.Tensor],
        phase_seed: tf.Tensor,
        epochs: int,
        limit: tf.Tensor,
        totals: tf.Tensor,
    ) -> tf.Tensor:
        """Takes up to `limit` steps of a phase, the same as `_epoch`, in programs of XLA.

        A program has all batches of `batch_size` samples of the phase, or, if the epochs end with a
        smaller one, of an epoch. The step on a smaller batch is not compiled: XLA would need a
        program for each of its sizes. The samples are padded, so that clients of similar sizes
        share a program; what is added is never part of a batch.
        """
        size = self._spec.batch_size
        num_samples = tf.size(examples["y"])
        full, steps = num_samples // size, steps_per_epoch(num_samples, size)
        epochs_at_once = tf.where(steps > full, 1, epochs)
        x, y = pad_to_bucket(examples["x"], size), pad_to_bucket(examples["y"], size)

        def draw(epoch):
            order, seed = _order(num_samples, phase_seed, epoch)
            return pad_to_bucket(order, size), seed

        def full_batches(x, y, orders, seeds, full, count, totals):
            def add_step(number, totals):
                epoch, number = number // full, number % full
                index = tf.gather(tf.gather(orders, epoch), number * size + tf.range(size))
                seed = fold_in(tf.gather(seeds, epoch), number)
                return totals + step(tf.gather(x, index), tf.gather(y, index), seed)

            return repeat(count, add_step, totals)

        program = compiled(full_batches, self._net)

        def train(call, totals):
            numbers = call * epochs_at_once + tf.range(epochs_at_once)
            orders, seeds = tf.map_fn(draw, numbers, fn_output_signature=(tf.int32, tf.int32))
            left = limit - call * epochs_at_once * steps
            count = tf.minimum(full * epochs_at_once, left)
            totals = tf.cond(
                count > 0,
                lambda: program(x, y, orders, seeds, full, count, totals),
                lambda: totals,
            )

            def last_step():
                index = orders[0, full * size : num_samples]
                seed = fold_in(seeds[0], full)
                return totals + step(tf.gather(x, index), tf.gather(y, index), seed)

            is_small = tf.logical_and(steps > full, left > full)
            return tf.cond(is_small, last_step, lambda: totals)

        return repeat(-(-limit // tf.maximum(steps * epochs_at_once, 1)), train, totals)

    def _optimizer_of(self, phase: Phase, client: Client) -> ClientOptimizer:
        """The optimizer of a phase, with the step size of the round."""
        optimizer, rate = self._spec.optimizer, client.optimizer.learning_rate
        if phase.learning_rate is not None:
            rate = self._spec.scheduled(phase.learning_rate, client.round)
        if phase.plain:
            optimizer = SGD(momentum=0.0, weight_decay=0.0, clip_norm=optimizer.clip_norm)
        return optimizer.with_rate(rate)

    def _make_step(
        self, phase: Phase, client: Client, returned: set[str]
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
        """The function that takes a step; it adds the names of its metrics to `returned`."""
        spec, method, net = self._spec.input_spec, self._spec.method, self._net
        optimizer = self._optimizer_of(phase, client)
        groups = phase.groups

        def take(x, y, seed):
            """Takes a step; returns loss and metrics times samples, samples: float32 [m + 2]."""
            x = transforms.normalize(x, spec)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(phase.variables)
                with layers.dropout_seed(seed):
                    loss, metrics = checked_loss(phase.loss(net, Batch(x, y, seed), client), method)
            found = tape.gradient(tf.convert_to_tensor(loss), groups)
            check_gradients(found, method)
            for group, gradients in zip(groups, found, strict=True):
                own = [self._accumulators[variable.ref()] for variable in group]
                optimizer.apply(gradients, group, own)
            returned.update(metrics)
            scalars = [loss, *(metrics.get(name, 0.0) for name in method.metric_names), 1.0]
            return tf.stack(scalars) * tf.cast(tf.size(y), tf.float32)

        if self._spec.compile != "step":
            return lambda x, y, seed: take(transforms.augment(x, spec, seed), y, seed)
        program = compiled(take, net)

        def step(x, y, seed):
            inputs = transforms.augment(x, spec, seed), y, seed
            # A smaller batch would need a program for each of its sizes, as in `_programs`.
            is_full = tf.equal(tf.size(y), self._spec.batch_size)
            return tf.cond(is_full, lambda: program(*inputs), lambda: take(*inputs))

        return step


def _order(
    num_samples: tf.Tensor, phase_seed: tf.Tensor, epoch: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The order of the samples in an epoch, and the seed of its steps."""
    seed = fold_in(phase_seed, epoch)
    return tf.random.experimental.stateless_shuffle(tf.range(num_samples), seed), seed
