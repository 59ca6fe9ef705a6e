"""Tables and a picture of which client holds which classes."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tff_pcdd import data, directories, files, tables, text
from tff_pcdd.training import plots
from tff_pcdd.training.clients_table import NEW

# Tables list up to this number of classes and of clients one by one, and of a client's classes.
_MAX_CLASSES, _MAX_CLIENTS, _MAX_HELD = 100, 20, 4


def write(
    config: data.DataConfig, federation: data.Federation, output_dir: str | os.PathLike
) -> str:
    """Writes clients.png, partition.csv and partition.md.

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
    counts = federation.every_class_counts()
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    # As in clients.csv, there is no such column without new clients.
    is_new = [NEW] * bool(federation.new_clients)
    writer.writerow(["client", *is_new, *map(tables.inert, federation.class_names)])
    for k, (client_id, row) in enumerate(zip(federation.every_id, counts.tolist(), strict=True)):
        mark = ["yes" if k >= federation.num_clients else ""] * len(is_new)
        writer.writerow([tables.inert(client_id), *mark, *row])
    files.write_text(directory / "partition.csv", rows.getvalue())
    setting = config.describe()
    figure, _ = plots.class_counts(counts, federation.class_names, setting, federation.every_title)
    plots.save(figure, directory / "clients.png")
    report = summarize(setting, federation)
    files.write_text(directory / "partition.md", report)
    return report


def check_directory(directory: Path) -> None:
    """Raises `SettingError` if the directory contains anything but a partition."""
    directories.check_output(directory, "partition", ["partition.csv"])
    directories.refuse_links(directory, ("partition.csv", "partition.md", "clients.png"))


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
        *_new(federation),
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
        *_clients(federation, counts, tests),
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


def _new(federation: data.Federation) -> list[str]:
    """Which clients take no part in training, with their training samples."""
    new = federation.new_clients
    if not new:
        return []
    sizes = [text.plural(own.train.size, "training sample") for own in new]
    names = [
        f"{text.cut(text.name_of(own.client_id), 20)} ({size})"
        for own, size in zip(new, sizes, strict=True)
    ]
    return [
        "",
        f"Not counted here: {text.plural(len(new), 'new client')} without a part in training, "
        f"{_cell(text.listed(names, _MAX_CLIENTS))}.",
    ]


def _clients(federation: data.Federation, counts: np.ndarray, tests: np.ndarray) -> list[str]:
    """A table of which client holds what; of many clients only the first."""
    lines = [["client", "training", "test", "training samples of its classes"]]
    rows = zip(federation.client_ids, counts, tests, strict=True)
    for client, own, tested in itertools.islice(rows, _MAX_CLIENTS):
        held = sorted(np.flatnonzero(own), key=lambda label: -own[label])
        names = [
            f"{text.cut(text.name_of(federation.class_names[label]), 20)}: {own[label]}"
            for label in held
        ]
        shown = text.listed(names, _MAX_HELD) or text.NO_VALUE
        lines.append(
            [
                _cell(text.cut(text.name_of(client), 20)),
                str(own.sum()),
                str(tested.sum()),
                _cell(text.cut(shown, 44)),
            ]
        )
    left_out = federation.num_clients - _MAX_CLIENTS
    more = f"and {text.plural(left_out, 'more client')}; all: partition.csv."
    return [tables.table(lines, right={1, 2}), *(["", more] if left_out > 0 else [])]


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
    lines = [f"- {_counted(number, what)}" for what, number in found.items() if number]
    return ["", *lines] if lines else []


def _counted(number: int, what: str) -> str:
    """A number with what it counts, which is written as of several.

    Example:
        >>> _counted(1, "classes have no training samples"), _counted(2, "files were left out")
        ('1 class has no training samples', '2 files were left out')
    """
    if number == 1:
        what = re.sub(r"\b(class(?=es\b)|\w+(?=s\b))e?s\b", r"\1", what, count=1)
        for several, one in (("have", "has"), ("were", "was"), ("do", "does")):
            what = re.sub(rf"\b{several}\b", one, what)
    return f"{number:,} {what}"


def _noted(name: str) -> str:
    """What a note of a data set counts, in words: something that was left out, unless it was read.

    Example:
        >>> _noted("sites_left_out"), _noted("hidden_files"), _noted("photos_turned_upright")
        ('sites were left out', 'hidden files were left out', 'photos turned upright')
    """
    words = name.replace("_", " ")
    if words.startswith("duplicates") or words.endswith(
        (" read", " as stored", " upright", " replaced", " joined")
    ):
        return words
    return f"{words.removesuffix(' left out')} were left out"
