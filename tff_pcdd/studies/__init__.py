"""Studies of many runs: comparisons of methods, sweeps over settings.

from tff_pcdd.studies import compare
from tff_pcdd.training import ExperimentConfig

configs = [ExperimentConfig.from_settings(algorithm=name) for name in ("fedavg", "fedgela")]
print(compare(configs, "runs/compare").report)
"""

from etils import epy

with epy.lazy_api_imports(globals()):
    from tff_pcdd.studies.comparison import Comparison, compare
    from tff_pcdd.studies.method_sweep import MethodSweep, sweep_methods
    from tff_pcdd.studies.parallel import ParallelOptions
    from tff_pcdd.studies.sweeps import Outcome, Point, Sweep, sweep
    from tff_pcdd.studies.table_options import TableOptions
    from tff_pcdd.studies.tuning import Halving

__all__ = [
    "Comparison",
    "Halving",
    "MethodSweep",
    "Outcome",
    "ParallelOptions",
    "Point",
    "Sweep",
    "TableOptions",
    "compare",
    "sweep",
    "sweep_methods",
]
