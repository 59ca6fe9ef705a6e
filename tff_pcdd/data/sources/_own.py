"""What folders, tables and arrays of your own have in common: sites, test parts and checks.

A loader brings samples with the names of their classes and sites; `pool` makes a data set of them,
whose users are the sites.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.holdout import hold_out
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.data.sources import DataSource, LoadRequest, PooledData
from tff_pcdd.data.sources._duplicates import warn_of_duplicates
from tff_pcdd.data.sources._image_lists import by_user, choose_users
from tff_pcdd.data.sources._names import in_order, is_missing, joined, numbered, similar
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import WIDE, option

# The share of each site's samples in its test part, where none is given.
_TEST_FRACTION = 0.2

# More classes than this are not counted on: classes of own data are known once they are read.
MANY_CLASSES = 2**31 - 1

PARTS = ("train", "test")

# What people call the parts.
_SPELLINGS = {
    **dict.fromkeys(("train", "training", "trn", "tr"), "train"),
    **dict.fromkeys(("test", "testing", "tst", "te"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
}


# What is done with a validation part of one's own.
VALIDATION_HINT = (
    "add its samples to train, and hold some out anew with validation_fraction=0.1, class by class "
    "at each site"
)


def part_of(name: str) -> str | None:
    """The part that a name stands for: train, test or val; None if it stands for none.

    Example:
        >>> part_of("Training"), part_of("VALID"), part_of("Berlin")
        ('train', 'val', None)
    """
    return _SPELLINGS.get(name.casefold().removesuffix("_set").removesuffix("set"))


@dataclasses.dataclass(frozen=True)
class OwnSamples:
    """Samples as a loader finds them.

    Attributes:
        place: the directory, file or array, for messages.
        x: raw inputs, or paths as bytes, [n, ...].
        labels: name of each sample's class.
        sites: name of each sample's site.
        parts: "train" or "test" for each sample; None if the test parts are to be chosen.
        hashes: hash of each sample's stored bytes, [n].
        shown: the name of a sample, for messages.
        notes: counts of what was left out.
        class_names: the classes in the order of their numbers, also those without samples; None
            for those of the labels, in their order.
    """

    place: str
    x: np.ndarray
    labels: Sequence[str]
    sites: Sequence[str]
    parts: Sequence[str] | None
    hashes: np.ndarray
    shown: Callable[[int], str]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    class_names: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class MissingValues:
    """Mixin for data with rows, in which values may be missing."""

    missing: str = option(
        "refuse",
        "What is done with rows whose label, site or feature is missing: empty, NA, N/A, NULL, "
        "None, ? and the like. refuse names the first one; drop leaves the rows out; keep takes "
        "these texts, unless they are empty, for names.",
        choices=("refuse", "drop", "keep"),
        group="Data",
        implied=True,
    )
    missing_markers: str | None = option(
        None,
        "Further texts that say that a value is missing, separated by commas, such as -9.",
        type=str,
        group="Data",
        implied=True,
    )

    def markers(self) -> list[str]:
        """The texts of `missing_markers`."""
        return [text.strip() for text in (self.missing_markers or "").split(",") if text.strip()]

    def complete_rows(
        self, place: str, columns: Mapping[str, Sequence[Any]], rows: Sequence[int] | None
    ) -> tuple[np.ndarray, dict[str, int]]:
        """The positions of the rows without missing values.

        Args:
            place: the table or array, for messages.
            columns: values that must not be missing, by what they are, for messages.
            rows: the numbers of the rows, for messages; counted from 0 by default.

        Returns:
            Positions, int64 [m], and the count of what was left out.

        Raises:
            DataError: if values are missing, and rows without them are refused.
        """
        count = len(next(iter(columns.values()), ()))
        if self.missing == "keep":
            return np.arange(count), {}
        markers = self.markers()
        lacking = np.zeros(count, bool)
        parts = []
        for what, values in columns.items():
            there = np.array([is_missing(value, markers) for value in values], bool)
            if not there.any():
                continue
            lacking |= there
            parts.append(f"{what} in {there.sum()}")
            if self.missing == "refuse":
                index = int(np.argmax(there))
                number = index if rows is None else rows[index]
                others = f", and in {there.sum() - 1} others" if there.sum() > 1 else ""
                raise DataError(
                    f"{place}, row {number}: {what} is missing (it is {str(values[index])!r:.40}"
                    f"{others}); missing=drop leaves such rows out, and missing=keep takes texts "
                    "for names"
                )
        if not parts:
            return np.arange(count), {}
        warn(f"{place}: {lacking.sum()} rows left out; missing: {', '.join(parts)[:200]}")
        return np.flatnonzero(~lacking), {"rows_left_out": int(lacking.sum())}


@dataclasses.dataclass(frozen=True)
class OwnSource(DataSource):
    """Mixin for data of your own, whose sites are the clients."""

    test_fraction: float | None = option(
        None,
        "Share of each site's samples to keep for testing, class by class, if the data have no "
        "test samples of their own; 0.2 by default.",
        type=float,
        above=0,
        maximum=0.9,
        group="Data",
    )
    test_seed: int = option(
        0,
        "Seed of the choice of test samples. It does not follow seed, so that a sample is never a "
        "training sample in one run and a test sample in another.",
        minimum=0,
        maximum=WIDE,
        group="Data",
    )
    join_names: bool = option(
        False,
        "Take names of classes, and of sites, for the same if they differ only in case, in blanks, "
        "underscores and dashes between words, in the form of a character, or in leading zeros.",
        group="Data",
        implied=True,
    )

    def suggested_partition(self) -> dict[str, str]:
        return {"partition": "natural"}

    def least_classes(self) -> int:
        return 2

    def pool(
        self,
        samples: OwnSamples,
        request: LoadRequest,
        describe: Callable[[np.ndarray], InputSpec],
        encode: Callable[[InputSpec], np.ndarray] | None = None,
    ) -> PooledData:
        """Makes a data set of samples: chooses test parts, and checks and numbers everything.

        Args:
            samples: the samples.
            request: which sites to keep.
            describe: the input spec, from the inputs of the training samples.
            encode: the inputs of all samples by this spec, if `samples` have others.

        Raises:
            DataError: if there are fewer than two classes, or no training or no test samples.
        """
        if self.join_names:
            samples = dataclasses.replace(
                samples, labels=joined(samples.labels), sites=joined(samples.sites)
            )
        place, used = samples.place, in_order(samples.labels)
        if len(used) < 2:
            found = f"only the class {used[0]}" if used else "no samples"
            raise DataError(f"{place}: holds {found}; at least two classes are needed")
        class_names = used if samples.class_names is None else list(samples.class_names)
        number = {name: index for index, name in enumerate(class_names)}
        y = np.array([number[label] for label in samples.labels], np.int32)
        sites = np.array(samples.sites)
        in_test = self._in_test(samples, y, sites)
        for part, chosen in (("training", ~in_test), ("test", in_test)):
            if not chosen.any():
                raise DataError(f"{place}: there are no {part} samples")
        notes = dict(samples.notes)
        notes |= warn_of_duplicates(
            place,
            samples.hashes,
            {
                "duplicates_at_several_sites": ("at several sites", samples.sites),
                "duplicates_in_both_parts": ("in the training and the test part", in_test.tolist()),
                "duplicates_of_several_classes": ("under several classes", samples.labels),
            },
            samples.shown,
        )
        _warn_of_gaps(place, class_names, y, sites, in_test)
        train, test = np.flatnonzero(~in_test), np.flatnonzero(in_test)
        spec = describe(samples.x[train])
        x = samples.x if encode is None else encode(spec)
        ids = np.array([samples.shown(row) for row in range(len(y))])
        users: tuple[ClientIndices, ...] = by_user(sites[train].tolist(), sites[test].tolist())
        kept_train, kept_test, users = choose_users(
            Examples(x[train], y[train], ids[train]),
            Examples(x[test], y[test], ids[test]),
            users,
            request.max_clients,
            request.seed,
            place,
        )
        content = hashlib.sha256(repr((class_names, samples.hashes.tolist())).encode())
        return PooledData(
            kept_train,
            kept_test,
            tuple(class_names),
            spec,
            users,
            notes,
            fingerprint=content.hexdigest(),
        )

    def _in_test(self, samples: OwnSamples, y: np.ndarray, sites: np.ndarray) -> np.ndarray:
        """Which samples are for testing, bool [n]."""
        if samples.parts is not None:
            if self.test_fraction is not None:
                raise SettingError(
                    "test_fraction",
                    self.test_fraction,
                    f"{samples.place} says itself which samples are for testing",
                )
            return np.array(samples.parts) == "test"
        fraction = _TEST_FRACTION if self.test_fraction is None else self.test_fraction
        in_test = np.zeros(len(y), bool)
        names, owners = np.unique(sites, return_inverse=True)
        ends = np.cumsum(np.bincount(owners))
        samples_of = np.split(np.argsort(owners, kind="stable"), ends[:-1])
        for site, own in zip(names.tolist(), samples_of, strict=True):
            # By name, so that the test part of a site does not depend on the other sites.
            seed = [self.test_seed, zlib.crc32(site.encode())]
            in_test[own[hold_out(y[own], fraction, seed)]] = True
        return in_test


def check_parts(parts: Sequence[str], where: str, rows: Sequence[int] | None = None) -> list[str]:
    """The part of each sample, from the texts "train" and "test" in any common spelling.

    Raises:
        DataError: if a text is another; names its row.
    """
    found = []
    for row, text in numbered(parts, rows):
        part = part_of(text)
        if part not in PARTS:
            hint = f"; {VALIDATION_HINT}" if part else ""
            raise DataError(f"{where}, row {row}: split {text!r:.40} is not train or test{hint}")
        found.append(part)
    return found


def _warn_of_gaps(
    place: str, class_names: Sequence[str], y: np.ndarray, sites: np.ndarray, in_test: np.ndarray
) -> None:
    """Warns of sites and classes without training or test samples, and of sites alike in name."""
    names = np.unique(sites).tolist()
    for kind, known, owners in (
        ("site", names, sites),
        ("class", class_names, np.array(class_names)[y]),
    ):
        for part, chosen in (("training", ~in_test), ("test", in_test)):
            if lacking := sorted(set(known) - set(owners[chosen].tolist())):
                has = "has" if len(lacking) == 1 else "have"
                warn(f"{place}: {listed(kind, lacking)} {has} no {part} samples")
    used = [name for index, name in enumerate(class_names) if (y == index).any()]
    for kind, meant, known in (("sites", "clients", names), ("classes", "classes", used)):
        for one, other in similar(known):
            warn(
                f"{place}: {kind} {one!r} and {other!r} differ only in case, blanks or the like; "
                f"they are two {meant}, unless join_names is set"
            )
