"""From settings to federations: digits in every partition, and every refusal."""

import dataclasses

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import data, settings
from tff_pcdd.data import DataConfig, partitions, sources
from tff_pcdd.data.sources.digits import Digits

CLASS = {"dataset": "digits", "partition": "class", "num_clients": 10, "classes_per_client": 2}


def _config(**values):
    return settings.build(DataConfig, values)


@pytest.mark.parametrize(
    "values",
    [
        CLASS,
        {**CLASS, "class_order": "shuffled"},
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
        {"partition": "quantity", "num_clients": 7, "size_concentration": 1.5},
        {"partition": "shards", "num_clients": 7, "shards_per_client": 3},
    ],
)
def test_digits_are_divided_completely(values):
    built = _config(**values).build()
    for part, examples in (("train", built.train), ("test", built.test)):
        indices = np.concatenate([getattr(client, part) for client in built.clients])
        assert np.array_equal(np.sort(indices), np.arange(len(examples)))
    assert built.num_clients == values["num_clients"]
    assert built.class_names == tuple("0123456789")
    assert built.input_spec.scale == 1 / 16


def test_load_federation_is_the_same():
    built = _config(**CLASS, data_seed=4).build()
    loaded = data.load_federation("digits", "class", 10, classes_per_client=2, seed=4)
    assert np.array_equal(built.class_counts(), loaded.class_counts())
    other = data.load_federation("digits", "class", 10, classes_per_client=2, seed=5)
    assert not np.array_equal(built.class_counts(), other.class_counts())


def test_settings_can_be_objects():
    config = DataConfig(
        Digits(augmentation="standard"),
        partitions.create("dirichlet", num_clients=5, concentration=0.3),
        max_train_samples=700,
        seed=2,
    )
    flat = {
        "dataset": "digits",
        "augmentation": "standard",
        "partition": "dirichlet",
        "num_clients": 5,
        "concentration": 0.3,
        "max_train_samples": 700,
        "data_seed": 2,
    }
    assert config == _config(**flat)
    assert flat.items() <= settings.flatten(config).items()
    assert _config(**settings.flatten(config)) == config


def test_defaults():
    config = DataConfig()
    assert config == _config(**CLASS) == _config()
    assert (config.source.name, config.partition.name) == ("digits", "class")
    assert config == _config(num_clients=None, classes_per_client=None)
    dirichlet = _config(partition="dirichlet").partition
    assert (dirichlet.concentration, dirichlet.min_samples) == (0.5, 10)
    assert (dirichlet.assignment, dirichlet.local_test) == ("class", "disjoint")


def test_no_seed_counts_as_zero():
    first, second = (_config(**CLASS, data_seed=seed).build() for seed in (None, 0))
    assert np.array_equal(first.class_counts(), second.class_counts())


def test_flat_settings_are_those_of_the_sources_and_partitions():
    known = {setting.name: setting for setting in settings.describe(DataConfig)}
    assert known["classes_per_client"].applies_to == ("class",)
    assert known["num_clients"].applies_to == ("class", "dirichlet", "iid", "quantity", "shards")
    assert known["max_clients"].applies_to == ("natural",)
    assert known["num_classes"].applies_to == (
        *("femnist", "leaf_synthetic", "sent140", "shakespeare"),
    )
    assert known["split_centres"].applies_to == ("fed_isic2019",)
    assert "digits" not in known["data_dir"].applies_to
    assert set(known["augmentation"].applies_to) == set(known["input_normalization"].applies_to)
    assert {"shakespeare", "tff_shakespeare"}.isdisjoint(known["augmentation"].applies_to)
    seeds = {"data_seed", "new_clients_seed"}
    assert {known[name].group for name in seeds} == {"Seeds"}
    assert {setting.group for name, setting in known.items() if name not in seeds} == {"Data"}


