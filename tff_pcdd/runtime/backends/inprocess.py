"""Runtime `inprocess`: TensorFlow in this Python process, on CPU or GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from etils import epy

from tff_pcdd import machine
from tff_pcdd.runtime.config import RuntimeConfig, registry
from tff_pcdd.settings import option, split_names

with epy.lazy_imports():
    import tensorflow_federated as tff


@registry.register
@dataclasses.dataclass(frozen=True)
class InProcess(RuntimeConfig):
    """Runs clients on threads of this process; see `tff_pcdd.runtime.inprocess`.

    From Python, `devices` may also be a list or a tuple.
    """

    name = "inprocess"

    client_parallelism: int | None = option(
        None,
        "Clients that train at the same time; by default one per CPU core, or clients_per_gpu on "
        "each GPU.",
        type=int,
        minimum=1,
    )
    devices: str | Sequence[str] | None = option(
        None,
        "Devices among which clients are distributed in turn, such as GPU:0,GPU:1; by default all "
        "GPUs, or else the CPU.",
        type=str,
    )

    clients_per_gpu: int = option(
        1,
        "Clients that train at the same time on each GPU, each in an equal part of its memory. "
        "devices then names these parts: GPU:0 and GPU:1 are those of the first of two.",
        minimum=1,
    )
    gpu_memory: float | None = option(
        None,
        "GiB of each GPU that this program may take; by default as much as it needs.",
        type=float,
        above=0,
    )

    def __post_init__(self):
        if isinstance(self.devices, (list, tuple)):
            object.__setattr__(self, "devices", ",".join(map(str, self.devices)))
        super().__post_init__()

    def slow_bfloat16(self) -> str | None:
        return machine.slow_bfloat16(gpus=self._may_use_gpus())

    def uses_gpus(self) -> bool:
        return self._may_use_gpus() and machine.has_gpu()

    def _may_use_gpus(self) -> bool:
        devices = split_names(self.devices)
        return not devices or any("GPU" in name for name in devices)

    def prepare(self) -> None:
        super().prepare()
        if self.clients_per_gpu > 1 or self.gpu_memory is not None:
            from tff_pcdd.runtime import logical_devices

            logical_devices.divide(self.clients_per_gpu, self.gpu_memory)

    def create_context(self) -> tff.framework.SyncContext:
        from tff_pcdd.runtime import inprocess

        self.prepare()
        return inprocess.create_context(
            client_parallelism=self.client_parallelism, devices=split_names(self.devices)
        )
