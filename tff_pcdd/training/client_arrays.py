"""The samples of clients as arrays, which actors can load themselves instead of receiving them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from tff_pcdd import data
from tff_pcdd.training.model_evaluation import as_arrays


@dataclasses.dataclass(frozen=True)
class Loader:
    """Loads a federation from its settings, in whatever process it is called.

    Attributes:
        config: the settings of the data.
    """

    config: data.DataConfig

    def __call__(self) -> Iterator[Callable[[], list[np.ndarray]]]:
        """The arrays of each client.

        Raises:
            SettingError: the settings cannot be used with the data.
            DataError: the data cannot be read.
        """
        return sources(self.config.build())


def sources(federation: data.Federation) -> Iterator[Callable[[], list[np.ndarray]]]:
    """For each client a function that returns its arrays, as `Simulation` passes them on."""
    for client in range(federation.num_clients):
        yield functools.partial(_arrays, federation, client)


def _arrays(federation: data.Federation, client: int) -> list[np.ndarray]:
    parts = [*federation.client_examples(client), federation.validation_examples(client)]
    return [array for part in parts for array in as_arrays(part).values()]
