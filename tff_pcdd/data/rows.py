"""Rows of a table as a trained model takes them: by the names of the columns, in any order."""

from __future__ import annotations

import os
import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import new_samples, pillow, sources
from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.encoding import Column
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._features import with_markers
from tff_pcdd.data.sources._names import as_texts, check_once, in_order, is_missing
from tff_pcdd.data.sources._places import check_file
from tff_pcdd.data.sources._table_folder import check_tables, read_tables
from tff_pcdd.data.sources._table_images import listed_paths, stored_images
from tff_pcdd.errors import DataError, nearest, question
from tff_pcdd.text import composed, plural


def is_frame(table: Any) -> bool:
    """Whether this is a data frame, or another mapping from column names to values."""
    return isinstance(table, Mapping) or (hasattr(table, "columns") and hasattr(table, "keys"))


def frame(table: Any, place: str) -> Columns:
    """The columns of a data frame, or of any mapping from column names to values.

    Args:
        table: the data frame; each column occurs once, and all have the same length.
        place: what it is called in messages.
    """
    names = {column: composed(str(column)) for column in table}
    check_once([names[column] for column in table], "column", place)
    return Columns(place, {names[column]: list(table[column]) for column in table})


def read(path: pathlib.Path, site_column: str | None) -> Columns:
    """The table in a file, or in a folder of files.

    In a folder of files without the column of the sites, each file is a site; None if sites do not
    matter.
    """
    check_tables(path, "table")
    return read_tables(path, site_column, "none")


