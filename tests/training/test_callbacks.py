"""Where numbers go: metrics.csv across interruptions, the summary, events, the progress bar."""

import json

import pytest

from tff_pcdd.training import sinks

COLUMNS = ["round", "ga", "pa", "seconds"]


def write(path, rounds, first_round=1):
    sink = sinks.CsvSink(path, COLUMNS)
    sink.start(first_round, 9)
    for number in rounds:
        sink.row({"round": number, "ga": number / 3, "seconds": 0.25, "unknown": 1})
    sink.close()


def test_rows_are_appended_at_once(tmp_path):
    path = tmp_path / "metrics.csv"
    write(path, [1, 2])
    assert path.read_text() == "round,ga,pa,seconds\n1,0.333333333,,0.25\n2,0.666666667,,0.25\n"
    assert sinks.read_rows(path)[1] == {
        "round": "2",
        "ga": "0.666666667",
        "pa": "",
        "seconds": "0.25",
    }


@pytest.mark.parametrize("tail", ["", "4,1.3", "4", "\x00"], ids=["whole", "cut", "short", "zero"])
def test_rows_after_the_checkpoint_and_a_cut_off_line_are_dropped(tmp_path, tail):
    path = tmp_path / "metrics.csv"
    write(path, [1, 2, 3])
    with open(path, "a") as file:
        file.write(tail)
    assert [row["round"] for row in sinks.read_rows(path)] == ["1", "2", "3"]
    write(path, [3, 4], first_round=3)
    unbroken = tmp_path / "unbroken.csv"
    write(unbroken, [1, 2, 3, 4])
    assert path.read_bytes() == unbroken.read_bytes()


def test_a_new_run_starts_an_empty_file(tmp_path):
    path = tmp_path / "metrics.csv"
    assert sinks.read_rows(path) == []
    write(path, [1, 2])
    write(path, [])
    assert path.read_text() == "round,ga,pa,seconds\n"
    path.write_text("round,g")
    assert sinks.read_rows(path) == []


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
def test_format_number(value, text):
    assert sinks.format_number(value) == text


def test_summary_is_written_at_the_end(tmp_path):
    path = tmp_path / "summary.json"
    sink = sinks.SummarySink(path)
    sink.start(1, 2)
    sink.row({"round": 1})
    sink.close()
    assert not path.exists()
    sink.finish({"ga_final": 1.5, "pa_final": None})
    assert json.loads(path.read_text()) == {"ga_final": 1.5, "pa_final": None}


def test_tensorboard_gets_every_number(tmp_path):
    import tensorflow as tf

    sink = sinks.TensorBoardSink(tmp_path / "events")
    sink.start(1, 1)
    sink.row({"round": 3, "ga": 50.0, "pa": float("nan"), "upload_bytes": 7, "note": "text"})
    sink.close()
    (file,) = (tmp_path / "events").iterdir()
    found = {
        value.tag: (event.step, float(tf.make_ndarray(value.tensor)))
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
    }
    assert found == {"ga": (3, 50.0), "upload_bytes": (3, 7.0)}


def test_progress_counts_on_from_the_checkpoint(capsys):
    sink = sinks.ProgressSink("fedavg seed 0")
    sink.close()
    sink.start(3, 4)
    sink.row({"round": 3, "ga": 12.345})
    sink.advance()
    sink.row({"round": 4, "ga": 50.0, "pa": 75.04})
    sink.advance()
    sink.close()
    shown = capsys.readouterr().err
    assert "fedavg seed 0" in shown
    assert "4/4" in shown
    assert "GA=50.0, PA=75.0" in shown
