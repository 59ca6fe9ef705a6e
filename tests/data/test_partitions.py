"""Partitions: invariants of the authors' golden splits, own schemes, and every refusal."""

import dataclasses

import numpy as np
import pytest

from tests.data.refusals import refuses, unusable
from tff_pcdd import data
from tff_pcdd.data import ClientIndices, DataConfig, partitions
from tff_pcdd.data.partitions import by_class, dirichlet
from tff_pcdd.settings import option


def _counts(labels, parts, num_classes=10):
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts])


def _golden_counts(arrays, name, labels, part):
    offsets, indices = arrays[f"{name}_{part}_off"], arrays[f"{name}_{part}_idx"]
    return _counts(labels, np.split(indices, offsets[1:-1]))


def _is_partition(parts, size):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))


@pytest.mark.parametrize(
    ("name", "clients", "classes"),
    [("P5C2", 5, 2), ("P10C2", 10, 2), ("P10C3", 10, 3), ("P20C2", 20, 2)],
)
def test_class_partition_has_the_invariants_of_the_authors_split(golden, name, clients, classes):
    arrays = golden("partition_fedgela")
    train, test = arrays["y_train"], arrays["y_test"]
    split = data.split_by_class(train, test, clients, classes, seed=3)
    ours = {"train": _counts(train, split.train), "test": _counts(test, split.test)}
    theirs = {
        part: _golden_counts(arrays, name, labels, part)
        for part, labels in (("train", train), ("test", test))
    }
    assert _is_partition(split.train, len(train))
    assert _is_partition(split.test, len(test))
    for counts in (ours, theirs):
        assert ((counts["train"] > 0) == (counts["test"] > 0)).all()
        assert ((counts["train"] > 0).sum(axis=1) == classes).all()
        for part in counts.values():
            largest, held = part.max(axis=0), np.where(part > 0, part, part.max())
            assert (largest - held.min(axis=0) <= 1).all()
    # The classes that are placed once each, before any random choice.
    slots = 10 // classes
    assert np.array_equal(ours["train"][:slots] > 0, theirs["train"][:slots] > 0)


def test_owners_of_equal_shares_differ_by_one_in_client_order():
    owned = np.array([[1, 0], [1, 1], [1, 0]], bool)
    counts = by_class._equal_shares(owned, np.array([8, 5]))
    assert counts.tolist() == [[3, 0], [3, 5], [2, 0]]


def test_all_classes_per_client_is_allowed():
    labels = np.repeat(np.arange(4), 8)
    counts = _counts(labels, data.partition_by_class(labels, 4, 4, seed=0), 4)
    assert (counts == 2).all()


def test_random_slots_reach_every_class_and_depend_on_the_seed():
    labels = np.repeat(np.arange(10), 100)
    held = [
        _counts(labels, data.partition_by_class(labels, 50, 2, seed=seed)) > 0 for seed in range(4)
    ]
    assert all((owned.sum(axis=1) == 2).all() for owned in held)
    # 90 random places for 10 classes: a class gets none with probability 0.9^90 < 1e-4.
    assert (np.sum([owned[5:].sum(axis=0) for owned in held], axis=0) > 4).all()
    assert not np.array_equal(held[0], held[1])


@pytest.mark.parametrize("clients", [5, 10])
def test_shuffled_classes_change_places_by_the_seed(clients):
    """A class has the owners that the class in its place has in the fixed order."""
    labels = np.repeat(np.arange(10), 100)
    firsts = set()
    for seed in range(6):
        fixed, shuffled = (
            data.split_by_class(labels, labels[::5], clients, 2, seed, class_order=order)
            for order in ("fixed", "shuffled")
        )
        places = np.random.default_rng([seed, 3]).permutation(10)
        expected = (_counts(labels, fixed.train) > 0)[:, places]
        assert np.array_equal(_counts(labels, shuffled.train) > 0, expected)
        assert np.array_equal(_counts(labels[::5], shuffled.test) > 0, expected)
        assert _is_partition(shuffled.train, 1000)
        assert _is_partition(shuffled.test, 200)
        held = [np.unique(labels[part]).tolist() for part in fixed.train[:5]]
        assert held == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        firsts.add(tuple(np.unique(labels[shuffled.train[0]])))
    # 45 pairs are equally likely, so fewer than three in six draws have a probability of 3e-5.
    assert len(firsts) >= 3


