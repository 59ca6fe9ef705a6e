"""Trains one method at every point of a grid of settings and chooses the best on held-out samples.

    python -m tasks.sweep --algorithm=fedgela --grid=fedgela_scale=1,3,10 \\
        --grid=client_learning_rate=0.01,0.05 --validation_fraction=0.2 --output_dir=runs/sweep

Takes the flags of tasks.train. Each run has a folder FLAG=VALUE,…/seed_N; a finished run is not
repeated, one that was stopped goes on, and one that fails stops none of the others. Writes
sweep.csv (a row per run), sweep.md, sweep.png, and best.flags, a flagfile with what was chosen.
"""

import itertools
import sys

from absl import flags

from tasks import cli
from tff_pcdd import methods
from tff_pcdd.options import option_fields
from tff_pcdd.training import ExperimentConfig

cli.define(
    flags.DEFINE_multi_string,
    "grid",
    None,
    "A flag of tasks.train with the values to try, as client_learning_rate=0.01,0.05; give it "
    "again for another flag.",
    "Sweep",
)
cli.define(flags.DEFINE_list, "seeds", ["0"], "Seeds, whole numbers.", "Sweep")
cli.define_choice(
    "criterion",
    "va",
    ("va", "va_personal"),
    "What is chosen by: the global model on all held-out samples, or the personal models, after "
    "their local epochs, on their own.",
    "Sweep",
)
cli.define_output()
cli.define_experiment(leave_out=("seed",))

# What all points have to share.
_SHARED = ("algorithm", "validation_fraction")


def read_grid() -> dict[str, dict[str, object]]:
    """The values of every flag of the grid, by the text that gives them.

    Raises:
        OptionError: a flag is unknown, given twice or not one to be tried, or cannot have a value.
    """
    algorithm = cli.FLAGS.algorithm
    known = {field.name for field in option_fields(ExperimentConfig)} - {"seed", *_SHARED}
    known |= {f"{algorithm}_{field.name}" for field in option_fields(methods.get(algorithm))}
    grid = {}
    for text in cli.required("grid"):
        name, _, values = text.partition("=")
        given = [value.strip() for value in values.split(",")]
        if name not in known or not all(given):
            raise cli.OptionError(
                f"--grid={text}: give a flag of tasks.train that may differ between runs of "
                f"{algorithm}, and its values, as --grid=client_learning_rate=0.01,0.05"
            )
        if name in grid or cli.FLAGS[name].present:
            raise cli.OptionError(f"--grid={text}: --{name} is given twice")
        try:
            grid[name] = {value: cli.FLAGS[name].parser.parse(value) for value in given}
        except ValueError as error:
            raise cli.OptionError(f"--grid={text}: {error}") from None
        if len(grid[name]) < len(given):
            raise cli.OptionError(f"--grid={text}: name each value once")
    return grid


def main():
    """Runs the sweep and prints its table."""
    grid, seeds = read_grid(), cli.read_seeds()
    run_options, output_dir = cli.read_run_options(), cli.required("output_dir")
    settings = [
        dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
    ]
    configs = [
        [
            cli.read_config(seed=seed, **{name: grid[name][text] for name, text in point.items()})
            for seed in seeds
        ]
        for point in settings
    ]

    from tff_pcdd.training.grid_search import Point, sweep

    points = [Point(*pair) for pair in zip(settings, configs, strict=True)]
    if cli.FLAGS.dry_run:
        from tff_pcdd.training import dry_run

        print(dry_run.sweep(points, output_dir, overwrite=cli.FLAGS.overwrite))
        return
    report, best, failures = sweep(
        points,
        output_dir,
        run_options,
        criterion=cli.FLAGS.criterion,
        overwrite=cli.FLAGS.overwrite,
    )
    print(report)
    if best is not None:
        chosen = " ".join(f"--{name}={value}" for name, value in best.items())
        print(f"chosen on held-out samples: {chosen}")
    print(f"table, picture and best.flags in {output_dir}")
    if failures:
        sys.exit(cli.failed_runs("sweep", failures, len(settings) * len(seeds), output_dir))


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
