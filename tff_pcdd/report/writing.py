"""Writes report.html."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd import files
from tff_pcdd.errors import DataError, SettingError, WriteError, shown
from tff_pcdd.report import comparison_page, pages, run_page
from tff_pcdd.results.reading import Directory
from tff_pcdd.training.file_names import REPORT

# The sections of the two pages: anchors and names.
_RUN_SECTIONS = (
    ("holdings", "Who holds what"),
    ("curves", "Learning curves"),
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
    output_file: str | os.PathLike | None = None,
    compare_checkpoints: bool = True,
) -> Report:
    """Writes the report of a run, or of a comparison.

    Nothing in the directory is executed. A file that is missing or damaged is named in the report,
    and what depends on it is left out. A report that would not change is not written again.

    Args:
        run_dir: the directory of a run.
        comparison_dir: the directory of a comparison, if no run is given.
        output_file: the path of the report; by default report.html in the directory.
        compare_checkpoints: compare the measurements of runs with their copies in checkpoints, and
            use these if they differ. It takes as long as reading the checkpoints.

    Raises:
        SettingError: the directory holds no run, or no comparison, or the path of the report is
            that of something other than a file.
        DataError: its config.json or comparison.csv is damaged.
        WriteError: the report cannot be written.
    """
    given = [path for path in (run_dir, comparison_dir) if path is not None]
    if len(given) != 1:
        raise SettingError("run_dir", run_dir, "give either this setting or comparison_dir")
    directory = Directory(Path(given[0]), compare_checkpoints)
    path = Path(output_file) if output_file else directory.path / REPORT
    if output_file:
        _check_output(path)
    try:
        html = _run(directory) if comparison_dir is None else _comparison(directory)
    except (DataError, SettingError):
        raise
    # Values that no program has written, such as a text in the place of a number.
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{directory.path} cannot be shown ({shown(error)})") from error
    content = html.encode()
    if not path.is_file() or path.read_bytes() != content:
        files.make_directory(path.parent)
        # Of a process that was killed.
        files.remove_leftovers(path.parent, f".{REPORT}.*.tmp")
        files.write_atomically(path, lambda file: file.write(content))
    return Report(path, list(directory.problems.values()))


def write_automatically(**directory: Any) -> str | None:
    """As `write_report`, at the end of another program, which it cannot make fail.

    Returns:
        What went wrong, in one line; None if the report was written.
    """
    try:
        # The program has just written or compared the measurements.
        write_report(**directory, compare_checkpoints=False)
    except WriteError as error:
        return str(error)
    # Whatever it is, the results of the program are complete.
    except Exception as error:
        return shown(" ".join(f"{type(error).__name__}: {error}".split()))
    return None


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
    sections = [*_RUN_SECTIONS, *([("cards", "Model cards")] if values["cards"] else ())]
    return pages.render("run.html", {**values, "sections": sections})


def _comparison(directory: Directory) -> str:
    values = comparison_page.content(directory)
    parts = values["parts"]
    sections = [
        (f"results-{number}", part.name if len(parts) > 1 else "Results")
        for number, part in enumerate(parts, 1)
    ]
    sections += [("runs", "Runs"), ("settings", "Settings")]
    sections += [("cards", "Model cards")] if values["cards"] else []
    return pages.render("comparison.html", {**values, "sections": sections})
