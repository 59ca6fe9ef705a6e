"""Shows who holds which class, before anything is trained.

    python -m tasks.partition --dataset=digits --partition=class --output_dir=runs/partition

Takes the data flags of tasks.train. Writes clients.png, partition.csv (training samples by client
and class) and partition.md.
"""

import pathlib

from absl import flags

from tasks import cli

cli.define(flags.DEFINE_string, "output_dir", None, "Where the results go; required.")
cli.define_options(
    cli.ExperimentConfig,
    groups=("Data", "Seeds"),
    leave_out=("model_seed", "cohort_seed", "batch_seed"),
)


def main():
    """Draws the partition and prints its summary."""
    config, output_dir = cli.read_config("fedavg"), cli.required("output_dir")

    from tff_pcdd.training import partition_report

    partition_report.check_directory(pathlib.Path(output_dir))
    federation = config.data_config().build()
    print(partition_report.write(config, federation, output_dir))


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
