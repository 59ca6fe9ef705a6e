"""What folders, tables and arrays of your own have in common: sites, test parts and checks.

A loader brings samples with the names of their classes and sites; `pool` makes a data set of them,
whose users are the sites.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.checks import listed, say, warn
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.holdout import hold_out
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.data.sources import DataSource, LoadRequest, PooledData
from tff_pcdd.data.sources._duplicates import straddling, warn_of_duplicates
from tff_pcdd.data.sources._names import Row, in_order, joined, numbered, similar
from tff_pcdd.data.sources._tasks import refuse_labels, warn_of_numbers
from tff_pcdd.data.sources._users import by_user, choose_users, rows_of
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import WIDE, option
from tff_pcdd.text import name_of, plural, quoted

# The share of each site's samples in its test part, where none is given.
_TEST_FRACTION = 0.2

# More classes than this are not counted on: classes of own data are known once they are read.
MANY_CLASSES = 2**31 - 1

PARTS = ("train", "val", "test")

# What is done with small sites, and the name of the one that joins them.
_LEAVE_OUT, _JOIN, _SMALL_SITES = "leave_out", "join", "small sites"

# What people call the parts.
_SPELLINGS = {
    **dict.fromkeys(("train", "training", "trn", "tr"), "train"),
    **dict.fromkeys(("test", "testing", "tst", "te"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
}

# Of these, what a site may be called, too.
ABBREVIATIONS = ("tr", "trn", "te", "tst", "dev")

_WORDS = {"train": "training", "val": "validation", "test": "test"}


def part_of(name: str) -> str | None:
    """The part that a name stands for: train, test or val; None if it stands for none.

    Example:
        >>> [part_of(name) for name in ("Training", "VALID", "tst", "test data", "Berlin")]
        ['train', 'val', 'test', 'test', None]
    """
    plain = re.sub(r"[\s_-]*(set|data|images|split)$", "", name.strip().casefold())
    return _SPELLINGS.get(plain)


@dataclasses.dataclass(frozen=True)
class OwnSamples:
    """Samples as a loader finds them.

    Attributes:
        place: the directory, file or array, for messages.
        x: raw inputs, or paths as bytes, [n, ...]; the rows of a table until its inputs are known.
        labels: name of each sample's class.
        sites: name of each sample's site; None if there are no sites.
        parts: "train", "val" or "test" for each sample; None if the test parts are to be chosen.
        shown: the name of a sample, for messages.
        notes: counts of what was left out.
        groups: the patient, video or the like of each sample; None if each stands for itself.
        likely_groups: values that look like those of patients, with the way to say so: for what
            the message calls them, the values and the advice.
        class_names: the classes in the order of their numbers, also those without samples; None
            for those of the labels, in their order.
        hashes: hash of each sample's stored bytes, [n]; None for those of `x`.
        named_by: what names the "classes" and the "sites", in words, where there is a choice.
        own_groups: what keeps groups of the same name at several sites apart, for the message.
    """

    place: str
    x: np.ndarray
    labels: Sequence[str]
    sites: Sequence[str] | None
    parts: Sequence[str] | None
    shown: Callable[[int], str]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    groups: Sequence[str] | None = None
    likely_groups: Mapping[str, tuple[Sequence[str], str]] = dataclasses.field(default_factory=dict)
    class_names: Sequence[str] | None = None
    hashes: np.ndarray | None = None
    named_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_groups: str = "make the site a part of it"

    def take(self, rows: Sequence[int]) -> OwnSamples:
        """The samples at some positions."""
        sites, parts, groups = (pick(of, rows) for of in (self.sites, self.parts, self.groups))
        return dataclasses.replace(
            self,
            x=self.x[list(rows)],
            labels=pick(self.labels, rows),
            sites=sites,
            parts=parts,
            hashes=None if self.hashes is None else self.hashes[list(rows)],
            shown=lambda index: self.shown(rows[index]),
            groups=groups,
            likely_groups={
                what: (pick(values, rows), advice)
                for what, (values, advice) in self.likely_groups.items()
            },
        )


def pick(values: Sequence[str] | None, rows: Sequence[int]) -> Any:
    """The values at some positions; None of None."""
    return values if values is None else [values[row] for row in rows]


@dataclasses.dataclass(frozen=True)
class OwnSource(DataSource):
    """Mixin for data of your own, whose sites are the clients."""

    may_hold_out = True
    inputs_are_known = False
    draws_only_users = True

    test_fraction: float | None = option(
        None,
        "Share of each site's samples to keep for testing, class by class, if the data have no "
        "test samples of their own; 0.2 by default.",
        type=float,
        above=0,
        maximum=0.9,
    )
    test_seed: int = option(
        0,
        "Seed of the choice of test samples. It does not follow seed, so that a sample is never a "
        "training sample in one run and a test sample in another.",
        minimum=0,
        maximum=WIDE,
    )
    join_names: bool = option(
        False,
        "Take names of classes, and of sites, for the same if they differ only in case, in blanks, "
        "underscores and dashes between words, in the form of a character, in leading zeros, or in "
        "the decimals of a whole number. The most frequent name stays; of several, the first one.",
    )

    min_site_samples: int | None = option(
        None,
        "The fewest samples of a site; small_sites says what is done with those that have fewer.",
        type=int,
        minimum=1,
    )
    small_sites: str = option(
        _LEAVE_OUT,
        "What is done with sites that have fewer samples than min_site_samples: leave_out names "
        "them and does not use their samples; join makes one site of them.",
        choices=(_LEAVE_OUT, _JOIN),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small_sites == _JOIN and self.min_site_samples is None:
            reason = "needs min_site_samples, which says what is small"
            raise SettingError("small_sites", self.small_sites, reason)

    def suggested_partition(self) -> dict[str, str]:
        return {"partition": "natural"}

    def least_classes(self) -> int:
        return 2

    def pool(
        self,
        samples: OwnSamples,
        request: LoadRequest,
        describe: Callable[[np.ndarray], InputSpec],
        encode: Callable[[OwnSamples, InputSpec], np.ndarray] | None = None,
    ) -> PooledData:
        """Makes a data set of samples: chooses test parts, and checks and numbers everything.

        Args:
            samples: the samples.
            request: which sites to keep.
            describe: the input spec, from the inputs of the training samples.
            encode: the inputs of samples by this spec; None if `samples` already have them.
        """
        samples = self._checked(samples)
        place, used = samples.place, in_order(samples.labels)
        self._say_what_was_read(samples, used)
        class_names = used if samples.class_names is None else list(samples.class_names)
        number = {name: index for index, name in enumerate(class_names)}
        y = np.array([number[label] for label in samples.labels], np.int32)
        sites = np.array(samples.sites or [""] * len(y))
        groups = _group_numbers(samples)
        parts = self._parts(samples, y, sites, groups)
        hashes = _row_hashes(samples.x) if samples.hashes is None else samples.hashes
        owners: dict[str, tuple[str, npt.ArrayLike]] = {
            "duplicates_at_several_sites": ("at several sites", sites),
            "duplicates_in_both_parts": (f"in the {_listed(parts)} part", parts),
            "duplicates_of_several_classes": ("under several classes", samples.labels),
        }
        notes = {**samples.notes, **warn_of_duplicates(place, hashes, owners, samples.shown)}
        _warn_of_gaps(place, class_names, y, sites, parts)
        _warn_of_likely_groups(samples, parts)
        spec = describe(samples.x[parts == "train"])
        x = samples.x if encode is None else encode(samples, spec)
        ids = np.array([samples.shown(row) for row in range(len(y))])
        whole = Examples(x, y, ids, groups, parts == "val" if "val" in parts else None)
        in_test = parts == "test"
        train, test = (whole.take(np.flatnonzero(chosen)) for chosen in (~in_test, in_test))
        users: tuple[ClientIndices, ...] | None = None
        if samples.sites is not None:
            users = by_user(sites[~in_test].tolist(), sites[in_test].tolist())
            train, test, users = choose_users(train, test, users, request, place)
        content = hashlib.sha256(repr((class_names, hashes.tolist())).encode())
        fingerprint = content.hexdigest()
        return PooledData(train, test, tuple(class_names), spec, users, notes, fingerprint)

    def _checked(self, samples: OwnSamples) -> OwnSamples:
        """The samples that are used, under the names of classes and sites that they get."""
        if self.join_names:
            samples = dataclasses.replace(
                samples,
                labels=_joined(samples.place, "class", samples.labels),
                sites=samples.sites and _joined(samples.place, "site", samples.sites),
            )
        refuse_labels(samples.place, samples.labels)
        if samples.class_names is None:
            warn_of_numbers(samples.place, samples.labels)
        samples = self._without_small_sites(samples)
        used = sorted(set(samples.labels))
        if len(used) < 2:
            found = f"only the class {used[0]}" if used else "no samples"
            raise DataError(f"{samples.place}: holds {found}; at least two classes are needed")
        return samples

    def _say_what_was_read(self, samples: OwnSamples, classes: Sequence[str]) -> None:
        """Says which classes and sites there are, as they are easily mixed up."""
        names = {"classes": classes}
        if samples.sites is not None:
            names["sites"] = in_order(samples.sites)
        found = []
        for kind, own in names.items():
            number = plural(len(own), {"classes": "class", "sites": "site"}[kind])
            first = (quoted(name_of(name)) for name in own[:3])
            some = ", ".join([*first, *["…"] * (len(own) > 3)])
            found.append(f"{number}{samples.named_by.get(kind, '')} ({some})")
        say(f"{samples.place}: {'; '.join(found)}")

    def _without_small_sites(self, samples: OwnSamples) -> OwnSamples:
        """The samples of sites that have enough of them, and of one that joins the others.

        Small sites that together have too few samples are left out.
        """
        least = self.min_site_samples
        if least is None:
            return samples
        if samples.sites is None:
            raise SettingError("min_site_samples", least, f"{samples.place} has no sites")
        sizes = collections.Counter(samples.sites)
        small = sorted(site for site, size in sizes.items() if size < least)
        lost = sum(sizes[site] for site in small)
        few = f"with fewer than {least} samples each, {lost} together"
        if small and self.small_sites == _JOIN and lost >= least:
            if sizes[_SMALL_SITES] >= least:
                reason = f"{samples.place} has a site {_SMALL_SITES!r} already; rename it"
                raise SettingError("small_sites", self.small_sites, reason)
            warn(
                f"{samples.place}: {listed('site', small)}, {few}, are joined into the site "
                f"{_SMALL_SITES!r}"
            )
            sites = [site if sizes[site] >= least else _SMALL_SITES for site in samples.sites]
            notes = {**samples.notes, "small_sites_joined": len(small)}
            return dataclasses.replace(samples, sites=sites, notes=notes)
        if len(small) == len(sizes):
            raise DataError(f"{samples.place}: no site has min_site_samples={least} samples")
        if not small:
            return samples
        kept = [row for row, site in enumerate(samples.sites) if sizes[site] >= least]
        warn(f"{samples.place}: {listed('site', small)} left out, {few}")
        notes = {**samples.notes, "small_sites_left_out": len(small)}
        return dataclasses.replace(samples.take(kept), notes=notes)

    def _parts(
        self, samples: OwnSamples, y: np.ndarray, sites: np.ndarray, groups: np.ndarray | None
    ) -> np.ndarray:
        """The part of each sample, [n]; there are training and test samples."""
        if samples.parts is None:
            found = self._chosen_parts(y, sites, groups)
            what = "sample" if groups is None else "group"
            why = f"no class has a {what} to spare; add some, or mark test samples yourself"
        else:
            found = np.array(samples.parts)
            why = "none is marked so; mark some, or leave the marks out"
            if self.test_fraction is not None:
                reason = f"{samples.place} says itself which samples are for testing"
                raise SettingError("test_fraction", self.test_fraction, reason)
        for part in ("train", "test"):
            if part not in found:
                raise DataError(f"{samples.place}: there are no {_WORDS[part]} samples; {why}")
        return found

    def _chosen_parts(
        self, y: np.ndarray, sites: np.ndarray, groups: np.ndarray | None
    ) -> np.ndarray:
        """The part of each sample, [n], if the data say none."""
        fraction = _TEST_FRACTION if self.test_fraction is None else self.test_fraction
        found = np.full(len(y), "train")
        for site, own in rows_of(sites).items():
            # By name, so that the test part of a site does not depend on the other sites.
            seed = [self.test_seed, zlib.crc32(site.encode())]
            own_groups = None if groups is None else groups[own]
            found[own[hold_out(y[own], fraction, seed, own_groups)]] = "test"
        return found


def _joined(place: str, kind: str, names: Sequence[str]) -> list[str]:
    """Names, of which similar ones have become one; warns of those that have changed."""
    meant = joined(names)
    changed = [f"{name!r:.40} to {other!r:.40}" for name, other in meant.items() if name != other]
    if changed:
        warn(f"{place}: names are joined under the most frequent one: {listed(kind, changed)}")
    return [meant[name] for name in names]


def _row_hashes(x: np.ndarray) -> np.ndarray:
    """A hash of each row's bytes, [n]."""
    return np.array([hashlib.sha256(row.tobytes()).hexdigest() for row in x])


