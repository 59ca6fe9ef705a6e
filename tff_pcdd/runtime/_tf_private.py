"""What is not part of TensorFlow's public interface; the lock file pins the version."""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from etils import epy
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import config as tf_config
from tensorflow.python.framework import ops, registry
from tensorflow.python.ops import resource_variable_ops

from tff_pcdd.errors import SettingError

with epy.lazy_imports():
    from tf_keras.src.utils import version_utils

# Read by TensorFlow before the first operation of oneDNN.
_CALLER_WORKS = "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"
_AUTOTUNE = "TF_CUDNN_USE_AUTOTUNE"
# Read by XLA once in a process, before it compiles its first program.
_XLA_FLAGS = "XLA_FLAGS"
_XLA_REPEATS = "--xla_gpu_deterministic_ops=true"


def let_idle_threads_sleep() -> None:
    """Makes the threads of TensorFlow's operations wait without computing; changes no result.

    By default, they spin for a while, at the cost of other processes on the same cores. Has to be
    called before the first operation; later, it has no effect.
    """
    config = config_pb2.ConfigProto()
    config.experimental.disable_thread_spinning = True
    context.context()._config = config


def prepare() -> None:
    """Prepares TensorFlow for the graphs of this package; changes no result.

    Has to be called before the first operation, and before graphs that shall be freed are traced.
    """
    _avoid_thread_switches()
    _release_custom_gradients()


def _avoid_thread_switches() -> None:
    """Makes an operation wake fewer threads; changes no result.

    By default, the thread that runs an operation of oneDNN gives all parts of it to other threads
    and waits for them. Here it computes one of the parts itself, unless the environment says
    otherwise. The number of parts, and thus the order of sums, remains the same. Idle threads
    sleep. Has to be called before the first operation; later, it has no effect.
    """
    os.environ.setdefault(_CALLER_WORKS, "1")
    if not context.context()._initialized:
        let_idle_threads_sleep()


class _Gradients(registry.Registry):
    """Gradients by name, of which custom ones live as long as the graph that has their operations.

    TensorFlow keeps them for ever and, through the tensors that they name, these graphs, too
    (tensorflow/tensorflow issue 97697).
    """

    def __init__(self, others: registry.Registry) -> None:
        super().__init__(others._name)
        self._registry = others._registry

    def register(self, candidate: Callable[..., Any], name: str | None = None) -> None:
        if not (name and name.startswith("CustomGradient-")):
            return super().register(candidate, name)
        graph, reference = ops.get_default_graph(), weakref.ref(candidate)

        def gradient(*arguments: Any) -> Any:
            candidate = reference()
            assert candidate is not None, "its graph is differentiated, so it lives"
            return candidate(*arguments)

        graph._custom_gradients = [*getattr(graph, "_custom_gradients", ()), candidate]
        weakref.finalize(graph, self._registry.pop, name, None).atexit = False
        return super().register(gradient, name)


def _release_custom_gradients() -> None:
    """Lets graphs with custom gradients be freed; of those that are traced from now on."""
    if not isinstance(ops.gradient_registry, _Gradients):
        ops.gradient_registry = ops._gradient_registry = _Gradients(ops.gradient_registry)


# Whether this package has made operations deterministic, and what it has written to the environment
# for that, with what was there before.
_enabled_here = False
_written: dict[str, tuple[str, str | None]] = {}


def require_determinism(required: bool) -> None:
    """Makes the operations of this process deterministic, or no longer.

    A program that has called `tf.config.experimental.enable_op_determinism` itself stays
    deterministic.

    Args:
        required: whether operations without a deterministic implementation fail, and neither
            TensorFlow nor XLA chooses algorithms by their speed. XLA goes on as it has begun; see
            `xla_repeats`.

    Raises:
        SettingError: XLA_FLAGS names a file that cannot be read.
    """
    global _enabled_here
    if required:
        if not _written:
            flags = _xla_flags()
            # Read whenever an operation of cuDNN is made.
            _write(_AUTOTUNE, os.environ.get(_AUTOTUNE, "0"))
            _write(_XLA_FLAGS, f"{flags} {_XLA_REPEATS}".strip())
        if not tf_config.is_op_determinism_enabled():
            tf_config.enable_op_determinism()
            _enabled_here = True
        return
    if _enabled_here:
        tf_config.disable_op_determinism()
        _enabled_here = False
    for name, (written, before) in _written.items():
        if os.environ.get(name) == written:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before
    _written.clear()


