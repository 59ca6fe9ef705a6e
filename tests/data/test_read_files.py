"""The files that data are read from: which ones are known, and what is said of their changes."""

import json
import os

import numpy as np
import pytest

from tff_pcdd import data
from tff_pcdd.data import read_files, sources

TABLE = "age,label\n1,ill\n2,well\n"


def source_of(dataset, path, **options):
    return sources.create(dataset, data_dir=str(path), **options)


@pytest.fixture
def tables(tmp_path):
    """A file of each of three hospitals, and what is no data."""
    folder = tmp_path / "hospitals"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "c.csv", "notes.txt", "._a.csv"):
        (folder / name).write_text(TABLE)
    return folder


def changed(recorded, folder):
    return read_files.changes(recorded, read_files.listing(source_of("table", folder)))


def later(path, seconds=10):
    """Sets the time of change of a file."""
    time = os.stat(path).st_mtime_ns + seconds * 10**9
    os.utime(path, ns=(time, time))


def test_files_by_their_names(tables, tmp_path):
    found = read_files.listing(source_of("table", tables))
    assert {name: file.size for name, file in found.items()} == dict.fromkeys(
        ["a.csv", "b.csv", "c.csv"], 23
    )
    assert [*read_files.listing(source_of("table", tables / "b.csv"))] == ["b.csv"]
    assert read_files.listing(source_of("table", tmp_path / "none")) == {}
    assert read_files.record({}) == ""


def test_images_and_arrays(tmp_path):
    """Of images, also those of DICOM without a suffix; no notes, hidden files or other places."""
    root = tmp_path / "images"
    kept = ["Lyon/cat/1.png", "Lyon/cat/IM0001", "test/Oslo/dog/1.2.840", "test/Oslo/dog/2.JPG"]
    others = ["readme", "Lyon/2.png", "Lyon/cat/notes.txt", "Lyon/cat/.3.png", "Lyon/.x/cat/1.png"]
    others += ["Lyon/cat/Thumbs.db", "a/b/c/d/5.png"]
    for name in (*kept, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"1234")
    assert sorted(read_files.listing(source_of("folder", root))) == kept
    clients = tmp_path / "clients"
    for part in ("train", "test"):
        (clients / part).mkdir(parents=True)
        for number in (0, 1):
            np.savez(clients / part / f"{number}.npz", x=np.zeros((2, 3)), y=np.arange(2))
    expected = ["test/0.npz", "test/1.npz", "train/0.npz", "train/1.npz"]
    assert sorted(read_files.listing(source_of("npz", clients))) == expected
    one = clients / "train" / "0.npz"
    assert [*read_files.listing(source_of("npz", one))] == ["0.npz"]


@pytest.mark.parametrize("pattern", [None, "{image}"])
def test_images_that_a_table_lists(pattern, tmp_path):
    """Images that no row names do not count, and those that are missing only as missing."""
    names = ["a 1.png", "b/ü.png", "b/3.png"]
    (tmp_path / "b").mkdir()
    for name in (*names, "other.png"):
        (tmp_path / name).write_bytes(b"1234")
    rows = "".join(f"{name},cat,Oslo\n" for name in names)
    (tmp_path / "list.csv").write_text(f"image,label,site\n{rows},dog,Oslo\n", encoding="utf-8")
    options = {"path_pattern": pattern} if pattern else {"path_column": "image"}
    source = source_of("table", tmp_path / "list.csv", missing="drop", **options)
    recorded = read_files.record(read_files.listing(source))
    assert sorted(json.loads(recorded)["files"]) == sorted(["list.csv", *names])
    assert read_files.changes(recorded, read_files.listing(source)) == ""
    (tmp_path / "other.png").write_bytes(b"123")
    (tmp_path / "b" / "3.png").write_bytes(b"1235")
    later(tmp_path / "b" / "3.png")
    assert read_files.changes(recorded, read_files.listing(source)) == "changed: b/3.png"
    # Records of earlier versions have the table alone.
    first = dict([*read_files.listing(source).items()][:1])
    assert [*first] == ["list.csv"]
    assert read_files.changes(read_files.record(first), read_files.listing(source)) == ""