def _group_numbers(samples: OwnSamples) -> np.ndarray | None:
    """The group of each sample as a number, int64 [n]; None if there are no groups."""
    if samples.groups is None:
        return None
    for where, owners, hint in (
        ("at the sites", samples.sites, f"if each site numbers its own, {samples.own_groups}"),
        ("in the parts", samples.parts, "correct the parts, or let the test samples be chosen"),
    ):
        found = None if owners is None else straddling(samples.groups, owners)
        if owners is not None and found is not None:
            count, one, other = found
            others = f" ({count - 1} other groups too)" if count > 1 else ""
            raise DataError(
                f"{samples.place}: the group {samples.groups[one]!r:.60} has samples {where} "
                f"{owners[one]} and {owners[other]}, {samples.shown(one)} and "
                f"{samples.shown(other)}{others}; {hint}"
            )
    return np.unique(np.array(samples.groups), return_inverse=True)[1]


def _warn_of_likely_groups(samples: OwnSamples, parts: np.ndarray) -> None:
    """Warns if the parts share what looks like a patient or the like."""
    if samples.groups is not None:
        return
    # As many values as there are classes at sites rather belong to these.
    fewest = len(set(zip(samples.labels, samples.sites or samples.labels, strict=True)))
    for what, (values, advice) in samples.likely_groups.items():
        if len(set(values)) <= fewest or (found := straddling(values, parts)) is None:
            continue
        count, one, other = found
        warn(
            f"{samples.place}: {count} of {len(set(values))} {what} have samples in the "
            f"{_listed(parts)} part, for example {samples.shown(one)} and {samples.shown(other)}; "
            f"if they are of the same patient or video, {advice}"
        )