def _write(name: str, value: str) -> None:
    _written[name] = (value, os.environ.get(name))
    os.environ[name] = value


def _xla_flags() -> str:
    """The flags that XLA will read: the variable has them, or names a file that has them.

    XLA ends the process if it cannot read the file.
    """
    value = os.environ.get(_XLA_FLAGS, "").strip()
    if value and not value.startswith("-"):
        try:
            return " ".join(Path(value).read_text(encoding="utf-8").split())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            reason = f"names a file that cannot be read: {why}; flags begin with two dashes"
            raise SettingError(_XLA_FLAGS, value, reason) from None
    return value


_xla_has_read: str | None = None


def note_use_of_xla() -> None:
    """Has to be called before XLA compiles a program of this package."""
    global _xla_has_read
    if _xla_has_read is None:
        _xla_has_read = _xla_flags()


def xla_repeats() -> bool:
    """Whether XLA is deterministic on GPUs, or still can be: it reads its flags only once.

    Programs that others than this package have compiled in this process are not known here.
    """
    return _xla_has_read is None or _XLA_REPEATS in _xla_has_read.split()


class Numerics:
    """TF32 and determinism, which are of the whole process: calls that differ in them take turns.

    Example:
        with numerics_of_calls.of(tensor_float_32=False, deterministic=True):
            …
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._mode, self._calls = (False, False), 0

    @contextlib.contextmanager
    def of(self, *, tensor_float_32: bool, deterministic: bool) -> Iterator[None]:
        """A call, which waits until those of other values have ended."""
        mode = (tensor_float_32, deterministic)
        with self._changed:
            self._changed.wait_for(lambda: not self._calls or self._mode == mode)
            tf_config.enable_tensor_float_32_execution(tensor_float_32)
            require_determinism(deterministic)
            self._mode = mode
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()


numerics_of_calls = Numerics()


def numerics() -> tuple[bool, bool]:
    """What compiled programs depend on besides their graph: TF32, and determinism."""
    return (
        tf_config.tensor_float_32_execution_enabled(),
        tf_config.is_op_determinism_enabled(),
    )


# The bases of classes of Keras layers outside of graphs, and in graphs.
_bases: weakref.WeakKeyDictionary[type, tuple[tuple[type, ...], ...]] = weakref.WeakKeyDictionary()
_makes_layers_of_a_graph = False


@contextlib.contextmanager
def layers_of_a_graph() -> Iterator[None]:
    """Layers that were made outside of graphs are usable after the block, which makes some in one.

    When Keras makes a layer in a graph outside of functions, as TFF's are, it changes the bases of
    the layer's class, and thereby of all layers that exist: models that were made before could not
    be called any more.
    """
    global _makes_layers_of_a_graph
    if _makes_layers_of_a_graph:
        yield
        return
    swap = version_utils.swap_class

    def noting(kind: type, *arguments: Any) -> type:
        before = kind.__bases__
        swapped = swap(kind, *arguments)
        if kind.__bases__ != before:
            _bases.setdefault(kind, (before, kind.__bases__))
        return swapped

    _set_bases(in_a_graph=True)
    version_utils.swap_class, _makes_layers_of_a_graph = noting, True
    try:
        yield
    finally:
        version_utils.swap_class, _makes_layers_of_a_graph = swap, False
        _set_bases(in_a_graph=False)


def _set_bases(*, in_a_graph: bool) -> None:
    for kind, bases in _bases.items():
        kind.__bases__ = bases[in_a_graph]


def variable_without_value(**options: Any) -> tf.Variable:
    """A variable of a graph without the operations that would give it a first value.

    It is assigned before it is read. Three quarters of the operations that a variable adds to a
    graph are saved.
    """
    return resource_variable_ops.UninitializedVariable(**options)
