"""Measures speed side by side: runtimes, methods, start-up, memory, population, serving.

    python -m tasks.benchmark --output_dir=runs/benchmark

Writes benchmark.json (every measurement), benchmark.md (tables, targets met and not met) and
benchmark.png, and replaces those of an earlier run. Takes about 13 minutes on 2 cores, which should
have nothing else to do.
"""

from absl import flags

from benchmarks import SECTIONS
from tasks import cli

cli.define(flags.DEFINE_string, "output_dir", None, "Where the report goes; required.")
cli.define(
    flags.DEFINE_list,
    "sections",
    list(SECTIONS),
    "What is measured, in this order.",
    "Measurements",
)
cli.define(flags.DEFINE_integer, "repeats", 5, "How often everything is measured.", "Measurements")
cli.define(
    flags.DEFINE_boolean,
    "quick",
    False,
    "Tiny sizes: shows that everything runs, and measures nothing.",
    "Measurements",
)


def read_sections() -> list[str]:
    """The chosen sections.

    Raises:
        OptionError: one is unknown, named twice, or there is none.
    """
    chosen = cli.required("sections")
    for name in chosen:
        if name not in SECTIONS:
            raise cli.OptionError(f"--sections={name}: choose from {', '.join(SECTIONS)}")
        if chosen.count(name) > 1:
            raise cli.OptionError(f"--sections={','.join(chosen)}: {name} is named twice")
    return chosen


def main():
    """Measures and prints the report."""
    sections, repeats = read_sections(), cli.FLAGS.repeats
    output_dir = cli.required("output_dir")
    if repeats < 1:
        raise cli.OptionError(f"--repeats={repeats}: must be at least 1")

    from benchmarks import measure, suite

    print(suite.run(sections, measure.Plan(repeats, cli.FLAGS.quick), output_dir))
    print(f"report in {output_dir}")


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
