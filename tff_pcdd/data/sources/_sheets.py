"""What a sheet of an Excel workbook says beside its cells: hidden rows and columns, merged cells.

openpyxl tells it only for sheets that are in memory as a whole.
"""

from __future__ import annotations

import dataclasses
import re
import zipfile
from collections.abc import Mapping
from xml.parsers import expat

# A range of cells, such as B2:C5.
_RANGE = re.compile(r"([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})")

_TRUE = ("1", "true")


@dataclasses.dataclass
class Marks:
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


def read_marks(archive: zipfile.ZipFile, member: str) -> Marks:
    """The marks of a sheet.

    Args:
        archive: the workbook.
        member: the file of the sheet in it.

    Raises:
        xml.parsers.expat.ExpatError: if it is no XML.
    """
    marks, row = Marks(), 0

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
                marks.merged.append((first, last, _number(match[1])))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = start
    with archive.open(member) as file:
        parser.ParseFile(file)
    return marks


def _number(letters: str) -> int:
    """The number of a column: A is 1, and AA is 27."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
