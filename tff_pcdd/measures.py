"""What runs measure: each column of metrics.csv is declared here, once.

Histories, summaries, tables, pages and model cards iterate over these declarations, and take names,
headings and meanings from them. What is declared nowhere, such as a metric or a head of a user's,
gets its declaration from its name, see `of`; so results can be read without the module that
measured them.

    measures.of("ga").heading                    # GA
    measures.of("worst_class_pa").heading        # worst_class, PA after
    measures.heading("ga_second_half")           # GA, 2nd half
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Sequence

# Groups of measures: accuracies on test samples, the same at clients that take no part in training,
# and those on samples that clients held out; further metrics of the same predictions; counts and
# costs of rounds; diagnostics; and what callbacks and methods of a user's add.
ACCURACY, NEW, HELD_OUT, METRIC, ROUND, COST, DIAGNOSTIC, OWN = (
    *("accuracy", "new clients", "held out", "metric", "round", "cost", "diagnostic", "own"),
)

# Groups of classes by their number of training samples, which have accuracies of their own.
PARTS = ("many", "medium", "few")


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that is measured in a round, and its column in metrics.csv.

    Attributes:
        name: the column.
        heading: the heading of its column in tables.
        meaning: what it is, in a few words.
        unit: the unit, such as "%" or "bytes"; empty for a number without one.
        better: "higher", "lower", or empty where neither is better.
        group: what it belongs to, one of the groups of this module.
        best_round: the key in summary.json of the round in which it is best, if rounds may be
            chosen by it; empty otherwise.
        whole: whether it is an integer.
    """

    name: str
    heading: str
    meaning: str
    unit: str = "%"
    better: str = "higher"
    group: str = ACCURACY
    best_round: str = ""
    whole: bool = False

    @property
    def final(self) -> str:
        """The key in summary.json of its value after the last round."""
        return f"{self.name}_final"

    @property
    def best(self) -> str:
        """The key in summary.json of its best value."""
        return f"{self.name}_best"

    @property
    def label(self) -> str:
        """Heading and meaning, for the legends of pictures."""
        return f"{self.heading}: {self.meaning}"


def _round(name: str, heading: str, meaning: str, better: str = "lower") -> Measure:
    return Measure(name, heading, meaning, "", better, ROUND, whole=True)


_WITHOUT_GLOBAL_MODEL = "mean of the personal models, whole test set"

_DECLARED = (
    Measure("round", "round", "number of the round", "", "", ROUND, whole=True),
    Measure("ga", "GA", "global model, whole test set"),
    Measure("pa", "PA after", "personal models after local epochs, mean over clients"),
    Measure("pa_before", "PA before", "personal models before any local step, mean over clients"),
    Measure("pa_masked", "PA after, own classes", "PA after, predicting only a client's classes"),
    Measure(
        "pa_before_masked",
        "PA before, own classes",
        "PA before, predicting only a client's classes",
    ),
    Measure("va", "VA", "global model, held-out samples", group=HELD_OUT, best_round="best_round"),
    Measure(
        "va_balanced",
        "VA, balanced",
        "global model, held-out samples, mean over their classes",
        group=HELD_OUT,
        best_round="best_balanced_round",
    ),
    Measure(
        "va_personal",
        "VA, personal",
        "personal models after local epochs, held-out samples, mean over clients",
        group=HELD_OUT,
        best_round="best_personal_round",
    ),
    Measure(
        "va_personal_before",
        "VA, personal before",
        "personal models before any local step, held-out samples, mean over clients",
        group=HELD_OUT,
    ),
    Measure(
        "new_clients_ga",
        "GA, new clients",
        "global model, mean over clients that take no part in training",
        group=NEW,
    ),
    Measure(
        "new_clients_pa_before",
        "PA before, new clients",
        "personal models before any local step, mean over clients that take no part in training",
        group=NEW,
    ),
    Measure(
        "new_clients_pa",
        "PA after, new clients",
        "personal models after local epochs, mean over clients that take no part in training",
        group=NEW,
    ),
    Measure("train_loss", "loss", "mean over the cohort's samples", "", "lower", ROUND),
    _round("dropped_clients", "dropped clients", "clients that left the round", better=""),
    _round("local_steps", "local steps", "steps of all clients together", better=""),
    Measure("seconds", "seconds", "time of training, without evaluations", "s", "lower", COST),
    Measure(
        *("upload_bytes", "sent", "bytes that clients send", "bytes", "lower", COST), whole=True
    ),
    Measure(
        *("download_bytes", "received", "bytes that clients receive", "bytes", "lower", COST),
        whole=True,
    ),
    _round("nonfinite_rounds", "rounds not finite", "rounds with NaN or infinities so far"),
    _round("excluded_clients", "excluded clients", "how often clients were excluded so far"),
    _round("last_lost_round", "last lost round", "last round without a usable model"),
)

