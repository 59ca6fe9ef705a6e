"""Where a run's numbers go while it runs: sinks with three hooks.

start(first_round, rounds)    before the first round
row(values)                   after every evaluated round
finish(summary)               at the end
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tqdm

from tff_pcdd import files


class Sink:
    """Does nothing at every hook; sinks override those they need."""

    def start(self, first_round: int, rounds: int) -> None:
        """Called once; rounds before `first_round` were computed by an earlier run."""

    def advance(self) -> None:
        """Called after every round."""

    def row(self, values: Mapping[str, Any]) -> None:
        """Called with the metrics of an evaluated round."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Called with the summary of a finished run."""

    def close(self) -> None:
        """Called at the end, also of a run that fails."""


def format_number(value: Any) -> str:
    """A number as it stands in a csv file: enough digits to tell float32 values apart."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


class CsvSink(Sink):
    """metrics.csv: a row per evaluated round, appended as it comes.

    Args:
        path: the file.
        columns: names of all columns, in order.
    """

    def __init__(self, path: Path, columns: Sequence[str]):
        self._path = path
        self._columns = list(columns)

    def start(self, first_round, rounds):
        # Rows after the checkpoint, or cut off in the middle by a kill, are computed again.
        kept = [row for row in read_rows(self._path) if int(row["round"]) < first_round]
        # An earlier part of the run may have measured more, or less.
        self._columns += [name for row in kept[:1] for name in row if name not in self._columns]
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        files.write_text(self._path, text.getvalue())

    def row(self, values):
        with open(self._path, "a", newline="") as file:
            writer = csv.DictWriter(file, self._columns, lineterminator="\n")
            writer.writerow({name: format_number(values.get(name)) for name in self._columns})


def read_rows(path: Path) -> list[dict[str, str]]:
    """The whole rows of a metrics file; a last line that was cut off is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    return list(csv.DictReader(io.StringIO(whole)))


class TensorBoardSink(Sink):
    """TensorBoard event files."""

    def __init__(self, directory: Path):
        import tensorflow as tf

        self._writer = tf.summary.create_file_writer(os.fspath(directory))
        self._scalar = tf.summary.scalar

    def row(self, values):
        with self._writer.as_default(step=values["round"]):
            for name, value in values.items():
                if isinstance(value, (int, float)) and name != "round" and value == value:
                    self._scalar(name, value)
        self._writer.flush()

    def close(self):
        self._writer.close()


class ProgressSink(Sink):
    """A progress bar with the latest accuracies and the time left, on standard error."""

    def __init__(self, label: str):
        self._label = label
        self._bar = None

    def start(self, first_round, rounds):
        self._bar = tqdm.tqdm(
            total=rounds,
            initial=first_round - 1,
            desc=self._label,
            unit="round",
            # A log file gets a line now and then, a terminal a bar that moves.
            mininterval=0.5 if sys.stderr.isatty() else 10,
        )

    def advance(self):
        self._bar.update()

    def row(self, values):
        shown = {"GA": values.get("ga"), "PA": values.get("pa")}
        known = {name: f"{value:.1f}" for name, value in shown.items() if value is not None}
        self._bar.set_postfix(known, refresh=False)

    def close(self):
        if self._bar is not None:
            self._bar.close()


class SummarySink(Sink):
    """summary.json, written when the run has finished."""

    def __init__(self, path: Path):
        self._path = path

    def finish(self, summary):
        files.write_text(self._path, json.dumps(summary, indent=2) + "\n")
