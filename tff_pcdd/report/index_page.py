"""What the page about all runs, comparisons and sweeps below a directory shows."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tff_pcdd import tables, text
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.report import charts, pages, settings_table, sweep_page, terms
from tff_pcdd.results import comparison_directory, method_traits, verdict
from tff_pcdd.results.reading import Directory, numbers
from tff_pcdd.results.run_results import Results
from tff_pcdd.studies import method_sweep
from tff_pcdd.training import colors
from tff_pcdd.training.file_names import (
    COMPARISON_TABLE,
    CONFIG,
    METRICS,
    REPORT,
    SUMMARY,
    SWEEP_RUNS,
    SWEEP_TABLE,
)

# The most that a page shows, and the folders in which it looks for them.
_MOST, _MOST_FOLDERS = 1000, 100_000
# What a terminal says of these accuracies.
_BEST = (
    "GA and PA: of a comparison or a sweep of several methods, those of the method that its answer "
    "recommends as one model for all, which is named first (as a model for each client if a sweep "
    "has chosen by --criterion=va_personal); of a sweep of one method, those with the chosen "
    "settings."
)
# The most curves, settings of a line, and methods of a comparison that are drawn.
_CURVES, _SETTINGS, _METHODS = 200, 6, 8
# Curves with more than this multiple of the rounds of others have a chart of their own.
_LONGER = 4


@dataclasses.dataclass
class Entry:
    """A run, a comparison or a sweep.

    Attributes:
        folder: its path below the directory.
        kind: "run", "comparison" or "sweep".
        what: the method, or the methods.
        data: the data set and its partition.
        link: the address of its report, relative to the page; None if there is none.
        state: "finished", "unfinished" or "diverged".
        ga, pa: accuracies in percent, of the method that a comparison or sweep recommends; None if
            unknown.
        epochs: the local epochs after which PA is measured; None if unknown or not the same.
        seconds: time of training; None if unknown.
        finished: when its newest results were written, as seconds since 1970.
        settings: of a run; those that differ between runs are shown.
        curves: names, methods, and pairs of round and GA.
        differing: the settings that differ between the runs of the page, as one line.
    """

    folder: str
    kind: str
    what: str
    data: str
    link: str | None = None
    state: str = "finished"
    ga: float | None = None
    pa: float | None = None
    epochs: float | None = None
    seconds: float | None = None
    finished: float = 0.0
    settings: Mapping[str, settings_table.Row] = dataclasses.field(default_factory=dict)
    curves: Sequence[tuple[str, str, charts.Points]] = ()
    differing: str = ""

    @property
    def date(self) -> str:
        """When it was finished, in the time of this machine."""
        return datetime.datetime.fromtimestamp(self.finished).strftime("%Y-%m-%d %H:%M")


def content(root: Path, page: Path | None = None) -> dict[str, Any]:
    """The values of the template index.html.

    Args:
        root: the directory. Runs of a comparison or a sweep belong to it and are not listed.
        page: the directory of the page, to which its links are relative; by default the same.

    Raises:
        SettingError: there is nothing in it.
    """
    found, problems = [], []
    for kind, folder in _folders(root):
        directory = Directory(folder, compared=False)
        try:
            entry = _READ[kind](root, directory)
            if (folder / REPORT).is_file():
                entry.link = pages.address(folder / REPORT, page or root)
            found.append(entry)
        # Whatever was written there by whom: the other ones are still shown.
        except (OSError, ArithmeticError, LookupError, ValueError) as error:
            problems.append(" ".join(str(error).split()))
        if len(found) == _MOST:
            break
    if not found and not problems:
        raise SettingError("runs_dir", root, "holds no run, comparison or sweep")
    found.sort(key=lambda entry: -entry.finished)
    _compare(found)
    counts = {kind: sum(entry.kind == kind for entry in found) for kind in _READ}
    parts = [text.plural(number, kind) for kind, number in counts.items() if number]
    return {
        "terms": terms.shown(("GA", "PA")),
        "title": f"All runs in {root.resolve().name}",
        "sentence": f"{text.listed(parts) or 'Nothing'} below this directory, the newest first.",
        "entries": found,
        "overlays": _overlays(found),
        "problems": problems,
    }


def _overlays(entries: Sequence[Entry]) -> list[tuple[charts.Chart, list[int]]]:
    """Charts of the curves, and the places of the entries to which these belong.

    Entries that are much shorter than others, beside which nothing could be read, have a chart of
    their own.
    """
    drawn = [
        (row, entry)
        for row, entry in enumerate(entries)
        if any(curve[-1] for curve in entry.curves)
    ]
    lengths = {
        row: max(number for *_, points in entry.curves for number, _ in points)
        for row, entry in drawn
    }
    groups: list[list[float]] = []
    for length in sorted({*lengths.values()}):
        if groups and length <= _LONGER * groups[-1][0]:
            groups[-1].append(length)
        else:
            groups.append([length])
    overlays = []
    for group in groups:
        curves = [
            (row, *curve)
            for row, entry in drawn
            for curve in (entry.curves if lengths[row] in group else ())
            if curve[-1]
        ][:_CURVES]
        styles = colors.of_curves([method for _, _, method, _ in curves])
        lines = [
            charts.Line(name, points, style=style)
            for (_, name, _, points), style in zip(curves, styles, strict=True)
        ]
        title = "GA (%)" if len(groups) == 1 else f"GA (%) of up to {group[-1]:g} rounds"
        if chart := charts.chart(title, lines, percent=True):
            overlays.append((chart, [row for row, *_ in curves]))
    return overlays


def printed(entries: Sequence[Entry], most: int = 20) -> str:
    """The newest entries as a table for the terminal."""
    lines = [["directory", "what", "GA", "PA (epochs)", "date"]]
    for entry in entries[:most]:
        ga, pa = (tables.percent(value) for value in (entry.ga, entry.pa))
        state = "" if entry.state == "finished" else f" ({entry.state})"
        folder, what = tables.escape(entry.folder), tables.escape(entry.what)
        epochs = "" if entry.epochs is None else f" ({text.whole(entry.epochs)})"
        lines.append([folder + state, text.cut(what, 18), ga, pa + epochs, entry.date])
    table = tables.narrow(lines, dropped=(4, 1))
    more = len(entries) - most
    parts = [table, f"… and {more} older ones"] if more > 0 else [table]
    if any(entry.kind != "run" and entry.ga is not None for entry in entries[:most]):
        parts.append(tables.wrapped(_BEST))
    return "\n".join(parts)


def _folders(root: Path) -> Iterator[tuple[str, Path]]:
    """The folders of results, without those within them; links are not followed."""
    marks = {SWEEP_TABLE: "sweep", COMPARISON_TABLE: "comparison", CONFIG: "run"}
    for visited, (folder, below, names) in enumerate(os.walk(root)):
        below.sort()
        kind = next((kind for name, kind in marks.items() if name in names), None)
        if kind:
            below.clear()
            yield kind, Path(folder)
        if visited == _MOST_FOLDERS:
            return


def _entry(root: Path, directory: Directory, newest: str, **values: Any) -> Entry:
    """An entry with what all kinds have; `newest` is the file that is written last."""
    folder = directory.path.relative_to(root).as_posix()
    return Entry(folder=folder, finished=directory.locate(newest).stat().st_mtime, **values)


def _of_run(root: Path, directory: Directory) -> Entry:
    settings = directory.json(CONFIG)
    summary = numbers(directory.attempt(SUMMARY, directory.json, SUMMARY) or {})
    history = directory.attempt(METRICS, directory.history) or History([])
    state = "diverged" if summary.get("diverged") else "finished" if summary else "unfinished"
    latest = next(name for name in (SUMMARY, METRICS, CONFIG) if (directory.path / name).is_file())
    what, data = settings_table.names(settings)
    entry = _entry(
        root,
        directory,
        latest,
        kind="run",
        what=what,
        data=data,
        state=state,
        ga=summary.get("ga_final"),
        pa=summary.get("pa_final"),
        epochs=summary.get("personal_epochs"),
        seconds=_seconds([history]),
        settings={row.name: row for row in settings_table.rows(settings)},
    )
    entry.curves = [(entry.folder, str(settings.get("algorithm")), history.points("ga"))]
    return entry


def _of_comparison(root: Path, directory: Directory) -> Entry:
    results = comparison_directory.read_runs(directory)
    order = [name for name in method_traits.ordered(results) if results.of(method=name).usable]
    found = {run.method: run for run in reversed(results) if run.folder is not None}
    known = Results([found[name] for name in order if name in found]).with_settings
    several = len(results.partitions) > 1
    named = [(run, settings_table.names(run.settings, several=several)) for run in known]
    titles = {run.method: title for run, (title, _) in named}
    # Who the clients are has no part in which model for all is recommended.
    (answer, *_) = verdict.read(results, ()) or [verdict.Answer("", ())]
    taken = [each.method for each in answer.recommended if "ga_final" in each.keys]
    order.sort(key=lambda name: name not in taken)
    best = results.of(method=order[0]) if order and not several else None
    entry = _entry(
        root,
        directory,
        COMPARISON_TABLE,
        kind="comparison",
        what=text.listed([titles.get(name, name) for name in order]) or "no usable run",
        data=named[0][1][1] if named else "",
        ga=best.mean("ga_final") if best else None,
        pa=best.mean("pa_final") if best else None,
        epochs=best.mean("personal_epochs") if best else None,
        seconds=_seconds([result.history for result in results]),
    )
    entry.curves = _curves(entry.folder, results)
    return entry


def _curves(folder: str, results: Results) -> list[tuple[str, str, charts.Points]]:
    """The mean curves of the best methods on a partition; none if there are several."""
    if len(results.partitions) > 1:
        return []
    return [
        (f"{name} in {folder}", name, [*results.of(method=name).mean_curve("ga").items()])
        for name in method_traits.drawn(method_traits.ordered(results.usable))[:_METHODS]
    ]


def _seconds(histories: Iterable[History | None]) -> float | None:
    """The time of training; None if it is unknown."""
    known = (history.points("seconds") for history in histories if history)
    times = [seconds for points in known for _, seconds in points]
    return sum(times) if times else None


def _of_sweep(root: Path, directory: Directory) -> Entry:
    content = sweep_page.content(directory)
    ga, pa, epochs = content["accuracies"]
    # Runs of points, and the final ones of several methods.
    patterns = ("*", f"{SWEEP_RUNS}/*/*", f"{method_sweep.COMPARISON}/*")
    runs = {run for each in patterns for run in directory.folders(f"{each}/seed_*/{METRICS}")}
    entry = _entry(
        root,
        directory,
        SWEEP_TABLE,
        kind="sweep",
        what=content["what"],
        data=content["title"].partition(" on ")[2],
        ga=ga,
        pa=pa,
        epochs=epochs,
        seconds=_seconds(comparison_directory.history(directory, run) for run in sorted(runs)),
    )
    entry.curves = _curves(entry.folder, content["finals"])
    return entry


_READ = {"run": _of_run, "comparison": _of_comparison, "sweep": _of_sweep}


def _compare(entries: Sequence[Entry]) -> None:
    """Fills in the chosen settings that differ between runs."""
    runs = [entry for entry in entries if entry.kind == "run"]
    # Methods and data sets have columns of their own.
    names = dict.fromkeys(
        name
        for entry in runs
        for name, row in entry.settings.items()
        if row.chosen and name not in ("algorithm", "dataset")
    )
    values = {
        name: [entry.settings[name].value if name in entry.settings else None for entry in runs]
        for name in names
    }
    varied = [name for name in names if len(set(values[name])) > 1]
    lines = [
        [f"{name}={entry.settings[name].value}" for name in varied if name in entry.settings]
        for entry in runs
    ]
    alike = tables.grouped((tuple(line[:_SETTINGS]), line) for line in lines)
    for entry, line in zip(runs, lines, strict=True):
        shared = set.intersection(*map(set, alike[tuple(line[:_SETTINGS])]))
        # Without what tells a run from those with the same first settings, they would look alike.
        shown = [*line[:_SETTINGS], *(pair for pair in line[_SETTINGS:] if pair not in shared)]
        more = len(line) - len(shown)
        entry.differing = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
