"""Clients that take no part in training: how they are drawn, and what lacks their samples."""

import dataclasses
import re

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd import data, settings
from tff_pcdd.data import DataConfig, new_clients
from tff_pcdd.data.digest import data_digest
from tff_pcdd.errors import DataError

FIVE = {"partition": "iid", "num_clients": 5}


def build(**changes):
    return settings.build(DataConfig, {**FIVE, **changes}).build()


def test_they_are_clients_of_the_same_partition():
    whole, divided = build(), build(new_clients=2)
    assert whole.new_clients == ()
    assert (divided.num_clients, len(divided.new_clients)) == (3, 2)
    assert sorted(divided.every_id) == sorted(whole.client_ids)
    assert list(divided.client_ids) == sorted(divided.client_ids)
    same = {client.client_id: client for client in whole.clients}
    for client in divided.every_client:
        for part in ("train", "test", "validation"):
            np.testing.assert_array_equal(
                getattr(client, part), getattr(same[client.client_id], part)
            )


def test_they_are_drawn_by_a_seed_of_their_own():
    drawn = [
        {own.client_id for own in build(new_clients=2, new_clients_seed=seed).new_clients}
        for seed in range(20)
    ]
    assert all(len(names) == 2 for names in drawn)
    # Of the ten pairs of five clients.
    assert len({frozenset(names) for names in drawn}) > 5
    first, other = (build(new_clients=2, data_seed=seed) for seed in (0, 1))
    assert first.every_id == other.every_id
    assert not np.array_equal(first.clients[0].train, other.clients[0].train)


def made_up(**further):
    """Ten training samples, of which the last two clients share one."""
    y = np.arange(10) % 3
    samples = data.Examples(np.arange(10, dtype=np.float32)[:, None] + 1, y)
    clients = [
        data.ClientIndices("a", np.array([0, 1]), np.array([0]), np.array([2])),
        data.ClientIndices("b", np.array([3, 4, 5]), np.array([1]), np.array([6])),
        data.ClientIndices("c", np.array([5, 7]), np.array([2])),
    ]
    spec = data.InputSpec("vector", (1,), "float32")
    values = {"clients": clients, **further}
    return data.Federation("made up", 3, "xyz", spec, samples, samples, **values)


def test_what_training_knows_of_the_data_lacks_their_samples():
    clients = made_up().clients
    federation = made_up(clients=clients[::2], new_clients=clients[1:2])
    # Sample 5 is also one of client c, and 8 and 9 are of nobody.
    assert federation.training_examples().x.ravel().tolist() == [1, 2, 6, 8, 9, 10]
    assert federation.trained_samples().tolist() == [0, 1, 5, 7]
    assert federation.validation_examples().x.ravel().tolist() == [3]
    assert federation.class_counts().tolist() == [[1, 1, 0], [0, 1, 1]]
    assert federation.test_class_counts().tolist() == [[1, 0, 0], [0, 0, 1]]
    assert federation.client_ids == ("a", "c")
    assert federation.summary()["num_clients"] == 2
    assert federation.summary()["new_clients"] == 1
    # By its number, which comes after those of the others, a new client has its own samples.
    train, test = federation.client_examples(2)
    assert (train.x.ravel().tolist(), test.x.ravel().tolist()) == ([4, 5, 6], [2])
    assert federation.validation_examples(2).x.ravel().tolist() == [7]
    assert [counts.tolist() for counts in federation.counts_of(2)] == [[1, 1, 1], [0, 1, 0]]
    assert repr(federation).startswith("Federation(made up: 2 clients and 1 new one, 3 classes")


def test_the_digest_tells_who_is_new():
    clients = made_up().clients
    parts = [(clients, ()), (clients[:2], clients[2:]), (clients[1:], clients[:1])]
    found = {data_digest(made_up(clients=own, new_clients=new)) for own, new in parts}
    assert len(found) == len(parts)


def test_their_ids_and_indices_are_checked():
    clients = made_up().clients
    with pytest.raises(DataError, match="client ids repeat"):
        made_up(new_clients=clients[:1])
    beyond = dataclasses.replace(clients[2], train=np.array([10]))
    with pytest.raises(DataError, match="client c: training indices exceed 10 samples"):
        made_up(clients=clients[:2], new_clients=[beyond])


