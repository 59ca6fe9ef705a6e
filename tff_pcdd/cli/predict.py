"""Asks an exported model about new samples, and measures its accuracy if labels are known.

    python -m tasks.predict --export_dir=exported --data_dir=new_patients.csv \\
        --output_file=answers.csv

Columns are found by their names, and images by their files, in a folder or in a column of a table;
arrays (.npz) and LEAF's JSON files are read as in training, with their labels. Writes a csv file
with a line for each sample: what the model predicts, and the probability of each class.
--model_name="St. Mary" asks the model of a client instead of the global one.
--label_column=diagnosis measures a hospital that took no part. See docs/how-to/serving.md.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import directories, evaluation, files, heavy, stages, tables, text
from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.data import new_samples, rows
from tff_pcdd.data.new_samples import NewSamples
from tff_pcdd.errors import SettingError, printable
from tff_pcdd.export import columns, layout

if TYPE_CHECKING:
    from tff_pcdd.data.encoding import Column
    from tff_pcdd.export.served import Answers

_MODEL, _DATA = "Model", "Data"

# The column of the sites, if none is named.
_SITE = "site"

# Flags that say which images or texts there are, and those about labels.
_INPUTS = ("path_column", "path_pattern", "text_column")
_LABELS = ("label_column", "site_column")

# The output of a model that names columns beyond what was seen in training.
_OUTSIDE = "out_of_range"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(str, "export_dir", None, "Directory of the exported models; required.", _MODEL)
    flags.add(
        str,
        "model_name",
        layout.GLOBAL,
        "The model: global, the id of a client, or a name in models.config.",
        _MODEL,
    )
    flags.add(int, "model_version", None, "Version of the model; by default the newest.", _MODEL)
    flags.add(
        str,
        "data_dir",
        None,
        "Path of a table (.csv, .xlsx, .parquet) or of a folder of tables; for a model of images, "
        "of a folder of images or of a table that lists them; of an .npz file, or of a JSON file "
        "of LEAF, or of a folder of such files. Required.",
        _DATA,
    )
    flags.add(
        str,
        "path_column",
        "path",
        "Column of image files, relative to the table's folder, or of images.",
        _DATA,
    )
    flags.add(
        str,
        "path_pattern",
        None,
        "The image file of a row, with columns in braces, such as {image_id}.jpg.",
        _DATA,
    )
    flags.add(
        bool,
        "skip_broken_images",
        False,
        "Leave the answers to image files that cannot be read empty, and count such files, instead "
        "of refusing the first.",
        _DATA,
    )
    flags.add(str, "text_column", None, "Column of texts, for a model of texts.", _DATA)
    flags.add(
        bool,
        "label_folders",
        False,
        "Take the folders of images for sites and classes, as in training, and measure the "
        "accuracy.",
        _DATA,
    )
    flags.add(
        str,
        "label_column",
        None,
        "Column of the labels, by which the accuracy is measured; rows without a label do not "
        "count.",
        _DATA,
    )
    flags.add(
        str,
        "site_column",
        None,
        "Column of the sites, each of which gets an accuracy; by default site, if there is such a "
        "column. In a folder of tables without it, each file is a site.",
        _DATA,
    )
    flags.add(str, "output_file", None, "The csv file of the answers; required.")
    flags.add(bool, "overwrite", False, "Replace the file if it exists.")


def main(flags: Flags) -> None:
    """Writes the answers, and prints the accuracies."""
    export_dir, data_dir = flags.required("export_dir"), Path(flags.required("data_dir"))
    output = Path(flags.required("output_file"))
    model_dir = layout.find(export_dir, flags.required("model_name"), flags["model_version"])
    _check_output(output, data_dir, overwrite=flags["overwrite"])

    known = columns.read(model_dir)
    is_leaf = known is None and new_samples.are_leaf(data_dir)
    if known is None and (is_leaf or new_samples.are_arrays(data_dir)):
        flags.refuse_given((*_INPUTS, *_LABELS), "needs a table")
        flags.refuse_given(("label_folders",), "needs a folder of images")
    # Which of LEAF's data sets it is, the model says.
    given = None if is_leaf else _read(flags, data_dir, known)
    heavy.load("tensorflow")
    from tff_pcdd.export.served import ServedModel

    stages.enter("loading the model")
    model = ServedModel(model_dir)
    if given is None:
        inputs = (model.takes, model.shape, model.dtype)
        given = new_samples.of_leaf(data_dir, *inputs, model.class_names)
    ids, x, labels, sites, shown = given
    if isinstance(x, list):
        batches = model.of_images(x, shown, skip_broken=flags["skip_broken_images"])
    else:
        flags.refuse_given(("skip_broken_images",), "needs image files")
        batches = model.of_arrays(x, str(data_dir)) if known is None else model.of_cells(x)
    if labels:
        rows.check_labels(str(data_dir), ids, labels, model.class_names)
    stages.enter(f"answering {text.plural(len(ids), 'sample')}")
    answered = _write(output, batches, model.class_names, ids, labels)
    stages.leave()
    for line in _accuracies(labels, sites, answered):
        print(line)
    print(f"{text.plural(sum(map(bool, answered['label'])), 'answer')} in {output}")


def _read(flags: Flags, data_dir: Path, known: Sequence[Column] | None) -> NewSamples:
    """What the model is asked about; LEAF's files are read by `new_samples.of_leaf`."""
    if known is not None:
        reason = "has no effect, because the model takes the columns of a table"
        flags.refuse_given((*_INPUTS, "label_folders"), reason)
    elif new_samples.are_arrays(data_dir):
        return new_samples.of_arrays(data_dir)
    if data_dir.is_dir():
        stages.enter(f"looking for samples in {data_dir}")
    if flags["label_folders"]:
        flags.refuse_given((*_INPUTS, *_LABELS), "needs a table, and label_folders a folder")
        paths, labels, sites = rows.labelled_images(data_dir)
        shown = list(map(str, paths))
        ids = [os.path.relpath(path, data_dir) for path in paths]
        return NewSamples(ids, paths, labels, sites, shown)
    # Tables in a folder are asked for by the column of what the model takes.
    if known is None and data_dir.is_dir() and not any(map(flags.is_given, _INPUTS)):
        flags.refuse_given((*_INPUTS, *_LABELS), "needs a table that lists the images")
        paths = rows.images_in(data_dir)
        ids = [os.path.relpath(path, data_dir) for path in paths]
        return NewSamples(ids, paths, shown=list(map(str, paths)))
    label_column, site_column = flags["label_column"], flags["site_column"]
    if not label_column:
        flags.refuse_given(("site_column",), "needs label_column")
    table = rows.read(data_dir, (site_column or _SITE) if label_column else None)
    ids, labels, sites, shown = [f"row {row}" for row in table.rows], [], [], []
    if label_column:
        labels = rows.names(table, label_column, "label")
        if site_column or _SITE in table:
            sites = rows.names(table, site_column or _SITE, "site")
    x: Any
    if known is not None:
        x = rows.cells(table, known)
    elif flags["text_column"]:
        x = np.array(rows.texts(table, flags["text_column"]), object)
    else:
        column, pattern = flags["path_column"], flags["path_pattern"]
        ids, x, shown = rows.listed_images(table, data_dir, column, pattern)
    return NewSamples(ids, x, labels, sites, shown)