_BY_NAME = {measure.name: measure for measure in _DECLARED}

_PART = re.compile(rf"(ga|ga_\w+|pa|pa_before)_({'|'.join(PARTS)})")
_HEAD = re.compile(r"ga_(\w+)")
_METRIC = re.compile(r"(\w+?)_((?:new_clients_)?(?:ga|pa|pa_before))")
# What is easily overlooked in a metric.
_NOTES = {
    "macro_f1": "; a single answer of a class without test samples there adds a class with F1 = 0"
}
# Names of accuracies and diagnostics, which no column of a user's may have.
_FAMILIES = re.compile(r"(ga|pa|va|diag)(_|$)")
# Columns that every run may have, and sums over a cohort that become columns.
_TAKEN = frozenset({*_BY_NAME, "loss", "samples", "measured", "steps"})


def declare(measure: Measure) -> None:
    """Declares a measure, such as one that a callback of yours adds; the last declaration counts.

    Raises:
        ValueError: its name is that of another column, or of a kind of columns, of every run.
    """
    if _is_taken(measure.name):
        raise ValueError(f"{measure.name!r} is the name of another column of metrics.csv")
    _BY_NAME[measure.name] = measure


def _is_taken(name: str) -> bool:
    """Whether a name is that of a column, or of a kind of columns, of every run."""
    return name in _TAKEN or _FAMILIES.match(name) is not None


def is_whole(name: str) -> bool:
    """Whether a column has integers; asked for every cell, so without a declaration from the name.

    Example:
        >>> is_whole("round"), is_whole("ga"), is_whole("energy")
        (True, False, False)
    """
    measure = _BY_NAME.get(name)
    return measure is not None and measure.whole


def check_names(names: Sequence[str], others: Collection[str] = ()) -> str:
    """Why columns of a user's cannot have some names beside others; empty if they can."""
    for name in names:
        if name in others or _is_taken(name):
            return f"{name!r}, the name of another column of metrics.csv"
        if names.count(name) > 1:
            return f"{name!r} twice"
    return ""


