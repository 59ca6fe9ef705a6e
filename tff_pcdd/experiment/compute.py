"""Where an experiment is computed, and how it is compiled, which changes results by rounding."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from tff_pcdd import data, runtime
from tff_pcdd.data import transforms
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import check_options, choice, option

if TYPE_CHECKING:
    from tff_pcdd.experiment.config import ExperimentConfig
    from tff_pcdd.settings import Named


# Larger batches make little difference on processors. A GPU would wait between smaller ones.
_EVAL_BATCH, _EVAL_BATCH_ON_GPU = 512, 2048


@dataclasses.dataclass(frozen=True)
class ComputeOptions:
    """Where computations run, and how they are compiled.

    Raises:
        SettingError: a value is unknown or out of bounds.
    """

    heading: ClassVar[str] = "Runtime"

    runtime: Named[runtime.RuntimeConfig] = choice(
        runtime.registry,
        "inprocess",
        "Where TFF's computations run: inprocess (in this Python process, on GPUs if there are "
        "any), tff (TFF's C++ worker on this machine), ray (Ray actors, on this or other machines; "
        "needs the extra `ray`).",
    )
    compile: str = option(
        "auto",
        "What XLA compiles: all steps of a client as one program, each step, nothing, or auto "
        "(client on GPUs, otherwise off).",
        choices=("auto", "off", "step", "client"),
    )
    slow_bfloat16: bool = option(
        False,
        "Train with precision=bfloat16 even where a machine is slow in it.",
    )
    eval_batch_size: int | None = option(
        None,
        "Samples per forward pass in evaluations; by default "
        f"{_EVAL_BATCH}, or {_EVAL_BATCH_ON_GPU} on GPUs.",
        type=int,
        minimum=1,
    )

    def __post_init__(self):
        check_options(self)

    def compilation(self, input_spec: data.InputSpec) -> str:
        """What XLA compiles: "off", "step" or "client"."""
        if self.compile not in ("auto", "client"):
            return self.compile
        reason = transforms.not_compiled(input_spec)
        if self.compile == "client":
            if reason:
                raise SettingError("compile", "client", f"{reason}; use step or off")
            return "client"
        if not self.runtime.uses_gpus():
            return "off"
        return "step" if reason else "client"

    def evaluation_batch(self) -> int:
        """Samples per forward pass in evaluations."""
        if self.eval_batch_size is not None:
            return self.eval_batch_size
        return _EVAL_BATCH_ON_GPU if self.runtime.uses_gpus() else _EVAL_BATCH

    def check(self, config: ExperimentConfig) -> None:
        """Checks before data are loaded what this machine can compute of an experiment.

        Raises:
            SettingError: as `check_precision` and `compilation`; or `deterministic` is set, and XLA
                compiles for processors, or has compiled in this process without it.
        """
        self.check_precision(config.model.precision, is_auto=config.model.precision_is_auto)
        compiled = self.compilation(config.data.input_spec())
        if not config.training.deterministic or compiled == "off":
            return
        if not self.runtime.uses_gpus():
            reason = (
                "XLA's programs for processors are not repeatable bit for bit; here, `compile` is "
            )
            raise SettingError("deterministic", True, f"{reason}{compiled}, use off")
        from tff_pcdd.runtime import _tf_private

        if self.runtime.trains_here() and not _tf_private.xla_repeats():
            reason = "XLA has chosen programs by their speed in this process, and goes on so; "
            reason += f"here, `compile` is {compiled}, use off or a new process"
            raise SettingError("deterministic", True, reason)

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

    def prepare_tracing(self, *, deterministic: bool) -> None:
        """Makes TensorFlow trace the deterministic form of operations that have one on GPUs.

        The cross-entropy of integer labels is one: its usual form fails on a GPU that has to be
        deterministic. On processors, the usual forms are deterministic.
        """
        from tff_pcdd.runtime import _tf_private

        _tf_private.require_determinism(deterministic and self.runtime.uses_gpus())

    def create_context(
        self, precision: str = "float32", *, is_auto: bool = False, deterministic: bool = False
    ) -> Any:
        """Starts the runtime; see `RuntimeConfig.create_context`.

        Args:
            precision: what the backbone will compute in.
            is_auto: as for `check_precision`.
            deterministic: whether only deterministic operations are used.

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
        # TensorFlow's own default is TF32 wherever a GPU has it.
        if hasattr(context, "tensor_float_32"):
            context.tensor_float_32 = precision == "tf32"
        # On processors, results are repeatable anyway.
        if hasattr(context, "deterministic"):
            context.deterministic = deterministic and self.runtime.uses_gpus()
        return context
