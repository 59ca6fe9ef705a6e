"""How the tables of a comparison are made."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tff_pcdd.settings import check_options, option


@dataclasses.dataclass(frozen=True)
class TableOptions:
    """How the tables of a comparison are made; no run depends on it.

    Raises:
        SettingError: a value is of the wrong type or out of bounds.
    """

    heading: ClassVar[str] = "Comparison"

    target_accuracy: float | None = option(
        None,
        "GA in percent that counts as reached in the tables of a comparison, which then have each "
        "method's rounds and megabytes until it; FedAvg's best GA by default.",
        type=float,
        minimum=1,  # A share of 1 is no percentage.
        maximum=100,
    )

    def __post_init__(self):
        check_options(self)
