"""Exports the trained models of a run."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import data, directories, files, text
from tff_pcdd.data.input_spec import VECTOR
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.export import columns, keras_file, layout, lite, model_card, saved_model
from tff_pcdd.export.checks import check_options, check_temperature, choose_clients
from tff_pcdd.export.options import ExportOptions
from tff_pcdd.export.trained import PersonalModels, TrainedModel, global_model
from tff_pcdd.training import ExperimentConfig, Run, RunOptions, restore_run
from tff_pcdd.training.recovery import read_summary
from tff_pcdd.training.restored import warn_of_round
from tff_pcdd.training.run_directory import read_config

_logger = logging.getLogger(__name__)

# Numbers of training samples for the calibration of int8 models, and of test samples for the
# accuracy of TensorFlow Lite models, which process one sample at a time.
_CALIBRATION, _LITE_TEST = 200, 1000

# Points of accuracy that an int8 model may lose without a warning.
_TOLERATED_LOSS = 2.0

# The most held-out samples to which a temperature is fitted: their logits are kept in memory.
_HELD_OUT = 5000


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model that has been written.

    Attributes:
        folder: folder of the model in the export directory, without the version.
        accuracy: accuracy in percent, of the global model on the test set or of a personal model
            on its client's test data; NaN if there are no samples.
        converted: accuracies of the TensorFlow Lite files, by name, on at most 1,000 of these
            samples; empty if there are none, or if an interrupted export has written them.
        own_accuracy: accuracy in percent of a personal model's answers that are restricted to the
            client's own classes, `own_label`; NaN of the global model, if there are no samples, or
            if an interrupted export has written the model.
        lacks_temperature: whether a temperature was asked for, and the held-out samples show none
            that is better than none.
    """

    folder: str
    accuracy: float
    converted: Mapping[str, float] = dataclasses.field(default_factory=dict)
    own_accuracy: float = math.nan
    lacks_temperature: bool = False


def export_run(
    run_dir: str | os.PathLike,
    export_dir: str | os.PathLike,
    options: ExportOptions | None = None,
    run_options: RunOptions | None = None,
    *,
    config: ExperimentConfig | None = None,
    round_number: int | str | None = None,
    overwrite: bool = False,
    federation: data.Federation | None = None,
) -> list[Exported]:
    """Writes the global model and the personal models of a run.

    If this is interrupted, the next call with the same arguments writes only what is missing.

    Args:
        run_dir: directory of the run.
        export_dir: directory to which the models are written.
        options: which models to export, and their formats.
        run_options: runtime in which personal models are trained; use that of the run's evaluation.
        config: settings of the run, by default those of its config.json; only `data_dir` may be
            different.
        round_number: the round whose checkpoint is exported, or "best" for the round that is best
            on held-out samples; the newest by default.
        overwrite: whether to replace models of the same version.
        federation: the clients and their samples, if the run did not load them as `config` says.

    Returns:
        The models, the global one first.

    Raises:
        FileNotFoundError: there is no checkpoint of this round.
        SettingError: `export_dir` cannot be used, a client is unknown, or there is nothing to
            export, or no best round; or without `config`, as `run_directory.read_config`. Nothing
            is written then.
        DataError: the run has diverged, and nothing is written; or a weight or an answer of a model
            is NaN or infinite, and that model is not written.
        WriteError: a model cannot be written. The next call continues with it.
    """
    return list(
        iter_export(
            run_dir,
            export_dir,
            options,
            run_options,
            config=config,
            round_number=round_number,
            overwrite=overwrite,
            federation=federation,
        )
    )


def iter_export(
    run_dir: str | os.PathLike,
    export_dir: str | os.PathLike,
    options: ExportOptions | None = None,
    run_options: RunOptions | None = None,
    *,
    config: ExperimentConfig | None = None,
    round_number: int | str | None = None,
    overwrite: bool = False,
    federation: data.Federation | None = None,
) -> Iterator[Exported]:
    """As `export_run`, one model after the other: each is written when the next one is asked for.

    Yields:
        Each model after it has been written.
    """
    options, config = options or ExportOptions(), config or read_config(run_dir)
    check_options(config, options)
    directory = layout.ExportDirectory(export_dir, options.model_version, overwrite)
    directories.check_writable(Path(export_dir), "export_dir")
    run = restore_run(config, run_dir, run_options, round_number, federation=federation)
    with contextlib.ExitStack() as stack:
        # Releases the runtime if a check fails; otherwise `_export` does.
        stack.enter_context(run.simulation)
        clients = choose_clients(run.simulation.federation.every_id, options.clients)
        has_global = config.method.has_global_model
        every = layout.personal_folders(run.simulation.federation.every_id)
        folders = {index: every[index] for index in clients}
        settings = _settings(run, options)
        directory.check([layout.GLOBAL] * has_global + list(folders.values()), settings)
        _check_usable(run, newest=round_number is None)
        check_temperature(options, has_held_out=bool(run.simulation.spec.validation))
        _check_lite(run, options)
        warn_of_round(run, round_number)
        stack.pop_all()
    return _export(run, directory, folders, options, settings)


