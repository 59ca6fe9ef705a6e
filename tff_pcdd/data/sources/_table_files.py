"""Tables in files: csv in the dialects of spreadsheets, Excel's xlsx, and parquet."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import pathlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._names import check_once
from tff_pcdd.data.sources._places import check_file, reason_of
from tff_pcdd.data.sources._sheets import read_sheet
from tff_pcdd.errors import DataError
from tff_pcdd.text import composed, plural

PARQUET, XLSX = ".parquet", ".xlsx"
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", PARQUET, XLSX)

# The most bytes of a table.
TABLE_BYTES = 2**30

# The bytes of a text that show whether it is UTF-16.
_START = 1000

# How files begin that are no texts, whatever they are called.
_OTHERS = (
    ((b"pk\x03\x04",), "an .xlsx file or another archive"),
    ((b"\xd0\xcf\x11\xe0",), "an .xls file"),
    ((b"par1",), "a parquet file"),
    ((b"<!doctype", b"<html", b"<?xml"), "a web page or XML"),
)

# The first line of a csv file by which Excel says what separates cells.
_SEPARATOR = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)

# Names of columns with the same meaning.
_ALIASES = {"image": "image_id", "user": "user_id"}

# What may separate cells. Where several fit, the first one does it.
_DELIMITERS = "\t;,"

# Of a parquet file: the most cells, the rows that are unpacked at a time, and the most bytes in
# memory, in times of its size, beside those of any table.
_MOST_CELLS, _BATCH, _MOST_COMPRESSED = 2**28, 256, 100

# Rows that a delimiter has to fit, and the most characters of them.
_ROWS, _CHARACTERS = 100, 2**20


def read_file(path: pathlib.Path) -> Columns:
    """The columns of a file, perhaps without any row."""
    name = path.name.lower()
    if name.endswith(PARQUET):
        return _read_parquet(path)
    if name.endswith(XLSX):
        return _columns(path, *read_sheet(path, TABLE_BYTES))
    return _read_csv(path)


def read_table(path: pathlib.Path, needed: Sequence[str]) -> Columns:
    """The columns of the csv file of a published data set, which lacks no value that is needed."""
    read = _read_csv(path)
    names = [name if name in needed else _ALIASES.get(name, name) for name in read.names]
    check_once(names, "column", str(path))
    values = (read.values(name, "") for name in read.names)
    table = Columns(read.place, dict(zip(names, values, strict=True)), read.rows)
    for name in needed:
        for row, value in zip(table.rows, table.values(name, ""), strict=True):
            if not value:
                raise DataError(f"{path}: line {row} lacks a value")
    if not len(table.rows):
        raise DataError(f"{path}: the table is empty")
    return table


# Texts.


def read_text(path: pathlib.Path) -> str:
    """The text of a file: UTF-8, or UTF-16 with a byte order mark; perhaps compressed (.gz)."""
    check_file(path, max_bytes=TABLE_BYTES, limit="the size of a table")
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(TABLE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if len(content) > TABLE_BYTES:
        raise DataError(f"{path} has more than the {TABLE_BYTES} bytes of a table")
    start = content[:_START]
    for magics, what in _OTHERS:
        if start.lstrip().lower().startswith(magics):
            raise DataError(f"{path} is {what}, not a text with a line for each sample")
    # Spreadsheets write UTF-16 with a mark; that of UTF-32 begins with the same bytes.
    has_mark = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    codec = "utf-16" if has_mark and start[2:4] != bytes(2) else "utf-8-sig"
    # Every second byte of UTF-16 is zero where its text is English.
    if codec != "utf-16" and start.count(0) > len(start) // 4:
        raise DataError(f"{path} is UTF-16 or no text; save the file as UTF-8")
    try:
        return content.decode(codec)
    except UnicodeDecodeError as error:
        line = content[: error.start].decode(codec, "ignore").count("\n") + 1
        name = codec.removesuffix("-sig").upper()
        raise DataError(f"{path}: line {line} is not {name}; save the file as UTF-8") from error


def _read_csv(path: pathlib.Path) -> Columns:
    """The columns of a csv file; quoted cells may contain line breaks and delimiters."""
    text, first_row = read_text(path), 2
    if match := _SEPARATOR.match(text):
        text, first_row, delimiter = text[match.end() :], 3, match[1]
    else:
        delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        # As spreadsheets number rows; blank rows count, and those of empty cells, which
        # spreadsheets write below a table.
        rows = {number: row for number, row in enumerate(reader, first_row) if any(row)}
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    return _columns(path, header, rows, delimiter)


def _delimiter(text: str) -> str:
    """What separates the cells of a csv file: what makes the most columns of all first rows."""
    start = text[:_CHARACTERS]
    found = []
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter, strict=True)
        try:
            rows = [len(row) for row in itertools.islice(reader, _ROWS) if row]
        except csv.Error:
            continue
        # The last row may be cut off.
        whole = rows if len(start) == len(text) or len(rows) == _ROWS else rows[:-1]
        if len(set(whole)) == 1 and whole[0] > 1:
            found.append((delimiter, whole[0]))
    if found:
        return max(found, key=lambda each: each[1])[0]
    header = text.partition("\n")[0]
    return max(reversed(_DELIMITERS), key=header.count)


def _columns(
    path: pathlib.Path,
    header: Iterable[Any],
    rows: Mapping[int, Sequence[Any]],
    delimiter: str = ",",
) -> Columns:
    """The columns of rows of cells, except for those without a name and without any value."""
    names = [composed("" if name is None else str(name).strip()) for name in header]
    for number, row in rows.items():
        if len(row) != len(names):
            raise DataError(
                f"{path}, row {number}: has {plural(len(row), 'cell')}, but there "
                f"{'is' if len(names) == 1 else 'are'} {plural(len(names), 'column')}"
            )
    # Spreadsheets write empty columns beside a table.
    used = [
        index
        for index, name in enumerate(names)
        if name or any(row[index] not in ("", None) for row in rows.values())
    ]
    if len(nameless := [index + 1 for index in used if not names[index]]) > 1:
        raise DataError(
            f"{path}: columns {nameless[0]} and {nameless[1]} have no name; the first row must "
            "hold the names of the columns"
        )
    check_once([names[index] for index in used], "column", str(path))
    columns = {names[index]: [row[index] for row in rows.values()] for index in used}
    return Columns(str(path), columns, list(rows), delimiter)


# Parquet.


def _read_parquet(path: pathlib.Path) -> Columns:
    check_file(path)
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: reading parquet needs pyarrow, which is not installed") from None
    most = TABLE_BYTES + _MOST_COMPRESSED * path.stat().st_size
    columns: dict[str, list[Any]] = {}
    size = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = list(map(composed, schema.names))
            check_once(names, "column", str(path))
            # A few bytes of a file may stand for any number of rows.
            if file.metadata.num_rows * len(names) > _MOST_CELLS:
                raise ValueError(f"it has more than {_MOST_CELLS} cells")
            columns = {name: [] for name in names}
            for batch in file.iter_batches(_BATCH):
                for name, column in zip(names, batch.columns, strict=True):
                    if isinstance(column, pyarrow.DictionaryArray):
                        column = column.dictionary_decode()
                    size += column.nbytes
                    if size > most:
                        raise ValueError(f"it has more than {most} bytes in memory")
                    columns[name] += column.to_pylist()
    except DataError:
        raise
    # Arrow raises its own errors and those of the system.
    except Exception as error:
        raise DataError(f"{path} cannot be read as a parquet file: {reason_of(error)}") from error
    classes = {composed(n): found for n, found in _class_names(schema.metadata or {}).items()}
    for name, names in classes.items():
        if name in columns:
            columns[name] = [_named(value, names) for value in columns[name]]
    return Columns(str(path), columns, classes=classes)


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """The names of the classes of each column, as Hugging Face's datasets write them."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {
            name: list(map(str, feature["names"]))
            for name, feature in features.items()
            if feature["_type"] == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _named(value: Any, names: Sequence[str]) -> Any:
    """The name of a class; None for -1, which says that there is no label."""
    if not isinstance(value, int) or value >= len(names):
        return value
    return names[value] if value >= 0 else None
