"""The grids of sweeps: edges, points that are equal, and settings that make no difference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tff_pcdd import measures, tables, text
from tff_pcdd.errors import SettingError
from tff_pcdd.evaluation import accuracy_interval
from tff_pcdd.findings.finding import Finding
from tff_pcdd.findings.thresholds import FEW_SEEDS
from tff_pcdd.settings import flat_name, option_fields

if TYPE_CHECKING:
    from tff_pcdd.experiment.config import ExperimentConfig

# For each point, its accuracy after each round in which it was compared with others.
Courses = Mapping[str, Mapping[float, float]]

# The accuracies of the global model, where there is one.
_GLOBAL = ("va", "va_balanced")
# The options that every method has.
_OF_ALL_METHODS = ("client_weighting",)


def of_choice(
    scores: Mapping[str, float | None],
    chosen: str,
    config: ExperimentConfig | None = None,
    criterion: str = "va",
    courses: Courses | None = None,
) -> Iterator[Finding]:
    """Settings without an effect, points as good as the chosen one, and values at an edge.

    That the criterion does not depend on a setting is said of the method's own settings, if all
    values are equal in places with different accuracies. Other equal values may be a coincidence.

    Arguments are those of `of_grid`. `criterion` is the column by which points are compared, empty
    if it is unknown.
    """
    courses = _courses(scores) if courses is None else courses
    equal = [name for name in without_effect(courses) if not _is_lost_with(name, scores)]
    coefficients = _coefficients(config)
    unseen = [name for name in equal if name in coefficients and _varies(name, courses)]
    yield from of_unseen(unseen, chosen, config, criterion)
    yield from of_no_difference(
        [each for each in equal if each not in unseen], chosen, config, criterion
    )
    own = read_point(chosen)
    last = max(courses.get(chosen, ()), default=0)
    others = {
        point: courses.get(point, {}).get(last)
        for point in scores
        # Points that differ in these settings alone have been named.
        if point == chosen
        or {**read_point(point), **{name: own.get(name) for name in unseen}} != own
    }
    yield from of_ties(others, chosen)
    yield from of_grid(scores, chosen, config, courses)


def of_grid(
    scores: Mapping[str, float | None],
    chosen: str,
    config: ExperimentConfig | None = None,
    courses: Courses | None = None,
) -> Iterator[Finding]:
    """Chosen values at the edge of a grid that are better than the others after the same rounds.

    Args:
        scores: the accuracy by which points are compared, by their settings, such as "a=1,b=2";
            None for points that were not measured.
        chosen: the settings of the chosen point.
        config: the settings of a run; values that it refuses do not extend the grid.
        courses: for each point, its accuracy after each round in which points were compared; by
            default, all of `scores` are after the same round.

    Example:
        >>> [found] = of_grid({"local_epochs=1": 50.0, "local_epochs=2": 60.0}, "local_epochs=2")
        >>> found.next
        'Next: the same command with --grid=local_epochs=1,2,4, which repeats no finished run.'
    """
    courses = _courses(scores) if courses is None else courses
    if not chosen or not courses.get(chosen):
        return
    tried = tables.grouped(pair for point in scores for pair in read_point(point).items())
    for name, value in read_point(chosen).items():
        values, own = _numbers(tried[name]), _numbers([value])
        if not own or not values or len(values) < 2 or own[0] not in (values[0], values[-1]):
            continue
        is_least = own[0] == values[0]
        further = _beyond(values[::-1] if is_least else values)
        if further is None or not _allows(config, name, further):
            continue
        if _has_equal(name, chosen, courses):
            # Which of equal points is chosen says nothing about the edge.
            continue
        grid = sorted({*tried[name], f"{further:g}"}, key=float)
        yield Finding(
            "edge",
            f"The chosen {name}={value} is the {'smallest' if is_least else 'largest'} value "
            "of the grid, so the best may lie outside.",
            f"Next: the same command with --grid={name}={','.join(grid)}, which repeats no "
            "finished run.",
        )


def of_ties(scores: Mapping[str, float | None], chosen: str) -> Iterator[Finding]:
    """Points that are as good as the chosen one; arguments as `of_grid`.

    Example:
        >>> [found] = of_ties({"local_epochs=1": 60.0, "local_epochs=2": 60.0}, "local_epochs=1")
        >>> found.what
        'Points with the same VA as the chosen one: local_epochs=2.'
    """
    best = scores.get(chosen)
    if best is None:
        return
    equal = [
        text.name_of(point or "defaults")
        for point, score in scores.items()
        if point != chosen and score is not None and tables.is_equal(score, best)
    ]
    if equal:
        yield Finding("tie", f"Points with the same VA as the chosen one: {text.listed(equal)}.")


def without_effect(courses: Courses) -> list[str]:
    """The settings whose values make no difference after the same rounds, with all else equal.

    Args:
        courses: as for `of_grid`.

    Example:
        >>> equal = {"a=1,b=1": {2: 50.0}, "a=1,b=2": {2: 50.0, 4: 60.0}}
        >>> without_effect({**equal, "a=2,b=1": {2: 9.0}})
        ['b']
    """
    names = dict.fromkeys(name for point in courses for name in read_point(point))
    return [name for name in names if _makes_no_difference(name, courses)]


def _makes_no_difference(name: str, courses: Courses) -> bool:
    compared = _compared(name, courses)
    return bool(compared) and all(tables.is_equal(min(own), max(own)) for own in compared)


def _compared(name: str, courses: Courses) -> list[list[float]]:
    """Accuracies with several values of a setting, together after one round with all else equal."""
    scores = tables.grouped(
        ((number, *sorted(pair for pair in read_point(point).items() if pair[0] != name)), score)
        for point, course in courses.items()
        for number, score in course.items()
    )
    return [own for own in scores.values() if len(own) > 1]


def _varies(name: str, courses: Courses) -> bool:
    """Whether accuracies by which values of a setting were compared differ elsewhere.

    Values that are equal once, or always at the same accuracy, such as 100 % or that of chance, may
    be so by coincidence.
    """
    every = [score for own in _compared(name, courses) for score in own]
    return bool(every) and not tables.is_equal(min(every), max(every))


def _is_lost_with(name: str, scores: Mapping[str, float | None]) -> bool:
    """Whether one value of a setting has no accuracy where another one has, with all else equal.

    Such as a value with which the training diverges.
    """
    lost = tables.grouped(
        (
            tuple(sorted(pair for pair in read_point(point).items() if pair[0] != name)),
            score is None,
        )
        for point, score in scores.items()
    )
    return any(len({*own}) > 1 for own in lost.values())


def _coefficients(config: ExperimentConfig | None) -> set[str]:
    """The settings of the method itself; none if it is unknown.

    Settings of all methods, such as the learning rate, change every training.
    """
    if config is None:
        return set()
    classes = type(config.method), type(config.head_calibration)
    names = {flat_name(cls, field) for cls in classes for field in option_fields(cls)}
    return names.difference(_OF_ALL_METHODS)


def of_no_difference(
    equal: Iterable[str], chosen: str, config: ExperimentConfig | None, criterion: str
) -> Iterator[Finding]:
    """Settings whose values have the same accuracy here, which may be a coincidence.

    Args:
        equal: the settings, as of `without_effect`.
        chosen, config, criterion: as for `of_choice`.

    Example:
        >>> [found] = of_no_difference(["local_epochs"], "local_epochs=1", None, "va")
        >>> found.line
        'The value of local_epochs made no difference to VA here; local_epochs=1 is kept.'
    """
    heading = measures.heading(criterion) if criterion else "VA"
    for name, kept in _kept(equal, chosen, config):
        yield Finding(
            "no difference",
            f"The value of {name} made no difference to {heading} here; {kept}.",
        )


def _kept(
    names: Iterable[str], chosen: str, config: ExperimentConfig | None
) -> Iterator[tuple[str, str]]:
    """Settings of the chosen point, and that their values are kept."""
    own = read_point(chosen)
    for name in names:
        if name in own:
            default = ", the default," * _is_default(config, name, own[name])
            yield name, f"{name}={own[name]}{default} is kept"


def of_unseen(
    unseen: Iterable[str], chosen: str, config: ExperimentConfig | None, criterion: str
) -> Iterator[Finding]:
    """Settings on which the criterion does not depend.

    Args:
        unseen: those settings of the method, as of `without_effect`, for which a coincidence is
            unlikely.
        chosen, config, criterion: as for `of_choice`.

    Example:
        >>> [found] = of_unseen(["ditto_pull"], "ditto_pull=1", None, "va_personal")
        >>> print(found.line)  # doctest: +NORMALIZE_WHITESPACE
        All values of ditto_pull have the same VA, personal after the same rounds, so
        --criterion=va_personal does not depend on it; ditto_pull=1 is kept.
    """
    heading = measures.heading(criterion) if criterion else "VA"
    decided = f"--criterion={criterion}" if criterion else "the criterion"
    # Without a global model, these are accuracies of personal models already.
    may_differ = criterion in _GLOBAL and (config is None or config.method.has_global_model)
    for name, kept in _kept(unseen, chosen, config):
        yield Finding(
            "unseen",
            f"All values of {name} have the same {heading} after the same rounds, so {decided} "
            f"does not depend on it; {kept}.",
            "Next: --criterion=va_personal in another --output_dir, which compares personal models."
            if may_differ
            else "",
        )


def of_noise(
    choices: Iterable[tuple[str, str, Mapping[str, float | None]]],
    samples: int,
    seeds: Sequence[int | str] = (0,),
    taken: Collection[int] = (),
) -> Iterator[Finding]:
    """Points that lie too near to the chosen one for the number of held-out samples.

    Args:
        choices: for each method its name, which is empty if there is only one, the chosen point,
            and the accuracy on held-out samples of each point; None for points that were not
            trained to the end.
        samples: number of held-out samples with each seed; 0 if unknown.
        seeds: the seeds, over which the accuracies are averaged.
        taken: seeds of other runs, which may not be added to them.

    Example:
        >>> [found] = of_noise([("", "a=1", {"a=1": 80.0, "a=2": 75.0, "a=3": 60.0})], 200)
        >>> print(found.what)  # doctest: +NORMALIZE_WHITESPACE
        VA is measured on about 200 held-out samples, so differences of less than 8.5 points may
        be chance. Less than that separates the chosen point from 1 of the 2 other points.
    """
    found, distances = [], []
    for method, chosen, scores in choices:
        best = scores.get(chosen)
        if best is None or not samples:
            continue
        distance = _distance(best, samples * len(seeds))
        others = [score for point, score in scores.items() if point != chosen and score is not None]
        if near := sum(best - score < distance for score in others):
            distances.append(distance)
            were, which = "were", f"{near} of the {len(others)} other points"
            if len(others) == 1:
                were, which = "was", "the only other point"
            elif near == len(others):
                which = "both other points" if near == 2 else f"all {near} other points"
            of_method = f" of {method}" if method else ""
            ended = f" that {were} trained to the end" if len(others) + 1 < len(scores) else ""
            found.append(f"{which}{of_method}{ended}")
    if found:
        measured = f"about {text.plural(samples, 'held-out sample')}"
        measured += f" with each of {len(seeds)} seeds" if len(seeds) > 1 else ""
        ends = min(distances), max(distances)
        if len({f"{end:.1f}" for end in ends}) == 1:
            width = f"{ends[0]:.1f}"
        else:
            width = f"about {' to '.join(dict.fromkeys(f'{end:.0f}' for end in ends))}"
        # What was done already is not advised again.
        few = len(seeds) < FEW_SEEDS and all(f"{seed}".isdecimal() for seed in seeds)
        now, more = (",".join(map(str, each)) for each in (seeds, more_seeds(seeds, taken)))
        yield Finding(
            "noise",
            f"VA is measured on {measured}, so differences of less than {width} points may be "
            f"chance. Less than that separates the chosen point from {text.listed(found, 8)}.",
            f"Next: --seeds={more} (now {now}), or a larger --validation_fraction." if few else "",
        )


def more_seeds(seeds: Sequence[int | str], taken: Collection[int] = ()) -> list[int | str]:
    """Seeds, and further ones up to `FEW_SEEDS`, none of which is taken.

    Example:
        >>> more_seeds([0], taken=[1, 2]), more_seeds([0, 1, 2, 3, 4, 5])
        ([0, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5])
    """
    last = max((int(seed) for seed in seeds if f"{seed}".isdecimal()), default=-1)
    further = (seed for seed in itertools.count(last + 1) if seed not in taken)
    return [*seeds, *itertools.islice(further, max(0, FEW_SEEDS - len(seeds)))]


def _distance(best: float, samples: int) -> float:
    """How far below an accuracy another one is outside the interval of their difference."""
    tenths = range(1, math.floor(10 * best) + 1)
    apart = (d / 10 for d in tenths if accuracy_interval(best, best - d / 10, samples)[0] > 0)
    return next(apart, best)


def merged(by_method: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Findings that several methods share, in one line with their names."""
    methods = tables.grouped((each, name) for name, found in by_method.items() for each in found)
    return [
        each._replace(what=f"{text.listed(names, 8)}: {each.what[0].lower()}{each.what[1:]}")
        for each, names in methods.items()
    ]


