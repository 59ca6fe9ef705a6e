"""Errors of the runtimes."""


class RuntimeStartError(RuntimeError):
    """A runtime could not be started; the message names the reason."""


class WorkerDiedError(RuntimeError):
    """The local worker process ended while it was needed."""


class WorkersLostError(RuntimeError):
    """No remote worker is left to run a computation on."""
