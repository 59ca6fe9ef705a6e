"""Writes report.html."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import files
from tff_pcdd.errors import DataError, SettingError, WriteError, shown
from tff_pcdd.report import comparison_page, pages, run_page, sweep_page
from tff_pcdd.results import comparison
from tff_pcdd.results.reading import Directory
from tff_pcdd.training.file_names import REPORT

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

    Raises:
        SettingError: the directory holds no run, no comparison or no sweep, or the path of the
            report is that of something other than a file.
        DataError: its config.json, comparison.csv or sweep.csv is damaged.
        WriteError: the report cannot be written.
    """
    makers = ((run_dir, _run), (comparison_dir, _comparison), (sweep_dir, _sweep))
    given = [(path, make) for path, make in makers if path is not None]
    if len(given) != 1:
        reason = "give either this setting, comparison_dir or sweep_dir"
        raise SettingError("run_dir", run_dir, reason)
    [(place, make)] = given
    directory = Directory(Path(place), compare_checkpoints)
    path = Path(output_file) if output_file else directory.path / REPORT
    if output_file:
        _check_output(path)
    try:
        if comparison_dir is not None and not output_file:
            _write_runs(directory)
        html = make(directory)
    except (DataError, SettingError):
        raise
    # Values that no program has written, such as a text in the place of a number.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{directory.path} cannot be shown ({shown(error)})") from error
    content = html.encode()
    if not path.is_file() or files.read_bytes(path, 2 * len(content)) != content:
        files.make_directory(path.parent)
        # Of a process that was killed.
        files.remove_leftovers(path.parent, f".{REPORT}.*.tmp")
        files.write_atomically(path, lambda file: file.write(content))
    return Report(path, list(directory.problems.values()))


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
        folders = [run.folder for run in comparison.read(directory) if run.folder is not None]
    except (FileNotFoundError, DataError):
        # The page of the comparison says so.
        return
    for folder in folders:
        # A run that cannot be shown, or written to, has no link.
        with contextlib.suppress(DataError, SettingError, WriteError, OSError):
            write_report(run_dir=folder, compare_checkpoints=directory.compared)


def _check_output(path: Path) -> None:
    """Refuses paths of directories, devices and pipes, and texts that are no paths."""
    try:
        usable = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        usable = not path.is_symlink()
    except (OSError, ValueError):
        usable = False
    if not usable:
        raise SettingError("output_file", path, "is not the path of a file")


def _run(directory: Directory) -> str:
    values = run_page.content(directory)
    sections = [pair for pair in _RUN_SECTIONS if pair[0] != "classes" or values["recalls"]]
    sections = [*sections, *([("cards", "Model cards")] if values["cards"] else ())]
    return pages.render("run.html", {**values, "sections": sections})


def _comparison(directory: Directory) -> str:
    values = comparison_page.content(directory)
    parts = values["parts"]
    sections = [("answer", "Answer")]
    sections += [
        (f"results-{number}", part.name if len(parts) > 1 else "Results")
        for number, part in enumerate(parts, 1)
    ]
    sections += [("runs", "Runs"), ("settings", "Settings")]
    sections += [("cards", "Model cards")] if values["cards"] else []
    return pages.render("comparison.html", {**values, "sections": sections})


def _sweep(directory: Directory) -> str:
    values = sweep_page.content(directory)
    sections = [("chosen", "Chosen"), ("points", "Points")]
    return pages.render("sweep.html", {**values, "sections": sections})
