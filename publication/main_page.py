"""The main page about published results: what to take, all methods, how they were compared."""

from __future__ import annotations

from collections.abc import Sequence

from publication import guide, overview, provenance
from publication.federation_tables import BELOW, CHANCE, has_long_tail
from publication.published import (
    CLAIMS_PAGE,
    PAGE,
    RANKS_PAGE,
    RANKS_PICTURE,
    Notes,
    Published,
    learning_rates,
)
from tff_pcdd import tables
from tff_pcdd.report.rankings import Ranking
from tff_pcdd.studies import tuning

_INTRO = """\
Which method should you take, and what was it compared with? Here, every method was tuned on
held-out training samples by the same rule, and then compared on other seeds. Further pages:

- one for [each federation](#federations), with all accuracies, costs and settings, and why methods
  fail;{pages}

`python -m publication` makes these pages from the files in the folder `{folder}`."""
_RANKS = "\n- [ranks]({folder}/{page}) of the methods by GA and PA, with tests;"
_CLAIMS = "\n- [what the papers claim]({folder}/{page}), and what of it was seen here."

_GUIDE = """\
Tune FedAvg's learning rate first; then try what this table names. Numbers are percentage points
gained over tuned FedAvg, on the federations where clients are such: the smallest and the greatest
of the means over seeds. The last row is of all federations on which its method was run. Of a model
for all, it is the accuracy over the second half of the rounds, because the last round may be a poor
one of either method; of a model for each client, the gain is over FedAvg's after local training,
and CCVR's without it answer with the client's own classes only. Equal weights are those of clients
(`--client_weighting=uniform`). Other data may rank methods otherwise."""

# Enough to read the next table.
_MEASURES = """\
GA is the accuracy of the global model on the whole test set. PA is the accuracy of a client's
personal model on the client's own test samples, averaged over clients: before any local step, or
after local epochs. Few: the smallest classes of a long tail, which together have at most 5 % of the
training samples. Test sets are balanced, except for your own data; GA, same tail, is therefore
measured on held-out training samples. [All columns](#what-the-columns-mean),
[glossary](glossary.md)."""

_SORTED = """\
Sorted by average rank, which says in which order methods are, not by how much they differ: a method
that is good on most federations and poor on one has a good rank and a low mean.
[Ranks and tests]({folder}/{page})."""

_ACCURACIES = """\
After the last round, in %, mean ± sample standard deviation over seeds; the best of a federation is
bold, the second best underlined. Methods without a global model are left out; the page of each
[federation](#federations) has them, too."""

_SPEED = """\
How fast methods get there often differs more than where they end. GA after a fifth of the rounds →
after the last one, of FedAvg and of each method that is among the three best on a federation and
ahead of FedAvg there:"""

