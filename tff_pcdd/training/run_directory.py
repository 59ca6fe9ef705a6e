"""The directory of a run: checks, and its config.json.

Nothing here needs TensorFlow, so unusable directories are reported without waiting for its import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tff_pcdd import directories, files
from tff_pcdd.data import sources
from tff_pcdd.errors import DamagedFileError, OtherRunError, SettingError
from tff_pcdd.experiment.config import ExperimentConfig, implied
from tff_pcdd.settings import describe
from tff_pcdd.training import imports, manifests, signature
from tff_pcdd.training.file_names import (
    CHECKPOINTS,
    CLIENT_STATES,
    COMPARISON_TABLE,
    CONFIG,
    EVALUATION,
    METRICS,
    REPORT,
    SUMMARY,
    WANDB_RECORD,
    answer_files,
)

# What a run's directory may contain.
_FILES = (
    CONFIG,
    METRICS,
    SUMMARY,
    *answer_files(predictions=True),
    EVALUATION,
    REPORT,
    WANDB_RECORD,
    signature.FILE,
)
_FOLDERS = (CHECKPOINTS, CLIENT_STATES, "plots", "tensorboard")

# How many different settings an error names.
_SHOWN = 6

# What config.json is called while the run is deleted.
_OVERWRITTEN = ".overwritten.json"

# Settings that the config.json of every run contains.
_ALWAYS_THERE = ("algorithm", "dataset", "model")


def check_directory(
    directory: Path, config: ExperimentConfig, overwrite: bool, *, shared: bool = False
) -> None:
    """Checks that the results of a run can be written to a directory, without writing anything.

    A run of fewer rounds with otherwise equal settings can be continued.

    Args:
        directory: the directory, which need not exist.
        config: the settings of the run.
        overwrite: whether results of other settings may be deleted.
        shared: whether another process may be computing this run.

    Raises:
        SettingError: it holds something else, or lies among data; `OtherRunError` if another run.
        LockedError: another process is writing to it.
    """
    config.data.source.refuse_results(directory)
    occupied = directories.check_output(directory, "run", (CONFIG, _OVERWRITTEN))
    if not shared:
        directories.refuse_locked(directory)
    if overwrite or not occupied or is_being_deleted(directory):
        return
    directories.refuse_links(directory, (*_FILES, *_FOLDERS))
    check_entries(directory, "output_dir")
    saved = read_json(directory / CONFIG, "output_dir")
    wanted = config.to_settings()
    old = implied(saved)
    saved = {**{name: old[name] for name in old if name in wanted}, **saved}
    names = [
        name
        for name in sorted({*saved, *wanted} - {*sources.LIMITS, imports.KEY})
        if saved.get(name) != wanted.get(name)
    ]
    here = {**wanted, "precision": config.model.shown_precision}
    continues = "rounds" in names and fewer_rounds(directory, config) is not None
    # More rounds alone would be accepted, so they are no reason.
    named = [name for name in names if name != "rounds" or not continues or config.planned_by]
    differing = [f"{name} (there {saved.get(name)}, here {here.get(name)})" for name in named]
    if names == ["rounds"] and continues:
        if config.planned_by:
            raise SettingError(
                "rounds",
                config.training.rounds,
                f"{directory} holds a run that was planned for {saved['rounds']} rounds, on which "
                f"{config.planned_by} depends; name another directory, or replace it with "
                "`overwrite`",
            )
    elif differing:
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        raise OtherRunError(
            "output_dir",
            directory,
            f"holds a run with different settings: {', '.join(differing[:_SHOWN])}{more}; name "
            "another directory, or replace it with `overwrite`",
        )


def check_calibration(
    config: ExperimentConfig, calibrated: ExperimentConfig, output_dir: str | os.PathLike
) -> None:
    """Checks a head calibration of a run; takes arguments of `post_hoc.calibrate_run`."""
    name, directory = calibrated.head_calibration.name, Path(output_dir)
    if config.head_calibration.name != "none":
        reason = f"the run was trained with head_calibration={config.head_calibration.name}"
        raise SettingError("head_calibration", name, reason)
    if not calibrated.head_calibration.is_active:
        reason = "must be at least 1, or nothing is re-trained"
        raise SettingError(f"{name}_epochs", 0, reason)
    if os.path.lexists(directory):
        raise SettingError("output_dir", directory, "exists already; name another directory")
    directories.check_writable(directory)


def fewer_rounds(directory: Path, config: ExperimentConfig) -> int | None:
    """The planned rounds of the run in a directory, if they are fewer than in `config`."""
    path = directory / CONFIG
    if is_being_deleted(directory) or not path.exists():
        return None
    rounds = read_json(path, "output_dir").get("rounds")
    # The file may have been damaged.
    return rounds if type(rounds) is int and 0 < rounds < config.training.rounds else None


def starts_afresh(directory: Path) -> bool:
    """Whether a run in a directory has to compute its first round."""
    if is_being_deleted(directory):
        return True
    return not ((directory / SUMMARY).exists() or manifests.rounds(directory / CHECKPOINTS))


def is_unfinished(directory: Path) -> bool:
    """Whether the results of the run in a directory are not there yet."""
    return not (directory / SUMMARY).exists()


def is_being_deleted(directory: Path) -> bool:
    """Whether a process has begun to delete the run in a directory."""
    return (directory / _OVERWRITTEN).exists()


def delete_run(directory: Path, *, only_begun: bool) -> None:
    """Deletes the run in a directory, which this process has locked, and everything else in it.

    If this is interrupted, either the run is still there as it was, or it is gone for all programs
    and the next process that writes to the directory has to call this function again. With
    `only_begun`, a run is deleted only if an earlier process has begun to.
    """
    config, marker = directory / CONFIG, directory / _OVERWRITTEN
    if not is_being_deleted(directory):
        if only_begun or not config.exists():
            return
        # Works on a full disk too, on which the deletion makes space.
        files.rename(config, marker)
    for path in directory.iterdir():
        if path != marker and not directories.is_lock(path):
            files.remove(path)
    files.remove(marker)


def check_entries(directory: Path, setting: str) -> None:
    """Checks that what has the name of a run's file is a file, and likewise for its folders.

    The error names the directory by `setting`.
    """
    for names, fits, kind in (
        (_FILES, Path.is_file, "file"),
        (_FOLDERS, Path.is_dir, "directory"),
    ):
        for path in (directory / name for name in names):
            if os.path.lexists(path) and not fits(path):
                raise SettingError(setting, directory, f"{path.name} is not a {kind}; remove it")


def write_config(
    directory: Path, config: ExperimentConfig, modules: Mapping[str, str] | None = None
) -> None:
    """Writes the effective settings, and signs those that are paths.

    Args:
        directory: the directory of the run.
        config: the settings of the run.
        modules: the user's modules, with the hashes of their files. Those of an earlier process
            are kept, with a warning if they have changed.
    """
    path, contents = directory / CONFIG, settings_of(directory, config)
    signature.sign(directory, paths_in(contents))
    earlier = read_json(path, "output_dir") if path.exists() else {}
    imports.warn_of_changes(directory, earlier)
    if known := {**imports.recorded(earlier), **(modules or {})}:
        contents[imports.KEY] = known
    files.write_text(path, json_text(contents))


def json_text(values: Mapping[str, Any]) -> str:
    """The contents of a JSON file in the directory."""
    return json.dumps(values, indent=2) + "\n"


def without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Values with None for NaN, which JSON cannot represent."""
    return json.loads(json.dumps(values), parse_constant=lambda _: None)


