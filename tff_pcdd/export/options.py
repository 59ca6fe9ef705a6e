"""What is exported, and in which form."""

from __future__ import annotations

import dataclasses

from tff_pcdd.options import check_options, option


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Settings of an export.

    Raises:
        OptionError: a value is unknown or out of bounds.
    """

    clients: str = option(
        "all",
        "Clients whose personal models are exported: all, none, or ids separated by commas.",
        group="Models",
    )
    personal_model: str = option(
        "after",
        "The personal models after the local epochs, whose mean accuracy is PA, or before them.",
        choices=("after", "before"),
        group="Models",
    )
    model_version: int = option(
        1, "Number of the version; servers answer with the largest.", minimum=1, group="Models"
    )

    def __post_init__(self):
        check_options(self)
