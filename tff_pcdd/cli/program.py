"""What the programs share: flags made from declared options, help, and one-line errors.

A flag exists for every option of `ExperimentConfig` and `RunOptions`, and for every option of every
method under `--<method>_<option>`. Nothing here imports TensorFlow, so that `--help` and a mistyped
flag answer at once.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags, logging

from tff_pcdd import methods
from tff_pcdd.data import DataError
from tff_pcdd.data.preprocessing import broken_images
from tff_pcdd.options import OptionError, option_fields
from tff_pcdd.runtime import RuntimeStartError, WorkerDiedError, WorkersLostError
from tff_pcdd.training import ExperimentConfig, RunOptions

FLAGS = flags.FLAGS

# Flags by heading, in the order in which --help shows them.
_GROUPS: dict[str, list[str]] = {}


def _define(name: str, metadata, group: str) -> None:
    kind, default, text = metadata["type"], metadata["default"], metadata["help"]
    if metadata["only"]:
        conditions = " and ".join(
            f"--{other}={'|'.join(values)}" for other, values in metadata["only"].items()
        )
        text = f"{text} Only with {conditions}."
    if metadata["choices"]:
        flags.DEFINE_enum(name, default, list(metadata["choices"]), text)
    elif kind is bool:
        flags.DEFINE_boolean(name, default, text)
    elif kind is int:
        flags.DEFINE_integer(name, default, text)
    elif kind is float:
        flags.DEFINE_float(name, default, text)
    else:
        flags.DEFINE_string(name, default, text)
    _GROUPS.setdefault(group, []).append(name)


def define_options(cls: type, *, groups: Sequence[str] = (), leave_out: Sequence[str] = ()) -> None:
    """Defines a flag for every option of a dataclass, or for those under some headings."""
    for field in option_fields(cls):
        if field.name not in leave_out and (not groups or field.metadata["group"] in groups):
            _define(field.name, field.metadata, field.metadata["group"])


def define_experiment(*, leave_out: Sequence[str] = ()) -> None:
    """Defines the flags of an experiment, its methods and its run."""
    define_options(ExperimentConfig, leave_out=leave_out)
    for name, cls in sorted(methods.registry().items()):
        for field in option_fields(cls):
            _define(f"{name}_{field.name}", field.metadata, f"Method {name}")
    define_options(RunOptions)


def define_output() -> None:
    """Defines where the results of runs go, and whether there are any."""
    define(flags.DEFINE_string, "output_dir", None, "Where the results go; required.")
    define(
        flags.DEFINE_boolean,
        "overwrite",
        False,
        "Drop the results that --output_dir holds already.",
    )
    define(
        flags.DEFINE_boolean,
        "dry_run",
        False,
        "Only check all settings and print a line for each run; reads no data, writes nothing.",
    )


def define(kind: Callable, name: str, default: Any, text: str, group: str = "Output") -> None:
    """Defines a program's own flag, `kind` being one of absl's DEFINE functions."""
    kind(name, default, text)
    _GROUPS.setdefault(group, []).append(name)


def define_choice(name: str, default: str, choices: Sequence[str], text: str, group: str) -> None:
    """Defines a program's own flag that has one of a few values."""
    flags.DEFINE_enum(name, default, list(choices), text)
    _GROUPS.setdefault(group, []).append(name)


def _given(names: Sequence[str]) -> dict[str, Any]:
    """The values of those flags that the command line or a flagfile names."""
    return {name: FLAGS[name].value for name in names if name in FLAGS and FLAGS[name].present}


def _is_typed(name: str) -> bool:
    """Whether the command line itself names a flag, not only a flagfile."""
    typed = {argument.lstrip("-").partition("=")[0] for argument in sys.argv[1:]}
    return bool(typed & {name, f"no{name}"})


def read_config(algorithm: str | None = None, selected: Sequence[str] = (), **fixed):
    """The experiment that the flags describe.

    Args:
        algorithm: the method; `--algorithm` by default.
        selected: methods whose flags may be typed beside it, when several are compared.
        **fixed: settings and options of the method, by their flags, that do not come from flags.

    Raises:
        OptionError: a flag cannot be used, or was typed for a method that was not chosen. In a
            flagfile such flags may stand: one file serves any choice among its methods.
    """
    algorithm = algorithm or FLAGS.algorithm
    method = methods.get(algorithm)
    for name, cls in methods.registry().items():
        if name == algorithm or name in selected:
            continue
        for flag in filter(_is_typed, _given([f"{name}_{f.name}" for f in option_fields(cls)])):
            raise OptionError(
                f"--{flag}={FLAGS[flag].value}: applies to {name}, and the method is "
                f"{', '.join(selected) or algorithm}"
            )
    names = [f"{algorithm}_{field.name}" for field in option_fields(method)]
    options = _given(names) | {name: fixed.pop(name) for name in names if name in fixed}
    given = _given([field.name for field in option_fields(ExperimentConfig)])
    given.update(fixed, algorithm=algorithm)
    given["method_options"] = {
        name.removeprefix(f"{algorithm}_"): value for name, value in options.items()
    }
    return ExperimentConfig(**given)