@pytest.mark.parametrize(
    ("values", "description"),
    [
        ({}, "digits, P10C2"),
        ({"class_order": "shuffled"}, "digits, P10C2, shuffled classes"),
        (
            {"partition": "dirichlet", "imbalance_factor": 50.0},
            "digits, Dirichlet(0.5), 10 clients",
        ),
        ({"partition": "iid", "num_clients": 4, "imbalance_factor": 1.0}, "digits, IID, 4 clients"),
        (
            {"partition": "dirichlet", "assignment": "client"},
            "digits, Dirichlet(0.5) per client, 10 clients",
        ),
        ({"partition": "quantity"}, "digits, sizes by Dirichlet(0.5), 10 clients"),
        ({"partition": "shards", "num_clients": 4}, "digits, 2 shards each, 4 clients"),
        (
            {"dataset": "femnist", "partition": "natural", "data_dir": "x"},
            "femnist",
        ),
        (
            {"dataset": "femnist", "partition": "natural", "data_dir": "x", "max_clients": 7},
            "femnist, 7 clients of the data",
        ),
    ],
)
def test_descriptions(values, description):
    config = _config(**values)
    tail = ", imbalance factor 50" if config.imbalance_factor == 50 else ""
    assert config.describe() == description + tail
    assert config.describe_dataset() == config.source.name + tail


@pytest.mark.parametrize(
    ("values", "description", "dataset", "name"),
    [
        (
            {"new_clients": 2},
            "digits, P10C2, 2 of them new",
            "digits, 2 new clients",
            "digits, P10C2",
        ),
        (
            {"partition": "iid", "num_clients": 4, "new_clients": 1, "imbalance_factor": 50.0},
            "digits, IID, 4 clients, 1 of them new, imbalance factor 50",
            "digits, 1 new client, imbalance factor 50",
            "digits, IID, 4 clients, imbalance factor 50",
        ),
        (
            {"dataset": "femnist", "partition": "natural", "data_dir": "x", "new_clients": 2},
            "femnist, 2 new clients",
            "femnist, 2 new clients",
            "femnist, the clients of the data",
        ),
    ],
)
def test_headings_say_how_many_clients_are_new_and_keys_do_not(values, description, dataset, name):
    config = _config(**values)
    assert config.describe() == description
    assert config.describe_dataset() == dataset
    assert config.identify() == name


@pytest.mark.parametrize(
    ("dataset", "data_dir", "shown"),
    [
        ("folder", "data/flowers/", "folder: flowers"),
        ("table", "~/my heart.csv", "table: my heart.csv"),
        ("npz", "a/Größe[1]<b>$x$.npz", "npz: Größe_1__b__x_.npz"),
        ("npz", "x" * 41, f"npz: {'x' * 39}_"),
        ("folder", ".", "folder"),
        ("celeba", "faces", "celeba"),
        ("cifar10", "data", "cifar10"),
    ],
)
def test_own_data_have_the_name_of_their_directory_or_file_in_headings(dataset, data_dir, shown):
    config = _config(dataset=dataset, data_dir=data_dir, partition="iid", num_clients=5)
    assert config.describe() == f"{shown}, IID, 5 clients"
    assert config.describe_dataset() == shown
    assert config.identify() == f"{dataset}, IID, 5 clients"


