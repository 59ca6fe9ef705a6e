"""The tables of a comparison, in Markdown: accuracies, rounds to an accuracy, costs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tff_pcdd import findings, measures, tables
from tff_pcdd.findings import Finding
from tff_pcdd.measures import PARTS
from tff_pcdd.results import method_traits, run_evidence, wording
from tff_pcdd.results.run_results import Results
from tff_pcdd.results.verdict import Answer
from tff_pcdd.studies.study import StudyRun, baselines, by_method, by_partition, results_of
from tff_pcdd.tables import BASELINE, label


def common_setting(runs: Sequence[StudyRun]) -> str:
    """What all runs share of data set, partition, long tail and backbone, in a few words."""
    configs = [run.config for run in runs]
    described = ((*c.data.descriptions(), c.model.backbone.name) for c in configs)
    columns = [{*own} for own in zip(*described, strict=True)]
    partition = "".join(columns[1]) if len(columns[1]) == 1 else ""
    columns.insert(2, {config.data.describe_new_clients(partition) for config in configs})
    return ", ".join(filter(None, (own.pop() for own in columns if len(own) == 1)))


def report(
    runs: Sequence[StudyRun], given: Sequence[Answer] = (), found: Sequence[Finding] = ()
) -> str:
    """What a program prints: the main columns, the answers and findings; 80 characters wide."""
    results = results_of(runs)
    partitions = by_partition(runs)
    parts = [tables.wrapped(common_setting(runs))]
    by_name = {answer.partition: answer for answer in given}
    for partition, group in partitions.items():
        if len(partitions) > 1:
            parts.append(tables.wrapped(partition))
        parts += [summary_table(group), *new_clients_table(group)]
        parts += _answered(by_name.get(partition))
    if "" in by_name:
        parts += ["All partitions", *_answered(by_name[""])]
    if diverged := results.diverged.labels:
        parts.append(tables.wrapped(f"‡ diverged and left out: {diverged}"))
    if lacking := [m for m, g in by_method(runs).items() if "†" in _name(m, g)]:
        meaning = "no global model; GA is the mean of the personal models"
        parts.append(tables.wrapped(f"† {', '.join(lacking)}: {meaning}"))
    if found:
        parts.append(findings.printed(found))
    return "\n\n".join(parts)


def _answered(answer: Answer | None) -> list[str]:
    lines = [] if answer is None else wording.brief(answer)
    return ["\n".join(tables.wrapped(line, "  ") for line in lines)] * bool(lines)


def summary_table(runs: Sequence[StudyRun]) -> str:
    """The main accuracies of runs of one partition, the best method first."""
    groups = by_method(runs)
    results = results_of(runs)
    over_local, fedavg = results.over_local(), results.of(method=BASELINE)
    keys = ("ga_final", "pa_before_final", "pa_final")
    headings, over_fedavg = [*measures.headings(*keys).values()], f"GA over {BASELINE}"
    lines = [["method", *headings, over_fedavg, "PA over local", "seeds"]]
    for method in _best_first(groups, results):
        own, group = results.of(method=method), groups[method]
        gains = [] if method == BASELINE else own.gains(fedavg, "ga_final")
        lines.append(
            [
                _name(method, group),
                *(tables.spread(own.values(key), 1) for key in keys),
                tables.gains(gains),
                tables.gains(over_local.get(method, [])),
                seeds(group),
            ]
        )
    empty = [i for i in (4, 5) if all(line[i] == tables.NO_VALUE for line in lines[1:])]
    shown = [[cell for i, cell in enumerate(line) if i not in empty] for line in lines]
    # The column of GA shows what is over FedAvg's, and the answer says it.
    dropped = [over_fedavg, measures.heading("pa_before_final"), "PA over local"]
    return tables.narrow(shown, [shown[0].index(name) for name in dropped if name in shown[0]])


def new_clients_table(runs: Sequence[StudyRun]) -> list[str]:
    """The accuracies at clients that take no part in training, methods as above; or nothing."""
    groups, results = by_method(runs), results_of(runs)
    new = [each for each in measures.further(_keys(runs)) if each.group == measures.NEW]
    lines = [["method", *(measure.heading for measure in new)]]
    for method in _best_first(groups, results):
        values = [results.of(method=method).values(measure.final) for measure in new]
        lines.append([_name(method, groups[method]), *(tables.spread(own, 1) for own in values)])
    # What is dropped is the personal models' accuracy before local training.
    return [tables.narrow(lines, [2] * (len(new) == 3))] if new else []


def _best_first(groups: Mapping[str, Any], results: Results) -> list[str]:
    """The methods, the best one first, and then those without results."""
    order = [name for name in method_traits.ordered(results) if name in groups]
    return [*order, *(name for name in groups if name not in order)]


def document(
    runs: Sequence[StudyRun],
    found: Sequence[Finding] = (),
    given: Sequence[Answer] = (),
    target: float | None = None,
) -> str:
    """The text of comparison.md: all tables and their explanations.

    Findings and answers are given once the comparison is finished. `target` is the GA in percent
    whose rounds are counted; None for FedAvg's best GA.
    """
    partitions = by_partition(runs)
    said = {
        each.partition: [" ".join(wording.of_federating(each.federating))]
        for each in given
        if each.federating is not None
    }
    parts = [f"# {common_setting(runs)}"]
    parts += listed(found)
    if len(partitions) > 1:
        parts += ["## All partitions", *said.get("", ()), overview(partitions)]
    for partition, group in partitions.items():
        parts += [f"## {partition}", *said.get(partition, ())]
        parts += ["### Accuracy", accuracies(group), *common_epochs(group)]
        keys = measures.tabled(_keys(group))[len(measures.TABLE) :]
        at_best = [key for key in keys if key in measures.AT_BEST]
        if at_best:
            parts += ["### Best round on held-out samples", accuracies(group, at_best)]
        if others := [key for key in keys if key not in at_best]:
            parts += ["### Further measures", accuracies(group, others)]
        parts += heads_and_groups(group)
        if by_rounds := rounds_to_accuracy(group, target):
            parts += [_rounds_title(target), by_rounds]
        parts += ["### Cost", costs(group)]
    by_target = ROUNDS if target is None else ROUNDS_TO_TARGET
    optional = {HEADS_TITLE: HEADS, _rounds_title(target): by_target}
    meanings = [note for title, note in optional.items() if title in parts]
    further = measures.further(_keys(runs))
    if any(measure.group == measures.METRIC for measure in further):
        meanings.insert(0, METRICS)
    if own := [each for each in further if each.group in (measures.NEW, measures.OWN)]:
        meanings.append("\n".join(f"{measure.heading}: {measure.meaning}." for measure in own))
    if unranked := baselines(runs):
        meanings.insert(0, f"{BASELINES} {', '.join(unranked)}.")
    if any(results_of(group).over_local() for group in partitions.values()):
        meanings.insert(0, OVER_LOCAL)
    if diverged := results_of(runs).diverged.labels:
        meanings.insert(0, f"{DIVERGED} Diverged: {diverged}.")
    if excluded := results_of(runs).excluded():
        counted = ", ".join(f"{name} ({count} times)" for name, count in excluded)
        meanings.append(f"{EXCLUDED} {counted}.")
    parts += ["## What the columns mean", ACCURACY, *meanings, COST]
    parts += ["## What is equal", _fairness(runs)]
    return "\n\n".join(parts) + "\n"


def listed(found: Sequence[Finding]) -> list[str]:
    """The section about the findings; none without any."""
    lines = [f"- {tables.escape(finding.line)}" for finding in found]
    return ["## Findings", "\n".join(lines)] if lines else []


def _fairness(runs: Sequence[StudyRun]) -> str:
    """What the runs of a seed have in common, and how the networks of the methods differ."""
    configs = [run.config for run in runs]
    pairs = dict.fromkeys((each.model.projection_dim or 0, each.algorithm) for each in configs)
    by_width = tables.grouped(pairs)
    if len(by_width) == 1:
        return FAIRNESS
    widths = "; ".join(
        f"{'of width ' + str(width) if width else 'none'}: {', '.join(names)}"
        for width, names in sorted(by_width.items())
    )
    return (
        f"{FAIRNESS}\n\nThe networks differ in the linear layer between backbone and head "
        f"({widths}). Set --projection_dim to use the same one for all."
    )


def overview(partitions: Mapping[str, Sequence[StudyRun]]) -> str:
    """GA and PA of every method on every partition."""
    columns: dict[str, dict[str, list[Any]]] = {}
    for partition, group in partitions.items():
        for key, heading in (("ga_final", "GA"), ("pa_final", "PA after")):
            columns[f"{partition}: {heading}"] = {
                method: results_of(runs).values(key) for method, runs in by_method(group).items()
            }
    everywhere = by_method(run for group in partitions.values() for run in group)
    unranked = baselines(run for group in partitions.values() for run in group)
    marked = [
        tables.mark_best({name: column.get(name, []) for name in everywhere}, unranked)
        for column in columns.values()
    ]
    body = [
        [_name(method, runs), *(cells[method] for cells in marked)]
        for method, runs in everywhere.items()
    ]
    return tables.table([["method", *columns], *body])


def accuracies(runs: Sequence[StudyRun], keys: Sequence[str] = measures.TABLE) -> str:
    """Mean ± sample standard deviation of accuracies, of runs of one partition.

    Args:
        keys: of summary.json. Of those that no run has, only GA has a column; beside the main
            accuracies stands what is over training alone, and PA epochs if methods differ in them.
    """
    columns = columns_of(runs, measures.headings(*keys), always="ga_final")
    if keys == measures.TABLE:
        if differences := results_of(runs).over_local():
            gains = {name: tables.gains(differences.get(name, [])) for name in by_method(runs)}
            columns["PA over local"] = gains
        columns |= differing_epochs(runs)
    return table_of(runs, columns)


def table_of(runs: Sequence[StudyRun], columns: Mapping[str, Mapping[str, str]]) -> str:
    """A line for each method, with cells by heading and method, and how many runs it has."""
    body = [
        [_name(method, group), *(cells[method] for cells in columns.values()), seeds(group)]
        for method, group in by_method(runs).items()
    ]
    return tables.table([["method", *columns, "seeds"], *body])


def columns_of(
    runs: Sequence[StudyRun], headings: Mapping[str, str], always: str = ""
) -> dict[str, dict[str, str]]:
    """The cells of columns by heading and method, the best ones marked.

    Args:
        runs: of one partition.
        headings: by key of summary.json; a key that no run has gives no column.
        always: a key that gives one.
    """
    unranked, found = baselines(runs), {}
    results = {method: results_of(group) for method, group in by_method(runs).items()}
    for key, heading in headings.items():
        values = {method: own.values(key) for method, own in results.items()}
        if key == always or any(values.values()):
            cells = {name: tables.cell(key, each) for name, each in values.items()}
            found[heading] = cells if tables.is_own(key) else tables.mark_best(values, unranked)
    return found


def seeds(runs: Sequence[StudyRun]) -> str:
    """How many runs of a method have results, and how many have diverged."""
    own = results_of(runs)
    return tables.count(len(own.usable), len(runs), len(own.diverged))


def differing_epochs(runs: Sequence[StudyRun]) -> dict[str, dict[str, str]]:
    """The column with the PA epochs of each method, if methods differ in them."""
    epochs = _epochs(runs)
    return {"PA epochs": epochs} if len({*epochs.values()}) > 1 else {}


def common_epochs(runs: Sequence[StudyRun]) -> list[str]:
    """A line about the PA epochs of all methods, if they have the same."""
    epochs = {*_epochs(runs).values()} - {tables.NO_VALUE}
    return [f"PA epochs: {epochs.pop()}."] if not differing_epochs(runs) and epochs else []


def _epochs(runs: Sequence[StudyRun]) -> dict[str, str]:
    """After how many local epochs PA of each method is measured."""
    return {
        method: tables.number(results_of(group).values("personal_epochs"), "d")
        for method, group in by_method(runs).items()
    }


def _keys(runs: Sequence[StudyRun]) -> list[str]:
    """The keys of all summaries, in their order."""
    return results_of(runs).value_keys()


def _kilobytes(results: Results, key: str) -> str:
    return tables.number([value / 1000 for value in results.bytes_per_client(key)], ",.1f")


def heads_and_groups(runs: Sequence[StudyRun]) -> list[str]:
    """A section with GA of every head that the methods report, and accuracies by group of classes.

    Nothing if it would only repeat the table of accuracies. The runs are of one partition.
    """
    rows = {}
    groups = by_method(runs)
    for method, group in groups.items():
        results = results_of(group)
        rows[_name(method, group)] = results, "ga"
        for head in _further_heads(results):
            rows[f"{method}: {head}"] = results, f"ga_{head}"
    columns = {"GA": {name: found.values(f"{ga}_final") for name, (found, ga) in rows.items()}}
    for part in PARTS:
        columns[f"GA, {part}"] = {
            name: found.values(f"{ga}_{part}_final") for name, (found, ga) in rows.items()
        }
    for part in PARTS:
        columns[f"PA after, {part}"] = {
            name: found.values(f"pa_{part}_final") if ga == "ga" else []
            for name, (found, ga) in rows.items()
        }
    columns = {heading: column for heading, column in columns.items() if any(column.values())}
    if len(columns) <= 1 and len(rows) == len(groups):
        return []
    unranked = {_name(name, groups[name]) for name in baselines(runs)}
    cells = [tables.mark_best(column, unranked) for column in columns.values()]
    body = [[name, *(column[name] for column in cells)] for name in rows]
    return [HEADS_TITLE, tables.table([["method", *columns], *body]), *_group_sizes(runs)]


def _group_sizes(runs: Sequence[StudyRun]) -> list[str]:
    """A line about the sizes of the many, medium and few classes, where runs have such groups."""
    if not {*measures.GROUPS} & {*_keys(runs)}:
        return []
    sizes = (
        run_evidence.group_sizes(*run_evidence.of_run(run.folder)) for run in runs if run.usable
    )
    return [*filter(None, sizes)][:1]


def _further_heads(results: Results) -> list[str]:
    """The heads that a method's runs report beside the main one, in the order of the summary."""
    names = [
        match[1] for key in results.value_keys() if (match := re.fullmatch("ga_(.+)_final", key))
    ]
    return [name for name in names if name.split("_")[-1] not in PARTS]


