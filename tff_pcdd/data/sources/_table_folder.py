"""Folders of tables, such as a file from each hospital, which are read as one table."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._names import similar, tidy
from tff_pcdd.data.sources._own import ABBREVIATIONS, part_of
from tff_pcdd.data.sources._places import check_data_file, check_file
from tff_pcdd.data.sources._table_files import PARQUET, SUFFIXES, read_file
from tff_pcdd.errors import DataError, nearest, question

# In a folder, texts are rather notes than tables.
_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix != ".txt")

# What may be a table, too, and is not read.
_OTHERS = (".txt", ".xls", ".xlsm", ".xlsb", ".ods")

# How the hidden files of systems begin, and those by which Excel marks a file that is open.
_HIDDEN = (".", "~$")

# The column of the parts, where the names of files say them.
_SPLIT = "split"

# The most columns that a refusal names.
_MOST_NAMED = 5


def check_tables(path: pathlib.Path, dataset: str) -> None:
    """Checks that a path is a table, or a folder that holds some."""
    if not path.is_dir():
        check_data_file(path, dataset, SUFFIXES)
    elif not table_files(path):
        *most, last = _SUFFIXES
        raise DataError(
            f"dataset {dataset}: data_dir={path} is not a {', '.join(most)} or {last} file, nor a "
            "folder with such files in it"
        )


def table_files(path: pathlib.Path) -> list[pathlib.Path]:
    """A table; or those in a folder, and the parquet files in the folders in it."""
    if not path.is_dir():
        return [path]
    return sorted(
        path
        for path in (*path.glob("*"), *path.glob(f"*/*{PARQUET}"))
        if path.name.lower().endswith(_SUFFIXES)
        and not path.name.startswith(_HIDDEN)
        and not path.is_dir()
    )


def read_tables(
    path: pathlib.Path, site_column: str | None, split_column: str | None = None
) -> Columns:
    """The columns of a table, or of all tables in a folder, that `check_tables` has checked.

    The columns of sites and parts are those of `_read_folder`.
    """
    is_folder = path.is_dir()
    columns = _read_folder(path, site_column, split_column) if is_folder else read_file(path)
    if not len(columns.rows):
        raise DataError(f"{path}: the table is empty")
    return columns


def _read_folder(
    folder: pathlib.Path, site_column: str | None, split_column: str | None
) -> Columns:
    """The columns of all tables in a folder.

    The parts are those of the names, as in train-00000-of-00002.parquet or test/0000.parquet.

    Args:
        folder: the folder.
        site_column: the column of the sites. If no file has it, each file is a site, unless its
            name says a part, which a single file need not. None if there are no sites.
        split_column: the column of the parts, if another one than split is given, or "none";
            names of files say no parts then.
    """
    others = [path.name for path in folder.glob("*") if path.name.lower().endswith(_OTHERS)]
    if others := sorted(name for name in others if not name.startswith(_HIDDEN)):
        kinds = ", ".join(_SUFFIXES)
        warn(f"{folder}: {listed('file', others)} left out; files that are read end in {kinds}")
    paths = table_files(folder)
    for path in paths:
        # Caches of Hugging Face consist of links.
        check_file(path, within=None if path.name.endswith(PARQUET) else folder)
    tables = list(map(read_file, paths))
    for table in tables:
        if not table.names:
            raise DataError(f"{table.place}: the table is empty")
        if hint := table.separator_hint():
            raise DataError(f"{table.place}: the only column is {table.names[0]!r:.40}{hint}")
    parts = _parts(folder, paths)
    if any(parts) and split_column in (None, _SPLIT):
        tables = [
            table if _SPLIT in table else table.with_constant(_SPLIT, part)
            for table, part in zip(tables, parts, strict=True)
        ]
    _check_alike(folder, tables)
    names = tables[0].names
    if site_column is None or _resembles(site_column, names):
        return _Joined(str(folder), tables)
    if any(parts):
        raise DataError(
            f"{folder}: column {site_column!r} is missing, and files are no sites if their names "
            f"say parts, such as {paths[0].name:.40}; site_column can name another, or none"
            f"{question(nearest(site_column, names))}"
        )
    for table in tables:
        if not len(table.rows):
            raise DataError(f"{table.place}: the table is empty")
    tables = [
        table.with_constant(site_column, site)
        for table, site in zip(tables, _sites(folder, paths), strict=True)
    ]
    return _Joined(str(folder), tables, site_column)


def _resembles(column: str, names: Sequence[str]) -> bool:
    """Whether a name is one of others, or most likely stands for one of them."""
    return column in names or any(column in pair for pair in similar([column, *names]))


class _Joined(Columns):
    """Tables one below the other, in each of which numbers are written in its own way.

    Args:
        place: the folder of the tables' files.
        tables: the tables; all have the same columns, in any order.
        by_file: the column that holds names of files.
    """

    def __init__(self, place: str, tables: Sequence[Columns], by_file: str | None = None):
        super().__init__(
            place,
            {
                name: list(itertools.chain.from_iterable(each.values(name, "") for each in tables))
                for name in tables[0].names
            },
            [
                f"{row} of {file}"
                for each in tables
                for file in [os.path.relpath(each.place, place)]
                for row in each.rows
            ],
            classes=tables[0].classes,
        )
        self.by_file = by_file
        self._tables = tables

    @property
    def lengths(self) -> list[int]:
        return [len(each.rows) for each in self._tables]

    def plain_numbers(self, name: str, setting: str) -> Sequence[Any]:
        self.values(name, setting)  # Says that there is no such column.
        return [value for each in self._tables for value in each.plain_numbers(name, setting)]

    def categories(self, name: str, setting: str) -> Sequence[Any]:
        self.values(name, setting)
        return [value for each in self._tables for value in each.categories(name, setting)]

    def take(self, positions: np.ndarray) -> Columns:
        """The rows at some positions, which rise."""
        ends = np.cumsum([len(each.rows) for each in self._tables])
        chosen = np.split(positions, np.searchsorted(positions, ends[:-1]))
        starts = [0, *ends[:-1]]
        tables = [
            each.take(own - start)
            for each, own, start in zip(self._tables, chosen, starts, strict=True)
        ]
        return _Joined(self.place, tables, self.by_file)

    def with_markers(self, markers: Collection[str]) -> Columns:
        tables = [each.with_markers(markers) for each in self._tables]
        return _Joined(self.place, tables, self.by_file)


def _parts(folder: pathlib.Path, paths: Sequence[pathlib.Path]) -> list[str | None]:
    """The part that each file's name says, or none does; a file alone may have any name."""
    if len(paths) == 1:
        return [None]
    words = [
        word
        if part_of(word := re.split(r"[-_.]", path.name)[0]) or path.parent == folder
        # The folder itself may have any name.
        else path.parent.name
        for path in paths
    ]
    parts = list(map(part_of, words))
    said = [word for word, part in zip(words, parts, strict=True) if part]
    # Beside other names, TR and Dev are sites.
    if None in parts and all(word.casefold() in ABBREVIATIONS for word in said):
        return [None] * len(paths)
    if None in parts:
        nameless = paths[parts.index(None)]
        raise DataError(f"{nameless}: the name says no part, train, val or test, unlike others")
    return parts


