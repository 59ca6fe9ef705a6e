"""Validation samples: how many of each class, and that they are excluded from training."""

import dataclasses

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import settings as flat
from tff_pcdd.data import DataConfig, partitions
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
    """A quarter of 7, 6 and 5 samples is 1.75, 1.5 and 1.25, together 4.5, rounded to 4."""
    labels = np.repeat([0, 1, 2], [7, 6, 5])
    assert counts(labels, hold_out(labels, 0.25, 0)) == [2, 1, 1, 0]
    # Ties are broken at random: half of two classes of 3 samples is 1.5 each.
    even = np.repeat([0, 1], [3, 3])
    first = [counts(even, hold_out(even, 0.5, seed))[0] for seed in range(20)]
    assert set(first) == {1, 2}


def test_whole_groups_are_held_out_in_about_the_share_of_each_class():
    generator = np.random.default_rng(5)
    groups = generator.integers(0, 60, 600)
    labels = groups % 3
    held = hold_out(labels, 0.25, 1, groups)
    assert np.array_equal(held, hold_out(labels, 0.25, 1, groups))
    assert set(groups[held]).isdisjoint(np.delete(groups, held))
    largest = np.bincount(groups).max()
    for label in range(3):
        of_class = (labels == label).sum()
        assert abs((labels[held] == label).sum() - 0.25 * of_class) <= largest
    assert abs(len(held) - 150) <= largest
    # The last group of a class stays in training, however many are asked for.
    rest = np.delete(np.arange(600), hold_out(labels, 0.9, 1, groups))
    assert set(labels[rest]) == {0, 1, 2}
    assert hold_out(labels[:0], 0.5, 0, groups[:0]).size == 0
    assert hold_out(np.zeros(9, int), 0.5, 0, np.zeros(9)).size == 0


@pytest.mark.parametrize(
    "settings", [{"partition": "class", "classes_per_client": 2}, {"partition": "iid"}]
)
def test_held_out_samples_are_taken_from_training(settings):
    settings = {"num_clients": 5, "data_seed": 3, **settings}
    whole = flat.build(DataConfig, settings).build()
    divided = flat.build(DataConfig, {**settings, "validation_fraction": 0.2}).build()
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
    config = DataConfig(partition=partitions.create("iid", num_clients=5), validation_fraction=0.2)
    first, again = (config.build().clients[2].validation for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = dataclasses.replace(config, seed=1).build().clients[2].validation
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("fraction", "reason"),
    [
        (1.0, "must be at most 0.9"),
        (-0.1, "must be at least 0"),
        (0.001, "no client has enough samples to hold one out; choose a larger fraction"),
    ],
)
def test_refusals(fraction, reason):
    partition = partitions.create("iid", num_clients=5)
    with refuses("validation_fraction", reason):
        DataConfig(partition=partition, validation_fraction=fraction).build()
