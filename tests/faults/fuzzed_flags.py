"""Hostile flags, flagfiles and config.json: a value is refused in one line, or works as it says.

Each program parses its flags and checks its settings as usual. What it would compute afterwards is
replaced, except for the checks of `--dry_run`. Settings that are accepted have to come back
unchanged from config.json.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import logging
import math
import random
import signal
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from absl import logging as absl_logging

from tests.faults.case import REFUSED, SAME, Case, SilentDifference, one_line
from tests.faults.mutations import mutate
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig, run_directory

# Programs, and the flags without which they do nothing. {directory} is replaced.
PROGRAMS = {
    "train": ("--dry_run", "--output_dir={directory}/out"),
    "compare": ("--dry_run", "--output_dir={directory}/out"),
    "sweep": (
        *("--dry_run", "--output_dir={directory}/out"),
        *("--validation_fraction=0.2", "--grid=client_learning_rate=0.01,0.1"),
    ),
    "partition": ("--output_dir={directory}/out",),
    "evaluate": ("--run_dir={directory}/run",),
    "export": ("--run_dir={directory}/run", "--export_dir={directory}/out"),
    "predict": (
        *("--export_dir={directory}/exported", "--data_dir={directory}/new.csv"),
        *("--output_file={directory}/answers.csv", "--overwrite"),
    ),
    "report": ("--run_dir={directory}/run",),
    "benchmark": ("--output_dir={directory}/out",),
}

# Values for each flag. Programs are not started with NUL or lone surrogates by a shell, but by
# other programs they may be, and flagfiles contain anything.
VALUES = {
    "empty": "",
    "space": " ",
    "not a number": "nan",
    "infinite": "inf",
    "negative infinite": "-inf",
    "beyond float64": "1e400",
    "nearly infinite": "1e308",
    "tiny": "5e-324",
    "negative": "-1",
    "zero": "0",
    "beyond int32": str(2**31),
    "beyond int64": str(2**63),
    "many digits": "9" * 5000,
    "long": "x" * 100_000,
    "accents": "é日本",
    "digits of another script": "٣",
    "NUL": "a\0b",
    "escape sequence": "\x1b[31mred",
    "lines": "a\nb\r\nc\u2028d",
    "lone surrogate": "a\ud800",
    "undecodable byte": "a\udcff",
    "None": "None",
    "path upwards": "../../etc/passwd",
    "root": "/",
    "list": "a,,b,",
    "quotes": "'\"`$(id)`",
    "format": "%s%n{0}",
    "flag": "--rounds=1",
    "underscore": "1_000",
    "hexadecimal": "0x10",
}

# Flags that take seconds for each value, because a network is built to read the file.
_SLOW = {"pretrained_weights": ("NUL", "lone surrogate", "root", "long")}

# Whose images would be looked for.
_NO_ROOT = ("predict", "data_dir")

# Flags that are not among those of a program.
_SPECIAL = ("flagfile", "config", "undefok")

# Where settings are components of something that needs more flags.
_OWNERS = {
    "femnist": ("--partition=iid", "--data_dir=/data"),
    "fed_isic2019": ("--partition=natural", "--data_dir=/data", "--clients_per_round=1"),
    "natural": ("--dataset=femnist", "--data_dir=/data"),
    "efficientnet_b0": ("--dataset=cifar10",),
}


def cases(directory: Path) -> Iterator[Case]:
    """All flags of all programs, flagfiles, and config.json."""
    in_train = _flags_of("train")
    for program in PROGRAMS:
        flags = _flags_of(program)
        if program in ("compare", "sweep"):
            # The flags of train are checked there; one in ten of them will do here.
            common = [flag for flag in flags if flag in in_train]
            left_out = {*common}.difference(common[::10])
            flags = {flag: needed for flag, needed in flags.items() if flag not in left_out}
        for flag, needed in flags.items():
            check = functools.partial(_check_flag, program, flag, needed)
            yield Case(f"flags of {program}", flag, check)
        for name, content in _flagfiles().items():
            check = functools.partial(_check_flagfile, program, content)
            yield Case("flagfiles", f"{program}: {name}", check)
    for name in _config():
        yield Case("config.json values", name, functools.partial(_check_value, name))
    for number in range(120):
        yield Case("config.json bytes", str(number), functools.partial(_check_bytes, number))


def _module(program: str) -> types.ModuleType:
    beside = {"benchmark": "benchmarks.__main__"}
    return importlib.import_module(beside.get(program, f"tff_pcdd.cli.{program}"))


def _flags_of(program: str) -> dict[str, tuple[str, ...]]:
    """The flags of a program, each with others that choose the component it belongs to."""
    flags = Flags([program])
    _module(program).define(flags)
    found: dict[str, tuple[str, ...]] = dict.fromkeys((*_SPECIAL, "import", "verbosity"), ())
    for names in flags.groups.values():
        for name in names:
            setting = flags.settings.get(name)
            needed: tuple[str, ...] = ()
            if setting is not None and setting.chosen_by is not None:
                owner = setting.applies_to[0]
                chooser = setting.chosen_by
                if program == "compare" and chooser == "algorithm":
                    chooser = "algorithms"
                needed = (f"--{chooser}={owner}", *_OWNERS.get(owner, ()))
            found[name] = tuple(
                other for other in needed if other.partition("=")[0].lstrip("-") in flags
            )
    return found


class _Model:
    """What stands for an exported model of images."""

    class_names = ("cat", "dog")
    takes, dtype = "images", np.dtype(np.uint8)

    def __init__(self, directory: Path):
        self.directory = directory

    def of_images(
        self, paths: Sequence[Path], shown: Sequence[str], *, skip_broken: bool = False
    ) -> Iterator[Mapping]:
        label = np.array([b"cat"] * len(shown), object)
        yield {"label": label, "probabilities": np.full([len(shown), 2], 0.5)}

    def of_arrays(self, x: np.ndarray, place: str) -> Iterator[Mapping]:
        return self.of_images([], x.tolist())


@contextlib.contextmanager
def nothing_is_computed() -> Iterator[None]:
    """Replaces what follows the checks of settings, and restores what programs change."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    log_handlers, verbosity = logging.root.handlers[:], absl_logging.get_verbosity()
    finders = sys.meta_path[:]
    results: dict[str, Any] = {"round": 1, "rounds": 1, "accuracies": {}, "seconds_per_round": 1.0}
    results |= dict.fromkeys(("ga_final", "ga_best", "pa_final", "pa_before_final"))
    patches = {
        "tff_pcdd.training.run_experiment": lambda *_, **__: results,
        "tff_pcdd.studies.compare": lambda *_, **__: ("table", []),
        "tff_pcdd.studies.sweep": lambda *_, **__: ("table", None, []),
        "tff_pcdd.studies.sweep_methods": lambda *_, **__: ("tables", {}, []),
        "tff_pcdd.training.evaluate_run": lambda *_, **__: results,
        "tff_pcdd.export.iter_export": lambda *_, **__: [],
        "tff_pcdd.export.served.ServedModel": _Model,
        "tff_pcdd.report.partition.write": lambda *_: "drawn",
        "benchmarks.suite.run": lambda *_, **__: "measured",
    }
    with contextlib.ExitStack() as stack:
        for target, replacement in patches.items():
            module, _, name = target.rpartition(".")
            stack.enter_context(
                mock.patch.object(importlib.import_module(module), name, replacement)
            )
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            logging.root.handlers[:] = log_handlers
            absl_logging.set_verbosity(verbosity)
            sys.meta_path[:] = finders


