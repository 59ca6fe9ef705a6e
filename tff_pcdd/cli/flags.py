"""The flags of a program: created from settings, and listed under headings by `--help`."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from tff_pcdd import methods
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import Setting, describe

_HELP = {"--help", "-h", "-help", "--helpshort"}

# Which function of absl defines a flag of a type.
_DEFINE = {
    bool: absl_flags.DEFINE_boolean,
    int: absl_flags.DEFINE_integer,
    float: absl_flags.DEFINE_float,
    str: absl_flags.DEFINE_string,
}


class Flags:
    """The flags of one program, separate from those of other programs in the same process.

    Args:
        argv: the command line, with the program's name first.
    """

    def __init__(self, argv: Sequence[str]):
        self._argv = list(argv)
        self._values = absl_flags.FlagValues()
        self._groups: dict[str, list[str]] = {}
        self.settings: dict[str, Setting] = {}

    # Definitions.

    def add(self, kind: Any, name: str, default: Any, text: str, group: str = "Output") -> None:
        """Defines a flag that is not a setting.

        Args:
            kind: a type (bool, int, float, str), or one of absl's DEFINE functions.
            name: the name of the flag, without dashes.
            default: the default value; None for none.
            text: the help text.
            group: the heading under which `--help` lists it.
        """
        _DEFINE.get(kind, kind)(name, default, text, flag_values=self._values)
        self._groups.setdefault(group, []).append(name)

    def add_choice(
        self, name: str, default: str, choices: Sequence[str], text: str, group: str
    ) -> None:
        """Defines a flag that is not a setting and has a fixed set of values."""
        absl_flags.DEFINE_enum(name, default, list(choices), text, flag_values=self._values)
        self._groups.setdefault(group, []).append(name)

    def add_settings(
        self, cls: type, *, groups: Collection[str] = (), leave_out: Collection[str] = ()
    ) -> None:
        """Defines a flag for each setting of a dataclass.

        Args:
            cls: its fields are made by the functions of `tff_pcdd.settings`.
            groups: only the settings under these headings; all by default.
            leave_out: names of settings that get no flag.
        """
        for setting in describe(cls):
            if setting.name not in leave_out and (not groups or setting.group in groups):
                self._add_setting(setting)

    def _add_setting(self, setting: Setting) -> None:
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
        if setting.choices:
            self.add_choice(setting.name, setting.default, setting.choices, text, group)
        else:
            self.add(setting.type, setting.name, setting.default, text, group)
        self.settings[setting.name] = setting

    # Values.

    def parse(self) -> None:
        """Reads the command line.

        Raises:
            absl.flags.Error: a flag is unknown, or its value is invalid.
            SettingError: an argument is not a flag.
        """
        try:
            rest = self._values(self._argv)
        except RecursionError:  # absl searches for similar names recursively
            reason = "a flag is unknown, and its name is too long to be shown"
            raise SettingError("", None, reason) from None
        if rest[1:]:
            raise SettingError("", None, f"unexpected argument {rest[1]!r}; flags start with --")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        """The value of a flag; the default if it was not given."""
        return self._values[name].value

    def is_given(self, name: str) -> bool:
        """Whether the command line or a flagfile names the flag."""
        return name in self._values and bool(self._values[name].present)

    def is_typed(self, name: str) -> bool:
        """Whether the command line itself names the flag, not only a flagfile."""
        typed = {argument.lstrip("-").partition("=")[0] for argument in self._argv[1:]}
        return bool(typed & {name, f"no{name}"})

    def given_settings(self, cls: type) -> dict[str, Any]:
        """The settings of a dataclass that the command line or a flagfile names."""
        names = [setting.name for setting in describe(cls)]
        return {name: self[name] for name in names if self.is_given(name)}

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

    # Help.

    def asks_for_help(self) -> bool:
        """Whether the command line asks for help."""
        return bool(_HELP & set(self._argv[1:]))

    def help(self, doc: str) -> str:
        """The text of `--help`.

        Args:
            doc: describes the program.
        """
        parts = [
            doc.strip(),
            "--no<flag> switches off a Boolean flag; --flagfile=PATH reads flags from a file.",
        ]
        for group, names in self._groups.items():
            parts.append("\n".join([f"{group}:", *map(self._describe, names)]))
        return "\n\n".join(parts)

    def _describe(self, name: str) -> str:
        flag = self._values[name]
        default = "" if flag.default in (None, "") else f" [{flag.default_as_str.strip(chr(39))}]"
        if flag.flag_type() == "bool":
            default = f" [{str(flag.default).lower()}]"
        # If a flag can be repeated, absl appends a semicolon and a line that says so to its help.
        help = flag.help.splitlines()[0].removesuffix(";")
        text = textwrap.fill(help, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
        return f"  --{name}{default}\n{text}"


def shown(error: SettingError, flags: Mapping | Flags) -> str:
    """An error as the command line shows it: with dashes if the setting is a flag."""
    if not error.setting:
        return error.reason
    return f"--{error}" if error.setting in flags else str(error)
