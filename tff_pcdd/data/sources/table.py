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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import encoding
from tff_pcdd.data.checks import warn, warned_before
from tff_pcdd.data.input_spec import IMAGE_FILE, VECTOR, InputSpec
from tff_pcdd.data.sources import DatasetInfo, LoadRequest, PooledData, register
from tff_pcdd.data.sources._arrays import known_classes, vector_spec
from tff_pcdd.data.sources._cells import MEAN, MEDIAN
from tff_pcdd.data.sources._column_checks import (
    far_numbers,
    warn_of_answers,
    warn_of_outliers,
    warn_of_units,
)
from tff_pcdd.data.sources._columns import Columns
from tff_pcdd.data.sources._features import Features, as_number, check_categories
from tff_pcdd.data.sources._image_files import OwnImages
from tff_pcdd.data.sources._missing import MissingValues
from tff_pcdd.data.sources._names import Row, as_texts, is_missing, numbered
from tff_pcdd.data.sources._own import MANY_CLASSES, OwnSamples, check_parts, part_of
from tff_pcdd.data.sources._table_files import PARQUET
from tff_pcdd.data.sources._table_folder import check_tables, read_tables, table_files
from tff_pcdd.data.sources._table_images import listed_paths, stored_images, values_of_images
from tff_pcdd.data.sources._tasks import refuse_boxes, refuse_several
from tff_pcdd.errors import DataError, SettingError, nearest, question
from tff_pcdd.settings import option
from tff_pcdd.text import composed, quoted, separated

_ALL = "all"

# The column that says which samples are for testing, if there is one.
_SPLIT = "split"

# The value of a setting that says that there is no such column.
_NONE = "none"