def run_program(program: str, *arguments: str) -> str:
    """Runs a program in this process, which has to refuse in one line, or to succeed."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            _module(program).run([program, *arguments])
        except SystemExit as end:
            status = end.code
    if status == 0:
        return SAME
    # Libraries may warn before.
    before, error, line = err.getvalue().partition(f"{program}: error: ")
    written = error + line
    assert "Traceback" not in before, before
    assert status in (1, 2), f"status {status}: {written}"
    assert written, before[-500:]
    assert all(character.isprintable() for character in written.strip()), ascii(written)
    return one_line(written)


def arguments_of(program: str, directory: Path) -> list[str]:
    if program in ("evaluate", "export"):
        (directory / "run").mkdir(exist_ok=True)
        text = json.dumps(ExperimentConfig().to_settings())
        (directory / "run" / "config.json").write_text(text)
    if program == "predict":
        model = directory / "exported" / "global" / "1"
        model.mkdir(parents=True, exist_ok=True)
        for path in (model / "saved_model.pb", directory / "a.png"):
            path.write_bytes(b"")
        (directory / "new.csv").write_text("path,text,label,site\na.png,to be,cat,Oslo\n")
    return [argument.format(directory=directory) for argument in PROGRAMS[program]]


def _check_flag(program: str, flag: str, needed: tuple[str, ...], directory: Path) -> str:
    """Every hostile value of one flag."""
    outcomes, failures = set(), []
    usual = arguments_of(program, directory)
    with nothing_is_computed(), _settings_come_back():
        for name in _SLOW.get(flag, VALUES):
            value = VALUES[name]
            if name == "root" and (program, flag) == _NO_ROOT:
                continue
            # The results belong into the case's directory, and the run is one of it.
            if flag in ("output_dir", "output_file", "export_dir", "run_dir"):
                value = f"{directory}/{value}" if value else value
            try:
                outcomes.add(run_program(program, *usual, *needed, f"--{flag}={value}"))
            except Exception as error:
                failures.append(f"{name}: {describe_error(error)}")
    assert not failures, "\n".join(failures)
    return SAME if outcomes == {SAME} else REFUSED


def describe_error(error: Exception) -> str:
    """An unexpected error and where it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "tff_pcdd" in frame.filename] or frames
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{type(error).__name__} in {place}: {error!s:.300}"


@contextlib.contextmanager
def _settings_come_back() -> Iterator[None]:
    """Checks of every experiment that is accepted that config.json can hold it."""
    created = ExperimentConfig.from_settings.__func__

    def from_settings(cls, **settings):
        config = created(cls, **settings)
        text = json.dumps(config.to_settings(), allow_nan=False)
        text.encode()
        if created(cls, **json.loads(text)) != config:
            raise SilentDifference(f"config.json holds other settings than {settings}")
        return config

    with mock.patch.object(ExperimentConfig, "from_settings", classmethod(from_settings)):
        yield


