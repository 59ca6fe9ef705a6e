"""Chooses settings on held-out samples: of one method, or of several by the same rule.

    python -m tasks.sweep --algorithm=fedgela --grid=fedgela_scale=1,3,10 \\
        --grid=client_learning_rate=0.01,0.05 --validation_fraction=0.2 --output_dir=runs/sweep
    python -m tasks.sweep --algorithms=all --validation_fraction=0.2 --output_dir=runs/methods

Accepts the flags of tasks.train. The first form trains one method at every point of a grid of
settings, each run in a folder FLAG=VALUE,…/seed_N, and writes sweep.csv (a row per run), sweep.md,
sweep.png, and best.flags, a flagfile with the chosen settings.

With --algorithms, every method tries four learning rates, around the default of --client_optimizer,
and three values of its own coefficient, if it has one.
Settings that look hopeless are stopped early (--rungs). Then the methods are trained with the
chosen settings and --final_seeds, and compared. Writes sweep.md (the chosen settings and what they
reach), sweep.csv (a row per point), sweep.png, best/METHOD.flags, and comparison/ with the files of
tasks.compare.

A finished run is not repeated, an interrupted one is resumed, and a failed one does not stop the
others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from absl import flags as absl_flags

from tff_pcdd import calls, measures
from tff_pcdd.cli import experiments, method_grids, program, report
from tff_pcdd.cli.flags import Flags
from tff_pcdd.cli.method_grids import Grid
from tff_pcdd.errors import SettingError
from tff_pcdd.studies import tuning
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.training.file_names import SWEEP_TABLE

_GROUP, _METHODS = "Sweep", "Sweep over methods"

# Flags that only a sweep over methods has.
_ONLY_METHODS = ("baselines", "final_seeds", "rungs", "reduction", "halving", "target_accuracy")


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    _define_choice(flags)
    _define_methods(flags)
    flags.add_settings(ParallelOptions)
    experiments.define_output(flags)
    report.define_automatic(flags)
    experiments.define_experiment(flags, leave_out=("seed",))


def _define_choice(flags: Flags) -> None:
    """Defines the flags of all sweeps."""
    flags.add(
        absl_flags.DEFINE_multi_string,
        "grid",
        None,
        "A flag of tasks.train with the values to try, such as client_learning_rate=0.01,0.05; "
        "repeat --grid for further flags. With --algorithms, a flag of a method replaces the "
        "values of its coefficient, and one that is common to all methods is tried by all.",
        _GROUP,
    )
    experiments.define_seeds(flags, _GROUP)
    flags.add(
        tuple(measures.best_rounds()),
        "criterion",
        "va",
        "Criterion of the choice: va, the accuracy of the global model on all held-out samples (of "
        "a method without one, the mean over clients of the personal model's accuracy on them); "
        "va_balanced, the mean over classes of the same accuracy on the samples of a class, for "
        "data with a long tail; or va_personal, the mean over clients of the personal model's "
        "accuracy, after its local epochs, on the client's held-out samples. A sweep of one method "
        "takes it in the best round, and one over methods, which are compared after their last "
        "round, its mean over the last three evaluations.",
        _GROUP,
    )


def _define_methods(flags: Flags) -> None:
    """Defines the flags of sweeps over methods."""
    flags.add(
        list,
        "algorithms",
        None,
        "Names of methods to tune and compare, or all, which means all federated ones; instead of "
        "--algorithm.",
        _METHODS,
    )
    flags.add(
        bool,
        "baselines",
        False,
        "Also tune, like the others, and compare the methods that are not federated: local (every "
        "client trains alone) and central (all samples in one place).",
        _METHODS,
    )
    flags.add(
        list,
        "final_seeds",
        ["1", "2", "3"],
        "Seeds with which the methods are compared after the choice; none of --seeds.",
        _METHODS,
    )
    flags.add(
        list,
        "rungs",
        ["0.25", "0.5"],
        "Shares of --rounds after which the settings of a method that are worst on held-out "
        "samples are stopped (successive halving); with --rungs= none are.",
        _METHODS,
    )
    flags.add(
        float, "reduction", 2.0, "Only one in this many settings continues after a rung.", _METHODS
    )
    flags.add(
        tuning.AMONG,
        "halving",
        tuning.SAME_RATE,
        "Settings of a method that compete at a rung: same_rate, those with the same learning "
        "rates, so each learning rate is tried to the end; or all, which takes less time, but "
        "stops small rates that start slowly. A sweep that is continued keeps what it began with.",
        _METHODS,
    )
    flags.add_settings(TableOptions)


def read_grid(flags: Flags) -> Grid:
    """The flags of the grid of one method, each with its values by their texts."""
    flags.refuse_given(_ONLY_METHODS, "applies only with --algorithms")
    if not flags["grid"]:
        raise SettingError("grid", None, "is required, or `algorithms` to tune several methods")
    return method_grids.parse(flags, [flags["algorithm"]])


def main(flags: Flags) -> None:
    """Runs the sweep and prints its table."""
    if flags["algorithms"] is None:
        _sweep_settings(flags)
    else:
        _sweep_methods(flags)


def _sweep_settings(flags: Flags) -> None:
    """Tries the settings of one method."""
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
    for runs in configs:
        experiments.check_precision(flags, runs[0], options)
    experiments.check_data(flags, configs[0][0], output_dir)
    from tff_pcdd.studies import Point, dry_run, sweep

    planned = [Point(*pair) for pair in zip(points, configs, strict=True)]
    overwrite = flags["overwrite"]
    if flags["dry_run"]:
        print(dry_run.sweep(planned, output_dir, overwrite=overwrite))
        return
    table, best, failures = sweep(
        planned,
        output_dir,
        options,
        criterion=flags["criterion"],
        overwrite=overwrite,
        parallel=parallel,
        report=False,
    )
    page = report.write_automatically(flags, sweep_dir=output_dir)
    print(f"{table}\n")
    last = f"nothing was chosen, because no run is usable; table in {output_dir}"
    if best is not None:
        chosen = " ".join(f"--{name}={value}" for name, value in best.items())
        print(f"chosen on held-out samples: {chosen}")
        last = f"table, picture and best.flags in {output_dir}"
    report.print_end(last, page)
    experiments.end_if_failed("sweep", failures, len(points) * len(seeds), output_dir)


def _sweep_methods(flags: Flags) -> None:
    """Tunes several methods and compares them."""
    if flags.is_given("algorithm"):
        raise SettingError("algorithm", flags["algorithm"], "cannot be combined with --algorithms")
    parallel = experiments.read_parallel_options(flags)
    options_of_tables = experiments.read_table_options(flags)
    halving = method_grids.read_halving(flags, _among(flags))
    points = method_grids.points(flags, method_grids.read(flags))
    options, output_dir = experiments.read_run_options(flags), flags.required("output_dir")
    parallel.check(options)
    overwrite = flags["overwrite"]
    any_point = next(iter(points.values()))[0]
    experiments.check_precision(flags, any_point.configs[0], options)
    experiments.check_data(flags, any_point.configs[0], output_dir)
    if flags["dry_run"]:
        from tff_pcdd.studies import dry_run

        print(
            dry_run.sweep_methods(
                points,
                output_dir,
                criterion=flags["criterion"],
                halving=halving,
                overwrite=overwrite,
            )
        )
        return
    from tff_pcdd.studies import method_sweep, sweep_methods

    directory = Path(output_dir)
    # Nothing is written to a directory that is refused.
    method_sweep.plan(points, directory, overwrite=overwrite)
    resumed = (directory / SWEEP_TABLE).exists() and not overwrite
    budget = {
        **{name: flags[name] for name in ("criterion", "rungs", "reduction")},
        "halving": halving.among,
        "seeds": [config.seed for config in any_point.configs],
        "final_seeds": [config.seed for config in any_point.finals],
    }
    record = directory / method_sweep.CALLS
    with calls.recorded(record, flags.arguments, anew=overwrite, resumed=resumed, **budget):
        tables, chosen, failures = sweep_methods(
            points,
            directory,
            options,
            criterion=flags["criterion"],
            halving=halving,
            overwrite=overwrite,
            parallel=parallel,
            tables=options_of_tables,
            report=False,
        )
    comparison_dir = f"{output_dir}/{method_sweep.COMPARISON}"
    page = None
    last = f"nothing was chosen, because no run is usable; tables in {output_dir}"
    if chosen:
        report.write_automatically(flags, comparison_dir=comparison_dir)
        page = report.write_automatically(flags, sweep_dir=output_dir)
        last = f"tables, picture and flagfiles in {output_dir}, curves in {comparison_dir}"
    print(f"{tables}\n")
    report.print_end(last, page)
    number = sum(len(p.configs) for grid in points.values() for p in grid)
    number += sum(len(grid[0].finals) for grid in points.values())
    experiments.end_if_failed("sweep", failures, number, output_dir, comparison_dir)


def _among(flags: Flags) -> str:
    """Which settings compete at a rung: in a sweep that is continued, the same as before."""
    name, directory = "halving", Path(flags["output_dir"] or "")
    if flags.is_given(name) or flags["overwrite"] or not flags["output_dir"]:
        return flags[name]
    from tff_pcdd.studies import method_sweep

    earlier = calls.read(directory / method_sweep.CALLS)
    if not earlier and not (directory / SWEEP_TABLE).exists():
        return flags[name]
    # Calls of earlier versions did not record it.
    return (earlier or [{}])[-1].get(name, tuning.ALL)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
