"""The packages below this one, TensorFlow, Keras and TFF, and how they are imported together.

TFF 0.87 is of 2024: its metadata asks for TensorFlow 2.14 and for Python before 3.12. Its code runs
with more recent versions, if it finds Keras 2 and need not import the parts of its dependencies
that those versions have left behind. `import tff_pcdd` prepares both:

- `tf.keras` is Keras 3 from TensorFlow 2.16 on, and TFF is written for Keras 2. TensorFlow takes
  Keras 2 from the package tf-keras if TF_USE_LEGACY_KERAS is set before `tf.keras` is first used.
- The modules in `_EMPTY` are found empty. TFF imports them, but nothing that a user of this package
  calls needs them.
- The modules in `_LAZY` are executed when they are first used, which makes each start shorter.

It also keeps TensorFlow from writing about itself while it is imported, unless
TF_CPP_MIN_LOG_LEVEL=0 asks for that.

Nothing here imports TensorFlow. Pythons from 3.9 on can read the module, to say that they are
not supported.
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import logging
import os
import sys
import tempfile

PYTHON = ((3, 11), (3, 13))
TENSORFLOW = ((2, 17), (2, 21))
# The first TensorFlow that has wheels for a Python, where it is not the oldest.
_FIRST_TENSORFLOW = {(3, 13): (2, 20)}
# Installed without their dependencies, which cannot be resolved.
FEDERATED = {
    "tensorflow-federated": "0.87.0",
    "tensorflow-model-optimization": "0.8.0",
    "tensorflow-privacy": "0.9.0",
}
INSTALL = "pip install --no-deps --ignore-requires-python " + " ".join(
    map("==".join, FEDERATED.items())
)

_KERAS_VARIABLE = "TF_USE_LEGACY_KERAS"
_TRUE = ("true", "True", "1")
_BUILDS = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly")

# Modules that are found empty, and the names that are imported from them.
_EMPTY = {
    # They import tensorflow-estimator, which TensorFlow 2.16 has dropped; TFF takes only the
    # queries of tensorflow-privacy.
    "tensorflow_privacy.v1": (),
    "tensorflow_privacy.privacy.estimators": (),
    "tensorflow_privacy.privacy.estimators.dnn": ("DNNClassifier",),
    # `tff.jax` needs jax.lib.xla_client, which jax has dropped.
    "tensorflow_federated.python.core.environments.jax": (),
    # It needs google-vizier, which asks for attrs and sqlalchemy of 2023.
    "tensorflow_federated.python.learning.programs.vizier_program_logic": (
        "train_model_with_vizier",
    ),
}

# Modules that are executed when something in them is first used. TFF's dependencies import them,
# but nobody uses them here; they load Keras 3 with Matplotlib, and SciPy's signals. Only noise that
# is sampled from discrete distributions needs TensorFlow Probability.
_API = "tensorflow_model_optimization.python.core.api"
_LAZY = (
    f"{_API}.sparsity.keras",
    f"{_API}.clustering.keras",
    f"{_API}.quantization.keras",
    f"{_API}.experimental.combine",
    "dp_accounting.pld",
    "tensorflow_probability",
)


def _unavailable(*_args, **_kwargs):
    """Stands for what is imported from an empty module.

    Raises:
        NotImplementedError: in any case.
    """
    raise NotImplementedError("not available together with tff_pcdd; see tff_pcdd.stack")


# How the lines begin that TensorFlow's libraries write while they are loaded: that messages come
# before the log is set up, and messages of the level INFO, such as those about oneDNN.
_START_UP = (b"WARNING: All log messages before absl::InitializeLog()", b"I0000 ")


@contextlib.contextmanager
def _start_up_lines_left_out():
    """Leaves out what TensorFlow writes about itself, as TF_CPP_MIN_LOG_LEVEL asks.

    TensorFlow 2.21 does not look at the variable before its libraries are loaded. What they write
    directly to the file of standard error meanwhile is kept, and all other lines are written at the
    end. Where they could end the process, for lack of AVX, nothing is kept back.
    """
    from tff_pcdd import machine  # not before the check of Python, as it imports etils

    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0" or "avx" not in machine.cpu_flags():
        yield
        return
    try:
        copy = os.dup(2)
    except OSError:  # Standard error is closed.
        yield
        return
    stream = sys.stderr
    shown = open(  # noqa: SIM115  (closing it may fail)
        copy, "w", buffering=1, encoding="utf-8", errors="backslashreplace"
    )
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        # What Python writes, such as the stage of a program, is shown at once.
        if stream is sys.__stderr__:
            sys.stderr = shown
        try:
            yield
        finally:
            sys.stderr = stream
            # TensorFlow's log has been set up to write to what is closed below.
            for handler in logging.getLogger("tensorflow").handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is shown:
                    handler.setStream(stream)
            os.dup2(shown.fileno(), 2)
            written.seek(0)
            # It may be full.
            with contextlib.suppress(OSError):
                for line in written:
                    if not line.startswith(_START_UP):
                        shown.buffer.write(line)
            with contextlib.suppress(OSError):
                shown.close()


def _find_tensorflow():
    """TensorFlow, which is silent while it is imported."""
    spec = importlib.machinery.PathFinder.find_spec("tensorflow")
    if spec is not None and spec.loader is not None:
        execute = spec.loader.exec_module

        def exec_module(module):
            # Without messages of the level INFO; warnings and errors are shown.
            os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
            with _start_up_lines_left_out():
                execute(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def _find_lazily(fullname, path):
    """A module that is executed when an attribute of it is first used."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path)
    if spec is not None and spec.loader is not None:
        spec.loader = importlib.util.LazyLoader(spec.loader)
    return spec


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules in `_EMPTY` and `_LAZY`, and refuses TFF where it cannot work."""

    def find_spec(self, fullname, path=None, target=None):
        """Called by Python for each module that is imported for the first time."""
        if fullname == "tensorflow_federated" and (problem := find_problem()):
            raise ImportError(problem)
        if fullname == "tensorflow":
            return _find_tensorflow()
        if fullname in _EMPTY:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname in _LAZY:
            return _find_lazily(fullname, path)
        return None

    def create_module(self, spec):
        """Leaves it to Python to make the module."""

    def exec_module(self, module):
        """Gives an empty module the names that are imported from it."""
        vars(module).update(dict.fromkeys(_EMPTY[module.__name__], _unavailable))


def prepare():
    """Lets TFF be imported, by whichever module comes first.

    Returns:
        What `find_problem` returns.
    """
    os.environ.setdefault(_KERAS_VARIABLE, "1")
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        # What an attempt to import TFF without the finder has left behind would stop the next one.
        for package in ("tensorflow_federated", "tensorflow_privacy"):
            if package not in sys.modules:
                for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
                    del sys.modules[name]
    return find_problem()


def find_problem():
    """Why computations would fail here; None if all versions fit together.

    Returns:
        One line that says what is there, what is needed, and what to do.
    """
    checks = (wrong_python, _check_tensorflow, _check_keras, _check_federated)
    return next(filter(None, (check() for check in checks)), None)


def wrong_python():
    """The line of `find_problem` about Python; None if its version fits."""
    if PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]:
        return None
    return (
        f"this is Python {_shown(sys.version_info[:3])}, and tff_pcdd needs {_range(PYTHON)}; "
        f"make an environment with one of them: python{_shown(PYTHON[1])} -m venv .venv"
    )


def _check_tensorflow():
    lowest, highest = TENSORFLOW
    lowest = _FIRST_TENSORFLOW.get(sys.version_info[:2], lowest)
    mend = f'pip install "tensorflow=={_shown(highest)}.*" "tf-keras=={_shown(highest)}.*"'
    found = version("tensorflow")
    if found is None:
        return f"TensorFlow is missing; {mend}"
    if lowest <= _numbers(found) <= highest:
        return None
    here = f" with Python {_shown(sys.version_info[:2])}" if lowest != TENSORFLOW[0] else ""
    return (
        f"this is TensorFlow {found}, and tff_pcdd needs {_range((lowest, highest))}{here}; {mend}"
    )


def version(package):
    """The version of an installed package, without importing it; None if it is not installed.

    Args:
        package: its name; "tensorflow" stands for all builds of TensorFlow.
    """
    if package == "tensorflow":
        if found := getattr(sys.modules.get(package), "__version__", None):
            return found
        return next(filter(None, map(_distribution_version, _BUILDS)), None)
    return _distribution_version(package)


def _check_keras():
    value = os.environ.get(_KERAS_VARIABLE)
    if value not in _TRUE:
        return (
            f"{_KERAS_VARIABLE} is {value!r}, and tff_pcdd needs Keras 2; "
            f"unset it: unset {_KERAS_VARIABLE}"
        )
    if version("tf-keras") is None:
        highest = _shown(_numbers(version("tensorflow")))
        return f'tf-keras (Keras 2) is missing; pip install "tf-keras=={highest}.*"'
    tensorflow = sys.modules.get("tensorflow")
    loaded = tensorflow and getattr(tensorflow.keras, "__version__", None)  # Keras 2 does not say
    if loaded:
        return (
            f"tf.keras is Keras {loaded} already, and tff_pcdd needs Keras 2; "
            f"import tff_pcdd first, or set {_KERAS_VARIABLE}=1"
        )
    return None


def _check_federated():
    wrong = [name for name, needed in FEDERATED.items() if version(name) != needed]
    if not wrong:
        return None
    found = ", ".join(f"{name} {version(name) or '(missing)'}" for name in wrong)
    needed = ", ".join(f"{name} {FEDERATED[name]}" for name in wrong)
    return f"found {found}, and tff_pcdd needs {needed}; {INSTALL}"


@functools.cache
def _distribution_version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version):
    """(2, 21) for "2.21.0rc1"."""
    return tuple(map(int, version.split(".")[:2]))


def _shown(numbers):
    return ".".join(map(str, numbers))


def _range(ends):
    return f"{_shown(ends[0])} to {_shown(ends[1])}"
