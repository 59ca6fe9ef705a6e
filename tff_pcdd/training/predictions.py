"""What the models answer for each test sample, and how well their probabilities are calibrated.

    predictions.csv        probabilities of the global and the personal model for each client's test
                           samples
    calibration.json       calibration errors as they are, and with temperatures that are fitted on
                           held-out samples if there are any
    plots/calibration.png  accuracy by confidence

The computations that return logits are traced only for this.
"""

from __future__ import annotations

import csv
import functools
import io
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from etils import epy
from scipy import special

from tff_pcdd import data, federated, files, tables
from tff_pcdd.errors import printable
from tff_pcdd.evaluation import confusion_matrix
from tff_pcdd.evaluation.calibration import Calibration, calibrate
from tff_pcdd.experiment.model_evaluation import Answers, as_arrays
from tff_pcdd.training import clients_table, manifests, recovery, run_directory
from tff_pcdd.training.file_names import (
    CALIBRATION,
    CLIENTS,
    CLIENTS_TABLE,
    CONFUSION,
    PREDICTIONS,
    answer_files,
)
from tff_pcdd.training.manifests import Manifest

if TYPE_CHECKING:
    from tff_pcdd.experiment.simulation import Simulation
    from tff_pcdd.training.run import Run


# Most runs draw no calibration.
with epy.lazy_imports():
    from tff_pcdd.training import plots


GLOBAL, PERSONAL = "global", "personal"


class Logits(NamedTuple):
    """The logits of a model.

    Attributes:
        test: for test samples, float32 [n, C].
        held_out: for held-out samples, float32 [m, C]; m = 0 if there are none.
    """

    test: np.ndarray
    held_out: np.ndarray


def write_predictions(run: Run) -> dict[str, dict[str, Any]]:
    """Writes predictions.csv, calibration.json and the picture of the run's current state.

    Returns:
        For the global model and for all personal models together, the numbers of calibration.json.
    """
    simulation = run.simulation
    globally, personal = global_logits(simulation), personal_logits(simulation)
    lines = _lines(simulation.federation, globally, personal)

    def write_lines(file: Any) -> None:
        for text in lines:
            file.write(text.encode())

    files.write_atomically(run.directory / PREDICTIONS, write_lines)
    models, by_client = _calibrations(simulation.federation, globally, personal)
    figure, _ = plots.reliability(models, simulation.title)
    plots.save(figure, run.directory / "plots" / "calibration.png")
    numbers = {name: _numbers(of) for name, of in models.items()}
    content = {
        "round": simulation.round,
        "models": {name: {**numbers[name], "bins": _bins(of)} for name, of in models.items()},
        "clients": {name: _numbers(of) for name, of in by_client.items()},
    }
    # A number without samples is NaN.
    content = run_directory.without_nan(content)
    files.write_text(run.directory / CALIBRATION, run_directory.json_text(content))
    return numbers


def global_logits(simulation: Simulation) -> Logits | None:
    """The logits of the global model for the test set and all held-out samples, if there is one."""
    federation = simulation.federation
    if not simulation.spec.method.has_global_model:
        return None
    compute = federated.build_global_logits(simulation.process)

    def answer(examples: data.Examples) -> np.ndarray:
        return np.asarray(simulation.invoke(compute, simulation.state, as_arrays(examples)))

    return Logits(answer(federation.test), answer(federation.validation_examples()))


def personal_logits(simulation: Simulation) -> list[Logits]:
    """The logits of all clients' personal models for their own samples, after the local epochs.

    Those of new clients come last.
    """
    clients = range(len(simulation.federation.every_client))
    compute = federated.build_personal_logits(simulation.process)
    none = np.zeros([0, simulation.federation.num_classes], np.float32)
    return [
        Logits(np.asarray(found["test"]), np.asarray(found.get("validation", none)))
        for found in simulation.map_clients(compute, simulation.own_parts, clients)
    ]


def _lines(
    federation: data.Federation, globally: Logits | None, personal: Sequence[Logits]
) -> Iterator[str]:
    """The text of predictions.csv, in parts."""
    names = [printable(name) for name in federation.class_names]
    header = ["model", "client", "id", "label", "prediction"]
    yield _csv([[*header, *(f"probability_{name}" for name in names)]])
    for client, own in zip(federation.every_client, personal, strict=True):
        if globally is not None:
            answers = globally.test[client.test]
            yield _rows(federation, GLOBAL, client.client_id, client.test, answers)
        yield _rows(federation, PERSONAL, client.client_id, client.test, own.test)
    if globally is not None:
        owned = np.concatenate([client.test for client in federation.every_client])
        rest = np.setdiff1d(np.arange(len(federation.test)), owned)
        yield _rows(federation, GLOBAL, "", rest, globally.test[rest])


