"""The users that the data set comes with."""

from __future__ import annotations

import dataclasses

from tff_pcdd.data.federation import ClientIndices
from tff_pcdd.data.partitions import Partition, register, registry
from tff_pcdd.data.sources import LoadRequest, PooledData
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class Natural(Partition):
    """The users of the data set are the clients, under their own names."""

    name = "natural"
    clients_option = "max_clients"
    keeps_users = True

    max_clients: int | None = option(
        None,
        "Number of users to take as clients, drawn by the data seed; all by default.",
        type=int,
        minimum=1,
    )

    def request(self, seed: int) -> LoadRequest:
        return LoadRequest(self.max_clients, seed)

    def divide(self, data: PooledData, seed: int) -> list[ClientIndices]:
        if data.users is None:
            pooling = [name for name, cls in registry.classes().items() if not cls.keeps_users]
            reason = f"the samples have no sites; choose one of {', '.join(pooling)}"
            raise SettingError("partition", self.name, reason)
        return list(data.users)

    def describe(self) -> str:
        return f"{self.max_clients or 'the'} clients of the data"