def _flagfiles() -> dict[str, bytes | None]:
    """Contents of flagfiles; None for a directory."""
    return {
        "empty": b"",
        "comments": b"# one\n// two\n\n",
        "unknown flag": b"--no_such_flag=1\n",
        "no flag": b"rounds\n",
        "value missing": b"--seed\n",
        "binary": bytes(range(256)),
        "UTF-16": "--verbosity=1\n".encode("utf-16"),
        "byte order mark": b"\xef\xbb\xbf--verbosity=1\n",
        "Latin-1": "--output_dir=é\n".encode("latin-1"),
        "NUL": b"--verbosity=\0\n",
        "escape sequence": b"--\x1b[31m=1\n",
        "long line": b"--x" + b"y" * 100_000,
        "many lines": b"--verbosity=1\n" * 20_000,
        "itself": b"--flagfile={path}\n",
        "missing file": b"--flagfile=/no/such/file\n",
        "missing module": b"--import=no.such.module\n",
        "module that is no name": b"--import=../evil\n",
        "Windows lines": b"--verbosity=1\r\n",
        "end of flags": b"--\n--verbosity=1\n",
        "directory": None,
    }


def _check_flagfile(program: str, content: bytes | None, directory: Path) -> str:
    path = directory / "fuzzed.flags"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content.replace(b"{path}", str(path).encode()))
    with nothing_is_computed():
        return run_program(program, *arguments_of(program, directory), f"--flagfile={path}")


@functools.cache
def _config() -> dict[str, object]:
    """The settings of a run, with those of all its kinds of components."""
    known = {setting.name: setting.default for setting in describe(ExperimentConfig)}
    return {**known, "no_such_setting": 1, "flagfile": "x", "import": "x", "": 1}


# Values for each setting in config.json, as JSON.
_JSON = (
    *(
        "null",
        "true",
        "false",
        "[]",
        "{}",
        '""',
        '"x"',
        '"\\ud800"',
        '"\\u0000"',
        "NaN",
        "Infinity",
    ),
    *("-Infinity", "1e400", "-1", "0", "1.5", "2147483648", "9223372036854775808", "1" * 400),
    *("1" * 5000, '"' + "x" * 100_000 + '"', "[" * 2000 + "]" * 2000, '{"a": 1}', '"../.."'),
)


def _check_value(name: str, directory: Path) -> str:
    """Every hostile value of one setting of config.json."""
    outcomes, failures = set(), []
    settings = _needed(name)
    for value in _JSON:
        kept = [f"{json.dumps(key)}: {json.dumps(own)}" for key, own in settings.items()]
        text = "{" + ", ".join([*kept, f"{json.dumps(name)}: {value}"]) + "}"
        (directory / "config.json").write_text(text)
        try:
            outcomes.add(_read(directory))
        except Exception as error:
            failures.append(f"{value[:100]}: {describe_error(error)}")
    assert not failures, "\n".join(failures)
    return SAME if outcomes == {SAME} else REFUSED


def _needed(name: str) -> dict[str, object]:
    """Settings with which a setting applies."""
    settings: dict[str, object] = {"algorithm": "fedavg", "dataset": "digits", "model": "mlp"}
    for setting in describe(ExperimentConfig):
        if setting.name == name and setting.chosen_by is not None:
            owner = setting.applies_to[0]
            settings[setting.chosen_by] = owner
            for flag in _OWNERS.get(owner, ()):
                other, _, value = flag.lstrip("-").partition("=")
                settings[other] = int(value) if value.isdecimal() else value
    return {key: value for key, value in settings.items() if key != name}


def _read(directory: Path) -> str:
    """Reads config.json; the settings have to be those of the file, and to come back."""
    try:
        config = run_directory.read_config(directory)
    except SettingError as error:
        return one_line(error)
    found = config.to_settings()
    text = json.dumps(found, allow_nan=False)
    text.encode()
    stated = json.loads((directory / "config.json").read_bytes())
    for name, value in stated.items():
        if value is not None and not _equal(found.get(name), value):
            raise SilentDifference(f"{name} is {found.get(name)!r:.80}, stated is {value!r:.80}")
    if ExperimentConfig.from_settings(**json.loads(text)) != config:
        raise SilentDifference("the settings do not come back")
    return SAME


def _equal(found: object, stated: object) -> bool:
    if isinstance(found, float) and isinstance(stated, float | int):
        return math.isclose(found, stated, rel_tol=1e-15)
    return found == stated or (found is None and stated == "")


def _check_bytes(number: int, directory: Path) -> str:
    """The config.json of a run with random changes of its bytes."""
    config = ExperimentConfig.from_settings(algorithm="fedgela", rounds=3)
    text = json.dumps(config.to_settings(), indent=2).encode()
    (directory / "config.json").write_bytes(mutate(text, random.Random(number)))
    return _read(directory)
