"""The measurements of a run, round by round: typed columns in memory, and csv files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import files, measures, tables, text
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.experiment import accuracy_columns
from tff_pcdd.experiment.nonfinite import COUNTS, is_lost
from tff_pcdd.experiment.round_metrics import work_columns

if TYPE_CHECKING:
    from tff_pcdd.evaluation.metrics import Metric
    from tff_pcdd.experiment.simulation import Simulation
    from tff_pcdd.methods import Method

# A row by column; the values are integers, floats or None.
Row = dict[str, Any]


def check_metric_names(method: Method, metrics: Sequence[Metric]) -> None:
    """Refuses metrics, and methods whose own metrics, have the names of other columns."""
    for metric in metrics:
        (column, *_) = accuracy_columns.metric_columns([metric])
        if (read_as := measures.heading(column)) != f"{metric.name}, {measures.heading('ga')}":
            reason = f"its column {column!r} would be taken for {read_as!r}; rename the metric"
            raise SettingError("metrics", metric.name, reason)
    names, others = method.metric_names, accuracy_columns.metric_columns(metrics)
    if isinstance(names, str):
        reason = f"its metric_names must be a tuple, such as `metric_names = ({names!r},)`"
        raise SettingError("algorithm", method.name, reason)
    if reason := measures.check_names(names, others):
        reason = f"its metric_names contain {reason}; rename it"
        raise SettingError("algorithm", method.name, reason)


class History:
    """The measurements of a run, with a row for each round.

    Accuracies are None in rounds that were not evaluated. In runs of earlier versions, such rounds
    have no row.

    `round`, numbers of bytes and the counts of `NonfiniteLog` are integers; all others are floats,
    rounded to nine significant digits like those in the csv file. So the history of a resumed run
    equals that of a run that was never interrupted. A value that was not measured, or is NaN or
    infinite, is None.

    Args:
        columns: the names of the columns, the first of which is "round".

    Example:
        >>> history = History(["round", "ga"])
        >>> _ = history.append({"round": 1, "ga": 41.25})
        >>> _ = history.append({"round": 2})
        >>> history.column("ga")
        [41.25, None]
        >>> history.points("ga")
        [(1, 41.25)]
    """

    def __init__(self, columns: Sequence[str]):
        self.columns = list(columns)
        self._rows: list[Row] = []
        # The text of the first rows.
        self._text, self._formatted = "", 0

    @classmethod
    def of(cls, simulation: Simulation, further: Iterable[str] = ()) -> History:
        """An empty history with all columns that a run can fill, in the order of metrics.csv.

        `further` are the columns of diagnostics and callbacks.
        """
        config = simulation.config
        of_accuracies = accuracy_columns.columns(
            simulation.process.heads,
            simulation.groups,
            config.evaluation.metrics,
            validation=simulation.spec.validation,
            new_clients=bool(simulation.federation.new_clients),
            has_global_model=config.method.has_global_model,
        )
        return cls(
            [
                "round",
                *of_accuracies,
                "train_loss",
                *config.method.metric_names,
                *work_columns(simulation.spec),
                "seconds",
                "upload_bytes",
                "download_bytes",
                *COUNTS,
                *further,
            ]
        )

    def append(self, values: Mapping[str, Any]) -> Row:
        """Adds a row and returns it; columns that are missing in `values` are None."""
        row: Row = {name: _value(name, values.get(name)) for name in self.columns}
        self._rows.append(row)
        return row

    def add_columns(self, names: Iterable[str]) -> None:
        """Appends the columns that do not exist yet."""
        for name in names:
            if name not in self.columns:
                self.columns.append(name)
        self._text, self._formatted = "", 0

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        last = {name: self.points(name)[-1][1] for name in ("ga", "pa") if self.points(name)}
        values = "".join(f", {name}={value:.1f}" for name, value in last.items())
        return f"History({text.plural(len(self), 'round')}{values})"

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    def column(self, name: str) -> list[Any]:
        """The values of a column, None where a value is missing; all None if it is unknown."""
        return [row.get(name) for row in self._rows]

    def points(self, name: str) -> list[tuple[int, Any]]:
        """The pairs (round, value) of a column, without missing values."""
        return [(row["round"], row[name]) for row in self._rows if row.get(name) is not None]

    def usable_points(self, name: str) -> list[tuple[int, Any]]:
        """As `points`, without rounds after which there was no usable model."""
        return [
            (row["round"], row[name])
            for row in self._rows
            if row.get(name) is not None and not is_lost(row)
        ]

    def nonfinite_before(self, round_number: int) -> int | None:
        """How many rounds before this one were not finite; None if it is unknown."""
        if round_number == 1:
            return 0
        return dict(self.points("nonfinite_rounds")).get(round_number - 1)

    def text(self) -> str:
        """All rows as the text of a csv file."""
        # Formatted once per row: this is part of every checkpoint.
        self._text += csv_text(self.columns, self._rows[self._formatted :], header=False)
        self._formatted = len(self._rows)
        return csv_text(self.columns, []) + self._text

    @classmethod
    def parse(cls, text: str) -> History:
        """Reads the text of a csv file; an incomplete last line is ignored.

        Raises:
            ValueError: the text is not a history; the message says why.
        """
        lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]), strict=True)
        try:
            header = next(lines, [])
            if header and (header[0] != "round" or len(set(header)) < len(header)):
                raise ValueError(f"not a header that starts with round: {','.join(header)[:80]!r}")
            history = cls(header)
            for number, values in enumerate(lines, 2):
                history._append_line(number, values)
        except csv.Error as error:
            raise ValueError(f"line {lines.line_num}: {error}") from None
        return history

    def _append_line(self, number: int, values: Sequence[str]) -> None:
        if len(values) != len(self.columns):
            raise ValueError(f"line {number}: {len(values)} values instead of {len(self.columns)}")
        cells = {name: value or None for name, value in zip(self.columns, values, strict=True)}
        try:
            row = self.append(cells)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        before = self._rows[-2]["round"] if len(self) > 1 else 0
        if row["round"] is None or row["round"] <= before:
            raise ValueError(f"line {number}: round {values[0] or '?'} follows round {before}")

    @classmethod
    def read(cls, path: Path) -> History:
        """Reads a csv file; an incomplete last line is ignored.

        Args:
            path: the file; if it does not exist, the history is empty and has no columns.

        Raises:
            DamagedFileError: the file is damaged.
        """
        try:
            return cls.parse(files.read_bytes(path).decode())
        except FileNotFoundError:
            return cls([])
        except (OSError, ValueError) as error:
            raise DamagedFileError(f"{path} is damaged ({error})") from None


def in_common(curves: Sequence[Iterable[tuple[int, float]]]) -> list[tuple[int, list[float]]]:
    """The rounds that all curves have, each with the values of all of them.

    Runs with several seeds need not have measured the same rounds: early stopping ends each where
    its own accuracy no longer improves.

    Example:
        >>> in_common([[(5, 40.0), (10, 60.0), (12, 61.0)], [(5, 50.0), (10, 70.0)]])
        [(5, [40.0, 50.0]), (10, [60.0, 70.0])]
    """
    found = [dict(curve) for curve in curves]
    rounds = [n for n in (found[0] if found else ()) if all(n in curve for curve in found)]
    return [(n, [curve[n] for curve in found]) for n in rounds]


def evaluated_in_full(row: Mapping[str, Any]) -> bool:
    """Whether the personal models were evaluated after their local epochs.

    Clients may have test samples, samples that they held out, or both.
    """
    return any(row.get(name) is not None for name in ("pa", "va_personal"))


def evaluated_as_last(row: Mapping[str, Any]) -> bool:
    """Whether a round was evaluated as the last one is: the global and all personal models."""
    return any(row.get(name) is not None for name in ("ga", "va")) and evaluated_in_full(row)


def _value(name: str, value: Any) -> Any:
    # JSON, such as summary.json, has neither NaN nor infinities.
    if value is None or not math.isfinite(number := float(value)):
        return None
    return int(value) if measures.is_whole(name) else float(f"{number:.9g}")


def format_value(value: Any) -> str:
    """A value as text in a csv file; empty if it is None or NaN."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.9g}" if isinstance(value, float) else tables.inert(str(value))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header=True) -> str:
    """Rows as the text of a csv file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    for row in rows:
        writer.writerow({name: format_value(row.get(name)) for name in columns})
    return text.getvalue()
