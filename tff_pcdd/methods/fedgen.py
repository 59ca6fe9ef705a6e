"""FedGen: data-free knowledge distillation.

Data-Free Knowledge Distillation for Heterogeneous Federated Learning; Z. Zhu, J. Hong, J. Zhou;
ICML 2021.

Differs from FedAvg in a generator of features. It maps noise and a label to a feature that the
clients' heads together take for that label (eq. 4); the server trains it after every round on the
heads that the cohort sent, each weighted class by class with its share of that class's samples, and
on a term for diversity. Clients get it with the weights and add to their loss (eq. 5)
a_t·cross-entropy of the head on generated features of any label, and
b_t·KL(head on generated features of the sample's label ‖ model on the sample). Both fade by 2 % a
round and are off in the first.

Where the paper is open this follows the authors' program: the weighted sum of losses and not the
loss of the summed logits, noise uniform in [0, 1), batch statistics while the generator learns. To
train on one head after another the server has to tell them apart: each client writes its head into
the cohort's slot of its own, and only that is counted as sent. With a = b = 0 it is FedAvg.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from etils import epy

from tff_pcdd.methods.method import Method, Upload, cross_entropy, register
from tff_pcdd.options import option

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_FADE, _FLOOR = 0.98, 1e-4
_WEIGHT_DECAY = 1e-2
_BN_MOMENTUM, _BN_EPSILON = 0.9, 1e-5
# The usual 1e-8 would turn rounding of a gradient near 0 into whole steps, others on every runtime.
_ADAM_BETAS, _ADAM_EPSILON = (0.9, 0.999), 1e-5


@register
@dataclasses.dataclass(frozen=True)
class FedGen(Method):
    """FedAvg with features from a generator that learns from the clients' heads."""

    name = "fedgen"
    degenerate: ClassVar = {"generative": 0.0, "distillation": 0.0}

    generative: float = option(
        10.0, "a, weight of the cross-entropy on generated features.", minimum=0
    )
    distillation: float = option(
        10.0, "b, weight of the distillation from generated features (EMNIST: 1).", minimum=0
    )
    noise_dim: int = option(64, "Width of the generator's noise.", minimum=1)
    hidden_dim: int = option(256, "Width of the generator's hidden layer.", minimum=1)
    output: str = option(
        "relu",
        "The generator's last activation: relu like the backbones' features, or linear for "
        "features behind a projection.",
        choices=("relu", "linear"),
    )
    generator_steps: int = option(50, "Steps of the generator a round.", minimum=1)
    generator_batch: int = option(32, "Features in a step of the generator.", minimum=2)
    generator_learning_rate: float = option(3e-4, "Adam's, for the generator.", above=0)

    # The generator: noise and label → dense, batch normalisation, ReLU → dense.

    def _initial_generator(self, task):
        width = self.noise_dim + task.num_classes
        shapes = [(width, self.hidden_dim), (self.hidden_dim, task.feature_dim)]
        first, second = (
            tf.random.stateless_uniform(shape, [task.seed, number], -1, 1) / shape[0] ** 0.5
            for number, shape in enumerate(shapes)
        )
        hidden = tf.zeros([self.hidden_dim])
        trained = [first, hidden, 1 + hidden, hidden, second, tf.zeros([task.feature_dim])]
        return {"trained": trained, "mean": hidden, "variance": 1 + hidden}

    def _hidden(self, trained, noise, labels, num_classes):
        inputs = tf.concat([noise, tf.one_hot(labels, num_classes)], axis=1)
        return inputs @ trained[0] + trained[1]

    def _generate(self, trained, hidden, mean, variance):
        normal = (hidden - mean) * tf.math.rsqrt(variance + _BN_EPSILON)
        features = tf.nn.relu(normal * trained[2] + trained[3]) @ trained[4] + trained[5]
        return tf.nn.relu(features) if self.output == "relu" else features

    # The client.

    def broadcast(self, server):
        return {"generator": server["generator"], "labels": server["labels"]}

    def _imagine(self, client, labels, seed):
        """Features for labels [n] by the generator as it was sent, in eval mode."""
        generator = client.server["generator"]
        noise = tf.random.stateless_uniform([tf.size(labels), self.noise_dim], seed)
        num_classes = client.class_counts.shape[0]
        hidden = self._hidden(generator["trained"], noise, labels, num_classes)
        return self._generate(
            generator["trained"], hidden, generator["mean"], generator["variance"]
        )

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        loss = cross_entropy(batch.y, logits)
        fade = tf.pow(_FADE, tf.cast(client.round, tf.float32))
        known = tf.cast(client.round > 0, tf.float32)
        seeds = tf.unstack(tf.random.experimental.stateless_split(batch.seed, 3))
        if self.generative:
            labels = draw_labels(client.server["labels"], tf.size(batch.y), seeds[0])
            imagined = net["head"](self._imagine(client, labels, seeds[1]))
            weight = tf.maximum(_FLOOR, self.generative * fade)
            loss += known * weight * cross_entropy(labels, imagined)
        if self.distillation:
            teacher = tf.stop_gradient(net["head"](self._imagine(client, batch.y, seeds[2])))
            weight = tf.maximum(_FLOOR, self.distillation * fade)
            loss += known * weight * divergence(teacher, logits)
        return loss, {}

    def constants(self, class_counts, task):
        return {"slots": tf.zeros([task.cohort_size])}

    def upload(self, net, client, reduce):
        num_slots = client.constants["slots"].shape[0]
        slot = tf.one_hot(client.slot, num_slots)
        sums = {
            "kernels": slot[:, None, None] * net["head"].kernel,
            "biases": slot[:, None] * net["head"].bias,
            "counts": slot[:, None] * client.class_counts,
        }
        return Upload(sums, client.state, 1 / num_slots)

    # The server.

    def server_state(self, net, task):
        generator = self._initial_generator(task)
        zeros = [tf.zeros_like(value) for value in generator["trained"]]
        return {
            "generator": generator,
            "adam": {"mean": zeros, "square": zeros},
            "labels": tf.zeros([task.num_classes]),
            "seed": tf.constant([task.seed, 0]),
        }

    def server_update(self, weights, change, server, sums, cohort_size):
        weights, _ = super().server_update(weights, change, server, sums, cohort_size)
        # Labels of which some client has more than one sample; their share at each client.
        labels = tf.cast(tf.reduce_any(sums["counts"] > 1, axis=0), tf.float32)
        shares = tf.math.divide_no_nan(sums["counts"], tf.reduce_sum(sums["counts"], axis=0))
        rounds = server["seed"][1]
        state = (server["generator"], server["adam"])
        rate = self.generator_learning_rate * tf.pow(_FADE, tf.cast(rounds, tf.float32))
        if self.generative or self.distillation:

            def learn(step, state):
                seed = tf.random.experimental.stateless_fold_in(server["seed"], step)
                done = rounds * self.generator_steps + step
                return step + 1, self._learn(*state, sums, shares, labels, seed, done, rate)

            some = tf.reduce_any(labels > 0)
            _, state = tf.while_loop(
                lambda step, _: tf.logical_and(some, step < self.generator_steps),
                learn,
                (tf.constant(0), state),
            )
        generator, adam = state
        return weights, {
            "generator": generator,
            "adam": adam,
            "labels": labels,
            "seed": server["seed"] + [0, 1],
        }

    def _learn(self, generator, adam, heads, shares, labels, seed, done, rate):
        """One step of the generator against the heads of the cohort."""
        size, num_classes = self.generator_batch, shares.shape[1]
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        noise = tf.random.stateless_uniform([size, self.noise_dim], seeds[0])
        drawn = draw_labels(labels, size, seeds[1])
        trained = generator["trained"]
        with tf.GradientTape() as tape:
            tape.watch(trained)
            hidden = self._hidden(trained, noise, drawn, num_classes)
            mean, variance = tf.nn.moments(hidden, axes=[0])
            features = self._generate(trained, hidden, mean, variance)
            # [slots, batch, classes]
            logits = tf.einsum("bd,sdc->sbc", features, heads["kernels"])
            logits += heads["biases"][:, None]
            answers = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.broadcast_to(drawn, [logits.shape[0], size]), logits=logits
            )
            taught = tf.reduce_mean(
                tf.reduce_sum(tf.gather(shares, drawn, axis=1) * answers, axis=0)
            )
            decay = _WEIGHT_DECAY * tf.add_n([tf.nn.l2_loss(value) for value in trained])
            loss = taught + diversity(noise, features) + decay
        gradients = tape.gradient(loss, trained)
        trained, adam = adam_step(trained, gradients, adam, done, rate)
        kept = _BN_MOMENTUM
        unbiased = variance * size / (size - 1)
        generator = {
            "trained": trained,
            "mean": kept * generator["mean"] + (1 - kept) * mean,
            "variance": kept * generator["variance"] + (1 - kept) * unbiased,
        }
        return generator, adam


