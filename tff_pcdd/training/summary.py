"""The summary of a run: final and best accuracies, times and amounts of data."""

from __future__ import annotations

import io
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import files, findings, measures
from tff_pcdd.evaluation.metrics import Metric
from tff_pcdd.experiment.accuracy_columns import metric_columns
from tff_pcdd.experiment.history import History, Row, evaluated_in_full
from tff_pcdd.experiment.nonfinite import is_lost
from tff_pcdd.measures import ACCURACY, HELD_OUT, NEW, Measure
from tff_pcdd.text import name_of
from tff_pcdd.training import clients_table
from tff_pcdd.training.file_names import CLIENTS, CONFUSION

if TYPE_CHECKING:
    from tff_pcdd.experiment.config import ExperimentConfig
    from tff_pcdd.experiment.simulation import Simulation


def summarize(
    simulation: Simulation, history: History, own: Collection[str] = ()
) -> dict[str, Any]:
    """What summary.json contains, with the columns of callbacks in `own`."""
    config, process = simulation.config, simulation.process
    diverged = simulation.nonfinite.diverged
    return {
        "algorithm": config.algorithm,
        "seed": config.seed,
        "rounds": simulation.round,
        "diverged": diverged,
        **summarize_accuracies(
            history,
            config.evaluation.metrics,
            own,
            diverged=diverged,
            whole=config.evaluation.personal_eval_every is None,
        ),
        "seconds_per_round": typical_seconds(history),
        **simulation.totals,
        "clients_per_round": simulation.cohort_size,
        "personal_bytes_per_client": process.personal_bytes,
        "personal_parameters_per_client": process.personal_parameters,
        "personal_epochs": process.personal_epochs,
        **config.aggregator.privacy(
            simulation.federation.num_clients, simulation.cohort_size, simulation.round
        ),
        "config_digest": config.digest(),
    }


def summarize_accuracies(
    history: History,
    metrics: Sequence[Metric] = (),
    own: Collection[str] = (),
    *,
    diverged: bool = False,
    whole: bool = False,
) -> dict[str, Any]:
    """The final and the best value of every accuracy and metric.

    The best value of a column is its maximum over all evaluated rounds; different columns may reach
    it in different rounds. It cannot serve as a result, because it is chosen on the test set. On
    held-out samples it is the maximum over the rounds among which the best round is chosen. Rounds
    that were lost (see `nonfinite`) are never the best.

    Args:
        history: the history of a run with at least one evaluated round.
        metrics: the metrics that were measured besides the accuracies.
        own: the columns of callbacks. Their best value is the highest or the lowest, as their
            measures say, and there is none if neither is better.
        diverged: whether the run has diverged, and no round is the best.
        whole: whether the round that is best on held-out samples is chosen among those after which
            the personal models were evaluated after their local epochs, so that their accuracy in
            that round is known.

    Returns:
        `NAME_final` and `NAME_best` for every accuracy and metric NAME, and `ga_second_half`, the
        mean GA over the second half of the rounds; with held-out samples also the round that is
        best on them, and the test accuracies and metrics in that round. Values that were not
        measured are None.
    """
    last = history[-1]
    further = metric_columns(metrics)
    usable = [] if diverged else _eligible(history, whole=False)
    eligible = _eligible(usable, whole=whole)
    summary: dict[str, Any] = {}
    for name in history.columns:
        measure = measures.of(name)
        if measure.group in (ACCURACY, NEW, HELD_OUT) or name in further or name in own:
            summary[measure.final] = last[name]
            rows = eligible if measure.group == HELD_OUT else usable
            values = [row[name] for row in rows if row.get(name) is not None]
            if measure.better:
                best = max if measure.better == "higher" else min
                summary[measure.best] = best(values, default=None)
    for key in measures.GROUPS:
        if key in summary:
            summary[key.removesuffix("_final")] = summary[key]
    half = last["round"] / 2
    second_half = [value for number, value in history.points("ga") if number > half]
    summary["ga_second_half"] = statistics.fmean(second_half) if second_half else None
    for criterion, name in measures.best_rounds().items():
        summary |= _at_best_round(eligible, criterion, name, further)
    return summary


def _eligible(history: Iterable[Row], *, whole: bool) -> list[Row]:
    """The rows of rounds that were not lost and, if `whole`, were evaluated in full."""
    return [row for row in history if not is_lost(row) and (not whole or evaluated_in_full(row))]


def _best_row(history: Iterable[Row], column: str) -> Row | None:
    """The first row with the best value of a column; None if it was never measured."""
    measured = [row for row in history if row.get(column) is not None]
    return max(measured, key=lambda row: row[column], default=None)


def held_out_measure(config: ExperimentConfig) -> Measure:
    """By what rounds are compared: the accuracy of the global model, or of the personal ones."""
    return measures.of("va" if config.method.has_global_model else "va_personal")


def best_round(config: ExperimentConfig, history: Iterable[Row]) -> int | None:
    """The first of the rounds that are best on held-out samples, as in summary.json.

    Rounds that were lost do not count, but others of a run that has diverged later do.

    Returns:
        The round; None without held-out samples, or without an evaluation on them.
    """
    rows = _eligible(history, whole=config.evaluation.personal_eval_every is None)
    best = _best_row(rows, held_out_measure(config).name)
    return None if best is None else best["round"]


def _at_best_round(
    history: Iterable[Row], column: str, name: str, metrics: Collection[str]
) -> dict[str, Any]:
    """The first round with the best value of a column, and what was measured on test data in it."""
    best = _best_row(history, column)
    if best is None:
        return {}
    tested = [key for key in best if key in metrics or measures.of(key).group in (ACCURACY, NEW)]
    return {name: best["round"], **{f"{key}_at_{name}": best[key] for key in tested}}


def find(
    directory: Path, settings: Mapping[str, Any], summary: Mapping[str, Any], history: History
) -> list[dict[str, Any]]:
    """The findings of a run, as in summary.json; its files of the models' answers are there."""
    every = [clients_table.ClientResult.of(row) for row in clients_table.read(directory / CLIENTS)]
    clients = [client for client in every if not client.new]
    # NumPy would not name a file that the disk does not return.
    content = files.read_bytes(directory / CONFUSION, 2**31)
    with np.load(io.BytesIO(content)) as arrays:
        names = [name_of(name) for name in arrays["class_names"]]
        matrices = arrays.get("global"), arrays.get("personal")
    evidence = findings.Evidence(names, *matrices, clients)
    found = findings.of_run(settings, summary, history, evidence)
    return [finding.record() for finding in found]


def typical_seconds(history: History) -> float:
    """The median time of a round in seconds.

    The first, which includes tracing, does not count, and neither do rounds in which nobody trained
    because all clients dropped out, unless there are no others.
    """
    trained = [row["seconds"] for row in history if row.get("local_steps") != 0]
    seconds = trained or history.column("seconds")
    return statistics.median(seconds[1:] or seconds)
