"""What the report of a run shows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tff_pcdd import findings, measures, text
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.federated.local_work import LocalWork
from tff_pcdd.findings import Evidence, Finding
from tff_pcdd.report import cards, charts, client_tables, matrices, settings_table, terms
from tff_pcdd.results import by_client, confusion, run_evidence
from tff_pcdd.results.by_client import RunClients
from tff_pcdd.results.reading import Directory, numbers
from tff_pcdd.settings import describe
from tff_pcdd.text import name_of
from tff_pcdd.training import colors
from tff_pcdd.training.file_names import COMPARISON_TABLE, CONFIG, METRICS, SUMMARY
from tff_pcdd.training.recovery import read_summary
from tff_pcdd.training.run_directory import check_entries

# The curves of accuracies, and the figures at the top.
_CURVES = ("ga", "pa", "pa_before", "pa_before_masked", "va")
_FIGURES = ("ga", "pa", "pa_before")
_PARTS = {name: [f"{name}_{part}" for part in measures.PARTS] for name in ("ga", "pa")}

# Settings with which clients do only a part of their local epochs.
_UNEQUAL_WORK = tuple(setting.name for setting in describe(LocalWork))


def content(directory: Directory) -> dict[str, Any]:
    """The values of the template run.html.

    Raises:
        SettingError: the directory holds no run.
        DamagedFileError: config.json is damaged.
    """
    try:
        settings = directory.json(CONFIG)
    except FileNotFoundError:
        raise SettingError("run_dir", directory.path, _no_run(directory)) from None
    check_entries(directory.path, "run_dir")
    history = directory.attempt(METRICS, directory.history) or History([])
    summary = directory.attempt(SUMMARY, _summary, directory) or {}
    held, found = run_evidence.files_of(directory)
    shown, left_out = matrices.matrices(found, held) if found else ([], "")
    answered = run_evidence.of(held, found)
    exported, number = cards.read(directory)
    diverged = bool(summary.get("diverged"))
    chosen, defaults = settings_table.divided(settings_table.rows(settings))
    return {
        "title": " on ".join(settings_table.names(settings)) + " (diverged)" * diverged,
        "sentence": _sentence(settings, summary, history, held),
        "terms": terms.shown((), [settings_table.configuration(settings)]),
        "figures": [] if diverged else _figures(summary, held),
        "measured": [] if diverged else _measured(settings, summary),
        "learned": "" if diverged or not summary else findings.learned(answered),
        "findings": findings.advised_once(
            [
                *_findings(settings, summary, history, answered),
                *(Finding("damaged", line) for line in directory.damaged()),
            ]
        ),
        "holdings": matrices.who_holds_what(held) if held and held.classes else None,
        "curves": _curves(history, held),
        "group_sizes": run_evidence.group_sizes(held, found)
        if {*measures.GROUPS} & {*summary}
        else "",
        "recalls": _recalls(held, answered)[: client_tables.MOST],
        "has_global": answered.of_global is not None,
        "command": settings_table.command(settings),
        "clients": client_tables.of_run(held) if held else None,
        "new_clients": client_tables.of_run(held.new) if held and held.new else None,
        "matrices": shown,
        "matrices_note": left_out,
        "costs": _costs(summary, history),
        "chosen": chosen,
        "defaults": defaults,
        "cards": exported,
        "more_cards": number - len(exported),
        "problems": directory.problems,
    }


def _findings(
    settings: Mapping[str, Any], summary: Mapping[str, Any], history: History, answered: Evidence
) -> list[Finding]:
    """The findings of a run, which need not be finished."""
    if summary:
        found = findings.of_run(settings, summary, history, answered)
        return findings.with_times(found, summary.get("seconds_per_round"))
    computed = history[-1]["round"] if len(history) else 0
    what = (
        f"The run is not finished: round {computed} of {settings.get('rounds')} was recorded last."
    )
    return [Finding("unfinished", what, "Next: the same command continues it.")]


def _no_run(directory: Directory) -> str:
    if (directory.path / COMPARISON_TABLE).exists():
        return "holds a comparison; name it with comparison_dir"
    return f"holds no run: there is no {CONFIG}"


def _summary(directory: Directory) -> Mapping[str, Any]:
    if not directory.compared:
        return numbers(directory.json(SUMMARY))
    directory.locate(SUMMARY)
    return numbers(read_summary(directory.path) or {})


def _sentence(
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    history: History,
    held: RunClients | None,
) -> str:
    """What was run, in one sentence."""
    computed = summary.get("rounds") or (history[-1]["round"] if len(history) else 0)
    planned = settings.get("rounds")
    rounds = f"{computed} of {planned}" if computed != planned else str(computed)
    calibration = settings.get("head_calibration") or "none"
    after = "" if calibration == "none" else f" with head calibration {name_of(calibration)}"
    parts = [
        f"The backbone {name_of(settings.get('model', '?'))} was trained by the method "
        f"{name_of(settings.get('algorithm', '?'))}{after} for {rounds} rounds"
    ]
    if held:
        samples = sum(client.train for client in held.clients)
        parts.append(
            f" on {text.plural(samples, 'training sample')} of "
            f"{text.plural(len(held.classes), 'class')} at "
            f"{text.plural(len(held.clients), 'client')}"
        )
    cohort, epochs = summary.get("clients_per_round"), settings.get("local_epochs")
    if isinstance(cohort, int) and isinstance(epochs, int):
        unequal = any(settings.get(name) for name in _UNEQUAL_WORK)
        work = f"{'up to ' if unequal else ''}{text.plural(epochs, 'local epoch')}"
        if held:
            who = "all" if cohort == len(held.clients) else text.whole(cohort)
            parts.append(f", {who} of which trained for {work} in each round")
        else:
            parts.append(f", with {text.plural(cohort, 'client')} and {work} in each")
    return "".join(parts) + f" (seed {name_of(settings.get('seed', '?'))})."


def _figures(summary: Mapping[str, Any], held: RunClients | None) -> list[tuple[str, str, str]]:
    """The most important numbers: name, value, explanation."""
    shown = [*map(measures.of, _FIGURES)]
    if held is not None and by_client.without_global_model(held.clients):
        shown = [measures.without_global_model(measure) for measure in shown]
    figures = [
        (measure.heading, cell, measure.meaning)
        for measure in shown
        if (cell := _cell(summary, measure))
    ]
    clients = held.clients if held else ()
    accuracies = [
        (pa, client.name) for client in clients if (pa := client.values["pa"]) is not None
    ]
    if accuracies:
        lowest, name = min(accuracies, key=lambda pair: pair[0])
        figures.append(("Lowest PA", f"{lowest:.1f} %", f"client {name_of(name)}"))
    return figures


def _measured(
    settings: Mapping[str, Any], summary: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """What else was measured: groups of classes, further heads, metrics and a user's columns."""
    trained, calibration = findings.re_trained_method(settings), settings.get("head_calibration")
    if calibration in (None, "none"):  # It is implied by the method.
        calibration = settings.get("algorithm")
    names = [*_PARTS["ga"], *_heads(key.removesuffix("_final") for key in summary)]
    measured = []
    for measure in [*map(measures.of, names), *measures.further(summary)]:
        if cell := _cell(summary, measure):
            heading, meaning = measure.heading, measure.meaning
            if trained and measure.name == f"ga_{trained}":
                heading = f"GA without {name_of(calibration)}"
                meaning = f"model of {name_of(trained)} without the re-trained head, whole test set"
            measured.append((heading, cell, meaning))
    return measured


