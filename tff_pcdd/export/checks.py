"""Checks of an export, made before TensorFlow is imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.export import layout
from tff_pcdd.export.options import ExportOptions
from tff_pcdd.export.slugs import slugs
from tff_pcdd.settings import split_names
from tff_pcdd.training import ExperimentConfig, clients_table
from tff_pcdd.training.file_names import CLIENTS

# The most clients that an error lists.
_LISTED = 20


def check_export(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    export_dir: str | os.PathLike,
    options: ExportOptions,
    *,
    overwrite: bool = False,
) -> None:
    """Checks what can be checked without restoring the run; takes the arguments of `export_run`.

    Raises:
        SettingError: as `export_run`.
        DataError: the data of the run are missing.
    """
    check_options(config, options)
    if not config.data.may_hold_out:
        check_temperature(options, has_held_out=False)
    directory = layout.ExportDirectory(export_dir, options.model_version, overwrite)
    folders = [layout.GLOBAL] * config.method.has_global_model
    if client_ids := _client_ids(Path(run_dir)):
        every = layout.personal_folders(client_ids)
        folders += [every[index] for index in choose_clients(client_ids, options.clients)]
    # What an interrupted export has written depends on the state of the run.
    if not directory.is_unfinished:
        directory.check(folders)
    config.data.source.check()


def check_options(config: ExperimentConfig, options: ExportOptions) -> None:
    """Checks that the options fit the model, before the run is restored.

    Raises:
        SettingError: no clients are chosen, and the method has no global model; or TensorFlow Lite
            is asked for a model that computes in bfloat16.
    """
    if options.clients == "none" and not config.method.has_global_model:
        reason = f"nothing to export: {config.algorithm} has no global model"
        raise SettingError("clients", options.clients, f"{reason}; give client ids or all")
    if config.model.precision == "bfloat16" and "tflite" in options.formats():
        reason = "TensorFlow Lite does not compute in bfloat16, in which the run was trained"
        raise SettingError("format", options.format, f"{reason}; choose saved_model or keras")


def check_temperature(options: ExportOptions, *, has_held_out: bool) -> None:
    """Checks that there are samples to which a temperature can be fitted."""
    if options.temperature == "fitted" and not has_held_out:
        reason = "the run held no samples out; train with `validation_fraction`, such as 0.2"
        raise SettingError("temperature", options.temperature, reason)


def choose_clients(client_ids: Sequence[str], wanted: str) -> dict[int, str]:
    """The ids of the clients that are chosen by their ids or slugs, by client number."""
    known = dict(enumerate(client_ids))
    if wanted in ("all", "none"):
        return known if wanted == "all" else {}
    # Names of sites may contain commas; the short names do not.
    numbers = dict(zip(slugs(client_ids), known, strict=True))
    numbers |= {client_id: index for index, client_id in known.items()}
    ids = [wanted] if wanted in numbers else split_names(wanted)
    for client_id in ids or [wanted]:
        if client_id not in numbers:
            ends = [known[0], "…", known[len(known) - 1]]
            there = ", ".join(known.values()) if len(known) <= _LISTED else " ".join(ends)
            raise SettingError(
                "clients",
                wanted,
                f"there is no client {client_id!r}; the {len(known)} clients are {there}",
            )
    return {index: known[index] for index in sorted({numbers[name] for name in ids})}


def _client_ids(run_dir: Path) -> list[str]:
    """The ids of a run's clients, if it has a table that shows them as they are."""
    try:
        ids = [row["client"] for row in clients_table.read(run_dir / CLIENTS)]
    except (OSError, DamagedFileError):
        return []
    # The table escapes characters that cannot be shown.
    return [] if any("\\" in client_id for client_id in ids) else ids
