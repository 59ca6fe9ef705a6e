"""Runs in a directory: rounds, checkpoints and callbacks; and the names of experiments.

from tff_pcdd.training import ExperimentConfig, run_experiment

config = ExperimentConfig.from_settings(algorithm="fedgela", rounds=10)
summary = run_experiment(config, "runs/fedgela")
"""

from etils import epy

# Settings can be checked without TensorFlow; each name is imported when it is first used.
with epy.lazy_api_imports(globals()):
    from tff_pcdd.experiment.compute import ComputeOptions
    from tff_pcdd.experiment.config import EvaluationConfig, ExperimentConfig, TrainingConfig
    from tff_pcdd.experiment.history import History
    from tff_pcdd.experiment.initial_weights import InitialWeights
    from tff_pcdd.experiment.simulation import Simulation
    from tff_pcdd.training.callbacks import Callback
    from tff_pcdd.training.post_hoc import calibrate_run
    from tff_pcdd.training.restored import evaluate_run, restore_run
    from tff_pcdd.training.run import Run
    from tff_pcdd.training.run_options import RunOptions
    from tff_pcdd.training.start import run_experiment

__all__ = [
    "Callback",
    "ComputeOptions",
    "EvaluationConfig",
    "ExperimentConfig",
    "History",
    "InitialWeights",
    "Run",
    "RunOptions",
    "Simulation",
    "TrainingConfig",
    "calibrate_run",
    "evaluate_run",
    "restore_run",
    "run_experiment",
]
