"""Checkpoints: which are kept, that they are complete, which are refused."""

import dataclasses
import hashlib
import os
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import files
from tff_pcdd.experiment.client_store import MemoryStore
from tff_pcdd.training import manifests
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
from tff_pcdd.training.disk_store import DiskStore


def server(value):
    return OrderedDict(weights=[np.full(3, value, np.float32)], round=np.int32(value))


def client(value=0):
    return OrderedDict(personal=[np.full(2, value, np.float32)], participations=np.int32(value))


def memory():
    return MemoryStore(lambda _: client())


@pytest.fixture
def manager(tmp_path):
    return CheckpointManager(tmp_path / "checkpoints", keep=2)


def test_the_newest_are_kept_and_no_temporary_file(manager, tmp_path):
    assert manager.rounds() == []
    store = memory()
    for number in (1, 2, 5, 12):
        store.put(3, client(number), number)
        manager.save(Checkpoint(number, server(number)), store)
    assert manager.rounds() == [5, 12]
    names = [f"round_{number:06d}.{kind}" for number in (5, 12) for kind in ("json", "npz")]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == names


@pytest.mark.parametrize("wanted", [None, 2, 1])
def test_loading_restores_server_clients_and_totals(manager, wanted):
    store = memory()
    for number in (1, 2):
        store.put(7, client(number), number)
        totals = {"upload_bytes": 10 * number}
        manager.save(Checkpoint(number, server(number), totals), store)
    other = memory()
    other.put(9, client(9), 9)
    loaded = manager.load(server(0), client(), other, wanted)
    number = wanted or 2
    assert loaded.round == number
    assert loaded.totals == {"upload_bytes": 10 * number}
    support.assert_trees_equal(loaded.server_state, server(number))
    support.assert_trees_equal(other.get(7), client(number))
    support.assert_trees_equal(other.get(9), client())


def test_arrays_are_named_by_their_place(manager, tmp_path):
    """Those of clients by the clients' numbers, whichever took part first."""
    store = memory()
    for number in (10, 9):
        store.put(number, client(number), 1)
    manager.save(Checkpoint(1, server(4)), store)
    with np.load(tmp_path / "checkpoints" / "round_000001.npz") as file:
        found = {name: file[name].tolist() for name in file.files}
    assert found == {
        "server/round": 4,
        "server/weights/0": [4, 4, 4],
        "clients/9/participations": 9,
        "clients/9/personal/0": [9, 9],
        "clients/10/participations": 10,
        "clients/10/personal/0": [10, 10],
    }


def rewrite_as_before(path, tree):
    """Replaces a file of arrays by one of earlier versions, without names; its checksum."""
    np.savez(path, *map(np.asarray, tf.nest.flatten(tree)))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_checkpoints_of_earlier_versions_are_loaded(manager, kind, tmp_path):
    def create():
        if kind == "memory":
            return memory()
        return DiskStore(lambda _: client(), tmp_path / "client_states")

    store = create()
    for number in (10, 9):
        store.put(number, client(number), 1)
    states = [client(9), client(10)]
    if kind == "disk":
        for number in (10, 9):
            path = tmp_path / "client_states" / "round_000001" / f"client_{number:06d}.npz"
            store._unlisted[1][str(number)] = rewrite_as_before(path, client(number))
        states = []
    manager.save(Checkpoint(1, server(4)), store)
    folder = tmp_path / "checkpoints"
    checksum = rewrite_as_before(folder / "round_000001.npz", [server(4), states])
    manifests.write(folder, dataclasses.replace(manifests.read(folder, 1), arrays=checksum))
    other = create()
    support.assert_trees_equal(manager.load(server(0), client(), other).server_state, server(4))
    for number in (9, 10):
        support.assert_trees_equal(other.get(number), client(number))


def test_states_on_disk_stay_as_long_as_their_checkpoint(manager, tmp_path):
    """A client that took part long ago, and one that takes part each time; keep 2."""

    def disk():
        return DiskStore(lambda _: client(), tmp_path / "client_states")

    store = disk()
    store.put(0, client(1), 1)
    for number in range(1, 6):
        store.put(1, client(number), number)
        manager.save(Checkpoint(number, server(number)), store)
    for number in manager.rounds():
        reader = disk()
        manager.load(server(0), client(), reader, number)
        support.assert_trees_equal(reader.get(0), client(1))
        support.assert_trees_equal(reader.get(1), client(number))
    states = sorted(tmp_path.glob("client_states/*/client_*.npz"))
    assert [(path.parent.name, path.stem) for path in states] == [
        ("round_000001", "client_000000"),
        ("round_000004", "client_000001"),
        ("round_000005", "client_000001"),
    ]


def test_a_checkpoint_that_was_not_finished_does_not_count(manager, monkeypatch, tmp_path):
    """The process ends between the manifest and the arrays, or within the arrays."""
    manager.save(Checkpoint(1, server(1)), memory())

    def fail(path, tree):
        (path.parent / f".{path.name}.1.tmp").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("tff_pcdd.training.checkpoints.save_tree", fail)
    with pytest.raises(KeyboardInterrupt):
        manager.save(Checkpoint(2, server(2)), memory())
    assert manager.rounds() == [1]
    assert manager.load(server(0), client(), memory()).round == 1
    monkeypatch.undo()
    files.remove_leftovers(tmp_path, "**/.*.tmp", alone=True)
    manager.save(Checkpoint(2, server(3)), memory())
    support.assert_trees_equal(manager.load(server(0), client(), memory()).server_state, server(3))


def test_the_first_manifest_never_lacks_its_arrays(manager, monkeypatch, tmp_path):
    """After a power cut, names that were not synchronized may be lost in any order."""
    synchronized = []

    def note(directory):
        synchronized.append((directory.name, sorted(os.listdir(directory))))

    monkeypatch.setattr(files, "sync_directory", note)
    manager.save(Checkpoint(1, server(1)), memory())
    manager.save(Checkpoint(2, server(2)), memory())
    assert [names for name, names in synchronized if name == "checkpoints"] == [
        ["round_000001.npz"]
    ]


def test_no_checkpoint(manager):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint in .*checkpoints"):
        manager.load(server(0), client(), memory())
    manager.save(Checkpoint(4, server(4)), memory())
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of round 3 .* there are \[4\]"):
        manager.load(server(0), client(), memory(), 3)


def test_checkpoint_of_another_model(manager):
    store = memory()
    store.put(0, client(1), 1)
    manager.save(Checkpoint(1, server(1)), store)
    other = OrderedDict(weights=[np.zeros(4, np.float32)], round=np.int32(0))
    with pytest.raises(ValueError, match="another model or method"):
        manager.load(other, client(), memory())
    other = OrderedDict(personal=[], participations=np.int32(0))
    with pytest.raises(ValueError, match="another model or method"):
        manager.load(server(0), other, memory())


def test_checkpoint_of_the_other_store(manager, tmp_path):
    disk = DiskStore(lambda _: client(), tmp_path / "client_states")
    manager.save(Checkpoint(1, server(1)), memory())
    with refuses("client_store", "the other store, memory$") as caught:
        manager.load(server(0), client(), disk)
    assert caught.value.value == "disk"
    manager.save(Checkpoint(2, server(2)), disk)
    with refuses("client_store", "the other store, disk$") as caught:
        manager.load(server(0), client(), memory())
    assert caught.value.value == "memory"
