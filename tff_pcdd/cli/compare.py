"""Trains several methods with several seeds on one or more partitions and compares them.

    python -m tasks.compare --algorithms=fedavg,fedgela --seeds=0,1,2 --output_dir=runs/compare
    python -m tasks.compare --algorithms=all --partitions=class:2,dirichlet:0.1,iid@20 …

Accepts the flags of tasks.train. Each run has a folder METHOD/seed_N, or PARTITION/METHOD/seed_N
with --partitions. A finished run is not repeated, an interrupted one is resumed, and a failed one
does not stop the others. Writes comparison.csv (a row per run), comparison.md (accuracies, rounds
to FedAvg's best accuracy or --target_accuracy, costs), comparison.png (learning curves) and
comparison_bars.png (GA and PA).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tff_pcdd import methods
from tff_pcdd.cli import experiments, program, report
from tff_pcdd.cli.flags import Flags
from tff_pcdd.data import partitions
from tff_pcdd.errors import SettingError, one_of
from tff_pcdd.experiment.config import SHARES_NOTHING
from tff_pcdd.experiment.refusals import Refusals
from tff_pcdd.federated import aggregators, server_optimizers
from tff_pcdd.methods import head_calibration
from tff_pcdd.settings import option_fields
from tff_pcdd.studies.parallel import ParallelOptions
from tff_pcdd.studies.table_options import TableOptions
from tff_pcdd.training import ExperimentConfig

_GROUP = "Comparison"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(
        list,
        "algorithms",
        ["fedavg", "fedgela"],
        "Names of methods, or all, which means all federated ones.",
        _GROUP,
    )
    flags.add(
        bool,
        "baselines",
        False,
        "Also run the methods that are not federated: local (every client trains alone) and "
        "central (all samples in one place). The tables then show what federating gains.",
        _GROUP,
    )
    experiments.define_seeds(flags, _GROUP)
    flags.add(
        list,
        "partitions",
        None,
        f"Partitions to compare, instead of --partition: {_notations()}. Append @CLIENTS to set "
        "the number of clients, as in class:2@50.",
        _GROUP,
    )
    flags.add_settings(TableOptions)
    flags.add_settings(ParallelOptions)
    experiments.define_output(flags)
    report.define_automatic(flags)
    experiments.define_experiment(flags, leave_out=("algorithm", "seed"))


def _notations() -> str:
    """The notations of the registered partitions."""
    return ", ".join(
        f"{name}:{cls.main_option.upper()}" if cls.main_option else name
        for name, cls in partitions.registry.classes().items()
    )


def read_algorithms(flags: Flags) -> list[str]:
    """The methods of the comparison, each of which is known and named once."""
    given = flags.required("algorithms")
    added = _added(flags)
    baselines = _baselines()
    if given == ["all"]:
        return [name for name in methods.names() if name not in baselines] + added
    if "all" in given:
        reason = "all stands alone"
        if "baselines" in flags and not flags["baselines"]:
            reason += "; `baselines` adds those that are not federated"
        raise SettingError("algorithms", ",".join(given), reason)
    unknown = [name for name in given if name not in methods.names()]
    if unknown:
        choices = one_of(unknown[0], methods.names(), *unknown[1:])
        reason = f"there is no {', '.join(unknown)}; {choices}"
        raise SettingError("algorithms", ",".join(given), reason)
    if len({*given}) < len(given):
        raise SettingError("algorithms", ",".join(given), "name each method once")
    return [*given, *added]


def _baselines() -> list[str]:
    """The methods that are not federated."""
    return [name for name in methods.names() if methods.get(name).baseline]


def _added(flags: Flags) -> list[str]:
    """The methods that only `--baselines` names."""
    chosen = "baselines" in flags and flags["baselines"]
    given = flags.required("algorithms") if chosen else []
    return [name for name in _baselines() if chosen and name not in given]


@contextlib.contextmanager
def hinting(flags: Flags, algorithm: str) -> Iterator[None]:
    """Says how to do without a method that only `--baselines` names, if new clients refuse it."""
    try:
        yield
    except SettingError as error:
        if error.kind != SHARES_NOTHING or algorithm not in _added(flags):
            raise
        reason = f"{error.reason}; leave out `baselines`"
        raise SettingError(error.setting, error.value, reason, kind=error.kind) from None


def read_partition(text: str) -> tuple[str, dict[str, Any]]:
    """The folder and the settings of a partition, read from the notation of `--partitions`.

    Example:
        >>> read_partition("class:2@50")
        ('class_2_50_clients', {'partition': 'class', 'classes_per_client': 2, 'num_clients': 50})
    """
    described, at, clients = text.partition("@")
    name, colon, value = described.partition(":")
    settings: dict[str, Any] = {"partition": name}
    folder = name
    try:
        cls = partitions.get(name)
        if bool(cls.main_option) != bool(colon):
            raise ValueError(name)
        if cls.main_option:
            kinds = {field.name: field.metadata["type"] for field in option_fields(cls)}
            settings[cls.main_option] = kinds[cls.main_option](value)
            folder += f"_{settings[cls.main_option]:g}"
        if at:
            if cls.clients_option is None:
                raise ValueError(name)
            settings[cls.clients_option] = int(clients)
            folder += f"_{int(clients)}_clients"
    except ValueError:
        raise SettingError(
            "partitions", text, f"must be one of {_notations()}, optionally followed by @CLIENTS"
        ) from None
    return folder, settings


def read_partitions(flags: Flags) -> dict[str, dict[str, Any]]:
    """The settings of each partition, by its folder; {"": {}} without `--partitions`."""
    if flags["partitions"] is None:
        return {"": {}}
    main_options = [cls.main_option for cls in partitions.registry.classes().values()]
    for name in ("partition", *filter(None, main_options)):
        if flags.is_given(name):
            raise SettingError(name, flags[name], "cannot be combined with --partitions")
    given = flags.required("partitions")
    read = [read_partition(text) for text in given]
    if len(dict(read)) < len(read):
        raise SettingError("partitions", ",".join(given), "name each partition once")
    chosen = {settings["partition"] for _, settings in read}
    return {
        folder: {**_withdrawn(flags, settings["partition"], chosen), **settings}
        for folder, settings in read
    }


def _withdrawn(flags: Flags, partition: str, chosen: Collection[str]) -> Mapping[str, None]:
    """Settings that reset the flags which apply only to the other chosen partitions."""
    return {
        setting.name: None
        for setting in flags.settings.values()
        if setting.chosen_by == "partition"
        and partition not in setting.applies_to
        and set(chosen) & set(setting.applies_to)
    }


def read_configs(flags: Flags) -> dict[str, list[ExperimentConfig]]:
    """The runs of the comparison, by the folder of their partition.

    The error about a flag names all methods with which it cannot be used.
    """
    algorithms, seeds = read_algorithms(flags), experiments.read_seeds(flags)
    configs: dict[str, list[ExperimentConfig]] = {}
    refusals = Refusals()
    for folder, settings in read_partitions(flags).items():
        configs[folder] = []
        for name in algorithms:
            values = {**settings, **as_baseline(flags, name)}
            with refusals.of(name), hinting(flags, name):
                configs[folder] += [
                    experiments.read_config(flags, name, algorithms, seed=seed, **values)
                    for seed in seeds
                ]
    refusals.check()
    return configs


def as_baseline(flags: Flags, algorithm: str) -> Mapping[str, None]:
    """Settings that reset what a baseline does without.

    It has nothing to aggregate, no server that takes a step, and stays as it is known.
    """
    if not methods.get(algorithm).baseline:
        return {}
    registries = (aggregators.registry, server_optimizers.registry, head_calibration.registry)
    choosers = [registry.setting for registry in registries]
    options = (setting for setting in flags.settings.values() if setting.chosen_by in choosers)
    return dict.fromkeys([*choosers, *(setting.name for setting in options)])


def main(flags: Flags) -> None:
    """Runs the comparison and prints its table."""
    parallel = experiments.read_parallel_options(flags)
    options_of_tables = experiments.read_table_options(flags)
    configs, options = read_configs(flags), experiments.read_run_options(flags)
    parallel.check(options)
    output_dir = flags.required("output_dir")
    overwrite = flags["overwrite"]
    if flags["dry_run"]:
        experiments.check_precision(flags, next(iter(configs.values()))[0], options)
    for group in configs.values():
        experiments.check_data(flags, group[0], output_dir)
    if flags["dry_run"]:
        from tff_pcdd.studies import dry_run

        print(dry_run.compare(configs, output_dir, overwrite=overwrite))
        return

    from tff_pcdd import findings
    from tff_pcdd.studies import compare

    tables, failures = compare(
        configs,
        output_dir,
        options,
        overwrite=overwrite,
        parallel=parallel,
        tables=options_of_tables,
        report=False,
    )
    page = report.write_automatically(flags, comparison_dir=output_dir)
    print(f"{tables}\n")
    planned = any(config.planned_by for group in configs.values() for config in group)
    # Advice has said it already.
    if not failures and not planned and findings.CONTINUES not in tables:
        print(f"{findings.CONTINUES}.\n")
    report.print_end(f"all columns: {output_dir}/comparison.md", page)
    experiments.end_if_failed("compare", failures, sum(map(len, configs.values())), output_dir)


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    run()
