"""Local training: phases of SGD on one client's samples, or on the server's own."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_pcdd import layers
from tff_pcdd.data import transforms
from tff_pcdd.federated.batches import count_classes, fold_in, steps_per_epoch
from tff_pcdd.federated.tracing import function, repeat
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

    Args:
        spec: what is computed in a round.
        net: the network that is trained.
        variables: all variables that training may move; each gets a momentum variable.
    """

    def __init__(self, spec: TrainingSpec, net: Network, variables: Sequence[tf.Variable]) -> None:
        self._spec = spec
        self._net = net
        self._momenta = {
            variable.ref(): momentum
            for variable in variables
            for momentum in spec.optimizer.momenta([variable])
        }

    def begin(
        self,
        message: Mapping[str, Any],
        state: Mapping[str, Any],
        data: Mapping[str, Any],
        phases: Sequence[Phase],
    ) -> Client:
        """Loads into the network what the client trains or evaluates.

        Args:
            message: from the server, see `tff_pcdd.federated.state`.
            state: the client's state.
            data: `train` examples, `seed` int32 [2] and `cohort_index` int32.
            phases: the phases of the training that follows.

        Returns:
            What is known at the client.
        """
        spec, net, weights = self._spec, self._net, message["weights"]
        load(net, weights, state["personal"])
        # A client that has never trained has no mirrored variables of its own; it starts from the
        # mean.
        fresh = tf.equal(state["participations"], 0)
        for variable, mean in zip(net.mirrored.all, weights["mirrored"], strict=True):
            variable.assign(tf.where(fresh, mean, variable))
        labels = data["train"]["y"]
        counts = tf.cast(count_classes(labels, spec.task.num_classes), tf.float32)
        steps = steps_per_epoch(tf.size(labels), spec.batch_size)
        client = Client(
            class_counts=counts,
            constants=spec.method.constants(counts, spec.task),
            anchor=weights["trainable"],
            state=state["own"],
            server=message["server"],
            round=message["round"],
            steps=steps * sum(phase.epochs for phase in phases),
            seed=fold_in(data["seed"], _CLIENT_DRAWS),
            cohort_index=data["cohort_index"],
            optimizer=spec.optimizer,
        )
        spec.method.begin(net, client)
        return client

    def run(
        self,
        phases: Sequence[Phase],
        examples: Mapping[str, tf.Tensor],
        client: Client,
        seed: tf.Tensor,
    ) -> OrderedDict[str, tf.Tensor]:
        """Runs phases of training, each with momentum from zero.

        Args:
            phases: in order.
            examples: the training samples, as stored.
            client: as returned by `begin`.
            seed: int32 [2], determines the order of samples, augmentation and dropout.

        Returns:
            Float32 scalars: `loss` and the method's metrics, summed over samples, and the number of
            `samples`, where a sample counts once per epoch.
        """
        names = ("loss", *self._spec.method.metric_names)
        totals = tf.zeros([len(names) + 1])
        for number, phase in enumerate(phases):
            for momentum in self._momenta_of(phase.variables):
                momentum.assign(tf.zeros_like(momentum))
            step = self._make_step(phase, client)
            phase_seed = fold_in(seed, number)
            totals = repeat(
                phase.epochs, functools.partial(self._epoch, step, examples, phase_seed), totals
            )
        return OrderedDict(zip((*names, "samples"), tf.unstack(totals), strict=True))

    def _epoch(
        self,
        step: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
        examples: Mapping[str, tf.Tensor],
        phase_seed: tf.Tensor,
        epoch: tf.Tensor,
        totals: tf.Tensor,
    ) -> tf.Tensor:
        """Takes the steps of an epoch; returns the totals with theirs."""
        batch_size = self._spec.batch_size
        num_samples = tf.size(examples["y"])
        epoch_seed = fold_in(phase_seed, epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(num_samples), seed=epoch_seed)

        def add_step(number, totals):
            index = order[number * batch_size : (number + 1) * batch_size]
            x, y = tf.gather(examples["x"], index), tf.gather(examples["y"], index)
            return totals + step(x, y, fold_in(epoch_seed, number))

        return repeat(steps_per_epoch(num_samples, batch_size), add_step, totals)

    def _momenta_of(self, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
        """The momenta of variables; an empty list without momentum."""
        return [self._momenta[v.ref()] for v in variables if self._momenta]

    def _make_step(
        self, phase: Phase, client: Client
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
        spec, method, net = self._spec.input_spec, self._spec.method, self._net
        optimizer = self._spec.optimizer
        if phase.learning_rate is not None:
            optimizer = dataclasses.replace(optimizer, learning_rate=phase.learning_rate)
        if phase.plain:
            optimizer = dataclasses.replace(optimizer, momentum=0.0, weight_decay=0.0)
        groups = phase.groups

        def step(x, y, seed):
            """Takes a step; returns metrics times samples and number of samples, float32 [m +
            1]."""
            x = transforms.normalize(transforms.augment(x, spec, seed), spec)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(phase.variables)
                with layers.dropout_seed(seed):
                    loss, metrics = phase.loss(net, Batch(x, y, seed), client)
            for group, gradients in zip(groups, tape.gradient(loss, groups), strict=True):
                optimizer.apply(gradients, group, self._momenta_of(group))
            # Fine-tuning of a personal model returns no metrics besides its loss.
            scalars = [loss, *(metrics.get(name, 0.0) for name in method.metric_names), 1.0]
            return tf.stack(scalars) * tf.cast(tf.size(y), tf.float32)

        return function(step, net, jit_compile=True) if self._spec.jit_compile else step
