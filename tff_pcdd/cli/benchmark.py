"""Measures speed and memory: runtimes, methods, comparisons, start-up, large populations, serving.

    python -m tasks.benchmark --output_dir=runs/benchmark

Writes benchmark.json (all measurements), benchmark.md (tables, and which targets are met) and
benchmark.png, and replaces those of an earlier run. Takes about 20 minutes on 2 cores, which should
be idle otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from tff_pcdd.benchmarks import SECTIONS
from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError, one_of

_GROUP = "Measurements"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "output_dir", None, "Directory of the report; required.")
    flags.add(
        absl_flags.DEFINE_list,
        "sections",
        None,
        f"Sections to measure, in order; by default all: {', '.join(SECTIONS)}.",
        _GROUP,
    )
    flags.add(int, "repeats", 5, "Number of repetitions of each measurement.", _GROUP)
    flags.add(
        bool,
        "quick",
        False,
        "Use tiny sizes, to test that everything runs; the times mean nothing.",
        _GROUP,
    )


def read_sections(flags: Flags) -> list[str]:
    """The chosen sections.

    Raises:
        SettingError: a section is unknown or named twice, or none is given.
    """
    if flags["sections"] is None:
        return list(SECTIONS)
    chosen = flags.required("sections")
    for name in chosen:
        if name not in SECTIONS:
            raise SettingError("sections", name, one_of(name, SECTIONS))
        if chosen.count(name) > 1:
            raise SettingError("sections", ",".join(chosen), f"{name} is named twice")
    return chosen


def main(flags: Flags) -> None:
    """Runs the measurements and prints the report."""
    sections, repeats = read_sections(flags), flags["repeats"]
    output_dir = flags.required("output_dir")
    if repeats < 1:
        raise SettingError("repeats", repeats, "must be at least 1")

    from tff_pcdd.benchmarks import measure, suite

    print(suite.run(sections, measure.Plan(repeats, flags["quick"]), output_dir))
    print(f"report in {output_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
