"""Runs the programs of tff_pcdd.

    tff-pcdd train --algorithm=fedgela --dataset=digits --output_dir=runs/fedgela

does what `python -m tasks.train` does in a clone.
"""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Sequence

from tff_pcdd import calls, outputs, stack
from tff_pcdd._version import __version__
from tff_pcdd.errors import one_of, shown

PROGRAMS = (
    "train",
    "compare",
    "sweep",
    "evaluate",
    "export",
    "predict",
    "report",
    "runs",
    "partition",
    "doctor",
    "completion",
)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script.

    Args:
        argv: the name of the script, that of a program, and its arguments.

    Raises:
        SystemExit: there is no such program, or the program ends with a status.
    """
    if argv is None:
        outputs.install()
    arguments = list(sys.argv if argv is None else argv)[1:]
    if arguments[:1] == ["help"] and arguments[1:] and arguments[1] in PROGRAMS:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        with outputs.printing("tff-pcdd"):
            print(_help())
    elif arguments[0] == "--version":
        with outputs.printing("tff-pcdd"):
            print(version())
    elif arguments[0] in PROGRAMS:
        # Programs know by sys.argv that the process is theirs, and how they were started.
        sys.argv = arguments
        importlib.import_module(f"tff_pcdd.cli.{arguments[0]}").run()
    else:
        reason = one_of(arguments[0], (*PROGRAMS, "--help", "--version"))
        print(f"tff-pcdd: error: {shown(arguments[0])}: {reason}", file=sys.stderr)
        sys.exit(2)


def _help() -> str:
    lines = ["usage: tff-pcdd PROGRAM --FLAG=VALUE …", ""]
    for name in PROGRAMS:
        text = importlib.import_module(f"tff_pcdd.cli.{name}").__doc__ or ""
        lines.append(f"  {name:<10} {text.splitlines()[0]}")
    return "\n".join([*lines, "", "tff-pcdd PROGRAM --help lists flags; tff-pcdd --version"])


def version() -> str:
    """The versions of the package and of what it computes with, and the commit of a clone."""
    commit = calls.commit()
    packages = {
        "Python": platform.python_version(),
        "TensorFlow": stack.version("tensorflow"),
        "tf-keras": stack.version("tf-keras"),
        "TensorFlow Federated": stack.version("tensorflow-federated"),
    }
    found = ", ".join(f"{package} {number or 'missing'}" for package, number in packages.items())
    return f"tff_pcdd {__version__}{f' (commit {commit})' if commit else ''}\n{found}"
