"""The table of clients, from predictions that are made up; expected values from loops."""

import csv
import dataclasses
import io

import numpy as np
import pytest

from tests.markdown_tables import table_rows
from tff_pcdd import data
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.experiment.model_evaluation import Answers
from tff_pcdd.training import clients_table
from tff_pcdd.training.predictions import confusion_matrices

NAMES = ("a|b", "c", "samples")
IDS = ("St. Mary", "north | east", "no test", "no train")
TRAIN = np.array([0, 0, 1, 2, 2, 0])
TEST = np.array([0, 1, 2, 2, 1, 0, 0])
PARTS = [([0, 1, 2], [0, 1, 2, 5]), ([3, 4], [2, 3, 4]), ([5], []), ([], [6])]
GLOBALLY = np.array([0, 1, 1, 2, 0, 0, -1], np.int32)
BEFORE = [[0, 1, -1, 1], [2, 2, 2], [], [0]]
AFTER = [[1, 1, 2, 1], [2, 2, 0], [], [1]]


def federation():
    clients = [
        data.ClientIndices(name, np.array(train, int), np.array(test, int))
        for name, (train, test) in zip(IDS, PARTS, strict=True)
    ]
    train, test = (data.Examples(np.zeros((len(y), 2, 2, 1), np.uint8), y) for y in (TRAIN, TEST))
    spec = data.InputSpec("image", (2, 2, 1))
    return data.Federation("made up", 3, NAMES, spec, train, test, clients)


def count(predicted):
    """Correct samples by client and class."""
    found = np.zeros((4, 3), int)
    for client, (_, test) in enumerate(PARTS):
        for sample, answer in zip(test, predicted[client], strict=True):
            found[client, TEST[sample]] += answer == TEST[sample]
    return found


def answers(globally=GLOBALLY):
    total = count([TEST[test] for _, test in PARTS])
    counts = {"total": total, "before": count(BEFORE), "after": count(AFTER)}
    # Any other numbers: which classes are masked is not known here.
    counts |= {"before_masked": counts["before"] // 2, "after_masked": total}
    lists = [[np.array(of, np.int32) for of in stage] for stage in (BEFORE, AFTER)]
    return Answers(globally, *lists, counts)


def parsed(text):
    header, *lines = csv.reader(io.StringIO(text))
    return header, lines


def test_rows():
    first, second, third, fourth = clients_table.rows(federation(), answers())
    assert first == {
        "client": "St. Mary",
        "train_samples": 3,
        "test_samples": 4,
        "ga": 75.0,
        "pa_before": 50.0,
        "pa": 50.0,
        "pa_before_masked": 0.0,
        "pa_masked": 100.0,
        "balanced_before": 50.0,  # 1/2, 1 and 0 of the classes' samples
        "balanced": 66.6666667,  # 0, 1 and 1
        "over_global": -25.0,
        "over_local": None,
        "warning": "",  # A single sample is worse than with the global model.
    }
    assert second["ga"] == 33.3333333
    assert second["over_global"] == 33.3333333
    assert second["warning"] == ""
    assert [third[name] for name in clients_table.COLUMNS[3:12]] == [None] * 9
    assert third["warning"] == "no test samples, so no accuracies"
    assert fourth["warning"] == "no training samples"
    assert fourth["ga"] == 0.0, "an answer that is not finite is wrong"


def test_without_a_global_model():
    for row in clients_table.rows(federation(), answers(globally=None)):
        assert row["ga"] is None
        assert row["over_global"] is None
    assert "global" not in confusion_matrices(federation(), answers(globally=None))


def test_over_local():
    """Also of rows that were read from a file."""
    row = clients_table.rows(federation(), answers())[1]
    better = clients_table.with_local(row, 60.0)
    assert better["over_local"] == pytest.approx(20 / 3)
    assert better["warning"] == ""
    worse = clients_table.with_local(better, 70.0)
    assert worse["over_local"] == pytest.approx(-10 / 3)
    assert worse["warning"] == "", "no more than chance with three test samples"
    assert clients_table.with_local(worse, None) == row
    many = clients_table.with_local({**row, "test_samples": 3000}, 70.0)
    assert many["warning"] == "the personal model is 3.33 points worse than training alone"


def test_a_diverged_run_is_marked_everywhere():
    rows = clients_table.rows(federation(), answers(), diverged=True)
    for row in rows:
        assert row["warning"].startswith(clients_table.DIVERGED)
        assert clients_table.with_local(row, 50.0)["warning"].startswith(clients_table.DIVERGED)


def test_csv(tmp_path):
    """Class names may contain separators, and may repeat names of other columns."""
    rows = clients_table.rows(federation(), answers())
    text = clients_table.csv_text(rows, federation(), answers())
    header, lines = parsed(text)
    per_class = [f"{what}_{name}" for what in ("train", "recall") for name in NAMES]
    per_class[per_class.index("train_samples")] = "train_samples (class)"
    assert header == [*clients_table.COLUMNS, *per_class]
    assert len({*header}) == len(header)
    assert lines[0][13:] == ["2", "1", "0", "0", "100", "100"]
    assert lines[1][13:] == ["0", "0", "2", "", "0", "100"]
    assert lines[2][13:] == ["1", "0", "0", "", "", ""]
    path = tmp_path / "clients.csv"
    path.write_text(text)
    assert clients_table.read(path) == rows


def test_names_with_line_breaks(tmp_path):
    """The classes of a text are characters."""
    names, ids = ("\r", "\n", '"'), ("a\rb", "c,d", "e", "f\0")
    clients = [
        dataclasses.replace(client, client_id=name)
        for client, name in zip(federation().clients, ids, strict=True)
    ]
    strange = dataclasses.replace(federation(), class_names=names, clients=clients)
    rows = clients_table.rows(strange, answers())
    text = clients_table.csv_text(rows, strange, answers())
    assert text.count("\n") == 5
    header, _ = parsed(text)
    assert header[13:16] == ["train_\\r", "train_\\n", 'train_"']
    path = tmp_path / "clients.csv"
    path.write_bytes(text.encode())
    assert [row["client"] for row in clients_table.read(path)] == ["a\\rb", "c,d", "e", "f\\x00"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no column 'warning'"),
        ("round,ga\n1,2\n", "there is no column 'warning'"),
        ("client,warning\na,\n", "there is no column 'train_samples'"),
        ("cut", "lines of different lengths"),
        ("NUL\0", ""),
    ],
)
def test_damaged_files(tmp_path, text, reason):
    path = tmp_path / "clients.csv"
    rows = clients_table.rows(federation(), answers())
    whole = clients_table.csv_text(rows, federation(), answers())
    path.write_text(whole[:-20] if text == "cut" else text)
    with pytest.raises(DamagedFileError, match=rf"clients\.csv is damaged \({reason}"):
        clients_table.read(path)


