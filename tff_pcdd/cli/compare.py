"""Trains several methods with several seeds on one or more partitions and sets them side by side.

    python -m tasks.compare --algorithms=fedavg,fedgela --seeds=0,1,2 --output_dir=runs/compare
    python -m tasks.compare --algorithms=all --partitions=class:2,dirichlet:0.1,iid@20 …

Takes the flags of tasks.train. Each run has a folder METHOD/seed_N, or PARTITION/METHOD/seed_N
with --partitions; a finished run is not repeated, one that was stopped goes on, and one that fails
stops none of the others. Writes comparison.csv (a row per run), comparison.md (accuracies, rounds
to FedAvg's best, costs), comparison.png (learning curves) and comparison_bars.png (GA and PA).
"""

import sys

from absl import flags

from tasks import cli
from tff_pcdd import methods
from tff_pcdd.options import option_fields
from tff_pcdd.training import ExperimentConfig

cli.define(
    flags.DEFINE_list,
    "algorithms",
    ["fedavg", "fedgela"],
    "Methods, by name, or all.",
    "Comparison",
)
cli.define(flags.DEFINE_list, "seeds", ["0"], "Seeds, whole numbers.", "Comparison")
cli.define(
    flags.DEFINE_list,
    "partitions",
    None,
    "Partitions, in place of --partition: class:CLASSES, dirichlet:CONCENTRATION, iid, natural; "
    "with @CLIENTS behind it for another number of clients than --num_clients, as class:2@50.",
    "Comparison",
)
cli.define_output()
cli.define_experiment(leave_out=("algorithm", "seed"))

# What stands behind the colon of a partition.
_VALUES = {"class": ("classes_per_client", int), "dirichlet": ("concentration", float)}


def read_algorithms() -> list[str]:
    """The methods of the comparison.

    Raises:
        OptionError: one is not known, or none is given.
    """
    given = cli.required("algorithms")
    if given == ["all"]:
        return methods.names()
    unknown = [name for name in given if name not in methods.names()]
    if unknown:
        raise cli.OptionError(
            f"--algorithms={','.join(given)}: there is no {', '.join(unknown)}, choose from "
            f"{', '.join(methods.names())}"
        )
    return given


def read_partition(text: str) -> tuple[str, dict]:
    """The folder and the settings of a partition as `--partitions` names it.

    Raises:
        OptionError: it is not one.

    Example:
        >>> read_partition("class:2@50")
        ('class_2_50_clients', {'partition': 'class', 'classes_per_client': 2, 'num_clients': 50})
    """
    described, at, clients = text.partition("@")
    name, colon, value = described.partition(":")
    settings, folder = {"partition": name}, name
    try:
        if name not in ("class", "dirichlet", "iid", "natural") or (name in _VALUES) != bool(colon):
            raise ValueError(name)
        if colon:
            setting, kind = _VALUES[name]
            settings[setting] = kind(value)
            folder += f"_{settings[setting]:g}"
        if at:
            settings["max_clients" if name == "natural" else "num_clients"] = int(clients)
            folder += f"_{int(clients)}_clients"
    except ValueError:
        raise cli.OptionError(
            f"--partitions={text}: give class:CLASSES, dirichlet:CONCENTRATION, iid or natural, "
            "each with @CLIENTS behind it or not"
        ) from None
    return folder, settings


def read_partitions() -> dict[str, dict]:
    """The settings of every partition by its folder; one without a name where flags say which.

    Raises:
        OptionError: a partition is not one, is named twice, or is also given by flags of its own.
    """
    if cli.FLAGS.partitions is None:
        return {"": {}}
    for name in ("partition", *(setting for setting, _ in _VALUES.values())):
        if cli.FLAGS[name].present:
            raise cli.OptionError(
                f"--{name}={cli.FLAGS[name].value}: leave it out, for --partitions="
                f"{','.join(cli.FLAGS.partitions)} says how data are divided"
            )
    partitions = [read_partition(text) for text in cli.required("partitions")]
    if len(dict(partitions)) < len(partitions):
        raise cli.OptionError(
            f"--partitions={','.join(cli.FLAGS.partitions)}: name each partition once"
        )
    chosen = {settings["partition"] for _, settings in partitions}
    return {folder: {**_unused(settings, chosen), **settings} for folder, settings in partitions}


def _unused(settings, chosen) -> dict[str, None]:
    """Flags that were given for another of the chosen partitions, and mean nothing for this."""
    unused = {}
    for field in option_fields(ExperimentConfig):
        applies = field.metadata["only"].get("partition")
        if applies and settings["partition"] not in applies and chosen & set(applies):
            unused[field.name] = None
    return unused


def read_configs() -> dict[str, list[ExperimentConfig]]:
    """The experiments of the comparison, under the name of a folder for each partition.

    Raises:
        OptionError: one of them cannot be.
    """
    algorithms, seeds, partitions = read_algorithms(), cli.read_seeds(), read_partitions()
    return {
        folder: [
            cli.read_config(algorithm, selected=algorithms, seed=seed, **settings)
            for algorithm in algorithms
            for seed in seeds
        ]
        for folder, settings in partitions.items()
    }


def main():
    """Runs the comparison and prints its tables of accuracies."""
    configs, run_options = read_configs(), cli.read_run_options()
    output_dir = cli.required("output_dir")
    if cli.FLAGS.dry_run:
        from tff_pcdd.training import dry_run

        print(dry_run.compare(configs, output_dir, overwrite=cli.FLAGS.overwrite))
        return

    from tff_pcdd.training import compare

    report, failures = compare(configs, output_dir, run_options, overwrite=cli.FLAGS.overwrite)
    print(report)
    print(f"tables and pictures in {output_dir}")
    if failures:
        number = sum(map(len, configs.values()))
        sys.exit(cli.failed_runs("compare", failures, number, output_dir))


def run():
    """Entry point of the console script."""
    cli.run(main)


if __name__ == "__main__":
    run()
