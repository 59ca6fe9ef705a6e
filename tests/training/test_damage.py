"""Damaged, missing and foreign files of checkpoints and results are noticed, or replaced.

tests/faults damages every file of whole runs in many more ways.
"""

import dataclasses
import errno
import gc
import hashlib
import json
import os
import re
import sys
from collections import OrderedDict

import numpy as np
import pytest

from tests import support
from tests.data.refusals import refuses
from tests.training.runs import CONFIG
from tff_pcdd import data, files
from tff_pcdd.data.digest import data_digest
from tff_pcdd.errors import DamagedFileError, DataError, WriteError
from tff_pcdd.experiment.client_store import MemoryStore
from tff_pcdd.training import History, checkpoints, manifests, recovery, run_directory
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
from tff_pcdd.training.disk_store import DiskStore

METRICS = "round,ga,seconds\n1,10.5,0.25\n2,,0.5\n3,30,0.25\n"


def server(value):
    return OrderedDict(weights=[np.full(3, value, np.float32)], round=np.int32(value))


def client(value=0):
    return OrderedDict(personal=[np.full(2, value, np.float32)], participations=np.int32(value))


def make_store(kind, directory):
    if kind == "memory":
        return MemoryStore(lambda _: client())
    return DiskStore(lambda _: client(), directory / "client_states")


@pytest.fixture(params=["memory", "disk"])
def kind(request):
    return request.param


on_disk = pytest.mark.parametrize("kind", ["disk"], indirect=True)


@pytest.fixture
def saved(kind, tmp_path):
    """Checkpoints of rounds 1 to 3, of two clients one of which takes part in the first two."""
    manager = CheckpointManager(tmp_path / "checkpoints", keep=3)
    store = make_store(kind, tmp_path)
    for number in (1, 2, 3):
        store.put(0, client(number), number)
        if number < 3:
            store.put(1, client(10 * number), number)
        manager.save(Checkpoint(number, server(number), {}, f"round\n{number}\n"), store)
    return tmp_path


def load(directory, kind, run=None, number=None, **further):
    """Loads a checkpoint as a new process does; its round, and the states of both clients."""
    manager = CheckpointManager(directory / "checkpoints", 3, run)
    store = make_store(kind, directory)
    loaded = manager.load(server(0), client(), store, number, **further)
    support.assert_trees_equal(loaded.server_state, server(loaded.round))
    return loaded.round, [int(store.get(number)["participations"]) for number in (0, 1)]


STATES = {1: (1, [1, 10]), 2: (2, [2, 20]), 3: (3, [3, 20])}


def test_nothing_is_damaged(saved, kind, caplog):
    assert load(saved, kind) == STATES[3]
    assert not caplog.records


