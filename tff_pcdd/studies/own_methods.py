"""Methods of the user's own, traced before the first run of a study is computed.

Most errors in the hooks of a method are found when its computations are traced, which takes
seconds. The turn of a method may come hours after the start of a study. The methods of the package
are traced by its tests.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from etils import epy

from tff_pcdd import heavy, stages
from tff_pcdd.experiment import planning, refusals
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.experiment.config import SEEDS
from tff_pcdd.federated import own_code
from tff_pcdd.methods.calibrated import compose
from tff_pcdd.training import ExperimentConfig

# The process of a study with parallel runs imports neither TensorFlow nor TFF.
with epy.lazy_imports():
    from tff_pcdd import federated

# What this process has traced without an error.
_traced: set[Hashable] = set()


def check(configs: Sequence[ExperimentConfig], compute: ComputeOptions) -> None:
    """Traces each method that is not of the package, once for all seeds with the same settings.

    Raises:
        SettingError: a method cannot be traced; names all such methods, and where they fail.
    """
    refusals.for_all(lambda config: _check(config, compute), configs, lambda run: run.algorithm)


def _check(config: ExperimentConfig, compute: ComputeOptions) -> None:
    method = compose(config.method, config.head_calibration)
    settings = {**config.to_settings(), "seed": None, **dict.fromkeys(SEEDS)}
    key = (*map(type, method.code), repr(settings))
    if not own_code.own_modules(method) or key in _traced:
        return
    stages.enter("loading data")
    try:
        compute.runtime.prepare()
        federation = config.data.build()
        spec = planning.training_spec(config, federation, compute)
    except Exception:
        return  # The run says it; others may have other data.
    heavy.load("tensorflow_federated")
    compute.prepare_tracing(deterministic=config.training.deterministic)
    try:
        federated.build_process(spec, config.aggregator)
    finally:
        stages.leave()
    _traced.add(key)
