"""Exports a run's models for serving: a SavedModel and a model card for each.

    python -m tasks.export --run_dir=runs/fedgela --export_dir=exported

Writes global/1/, personal/<client id>/1/ and models.config, TensorFlow Serving's layout; see
docs/how-to/serving.md. Personal models are those after the local epochs, which are computed once more.
"""

from absl import flags

from tasks import cli
from tff_pcdd.export import ExportOptions
from tff_pcdd.options import option_fields
from tff_pcdd.training.runs import read_config

cli.define(flags.DEFINE_string, "run_dir", None, "Directory of the run; required.", "Run")
cli.define(
    flags.DEFINE_integer,
    "checkpoint_round",
    None,
    "Take the checkpoint of this round instead of the newest.",
    "Run",
)
cli.define(
    flags.DEFINE_string,
    "data_dir",
    None,
    "Folder of the data set, where it has moved since the run.",
    "Run",
)
cli.define_options(ExportOptions)
cli.define_options(cli.RunOptions, groups=("Runtime",))
cli.define(flags.DEFINE_string, "export_dir", None, "Where the models go; required.")
cli.define(flags.DEFINE_boolean, "overwrite", False, "Replace models of the same --model_version.")


def main():
    """Exports and prints what was written."""
    run_dir, export_dir = cli.required("run_dir"), cli.required("export_dir")
    options = ExportOptions(
        **{field.name: cli.FLAGS[field.name].value for field in option_fields(ExportOptions)}
    )
    run_options, config = cli.read_run_options(), read_config(run_dir, cli.FLAGS.data_dir)

    from tff_pcdd.export import export_run

    try:
        exported = export_run(
            config,
            run_dir,
            export_dir,
            options,
            run_options,
            round_number=cli.FLAGS.checkpoint_round,
            overwrite=cli.FLAGS.overwrite,
        )
    except FileNotFoundError as error:
        raise cli.OptionError(f"--run_dir={run_dir}: {error}") from None
    if not config.method().has_global_model:
        print(f"no global model: {config.algorithm} trains personal ones only")
    for model in exported:
        accuracy = cli.percent(None if model.accuracy != model.accuracy else model.accuracy)
        print(f"{model.folder}/{options.model_version}: accuracy {accuracy} %")
    print(f"models in {export_dir}")


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
