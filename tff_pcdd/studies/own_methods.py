"""Methods of the user's own, traced before the first run of a study is computed.

Most errors in the hooks of a method are found when its computations are traced, which takes
seconds. The turn of a method may come hours after the start of a study. The methods of the package
are traced by its tests.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Hashable, Sequence

from etils import epy

from tff_pcdd import heavy, stages
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment import planning, refusals
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.experiment.config import SEEDS
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
    code = [type(each) for each in compose(config.method, config.head_calibration).code]
    own = [cls.__module__ for cls in code if not cls.__module__.startswith("tff_pcdd.")]
    settings = {**config.to_settings(), "seed": None, **dict.fromkeys(SEEDS)}
    key = (*code, repr(settings))
    if not own or key in _traced:
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
    except SettingError:
        raise
    except Exception as error:
        text = traceback.format_exc()
        reason = f"cannot be traced{_place(text, own)}: {text.strip().splitlines()[-1].strip()}"
        raise SettingError("algorithm", config.algorithm, reason) from error
    finally:
        stages.leave()
    _traced.add(key)


def _place(text: str, own: Sequence[str]) -> str:
    """The last line of the user's modules in a traceback, or in a message of AutoGraph."""
    files = {getattr(sys.modules.get(name), "__file__", None) for name in own}
    lines = [place for place in re.findall(r'File "(.+)", line (\d+)', text) if place[0] in files]
    return f" ({lines[-1][0]}, line {lines[-1][1]})" if lines else ""