def _rounds_title(target: float | None) -> str:
    return ROUNDS_TITLE if target is None else f"### Rounds to a GA of {target:g} %"


def rounds_to_accuracy(runs: Sequence[StudyRun], target: float | None = None) -> str:
    """A table of the rounds that each method needs to reach an accuracy, and its speed-up.

    Args:
        runs: of one partition.
        target: GA in percent, with a column for what clients send until then; None for FedAvg's
            best GA. Then it is empty without runs of FedAvg, and a sentence if they have learned
            nothing.
    """
    groups = by_method(runs)
    curves = {method: results_of(group).mean_curve("ga") for method, group in groups.items()}
    if target is not None:
        least, shown = target, f"{target:g}"
    else:
        if not curves.get(BASELINE):
            return ""
        least = max(curves[BASELINE].values())
        shown = f"{least:.1f}"
        limit = _limit_of_chance(groups[BASELINE])
        if limit is not None and least <= limit:
            return (
                f"No target: FedAvg's best GA, {shown} %, is no better than always giving the "
                f"same answer, which may reach {limit:.1f} %."
            )
    reached = {
        method: next((number for number, value in curve.items() if value >= least), None)
        for method, curve in curves.items()
    }
    baseline = reached.get(BASELINE)
    sent = [] if target is None else ["MB up"]
    lines = [["method", f"rounds to {shown} %", *sent, "speed-up", "best GA of any round"]]
    for method, number in reached.items():
        rounds, speedup = "not reached", tables.NO_VALUE
        if number is not None:
            rounds = str(number)
            speedup = tables.NO_VALUE if baseline is None else f"{baseline / number:.1f}×"
        best = tables.number(curves[method].values(), ".1f", max)
        name = _name(method, groups[method])
        sent = [] if target is None else [_megabytes(groups[method], number)]
        lines.append([name, rounds if curves[method] else tables.NO_VALUE, *sent, speedup, best])
    return tables.table(lines)


