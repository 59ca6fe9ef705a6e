"""The page that goes with an exported model: what it is, how it came about, how good it is."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from tff_pcdd.options import option_fields
from tff_pcdd.training.config import ExperimentConfig
from tff_pcdd.training.experiment import Experiment
from tff_pcdd.training.runs import read_summary

FILE = "model_card.md"

_PACKAGES = ("tff_pcdd", "tensorflow", "tensorflow-federated", "keras", "numpy")

_GLOBAL = """\
The global model, the same for all clients: the one that GA is measured on. `probabilities` are over
all classes."""

_PERSONAL = """\
The personal model of client {client}: what the method makes of the global model for this client
{stage}. `probabilities` are over all classes. `own_probabilities` are over the client's own
classes only: those of which its training part has at least one sample. The logits of all other
classes are left out before the softmax, so their probability is 0. For a client without
training samples they are over all classes."""

_STAGES = {
    "after": "after the local epochs, one of the models whose mean accuracy is PA",
    "before": "before any local epoch, one of the models whose mean accuracy is PA before",
}

# Accuracies of the whole run, as summary.json names them.
_RUN_ACCURACIES = {
    "ga_final": "GA: global model, whole test set",
    "pa_before_final": "PA before: mean over clients, before the local epochs",
    "pa_final": "PA: mean over clients, after the local epochs",
    "pa_masked_final": "PA, own classes only",
}


def text(
    experiment: Experiment, accuracies: Mapping[str, float], client: int | None, stage: str
) -> str:
    """The model card, in Markdown.

    Args:
        experiment: the run, restored to the round that the model is from.
        accuracies: of this model, in percent, under ""; of what it was converted to, under the
            names of the files. NaN if there was nothing to measure it on.
        client: number of the client; None for the global model.
        stage: "after" or "before", of a personal model.
    """
    config, federation = experiment.config, experiment.federation
    if client is None:
        title, description = "global model", _GLOBAL
    else:
        client_id = federation.client_ids[client]
        title = f"personal model of client {client_id}"
        description = _PERSONAL.format(client=client_id, stage=_STAGES[stage])
    lines = [
        f"# {config.algorithm} on {config.dataset}: {title}",
        "",
        description,
        "",
        "## Accuracy",
        "",
        *_table(("measured on", "accuracy (%)"), _accuracies(experiment, accuracies, client)),
        "",
        "## Training",
        "",
        f"{experiment.round} of {config.rounds} rounds of federated training.",
        "",
        *_table(("setting", "value"), _settings(config, leave_out=("Data",))),
        "",
        "## Data",
        "",
        *_table(("setting", "value"), _settings(config, only=("Data",))),
        "",
        *_table(*_classes(experiment, client)),
        "",
        "## Made with",
        "",
        *_table(("", "version"), _versions()),
        "",
        f"Hash of the settings: `{config.digest()}`.",
    ]
    return "\n".join(lines) + "\n"


def _accuracies(experiment: Experiment, accuracies: Mapping[str, float], client: int | None):
    federation = experiment.federation
    if client is None:
        samples = f"the test set, {len(federation.test)} samples"
    else:
        count = int(federation.test_class_counts()[client].sum())
        samples = f"the client's test part, {count} samples"
    for file, accuracy in accuracies.items():
        measured = f"{file}, on at most 1,000 of them" if file else f"this model: {samples}"
        yield measured, _percent(accuracy)
    summary = read_summary(experiment.output_dir)
    if summary and summary["rounds"] == experiment.round:
        for name, meaning in _RUN_ACCURACIES.items():
            yield f"the run: {meaning}", _percent(summary.get(name))


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2f}"


def _settings(config: ExperimentConfig, only: Iterable[str] = (), leave_out: Iterable[str] = ()):
    """Settings that apply, under the names of their flags; not where the data were."""
    for field in option_fields(type(config)):
        group, value = field.metadata["group"], getattr(config, field.name)
        if value is None or field.name == "data_dir" or group in leave_out:
            continue
        if not only or group in only:
            yield field.name, value
            if field.name == "algorithm":
                for name, option in config.method_options.items():
                    yield f"{value}_{name}", option


def _classes(experiment: Experiment, client: int | None):
    """Samples of every class."""
    federation = experiment.federation
    columns: Mapping[str, Any] = {"class": [repr(name)[1:-1] for name in federation.class_names]}
    if client is not None:
        columns["the client's training samples"] = federation.class_counts()[client]
        columns["the client's test samples"] = federation.test_class_counts()[client]
    columns["training samples of all clients"] = federation.class_counts().sum(axis=0)
    return tuple(columns), zip(*columns.values(), strict=True)


def _versions():
    yield "python", platform.python_version()
    for package in _PACKAGES:
        yield package, importlib.metadata.version(package)


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    lines = [columns, ["---"] * len(tuple(columns)), *rows]
    return [
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    ]