_HOW = """\
- **Budget.** Every method tries the same learning rates{rates} × three values of its own main
  coefficient, with seed {seeds}. Methods without a coefficient, such as FedAvg, try the learning
  rates only, which is a third of the settings: a gain over it of what more tries could give shows
  nothing.{halving}
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

_HALVING_OF_ALL = """ This prefers rates that are fast at first: a small one that
  would have won later may have been stopped."""

_HALVING_OF_RATES = """ Only settings
  with the same learning rates compete, so that every rate is tried to the end."""

_HALVING_OF_SOME = """ Only settings
  with the same learning rates compete; on some federations all of them do, which prefers rates that
  are fast at first ({titles})."""

_COMMANDS = """\
The page of each federation has the command that computed it. `python -m publication` makes
these pages again, and with `--sweep_dirs` adds another sweep."""

_COLUMNS = f"""\
These are the columns of the pages of the [federations](#federations). Accuracies are in %, mean ±
sample standard deviation over seeds. The best of a column is bold and the second best underlined,
unless methods share that place.

- **GA**: accuracy of the global model on the whole test set. A method marked † has no global model;
  its GA is the mean over clients of the personal model's accuracy on the whole test set, and is not
  compared.
- **PA before**, **PA after**: mean over clients of the personal model's accuracy on the client's
  own test samples, before any local step and after local epochs. Own classes: only classes of the
  client are possible answers.
- **Many, medium, few**: the largest classes with 75 % of all training samples, the next ones up to
  95 %, and the rest.
- **GA, same tail (best round)**: the accuracy of the global model on the held-out samples, whose
  classes differ in size as those of the training samples do, in the round in which it is highest.
  The maximum is over the same samples, so it is optimistic, and more so for curves that swing;
  compare it with itself only.
  The test sets have equally many samples of each class, unless the data are one's own.
- **GA - FedAvg's**: mean difference to the run of FedAvg with the same seed, in percentage points.
  Seeds ahead: for how many of them it is positive.
- **MB**: what all clients send and receive in a run, in units of 1,000,000 bytes.
- **s/round**: median time of a round in seconds, of runs that shared the machine with others; [the
  benchmark](benchmark.md#methods) compares the times of methods side by side.
- **VA**: the held-out accuracy by which settings were chosen, {{scored}}.
- **At the edge**: settings whose chosen value is the least or the greatest that was tried, and
  better than the others, so a wider grid might be better still. Points that were stopped earlier
  are not compared.
- **Points**: settings that were tried. Rounds: what they trained together.

On these pages, a method is listed as failing if its GA is at most {CHANCE:g} times the accuracy of
guessing, or if GA or PA after is more than {BELOW:g} points below FedAvg's, or if a run diverged.
GA of methods marked † does not count."""


def document(
    published: Sequence[Published], notes: Notes, rankings: Sequence[Ranking], folder: str
) -> str:
    """The text of the page.

    Args:
        published: the federations of the comparison.
        notes: what people have written.
        rankings: the ranks of the methods over them.
        folder: the name of the directory of the results, beside the page.
    """
    pages = _RANKS.format(folder=folder, page=RANKS_PAGE) if rankings else ""
    if notes.has_claims:
        pages += _CLAIMS.format(folder=folder, page=CLAIMS_PAGE)
    intro = _INTRO.format(folder=folder, pages=pages)
    parts = ["# All methods, tuned by the same rule", intro]
    if published:
        parts += ["## In one minute", _GUIDE, guide.table(published)]
        parts += [exceptions] if (exceptions := guide.exceptions(published)) else []
        if sure := notes.text("how_sure"):
            parts += ["### How sure this is", *sure]
        parts += ["### The three best", _MEASURES, _basis(published)]
        parts += [overview.in_short(published)]
        if rankings:
            parts += [_SORTED.format(folder=folder, page=RANKS_PAGE)]
            parts += [f"![Ranks of all methods]({folder}/{RANKS_PICTURE})"]
    parts += notes.text("which_method")
    if published:
        parts += ["## GA of all methods", _ACCURACIES]
        parts += [overview.accuracies(published, rankings)]
        parts += ["### How fast", _SPEED, overview.speed(published)]
    parts += ["## Federations", _federations(published, notes, folder)]
    parts += notes.text("commands") or [_COMMANDS]
    how = [_how(published), *notes.text("limits")]
    parts += ["## How methods were compared", "\n".join(how)]
    if seen := notes.text("not_seen"):
        parts += ["## What was not seen, or only in part", *seen]
    if published:
        parts += ["## What the columns mean", _COLUMNS.format(scored=_scored(published))]
    return "\n\n".join(parts) + "\n"


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
    tails = [one.title for one in complete if has_long_tail(one)]
    return (
        f"Average ranks over {len(complete)} federations{where}, 1 is the best, and accuracies in "
        "%, averaged over federations and seeds. Only methods with runs on all of them are ranked; "
        "the second row ranks only the methods that it describes."
        + (f" Rows about a long tail: {' and '.join(tails)} only." if tails else "")
    )


def _scored(published: Sequence[Published]) -> str:
    """What the held-out accuracy is by which settings were chosen, by the rows of sweep.csv."""
    # Methods that were added later may have been tuned in another way.
    ways = tables.grouped(
        (way, one.title)
        for one in published
        for way in {tuning.scored_by([trial]) for trial in one.trials}
    )
    first, *others = sorted(ways) or [tuning.LAST]
    text = tuning.HOW_SCORED[first]
    for way in others:
        text += f", or {tuning.HOW_SCORED[way]} ({'; '.join(ways[way])})"
    return text


def _federations(published: Sequence[Published], notes: Notes, folder: str) -> str:
    done = {one.name: one for one in published}
    lines = [["federation", "what it is", "methods", "seeds", "rounds", "time of all rounds"]]
    for name in dict.fromkeys([*notes.federations, *done]):
        one = done.get(name)
        if one is None:
            lines.append([name, notes.federations[name], "**not run yet**", "", "", ""])
            continue
        seeds = ", ".join(map(str, one.record["final_seeds"]))
        link = f"[{name}]({folder}/{name}/{PAGE})"
        what = notes.federations.get(name, one.title)
        numbers = [str(len(one.methods)), seeds, str(one.record["rounds"])]
        lines.append([link, what, *numbers, provenance.hours(one.record["seconds_of_rounds"])])
    return tables.table(lines)


def _competition(published: Sequence[Published]) -> str:
    """Which settings of a method competed, and what that prefers."""
    every = [one for one in published if provenance.rungs(one.record["calls"])]
    of_all = [one for one in every if provenance.competing(one.record["calls"]) == tuning.ALL]
    if len(of_all) == len(every):
        return _HALVING_OF_ALL
    titles = "; ".join(one.title for one in of_all)
    return _HALVING_OF_SOME.format(titles=titles) if of_all else _HALVING_OF_RATES


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
        halving=_HALVING.format(shares=shares) + _competition(published) if shares else "",
        rates=f" ({', '.join(rates)})" if rates else "",
        others=described(published),
        share=" or ".join(f"{share:g} %" for share in sorted(held_out)) or "20 %",
        seeds=listed("seeds", "0"),
        finals=listed("final_seeds", "1, 2, 3"),
    )


# By which accuracies settings were chosen where it is not that of the global model.

_BALANCED = """
  Where classes differ in size ({titles}), it is the mean over classes of the accuracy on the
  held-out samples of a class (`--criterion=va_balanced`): otherwise, settings that help the small
  classes would hardly ever be chosen. Of these, only a few samples are held out, so the choice is
  less certain there."""

_PERSONAL = """
  On some federations ({titles}), it is the mean over clients of the personal model's accuracy on
  the client's own held-out samples{when} (`--criterion={criterion}`)."""

_CRITERIA = {
    "va_balanced": _BALANCED,
    "va_personal": _PERSONAL.replace("{when}", ", after local epochs"),
    "va_personal_before": _PERSONAL.replace("{when}", ", before any local step"),
}


def described(published: Sequence[Published]) -> str:
    """The federations on which another accuracy decided, for the page; empty if there are none."""
    sentences = []
    for criterion, text in _CRITERIA.items():
        titles = [
            one.title
            for one in published
            if any(call.get("criterion") == criterion for call in one.record["calls"])
        ]
        if titles:
            sentences.append(text.format(titles="; ".join(titles), criterion=criterion))
    return "".join(sentences)
