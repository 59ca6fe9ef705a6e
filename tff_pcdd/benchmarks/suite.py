"""Runs sections of the benchmark and writes the report."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import tensorflow_federated as tff

from tff_pcdd import disks
from tff_pcdd.benchmarks import SECTIONS, measure, report
from tff_pcdd.runtime import inprocess


def run(names: Sequence[str], plan: measure.Plan, output_dir: str | os.PathLike) -> str:
    """Measures sections and writes benchmark.json, benchmark.md and benchmark.png.

    The report is written after every section, so an interrupted run leaves what has been measured.

    Returns:
        The report as a Markdown page.

    Raises:
        SettingError: the directory cannot be written to.
        WriteError: the report cannot be written.
    """
    disks.check_writable(Path(output_dir))
    # Replaces the context that importing TFF installs, which prints an error when it is collected
    # at the end of the process.
    tff.framework.set_default_context(inprocess.create_context())
    gc.collect()
    machine, start = report.describe_machine(), time.perf_counter()
    sections, page = {}, ""
    for name in names:
        sections[name] = importlib.import_module(SECTIONS[name]).run(plan)
        settings = {
            "repeats": plan.repeats,
            "quick": plan.quick,
            "sections": list(names),
            "seconds": time.perf_counter() - start,
        }
        page = report.write(Path(output_dir), machine, settings, sections)
    return page
