"""Makes a page about a run, a comparison or a sweep: one HTML file that opens without a network.

    python -m tasks.report --run_dir=runs/fedgela
    python -m tasks.report --comparison_dir=runs/compare
    python -m tasks.report --sweep_dir=runs/sweep
    python -m tasks.report --comparison_dirs=runs/digits,runs/fashion --output_dir=runs/summary

Writes report.html into the directory: who holds what, learning curves, a table of clients that can
be sorted, confusion matrices, costs, settings, findings and model cards. tasks.train, tasks.compare
and tasks.sweep do so themselves when they have finished.

With --output_dir, several comparisons, or sweeps over methods, are summarized: ranks of the methods
over the federations, with paired tests. Writes summary.md, summary.csv and summary.png.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.file_names import REPORT

_GROUP, _SUMMARY = "Report", "Summary of several comparisons"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "run_dir", None, "Directory of a run.", _GROUP)
    flags.add(str, "comparison_dir", None, "Directory of a comparison.", _GROUP)
    flags.add(str, "sweep_dir", None, "Directory of a sweep.", _GROUP)
    flags.add(
        str, "output_file", None, "The page; by default report.html in the directory.", _GROUP
    )
    flags.add(
        list,
        "comparison_dirs",
        None,
        "Directories of comparisons, or of sweeps over methods, to summarize.",
        _SUMMARY,
    )
    flags.add(str, "output_dir", None, "Directory of the summary.", _SUMMARY)
    flags.add(
        list,
        "measures",
        ["ga_final", "pa_before_final", "pa_final"],
        "Accuracies by which the summary ranks methods: columns of comparison.csv.",
        _SUMMARY,
    )


def define_automatic(flags: Flags) -> None:
    """Defines the flag of programs that make a report when they have finished."""
    flags.add(bool, "report", True, "Write report.html when everything is finished.")


def define_live(flags: Flags) -> None:
    """Defines the flag of a program whose run can be watched."""
    text = "Rounds after which report.html is written again while the run is computed; 0 for never."
    flags.add(int, "report_every", 0, text)


def read_every(flags: Flags) -> int:
    """The rounds between two reports while a run is computed; 0 for none.

    Raises:
        SettingError: the number is negative.
    """
    every = flags["report_every"]
    if every < 0:
        raise SettingError("report_every", every, "must be at least 0")
    return every


def live(every: int, output_dir: str) -> list[Callback]:
    """What writes the report of a run every few rounds, while it is computed; empty if 0."""
    if not every:
        return []
    from tff_pcdd.report import LiveReport

    print(f"while the run is computed: {Path(output_dir) / REPORT}", file=sys.stderr)
    return [LiveReport(every)]


def write_automatically(flags: Flags, **directory: str) -> Path | None:
    """Makes the report of a finished program, unless it is switched off; it never fails.

    Returns:
        The path of the page; None if there is none.
    """
    if not flags["report"]:
        return None
    from tff_pcdd import report

    path, failure = report.write_automatically(**directory)
    if failure:
        print(f"report.html was not written: {failure}", file=sys.stderr)
    return path


def print_end(what: str, path: Path | None) -> None:
    """Prints what a program has written; the path of the page, if there is one, comes last."""
    print(what)
    if path is not None:
        print(path)


def main(flags: Flags) -> None:
    """Writes the report and says what is left out."""
    if flags["comparison_dirs"] is not None:
        _summarize(flags)
        return
    flags.refuse_given(("output_dir", "measures"), "applies only with comparison_dirs")
    if not any(map(flags.is_given, ("run_dir", "comparison_dir", "sweep_dir"))):
        reason = "give one of `run_dir`, `comparison_dir`, `sweep_dir` and `comparison_dirs`"
        raise SettingError("", None, reason)
    from tff_pcdd import report

    written = report.write_report(
        run_dir=flags["run_dir"] or None,
        comparison_dir=flags["comparison_dir"] or None,
        sweep_dir=flags["sweep_dir"] or None,
        output_file=flags["output_file"],
    )
    for line in written.left_out:
        print(f"left out: {line}")
    print(written.path)


def _summarize(flags: Flags) -> None:
    """Writes the summary of several comparisons and prints its tables."""
    other = ("run_dir", "comparison_dir", "sweep_dir", "output_file")
    flags.refuse_given(other, "cannot be combined with comparison_dirs")
    directories, output_dir = flags.required("comparison_dirs"), flags.required("output_dir")
    from tff_pcdd.report import rankings

    print(rankings.summarize(directories, output_dir, flags.required("measures")).printed)
    print(f"\nall tables and picture in {output_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