def _check_output(path: Path, data_dir: Path, *, overwrite: bool) -> None:
    """Refuses what is no file to write, or would be replaced, before anything slow happens."""
    try:
        there, is_file, real = os.path.lexists(path), path.is_file(), Path(os.path.realpath(path))
        is_input = Path(os.path.realpath(data_dir)) in (real, *real.parents)
    # Of texts that are no paths.
    except ValueError:
        there, is_file, is_input = True, False, False
    if is_input:
        raise SettingError("output_file", path, "is part of data_dir; choose another file")
    if there and not is_file:
        raise SettingError("output_file", path, "is not the path of a file")
    if there and not overwrite:
        raise SettingError("output_file", path, "exists; choose another file or set `overwrite`")
    directories.check_writable(path.parent, "output_file")


def _write(
    path: Path,
    batches: Iterable[Answers],
    class_names: Sequence[str],
    ids: Sequence[str],
    labels: Sequence[str],
) -> dict[str, list[str]]:
    """Writes the answers as they come; returns the predicted classes, by the model's output."""
    answered: dict[str, list[str]] = {}
    named = [f"probability_{name}" for name in class_names]

    def write(file: Any) -> None:
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        start = 0
        for answers in batches:
            end = start + len(answers["label"])
            parts: dict[str, Sequence[str]] = {"id": ids[start:end]}
            if labels:
                parts["label"] = labels[start:end]
            for output, column in (("label", "prediction"), ("own_label", "own_prediction")):
                if output in answers:
                    parts[column] = _texts(answers[output])
                    answered.setdefault(output, []).extend(parts[column])
            for name, values in zip(named, answers["probabilities"].T.tolist(), strict=True):
                # NaN is that of an empty answer.
                parts[name] = [f"{each:.6g}" if each == each else "" for each in values]
            if _OUTSIDE in answers:
                parts[_OUTSIDE] = _texts(answers[_OUTSIDE])
            if not start:
                writer.writerow(map(_cell, parts))
            writer.writerows(map(_cell, row) for row in zip(*parts.values(), strict=True))
            file.write(lines.getvalue().encode())
            lines.seek(0)
            lines.truncate()
            start = end

    files.make_directory(path.parent)
    # Of a process that was killed.
    files.remove_leftovers(path.parent, f".{path.name}.*.tmp")
    files.write_atomically(path, write)
    return answered


def _texts(values: np.ndarray) -> list[str]:
    return [value.decode() for value in values.tolist()]


def _cell(value: str) -> str:
    """A text as predictions.csv has it."""
    return tables.inert(printable(value))


def _accuracies(
    labels: Sequence[str], sites: Sequence[str], answered: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """The accuracies with their intervals, of all rows that have labels, and of each site.

    Rows without an answer do not count.
    """
    known = [row for row, label in enumerate(labels) if label and answered["label"][row]]
    by_site = tables.grouped((sites[row], row) for row in known) if sites else {}
    groups = [("", known)] * bool(known)
    groups += [
        (f"{text.name_of(site) if site else 'no site'}: ", by_site[site])
        for site in text.in_natural_order(by_site)
    ]
    for title, chosen in groups:
        found = []
        for output, predicted in answered.items():
            right = sum(predicted[row] == labels[row] for row in chosen)
            accuracy = 100 * right / len(chosen)
            low, high = evaluation.accuracy_bounds(accuracy, len(chosen))
            name = "accuracy" if output == "label" else output
            found.append(f"{name} {accuracy:.2f} % (95 % interval {low:.1f} to {high:.1f} %)")
        yield f"{title}{', '.join(found)}, {text.plural(len(chosen), 'row')}"


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    program.run(__doc__, define, main, argv, interrupted="the same command starts it again")


if __name__ == "__main__":
    run()
