"""TFF is imported beside current versions of TensorFlow, whatever is imported first."""

import os
import pathlib
import subprocess
import sys

import pytest

from tff_pcdd import stack

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_GOOD = {
    "tensorflow": "2.21.0",
    "tf-keras": "2.21.0",
    "tensorflow-federated": "0.87.0",
    "tensorflow-model-optimization": "0.8.0",
    "tensorflow-privacy": "0.9.0",
}
_LINE = (
    "pip install --no-deps --ignore-requires-python tensorflow-federated==0.87.0 "
    "tensorflow-model-optimization==0.8.0 tensorflow-privacy==0.9.0"
)


@pytest.fixture
def installed(monkeypatch):
    """Says what is installed; TensorFlow has not been imported."""

    def install(python=(3, 12, 1), **versions):
        found = _GOOD | {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr(stack, "version", found.get)
        monkeypatch.setattr(sys, "version_info", (*python, "final", 0))
        monkeypatch.delitem(sys.modules, "tensorflow", raising=False)

    return install


@pytest.mark.parametrize("python", [(3, 11, 7), (3, 12, 1), (3, 13, 0)])
@pytest.mark.parametrize("tensorflow", ["2.20.0", "2.21.1"])
def test_supported_versions(installed, python, tensorflow):
    installed(python, tensorflow=tensorflow)
    assert stack.find_problem() is None


@pytest.mark.parametrize(
    ("versions", "found", "needed", "command"),
    [
        ({"python": (3, 10, 13)}, "Python 3.10.13", "3.11 to 3.13", "python3.13 -m venv .venv"),
        ({"python": (3, 14, 0)}, "Python 3.14.0", "3.11 to 3.13", "python3.13 -m venv .venv"),
        ({"tensorflow": "2.16.2"}, "TensorFlow 2.16.2", "2.17 to 2.21", '"tensorflow==2.21.*"'),
        ({"tensorflow": "2.22.0rc1"}, "2.22.0rc1", "2.17 to 2.21", '"tf-keras==2.21.*"'),
        (
            {"tensorflow": "2.19.1", "python": (3, 13, 0)},
            "TensorFlow 2.19.1",
            "2.20 to 2.21 with Python 3.13",
            '"tensorflow==2.21.*"',
        ),
        ({"tensorflow": None}, "TensorFlow is missing", "", '"tensorflow==2.21.*"'),
        (
            {"tf_keras": None, "tensorflow": "2.19.1"},
            "tf-keras (Keras 2) is missing",
            "",
            'pip install "tf-keras==2.19.*"',
        ),
        (
            {"tensorflow_federated": None},
            "tensorflow-federated (missing)",
            "tensorflow-federated 0.87.0",
            _LINE,
        ),
        (
            {"tensorflow_privacy": "0.8.12"},
            "tensorflow-privacy 0.8.12",
            "tensorflow-privacy 0.9.0",
            _LINE,
        ),
    ],
)
def test_problem_is_one_line_with_what_is_there_and_what_is_needed(
    installed, versions, found, needed, command
):
    installed(**versions)
    problem = stack.find_problem()
    assert "\n" not in problem
    assert found in problem
    assert not needed or f"needs {needed}" in problem
    assert command in problem.partition("; ")[2]


def test_keras_3_that_was_asked_for(installed, monkeypatch):
    installed()
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    assert stack.find_problem() == (
        "TF_USE_LEGACY_KERAS is '0', and tff_pcdd needs Keras 2; unset it: "
        "unset TF_USE_LEGACY_KERAS"
    )


def _python(code, **variables):
    """The lines that a new process writes to standard output and to standard error."""
    environment = {name: text for name, text in os.environ.items() if "KERAS" not in name}
    environment |= {"PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    environment = {name: text for name, text in environment.items() if text is not None}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


_KERAS_3 = "import tensorflow as tf; tf.keras.layers.Dense(3)"
_FOUND = "import tensorflow as tf; print(tff.__version__, tf.keras.layers.Layer.__module__)"


@pytest.mark.integration
@pytest.mark.parametrize(
    "first",
    [
        # As all of these tests do.
        pytest.param("import tff_pcdd", marks=pytest.mark.rare),
        pytest.param("import tensorflow, tff_pcdd", marks=pytest.mark.rare),
        pytest.param("import keras, tff_pcdd", marks=pytest.mark.rare),
        # It fails, but then it works.
        "import contextlib\nwith contextlib.suppress(ImportError):\n"
        "    import tensorflow_federated\nimport tff_pcdd",
    ],
    ids=["tff_pcdd", "tensorflow", "keras", "tensorflow_federated"],
)
def test_any_package_may_be_imported_first(first):
    output, errors = _python(f"{first}\nimport tensorflow_federated as tff\n{_FOUND}")
    assert output == ["0.87.0 tf_keras.src.engine.base_layer"], errors


@pytest.mark.integration
@pytest.mark.parametrize("level", [None, pytest.param("0", marks=pytest.mark.rare)])
def test_tensorflow_says_nothing_of_itself_unless_it_is_asked_to(level):
    """A tensor is made, because some lines are written only then."""
    code = "import tff_pcdd, tensorflow as tf; print(int(tf.constant(2)))"
    output, errors = _python(code, TF_CPP_MIN_LOG_LEVEL=level, CUDA_VISIBLE_DEVICES="-1")
    assert output == ["2"]
    assert errors == [] if level is None else any(line.startswith("I0000 ") for line in errors)


@pytest.mark.integration
def test_what_tensorflow_warns_of_later_is_shown():
    code = "import tff_pcdd, tensorflow as tf; tf.get_logger().warning('slow')"
    _, errors = _python(code, CUDA_VISIBLE_DEVICES="-1")
    assert "WARNING:tensorflow:slow" in errors
    assert not any("closed" in line for line in errors), errors


@pytest.mark.integration
def test_tensorflow_is_imported_without_standard_error():
    code = "import os; os.close(2); import tff_pcdd, tensorflow as tf; print(int(tf.constant(2)))"
    assert _python(code, CUDA_VISIBLE_DEVICES="-1") == (["2"], [])


@pytest.mark.integration
def test_what_nobody_uses_is_loaded_when_it_is_used_or_says_that_it_is_not_available():
    """Keras 3, which TensorFlow Model Optimization imports, would bring Matplotlib with it."""
    code = """
import sys, tff_pcdd, tensorflow_federated as tff, tensorflow as tf
from tff_pcdd import layers
layers.BatchNormalization()(layers.StatelessDropout(0.5)(tf.keras.Input((4,))))
lazy = {"keras", "matplotlib", "scipy.signal", "tensorflow_probability.python"}
print(sorted(lazy & {*sys.modules}))
import dp_accounting, tensorflow_probability
from tensorflow_model_optimization.sparsity import keras as sparsity
print(dp_accounting.pld.PLDAccountant.__name__, sparsity.prune_low_magnitude.__name__)
print(tensorflow_probability.distributions.Geometric.__name__)
print(hasattr(tff.jax, "computation"))
try:
    tff.learning.programs.train_model_with_vizier()
except NotImplementedError as error:
    print(error)
"""
    output, errors = _python(code)
    assert output == [
        "[]",
        "PLDAccountant prune_low_magnitude",
        "Geometric",
        "False",
        "not available together with tff_pcdd; see tff_pcdd.stack",
    ], errors


@pytest.mark.integration
def test_keras_3_in_use_is_said_in_one_line_and_a_program_ends():
    code = f"""
{_KERAS_3}
import tff_pcdd
try:
    tff_pcdd.Simulation
except ImportError as error:
    print(error)
from tff_pcdd.cli import train
train.run(['train', '--output_dir=x'])
print('it went on')
"""
    output, errors = _python(code)
    (line,) = [line for line in errors if "Keras" in line]
    assert "tf.keras is Keras 3." in line and "import tff_pcdd first" in line
    assert output == [line.removeprefix("tff_pcdd: ")]
    assert line.startswith("tff_pcdd: ")
    assert not any("Traceback" in line for line in errors)


@pytest.mark.integration
def test_missing_tff_is_said_when_the_package_is_imported():
    """Without TFF, TensorFlow's part of the package still works."""
    hide = (
        "import importlib.metadata as metadata\nfound = metadata.version\n"
        "def version(name):\n"
        "    if name == 'tensorflow-federated':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n"
    )
    output, errors = _python(
        f"{hide}import tff_pcdd.losses\nprint(tff_pcdd.losses.__name__)\n"
        "import tensorflow_federated"
    )
    assert output == ["tff_pcdd.losses"]
    (said,) = [line for line in errors if line.startswith("tff_pcdd: ")]
    assert "found tensorflow-federated (missing)" in said and said.endswith(_LINE)
    assert errors[-1] == said.replace("tff_pcdd:", "ImportError:", 1)
