"""Measures speed and memory: runtimes, methods, comparisons, start-up, large populations, serving.

    python -m tasks.benchmark --output_dir=runs/benchmark
    python -m tasks.benchmark --peers --output_dir=runs/peers

Writes benchmark.json (all measurements), benchmark.md (tables, and which targets are met) and its
pictures in images/, and replaces those of an earlier run. Takes about 40 minutes on 2 cores, which
should be idle otherwise. The peers (PyTorch, Flower, pfl-research, FedJAX) have environments of
their own, which `make install-peers` makes.

    python -m tasks.benchmark --sections=gpu --torch_python=TORCH/bin/python --output_dir=runs/gpu

measures on a GPU; see docs/how-to/gpu.md. Each of these sections stops after --minutes, and the
same command continues it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from absl import flags as absl_flags

from benchmarks import GPU, GPU_SECTIONS, SECTIONS
from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError, one_of

_GROUP = "Measurements"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "output_dir", None, "Directory of the report; required.")
    flags.add(
        absl_flags.DEFINE_list,
        "sections",
        None,
        f"Sections to measure, in order; by default all: {', '.join(SECTIONS)}. {GPU} stands for "
        f"those that need a GPU: {', '.join(GPU_SECTIONS)}.",
        _GROUP,
    )
    flags.add(
        bool,
        "peers",
        False,
        "Measure the section peers only: the same rounds in other software.",
        _GROUP,
    )
    flags.add(float, "minutes", 8.0, "Minutes after which each section for GPUs stops.", _GROUP)
    flags.add(
        str,
        "torch_python",
        None,
        "A Python with PyTorch, with which gpu_speed compares; by default with none.",
        _GROUP,
    )
    flags.add(
        str,
        "data_dir",
        None,
        "Folder with CIFAR-10, for gpu_record and gpu_scale; by default images are random, and "
        "gpu_scale is left out.",
        _GROUP,
    )
    flags.add(
        str,
        "page",
        None,
        "File for another copy of the page, such as docs/benchmark.md, with its pictures in a "
        "folder images beside it; needs all sections.",
        _GROUP,
    )
    flags.add(int, "repeats", 5, "Number of repetitions of each measurement.", _GROUP)
    flags.add(
        bool,
        "quick",
        False,
        "Use tiny sizes, to test that everything runs; the times mean nothing.",
        _GROUP,
    )


def read_sections(flags: Flags) -> list[str]:
    """The chosen sections.

    Raises:
        SettingError: a section is unknown or named twice, or none is given; flags contradict each
            other, or no peer is installed.
    """
    for name in ("sections", "peers"):
        if flags["page"] is not None and flags[name]:
            raise SettingError("page", flags["page"], f"needs all sections; leave out --{name}")
    if flags["peers"]:
        if flags["sections"] is not None:
            raise SettingError("peers", None, "is a section of its own; leave out --sections")
        from benchmarks import peers

        peers.check_installed()
        return ["peers"]
    if flags["sections"] is None:
        return list(SECTIONS)
    named, known = flags.required("sections"), [*SECTIONS, *GPU_SECTIONS, GPU]
    chosen = [each for name in named for each in (GPU_SECTIONS if name == GPU else [name])]
    for name in chosen:
        if name not in known:
            raise SettingError("sections", name, one_of(name, known))
        if chosen.count(name) > 1:
            raise SettingError("sections", ",".join(named), f"{name} is named twice")
    return chosen


def main(flags: Flags) -> None:
    """Runs the measurements and prints the report."""
    sections, repeats = read_sections(flags), flags["repeats"]
    output_dir = flags.required("output_dir")
    if repeats < 1:
        raise SettingError("repeats", repeats, "must be at least 1")
    minutes, torch_python = flags["minutes"], flags["torch_python"]
    if minutes <= 0:
        raise SettingError("minutes", minutes, "must be above 0")
    if torch_python is not None and shutil.which(torch_python) is None:
        raise SettingError("torch_python", torch_python, "is no program")
    if (
        torch_python is not None
        and subprocess.run([torch_python, "-c", "import torch"], capture_output=True).returncode
    ):
        raise SettingError("torch_python", torch_python, "is no Python with PyTorch")

    from benchmarks import measure, suite

    plan = measure.Plan(
        repeats,
        flags["quick"],
        minutes=minutes,
        torch_python=torch_python,
        data_dir=flags["data_dir"],
    )
    print(suite.run(sections, plan, output_dir, page=flags["page"]))
    print(f"report in {output_dir}")


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
