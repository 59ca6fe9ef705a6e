"""Writes report.html and index.html."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import files
from tff_pcdd.errors import DataError, SettingError, WriteError, shown
from tff_pcdd.report import comparison_page, index_page, pages, run_page, sweep_page
from tff_pcdd.results import comparison_directory
from tff_pcdd.results.reading import Directory
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.file_names import REPORT

INDEX = "index.html"
# In every page, so that no other file of that name is replaced.
_MARK = b"Made by tff_pcdd"

# Seconds after which a browser loads the report of a run in progress again.
_REFRESH = 15

# The sections of the two pages: anchors and names.
_RUN_SECTIONS = (
    ("curves", "Learning curves"),
    ("holdings", "Who holds what"),
    ("classes", "Classes"),
    ("clients", "Clients"),
    ("confusion", "Confusion"),
    ("costs", "Costs"),
    ("settings", "Settings"),
)


class Report(NamedTuple):
    """What was written.

    Attributes:
        path: the file.
        left_out: for each file that is missing or damaged, one line that says so.
    """

    path: Path
    left_out: list[str]


def write_report(
    *,
    run_dir: str | os.PathLike | None = None,
    comparison_dir: str | os.PathLike | None = None,
    sweep_dir: str | os.PathLike | None = None,
    output_file: str | os.PathLike | None = None,
    compare_checkpoints: bool = True,
    in_progress: bool = False,
) -> Report:
    """Writes the report of a run, of a comparison and its runs, or of a sweep.

    Nothing in the directory is executed. A file that is missing or damaged is named in the report,
    and what depends on it is left out. A report that would not change is not written again.

    Args:
        run_dir: the directory of a run.
        comparison_dir: the directory of a comparison. Unless `output_file` is given, the reports of
            its finished runs are written, too.
        sweep_dir: the directory of a sweep, if neither of these is given.
        output_file: the path of the report; by default report.html in the directory.
        compare_checkpoints: compare the measurements of runs with their copies in checkpoints, and
            use these if they differ. It takes as long as reading the checkpoints.
        in_progress: the run is being computed: a browser loads the page again and again.

    Raises:
        SettingError: the directory holds no run, no comparison or no sweep, or the path of the
            report is that of something other than a file or such a report.
        DataError: its config.json, comparison.csv or sweep.csv is damaged.
        WriteError: the report cannot be written.
    """
    refresh = _REFRESH if in_progress else 0
    makers = (
        (run_dir, functools.partial(_run, refresh=refresh)),
        (comparison_dir, _comparison),
        (sweep_dir, _sweep),
    )
    given = [(path, make) for path, make in makers if path is not None]
    if len(given) != 1:
        reason = "give one of `run_dir`, `comparison_dir` and `sweep_dir`"
        raise SettingError("run_dir", run_dir, reason)
    [(place, make)] = given
    directory = Directory(Path(place), compare_checkpoints)
    path = Path(output_file) if output_file else directory.path / REPORT
    if output_file:
        _check_output(path)
    try:
        if comparison_dir is not None and not output_file:
            _write_runs(directory)
        html = make(directory, path.parent)
    except (DataError, SettingError):
        raise
    # Values that no program has written, such as a text in the place of a number.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{directory.path} cannot be shown ({shown(error)})") from error
    _write(path, html)
    return Report(path, list(directory.problems.values()))


def _write(path: Path, html: str) -> None:
    """Writes a page, unless the file has this content already."""
    content = html.encode()
    same_size = path.is_file() and path.stat().st_size == len(content)
    if not same_size or files.read_bytes(path, len(content)) != content:
        files.make_directory(path.parent)
        # Of a process that was killed.
        files.remove_leftovers(path.parent, f".{path.name}.*.tmp")
        files.write_atomically(path, lambda file: file.write(content))


class Index(NamedTuple):
    """What was written about all runs below a directory.

    Attributes:
        path: the file.
        table: the newest of them, as a table for the terminal.
        left_out: for each that cannot be shown one line that says why.
    """

    path: Path
    table: str
    left_out: list[str]


def write_index(runs_dir: str | os.PathLike, output_file: str | os.PathLike | None = None) -> Index:
    """Writes a page about all runs, comparisons and sweeps below a directory.

    Args:
        runs_dir: the directory.
        output_file: the path of the page; by default index.html in the directory.

    Raises:
        SettingError: there is nothing to show, or the path of the page is that of something that is
            not such a page.
        WriteError: the page cannot be written.
    """
    root = Path(runs_dir)
    if not root.is_dir():
        raise SettingError("runs_dir", root, "is not a directory")
    path = Path(output_file) if output_file else root / INDEX
    _check_output(path)
    values = index_page.content(root, path.parent)
    sections = [("overlay", "Learning curves"), ("runs", "Runs, comparisons and sweeps")]
    _write(path, pages.render("index.html", {**values, "sections": sections}))
    return Index(path, index_page.printed(values["entries"]), values["problems"])


class LiveReport(Callback):
    """Writes the report of a run while it is computed.

    Args:
        every: number of rounds between two reports.

    A report that cannot be written ends no run.
    """

    def __init__(self, every: int):
        self._every = every

    def on_round(self, run, row):
        if run.is_due(self._every) and not run.finished:
            write_automatically(run_dir=run.directory, in_progress=True)


def write_automatically(**directory: Any) -> tuple[Path | None, str]:
    """As `write_report`, at the end of another program, which it cannot make fail.

    Returns:
        The path of the report, or None and what went wrong, in one line.
    """
    try:
        # The program has just written or compared the measurements.
        return write_report(**directory, compare_checkpoints=False).path, ""
    except WriteError as error:
        return None, str(error)
    # Whatever it is, the results of the program are complete.
    except Exception as error:
        return None, shown(" ".join(f"{type(error).__name__}: {error}".split()))


def _write_runs(directory: Directory) -> None:
    """Writes the reports of the finished runs of a comparison, to which its page links."""
    try:
        runs = comparison_directory.read_runs(directory)
        folders = [run.folder for run in runs if run.folder is not None]
    except (FileNotFoundError, DataError):
        # The page of the comparison says so.
        return
    for folder in folders:
        # A run that cannot be shown, or written to, has no link.
        with contextlib.suppress(DataError, SettingError, WriteError, OSError):
            write_report(run_dir=folder, compare_checkpoints=directory.compared)


def _check_output(path: Path) -> None:
    """Refuses paths of directories, devices and pipes, other files, and texts that are no paths."""
    try:
        usable = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        usable = not path.is_symlink()
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise SettingError("output_file", path, "is not the path of a file")
    if path.is_file() and _MARK not in files.read_bytes(path):
        raise SettingError("output_file", path, "is no page of tff_pcdd; name another file")


def _run(directory: Directory, _: Path, refresh: int = 0) -> str:
    values = run_page.content(directory)
    sections = [pair for pair in _RUN_SECTIONS if pair[0] != "classes" or values["recalls"]]
    sections = [*sections, *([("cards", "Model cards")] if values["cards"] else ())]
    return pages.render("run.html", {**values, "sections": sections}, refresh=refresh)


def _comparison(directory: Directory, page: Path) -> str:
    values = comparison_page.content(directory, page)
    parts = values["parts"]
    sections = [("answer", "Answer")]
    sections += [
        (f"results-{number}", part.name if len(parts) > 1 else "Results")
        for number, part in enumerate(parts, 1)
    ]
    sections += [("runs", "Runs"), ("settings", "Settings")]
    sections += [("cards", "Model cards")] if values["cards"] else []
    return pages.render("comparison.html", {**values, "sections": sections})


def _sweep(directory: Directory, page: Path) -> str:
    values = sweep_page.content(directory, page)
    sections = [("chosen", "Answer"), ("points", values["points_title"])]
    return pages.render("sweep.html", {**values, "sections": sections})