def read_point(point: str) -> dict[str, str]:
    """The settings of a point of a grid, from its name.

    Example:
        >>> read_point("client_learning_rate=0.1,local_epochs=2")
        {'client_learning_rate': '0.1', 'local_epochs': '2'}
    """
    pairs = (part.partition("=") for part in point.split(",") if "=" in part)
    return {name: value for name, _, value in pairs}


def _courses(scores: Mapping[str, float | None]) -> Courses:
    """The courses of points that were compared once."""
    return {point: {} if score is None else {0: score} for point, score in scores.items()}


def _has_equal(name: str, chosen: str, courses: Courses) -> bool:
    """Whether another value of a setting is as good as the chosen one after the same rounds.

    A value that was stopped with all other settings is compared, with the others as chosen, before.
    """
    here, own = read_point(chosen), courses[chosen]
    last = max(own)
    others = {
        point: values
        for point in courses
        if (values := read_point(point)).get(name) not in (None, here[name])
    }
    ended = {values[name] for point, values in others.items() if last in courses[point]}
    for point, values in others.items():
        common = own.keys() & courses[point].keys()
        if values[name] in ended:
            common &= {last}
        elif {**values, name: here[name]} != here:
            continue
        if common and all(tables.is_equal(own[n], courses[point][n]) for n in common):
            return True
    return False


