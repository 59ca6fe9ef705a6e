"""Runs sections of the benchmark and writes the report."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import tensorflow_federated as tff

from benchmarks import GPU_SECTIONS, SECTIONS, measure, report
from tff_pcdd import directories, runtime
from tff_pcdd.calls import describe_machine


def run(
    names: Sequence[str],
    plan: measure.Plan,
    output_dir: str | os.PathLike,
    page: str | os.PathLike | None = None,
) -> str:
    """Measures sections and writes benchmark.json, and benchmark.md with its pictures.

    The report is written after every section, so an interrupted run leaves what has been measured.

    Args:
        names: of the sections.
        plan: how much is measured.
        output_dir: directory of the report.
        page: another file for the Markdown page, which is written after the last section, with its
            pictures beside it.

    Returns:
        The report as a Markdown page.

    Raises:
        SettingError: a directory cannot be written to.
        WriteError: the report cannot be written.
    """
    directories.check_writable(Path(output_dir))
    if page is not None:
        directories.check_writable(Path(page).parent)
    # Replaces the context that importing TFF installs, which prints an error when it is collected
    # at the end of the process.
    tff.framework.set_default_context(runtime.create("inprocess").create_context())
    gc.collect()
    machine, start = describe_machine(), time.perf_counter()
    plan, modules = dataclasses.replace(plan, folder=Path(output_dir)), SECTIONS | GPU_SECTIONS
    sections, text = {}, ""
    for name in names:
        sections[name] = importlib.import_module(modules[name]).run(plan)
        settings = {
            "repeats": plan.repeats,
            "quick": plan.quick,
            "sections": list(names),
            "seconds": time.perf_counter() - start,
        }
        text = report.write(Path(output_dir), machine, settings, sections)
    if page is not None:
        report.write_page(Path(page), machine, settings, sections)
    return text
