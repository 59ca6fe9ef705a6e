"""Errors of the runtimes."""


class RuntimeStartError(RuntimeError):
    """A runtime could not be started; the message names the reason."""


class WorkerDiedError(RuntimeError):
    """The local worker process ended while it was needed."""


class ActorsLostError(RuntimeError):
    """Clients' work was lost with its Ray actor several times, or no actor is left."""
