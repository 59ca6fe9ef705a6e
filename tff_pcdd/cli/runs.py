"""Lists all runs, comparisons and sweeps below a directory, and makes a page about them.

    python -m tasks.runs --runs_dir=runs

Writes index.html into the directory: a table that can be sorted and filtered, with the settings in
which runs differ and links to their reports, and the learning curves of those that are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "runs_dir", "runs", "Directory below which results are looked for.")
    flags.add(str, "output_file", None, "The page; by default index.html in the directory.")


def main(flags: Flags) -> None:
    """Writes the page and prints the newest results."""
    from tff_pcdd import report

    written = report.write_index(flags.required("runs_dir"), flags["output_file"])
    print(written.table)
    for line in written.left_out:
        print(f"left out: {line}")
    print(written.path)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
