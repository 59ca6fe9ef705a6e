"""The settings of a run: those that were chosen, and those that have their defaults."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import modules
from tff_pcdd.errors import printable, shown
from tff_pcdd.experiment.config import SEEDS, ExperimentConfig, implied
from tff_pcdd.settings import describe
from tff_pcdd.text import name_of
from tff_pcdd.training import imports
from tff_pcdd.training.run_directory import path_settings, paths_in

_UNKNOWN = "of a component that is not imported here"


@dataclasses.dataclass(frozen=True)
class Row:
    """A setting of a run.

    Attributes:
        name: as in config.json.
        value: its value, as text.
        default: its default, as text; "" if it is not known.
        meaning: what it means; "" if it is not known.
        chosen: whether the value differs from the default.
    """

    name: str
    value: str
    default: str
    meaning: str
    chosen: bool


def configuration(settings: Mapping[str, Any]) -> ExperimentConfig | None:
    """The experiment that settings describe; None if one of its components is not known here."""
    values = {name: value for name, value in settings.items() if name != imports.KEY}
    try:
        return ExperimentConfig.from_settings(**values)
    # The settings are of unknown origin, and components check them in their own ways.
    except Exception:
        return None


def names(settings: Mapping[str, Any], *, several: bool = False) -> tuple[str, str]:
    """The method of a run with its head calibration, and its data.

    Args:
        settings: its settings.
        several: whether there are runs on several partitions, so that none is named.
    """
    config = configuration(settings)
    if config is None:
        return name_of(settings.get("algorithm", "?")), name_of(settings.get("dataset", "?"))
    data = config.data.describe_dataset() if several else config.data.describe()
    return config.method_title, data


def rows(settings: Mapping[str, Any]) -> list[Row]:
    """The settings of a run, those that differ from their defaults first.

    Paths are left out, as in model cards: a report may be passed on.
    """
    known = {setting.name: setting for setting in describe(ExperimentConfig)}
    defaults = _defaults(settings)
    found = []
    for name, value in settings.items():
        if name == imports.KEY:
            names = ", ".join(map(str, value)) if isinstance(value, dict) else value
            meaning = "Modules that registered components of your own."
            found.append(Row(name, _text(names), "none", meaning, True))
            continue
        setting = known.get(name)
        if setting is not None and setting.path:
            continue
        default = defaults.get(name)
        found.append(
            Row(
                shown(name, 80),
                _text(value),
                _text(default) if setting else "",
                _first_sentence(setting.help) if setting else _UNKNOWN,
                name not in defaults or value != default,
            )
        )
    return sorted(found, key=lambda row: not row.chosen)


def command(settings: Mapping[str, Any]) -> str:
    """The command that trains with the settings of a run; paths are left out, as in `rows`."""
    flags = [f"--algorithm={settings.get('algorithm', '?')}", *_flags([settings], {"algorithm"})]
    return _quoted("train", flags, paths=paths_in(settings))


def comparison_command(
    runs: Sequence[Mapping[str, Any]], methods: Sequence[str], seeds: Sequence[str]
) -> str:
    """The command of a comparison on one partition; settings that differ are left out."""
    flags = [f"--algorithms={','.join(methods)}", f"--seeds={','.join(seeds)}"]
    flags += _flags(runs, {"algorithm", "seed"})
    return _quoted("compare", flags, paths=paths_in(runs[0]))


def saved_command(config: Path, settings: Mapping[str, Any], name: str) -> str:
    """The command that trains with all settings of a run, paths too, from its config.json.

    Args:
        config: the file, from the working directory.
        settings: the settings in it.
        name: how the directory of the new run begins.
    """
    return _quoted("train", [*_imports(settings), f"--config={config}"], name)


def export_command(
    config: Path, settings: Mapping[str, Any], name: str, further: Sequence[str] = ()
) -> str:
    """The command that exports the models of a finished run.

    Args:
        config, settings, name: as for `saved_command`.
        further: flags that say which models.
    """
    flags = [*_imports(settings), f"--run_dir={config.parent}", *further]
    return _quoted("export", flags, name, to="export_dir=exported")


def chosen_command(flagfile: Path, name: str) -> str:
    """The command that trains with the settings in a flagfile; `name` as for `saved_command`."""
    return _quoted("train", [f"--flagfile={flagfile}"], name)


def _quoted(
    program: str,
    flags: Sequence[str],
    name: str = "again",
    paths: Mapping[str, Any] | None = None,
    to: str = "output_dir=runs",
) -> str:
    """A command with a directory of its own, so that those of several pages do not collide.

    Args:
        name: how the name of the directory begins.
        paths: the paths that the flags leave out.
        to: the flag of that directory, and where it lies.
    """
    parts = [program, *flags, *map(str, (paths or {}).values())]
    digest = hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:6]
    output_dir = f"--{to}/{name}_{digest}"
    quoted = [shlex.quote(printable(flag)) for flag in [*flags, output_dir]]
    return " ".join([modules.typed(program), *quoted])


def _imports(settings: Mapping[str, Any]) -> list[str]:
    found = settings.get(imports.KEY)
    return [f"--import={name}" for name in found] if isinstance(found, dict) else []


def _flags(runs: Sequence[Mapping[str, Any]], left_out: Collection[str]) -> list[str]:
    """The settings that all runs share, and that one of them has by choice, as flags."""
    first = runs[0]
    chosen = {row.name for settings in runs for row in rows(settings) if row.chosen}
    chosen.difference_update(left_out, [imports.KEY])
    flags = _imports(first)
    for row in rows(first):
        value = first.get(row.name)
        shared = all(settings.get(row.name) == value for settings in runs)
        if row.name in chosen and value is not None and shared:
            flags.append(f"--{row.name}={value}")
    return [*flags, *(f"--{name}=PATH" for name in paths_in(first))]


def divided(found: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The settings that were chosen, and those that have their defaults."""
    return [row for row in found if row.chosen], [row for row in found if not row.chosen]