def of(name: str) -> Measure:
    """The declaration of a column; what is not declared gets one from its name.

    Args:
        name: the column of metrics.csv. `ga_HEAD` is a further head of the global model; `ga_many`,
            `pa_few` and the like are groups of classes; `METRIC_ga`, `METRIC_pa`,
            `METRIC_pa_before`, `METRIC_new_clients_ga` and the like are metrics.

    Example:
        >>> of("ga_ssec_few").heading, of("pa_many").heading, of("balanced_ga").heading
        ('GA with head ssec, few', 'PA after, many', 'balanced, GA')
        >>> of("energy").group, of("diag_angle").group
        ('own', 'diagnostic')
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    if match := _PART.fullmatch(name):
        base = of(match[1])
        return dataclasses.replace(
            base,
            name=name,
            heading=f"{base.heading}, {match[2]}",
            meaning=f"{base.meaning}; the classes with {match[2]} training samples",
        )
    if match := _HEAD.fullmatch(name):
        meaning = "global model with this head, whole test set"
        return Measure(name, f"GA with head {match[1]}", meaning)
    if name.startswith("diag_"):
        return Measure(name, name, "diagnostic", "", "", DIAGNOSTIC)
    if match := _METRIC.fullmatch(name):
        base = of(match[2])
        heading = f"{match[1]}, {base.heading}"
        note = _NOTES.get(match[1], "")
        return Measure(name, heading, f"{match[1]} of {base.meaning}{note}", group=METRIC)
    return Measure(name, name, name, "", "", OWN)


def is_head(name: str) -> bool:
    """Whether a column is the accuracy of a further head of the global model, on all classes.

    Example:
        >>> is_head("ga_ssec"), is_head("ga_ssec_few"), is_head("ga_few"), is_head("ga")
        (True, False, False, False)
    """
    return _HEAD.fullmatch(name) is not None and _PART.fullmatch(name) is None


def without_global_model(measure: Measure) -> Measure:
    """What `ga` is for a method without a global model."""
    if measure.name != "ga":
        return measure
    return dataclasses.replace(measure, meaning=_WITHOUT_GLOBAL_MODEL)


# Values of summary.json.

# The columns of the table of accuracies.
TABLE = ("ga_final", "ga_second_half", "pa_before_final", "pa_before_masked_final", "pa_final")
# Further ones if samples were held out.
AT_BEST = {
    "va_best": "VA, global, best round",
    "ga_at_best_round": "GA there",
    "pa_at_best_round": "PA after, there",
}
# The many, medium and few classes.
GROUPS = tuple(f"{name}_{part}_final" for name in ("ga", "pa") for part in PARTS)


def of_key(key: str) -> Measure:
    """The measure of a value of summary.json, such as `ga_final` or `pa_at_best_round`."""
    return of(re.sub(r"(?<=.)_(final|best|second_half|at_best\w*_round)$", "", key))


def heading(key: str) -> str:
    """The heading of a value of summary.json, and of its column in comparison.csv.

    Example:
        >>> heading("ga_final"), heading("ga_second_half"), heading("worst_class_ga_final")
        ('GA', 'GA, 2nd half', 'worst_class, GA')
    """
    if key in AT_BEST:
        return AT_BEST[key]
    if key == "ga_second_half":
        return "GA, 2nd half"
    return of_key(key).heading


def headings(*keys: str) -> dict[str, str]:
    """The headings of some values, by key."""
    return {key: heading(key) for key in keys}


def meaning(key: str) -> str:
    """What a value of summary.json is, in a few words."""
    if key == "ga_second_half":
        return "GA averaged over the second half of the rounds"
    return of_key(key).meaning


def further(keys: Iterable[str]) -> list[Measure]:
    """What summary.json has beside the usual accuracies, in its order.

    These are accuracies at new clients, metrics and the columns of a user's. Accuracies at new
    clients stand together, in the order of their declarations: not all methods have each of them.
    """
    found = dict.fromkeys(of_key(key) for key in keys if key.endswith("_final"))
    new = [measure for measure in _BY_NAME.values() if measure.group == NEW and measure in found]
    others = [measure for measure in found if measure.group in (NEW, METRIC, OWN)]
    start = next((index for index, measure in enumerate(others) if measure in new), 0)
    others = [measure for measure in others if measure not in new]
    return [*others[:start], *new, *others[start:]]


def tabled(keys: Iterable[str]) -> list[str]:
    """The values that tables of methods show, in their order: accuracies, metrics, further ones.

    Args:
        keys: of all summaries, or the columns of comparison.csv.
    """
    keys = list(keys)
    shown = [
        each.final
        for each in further(keys)
        if each.group == NEW or not each.name.endswith("_pa_before")
    ]
    return [*TABLE, *shown, *(AT_BEST if "best_round" in keys else ())]


def best_rounds() -> dict[str, str]:
    """The keys of the best rounds in summary.json, by the column in which a round is best."""
    return {name: measure.best_round for name, measure in _BY_NAME.items() if measure.best_round}


# What is measured at each client, in clients.csv: accuracies in % on the client's own test samples,
# and differences between them. The headings are those of clients.md.
CLIENTS: dict[str, str] = {
    "ga": "global model",
    "pa_before": "personal, before",
    "pa": "personal",
    "pa_before_masked": "own classes, before",
    "pa_masked": "own classes",
    "balanced_before": "balanced, before",
    "balanced": "balanced",
    "over_global": "over global",
    "over_local": "over local",
}
