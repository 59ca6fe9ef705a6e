"""Flags that several programs share, and the experiments that they describe.

What reads flags raises a SettingError if one of them cannot be used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import methods
from tff_pcdd.cli.flags import Flags, RoundNumber
from tff_pcdd.data import DataConfig
from tff_pcdd.data.checks import warn
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.methods import head_calibration
from tff_pcdd.settings import Setting, build, describe
from tff_pcdd.studies.parallel import RAY_RUNTIME, ParallelOptions
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.training import ExperimentConfig, RunOptions, imports
from tff_pcdd.training.run_directory import path_settings

_CALIBRATION = head_calibration.registry.setting


def define_experiment(flags: Flags, *, leave_out: Collection[str] = ()) -> None:
    """Defines the flags of an experiment and of its run."""
    flags.add_settings(ExperimentConfig, leave_out=leave_out)
    flags.add_settings(RunOptions)


def define_output(flags: Flags) -> None:
    """Defines the flags about the output of runs."""
    flags.add(str, "output_dir", None, "Directory of the results; required.")
    flags.add(bool, "overwrite", False, "Delete earlier results in --output_dir and start again.")
    flags.add(
        bool,
        "dry_run",
        False,
        "Only check all settings and print one line per run; no data are read, and nothing is "
        "written.",
    )


def define_restored(flags: Flags, group: str) -> None:
    """Defines the flags that name a checkpoint of a run."""
    flags.add(str, "run_dir", None, "Directory of the run; required.", group)
    flags.add(
        RoundNumber,
        "checkpoint_round",
        None,
        "Round of the checkpoint, by default the newest; best is the round that is best on "
        "held-out samples (validation_fraction).",
        group,
    )
    for setting in describe(ExperimentConfig):
        if setting.path:
            text = f"{setting.help} By default that of the run, if you trained it on this machine."
            flags.add(str, setting.name, None, text, group)


def restored_paths(flags: Flags) -> dict[str, str | None]:
    """The paths that the flags name instead of those in the settings of a run."""
    return {name: flags[name] for name in path_settings()}


@contextlib.contextmanager
def restoring(run_dir: str) -> Iterator[None]:
    """Says of a checkpoint that a block restores and that is missing which setting names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise SettingError("run_dir", run_dir, str(error)) from None


def define_seeds(flags: Flags, group: str) -> None:
    """Defines the flag of the seeds."""
    flags.add(
        list, "seeds", ["0"], "Seeds, as integers from 0 that are separated by commas.", group
    )


def read_config(
    flags: Flags, algorithm: str | None = None, selected: Sequence[str] = (), **fixed: Any
) -> ExperimentConfig:
    """The experiment that the flags describe.

    Warns if the users of the data set are pooled only because no partition is named.

    Args:
        flags: the flags of the program.
        algorithm: the method; by default the one that the flags name.
        selected: all methods of a comparison, whose options may be given too.
        **fixed: flat settings that replace those of the flags; None resets a setting.

    Raises:
        SettingError: as all; also if the command line contains an option of a method that is not
            chosen. A flagfile may contain such options, so it can serve several methods.
    """
    values = flags.given_settings(ExperimentConfig) | fixed
    algorithm = algorithm or values.get("algorithm") or flags["algorithm"]
    values["algorithm"] = algorithm
    given = {**values, **flags.given_settings(ExperimentConfig)}
    for name in list(values):
        setting = flags.settings.get(name)
        if setting is None or applies(setting, algorithm, values):
            continue
        if flags.is_typed(name) and not any(applies(setting, each, given) for each in selected):
            chosen = [_component(setting, each, given) for each in selected or [algorithm]]
            kind = "method" if setting.chosen_by == "algorithm" else "head calibration"
            raise SettingError(
                name,
                values[name],
                f"applies to {', '.join(setting.applies_to)}, and the {kind} is "
                f"{', '.join(dict.fromkeys(chosen))}",
            )
        del values[name]
    config = ExperimentConfig.from_settings(**values)
    config.check_data()
    if values.get("partition") is None:
        _warn_of_pooled_users(config.data)
    return config


