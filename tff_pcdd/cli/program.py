"""The frame of every program: the user's modules, flags, help, errors and exit statuses."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import flags as absl_flags

from tff_pcdd import heavy, machine, outputs, stack, stages
from tff_pcdd.cli import flagfiles, front_door, help, messages, own_modules, signals
from tff_pcdd.cli.flags import Flags
from tff_pcdd.data.transforms import broken_images
from tff_pcdd.errors import DataError, SettingError, WriteError, one_of, printable
from tff_pcdd.runtime import ActorsLostError, RuntimeStartError, WorkerDiedError

# The most characters of an error, and those at its end that are shown of a longer one.
_LINE, _END = 500, 200

# What absl says of a value that is none of a flag's.
_CHOICE = re.compile(r"(--\w+=(.*)): value should be one of <(.*)>", re.DOTALL)

_NO_MEMORY = "there is not enough memory; what was complete is kept"
_NO_GPU_MEMORY = (
    "there is not enough memory on the GPU; lower --batch_size, --eval_batch_size or "
    "--clients_per_gpu, or end other programs on it; what was complete is kept"
)
# An operation without a deterministic implementation, or a random one without a seed.
_NOT_DETERMINISTIC = re.compile(
    r"[^\n]*(?i:determinis(m|tic)\b)[^\n]*"
    r"(not (yet |currently )?(supported|available)|enabled)[^\n]*"
)
# Of TensorFlow and of XLA, behind lines about nodes of the graph.
_ALLOCATION = re.compile(r"(OOM when|Out of memory|out of memory)[^\n]*")


def run(
    doc: str,
    define: Callable[[Flags], None],
    main: Callable[[Flags], None],
    argv: Sequence[str] | None = None,
    *,
    interrupted: str = "the same command resumes it",
) -> None:
    """Runs a program and turns expected errors into one line and an exit status.

    Status 2 means that a flag or the data cannot be used, 1 that the program failed, and 128 plus
    the number of a signal that this signal ended it: 130 for Ctrl-C, 143 for SIGTERM, 129 for
    SIGHUP.

    Args:
        doc: the description of the program in `--help`.
        define: defines the flags. It is called after the modules named by `--import` have been
            imported, so that the components which these modules register have flags too.
        main: does the work.
        argv: the command line; by default that of the process.
        interrupted: what a user can do after a signal.

    Raises:
        SystemExit: with the status, unless the program succeeds.
    """
    # After the end of the program, a signal simply ends its process.
    own_process, argv = argv is None, list(sys.argv if argv is None else argv)
    name = os.path.splitext(os.path.basename(argv[0]))[0]
    if own_process and argv[0] == name:
        # `tff-pcdd NAME`, which passes no path.
        doc = doc.replace("python -m tasks.", "tff-pcdd ")
    if own_process:
        outputs.install()
        heavy.own_process()
    with signals.Ending(name, restore=not own_process, hint=interrupted):
        _run(name, doc, define, main, argv)


def _run(
    name: str,
    doc: str,
    define: Callable[[Flags], None],
    main: Callable[[Flags], None],
    argv: list[str],
) -> None:
    """What `run` does, but for signals."""
    # Before a module of the user's can import TensorFlow, which sets up its own messages otherwise.
    flags, topic, arguments = Flags(argv), help.requested(argv[1:]), argv[1:]
    messages.install(name, flags)
    try:
        arguments = flagfiles.expand(arguments, only_trusted=True)
        own_modules.import_named(arguments)
    except SettingError as error:
        _refuse(name, arguments, f"--{error}")
    try:
        define(flags)
        define_own(flags)
        if topic is not None:
            with outputs.printing(name):
                print(help.text(flags, doc, topic))
            sys.exit(0)
        if "--version" in argv[1:] and "version" not in flags:
            with outputs.printing(name):
                print(front_door.version())
            sys.exit(0)
        flags.parse()
    except absl_flags.Error as error:
        _refuse(name, arguments, _shown_by_absl(error))
    except SettingError as error:
        _refuse(name, arguments, messages.with_dashes(error, flags))
    if stack.find_problem() is not None:
        sys.exit(2)  # `import tff_pcdd` has said why
    # Not absl's app.run: if TensorFlow is imported inside it, it looks for GPUs before it switches
    # to eager execution, and Keras then cannot build models outside of a graph.
    messages.set_level(flags["verbosity"])
    silent = "progress" in flags and not flags["progress"]
    try:
        with outputs.printing(name), contextlib.nullcontext() if silent else stages.shown(name):
            main(flags)
    except SettingError as error:
        _refuse(name, arguments, messages.with_dashes(error, flags))
    except DataError as error:
        _refuse(name, arguments, messages.as_typed(str(error), flags))
    except Exception as error:
        if (reason := _failure(error)) is None:
            raise
        _fail(name, reason)


def _failure(error: Exception) -> str | None:
    """Why a program has failed, if it is nothing that its authors can mend."""
    match error:
        case ActorsLostError() | RuntimeStartError() | WorkerDiedError():
            return str(error)
        case WriteError():
            return f"{error}; what was complete is kept, and the same command continues from there"
        case OSError():
            return None if error.filename is None else f"{error.filename}: {error.strerror}"
        case MemoryError():
            return f"{_NO_MEMORY} ({error})" if str(error) else _NO_MEMORY
    return broken_images(str(error)) or _lacking(error)


def _refuse(name: str, arguments: Sequence[str], message: str) -> NoReturn:
    """Ends a program of which a flag or the data cannot be used."""
    needed = own_modules.lacking(arguments)
    _fail(name, f"{needed} ({message})" if needed else message, status=2)


def _fail(name: str, message: str, status: int = 1) -> NoReturn:
    """Ends a program with one line, from whose middle a long value or list is left out."""
    line = printable(" ".join(message.split()))
    if len(line) > _LINE:
        line = f"{_words(line[: _LINE - _END])} … {_words(line[-_END:], first=False)}"
    print(f"{name}: error: {line}", file=sys.stderr)
    sys.exit(status)


def _words(text: str, *, first: bool = True) -> str:
    """The first or the last words of a text that was cut within one, unless little is left."""
    kept = text.rpartition(" ")[0] if first else text.partition(" ")[2]
    kept = kept.rstrip(",") if first else kept
    return kept if 2 * len(kept) > len(text) else text


def define_own(flags: Flags) -> None:
    """Defines the flags of every program."""
    flags.add(
        absl_flags.DEFINE_multi_string,
        "import",
        None,
        "A Python module of your own that registers methods, data sets, partitions, backbones, "
        "aggregators, optimizers, metrics or runtimes; repeat the flag for further modules.",
        "Program",
    )
    flags.add(
        absl_flags.DEFINE_multi_string,
        flagfiles.TRUST,
        None,
        "A flagfile or configuration that you have read and trust; once, so that it may do "
        "more than name plain settings of methods, data and training. It is known by its "
        "contents.",
        "Program",
    )
    flags.add(
        int, "verbosity", None, "Log level of absl; messages up to this level are shown.", "Program"
    )


def _lacking(error: Exception) -> str | None:
    """What the machine has too little of, or cannot compute, if an error says so."""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "the system allows this user no further thread; what was complete is kept"
    # TensorFlow's errors, which are not imported here; that of a client has one as its cause.
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).strip()
        if type(cause).__name__ == "ResourceExhaustedError":
            return _lacking_memory(text)
        if found := _NOT_DETERMINISTIC.search(text):
            return f"--deterministic: TensorFlow says: {found[0].strip()[:200]}; leave it out"
        cause = cause.__cause__
    return None


def _lacking_memory(text: str) -> str:
    """What to change if TensorFlow has no memory for a tensor."""
    found = _ALLOCATION.search(text)
    line = found[0] if found else text.partition("\n")[0]
    # XLA does not say where.
    on_gpu = "GPU" in text or ("device:CPU" not in text and machine.has_gpu_driver())
    return f"{_NO_GPU_MEMORY if on_gpu else _NO_MEMORY} ({line})"


def _shown_by_absl(error: absl_flags.Error) -> str:
    """An error about a flag, or a flagfile, without absl's own heading."""
    text = str(error).removeprefix("ERROR:: ").removeprefix("flag ")
    if choice := _CHOICE.fullmatch(text):
        return f"{choice[1]}: {one_of(choice[2], choice[3].split('|'))}"
    lacking = text.removeprefix("Missing value for flag ")
    return text if lacking == text else f"{lacking}: is given without a value"