def test_samples_that_the_data_set_sets_aside_stay_apart(tmp_path):
    """A source may have validation samples of its own; those of new clients are theirs."""
    x, y = np.arange(12, dtype=np.float32)[:, None], np.arange(12) % 2
    held = np.arange(12) % 4 == 3
    pooled = data.pooled.PooledData(
        train=data.Examples(x, y, held_out=held),
        test=data.Examples(x, y),
        class_names=("a", "b"),
        input_spec=data.InputSpec("vector", (1,), "float32"),
    )
    clients = [
        data.ClientIndices(str(k), np.arange(4 * k, 4 * k + 4), np.arange(2)) for k in range(3)
    ]
    federation = pooled.federation("made up", clients, new=[1])
    assert federation.new_clients[0].validation.tolist() == [7]
    assert federation.validation_examples().x.ravel().tolist() == [3, 11]


def test_your_own_data_are_normalized_once_for_all_sites(tmp_path):
    """With or without new clients, as the guide says."""
    site = np.repeat(["a", "b", "c"], 4)
    split = np.tile(["train", "train", "train", "test"], 3)
    x = (site == "b")[:, None] * 10.0 + np.arange(12)[:, None]
    path = tmp_path / "samples.npz"
    np.savez(path, x=x, y=np.arange(12) % 3 % 2, site=site, split=split)
    own = {"dataset": "npz", "data_dir": str(path)}
    specs = [
        settings.build(DataConfig, {**own, **new}).build().input_spec
        for new in ({}, {"new_clients": 1}, {"new_clients": 2, "new_clients_seed": 1})
    ]
    assert specs[1:] == specs[:1] * 2
    # The training samples are 0, 1, 2, 14, 15, 16, 8, 9 and 10; means have four digits.
    assert list(specs[0].mean) == [8.333]


def test_they_can_be_named():
    federation = build(new_client_names="3, 1")
    assert federation.client_ids == ("0", "2", "4")
    assert [own.client_id for own in federation.new_clients] == ["1", "3"]
    same = build().with_new_clients(names=["1", "3"])
    assert (same.client_ids, same.every_id) == (federation.client_ids, federation.every_id)


def test_names_may_have_commas_and_composed_characters():
    names = ("Bern, West", "Zu\u0308rich", "Lyon")
    clients = [
        dataclasses.replace(own, client_id=name)
        for own, name in zip(made_up().clients, names, strict=True)
    ]
    config = settings.build(DataConfig, {"new_client_names": '"Bern, West",Z\u00fcrich'})
    divided = made_up(clients=clients).with_new_clients(names=config.new.names)
    assert divided.client_ids == ("Lyon",)
    described = dataclasses.replace(config, new_client_names='Lyon,"Bern, West"').describe()
    assert described.endswith('2 of them new (Lyon, "Bern, West")')


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("Bern,West", "'Bern'; there are \"Bern, West\", St. Lukas, Lyon"),
        ("st lukas", "'st lukas'; did you mean St. Lukas?"),
        ('"bern, west"', "'bern, west'; did you mean \"Bern, West\"?"),
    ],
)
def test_refused_names_are_shown_as_they_are_given(given, reason):
    """A name with a comma stands in double quotes, which is how one learns of them."""
    clients = [
        dataclasses.replace(own, client_id=name)
        for own, name in zip(made_up().clients, ("Bern, West", "St. Lukas", "Lyon"), strict=True)
    ]
    with refuses("new_client_names", re.escape(f"there is no client {reason}"), given):
        made_up(clients=clients).with_new_clients(names=new_clients.named(given))


def test_they_are_described():
    def described(**changes):
        return settings.build(DataConfig, {**FIVE, **changes}).describe()

    assert described(new_client_names="1").endswith("5 clients, 1 of them new (1)")
    assert described(new_client_names="3,1").endswith("5 clients, 2 of them new (3, 1)")
    assert described(new_clients=2).endswith("5 clients, 2 of them new")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ("", "must be names separated by commas"),
        ("1,,2", "must be names separated by commas"),
        ("1,2,1", "'1' occurs twice"),
        ("5", "there is no client '5'; there are 0, 1, 2, 3, 4"),
        ("0,1,2,3,4", "5 new clients must be below 5, the number of clients, so that some train"),
    ],
)
def test_refused_names(names, reason):
    with refuses("new_client_names", reason):
        build(new_client_names=names)


def test_clients_are_drawn_or_named():
    with refuses("new_client_names", "cannot be combined with new_clients=1, which are drawn"):
        build(new_client_names="2", new_clients=1)
    clients = [
        dataclasses.replace(own, client_id=f"site {own.client_id}") for own in made_up().clients
    ]
    with refuses("new_client_names", "there is no client 'side b'; did you mean site b?"):
        made_up(clients=clients).with_new_clients(names=["side b"])


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (-1, "must be at least 0"),
        (5, "must be below 5, the number of clients, so that some train"),
    ],
)
def test_refusals(count, reason):
    with refuses("new_clients", reason):
        build(new_clients=count)
