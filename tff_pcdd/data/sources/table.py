"""A table with a row for each sample: its image file or its features, its label and its site.

The table is a csv, xlsx or parquet file, or a folder of such files. Paths are relative to the
table's folder and stay in it; parquet files may hold the images themselves.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import encoding
from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.input_spec import IMAGE_FILE, VECTOR, InputSpec
from tff_pcdd.data.sources import DatasetInfo, LoadRequest, PooledData, register
from tff_pcdd.data.sources._arrays import known_classes, vector_spec
from tff_pcdd.data.sources._cells import MEAN, MEDIAN, Cells
from tff_pcdd.data.sources._column_checks import (
    IDS,
    NAMES_AN_ID,
    far_numbers,
    informative,
    warn_of_answers,
    warn_of_left_out,
    warn_of_outliers,
    warn_of_units,
)
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._image_files import OwnImages
from tff_pcdd.data.sources._listed_images import (
    StoredImages,
    columns_of,
    find_images,
    holds_images,
    without_contents,
)
from tff_pcdd.data.sources._missing import MissingValues, refuse_missing
from tff_pcdd.data.sources._names import (
    MARKERS,
    MISSING,
    Row,
    as_names,
    as_texts,
    column_name,
    in_order,
    is_missing,
    numbered,
    quoted,
    separated,
    similar,
)
from tff_pcdd.data.sources._own import (
    MANY_CLASSES,
    OwnSamples,
    check_parts,
    part_of,
)
from tff_pcdd.data.sources._table_files import read_file
from tff_pcdd.data.sources._table_folder import check_tables, read_folder
from tff_pcdd.data.sources._tasks import refuse_boxes, refuse_several, texts_hint
from tff_pcdd.errors import DataError, SettingError, nearest, question
from tff_pcdd.settings import option

_ALL = "all"

# The column that says which samples are for testing, if there is one.
_SPLIT = "split"

# The value of a setting that says that there is no such column.
_NONE = "none"

# How columns are called that name patients and the like. An id that does not repeat is no group.
_NAMES_A_GROUP = re.compile(
    r"(^|[\W_])(patient|patienten|pat(?=[\W_]*(id|nr|no|num))|subject|person|participant|"
    r"individual|lesion|video|study|series|case|donor|animal|mouse|slide|exam|visit|eye|id|uid|mrn|"
    r"pid)([\W_]*(id|uid|no|nr|num|number|name|code|nummer)[\W_]*)?$|(?-i:[a-z]I[dD]$)",
    re.IGNORECASE,
)


@register
@dataclasses.dataclass(frozen=True)
class Table(OwnImages, MissingValues):
    """Samples in a csv, xlsx or parquet file, or in a folder of such files."""

    holds_any_data = True
    needs = "path of its .csv, .xlsx or .parquet file, or of a folder of such files"
    info = DatasetInfo(
        "table", IMAGE_FILE, MANY_CLASSES, (32, 32, 3), has_users=True, needs_data_dir=True
    )

    label_column: str = option("label", "Column of the labels, names or numbers.")
    site_column: str = option(
        "site",
        "Column of the sites, which are the clients; none if there are no sites. In a folder of "
        "tables without this column, each file is a site.",
    )
    path_column: str = option(
        "path",
        "Column of the image files, relative to the table's folder; or of the images in a parquet "
        "file.",
    )
    path_pattern: str | None = option(
        None,
        "The image file of a row, with columns in braces, such as {image_id}.jpg or "
        "part_*/{image_id}.jpg. It is searched in the table's folder and in all folders below.",
        type=str,
    )
    split_column: str | None = option(
        None,
        "Column that says train, val or test; by default split, if there is such a column. none "
        "chooses test samples anew.",
        type=str,
    )
    group_column: str | None = option(
        None,
        "Column of the patients, lesions, videos or the like, all of whose samples stay in one "
        "part; several columns, separated by commas, if their values together name a group.",
        type=str,
    )
    feature_columns: str | None = option(
        None,
        "Columns of numbers that are the inputs instead of images: names separated by commas, in "
        "double quotes if they have commas, or all for all columns but those above. The default "
        "model is then mlp.",
        type=str,
    )
    categorical_columns: str | None = option(
        None,
        "Those of feature_columns that hold categories, names or whole numbers, separated by "
        "commas. Each category of the training samples becomes an input that is 0 or 1.",
        type=str,
    )
    impute: str | None = option(
        None,
        "What replaces missing values of feature_columns: the median or the mean of the training "
        "samples of all sites; a missing category is no category. If training samples lack values "
        "of a column, a further input says where. By default, missing decides.",
        choices=(MEDIAN, MEAN),
        type=str,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("label_column", "site_column", "split_column", "path_column"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, column_name(given))
        if self.label_column == self.site_column:
            reason = "is the column of the labels; name that of the sites, or none"
            raise SettingError("site_column", self.site_column, reason)
        if self.feature_columns is None:
            for name in ("categorical_columns", "impute"):
                if getattr(self, name) is not None:
                    raise SettingError(name, getattr(self, name), "needs feature_columns")
            return
        features = self._features()
        if not features or not all(features):
            raise SettingError(
                "feature_columns", self.feature_columns, "must be names separated by commas, or all"
            )
        for name in features:
            if features.count(name) > 1:
                reason = f"{name!r} occurs twice"
                raise SettingError("feature_columns", self.feature_columns, reason)
        if features != [_ALL]:
            self._check_categorical(features)
        for name, plain in (
            ("path_pattern", None),
            ("image_size", None),
            ("image_channels", None),
            ("augmentation", "none"),
            ("input_normalization", "dataset"),
        ):
            if getattr(self, name) != plain:
                reason = "applies to images, and feature_columns chooses numbers"
                raise SettingError(name, getattr(self, name), reason)

    @property
    def has_users(self) -> bool:
        return self.site_column != _NONE

    def suggested_partition(self) -> dict[str, str]:
        return super().suggested_partition() if self.has_users else {}

    def suggested_model(self) -> dict[str, str]:
        return {} if self.feature_columns is None else {"model": "mlp"}

    def input_spec(self) -> InputSpec:
        if self.feature_columns is None:
            return super().input_spec()
        return InputSpec(VECTOR, (len(self._features()),), "float32")

    def holds(self, path: pathlib.Path) -> bool:
        return self.path.is_dir() and os.path.realpath(path) == os.path.realpath(self.path)

    def check(self) -> None:
        check_tables(self.path, self.name)

    def load(self, request: LoadRequest) -> PooledData:
        self.check()
        folder = self.path if self.path.is_dir() else self.path.parent
        if folder == self.path:
            columns = read_folder(folder, self.site_column if self.has_users else None)
        else:
            columns = read_file(self.path)
        if not len(columns.rows):
            raise DataError(f"{self.path}: the table is empty")
        return self.pool_columns(columns, folder, request)

    def pool_columns(
        self, columns: Columns, folder: pathlib.Path, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of a table.

        Args:
            columns: the table.
            folder: the folder that paths are relative to.
            request: which sites to keep.

        Raises:
            SettingError: if a setting does not fit the table.
            DataError: if a column or a value is missing or cannot be used.
        """
        place = columns.place
        columns = columns.with_markers(self.markers())
        needed = {"the label": columns.values(self.label_column, "label_column")}
        if self.has_users:
            needed["the site"] = columns.values(self.site_column, "site_column")
        for name in self._group_columns():
            needed[f"the group's {name}"] = columns.values(name, "group_column")
        if self.feature_columns is None:
            needed |= self._images(columns)
        must_be_there = self.feature_columns is not None and self.impute is None
        # Otherwise, what is missing is refused when it is read.
        if must_be_there and self.missing == "drop":
            needed |= self._inputs(columns)
        further = (lambda: self._inputs(columns)) if must_be_there else dict
        kept, notes = self.complete_rows(place, needed, columns.rows, further)
        if notes:
            columns = columns.take(kept)
        rows = columns.rows
        given = columns.categories(self.label_column, "label_column")
        class_names = None
        if (known := columns.classes.get(self.label_column)) is None:
            # 1,3 is no number with a decimal comma where 1 and 3 are labels.
            refuse_several(place, map(str, columns.values(self.label_column, "label_column")))
            labels = as_names(given, "label", place, rows)
        else:
            class_names = known_classes(known, place)
            names = dict(zip(known, class_names, strict=True))
            labels = _labels_of_classes(given, names, place, rows)
        sites = parts = None
        if self.has_users:
            owners = columns.categories(self.site_column, "site_column")
            sites = as_names(owners, "site", place, rows)
        if self.split_column != _NONE and (self.split_column is not None or _SPLIT in columns):
            texts = columns.values(self.split_column or _SPLIT, "split_column")
            parts = check_parts(as_names(texts, "split", place, rows), place, rows)
        elif self.split_column != _NONE:
            _warn_of_parts(columns)
        groups = self._groups(columns)
        likely = self._likely_groups(columns, parts)
        samples = OwnSamples(
            place,
            np.arange(len(rows)),
            labels,
            sites,
            parts,
            lambda index: f"row {rows[index]}",
            notes,
            groups,
            likely,
            class_names,
            named_by={
                "classes": f" of column {self.label_column}",
                "sites": " from names of files"
                if columns.by_file
                else f" of column {self.site_column}",
            },
        )
        if self.feature_columns is None:
            return self._pool_files(samples, columns, folder, request)
        return self._pool_numbers(samples, columns, request)

    def _pool_files(
        self, samples: OwnSamples, columns: Columns, folder: pathlib.Path, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of the images that the rows name, or that the table holds."""
        stored = self._stored_images(columns)
        paths = self._paths(columns, folder) if stored is None else stored.paths()
        refuse_boxes(columns.place, columns.names, paths.tolist())
        row = samples.shown

        def shown(index: int) -> str:
            return f"{row(index)} ({os.path.relpath(os.fsdecode(paths[index]), folder)})"

        samples = dataclasses.replace(samples, x=paths, shown=shown if stored is None else row)
        pooled = self.pool_images(samples, request)
        if stored is not None and pooled.train.x.ndim > 1:
            stored.remove()
        return pooled

    def _named(self, samples: OwnSamples, row: int) -> str:
        return f"{samples.place}, {samples.shown(row)}"

    def _pool_numbers(
        self, samples: OwnSamples, columns: Columns, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of the columns that are inputs."""
        place = columns.place
        cells, count = self._cells(columns)
        warn_of_answers(place, cells, samples.labels)
        warn_of_outliers(cells, samples)
        warn_of_units(cells, samples)
        shifted = far_numbers(place, cells)
        changed = self.impute is not None or shifted or any(cells.categories)
        content = repr((cells.names, cells.categories) if changed else cells.names)

        def describe(train: np.ndarray) -> InputSpec:
            fitted = cells.fit(
                place,
                train,
                self.impute,
                shifted,
                [number for text in self.markers() if (number := _number(text))],
                sorted({*self._common(True), *self.markers()}) if self.impute else (),
            )
            spec = vector_spec(place, cells.encode(train, fitted), encoding.features(fitted))
            return dataclasses.replace(spec, columns=fitted)

        def encode(kept: OwnSamples, spec: InputSpec) -> np.ndarray:
            _check_categories(cells, kept, spec.columns or ())
            return cells.encode(kept.x, spec.columns or ())

        samples = dataclasses.replace(
            samples,
            x=cells.x if changed else cells.x.astype(np.float32),
            notes={**samples.notes, "missing_values_replaced": count} if count else samples.notes,
        )
        pooled = self.pool(samples, request, describe, encode)
        fingerprint = pooled.fingerprint + hashlib.sha256(content.encode()).hexdigest()
        return dataclasses.replace(pooled, fingerprint=fingerprint)

    def _cells(self, columns: Columns) -> tuple[Cells, int]:
        """The columns that are inputs, and how many of their values are missing."""
        place = columns.place
        names = self._chosen_features(columns)
        self._check_categorical(names)
        categorical, found, known, missing = self._categorical(), [], [], {}
        for name in names:
            lacking = self._lacking(columns, name)
            if lacking.any():
                missing[name] = int(lacking.sum())
            if name in categorical:
                read, categories = _read_categories(columns, name, lacking)
            else:
                read, categories = self._numbers(columns, name, lacking), None
            found.append(read)
            known.append(categories)
        if missing:
            counts = ", ".join(f"column {name!r} in {count}" for name, count in missing.items())
            warn(f"{place}: missing: {counts}; impute={self.impute} replaces the values")
        kept = list(range(len(names)))
        if self._features() == [_ALL]:
            kept = informative(place, names, found, categorical)
        cells = Cells(
            np.stack([found[index] for index in kept], axis=1),
            [names[index] for index in kept],
            [known[index] for index in kept],
        )
        return cells, sum(missing.get(name, 0) for name in cells.names)

    def _lacking(self, columns: Columns, name: str) -> np.ndarray:
        """Where the value of an input is missing, bool [n]; refused if nothing replaces it.

        Without further markers, the column of numbers itself refuses it.
        """
        if self.impute is None and name not in self._categorical() and not self.missing_markers:
            return np.zeros(len(columns.rows), bool)
        lacking = self._where_lacking(columns, name)
        if self.impute is None and lacking.any():
            self._refuse_missing(columns)
        return lacking

    def _where_lacking(self, columns: Columns, name: str) -> np.ndarray:
        """Where the value of an input is missing, bool [n]."""
        markers, common = self.markers(), self._common(name in self._categorical())
        values = self._values(columns, name)
        return np.array([is_missing(value, markers, common) for value in values], bool)

    def _numbers(self, columns: Columns, name: str, lacking: np.ndarray) -> np.ndarray:
        """The values of an input of numbers.

        Raises:
            DataError: if a value is none; names further such columns. Or if values are missing, and
                nothing replaces them.
        """
        try:
            return columns.numbers(name, "feature_columns", lacking)
        except DataError:
            names = self._chosen_features(columns)
            names = [other for other in names if other not in self._categorical()]
            errors = {
                other: error
                for other in names[names.index(name) :]
                if (error := self._error_of(columns, other))
            }
            if not errors:
                self._refuse_missing(columns)
                raise
            first, *others = errors
            also = f"; {listed('column', others)} too" if others else ""
            raise DataError(f"{errors[first]}{also}") from None

    def _error_of(self, columns: Columns, name: str) -> DataError | None:
        """Why values of a column are no numbers, those that are missing aside; None if they are."""
        try:
            columns.numbers(name, "feature_columns", self._where_lacking(columns, name))
        except DataError as error:
            return error
        return None

    def _refuse_missing(self, columns: Columns) -> None:
        """Refuses the missing values of all inputs, if there are some."""
        names = self._chosen_features(columns)
        found = {f"column {name!r}": self._where_lacking(columns, name) for name in names}
        if missing := {what: lacking for what, lacking in found.items() if lacking.any()}:
            refuse_missing(columns.place, self._inputs(columns), missing, columns.rows)

    def _inputs(self, columns: Columns) -> dict[str, Sequence[Any]]:
        """The values of all inputs, by what they are, for messages."""
        names = self._chosen_features(columns)
        return {f"column {name!r}": self._values(columns, name) for name in names}

    def _values(self, columns: Columns, name: str) -> Sequence[Any]:
        """The values of an input, with decimal points; true and false are numbers 1 and 0."""
        if name in self._categorical():
            return columns.categories(name, "categorical_columns")
        return _with_markers(columns.plain_numbers(name, "feature_columns"), self.markers())

    def _common(self, is_category: bool) -> Collection[str]:
        """The texts that always stand for a missing value."""
        return MISSING if self.missing == "keep" and is_category else MARKERS

    def _categorical(self) -> list[str]:
        return separated(self.categorical_columns)

    def _check_categorical(self, features: Sequence[str]) -> None:
        """Refuses columns of categories that are no inputs."""
        for name in self._categorical():
            if name not in features:
                meant = question(nearest(name, features))
                reason = f"{name!r} is not one of feature_columns{meant}"
                raise SettingError("categorical_columns", self.categorical_columns, reason)

    def _split_role(self) -> str:
        """The column of the parts, also if they are not used."""
        return _SPLIT if self.split_column in (None, _NONE) else self.split_column

    def _group_columns(self) -> list[str]:
        return separated(self.group_column)

    def _groups(self, columns: Columns) -> list[str] | None:
        """The group of each row; None if no column names them."""
        if self.group_column is None:
            return None
        values = [
            as_names(columns.categories(name, "group_column"), "group", columns.place, columns.rows)
            for name in self._group_columns()
        ]
        return [", ".join(row) for row in zip(*values, strict=True)]

    def _likely_groups(
        self, columns: Columns, parts: Sequence[str] | None
    ) -> dict[str, tuple[list[str], str]]:
        """Columns that seem to name patients or the like, see `OwnSamples`."""
        roles = {self.label_column, self.site_column, self._split_role(), self.path_column}
        anew = " with split_column=none" if parts else ""
        return {
            f"values of column {name!r}": (
                # A value that is missing is no group.
                [
                    f"row {row}" if is_missing(value) else str(value)
                    for row, value in numbered(columns.values(name, "group_column"), columns.rows)
                ],
                f"group_column={quoted([name])}{anew} keeps them in one part",
            )
            for name in columns.names
            if name not in roles and _NAMES_A_GROUP.search(str(name))
        }

    def _features(self) -> list[str]:
        return separated(self.feature_columns)

    def _chosen_features(self, columns: Columns) -> list[str]:
        """The names of the columns that are inputs."""
        roles = {
            *(self.label_column, self.site_column, self._split_role(), self.path_column),
            *self._group_columns(),
        }
        names = self._features()
        if names == [_ALL]:
            names = [name for name in columns.names if name not in roles]
            # Ids that are numbers are left out when they have been read, see `informative`.
            names = self._without(columns, names, IDS, _are_text_ids)
            if self.impute is None:
                # With impute, they are constants.
                empty = "without any value"
                names = self._without(
                    columns, names, empty, lambda _, there: next(there, None) is None
                )
            return names
        for name in names:
            if name in (self.label_column, self.site_column):
                reason = f"{name} is the label or the site, and would give away the answer"
                raise SettingError("feature_columns", self.feature_columns, reason)
        return names

    def _without(
        self,
        columns: Columns,
        names: Sequence[str],
        reason: str,
        says_nothing: Callable[[str, Iterator[Any]], bool],
    ) -> list[str]:
        """The columns but those whose values, without missing ones, say nothing; warns of these.

        Columns of categories stay.
        """
        markers, categorical, left_out = self.markers(), self._categorical(), []
        for name in names:
            values = columns.values(name, "feature_columns")
            there = (value for value in values if not is_missing(value, markers))
            if name not in categorical and says_nothing(name, there):
                left_out.append(name)
        if left_out and columns.rows:
            warn_of_left_out(columns.place, left_out, reason)
        return [name for name in names if name not in left_out]

    def _images(self, columns: Columns) -> dict[str, Sequence[Any]]:
        """The values that say which image a row has, by what they are, for messages."""
        if self.path_pattern is not None:
            names = columns_of(self.path_pattern)
            return {f"the image's {name}": columns.values(name, "path_pattern") for name in names}
        if self.path_column not in columns:
            return {}
        cells = columns.values(self.path_column, "path_column")
        return {"the image": without_contents(cells) if holds_images(cells) else cells}

    def _stored_images(self, columns: Columns) -> StoredImages | None:
        """The images that the table holds itself; None if it names files."""
        if self.path_pattern is not None or self.path_column not in columns:
            return None
        cells = columns.values(self.path_column, "path_column")
        return StoredImages(cells, columns) if holds_images(cells) else None

    def _paths(self, columns: Columns, folder: pathlib.Path) -> np.ndarray:
        """The image files, as bytes."""
        if self.path_pattern is not None:
            texts = find_images(self.path_pattern, columns, folder)
        elif self.path_column not in columns:
            stored = [name for name in columns.names if holds_images(columns.values(name, ""))]
            raise DataError(
                f"{columns.place}: there is no column {self.path_column!r} of image files; name it "
                f"by path_column{f', such as {stored[0]}' if stored else ''}, or columns of "
                "numbers by feature_columns, or use path_pattern"
            )
        else:
            cells = columns.values(self.path_column, "path_column")
            texts = as_texts(cells, "path", columns.place, columns.rows)
            # As Windows writes paths.
            texts = [
                text
                if "\\" not in text or os.path.exists(folder / text)
                else text.replace("\\", "/")
                for text in texts
            ]
            if not any(map(os.path.isfile, (folder / text for text in texts[:1]))) and not any(
                pathlib.PurePath(text).suffix for text in texts
            ):
                raise DataError(
                    f"{columns.place}, row {columns.rows[0]}: {texts[0]!r:.80} in column "
                    f"{self.path_column!r} is not the name of a file; path_pattern="
                    f"'{{{self.path_column}}}.jpg' adds what it lacks"
                )
        return self.existing_files(texts, pathlib.Path(columns.place), folder)


def _read_categories(
    columns: Columns, name: str, missing: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The position of each sample's category, float64 [n], NaN where missing; all categories."""
    values = columns.categories(name, "categorical_columns")
    there = np.flatnonzero(~missing).tolist()
    rows = [columns.rows[index] for index in there]
    what = f"category of column {name!r}"
    names = as_names([values[index] for index in there], what, columns.place, rows)
    known = in_order(names)
    for one, other in similar(known):
        warn(
            f"{columns.place}: categories {one!r:.40} and {other!r:.40} of column {name!r} differ "
            "only in case, blanks or the like; they are two categories, unless you write them alike"
        )
    position = {category: number for number, category in enumerate(known)}
    read = np.full(len(values), np.nan)
    read[there] = [position[category] for category in names]
    return read, known


def _labels_of_classes(
    values: Sequence[Any], class_names: Mapping[str, str], place: str, rows: Sequence[Row]
) -> list[str]:
    """The name of each sample's class, where a file names the classes itself.

    Args:
        values: the labels.
        class_names: the name of each class, by the label.
        place, rows: for messages.
    """
    as_texts(values, "label", place, rows)
    for row, value in zip(rows, values, strict=True):
        if value not in class_names:
            raise DataError(
                f"{place}, row {row}: the label {value!s:.40} is none of the {len(class_names)} "
                "classes that the file names"
            )
    return [class_names[value] for value in values]


def _are_text_ids(name: str, values: Iterable[Any]) -> bool:
    """Whether a column holds ids by its name, and texts."""
    return bool(NAMES_AN_ID.search(name)) and any(map(_is_text, values))


def _is_text(value: Any) -> bool:
    """Whether a value is no number, with a point or a comma before decimals."""
    try:
        float(str(value).replace(",", "."))
    except ValueError:
        return True
    return False


def _number(text: str) -> str:
    """A number as it is usually written; empty if the text is none."""
    try:
        number = float(text)
    except ValueError:
        return ""
    if not np.isfinite(number):
        return ""
    return str(int(number)) if number.is_integer() else str(number)


def _with_markers(values: Sequence[Any], markers: Sequence[str]) -> Sequence[Any]:
    """Values of a column of numbers, in which a marker takes the place of those equal in float32.

    Exported models compare numbers in float32, and columns of float32 hold 9.9 as 9.899999618….
    """
    known = {_in_float32(number): text for text in markers if (number := _number(text))}
    known.pop(None, None)
    return [known.get(_in_float32(value), value) for value in values] if known else values


def _in_float32(value: Any) -> float | None:
    """A number, rounded to float32; None for what is no finite number there."""
    try:
        with np.errstate(over="ignore"):
            number = float(np.float32(value))
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _check_categories(
    cells: Cells, samples: OwnSamples, columns: Sequence[encoding.Column]
) -> None:
    """Warns of categories without training samples, which are taken for missing.

    Raises:
        DataError: if a category must not be missing.
    """
    for column, positions, x, known in zip(
        columns, cells.unknown(samples.x, columns), samples.x.T, cells.categories, strict=True
    ):
        if not len(positions) or known is None:
            continue
        first = int(positions[0])
        category = known[int(x[first])]
        if column.fill is None:
            texts = [known[int(position)] for position in x[~np.isnan(x)]]
            hint = texts_hint(texts) or "impute=median takes it for missing"
            raise DataError(
                f"{samples.place}, {samples.shown(first)}: {category!r:.40} in column "
                f"{column.name!r} is a category of no training sample; {hint}"
            )
        warn(
            f"{samples.place}: {len(positions)} validation or test samples have categories of "
            f"column {column.name!r} that no training sample has, such as {category!r:.40} in "
            f"{samples.shown(first)}; they are taken for missing"
        )


def _warn_of_parts(columns: Columns) -> None:
    """Warns of columns that say which samples are for testing, and are not used."""
    for name in columns.names:
        found = set()
        for value in columns.values(name, "split_column"):
            part = part_of(value) if isinstance(value, str) else None
            found.add(part)
            # Mostly the first value says no part, and tables may have millions of them.
            if part is None:
                break
        if {"train", "test"} <= found and None not in found:
            warn(
                f"{columns.place}: column {name!r:.40} says train and test, but is not used; "
                f"split_column={quoted([name])} uses it, and split_column=none does not"
            )