def write_summary(directory: Path, summary: dict[str, Any]) -> None:
    """Writes the summary, which marks the run as finished."""
    files.write_text(directory / SUMMARY, json_text(summary))


def path_settings() -> list[str]:
    """The names of all settings that are paths."""
    return [setting.name for setting in describe(ExperimentConfig) if setting.path]


def paths_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """Those settings that are paths and are given."""
    return {name: settings[name] for name in path_settings() if settings.get(name) is not None}


def read_config(
    run_dir: str | os.PathLike, data_dir: str | None = None, **paths: str | None
) -> ExperimentConfig:
    """Reads the settings of a run.

    Paths in them are used only if this user trained the run on this machine.

    Args:
        run_dir: the directory of the run.
        data_dir: the directory of the data, if they have been moved since the run, or the run comes
            from elsewhere.
        **paths: other settings that are paths, such as `pretrained_weights`.

    Raises:
        SettingError: there is no run, its settings cannot be used, or they contain a path that is
            neither given nor signed.
    """
    saved = read_settings(Path(run_dir), "run_dir")
    named = paths_in(saved)
    given = {name: text for name, text in {"data_dir": data_dir, **paths}.items() if text}
    try:
        imports.check(saved)
        settings = {name: value for name, value in saved.items() if name != imports.KEY}
        config = ExperimentConfig.from_record({**settings, **given})
    except (SettingError, TypeError) as error:
        reason = f"{error!s:.350}"
        if isinstance(error, SettingError) and error.reason.startswith("choose one of"):
            modules = ", ".join(imports.recorded(saved)) or "its module"
            reason = f"{error.given}: nothing of that name is registered; import {modules} or, if "
            reason += "it is an object in Python, give the run's `config` and `federation`"
        raise SettingError("run_dir", run_dir, f"{CONFIG} cannot be used: {reason}") from error
    imports.warn_of_changes(Path(run_dir), saved)
    unknown = sorted(named.keys() - given.keys())
    if unknown and not signature.is_signed(Path(run_dir), named):
        elsewhere = "" if os.path.isabs(named[unknown[0]]) else ", or in another working directory"
        raise SettingError(
            unknown[0],
            named[unknown[0]],
            f"is not followed, because {CONFIG} in {run_dir} names it and was not written by this "
            f"user on this machine{elsewhere}; to use it, give {unknown[0]} again",
        )
    return config


