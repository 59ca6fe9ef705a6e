"""The grids of a sweep over methods, and their points, as the flags describe them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tff_pcdd import methods, other_names
from tff_pcdd.cli import compare, experiments
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError, question
from tff_pcdd.experiment.refusals import Refusals
from tff_pcdd.federated import client_optimizers
from tff_pcdd.methods import head_calibration
from tff_pcdd.settings import describe, flat_name, option_fields, split_names
from tff_pcdd.studies.sweeps import Point
from tff_pcdd.studies.tuning import Halving
from tff_pcdd.training import ExperimentConfig
from tff_pcdd.training.run_directory import path_settings

# What every method tries unless --grid says otherwise; scaled for optimizers with another default.
LEARNING_RATE, LEARNING_RATES = "client_learning_rate", ("0.003", "0.01", "0.03", "0.1")

# What chooses components of which each method has its own settings.
_OF_METHODS = ("algorithm", head_calibration.registry.setting)

# Settings that are the same at all points. With other new clients, other clients train, and the
# criterion is measured on other samples.
_COMMON = ("algorithm", "validation_fraction", "seed", "new_client_names")

# The values of settings, by their texts.
Grid = dict[str, dict[str, Any]]


def parse(flags: Flags, algorithms: Sequence[str], fixed: Collection[str] = ()) -> Grid:
    """The values that `--grid` names, each by its text.

    Args:
        fixed: further settings that have to be the same at all points.
    """
    known = {
        setting.name
        for setting in describe(ExperimentConfig)
        if any(_applies(flags, setting.name, algorithm) for algorithm in algorithms)
    }.difference(_COMMON, fixed)
    grid: Grid = {}
    for text in flags["grid"] or ():
        name, _, values = text.partition("=")
        given = split_names(values)
        if name not in known or not given:
            meant = [] if name in known else other_names.similar(name, sorted(known))
            raise SettingError(
                "grid",
                text,
                f"must be a flag of tasks.train that may differ between runs of "
                f"{', '.join(algorithms)}, with its values, such as "
                f"--grid=client_learning_rate=0.01,0.05"
                f"{question(meant, prefix='--grid=')}",
            )
        # Each value names a folder, and runs may continue with another path.
        if name in path_settings() or any("/" in value for value in given):
            raise SettingError("grid", text, "paths cannot be varied; sweep once for each of them")
        if name in grid or flags.is_given(name):
            raise SettingError("grid", text, f"{name} is given twice")
        try:
            grid[name] = {value: flags.parse_value(name, value) for value in given}
        except ValueError as error:
            raise SettingError("grid", text, str(error)) from None
        if len(grid[name]) < len(given):
            raise SettingError("grid", text, "name each value once")
    return grid


def read(flags: Flags) -> dict[str, Grid]:
    """The grid of each method: what is common to all, and the method's own coefficient."""
    algorithms = compare.read_algorithms(flags)
    given = parse(flags, algorithms, fixed=("rounds",))
    own = {name for name in given if flags.settings[name].chosen_by in _OF_METHODS}
    common = {name: values for name, values in given.items() if name not in own}
    if LEARNING_RATE not in common:
        _refuse_fixed(flags, LEARNING_RATE)
        common = {LEARNING_RATE: _learning_rates(flags), **common}
    grids = {}
    for algorithm in algorithms:
        named = {
            name: given[name] for name in given if name in own and _applies(flags, name, algorithm)
        }
        if not named:
            named = tuning(algorithm)
            for name in named:
                _refuse_fixed(flags, name)
        grids[algorithm] = {**common, **named}
    return grids


def _learning_rates(flags: Flags) -> dict[str, float]:
    """The step sizes to try: as far around the default of the clients' optimizer as for SGD."""
    chosen = client_optimizers.get(flags[client_optimizers.registry.setting])
    return learning_rates(_default_rate(chosen) / _default_rate(client_optimizers.get("sgd")))


def learning_rates(scale: float) -> dict[str, float]:
    """`LEARNING_RATES` times a factor, by their texts.

    Example:
        >>> list(learning_rates(0.1))
        ['0.0003', '0.001', '0.003', '0.01']
    """
    # Rounded, because products of floats have digits that nobody asked for.
    texts = [_text(float(rate) * scale) for rate in LEARNING_RATES]
    return {text: float(text) for text in texts}


def _default_rate(optimizer: type[client_optimizers.ClientOptimizer]) -> float:
    """The default step size of an optimizer."""
    (field,) = (field for field in option_fields(optimizer) if field.name == "learning_rate")
    return field.metadata["default"]


def tuning(algorithm: str) -> Grid:
    """The coefficient that a method declares for fair comparisons, with its values by their texts.

    Example:
        >>> tuning("fedprox"), tuning("fedavg")
        ({'fedprox_mu': {'0.001': 0.001, '0.01': 0.01, '0.1': 0.1}}, {})
    """
    cls: Any = methods.get(algorithm)
    if cls.head_calibration:
        cls = head_calibration.registry.get(cls.head_calibration)
    names = {field.name: flat_name(cls, field) for field in option_fields(cls)}
    return {
        names[option]: {_text(value): value for value in values}
        for option, values in cls.tuning.items()
    }


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _applies(flags: Flags, name: str, algorithm: str) -> bool:
    setting = flags.settings.get(name)
    given = {chooser: flags[chooser] for chooser in _OF_METHODS if flags.is_given(chooser)}
    return setting is None or experiments.applies(setting, algorithm, given)


def _refuse_fixed(flags: Flags, name: str) -> None:
    if flags.is_given(name):
        reason = f"is varied; name the values to try with grid={name}=…"
        raise SettingError(name, flags[name], reason)


def points(flags: Flags, grids: Mapping[str, Grid]) -> dict[str, list[Point]]:
    """The points of each method's grid, with the experiments of the choice and the final ones.

    If the global model decides, the personal models have no part in the choice, so they are only
    evaluated after the last round, unless a flag says otherwise. The error about a flag names all
    methods with which it cannot be used.
    """
    algorithms = list(grids)
    seeds = experiments.read_seeds(flags)
    finals = experiments.read_seeds(flags, "final_seeds")
    name = "personal_eval_every"
    rarely = {} if flags["criterion"] == "va_personal" or flags.is_given(name) else {name: 0}

    def read_point(algorithm: str, point: Mapping[str, str]) -> Point:
        values = {name: grids[algorithm][name][text] for name, text in point.items()}
        values = {**compare.as_baseline(flags, algorithm), **values}
        runs, final_runs = (
            [
                experiments.read_config(
                    flags, algorithm, algorithms, seed=seed, **{**further, **values}
                )
                for seed in numbers
            ]
            for numbers, further in ((seeds, rarely), (finals, {}))
        )
        return Point(point, runs, final_runs)

    planned: dict[str, list[Point]] = {}
    refusals = Refusals()
    for algorithm, grid in grids.items():
        with refusals.of(algorithm), compare.hinting(flags, algorithm):
            planned[algorithm] = [
                read_point(algorithm, dict(zip(grid, texts, strict=True)))
                for texts in itertools.product(*grid.values())
            ]
    refusals.check()
    return planned


def read_halving(flags: Flags, among: str) -> Halving:
    """When settings are stopped early; `among` says which settings compete, as in `Halving`."""
    try:
        rungs = tuple(map(float, flags["rungs"] or ()))
    except ValueError:
        reason = "must be numbers between 0 and 1, such as 0.25,0.5"
        raise SettingError("rungs", ",".join(flags["rungs"]), reason) from None
    return Halving(rungs, flags["reduction"], among)