@pytest.mark.parametrize(
    ("name", "clients", "concentration"), [("dir05_n5", 5, 0.5), ("dir10000_n10", 10, 10000)]
)
def test_dirichlet_has_the_invariants_of_the_authors_split(golden, name, clients, concentration):
    arrays = golden("partition_fedgela")
    train, test = arrays["y_train"], arrays["y_test"]
    split = data.split_dirichlet(train, test, clients, concentration, seed=1, min_samples=10)
    assert _is_partition(split.train, len(train))
    assert _is_partition(split.test, len(test))
    ours = _counts(train, split.train)
    tests = _counts(test, split.test)
    assert ours.sum(axis=1).min() >= 10
    # The same proportions: 60 training and 20 test samples of each class.
    assert np.abs(ours / 3 - tests).max() < 2
    theirs = _golden_counts(arrays, name, train, "train")
    if concentration == 10000:
        assert np.abs(ours - 6).max() <= 2
        assert np.abs(theirs - 6).max() <= 2
    for counts in (ours, theirs):
        # Class by class, a client that holds an even share gets nothing more (in the authors' code
        # the last client may get one sample left over by rounding).
        held = np.cumsum(counts, axis=1) - counts
        full = held >= len(train) / clients
        assert counts[full].max(initial=0) <= 1
    assert not ours[(np.cumsum(ours, axis=1) - ours) >= len(train) / clients].any()


def test_uncapped_clients_share_a_class_as_a_dirichlet_draw_among_them():
    # First class: no client is full, so the counts are one Dirichlet draw over all clients.
    rng = np.random.default_rng([5, 0])
    shares = rng.dirichlet(np.full(4, 0.7))
    ends = np.floor(np.cumsum(shares) * 1000 + 1e-6).astype(int)
    ends[-1] = 1000
    counts = dirichlet._draw_capped(np.array([1000, 1000]), 4, 0.7, np.random.default_rng([5, 0]))
    assert counts[:, 0].tolist() == np.diff(ends, prepend=0).tolist()
    below = np.flatnonzero(counts[:, 0] < 500)
    rest = np.floor(np.cumsum(rng.dirichlet(np.full(below.size, 0.7))) * 1000 + 1e-6).astype(int)
    rest[-1] = 1000
    assert counts[below, 1].tolist() == np.diff(rest, prepend=0).tolist()


def test_local_tests_hold_no_class_that_the_client_lacks():
    labels = np.repeat(np.arange(10), 200)
    for seed in range(5):
        split = data.split_dirichlet(labels, labels[::7], 10, 0.1, seed=seed)
        train, test = _counts(labels, split.train), _counts(labels[::7], split.test)
        assert not test[train == 0].any()


def test_class_without_training_samples_is_divided_evenly_in_the_test():
    split = data.split_dirichlet(
        np.zeros(40, int), np.array([0] * 8 + [1] * 8), 4, 100.0, seed=0, min_samples=1
    )
    assert _counts(np.array([0] * 8 + [1] * 8), split.test, 2)[:, 1].tolist() == [2, 2, 2, 2]


def test_samplewise_dirichlet_covers_all_and_has_no_cap():
    labels = np.repeat(np.arange(10), 500)
    parts = data.partition_dirichlet(labels, 8, 0.5, seed=2, assignment="sample")
    assert _is_partition(parts, len(labels))
    counts = _counts(labels, parts)
    # Without a cap, classes are independent: some client soon exceeds its even share of 625.
    assert (np.cumsum(counts, axis=1) - counts > len(labels) / 8)[counts > 1].any()


def test_clients_of_equal_sizes_draw_their_own_proportions():
    labels = np.repeat(np.arange(10), 500)
    split = data.split_dirichlet(labels, labels[::10], 8, 0.3, seed=2, assignment="client")
    assert _is_partition(split.train, 5000)
    assert _is_partition(split.test, 500)
    counts = _counts(labels, split.train)
    assert (counts.sum(axis=1) == 625).all()
    assert not _counts(labels[::10], split.test)[counts == 0].any()
    # The first client finds 500 samples of each class, more than it draws.
    rng = np.random.default_rng([2, 0])
    first = rng.multinomial(625, rng.dirichlet(np.full(10, 0.3)))
    assert first.max() <= 500
    assert counts[0].tolist() == first.tolist()
    sizes = [len(part) for part in data.partition_dirichlet(labels[:203], 4, 1, 0, 9, "client")]
    assert sizes == [51, 51, 51, 50]


