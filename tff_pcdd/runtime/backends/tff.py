"""Runtime `tff`: the C++ worker that ships with TFF, on this machine."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd import machine
from tff_pcdd.runtime.config import RuntimeConfig, registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow_federated as tff


@registry.register
@dataclasses.dataclass(frozen=True)
class LocalWorker(RuntimeConfig):
    """Starts a worker process and ends it with the context; see `tff_pcdd.runtime.worker`."""

    name = "tff"

    insecure: bool = option(
        False,
        "Let TFF's worker, which does not authenticate its callers, listen on every network "
        "interface where the system does not give it a network of its own.",
    )

    def slow_bfloat16(self) -> str | None:
        return machine.slow_bfloat16(gpus=False)

    def uses_gpus(self) -> bool:
        return False

    def trains_here(self) -> bool:
        return False

    def create_context(self) -> tff.framework.SyncContext:
        from tff_pcdd.runtime import worker

        return worker.create_context(insecure=self.insecure)