def _check_alike(folder: pathlib.Path, tables: Sequence[Columns]) -> None:
    """Refuses tables with different columns, or with different names of classes."""
    files = {os.path.relpath(table.place, folder): set(table.names) for table in tables}
    names = list(dict.fromkeys(name for table in tables for name in table.names))
    found: dict[str, str] = {}
    for name in names:
        has = [file for file, own in files.items() if name in own]
        if lacks := [file for file, own in files.items() if name not in own]:
            where, some = ("only", has) if len(has) <= len(lacks) else ("not", lacks)
            column = f"column {name!r:.40}" if name else "a column without a name"
            found[name] = f"{column} is {where} in {listed('file', some)}"
    if found:
        alike = [
            f"{one!r:.40} and {other!r:.40} differ only in case, blanks or the like"
            for one, other in similar(list(found))
        ]
        more = [f"{len(found) - _MOST_NAMED} more columns"] if len(found) > _MOST_NAMED else []
        raise DataError(
            f"{folder}: the files have different columns: "
            f"{', '.join([*list(found.values())[:_MOST_NAMED], *more])}; "
            f"{'; '.join([*alike[:_MOST_NAMED], 'give all files the same columns'])}"
        )
    for table in tables:
        if table.classes != tables[0].classes:
            raise DataError(
                f"{table.place}: the names of classes are not those of {tables[0].place}"
            )


def _sites(folder: pathlib.Path, paths: Sequence[pathlib.Path]) -> list[str]:
    """The site of each file: its name without the suffix, which no other file may have."""
    by_site: dict[str, pathlib.Path] = {}
    for path in paths:
        suffix = next(suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix))
        site = tidy(path.name[: -len(suffix)], f"{path}: the name of the site")
        if (other := by_site.setdefault(site, path)) != path:
            raise DataError(
                f"{folder}: {os.path.relpath(other, folder)} and {os.path.relpath(path, folder)} "
                f"would both be the site {site!r:.40}; rename or remove one, or name a column of "
                "sites by site_column"
            )
    return list(by_site)
