"""Trains one federated method on one data set, and goes on where an earlier run stopped.

    python -m tasks.train --algorithm=fedgela --dataset=digits --output_dir=runs/fedgela

Writes config.json, metrics.csv, summary.json, checkpoints/, plots/*.png and TensorBoard events.
"""

from tasks import cli

cli.define_output()
cli.define_experiment()


def main():
    """Trains as the flags say and prints the summary."""
    config, run_options = cli.read_config(), cli.read_run_options()
    output_dir = cli.required("output_dir")
    if cli.FLAGS.dry_run:
        from tff_pcdd.training import dry_run

        print(dry_run.train(config, output_dir, overwrite=cli.FLAGS.overwrite))
        return

    from tff_pcdd.training import run_experiment

    summary = run_experiment(config, output_dir, run_options, overwrite=cli.FLAGS.overwrite)
    names = ("ga_final", "ga_best", "pa_final", "pa_before_final")
    ga, best, pa, before = (cli.percent(summary[name]) for name in names)
    print(
        f"{config.algorithm}: GA {ga} (best {best}), PA {pa} (before local steps {before}) % "
        f"after {summary['rounds']} rounds, {summary['seconds_per_round']:.3g} s a round; "
        f"results in {output_dir}"
    )


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
