"""Image files in folders: DIR/site/class/image, or DIR/train/site/class/image and DIR/test/…,
perhaps with DIR/val/….

The sites are the clients, and the folders' names are the names of classes and sites.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np

from tff_pcdd.data.checks import is_unicode, listed, warn
from tff_pcdd.data.input_spec import IMAGE_FILE
from tff_pcdd.data.pillow import FORMATS, is_dicom, is_image
from tff_pcdd.data.sources import DatasetInfo, LoadRequest, PooledData, register
from tff_pcdd.data.sources._image_files import OwnImages
from tff_pcdd.data.sources._names import tidy
from tff_pcdd.data.sources._own import ABBREVIATIONS, MANY_CLASSES, PARTS, OwnSamples, part_of
from tff_pcdd.data.sources._places import is_within
from tff_pcdd.data.sources._tasks import VOLUMES, refuse_folders
from tff_pcdd.errors import DataError, SettingError, printable
from tff_pcdd.settings import option

_LAYOUT = (
    "the layout is site/class/image, or train/site/class/image and test/site/class/image, perhaps "
    "with val/site/class/image"
)

# Names of files that begin alike, up to a number: often frames of a video, or images of a patient.
_SERIES = r"([^/]+)[_-][0-9]+\.[A-Za-z]+$"

# Formats of 3-D images.
_VOLUMES = (".nii", ".nii.gz", ".mha", ".mhd", ".nrrd")

# What systems put into folders, besides files and folders whose names begin with a dot.
_SYSTEM = ("thumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin")

# The level of images in folders part/site/class; without parts, it is one less.
_DEEPEST = 4

# The end of a name that says what kind of file it is.
_ENDING = re.compile(r"\.[A-Za-z]\w*$")


@dataclasses.dataclass
class Found:
    """The samples of a directory, and what was left out of it."""

    root: pathlib.Path
    paths: list[str] = dataclasses.field(default_factory=list)
    labels: list[str] = dataclasses.field(default_factory=list)
    sites: list[str] = dataclasses.field(default_factory=list)
    parts: list[str] = dataclasses.field(default_factory=list)
    empty: list[str] = dataclasses.field(default_factory=list)
    classes: set[str] = dataclasses.field(default_factory=set)
    others: list[str] = dataclasses.field(default_factory=list)
    hidden: int = 0
    hidden_folders: list[str] = dataclasses.field(default_factory=list)

    def entries(self, folder: pathlib.Path) -> Iterator[os.DirEntry]:
        """What a folder below `root` holds, by name, without hidden files."""
        if not is_within(folder, self.root):
            raise DataError(f"{folder} is a link to a folder outside of {self.root}")
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(f"{folder} cannot be read: {error.strerror}") from error
        for entry in found:
            if entry.name.startswith(".") or entry.name.casefold() in _SYSTEM:
                self.hidden += 1
                if entry.name.startswith(".") and _holds_images(entry.path):
                    self.hidden_folders.append(os.path.relpath(entry.path, self.root))
            else:
                yield entry

    def folders(self, folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
        """The folders in a folder, with their names; other files are left out."""
        found = []
        for entry in self.entries(folder):
            if not _is_dir(entry):
                self.leave_out(entry.path)
                continue
            if not is_unicode(entry.name):
                raise DataError(f"the name of the folder {entry.path!r} is not Unicode")
            name = tidy(entry.name, f"{folder}: the name of a folder")
            found.append((name, pathlib.Path(entry.path)))
        return found

    def leave_out(self, path: str) -> None:
        self.others.append(os.path.relpath(path, self.root))


@register
@dataclasses.dataclass(frozen=True)
class Folder(OwnImages):
    """Image files in a folder for each site and class."""

    holds_any_data = True
    info = DatasetInfo(
        "folder", IMAGE_FILE, MANY_CLASSES, (32, 32, 3), has_users=True, needs_data_dir=True
    )

    group_pattern: str | None = option(
        None,
        "Regular expression that finds the patient, lesion, video or the like in the path of an "
        "image below data_dir, such as patient[0-9]+; all of its images stay in one part. If there "
        "are parentheses, what is in them counts.",
        type=str,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.group_pattern or "")
        except re.error as error:
            reason = f"is not a regular expression: {error}"
            raise SettingError("group_pattern", self.group_pattern, reason) from error

    def holds(self, path: pathlib.Path) -> bool:
        return is_within(path, self.path)

    def read_files(self) -> Iterable[str]:
        return _images(str(self.path), 1)

    def load(self, request: LoadRequest) -> PooledData:
        found, notes = self.find()
        root = found.root
        names = [os.path.relpath(path, root).replace(os.sep, "/") for path in found.paths]
        starts = [match[1] if (match := re.search(_SERIES, name)) else name for name in names]
        advice = f"group_pattern='{_SERIES}' keeps them in one part"
        if found.parts:
            advice = "move them to one part"
        samples = OwnSamples(
            str(root),
            np.array(list(map(os.fsencode, found.paths))),
            found.labels,
            found.sites,
            found.parts or None,
            lambda row: printable(os.path.relpath(found.paths[row], root)),
            notes,
            self._groups(root, names),
            {"beginnings of file names": (starts, advice)},
        )
        return self.pool_images(samples, request)

    def find(self) -> tuple[Found, dict[str, int]]:
        """The images with their classes and sites, and counts of what it warns is left out.

        Raises:
            DataError: if there are none, or they are in other folders.
        """
        root = self.directory()
        found = self._scan(root)
        if not found.paths:
            if any(name.lower().endswith(_VOLUMES) for name in found.others):
                raise DataError(f"{root}: there are only {found.others[0]} and the like; {VOLUMES}")
            raise DataError(f"{root}: there are no images, {FORMATS}; {_LAYOUT}")
        return found, self._report(found)

    def _groups(self, root: pathlib.Path, names: list[str]) -> list[str] | None:
        """The group of each image; None if no pattern finds them."""
        if self.group_pattern is None:
            return None
        groups = []
        for name in names:
            match = re.search(self.group_pattern, name)
            if match is None:
                raise DataError(f"{root}: group_pattern does not match {printable(name)}")
            groups.append(", ".join(part or "" for part in match.groups()) or match[0])
        return groups

    def _scan(self, root: pathlib.Path) -> Found:
        """All images below the directory."""
        found = Found(root)
        top = found.folders(root)
        refuse_folders(str(root), [name for name, _ in top])
        parts = {part: path for name, path in top if (part := part_of(name))}
        taken = [name for name, _ in top if part_of(name)]
        # Beside other folders, TR and Dev are sites.
        if len(taken) < len(top) and all(name.casefold() in ABBREVIATIONS for name in taken):
            parts = {}
        if not parts:
            self._scan_sites(found, top)
        elif not {"train", "test"} <= set(parts) or len(top) > len(parts):
            names = ", ".join(name for name, _ in top)
            raise DataError(
                f"{root} holds the folders {names:.200} (taken for parts: {', '.join(taken)}); "
                f"{_LAYOUT}"
            )
        for part in [part for part in PARTS if part in parts]:
            self._scan_sites(found, found.folders(parts[part]))
            found.parts += [part] * (len(found.paths) - len(found.parts))
        refuse_folders(str(root), found.classes)
        if all(map(part_of, found.classes)) and len(found.classes) > 1:
            names = ", ".join(sorted(found.classes))
            raise DataError(f"{root}: the classes are {names}, which are parts; {_LAYOUT}")
        return found

    def _scan_sites(self, found: Found, sites: list[tuple[str, pathlib.Path]]) -> None:
        for site, folder in sites:
            before, flat = len(found.paths), len(found.others)
            for label, place in found.folders(folder):
                found.classes.add(label)
                self._scan_class(found, site, label, place)
            if any(is_image(name) for name in found.others[flat:]) and before == len(found.paths):
                raise DataError(f"{folder} holds images and no folders of classes; {_LAYOUT}")
            if before == len(found.paths):
                found.empty.append(site)

    def _scan_class(self, found: Found, site: str, label: str, folder: pathlib.Path) -> None:
        for entry in found.entries(folder):
            if _is_dir(entry):
                raise DataError(
                    f"{printable(entry.path)} is a folder in a class's folder; {_LAYOUT}"
                )
            # Files of DICOM often have no suffix. Those in other places are not opened.
            within = not entry.is_symlink() and entry.is_file()
            if not is_image(entry.name) and not (within and is_dicom(entry.path)):
                found.leave_out(entry.path)
                continue
            self.check_image(entry.path, found.root)
            found.paths.append(entry.path)
            found.labels.append(label)
            found.sites.append(site)

    def _report(self, found: Found) -> dict[str, int]:
        """Warns of what was left out, and counts it."""
        sites = sorted(set(found.empty) - set(found.sites))
        classes = sorted(found.classes - set(found.labels))
        counts = {
            "hidden_files": found.hidden,
            "other_files": len(found.others),
            "sites_left_out": len(sites),
            "classes_left_out": len(classes),
        }
        if found.others:
            deepest = max(found.others, key=lambda path: path.count(os.sep))
            files = "file is" if len(found.others) == 1 else "files are"
            warn(
                f"{found.root}: {len(found.others)} {files} left out, not images ({FORMATS}) "
                f"in a folder site/class, for example {printable(deepest)}"
            )
        if found.hidden_folders:
            hidden = listed("folder", list(map(printable, found.hidden_folders)))
            warn(
                f"{found.root}: {hidden} with images left out, because names that begin with a dot "
                "are those of hidden folders; rename what belongs to the data"
            )
        for kind, empty in (("site", sites), ("class", classes)):
            if empty:
                warn(f"{found.root}: {listed(kind, empty)} left out, without any image")
        return {name: count for name, count in counts.items() if count}


def _images(folder: str, level: int) -> Iterator[str]:
    """What may be images in folders of classes; `level` is that of the folder's entries."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.casefold() in _SYSTEM:
                continue
            if entry.is_dir():
                if level < _DEEPEST:
                    yield from _images(entry.path, level + 1)
            # Files of DICOM often have no suffix, or end in a number.
            elif level >= _DEEPEST - 1 and (is_image(entry.name) or not _ENDING.search(entry.name)):
                yield entry.path


def _holds_images(path: str) -> bool:
    """Whether a path is a folder in which, or in a folder below, an image is not hidden."""
    return any(
        is_image(name) and not name.startswith(".")
        for _, _, names in os.walk(path)
        for name in names
    )


def _is_dir(entry: os.DirEntry) -> bool:
    """Whether an entry is a folder, or a link to one; links to themselves are refused."""
    try:
        return entry.is_dir()
    except OSError as error:
        raise DataError(f"{printable(entry.path)} cannot be read: {error.strerror}") from error
