"""Writes docs/benchmark_gpu.md from the measurements in benchmarks/gpu/measured.

    python -m benchmarks.gpu

Each folder there is of a card, with the files that `tasks.benchmark --sections=gpu` has written.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from benchmarks import GPU_SECTIONS, report
from benchmarks.gpu.ledger import Measurements

PAGE = Path("docs/benchmark_gpu.md")
MEASURED = Path(__file__).parent / "measured"


def page(folder: Path = MEASURED) -> str:
    """The page as Markdown.

    Args:
        folder: has a folder for each card.
    """
    sections = {}
    for card in sorted(folder.iterdir()):
        for step, module in GPU_SECTIONS.items():
            if (path := card / f"{step}.json").exists():
                section = importlib.import_module(module).section(Measurements.read(path))
                sections[f"{card.name} {step}"] = section
    return report.to_markdown({}, {}, sections, "gpu_page.md")


if __name__ == "__main__":
    PAGE.write_text(page())
