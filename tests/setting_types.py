"""Writes tff_pcdd/experiment/setting_types.py: the settings and their types, for editors and mypy.

    python -m tests.setting_types

makes the file from the declarations; tests/training/test_config.py compares it with them.
"""

from __future__ import annotations

import pathlib

from tff_pcdd.settings import describe, registries
from tff_pcdd.training import ExperimentConfig

FILE = pathlib.Path(__file__).resolve().parents[1] / "tff_pcdd/experiment/setting_types.py"

_WIDTH = 100
_HEAD = '''\
"""The names and types of the flat settings, for editors and type checkers.

`python -m tests.setting_types` makes this file from the declarations of the settings.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Settings(TypedDict, total=False):
    """The flat settings of an experiment, with their defaults; None stands for the default."""
'''


def text() -> str:
    """The contents of the file: the settings of the package, without those of other modules."""
    components = {
        registry.setting: {
            name
            for name, cls in registry.classes().items()
            if cls.__module__.startswith("tff_pcdd.")
        }
        for registry in registries(ExperimentConfig)
    }
    lines, group = [_HEAD], ""
    for setting in describe(ExperimentConfig):
        if setting.chosen_by and not components[setting.chosen_by] & {*setting.applies_to}:
            continue
        if setting.group != group:
            group = setting.group
            lines.append(f"\n    # {group}.\n\n")
        kind = setting.type.__name__
        if names := setting.choices:
            kind = f"Literal[{', '.join(f'{name!r}' for name in names)}]".replace("'", '"')
        default = "" if setting.default is None else f"  # {setting.default}"
        line = f"    {setting.name}: {kind} | None{default}\n"
        if len(line) > _WIDTH:
            # As the formatter would.
            line = f"    {setting.name}: (\n        {kind} | None\n    ){default}\n"
        lines.append(line)
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
