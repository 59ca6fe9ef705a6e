"""Measurements: typed in memory, nine digits, as a csv file and back."""

import pytest

from tff_pcdd.experiment.history import csv_text, format_value
from tff_pcdd.training import History

COLUMNS = ["round", "ga", "pa", "seconds", "upload_bytes", "download_bytes"]


def filled():
    history = History(COLUMNS)
    history.append(
        {
            "round": 1,
            "ga": 100 / 3,
            "pa": float("nan"),
            "seconds": 0.1,
            "upload_bytes": 123_456_789_012,
            "download_bytes": 7,
            "unknown": 1,
        }
    )
    history.append({"round": 2, "ga": 5, "upload_bytes": 8.0})
    return history


def test_values_have_types_and_nine_digits():
    first, second = filled()
    assert first == {
        "round": 1,
        "ga": 33.3333333,
        "pa": None,
        "seconds": 0.1,
        "upload_bytes": 123_456_789_012,
        "download_bytes": 7,
    }
    assert second == {
        "round": 2,
        "ga": 5.0,
        "pa": None,
        "seconds": None,
        "upload_bytes": 8,
        "download_bytes": None,
    }
    for row in (first, second):
        for name, value in row.items():
            integer = name in ("round", "upload_bytes", "download_bytes")
            assert value is None or type(value) is (int if integer else float), name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_missing(value):
    """In columns of both types, also of a file: summary.json could not hold it."""
    missing = {"round": 1, "ga": None, "upload_bytes": None}
    history = History(list(missing))
    assert history.append({"round": 1, "ga": value, "upload_bytes": value}) == missing
    assert history.text() == "round,ga,upload_bytes\n1,,\n"
    assert list(History.parse(f"round,ga,upload_bytes\n1,{value},{value}\n")) == [missing]


def test_columns_and_points():
    history = filled()
    assert len(history) == 2
    assert history[-1]["round"] == 2
    assert history.column("ga") == [33.3333333, 5.0]
    assert history.column("seconds") == [0.1, None]
    assert history.column("unknown") == [None, None]
    assert history.points("seconds") == [(1, 0.1)]
    assert history.points("unknown") == []


def test_csv_and_back(tmp_path):
    history = filled()
    path = tmp_path / "metrics.csv"
    path.write_text(csv_text(history.columns, history))
    assert path.read_text() == (
        "round,ga,pa,seconds,upload_bytes,download_bytes\n"
        "1,33.3333333,,0.1,123456789012,7\n"
        "2,5,,,8,\n"
    )
    again = History.read(path)
    assert again.columns == history.columns
    assert list(again) == list(history)
    for row, other in zip(again, history, strict=True):
        assert list(map(type, row.values())) == list(map(type, other.values()))
    assert csv_text(again.columns, again) == path.read_text()


@pytest.mark.parametrize("tail", ["", "4,1.3", "4", "\x00"], ids=["whole", "cut", "short", "zero"])
def test_a_cut_off_last_line_is_left_out(tmp_path, tail):
    path = tmp_path / "metrics.csv"
    path.write_text(f"round,ga\n1,10\n2,20\n{tail}")
    assert History.read(path).points("ga") == [(1, 10.0), (2, 20.0)]


def test_without_a_file_or_a_whole_header_there_is_nothing(tmp_path):
    path = tmp_path / "metrics.csv"
    for _ in range(2):
        history = History.read(path)
        assert (len(history), history.columns) == (0, [])
        path.write_text("round,g")


def test_columns_that_another_process_measured_are_kept():
    history = History(["round", "ga"])
    history.add_columns(["ga", "diag_nc1"])
    assert history.columns == ["round", "ga", "diag_nc1"]
    assert history.append({"round": 1, "diag_nc1": 1.5}) == {
        "round": 1,
        "ga": None,
        "diag_nc1": 1.5,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        (0.1, "0.1"),
        (1 / 3, "0.333333333"),
        (100.0, "100"),
        (1234567890123, "1234567890123"),
        ("fedavg", "fedavg"),
        (0, "0"),
    ],
)
def test_format_value(value, text):
    assert format_value(value) == text
