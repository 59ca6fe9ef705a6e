"""The model card of an exported model: description, accuracy, settings, data and versions."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tff_pcdd import data, measures, stack, tables
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE
from tff_pcdd.evaluation.calibration import Calibration
from tff_pcdd.export import columns, layout
from tff_pcdd.settings import describe
from tff_pcdd.text import one_line
from tff_pcdd.training import ExperimentConfig, Run
from tff_pcdd.training.recovery import read_summary
from tff_pcdd.training.run_directory import is_unfinished
from tff_pcdd.training.summary import held_out_measure

FILE = "model_card.md"

_PACKAGES = ("tff_pcdd", "tensorflow", "tensorflow-federated", "tf-keras", "numpy")

# The most channels, or numbers of a vector, whose statistics are listed.
_CHANNELS = 8

# The most columns of a table, and categories of a column, that are listed.
_COLUMNS = 100

_GLOBAL = """\
The global model, which is the same for all clients; GA is its accuracy on the whole test set.
`probabilities` covers all classes, in the order of the table of classes [below](#data)."""

_PERSONAL = """\
The personal model of client {client}, which the method derives from the global model,
{stage}.
`probabilities` covers all classes, in the order of the table of classes [below](#data).
`own_probabilities` has the same order and covers the client's own classes, those with at least one
sample in its training data: the logits of all other classes are excluded from the softmax, so their
probability is 0. For a client without training samples it covers all classes.
`label` and `own_label` are the classes with the largest of these probabilities. On data like the
client's, `own_label` is usually the better answer; for a sample of a class that the client lacks it
is always wrong."""

_STAGES = {
    "after": "after the local epochs; PA is the mean accuracy of these models over clients",
    "before": "before any local epoch; PA before is the mean accuracy of these models over clients",
}

# Of models of clients that take no part in training.
_NEW = """\


The client took no part in training. Its model begins like that of a client that has never
trained."""

# Of models before any local epoch whose method keeps nothing on clients.
_SHARED = """\


All clients have the global model here: `label` is its answer, and `own_label` its answer among the
client's own classes."""

# The measures of the whole run that every card names, if they were measured.
_OF_RUN = ("ga", "pa_before", "pa_before_masked", "pa", "pa_masked")

# By how many points accuracy and mean confidence may differ without advice.
_TOLERATED = 15

# Up to this share of the way from 1 / number of classes to 1, a mean confidence is near the former.
_NEAR = 0.25


def text(
    run: Run,
    accuracies: Mapping[str, float],
    client: int | None,
    stage: str,
    calibration: Calibration,
    *,
    asked: bool,
) -> str:
    """The model card, in Markdown.

    Args:
        run: the run, restored to the round of the model.
        accuracies: accuracies in percent: of this model under "", and of its conversions under
            their file names. NaN if there are no samples.
        client: number of the client; None for the global model.
        stage: "after" or "before" the local epochs, for a personal model.
        calibration: calibration of the probabilities on the test samples.
        asked: whether the export was asked to fit a temperature. If there is one, the model divides
            its logits by it.
    """
    config, federation = run.config, run.simulation.federation
    title, description = _title(run, client, stage)
    name = tables.escape(config.data.source.describe())
    data_settings = [*_settings(config, only=("Data",))]
    if run.simulation.has_other_data:
        name = tables.escape(federation.name)
        data_settings = [("federation", f"{name}, given in Python")]
    lines = [
        f"# {config.method_title} on {name}: {title}",
        "",
        description,
        "",
        "## Accuracy",
        "",
        _table(
            ("model and samples", "accuracy (%)"),
            _accuracies(run, accuracies, client, calibration),
        ),
        "",
        "## Calibration",
        "",
        *_calibration(calibration, federation.num_classes, asked=asked),
        "",
        "## Training",
        "",
        f"{run.simulation.round} of {config.training.rounds} rounds of federated training.",
        *_choice(run),
        *_exclusions(run),
        f"The backbone computes in {config.model.precision}; weights and logits are float32.",
        "",
        _table(("setting", "value"), _settings(config, leave_out=("Data",))),
        "",
        "## Data",
        "",
        _table(("setting", "value"), data_settings),
        "",
        _table(*_classes(federation, client)),
        "",
        *_normalization(federation.input_spec),
        *_inputs(federation),
        "## Made with",
        "",
        _table(("", "version"), _versions()),
        "",
        f"Hash of the settings: `{config.digest()}`.",
    ]
    return "\n".join(lines) + "\n"


def _title(run: Run, client: int | None, stage: str) -> tuple[str, str]:
    """What the model is, in a few words and at length; arguments as of `text`."""
    if client is None:
        return "global model", _GLOBAL
    federation = run.simulation.federation
    client_id = tables.escape(federation.every_id[client])
    description = _PERSONAL.format(client=client_id, stage=_STAGES[stage])
    if client >= federation.num_clients:
        description += _NEW
    if stage == "before" and run.config.method.starts_from_global():
        description += _SHARED
    served = layout.model_name(layout.personal_folders(federation.every_id)[client])
    description += f"\n\nServers call it `{served}`."
    return f"personal model of client {client_id}", description


def _choice(run: Run) -> Iterator[str]:
    """A sentence about a run that goes on, or a round that is the best one of a finished run."""
    if is_unfinished(run.directory):
        yield "The run was not finished when this model was exported."
    summary, best = read_summary(run.directory), held_out_measure(run.config).best_round
    if summary and summary.get(best) == run.simulation.round < summary["rounds"]:
        models = "global model" if run.config.method.has_global_model else "personal models"
        yield (
            f"Of {summary['rounds']} rounds, this one is the best on held-out samples, by the "
            f"accuracy\nof the {models}."
        )


def _exclusions(run: Run) -> Iterator[str]:
    """A sentence about values that were not finite, if there were any."""
    totals = run.simulation.totals
    if rounds := totals["nonfinite_rounds"]:
        yield (
            f"In {rounds} of these rounds, values were NaN, infinite or far too large; clients "
            f"were excluded {totals['excluded_clients']} times."
        )


def _accuracies(
    run: Run, accuracies: Mapping[str, float], client: int | None, calibration: Calibration
) -> Iterator[tuple[str, str]]:
    """What was measured, and the accuracy."""
    federation = run.simulation.federation
    if client is None:
        samples = f"the test set, {len(federation.test)} samples"
    else:
        count = len(federation.every_client[client].test)
        samples = f"the client's test data, {count} samples"
    for file, accuracy in accuracies.items():
        if file:
            yield f"{file}: at most 1,000 of these", tables.percent(accuracy)
        elif calibration.own is None:
            yield f"this model: {samples}", tables.percent(accuracy)
        else:
            yield f"this model, `label`: {samples}", tables.percent(accuracy)
            own = calibration.own[0].accuracy
            yield "this model, `own_label`: the same samples", tables.percent(own)
    summary = read_summary(run.directory)
    if summary and summary["rounds"] == run.simulation.round:
        for measure in [*map(measures.of, _OF_RUN), *measures.further(summary)]:
            value = summary.get(measure.final)
            if measure.unit == "%":
                yield f"whole run, {measure.label}", tables.percent(value)
            elif value is not None:
                yield f"whole run, {measure.label}", f"{value:.4g} {measure.unit}".rstrip()


def _calibration(of: Calibration, classes: int, *, asked: bool) -> Iterator[str]:
    """How far the probabilities of a number of classes can be trusted."""
    if not of.before.samples.sum():
        yield "There are no test samples to measure it on."
        return
    fitted = of.temperature == of.temperature
    yield "The confidence of an answer is its largest probability. The expected calibration error"
    yield "(ECE) is the mean distance between accuracy and confidence in 15 bins of equal width, on"
    yield "the test samples of this model."
    yield ""
    outputs = {"": (of.before, of.after)}
    if of.own is not None:
        outputs = {"`probabilities`, ": outputs[""], "`own_probabilities`, ": of.own}
    divided = f"divided by the temperature {of.temperature:.4g}"
    yield _table(
        ("logits", "accuracy (%)", "mean confidence (%)", "ECE (%)"),
        [
            (
                f"{output}{label}",
                *map(tables.percent, (found.accuracy, found.mean_confidence, found.error)),
            )
            for output, both in outputs.items()
            for label, found in zip(("as the method computes them", divided), both, strict=True)
            if fitted or label != divided
        ],
    )
    yield ""
    if fitted and of.is_uncertain:
        yield f"The temperature is fitted on {of.held_out_samples} held-out samples, which do"
        yield "not show that it is better than none. No model uses it, also with the export option"
        yield "temperature=fitted."
    elif fitted:
        used = "does not use it; the export option temperature=fitted does."
        yield f"The temperature is fitted on {of.held_out_samples} held-out samples. This model"
        yield "divides its logits by it." if asked else used
    elif of.held_out_samples:
        yield (
            f"No temperature is fitted to the {of.held_out_samples} held-out samples: it takes at "
            "least 10 of them, and at\nleast one that is classified wrongly."
        )
    if fitted and of.own is not None:
        yield "It is fitted to `probabilities`, not to `own_probabilities`."
    if not (asked and of.is_determined):
        yield from _misleading(of, classes, asked=asked)


def _misleading(of: Calibration, classes: int, *, asked: bool) -> Iterator[str]:
    """What is wrong with probabilities that are far too low or too high, if they are."""
    accuracy, confidence = of.before.accuracy, of.before.mean_confidence
    if abs(accuracy - confidence) <= _TOLERATED or not of.before.is_biased:
        return
    is_low = accuracy > confidence
    yield ""
    yield f"**The probabilities are far too {'low' if is_low else 'high'}**: they order the"
    yield "classes, but do not say how often an answer is right."
    chance = 100 / classes
    if is_low and confidence <= chance + _NEAR * (100 - chance):
        yield "This is so for methods with bounded logits, such as FedGELA with scale 1, whose"
        yield "probabilities stay near 1 / number of classes."
    if asked:
        yield "If you need probabilities, hold more samples out (validation_fraction)."
    elif of.is_determined:
        yield "If you need probabilities, export with temperature=fitted."
    else:
        yield "If you need probabilities, export with temperature=fitted, from a run that holds"
        more = "more " if of.held_out_samples else ""
        yield f"{more}samples out (validation_fraction)."


def _settings(
    config: ExperimentConfig, only: Iterable[str] = (), leave_out: Iterable[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Settings that apply, by their flat names, except where the data are."""
    groups = {setting.name: setting.group for setting in describe(ExperimentConfig)}
    for name, value in config.to_settings().items():
        group = groups.get(name, "")
        if value is None or name == "data_dir" or group in leave_out:
            continue
        if not only or group in only:
            yield name, value


def _normalization(spec: data.InputSpec) -> Iterator[str]:
    """How the model reads image files and normalizes its inputs, if that takes a line."""
    if spec.kind in (IMAGE, IMAGE_FILE) and spec.has_white:
        yield "The signature `serving_bytes` of a SavedModel reads JPEG, PNG and BMP files, and"
        yield "turns photos upright as their EXIF orientation says. It refuses other files, such as"
        yield "HEIC, and those of TIFF, WebP and GIF, which `make serve` reads. It refuses DICOM,"
        yield "and so does `make serve`: convert those to PNG with their windows."
        yield ""
    if spec.pixel_range is not None and not spec.has_white:
        low, high = spec.pixel_range
        yield "The training images were DICOM files without windows, or shown by one range; their"
        yield f"values of {low:g} became 0, and those of {high:g} 255. There is no signature"
        yield "`serving_bytes`, because image files have no such values: `images` takes pixels from"
        yield "0 to 255."
        yield ""
    elif spec.pixel_range is not None:
        low, high = spec.pixel_range
        yield f"Image files are PNGs of 16 bits per channel; {low} becomes 0, and {high} 255."
        yield ""
    if spec.columns is not None:
        return
    if spec.mean is not None and spec.std is not None and len(spec.mean) <= _CHANNELS:
        mean, std = (
            ", ".join(f"{value:g}" for value in values) for values in (spec.mean, spec.std)
        )
        yield f"The model multiplies stored inputs by {spec.scale:.6g}, then subtracts {mean} and"
        yield f"divides by {std}."
        yield ""


def _inputs(federation: data.Federation) -> Iterator[str]:
    """The columns of a table that the model takes, and how they are given."""
    spec = federation.input_spec
    described = columns.described(spec)
    if not described:
        return
    yield "## Inputs"
    yield ""
    yield "The columns of the table in the order of `features`, in the table's units. Means and"
    yield "deviations are those of the training samples of all sites, after missing numbers were"
    yield f"replaced; programs find them in `{columns.FILE}`. Answers to numbers below the least or"
    yield "above the greatest one of these samples are guesses; often, they are in other units."
    if limits := _limits(federation):
        yield "`out_of_range` of a SavedModel's answer names the columns of such numbers."
    yield ""
    names = ("column", "input", "values", "mean", "standard deviation", "least", "greatest")
    yield _table(
        (*names, "if missing"),
        (_row(column, limits.get(column["name"], ("", ""))) for column in described[:_COLUMNS]),
    )
    if len(described) > _COLUMNS:
        yield ""
        yield f"{len(described) - _COLUMNS} further columns are in `{columns.FILE}`."
    yield ""
    if any(column.is_text for column in spec.columns or ()):
        yield "In `features`, the code in parentheses stands for a category."
        yield ""
    if described[0]["input"] is not None:
        yield "The signature `serving_columns` has an input for each column, under the name in the"
        yield "second column of the table."
        yield ""
    if len(described) <= _COLUMNS:
        yield "`make serve` takes rows with the values of the table, by name or in their order:"
        yield ""
        example = {column["name"]: _example(column) for column in described}
        yield f"    {json.dumps({'instances': [example]}, ensure_ascii=False)}"
        yield ""


def _limits(federation: data.Federation) -> dict[str, tuple[str, ...]]:
    """The least and the greatest number of each column of numbers, in the table's units."""
    offsets = {column.name: column.offset for column in federation.input_spec.columns or ()}
    found = {}
    for name, limits in columns.ranges(federation).items():
        digits = 10 if offsets[name] else 6
        found[name] = tuple(f"{float(limit) + offsets[name]:.{digits}g}" for limit in limits)
    return found


def _row(column: Mapping[str, Any], limits: tuple[str, ...]) -> tuple[str, ...]:
    """The line of a column in the table of inputs; `limits` are those of its numbers."""
    name, value = column["name"], "numbers"
    if column["type"] == "category":
        has_codes = any(
            category["name"] != str(category["code"]) for category in column["categories"]
        )
        value = ", ".join(
            f"{category['name']} ({category['code']})" if has_codes else category["name"]
            for category in column["categories"][:_COLUMNS]
        )
    missing = "refused"
    if column["may_be_missing"]:
        missing = f"{column['replacement']:.6g}" if "replacement" in column else "no category"
    statistics = [f"{column[key]:.6g}" if key in column else "" for key in ("mean", "std")]
    return name, column["input"] or "", value, *statistics, *limits, missing


def _example(column: Mapping[str, Any]) -> Any:
    """A plausible value of a column."""
    if column["type"] == "number":
        return column.get("replacement", float(f"{column['mean']:.6g}"))
    first = column["categories"][0]
    return first["code"] if first["name"] == str(first["code"]) else first["name"]


def _classes(
    federation: data.Federation, client: int | None
) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
    """The names of the columns, and for each class its samples."""
    columns: dict[str, Any] = {"class": [one_line(name) for name in federation.class_names]}
    if client is not None:
        trained, tested = federation.counts_of(client)
        columns["the client's training samples"] = trained
        columns["the client's test samples"] = tested
    columns["training samples of all clients"] = federation.class_counts().sum(axis=0)
    return tuple(columns), zip(*columns.values(), strict=True)


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in _PACKAGES:
        yield package, stack.version(package)


def _table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    return tables.table([[tables.escape(str(cell)) for cell in line] for line in (columns, *rows)])
