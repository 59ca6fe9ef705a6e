"""Exports the models of a run for serving: a SavedModel and a model card for each.

    python -m tasks.export --run_dir=runs/fedgela --export_dir=exported

Writes global/1/, personal/<client>/1/ and models.config, the layout of TensorFlow Serving. By
default, the personal models are those after the local epochs, which are computed again. See
docs/how-to/serving.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tff_pcdd import heavy, stages, tables
from tff_pcdd.cli import experiments, program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.export import ExportOptions, checks
from tff_pcdd.settings import build
from tff_pcdd.training import ComputeOptions, RunOptions
from tff_pcdd.training.run_directory import read_config


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    experiments.define_restored(flags, "Run")
    flags.add_settings(ExportOptions)
    flags.add_settings(ComputeOptions)
    flags.add(str, "export_dir", None, "Directory of the exported models; required.")
    flags.add(
        bool, "overwrite", False, "Replace existing models that have the same --model_version."
    )


def main(flags: Flags) -> None:
    """Exports the models and lists what was written."""
    run_dir, export_dir = flags.required("run_dir"), flags.required("export_dir")
    options = build(ExportOptions, flags.given_settings(ExportOptions))
    compute = build(ComputeOptions, flags.given_settings(ComputeOptions))
    config = read_config(run_dir, **experiments.restored_paths(flags))

    checks.check_export(config, run_dir, export_dir, options, overwrite=flags["overwrite"])
    heavy.load("tensorflow", "tensorflow_federated")
    from tff_pcdd.export import iter_export

    with experiments.restoring(run_dir):
        exported = iter_export(
            run_dir,
            export_dir,
            options,
            RunOptions(compute=compute),
            config=config,
            round_number=flags["checkpoint_round"],
            overwrite=flags["overwrite"],
        )
    stages.leave()
    if not config.method.has_global_model:
        print(f"no global model: {config.algorithm} trains personal ones only")
    for model in exported:
        stages.leave()
        further = {"own_label": model.own_accuracy, **model.converted}
        others = "".join(
            f", {name} {tables.percent(value)} %"
            for name, value in further.items()
            if not math.isnan(value) or name in model.converted
        )
        accuracy = tables.percent(model.accuracy)
        print(f"{model.folder}/{options.model_version}: accuracy {accuracy} %{others}")
    print(f"models in {export_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
