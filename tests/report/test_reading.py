"""Files of unknown origin: what is missing, damaged, or not a file at all."""

import os
import zipfile

import numpy as np
import pytest

from tests.report.directories import FIXED, make_run, write_csv
from tff_pcdd import tables, text
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.results import by_client, confusion, reading
from tff_pcdd.results.reading import Directory


@pytest.fixture
def directory(tmp_path):
    return Directory(tmp_path)


def test_a_table(directory):
    (directory.path / "a.csv").write_text('x,y\n"1,5",2\n3,4\n5')
    assert directory.table("a.csv") == (["x", "y"], [["1,5", "2"], ["3", "4"]])


@pytest.mark.parametrize(
    ("read", "content"),
    [
        *(("table", each) for each in (b"x,y\n1\n", b'x,y\n"1,2\n', b"x,y\n\xff,1\n")),
        *(("json", each) for each in (b"", b"[1]", b"{", b"[" * 100_000, b"9" * 10_000)),
    ],
)
def test_a_damaged_file(directory, read, content):
    (directory.path / "a").write_bytes(content)
    with pytest.raises(DamagedFileError, match="a is damaged"):
        getattr(directory, read)("a")


def test_a_missing_file_is_described(directory):
    assert directory.attempt("a.json", directory.json, "a.json") is None
    assert directory.problems == {"a.json": "there is no a.json"}
    assert directory.damaged() == []


def test_a_damaged_file_is_described_in_one_line(directory):
    (directory.path / "a.json").write_text("{\n\n")
    assert directory.attempt("a.json", directory.json, "a.json") is None
    (line,) = directory.damaged()
    assert "a.json is damaged" in line
    assert "\n" not in line


def test_only_regular_files_are_read(directory, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.write_text("{}")
    (directory.path / "link").symlink_to(outside)
    (directory.path / "broken").symlink_to("nowhere")
    (directory.path / "folder").mkdir()
    os.mkfifo(directory.path / "pipe")
    for name in ("link", "broken", "folder", "pipe"):
        with pytest.raises(DamagedFileError, match="not a regular file in this directory"):
            directory.text(name)


def test_large_files_are_not_read(directory):
    with open(directory.path / "a.csv", "wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(DamagedFileError, match="more than"):
        directory.text("a.csv")


def test_folders_behind_links_are_not_searched(directory, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "config.json").write_text("{}")
    (directory.path / "inside").mkdir()
    (directory.path / "inside" / "config.json").write_text("{}")
    (directory.path / "outside").symlink_to(outside)
    assert [*directory.folders("*/config.json")] == [directory.path / "inside"]


def test_arrays_that_would_run_code_are_not_read(directory):
    class Runs:
        def __reduce__(self):
            return os.mkdir, (str(directory.path / "executed"),)

    np.savez(directory.path / "a.npz", x=np.array([Runs()], dtype=object))
    with pytest.raises(DamagedFileError, match=r"a\.npz is damaged"):
        directory.arrays("a.npz")
    assert not (directory.path / "executed").exists()


def test_arrays_that_unpack_to_more_are_not_read(directory, monkeypatch):
    monkeypatch.setattr(reading, "_MAX_ARRAYS", 1_000_000)
    with zipfile.ZipFile(directory.path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in "ab":
            archive.writestr(f"{name}.npy", bytes(600_000))
    assert (directory.path / "a.npz").stat().st_size < 10_000
    with pytest.raises(DamagedFileError, match="when unpacked"):
        directory.arrays("a.npz")


def test_names_are_shown_on_one_line():
    assert text.name_of("Charité Campus West") == "Charité Campus West"
    assert text.name_of("a\nb") == "a\\nb"
    assert text.name_of("") == "''"
    # Otherwise, it would show the rest of the line from right to left.
    assert text.name_of("a\u202eb") == "a\\u202eb"
    assert len(text.name_of("x" * 5000)) < 100


def test_numbers():
    assert tables.read_number("1.5") == 1.5
    assert [tables.read_number(cell) for cell in ("", "nan", "inf", "1e300")] == [None] * 4
    with pytest.raises(ValueError):
        tables.read_number("many")
    assert (tables.read_count("12"), tables.read_count("")) == (12, 0)
    for cell in ("-1", "1.5", "9" * 30, "9" * 10_000):
        with pytest.raises(ValueError):
            tables.read_count(cell)


def test_clients(tmp_path):
    header = [*FIXED, "train_cat", "train_dog", "recall_cat", "recall_dog"]
    values = ["60", "70.5", "80", "75", "85", "70", "80", "20", ""]
    row = ["north", 12, 4, *values, "few samples", 12, 0, 80, ""]
    write_csv(tmp_path / "clients.csv", header, [row])
    found = by_client.read(Directory(tmp_path))
    (client,) = found.clients
    assert (client.name, client.train, client.test, client.warning) == (
        "north",
        12,
        4,
        "few samples",
    )
    assert (client.values["ga"], client.values["pa"], client.values["over_local"]) == (
        60.0,
        80.0,
        None,
    )
    assert found.classes == ["cat", "dog"]
    assert found.counts.tolist() == [[12, 0]]
    assert found.held(0) == 1


def test_classes_named_like_columns(tmp_path):
    """`train_samples` is then a column twice."""
    classes = ("samples", "train_samples", "recall_x", "")
    make_run(tmp_path, classes=classes)
    found = by_client.read(Directory(tmp_path))
    assert found.classes == ["samples", "train_samples", "recall_x", "''"]
    assert [client.train for client in found.clients] == found.counts.sum(axis=1).tolist()


@pytest.mark.parametrize(
    ("before", "after"),
    [("client,", "name,"), ("north,", "north,-"), ("warning", "warnings"), ("train_samples", "t")],
)
def test_damaged_clients(tmp_path, before, after):
    make_run(tmp_path)
    path = tmp_path / "clients.csv"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(DamagedFileError, match=r"clients\.csv is damaged"):
        by_client.read(Directory(tmp_path))


@pytest.mark.parametrize(
    "arrays",
    [
        {"global": np.zeros((3, 3), int)},
        {"class_names": np.array(["a", "b"]), "global": np.zeros((3, 3), int)},
        {"class_names": np.array(["a", "b"]), "global": np.full((2, 2), -1)},
        {"class_names": np.array(["a", "b"]), "global": np.zeros((2, 2))},
        {"class_names": np.array(["a", "b"]), "personal": np.zeros((7, 2, 2), int)},
        {"class_names": np.zeros(2)},
    ],
)
def test_damaged_matrices(tmp_path, arrays):
    np.savez(tmp_path / "confusion.npz", **arrays)
    with pytest.raises(DamagedFileError, match=r"confusion\.npz is damaged"):
        confusion.read(Directory(tmp_path), 3)


def test_matrices_that_were_left_out(tmp_path):
    np.savez(
        tmp_path / "confusion.npz",
        class_names=np.array(["a", "b"]),
        **{"global": np.eye(2, dtype=np.int64)},
    )
    found = confusion.read(Directory(tmp_path), 3)
    assert found.of_clients is None
    assert found.of_global.tolist() == [[1, 0], [0, 1]]


def test_mistakes():
    matrix = np.array([[5, 3, 0], [1, 9, 0], [4, 0, 0]])
    found = confusion.mistakes(matrix, ("a", "b", "c"), 2)
    assert found == [("c", "a", 4, 1.0), ("a", "b", 3, 3 / 8)]
    assert confusion.recall(matrix) == [5 / 8, 9 / 10, 0.0]