def test_an_archive_that_cannot_be_written_is_silent_when_collected(tmp_path):
    """Its destructor tries to complete it, where nobody can catch an error."""
    caught = []

    def write(file, data, original=files._Output.write):
        if file.error is None and len(data) > 8:
            file.error = OSError(errno.ENOSPC, "No space left on device")
            raise file.error
        return original(file, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", caught.append)
        patch.setattr(files._Output, "write", write)
        with pytest.raises(WriteError, match="No space left"):
            checkpoints.save_tree(tmp_path / "tree.npz", server(1))
        gc.collect()
    assert not caught
    assert not os.listdir(tmp_path)


def test_checksums_are_those_of_the_files(saved, kind):
    content = json.loads((saved / "checkpoints" / "round_000003.json").read_text())["content"]
    found = {"arrays": saved / "checkpoints" / "round_000003.npz"}
    if kind == "disk":
        # A list for each round, with the states of it.
        states = saved / "client_states"
        found |= {str(n): states / f"round_{n:06d}" / "states.json" for n in (2, 3)}
    sums = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
    assert sums.pop("arrays") == content["arrays"]
    if kind == "disk":
        assert sums == content["clients"]
        for number, client in ((3, 0), (2, 1)):
            folder = states / f"round_{number:06d}"
            listed = json.loads((folder / "states.json").read_text())
            state = (folder / f"client_{client:06d}.npz").read_bytes()
            assert listed[str(client)] == hashlib.sha256(state).hexdigest()


@pytest.mark.parametrize("suffix", ["json", "npz"])
@pytest.mark.parametrize("harm", ["missing", "emptied", "cut", "flipped", "of another round"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(saved, kind, suffix, harm, caplog):
    path = saved / "checkpoints" / f"round_000003.{suffix}"
    damage(path, harm)
    assert load(saved, kind) == STATES[2]
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(str(path))
    assert second == "using the checkpoint of round 2; lost: round 3"
    # Without a manifest, it does not count.
    wanted = f"^{re.escape(str(path))} ", DamagedFileError
    if (suffix, harm) == ("json", "missing"):
        wanted = r"^no checkpoint of round 3 .* there are \[1, 2\]$", FileNotFoundError
    with pytest.raises(wanted[1], match=wanted[0]):
        load(saved, kind, number=3)


def damage(path, harm):
    contents = path.read_bytes()
    path.unlink()
    if harm == "emptied":
        path.touch()
    elif harm == "cut":
        path.write_bytes(contents[:-5])
    elif harm == "flipped":
        changed = bytearray(contents)
        changed[len(changed) // 2] ^= 4
        path.write_bytes(changed)
    elif harm == "of another round":
        path.write_bytes(path.with_name(path.name.replace("3.", "2.")).read_bytes())


def test_arrays_that_an_unfinished_run_saved_last_are_no_damage(saved, kind, caplog):
    """A process that is ended before it writes the manifest leaves them."""
    (saved / "checkpoints" / "round_000003.json").unlink()
    assert load(saved, kind, unfinished=True) == STATES[2]
    assert not caplog.records
    # A manifest that is there may be damaged, and no process leaves two arrays without one.
    (saved / "checkpoints" / "round_000002.json").unlink()
    assert load(saved, kind, unfinished=True) == STATES[1]
    assert caplog.messages[-1] == "using the checkpoint of round 1; lost: rounds 2 to 3"


def test_several_damaged_checkpoints(saved, kind, caplog):
    for number in (2, 3):
        (saved / "checkpoints" / f"round_{number:06d}.npz").write_bytes(b"x")
    assert load(saved, kind) == STATES[1]
    assert caplog.messages[-1] == "using the checkpoint of round 1; lost: rounds 2 to 3"
    (saved / "checkpoints" / "round_000001.npz").unlink()
    with pytest.raises(DamagedFileError) as error:
        load(saved, kind)
    assert re.fullmatch(
        r"no checkpoint can be used: \S+round_000003.npz is damaged or was replaced .*; the other "
        r"2 cannot be used either; restore the files, or overwrite the run to start again",
        str(error.value),
    )


@pytest.mark.parametrize("harm", ["missing", "emptied", "cut", "flipped"])
@pytest.mark.parametrize(
    "names", [("client_000000.npz", "client_000001.npz"), ("states.json", "states.json")]
)
@on_disk
def test_a_damaged_state_of_a_client(saved, names, harm, kind, caplog):
    """It used to be replaced by an older state without a word if it was missing."""
    states = saved / "client_states"
    damage(states / "round_000003" / names[0], harm)
    assert load(saved, kind) == STATES[2]
    assert f"round_000003/{names[0]}" in caplog.messages[0]
    # Both newer checkpoints need this one.
    damage(states / "round_000002" / names[1], harm)
    assert load(saved, kind) == STATES[1]
    damage(states / "round_000001" / names[0], harm)
    with pytest.raises(DamagedFileError, match=rf"no checkpoint can be used: .*{names[0]}"):
        load(saved, kind)


def test_a_state_that_is_damaged_while_the_run_goes_on(tmp_path):
    store = make_store("disk", tmp_path)
    store.put(0, client(1), 1)
    other = make_store("disk", tmp_path / "other")
    other.put(0, client(2), 1)
    name = "client_states/round_000001/client_000000.npz"
    (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(DamagedFileError, match=r"round_000001/client_000000.npz is damaged"):
        store.get(0)


@pytest.mark.parametrize("suffix", ["json", "npz"])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_not_a_file_is_refused(saved, kind, suffix, make):
    """It is not ours, so no other checkpoint is used, which would delete it later."""
    path = saved / "checkpoints" / f"round_000003.{suffix}"
    path.unlink()
    make(path)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))} is not a file; remove it$"):
        load(saved, kind)


def test_directories_with_names_of_later_rounds_stay(saved, kind):
    """Files of later rounds are deleted when a run goes on."""
    own = saved / "checkpoints" / "round_000009.npz"
    own.mkdir()
    later = saved / "client_states" / "round_000009" / "client_000000.npz"
    later.mkdir(parents=True)
    CheckpointManager(saved / "checkpoints", 3).forget_after(2)
    make_store(kind, saved).forget_after(2)
    assert own.is_dir()
    assert later.is_dir()
    assert sorted(path.stem for path in own.parent.glob("*.npz")) == [
        "round_000001",
        "round_000002",
        "round_000009",
    ]


AGAIN = r".* or train the run again; exported models answer for new samples \(tasks.predict\)"


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        ("settings", "belongs to a run with other settings", ".* or overwrite the run"),
        ("data", "was written with other data", AGAIN),
        (
            "meaning",
            "was written with inputs of another type",
            AGAIN,
        ),
    ],
)
def test_checkpoints_of_other_runs_and_data_are_refused(name, reason, remedy, tmp_path):
    run = {"settings": "a", "data": "b", "meaning": "d"}
    manager = CheckpointManager(tmp_path / "checkpoints", 3, run)
    manager.save(Checkpoint(1, server(1)), make_store("memory", tmp_path))
    assert load(tmp_path, "memory", run)[0] == 1
    with pytest.raises(DataError, match=rf"round_000001.json {reason}{remedy}$"):
        load(tmp_path, "memory", {**run, name: "c"})