def _cell(summary: Mapping[str, Any], measure: measures.Measure) -> str:
    """A value after the last round; empty without one."""
    value = summary.get(measure.final)
    if not isinstance(value, int | float):
        return ""
    return f"{value:.1f} %" if measure.unit == "%" else f"{value:.4g} {measure.unit}".rstrip()


def _heads(names: Iterable[str]) -> list[str]:
    """The columns of further heads of the global model, such as `ga_ssec`."""
    return [name for name in dict.fromkeys(names) if measures.is_head(name)]


def _curves(history: History, held: RunClients | None) -> list[charts.Chart]:
    drawn = [measures.of(name) for name in _CURVES]
    if held and by_client.without_global_model(held.clients):
        drawn = [measures.without_global_model(measure) for measure in drawn]
    lost = [row["round"] for row in history if is_lost(row)]
    accuracies = [
        charts.Line(each.label, history.points(each.name), style=colors.of_measure(each.name))
        for each in drawn
    ]
    losses = [
        charts.Line("mean over clients", history.points("train_loss"), style=colors.numbered(0))
    ]
    further = [measures.of(name) for name in history.columns]
    # Like accuracies at new clients, metrics there are in the table of results only.
    metrics = [
        measure
        for measure in further
        if measure.group == measures.METRIC and "_new_clients_" not in measure.name
    ]
    heads = _heads(history.columns)
    # Title, columns, and whether they are in percent.
    more: list[tuple[str, list[str], bool]] = [
        ("GA (%) by number of training samples of a class", _PARTS["ga"], True),
        ("PA (%) by number of training samples of a class", _PARTS["pa"], True),
        ("GA (%) of all heads", ["ga", *heads] if heads else [], True),
        ("Further metrics (%)", [each.name for each in metrics if each.unit == "%"], True),
    ]
    more += [
        (f"{each.heading}{f' ({each.unit})' if each.unit else ''}", [each.name], False)
        for each in further
        if each.group == measures.OWN or (each in metrics and each.unit != "%")
    ]
    pictures = [
        charts.chart("Accuracy (%)", accuracies, percent=True, marked=lost),
        charts.chart("Training loss", losses, percent=False, marked=lost),
    ]
    for title, names, percent in more:
        lines = [
            charts.Line(
                measures.of(name).heading,
                history.points(name),
                # As in the first chart.
                style=colors.of_measure(name) if name == "ga" else colors.numbered(number),
            )
            for number, name in enumerate(names)
        ]
        pictures.append(charts.chart(title, lines, percent=percent, marked=lost))
    return [chart for chart in pictures if chart is not None]


