"""A comparison as its readers see it: its runs, its answer, and the one list of its findings.

Programs print this list, comparison.md and sweep.md have it, and pages show it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tff_pcdd import findings, measures, tables, text
from tff_pcdd.findings import Change, Finding
from tff_pcdd.results import answers, by_client, comparison
from tff_pcdd.results.answers import Answer, Tuning
from tff_pcdd.results.by_client import ClientResult
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CLIENTS, FAILURES

_RATE = ("client_learning_rate",)


class Compared(NamedTuple):
    """What the directory of a comparison contains.

    Attributes:
        results: its finished runs.
        settings: those of them whose directories were found, with their settings.
        clients: the clients of the usable runs; empty if unknown. Where each seed has other
            clients, their names say of which seed they are.
        answers: as from `answers.read`.
        findings: what a reader should know before believing the numbers, and what to do next.
    """

    results: Results
    settings: Sequence[tuple[Result, Mapping[str, Any]]]
    clients: Sequence[ClientResult]
    answers: Sequence[Answer]
    findings: Sequence[Finding]


NOTHING = Compared(Results(()), (), (), (), ())


def read(directory: Directory, tuning: Tuning | None = None) -> Compared:
    """Reads a comparison; errors about comparison.csv as of `Directory`.

    Args:
        directory: its directory.
        tuning: what a sweep has chosen with; by default what is found beside the directory.
    """
    results = comparison.read(directory)
    settings = comparison.settings(results)
    lost = {(run.partition, run.method, run.seed) for run in results.diverged}
    every = directory.attempt(CLIENTS, by_client.read_all, directory) or []
    anew = comparison.divided_anew(settings)
    clients = [
        client.of_seed() if client.run[0] in anew else client
        for client in every
        if client.run not in lost
    ]
    tuning = comparison.tuning(directory) if tuning is None else tuning
    changed = _changed(settings)
    answered = answers.read(results, clients, tuning.seeds)
    if changed:
        # Nothing is answered on partitions whose runs differ in their data, nor over all.
        answered = [each for each in answered if each.partition not in {"", *changed}]
    found = [
        *_missing(directory, results),
        *answers.of_clients(answered),
        *([] if changed else answers.of_re_trained(results)),
        *answers.of_runs(results),
    ]
    agreed = [
        *(finding for own in changed.values() for finding in own),
        *_incomparable(settings),
        *_epochs(results),
        *answers.agreeing(found, results, tuning),
    ]
    # A sweep would train its points for longer, too.
    times = [] if tuning.settings else results.values("seconds_per_round")
    timed = findings.with_times(findings.advised_once(agreed), sum(times) or None, len(times))
    return Compared(results, settings, clients, answered, timed)


def _changed(runs: Sequence[tuple[Result, Mapping[str, Any]]]) -> dict[str, list[Finding]]:
    """Runs with other data than the rest, by partition."""
    found: dict[str, list[Finding]] = {}
    for (partition, _), groups in comparison.by_data(runs).items():
        if len(groups) > 1:
            labels = [text.listed([run.label for run in group]) for group in groups.values()]
            finding = Finding(
                "incomparable",
                f"The data have changed between these runs, which cannot be compared: "
                f"{' / '.join(labels)}.",
                "Next: run those before the change again, with --overwrite or in another "
                "directory.",
            )
            found.setdefault(partition, []).append(finding)
    return found


def _incomparable(runs: Sequence[tuple[Result, Mapping[str, Any]]]) -> Iterator[Finding]:
    """Methods with other networks."""
    pairs = [(settings.get("projection_dim") or 0, result.method) for result, settings in runs]
    by_width = tables.grouped(dict.fromkeys(pairs))
    if len(by_width) > 1:
        networks = [
            f"{width or 'none'} ({text.listed(names)})" for width, names in sorted(by_width.items())
        ]
        yield Finding(
            "incomparable",
            "The networks of the methods differ in the width of the linear layer before the head: "
            f"{'; '.join(networks)}.",
            f"Next: --projection_dim={max(by_width)} for all methods.",
        )


def _epochs(results: Results) -> Iterator[Finding]:
    """Methods whose PA after local training is that after another number of epochs."""
    by_number = tables.grouped(
        (int(number), method)
        for method, runs in results.by_method().items()
        if runs.values("pa_final")
        for number in dict.fromkeys(runs.values("personal_epochs"))
    )
    if len(by_number) > 1:
        numbers = [f"{number} ({text.listed(own)})" for number, own in sorted(by_number.items())]
        yield Finding(
            "personal epochs",
            f"{measures.heading('pa_final')} is measured after different numbers of local epochs "
            f"of the personal models: {'; '.join(numbers)}.",
        )


def _missing(directory: Directory, results: Results) -> Iterator[Finding]:
    """Runs that are missing, and runs that do not count."""
    again = "Next: the same command tries them again."
    if (directory.path / FAILURES).exists():
        what = f"Some runs have failed and are missing here; their errors are in {FAILURES}."
        yield Finding("failed", what, again)
    if diverged := [result.label for result in results.diverged]:
        what = "These runs have diverged and are left out of all values: "
        smaller = "a smaller --client_learning_rate for these methods"
        yield Finding.advised(
            "diverged", f"{what}{text.listed(diverged)}.", [Change(smaller, _RATE)]
        )
    if others := comparison.left_out(directory, results):
        number = text.plural(len(others), "finished run")
        yield Finding(
            "left out",
            f"{number} in this directory that the last comparison here did not name: "
            f"{text.listed([name_of(other) for other in others])}.",
            "Next: name their methods and seeds too to have them here.",
        )
    excluded = [f"{label} ({text.plural(n, 'time')})" for label, n in results.excluded()]
    if excluded:
        what = f"Clients were excluded because of NaN or infinities in {text.listed(excluded)}."
        yield Finding.advised("excluded", what, [Change("a smaller --client_learning_rate", _RATE)])
