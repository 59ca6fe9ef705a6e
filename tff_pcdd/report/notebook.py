"""Runs and federations as notebooks show them: the pieces of the reports, in a frame."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from tff_pcdd import text
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.report import matrices, pages, run_page
from tff_pcdd.results.by_client import RunClients
from tff_pcdd.results.reading import Directory
from tff_pcdd.training.clients_table import ClientResult

if TYPE_CHECKING:
    from tff_pcdd.data import Federation
    from tff_pcdd.training import Run

# The height of a run's frame, of what is above a grid, and of a row of a grid, in pixels.
_RUN, _ABOVE, _ROW = 680, 80, 29


def run(shown: Run) -> str | None:
    """The key figures and the curves of a run; None before its first round."""
    try:
        content = run_page.content(Directory(shown.directory, compared=False))
    except (DataError, SettingError):
        return None
    names = ("sentence", "figures", "curves")
    return _frame(repr(shown), {name: content[name] for name in names}, _RUN)


def federation(shown: Federation) -> str:
    """The grid of who holds what."""
    clients = [
        ClientResult(name, len(own.train), len(own.test), {})
        for name, own in zip(shown.every_title, shown.every_client, strict=True)
    ]
    classes = [text.name_of(name) for name in shown.class_names]
    grid = matrices.who_holds_what(RunClients(clients, classes, shown.every_class_counts()))
    height = grid.picture_height or _ROW * len(grid.rows)
    return _frame(repr(shown), {"holdings": grid}, min(_RUN, _ABOVE + height))


def _frame(title: str, values: dict[str, Any], height: int) -> str:
    """A page within the notebook's, whose style stays its own; nothing in it is executed."""
    page = pages.render("notebook.html", {"title": title, **values})
    return (
        f'<iframe sandbox srcdoc="{html.escape(page)}" title="{html.escape(title)}" '
        f'style="width: 100%; height: {height}px; border: 0"></iframe>'
    )