def test_proportions_of_clients_have_the_mean_of_the_data():
    """With a large concentration, all clients have the long tail of the data."""
    sizes = np.array([4000, 2000, 0, 1000])
    labels = np.repeat(np.arange(4), sizes)
    parts = data.partition_dirichlet(labels, 7, 1e5, 3, assignment="client")
    expected = sizes / 7
    # Five standard deviations of a binomial count.
    bounds = 5 * np.sqrt(expected * (1 - expected / 1000))
    assert (np.abs(_counts(labels, parts, 4) - expected) <= bounds).all()


@pytest.mark.parametrize("concentration", [1e-9, 1e-3])
def test_clients_with_tiny_concentrations_take_class_after_class(concentration):
    labels = np.repeat(np.arange(6), 30)
    for seed in range(5):
        parts = data.partition_dirichlet(labels, 6, concentration, seed, assignment="client")
        assert sorted(_counts(labels, parts, 6).tolist()) == (30 * np.eye(6)[::-1]).tolist()


def test_samples_of_clients_are_drawn_without_replacement():
    """As if each sample were drawn alone, by the proportions of the classes that are left."""

    def one_by_one(rng):
        left, counts = np.array([2, 3, 4]), np.zeros((3, 3))
        for own in counts:
            proportions = rng.dirichlet(0.5 * np.array([2, 3, 4]) / 3)
            for _ in range(3):
                chances = proportions * (left > 0)
                label = rng.choice(3, p=chances / chances.sum())
                own[label] += 1
                left[label] -= 1
        return counts

    rng, number = np.random.default_rng(0), 4000
    sizes = np.array([2, 3, 4])
    alone = np.array([one_by_one(rng) for _ in range(number)])
    ours = np.array([dirichlet._draw_clients(sizes, 3, 0.5, rng) for _ in range(number)])
    assert (ours.sum(axis=1) == sizes).all()
    for power in (1, 2):
        a, b = alone**power, ours**power
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / number)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("alpha", ["0.5", "1.0"])
def test_overlapping_local_tests_have_fedloges_sizes(golden, alpha):
    arrays = golden("partition_fedloge")
    train_counts, expected = (
        arrays[f"dir{alpha}_train_counts"],
        arrays[f"dir{alpha}_local_test_counts"],
    )
    labels = np.repeat(np.arange(10), int(arrays["n_test_toy"]) // 10)
    parts = dirichlet._draw_overlapping(labels, train_counts, np.random.default_rng(0))
    assert np.array_equal(_counts(labels, parts), np.minimum(expected, 200))
    assert all(len(set(part.tolist())) == len(part) for part in parts)


def test_overlapping_local_tests_are_capped_by_what_there_is():
    train = np.array([0] * 90 + [1] * 10)
    test = np.repeat([0, 1], 30)
    split = data.split_dirichlet(
        train, test, 1, 1.0, seed=0, assignment="sample", local_test="overlapping"
    )
    # int(90 / 100 · 60) = 54 of class 0 would be needed, 30 exist; int(10 / 100 · 60) = 6.
    assert _counts(test, split.test, 2).tolist() == [[30, 6]]


def test_iid_is_even_and_mixed():
    labels = np.repeat(np.arange(5), 41)
    split = data.split_iid(labels, labels[:52], 10, seed=0)
    assert _is_partition(split.train, 205)
    assert _is_partition(split.test, 52)
    assert {len(part) for part in split.train} == {20, 21}
    assert (_counts(labels, split.train, 5) > 0).mean() > 0.9


def test_shards_are_pieces_of_the_sorted_samples():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 40))
    # 20 clients × 2 shards of 10 samples: 4 shards for each class.
    split = data.split_shards(labels, labels[::5], 20, 2, seed=1)
    counts, tests = _counts(labels, split.train), _counts(labels[::5], split.test)
    assert set(counts.ravel()) <= {0, 10, 20}
    assert (counts.sum(axis=1) == 20).all()
    assert _is_partition(split.train, 400)
    assert _is_partition(split.test, 80)
    # A share of 1/4 or 1/2 of the class, up to rounding.
    sizes = np.bincount(labels[::5], minlength=10)
    assert np.abs(tests - counts / 40 * sizes).max() < 1
    assert not tests[counts == 0].any()
    # The samples of a shard are neighbors among those of their class.
    for part in split.train:
        for label in np.unique(labels[part]):
            places = np.flatnonzero(np.isin(np.flatnonzero(labels == label), part))
            shards = places.reshape(-1, 10)
            assert (shards == shards[:, :1] + np.arange(10)).all()
            assert (shards[:, 0] % 10 == 0).all()


