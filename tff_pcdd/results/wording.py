"""The verdict of a comparison in sentences, as programs print it and pages show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tff_pcdd import findings, measures, tables, text
from tff_pcdd.results.federating import Federating
from tff_pcdd.results.method_traits import starts_from_global
from tff_pcdd.results.run_results import ALONE
from tff_pcdd.results.verdict import POOLED, Answer, Choice, FromFew, Recommended
from tff_pcdd.tables import BASELINE

# What the best method by an accuracy is good for.
_QUESTIONS = {
    "ga_final": "One model for all",
    "pa_final": "A model for each client, after local training",
}

_TOO_EASY = (
    "The task is too easy to tell them apart, with more seeds too: take harder data, such as a "
    "smaller --max_train_samples, or fewer --rounds to see which learns faster."
)


def sentences(answer: Answer) -> list[tuple[str, str]]:
    """Pairs of what is asked, with the best method, and what was found."""
    found = [(heading(each), sentence(each)) for each in answer.choices]
    if answer.federating is not None:
        found.append(of_federating(answer.federating))
    return found + _of_clients(answer)


def brief(answer: Answer) -> list[str]:
    """The answer in a few lines: what is best, whether federating pays, and what to take."""
    lines = [_brief(each) for each in answer.choices]
    if answer.federating is not None:
        lines.append(_brief_of_federating(answer.federating))
    lines += [" ".join(pair) for pair in _of_clients(answer)]
    lines += [
        f"Take {each.method}: {models(each)}{reasons(answer, each)}." for each in answer.recommended
    ]
    if more := [each.more_seeds for each in answer.choices if each.lacks_seeds]:
        lines.append(f"More seeds decide more: {more[0]}.")
    return lines


def _of_clients(answer: Answer) -> list[tuple[str, str]]:
    """Who gains and who loses with the recommended models; nothing if it is unknown."""
    if answer.at_clients is None or not answer.at_clients.gains:
        return []
    found = answer.recommended_gains or answer.at_clients
    taken = [each.method for each in answer.recommended if each.is_personal]
    personal = [each.best for each in answer.choices if each.key == "pa_final"]
    order = [*taken, *personal, *found.gains]
    return [("Clients.", found.sentence(next(m for m in order if m in found.gains)))]


def heading(choice: Choice) -> str:
    """What is asked, and the best methods."""
    names, alone = text.listed([choice.best, *choice.equal], 8), choice.over.get(ALONE)
    leads = f"{names} lead with the same value" if choice.equal else f"{names} leads"
    apart = alone is None or alone.is_more_than(choice.sample)
    if alone is not None and apart and alone.mean < 0:
        found = f"training alone is better; {leads}"
    elif choice.is_open or not apart:
        tied = [*choice.tied, *["training alone"] * (not apart)]
        found = f"undecided {_between([choice.best, *tied])}; {leads}"
    else:
        found = leads if choice.tied else names
    return f"{_QUESTIONS[choice.key]}: {found}."


def sentence(choice: Choice) -> str:
    """What was found, without the question."""
    parts = [f"{measures.heading(choice.key)} {tables.spread(choice.values, 1)} %"]
    for method, found in choice.over.items():
        beside = found.beside if method == POOLED else found.over
        parts.append(beside(method, choice.sample))
    return " ".join(
        [
            f"{', '.join(parts)}.",
            *_not_told_apart(choice),
            *_told_apart(choice),
            *_reservations(choice),
        ]
    )


def _brief(choice: Choice) -> str:
    """What is asked, the best methods, and the gain over FedAvg."""
    parts = [heading(choice)]
    if BASELINE in choice.over:
        over = choice.over[BASELINE].over(BASELINE, choice.sample)
        parts.append(f"{measures.heading(choice.key)} {over}.")
    return " ".join([*parts, *([_TOO_EASY] * choice.too_easy), *_reservations(choice)])


def pays(found: Federating) -> str:
    """Whether federating pays for clients."""
    if not found.over.is_more_than(found.sample):
        return "Federating: undecided whether it pays on the clients' own samples."
    if found.over.mean < 0:
        return "Federating: training alone is better on the clients' own samples."
    return "Federating: it pays on the clients' own samples."


def of_federating(found: Federating) -> tuple[str, str]:
    """`pays`, and its numbers with what the shared model has over training alone."""
    parts = [
        f"The best models there are {found.method}'s: {measures.heading(found.key)} "
        f"{tables.spread(found.values, 1)} %, {found.over.beside('training alone', found.sample)}."
    ]
    if found.shared_over is not None:
        where = ""
        if found.shared_at_clients is not None:
            where = f", and {found.shared_at_clients.beside('it')} on the clients' own samples"
        parts.append(
            f"On the whole test set, the shared model of {found.shared} has GA "
            f"{tables.spread(found.shared_values, 1)} %, "
            f"{found.shared_over.beside('training alone')}{where}."
        )
    return pays(found), " ".join(parts)


def _brief_of_federating(found: Federating) -> str:
    """Whether federating pays, and the gain over training alone."""
    over = found.over.beside("training alone", found.sample)
    return f"{pays(found)} {found.method}'s {measures.heading(found.key)} {over}."


def _not_told_apart(choice: Choice) -> Iterator[str]:
    """Which methods cannot be told apart from the best, and what would tell them apart."""
    tied = [method for method in choice.tied if method not in choice.equal]
    if tied:
        it = choice.best if choice.equal else "it"
        more = f"; take {choice.more_seeds}" if choice.lacks_seeds else ""
        units, names = text.plural(len(choice.values), choice.units), text.listed(tied, 8)
        yield f"{units} cannot tell {it} from {names}{more}."
    elif choice.lacks_seeds:
        yield f"Take {choice.more_seeds} to tell them apart."
    if choice.too_easy:
        yield _TOO_EASY


def _told_apart(choice: Choice) -> Iterator[str]:
    """Which methods are behind for certain."""
    if choice.behind:
        names, others = text.listed(choice.behind, 8), len(choice.behind)
        if choice.tied:
            yield f"Behind for certain: {names}."
        elif choice.left_out:
            yield f"It is ahead of {names}."
        else:
            each = "the other method" if others == 1 else f"all {others} other methods"
            yield f"It is ahead of {each}."


def _reservations(choice: Choice) -> Iterator[str]:
    """What should be known before the answer is believed."""
    if choice.left_out:
        names = text.listed(choice.left_out, 8)
        yield f"Not ranked, because runs are missing or diverged: {names}."
    if choice.from_few is not None:
        yield _few_samples(choice.from_few)


def _few_samples(found: FromFew) -> str:
    """From which clients with few test samples the gain comes."""
    names = text.listed(
        [
            f"{findings.label(name)} ({text.signed(each)} points, "
            f"{text.plural(found.samples[name], 'test sample')})"
            for name, each in found.gains.items()
        ],
        3,
    )
    return (
        f"The gain over {found.other} comes from {names}: without clients with fewer than "
        f"{findings.LEAST_SAMPLES} test samples, it is {text.signed(found.rest)}."
    )


def _between(names: Sequence[str]) -> str:
    """Between which an answer is undecided.

    Example:
        >>> _between(["ccvr", "fedavg"]), _between(["ccvr", "fedavg", "fedgela", "fedge", "fedetf"])
        ('between ccvr and fedavg', 'between ccvr and 4 others')
    """
    if len(names) > 4:
        return f"between {names[0]} and {len(names) - 1} others"
    return f"between {', '.join(names[:-1])} and {names[-1]}"


def models(recommended: Recommended) -> str:
    """Which models are recommended."""
    found = ["one model for all"] * ("ga_final" in recommended.keys)
    if recommended.is_personal:
        found.append(f"a model for each client, {recommended.stage} local training")
    own = "pa_before_masked_final" in recommended.keys
    if recommended.stage == "before" and starts_from_global(recommended.method):
        found[-1] += " (the shared model"
        found[-1] += ", with answers among the client's own classes: own_label)" if own else ")"
    elif own:
        found[-1] += ", whose answer with own classes is own_label"
    return " and ".join(found)


def reasons(answer: Answer, recommended: Recommended) -> str:
    """Why models are recommended that are not those that lead, after a comma; else empty."""
    method, keys = recommended
    choices = {choice.key: choice for choice in answer.choices}
    best = {key: choice.best for key, choice in choices.items()}
    found, federated = [], answer.federating
    # Models before local training are recommended as the best of all, or as ahead of FedAvg's.
    own = [key for key in keys if key not in choices]
    taken = [(method, key) for key in own]
    if (
        federated is not None
        and federated.surest in taken
        and federated.surest != (federated.method, federated.key)
    ):
        leads = f"{federated.method}'s {measures.heading(federated.key)}"
        found.append(f"ahead of {BASELINE} for certain, which {leads} is not")
    elif own and best.get("pa_final", method) != method:
        found.append("the best on the clients' own samples")
    undecided = [key for key in keys if best.get(key, method) != method and key in choices]
    if method == BASELINE and undecided:
        what = "it" if undecided == [*keys] else measures.heading(undecided[0])
        found.append(f"the simplest method, as {what} is undecided")
    for key in undecided:
        if choices[key].surest == method:
            found.append(f"ahead of {BASELINE} for certain, which {best[key]} is not")
            break
    return "".join(f", {each}" for each in found)