def _check_usable(run: Run, *, newest: bool) -> None:
    """Refuses what has diverged, the restored round or, if that is the `newest`, the run."""
    summary = read_summary(run.directory) or {}
    if run.simulation.nonfinite.diverged or (newest and summary.get("diverged")):
        raise DataError(
            f"{run.directory} is not exported: the run has diverged by round "
            f"{run.simulation.round}; export an earlier round"
        )


def _check_lite(run: Run, options: ExportOptions) -> None:
    """Checks that TensorFlow Lite can compute with the numbers of all columns."""
    for column in run.simulation.spec.input_spec.columns or ():
        if column.offset and "tflite" in options.formats():
            reason = (
                f"TensorFlow Lite computes in float32, which is too coarse for column "
                f"{column.name!r}; choose saved_model, or subtract {column.offset:g} from "
                "the column before training"
            )
            raise SettingError("format", options.format, reason)


def _export(
    run: Run,
    directory: layout.ExportDirectory,
    folders: dict[int, str],
    options: ExportOptions,
    settings: Mapping[str, Any],
) -> Iterator[Exported]:
    ids = run.simulation.federation.every_id
    names = {folder: ids[client] for client, folder in folders.items()}
    with run.simulation as simulation, directory.writing(settings, names):
        models: list[tuple[int | None, str]] = [*folders.items()]
        if simulation.spec.method.has_global_model:
            models.insert(0, (None, layout.GLOBAL))
        personal = None
        lacking: list[str] = []
        for client, folder in models:
            if folder in directory.written:
                yield Exported(folder, directory.written[folder])
                continue
            if client is None:
                model = global_model(simulation)
            else:
                after = options.personal_model == "after"
                personal = personal or PersonalModels(simulation, local_epochs=after)
                model = personal.model(client)
            exported = _write(model, run, directory, folder, options, client)
            lacking += [folder] * exported.lacks_temperature
            yield exported
        if lacking:
            _logger.warning(
                "%s: exported without a temperature, because the held-out samples do not show that "
                "one makes the probabilities better; a larger validation_fraction holds more "
                "samples out, but small sites may still have too few",
                text.listed(lacking),
            )


def _settings(run: Run, options: ExportOptions) -> dict[str, Any]:
    """What the models depend on: the state of the run, and all options but the choice of clients.

    An interrupted export with the same settings is continued.
    """
    state = hashlib.sha256()
    for leaf in tf.nest.flatten(run.simulation.state):
        state.update(np.asarray(leaf).tobytes())
    chosen = dataclasses.asdict(options)
    del chosen["clients"]
    return {
        "config": run.config.digest(),
        "round": run.simulation.round,
        "state": state.hexdigest(),
        **chosen,
    }


def _write(
    model: TrainedModel,
    run: Run,
    directory: layout.ExportDirectory,
    folder: str,
    options: ExportOptions,
    client: int | None = None,
) -> Exported:
    """Writes a model."""
    simulation, federation = run.simulation, run.simulation.federation
    spec, train, test = federation.input_spec, federation.train, federation.test
    if client is not None:
        train, test = federation.client_examples(client)
    held_out = _some(federation.validation_examples(client), _HELD_OUT)
    try:
        model.check_weights()
        calibration = model.calibrate(test, held_out, simulation.spec.eval_batch_size)
    except DataError as error:
        raise DataError(
            f"{folder} is not exported: {error} after round {simulation.round}; export an earlier "
            "round"
        ) from None
    accuracies = {"": calibration.before.accuracy}
    asked = options.temperature == "fitted"
    if asked and calibration.is_determined:
        model = dataclasses.replace(model, temperature=calibration.temperature)
    with directory.version(folder, accuracies[""]) as path:
        if "saved_model" in options.formats():
            saved_model.write(model, path, columns.ranges(federation))
        if "keras" in options.formats():
            keras_file.write(model, path)
        if "tflite" in options.formats():
            converted = lite.write(model, path, _some(train, _CALIBRATION).x)
            accuracies |= {
                file: lite.accuracy(path / file, _some(test, _LITE_TEST), spec)
                for file in converted
            }
            lost = accuracies[lite.FLOAT] - accuracies.get(lite.INT8, math.nan)
            if lost > _TOLERATED_LOSS:
                scales = ", or train with inputs of similar scales"
                _logger.warning(
                    "%s: %s is %.1f points less accurate than %s; use that file%s",
                    folder,
                    lite.INT8,
                    lost,
                    lite.FLOAT,
                    scales if spec.kind == VECTOR else "",
                )
        if spec.columns is not None:
            columns.write(spec, path)
        card = model_card.text(
            run, accuracies, client, options.personal_model, calibration, asked=asked
        )
        files.write_text(path / model_card.FILE, card)
    lacks_temperature = asked and not calibration.is_determined
    own = math.nan if calibration.own is None else calibration.own[0].accuracy
    return Exported(folder, accuracies.pop(""), accuracies, own, lacks_temperature)


def _some(examples: data.Examples, count: int) -> data.Examples:
    """At most `count` examples, stratified by class; always the same ones."""
    return examples.take(data.stratified_indices(examples.y, count, seed=0))