def _megabytes(runs: Sequence[StudyRun], last: int | None) -> str:
    """What all clients of a method send up to a round, in the mean over runs.

    There is no value if a round is unknown, nor for a baseline, which is not federated.
    """
    if last is None or baselines(runs):
        return tables.NO_VALUE
    totals = []
    for run in results_of(runs).usable:
        points = run.history.points("upload_bytes") if run.history else []
        sizes = [size for number, size in points if number <= last]
        # Runs of earlier versions have no rows of rounds without an evaluation.
        if len(sizes) < last:
            return tables.NO_VALUE
        totals.append(sum(sizes) / 1e6)
    return tables.number(totals, ",.1f")


def _limit_of_chance(runs: Sequence[StudyRun]) -> float | None:
    """As `findings.limit_of_chance`, on the test samples of the runs; None if they are unknown."""
    for run in runs:
        _, answered = run_evidence.of_run(run.folder)
        if answered is not None and answered.of_global is not None and answered.of_global.sum():
            return findings.limit_of_chance(answered.of_global)
    return None


def costs(runs: Sequence[StudyRun]) -> str:
    """Memory, traffic and time of each method, from runs of one partition."""
    groups = by_method(runs)
    baseline = results_of(groups.get(BASELINE, [])).values("seconds_per_round")
    lines = [["method", "parameters kept", "kB up", "kB down", "s/round", "time over FedAvg's"]]
    for method, group in groups.items():
        results = results_of(group)
        seconds = results.values("seconds_per_round")
        ratio = tables.NO_VALUE
        if seconds and baseline:
            ratio = f"{statistics.fmean(seconds) / statistics.fmean(baseline):.2f}"
        lines.append(
            [
                _name(method, group),
                tables.number(results.values("personal_parameters_per_client"), ",d"),
                _kilobytes(results, "upload_bytes"),
                _kilobytes(results, "download_bytes"),
                tables.spread(seconds, 3),
                ratio,
            ]
        )
    return tables.table(lines)


