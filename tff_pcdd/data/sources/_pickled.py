"""Arrays in pickles, read without running anything that a pickle names.

`np.savez(file, data={"x": x, "y": y})` writes a pickle, and a pickle can name any function to be
called. Here, the functions by which NumPy's arrays are restored are replaced by those below, and
every other name is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tff_pcdd.data.sources._places import reason_of
from tff_pcdd.errors import DataError

# Types of numbers, as NumPy's arrays name them; O8 is that of objects.
_CODE = re.compile(r"[biuf]\d{1,2}|O8?")


class _Dtype:
    """What stands for `numpy.dtype(code)`."""

    def __init__(self, code: str, *_: Any):
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise pickle.UnpicklingError(f"holds values of the type {code!s:.40}")
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple) -> None:
        self.order = {"<": "<", ">": ">"}.get(state[1], "|")

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """What stands for an array until its state is known."""

    value: Any = None

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, is_fortran, content = state
        if kind.code.startswith("O"):
            if shape != () or len(content) != 1:
                raise pickle.UnpicklingError("holds an array of objects")
            self.value = content[0]
            return
        if not isinstance(content, bytes) or len(content) != math.prod(shape) * kind.dtype.itemsize:
            raise pickle.UnpicklingError("holds an array whose bytes do not fit its shape")
        values = np.frombuffer(content, kind.dtype)
        self.value = values.reshape(shape, order="F" if is_fortran else "C")


def _latin1(text: str, encoding: str) -> bytes:
    """What stands for `_codecs.encode`, by which older pickles write bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"holds text in the encoding {encoding!s:.40}")
    return text.encode(encoding)


_KNOWN: dict[tuple[str, str], Callable] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("_codecs", "encode"): _latin1,
    **{
        (f"numpy.{core}.multiarray", "_reconstruct"): lambda *_: _Array()
        for core in ("core", "_core")
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"names {module}.{name}, which is not an array")
        return _KNOWN[module, name]


def pickled_arrays(content: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a dictionary that NumPy has pickled as an .npy file.

    If it holds anything else, it is refused, and nothing of it has been run.
    """
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        read(file)
        found = _Unpickler(file).load()
        values = found.value if isinstance(found, _Array) else found
        if not isinstance(values, dict):
            raise pickle.UnpicklingError("holds no dictionary")
        arrays = {name: value.value for name, value in values.items() if isinstance(value, _Array)}
    # A damaged pickle raises errors of all kinds.
    except Exception as error:
        raise DataError(
            f"{where}: the pickle in it {reason_of(error)}; only arrays of numbers are read, so "
            "store them with np.savez(file, x=x, y=y)"
        ) from error
    for name in ("x", "y"):
        if not isinstance(arrays.get(name), np.ndarray):
            raise DataError(
                f"{where}: {name} is no array of numbers; texts and lists are not supported"
            )
    return arrays
