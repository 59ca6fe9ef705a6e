"""Turns the values of a report into one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from tff_pcdd import _version, text
from tff_pcdd.errors import printable
from tff_pcdd.report import shades

_FOLDER = Path(__file__).with_name("templates")
# A flag in a sentence, with its value.
_FLAG = re.compile(r"--\w(?:[\w=,.+-]*\w)?")
# Characters of a flag that fit into a line of a telephone.
_NARROW = 40
# What stands before a flag in a command.
_BEFORE_FLAG = re.compile(r" (?='?--)")


def render(template: str, values: Mapping[str, Any], *, refresh: int = 0) -> str:
    """The text of a page.

    Args:
        template: the file name of the template.
        values: what it shows. All of it is escaped.
        refresh: seconds after which a browser loads the page again; 0 for never.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(flags_as_code=_flags_as_code, flags_in_command=_flags_in_command)
    environment.globals.update(percent=text.percent, whole=text.whole, duration=text.seconds)
    style = (_FOLDER / "style.css").read_text(encoding="utf-8") + shades.css()
    script = _without_blank_lines((_FOLDER / "script.js").read_text(encoding="utf-8"))
    digest = hashlib.sha256(script.encode()).digest()
    page = environment.get_template(template).render(
        **values,
        # These two are parts of this package.
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        script_hash=base64.b64encode(digest).decode(),
        version=_version.__version__,
        refresh=refresh,
    )
    return _without_blank_lines(page) + "\n"


def address(target: Path, page: Path) -> str:
    """The address of a file in a page.

    Args:
        target: the file.
        page: the directory of the page, to which the address is relative.

    Example:
        >>> address(Path("runs/a b/report.html"), Path("runs"))
        './a%20b/report.html'
        >>> address(Path("runs/a b/report.html"), Path("pages"))
        '../runs/a%20b/report.html'
    """
    path = Path(os.path.relpath(target, page)).as_posix()
    return urllib.parse.quote(path if path.startswith("../") else f"./{path}")


def _flags_as_code(sentence: str) -> markupsafe.Markup:
    """A sentence whose flags are marked, so that no line ends within one."""

    def mark(flag: re.Match) -> str:
        style = "flag long" if len(flag[0]) > _NARROW else "flag"
        return f'<code class="{style}">{flag[0]}</code>'

    return markupsafe.Markup(_FLAG.sub(mark, str(markupsafe.escape(_printable(sentence)))))


def _flags_in_command(command: str) -> markupsafe.Markup:
    """A command whose flags are marked, so that no line ends within one."""
    program, *flags = _BEFORE_FLAG.split(_printable(command))
    marked = (markupsafe.Markup('<span class="flag">{}</span>').format(flag) for flag in flags)
    return markupsafe.Markup(" ").join([program, *marked])


def _without_blank_lines(page: str) -> str:
    """A text without the many blank lines that templates leave."""
    return "\n".join(line for line in page.split("\n") if line.strip())


def _printable(value: Any) -> Any:
    """Replaces what is not printable in texts of unknown origin, such as control characters."""
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return printable(value)
    return "" if value is None else value
