"""The page about published results: tables, tests and pictures of what `published` reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd import files, markdown
from tff_pcdd.publication import (
    claims,
    criteria,
    federation_tables,
    overview,
    pictures,
    provenance,
    summaries,
    summary_picture,
    summary_tables,
)
from tff_pcdd.publication.federation_tables import BELOW, CHANCE
from tff_pcdd.publication.published import Notes, Published, learning_rates, read, read_notes
from tff_pcdd.publication.summaries import Ranking

# The pictures: of all federations, and in the folder of each.
_RANKS, _CURVES = "ranks.png", "curves.png"

# The accuracies by which methods are ranked; GA only among methods with a global model.
_RANKED = ("ga_final", "pa_before_final", "pa_final")

_INTRO = """\
Which method should you take, and what was it compared with? Here, every method was tuned on
held-out training samples by the same rule, and then compared on other seeds. `tasks.report` makes
this page from the files in the folder `{folder}`."""

# Enough to read the first table.
_MEASURES = """\
GA is the accuracy of the global model on the whole test set. PA is the accuracy of a client's
personal model on the client's own test samples, averaged over clients: before any local step, or
after local epochs. Few: the smallest classes of a long tail, which together have at most 5 % of the
training samples. The test sets of data with a long tail have none; GA, same tail, is measured on
held-out training samples. [All columns](#what-the-columns-mean), [glossary](glossary.md)."""

_SORTED = """\
Sorted by average rank, which says in which order methods are, not by how much they differ: a method
that is good on most federations and poor on one has a good rank and a low mean.
[Ranks and tests](#ranks-over-federations)."""

_SPEED = """\
How fast methods get there often differs more than where they end. GA after a fifth of the rounds →
after the last one, of FedAvg and of all methods that have a higher GA on one of the federations and
are among the three best there:"""

_HOW = """\
- **Budget.** Every method tries the same learning rates{rates} × three values of its own main
  coefficient, with seed {seeds}. Methods without a coefficient, such as FedAvg, try the learning
  rates only, which is a third of the settings.{halving}
- **Choice.** The settings with the highest accuracy of the global model on held-out samples, which
  are {share} of every client's training samples; for methods without a global model (†), the mean
  over clients of the personal model's accuracy on the held-out samples of all clients.{others}
  Accuracies on the test set have no part in the choice.
- **Comparison.** The chosen settings are trained with seeds {finals}, which had no part in the
  choice, and evaluated after the last round. With the same seed, all methods have the same clients,
  cohorts, batches and initial weights."""

_HALVING = """
  Settings of a method that are worse on held-out samples than others are stopped after {shares} of
  the rounds (successive halving)."""

_COLUMNS = f"""\
GA: accuracy of the global model on the whole test set. PA: mean over clients of the personal
model's accuracy on the client's own test samples, before any local step (with "own classes", only
classes of the client are possible answers) and after local epochs. A method marked † has no global
model; its GA is the mean over clients of the personal model's accuracy on the whole test set, and
is not compared. Many, medium, few: the largest classes with 75 % of all training samples, the next
ones up to 95 %, and the rest. GA, same tail (best round): the accuracy of the global model on the
held-out samples, whose classes differ in size as those of the training samples do, in the round in
which it is highest; the test sets have equally many samples of each class. Accuracies in %, mean ±
sample standard deviation over seeds; of the accuracies, the best of a column is bold and the second
best underlined, unless methods share that place. GA - FedAvg's: mean difference to the run of
FedAvg with the same seed, in percentage points; seeds ahead: for how many of them it is positive.
MB: what all clients send and receive in a run, in units of 1,000,000 bytes. s/round: median time of
a round in seconds, of runs that shared the machine with others; [the
benchmark](benchmark.md#methods) compares the times of methods side by side. VA: the held-out
accuracy by which settings were chosen, in the best round. At the edge: settings whose chosen value
is the least or the greatest that was tried, and better than the others, so a wider grid might be
better still; points that were stopped earlier are not compared. Points: settings that were tried;
rounds: what they trained together.

A method is listed as failing if its GA is at most {CHANCE:g} times the accuracy of guessing, or if
GA or PA after is more than {BELOW:g} points below FedAvg's, or if a run diverged. GA of methods
marked † does not count."""


def write(publish_dir: str | os.PathLike) -> tuple[Path, list[str]]:
    """Writes the page beside the directory of the published results, and the pictures into it.

    Args:
        publish_dir: the directory; the page has its name, with the suffix .md.

    Returns:
        The page, and a line for each failing method that lacks an explanation.

    Raises:
        SettingError: the directory does not exist.
        DamagedFileError: a file is damaged, or was changed by hand.
        WriteError: a file cannot be written.
    """
    directory = Path(publish_dir)
    notes = read_notes(directory)
    published = read(directory, notes)
    compared = claims.federations(published, notes)
    for one in compared:
        pictures.save(pictures.curves(one)[0], directory / one.name / _CURVES)
    if rankings := _rankings(compared):
        named = {ranking.measure: summary_tables.MEASURES[ranking.measure] for ranking in rankings}
        pictures.save(summary_picture.draw(rankings, named)[0], directory / _RANKS)
    path = directory.with_name(f"{directory.name}.md")
    files.write_text(path, document(published, notes, directory.name))
    return path, missing_explanations(published, notes)


def missing_explanations(published: Sequence[Published], notes: Notes) -> list[str]:
    """A line for each method that fails on a federation, and for each table, without a text."""
    return claims.missing(notes) + [
        f"explanations.{one.name}.{method} ({reason})"
        for one in claims.federations(published, notes)
        for method, reason in federation_tables.failing(one).items()
        if method not in notes.explanations.get(one.name, {})
    ]


def document(published: Sequence[Published], notes: Notes, folder: str) -> str:
    """The text of the page.

    Args:
        published: the results.
        notes: what people have written.
        folder: the name of the directory of the results, beside the page.
    """
    every, published = published, claims.federations(published, notes)
    rankings = _rankings(published)
    parts = ["# All methods, tuned with the same budget", _INTRO.format(folder=folder)]
    if published:
        parts += ["## In one minute", _MEASURES, _basis(published)]
        parts += [overview.in_short(published)]
        if rankings:
            parts += [_SORTED, f"![Ranks of all methods]({folder}/{_RANKS})"]
        parts += [_SPEED, overview.speed(published)]
        parts += _text(notes, "which_method")
    parts += ["## Federations", _federations(published, notes)]
    parts += ["## How methods were compared", "\n".join([_how(published), *_text(notes, "limits")])]
    for one in published:
        parts += _federation(one, notes, folder)
    if rankings:
        parts += ["## Ranks over federations", summary_tables.NOTE_ON_TESTS]
    for ranking in rankings:
        heading = summary_tables.MEASURES[ranking.measure]
        parts += [f"### {heading}", summary_tables.rank_table(ranking)]
        parts += [summary_tables.tests(ranking)]
    parts += claims.section(every, notes, folder)
    if seen := _text(notes, "not_seen"):
        parts += ["## What was not seen", *seen]
    if published:
        parts += ["## What the columns mean", _COLUMNS]
    return "\n\n".join(parts) + "\n"


def _text(notes: Notes, name: str) -> list[str]:
    text = notes.texts.get(name, "").strip()
    return [text] if text else []


def _basis(published: Sequence[Published]) -> str:
    if len(published) == 1:
        finals = published[0].record["final_seeds"]
        return (
            f"On {published[0].title}, the only federation so far: mean ± sample standard "
            f"deviation over {len(finals)} seeds, in %. No test can tell methods apart on one "
            "federation with so few seeds; read differences of the size of the deviations as ties."
        )
    complete = overview.complete(published)
    where = "" if len(complete) == len(published) else " on which most methods were compared"
    tails = [one.title for one in complete if federation_tables.has_long_tail(one)]
    return (
        f"Average ranks over {len(complete)} federations{where}, 1 is the best, and accuracies in "
        "%, averaged over federations and seeds. Only methods with runs on all of them are ranked; "
        "the second row ranks only the methods that it describes."
        + (f" Rows about a long tail: {' and '.join(tails)} only." if tails else "")
    )


def _federations(published: Sequence[Published], notes: Notes) -> str:
    done = {one.name: one for one in published}
    lines = [["federation", "what it is", "methods", "seeds", "rounds", "time of all rounds"]]
    for name in dict.fromkeys([*notes.federations, *done]):
        one = done.get(name)
        if one is None:
            lines.append([name, notes.federations[name], "**not run yet**", "", "", ""])
            continue
        seeds = ", ".join(map(str, one.record["final_seeds"]))
        link = f"[{name}](#{_anchor(one)})"
        what = notes.federations.get(name, one.title)
        numbers = [str(len(one.methods)), seeds, str(one.record["rounds"])]
        lines.append([link, what, *numbers, provenance.hours(one.record["seconds_of_rounds"])])
    command = (
        "```\n.venv/bin/python -m tasks.sweep --flagfile=flags/comparison/digits_p10c2.flags \\\n"
        "    --parallel_runs=2 --output_dir=runs/comparison/digits_p10c2\n"
        ".venv/bin/python -m tasks.report --comparison_dirs=runs/comparison/digits_p10c2 \\\n"
        "    --publish_dir=docs/comparison\n```"
    )
    return (
        f"{markdown.table(lines)}\n\nThese commands run a federation, publish its results, and "
        "make this page again. For another one, replace its name, and for images add `--data_dir`. "
        "An interrupted sweep continues where it was. A new method, or one that was corrected, "
        "joins what has been published with `--algorithms=NAME` in the first command and "
        f"`--add_methods` in the second.\n\n{command}"
    )


def _how(published: Sequence[Published]) -> str:
    def listed(key: str, otherwise: str) -> str:
        every = dict.fromkeys(number for one in published for number in one.record[key])
        return ", ".join(map(str, every)) or otherwise

    fractions = {one.record["settings"].get("validation_fraction") for one in published}
    held_out = {100 * fraction for fraction in fractions if fraction is not None}
    every = [trial for one in published for trial in one.trials]
    rates = sorted(learning_rates(every), key=float)
    rungs = dict.fromkeys(provenance.rungs(one.record["calls"]) for one in published)
    shares = ", or ".join(filter(None, rungs))
    return _HOW.format(
        halving=_HALVING.format(shares=shares) if shares else "",
        rates=f" ({', '.join(rates)})" if rates else "",
        others=criteria.described(published),
        share=" or ".join(f"{share:g} %" for share in sorted(held_out)) or "20 %",
        seeds=listed("seeds", "0"),
        finals=listed("final_seeds", "1, 2, 3"),
    )


def _rankings(published: Sequence[Published]) -> list[Ranking]:
    """The ranks by each measure over the federations on which most methods were compared."""
    complete = overview.complete(published)
    if len(complete) < 2:
        return []
    groups = [federation_tables.federation(one) for one in complete]
    found = [summaries.rank(groups, measure) for measure in _RANKED]
    return [ranking for ranking in found if ranking is not None]


def _federation(one: Published, notes: Notes, folder: str) -> list[str]:
    """The section of a federation."""
    parts = [
        f"## {one.title}",
        *([notes.federations[one.name] + "."] if one.name in notes.federations else []),
        federation_tables.results(one),
        f"![GA over the rounds, a panel for each method]({folder}/{one.name}/{_CURVES})",
    ]
    if failing := federation_tables.failing(one):
        explained = notes.explanations.get(one.name, {})
        parts.append("### Methods that fail here")
        parts.append(
            "\n".join(
                f"- **{method}**: {reason}. {explained.get(method, 'Not explained yet.').strip()}"
                for method, reason in failing.items()
            )
        )
    parts += ["### Chosen settings", federation_tables.choices(one)]
    parts += ["### How it was computed", provenance.described(one, folder)]
    if one.name in notes.remarks:
        parts.append(notes.remarks[one.name].strip())
    return parts


def _anchor(one: Published) -> str:
    """The fragment of the heading of a federation, as Markdown programs make it."""
    kept = [c for c in one.title.lower() if c.isalnum() or c in " -_"]
    return "".join(kept).replace(" ", "-")
