"""Arrays in files of NumPy, in the layouts that people have.

Of your own: x, y, site and, if parts or groups are given, split and group. x holds images [n,
height, width, channels] or vectors [n, numbers]; y, site and group hold names or whole numbers [n];
split holds "train", "val" or "test" [n].

Of MedMNIST: train_images, train_labels and so on for val and test. There are no sites.

Of PFLlib: a folder with train/0.npz, test/0.npz and so on, a file for each client.
"""

from __future__ import annotations

import dataclasses
import pathlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.input_spec import IMAGE
from tff_pcdd.data.sources import DatasetInfo, DirectorySource, LoadRequest, PooledData, register
from tff_pcdd.data.sources._arrays import OwnArrays
from tff_pcdd.data.sources._own import MANY_CLASSES, part_of
from tff_pcdd.data.sources._pickled import pickled_arrays
from tff_pcdd.data.sources._places import check_data_file, check_file, is_within, reason_of
from tff_pcdd.errors import DataError

# The most bytes of all arrays: so many, and so many times the size of the file.
_MOST_BYTES = 1_000_000_000
_MOST_COMPRESSED = 100

_KNOWN = ("x", "y", "site", "split", "class_names", "group")

# The array of a client's file in PFLlib's layout: a pickled dictionary.
_PICKLED = "data"

# How a file of a single array begins.
_NPY = b"\x93NUMPY"

# The most bytes of a client's file, once it is decompressed.
_CLIENT_BYTES = 2**32


@register
@dataclasses.dataclass(frozen=True)
class Npz(OwnArrays, DirectorySource):
    """Images or vectors in an .npz file, or in one for each client."""

    holds_any_data = True
    needs = "path of its .npz file"
    info = DatasetInfo("npz", IMAGE, MANY_CLASSES, (32, 32, 3), has_users=True, needs_data_dir=True)

    def check(self) -> None:
        if not _client_folders(self.path):
            check_data_file(self.path, self.name, (".npz",))

    def read_files(self) -> Iterable[pathlib.Path]:
        if not self.path.is_dir():
            return [self.path]
        folders = _client_folders(self.path).values()
        return [path for folder in folders for path in files_in(folder)]

    def load(self, request: LoadRequest) -> PooledData:
        self.check()
        if self.path.is_dir():
            folders = _client_folders(self.path).items()
            files = [(part, path) for part, folder in folders for path in files_in(folder)]
            arrays = read_clients(self.path, files)
        else:
            arrays = read_arrays(self.path)
        return self.pool_arrays(
            str(self.path),
            arrays["x"],
            arrays["y"],
            arrays.get("site"),
            arrays.get("split"),
            request,
            class_names=arrays.get("class_names"),
            groups=arrays.get("group"),
        )


def read_arrays(
    path: pathlib.Path, needed: Sequence[str] = ("x", "y", "site")
) -> dict[str, np.ndarray]:
    """The arrays of a file; those of the parts of MedMNIST's in one.

    Raises:
        DataError: if it cannot be read, or lacks an array that is needed.
    """
    check_file(path)
    arrays: dict[str, np.ndarray] = {}
    try:
        _check_archive(path, needed)
        with np.load(path, allow_pickle=False) as file:
            there = list(file.files)
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            if unpacked > _MOST_BYTES + _MOST_COMPRESSED * path.stat().st_size:
                raise ValueError(f"its arrays have {unpacked} bytes")
            parts = _parts(there)
            wanted = parts or _KNOWN
            for name in [name for name in wanted if name in there]:
                arrays[name] = _array(file, name)
    # A damaged archive raises errors of the archive, of its compression, or of an array's header,
    # and of memory if the header states a huge array.
    except Exception as error:
        raise DataError(f"{path} cannot be read as an .npz file: {reason_of(error)}") from error
    if parts:
        return _joined(path, arrays, parts)
    for name in needed:
        if name not in arrays:
            raise DataError(
                f"{path}: array {name!r} is missing, there are {', '.join(there):.200}; "
                f"{_and(needed)} {'is' if len(needed) == 1 else 'are'} needed"
            )
    if unused := sorted(set(there) - set(arrays)):
        warn(f"{path}: {listed('array', unused)} not used; {', '.join(wanted)} would be")
    return arrays


