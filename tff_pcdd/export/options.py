"""Settings of an export: which models, and in which formats."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tff_pcdd.errors import SettingError, one_of
from tff_pcdd.settings import WIDE, check_options, option, split_names

FORMATS = ("saved_model", "tflite", "keras")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Settings of an export.

    Raises:
        SettingError: a value is unknown or out of bounds.
    """

    heading: ClassVar[str] = "Models"

    format: str = option(
        "saved_model",
        "Formats of the exported models, separated by commas: saved_model (for servers), tflite "
        "(for devices; float and int8), keras (a .keras file).",
    )
    clients: str = option(
        "all",
        "Clients whose personal models are exported: all, none, or client ids separated by commas.",
    )
    personal_model: str = option(
        "after",
        "Export personal models after the local epochs (their mean accuracy is PA), or before.",
        choices=("after", "before"),
    )
    temperature: str = option(
        "none",
        "Divide the logits by a temperature, so that probabilities agree with accuracies: none, or "
        "fitted (to the samples that the run held out by validation_fraction, if they show that it "
        "is better than none). No prediction changes.",
        choices=("none", "fitted"),
    )
    model_version: int = option(
        1,
        "Version number; servers use the largest version.",
        minimum=1,
        maximum=WIDE,
    )

    def __post_init__(self):
        check_options(self)
        for name in self.formats() or [""]:
            if name not in FORMATS:
                raise SettingError("format", self.format, one_of(self.format, FORMATS))

    def formats(self) -> list[str]:
        """The chosen formats."""
        return split_names(self.format)
