"""The page of all settings: docs/settings.md.

python -m publication.settings_page
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tff_pcdd import files, methods, tables
from tff_pcdd.settings import Setting, describe
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.training import ExperimentConfig, RunOptions

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

_TOP = """# Settings

All settings of a run, in the groups of `--helpfull`. The name is that of the flag
(`--batch_size=50`), of the keyword (`ExperimentConfig.from_settings(batch_size=50)`), and of the
key in `config.json`. Programs have further flags, such as `--output_dir`; `--helpfull` lists them.
This page is made by `python -m publication.settings_page`.
"""


def page() -> str:
    """The page, in Markdown."""
    found = [
        setting
        for cls in (ExperimentConfig, RunOptions, ParallelOptions, TableOptions)
        for setting in describe(cls)
    ]
    parts = [_TOP]
    for group in dict.fromkeys(setting.group for setting in found):
        own = [setting for setting in found if setting.group == group]
        common = [setting for setting in own if not _owners(setting)]
        parts.append(f"## {group}\n\n{_table(common)}")
        owners = dict.fromkeys(_owners(setting) for setting in own)
        parts += [
            f"### {owner}\n\n{_table([s for s in own if _owners(s) == owner])}"
            for owner in owners
            if owner
        ]
    return "\n".join(parts)


def _owners(setting: Setting) -> str:
    """The components that have a setting; empty if all do."""
    if setting.chosen_by is None or setting.applies_to == tuple(methods.names()):
        return ""
    return f"{setting.chosen_by}: {', '.join(setting.applies_to)}"


def _table(found: Sequence[Setting]) -> str:
    lines = [["setting", "default", "meaning"]]
    for setting in found:
        default = "" if setting.default is None else f"`{setting.default}`"
        choices = f" One of: {', '.join(setting.choices)}." if setting.choices else ""
        lines.append([f"`{setting.name}`", default, tables.escape(setting.help) + choices])
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rows[0], "|---|---|---|", *rows[1:]]) + "\n"


if __name__ == "__main__":
    files.write_text(PAGE, page())