def test_markdown_starts_with_the_worst_client():
    rows = clients_table.rows(federation(), answers())
    text = clients_table.page(rows, "Clients", ["A note."])
    lines = table_rows(text)
    assert [line[0] for line in lines] == [
        "client",
        "no train",
        "St. Mary",
        "north \\| east",
        "no test",
    ]
    assert len({len(line) for line in lines}) == 1
    assert "over local" not in lines[0], "nothing is known about it"
    assert "\nA note.\n" in text
    warnings = text.split("## Warnings\n\n")[1].splitlines()
    assert warnings == [
        "- no train: no training samples",
        "- no test: no test samples, so no accuracies",
    ]


def test_confusion_matrices():
    found = confusion_matrices(federation(), answers())
    assert found["class_names"].tolist() == list(NAMES)
    expected = np.zeros((3, 3), int)
    for label, predicted in zip(TEST, GLOBALLY, strict=True):
        if predicted >= 0:
            expected[label, predicted] += 1
    np.testing.assert_array_equal(found["global"], expected)
    for name, predicted in (("personal", AFTER), ("personal_before", BEFORE)):
        assert found[name].shape == (4, 3, 3)
        for client, (_, test) in enumerate(PARTS):
            expected = np.zeros((3, 3), int)
            for sample, answer in zip(test, predicted[client], strict=True):
                if answer >= 0:
                    expected[TEST[sample], answer] += 1
            np.testing.assert_array_equal(found[name][client], expected)


def test_large_confusion_matrices_are_left_out(monkeypatch):
    monkeypatch.setattr("tff_pcdd.training.predictions._MAX_ENTRIES", 4 * 9 - 1)
    assert sorted(confusion_matrices(federation(), answers())) == ["class_names", "global"]
    monkeypatch.setattr("tff_pcdd.training.predictions._MAX_ENTRIES", 8)
    assert sorted(confusion_matrices(federation(), answers())) == ["class_names"]
