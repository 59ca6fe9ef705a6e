"""A ResNet with batch normalization in the federated computations."""

import functools
import os
import pathlib
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import data, methods, models
from tff_pcdd.data import transforms
from tff_pcdd.federated import SGD, TrainingSpec, build_process, weights
from tff_pcdd.federated.records import ClientData

pytestmark = pytest.mark.integration

CLIENTS, SAMPLES, SIDE, CLASSES = 3, 300, 16, 10

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _images():
    """Some images of CIFAR-10 at half their size, or noise with a pattern for each class."""
    shared = os.environ.get("TFF_PCDD_SHARED") or _ROOT.parent / "shared"
    folder = pathlib.Path(shared) / "data" / "tfds"
    if (folder / "cifar10").is_dir():
        config = data.DataConfig(
            source=data.sources.create("cifar10", data_dir=str(folder)),
            partition=data.partitions.create("iid", num_clients=CLIENTS),
            max_train_samples=SAMPLES,
            max_test_samples=CLASSES,
        )
        train = config.build().train
        halves = train.x.reshape(-1, SIDE, 2, SIDE, 2, 3).mean(axis=(2, 4))
        return halves.astype(np.uint8), train.y
    generator = np.random.default_rng(0)
    y = np.arange(SAMPLES, dtype=np.int32) % CLASSES
    x = generator.normal(100, 40, (SAMPLES, SIDE, SIDE, 3)) + generator.normal(
        0, 40, (CLASSES, SIDE, SIDE, 3)
    ).take(y, axis=0)
    return np.clip(x, 0, 255).astype(np.uint8), y


# That the averages are right is tested in federated/test_process and test_aggregators.
@pytest.mark.rare
def test_averaged_statistics_fit_the_averaged_weights(simulation):
    """The global model classifies as well by its moving statistics as by those of the batch."""
    x, y = _images()
    spec = data.InputSpec("image", (SIDE, SIDE, 3), scale=1 / 255, mean=(0.5,) * 3, std=(0.25,) * 3)
    parts = np.array_split(np.random.default_rng(0).permutation(len(y)), CLIENTS)
    task = methods.TaskSpec(
        num_classes=CLASSES,
        feature_dim=64,
        backbone=functools.partial(models.create("resnet8").build, spec.shape),
        class_counts=np.stack([np.bincount(y[part], minlength=CLASSES) for part in parts]),
    )
    # Statistics lag behind averaged weights while these change: small steps, until most is learned.
    optimizer = SGD(0.02, 0.9, 1e-4, 20.0)
    training_spec = TrainingSpec(methods.create("fedavg"), task, spec, optimizer, 4, 20)
    process = build_process(training_spec)
    state = process.initialize()
    clients = [process.initial_client_state(support.seed_of(k)) for k in range(CLIENTS)]
    for number in range(5):
        datasets = [
            ClientData(
                train=OrderedDict(x=x[part], y=y[part]),
                seed=support.seed_of(number, client),
                cohort_index=np.int32(client),
            )
            for client, part in enumerate(parts)
        ]
        state, clients, _ = process.next(state, clients, datasets)

    net = training_spec.network()
    weights.load(net, state.weights)
    inputs = transforms.normalize(tf.constant(x), spec)
    correct = {}
    for training in (False, True):
        logits = net["head"](net["backbone"](inputs, training=training))
        correct[training] = np.mean(np.argmax(logits, axis=1) == y)
    assert correct[False] > 0.5
    assert abs(correct[False] - correct[True]) < 0.15
    # What the computations report is the eval mode.
    counts = process.evaluate_global(state, OrderedDict(x=x, y=y))
    assert np.sum(counts["correct"]["head"]) / len(y) == pytest.approx(correct[False], abs=0.01)