def _name(method: str, runs: Sequence[StudyRun]) -> str:
    """The name of a method, marked if it has no global model, or if one of its runs diverged."""
    name = label(runs[0].config.method_title, runs[0].config.method.has_global_model)
    return f"{name} ‡" if any(run.diverged for run in runs) else name


# The explanations in comparison.md of what its columns mean.

ACCURACY = """\
GA: accuracy of the global model on the whole test set, after the last round and averaged over the
second half of the rounds. A method marked † has no global model; its GA is the mean over clients of
each personal model's accuracy on the whole test set. PA: mean over clients of the personal model's
accuracy on the client's own test part, before any local step, and after local training for so many
PA epochs (methods without personal models of their own fine-tune the global model). Own classes:
the prediction is restricted to the classes that the client trains on, for every method. With 0 PA
epochs there is no local training, so both PA are equal. VA, global: as GA, on the samples that all
clients held out from training: the accuracy of the global model, or for a method marked †, the mean
over clients of each personal model's accuracy on all of them; its best round is the one in which it
is highest. Accuracies in %, mean ± sample standard deviation over seeds (n - 1 in the denominator;
with one seed there is none). The best value of a column is bold, the second best underlined; equal
values and baselines are not marked. Nothing was chosen on test data."""

OVER_LOCAL = """\
PA over local: by how much PA after exceeds that of the method local, in percentage points; the mean
over seeds of the differences between runs with the same seed."""

