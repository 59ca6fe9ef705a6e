"""Arrays in a file of NumPy: x, y, site and, if test samples are given, split.

x holds images [n, height, width, channels] or vectors [n, numbers]; y and site hold names or whole
numbers [n]; split holds "train" or "test" [n].
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from tff_pcdd.data.input_spec import IMAGE
from tff_pcdd.data.sources import DatasetInfo, DirectorySource, LoadRequest, PooledData, register
from tff_pcdd.data.sources._arrays import OwnArrays
from tff_pcdd.data.sources._own import MANY_CLASSES
from tff_pcdd.data.sources._places import check_data_file, check_file
from tff_pcdd.errors import DataError

# The most bytes of all arrays: so many, and so many times the size of the file.
_MOST_BYTES = 1_000_000_000
_MOST_COMPRESSED = 100

_NEEDED, _OPTIONAL = ("x", "y", "site"), ("split", "class_names")


@register
@dataclasses.dataclass(frozen=True)
class Npz(OwnArrays, DirectorySource):
    """Images or vectors in an .npz file."""

    needs = "path of its .npz file"
    info = DatasetInfo("npz", IMAGE, MANY_CLASSES, (32, 32, 3), has_users=True, needs_data_dir=True)

    def check(self) -> None:
        check_data_file(self.path, self.name, (".npz",))

    def load(self, request: LoadRequest) -> PooledData:
        self.check()
        arrays = _read(self.path)
        return self.pool_arrays(
            str(self.path),
            arrays["x"],
            arrays["y"],
            arrays["site"],
            arrays.get("split"),
            request,
            class_names=arrays.get("class_names"),
        )


def _read(path: pathlib.Path) -> Mapping[str, np.ndarray]:
    """The arrays of a file.

    Raises:
        DataError: if it cannot be read, or an array is missing; names the file.
    """
    check_file(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            there = list(file.files)
            unpacked = sum(entry.file_size for entry in file.zip.infolist())
            if unpacked > _MOST_BYTES + _MOST_COMPRESSED * path.stat().st_size:
                raise ValueError(f"its arrays have {unpacked} bytes")
            arrays = {name: file[name] for name in (*_NEEDED, *_OPTIONAL) if name in there}
    # A damaged archive raises errors of the archive, of its compression, or of an array's header,
    # and of memory if the header states a huge array.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{path} cannot be read as an .npz file: {reason}") from error
    for name in _NEEDED:
        if name not in arrays:
            raise DataError(f"{path}: array {name!r} is missing, there are {', '.join(there):.200}")
    return arrays
