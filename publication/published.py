"""Published results of sweeps over methods, as `publishing` writes them.

Each sweep has a folder with these files:

- federation.json: what was compared, with which settings, how it was computed, methods that were
  added later, and checksums
- final.csv: a row for each method and seed, with the chosen settings
- tuning.csv: a row for each point of each method's grid, with its accuracy on held-out samples
- curves.csv: GA after some of the rounds of each run in final.csv
- held_out.csv: accuracies on held-out samples and on the test set of the runs in tuning.csv, after
  the same round; missing where an earlier version published

Texts written by hand are in notes.toml, beside the folders. The pages that
`writing` makes are README.md in the folder of each federation, and others beside the folders.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.findings import read_point
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.tables import read_number

SCHEMA = 1

RECORD, FINAL, TUNING, CURVES = "federation.json", "final.csv", "tuning.csv", "curves.csv"
HELD_OUT = "held_out.csv"
NOTES, FURTHER = "notes.toml", "further_runs.csv"

# What is made from them: in the folder of a federation, and beside the folders.
PAGE, CURVES_PICTURE = "README.md", "curves.png"
CLAIMS_PAGE, RANKS_PAGE, RANKS_PICTURE = "claims.md", "ranks.md", "ranks.png"

# The entry of the record with its own checksum.
_OWN = "record_sha256"

# Where the results of a row are.
_PLACE = re.compile(r"[^/]+/[^/]+(/[^/]+)?")


@dataclasses.dataclass(frozen=True)
class Curve:
    """GA over the rounds of a run.

    Attributes:
        method, seed: which run it is.
        points: the pairs of round and GA, in %.
    """

    method: str
    seed: str
    points: Sequence[tuple[int, float]]


@dataclasses.dataclass(frozen=True)
class Published:
    """The published results of a sweep over methods.

    Attributes:
        name: the name of its folder.
        title: its heading.
        record: the contents of federation.json.
        results: the final runs.
        without_global_model: the methods among them that have no global model.
        trials: the points of the grids, by column.
        curves: the learning curves of the final runs.
        held_out: what held-out samples and the test set say of the points, by column.
        further: runs with other settings, by column of further_runs.csv.
    """

    name: str
    title: str
    record: Mapping[str, Any]
    results: Results
    without_global_model: Sequence[str]
    trials: Sequence[Mapping[str, str]]
    curves: Sequence[Curve]
    held_out: Sequence[Mapping[str, str]] = ()
    further: Sequence[Mapping[str, str]] = ()

    @property
    def methods(self) -> list[str]:
        return self.results.methods

    def values(self, method: str, column: str) -> list[float]:
        """A column of the usable runs of a method; empty if one of them lacks it."""
        return self.results.of(method=method).values(column)

    def by_seed(self, method: str, column: str) -> dict[str, float]:
        """A column by seed, of those usable runs of a method that have it."""
        return self.results.of(method=method).by_seed(column)

    def usable_curves(self, method: str) -> list[Curve]:
        """The learning curves of the usable runs of a method."""
        diverged = {run.seed for run in self.results.of(method=method).diverged}
        return [one for one in self.curves if one.method == method and one.seed not in diverged]


@dataclasses.dataclass(frozen=True)
class Notes:
    """What people have written about published results.

    Attributes:
        federations: a description of each federation of the comparison by its name, in the order
            of the page, whether its results have been published or not.
        titles: headings of federations, where data set and partition do not say enough.
        remarks: what the records of a federation do not say about how it was computed.
        texts: further paragraphs, by their place.
        explanations: why methods fail, by federation and method.
        claims: what the paper of a method claims, and whether it was seen.
        rows: the tables beside the claims: a description of each row, and where its results are,
            as FOLDER/METHOD or FOLDER/METHOD/HEAD.
        differences: what a method gains over another one, by the claim; see `differences`.
    """

    federations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    titles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remarks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    explanations: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    claims: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    differences: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def has_claims(self) -> bool:
        """Whether there is a page about what papers claim."""
        return bool(self.claims or self.rows or self.differences)

    def text(self, name: str) -> list[str]:
        """A paragraph of `texts`, as a list of one; an empty list if there is none."""
        return [text] if (text := self.texts.get(name, "").strip()) else []


def read_notes(publish_dir: str | os.PathLike) -> Notes:
    """Reads notes.toml; empty without such a file.

    Raises:
        DamagedFileError: it cannot be read, or contains something else.
    """
    directory = Directory(Path(publish_dir))
    try:
        values = tomllib.loads(directory.text(NOTES))
        if unknown := sorted({*values} - {field.name for field in dataclasses.fields(Notes)}):
            raise ValueError(f"there is no table {unknown[0]}")
        notes = Notes(**values)
        plain = (notes.federations, notes.titles, notes.remarks, notes.texts, notes.claims)
        texts = [text for group in plain for text in group.values()]
        places = [text for group in notes.rows.values() for text in group.values()]
        grouped = (*notes.explanations.values(), *notes.differences.values())
        texts += [text for group in grouped for text in group.values()]
        texts += places
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("all values must be texts")
        if wrong := [text for text in places if not _PLACE.fullmatch(text)]:
            raise ValueError(f"{wrong[0]} must be FOLDER/METHOD or FOLDER/METHOD/HEAD")
    except FileNotFoundError:
        return Notes()
    except (ValueError, AttributeError) as error:
        if isinstance(error, DamagedFileError):
            raise
        path = directory.path / NOTES
        raise DamagedFileError(f"{path} cannot be used ({error})") from None
    return notes


def read(publish_dir: str | os.PathLike, notes: Notes) -> list[Published]:
    """Reads all published results of a directory.

    Args:
        publish_dir: the directory.
        notes: its notes, which give federations titles and an order; those that they do not name
            follow, sorted by name.

    Raises:
        SettingError: the directory does not exist.
        DamagedFileError: a file is missing, or is not what was published.
    """
    path = Path(publish_dir)
    if not path.is_dir():
        raise SettingError("publish_dir", path, "is not a directory")
    directory = Directory(path)
    names = [folder.name for folder in directory.folders(f"*/{RECORD}")]
    try:
        further = directory.rows(FURTHER)
    except FileNotFoundError:
        further = []
    first = [name for name in notes.federations if name in names]
    ordered = [*first, *(name for name in names if name not in first)]
    return [
        dataclasses.replace(
            _read(path / name, notes.titles.get(name)),
            further=[row for row in further if row.get("federation") == name],
        )
        for name in ordered
    ]


def _read(path: Path, title: str | None) -> Published:
    record, tables = read_files(path)
    try:
        final, trials = tables[FINAL], tables[TUNING]
        held = tables.get(HELD_OUT, [])
        lacking = {row["algorithm"]: None for row in final if row["global_model"] == "False"}
        results = Results([_result(path.name, row) for row in final])
        curves = [_curve(row) for row in tables[CURVES]]
        title = title or str(record["federation"])
    except (AttributeError, KeyError, ValueError) as error:
        raise DamagedFileError(f"{path} is damaged ({error!r}); publish the sweep again") from None
    return Published(path.name, title, record, results, list(lacking), trials, curves, held)


def read_files(path: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, str]]]]:
    """The record in a folder of published results, and the rows of its tables, by file.

    Raises:
        DamagedFileError: a file is missing, or is not what was published.
    """
    directory = Directory(path, compared=False)
    record = directory.json(RECORD)
    if record.get("schema") != SCHEMA:
        reason = f"has schema {record.get('schema')} instead of {SCHEMA}; publish the sweep again"
        raise DamagedFileError(f"{path / RECORD} {reason}")
    if record.get(_OWN) != record_sha256(record):
        reason = f"is not what was published (its {_OWN} differs)"
        raise DamagedFileError(f"{path / RECORD} {reason}; publish the sweep again")
    tables = {}
    try:
        for file, digest in record["sha256"].items():
            if sha256(directory.text(file)) != digest:
                reason = f"is not what was published (its checksum in {RECORD} differs)"
                raise DamagedFileError(f"{path / file} {reason}")
            tables[file] = directory.rows(file)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{error.args[0]} is missing; publish the sweep again") from None
    except (AttributeError, KeyError) as error:
        raise DamagedFileError(f"{path} is damaged ({error!r}); publish the sweep again") from None
    return record, tables


def sha256(text: str) -> str:
    """The checksum of a published file."""
    return hashlib.sha256(text.encode()).hexdigest()


def record_sha256(record: Mapping[str, Any]) -> str:
    """The checksum of federation.json, without itself."""
    kept = {name: value for name, value in record.items() if name != _OWN}
    return sha256(json.dumps(kept, sort_keys=True, ensure_ascii=False))


def learning_rates(trials: Sequence[Mapping[str, Any]]) -> set[str]:
    """The learning rates among the points of grids, the rows of a table."""
    tried = (read_point(trial["settings"]).get("client_learning_rate") for trial in trials)
    return {text for text in tried if text}


def _result(partition: str, row: Mapping[str, str]) -> Result:
    texts = ("algorithm", "seed", "diverged", "global_model", "config_digest")
    return Result(
        partition=partition,
        method=row["algorithm"],
        seed=row["seed"],
        digest=row["config_digest"],
        diverged=row["diverged"] == "True",
        values={name: read_number(cell) for name, cell in row.items() if name not in texts},
    )


def _curve(row: Mapping[str, str]) -> Curve:
    pairs = sorted((int(name), read_number(cell)) for name, cell in row.items() if name.isdecimal())
    points = [(n, value) for n, value in pairs if value is not None]
    return Curve(row["algorithm"], row["seed"], points)
