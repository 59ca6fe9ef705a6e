"""Experiments: settings, the round loop, what is kept between rounds and what is written.

from tff_pcdd.training import Experiment, ExperimentConfig
summary = Experiment(ExperimentConfig(algorithm="fedgela"), "runs/fedgela").run()
"""

from etils import epy

# Settings are checked before TensorFlow is needed; the rest is imported when it is first used.
with epy.lazy_api_imports(globals()):
    from tff_pcdd.training.comparison import compare
    from tff_pcdd.training.config import ExperimentConfig, RunOptions
    from tff_pcdd.training.experiment import Experiment, evaluate_run
    from tff_pcdd.training.grid_search import sweep
    from tff_pcdd.training.runs import run_experiment

__all__ = [
    "Experiment",
    "ExperimentConfig",
    "RunOptions",
    "compare",
    "evaluate_run",
    "run_experiment",
    "sweep",
]
