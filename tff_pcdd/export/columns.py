"""The columns that the model of a table takes: columns.json, for programs, and the model card.

columns.json is an object with the list `columns`, in the order of `features`. Each of them has

    name          as in the table
    input         its name in the SavedModel's signature `serving_columns`
    type          number, or category
    mean, std     of a number in the training samples, in the unit of the table, after missing
                  ones have been replaced
    categories    with the `code` that stands for it in `features`, and its `share` of the
                  training samples
    may_be_missing    whether NaN (null in JSON) or, for texts, the empty text is accepted
    replacement   what replaces a missing number
    missing_values    further values that are taken for missing
"""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path
from typing import Any

import numpy as np

from tff_pcdd import files
from tff_pcdd.data import Federation, InputSpec
from tff_pcdd.data.encoding import Column
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.export.slugs import without_accents

FILE = "columns.json"

# The most columns of which a signature has an input for each.
_MOST = 256


def by_input(spec: InputSpec) -> dict[str, Column]:
    """The columns in their order, by the names of their inputs in a signature.

    These are identifiers of ASCII letters; names that are identifiers are kept. Empty if there are
    no columns, or too many.
    """
    columns = spec.columns or ()
    if len(columns) > _MOST:
        return {}
    kept = {column.name for column in columns if _identifier(column.name) == column.name}
    found: dict[str, Column] = {}
    for column in columns:
        name, number = _identifier(column.name), 1
        while name in found or (name in kept and name != column.name):
            number += 1
            name = f"{_identifier(column.name)}_{number}"
        found[name] = column
    return found


def _identifier(name: str) -> str:
    text = re.sub(r"[^A-Za-z0-9_]+", "_", without_accents(name)).strip("_")
    # TensorFlow passes the inputs to a Python method.
    if not re.match("[A-Za-z]", text) or keyword.iskeyword(text) or text == "self":
        return f"column_{text}".rstrip("_")
    return text


def described(spec: InputSpec) -> list[dict[str, Any]]:
    """The columns, as in columns.json."""
    found, columns = [], spec.columns or ()
    names: list[str | None] = [*by_input(spec)] or [None] * len(columns)
    mean, std = spec.mean or (0.0,) * spec.shape[0], spec.std or (1.0,) * spec.shape[0]
    start = 0
    for column, name in zip(columns, names, strict=True):
        values: dict[str, Any] = {"name": column.name, "input": name}
        if column.categories is None:
            values |= {"type": "number", "mean": mean[start] + column.offset, "std": std[start]}
        else:
            shares = mean[start : start + len(column.categories)]
            values |= {
                "type": "category",
                "categories": [
                    {"name": category, "code": int(code), "share": share}
                    for category, code, share in zip(
                        column.categories, column.codes, shares, strict=True
                    )
                ],
            }
        values["may_be_missing"] = column.fill is not None
        if column.categories is None and column.fill is not None:
            values["replacement"] = column.fill
        found.append({**values, "missing_values": list(column.missing)})
        start += len(column.features)
    return found


def ranges(federation: Federation) -> dict[str, tuple[np.float32, np.float32]]:
    """The least and the greatest number of each column of a table's numbers, without its offset.

    They are those of the training samples that are not held out; nothing is known without any.
    """
    found: dict[str, tuple[np.float32, np.float32]] = {}
    # Without columns, no samples are copied.
    if not federation.input_spec.columns or not len(x := federation.training_examples().x):
        return found
    start = 0
    for column in federation.input_spec.columns:
        if column.categories is None:
            # Missing numbers have been replaced by numbers within the range.
            found[column.name] = x[:, start].min(), x[:, start].max()
        start += len(column.features)
    return found


def read(directory: Path) -> list[Column] | None:
    """The columns as columns.json of a model states them; None if there is no such file.

    What the model does with their values is only in the model: offsets, indicators, replacements.

    Raises:
        DamagedFileError: the file is damaged.
    """
    path = directory / FILE
    try:
        return [
            Column(
                str(of["name"]),
                tuple(str(category["name"]) for category in of["categories"])
                if of["type"] == "category"
                else None,
                fill=0.0 if of["may_be_missing"] else None,
                missing=tuple(map(str, of["missing_values"])),
            )
            for of in files.read_json(path)["columns"]
        ]
    except FileNotFoundError:
        return None
    except (LookupError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged") from error


def write(spec: InputSpec, directory: Path) -> None:
    """Writes columns.json."""
    text = json.dumps({"columns": described(spec)}, indent=2, ensure_ascii=False)
    files.write_text(directory / FILE, text + "\n")
