"""Tables and picture of a partition."""

import csv
import dataclasses

import numpy as np
import pytest

from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tff_pcdd import data
from tff_pcdd.data import DataConfig
from tff_pcdd.report import partition
from tff_pcdd.settings import build

CONFIG = build(DataConfig, {"num_clients": 5, "classes_per_client": 3})


@pytest.fixture(scope="module")
def federation():
    return CONFIG.build()


def test_files_say_who_holds_what(federation, tmp_path):
    report = partition.write(CONFIG, federation, tmp_path / "out")
    assert (tmp_path / "out" / "clients.png").stat().st_size > 1000
    assert (tmp_path / "out" / "partition.md").read_text() == report
    with open(tmp_path / "out" / "partition.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["client", *federation.class_names]
    assert [line[0] for line in lines] == list(federation.client_ids)
    counts = np.array([[int(cell) for cell in line[1:]] for line in lines])
    np.testing.assert_array_equal(counts, federation.class_counts())
    partition.write(CONFIG, federation, tmp_path / "out")


def test_new_clients_are_named_and_not_counted(federation):
    new = federation.clients[3:]
    changed = dataclasses.replace(federation, clients=federation.clients[:3], new_clients=new)
    report = partition.summarize("digits, P5C3", changed)
    sizes = [len(client.train) for client in federation.clients]
    assert f"3 clients, 10 classes, {sum(sizes[:3])} training and 359 test samples." in report
    names = f"3 ({sizes[3]} training samples), 4 ({sizes[4]} training samples)"
    assert f"2 new clients without a part in training, {names}." in report


def test_new_clients_are_marked_in_the_table_and_the_picture(federation, tmp_path, monkeypatch):
    new, figures = federation.clients[1:3], []
    training = federation.clients[:1] + federation.clients[3:]
    changed = dataclasses.replace(federation, clients=training, new_clients=new)
    monkeypatch.setattr(partition.plots, "save", lambda figure, path: figures.append(figure))
    partition.write(CONFIG, changed, tmp_path / "out")
    with open(tmp_path / "out" / "partition.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["client", "new", *federation.class_names]
    assert [line[:2] for line in lines] == [
        *(["0", ""], ["3", ""], ["4", ""], ["1", "yes"], ["2", "yes"])
    ]
    y = federation.train.y
    counts = [np.bincount(y[federation.clients[k].train], minlength=10) for k in (0, 3, 4, 1, 2)]
    np.testing.assert_array_equal(np.array([line[2:] for line in lines], int), counts)
    (figure,) = figures
    axes = figure.axes[0]
    shown = [label.get_text() for label in axes.get_yticklabels()]
    assert shown == ["0", "3", "4", "1 (new)", "2 (new)"]
    np.testing.assert_array_equal(axes.images[0].get_array().filled(0), counts)


def test_summary(federation):
    counts = federation.class_counts()
    sizes = counts.sum(axis=1)
    report = partition.summarize("digits, P5C3", federation)
    assert report.startswith("# digits, P5C3\n")
    assert "5 clients, 10 classes, 1438 training and 359 test samples." in report
    table = table_rows(report)
    spread = [sizes.min(), np.median(sizes), sizes.max()]
    assert ["training samples", *(f"{size:g}" for size in spread)] in table
    assert ["classes", "3", "3", "3"] in table
    tests = np.bincount(federation.test.y)
    for label in range(10):
        lacking = 100 * np.mean(counts[:, label] == 0)
        total = str(counts[:, label].sum())
        assert [str(label), total, str(tests[label]), f"{lacking:.0f} %"] in table


def test_held_out_samples_of_each_class():
    config = build(DataConfig, {"imbalance_factor": 50, "validation_fraction": 0.1})
    federation = config.build()
    held_out = np.concatenate([federation.train.y[c.validation] for c in federation.clients])
    counts = [int((held_out == label).sum()) for label in range(10)]
    report = partition.summarize("tail", federation)
    lines = table_rows(report)
    heading = next(line for line in lines if line[0] == "class")
    assert heading[1:4] == ["training samples", "held-out samples", "test samples"]
    classes = lines[lines.index(heading) + 1 :]
    assert f" training, {len(held_out)} held-out and 359 test samples." in report
    assert [int(line[2]) for line in classes] == counts
    absent = counts.count(0)
    assert absent
    assert f"- {absent} classes have no held-out samples and do not count in va_bal" in report


def test_summary_of_a_federation_with_gaps(federation):
    """Clients and classes without samples, what loading left out, and names that break tables."""
    gaps = dataclasses.replace(
        federation,
        clients=(
            *federation.clients[:2],
            data.ClientIndices("none", np.empty(0, np.int64), np.empty(0, np.int64)),
        ),
        class_names=("\n", "a|b", *federation.class_names[2:]),
        notes={
            "empty_users": 4,
            "rows_left_out": 2,
            "duplicates_at_several_sites": 3,
            "missing_values_replaced": 5,
        },
    )
    absent = (gaps.class_counts().sum(axis=0) == 0).sum()
    assert absent
    report = partition.summarize("gaps", gaps)
    for line in (
        "- 1 client has no training samples",
        "- 1 client has no test samples and does not count in PA",
        f"- {absent} classes have no training samples",
        "- 4 empty users were left out\n",
        "- 2 rows were left out\n",
        "- 3 duplicates at several sites\n",
        "- 5 missing values replaced\n",
    ):
        assert line in report
    table = table_rows(report)
    assert len(table) == 1 + 3 + 1 + 3 + 1 + 10
    assert next(line[1] for line in table if line[0] == "training samples") == "0"
    assert {r"'\n'", r"a\|b"} < {line[0] for line in table}


def test_many_classes_are_summed_up():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 150, 40_000).astype(np.int32)
    examples = data.Examples(np.zeros((40_000, 1, 1, 1), np.uint8), labels)
    halves = np.array_split(np.argsort(labels, kind="stable"), 2)
    many = data.Federation(
        name="many",
        num_classes=150,
        class_names=tuple(map(str, range(150))),
        input_spec=data.InputSpec("image", (1, 1, 1)),
        train=examples,
        test=examples,
        clients=tuple(data.ClientIndices(str(k), half, half) for k, half in enumerate(halves)),
    )
    sizes = np.bincount(labels)
    report = partition.summarize("many", many)
    spread = [sizes.min(), np.median(sizes), sizes.max()]
    assert ["training samples", *(f"{size:g}" for size in spread)] in table_rows(report)
    assert ["test samples", *(f"{size:g}" for size in spread)] in table_rows(report)
    assert ["clients that lack it (%)", "0", "50", "50"] in table_rows(report)
    assert "Training samples of each client and class: partition.csv." in report
    assert report.count("\n") < 30


def test_a_directory_of_others_is_refused(federation, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with refuses("output_dir", "is not empty and holds no partition"):
        partition.write(CONFIG, federation, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_summary_says_who_holds_what(federation):
    """The classes with the most samples first, and of many clients the first 20."""
    rows = table_rows(partition.summarize("digits", federation))
    for number, client in enumerate(federation.clients):
        labels, counts = np.unique(federation.train.y[client.train], return_counts=True)
        held = sorted(zip(-counts, labels, strict=True))
        shown = ", ".join(f"{label}: {-count}" for count, label in held)
        train, test = len(client.train), len(client.test)
        assert [str(number), str(train), str(test), shown] in rows
    many = build(DataConfig, {"partition": "iid", "num_clients": 22}).build()
    report = partition.summarize("digits", many)
    assert "\n\nand 2 more clients; all: partition.csv.\n\n" in report
    lines = [row for row in table_rows(report) if len(row) == 4 and row[3].endswith(" more")]
    assert [row[0] for row in lines] == [f"{number:02d}" for number in range(20)]


def test_one_thing_is_counted_as_one(federation):
    notes = {"other_files": 1, "classes_left_out": 1, "small_sites_joined": 1, "hidden_files": 2}
    report = partition.summarize("digits", dataclasses.replace(federation, notes=notes))
    for line in ("1 other file was left out", "1 class was left out", "1 small site joined"):
        assert f"\n- {line}\n" in report
    assert "\n- 2 hidden files were left out\n" in report