def test_checkpoints_of_older_versions_are_refused(saved, kind):
    old = {"round": 3, "clients": {}, "inline": True, "totals": {}}
    (saved / "checkpoints" / "round_000003.json").write_text(json.dumps(old))
    with pytest.raises(DataError, match="written by an older version, whose runs cannot be cont"):
        load(saved, kind)


def test_manifests_with_checksums_of_clients(saved, kind):
    """Earlier versions wrote them into every manifest; without files of clients, there are none."""
    path = saved / "checkpoints" / "round_000003.json"
    content = {**json.loads(path.read_bytes())["content"], "client_checksums": {}}
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps({"checksum": checksum, "content": content}))
    if kind == "memory":
        assert load(saved, kind) == STATES[3]
    else:
        with pytest.raises(DataError, match=r"written by another version; use that version$"):
            load(saved, kind)


def deep(levels):
    """An object within objects."""
    found = {}
    for _ in range(levels):
        found = {"a": found}
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metrics", 5),
        ("metrics", "a,b\n1,2\n"),
        ("metrics", "round,ga\n2,1\n1,1\n"),
        ("metrics", None),
        ("run", []),
        ("run", {"settings": 1}),
        ("summary", "[]"),
        ("summary", "{"),
        ("summary", 1),
        ("clients", None),
        ("clients", {"a": 1}),
        ("clients", {"1": None}),
        ("clients", {"9" * 5000: 1}),
        ("totals", [1]),
        ("totals", {"upload_bytes": "x"}),
        ("answers", None),
        ("answers", {"clients.csv": 1}),
        ("round", "3"),
        ("round", True),
        ("arrays", 7),
        ("inline", 1),
        ("totals", deep(600)),
        ("run", deep(600)),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 9 else "",
)
def test_a_manifest_with_a_right_checksum_and_wrong_contents(saved, kind, name, value):
    """Whoever changes the contents can change the checksum, too."""
    path = saved / "checkpoints" / "round_000003.json"
    content = {**json.loads(path.read_bytes())["content"], name: value}
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps({"checksum": checksum, "content": content}))
    with pytest.raises(DamagedFileError, match=r"round_000003\.json is damaged \("):
        manifests.read(saved / "checkpoints", 3)
    assert load(saved, kind) == STATES[2]


