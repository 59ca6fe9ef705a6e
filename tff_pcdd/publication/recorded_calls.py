"""Reads which calls of a program computed a sweep, for its publication."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tff_pcdd.errors import DamagedFileError
from tff_pcdd.report.reading import Directory
from tff_pcdd.studies import method_sweep
from tff_pcdd.training.run_directory import path_settings


def read(path: Path) -> list[dict[str, Any]]:
    """The calls of the program that computed a sweep; none for sweeps of earlier versions.

    Args:
        path: the directory of the sweep.

    Returns:
        What `cli.calls` has recorded of each call, without paths of this machine. A call that was
        killed has no `seconds`.

    Raises:
        DamagedFileError: the record is damaged.
    """
    directory, file = Directory(path), method_sweep.CALLS
    try:
        lines = [json.loads(line) for line in directory.text(file).splitlines()]
        calls: list[dict[str, Any]] = []
        for line in lines:
            process = line.pop("process")
            if "started" in line:
                arguments = _without_paths(line["arguments"])
                calls.append({**line, "arguments": arguments, "process": process})
                continue
            (own,) = [c for c in calls if c["process"] == process and "ended" not in c][-1:]
            own.update(line)
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"{path / file} is damaged ({error})") from None
    return [{k: v for k, v in call.items() if k != "process"} for call in calls]


def _without_paths(arguments: Sequence[str]) -> list[str]:
    """Arguments in which paths of this machine are replaced by the names of their flags.

    Example:
        >>> _without_paths(["--data_dir=/home/me/data", "--output_dir", "runs/a", "--rounds=60"])
        ['--data_dir=DATA_DIR', '--output_dir', 'OUTPUT_DIR', '--rounds=60']
    """
    paths, shown = {*path_settings(), "output_dir"}, []
    previous = ""
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").partition("=")
        if previous in paths:
            shown.append(previous.upper())
        elif equals and name in paths:
            shown.append(f"--{name}={name.upper()}")
        else:
            shown.append(argument)
        previous = name if argument.startswith("-") and not equals else ""
    return shown
