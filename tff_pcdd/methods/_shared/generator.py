"""FedGen's feature generator and its training, as functions of tensors.

The server sends the generator to the clients as data, so its parameters are tensors and not
variables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd import losses

_WEIGHT_DECAY = 1e-2
_BN_MOMENTUM, _BN_EPSILON = 0.9, 1e-5
# With the usual 1e-8, rounding errors of gradients near 0 become steps of full length, which differ
# between runtimes.
_ADAM_BETAS, _ADAM_EPSILON = (0.9, 0.999), 1e-5


@dataclasses.dataclass(frozen=True)
class Generator:
    """Maps noise and a label to features: dense, batch normalization, ReLU, dense.

    Its parameters are a dict: `trained`, a list of six tensors; `mean` and `variance`, the moving
    statistics [hidden_dim] of the batch normalization.

    Attributes:
        noise_dim: width of the noise.
        hidden_dim: width of the hidden layer.
        output: the last activation, "relu" or "linear".
    """

    noise_dim: int
    hidden_dim: int
    output: str

    def initial(self, num_classes: int, feature_dim: int, seed: int) -> dict[str, Any]:
        """Initial parameters; weights are uniform in ±1/sqrt(width of their input)."""
        width = self.noise_dim + num_classes
        shapes = [(width, self.hidden_dim), (self.hidden_dim, feature_dim)]
        first, second = (
            tf.random.stateless_uniform(shape, [seed, number], -1, 1) / shape[0] ** 0.5
            for number, shape in enumerate(shapes)
        )
        hidden = tf.zeros([self.hidden_dim])
        trained = [first, hidden, 1 + hidden, hidden, second, tf.zeros([feature_dim])]
        return {"trained": trained, "mean": hidden, "variance": 1 + hidden}

    def infer(
        self, parameters: dict[str, Any], noise: tf.Tensor, labels: tf.Tensor, num_classes: int
    ) -> tf.Tensor:
        """Features [n, d] of noise [n, noise_dim] and labels [n], with the moving statistics."""
        trained = parameters["trained"]
        hidden = self._hidden(trained, noise, labels, num_classes)
        return self._output(trained, hidden, parameters["mean"], parameters["variance"])

    def train(
        self,
        parameters: dict[str, Any],
        adam: dict[str, list[tf.Tensor]],
        heads: Mapping[str, tf.Tensor],
        shares: tf.Tensor,
        batch: tuple[tf.Tensor, tf.Tensor],
        done: tf.Tensor,
        rate: tf.Tensor,
    ) -> tuple[dict[str, Any], dict[str, list[tf.Tensor]]]:
        """One training step on the heads of the cohort (eq. 4), with weight decay.

        Args:
            parameters: of the generator.
            adam: the state of `adam_step`.
            heads: `kernels` [clients, d, C] and `biases` [clients, C].
            shares: each client's share of the samples of a class, [clients, C].
            batch: noise [n, noise_dim] and labels [n].
            done: int32 scalar, number of previous steps.
            rate: learning rate.

        Returns:
            The new parameters and the new `adam`.
        """
        (noise, labels), trained = batch, parameters["trained"]
        with tf.GradientTape() as tape:
            tape.watch(trained)
            hidden = self._hidden(trained, noise, labels, shares.shape[1])
            mean, variance = tf.nn.moments(hidden, axes=[0])
            features = self._output(trained, hidden, mean, variance)
            # [clients, batch, classes]
            logits = tf.einsum("bd,sdc->sbc", features, heads["kernels"])
            logits += heads["biases"][:, None]
            entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.broadcast_to(labels, [logits.shape[0], noise.shape[0]]), logits=logits
            )
            taught = tf.reduce_mean(
                tf.reduce_sum(tf.gather(shares, labels, axis=1) * entropies, axis=0)
            )
            decay = _WEIGHT_DECAY * tf.add_n([tf.nn.l2_loss(value) for value in trained])
            loss = taught + losses.diversity(noise, features) + decay
        gradients = tape.gradient(loss, trained)
        new, adam = adam_step(trained, gradients, adam, done, rate)
        return {"trained": new, **self._moved(parameters, mean, variance, noise.shape[0])}, adam

    def _moved(self, parameters, mean, variance, size):
        """The moving statistics after a batch with a mean and a biased variance."""
        kept = _BN_MOMENTUM
        unbiased = variance * size / (size - 1)
        return {
            "mean": kept * parameters["mean"] + (1 - kept) * mean,
            "variance": kept * parameters["variance"] + (1 - kept) * unbiased,
        }

    def _hidden(self, trained, noise, labels, num_classes):
        inputs = tf.concat([noise, tf.one_hot(labels, num_classes)], axis=1)
        return inputs @ trained[0] + trained[1]

    def _output(self, trained, hidden, mean, variance):
        normal = (hidden - mean) * tf.math.rsqrt(variance + _BN_EPSILON)
        features = tf.nn.relu(normal * trained[2] + trained[3]) @ trained[4] + trained[5]
        return tf.nn.relu(features) if self.output == "relu" else features


def adam_step(
    values: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    adam: dict[str, list[tf.Tensor]],
    done: tf.Tensor,
    rate: tf.Tensor,
) -> tuple[list[tf.Tensor], dict[str, list[tf.Tensor]]]:
    """One step of Adam after `done` steps, with its moving averages passed as data."""
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
