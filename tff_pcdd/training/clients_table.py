"""What a run has reached at each client: rows of numbers, and tables of them as csv and Markdown.

Nothing here needs TensorFlow.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import evaluation, files, findings, measures, tables
from tff_pcdd.errors import DamagedFileError, printable
from tff_pcdd.experiment.accuracy_columns import PERSONAL_COLUMNS
from tff_pcdd.experiment.history import format_value

if TYPE_CHECKING:
    from tff_pcdd import data
    from tff_pcdd.data.federation import ClientIndices
    from tff_pcdd.experiment.model_evaluation import Answers
    from tff_pcdd.experiment.simulation import Simulation

# The columns of clients.csv before those of single classes.
COLUMNS = ("client", "train_samples", "test_samples", *measures.CLIENTS, "warning")
# The column that marks clients that take no part in training, with "yes"; absent if there are none.
NEW = "new"

DIVERGED = "the run has diverged: these results are not usable"

# A row by column; values are texts, integers, floats or None.
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ClientResult:
    """One client.

    Attributes:
        name: its whole name; `tff_pcdd.text.name_of` shows it.
        train: number of training samples.
        test: number of test samples.
        values: accuracies in percent and their differences, by column; None where not defined.
        warning: what the run has said about this client.
        run: partition, method and seed of the run, in a table of several runs.
        new: whether it has taken no part in training.
    """

    name: str
    train: int
    test: int
    values: Mapping[str, float | None]
    warning: str = ""
    run: tuple[str, ...] = ()
    new: bool = False

    def of_seed(self) -> ClientResult:
        """The client with its seed in its name, where another seed has another client."""
        name = f"client {self.name}" if self.name.isdecimal() else self.name
        return dataclasses.replace(self, name=f"{name}, seed {self.run[2]}")

    @classmethod
    def of(cls, row: Mapping[str, Any], run: tuple[str, ...] = ()) -> ClientResult:
        """The client of a row."""
        values = {name: row[name] for name in measures.CLIENTS}
        warning = " ".join(row["warning"].split())
        samples = row["train_samples"], row["test_samples"]
        return cls(row["client"], *samples, values, warning, run, bool(row.get(NEW)))


def of(simulation: Simulation) -> list[Row]:
    """As `Simulation.clients`."""
    answers = simulation.answers()
    return rows(simulation.federation, answers, diverged=simulation.nonfinite.diverged)


def rows(federation: data.Federation, answers: Answers, *, diverged: bool = False) -> list[Row]:
    """What the models of a run have reached at each client.

    Returns:
        For each client, in the federation's order, a row with the columns `COLUMNS`. Accuracies are
        in percent on the client's own test samples, and None if it has none: `ga` of the global
        model (None if there is none), the others of the personal model, `before` the local epochs
        or after them, `masked` if only classes of the client's training data can be predicted,
        `balanced` as mean over classes. `over_global` is `pa` − `ga` in percentage points;
        `over_local` is None, see `with_local`. If the run has diverged, every row has a warning.
        If some clients take no part in training, they come last, and a further column, `NEW`, is
        "yes" for them and empty for the others.
    """
    found = _rows(federation, federation.clients, answers, diverged)
    if answers.at_new_clients is None:
        return found
    new = _rows(federation, federation.new_clients, answers.at_new_clients, diverged)
    return [*({**row, NEW: ""} for row in found), *({**row, NEW: "yes"} for row in new)]


def _rows(
    federation: data.Federation, clients: Sequence[ClientIndices], answers: Answers, diverged: bool
) -> list[Row]:
    """The rows of some clients, from the answers of their models."""
    counts, total = answers.counts, answers.counts["total"]
    found = []
    for index, client in enumerate(clients):
        own = total[index]
        row: Row = dict.fromkeys(COLUMNS)
        row |= {
            "client": printable(client.client_id),
            "train_samples": len(client.train),
            "test_samples": int(own.sum()),
            "balanced_before": evaluation.balanced_accuracy(counts["before"][index], own),
            "balanced": evaluation.balanced_accuracy(counts["after"][index], own),
        }
        for key, column in PERSONAL_COLUMNS.items():
            row[column] = evaluation.accuracy(counts[key][index], own)
        if answers.globally is not None:
            labels = federation.test.y[client.test]
            correct = np.sum(answers.globally[client.test] == labels)
            row["ga"] = evaluation.accuracy(correct, own)
            row["over_global"] = row["pa"] - row["ga"]
        row = {name: _rounded(value) for name, value in row.items()}
        found.append({**row, "warning": _warning(row, diverged=diverged)})
    return found


def with_local(row: Row, local: float | None) -> Row:
    """A row with `over_local`, and with a warning if training alone is better.

    Args:
        row: a row of `rows`, or one that `read` returned.
        local: accuracy in percent, on the client's own test samples, of a model that the client has
            trained alone; None if it is not known.
    """
    over = None if local is None or row["pa"] is None else row["pa"] - local
    row = {**row, "over_local": _rounded(over)}
    return {**row, "warning": _warning(row, diverged=DIVERGED in row["warning"])}


def _warning(row: Row, *, diverged: bool) -> str:
    """What is wrong at a client, by more than chance; empty if nothing is."""
    found = [DIVERGED] if diverged else []
    if not row["train_samples"]:
        found.append("no training samples")
    if not row["test_samples"]:
        found.append("no test samples, so no accuracies")
    for column, other in (("over_global", "the global model"), ("over_local", "training alone")):
        gain = row[column]
        if findings.loses(gain, row["pa"], row["test_samples"]):
            found.append(f"the personal model is {-gain:.2f} points worse than {other}")
    return "; ".join(found)


def _rounded(value: Any) -> Any:
    """A float with the nine digits that are written; None for NaN."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if value == value else None


