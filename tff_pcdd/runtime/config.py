"""The base class of runtimes' settings, and the registry of runtimes."""

from __future__ import annotations

import dataclasses
import os

from etils import epy

from tff_pcdd import machine
from tff_pcdd.registry import Component, Registry

with epy.lazy_imports():
    import tensorflow_federated as tff

# Clients that train at the same time on a processor by default: each needs memory of its own.
MAX_DEFAULT_PARALLELISM = 8


@dataclasses.dataclass(frozen=True)
class RuntimeConfig(Component):
    """A runtime's name and settings; subclasses define `create_context`.

    The module of a subclass has to be cheap to import, so it imports TFF and other heavy modules
    inside of `create_context`.
    """

    def prepare(self) -> None:
        """Configures TensorFlow in this process; has no effect after its first operation.

        Raises:
            SettingError: a setting cannot be used on this machine, or not any more.
        """
        # Programs share a GPU, so each takes memory as it needs it.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

    def create_context(self) -> tff.framework.SyncContext:
        """Starts the runtime.

        Returns:
            An execution context of TFF, for `runtime.installed`. Its method `close`, if it has one,
            frees what it holds: threads, processes, connections.

        Raises:
            SettingError: a setting cannot be used on this machine.
            RuntimeStartError: the runtime cannot be started.
        """
        raise NotImplementedError

    def slow_bfloat16(self) -> str | None:
        """Why clients would not train fast in bfloat16; None if they do.

        A runtime on other machines does not know; its context then has a method of this name.
        """
        return machine.slow_bfloat16()

    def uses_gpus(self) -> bool:
        """Whether clients train on GPUs, as far as that is known before the runtime starts."""
        return machine.has_gpu()

    def trains_here(self) -> bool:
        """Whether clients train in this process."""
        return True


registry: Registry[RuntimeConfig] = Registry("runtime", "tff_pcdd.runtime.backends")
