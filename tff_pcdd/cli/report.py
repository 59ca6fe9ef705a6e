"""Makes a page about a run or a comparison: one HTML file that opens without a network.

    python -m tasks.report --run_dir=runs/fedgela
    python -m tasks.report --comparison_dir=runs/compare

Writes report.html into the directory: who holds what, learning curves, a table of clients that can
be sorted, confusion matrices, costs, settings, warnings and model cards. tasks.train and
tasks.compare do so themselves when they have finished.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags

_GROUP = "Report"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "run_dir", None, "Directory of a run.", _GROUP)
    flags.add(str, "comparison_dir", None, "Directory of a comparison.", _GROUP)
    flags.add(
        str, "output_file", None, "The page; by default report.html in the directory.", _GROUP
    )


def define_automatic(flags: Flags) -> None:
    """Defines the flag of programs that make a report when they have finished."""
    flags.add(bool, "report", True, "Write report.html when everything is finished.")


def write_automatically(flags: Flags, **directory: str) -> None:
    """Makes the report of a finished program, unless it is switched off; it never fails."""
    if not flags["report"]:
        return
    from tff_pcdd import report

    failure = report.write_automatically(**directory)
    if failure is not None:
        print(f"report.html was not written: {failure}", file=sys.stderr)


def main(flags: Flags) -> None:
    """Writes the report and says what is left out."""
    from tff_pcdd import report

    written = report.write_report(
        run_dir=flags["run_dir"] or None,
        comparison_dir=flags["comparison_dir"] or None,
        output_file=flags["output_file"],
    )
    for line in written.left_out:
        print(f"left out: {line}")
    print(written.path)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
