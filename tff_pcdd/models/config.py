"""The settings of the model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from tff_pcdd import machine
from tff_pcdd.errors import SettingError
from tff_pcdd.models.backbone import Backbone, registry
from tff_pcdd.models.precision import PRECISIONS
from tff_pcdd.settings import WIDE, check_options, choice, option

if TYPE_CHECKING:
    from tff_pcdd.settings import Named


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Which backbone is trained, and how it is combined with a method's head.

    Attributes:
        backbone: a registered backbone, or a `KerasBackbone` around a function of your own.
        projection_dim: width of a linear layer between backbone and head; None for the method's
            default.
        bn: what happens to the clients' batch normalization.
        precision: "float32", "tf32" or "bfloat16", which the backbone computes in. "auto" is
            replaced by one of them, so that a run goes on in the precision in which it was started.
        seed: seed of the initial weights; None for the common seed.
        chosen_precision: what `precision` was replaced by if "auto" was given, else None. It is not
            a setting and is not compared.

    Raises:
        SettingError: a value is of the wrong type or out of bounds.
    """

    heading: ClassVar[str] = "Model"

    backbone: Named[Backbone] = choice(
        registry, "simple_cnn", "The backbone (default of texts: lstm, of columns: mlp)."
    )
    projection_dim: int | None = option(
        None,
        "Width of a linear layer between backbone and head; 0 for none. The default is 84 for "
        "FedGE, FedGELA and FedMR, 512 or 2048 for FedGE and FedGELA with more classes, and 0 for "
        "other methods.",
        type=int,
        minimum=0,
    )
    bn: str = option(
        "averaged",
        "Batch normalization layers of clients: averaged (like other weights) or personal (kept by "
        "each client; the global model uses the clients' mean, as in FedBN).",
        choices=("averaged", "personal"),
    )
    precision: str = option(
        "float32",
        "What the backbone computes in: float32; tf32 (float32 whose matrix products and "
        "convolutions NVIDIA GPUs from compute capability 8.0 on compute with fewer bits, for all "
        "layers; elsewhere the same as float32); bfloat16 (weights, projection, heads, losses and "
        "statistics stay float32); or auto (bfloat16 if this machine computes fast in it, or else "
        "float32; config.json says which).",
        choices=(*PRECISIONS, "auto"),
    )
    seed: int | None = option(
        None,
        "Seed of the initial weights; the value of seed by default.",
        type=int,
        minimum=0,
        maximum=WIDE,
        group="Seeds",
        setting="model_seed",
    )
    chosen_precision: str | None = dataclasses.field(
        default=None, repr=False, compare=False, kw_only=True
    )

    def __post_init__(self):
        # Such as a function that makes a Keras model; a name is replaced by what it names.
        if not isinstance(self.backbone, str | Backbone):
            reason = "must be a Backbone, from `models.create` or `models.KerasBackbone`"
            raise SettingError(registry.setting, self.backbone, reason)
        check_options(self)
        if self.precision == "auto":
            chosen = "float32" if machine.slow_bfloat16() else "bfloat16"
            object.__setattr__(self, "precision", chosen)
            object.__setattr__(self, "chosen_precision", chosen)

    @property
    def precision_is_auto(self) -> bool:
        """Whether "auto" was given, so that this machine has chosen the precision."""
        return self.precision == self.chosen_precision

    @property
    def shown_precision(self) -> str:
        """The precision as errors show it, which name "auto" if that was given."""
        return f"{self.precision}, which auto chose" if self.precision_is_auto else self.precision