def _and(names: Sequence[str]) -> str:
    """Names in a sentence.

    Example:
        >>> _and(["x"]), _and(["x", "y", "site"])
        ('x', 'x, y and site')
    """
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _check_archive(path: pathlib.Path, needed: Sequence[str]) -> None:
    """Checks that a file is an archive; NumPy says of others that they may be opened unsafely."""
    if zipfile.is_zipfile(path):
        return
    with open(path, "rb") as file:
        if file.read(len(_NPY)) == _NPY:
            arrays = _and(needed)
            raise ValueError(f"it is a single array (.npy); save {arrays} with np.savez")
    raise ValueError("it is no whole archive of arrays, as np.savez writes it")


def _array(file: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """An array of a file."""
    try:
        return file[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise ValueError(
                f"array {name!r} holds Python objects; save texts as np.array(values, str)"
            ) from None
        raise


def _parts(names: list[str]) -> dict[str, str]:
    """The arrays of images in MedMNIST's layout, with their parts."""
    found = {
        name: part
        for name in names
        if name.endswith("_images") and (part := part_of(name.removesuffix("_images")))
    }
    labels = {name.replace("_images", "_labels"): part for name, part in found.items()}
    return {**found, **labels} if set(found.values()) >= {"train", "test"} else {}


def _joined(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], parts: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """The arrays of all parts in one."""
    for name in parts:
        if name not in arrays:
            raise DataError(f"{path}: array {name!r} is missing")
    images = [name for name in parts if name.endswith("_images")]
    labels = [name.replace("_images", "_labels") for name in images]
    split = np.repeat([parts[name] for name in images], [len(arrays[name]) for name in images])
    x, y = (_stacked(str(path), [arrays[name] for name in of]) for of in (images, labels))
    return {"x": x, "y": y, "split": split}


def _stacked(where: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays one below the other."""
    if len({array.shape[1:] for array in arrays}) > 1:
        shapes = sorted({str(array.shape[1:]) for array in arrays})
        raise DataError(f"{where}: samples have the shapes {' and '.join(shapes[:5])}")
    return np.concatenate(arrays)


# A file for each client.


def _client_folders(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """The folders of the parts, if a directory holds those of PFLlib."""
    if not root.is_dir():
        return {}
    folders: dict[str, pathlib.Path] = {}
    for path in sorted(root.iterdir()):
        part = part_of(path.name)
        if part and path.is_dir() and list(path.glob("*.npz")):
            if part in folders:
                names = f"{folders[part].name} and {path.name}"
                raise DataError(f"{root}: the folders {names} are both the part {part}; join them")
            folders[part] = path
    return folders if {"train", "test"} <= set(folders) else {}


def files_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of the clients in a folder, in the order of their names."""
    return sorted(folder.glob("*.npz"))


def is_of_client(path: pathlib.Path) -> bool:
    """Whether a file is that of a client in PFLlib's layout, whose arrays are pickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    # Damaged files, and those that are none; the reader says what is wrong.
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return f"{_PICKLED}.npy" in names and "x.npy" not in names


def read_clients(
    root: pathlib.Path, files: Iterable[tuple[str, pathlib.Path]]
) -> dict[str, np.ndarray]:
    """The arrays of all clients, with their parts and sites.

    Args:
        root: the folder that the files must not lead out of.
        files: the parts and paths of the clients' files.

    Raises:
        DataError: if one cannot be read, or they do not fit each other.
    """
    x, y, sites, split = [], [], [], []
    for part, path in files:
        if not is_within(path, root):
            raise DataError(f"{path} is a link to a file outside of {root}")
        arrays = _read_client(path)
        if len(arrays["x"]) != len(arrays["y"]):
            raise DataError(
                f"{path}: {len(arrays['x'])} inputs and {len(arrays['y'])} labels; one label "
                "per input is needed"
            )
        x.append(arrays["x"])
        y.append(arrays["y"])
        sites += [path.stem] * len(arrays["y"])
        split += [part] * len(arrays["y"])
    inputs = _stacked(str(root), x)
    # Those of PyTorch: channels first.
    if inputs.ndim == 4 and inputs.shape[1] in (1, 3) and inputs.shape[3] not in (1, 3):
        inputs = np.moveaxis(inputs, 1, -1)
    return {
        "x": inputs,
        "y": _stacked(str(root), y),
        "site": np.array(sites),
        "split": np.array(split),
    }


def _read_client(path: pathlib.Path) -> Mapping[str, np.ndarray]:
    """x and y of a client."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > _CLIENT_BYTES:
                raise ValueError(f"it has more than {_CLIENT_BYTES} bytes")
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            content = archive.read(f"{_PICKLED}.npy") if _PICKLED in names else b""
        if not content:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ("x", "y")}
    except Exception as error:
        raise DataError(f"{path} cannot be read as an .npz file: {reason_of(error)}") from error
    return pickled_arrays(content, str(path)) if content else arrays
