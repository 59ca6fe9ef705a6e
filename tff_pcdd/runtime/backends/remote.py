"""Runtime `remote`: several TFF workers, on this machine or others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.config import RuntimeConfig, join_names, registry, split_names
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow_federated as tff


@registry.register
@dataclasses.dataclass(frozen=True)
class Remote(RuntimeConfig):
    """Shares the clients of a round among running workers; see `tff_pcdd.runtime.remote`.

    From Python, `workers` may also be a list or a tuple.
    """

    name = "remote"

    workers: str | Sequence[str] | None = option(
        None,
        "Addresses of TFF workers, as host:port,host:port.",
        type=str,
        group="Runtime",
    )
    worker_timeout: float = option(
        60.0,
        "Seconds after which a worker that does not answer counts as lost.",
        above=0,
        group="Runtime",
    )

    def __post_init__(self):
        object.__setattr__(self, "workers", join_names(self.workers))
        super().__post_init__()
        if not self.workers:
            reason = "runtime=remote needs the addresses of its workers, host:port,host:port"
            raise SettingError("workers", None, reason)

    def create_context(self) -> tff.framework.SyncContext:
        from tff_pcdd.runtime import remote

        return remote.create_context(
            workers=split_names(self.workers), worker_timeout=self.worker_timeout
        )
