"""Trains one method at every point of a grid of settings and chooses the best on held-out samples.

    python -m tasks.sweep --algorithm=fedgela --grid=fedgela_scale=1,3,10 \\
        --grid=client_learning_rate=0.01,0.05 --validation_fraction=0.2 --output_dir=runs/sweep

Accepts the flags of tasks.train. Each run has a folder FLAG=VALUE,…/seed_N. A finished run is not
repeated, an interrupted one is resumed, and a failed one does not stop the others. Writes sweep.csv
(a row per run), sweep.md, sweep.png, and best.flags, a flagfile with the chosen settings.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags as absl_flags

from tff_pcdd.cli import experiments, program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig

_GROUP = "Sweep"

# Settings that are the same at all points.
_COMMON = ("algorithm", "validation_fraction", "seed")


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(
        absl_flags.DEFINE_multi_string,
        "grid",
        None,
        "A flag of tasks.train with the values to try, such as client_learning_rate=0.01,0.05; "
        "repeat --grid for further flags.",
        _GROUP,
    )
    experiments.define_seeds(flags, _GROUP)
    flags.add_choice(
        "criterion",
        "va",
        ("va", "va_personal"),
        "Criterion of the choice: va, the accuracy of the global model on all held-out samples; "
        "or va_personal, the mean over clients of the personal model's accuracy, after its local "
        "epochs, on the client's held-out samples.",
        _GROUP,
    )
    experiments.define_parallel(flags)
    experiments.define_output(flags)
    experiments.define_experiment(flags, leave_out=("seed",))


def read_grid(flags: Flags) -> dict[str, dict[str, Any]]:
    """The flags of the grid, each with its values by their texts.

    Raises:
        SettingError: a flag is unknown, is given twice or has to be the same at all points, or a
            value is invalid.
    """
    algorithm = flags["algorithm"]
    known = {
        setting.name
        for setting in describe(ExperimentConfig)
        if setting.chosen_by != "algorithm" or algorithm in setting.applies_to
    }.difference(_COMMON)
    grid: dict[str, dict[str, Any]] = {}
    for text in flags.required("grid"):
        name, _, values = text.partition("=")
        given = [value.strip() for value in values.split(",")]
        if name not in known or not all(given):
            raise SettingError(
                "grid",
                text,
                f"must be a flag of tasks.train that may differ between runs of {algorithm}, with "
                "its values, such as client_learning_rate=0.01,0.05",
            )
        if name in grid or flags.is_given(name):
            raise SettingError("grid", text, f"{name} is given twice")
        try:
            grid[name] = {value: flags.parse_value(name, value) for value in given}
        except ValueError as error:
            raise SettingError("grid", text, str(error)) from None
        if len(grid[name]) < len(given):
            raise SettingError("grid", text, "name each value once")
    return grid


def main(flags: Flags) -> None:
    """Runs the sweep and prints its table."""
    grid, seeds = read_grid(flags), experiments.read_seeds(flags)
    parallel = experiments.read_parallel_options(flags)
    options, output_dir = experiments.read_run_options(flags), flags.required("output_dir")
    parallel.check(options)
    points = [dict(zip(grid, texts, strict=True)) for texts in itertools.product(*grid.values())]
    configs = [
        [
            experiments.read_config(
                flags, seed=seed, **{name: grid[name][text] for name, text in point.items()}
            )
            for seed in seeds
        ]
        for point in points
    ]

    if not flags["dry_run"]:
        experiments.check_data(configs[0][0], output_dir)
    from tff_pcdd.studies import Point, dry_run, sweep

    planned = [Point(*pair) for pair in zip(points, configs, strict=True)]
    overwrite = flags["overwrite"]
    if flags["dry_run"]:
        print(dry_run.sweep(planned, output_dir, overwrite=overwrite))
        return
    report, best, failures = sweep(
        planned,
        output_dir,
        options,
        criterion=flags["criterion"],
        overwrite=overwrite,
        parallel=parallel,
    )
    print(report)
    if best is not None:
        chosen = " ".join(f"--{name}={value}" for name, value in best.items())
        print(f"chosen on held-out samples: {chosen}")
    print(f"table, picture and best.flags in {output_dir}")
    if failures:
        number = len(points) * len(seeds)
        sys.exit(experiments.failed_runs("sweep", failures, number, output_dir))


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