def _defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The default of each setting, given the components and the settings it is derived from."""
    described = describe(ExperimentConfig)
    defaults = {setting.name: setting.default for setting in described} | implied(settings)
    choosing = {setting.chosen_by for setting in described} | {"seed", "eval_every"}
    # Some data sets need one.
    choosing |= {*path_settings()}
    given = {name: settings[name] for name in settings if name in choosing}
    derived = configuration(given)
    if derived is None:
        return defaults
    # These are compared with what they are without any flag.
    return {**defaults, **derived.to_settings(), **{name: defaults.get(name) for name in given}}


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".") + "."


def _text(value: Any) -> str:
    return "none" if value is None else shown(value, 200)


@dataclasses.dataclass(frozen=True)
class Varied:
    """A setting that differs between the runs of a comparison.

    Attributes:
        name: as in config.json.
        values: pairs of a value and the methods that have it.
    """

    name: str
    values: Sequence[tuple[str, str]]


def common_and_varied(
    runs: Sequence[tuple[str, Mapping[str, Any]]],
) -> tuple[list[Row], list[Varied]]:
    """The settings that all runs share, and those that differ.

    The seed is left out of both, and so are seeds that all runs derive from it, and settings of a
    single method that have their defaults.
    """
    by_name: dict[str, dict[str, list[str]]] = {}
    defaults: dict[str, bool] = {}
    for method, settings in runs:
        for row in rows(settings):
            methods = by_name.setdefault(row.name, {}).setdefault(row.value, [])
            if method not in methods:
                methods.append(method)
            defaults[row.name] = defaults.get(row.name, True) and not row.chosen
    everywhere = set.intersection(*(set(settings) for _, settings in runs))
    seeds = {"seed", *(name for name in SEEDS if defaults.get(name, True))}
    common = {name for name in everywhere if len(by_name.get(name, ())) == 1} - seeds
    varied = [
        Varied(name, [(value, ", ".join(methods)) for value, methods in values.items()])
        for name, values in by_name.items()
        if name not in common | seeds | {"algorithm"} and (len(values) > 1 or not defaults[name])
    ]
    # What one method has by default, another one may have by choice.
    return [
        dataclasses.replace(row, chosen=not defaults[row.name])
        for row in rows(runs[0][1])
        if row.name in common
    ], varied