def test_shards_of_unequal_sizes_have_samples_of_several_classes():
    # Sorted: 0000011. Three shards of 3, 2 and 2 samples.
    labels = np.array([0, 1, 0, 0, 1, 0, 0])
    parts = data.partition_shards(labels, 3, 1, seed=0)
    assert sorted(part.tolist() for part in parts) == [[0, 2, 3], [1, 4], [5, 6]]


def test_quantity_is_uneven_and_mixed():
    labels = np.random.default_rng(0).permutation(
        np.repeat(np.arange(5), [800, 600, 300, 200, 100])
    )
    split = data.split_quantity(labels, labels[::4], 6, 0.5, seed=3)
    assert _is_partition(split.train, 2000)
    assert _is_partition(split.test, 500)
    # The first draw in which no client is too small.
    rng = np.random.default_rng([3, 0])
    ends = np.zeros(6)
    while np.diff(ends, prepend=0).min() < 10:
        ends = np.floor(2000 * np.cumsum(rng.dirichlet(np.full(6, 0.5))) + 1e-6)
    counts, tests = _counts(labels, split.train, 5), _counts(labels[::4], split.test, 5)
    sizes = counts.sum(axis=1)
    assert sizes.cumsum().tolist() == [*ends[:-1].astype(int), 2000]
    assert sizes.max() > 2 * sizes.min()
    # Classes as in the whole: within five standard deviations of a draw without replacement.
    share = np.bincount(labels) / 2000
    error = np.sqrt(sizes[:, None] * share * (1 - share) * (2000 - sizes[:, None]) / 1999)
    assert (np.abs(counts - sizes[:, None] * share) <= 5 * error).all()
    # The same shares of the test samples of each class, up to rounding.
    assert np.abs(tests - counts / (2000 * share) * np.bincount(labels[::4])).max() < 1


@pytest.mark.parametrize(
    "partition",
    [
        lambda labels, seed: data.partition_by_class(labels, 6, 2, seed),
        lambda labels, seed: data.partition_dirichlet(labels, 6, 0.5, seed),
        lambda labels, seed: data.partition_dirichlet(labels, 6, 0.5, seed, assignment="sample"),
        lambda labels, seed: data.partition_dirichlet(labels, 6, 0.5, seed, assignment="client"),
        lambda labels, seed: data.partition_iid(labels, 6, seed),
        lambda labels, seed: data.partition_quantity(labels, 6, 0.5, seed),
        lambda labels, seed: data.partition_shards(labels, 6, 2, seed),
    ],
    ids=["class", "dirichlet", "sample", "client", "iid", "quantity", "shards"],
)
def test_partition_is_a_function_of_the_seed(partition):
    labels = np.random.default_rng(0).integers(0, 8, 900)
    first, again, other = partition(labels, 7), partition(labels, 7), partition(labels, 8)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in first)


def test_training_part_does_not_depend_on_a_test_set():
    labels = np.repeat(np.arange(10), 60)
    for alone, joint in (
        (
            data.partition_dirichlet(labels, 5, 0.5, 0),
            data.split_dirichlet(labels, labels, 5, 0.5, 0),
        ),
        (data.partition_by_class(labels, 5, 2, 0), data.split_by_class(labels, labels, 5, 2, 0)),
        (data.partition_iid(labels, 5, 0), data.split_iid(labels, labels, 5, 0)),
        (data.partition_quantity(labels, 5, 1, 0), data.split_quantity(labels, labels, 5, 1, 0)),
        (data.partition_shards(labels, 5, 2, 0), data.split_shards(labels, labels, 5, 2, 0)),
    ):
        assert all(np.array_equal(a, b) for a, b in zip(alone, joint.train, strict=True))


def test_global_random_state_is_left_alone():
    labels = np.repeat(np.arange(10), 60)
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    data.partition_dirichlet(labels, 5, 0.5, 0)
    assert np.array_equal(before, np.random.get_state()[1])


LABELS = np.repeat(np.arange(10), 20)
_CLASSES, _DIRICHLET = data.partition_by_class, data.partition_dirichlet