@pytest.mark.parametrize("text", ["[]", "{", '{"a": "x"}', '{"0": 1}', None])
@on_disk
def test_a_list_of_states_with_a_right_checksum_and_wrong_contents(saved, kind, text):
    path = saved / "client_states" / "round_000003" / "states.json"
    path.write_text("[" * 100_000 if text is None else text)
    manifest = saved / "checkpoints" / "round_000003.json"
    content = json.loads(manifest.read_bytes())["content"]
    content["clients"]["3"] = hashlib.sha256(path.read_bytes()).hexdigest()
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    manifest.write_text(json.dumps({"checksum": checksum, "content": content}))
    assert load(saved, kind) == STATES[2]


def test_arrays_without_a_manifest_are_no_checkpoint(tmp_path):
    """A run that is killed while it saves its first checkpoint starts anew."""
    manager = CheckpointManager(tmp_path, keep=2)
    (tmp_path / "round_000001.npz").write_bytes(b"half")
    assert manager.rounds() == []
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        manager.load(server(0), client(), make_store("memory", tmp_path))
    manager.forget_after(0)
    assert os.listdir(tmp_path) == []


# The results.


@pytest.fixture
def finished(tmp_path):
    """metrics.csv, summary.json and a checkpoint with their copies."""
    run_directory.write_config(tmp_path, CONFIG)
    settings = manifests.settings_digest(CONFIG.to_settings())
    manager = CheckpointManager(tmp_path / "checkpoints", 3, {"settings": settings, "data": ""})
    (tmp_path / "metrics.csv").write_text(METRICS)
    summary = {"ga_final": 30.0, "pa_final": None}
    checkpoint = Checkpoint(3, server(3), {}, METRICS)
    manager.save(checkpoint, make_store("memory", tmp_path))
    manager.record_results(run_directory.json_text(summary), {})
    run_directory.write_summary(tmp_path, summary)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\ufeff" + METRICS, r"not a header that starts with round: '\ufeffround,ga,seconds'"),
        (METRICS.replace(",", ";"), "not a header that starts with round: 'round;ga;seconds'"),
        (METRICS.replace("ga", "round"), "not a header that starts with round"),
        (METRICS.replace("10.5", "10,5"), "line 2: 4 values instead of 3"),
        (METRICS.replace("10.5", "1O.5"), "line 2: could not convert string to float: '1O.5'"),
        (METRICS.replace("\n2,", "\n4,"), "line 4: round 3 follows round 4"),
        (METRICS.replace("\n2,", "\n1,"), "line 3: round 1 follows round 1"),
        (METRICS.replace("\n2,", "\n,"), "line 3: round ? follows round 1"),
        (METRICS.replace("\n2,", "\n\n2,"), "line 3: 0 values instead of 3"),
        (METRICS.replace("10.5", '"10.5'), "unexpected end of data"),
    ],
)
def test_damaged_tables_are_refused_or_replaced(finished, text, reason, caplog):
    path = finished / "metrics.csv"
    path.write_text(text)
    with pytest.raises(DamagedFileError) as error:
        History.read(path)
    assert str(error.value).startswith(f"{path} is damaged (")
    assert reason in str(error.value)
    assert recovery.read_history(finished).points("ga") == [(1, 10.5), (3, 30.0)]
    assert caplog.messages == [f"{error.value}; using the copy in the checkpoint of round 3"]