class ClassRecall(NamedTuple):
    """How well a class is recognized.

    Attributes:
        name: the class.
        train, test: its training and test samples.
        recall: the share of its test samples that is classified correctly, in percent; None
            without any.
    """

    name: str
    train: int
    test: int
    recall: float | None


def _recalls(held: RunClients | None, answered: Evidence) -> list[ClassRecall]:
    """The classes, that with the most training samples first, as the global model knows them.

    Without a global model, the answers of all personal models are counted together.
    """
    matrix = answered.of_global
    if matrix is None and answered.of_clients is not None:
        matrix = answered.of_clients.sum(axis=0)
    # The names in clients.csv are escaped, and told apart from its other columns.
    if matrix is None or held is None or len(held.classes) != len(answered.classes):
        return []
    recalls = (None if share is None else 100 * share for share in confusion.recall(matrix))
    samples = held.counts.sum(axis=0).tolist(), matrix.sum(axis=1).tolist()
    found = map(ClassRecall, answered.classes, *samples, recalls)
    return sorted(found, key=lambda each: -each.train)


def _costs(summary: Mapping[str, Any], history: History) -> list[tuple[str, str, str]]:
    """What the run took: name, value, explanation."""
    rounds, cohort = summary.get("rounds"), summary.get("clients_per_round")
    times = [value for value in history.column("seconds") if value is not None]
    found: list[tuple[str, str, str]] = []
    for key, name in (("upload_bytes", "Sent by clients"), ("download_bytes", "Sent to clients")):
        total = summary.get(key)
        if isinstance(total, int) and rounds and cohort:
            each = text.size(total / rounds / cohort)
            found.append((name, text.size(total), f"{each} per client and round"))
    if times:
        median = summary.get("seconds_per_round") or statistics.median(times)
        found.append(("Time of a round", text.seconds(median), "median, without the first round"))
        if len(times) == rounds:
            found.append(
                ("Time of all rounds", text.seconds(sum(times)), "training, without evaluations")
            )
    kept, size = (summary.get(f"personal_{unit}_per_client") for unit in ("parameters", "bytes"))
    if isinstance(kept, int) and isinstance(size, int):
        what = text.plural(kept, "parameter") if kept else "nothing"
        how = f"{text.size(size)} between rounds, beside the model it receives"
        found.append(("Kept by a client", what, how))
    if "dp_delta" in summary:
        epsilon = summary.get("dp_epsilon")
        value = "∞" if epsilon is None else f"{epsilon:.3g}"
        found.append(("Privacy: ε", value, f"at δ = {summary['dp_delta']}"))
    return found
