"""The flags of a program, created from settings; see `help` for how they are listed."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags as absl_flags

from tff_pcdd import methods, other_names
from tff_pcdd.cli import flagfiles
from tff_pcdd.errors import SettingError, question
from tff_pcdd.settings import Setting, describe, objection_to_type, registries, split_names

if TYPE_CHECKING:
    from tff_pcdd.registry import Registry


class _Plain(absl_flags.ArgumentParser):
    """A parser that says what a value must be; absl's own name Python's functions."""

    expected: str

    def parse(self, argument):
        try:
            return super().parse(argument)
        except (ValueError, TypeError):
            raise ValueError(f"must be {self.expected}") from None


class _WholeNumber(_Plain, absl_flags.IntegerParser):
    expected = "a whole number"


class RoundNumber(_WholeNumber):
    """The number of a round, or "best"."""

    expected = "a whole number, or best"

    def parse(self, argument):
        return argument if argument == "best" else super().parse(argument)

    def flag_type(self):
        return "round"


class _Number(_Plain, absl_flags.FloatParser):
    expected = "a number"


class _Truth(_Plain, absl_flags.BooleanParser):
    expected = "true or false"


class _Names(absl_flags.ListParser):
    """Empty names do not count, as in settings."""

    def parse(self, argument):
        return split_names(super().parse(argument))


# Flags that are now those of another program, or have another name.
_MOVED = {
    "jit_compile": "write --compile=step",
    "nojit_compile": "write --compile=off",
} | dict.fromkeys(
    ("publish_dir", "add_methods"),
    "`python -m publication`, in a clone, makes the pages about published sweeps",
)

# What command lines may contain besides the flags of a program.
_RESERVED = ("flagfile", "config", "undefok", "h", "help", "helpshort", "helpfull")

# What every program has besides its flags; they are no values of `Flags`.
_OF_ALL = ("flagfile", "config", "help", "helpfull", "version")

# The most unknown flags that an error names.
_MOST_UNKNOWN = 3

# The values of a Boolean flag.
_SWITCH = ["true", "false"]

# Ends of the names of flags that are paths of results, unless they are settings.
_RESULTS = ("_dir", "_dirs", "_file")

# The types of flags as their parsers call them; all others are texts.
_KINDS: dict[str, type] = {"bool": bool, "int": int, "float": float, "round": object}

# Settings of one run, and the flags of programs that have several.
_SEVERAL = {"algorithm": "algorithms", "seed": "seeds"}

# What reads the flags of a type from the command line.
_PARSERS: dict[Any, absl_flags.ArgumentParser] = {
    int: _WholeNumber(),
    RoundNumber: RoundNumber(),
    float: _Number(),
    list: _Names(),
}


class Flags:
    """The flags of one program, separate from those of other programs in the same process.

    Args:
        argv: the command line, with the program's name first.

    Attributes:
        groups: the names of the flags by the heading under which the help lists them.
        settings: what the flags that are settings stand for, by name.
    """

    def __init__(self, argv: Sequence[str]):
        self._argv = list(argv)
        self._values = absl_flags.FlagValues()
        self.groups: dict[str, list[str]] = {}
        self.settings: dict[str, Setting] = {}
        self._registries: dict[str, Registry] = {}

    # Definitions.

    def add(self, kind: Any, name: str, default: Any, text: str, group: str = "Output") -> None:
        """Defines a flag that is not a setting.

        Args:
            kind: a type (bool, int, float, str, list, RoundNumber), the choices, or one of absl's
                DEFINE functions.

        Raises:
            SettingError: a registered component has an option of this name.
        """
        self._refuse_taken(name, self.settings.get(name))
        if isinstance(kind, tuple):
            absl_flags.DEFINE_enum(name, default, list(kind), text, flag_values=self._values)
        elif kind in _PARSERS:
            serializer = absl_flags.CsvListSerializer(",") if kind is list else None
            parser = _PARSERS[kind]
            absl_flags.DEFINE(parser, name, default, text, self._values, serializer)
        elif kind is bool:
            flag = absl_flags.BooleanFlag(name, default, text)
            flag.parser = _Truth()
            absl_flags.DEFINE_flag(flag, self._values)
        else:
            define = absl_flags.DEFINE_string if kind is str else kind
            define(name, default, text, flag_values=self._values)
        self.groups.setdefault(group, []).append(name)

    def add_settings(
        self, cls: type, *, groups: Collection[str] = (), leave_out: Collection[str] = ()
    ) -> None:
        """Defines a flag for each setting of a dataclass.

        Args:
            cls: its fields are made by the functions of `tff_pcdd.settings`.
            groups: only the settings under these headings; all by default.
            leave_out: names of settings that get no flag.

        Raises:
            SettingError: an option of a registered component has the name of another flag.
        """
        self._registries |= {registry.setting: registry for registry in registries(cls)}
        for setting in describe(cls):
            if setting.name not in leave_out and (not groups or setting.group in groups):
                self._add_setting(setting)

    def _refuse_taken(self, name: str, setting: Setting | None) -> None:
        """Refuses an option of a registered component if its flag has another meaning."""
        if setting is None or not setting.chosen_by or name not in {*self.names(), *_RESERVED}:
            return
        owner = self._registries[setting.chosen_by].get(setting.applies_to[0])
        raise SettingError(
            setting.chosen_by,
            "|".join(setting.applies_to),
            f"the option {name!r} of {owner.__module__}.{owner.__qualname__} has the name of "
            f"another flag; rename it",
        )

    def _add_setting(self, setting: Setting) -> None:
        self._refuse_taken(setting.name, setting)
        text, group = setting.help, setting.group
        if setting.chosen_by is not None:
            owners = "|".join(setting.applies_to)
            # Methods have many options, so each method gets a heading of its own, below the options
            # of all methods.
            if setting.chosen_by == "algorithm":
                if setting.applies_to != tuple(methods.names()):
                    group = f"Method {owners}"
            else:
                text = f"{text} Only with --{setting.chosen_by}={owners}."
        self.add(setting.choices or setting.type, setting.name, setting.default, text, group)
        self.settings[setting.name] = setting

    # Values.

    @property
    def arguments(self) -> list[str]:
        """The command line as it was typed, without the program."""
        return self._argv[1:]

    def parse(self) -> None:
        """Reads the command line.

        Raises:
            absl.flags.Error: the value of a flag is invalid.
            SettingError: a flag is unknown, an argument is no flag, or a flagfile cannot be used.
        """
        try:
            expanded = flagfiles.expand(self._argv[1:], self)
        except SettingError as error:
            raise SettingError("", None, f"--{error}") from None
        try:
            rest = self._values([self._argv[0], *expanded])
        except absl_flags.UnrecognizedFlagError as error:
            names = [error.flagname, *self._further_unknown(error.flagname, expanded)]
            reason = "; ".join(f"--{name}: {self._unknown(name)}" for name in names)
            reason = reason.replace("?; ", "? ")
            raise SettingError("", None, reason) from None
        except RecursionError:  # absl searches for similar names recursively
            reason = "a flag is unknown, and its name is too long to be shown"
            raise SettingError("", None, reason) from None
        if rest[1:]:
            raise SettingError("", None, self._unexpected(expanded, rest[1]))

    def _unexpected(self, arguments: Sequence[str], unexpected: str) -> str:
        """The error about an argument that is no flag, with what may be meant."""
        reason = f"unexpected argument {unexpected!r}"
        for name, values in self._with_words(arguments):
            if unexpected in values[1:] and name in self.names() and self._is_list(name):
                return f"{reason}; write --{name}={','.join(split_names(','.join(values)))}"
        is_flag = unexpected.partition("=")[0] in self.names()
        meant = question([unexpected] if is_flag else [], prefix="--")
        return f"{reason}; flags start with --{meant}"

    @staticmethod
    def _with_words(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
        """The flags among arguments, each with its value and the words that follow."""
        found: list[tuple[str, list[str]]] = []
        for argument in arguments:
            if argument.startswith("-"):
                flag, equals, value = argument.lstrip("-").partition("=")
                found.append((flag, [value] if equals else []))
            elif found:
                found[-1][1].append(argument)
        return found

    def _is_list(self, name: str) -> bool:
        """Whether commas separate the values of a flag."""
        about = self.about(name).lower()
        is_list = isinstance(self._values[name].parser, absl_flags.ListParser)
        return is_list or "separated by commas" in about or "comma-separated" in about

    def _further_unknown(self, name: str, arguments: Sequence[str]) -> list[str]:
        """The unknown flags among arguments besides the first one; only a few of many."""
        found = [name]
        while len(found) < _MOST_UNKNOWN:
            try:
                self._values([self._argv[0], f"--undefok={','.join(found)}", *arguments])
            except absl_flags.UnrecognizedFlagError as error:
                found.append(error.flagname)
            except (absl_flags.Error, RecursionError):
                break
            else:
                break
        return found[1:]

    def _unknown(self, name: str) -> str:
        """The error about an unknown flag: who has it, and what may be meant."""
        reason = "there is no such flag"
        if moved := _MOVED.get(name):
            return f"{reason}; {moved}"
        plain = name.replace("-", "_").removeprefix("no_")
        if plain != name.replace("-", "_") and plain in self and self.choices(plain) == _SWITCH:
            return f"{reason}; write --no{plain}"
        # A line of a flagfile.
        first, _, value = name.partition(" ")
        if value and first in self.names():
            return f"{reason}; write --{first}={value.strip()}"
        # Not at the top, because the programs import this module.
        from tff_pcdd.cli import other_programs

        owners = other_programs.having(name)
        elsewhere = f"; it is a flag of {', '.join(owners)}" if owners else ""
        meant = question(other_names.similar(name, [*self.names(), *_OF_ALL]), prefix="--")
        return (
            f"{reason}{elsewhere}{meant}" if elsewhere or meant else f"{reason}; --help lists them"
        )

    # For settings in files.

    def unknown(self, name: str) -> str | None:
        """What is wrong with the name of a flag, also of one that `no` switches off."""
        known = {name, name.removeprefix("no")} & {*self.names()}
        return None if known else self._unknown(name)

    def also(self, name: str) -> str:
        """The flag for a setting of one run, which a program of several runs may have instead."""
        several = _SEVERAL.get(name, name)
        return several if name not in self and several in self else name

    def check(self, name: str, value: Any) -> None:
        """Checks a setting that a file contains with its type.

        Raises:
            ValueError: there is no such flag, or its values are of another type.
        """
        if name not in self.names():
            raise ValueError(self._unknown(name))
        kind = self._values[name].flag_type()
        takes_several = "list" in kind or "multi" in kind
        if isinstance(value, list) and (takes_several or kind == "string"):
            return
        if takes_several and type(value) in (int, float):
            return
        if reason := objection_to_type(value, _KINDS.get(kind, str)):
            raise ValueError(reason)

    def __contains__(self, name: object) -> bool:
        return str(name) in self._values

    def __getitem__(self, name: str) -> Any:
        """The value of a flag; the default if it was not given.

        The home directory stands for `~` at the beginning of a path of results, as it does in
        settings that are paths: shells replace it in `--output_dir ~/runs`, and not after "=".
        """
        value = self._values[name].value
        if name in self.settings or not value or not name.endswith(_RESULTS):
            return value
        if isinstance(value, list):
            return [os.path.expanduser(path) for path in value]
        return os.path.expanduser(value)

    def is_given(self, name: str) -> bool:
        """Whether the command line or a flagfile names the flag."""
        return name in self._values and bool(self._values[name].present)

    def refuse_given(self, names: Sequence[str], reason: str) -> None:
        """Refuses flags that would have no effect; a switch that is off asks for none.

        Raises:
            SettingError: one of the flags is given; it says why.
        """
        for name in filter(self.is_given, names):
            value = self[name]
            if value is not False:
                shown = ",".join(value) if isinstance(value, list) else value
                raise SettingError(name, shown, reason)

    def is_typed(self, name: str) -> bool:
        """Whether the command line itself names the flag, not only a flagfile."""
        typed = {argument.lstrip("-").partition("=")[0] for argument in self._argv[1:]}
        return bool(typed & {name, f"no{name}"})

    def given_settings(self, cls: type) -> dict[str, Any]:
        """The settings of a dataclass that the command line or a flagfile names.

        What a flagfile says of a component does not count if the command line replaces it with
        another one: after `--client_optimizer=adam`, a flagfile's `--client_momentum` is left out.
        Neither does a switch of another component that is off, as it is by default.
        """
        names = [setting.name for setting in describe(cls)]
        return {name: self[name] for name in names if self.is_given(name) and self._applies(name)}

    def _applies(self, name: str) -> bool:
        """Whether a setting is to be used, or to be refused if its component is not chosen."""
        setting = self.settings.get(name)
        chooser = None if setting is None else setting.chosen_by
        if setting is None or chooser is None or chooser not in self:
            return True
        if self[chooser] in setting.applies_to:
            return True
        if self[name] is False and not setting.default:
            return False
        return self.is_typed(name) or not self.is_typed(chooser)

    def parse_value(self, name: str, text: str) -> Any:
        """Converts a text to the type of a flag.

        Raises:
            ValueError: the text is not valid for this flag.
        """
        return self._values[name].parser.parse(text)

    def required(self, name: str) -> Any:
        """The value of a required flag.

        Raises:
            SettingError: it was not given.
        """
        value = self[name]
        if value in (None, "", []):
            raise SettingError(name, None, "is required")
        return value

    # For the help.

    def names(self) -> list[str]:
        """The names of all flags, in the order of their groups."""
        return [name for names in self.groups.values() for name in names]

    def about(self, name: str) -> str:
        """The help text of a flag."""
        # If a flag can be repeated, absl appends a semicolon and a line that says so to its help.
        return self._values[name].help.splitlines()[0].removesuffix(";")

    def choices(self, name: str) -> list[str]:
        """The values of a flag that has a fixed set of them; empty for others."""
        parser = self._values[name].parser
        if isinstance(parser, absl_flags.BooleanParser):
            return _SWITCH
        return list(getattr(parser, "enum_values", ()))

    def usage(self, name: str) -> str:
        """How a flag is given: `--rounds=`, `--overwrite`, or `--noreport` if it is on."""
        flag = self._values[name]
        if flag.flag_type() != "bool":
            return f"--{name}="
        return f"--no{name}" if flag.default else f"--{name}"

    def default(self, name: str) -> str:
        """The default of a flag as text; empty if there is none."""
        flag = self._values[name]
        if flag.flag_type() == "bool":
            return str(flag.default).lower()
        return (flag.default_as_str or "").strip("'")
