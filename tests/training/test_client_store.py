"""What clients keep between rounds, in memory and on disk."""

import collections
import hashlib
import os
from collections import OrderedDict

import numpy as np
import pytest

from tff_pcdd import files
from tff_pcdd.experiment.client_store import MemoryStore
from tff_pcdd.federated.records import ClientState
from tff_pcdd.training import disk_store
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
from tff_pcdd.training.disk_store import DiskStore


def state(value, participations=0):
    return ClientState(
        personal=[np.full([2, 3], value, np.float32)],
        own=OrderedDict(),
        participations=np.int32(participations),
    )


def value(kept) -> float:
    return float(kept.personal[0][0, 0])


@pytest.fixture(params=["memory", "disk"])
def make(request, tmp_path):
    """Makes a store over the same place again and again, as a restarted program does."""

    def initial(client):
        return state(-client)

    if request.param == "memory":
        return lambda: MemoryStore(initial)
    return lambda: DiskStore(initial, tmp_path / "client_states")


def list_of(tmp_path, number):
    """The checksum of the list of a round's states."""
    path = tmp_path / "client_states" / f"round_{number:06d}" / "states.json"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(tmp_path):
    return sorted(str(p.relative_to(tmp_path / "client_states")) for p in tmp_path.rglob("*.npz"))


def test_get_gives_the_initial_state_then_what_was_put(make):
    store = make()
    assert value(store.get(7)) == -7
    store.put(7, state(1, 1), 1)
    store.put(8, state(2, 1), 1)
    store.put(7, state(3, 2), 2)
    assert value(store.get(7)) == 3
    assert int(store.get(7).participations) == 2
    assert value(store.get(8)) == 2
    assert value(store.get(9)) == -9


def test_reading_keeps_nothing(make, tmp_path):
    store = make()
    store.get(1)
    assert store.snapshot() == ({}, [])
    assert not list(tmp_path.iterdir())


def test_snapshot_and_restore(make, tmp_path):
    """A new store over the same place goes on where the snapshot was taken."""
    store = make()
    for client in (12, 3, 100):
        store.put(client, state(client, 1), 1)
    store.put(3, state(33, 2), 2)
    description, states = store.snapshot()
    if store.inline:
        assert description == {"3": 2, "12": 1, "100": 1}
        assert len(states) == 3
    else:
        assert description == {str(number): list_of(tmp_path, number) for number in (1, 2)}
        assert states == []
    store.put(3, state(333, 3), 3)
    store.put(5, state(5, 1), 3)

    again = make()
    again.restore(description, states)
    assert [value(again.get(client)) for client in (3, 12, 100)] == [33, 12, 100]
    assert value(again.get(5)) == -5
    assert again.snapshot()[0] == description
    again.put(5, state(6, 1), 3)
    assert value(again.get(5)) == 6


def test_restore_drops_what_the_store_held(make):
    store = make()
    store.put(1, state(1), 1)
    store.restore({}, [])
    assert value(store.get(1)) == -1
    assert store.snapshot() == ({}, [])


def test_files_of_unfinished_rounds_are_dropped(make, tmp_path):
    store = make()
    store.put(1, state(1), 1)
    versions, states = store.snapshot()
    store.put(1, state(2), 2)
    store.put(4, state(4), 2)
    again = make()
    again.restore(versions, states)
    again.forget_after(1)
    assert value(again.get(1)) == 1
    if isinstance(again, DiskStore):
        assert files_of(tmp_path) == ["round_000001/client_000001.npz"]


def test_restoring_an_older_snapshot_leaves_newer_states(make, tmp_path):
    """Looking at an old checkpoint must not cost the newest."""
    store = make()
    store.put(1, state(1), 1)
    old = store.snapshot()
    store.put(1, state(2), 2)
    new = store.snapshot()
    reader = make()
    reader.restore(*old)
    assert value(reader.get(1)) == 1
    reader.restore(*new)
    assert value(reader.get(1)) == 2


def test_forget_before_keeps_what_checkpoints_need(tmp_path):
    """Each client's newest state up to that round, and all later ones; also after a restart."""

    def make():
        return DiskStore(lambda client: state(-client), tmp_path / "client_states")

    store = make()
    for version in (1, 2, 4):
        store.put(0, state(version), version)
    store.put(1, state(1), 1)
    versions, _ = store.snapshot()
    store.forget_before(2)
    assert files_of(tmp_path) == [
        "round_000001/client_000001.npz",
        "round_000002/client_000000.npz",
        "round_000004/client_000000.npz",
    ]
    store = make()
    store.restore(versions, [])
    store.forget_before(5)
    assert files_of(tmp_path) == [
        "round_000001/client_000001.npz",
        "round_000004/client_000000.npz",
    ]
    assert value(store.get(0)) == 4
    assert value(store.get(1)) == 1


