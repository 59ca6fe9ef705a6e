"""Federated learning when clients hold only some of the classes, or classes are long-tailed.

FedGELA, FedMR, FedLoGe and their rivals on TensorFlow Federated:

    import tff_pcdd

    config = tff_pcdd.ExperimentConfig.from_settings(algorithm="fedgela", rounds=10)
    with tff_pcdd.Simulation(config) as simulation:
        for _ in range(10):
            simulation.next_round()
        print(simulation.evaluate()["ga"])
        model = simulation.keras_model(client="3")

Importing the package is cheap: whatever needs TensorFlow is loaded when it is first used. The
import lets TFF be imported beside current versions of TensorFlow, and says on standard error if a
version does not fit; see `stack`.
"""

import sys

# `python -m tff_pcdd.…` puts the working directory first on the module path, where a file numpy.py
# would be imported in the place of NumPy. While it looks for the program, "-m" stands for its name,
# which precedes the other arguments, maybe in one word with options: "-um…". Programs of other
# packages may import this one meanwhile, and keep their directory.
# Python 3.10, which is refused, has no `safe_path`.
if getattr(sys, "argv", [""])[:1] == ["-m"] and not getattr(sys.flags, "safe_path", False):
    _program = sys.orig_argv[-len(sys.argv)]
    _program = _program.partition("m")[2] if _program.startswith("-") else _program
    if _program.partition(".")[0] == __name__:
        del sys.path[0]

import importlib
from typing import TYPE_CHECKING, Any

from tff_pcdd import stack
from tff_pcdd._version import __version__

if (_problem := stack.prepare()) is not None:
    print(f"tff_pcdd: {_problem}", file=sys.stderr)

if TYPE_CHECKING:
    from tff_pcdd import (
        data,
        diagnostics,
        evaluation,
        export,
        federated,
        layers,
        losses,
        methods,
        models,
        realignment,
        report,
        runtime,
        studies,
        training,
    )
    from tff_pcdd.data import Federation, load_federation
    from tff_pcdd.errors import DataError, SettingError
    from tff_pcdd.export import ExportOptions, export_run
    from tff_pcdd.studies import compare, sweep
    from tff_pcdd.training import (
        Callback,
        ExperimentConfig,
        Run,
        RunOptions,
        Simulation,
        evaluate_run,
        run_experiment,
    )

# Maps each public name to the module that defines it; a module maps to itself.
_NAMES = {
    "Federation": "data",
    "load_federation": "data",
    "DataError": "errors",
    "SettingError": "errors",
    "ExportOptions": "export",
    "export_run": "export",
    "compare": "studies",
    "sweep": "studies",
    "Callback": "training",
    "ExperimentConfig": "training",
    "Run": "training",
    "RunOptions": "training",
    "Simulation": "training",
    "evaluate_run": "training",
    "run_experiment": "training",
}

__all__ = [
    "Callback",
    "DataError",
    "ExperimentConfig",
    "ExportOptions",
    "Federation",
    "Run",
    "RunOptions",
    "SettingError",
    "Simulation",
    "__version__",
    "compare",
    "data",
    "diagnostics",
    "evaluate_run",
    "evaluation",
    "export",
    "export_run",
    "federated",
    "layers",
    "load_federation",
    "losses",
    "methods",
    "models",
    "realignment",
    "report",
    "run_experiment",
    "runtime",
    "studies",
    "sweep",
    "training",
]


def __getattr__(name: str) -> Any:
    if _problem is not None and name in _NAMES:
        raise ImportError(_problem)
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