BASELINES = """\
The following methods are not federated. In local, every client trains alone; in central, one model
is trained on the samples of all clients. Both train for as many epochs as the other methods.
Here:"""

METRICS = """\
A column with the name of a metric, such as "balanced, GA", shows that metric instead of the
accuracy, for the same models and samples, after the last round."""

DIVERGED = """\
‡: runs of this method diverged. Weights, losses or answers were NaN, infinite or far too large
until the run was stopped or ended. They are left out of all values, which are means over the other
seeds."""

EXCLUDED = """\
In some rounds of the following runs, clients were excluded from the mean, because what they
computed was NaN or infinite; in parentheses, how often:"""

HEADS_TITLE = "### Heads and groups of classes"
HEADS = """\
Many, medium and few: classes sorted by their number of training samples (in the whole federation
for GA, at the client for PA); the largest classes that hold 75 % of all samples, the next ones up
to 95 %, and the rest. A further head of a method, such as "fedloge: ssec", is evaluated on the same
features in the same round; its column in metrics.csv is ga_ssec."""

ROUNDS_TITLE = "### Rounds to FedAvg's best GA"
ROUNDS = """\
Rounds to …: the first evaluated round in which GA, averaged over seeds, reaches the highest average
GA of FedAvg. Speed-up: FedAvg's number of rounds divided by the method's. The target is chosen on
test data; use these columns only to compare learning speed."""

ROUNDS_TO_TARGET = """\
Rounds to …: the first evaluated round in which GA, averaged over seeds, reaches the accuracy that
was given by --target_accuracy. MB up: what all clients together have sent until then, in units of
1,000,000 bytes, averaged over seeds; – for methods that are not federated, and for runs without
measurements of each of these rounds. Speed-up: FedAvg's number of rounds divided by the method's.
GA is measured on test data; use these columns only to compare learning speed."""

COST = """\
Parameters kept: how many numbers a client stores between rounds. kB up, kB down: what a client
sends and receives per round, in units of 1,000 bytes, averaged over the rounds it takes part in.
s/round: median time of a round in seconds, without the first round; compare it only between runs
that were computed one after the other on the same machine."""

FAIRNESS = """\
With the same seed, all methods use the same clients, cohorts and augmentation, and the same batches
in the same order. Parts of their networks with the same name and shape start from the same
weights."""