def csv_text(found: Sequence[Row], federation: data.Federation, answers: Answers) -> str:
    """The text of clients.csv.

    Args:
        found: as `rows` returns them.
        federation: the clients.
        answers: from which the rows were made.

    Returns:
        `COLUMNS`, with `NEW` before the last one if the rows have it. For each class NAME, then
        `train_NAME`, its training samples at the client, and after all of these for each class
        `recall_NAME`, the share of its test samples that the personal model classifies correctly
        after the local epochs, in percent; empty without test samples. A class called samples has
        the column `train_samples (class)`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [printable(name) for name in federation.class_names]
    columns = [f"{what}_{name}" for what in ("train", "recall") for name in names]
    own = [*COLUMNS]
    if found and NEW in found[0]:
        own.insert(-1, NEW)
    writer.writerow([*own, *(_apart(name) for name in columns)])
    per_class = [
        pair
        for part in (answers, answers.at_new_clients)
        if part is not None
        for pair in zip(part.counts["after"], part.counts["total"], strict=True)
    ]
    for number, (row, (correct, total)) in enumerate(zip(found, per_class, strict=True)):
        recalls = [100.0 * c / t if t else None for c, t in zip(correct, total, strict=True)]
        writer.writerow(
            [
                *(format_value(row[name]) for name in own),
                *federation.counts_of(number)[0].tolist(),
                *map(format_value, recalls),
            ]
        )
    return text.getvalue()


def _apart(column: str) -> str:
    """The column of a class; it must not have the name of another column."""
    return f"{column} (class)" if column in COLUMNS else column


def read(path: Path) -> list[Row]:
    """Reads the rows of a clients.csv, without the columns of single classes.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFileError: the file is damaged.
    """
    try:
        text = files.read_bytes(path).decode()
        header, *lines = [*csv.reader(io.StringIO(text), strict=True)] or [[]]
        if any(len(line) != len(header) for line in lines):
            raise ValueError("lines of different lengths")
        columns = fixed(header)
        return [parse(dict(zip(columns, line, strict=False))) for line in lines]
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, csv.Error) as error:
        reason = f"there is no column {error}" if isinstance(error, KeyError) else error
        raise DamagedFileError(f"{path} is damaged ({reason})") from None


def fixed(header: Sequence[str]) -> Sequence[str]:
    """The columns before those of single classes, which may have the same names.

    Raises:
        KeyError: the last of them is missing.
    """
    if "warning" not in header:
        raise KeyError("warning")
    return header[: header.index("warning") + 1]


def parse(cells: Mapping[str, str]) -> Row:
    """The row of a client, from the cells of a file by column.

    Files of earlier versions lack some of the accuracies; these are None then.

    Raises:
        KeyError: there is no such column.
        ValueError: a cell is no number.
    """
    new = {NEW: cells[NEW]} if NEW in cells else {}
    return {
        "client": tables.original(cells["client"]),
        "train_samples": tables.read_count(cells["train_samples"]),
        "test_samples": tables.read_count(cells["test_samples"]),
        **{name: tables.read_number(cells.get(name, "")) for name in measures.CLIENTS},
        "warning": cells.get("warning", ""),
        **new,
    }


# The columns of clients.md and their headings.
_SHOWN = {
    "client": "client",
    "train_samples": "training samples",
    "test_samples": "test samples",
    **measures.CLIENTS,
}

_EXPLANATION = """\
Accuracies in percent on each client's own test samples; the client with the lowest personal
accuracy comes first. *before*: before the local epochs of the personal model. *own classes*: only
classes of the client's training data can be predicted. *balanced*: mean over classes. *over global*
and *over local*: how many points the personal model is better than the global model, and than
training alone (known in comparisons). Samples and recall of each class are in clients.csv."""


_NEW_EXPLANATION = """\
These clients took no part in training. Their personal models begin like those of clients that have
never trained."""


def page(found: Sequence[Row], title: str, notes: Sequence[str] = ()) -> str:
    """The text of clients.md: a table of the clients, the one with the lowest accuracy first.

    Clients that take no part in training have a table of their own.
    """
    columns = [name for name in _SHOWN if any(row[name] is not None for row in found)]
    ordered = sorted(found, key=lambda row: (row["pa"] is None, row["pa"] or 0.0))
    lines = [f"# {tables.escape(title)}", "", _EXPLANATION, ""]
    lines += [line for note in notes for line in (note, "")]

    def table(rows: Iterable[Row]) -> str:
        cells = [[_cell(row[name]) for name in columns] for row in rows]
        return tables.table([[_SHOWN[name] for name in columns], *cells], range(1, len(columns)))

    lines.append(table(row for row in ordered if not row.get(NEW)))
    if new := [row for row in ordered if row.get(NEW)]:
        lines += ["", "## New clients", "", _NEW_EXPLANATION, "", table(new)]
    if warned := [row for row in ordered if row["warning"]]:
        lines += ["", "## Warnings", ""]
        lines += [f"- {tables.escape(row['client'])}: {row['warning']}" for row in warned]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else tables.escape(str(value))