@pytest.mark.parametrize("text", [METRICS.replace("2,,0.5\n", ""), METRICS.replace("30", "31"), ""])
def test_a_table_with_other_rows_is_replaced(finished, text, caplog):
    """Each of them could be a whole table, so only the copy tells that it is not."""
    (finished / "metrics.csv").write_text(text)
    assert recovery.read_history(finished).column("round") == [1, 2, 3]
    assert "metrics.csv differs from its copy in the checkpoint" in caplog.text
    recovery.repair(finished)
    assert (finished / "metrics.csv").read_text() == METRICS
    (finished / "metrics.csv").unlink()
    recovery.repair(finished)
    assert (finished / "metrics.csv").read_text() == METRICS
    caplog.clear()
    recovery.repair(finished)
    assert recovery.read_history(finished).column("round") == [1, 2, 3]
    assert not caplog.records


def test_later_rows_and_new_columns_are_no_damage(finished):
    """An interrupted process may have measured more than the one before."""
    path = finished / "metrics.csv"
    path.write_text("round,ga,seconds,diag\n1,10.5,0.25,\n2,,0.5,\n3,30,0.25,\n4,1,1,1\n")
    assert recovery.damage_of_metrics(path.parent, METRICS) is None
    path.write_text(path.read_text().replace("0.5,", "0.5,7"))
    assert recovery.damage_of_metrics(path.parent, METRICS) is not None


@pytest.mark.parametrize("text", ['{"ga_final": 31.0, "pa_final": null}', "", "{", "\x00" * 40])
def test_a_damaged_summary_is_replaced(finished, text, caplog):
    path = finished / "summary.json"
    whole = path.read_text()
    path.write_text(text)
    assert recovery.read_summary(finished) == {"ga_final": 30.0, "pa_final": None}
    assert f"{path} is damaged or was changed; using the copy" in caplog.text
    recovery.repair(finished)
    assert path.read_text() == whole


def test_copies_that_differ_from_both_files_are_not_used(finished):
    """The checkpoint may be that of a run with the same settings and other data."""
    (finished / "summary.json").write_text('{"ga_final": 31.0}')
    (finished / "metrics.csv").write_text(METRICS.replace("30", "31"))
    for read in (recovery.read_summary, recovery.read_history, recovery.repair):
        with pytest.raises(DamagedFileError) as error:
            read(finished)
        assert "and so does summary.json" in str(error.value)
        assert "round_000003.json may belong to another run" in str(error.value)


def test_an_incomplete_last_line_of_a_finished_run_is_dropped(finished):
    (finished / "metrics.csv").write_text(METRICS + "4,")
    recovery.repair(finished)
    assert (finished / "metrics.csv").read_text() == METRICS


def test_an_error_names_some_of_many_different_settings(finished):
    (finished / "config.json").write_text("{}")
    with refuses(
        "output_dir", r"^holds a run with different settings: .* and \d+ more; "
    ) as caught:
        run_directory.check_directory(finished, CONFIG, overwrite=False)
    assert caught.value.reason.count("(there None") == 6


def test_copies_of_another_run_are_not_used(finished):
    run_directory.write_config(finished, CONFIG.with_settings(seed=7))
    (finished / "summary.json").write_text("{")
    with refuses("output_dir", "^summary.json is damaged"):
        recovery.read_summary(finished)


@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "evaluation.json"])
def test_a_directory_in_place_of_a_file(finished, name):
    (finished / name).unlink(missing_ok=True)
    (finished / name).mkdir()
    with refuses("output_dir", f"^{name} is not a file; remove it$"):
        run_directory.check_directory(finished, CONFIG, overwrite=False)
    run_directory.check_directory(finished, CONFIG, overwrite=True)


