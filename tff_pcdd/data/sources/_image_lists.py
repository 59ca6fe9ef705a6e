"""Helpers for data sets of image files that a table lists.

Examples hold paths; `transforms.normalize` and `transforms.augment` read and decode them batch by
batch. Missing files are reported on loading, and so are paths that lead out of the data directory;
broken images and images that are too large are reported when their batch is read.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import textwrap
from collections.abc import Sequence

import numpy as np

from tff_pcdd.data.checks import first_outside
from tff_pcdd.data.input_spec import IMAGE_FILE, InputSpec
from tff_pcdd.data.sources import IMAGENET, LIMITS, DatasetInfo, DirectorySource, ImageSource
from tff_pcdd.data.sources._places import check_file, is_within
from tff_pcdd.errors import DataError
from tff_pcdd.settings import option
from tff_pcdd.text import composed

# The most bytes that a pixel takes in a file: four channels of 16 bits, not compressed. Headers and
# metadata may take as much as a small image.
_BYTES_PER_PIXEL, _METADATA = 8, 2**24


@dataclasses.dataclass(frozen=True)
class ImageListSource(ImageSource, DirectorySource):
    """Base class of data sets of image files."""

    max_image_pixels: int = option(
        LIMITS["max_image_pixels"],
        "The most pixels that an image file may have; larger images are refused before they are "
        "decoded.",
        minimum=1,
        maximum=2**31 - 1,
    )

    def image_spec(
        self, dtype: str | None = None, scale: float = 1 / 255, info: DatasetInfo | None = None
    ) -> InputSpec:
        spec = super().image_spec(dtype, scale, info)
        return dataclasses.replace(spec, max_pixels=self.max_image_pixels)

    def check_image(self, path: str | os.PathLike, root: pathlib.Path) -> None:
        """Checks that an image is a regular file below `root` and not too large to be an image."""
        most = _BYTES_PER_PIXEL * self.max_image_pixels + _METADATA
        check_file(path, within=root, max_bytes=most, limit="max_image_pixels")

    def directory(self) -> pathlib.Path:
        """The directory that holds the data set, which must exist."""
        self.check()
        return self.path

    def existing_files(
        self, names: Sequence[str], table: pathlib.Path, root: pathlib.Path, folder: str = ""
    ) -> np.ndarray:
        """The full paths of images, as bytes, which must exist and be regular files below `root`.

        Args:
            names: paths below `folder`, as the table lists them.
            table: for messages.
            root: the data directory.
            folder: a folder of the data directory.
        """
        # Reads the listing of each folder only once.
        base = root / folder
        listings: dict[str, set[str]] = {}
        read: dict[pathlib.Path, dict[str, list[str]]] = {}
        missing, found = [], []
        for name in names:
            place, file = os.path.split(name)
            if os.pardir in name.split(os.sep) or not _is_below(name, base):
                raise DataError(f"{table} lists {name!r}, which is not a path below {base}")
            if place not in listings:
                listings[place] = _listing(base / place, root, table)
            is_there = file in listings[place]
            stored = name if is_there else _as_stored(name, base, root, read)
            if stored is None:
                missing.append(name)
            else:
                found.append(base / stored)
        if missing:
            raise DataError(describe_missing(table, missing, str(base)))
        for path in found:
            self.check_image(path, root)
        return np.array(list(map(os.fsencode, found)))

    def labels(self, texts: Sequence[str], table: pathlib.Path) -> np.ndarray:
        """Labels of a table as int32 classes of this data set."""
        try:
            labels = np.array(texts, np.float64)
        except ValueError as error:
            raise DataError(f"{table}: a label is not a number: {error!s:.200}") from error
        row = first_outside(labels, self.info.num_classes)
        if row is not None:
            raise DataError(
                f"{table}: label {texts[row]:.40} is not an integer within 0 to "
                f"{self.info.num_classes - 1}, in row {row + 1}"
            )
        return labels.astype(np.int32)


def image_info(
    name: str, num_classes: int, size: int, resize: int, *, has_users: bool
) -> DatasetInfo:
    """Describes a set of color images of `size`×`size` pixels, with ImageNet's statistics."""
    mean, std = IMAGENET
    return DatasetInfo(
        name,
        IMAGE_FILE,
        num_classes,
        (size, size, 3),
        has_users=has_users,
        needs_data_dir=True,
        mean=mean,
        std=std,
        flip=True,
        resize=resize,
    )


def first_existing(root: pathlib.Path, names: Sequence[str]) -> pathlib.Path:
    """The first of these files or folders that exists; refused if none does."""
    for name in names:
        if (root / name).exists():
            return root / name
    raise DataError(f"{root} holds no {' or '.join(names)}")


def _as_stored(
    name: str,
    base: pathlib.Path,
    root: pathlib.Path,
    read: dict[pathlib.Path, dict[str, list[str]]],
) -> str | None:
    """The only path below `base` that differs from `name` in the form of letters; None for none.

    macOS and its archives store an ä as two characters. `read` has the names in folders that
    have been read, by their composed forms, and grows. No folder may lead out of `root`.
    """
    if name.isascii():
        return None
    place = base
    for part in pathlib.PurePath(name).parts:
        if not os.path.lexists(place / part):
            if place not in read:
                read[place] = _composed_names(place) if is_within(place, root) else {}
            alike = read[place].get(composed(part), [])
            if len(alike) != 1:
                return None
            part = alike[0]
        place = place / part
    return os.path.relpath(place, base)


def _composed_names(folder: pathlib.Path) -> dict[str, list[str]]:
    """The names in a folder by their composed forms; none if it cannot be read."""
    names: dict[str, list[str]] = {}
    try:
        for name in os.listdir(folder):
            names.setdefault(composed(name), []).append(name)
    except OSError:
        return {}
    return names


def _listing(folder: pathlib.Path, root: pathlib.Path, table: pathlib.Path) -> set[str]:
    """The names in a folder, none if it cannot be read."""
    try:
        names = set(os.listdir(folder))
    except (OSError, ValueError):
        return set()
    if not is_within(folder, root):
        raise DataError(f"{table} lists files in {folder}, a link to a folder outside of {root}")
    return names


def _is_below(name: str, base: pathlib.Path) -> bool:
    """Whether a path is relative, or absolute and, as it is written, below a folder."""
    return not os.path.isabs(name) or name.startswith(os.path.abspath(base).rstrip(os.sep) + os.sep)


def describe_missing(table: pathlib.Path, names: Sequence[str], place: str) -> str:
    """The message about files that a table lists and `place` does not hold."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    first = names[0] if names[0].isprintable() else repr(names[0])
    return f"{table} lists {textwrap.shorten(first, 200)}{more}, not found in {place}"
