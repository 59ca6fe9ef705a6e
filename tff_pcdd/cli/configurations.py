"""Settings in TOML or JSON files; `flagfiles` turns them into flags.

Tables and objects only group settings. The config.json of a run is such a file.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd.errors import SettingError, shown
from tff_pcdd.experiment.config import ExperimentConfig, implied
from tff_pcdd.methods import head_calibration
from tff_pcdd.settings import describe
from tff_pcdd.training import imports


def read(path: str, text: str) -> dict[str, Any]:
    """The settings in a file, by their names.

    Raises:
        ValueError: it is neither TOML nor JSON, is damaged, or has a setting twice.
        RecursionError: it is nested too deeply.
    """
    settings: dict[str, Any] = {}
    for name, value in _flat(_parse(path, text), is_record=path.endswith(".json")):
        if name in settings:
            raise ValueError(f"{shown(name, 120)} is there twice")
        settings[name] = value
    return settings


def as_given(path: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a config.json without those that the run has derived, such as `data_seed`.

    The head calibration that the method implies is one of them, so it goes with the method.

    Warns if the user's modules with which it was trained are not imported, or have changed.
    """
    if not path.endswith(".json"):
        return settings
    imports.warn_of_changes(Path(path), settings)
    known = {setting.name for setting in describe(ExperimentConfig)}
    try:
        config = ExperimentConfig.from_record({n: v for n, v in settings.items() if n in known})
    # It is not the record of a run, or is refused later.
    except (SettingError, TypeError):
        return settings
    calibration, derived = head_calibration.registry.setting, config.derived
    if settings.get(calibration) == implied(settings)[calibration]:
        derived |= {calibration}
    return {name: value for name, value in settings.items() if name not in derived}


def texts(value: Any) -> list[str]:
    """A value, or those of a list, as on the command line.

    Raises:
        ValueError: it is something else, such as a list of lists.
    """
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(each, (str, int, float)) for each in several):
        raise ValueError("must be a text, a number, true or false, or a list of them")
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in several]


def _parse(path: str, text: str) -> dict[str, Any]:
    if path.endswith(".toml"):
        return tomllib.loads(text)
    if not path.endswith(".json"):
        raise ValueError("its name must end in .toml or .json")
    values = json.loads(text, object_pairs_hook=_once)
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return values


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no name may be there twice, as in TOML."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is there twice")
    return values


def _flat(values: Mapping[str, Any], *, is_record: bool) -> Iterator[tuple[str, Any]]:
    """The settings in tables; those of a record's modules stay one value."""
    for name, value in values.items():
        if isinstance(value, dict) and not (is_record and name == imports.KEY):
            yield from _flat(value, is_record=is_record)
        elif not name.isidentifier():
            raise ValueError(f"{shown(name, 120)!r} is not the name of a setting")
        elif value is not None:
            yield name, value