def applies(setting: Setting, algorithm: str, values: Mapping[str, Any]) -> bool:
    """Whether a method, or its head calibration, has a setting; True for settings of others."""
    if setting.chosen_by not in ("algorithm", _CALIBRATION):
        return True
    return _component(setting, algorithm, values) in setting.applies_to


def _component(setting: Setting, algorithm: str, values: Mapping[str, Any]) -> str:
    """The method, or its head calibration if a setting belongs to one."""
    if setting.chosen_by == "algorithm":
        return algorithm
    cls = methods.registry.classes().get(algorithm)
    return (cls.head_calibration if cls else "") or values.get(_CALIBRATION) or "none"


def _warn_of_pooled_users(data: DataConfig) -> None:
    if data.source.has_users and not data.partition.keeps_users:
        warn(
            f"dataset={data.source.name}: the samples of its users are pooled and divided anew "
            f"({data.partition.describe()}); --partition=natural keeps the users as clients"
        )


def check_data(flags: Flags, config: ExperimentConfig, output_dir: str) -> None:
    """Refuses missing data before TensorFlow is imported; a dry run warns of them.

    Where there are results already, finished runs need no data; the others are checked later. A dry
    run may be made on a machine that does not train.

    Raises:
        DataError: the data are missing.
    """
    if os.path.exists(output_dir):
        return
    try:
        config.data.source.check()
    except DataError as error:
        if not flags["dry_run"]:
            raise
        warn(f"the data are not on this machine: {error}")


def read_run_options(flags: Flags) -> RunOptions:
    """The run options that the flags describe."""
    modules = imports.digests(flags["import"] or () if "import" in flags else ())
    options = build(RunOptions, flags.given_settings(RunOptions))
    return dataclasses.replace(options, modules=modules)


def read_table_options(flags: Flags) -> TableOptions:
    """What the tables of a comparison show.

    Raises:
        SettingError: a flag cannot be used.
    """
    return build(TableOptions, flags.given_settings(TableOptions))


def read_parallel_options(flags: Flags) -> ParallelOptions:
    """How many runs are computed at the same time."""
    parallel = build(ParallelOptions, flags.given_settings(ParallelOptions))
    address = "ray_address"
    if parallel.parallel_runs > 1 and flags["runtime"] != RAY_RUNTIME and flags.is_given(address):
        reason = (
            "cannot be combined with parallel_runs above 1; to use several machines, start the "
            "same command on each of them, with a common output_dir"
        )
        raise SettingError(address, flags[address], reason)
    return parallel


def check_precision(flags: Flags, config: ExperimentConfig, options: RunOptions) -> None:
    """Refuses what this machine cannot compute, or not fast, if it is this process that trains."""
    if "parallel_runs" not in flags or flags["parallel_runs"] == 1:
        options.compute.check(config)


def read_seeds(flags: Flags, name: str = "seeds") -> list[int]:
    """The values of `--seeds`, or of another flag with seeds."""
    given = flags.required(name)
    # Longer ones would be refused too, but Python does not convert thousands of digits.
    if not all(seed.isdecimal() and len(seed) < 20 for seed in given):
        raise SettingError(name, ",".join(given), "must be integers from 0, such as 0,1,2")
    seeds = [int(seed) for seed in given]
    if len({*seeds}) < len(seeds):
        raise SettingError(name, ",".join(given), "name each seed once")
    return seeds


def end_if_failed(program: str, failures: Sequence[str], number: int, *directories: str) -> None:
    """Ends a program some of whose runs failed, in some of the directories, and names them."""
    if not failures:
        return
    from tff_pcdd.training.file_names import FAILURES

    places = [Path(directory, FAILURES) for directory in directories]
    written = " and ".join(str(path) for path in places if path.is_file())
    sys.exit(
        f"{program}: error: {len(failures)} of {number} runs failed; the same command tries them "
        f"again; tracebacks are in {written}\n" + "\n".join(failures)
    )


def rounds(number: int) -> str:
    """A number of rounds as text."""
    return "1 round" if number == 1 else f"{number} rounds"
