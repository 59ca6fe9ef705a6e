"""Measures speed and memory: runtimes, methods, comparisons, start-up, large populations, serving.

    python -m tasks.benchmark --output_dir=runs/benchmark
    python -m tasks.benchmark --peers --output_dir=runs/peers

Writes benchmark.json (all measurements), benchmark.md (tables, and which targets are met) and its
pictures in images/, and replaces those of an earlier run. Takes about 40 minutes on 2 cores, which
should be idle otherwise. The peers (PyTorch, Flower, pfl-research, FedJAX) have environments of
their own, which `make install-peers` makes.
"""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags as absl_flags

from benchmarks import SECTIONS
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
    flags.add(
        bool,
        "peers",
        False,
        "Measure the section peers only: the same rounds in other software.",
        _GROUP,
    )
    flags.add(
        str,
        "page",
        None,
        "File for another copy of the page, such as docs/benchmark.md, with its pictures in a "
        "folder images beside it; needs all sections.",
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
        SettingError: a section is unknown or named twice, or none is given; flags contradict each
            other, or no peer is installed.
    """
    for name in ("sections", "peers"):
        if flags["page"] is not None and flags[name]:
            raise SettingError("page", flags["page"], f"needs all sections; leave out --{name}")
    if flags["peers"]:
        if flags["sections"] is not None:
            raise SettingError("peers", None, "is a section of its own; leave out --sections")
        from benchmarks import peers

        peers.check_installed()
        return ["peers"]
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

    from benchmarks import measure, suite

    plan = measure.Plan(repeats, flags["quick"])
    print(suite.run(sections, plan, output_dir, page=flags["page"]))
    print(f"report in {output_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
