"""Validation samples: how many of each class, and that nobody trains on them."""

import dataclasses

import numpy as np
import pytest

from tff_pcdd.data import DataConfig, DataError
from tff_pcdd.data.holdout import hold_out


def counts(labels, indices, classes=4):
    return np.bincount(np.asarray(labels)[indices], minlength=classes).tolist()


def test_classes_keep_their_shares():
    labels = np.repeat([0, 1, 2], [40, 20, 10])
    held = hold_out(labels, 0.2, 0)
    assert counts(labels, held) == [8, 4, 2, 0]
    assert np.array_equal(held, np.unique(held))
    np.testing.assert_array_equal(held, hold_out(labels, 0.2, 0))
    assert not np.array_equal(held, hold_out(labels, 0.2, 1))


def test_every_class_keeps_a_sample_for_training():
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    held = hold_out(labels, 0.9, 0)
    assert counts(labels, held) == [0, 1, 2, 3]
    assert hold_out(labels[:1], 0.9, 0).size == 0
    assert hold_out(labels[:0], 0.5, 0).size == 0


def test_what_rounding_leaves_over_goes_to_the_largest_remainders():
    """A quarter of 7, 6 and 5 samples is 1.75, 1.5 and 1.25, together 4.5, in print 4."""
    labels = np.repeat([0, 1, 2], [7, 6, 5])
    assert counts(labels, hold_out(labels, 0.25, 0)) == [2, 1, 1, 0]
    # Where remainders tie, no class is preferred: half of two classes of 3 is 1.5 each.
    even = np.repeat([0, 1], [3, 3])
    first = [counts(even, hold_out(even, 0.5, seed))[0] for seed in range(20)]
    assert set(first) == {1, 2}


@pytest.mark.parametrize(
    "settings", [{"partition": "class", "classes_per_client": 2}, {"partition": "iid"}]
)
def test_held_out_samples_are_taken_from_training(settings):
    whole = DataConfig(num_clients=5, seed=3, **settings).build()
    divided = DataConfig(num_clients=5, seed=3, validation_fraction=0.2, **settings).build()
    for before, after in zip(whole.clients, divided.clients, strict=True):
        np.testing.assert_array_equal(
            np.sort(np.concatenate([after.train, after.validation])), np.sort(before.train)
        )
        np.testing.assert_array_equal(after.test, before.test)
        assert after.validation.size == round(0.2 * before.train.size)
    np.testing.assert_array_equal(divided.class_counts() > 0, whole.class_counts() > 0)
    held = divided.validation_examples()
    assert len(held) == sum(c.validation.size for c in divided.clients)
    assert len(held) + len(divided.training_examples()) == len(whole.train)
    assert divided.summary()["validation_samples"] == len(held)
    second = divided.validation_examples(1)
    np.testing.assert_array_equal(second.x, divided.train.x[divided.clients[1].validation])
    assert len(whole.validation_examples()) == 0
    assert whole.training_examples() is whole.train


def test_it_is_drawn_by_the_data_seed():
    config = DataConfig(num_clients=5, partition="iid", validation_fraction=0.2)
    first, again = (config.build().clients[2].validation for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = dataclasses.replace(config, seed=1).build().clients[2].validation
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("fraction", "message"),
    [
        (1.0, "validation_fraction=1.0: must be at least 0 and less than 1"),
        (-0.1, "validation_fraction=-0.1: must be at least 0"),
        (0.001, "validation_fraction=0.001: holds out no sample of any client; give more"),
    ],
)
def test_refusals(fraction, message):
    with pytest.raises(DataError, match=message):
        DataConfig(num_clients=5, partition="iid", validation_fraction=fraction).build()