@pytest.mark.parametrize(
    ("call", "setting", "reason"),
    [
        (lambda: _CLASSES(LABELS, 0, 2, 0), "num_clients", "positive integer"),
        (lambda: _CLASSES(LABELS, 9.5, 2, 0), "num_clients", "positive integer"),
        (lambda: _CLASSES(LABELS, 10, -1, 0), "classes_per_client", "positive integer"),
        (lambda: _CLASSES(LABELS, 10, 11, 0), "classes_per_client", "there are only 10 classes"),
        (lambda: _CLASSES(LABELS, 3, 2, 0), "num_clients", "at least 5 clients or 4 classes"),
        (
            lambda: _CLASSES(LABELS, 10, 2, 0, "random"),
            "class_order",
            "choose one of fixed, shuffled",
        ),
        (lambda: _CLASSES(LABELS, 10, 2, -1), "seed", "non-negative integer"),
        (lambda: _DIRICHLET(LABELS, 5, 0.0, 0), "concentration", "greater than 0"),
        (lambda: _DIRICHLET(LABELS, 5, np.nan, 0), "concentration", "finite number"),
        (lambda: _DIRICHLET(LABELS, 5, 1.0, 0, -1), "min_samples", "negative"),
        (
            lambda: _DIRICHLET(LABELS, 30, 1.0, 0),
            "num_clients",
            "with min_samples=10, 300 training samples are needed, but there are only 200",
        ),
        (
            lambda: _DIRICHLET(LABELS, 5, 1.0, 0, assignment="x"),
            "assignment",
            "class, sample, client",
        ),
        (
            lambda: _DIRICHLET(LABELS, 19, 0.01, 0),
            "concentration",
            r"for 19 clients, .* at most \d training samples \(min_samples=10\); use a larger conc",
        ),
        (
            lambda: data.split_dirichlet(LABELS, None, 5, 1.0, 0, local_test="x"),
            "local_test",
            "choose one of disjoint, overlapping",
        ),
        (lambda: data.partition_iid(LABELS, 201, 0), "num_clients", "at most 200 clients"),
        (
            lambda: data.partition_quantity(LABELS, 5, np.inf, 0),
            "size_concentration",
            "must be a finite number greater than 0",
        ),
        (lambda: data.partition_quantity(LABELS, 5, 1e7, 0), "size_concentration", "to 1e"),
        (lambda: data.partition_quantity(LABELS, 5, 1, 0, -1), "min_samples", "negative"),
        (
            lambda: data.partition_quantity(LABELS, 30, 1.0, 0),
            "num_clients",
            "with min_samples=10, 300 training samples are needed, but there are only 200",
        ),
        (
            lambda: data.partition_quantity(LABELS, 19, 0.01, 0),
            "size_concentration",
            r"for 19 clients, .* at most \d training samples .*; use a larger size_concentration",
        ),
        (lambda: data.partition_shards(LABELS, 5, 0, 0), "shards_per_client", "positive integer"),
        (
            lambda: data.partition_shards(LABELS, 101, 2, 0),
            "shards_per_client",
            "101 clients have 202 shards, but there are only 200 training samples",
        ),
    ],
)
def test_refused_settings(call, setting, reason):
    with refuses(setting, reason):
        call()


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: _CLASSES(LABELS[:0], 10, 2, 0), ["no training samples"]),
        (lambda: _CLASSES(LABELS * 0.5, 10, 2, 0), ["float64", "one integer"]),
        (lambda: _CLASSES(LABELS - 1, 10, 2, 0), ["-1 is negative"]),
        (lambda: data.split_by_class(LABELS, LABELS, 10, 2, 0, 9), ["label 9 ", "num_classes=9"]),
    ],
)
def test_refused_labels(call, parts):
    with unusable(*parts):
        call()


@dataclasses.dataclass(frozen=True)
class FirstTakesMore(partitions.Partition):
    """Two clients; the first one gets the given share of all samples."""

    name = "first_takes_more"
    main_option = "first_share"

    first_share: float = option(0.75, "Share of the first client.", above=0, maximum=1)

    def split(self, train_labels, test_labels, num_classes, seed):
        parts = (
            np.split(np.arange(len(labels)), [round(self.first_share * len(labels))])
            for labels in (train_labels, test_labels)
        )
        return partitions.Split(*map(tuple, parts))


