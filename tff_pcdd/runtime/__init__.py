"""Where the federated computations run.

Three runtimes execute the same TFF computations: `inprocess` (TensorFlow in this Python process, on
CPU or GPU), `tff` (the C++ worker that ships with TFF, on this machine), `remote` (several worker
processes, here or elsewhere). `use` puts one in force:

    from tff_pcdd import runtime

    runtime.use("tff")                      # until the next `use`, or the end of the process
    with runtime.use("inprocess"):          # for a block
        ...

This module is imported for its list of names while command lines are checked, so it stays cheap:
TFF, which takes seconds to import, is loaded by `use`.
"""

import atexit
import importlib
import sys
from typing import Any

# Each module offers `create_context(**options)`.
_MODULES = {
    "inprocess": "tff_pcdd.runtime.inprocess",
    "tff": "tff_pcdd.runtime.worker",
    "remote": "tff_pcdd.runtime.remote",
}

_active: "Runtime | None" = None


class RuntimeStartError(RuntimeError):
    """A runtime that could not be started; the message names the reason."""


class WorkerDiedError(RuntimeError):
    """The local worker process ended while it was needed."""


class WorkersLostError(RuntimeError):
    """No remote worker is left to run a computation on."""


def names() -> list[str]:
    """The names that `use` accepts."""
    return list(_MODULES)


class Runtime:
    """A runtime in force, as returned by `use`.

    As a context manager it gives TFF's execution context to the block, and ends with the block.

    Attributes:
        name: the runtime's name.
        context: the execution context, a `tff.framework.SyncContext`.
    """

    def __init__(self, name: str, context: Any, previous: Any):
        self.name = name
        self.context = context
        self._previous = previous  # What to return to: a `Runtime`, or TFF's own context.
        self._owned_by_block = False
        self._closed = False

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


def use(name: str = "inprocess", **options: Any) -> Runtime:
    """Builds a runtime and makes it the default context of TFF.

    The runtime that was in force by a plain call of `use` is closed; one that belongs to a `with`
    block stays open and is in force again after an inner block. TFF keeps its default context per
    thread: call `use` in the thread that invokes the computations.

    Args:
        name: one of `names()`.
        **options: the keyword arguments of the runtime's own `create_context`.

    Returns:
        The runtime. Used as a context manager, it is closed at the end of the block and what was in
        force before comes back.

    Raises:
        ValueError: if there is no runtime of that name.
        RuntimeStartError: if the runtime cannot be started; what was in force stays so.
    """
    global _active
    if name not in _MODULES:
        raise ValueError(f"No runtime is called {name!r}: choose one of {', '.join(_MODULES)}.")
    context = importlib.import_module(_MODULES[name]).create_context(**options)

    import tensorflow_federated as tff

    previous = _active if _active is not None else tff.framework.get_context_stack().current
    if isinstance(previous, Runtime) and not previous._owned_by_block:
        previous.close()
        previous = previous._previous
    tff.framework.set_default_context(context)
    _active = Runtime(name, context, previous)
    return _active


def _restore(previous: Any) -> None:
    """Puts a `Runtime` or a context of TFF in force again."""
    global _active
    import tensorflow_federated as tff

    _active = previous if isinstance(previous, Runtime) else None
    tff.framework.set_default_context(previous.context if _active is not None else previous)


@atexit.register
def _free_first_context() -> None:
    """Lets go of the context that TFF made on import while its finaliser can still run.

    It needs modules that are gone later, and would say so below whatever ended the process.
    """
    tff = sys.modules.get("tensorflow_federated")
    if _active is not None:
        _active._previous = None
    elif tff is not None:

        class Nowhere(tff.framework.SyncContext):
            def invoke(self, comp, arg):
                raise RuntimeError("the process ends")

        tff.framework.set_default_context(Nowhere())