def test_leaf_s_files(tmp_path):
    for part in ("train", "test"):
        (tmp_path / "data" / part).mkdir(parents=True)
        (tmp_path / "data" / part / f"{part}.json").write_text("{}")
    found = read_files.listing(source_of("femnist", tmp_path))
    assert sorted(found) == ["data/test/test.json", "data/train/train.json"]


def test_new_missing_and_changed_files_are_named(tables):
    recorded = read_files.record(read_files.listing(source_of("table", tables)))
    assert changed(recorded, tables) == ""
    for name in "defgh":
        (tables / f"{name}.csv").write_text(TABLE)
    (tables / "a.csv").unlink()
    (tables / "b.csv").write_text(TABLE + "3,ill\n")
    expected = "new: d.csv, e.csv, f.csv and 2 more; missing: a.csv; changed: b.csv"
    assert changed(recorded, tables) == expected


def test_contents_count_where_only_times_differ(tables):
    recorded = read_files.record(read_files.listing(source_of("table", tables)))
    later(tables / "a.csv")
    assert changed(recorded, tables) == ""
    (tables / "c.csv").write_text(TABLE.replace("2", "3"))
    later(tables / "c.csv")
    assert changed(recorded, tables) == "changed: c.csv"


def test_of_large_data_only_names_and_sizes_count(tables, monkeypatch):
    monkeypatch.setattr(read_files, "_MOST_BYTES", 3 * 23 - 1)
    recorded = read_files.record(read_files.listing(source_of("table", tables)))
    (tables / "c.csv").write_text(TABLE.replace("2", "3"))
    later(tables / "c.csv")
    assert changed(recorded, tables) == ""
    (tables / "c.csv").write_text(TABLE + "3,ill\n")
    assert changed(recorded, tables) == "changed: c.csv"


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (8, "new: s1/c0/2.png; changed: s0/c1/0.png"),
        (4, "changed: s0/c1/, s1/c0/"),
        (2, "changed: s0/, s1/"),
        (1, "changed: ./"),
    ],
)
def test_of_many_files_the_folders_are_recorded(most, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(read_files, "_MOST", most)
    for number in range(8):
        path = tmp_path / f"s{number % 2}" / f"c{number // 4}" / f"{number // 2 % 2}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1234")
    source = source_of("folder", tmp_path)
    recorded = read_files.record(read_files.listing(source))
    later(tmp_path / "s1" / "c1" / "0.png")
    assert read_files.changes(recorded, read_files.listing(source)) == ""
    (tmp_path / "s0" / "c1" / "0.png").write_bytes(b"12345")
    (tmp_path / "s1" / "c0" / "2.png").write_bytes(b"1234")
    assert read_files.changes(recorded, read_files.listing(source)) == expected


@pytest.mark.parametrize(
    "recorded",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        "{}",
        json.dumps({"level": 0}),
        json.dumps({"level": 7, "files": {"a.csv": ["1", "2", "3"]}}),
        json.dumps({"level": None, "files": ["a.csv"]}),
        json.dumps({"level": None, "files": {"a.csv": 3}}),
        json.dumps({"level": None, "files": {"a.csv": ["1"]}}),
        json.dumps({"level": [], "files": {"a.csv": ["1", "2", "3"]}}),
    ],
)
def test_what_is_no_record_says_nothing(recorded, tables):
    assert changed(recorded, tables) == ""


def test_names_of_any_bytes_are_shown_on_one_line(tables):
    recorded = read_files.record(read_files.listing(source_of("table", tables)))
    (tables / os.fsdecode(b"\xff\x1b\n.csv")).write_text(TABLE)
    assert changed(recorded, tables) == r"new: \udcff\x1b\n.csv"
    again = read_files.record(read_files.listing(source_of("table", tables)))
    assert changed(again, tables) == ""
    assert again.isascii()


def test_federations_know_their_files(tables):
    for name in "abc":
        (tables / f"{name}.csv").write_text(TABLE + "3,ill\n4,well\n")
    options = {"data_dir": str(tables), "feature_columns": "age", "test_fraction": 0.5}
    made = data.load_federation("table", "natural", **options)
    assert [*made.read_files] == ["a.csv", "b.csv", "c.csv"]
    assert data.load_federation("digits", "iid", 2).read_files == {}
