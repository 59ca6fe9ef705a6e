"""Settings and names are known without TensorFlow, so that --help answers at once."""

import subprocess
import sys

SCRIPT = """
import sys
from tff_pcdd import federated, methods
from tff_pcdd.evaluation import metrics
from tff_pcdd.federated import SGD, Aggregator, TrainingSpec, aggregators
from tff_pcdd.settings import describe, option_fields

for registry in (methods.registry, aggregators.registry, metrics.registry):
    assert registry.names()
    for name, cls in registry.classes().items():
        cls()
        option_fields(cls)
print(*(setting.name for setting in describe(SGD)))
heavy = ("tensorflow", "tensorflow_federated", "dp_accounting", "sklearn", "matplotlib")
loaded = {name.split(".")[0] for name in sys.modules}
print(*(name for name in heavy if name in loaded))
"""


def test_listing_imports_no_tensorflow():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names, loaded = done.stdout.splitlines()
    expected = "client_learning_rate client_momentum client_weight_decay client_clip_norm"
    assert names == expected
    assert loaded == ""
