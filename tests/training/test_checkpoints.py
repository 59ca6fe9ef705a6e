"""Checkpoints: which are kept, that they are complete, which are refused."""

import os
from collections import OrderedDict

import numpy as np
import pytest

from tests import support
from tests.data.refusals import refuses
from tff_pcdd import files
from tff_pcdd.experiment.client_store import MemoryStore
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
    files.remove_leftovers(tmp_path)
    manager.save(Checkpoint(2, server(3)), memory())
    support.assert_trees_equal(manager.load(server(0), client(), memory()).server_state, server(3))


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