def images_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The images in a folder and in all folders below it, by the ends of their names, in order.

    Hidden ones are left out, as in training.
    """
    found = sorted(
        path
        for path in folder.rglob("*")
        if pillow.is_image(path.name)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not found:
        raise DataError(f"{folder}: holds no images{new_samples.within(folder)}")
    for path in found:
        check_file(path, within=folder)
    return found


def labelled_images(folder: pathlib.Path) -> tuple[list[pathlib.Path], list[str], list[str]]:
    """The images in folders of sites and classes, as in training, with their labels and sites.

    Raises:
        DataError: if there are none, or they are in other folders.
    """
    source: Any = sources.create("folder", data_dir=str(folder))
    found, _ = source.find()
    return list(map(pathlib.Path, found.paths)), found.labels, found.sites


def listed_images(
    table: Columns, path: pathlib.Path, column: str, pattern: str | None = None
) -> tuple[list[str], list[pathlib.Path], list[str]]:
    """What answers call each row of a table, its image file, and what messages call it.

    If the table holds the images, these are temporary files.

    Args:
        table: the table.
        path: the file of the table, relative to whose folder the images are named, or the folder
            of several.
        column: the column of the image files, or of images.
        pattern: the image file of a row, with columns in braces, instead of the column.

    Raises:
        SettingError: if the pattern names no files.
        DataError: if there is no such column, or a file does not exist.
    """
    source: Any = sources.create("table", data_dir=str(path), path_column=column)
    stored, ids = stored_images(table, column, pattern), [f"row {row}" for row in table.rows]
    if stored is not None:
        shown = [f"{table.place}, row {row}" for row in table.rows]
        return ids, [pathlib.Path(os.fsdecode(name)) for name in stored.paths()], shown
    if pattern is None and column not in table:
        there = textwrap.shorten(", ".join(table.names), 200)
        raise DataError(
            f"{table.place}: column {column!r} of image files is missing, there are {there}; "
            "path_column can name another, `path_pattern` the files, and `text_column` a column of "
            f"texts{table.separator_hint()}{question(nearest(column, table.names))}"
        )
    folder = path if path.is_dir() else path.parent
    names = listed_paths(table, column, pattern, folder)
    found = [*map(os.fsdecode, source.existing_files(names, path, folder))]
    # As in training.
    ids = [f"{row} ({os.path.relpath(path, folder)})" for row, path in zip(ids, found, strict=True)]
    return ids, list(map(pathlib.Path, found)), found


def texts(table: Columns, column: str) -> list[str]:
    """The text in each row of a column, with the blanks at its ends.

    Raises:
        DataError: if there is no such column, or a text is missing.
    """
    values = table.values(column, "text_column")
    written = as_texts(values, "text", table.place, table.rows)
    return [
        value if isinstance(value, str) else text
        for value, text in zip(values, written, strict=True)
    ]


def names(table: Columns, column: str, what: str) -> list[str]:
    """The name in each row of a column; empty where it is missing.

    It is `what` in messages: a "label" or a "site".
    """
    values = table.categories(column, f"{what}_column")
    return new_samples.names(values, what, table.place, table.rows)


def check_labels(
    place: str, ids: Sequence[str], labels: Sequence[str], class_names: Sequence[str]
) -> None:
    """Warns of labels that are no class of the model, and therefore count as wrong.

    Args:
        place: what the samples are from, for messages.
        ids: what each sample is called.
        labels: the label of each sample; empty where it is missing.
        class_names: the classes of the model.

    Raises:
        DataError: if no label is a class of the model.
    """
    known = {*class_names}
    unknown = [row for row, label in enumerate(labels) if label and label not in known]
    if known.isdisjoint(labels):
        found = in_order(filter(None, labels))
        raise DataError(
            f"{place}: no label is a class of the model, which are "
            f"{listed('class', class_names)}; there are {', '.join(found[:6]) or 'no labels'}"
        )
    if unknown:
        first = unknown[0]
        warn(
            f"{place}, {ids[first]}: the label {labels[first]!r:.40} is no class "
            f"of the model; the answers to {plural(len(unknown), 'such row')} count as wrong"
        )


def cells(table: Columns, known: Sequence[Column]) -> np.ndarray:
    """The cells of a table, read as in training; columns that the model does not know are ignored.

    A category that the model does not know is taken for missing, with a warning.

    Returns:
        float64 [n, columns]: numbers, or the codes of categories; NaN where a value is missing,
        which is refused if the model does not replace it.
    """
    if lacking := [column.name for column in known if column.name not in table]:
        there = textwrap.shorten(", ".join(table.names), 200)
        meant = dict.fromkeys(" or ".join(nearest(name, table.names)) for name in lacking)
        raise DataError(
            f"{table.place}: {listed('column', lacking)} {'is' if len(lacking) == 1 else 'are'} "
            f"missing, there are {there}{question(list(filter(None, meant)), ', ')}"
        )
    table = table.with_markers({marker for column in known for marker in column.missing})
    found = [
        _numbers(table, column) if column.categories is None else _categories(table, column)
        for column in known
    ]
    return np.stack(found, axis=1)


def _numbers(table: Columns, column: Column) -> np.ndarray:
    values = with_markers(table.plain_numbers(column.name, ""), column.missing)
    lacking = np.array([is_missing(value, column.missing) for value in values], bool)
    _check_missing(table, column, lacking)
    return table.numbers(column.name, "", lacking)


def _categories(table: Columns, column: Column) -> np.ndarray:
    values = table.categories(column.name, "")
    codes = dict(zip(column.categories or (), column.codes, strict=True))
    # A text that usually says that a value is missing may be a category, see `missing`.
    lacking = np.array(
        [str(each).strip() not in codes and is_missing(each, column.missing) for each in values],
        bool,
    )
    _check_missing(table, column, lacking)
    names = table.as_names(values, f"category of column {column.name!r}", ~lacking)
    if unknown := [position for position, name in enumerate(names) if name not in codes]:
        first = unknown[0]
        row = table.rows[np.flatnonzero(~lacking)[first]]
        where = f"{names[first]!r:.40} in column {column.name!r}"
        if column.fill is None:
            meant = question(nearest(names[first], codes))
            raise DataError(
                f"{table.place}, row {row}: {where} is a category of no training sample{meant}"
            )
        others = f" (and {len(unknown) - 1} others)" if len(unknown) > 1 else ""
        warn(
            f"{table.place}, row {row}{others}: {where} is a category of no training "
            "sample, and is taken for missing"
        )
    found = np.full(len(values), np.nan)
    found[~lacking] = [codes.get(name, np.nan) for name in names]
    return found


def _check_missing(table: Columns, column: Column, lacking: np.ndarray) -> None:
    """Refuses missing values that the model does not replace."""
    if column.fill is None and lacking.any():
        others = f" (and in {lacking.sum() - 1} others)" if lacking.sum() > 1 else ""
        raise DataError(
            f"{table.place}, row {table.rows[int(np.argmax(lacking))]}{others}: column "
            f"{column.name!r} is missing, and the model was trained without impute, which replaces "
            "missing values"
        )
