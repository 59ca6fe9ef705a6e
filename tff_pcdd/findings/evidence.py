"""What the models of a run have answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np


class Client(Protocol):
    """A client of a run, as in clients.csv; see `tff_pcdd.training.clients_table.ClientResult`."""

    @property
    def name(self) -> str: ...
    @property
    def train(self) -> int: ...
    @property
    def test(self) -> int: ...
    @property
    def values(self) -> Mapping[str, float | None]: ...


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What the models of a run have answered.

    Attributes:
        classes: the names of the C classes, as they are shown.
        of_global: confusion matrix of the global model on the test set, [C, C]; None without one.
        of_clients: those of the personal models, [K, C, C]; None if unknown.
        clients: the clients; empty if unknown.
    """

    classes: Sequence[str] = ()
    of_global: np.ndarray | None = None
    of_clients: np.ndarray | None = None
    clients: Sequence[Client] = ()

    @property
    def lacks_global_model(self) -> bool:
        """Whether the method has no global model, so that GA is not that of a model."""
        return bool(self.clients) and all(each.values["ga"] is None for each in self.clients)
