"""What the report of a sweep shows: over settings of one method, or over methods."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError, SettingError
from tff_pcdd.findings import Finding
from tff_pcdd.report import method_sweep, settings_sweep
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies.sweeps import PICTURE
from tff_pcdd.training.file_names import FAILURES, SWEEP_TABLE


def content(directory: Directory, page: Path | None = None) -> dict[str, Any]:
    """The values of the template sweep.html.

    Args:
        directory: that of the sweep.
        page: the directory of the page, to which its links are relative; by default the same.

    Raises:
        SettingError: the directory holds no sweep.
        DamagedFileError: sweep.csv is damaged.
    """
    try:
        header, rows = directory.table(SWEEP_TABLE)
    except FileNotFoundError:
        reason = f"holds no sweep: there is no {SWEEP_TABLE}"
        raise SettingError("sweep_dir", directory.path, reason) from None
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    with directory.checked(SWEEP_TABLE):
        if "chosen" in header:
            values = method_sweep.values(directory, cells, page or directory.path)
        else:
            values = settings_sweep.values(directory, cells)
    if (directory.path / FAILURES).exists():
        what = f"Some runs have failed; their errors are in {FAILURES}."
        values["findings"].insert(
            0, Finding("failed", what, "Next: the same command tries them again.")
        )
    values["picture"] = directory.attempt(PICTURE, _picture, directory) or ""
    values["findings"] += [Finding("damaged", line) for line in directory.damaged()]
    return values


def _picture(directory: Directory) -> str:
    """The address of the picture of the sweep, which contains it; errors as of `Directory`."""
    path = directory.locate(PICTURE)
    content = files.read_bytes(path)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise DamagedFileError(f"{path} is damaged (no PNG picture)")
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
