"""Exports the models of a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

from tff_pcdd import data
from tff_pcdd.export import keras_file, layout, lite, model_card, saved_model
from tff_pcdd.export.options import ExportOptions
from tff_pcdd.export.trained import PersonalModels, TrainedModel, global_model
from tff_pcdd.options import OptionError
from tff_pcdd.training.config import ExperimentConfig, RunOptions
from tff_pcdd.training.experiment import Experiment, restore_run

# Training samples that show an int8 model the range of its numbers, and most test samples that
# TensorFlow Lite is measured on, which takes them one by one.
_CALIBRATION, _LITE_TEST = 200, 1000


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model that was written.

    Attributes:
        folder: below the export's directory, without the version.
        accuracy: in percent, of the global model on the test set, of a personal one on its
            client's test part; NaN without any sample.
    """

    folder: str
    accuracy: float


def export_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    export_dir: str | os.PathLike,
    options: ExportOptions | None = None,
    run: RunOptions | None = None,
    *,
    round_number: int | None = None,
    overwrite: bool = False,
) -> Iterator[Exported]:
    """Writes the global and the personal models of a run, one after the other.

    Args:
        config: the run's settings; a moved `data_dir` is all that may differ.
        run_dir: the run's directory.
        export_dir: where the models go.
        options: which models.
        run: where personal models are trained, best as evaluation was.
        round_number: of the checkpoint they are taken from, the newest by default.
        overwrite: whether models of the same version are replaced.

    Yields:
        What was written, when it is in its place.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        OptionError: the directory cannot take the export, a client is unknown, or there is nothing
            to export. Nothing is written then.
    """
    options = options or ExportOptions()
    directory = layout.ExportDirectory(export_dir, options.model_version, overwrite)
    experiment = restore_run(config, run_dir, run, round_number)
    clients = _choose_clients(experiment, options.clients)
    has_global = experiment.learning.method.has_global_model
    if not clients and not has_global:
        raise OptionError(
            f"--clients={options.clients}: nothing to export, {config.algorithm} has no global "
            "model; name clients, or all"
        )
    folders = {index: layout.personal_folder(client_id) for index, client_id in clients.items()}
    directory.check([layout.GLOBAL] * has_global + list(folders.values()))
    return _export(experiment, directory, folders, options)


def _export(
    experiment: Experiment,
    directory: layout.ExportDirectory,
    folders: dict[int, str],
    options: ExportOptions,
) -> Iterator[Exported]:
    learning, federation = experiment.learning, experiment.federation
    if learning.method.has_global_model:
        model = global_model(learning, experiment.state, federation.class_names)
        yield _write(model, experiment, directory, layout.GLOBAL, options)
    makes = PersonalModels(
        learning,
        experiment.process,
        experiment.state,
        federation.class_names,
        local_epochs=options.personal_model == "after",
    )
    for client, folder in folders.items():
        model = makes.model(*experiment.personal_inputs(client))
        yield _write(model, experiment, directory, folder, options, client)
    directory.write_models_config()


def _write(
    model: TrainedModel,
    experiment: Experiment,
    directory: layout.ExportDirectory,
    folder: str,
    options: ExportOptions,
    client: int | None = None,
) -> Exported:
    train, test = _samples(experiment.federation, client)
    accuracies = {"": model.accuracy(test, experiment.learning.eval_batch_size)}
    with directory.version(folder) as path:
        if "saved_model" in options.formats():
            saved_model.write(model, path)
        if "keras" in options.formats():
            keras_file.write(model, path)
        if "tflite" in options.formats():
            files = lite.write(model, path, _some(train, _CALIBRATION).x)
            accuracies |= {
                file: lite.accuracy(path / file, _some(test, _LITE_TEST), model.input_spec)
                for file in files
            }
        card = model_card.text(experiment, accuracies, client, options.personal_model)
        (path / model_card.FILE).write_text(card)
    return Exported(folder, accuracies[""])


def _samples(federation: data.Federation, client: int | None):
    """Training and test examples that a model is for."""
    if client is None:
        return federation.train, federation.test
    return federation.client_examples(client)


def _some(examples: data.Examples, count: int) -> data.Examples:
    """At most so many examples, of all classes; always the same."""
    return examples.take(data.stratified_indices(examples.y, count, seed=0))


def _choose_clients(experiment: Experiment, wanted: str) -> dict[int, str]:
    """Ids of the clients by number.

    Raises:
        OptionError: one is unknown.
    """
    known = dict(enumerate(experiment.federation.client_ids))
    if wanted in ("all", "none"):
        return known if wanted == "all" else {}
    ids = [client_id.strip() for client_id in wanted.split(",")]
    for client_id in ids:
        if client_id not in known.values():
            raise OptionError(
                f"--clients={wanted}: there is no client {client_id!r}; the {len(known)} clients "
                f"are {known[0]} … {known[len(known) - 1]}"
            )
    return {index: client_id for index, client_id in known.items() if client_id in ids}
