"""Evaluates a run's checkpoint again: global and personal models, client by client.

    python -m tasks.evaluate --run_dir=runs/fedgela

Prints the accuracies and writes evaluation.json into the run's directory.
"""

from absl import flags

from tasks import cli
from tff_pcdd.training.runs import read_config

cli.define(flags.DEFINE_string, "run_dir", None, "Directory of the run; required.", "Evaluation")
cli.define(
    flags.DEFINE_integer,
    "checkpoint_round",
    None,
    "Evaluate the checkpoint of this round instead of the newest.",
    "Evaluation",
)
cli.define(
    flags.DEFINE_string,
    "data_dir",
    None,
    "Folder of the data set, where it has moved since the run.",
    "Evaluation",
)
cli.define_options(cli.RunOptions)


def main():
    """Evaluates and prints the accuracies."""
    run_dir, run_options = cli.required("run_dir"), cli.read_run_options()
    config = read_config(run_dir, cli.FLAGS.data_dir)

    from tff_pcdd.training import evaluate_run

    try:
        results = evaluate_run(config, run_dir, run_options, cli.FLAGS.checkpoint_round)
    except FileNotFoundError as error:
        raise cli.OptionError(f"--run_dir={run_dir}: {error}") from None
    for name, value in results["accuracies"].items():
        print(f"{name:20s} {cli.percent(value):>6s} %")
    for name, value in results.get("diagnostics", {}).items():
        print(f"{name:40s} {'-' if value is None else f'{value:.4g}':>10s}")
    print(f"after round {results['round']}; by client in {run_dir}/evaluation.json")


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
