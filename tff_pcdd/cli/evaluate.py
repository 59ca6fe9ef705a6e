"""Evaluates a checkpoint of a run: the global model, and the personal model of every client.

    python -m tasks.evaluate --run_dir=runs/fedgela

Prints the accuracies and writes evaluation.json into the run's directory. --predictions also writes
what the models answer for each test sample.
"""

from __future__ import annotations

from collections.abc import Sequence

from tff_pcdd import heavy, stages, tables
from tff_pcdd.cli import experiments, program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.training import RunOptions
from tff_pcdd.training.run_directory import read_config


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    experiments.define_restored(flags, "Evaluation")
    flags.add_settings(RunOptions)


def main(flags: Flags) -> None:
    """Evaluates and prints the accuracies."""
    run_dir, options = flags.required("run_dir"), experiments.read_run_options(flags)
    config = read_config(run_dir, **experiments.restored_paths(flags))
    config.data.source.check()

    heavy.load("tensorflow", "tensorflow_federated")
    from tff_pcdd.training import evaluate_run

    try:
        results = evaluate_run(config, run_dir, options, flags["checkpoint_round"])
    except FileNotFoundError as error:
        raise SettingError("run_dir", run_dir, str(error)) from None
    stages.leave()
    for name, value in results["accuracies"].items():
        print(f"{name:20s} {tables.percent(value):>6s} %")
    for name, value in results.get("diagnostics", {}).items():
        print(f"{name:40s} {'-' if value is None else f'{value:.4g}':>10s}")
    for model, of in results.get("calibration", {}).items():
        before, after = (tables.percent(of[name]) for name in ("ece", "ece_after"))
        print(f"calibration error, {model}: {before} %, with temperature {after} %")
    if results.get("diverged"):
        print("diverged: these results are not usable")
    print(f"after round {results['round']}; by client in {run_dir}/evaluation.json")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    hint = "the run is unchanged, and tasks.train resumes it if it has not finished"
    program.run(__doc__, define, main, argv, interrupted=hint)


if __name__ == "__main__":
    run()