def read_run_options() -> RunOptions:
    """How to run, as the flags say."""
    return RunOptions(**_given([field.name for field in option_fields(RunOptions)]))


def required(name: str) -> Any:
    """The value of a flag that has to be given.

    Raises:
        OptionError: it is not.
    """
    value = FLAGS[name].value
    if value in (None, "", []):
        raise OptionError(f"--{name}: is required")
    return value


def read_seeds() -> list[int]:
    """The values of `--seeds`.

    Raises:
        OptionError: one is not a whole number of 0 or more, or none is given.
    """
    given = required("seeds")
    if not all(seed.isdecimal() for seed in given):
        raise OptionError(f"--seeds={','.join(given)}: give whole numbers, as 0,1,2")
    return [int(seed) for seed in given]


def failed_runs(program: str, failures: Sequence[str], number: int, output_dir: str) -> str:
    """What a program that made many runs says of those that failed."""
    return (
        f"{program}: error: {len(failures)} of {number} runs failed, the same command tries them "
        f"again; tracebacks in {output_dir}/failures.txt\n" + "\n".join(failures)
    )


def percent(value: float | None) -> str:
    """An accuracy in print; a dash where there was nothing to measure it on."""
    return "–" if value is None else f"{value:.2f}"


def _print_help(doc: str) -> None:
    print(doc.strip())
    print(
        "\nBoolean flags are switched off by --no<flag>; --flagfile=PATH reads flags from a file."
    )
    for group, names in _GROUPS.items():
        print(f"\n{group}:")
        for name in names:
            flag = FLAGS[name]
            default = (
                "" if flag.default in (None, "") else f" [{flag.default_as_str.strip(chr(39))}]"
            )
            if flag.flag_type() == "bool":
                default = f" [{str(flag.default).lower()}]"
            text = textwrap.fill(
                f"{flag.help.splitlines()[0]}",
                96,
                initial_indent=" " * 6,
                subsequent_indent=" " * 6,
            )
            print(f"  --{name}{default}\n{text}")


def run(main: Callable[[], None]) -> None:
    """Runs a program: parses flags, turns expected errors into one line and an exit status.

    Exit status 2 means that the command could not be used, 1 that it failed, 130 that it was
    interrupted, 143 that it was terminated.
    """
    # Not "__main__", which is another script where a program is called by its console entry.
    module = sys.modules[main.__module__]
    program = os.path.splitext(os.path.basename(sys.argv[0]))[0]

    def fail(message: str, status: int):
        line = " ".join(str(message).split())
        print(f"{program}: error: {line}", file=sys.stderr)
        sys.exit(status)

    def parse(argv):
        if {"--help", "-h", "-help", "--helpshort"} & set(argv[1:]):
            _print_help(module.__doc__)
            sys.exit(0)
        try:
            rest = FLAGS(argv)
        except flags.Error as error:
            fail(str(error).removeprefix("ERROR:: "), 2)
        if rest[1:]:
            fail(f"unexpected argument {rest[1]!r}; flags start with --", 2)
        return rest

    def guarded():
        signal.signal(signal.SIGTERM, _terminate)
        if not FLAGS["verbosity"].present:
            # The notes of TFF and tfds on every step they take would bury the progress bar.
            logging.set_verbosity(logging.WARNING)
        try:
            main()
        except (OptionError, DataError) as error:
            fail(_name_flags(str(error)), 2)
        except (RuntimeStartError, WorkerDiedError, WorkersLostError) as error:
            fail(error, 1)
        except KeyboardInterrupt:
            print(f"{program}: interrupted; the same command goes on from here", file=sys.stderr)
            sys.exit(130)
        except Exception as error:
            broken = broken_images(str(error))
            if broken is None:
                raise
            fail(broken, 1)

    # Not absl's app.run: TensorFlow imported within it looks for GPUs before it has switched to
    # eager execution, and Keras then cannot build models outside of a graph.
    logging.use_absl_handler()
    parse(sys.argv)
    guarded()


def _name_flags(message: str) -> str:
    """Puts -- before settings in a message of the data package, which knows no flags."""
    return re.sub(
        r"(?<![-\w./=])(\w+)(?==)|(?<![-\w./=])(\w+_\w+)",
        lambda match: f"--{match[0]}" if match[0] in FLAGS else match[0],
        message,
    )


def _terminate(*_):
    """Ends the program as an exception does, so that workers and files are closed."""
    sys.exit(143)
