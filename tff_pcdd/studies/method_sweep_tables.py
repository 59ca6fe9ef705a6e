"""The tables of a sweep over methods, in Markdown: what was chosen, and what it reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tff_pcdd import findings, measures, methods, tables
from tff_pcdd.findings import Finding
from tff_pcdd.results import by_client
from tff_pcdd.results.run_results import Results
from tff_pcdd.studies import comparison_tables
from tff_pcdd.studies.study import StudyRun, by_method, results_of
from tff_pcdd.studies.sweeps import NOTES
from tff_pcdd.studies.tuning import BEST, HOW_SCORED, LAST, WHY_STOPPED, Tuned, known_score
from tff_pcdd.tables import BASELINE, label
from tff_pcdd.training import ExperimentConfig


def report(
    first: ExperimentConfig,
    tuned: Sequence[Tuned],
    criterion: str,
    compared: str,
    of_choice: Sequence[Finding],
) -> str:
    """What a program prints: the chosen settings, and the comparison with them.

    Args:
        first: the settings of a run, for the title.
        tuned, criterion, of_choice: as for `document`.
        compared: the report of the comparison; empty if nothing could be chosen.
    """
    chosen = choices(tuned, criterion)
    last = len(chosen[0])
    dropped = range(last - 1, 2, -1)
    parts = [tables.wrapped(first.describe()), tables.narrow(chosen, [*dropped])]
    if of_choice:
        parts.append(findings.printed(of_choice))
    # The title of the comparison is that of the sweep.
    return "\n\n".join([*parts, *compared.split("\n\n")[1:]])


def of_choice(tuned: Sequence[Tuned], criterion: str) -> list[Finding]:
    """What may be wrong with the choices: ties, edges of the grids, and too few samples."""
    chosen = [(method, best) for method in tuned if (best := method.best) is not None]
    edges = {
        method.method: findings.of_choice(
            {trial.point.name: known_score(trial) for trial in method.trials},
            best.point.name,
            best.point.configs[0],
            criterion,
            {trial.point.name: trial.scores for trial in method.trials},
        )
        for method, best in chosen
    }
    scores = [
        (
            method.method,
            best.point.name,
            {t.point.name: known_score(t) if t in method.scored else None for t in method.trials},
        )
        for method, best in chosen
    ]
    samples = max((by_client.held_out(best.runs[0].folder) for _, best in chosen), default=0)
    seeds = max(([run.config.seed for run in best.runs] for _, best in chosen), key=len, default=[])
    taken = {config.seed for _, best in chosen for config in best.point.finals}
    return [*findings.merged(edges), *findings.of_noise(scores, samples, seeds, taken)]


def document(
    first: ExperimentConfig,
    tuned: Sequence[Tuned],
    runs: Sequence[StudyRun],
    criterion: str,
    of_choice: Sequence[Finding],
    found: Sequence[Finding],
    among: str,
) -> str:
    """The text of sweep.md.

    Args:
        first: the settings of a run, for the title.
        tuned: the trials of all methods.
        runs: the final runs; none if nothing could be chosen.
        criterion: as for `sweep_methods`.
        of_choice: what was found about the choice.
        found: the findings of the comparison of the final runs.
        among: which settings of a method competed, as of `Halving`.
    """
    seeds = _seeds(config for m in tuned for trial in m.trials for config in trial.point.configs)
    parts = [
        f"# {first.describe()}",
        "## Chosen settings",
        tables.table(choices(tuned, criterion)),
        *(finding.line for finding in of_choice),
        f"{NOTES[criterion]}; in %, {_how_scored(tuned)} so far, with seed {seeds}. Stopped: "
        f"points of the grid that were stopped early, {WHY_STOPPED[among]}. Rounds: what all "
        "points of the method have trained together; a method without a coefficient of its own has "
        "fewer points. Every decision is made on held-out samples.",
    ]
    if runs:
        parts += [
            f"## Results with the chosen settings, seeds {_seeds(run.config for run in runs)}",
            *(tabled := results(runs, criterion)),
            "### What the columns mean",
            comparison_tables.ACCURACY,
            *[comparison_tables.HEADS] * (comparison_tables.HEADS_TITLE in tabled),
            "GA - FedAvg's: the mean over seeds of the difference "
            "between runs with the same seed, in percentage points. MB: what all clients send and "
            "receive in a run, in units of 1,000,000 bytes. s/round: median time of a round in "
            "seconds. The seeds of this table had no part in the choice, and each run held out the "
            "same share of samples as in the choice. Learning curves and costs are in comparison/.",
            *comparison_tables.listed(found),
        ]
    if diverged := results_of(runs).diverged.labels:
        parts.append(f"{comparison_tables.DIVERGED} Diverged: {diverged}.")
    return "\n\n".join(parts) + "\n"


def _how_scored(tuned: Sequence[Tuned]) -> str:
    return HOW_SCORED[next((method.scored_by for method in tuned), LAST)]


def _seeds(configs) -> str:
    return ", ".join(map(str, dict.fromkeys(config.seed for config in configs)))


def choices(tuned: Sequence[Tuned], criterion: str) -> list[list[str]]:
    """The lines of a table: the chosen settings of each method, and how they were found."""
    of_best = ["best round"] * any(method.scored_by == BEST for method in tuned)
    found = [measures.heading(criterion), *of_best, "points", "stopped", "rounds"]
    lines = [["method", "chosen settings", *found]]
    for method in tuned:
        best, trials = method.best, method.trials
        settings, score, rounds = tables.NO_VALUE, tables.NO_VALUE, tables.NO_VALUE
        if best is not None and known_score(best) is not None:
            settings = best.point.name.replace(",", ", ") or "defaults"
            score = f"{best.score:.1f}"
            rounds = ", ".join(map(str, best.best_rounds))
        elif method.failed:
            settings = "runs failed"
        stopped = sum(not trial.active and not trial.diverged for trial in trials)
        diverged = sum(trial.diverged for trial in trials)
        lines.append(
            [
                label(method.method, methods.get(method.method).has_global_model),
                settings,
                score,
                *[rounds] * len(of_best),
                f"{len(trials)}, {diverged} diverged" if diverged else str(len(trials)),
                str(stopped),
                str(sum(trial.rounds for trial in trials)),
            ]
        )
    return lines


def results(runs: Sequence[StudyRun], criterion: str) -> list[str]:
    """Accuracies, bytes and time of the final runs, mean ± sample standard deviation over seeds.

    Each table answers one question and has at most ten columns; the csv files have all of them.
    """
    found = {method: results_of(group) for method, group in by_method(runs).items()}
    fedavg = found.get(BASELINE, Results(()))
    best = measures.of(criterion).best
    shown = measures.headings(best, *measures.TABLE)
    if criterion != "va":
        shown[best] += ", best round"
    accuracies = comparison_tables.columns_of(runs, shown)
    accuracies["GA - FedAvg's"] = {
        method: tables.gains([] if method == BASELINE else own.gains(fedavg, "ga_final"))
        for method, own in found.items()
    }
    accuracies |= comparison_tables.differing_epochs(runs)
    seconds = {method: own.values("seconds_per_round") for method, own in found.items()}
    costs = {
        "MB": {method: tables.number(_megabytes(own), ",.1f") for method, own in found.items()},
        "s/round": {method: tables.spread(own, 3) for method, own in seconds.items()},
    }
    return [
        "### Accuracy",
        comparison_tables.table_of(runs, accuracies),
        *comparison_tables.common_epochs(runs),
        *comparison_tables.heads_and_groups(runs),
        "### Cost",
        comparison_tables.table_of(runs, costs),
    ]


def _megabytes(results: Results) -> list[float]:
    """What all clients send and receive in each usable run."""
    sent, received = (results.values(f"{way}_bytes") for way in ("upload", "download"))
    return [math.fsum(pair) / 1e6 for pair in zip(sent, received, strict=False)]
