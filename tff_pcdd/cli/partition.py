"""Shows which client holds which classes, without training.

    python -m tasks.partition --dataset=digits --partition=class --output_dir=runs/partition

Accepts the data flags of tasks.train. Writes clients.png, partition.csv (training samples by client
and class) and partition.md.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from tff_pcdd import directories
from tff_pcdd.cli import experiments, program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.training import ExperimentConfig


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "output_dir", None, "Directory of the results; required.")
    flags.add_settings(
        ExperimentConfig,
        groups=("Data", "Seeds"),
        leave_out=("model_seed", "cohort_seed", "batch_seed"),
    )


def main(flags: Flags) -> None:
    """Draws the partition and prints its summary."""
    config = experiments.read_config(flags, "fedavg")
    output_dir = flags.required("output_dir")

    from tff_pcdd.report import partition

    config.data.source.refuse_results(pathlib.Path(output_dir))
    partition.check_directory(pathlib.Path(output_dir))
    directories.check_writable(pathlib.Path(output_dir))
    print(partition.write(config.data, config.data.build(), output_dir))


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
