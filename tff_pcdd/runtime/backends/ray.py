"""Runtime `ray`: actors on this machine, on several GPUs, or on a cluster."""

from __future__ import annotations

import dataclasses

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.config import RuntimeConfig, registry
from tff_pcdd.runtime.ray import cluster
from tff_pcdd.settings import option

with epy.lazy_imports():
    import tensorflow_federated as tff


@registry.register
@dataclasses.dataclass(frozen=True)
class Ray(RuntimeConfig):
    """Divides the clients of a round among Ray actors; see `tff_pcdd.runtime.ray.context`."""

    name = "ray"

    ray_address: str | None = option(
        None,
        "The Ray cluster to use: host:port, or auto for the one that runs on this machine. By "
        "default, Ray is started on this machine, cannot be reached from others, and is stopped "
        "when the program ends.",
        type=str,
    )
    ray_actors: int | None = option(
        None,
        "Number of actors among which the clients of a round are divided; by default, as many as "
        "the cluster has room for.",
        type=int,
        minimum=1,
    )
    ray_cpus: int = option(1, "CPU cores and TensorFlow threads of each actor.", minimum=1)
    ray_gpus: float = option(
        0.0,
        "GPUs of each actor; with a fraction such as 0.5, several actors share a GPU.",
        minimum=0,
    )
    ray_timeout: float = option(
        60.0,
        "Seconds after which an actor that does not answer counts as lost. It does not limit the "
        "duration of a round.",
        above=0,
    )
    data_placement: str = option(
        "driver",
        "Where actors get the clients' samples from: driver (this process sends them once to each "
        "actor that needs them) or local (each actor loads the data set itself, from the same "
        "data_dir).",
        choices=("driver", "local"),
    )

    def __post_init__(self):
        super().__post_init__()
        if self.ray_gpus > 1 and self.ray_gpus != int(self.ray_gpus):
            raise SettingError("ray_gpus", self.ray_gpus, "must be a fraction or a whole number")
        if self.ray_address is not None:
            cluster.check_address(self.ray_address)
        cluster.check_installed()

    def slow_bfloat16(self) -> str | None:
        return None  # The actors know.

    def uses_gpus(self) -> bool:
        return self.ray_gpus > 0

    def trains_here(self) -> bool:
        return False

    def create_context(self) -> tff.framework.SyncContext:
        from tff_pcdd.runtime.ray import context, startup

        # This process computes too, and should not take all of a GPU's memory from an actor.
        self.prepare()
        actors = startup.start(
            self.ray_address, self.ray_actors, self.ray_cpus, self.ray_gpus, self.ray_timeout
        )
        return context.RayContext(actors, loads_data=self.data_placement == "local")
