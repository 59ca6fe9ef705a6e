"""How and where an experiment is computed; nothing here changes its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_pcdd import runtime
from tff_pcdd.diagnostics import names as diagnostic_names
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import check_options, choice, option, part
from tff_pcdd.training.callbacks import tracking


@dataclasses.dataclass(frozen=True)
class ComputeOptions:
    """Where computations run, and how they are compiled.

    Raises:
        SettingError: a value is unknown or out of bounds.
    """

    runtime: runtime.RuntimeConfig = choice(
        runtime.registry,
        "inprocess",
        "Where TFF's computations run: inprocess (in this Python process, on GPUs if there are "
        "any), tff (TFF's C++ worker on this machine), ray (Ray actors, on this or other machines; "
        "needs the extra `ray`).",
        group="Runtime",
    )
    jit_compile: bool = option(False, "Compile the local step with XLA.", group="Runtime")
    slow_bfloat16: bool = option(
        False,
        "Train with precision=bfloat16 even where that is slower than float32, because a machine "
        "has no instructions for it.",
        group="Runtime",
    )
    eval_batch_size: int = option(
        512, "Samples per forward pass in evaluations.", minimum=1, group="Runtime"
    )

    def __post_init__(self):
        check_options(self)

    def check_precision(
        self, precision: str, context: Any = None, *, is_auto: bool = False
    ) -> None:
        """Refuses bfloat16 where it is slow, unless `slow_bfloat16` is set.

        Args:
            precision: what the backbone computes in.
            context: the runtime, if it has started: other machines answer only then.
            is_auto: whether precision=auto has chosen it, which the error then says.

        Raises:
            SettingError: a machine that trains is slow in this precision.
        """
        asked = context if hasattr(context, "slow_bfloat16") else self.runtime
        if precision == "bfloat16" and not self.slow_bfloat16 and (slow := asked.slow_bfloat16()):
            reason = f"{slow}, so float32 is faster; use that, or set slow_bfloat16"
            if is_auto:
                raise SettingError("precision", "auto", f"has chosen {precision}, but {reason}")
            raise SettingError("precision", precision, reason)

    def create_context(self, precision: str = "float32", *, is_auto: bool = False) -> Any:
        """Starts the runtime; see `RuntimeConfig.create_context`.

        Args:
            precision: what the backbone will compute in.
            is_auto: as for `check_precision`.

        Raises:
            SettingError: as `check_precision`, or a setting cannot be used on this machine.
            RuntimeStartError: the runtime cannot be started.
        """
        self.check_precision(precision, is_auto=is_auto)
        context = self.runtime.create_context()
        try:
            self.check_precision(precision, context, is_auto=is_auto)
        except BaseException:
            context.close()
            raise
        return context


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How a run is computed, and what it writes in addition to its results.

    Raises:
        SettingError: a value is unknown or out of bounds.
    """

    compute: ComputeOptions = part(ComputeOptions)
    diagnostics: str | None = option(
        None,
        "Measurements and pictures of the geometry of features and classifiers, comma-separated: "
        f"{', '.join(diagnostic_names())}. See docs/how-to/diagnostics.md.",
        type=str,
        group="Evaluation",
    )
    checkpoint_every: int = option(1, "Rounds between two checkpoints.", minimum=1, group="Output")
    keep_checkpoints: int = option(
        3, "Number of the newest checkpoints that are kept.", minimum=1, group="Output"
    )
    client_store: str = option(
        "memory",
        "Where client states are kept between rounds: memory, or disk for large federations.",
        choices=("memory", "disk"),
        group="Output",
    )
    predictions: bool = option(
        False,
        "Write what the models answer for each test sample, and how well their probabilities are "
        "calibrated: predictions.csv and calibration.json. Takes about as long as a round of "
        "training with all clients.",
        group="Output",
    )
    tensorboard: bool = option(True, "Write TensorBoard event files.", group="Output")
    tracking: str | None = option(
        None,
        "Experiment trackers that also get the settings and metrics, comma-separated: mlflow, "
        "wandb (Weights & Biases). Their own environment variables say where to. Needs the extra "
        "`tracking`.",
        type=str,
        group="Output",
    )
    progress: bool = option(True, "Show a progress bar.", group="Output")
    # Of a program's flag `import`: the names of modules, with the hashes of their files.
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_options(self)
        for name in self.diagnostic_names():
            if name not in diagnostic_names():
                raise SettingError(
                    "diagnostics",
                    self.diagnostics,
                    f"{name!r} is not one of {', '.join(diagnostic_names())}",
                )
        tracking.check(self.tracker_names(), self.tracking or "")

    def diagnostic_names(self) -> list[str]:
        """The selected diagnostics."""
        return [name.strip() for name in self.diagnostics.split(",")] if self.diagnostics else []

    def tracker_names(self) -> list[str]:
        """The selected experiment trackers."""
        return [name.strip() for name in self.tracking.split(",")] if self.tracking else []
