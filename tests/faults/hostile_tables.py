"""Parquet files and archives of arrays that are damaged, or that were made to do harm.

What is loaded has to be what `pandas` or NumPy alone reads from the file. Everything else has to be
refused in one line that names the file.
"""

from __future__ import annotations

import functools
import io
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from tests.faults.case import SAME, Case, SilentDifference
from tests.faults.damage import instead
from tests.faults.hostile_files import in_time
from tests.faults.mutations import mutate, refusals
from tff_pcdd import data

_ROWS = 60


def cases(directory: Path) -> Iterator[Case]:
    """Random damage, unusual values, and files that promise more than they hold."""
    del directory
    for number in range(100):
        damage = functools.partial(_mutated, number)
        yield Case("parquet bytes", str(number), functools.partial(_check_table, damage))
        yield Case("npz bytes", str(number), functools.partial(_check_arrays, damage))
    for name, write in _tables().items():
        yield Case("parquet values", name, functools.partial(_check_table, write))
    for name, write in _archives().items():
        yield Case("npz values", name, functools.partial(_check_arrays, write))


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(_ROWS, 3)).astype(np.float32), columns=["a", "b", "c"])
    return frame.assign(
        label=[f"class {i % 3}" for i in range(_ROWS)], site=[f"s{i % 4}" for i in range(_ROWS)]
    )


def _arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(_ROWS, 4, 4, 1)).astype(np.float32),
        "y": np.arange(_ROWS) % 3,
        "site": np.arange(_ROWS) % 4,
    }


def _mutated(number: int, path: Path) -> None:
    path.write_bytes(mutate(path.read_bytes(), random.Random(number)))


def _check_table(change: Callable[[Path], Any], directory: Path) -> str:
    path = directory / "table.parquet"
    _table().to_parquet(path, index=False)
    change(path)

    def load() -> data.Federation:
        return data.load_federation(
            *("table", "natural"),
            data_dir=str(path),
            feature_columns="a,b,c",
            test_fraction=0.2,
        )

    with refusals(path) as outcomes:
        loaded: Any = in_time(load)
        outcomes.append(SAME)
    if outcomes == [SAME]:
        # Without what pandas has noted in the file, which may be damaged.
        table = pyarrow.parquet.read_table(path).replace_schema_metadata(None)
        frame = table.to_pandas()
        _compare(loaded, frame[["a", "b", "c"]].to_numpy(np.float32), frame["label"].tolist())
    return outcomes[0]


def _check_arrays(change: Callable[[Path], Any], directory: Path) -> str:
    path = directory / "arrays.npz"
    np.savez(path, **_arrays())
    change(path)
    with refusals(path) as outcomes:
        loaded: Any = in_time(
            lambda: data.load_federation("npz", "natural", data_dir=str(path), test_fraction=0.2)
        )
        outcomes.append(SAME)
    if outcomes == [SAME]:
        with np.load(path) as found:
            _compare(loaded, found["x"], found["y"].ravel().tolist())
    return outcomes[0]


def _compare(loaded: data.Federation, x: np.ndarray, y: list[Any]) -> None:
    """Every sample is in one of the two parts, with its label."""
    rows = np.concatenate([loaded.train.x, loaded.test.x])
    labels = np.concatenate([loaded.train.y, loaded.test.y])
    found = sorted(
        (row.tobytes(), loaded.class_names[label])
        for row, label in zip(rows.astype(np.float32), labels, strict=True)
    )
    wanted = sorted(
        (row.tobytes(), _name(label))
        for row, label in zip(x.astype(np.float32).reshape(rows.shape), y, strict=True)
    )
    if found != wanted:
        raise SilentDifference(f"{len(found)} samples instead of {len(wanted)}, or other ones")


def _name(label: Any) -> str:
    """A label as it is shown: in one line."""
    text = label.decode(errors="backslashreplace") if isinstance(label, bytes) else str(label)
    return " ".join(text.split())