def _rows(
    federation: data.Federation, model: str, client: str, samples: np.ndarray, logits: np.ndarray
) -> str:
    """The lines of a model's answers to some test samples; `logits` are [n, C]."""
    client, names = _cell(client), [_cell(name) for name in federation.class_names]
    finite = np.isfinite(logits).all(axis=1)
    probabilities = special.softmax(np.where(finite[:, None], logits, 0).astype(np.float64), axis=1)
    rows: list[list[Any]] = []
    for index, sample in enumerate(samples.tolist()):
        label = names[federation.test.y[sample]]
        row = [model, client, _name(federation.test, sample), label]
        if finite[index]:
            row += [names[logits[index].argmax()], *(f"{p:.6g}" for p in probabilities[index])]
        else:
            row += [""] * (1 + len(names))
        rows.append(row)
    return _csv(rows)


def _name(examples: data.Examples, sample: int) -> str | int:
    """The id of a sample: its name, or the path of an image file, or else its number."""
    if examples.ids is not None:
        return _cell(str(examples.ids[sample]))
    x = examples.x[sample]
    # The name of a file may be no valid text, which could not be written.
    return _cell(os.fsdecode(x)) if isinstance(x, bytes) else sample


def _cell(name: str) -> str:
    return tables.inert(printable(name))


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _calibrations(
    federation: data.Federation, globally: Logits | None, personal: Sequence[Logits]
) -> tuple[dict[str, Calibration], dict[str, Calibration]]:
    """Calibration of the global model and of all personal models together, and of each of these.

    Models of new clients do not count in what is about all together.
    """
    models: dict[str, Calibration] = {}
    if globally is not None:
        held_out = globally.held_out, federation.validation_examples().y
        models[GLOBAL] = calibrate([(globally.test, federation.test.y)], held_out)
    by_client = {
        client.client_id: calibrate(
            [(own.test, federation.test.y[client.test])],
            (own.held_out, federation.validation_examples(index).y),
        )
        for index, (client, own) in enumerate(zip(federation.every_client, personal, strict=True))
    }
    every = [*by_client.values()][: federation.num_clients]
    models[PERSONAL] = Calibration(
        before=functools.reduce(operator.add, [of.before for of in every]),
        after=functools.reduce(operator.add, [of.after for of in every]),
        temperature=float("nan"),
        held_out_samples=sum(of.held_out_samples for of in every),
    )
    return models, by_client


def _numbers(of: Calibration) -> dict[str, Any]:
    """The numbers of a model for calibration.json; accuracy, confidence and errors in percent."""
    return {
        "test_samples": int(of.before.samples.sum()),
        "accuracy": of.before.accuracy,
        "confidence": of.before.mean_confidence,
        "ece": of.before.error,
        "confidence_after": of.after.mean_confidence,
        "ece_after": of.after.error,
        "temperature": of.temperature,
        "held_out_samples": of.held_out_samples,
    }


def _bins(of: Calibration) -> dict[str, Any]:
    """Samples, and mean confidence and accuracy in percent, by bin of confidence."""
    return {
        stage: [
            {
                "samples": int(samples),
                "confidence": 100 * confidence / samples if samples else None,
                "accuracy": 100 * correct / samples if samples else None,
            }
            for samples, confidence, correct in zip(*vars(answers).values(), strict=True)
        ]
        for stage, answers in (("before", of.before), ("after", of.after))
    }


# Files of what the models of a finished run answer: clients.csv, clients.md and confusion.npz, and
# on request also those above.

# The most entries of the confusion matrices of all clients.
_MAX_ENTRIES = 5_000_000


def write_answers(run: Run, record: Manifest | None, *, with_predictions: bool) -> dict[str, str]:
    """Writes the files that are missing or damaged, on request `with_predictions`.

    Returns:
        The checksums of all files of the models' answers, by name.
    """
    directory = run.directory
    checksums = {} if record is None else dict(record.answers)
    missing = recovery.missing_answers(directory, record, predictions=with_predictions)
    always = {*answer_files(predictions=False)}
    if always & {*missing}:
        _write_clients(run, run.simulation.answers())
    if {*missing} - always:
        write_predictions(run)
    return checksums | {name: manifests.checksum_of(directory / name) or "" for name in missing}


def _write_clients(run: Run, answers: Answers) -> None:
    directory, simulation = run.directory, run.simulation
    federation, diverged = simulation.federation, simulation.nonfinite.diverged
    rows = clients_table.rows(federation, answers, diverged=diverged)
    text = clients_table.csv_text(rows, federation, answers)
    files.write_text(directory / CLIENTS, text)
    notes = [f"**{clients_table.DIVERGED.capitalize()}.**"] if diverged else []
    new = answers.at_new_clients
    every = [*answers.after, *(new.after if new else ())]
    if count := sum(int(np.sum(predicted < 0)) for predicted in every):
        notes.append(
            f"{count} answers of personal models are NaN or infinite; they count as wrong."
        )
    matrices = confusion_matrices(federation, answers)
    if "personal" not in matrices:
        notes.append(
            f"{CONFUSION} has no matrices of single clients, because they would have more than "
            f"{_MAX_ENTRIES:,} entries."
        )
    title = f"Clients of {simulation.title}, after round {simulation.round}"
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
