"""Trains one federated method on one data set, or resumes an interrupted run.

    python -m tasks.train --algorithm=fedgela --dataset=digits --output_dir=runs/fedgela

Writes config.json, metrics.csv, summary.json, clients.csv, clients.md, confusion.npz, report.html,
checkpoints/, plots/*.png and TensorBoard events.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd import findings, measures, tables
from tff_pcdd.cli import experiments, program, report
from tff_pcdd.cli.flags import Flags
from tff_pcdd.results import run_evidence


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    experiments.define_output(flags)
    report.define_automatic(flags)
    report.define_live(flags)
    experiments.define_experiment(flags)


def main(flags: Flags) -> None:
    """Trains, and prints the summary."""
    config, options = experiments.read_config(flags), experiments.read_run_options(flags)
    output_dir, overwrite = flags.required("output_dir"), flags["overwrite"]
    report_every = report.read_every(flags)
    if flags["dry_run"]:
        experiments.check_precision(flags, config, options)
        experiments.check_data(flags, config, output_dir)
        from tff_pcdd.studies import dry_run

        print(dry_run.train(config, output_dir, overwrite=overwrite))
        return

    from tff_pcdd.training import run_experiment

    callbacks = report.live(report_every, output_dir)
    summary = run_experiment(
        config, output_dir, options, callbacks=callbacks, overwrite=overwrite, report=False
    )
    page = report.write_automatically(flags, run_dir=output_dir)
    names = ("ga_final", "ga_best", "pa_final", "pa_before_final")
    ga, best, pa, before = (tables.percent(summary[name]) for name in names)
    mark = "" if config.method.has_global_model else " †"
    print(
        f"{config.method_title}: GA{mark} {ga} (best {best}), "
        f"PA {pa} (before local steps {before}) % "
        f"after {experiments.rounds(summary['rounds'])}, {summary['seconds_per_round']:.3g} s a "
        f"round; "
        f"results in {output_dir}"
    )
    if new := [each for each in measures.further(summary) if each.group == measures.NEW]:
        values = (f"{each.heading} {tables.percent(summary[each.final])}" for each in new)
        print(f"{'; '.join(values)} %")
    if mark:
        print("† no global model: GA is the mean accuracy of the personal models on all test data")
    if found := run_evidence.findings_of(Path(output_dir), summary):
        print(findings.printed(findings.with_times(found, summary["seconds_per_round"])))
    if page is not None:
        print(page)
    if summary.get("diverged"):
        sys.exit(
            f"train: error: the run has diverged: in {summary['nonfinite_rounds']} of "
            f"{experiments.rounds(summary['rounds'])} values were NaN, infinite or far too large; "
            "its results are not usable"
        )


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
