"""Makes a page about a run or a comparison: one HTML file that opens without a network.

    python -m tasks.report --run_dir=runs/fedgela
    python -m tasks.report --comparison_dir=runs/compare
    python -m tasks.report --comparison_dirs=runs/digits,runs/fashion --output_dir=runs/summary
    python -m tasks.report --comparison_dirs=runs/digits,runs/fashion --publish_dir=docs/comparison

Writes report.html into the directory: who holds what, learning curves, a table of clients that can
be sorted, confusion matrices, costs, settings, warnings and model cards. tasks.train and
tasks.compare do so themselves when they have finished.

With --output_dir, several comparisons, or sweeps over methods, are summarized: ranks of the methods
over the federations, with paired tests. Writes summary.md, summary.csv and summary.png.

With --publish_dir, what pages need of finished sweeps over methods is written to a folder for each,
and the pages, docs/comparison.md and others in its folder, are made from all folders; without
--comparison_dirs, only the pages are made. With --add_methods, sweeps over a few methods join what
has been published under their names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError

_GROUP, _SUMMARY = "Report", "Summary of several comparisons"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "run_dir", None, "Directory of a run.", _GROUP)
    flags.add(str, "comparison_dir", None, "Directory of a comparison.", _GROUP)
    flags.add(
        str, "output_file", None, "The page; by default report.html in the directory.", _GROUP
    )
    flags.add(
        absl_flags.DEFINE_list,
        "comparison_dirs",
        None,
        "Directories of comparisons, or of sweeps over methods, to summarize.",
        _SUMMARY,
    )
    flags.add(str, "output_dir", None, "Directory of the summary.", _SUMMARY)
    flags.add(
        absl_flags.DEFINE_list,
        "measures",
        ["ga_final", "pa_before_final", "pa_final"],
        "Accuracies by which the summary ranks methods: columns of comparison.csv.",
        _SUMMARY,
    )
    flags.add(
        str,
        "publish_dir",
        None,
        "Directory of published results, in which each sweep gets a folder of its name, instead of "
        "--output_dir. The page beside it, with the suffix .md, and others in it are made from all "
        "folders.",
        _SUMMARY,
    )
    flags.add(
        bool,
        "add_methods",
        False,
        "With --publish_dir: keep the other methods that have been published under the name of a "
        "sweep, and add those of the sweep, or replace them.",
        _SUMMARY,
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
    if flags["publish_dir"] is not None:
        _publish(flags)
        return
    if flags["comparison_dirs"] is not None:
        _summarize(flags)
        return
    for name in ("output_dir", "measures", "add_methods"):
        if flags.is_given(name):
            value = flags[name]
            shown = ",".join(value) if isinstance(value, list) else value
            raise SettingError(name, shown, "applies only with comparison_dirs")
    from tff_pcdd import report

    written = report.write_report(
        run_dir=flags["run_dir"] or None,
        comparison_dir=flags["comparison_dir"] or None,
        output_file=flags["output_file"],
    )
    for line in written.left_out:
        print(f"left out: {line}")
    print(written.path)


def _refuse_with(flags: Flags, other: str, *names: str) -> None:
    """Refuses flags that another one excludes."""
    for name in names:
        if flags.is_given(name):
            value = flags[name]
            shown = ",".join(value) if isinstance(value, list) else value
            raise SettingError(name, shown, f"cannot be combined with {other}")


def _publish(flags: Flags) -> None:
    """Publishes sweeps over methods, and makes the page about all that have been published."""
    _refuse_with(
        flags, "publish_dir", "run_dir", "comparison_dir", "output_file", "output_dir", "measures"
    )
    publish_dir = flags.required("publish_dir")
    if flags["add_methods"] and not flags["comparison_dirs"]:
        raise SettingError("add_methods", True, "needs the sweeps to add; set comparison_dirs")
    from tff_pcdd.publication import publishing, writing

    for sweep_dir in flags["comparison_dirs"] or ():
        print(publishing.publish(sweep_dir, publish_dir, add_methods=flags["add_methods"]))
    page, missing = writing.write(publish_dir)
    for line in missing:
        print(f"not explained: {line}", file=sys.stderr)
    print(page)


def _summarize(flags: Flags) -> None:
    """Writes the summary of several comparisons and prints its tables."""
    _refuse_with(
        flags, "comparison_dirs", "run_dir", "comparison_dir", "output_file", "add_methods"
    )
    directories, output_dir = flags.required("comparison_dirs"), flags.required("output_dir")
    from tff_pcdd.publication import summaries

    print(summaries.summarize(directories, output_dir, flags.required("measures")))
    print(f"tables and picture in {output_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