@pytest.mark.parametrize("name", ["checkpoints", "client_states", "plots", "tensorboard"])
def test_a_file_in_place_of_a_directory(tmp_path, name):
    run_directory.write_config(tmp_path, CONFIG)
    (tmp_path / name).touch()
    with refuses("run_dir", f"^{name} is not a directory; remove it$"):
        run_directory.check_entries(tmp_path, "run_dir")
    with refuses("output_dir", f"^{name} is not a directory; remove it$"):
        run_directory.check_directory(tmp_path, CONFIG, overwrite=False)


# The digest of the data.


def federation(**changes):
    x = np.arange(24, dtype=np.float32).reshape(6, 2, 2, 1)
    examples = data.Examples(x, np.arange(6) % 2)
    parts = (np.arange(3), np.arange(3, 6))
    fields = {
        "name": "tiny",
        "num_classes": 2,
        "class_names": ("a", "b"),
        "input_spec": data.InputSpec("image", (2, 2, 1), "float32"),
        "train": examples,
        "test": examples,
        "clients": [
            data.ClientIndices(name, part, part) for name, part in zip("kl", parts, strict=True)
        ],
    }
    return data.Federation(**{**fields, **changes})


def test_the_digest_depends_on_every_sample_and_on_their_division():
    whole = federation()
    x, y = whole.train.x.copy(), whole.train.y.copy()
    x[5, 1, 1, 0] += 1e-5
    y[0] = 1
    k, l = whole.clients  # noqa: E741
    fewer = dataclasses.replace(k, train=k.train[:2])
    others = [
        federation(train=data.Examples(x, whole.train.y)),
        federation(test=data.Examples(x, whole.train.y)),
        federation(train=data.Examples(whole.train.x, y)),
        federation(clients=[l, k]),
        federation(clients=[fewer, l]),
        federation(clients=[dataclasses.replace(fewer, validation=k.train[2:]), l]),
        federation(clients=[k, dataclasses.replace(l, client_id="m")]),
    ]
    digests = [data_digest(each) for each in (whole, *others)]
    assert len(set(digests)) == len(digests)
    assert data_digest(federation()) == digests[0]


def test_the_digest_of_data_tells_the_zeros_apart():
    """They are equal, but a layer may divide by them; the digest is that of the bits."""
    whole = federation()
    both = []
    for zero in (0.0, -0.0):
        x = whole.train.x.copy()
        x[5, 1, 1, 0] = zero
        both.append(data_digest(federation(train=data.Examples(x, whole.train.y))))
    assert both[0] != both[1]


def test_the_digest_does_not_depend_on_the_folder_of_images():
    def of(*paths):
        examples = data.Examples(np.array(paths), np.arange(len(paths)) % 2)
        spec = data.InputSpec("image_file", (2, 2, 3), "string")
        return data_digest(federation(input_spec=spec, train=examples, test=examples))

    files = [b"a/1.jpg", b"a/2.jpg", b"ab/1.jpg", b"c.jpg", b"d.jpg", b"e.jpg"]
    here, there = ([folder + path for path in files] for folder in (b"/data/", b"/mnt/ab/x/"))
    assert of(*here) == of(*there)
    assert of(*here) != of(*here[:-1], b"/data/f.jpg")


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest", "none", "deleted"])
def test_a_finished_run_tells_of_its_lost_checkpoint(damage, saved, caplog):
    """Its results stay as they are; whoever evaluates it learns why that gives others."""
    folder = saved / "checkpoints"
    arrays, manifest = folder / "round_000003.npz", folder / "round_000003.json"
    if damage == "truncated":
        os.truncate(arrays, 100)
    elif damage == "missing":
        arrays.unlink()
    elif damage == "manifest":
        manifest.write_text("{}")
    elif damage == "deleted":
        for path in folder.iterdir():
            path.unlink()
    recovery.warn_of_lost_checkpoint(saved)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == (damage not in ("none", "deleted"))
    for message in warned:
        assert "round_000003" in message
        assert "use an earlier checkpoint" in message
