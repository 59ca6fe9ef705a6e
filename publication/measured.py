"""Studies of single questions: their runs, and the tables of their pages.

    python -m publication.measured --study=fedgela_scale --data_dir=DIR --output_dir=runs/scale
    python -m publication.measured

With --study, its runs are computed in --output_dir, or continued, its figures are written beside
its page, as docs/studies/fedgela_scale.csv, and its pictures to docs/images. Without it, the tables
of all studies are made again from these files, between the lines `<!-- measured | NAME -->` and
`<!-- end of measured -->` of their pages, where NAME is that of a table.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tff_pcdd import files, tables
from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError, one_of
from tff_pcdd.studies.study import write_csv
from tff_pcdd.training import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "docs" / "studies"

Rows = Sequence[Mapping[str, str]]

_MARKED = re.compile(
    r"(<!-- measured \| (?P<name>\w+) -->\n).*?(<!-- end of measured -->)", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class Study:
    """A question with runs of its own.

    Attributes:
        compute: from a directory for the runs and the settings of the data, the rows of the file,
            one after the other.
        tables: the tables of the page by name, from the rows of the file.
        pictures: the pictures of the page by name, from the arguments of `compute`, after it.
    """

    compute: Callable[[Path, Mapping[str, Any]], Iterator[Mapping[str, Any]]]
    tables: Callable[[Rows], Mapping[str, str]]
    pictures: Callable[[Path, Mapping[str, Any]], Mapping[str, Figure]] = lambda *_: {}


def studies() -> dict[str, Study]:
    """All studies, by the name of their page."""
    from publication import calibrations, fedgela_scale, fedloge_frames

    return {
        "calibrations": Study(calibrations.compute, calibrations.tables),
        "fedgela_scale": Study(fedgela_scale.compute, fedgela_scale.tables),
        "fedloge": Study(fedloge_frames.compute, fedloge_frames.tables, fedloge_frames.pictures),
    }


def read(name: str) -> list[dict[str, str]]:
    """The rows of a study."""
    with open(FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def page(name: str) -> str:
    """The page of a study, with the tables of its file."""
    made = studies()[name].tables(read(name))
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return _MARKED.sub(lambda found: f"{found[1]}\n{made[found['name']]}\n\n{found[3]}", text)


def grouped(rows: Rows, by: Sequence[str], columns: Mapping[str, int]) -> str:
    """A table with mean ± standard deviation of the rows that agree in some columns.

    Args:
        rows: the rows.
        by: columns of text that a line of the table stands for, in the order of the file.
        columns: the digits of columns of numbers after the decimal point. A mean of more than four
            digits before the point is shown with three digits and without deviation.
    """
    lines = [[*by, *columns]]
    for keys in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        own = [row for row in rows if tuple(row[name] for name in by) == keys]
        cells = [_cell([row[column] for row in own], digits) for column, digits in columns.items()]
        lines.append([*keys, *cells])
    return tables.table(lines)


def _cell(texts: Iterable[str], digits: int) -> str:
    values = [float(text) for text in texts if text]
    if values and max(map(abs, values)) >= 1e4:
        return f"{sum(values) / len(values):.2e}"
    return tables.spread(values, digits)


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "study", None, "The study whose runs are computed; by default none.")
    flags.add(str, "output_dir", None, "Directory of the runs.")
    flags.add(str, "data_dir", None, "Directory of the data set.")


def main(flags: Flags) -> None:
    """Computes the runs of a study, if one is named, and makes the tables of all pages."""
    known, name = studies(), flags["study"]
    if name is not None:
        if name not in known:
            raise SettingError("study", name, one_of(name, known))
        directory, data = Path(flags.required("output_dir")), {"data_dir": flags["data_dir"]}
        write_csv(FOLDER / f"{name}.csv", list(known[name].compute(directory, data)))
        for picture, figure in known[name].pictures(directory, data).items():
            plots.save(figure, FOLDER.parent / "images" / f"{picture}.png")
    for name in known:
        files.write_text(FOLDER / f"{name}.md", page(name))
        print(FOLDER / f"{name}.md")


if __name__ == "__main__":
    sys.argv[0] = "publication.measured"
    program.run(__doc__, define, main, None)