def _is_default(config: ExperimentConfig | None, name: str, value: str) -> bool:
    """Whether a text is the default of a setting; False if it is unknown."""
    if config is None:
        return False
    try:
        default = config.default_of(name)
    except (KeyError, SettingError):
        return False
    own = _numbers([value])
    return f"{default}" == value or (bool(own) and own == _numbers([f"{default}"]))


def _allows(config: ExperimentConfig | None, name: str, value: float) -> bool:
    """Whether a setting can have a value."""
    if config is None:
        return True
    setting: dict[str, Any] = {name: value}
    try:
        config.with_settings(**setting).check_data()
    except SettingError:
        return False
    return True


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """The different values in ascending order; None if one of them is no finite number."""
    try:
        found = sorted({float(each) for each in texts})
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _beyond(values: Sequence[float]) -> float | None:
    """The next value of a sequence, as its last two go on; None if it ends at 0."""
    last, before = values[-1], values[-2]
    if last == 0:
        return None
    # Values of a grid differ by factors as a rule, unless there is a 0 among them.
    further = last * last / before if min(values) > 0 else 2 * last - before
    if all(value == int(value) for value in values) and further >= 1:
        return int(further)
    # With as few digits as lie beyond the last value.
    rounded = (float(f"{further:.{digits}g}") for digits in (1, 2, 3))
    return next((each for each in rounded if (each - last) * (last - before) > 0), further)