def test_short_notations_name_fields():
    for name, cls in partitions.registry.classes().items():
        fields = {field.name for field in dataclasses.fields(cls)}
        assert cls.clients_option in fields, name
        assert cls.main_option is None or cls.main_option in fields, name
    assert partitions.get("class").main_option == "classes_per_client"
    assert partitions.get("dirichlet").main_option == "concentration"
    assert partitions.get("natural").clients_option == "max_clients"


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
    built = _config(
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
    ("values", "setting", "reason"),
    [
        ({"dataset": "mnist"}, "dataset", "choose one of celeba, .*digits"),
        ({"partition": "blocks"}, "partition", "choose one of class, dirichlet"),
        ({"shards_per_client": 2}, "shards_per_client", "applies only with partition=shards$"),
        ({"num_clients": 0}, "num_clients", "must be at least 1"),
        ({"num_clients": -3}, "num_clients", "must be at least 1"),
        ({"num_clients": 2.5}, "num_clients", "must be a whole number"),
        ({"classes_per_client": 0}, "classes_per_client", "must be at least 1"),
        ({"classes_per_client": 11}, "classes_per_client", "digits has only 10 classes"),
        ({"class_order": "x"}, "class_order", "choose one of fixed, shuffled"),
        ({"num_clients": 4}, "num_clients", "at least 5 clients or 3 classes per client"),
        ({"partition": "iid"}, "classes_per_client", "applies only with partition=class$"),
        ({"concentration": 0.5}, "concentration", "applies only with partition=dirichlet$"),
        ({"min_samples": 5}, "min_samples", r"applies only with partition=dirichlet\|quantity$"),
        ({"assignment": "sample"}, "assignment", "applies only with partition=dirichlet$"),
        ({"local_test": "overlapping"}, "local_test", "applies only with partition=dirichlet$"),
        ({"max_clients": 5}, "max_clients", "applies only with partition=natural$"),
        ({"data_dir": "there"}, "data_dir", "applies only with dataset=celeba"),
        (
            {"num_classes": 9},
            "num_classes",
            r"applies only with dataset=femnist\|leaf_synthetic\|sent140\|shakespeare$",
        ),
        ({"max_train_samples": 0}, "max_train_samples", "must be at least 1"),
        ({"max_test_samples": -1}, "max_test_samples", "must be at least 1"),
        ({"max_train_samples": 9}, "max_train_samples", "at least the number of clients, 10"),
        ({"data_seed": -1}, "data_seed", "must be at least 0"),
        ({"imbalance_factor": 0.01}, "imbalance_factor", "must be at least 1"),
        ({"imbalance_factor": float("inf")}, "imbalance_factor", "must be a finite number"),
        ({"validation_fraction": 1.0}, "validation_fraction", "must be at most 0.9"),
        ({"augmentation": "x"}, "augmentation", "choose one of none, standard"),
        ({"input_normalization": "imagenet"}, "input_normalization", "color images.*digits"),
        ({"strength": 2}, "strength", "there is no such setting"),
        (
            {"partition": "natural", "classes_per_client": None, "num_clients": None},
            "partition",
            "samples of digits do not belong to users; those of celeba, fed_isic2019, .* do",
        ),
    ],
)
def test_refusals_before_anything_is_loaded(values, setting, reason, monkeypatch):
    monkeypatch.setattr(Digits, "load", lambda *_: pytest.fail("loaded"))
    with refuses(setting, reason):
        _config(**{**CLASS, **values}).build()


@pytest.mark.parametrize(
    ("values", "setting", "reason"),
    [
        ({"concentration": 0.0}, "concentration", "must be greater than 0"),
        ({"concentration": float("nan")}, "concentration", "must be a finite number"),
        ({"min_samples": -1}, "min_samples", "must be at least 0"),
        ({"assignment": "x"}, "assignment", "choose one of class, sample, client"),
        ({"local_test": "x"}, "local_test", "choose one of disjoint, overlapping"),
        ({"num_clients": 200}, "num_clients", "2000 training samples are needed.* only 1438"),
    ],
)
def test_refusals_of_dirichlet(values, setting, reason):
    with refuses(setting, reason):
        _config(
            **{"partition": "dirichlet", "num_clients": 5, "concentration": 0.5, **values}
        ).build()


def test_too_few_samples_for_iid():
    with refuses("num_clients", "at most 1438 clients"):
        data.load_federation("digits", "iid", 2000)


def test_too_strong_a_tail_for_the_subset():
    with refuses("imbalance_factor", "leaves the last class without samples"):
        data.load_federation("digits", "iid", 4, max_train_samples=200, imbalance_factor=100)


def test_settings_that_do_not_fit_sets_with_users():
    natural = {"partition": "natural", "data_dir": "x"}
    with refuses("imbalance_factor", "cannot be combined with partition=natural"):
        _config(dataset="femnist", imbalance_factor=10, **natural)
    with refuses("classes_per_client", "applies only with partition=class"):
        _config(dataset="femnist", classes_per_client=2, **natural)
    with refuses("split_centres", "applies only with dataset=fed_isic2019"):
        _config(dataset="femnist", split_centres=12, **natural)
    with refuses("split_centres", "applies only with partition=natural"):
        _config(dataset="fed_isic2019", data_dir="x", partition="iid", split_centres=12)
    for name, value in (("augmentation", "standard"), ("input_normalization", "none")):
        with refuses(name, r"applies only with dataset=celeba\|"):
            _config(dataset="shakespeare", **natural, **{name: value})


def test_a_class_per_name():
    for registry in (sources.registry, partitions.registry):
        assert [cls.name for cls in registry.classes().values()] == registry.names()


def test_clients_of_the_data_have_a_name_that_can_be_a_heading():
    assert partitions.create("natural").describe() == "the clients of the data"
