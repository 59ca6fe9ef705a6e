"""Federated computations of any method: `build_process(spec)` returns TFF computations.

The names below are imported when they are first used, so that importing the package loads neither
TensorFlow nor TensorFlow Federated.
"""

from etils import epy

with epy.lazy_api_imports(globals()):
    from tff_pcdd.federated.aggregators import Aggregator
    from tff_pcdd.federated.client_optimizers import ClientOptimizer
    from tff_pcdd.federated.client_optimizers.sgd import SGD
    from tff_pcdd.federated.client_work import ClientWork
    from tff_pcdd.federated.evaluation import GlobalEvaluation, PersonalEvaluation
    from tff_pcdd.federated.local_training import LocalTraining
    from tff_pcdd.federated.local_work import LocalWork
    from tff_pcdd.federated.outputs import (
        build_global_logits,
        build_personal_logits,
        build_personalization,
    )
    from tff_pcdd.federated.process import FederatedProcess, build_process
    from tff_pcdd.federated.schedules import Schedule
    from tff_pcdd.federated.server_optimizers import ServerOptimizer
    from tff_pcdd.federated.server_work import ServerWork
    from tff_pcdd.federated.state import make_message
    from tff_pcdd.federated.training_spec import TrainingSpec

__all__ = [
    "SGD",
    "Aggregator",
    "ClientOptimizer",
    "ClientWork",
    "FederatedProcess",
    "GlobalEvaluation",
    "LocalTraining",
    "LocalWork",
    "PersonalEvaluation",
    "Schedule",
    "ServerOptimizer",
    "ServerWork",
    "TrainingSpec",
    "build_global_logits",
    "build_personal_logits",
    "build_personalization",
    "build_process",
    "make_message",
]
