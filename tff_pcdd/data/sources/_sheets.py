"""The cells of a sheet of an Excel workbook, with a look at what is hidden and merged in it.

openpyxl tells that only for sheets that are in memory as a whole.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any
from xml.parsers import expat

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.sources._places import check_file, reason_of
from tff_pcdd.errors import DataError
from tff_pcdd.text import plural

# A range of cells, such as B2:C5.
_RANGE = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})")

_TRUE = ("1", "true")


@dataclasses.dataclass
class _Marks:
    """Of a sheet, with rows and columns counted from 1.

    Attributes:
        hidden_rows: rows that are not shown, because of a filter or otherwise.
        hidden_columns: the first and the last of columns beside each other that are not shown.
        merged: first and last row, and the column, of cells that are merged with those below. Of
            several columns, the first one, which has the value.
    """

    hidden_rows: set[int] = dataclasses.field(default_factory=set)
    hidden_columns: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    merged: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Sheet:
    """What a workbook says of a sheet.

    Attributes:
        cells: the values of each row.
        formulas: the same, with formulas in place of their values.
        empty_texts: row and column of formulas whose value is an empty text; rows count from 1.
        marks: what is hidden and merged.
    """

    cells: Sequence[Sequence[Any]]
    formulas: Sequence[Sequence[Any]]
    empty_texts: set[tuple[int, int]]
    marks: _Marks


def read_sheet(path: pathlib.Path, max_bytes: int) -> tuple[list[Any], dict[int, list[Any]]]:
    """The names of the columns and the rows, by their numbers, of the first sheet that is shown.

    The workbook has at most `max_bytes`, also when it is unpacked.
    """
    check_file(path, max_bytes=max_bytes, limit="the size of a table")
    sheet = _load(path, max_bytes)
    width = max(map(len, sheet.cells), default=0)
    rows = {
        number: [*row, *[None] * (width - len(row))]
        for number, row in enumerate(sheet.cells, 1)
        if any(cell is not None for cell in row)
    }
    if not rows:
        return [], {}
    top = min(rows)
    header = rows.pop(top)
    # Columns that are empty only have a format.
    used = [
        index
        for index in range(width)
        if header[index] is not None or any(row[index] is not None for row in rows.values())
    ]
    _check_formulas(path, header, rows, sheet)
    _fill_merged(path, rows, sheet.marks, top)
    _warn_of_hidden(path, {index: str(header[index]) for index in used}, rows, sheet.marks)
    chosen = {number: [row[index] for index in used] for number, row in rows.items()}
    return [header[index] for index in used], chosen


def _load(path: pathlib.Path, max_bytes: int) -> _Sheet:
    """The first sheet that is not hidden; the first one if all are."""
    try:
        import openpyxl
    except ImportError:
        raise DataError(
            f"{path}: reading .xlsx needs openpyxl (the extra xlsx), which is not installed; or "
            "save the table as .csv"
        ) from None
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > max_bytes:
            raise DataError(f"{path} has more than the {max_bytes} bytes of a table")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = book.worksheets
        shown = (number for number, each in enumerate(sheets) if each.sheet_state == "visible")
        sheet = sheets[place := next(shown, 0)]
        # Some programs write wrong dimensions, by which cells would be left out.
        sheet.reset_dimensions()
        cells: list[list[Any]] = []
        empty_texts: set[tuple[int, int]] = set()
        for number, row in enumerate(sheet.iter_rows(), 1):
            cells.append([cell.value for cell in row])
            # Only cells of formulas whose value is an empty text keep this type.
            columns = [index for index, cell in enumerate(row) if cell.data_type == "str"]
            empty_texts.update((number, index) for index in columns)
        with zipfile.ZipFile(path) as archive:
            marks = _read_marks(archive, sheet._worksheet_path)
        formulas = openpyxl.load_workbook(path, read_only=True).worksheets[place]
        formulas.reset_dimensions()
        written = list(formulas.iter_rows(values_only=True))
    except DataError:
        raise
    # A damaged workbook raises errors of the archive, of XML, and of its own.
    except Exception as error:
        raise DataError(f"{path} cannot be read as an .xlsx file: {reason_of(error)}") from error
    if len(sheets) > 1:
        hidden = " that is not hidden" if place else ""
        warn(f"{path}: only the first of {len(sheets)} sheets{hidden} is read, {sheet.title!r:.40}")
    return _Sheet(cells, written, empty_texts, marks)


def _check_formulas(
    path: pathlib.Path, header: Sequence[Any], rows: Mapping[int, Sequence[Any]], sheet: _Sheet
) -> None:
    """Refuses formulas without their values, as in files that only a program has written."""
    for number, row in rows.items():
        for index, formula in enumerate(sheet.formulas[number - 1]):
            is_lacking = row[index] is None and (number, index) not in sheet.empty_texts
            if is_lacking and formula is not None:
                raise DataError(
                    f"{path}, row {number}: the cell of column {header[index]!r} is the formula "
                    f"{formula!s:.40} without its value; open and save the file in a spreadsheet"
                )


def _read_marks(archive: zipfile.ZipFile, member: str) -> _Marks:
    """The marks of a sheet, which is a member of the archive."""
    from openpyxl.utils import column_index_from_string

    marks, row = _Marks(), 0

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal row
        kind = tag.rpartition(" ")[2]
        if kind == "row":
            row = int(attributes.get("r", row + 1))
            if attributes.get("hidden") in _TRUE:
                marks.hidden_rows.add(row)
        elif kind == "col" and attributes.get("hidden") in _TRUE:
            marks.hidden_columns.append((int(attributes["min"]), int(attributes["max"])))
        elif kind == "mergeCell" and (match := _RANGE.fullmatch(attributes.get("ref", ""))):
            first, last = int(match[2]), int(match[4])
            if last > first:
                marks.merged.append((first, last, column_index_from_string(match[1])))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = start
    with archive.open(member) as file:
        parser.ParseFile(file)
    return marks


def _fill_merged(
    path: pathlib.Path, rows: Mapping[int, list[Any]], marks: _Marks, header: int
) -> None:
    """Gives the value of cells that are merged with those below to all of their rows."""
    filled, end = 0, max(rows, default=0)
    done = (0, 0)
    for first, last, column in sorted(marks.merged, key=lambda each: (each[2], each)):
        # A name of a column is no value of rows below it. In damaged files, ranges overlap.
        if first <= header or (column, first) <= done or column > len(rows.get(first, ())):
            continue
        done = (column, last)
        value = rows[first][column - 1]
        if value is None:
            continue
        for number in range(first + 1, min(last, end) + 1):
            if number in rows and rows[number][column - 1] is None:
                rows[number][column - 1] = value
                filled += 1
    if filled:
        warn(
            f"{path}: {plural(filled, 'cell')} merged with one above, without a value of their "
            "own, get its value"
        )


def _warn_of_hidden(
    path: pathlib.Path, names: Mapping[int, str], rows: Mapping[int, Any], marks: _Marks
) -> None:
    """Warns of hidden rows and columns, which are read like all others."""
    if filtered := [number for number in rows if number in marks.hidden_rows]:
        warn(
            f"{path}: {plural(len(filtered), 'row')} that a filter or the like hides, such as row "
            f"{filtered[0]}, {'is' if len(filtered) == 1 else 'are'} read like all others; delete "
            "what does not belong to the data"
        )
    concealed = [
        name
        for index, name in names.items()
        if any(first <= index + 1 <= last for first, last in marks.hidden_columns)
    ]
    if concealed:
        are = "is" if len(concealed) == 1 else "are"
        warn(f"{path}: {listed('column', concealed)} {are} hidden, and {are} read like all others")