def read_settings(directory: Path, setting: str) -> dict[str, Any]:
    """Reads config.json of a run, without checking whether its settings can be used.

    Raises:
        SettingError: there is no run, or the file is damaged.
    """
    path = directory / CONFIG
    if not path.is_file():
        reason = f"holds no run: there is no {CONFIG}"
        if (directory / COMPARISON_TABLE).exists():
            reason = "holds a comparison; name the directory of one of its runs, METHOD/seed_N"
        raise SettingError(setting, directory, reason)
    saved = read_json(path, setting)
    for name in _ALWAYS_THERE:
        if name not in saved:
            raise SettingError(setting, directory, f"{CONFIG} has no {name}")
    return saved


def read_json(path: Path, setting: str) -> dict[str, Any]:
    """Reads a JSON object from a run's directory, which the given setting names."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        problem = "missing"
    except DamagedFileError as error:
        problem = str(error).removeprefix(f"{path} is ")
    remedy = (
        "restore it, or replace the run with `overwrite`"
        if setting == "output_dir"
        else "restore it"
    )
    raise SettingError(setting, path.parent, f"{path.name} is {problem}; {remedy}")


def settings_of(directory: Path, config: ExperimentConfig) -> dict[str, Any]:
    """The flat settings of a run, with the numbers as they are in its checkpoints' digest.

    2 and 2.0 are equal settings with different digests; config.json has what was given first.
    """
    settings = config.to_settings()
    try:
        saved = files.read_json(directory / CONFIG)
    except (OSError, DamagedFileError):
        return settings
    # An earlier version's has fewer settings.
    first = {
        n: saved[n] if n in saved and saved[n] == value else value for n, value in settings.items()
    }
    if repr(first) == repr(settings) or manifests.newest_intact(directory, first) is None:
        return settings
    return first
