"""What is exported, and in which form."""

from __future__ import annotations

import dataclasses

from tff_pcdd.options import OptionError, check_options, option

FORMATS = ("saved_model", "tflite", "keras")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Settings of an export.

    Raises:
        OptionError: a value is unknown or out of bounds.
    """

    format: str = option(
        "saved_model",
        "saved_model (for servers), tflite (for devices; float and int8) or keras (a .keras file); "
        "several are separated by commas.",
        group="Models",
    )
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
        for name in self.formats():
            if name not in FORMATS:
                raise OptionError(f"--format={self.format}: choose from {', '.join(FORMATS)}")

    def formats(self) -> list[str]:
        """The chosen formats."""
        return [name.strip() for name in self.format.split(",")]