def test_a_round_written_twice_counts_once(tmp_path):
    store = DiskStore(lambda client: state(-client), tmp_path / "client_states")
    store.put(0, state(1), 3)
    store.put(0, state(2), 3)
    assert value(store.get(0)) == 2
    assert files_of(tmp_path) == ["round_000003/client_000000.npz"]
    store.forget_before(3)
    assert value(store.get(0)) == 2


def counted(counts, where, name):
    """A function of a module, of which each call is counted."""
    original = getattr(where, name)

    def call(*arguments, **options):
        counts[name] += 1
        return original(*arguments, **options)

    return call


def test_a_checkpoint_writes_and_deletes_as_much_in_a_larger_federation(tmp_path, monkeypatch):
    """Everybody has a state; then five clients take part in a round, with two checkpoints kept."""
    seen = []
    for number in (6, 120):
        store = DiskStore(lambda client: state(-client), tmp_path / str(number) / "states")
        manager = CheckpointManager(tmp_path / str(number) / "checkpoints", keep=2)
        for client in range(number):
            store.put(client, state(client), 1)
        for version in (1, 2, 3):
            manager.save(Checkpoint(version, state(version)), store)
        counts = collections.Counter()
        with monkeypatch.context() as patch:
            for where, name in ((files, "write_atomically"), (files, "remove"), (os, "fsync")):
                patch.setattr(where, name, counted(counts, where, name))
            # The states of the other clients are neither listed nor read.
            patch.setattr(disk_store, "_numbers", lambda *_: pytest.fail("listed"))
            patch.setattr(DiskStore, "get", lambda *_: pytest.fail("read"))
            for version in (4, 5, 6, 7):
                for client in range(5):
                    store.put(client, state(version), version)
                manager.save(Checkpoint(version, state(version)), store)
        manifest = tmp_path / str(number) / "checkpoints" / "round_000007.json"
        seen.append((counts, manifest.stat().st_size))
    assert seen[0] == seen[1]
    # In each of four rounds: five states, their list, the arrays, and the manifest.
    assert counts["write_atomically"] == 4 * 8
    # Two files of the oldest checkpoint in each; the states of rounds 1, 4 and 5, and two lists.
    assert counts["remove"] == 3 * 5 + 4 * 2 + 2


def test_folders_of_rounds_go_with_their_last_state(tmp_path):
    store = DiskStore(lambda client: state(-client), tmp_path / "client_states")
    for version in (1, 2, 3):
        store.put(0, state(version), version)
        store.put(version, state(version), version)
        store.snapshot()
    store.put(1, state(4), 4)
    description, _ = store.snapshot()
    assert list(description) == ["2", "3", "4"]
    store.forget_before(4)
    folders = sorted(path.name for path in (tmp_path / "client_states").iterdir())
    assert folders == ["round_000002", "round_000003", "round_000004"]
    again = DiskStore(lambda client: state(-client), tmp_path / "client_states")
    again.restore(description, [])
    assert [value(again.get(client)) for client in range(5)] == [3, 4, 2, 3, -4]


def test_a_folder_that_was_only_emptied_goes_in_the_next_process(tmp_path):
    """A process was killed between removing the last state of a round and its list."""
    directory = tmp_path / "client_states"
    store = DiskStore(lambda client: state(-client), directory)
    for number in (1, 2):
        store.put(0, state(number), number)
        description = store.snapshot()[0]
    (directory / "round_000001" / "client_000000.npz").unlink()
    store = DiskStore(lambda client: state(-client), directory)
    store.restore(description, [])
    # Whoever only reads removes nothing.
    assert (directory / "round_000001" / "states.json").exists()
    store.forget_after(2)
    store.put(0, state(3), 3)
    store.forget_before(2)
    assert sorted(path.name for path in directory.iterdir()) == ["round_000002", "round_000003"]
    assert value(store.get(0)) == 3


def test_a_state_can_be_added_to_a_round_that_is_listed(tmp_path):
    store = DiskStore(lambda client: state(-client), tmp_path / "client_states")
    store.put(0, state(1), 1)
    store.snapshot()
    store.put(1, state(2), 1)
    again = DiskStore(lambda client: state(-client), tmp_path / "client_states")
    again.restore(*store.snapshot())
    assert [value(again.get(client)) for client in (0, 1)] == [1, 2]