def _listed(parts: Iterable[str]) -> str:
    """The parts that occur, in words."""
    found = set(parts)
    *first, last = [words for part, words in _WORDS.items() if part in found]
    return " and the ".join([", the ".join(first), last]) if first else last


def check_parts(parts: Sequence[str], where: str, rows: Sequence[Row] | None = None) -> list[str]:
    """The part of each sample, from "train", "val" and "test" in any common spelling."""
    found = []
    for row, text in numbered(parts, rows):
        part = part_of(text)
        if part is None:
            raise DataError(f"{where}, row {row}: split {text!r:.40} is not train, val or test")
        found.append(part)
    return found


def _warn_of_gaps(
    place: str, class_names: Sequence[str], y: np.ndarray, sites: np.ndarray, parts: np.ndarray
) -> None:
    """Warns of sites and classes without training or test samples, and of sites alike in name."""
    names = np.unique(sites).tolist()
    for kind, known, owners in (
        ("site", names, sites),
        ("class", class_names, np.array(class_names)[y]),
    ):
        for part in ("train", "test"):
            if lacking := sorted(set(known) - set(owners[parts == part].tolist())):
                has = "has" if len(lacking) == 1 else "have"
                warn(f"{place}: {listed(kind, lacking)} {has} no {_WORDS[part]} samples")
    used = [name for index, name in enumerate(class_names) if (y == index).any()]
    for kind, meant, known in (("sites", "clients", names), ("classes", "classes", used)):
        for one, other in similar(known):
            warn(
                f"{place}: {kind} {one!r} and {other!r} differ only in case, blanks or the like; "
                f"they are two {meant}, unless join_names is set"
            )
