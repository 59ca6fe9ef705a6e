"""What is not part of TensorFlow's public interface; the lock file pins the version."""

import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import config as tf_config
from tensorflow.python.ops import resource_variable_ops

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


def avoid_thread_switches() -> None:
    """Makes an operation wake fewer threads; changes no result.

    By default, the thread that runs an operation of oneDNN gives all parts of it to other threads
    and waits for them. Here it computes one of the parts itself, unless the environment says
    otherwise. The number of parts, and thus the order of sums, remains the same. Idle threads
    sleep. Has to be called before the first operation; later, it has no effect.
    """
    os.environ.setdefault(_CALLER_WORKS, "1")
    if not context.context()._initialized:
        let_idle_threads_sleep()


# The environment before this package has required determinism; None if it does not.
_environment_before: dict[str, str | None] | None = None


def require_determinism(required: bool) -> None:
    """Makes the operations of this process deterministic, or no longer.

    A program that has called `tf.config.experimental.enable_op_determinism` itself stays
    deterministic.

    Args:
        required: whether operations without a deterministic implementation fail, and neither
            TensorFlow nor XLA chooses algorithms by their speed. XLA goes on as it has begun; see
            `xla_repeats`.
    """
    global _environment_before
    if required and not tf_config.is_op_determinism_enabled():
        tf_config.enable_op_determinism()
        _environment_before = {name: os.environ.get(name) for name in (_AUTOTUNE, _XLA_FLAGS)}
        # Read whenever an operation of cuDNN is made.
        os.environ.setdefault(_AUTOTUNE, "0")
        os.environ[_XLA_FLAGS] = f"{os.environ.get(_XLA_FLAGS, '')} {_XLA_REPEATS}".strip()
    elif not required and _environment_before is not None:
        tf_config.disable_op_determinism()
        for name, value in _environment_before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _environment_before = None


_xla_has_read: str | None = None


def note_use_of_xla() -> None:
    """Has to be called before XLA compiles a program of this package."""
    global _xla_has_read
    if _xla_has_read is None:
        _xla_has_read = os.environ.get(_XLA_FLAGS, "")


def xla_repeats() -> bool:
    """Whether XLA is deterministic on GPUs, or still can be: it reads its flags only once.

    Programs that others than this package have compiled in this process are not known here.
    """
    return _xla_has_read is None or _XLA_REPEATS in _xla_has_read.split()


def numerics() -> tuple[bool, bool]:
    """What compiled programs depend on besides their graph: TF32, and determinism."""
    return (
        tf_config.tensor_float_32_execution_enabled(),
        tf_config.is_op_determinism_enabled(),
    )


def variable_without_value(**options: Any) -> tf.Variable:
    """A variable of a graph without the operations that would give it a first value.

    It is assigned before it is read. Three quarters of the operations that a variable adds to a
    graph are saved.

    Args:
        **options: name, shape, dtype, and what else `tf.Variable` knows, but for the value.
    """
    return resource_variable_ops.UninitializedVariable(**options)


def operation_times(directory: Path) -> dict[str, list[float]]:
    """Reads what `tf.profiler.experimental` has recorded of operations on the CPU.

    Args:
        directory: the log directory of one profile.

    Returns:
        The seconds of each execution, by "name:type" of the operation. TensorFlow does not record
        operations that it considers cheap.
    """
    # Only the benchmark needs it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = directory.glob("plugins/profile/*/*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    times: dict[str, list[float]] = {}
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if ":" in name and " " not in name and not name.startswith("ExecutorState"):
                    times.setdefault(name, []).append(event.duration_ps / 1e12)
    return times
