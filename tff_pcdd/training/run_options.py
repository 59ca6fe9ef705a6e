"""How and where an experiment is computed; nothing here changes its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tff_pcdd.diagnostics import names as known_diagnostics
from tff_pcdd.errors import SettingError, nearest, question
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.settings import check_options, option, part, selection, split_names
from tff_pcdd.training import trackers
from tff_pcdd.training.callbacks import Callback, registry

if TYPE_CHECKING:
    from tff_pcdd.settings import Named


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a run is computed, and what it writes in addition to its results.

    Raises:
        SettingError: a value is unknown or out of bounds.
    """

    heading: ClassVar[str] = "Output"

    compute: ComputeOptions = part(ComputeOptions)
    diagnostics: str | None = option(
        None,
        "Measurements and pictures of the geometry of features and classifiers, comma-separated: "
        f"{', '.join(known_diagnostics())}. See docs/how-to/diagnostics.md.",
        type=str,
        group="Evaluation",
    )
    checkpoint_every: int = option(
        1,
        "Rounds between two checkpoints. Each round that is the best so far on held-out samples "
        "has one too.",
        minimum=1,
    )
    keep_checkpoints: int = option(
        3,
        "Number of the newest checkpoints that are kept. That of the round that is best on "
        "held-out samples is kept too.",
        minimum=1,
    )
    client_store: str = option(
        "memory",
        "Where client states are kept between rounds: memory, or disk for large federations.",
        choices=("memory", "disk"),
    )
    predictions: bool = option(
        False,
        "Write what the models answer for each test sample, and how well their probabilities are "
        "calibrated: predictions.csv and calibration.json. Takes about as long as a round of "
        "training with all clients.",
    )
    tensorboard: bool = option(True, "Write TensorBoard event files.")
    tracking: str | None = option(
        None,
        "Experiment trackers that also get the settings and metrics, comma-separated: mlflow, "
        "wandb (Weights & Biases). Their own environment variables say where to. Needs the extra "
        "`tracking`.",
        type=str,
    )
    callbacks: Named[tuple[Callback, ...]] = selection(
        registry,
        "Callbacks that modules of your own have registered.",
    )
    progress: bool = option(True, "Show a progress bar.")
    # Of a program's flag `import`: the names of modules, with the hashes of their files.
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_options(self)
        for name in self.diagnostic_names():
            if name not in known_diagnostics():
                raise SettingError(
                    "diagnostics",
                    self.diagnostics,
                    f"{name!r} is not one of {', '.join(known_diagnostics())}"
                    f"{question(nearest(name, known_diagnostics()))}",
                )
        trackers.check(self.tracker_names(), self.tracking or "")

    def diagnostic_names(self) -> list[str]:
        """The selected diagnostics."""
        return split_names(self.diagnostics)

    def tracker_names(self) -> list[str]:
        """The selected experiment trackers."""
        return split_names(self.tracking)
