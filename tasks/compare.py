"""Trains several methods with several seeds and sets them side by side.

    python -m tasks.compare --algorithms=fedavg,fedgela --seeds=0,1,2 --output_dir=runs/compare

Takes the flags of tasks.train. Each run has a folder METHOD/seed_N; finished runs are not repeated.
Writes comparison.csv (a row per run), comparison.md (mean ± std) and comparison.png.
"""

from absl import flags

from tasks import cli
from tff_pcdd import methods

cli.define(
    flags.DEFINE_list, "algorithms", ["fedavg", "fedgela"], "Methods, by name.", "Comparison"
)
cli.define(flags.DEFINE_list, "seeds", ["0"], "Seeds, whole numbers.", "Comparison")
cli.define(flags.DEFINE_string, "output_dir", None, "Where the results go; required.")
cli.define(
    flags.DEFINE_boolean, "overwrite", False, "Drop the results that --output_dir holds already."
)
cli.define_experiment(leave_out=("algorithm", "seed"))


def read_seeds() -> list[int]:
    """The seeds of the comparison.

    Raises:
        OptionError: one is not a whole number of 0 or more, or none is given.
    """
    given = cli.required("seeds")
    if not all(seed.isdecimal() for seed in given):
        raise cli.OptionError(f"--seeds={','.join(given)}: give whole numbers, as 0,1,2")
    return [int(seed) for seed in given]


def main():
    """Runs the comparison and prints its table."""
    algorithms, seeds = cli.required("algorithms"), read_seeds()
    unknown = [name for name in algorithms if name not in methods.names()]
    if unknown:
        raise cli.OptionError(
            f"--algorithms={','.join(algorithms)}: there is no {', '.join(unknown)}, choose from "
            f"{', '.join(methods.names())}"
        )
    run_options, output_dir = cli.read_run_options(), cli.required("output_dir")
    configs = [
        cli.read_config(algorithm, selected=algorithms, seed=seed)
        for algorithm in algorithms
        for seed in seeds
    ]

    from tff_pcdd.training import compare

    print(compare(configs, output_dir, run_options, overwrite=cli.FLAGS.overwrite))
    print(f"tables and pictures in {output_dir}")


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
