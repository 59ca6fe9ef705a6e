"""Errors about settings with flags as they are typed, and warnings in the form of errors.

    train: warning: 2 of 10 clients have no training samples

What was read of data of your own is said in the same form, without a level.

TensorFlow's own messages, about processors, missing GPUs and retracing, are left out unless
`--verbosity` is given.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Container

import absl.logging
from absl.logging import converter

from tff_pcdd import stages
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.settings import describe
from tff_pcdd.training.run_options import RunOptions


class _Handler(logging.Handler):
    """Writes messages to standard error, above a progress bar if there is one."""

    def __init__(self, program: str, flags: Container[str]):
        super().__init__()
        self._program = program
        self._flags = flags

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = as_typed(record.getMessage(), self._flags)
            level = "" if record.name == stages.LOADED else f"{record.levelname.lower()}: "
            line = f"{self._program}: {level}{text}"
            if record.exc_info:
                line = f"{line}\n{logging.Formatter().formatException(record.exc_info)}"
            stages.leave()
            tqdm = sys.modules.get("tqdm")
            if tqdm is None:
                print(line, file=sys.stderr, flush=True)
            else:
                tqdm.tqdm.write(line, file=sys.stderr)
        except Exception:
            self.handleError(record)


def install(program: str, flags: Container[str] = ()) -> None:
    """Shows warnings and errors as lines of a program."""
    root = logging.root
    for handler in root.handlers[:]:
        # Those of absl, and of modules that set up logging when they are imported.
        if type(handler) in (logging.StreamHandler, _Handler, absl.logging.ABSLHandler):
            root.removeHandler(handler)
    root.addHandler(_Handler(program, flags))
    set_level(None)


# TFF's secure sums have assertions in their graphs that are not used, which harms nothing, and so
# have loops after an error in them. Compressing tensors says, for each of them in each computation,
# that it takes memory for a while; it names a ticket that only its authors can read.
_OF_NO_CONCERN = ("Object was never used", "can temporarily allocate extra memory")


def may_concern_users(record: logging.LogRecord) -> bool:
    """Whether a message of TensorFlow or TFF is not one that says nothing about a run."""
    message = record.getMessage()
    return not any(text in message for text in _OF_NO_CONCERN)


def set_level(verbosity: int | None) -> None:
    """Sets the level of the messages that are shown.

    Args:
        verbosity: absl's number of the level; None for warnings, and of TensorFlow only errors that
            may concern users.
    """
    level = absl.logging.WARNING if verbosity is None else verbosity
    absl.logging.set_verbosity(level)
    logging.root.setLevel(converter.absl_to_standard(level))
    loaded = logging.getLogger(stages.LOADED)
    loaded.setLevel(logging.INFO if verbosity is None else logging.NOTSET)
    tensorflow = logging.getLogger("tensorflow")
    tensorflow.setLevel(logging.ERROR if verbosity is None else logging.NOTSET)
    for logger in (tensorflow, logging.root):
        (logger.addFilter if verbosity is None else logger.removeFilter)(may_concern_users)


# A name as errors write settings: `name`, `name=1`, name=…, or a word with an underscore. What is
# in quotes, follows a comma or an equals sign, or is a part of a path or of another name, is a
# user's value.
_NAME = re.compile(
    r"(?<![\w\-/.,:='\"{}])(`?)([a-z][a-z0-9_]*)((?:=\d+)?)\1(?![\w\-/'\":}]|\.\w)(=?)"
)


def as_typed(text: str, flags: Container[str]) -> str:
    """A text about settings, as an error or a warning, with its flags as they are typed.

    A setting of runs in backticks that is no flag of the program is one of `tasks.train`.

    Example:
        >>> as_typed("with `overwrite`, or set num_clients=3; rounds", {"overwrite", "num_clients"})
        'with --overwrite, or set --num_clients=3; rounds'
        >>> as_typed("train with fewer `rounds`", {"overwrite"})
        'train with fewer --rounds of tasks.train'
        >>> as_typed("train with `rounds=9`", {"overwrite"})
        'train with --rounds=9'
        >>> as_typed("seed=3 is never good", {"seeds"})
        '--seeds=3 is never good'
    """

    def spelled(found: re.Match[str]) -> str:
        tick, name, value, equals = found.groups()
        # A bare name in a list may be a column of a table.
        listed = text.endswith((", ", "there are "), 0, found.start())
        is_setting = tick or value or equals or ("_" in name and not listed)
        if tick and name not in flags and name in _training_settings():
            return f"--{name}{value or ' of tasks.train'}"
        if not is_setting or not (flag := _flag(name, flags)):
            return found[0]
        return f"--{flag}{value}{equals}"

    return _NAME.sub(spelled, text)


@functools.cache
def _training_settings() -> frozenset[str]:
    return frozenset(
        setting.name for cls in (ExperimentConfig, RunOptions) for setting in describe(cls)
    )


def with_dashes(error: SettingError, flags: Container[str]) -> str:
    """An error as the command line shows it: with dashes before the settings that are flags."""
    reason = as_typed(error.reason, flags)
    if not error.setting:
        return reason
    flag = _flag(error.setting, flags)
    given = f"--{flag}{error.given.removeprefix(error.setting)}" if flag else error.given
    return f"{given}: {reason}"


def _flag(setting: str, flags: Container[str]) -> str:
    """The flag of a setting, which may be that of several runs; empty if there is none."""
    if setting in flags:
        return setting
    several = f"{setting}s"
    return several if several in flags and setting in _training_settings() else ""