def _tables() -> dict[str, Callable[[Path], Any]]:
    """Parquet files, by what is odd about them."""

    def column(name: str, values: Any) -> Callable[[Path], Any]:
        return lambda path: _table().assign(**{name: values}).to_parquet(path, index=False)

    def row(name: str, value: Any) -> Callable[[Path], Any]:
        values = _table()[name].astype(object)
        values[7] = value
        return column(name, values)

    def arrow(**arrays: pa.Array) -> Callable[[Path], Any]:
        def write(path: Path) -> None:
            columns = {name: pa.array(_table()[name]) for name in _table()}
            pyarrow.parquet.write_table(pa.table({**columns, **arrays}), path)

        return write

    def many_rows(path: Path) -> None:
        """A few kilobytes, and 300 million cells."""
        part = 2**24
        table = pa.table(
            {name: pa.array(np.zeros(part, np.int8)) for name in ("a", "b", "c", "label", "site")}
        )
        with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
            for _ in range(4):
                writer.write_table(table)

    def long_texts(path: Path) -> None:
        text = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(2000, np.int32)), pa.array(["x" * 1_000_000])
        )
        numbers = pa.array(np.zeros(2000, np.float32))
        names = ("a", "b", "c", "label")
        table = pa.table({**dict.fromkeys(names, numbers), "site": text})
        pyarrow.parquet.write_table(table, path)

    def sparse(path: Path) -> None:
        with open(path, "wb") as file:
            file.truncate(200_000_000_000)

    lists = pa.array([[1.0, 2.0]] * _ROWS)
    return {
        **{f"{value!r} in a": row("a", value) for value in (np.nan, np.inf, -np.inf, 1e39, None)},
        **{
            f"{value!r} in label": row("label", value) for value in ("", None, "\0", "=1+1", "a\nb")
        },
        **{
            f"{value!r} in site": row("site", value)
            for value in ("", None, "..", "<b>", "x" * 9999)
        },
        "numbers as text": column("a", [str(i) for i in range(_ROWS)]),
        "bools": column("a", [i % 2 == 0 for i in range(_ROWS)]),
        "lists": arrow(a=lists),
        "records": arrow(a=pa.array([{"x": 1.0}] * _ROWS)),
        "bytes": arrow(a=pa.array([b"\xff"] * _ROWS)),
        "bytes as labels": arrow(label=pa.array([b"\xff", b"a"] * (_ROWS // 2))),
        "lists as labels": arrow(label=lists),
        "dates": arrow(a=pa.array(np.arange(_ROWS, dtype=np.int32), pa.date32())),
        "decimals": arrow(a=pa.array([None] * _ROWS, pa.decimal128(5, 2))),
        "complex labels": arrow(label=pa.array(np.arange(_ROWS) * 0.5)),
        "2^63 as labels": arrow(label=pa.array(np.full(_ROWS, 2**63 - 1))),
        "no rows": lambda path: _table().iloc[:0].to_parquet(path, index=False),
        "no columns": lambda path: pd.DataFrame(index=range(5)).to_parquet(path),
        "one column": lambda path: _table()[["a"]].to_parquet(path, index=False),
        "many rows": many_rows,
        "long texts": long_texts,
        "a pipe": instead(os.mkfifo),
        "a folder": instead(os.mkdir),
        "a device": instead(lambda path: path.symlink_to("/dev/zero")),
        "without data": sparse,
        "empty": lambda path: path.write_bytes(b""),
        "csv": lambda path: _table().to_csv(path),
    }


def _archives() -> dict[str, Callable[[Path], Any]]:
    """Archives of arrays, by what is odd about them."""

    def array(**arrays: Any) -> Callable[[Path], Any]:
        return lambda path: np.savez(path, **{**_arrays(), **arrays})

    def value(value: float) -> Callable[[Path], Any]:
        x = _arrays()["x"].astype(np.float64)
        x[5, 1, 2, 0] = value
        return array(x=x)

    def header(shape: tuple[int, ...]) -> Callable[[Path], Any]:
        """An array whose header states another shape than its data have."""

        def write(path: Path) -> None:
            text = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                text, {"descr": "<f4", "fortran_order": False, "shape": shape}
            )
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr("x.npy", text.getvalue() + bytes(64))

        def without_x(path: Path) -> None:
            rest = {name: values for name, values in _arrays().items() if name != "x"}
            np.savez(path, **rest)
            write(path)

        return without_x

    def bomb(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, values in _arrays().items():
                if name != "x":
                    text = io.BytesIO()
                    np.save(text, values)
                    archive.writestr(f"{name}.npy", text.getvalue())
            with archive.open("x.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "|u1", "fortran_order": False, "shape": (_ROWS, 5 * 10**7)}
                )
                for _ in range(_ROWS):
                    file.write(bytes(5 * 10**7))

    return {
        **{f"{number} in x": value(number) for number in (np.nan, np.inf, -np.inf, 1e39, -1e308)},
        "all NaN": array(x=np.full((_ROWS, 4, 4, 1), np.nan)),
        "labels are NaN": array(y=np.full(_ROWS, np.nan)),
        "labels are halves": array(y=np.arange(_ROWS) / 2),
        "labels are text": array(y=np.array([f"c{i % 3}" for i in range(_ROWS)])),
        "labels beyond int32": array(y=np.arange(_ROWS) + 2**40),
        "negative labels": array(y=-(np.arange(_ROWS) % 3)),
        "labels of another length": array(y=np.arange(7)),
        "labels in a column": array(y=np.arange(_ROWS)[:, None] % 3),
        "one class": array(y=np.zeros(_ROWS, int)),
        "no samples": array(x=np.zeros((0, 4, 4, 1)), y=np.zeros(0, int), site=np.zeros(0, int)),
        "objects": array(x=np.array([{}] * _ROWS, object)),
        "complex": array(x=_arrays()["x"].astype(complex)),
        "text as inputs": array(x=np.full((_ROWS, 4), "a")),
        "dates as inputs": array(x=np.zeros((_ROWS, 4), "M8[s]")),
        "records": array(x=np.zeros(_ROWS, [("a", "f4")])),
        "half precision": array(x=_arrays()["x"].astype(np.float16)),
        "sites are NaN": array(site=np.full(_ROWS, np.nan)),
        "a header of 10^13 numbers": header((10**6, 10**7)),
        "a header of 10^30 numbers": header((10**10, 10**10, 10**10)),
        "a negative shape": header((-1, 4)),
        "a header of more numbers": header((_ROWS, 4, 4, 1)),
        "a bomb": bomb,
    }
