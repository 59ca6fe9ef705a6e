"""From settings to federations: digits in every partition, and every refusal."""

import doctest

import numpy as np
import pytest

from tff_pcdd import data
from tff_pcdd.data import DataConfig, DataError, config, federation, long_tail, partitioners

CLASS = {"dataset": "digits", "partition": "class", "num_clients": 10, "classes_per_client": 2}


@pytest.mark.parametrize(
    "settings",
    [
        CLASS,
        {"partition": "dirichlet", "num_clients": 5, "concentration": 0.5},
        {
            "partition": "dirichlet",
            "num_clients": 5,
            "concentration": 0.5,
            "assignment": "sample",
            "imbalance_factor": 20,
            "min_samples": 2,
        },
        {"partition": "iid", "num_clients": 7},
    ],
)
def test_digits_are_divided_completely(settings):
    built = DataConfig(**settings).build()
    for part, examples in (("train", built.train), ("test", built.test)):
        indices = np.concatenate([getattr(client, part) for client in built.clients])
        assert np.array_equal(np.sort(indices), np.arange(len(examples)))
    assert built.num_clients == settings["num_clients"]
    assert built.class_names == tuple("0123456789")
    assert built.input_spec.scale == 1 / 16


def test_load_federation_is_the_same():
    built = DataConfig(**CLASS, seed=4).build()
    loaded = data.load_federation("digits", "class", 10, classes_per_client=2, seed=4)
    assert np.array_equal(built.class_counts(), loaded.class_counts())
    other = data.load_federation("digits", "class", 10, classes_per_client=2, seed=5)
    assert not np.array_equal(built.class_counts(), other.class_counts())


def test_client_ids_sort_in_order():
    built = data.load_federation("digits", "iid", 12)
    assert built.client_ids[:3] == ("00", "01", "02")
    assert sorted(built.client_ids) == list(built.client_ids)


def test_long_tail_precedes_the_partition():
    built = data.load_federation("digits", "iid", 4, imbalance_factor=10)
    assert np.array_equal(built.class_counts().sum(axis=0), data.long_tail_counts(139, 10, 10))
    assert len(built.test) == 359


def test_subsets_keep_class_shares_and_precede_the_long_tail():
    built = data.load_federation("digits", "iid", 4, max_train_samples=200, max_test_samples=50)
    assert len(built.train) == 200
    assert len(built.test) == 50
    assert np.ptp(np.bincount(built.train.y)) <= 2
    tailed = data.load_federation("digits", "iid", 4, max_train_samples=200, imbalance_factor=10)
    largest = np.bincount(built.train.y).min()
    assert np.array_equal(np.bincount(tailed.train.y), data.long_tail_counts(largest, 10, 10))
    more = data.load_federation("digits", "iid", 4, max_train_samples=10**6)
    assert len(more.train) == 1438


def test_overlapping_local_tests_reach_the_federation():
    built = DataConfig(
        partition="dirichlet",
        num_clients=4,
        concentration=1.0,
        assignment="sample",
        local_test="overlapping",
        imbalance_factor=10,
    ).build()
    counts = built.class_counts()
    wanted = np.minimum(counts * 359 // counts.sum(), np.bincount(built.test.y))
    assert np.array_equal(built.test_class_counts(), wanted)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "mnist"}, "dataset='mnist': choose one of"),
        ({"partition": "shards"}, "partition='shards': choose one of class, dirichlet"),
        ({"num_clients": None}, "partition=class: num_clients is missing"),
        ({"num_clients": 0}, "num_clients=0: must be a positive integer"),
        ({"num_clients": -3}, "num_clients=-3: must be a positive integer"),
        ({"classes_per_client": 0}, "classes_per_client=0: must be a positive"),
        ({"classes_per_client": None}, "partition=class: classes_per_client is missing"),
        ({"classes_per_client": 11}, "classes_per_client=11: digits has 10 classes"),
        ({"num_clients": 4}, "4 clients .* at least 5 clients or 3 classes per client"),
        ({"partition": "iid"}, "classes_per_client=2 belongs to partition=class, not to iid"),
        ({"concentration": 0.5}, "concentration=0.5 belongs to partition=dirichlet"),
        ({"min_samples": 5}, "min_samples=5 belongs to partition=dirichlet"),
        ({"assignment": "sample"}, "assignment=sample belongs to partition=dirichlet"),
        ({"local_test": "overlapping"}, "local_test=overlapping belongs to"),
        ({"max_train_samples": 0}, "max_train_samples=0: must be a positive"),
        ({"max_test_samples": -1}, "max_test_samples=-1: must be a positive"),
        ({"max_train_samples": 9}, "max_train_samples=9 does not give every one of 10 clients"),
        ({"seed": -1}, "seed=-1"),
        ({"imbalance_factor": 0.01}, "imbalance_factor=0.01"),
        ({"imbalance_factor": float("inf")}, "imbalance_factor=inf"),
        ({"augmentation": "x"}, "augmentation='x'"),
        ({"input_normalization": "imagenet"}, "digits has none"),
        (
            {"partition": "natural", "classes_per_client": None},
            "partition=natural: digits has no users of its own",
        ),
    ],
)
def test_refusals_before_anything_is_loaded(settings, message, monkeypatch):
    monkeypatch.setattr(config.sources, "load_source", lambda *_: pytest.fail("loaded"))
    with pytest.raises(DataError, match=message) as caught:
        DataConfig(**{**CLASS, **settings}).build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concentration": None}, "concentration is missing"),
        ({"concentration": 0.0}, "concentration=0.0: must be greater"),
        ({"concentration": float("nan")}, "concentration=nan: must be greater"),
        ({"min_samples": -1}, "min_samples=-1"),
        ({"assignment": "x"}, "assignment='x': choose class or sample"),
        ({"local_test": "x"}, "local_test='x': choose disjoint or overlapping"),
        ({"num_clients": 200}, "need 2000 training samples, there are 1438"),
    ],
)
def test_refusals_of_dirichlet(settings, message):
    with pytest.raises(DataError, match=message):
        DataConfig(
            **{"partition": "dirichlet", "num_clients": 5, "concentration": 0.5, **settings}
        ).build()


def test_too_few_samples_for_iid():
    with pytest.raises(DataError, match="at most 1438 clients"):
        data.load_federation("digits", "iid", 2000)


def test_too_strong_a_tail_for_the_subset():
    with pytest.raises(DataError, match="imbalance_factor=100 leaves the last class"):
        data.load_federation("digits", "iid", 4, max_train_samples=200, imbalance_factor=100)


@pytest.mark.parametrize("module", [config, federation, long_tail, partitioners])
def test_examples_in_docstrings(module):
    names = {"np": np, **{name: getattr(data, name) for name in data.__all__}}
    results = doctest.testmod(module, extraglobs=names)
    assert results.attempted
    assert not results.failed
