"""Files of what the models of a finished run answer: clients.csv, clients.md and confusion.npz.

On request also predictions.csv and calibration.json; see `predictions`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tff_pcdd import data, files
from tff_pcdd.evaluation import confusion_matrix
from tff_pcdd.training import clients_table, manifests, predictions, results
from tff_pcdd.training.manifests import Manifest
from tff_pcdd.training.model_evaluation import Answers
from tff_pcdd.training.results import CLIENTS, CLIENTS_TABLE, CONFUSION

if TYPE_CHECKING:
    from tff_pcdd.training.run import Run

# The most entries of the confusion matrices of all clients.
_MAX_ENTRIES = 5_000_000


def write(run: Run, record: Manifest | None, *, with_predictions: bool) -> dict[str, str]:
    """Writes the files that are missing or damaged.

    Args:
        run: the run, after its last round.
        record: the manifest of its newest checkpoint.
        with_predictions: whether to write what is written on request, too.

    Returns:
        The checksums of all files of the models' answers, by name.

    Raises:
        WriteError: a file cannot be written.
    """
    directory = run.directory
    checksums = {} if record is None else dict(record.answers)
    missing = results.missing_answers(directory, record, predictions=with_predictions)
    always = {*results.answer_files(predictions=False)}
    if always & {*missing}:
        _write_clients(run, run.simulation.answers())
    if {*missing} - always:
        predictions.write(run)
    return checksums | {name: manifests.checksum_of(directory / name) or "" for name in missing}


def _write_clients(run: Run, answers: Answers) -> None:
    directory, simulation = run.directory, run.simulation
    federation, diverged = simulation.federation, simulation.nonfinite.diverged
    rows = clients_table.rows(federation, answers, diverged=diverged)
    text = clients_table.csv_text(rows, federation, answers.counts)
    files.write_text(directory / CLIENTS, text)
    notes = [f"**{clients_table.DIVERGED.capitalize()}.**"] if diverged else []
    if count := sum(int(np.sum(predicted < 0)) for predicted in answers.after):
        notes.append(
            f"{count} answers of personal models are NaN or infinite; they count as wrong."
        )
    matrices = confusion_matrices(federation, answers)
    if "personal" not in matrices:
        notes.append(
            f"{CONFUSION} has no matrices of single clients, because they would have more than "
            f"{_MAX_ENTRIES:,} entries."
        )
    title = f"Clients of {run.config.algorithm} on {run.config.describe()}, "
    title += f"after round {simulation.round}"
    files.write_text(directory / CLIENTS_TABLE, clients_table.page(rows, title, notes))
    _write_arrays(directory / CONFUSION, matrices)


def confusion_matrices(federation: data.Federation, answers: Answers) -> dict[str, np.ndarray]:
    """The contents of confusion.npz.

    Returns:
        `class_names`, [C]; `global`, int64 [C, C], of the global model on the whole test set,
        absent if there is no global model; `personal` and `personal_before`, int64 [K, C, C], of
        the personal models on their clients' own test samples, after and before the local epochs.
        Rows are true classes, columns are predicted classes. What would have more than 5 million
        entries is absent.
    """
    test, num_classes = federation.test, federation.num_classes
    found = {"class_names": np.array(federation.class_names)}
    if num_classes**2 <= _MAX_ENTRIES and answers.globally is not None:
        found["global"] = confusion_matrix(test.y, answers.globally, num_classes)
    if federation.num_clients * num_classes**2 <= _MAX_ENTRIES:
        for name, predicted in (("personal", answers.after), ("personal_before", answers.before)):
            found[name] = np.stack(
                [
                    confusion_matrix(test.y[client.test], classes, num_classes)
                    for client, classes in zip(federation.clients, predicted, strict=True)
                ]
            )
    return found


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a compressed .npz file, the same bytes for the same arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    files.write_atomically(path, lambda file: file.write(buffer.getvalue()))
