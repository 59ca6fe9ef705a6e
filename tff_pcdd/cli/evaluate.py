"""Evaluates a checkpoint of a run: the global model, and the personal model of every client.

    python -m tasks.evaluate --run_dir=runs/fedgela

Prints the accuracies and writes evaluation.json into the run's directory. --predictions also writes
what the models answer for each test sample. --head_calibration=ccvr re-trains the head of the
global model first, and writes the result beside the run, as a run of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import heavy, measures, stages, tables
from tff_pcdd.cli import experiments, program, report
from tff_pcdd.cli.flags import Flags
from tff_pcdd.methods import head_calibration
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig, RunOptions
from tff_pcdd.training.file_names import EVALUATION
from tff_pcdd.training.run_directory import check_calibration, read_config

# Run options without a meaning after the last round.
_OF_TRAINING = ("checkpoint_every", "keep_checkpoints", "tensorboard", "tracking", "callbacks")


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    experiments.define_restored(flags, "Evaluation")
    flags.add_settings(RunOptions, leave_out=_OF_TRAINING)
    setting = head_calibration.registry.setting
    names = [s.name for s in describe(ExperimentConfig) if setting not in (s.name, s.chosen_by)]
    flags.add_settings(ExperimentConfig, leave_out=names)
    flags.add(
        str,
        "output_dir",
        None,
        "Directory of a run whose head is re-trained; by default that of the run with the name of "
        "the head calibration at its end.",
        "Evaluation",
    )
    report.define_automatic(flags)


def main(flags: Flags) -> None:
    """Evaluates and prints the accuracies."""
    run_dir, options = flags.required("run_dir"), experiments.read_run_options(flags)
    config = read_config(run_dir, **experiments.restored_paths(flags))
    config.data.source.check()
    setting = head_calibration.registry.setting
    # A run that was calibrated while it was trained cannot do without it.
    trained = config.head_calibration.name
    if flags[setting] != "none" or (trained != "none" and flags.is_given(setting)):
        _calibrate(flags, config, run_dir, options)
        return
    of_calibrations = [s.name for s in describe(ExperimentConfig) if s.chosen_by == setting]
    flags.refuse_given(("output_dir", "report", *of_calibrations), f"applies only with {setting}")

    heavy.load("tensorflow", "tensorflow_federated")
    from tff_pcdd.training import evaluate_run

    with experiments.restoring(run_dir):
        results = evaluate_run(config, run_dir, options, flags["checkpoint_round"])
    stages.leave()
    width = max([20, *map(len, results["accuracies"])])
    for name, value in results["accuracies"].items():
        print(f"{name:{width}s} {tables.percent(value):>6s} %")
    for name, value in results.get("diagnostics", {}).items():
        print(f"{name:40s} {'-' if value is None else f'{value:.4g}':>10s}")
    for model, of in results.get("calibration", {}).items():
        print(_calibration_line(model, of))
    if results.get("diverged"):
        print("diverged: these results are not usable")
    print(f"after round {results['round']}; by client in {Path(run_dir, EVALUATION)}")


def _calibration_line(model: str, of: Mapping[str, Any]) -> str:
    """The calibration errors of a model, from its numbers in calibration.json."""
    line = f"calibration error, {model}: {tables.percent(of['ece'])} %"
    if of["held_out_samples"]:
        return f"{line}, with temperature {tables.percent(of['ece_after'])} %"
    return f"{line}; no temperature, because no samples are held out (--validation_fraction)"


def _calibrate(flags: Flags, config: ExperimentConfig, run_dir: str, options: RunOptions) -> None:
    """Re-trains the head of the run's global model, and prints the accuracies."""
    name = flags[head_calibration.registry.setting]
    given = flags.given_settings(ExperimentConfig)
    paths = experiments.restored_paths(flags)
    calibrated = config.with_settings(**{n: v for n, v in given.items() if n not in paths})
    place = run_dir.rstrip("/")
    if os.path.basename(place) in ("", ".", ".."):
        place = os.path.realpath(run_dir)
    output_dir = flags["output_dir"] or f"{place}_{name}"
    check_calibration(config, calibrated, output_dir)
    heavy.load("tensorflow", "tensorflow_federated")
    from tff_pcdd.training.post_hoc import calibrate_run

    with experiments.restoring(run_dir):
        summary = calibrate_run(
            config, calibrated, run_dir, output_dir, options, flags["checkpoint_round"]
        )
    stages.leave()
    for column, value in summary.items():
        if column.endswith("_final"):
            measure = measures.of(column.removesuffix("_final"))
            without = measure.name == f"ga_{config.method.name}"
            meaning = f"global model without {name}" if without else measure.meaning
            print(f"{tables.percent(value):>6s} %  {measure.heading}: {meaning}")
    page = report.write_automatically(flags, run_dir=output_dir)
    report.print_end(f"after round {summary['rounds']}, with {name}: {output_dir}", page)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    hint = "the run is unchanged, and tasks.train resumes it if it has not finished"
    program.run(__doc__, define, main, argv, interrupted=hint)


if __name__ == "__main__":
    run()
