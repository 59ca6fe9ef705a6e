"""Puts runtimes in force: for the process by `use`, for a block of calls by `installed`."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import sys
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

from etils import epy

from tff_pcdd.runtime.config import RuntimeConfig, registry

with epy.lazy_imports():
    import tensorflow_federated as tff

C = TypeVar("C")

_active: Runtime | None = None

# Per thread, like TFF's stack of contexts: the default context underneath those of `installed`.
_thread = threading.local()


class Runtime:
    """A runtime in force, as returned by `use`.

    As a context manager it gives TFF's execution context to the block, and ends with the block.

    Attributes:
        config: its settings.
        context: the execution context, a `tff.framework.SyncContext`.
    """

    def __init__(self, config: RuntimeConfig, context: Any, previous: Any):
        self.config = config
        self.context = context
        self._previous = previous  # What to return to: a `Runtime`, or TFF's own context.
        self._owned_by_block = False
        self._closed = False

    @property
    def name(self) -> str:
        """The runtime's name."""
        return self.config.name

    def close(self) -> None:
        """Frees what the runtime holds (processes, connections). May be called more than once."""
        if not self._closed:
            self._closed = True
            close = getattr(self.context, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Any:
        self._owned_by_block = True
        return self.context

    def __exit__(self, *exc_info: object) -> None:
        if _active is self:
            _restore(self._previous)
        self.close()


def use(runtime: str | RuntimeConfig = "inprocess", **options: Any) -> Runtime:
    """Starts a runtime and makes it the default context of TFF.

    A runtime that is in force through a plain call of `use` is closed. One that belongs to a `with`
    block stays open, and is in force again after an inner block.

    TFF keeps its default context per thread: call `use` in the thread that invokes the
    computations. Use `RuntimeConfig.create_context` and `installed` to leave the default context
    alone.

    Args:
        runtime: the name of a registered runtime, or its settings.
        **options: settings of the runtime, such as `client_parallelism`; those of a `RuntimeConfig`
            are replaced by them.

    Returns:
        The runtime. Used as a context manager, it is closed at the end of the block, and what was
        in force before is in force again.

    Raises:
        SettingError: the name is unknown, or a setting cannot be used.
        RuntimeStartError: the runtime cannot be started; the previous one stays in force.
    """
    global _active
    if isinstance(runtime, str):
        config = registry.create(runtime, **options)
    else:
        config = dataclasses.replace(runtime, **options)
    context = config.create_context()

    previous = _active if _active is not None else _default_context()
    # A plain call may have replaced the runtime of a block, which has ended since.
    while isinstance(previous, Runtime) and (previous._closed or not previous._owned_by_block):
        previous.close()
        previous = previous._previous
    tff.framework.set_default_context(context)
    _active = Runtime(config, context, previous)
    return _active


@contextlib.contextmanager
def installed(context: C) -> Iterator[C]:
    """Runs the TFF computations of a block on a context, in this thread only.

    The default context, which `use` sets, stays as it is. Blocks may be nested, and several threads
    may each have theirs.

    Args:
        context: a `tff.framework.SyncContext`, such as from `RuntimeConfig.create_context`. It is
            not closed at the end of the block, so it can be installed again.

    Example:
        >>> import tensorflow as tf
        >>> import tensorflow_federated as tff
        >>> from tff_pcdd import runtime
        >>> @tff.tensorflow.computation(tf.int32)
        ... def double(x):
        ...     return 2 * x
        >>> context = runtime.create("inprocess", client_parallelism=2).create_context()
        >>> with runtime.installed(context):
        ...     print(double(21))
        42
        >>> context.close()
    """
    stack = tff.framework.get_context_stack()
    outermost = not hasattr(_thread, "default")
    if outermost:
        _thread.default = stack.current
    try:
        with stack.install(context):
            yield context
    finally:
        if outermost:
            del _thread.default


def _default_context() -> Any:
    """The default context of TFF in this thread, also inside of `installed`."""
    if hasattr(_thread, "default"):
        return _thread.default
    return tff.framework.get_context_stack().current


def _restore(previous: Any) -> None:
    """Puts a `Runtime` or a context of TFF in force again."""
    global _active
    _active = previous if isinstance(previous, Runtime) else None
    tff.framework.set_default_context(previous.context if _active is not None else previous)


@atexit.register
def _free_first_context() -> None:
    """Drops the context that TFF made on import while its finaliser can still run.

    The finaliser needs modules that are gone later; it would then print an error message after the
    program's own output.
    """
    if _active is not None:
        _active._previous = None
    elif "tensorflow_federated" in sys.modules:

        class Nowhere(tff.framework.SyncContext):
            def invoke(self, comp, arg):
                raise RuntimeError("the process ends")

        tff.framework.set_default_context(Nowhere())
