"""Federations of a small network in NumPy: data, network, derivatives and training.

The network is tanh(x·A + a), a batch normalization, and a linear head. Derivatives are those of a
complex step, exact to rounding; the real part of a value is therefore the value without gradient.
Clients train on batches of their samples, in order; the last batch of some is smaller. Sizes and
classes are unequal, cohorts are parts of the federation, one client is empty and one never takes
part.
"""

import numpy as np

CLASSES, INPUTS, WIDTH = 3, 3, 4
EPOCHS, BATCH, ROUNDS = 2, 4, 4
RATE, MOMENTUM, DECAY = 0.3, 0.5, 0.02
COHORTS = [[0, 1], [3, 4, 1], [2, 0], [3, 2]]
LABELS = [[0, 1, 1, 0, 1, 0, 1], [1, 2, 2, 1], [0, 1, 2], [2] * 5, [], [0, 2, 2, 0]]
EVERYBODY = range(len(LABELS))

BACKBONE = ["A", "a", "scale", "offset"]
STATISTICS = ["mean", "variance"]
HEAD = ["W", "b"]


def inputs(client):
    """A client's inputs, which depend on the class."""
    labels = np.array(LABELS[client], int)
    noise = np.random.default_rng(client).normal(size=(len(labels), INPUTS))
    return np.float32(noise + np.eye(INPUTS)[labels])


def counts(client):
    return np.bincount(np.array(LABELS[client], int), minlength=CLASSES)


def server_samples(number):
    """Inputs and labels of the server, a number of each class."""
    labels = np.repeat(np.arange(CLASSES, dtype=np.int32), number)
    noise = np.random.default_rng(11).normal(size=(len(labels), INPUTS))
    return np.float32(noise + np.eye(INPUTS)[labels]), labels


# The network. Values are dicts of arrays by name.


def _hidden(v, x, prefix=""):
    return np.tanh(x @ v[prefix + "A"] + v[prefix + "a"])


def features(v, x, training, prefix=""):
    """What the head receives; training normalizes by the moments of the batch."""
    h = _hidden(v, x, prefix)
    mean, variance = v[prefix + "mean"], v[prefix + "variance"]
    if training:
        mean = h.mean(axis=0)
        variance = ((h - mean) ** 2).mean(axis=0)
    normal = (h - mean) / np.sqrt(variance + 1e-5)
    return normal * v[prefix + "scale"] + v[prefix + "offset"]


def cross_entropy(logits, labels):
    """The mean over samples; complex numbers need no protection from overflow here."""
    total = np.log(np.exp(logits).sum(axis=1))
    return (total - logits[np.arange(len(labels)), labels]).mean()


def length(values, axis):
    return np.sqrt((values * values).sum(axis=axis, keepdims=True))


def unit(values, axis=1):
    """Vectors of length 1; a zero vector stays, and has no derivative."""
    zero = (values.real == 0).all(axis=axis, keepdims=True)
    return np.where(zero, 0, values / np.where(zero, 1, length(values, axis)))


def gradient(loss, values, name):
    """The derivative of loss(values) by the array values[name]."""
    result = np.zeros(np.shape(values[name]))
    for index in np.ndindex(result.shape):
        moved = np.array(values[name], complex)
        moved[index] += 1e-30j
        result[index] = np.imag(loss({**values, name: moved})) / 1e-30
    return result


def move_averages(values, x, prefix=""):
    """Moves the averages of a normalization towards the moments of a batch, in place."""
    h = _hidden(values, x, prefix)
    moments = {"mean": h.mean(axis=0), "variance": h.var(axis=0, ddof=1)}
    for name, moment in moments.items():
        values[prefix + name] = 0.9 * values[prefix + name] + 0.1 * moment


def batches(x, y):
    """The batches of an epoch; one sample is a batch only if there are no others."""
    starts = range(0, len(x), BATCH)
    return [(x[s : s + BATCH], y[s : s + BATCH]) for s in starts if s == 0 or len(x) - s > 1]


def train(values, names, loss, epochs, x, y, statistics_of=("",), rate=RATE, plain=False):
    """Trains the named arrays; networks in `statistics_of` move their averages before each step.

    `loss(x, y)` is the loss of a batch as a function of the values. Plain training has neither
    momentum nor weight decay.
    """
    momentum, decay = (0.0, 0.0) if plain else (MOMENTUM, DECAY)
    values = dict(values)
    velocity = dict.fromkeys(names, 0.0)
    for rows, labels in epochs * batches(x, y):
        of_batch = loss(rows, labels)
        gradients = {name: gradient(of_batch, values, name) for name in names}
        for prefix in statistics_of:
            move_averages(values, rows, prefix)
        for name in names:
            velocity[name] = momentum * velocity[name] + gradients[name] + decay * values[name]
            values[name] = values[name] - rate * velocity[name]
    return values