# How columns are called that name patients and the like. An id that does not repeat is no group.
_NAMES_A_GROUP = re.compile(
    r"(^|[\W_])(patient|patienten|pat(?=[\W_]*(id|nr|no|num))|subject|person|participant|"
    r"individual|lesion|video|sequence|burst|study|series|case|donor|animal|mouse|slide|exam|visit|"
    r"eye|id|uid|mrn|pid)([\W_]*(id|uid|no|nr|num|number|name|code|nummer)[\W_]*)?$|(?-i:[a-z]I[dD]$)",
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
                object.__setattr__(self, name, composed(given))
        if self.label_column == self.site_column:
            reason = "is the column of the labels; name that of the sites, or none"
            raise SettingError("site_column", self.site_column, reason)
        if self.feature_columns is None:
            for name in ("categorical_columns", "impute"):
                if getattr(self, name) is not None:
                    raise SettingError(name, getattr(self, name), "needs feature_columns")
            return
        features = separated(self.feature_columns)
        if not features or not all(features):
            raise SettingError(
                "feature_columns", self.feature_columns, "must be names separated by commas, or all"
            )
        for name in features:
            if features.count(name) > 1:
                reason = f"{name!r} occurs twice"
                raise SettingError("feature_columns", self.feature_columns, reason)
        if features != [_ALL]:
            for name in features:
                if name in (self.label_column, self.site_column):
                    reason = f"{name} is the label or the site, and would give away the answer"
                    raise SettingError("feature_columns", self.feature_columns, reason)
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
        return InputSpec(VECTOR, (len(separated(self.feature_columns)),), "float32")

    def holds(self, path: pathlib.Path) -> bool:
        return self.path.is_dir() and os.path.realpath(path) == os.path.realpath(self.path)

    def check(self) -> None:
        check_tables(self.path, self.name)

    def read_files(self) -> Iterable[pathlib.Path]:
        return table_files(self.path)

    def listed_files(self) -> Iterable[pathlib.Path]:
        files = table_files(self.path)
        # Parquet files may hold the images.
        if self.feature_columns is not None or any(path.suffix == PARQUET for path in files):
            return ()
        with warned_before():
            columns, *_ = self._complete(self._read().with_markers(self.markers()))
            names = listed_paths(columns, self.path_column, self.path_pattern, self._folder())
        return [self._folder() / name for name in names]

    def load(self, request: LoadRequest) -> PooledData:
        self.check()
        return self.pool_columns(self._read(), self._folder(), request)

    def _read(self) -> Columns:
        site_column = self.site_column if self.has_users else None
        return read_tables(self.path, site_column, self.split_column)

    def _folder(self) -> pathlib.Path:
        """The folder to which the paths of images are relative."""
        return self.path if self.path.is_dir() else self.path.parent

    def pool_columns(
        self, columns: Columns, folder: pathlib.Path, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of a table, whose paths are relative to a folder."""
        columns, features, notes = self._complete(columns.with_markers(self.markers()))
        place, rows = columns.place, columns.rows
        labels, class_names = self._labels(columns)
        sites = None
        if self.has_users:
            owners = columns.categories(self.site_column, "site_column")
            sites = columns.as_names(owners, "site")
        parts = self._given_parts(columns)
        samples = OwnSamples(
            place,
            np.arange(len(rows)),
            labels,
            sites,
            parts,
            lambda index: f"row {rows[index]}",
            notes,
            self._groups(columns),
            self._likely_groups(columns, parts),
            class_names,
            named_by={
                "classes": f" of column {self.label_column}",
                "sites": (
                    " from names of files" if columns.by_file else f" of column {self.site_column}"
                ),
            },
            own_groups=f"group_column={quoted(self.site_column, *separated(self.group_column))} "
            "makes the site a part of it",
        )
        if self.feature_columns is None:
            return self._pool_files(samples, columns, folder, request)
        return self._pool_numbers(samples, features, request)

    def _complete(self, columns: Columns) -> tuple[Columns, Features, dict[str, int]]:
        """The table without rows that lack values, its inputs, and how many rows are left out."""
        needed = {"the label": columns.values(self.label_column, "label_column")}
        if self.has_users:
            needed["the site"] = columns.values(self.site_column, "site_column")
        for name in separated(self.group_column):
            needed[f"the group's {name}"] = columns.values(name, "group_column")
        if self.feature_columns is None:
            needed |= values_of_images(columns, self.path_column, self.path_pattern)
        features = self._features(columns)
        must_be_there = self.feature_columns is not None and self.impute is None
        # Otherwise, what is missing is refused when it is read.
        if must_be_there and self.missing == "drop":
            needed |= features.inputs()
        further = features.inputs if must_be_there else dict
        kept, notes = self.complete_rows(columns.place, needed, columns.rows, further)
        if notes:
            columns = columns.take(kept)
            features = dataclasses.replace(features, columns=columns)
        return columns, features, notes

    def _labels(self, columns: Columns) -> tuple[list[str], list[str] | None]:
        """The name of each row's class, and the names of all classes if the file has them."""
        place = columns.place
        given = columns.categories(self.label_column, "label_column")
        known = columns.classes.get(self.label_column)
        if known is None:
            # 1,3 is no number with a decimal comma where 1 and 3 are labels.
            refuse_several(place, map(str, columns.values(self.label_column, "label_column")))
            return columns.as_names(given, "label"), None
        class_names = known_classes(known, place)
        names = dict(zip(known, class_names, strict=True))
        return _labels_of_classes(given, names, place, columns.rows), class_names

    def _given_parts(self, columns: Columns) -> list[str] | None:
        """The part of each row; None if the test samples are to be chosen."""
        if self.split_column == _NONE:
            return None
        if self.split_column is None and _SPLIT not in columns:
            _warn_of_parts(columns)
            return None
        texts = columns.values(self.split_column or _SPLIT, "split_column")
        return check_parts(columns.as_names(texts, "split"), columns.place, columns.rows)

    def _pool_files(
        self, samples: OwnSamples, columns: Columns, folder: pathlib.Path, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of the images that the rows name, or that the table holds."""
        stored = stored_images(columns, self.path_column, self.path_pattern)
        if stored is None:
            names = listed_paths(columns, self.path_column, self.path_pattern, folder)
            paths = self.existing_files(names, pathlib.Path(columns.place), folder)
        else:
            paths = stored.paths()
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
        self, samples: OwnSamples, features: Features, request: LoadRequest
    ) -> PooledData:
        """Makes a data set of the columns that are inputs."""
        place = samples.place
        self._check_categorical(features.names)
        cells, count = features.cells()
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
                [number for text in self.markers() if (number := as_number(text))],
                sorted({*features.common(True), *self.markers()}) if self.impute else (),
            )
            spec = vector_spec(place, cells.encode(train, fitted), encoding.features(fitted))
            return dataclasses.replace(spec, columns=fitted)

        def encode(kept: OwnSamples, spec: InputSpec) -> np.ndarray:
            check_categories(cells, kept, spec.columns or ())
            return cells.encode(kept.x, spec.columns or ())

        samples = dataclasses.replace(
            samples,
            x=cells.x if changed else cells.x.astype(np.float32),
            notes={**samples.notes, "missing_values_replaced": count} if count else samples.notes,
        )
        pooled = self.pool(samples, request, describe, encode)
        fingerprint = pooled.fingerprint + hashlib.sha256(content.encode()).hexdigest()
        return dataclasses.replace(pooled, fingerprint=fingerprint)

    def _check_categorical(self, features: Sequence[str]) -> None:
        """Refuses columns of categories that are no inputs."""
        for name in separated(self.categorical_columns):
            if name not in features:
                meant = question(nearest(name, features))
                reason = f"{name!r} is not one of feature_columns{meant}"
                raise SettingError("categorical_columns", self.categorical_columns, reason)

    def _roles(self) -> set[str]:
        """The columns that are neither inputs nor groups; that of the parts also if not used."""
        split = _SPLIT if self.split_column in (None, _NONE) else self.split_column
        return {self.label_column, self.site_column, split, self.path_column}

    def _groups(self, columns: Columns) -> list[str] | None:
        """The group of each row; None if no column names them."""
        if self.group_column is None:
            return None
        values = [
            columns.as_names(columns.categories(name, "group_column"), "group")
            for name in separated(self.group_column)
        ]
        return [", ".join(row) for row in zip(*values, strict=True)]

    def _likely_groups(
        self, columns: Columns, parts: Sequence[str] | None
    ) -> dict[str, tuple[list[str], str]]:
        """Columns that seem to name patients or the like, see `OwnSamples`."""
        roles = self._roles()
        anew = " with split_column=none" if parts else ""
        return {
            f"values of column {name!r}": (
                # A value that is missing is no group.
                [
                    f"row {row}" if is_missing(value) else str(value)
                    for row, value in numbered(columns.values(name, "group_column"), columns.rows)
                ],
                f"group_column={quoted(name)}{anew} keeps them in one part",
            )
            for name in columns.names
            if name not in roles and _NAMES_A_GROUP.search(str(name))
        }

    def _features(self, columns: Columns) -> Features:
        """The columns that are inputs."""
        chosen = separated(self.feature_columns)
        return Features(
            columns,
            None if chosen == [_ALL] else chosen,
            {*self._roles(), *separated(self.group_column)},
            separated(self.categorical_columns),
            self.impute,
            self.markers(),
            self.missing == "keep",
        )


def _labels_of_classes(
    values: Sequence[Any], class_names: Mapping[str, str], place: str, rows: Sequence[Row]
) -> list[str]:
    """The name of each sample's class, where a file names the class of each label itself."""
    as_texts(values, "label", place, rows)
    for row, value in zip(rows, values, strict=True):
        if value not in class_names:
            raise DataError(
                f"{place}, row {row}: the label {value!s:.40} is none of the {len(class_names)} "
                "classes that the file names"
            )
    return [class_names[value] for value in values]


def _warn_of_parts(columns: Columns) -> None:
    """Warns of columns that say which samples are for testing, and are not used."""
    for name in columns.names:
        values = columns.values(name, "split_column")
        # Mostly the first value says no part, and tables may have millions of them.
        say_parts = all(isinstance(value, str) and part_of(value) for value in values)
        if say_parts and {"train", "test"} <= {*map(part_of, values)}:
            warn(
                f"{columns.place}: column {name!r:.40} says train and test, but is not used; "
                f"split_column={quoted(name)} uses it, and split_column=none does not"
            )
