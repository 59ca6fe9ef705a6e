"""FedAvg in FedJAX, which trains the clients one after the other.

    python peers/fedjax_program.py WORKLOAD float32

FedJAX' models have parameters only, so that batches are normalized by their own moments and no
moving averages are kept.
"""

from __future__ import annotations

import re
import sys

import fedjax
import jax
import numpy as np
import optax
from common import Workload, serve
from jax import numpy as jnp


def _conv(x, kernel, stride=1, pad=0):
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _simple_cnn(w, x):
    for number in range(2):
        h = _conv(x, w[f"conv_{number}/kernel"]) + w[f"conv_{number}/bias"]
        x = _pool(jax.nn.relu(h))
    x = x.reshape(len(x), -1)
    for number in range(3):
        x = x @ w[f"dense_{number}/kernel"] + w[f"dense_{number}/bias"]
        x = jax.nn.relu(x) if number < 2 else x
    return x


def _resnet18(w, x):
    count = 0

    def conv_norm(x, stride=1, pad=1):
        nonlocal count
        h = _conv(x, w[f"conv_{count}/kernel"], stride, pad)
        mean, variance = h.mean((0, 1, 2)), h.var((0, 1, 2))
        h = (h - mean) * jax.lax.rsqrt(variance + 1e-5)
        h = h * w[f"norm_{count}/gamma"] + w[f"norm_{count}/beta"]
        count += 1
        return h

    x = jax.nn.relu(conv_norm(x))
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            h = conv_norm(jax.nn.relu(conv_norm(x, stride)))
            x = jax.nn.relu(h + (conv_norm(x, stride, 0) if stride == 2 else x))
    return x.mean((1, 2)) @ w["dense_0/kernel"] + w["dense_0/bias"]


_NETWORKS = {"simple_cnn": _simple_cnn, "resnet18": _resnet18}


class Samples:
    """A client's samples, in batches in the workload's order; replaces a `ClientDataset`."""

    def __init__(self, work: Workload, number: int, round_number: int):
        self._work, self._number, self._round = work, number, round_number

    def __len__(self):
        return self._work.labels.shape[1]

    def shuffle_repeat_batch(self, hparams):
        """The batches of a round."""
        x, y = self._work.images[self._number], self._work.labels[self._number]
        for epoch in range(hparams.num_epochs):
            order = self._work.order(self._round, self._number, epoch)
            for start in range(0, len(order), hparams.batch_size):
                index = order[start : start + hparams.batch_size]
                yield {"x": x[index], "y": y[index]}


def make(work: Workload):
    """Functions that compute a round and that return the weights."""
    logits = _NETWORKS[work.model]

    def loss(weights, batch, rng):
        return optax.softmax_cross_entropy_with_integer_labels(
            logits(weights, batch["x"]), batch["y"]
        ).mean()

    optimizer = optax.chain(
        optax.clip_by_global_norm(work.clip_norm or np.inf),
        optax.add_decayed_weights(work.weight_decay),
        optax.sgd(work.learning_rate, work.momentum),
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.create_optimizer_from_optax(optimizer),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(work.batch_size, work.epochs, drop_remainder=True),
    )
    trained = {k: jnp.asarray(v) for k, v in work.weights.items() if not re.search("moving", k)}
    state, rounds = algorithm.init(trained), 0

    def next_round():
        nonlocal state, rounds
        clients = [
            (k, Samples(work, k, rounds), jax.random.PRNGKey(k)) for k in range(work.clients)
        ]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        rounds += 1

    def weights():
        return {name: np.asarray(value) for name, value in state.params.items()}

    return next_round, weights


if __name__ == "__main__":
    serve(*make(Workload(sys.argv[1])), ["fedjax", "jax"])
