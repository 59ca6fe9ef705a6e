"""What folders, tables and arrays of your own have in common: sites, test parts and checks.

A loader brings samples with the names of their classes and sites; `pool` makes a data set of them,
whose users are the sites.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from tff_pcdd.data.checks import listed, warn
from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.holdout import hold_out
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.data.sources import DataSource, LoadRequest, PooledData
from tff_pcdd.data.sources._duplicates import warn_of_duplicates
from tff_pcdd.data.sources._image_lists import by_user, choose_users
from tff_pcdd.data.sources._names import in_order, numbered, similar
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option

# The share of each site's samples in its test part, where none is given.
_TEST_FRACTION = 0.2

# More classes than this are not counted on: classes of own data are known once they are read.
MANY_CLASSES = 2**31 - 1

PARTS = ("train", "test")


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
    """

    place: str
    x: np.ndarray
    labels: Sequence[str]
    sites: Sequence[str]
    parts: Sequence[str] | None
    hashes: np.ndarray
    shown: Callable[[int], str]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


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
        group="Data",
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
    ) -> PooledData:
        """Makes a data set of samples: chooses test parts, and checks and numbers everything.

        Args:
            samples: the samples.
            request: which sites to keep.
            describe: the input spec, from the inputs of the training samples.

        Raises:
            DataError: if there are fewer than two classes, or no training or no test samples.
        """
        place, class_names = samples.place, in_order(samples.labels)
        if len(class_names) < 2:
            found = f"only the class {class_names[0]}" if class_names else "no samples"
            raise DataError(f"{place}: holds {found}; at least two classes are needed")
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
        ids = np.array([samples.shown(row) for row in range(len(y))])
        users: tuple[ClientIndices, ...] = by_user(sites[train].tolist(), sites[test].tolist())
        kept_train, kept_test, users = choose_users(
            Examples(samples.x[train], y[train], ids[train]),
            Examples(samples.x[test], y[test], ids[test]),
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
    """The part of each sample, from the texts "train" and "test" in upper or lower case.

    Raises:
        DataError: if a text is another; names its row.
    """
    for row, part in numbered(parts, rows):
        if part.lower() not in PARTS:
            raise DataError(f"{where}, row {row}: split {part!r:.40} is not train or test")
    return [part.lower() for part in parts]


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
    for one, other in similar(names):
        warn(f"{place}: sites {one!r} and {other!r} differ only in case; they are two clients")
