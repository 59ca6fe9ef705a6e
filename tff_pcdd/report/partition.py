"""Tables and a picture of which client holds which classes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tff_pcdd import data, files, tables
from tff_pcdd.training import plots

# The table lists up to this number of classes one by one.
_MAX_CLASSES = 100


def write(
    config: data.DataConfig, federation: data.Federation, output_dir: str | os.PathLike
) -> str:
    """Writes clients.png, partition.csv and partition.md.

    Args:
        config: the settings that the federation was made from.
        federation: the clients and their samples.
        output_dir: created if it does not exist.

    Returns:
        The summary, in Markdown.

    Raises:
        SettingError: the directory cannot be used.
        WriteError: a file cannot be written.
    """
    directory = Path(output_dir)
    check_directory(directory)
    files.make_directory(directory)
    files.remove_leftovers(directory)
    counts = federation.class_counts()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", *map(tables.inert, federation.class_names)])
    for client_id, row in zip(federation.client_ids, counts.tolist(), strict=True):
        writer.writerow([tables.inert(client_id), *row])
    files.write_text(directory / "partition.csv", text.getvalue())
    setting = config.describe()
    figure, _ = plots.class_counts(counts, federation.class_names, setting, federation.client_ids)
    plots.save(figure, directory / "clients.png")
    report = summarize(setting, federation)
    files.write_text(directory / "partition.md", report)
    return report


def check_directory(directory: Path) -> None:
    """Raises `SettingError` if the directory contains anything but a partition."""
    files.check_output(directory, "partition", lambda path: path.name == "partition.csv")
    files.refuse_links(directory, ("partition.csv", "partition.md", "clients.png"))


def summarize(setting: str, federation: data.Federation) -> str:
    """Sizes of clients and classes, and the share of clients that lack each class, in Markdown."""
    counts, tests = federation.class_counts(), federation.test_class_counts()
    lacking = (counts == 0).mean(axis=0)
    number = federation.num_classes
    held_out = federation.validation_class_counts().sum(axis=0)
    kinds = f", {held_out.sum()} held-out and " if held_out.any() else " and "
    sizes = {
        "training samples": counts.sum(axis=0),
        **({"held-out samples": held_out} if held_out.any() else {}),
        "test samples": np.bincount(federation.test.y, minlength=number),
    }
    lines = [
        f"# {setting}",
        "",
        f"{federation.num_clients} clients, {federation.num_classes} classes, "
        f"{counts.sum()} training{kinds}{len(federation.test)} test samples.",
        *_warnings(federation, counts, tests, held_out),
        "",
        _spread(
            "client",
            {
                "training samples": counts.sum(axis=1),
                "test samples": tests.sum(axis=1),
                "classes": (counts > 0).sum(axis=1),
            },
        ),
        "",
    ]
    if number > _MAX_CLASSES:
        rows = {**sizes, "clients that lack it (%)": np.round(100 * lacking)}
        lines += [
            _spread("class", rows),
            "",
            "Training samples of each client and class: partition.csv.",
        ]
    else:
        heading = ["class", *sizes, "clients that lack it"]
        classes = [
            [_cell(name), *map(str, own), f"{100 * missing:.0f} %"]
            for name, *own, missing in zip(
                federation.class_names, *sizes.values(), lacking, strict=True
            )
        ]
        lines.append(tables.table([heading, *classes], right=set(range(1, len(heading)))))
    return "\n".join(lines) + "\n"


def _spread(of: str, rows: Mapping[str, np.ndarray]) -> str:
    """A table of what is measured of each client or class: the smallest, median and largest."""
    lines = [[f"of a {of}", "smallest", "median", "largest"]]
    for name, values in rows.items():
        found = (values.min(), np.median(values), values.max())
        lines.append([name, *(f"{value:.12g}" for value in found)])
    return tables.table(lines, right={1, 2, 3})


def _cell(name: str) -> str:
    """A class name for a table: in text data, a space and a line break are classes too."""
    return tables.escape(name if name.strip() else repr(name))


def _warnings(federation, counts, tests, held_out) -> list[str]:
    """Clients and classes without samples, and what was left out, as a list."""
    found = {
        "clients have no training samples": (counts.sum(axis=1) == 0).sum(),
        "clients have no test samples and do not count in PA": (tests.sum(axis=1) == 0).sum(),
        "classes have no training samples": (counts.sum(axis=0) == 0).sum(),
        "classes have no held-out samples and do not count in va_balanced": (
            (held_out == 0).sum() if held_out.any() else 0
        ),
        **{_noted(name): number for name, number in federation.notes.items()},
    }
    lines = [f"- {number} {text}" for text, number in found.items() if number]
    return ["", *lines] if lines else []


def _noted(name: str) -> str:
    """What a note of a data set counts, in words: something that was left out, unless it was read.

    Example:
        >>> _noted("sites_left_out"), _noted("hidden_files"), _noted("photos_turned_upright")
        ('sites were left out', 'hidden files were left out', 'photos turned upright')
    """
    text = name.replace("_", " ")
    if text.startswith("duplicates") or text.endswith(
        (" read", " as stored", " upright", " replaced", " joined")
    ):
        return text
    return f"{text.removesuffix(' left out')} were left out"
