"""What the programs print for `--help`, `--help=TOPIC` and `--helpfull`."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tff_pcdd import other_names
from tff_pcdd.errors import SettingError, question
from tff_pcdd.settings import describe, registries
from tff_pcdd.training import ExperimentConfig, RunOptions

if TYPE_CHECKING:
    from tff_pcdd.cli.flags import Flags
    from tff_pcdd.registry import Registry

_FULL = "--helpfull"
_SHORT = ("--help", "-h", "-help", "--helpshort")

# The settings that most runs need; flags that belong to a program itself are shown with them.
_COMMON = (
    "algorithm",
    "dataset",
    "data_dir",
    "partition",
    "num_clients",
    "classes_per_client",
    "concentration",
    "model",
    "rounds",
    "clients_per_round",
    "local_epochs",
    "batch_size",
    "client_learning_rate",
    "validation_fraction",
    "seed",
    "runtime",
    "parallel_runs",
)

# Settings that choose a component, and what users call the components.
_COMPONENTS = {
    "algorithm": "methods",
    "head_calibration": "head calibrations",
    "dataset": "data sets",
    "partition": "partitions",
    "model": "models",
    "client_optimizer": "local optimizers",
    "schedule": "schedules",
    "aggregator": "aggregators",
    "server_optimizer": "server optimizers",
    "metrics": "metrics",
    "runtime": "runtimes",
}

_SYNTAX = (
    "--no<flag> switches off a Boolean flag; --flagfile=PATH or --config=PATH.toml reads a file."
)
_WIDTH = 96
# Where a line may end: at spaces, and between the names of components.
_BREAKS = re.compile(r"(\s+|(?<=\w\|)(?=\w))")
# Lines of a text that fits two screens.
_TWO_SCREENS = 100


def requested(arguments: Iterable[str]) -> str | None:
    """What a command line asks for: "" for `--help`, "full", a topic, or None for no help.

    Example:
        >>> requested(["--rounds=3", "--help=fedgela"])
        'fedgela'
    """
    given = list(arguments)
    if _FULL in given:
        return "full"
    for argument, following in itertools.zip_longest(given, given[1:], fillvalue="-"):
        flag, _, topic = argument.partition("=")
        if flag in _SHORT:
            return topic or ("" if following.startswith("-") else following)
    return None


def text(flags: Flags, doc: str, topic: str) -> str:
    """The help of a program.

    Args:
        topic: as returned by `requested`.

    Raises:
        SettingError: there is no such topic.
    """
    if topic == "full":
        return full(flags, doc)
    if topic:
        return part(flags, topic)
    whole = full(flags, doc)
    return whole if whole.count("\n") < _TWO_SCREENS else short(flags, doc)


def full(flags: Flags, doc: str) -> str:
    """All flags, under their headings."""
    groups = [_group(flags, group, names) for group, names in flags.groups.items()]
    return "\n\n".join([doc.strip(), _SYNTAX, *groups])


def short(flags: Flags, doc: str) -> str:
    """The flags that most runs need, in a line each, and the names under which others are."""
    shared = {each.name for cls in (ExperimentConfig, RunOptions) for each in describe(cls)}
    common = [name for name in flags.names() if name not in shared or name in _COMMON]
    groups = dict.fromkeys(group.partition(" ")[0] for group in flags.groups)
    topics = {"groups": list(groups)}
    known = {_COMPONENTS.get(r.setting, r.setting): r.names() for r in _registries(flags)}
    topics |= {title: names for title, names in known.items() if names}
    named = [
        textwrap.fill(
            f"  {what}: {', '.join(names)}",
            _WIDTH,
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        for what, names in topics.items()
    ]
    return "\n".join(
        [
            doc.strip(),
            "\nThe flags that most runs need, with their defaults:\n",
            *(_in_one_line(flags, name) for name in common),
            f"\n{_SYNTAX}",
            f"{_FULL} lists all {len(flags.names())} flags; --help=NAME explains a flag, or all "
            "flags of one of these:\n",
            *named,
        ]
    )


def part(flags: Flags, topic: str) -> str:
    """The flags of a group or of a component, or a single flag.

    Raises:
        SettingError: there is nothing of that name.
    """
    name = topic.lstrip("-")
    found = [_component(flags, each, name) for each in _registries(flags) if name in each.names()]
    found += [
        _group(flags, group, names)
        for group, names in flags.groups.items()
        if group.partition(" ")[0].lower() == name.lower()
    ]
    if not found and name in flags:
        found.append(_describe(flags, name))
    if not found:
        known = [*flags.names(), *flags.groups]
        known += itertools.chain(*(registry.names() for registry in _registries(flags)))
        meant = question(other_names.similar(name, known), prefix="--help=")
        advice = meant or "; --help lists all names"
        reason = f"--help={topic}: there is nothing of that name{advice}"
        raise SettingError("", None, reason)
    return "\n\n".join(found)


def _registries(flags: Flags) -> list[Registry]:
    """The components that can be chosen by a flag of the program, or have settings in it."""
    choosers = {*flags.names(), *(setting.chosen_by for setting in flags.settings.values())}
    found = [*registries(ExperimentConfig), *registries(RunOptions)]
    return [registry for registry in found if registry.setting in choosers]


def _component(flags: Flags, registry: Registry, name: str) -> str:
    """What a component is, and its flags."""
    about = (registry.get(name).__doc__ or "").strip().partition("\n")[0]
    own = [
        setting.name
        for setting in flags.settings.values()
        if setting.chosen_by == registry.setting and name in setting.applies_to
    ]
    heading = f"--{registry.setting}={name}: {about}"
    return _group(flags, heading, own) if own else f"{heading}\n  It has no flags of its own."


def _group(flags: Flags, heading: str, names: Iterable[str]) -> str:
    end = "" if heading.endswith(".") else ":"
    return "\n".join([f"{heading}{end}", *(_describe(flags, name) for name in names)])


def _describe(flags: Flags, name: str) -> str:
    """A flag with its default, and what it means."""
    wrapper = textwrap.TextWrapper(_WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    wrapper.wordsep_re = _BREAKS
    text = wrapper.fill(flags.about(name))
    default = flags.default(name)
    return f"  --{name}{f' [{default}]' if default else ''}\n{text}"


def _in_one_line(flags: Flags, name: str) -> str:
    """A flag with its default, and as many clauses of what is said about it as fit."""
    default = flags.default(name)
    usage = f"  --{name}{f' [{default}]' if default else ''}"
    # The values of a flag stand in front of the sentence.
    first, *further = re.split(r"(?<=[.;:]) ", re.sub(r"^<.*?>: ", "", flags.about(name)))
    about = itertools.accumulate(further, "{} {}".format, initial=first)
    fitting = [each.rstrip(".;:") for each in about if len(each.rstrip(".;:")) <= _WIDTH - 36]
    shown = fitting[-1] if fitting else textwrap.shorten(first, _WIDTH - 36, placeholder=" …")
    return f"{usage:34s} {shown}"