@pytest.mark.parametrize(("share", "sizes"), [(None, [1078, 360]), (0.5, [719, 719])])
def test_own_partition_by_name(own_components, share, sizes):
    partitions.register(FirstTakesMore)
    assert "first_takes_more" in partitions.names()
    settings = {} if share is None else {"first_share": share}
    built = data.load_federation("digits", "first_takes_more", **settings)
    assert built.client_ids == ("0", "1")
    assert built.class_counts().sum(axis=1).tolist() == sizes
    with refuses("first_share", "must be at most 1"):
        data.load_federation("digits", "first_takes_more", first_share=1.5)
    with refuses("first_share", "applies only with partition=first_takes_more"):
        data.load_federation("digits", "iid", first_share=0.5)
    with refuses("num_clients", "applies only with partition=class"):
        data.load_federation("digits", "first_takes_more", 3)


def test_own_partition_without_a_name():
    config = DataConfig(partition=FirstTakesMore(0.25))
    assert config.describe() == "digits, first_takes_more"
    assert config.build().class_counts().sum(axis=1).tolist() == [360, 1078]
    assert "first_takes_more" not in partitions.names()


def test_own_partition_that_keeps_users():
    """Users can be merged; those that a subset of the samples leaves empty are counted."""

    @dataclasses.dataclass(frozen=True)
    class Neighbors(partitions.Partition):
        name = "neighbors"
        keeps_users = True

        def divide(self, data, seed):
            return [
                ClientIndices(f"{a.client_id}+{b.client_id}", *map(np.concatenate, parts))
                for a, b in zip(data.users[::2], data.users[1::2], strict=True)
                for parts in [((a.train, b.train), (a.test, b.test))]
            ]

    @dataclasses.dataclass(frozen=True)
    class Users(data.ImageSource):
        info = data.DatasetInfo("with_users", data.IMAGE, 2, (1, 1, 1), has_users=True)

        def load(self, request):
            samples = data.Examples(np.zeros((8, 1, 1, 1), np.uint8), np.arange(8) % 2)
            users = tuple(
                ClientIndices(f"u{k}", *[np.array([2 * k, 2 * k + 1])] * 2) for k in range(4)
            )
            return data.PooledData(samples, samples, ("a", "b"), self.image_spec(), users)

    built = DataConfig(Users(), Neighbors()).build()
    assert built.client_ids == ("u0+u1", "u2+u3")
    assert [client.train.tolist() for client in built.clients] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    fewer = DataConfig(Users(), Neighbors(), max_train_samples=2, max_test_samples=2).build()
    held = sum(client.train.size + client.test.size for client in fewer.clients)
    assert (held, fewer.num_clients + fewer.notes.get("clients_left_empty", 0)) == (4, 2)
    with refuses("partition", "samples of digits do not belong to users"):
        DataConfig(partition=Neighbors())


@pytest.mark.parametrize(
    ("train", "test", "clients"), [(1, 1, "1 clients and"), (2, 1, "2 clients and")]
)
def test_own_partition_with_another_number_of_clients_is_refused(train, test, clients):
    @dataclasses.dataclass(frozen=True)
    class Fewer(partitions.NumClients):
        name = "fewer"

        def split(self, train_labels, test_labels, num_classes, seed):
            return partitions.Split(
                tuple(np.array_split(np.arange(len(train_labels)), train)),
                tuple(np.array_split(np.arange(len(test_labels)), test)),
            )

    with refuses("partition", f"{clients} the test samples among {test}, instead of among 3"):
        DataConfig(partition=Fewer(num_clients=3)).build()


def test_own_partition_may_return_lists():
    @dataclasses.dataclass(frozen=True)
    class Lists(partitions.Partition):
        name = "lists"

        def split(self, train_labels, test_labels, num_classes, seed):
            return partitions.Split([[0, 2], []], [[1], [0]])

    counts = DataConfig(partition=Lists()).build().class_counts()
    assert counts.sum(axis=1).tolist() == [2, 0]


def test_many_clients_share_many_groups():
    """Each client has all samples of its groups, in ascending order."""
    groups = np.random.default_rng(0).integers(0, 800, 4000)
    samples = data.Examples(np.zeros((4000, 1), np.float32), groups % 10, groups=groups)
    spec = data.InputSpec("vector", (1,), "float32")
    pooled = data.PooledData(samples, samples, tuple("abcdefghij"), spec)
    clients = partitions.create("iid", num_clients=100).divide(pooled, 0)
    assert _is_partition([client.train for client in clients], 4000)
    owners = np.empty(4000, np.int64)
    for k, client in enumerate(clients):
        assert (np.diff(client.train) > 0).all()
        owners[client.train] = k
    # Each group has one owner.
    assert len(np.unique(groups * 100 + owners)) == len(np.unique(groups))
