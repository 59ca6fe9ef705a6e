"""Adds the methods of a sweep to results of the same federation that have been published.

So a new method, or one that was corrected, joins a comparison without computing the others again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from publication.published import RECORD, TUNING, learning_rates, read_files
from tff_pcdd import methods
from tff_pcdd.errors import SettingError
from tff_pcdd.findings import read_point
from tff_pcdd.settings import flat_name, option_fields
from tff_pcdd.studies import tuning

# What the records of two sweeps must have in common for their methods to be compared.
_SAME = ("schema", "federation", "model", "num_classes", "rounds", "seeds", "final_seeds")

# What decides how settings are chosen, in each call of a sweep, and what it was where a call does
# not say it.
_CHOICE = {"criterion": None, "rungs": None, "reduction": None, "halving": tuning.ALL}

Table = Sequence[Mapping[str, Any]]


def add(
    folder: Path, record: Mapping[str, Any], tables: Mapping[str, Table]
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The record and the tables of published results with the methods of another sweep.

    Methods that had been published are replaced. The calls that computed the new ones are listed
    apart, in the entry `added` of the record, once even if the sweep was added before.

    Args:
        folder: the published results.
        record: what would be published of the sweep alone, without checksums.
        tables: its tables, by file.

    Raises:
        SettingError: nothing has been published in the folder, or the two cannot be compared.
        DamagedFileError: a file in the folder is missing, or is not what was published.
    """
    if not (folder / RECORD).is_file():
        raise SettingError("add_methods", True, f"nothing has been published in {folder} yet")
    old, published = read_files(folder)
    tried = [learning_rates(part[TUNING]) for part in (published, tables)]
    own = _own_settings(published) | _own_settings(tables)
    differing = _differing(old, record, own)
    if tried[0] != tried[1]:
        differing.append("the learning rates that were tried")
    if differing:
        reason = f"what {folder} holds differs in {', '.join(differing)}, so it cannot be compared"
        raise SettingError("add_methods", True, reason)
    names = sorted({row["algorithm"] for table in tables.values() for row in table})
    merged = {}
    # A table that an earlier version did not publish would hold the new methods alone.
    for file in [file for file in tables if file in published]:
        kept = [row for row in published[file] if row["algorithm"] not in names]
        rows = [*kept, *tables[file]]
        # Sorting is stable: the rows of a method keep their order.
        merged[file] = _aligned(sorted(rows, key=lambda row: row["algorithm"]))
    shared = {
        name: value
        for name, value in old["settings"].items()
        if record["settings"].get(name) == value and name not in own
    }
    new = {name: record[name] for name in ("calls", "seconds_of_rounds")}
    added, seconds = [], old["seconds_of_rounds"] + new["seconds_of_rounds"]
    for part in old.get("added", ()):
        if part["calls"] and part["calls"][:1] == new["calls"][:1]:
            # The same sweep, which may have gone on since.
            seconds -= part.get("seconds_of_rounds", 0)
        else:
            added.append(part)
    added.append({"methods": names, **new})
    changed = {"settings": shared, "seconds_of_rounds": round(seconds, 1), "added": added}
    return {**old, **changed}, merged


def _own_settings(tables: Mapping[str, Table]) -> set[str]:
    """The settings of methods' own: the methods, what was tuned, and all options but the common."""
    names = {"algorithm"}
    for row in tables[TUNING]:
        names.update(read_point(row["settings"]))
        if row["algorithm"] in methods.names():
            cls = methods.get(row["algorithm"])
            names.update(flat_name(cls, field) for field in option_fields(cls))
    return names - {flat_name(methods.Method, field) for field in option_fields(methods.Method)}


def _differing(old: Mapping[str, Any], new: Mapping[str, Any], own: Collection[str]) -> list[str]:
    """What keeps two sweeps from being compared, but for the methods' own settings."""
    found = [name for name in _SAME if old.get(name) != new.get(name)]
    found += [
        f"the data of seed {seed}"
        for seed, digest in new["data_sha256"].items()
        if None not in (digest, known := old["data_sha256"].get(seed)) and digest != known
    ]
    found += [
        name
        for name, value in old["settings"].items()
        if new["settings"].get(name) != value and name not in own
    ]
    if old["calls"] and new["calls"]:
        last = old["calls"][-1], new["calls"][-1]
        found += [
            name
            for name, before in _CHOICE.items()
            if last[0].get(name, before) != last[1].get(name, before)
        ]
    return found


def _aligned(rows: Table) -> list[dict[str, Any]]:
    """Rows with the same columns, empty where one had none."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in columns} for row in rows]
