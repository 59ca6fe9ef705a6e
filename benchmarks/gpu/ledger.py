"""The file of a step: measurements by name, with the card and the software that they are of."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.measure import Plan, note
from benchmarks.report import Section, Table
from tff_pcdd import files, machine
from tff_pcdd.calls import describe_machine
from tff_pcdd.errors import SettingError

# What nvidia-smi tells of the first GPU, by its own names.
_ASKED = ("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
# Characters of a measurement that are printed.
_SHOWN = 1500
# Measurements of different values of these are not mixed.
_SAME = ("card", "commit", "quick")


@dataclasses.dataclass
class Measurements:
    """What a step has measured.

    Attributes:
        made_with: the card, the software, the commit, and whether sizes were tiny (`quick`).
        cases: the measurements by name.
    """

    made_with: Mapping[str, Any]
    cases: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> Measurements:
        """Those of a file that `Ledger` has written."""
        return cls(**json.loads(files.read_bytes(path)))

    def text(self) -> str:
        """A sentence about the card and the software."""
        made = self.made_with
        card = made["card"] or "the processor, in the place of a GPU"
        return (
            f"Measured on {card} (driver {made['driver_version']}, {made['memory.total']}), with "
            f"TensorFlow {made['tensorflow']}, CUDA {made['cuda']}, cuDNN {made['cudnn']}, commit "
            f"{made['commit']}, on {made['date']}."
        )


class Ledger(Measurements):
    """Measurements that are kept in a file as they are made.

    Args:
        plan: the output directory, the minutes and whether sizes are tiny.
        step: name of the step and of its file.

    Attributes:
        deadline: when the step ends, as `time.monotonic` tells it.

    Raises:
        SettingError: the file holds measurements of another card or commit.
    """

    def __init__(self, plan: Plan, step: str):
        assert plan.folder is not None
        self._path = plan.folder / f"{step}.json"
        super().__init__({**describe_card(), **describe_machine(), "quick": plan.quick}, {})
        self.deadline = time.monotonic() + 60 * plan.minutes
        files.make_directory(plan.folder)
        if self._path.exists():
            earlier = Measurements.read(self._path)
            for name in _SAME:
                there, here = earlier.made_with.get(name), self.made_with[name]
                if there != here:
                    reason = f"{self._path.name} is of {name} {there}, here it is {here}; "
                    reason += "name another directory"
                    raise SettingError("output_dir", plan.folder, reason)
            self.cases = earlier.cases

    def left(self) -> float:
        """Seconds until the deadline; at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def lacks(self, name: str) -> bool:
        """Whether a case was not measured, or failed, as its note says."""
        found = self.cases.get(name)
        return found is None or (isinstance(found, Mapping) and "note" in found)

    def record(self, name: str, values: Any) -> None:
        """Adds a measurement to the file, and prints it: a file may not come back."""
        self.cases[name] = values
        shown = values
        if isinstance(values, Mapping):
            shown = {key: value for key, value in values.items() if key != "norms"}
        note(f"{name}: {str(shown)[:_SHOWN]}")
        text = json.dumps({"made_with": self.made_with, "cases": self.cases}, indent=1)
        files.write_text(self._path, text + "\n")

    def measure(self, name: str, call: Callable[[], Any]) -> None:
        """Records what a call returns, unless that has been measured or the time is over."""
        if self.lacks(name) and self.left():
            self.record(name, call())


def describe_card() -> dict[str, Any]:
    """The first GPU, its driver, and the versions that TensorFlow was built with."""
    cards = machine.ask_driver(*_ASKED)
    found: dict[str, str | None] = {**(cards[0] if cards else dict.fromkeys(_ASKED, None))}
    build = tf.sysconfig.get_build_info()
    return {
        **found,
        "card": found["name"] if machine.has_gpu() else None,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
    }


def can_measure(plan: Plan) -> bool:
    """Whether there is a GPU, or nothing depends on it."""
    return plan.quick or machine.has_gpu()


def unmeasured(title: str) -> Section:
    """In the place of a step where there is no GPU."""
    row = {"note": "not measured: TensorFlow sees no GPU"}
    return Section(title, "", [Table(title, {"": "note"}, [row])])
