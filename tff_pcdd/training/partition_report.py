"""Tables and a picture of who holds which class."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import numpy as np

from tff_pcdd import data
from tff_pcdd.training import files, plots
from tff_pcdd.training.config import ExperimentConfig


def write(
    config: ExperimentConfig, federation: data.Federation, output_dir: str | os.PathLike
) -> str:
    """Writes clients.png, partition.csv and partition.md.

    Args:
        config: the settings that the federation was made from.
        federation: the clients and their samples.
        output_dir: made where needed.

    Returns:
        The summary, as markdown.

    Raises:
        OptionError: the directory cannot be used.
    """
    directory = Path(output_dir)
    check_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    counts = federation.class_counts()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", *federation.class_names])
    for client_id, row in zip(federation.client_ids, counts, strict=True):
        writer.writerow([client_id, *row])
    files.write_text(directory / "partition.csv", text.getvalue())
    setting = plots.describe_data(config)
    figure, _ = plots.class_counts(counts, federation.class_names, setting)
    plots.save(figure, directory / "clients.png")
    report = summarize(setting, federation)
    files.write_text(directory / "partition.md", report)
    return report


def check_directory(directory: Path) -> None:
    """Refuses a directory that holds something else than a partition."""
    files.check_output(directory, "partition", lambda path: path.name == "partition.csv")


def summarize(setting: str, federation: data.Federation) -> str:
    """Sizes of the clients, and how many lack each class, as markdown."""
    counts = federation.class_counts()
    sizes, tests = counts.sum(axis=1), federation.test_class_counts().sum(axis=1)
    held = (counts > 0).sum(axis=1)
    lines = [
        f"# {setting}",
        "",
        f"{federation.num_clients} clients, {federation.num_classes} classes, "
        f"{sizes.sum()} training and {len(federation.test)} test samples.",
        "",
        "| of a client | smallest | median | largest |",
        "|---|---|---|---|",
        *(
            f"| {name} | {values.min()} | {np.median(values):g} | {values.max()} |"
            for name, values in (
                ("training samples", sizes),
                ("test samples", tests),
                ("classes", held),
            )
        ),
        "",
        "| class | training samples | clients that lack it |",
        "|---|---|---|",
        *(
            f"| {name} | {total} | {100 * missing:.0f} % |"
            for name, total, missing in zip(
                federation.class_names,
                counts.sum(axis=0),
                (counts == 0).mean(axis=0),
                strict=True,
            )
        ),
    ]
    return "\n".join(lines) + "\n"
