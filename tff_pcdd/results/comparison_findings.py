"""Findings about a comparison: what a reader should know before believing its numbers.

Programs print their list, comparison.md and sweep.md have it, and pages show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tff_pcdd import findings, measures, tables, text
from tff_pcdd.findings import Change, Finding
from tff_pcdd.results.client_gains import ClientGains
from tff_pcdd.results.gains import gain_over
from tff_pcdd.results.method_traits import federated, is_re_trained
from tff_pcdd.results.run_results import ALONE, Result, Results
from tff_pcdd.results.verdict import Answer
from tff_pcdd.tables import BASELINE
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import FAILURES

_RATE = ("client_learning_rate",)

# Findings of single runs that a comparison repeats, in one line each; the others are in the
# reports of the runs.
_REPEATED = {
    "one answer": "The global model gives the same answer to nearly all test samples",
    "chance": "The global model is no better than always giving the same answer",
    "personal chance": "The personal models are no better than always giving the same answer",
    "never predicted": "The global model never answers some classes",
    "groups": "Nothing is classified correctly of some group of classes",
    "flat": "An accuracy does not change any more",
    "falling": "An accuracy has been falling for many rounds",
    "unstable": "The last round is far below the best one",
    "re-trained": "The re-trained head is worse than the head that clients have trained",
    "after local": "Local training makes the personal models worse",
    "rising": "Accuracy was still rising",
}


def of_comparison(
    results: Results,
    answers: Sequence[Answer],
    changed: Mapping[str, Sequence[Finding]],
    *,
    has_failures: bool,
    left_out: Sequence[str],
    tuned: Collection[str],
) -> list[Finding]:
    """The findings in the order in which they are shown.

    Args:
        results: the finished runs.
        answers: the answers on partitions whose data have not changed.
        changed: as from `of_changed_data`.
        has_failures: whether some runs have failed.
        left_out: the folders of finished runs that the comparison has not named.
        tuned: the names of the settings that a sweep has chosen.
    """
    found = [
        *_missing(results, has_failures, left_out),
        *of_clients(answers),
        *([] if changed else of_re_trained(results)),
        *of_runs(results),
    ]
    agreed = [
        *(finding for own in changed.values() for finding in own),
        *_networks(results.with_settings),
        *_epochs(results),
        *agreeing(found, results, tuned),
    ]
    # A sweep would train its points for longer, too.
    times = [] if tuned else results.values("seconds_per_round")
    return findings.with_times(findings.advised_once(agreed), sum(times) or None, len(times))


def of_changed_data(
    by_data: Mapping[tuple[str, str], Mapping[str, Sequence[Result]]],
) -> dict[str, list[Finding]]:
    """Runs with other data than the rest, by partition.

    Args:
        by_data: as from `comparison_directory.by_data`.
    """
    found: dict[str, list[Finding]] = {}
    for (partition, _), groups in by_data.items():
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


def _missing(results: Results, has_failures: bool, left_out: Sequence[str]) -> Iterator[Finding]:
    """Runs that are missing, and runs that do not count."""
    again = "Next: the same command tries them again."
    if has_failures:
        what = f"Some runs have failed and are missing here; their errors are in {FAILURES}."
        yield Finding("failed", what, again)
    if diverged := [result.label for result in results.diverged]:
        what = "These runs have diverged and are left out of all values: "
        smaller = "a smaller --client_learning_rate for these methods"
        yield Finding.advised(
            "diverged", f"{what}{text.listed(diverged)}.", [Change(smaller, _RATE)]
        )
    if left_out:
        number = text.plural(len(left_out), "finished run")
        yield Finding(
            "left out",
            f"{number} in this directory that the last comparison here did not name: "
            f"{text.listed([name_of(other) for other in left_out])}.",
            "Next: name their methods and seeds too to have them here.",
        )
    excluded = [f"{label} ({text.plural(n, 'time')})" for label, n in results.excluded()]
    if excluded:
        what = f"Clients were excluded because of NaN or infinities in {text.listed(excluded)}."
        yield Finding.advised("excluded", what, [Change("a smaller --client_learning_rate", _RATE)])


def of_clients(given: Sequence[Answer]) -> Iterator[Finding]:
    """A line for each partition about the clients at which methods lose to training alone."""
    for answer in given:
        if answer.at_clients is not None and answer.at_clients.over == ALONE:
            where = f" on {answer.partition}" if len(given) > 1 else ""
            yield from _losers(answer.at_clients, where)


def _losers(gains: ClientGains, where: str) -> Iterator[Finding]:
    tried = federated(gains.gains)
    losers = {method: lost for method in tried if (lost := gains.lost(method))}
    if losers:
        names = [f"{method} at {findings.listed_losses(lost)}" for method, lost in losers.items()]
        without = [method for method in tried if method not in losers]
        instead = f", or take {text.listed(without, 3)}" if without else ""
        yield Finding(
            "below local",
            f"{len(losers)} of {text.plural(len(tried), 'method')}{where} lose to training alone "
            f"at some client, by more than chance (difference in points): {'; '.join(names)}.",
            f"Next: keep the model of --algorithm={ALONE} at these clients{instead}.",
        )


def of_re_trained(results: Results) -> Iterator[Finding]:
    """Methods that are FedAvg with a re-trained head, and worse than FedAvg."""
    fedavg = results.by_partition(BASELINE, "ga_final")
    for method in results.methods:
        if not is_re_trained(method):
            continue
        ahead = gain_over(results.by_partition(method, "ga_final"), fedavg)
        if ahead is not None and ahead.is_certain and ahead.mean < -findings.FLAT:
            yield Finding(
                "re-trained",
                f"The global model of {method} is worse than that of {BASELINE}, from which it "
                f"differs in its re-trained head: {ahead.shown} points of GA.",
                f"Next: --algorithm={BASELINE}.",
            )


def of_runs(results: Results) -> list[Finding]:
    """The findings of single runs, one line for each kind; see `agreeing`.

    A change is one for all runs, and advised only if enough of them need it.
    """
    lines = []
    methods = federated(results.methods)
    asked = methods or results.methods
    enough = findings.SHARE_ADVISED * sum(run.method in asked for run in results)
    for kind, what in _REPEATED.items():
        own = [(run, found) for run in results for found in run.findings if found.kind == kind]
        if own:
            labels = [run.label for run, _ in own]
            advised = [found for run, found in own if found.next and run.method in asked]
            advice = [found.next for found in advised]
            most = max(advised, key=lambda found: advice.count(found.next), default=Finding("", ""))
            if len(advised) < enough:
                most = Finding("", "")
            lines.append(
                Finding(
                    kind,
                    f"{what} in {len(own)} of {text.plural(len(results), 'run')}: "
                    f"{text.listed(labels)}.",
                    most.next,
                    most.changes,
                )
            )
    return lines


def _networks(runs: Results) -> Iterator[Finding]:
    """Methods with other networks."""
    pairs = [(run.settings.get("projection_dim") or 0, run.method) for run in runs]
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


def agreeing(
    found: Sequence[Finding], results: Results, tuned: Collection[str] = ()
) -> list[Finding]:
    """Findings about a comparison, with advice that its program accepts for all methods.

    Args:
        tuned: the names of the settings that a sweep has chosen.
    """
    methods = federated(results.methods)
    retrained = all(findings.can_retrain({"algorithm": method}) for method in methods)
    return findings.agreeing(found, [*tuned, *["head_calibration"] * (not retrained)])