def draw_labels(available: tf.Tensor, count, seed: tf.Tensor) -> tf.Tensor:
    """Labels [count], uniform over those whose entry in `available` [C] is above 0."""
    logits = losses.mask_logits(tf.zeros_like(available)[None], available)
    return tf.random.stateless_categorical(logits, count, seed, dtype=tf.int32)[0]


def divergence(teacher: tf.Tensor, student: tf.Tensor) -> tf.Tensor:
    """Mean KL(softmax(teacher) ‖ softmax(student)) over rows of logits [batch, C]."""
    log_p, log_q = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    return tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=1))


def diversity(noise: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """exp(-mean over pairs of noise distance × feature distance): 1 where all features are equal.

    Args:
        noise: [batch, width]; their distance is the mean squared difference.
        features: [batch, d]; theirs is the mean absolute difference.
    """
    far_noise = tf.reduce_mean(tf.square(noise[:, None] - noise), axis=2)
    far_features = tf.reduce_mean(tf.abs(features[:, None] - features), axis=2)
    return tf.exp(-tf.reduce_mean(far_noise * far_features))


def adam_step(values, gradients, adam, done, rate):
    """Adam as a function, for a state that travels as data.

    Args:
        values: tensors.
        gradients: theirs.
        adam: {"mean": [...], "square": [...]}.
        done: int32, steps before this one.
        rate: step size.

    Returns:
        The new values and the new `adam`.
    """
    time = tf.cast(done + 1, tf.float32)
    corrections = [1 - tf.pow(beta, time) for beta in _ADAM_BETAS]

    def mix(beta, old, new):
        return [beta * o + (1 - beta) * n for o, n in zip(old, new, strict=True)]

    mean = mix(_ADAM_BETAS[0], adam["mean"], gradients)
    square = mix(_ADAM_BETAS[1], adam["square"], [tf.square(g) for g in gradients])
    moved = [
        value - rate * m / corrections[0] / (tf.sqrt(s / corrections[1]) + _ADAM_EPSILON)
        for value, m, s in zip(values, mean, square, strict=True)
    ]
    return moved, {"mean": mean, "square": square}
