"""Proportions drawn from a Dirichlet distribution: of each class over the clients, or of classes.

Sources: FedGELA (Fan et al., NeurIPS 2023) for the capped partition of training and test sets,
FedMR (Fan et al., TMLR 2024) for the smallest client, FedLoGe (Xiao et al., ICLR 2024) for the
sample-wise partition and its overlapping local test sets; Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification (Hsu, Qi, Brown, 2019) for
clients of equal sizes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.partitions import NumClients, Split, register
from tff_pcdd.data.partitions._dealing import (
    CONCENTRATIONS,
    OWNERS,
    TEST,
    TRAIN,
    check_arguments,
    check_concentration,
    cut,
    deal,
    draw_again,
    generator,
    min_samples_option,
    scale,
)
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import option

_LOCAL_TESTS = ("disjoint", "overlapping")


@register
@dataclasses.dataclass(frozen=True)
class Dirichlet(NumClients):
    """Dirichlet proportions of each class over the clients; see `split_dirichlet`."""

    name = "dirichlet"
    main_option = "concentration"

    concentration: float = option(
        0.5,
        "Concentration of the Dirichlet distribution; small values give uneven clients.",
        above=0,
        minimum=CONCENTRATIONS[0],
        maximum=CONCENTRATIONS[1],
    )
    min_samples: int = min_samples_option()
    assignment: str = option(
        "class",
        "How samples are assigned: class draws the proportions of each class over the clients "
        "(FedGELA), sample draws a client for each sample (FedLoGe), client draws the proportions "
        "of the classes of each client, which all have the same size (Hsu et al. 2019).",
        choices=("class", "sample", "client"),
    )
    local_test: str = option(
        "disjoint",
        "Local test sets of the clients: disjoint, or overlapping (each client draws its samples "
        "independently of the others, FedLoGe).",
        choices=_LOCAL_TESTS,
    )

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        return split_dirichlet(
            train_labels,
            test_labels,
            self.num_clients,
            self.concentration,
            seed,
            self.min_samples,
            num_classes,
            self.assignment,
            self.local_test,
        )

    def disjoint(self):
        return dataclasses.replace(self, local_test="disjoint")

    def describe(self) -> str:
        per_client = " per client" * (self.assignment == "client")
        return f"Dirichlet({self.concentration:g}){per_client}, {self.num_clients} clients"

    def meaning(self) -> str:
        if self.assignment == "client":
            return (
                f"clients of equal sizes whose proportions of classes are from a Dirichlet "
                f"distribution with concentration {self.concentration:g}, of which small values "
                f"give clients with few classes"
            )
        return (
            f"samples divided by proportions from a Dirichlet distribution with concentration "
            f"{self.concentration:g}, of which small values give uneven clients"
        )


def partition_dirichlet(
    labels: npt.ArrayLike,
    num_clients: int,
    concentration: float,
    seed: int,
    min_samples: int = 10,
    assignment: str = "class",
) -> list[np.ndarray]:
    """Divides every class among the clients by proportions from a symmetric Dirichlet.

    Args:
        labels: integer class of each sample, [n].
        num_clients: the number of clients.
        concentration: of the Dirichlet distribution; small values give uneven clients, 10,000
            nearly even ones.
        seed: a non-negative integer, the only source of randomness.
        min_samples: the draw is repeated until every client has at least this number of samples.
        assignment: "class" cuts each class at the proportions, and gives nothing more to a client
            that already holds its even share n / num_clients (FedGELA, FedMR); "sample" draws a
            client for each sample, without that cap (FedLoGe); "client" draws the proportions of
            the classes for each client, which then draws an even number of samples by them (Hsu et
            al.).

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        SettingError: if an argument is out of bounds or no draw reaches `min_samples`.
        DataError: if labels are not a vector of non-negative integers, or there are none.
    """
    split = split_dirichlet(
        labels, None, num_clients, concentration, seed, min_samples, assignment=assignment
    )
    return list(split.train)


def split_dirichlet(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    concentration: float,
    seed: int,
    min_samples: int = 10,
    num_classes: int | None = None,
    assignment: str = "class",
    local_test: str = "disjoint",
) -> Split:
    """Divides training and test set by the same Dirichlet proportions.

    With `assignment="client"`, client after client draws proportions q of the classes and then its
    n / num_clients training samples without replacement. If a class has no samples left, q of the
    other classes is renormalized, so the last clients have more of what the others left. q has the
    distribution Dir(α·p), with the shares p of the classes in the training set and α = C ·
    concentration. On balanced data, this is the concentration of each class. Hsu et al. state α.

    This differs from FedGELA's code in two ways. The code divides the test set with a separate cap
    and rounding; here the test set follows the counts of the training set, so no client is tested
    on a class for which it has no training samples. In addition, the partition is drawn again if a
    client is too small (the paper's "at least one batch").

    The other arguments are those of `partition_dirichlet`.

    Args:
        train_labels: integer class of each training sample, [n].
        test_labels: the same for the test samples, [m], or None.
        num_classes: C; by default one more than the largest label.
        local_test: "disjoint" divides the test samples of each class in the ratio of the training
            samples; "overlapping" draws int(n_kc / n · m) test samples of class c for client k
            without replacement (at most all of them), independently for each client, so that
            clients share samples (FedLoGe's code).

    Returns:
        The `Split`; its test parts are empty without `test_labels`.

    Raises:
        SettingError, DataError: see `partition_dirichlet`.
    """
    train, test, num_classes = check_arguments(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    check_concentration("concentration", concentration)
    _check_choices(assignment, local_test)
    train_sizes = np.bincount(train, minlength=num_classes)
    draw = _ASSIGNMENTS[assignment]
    rng = generator(seed, OWNERS)
    counts = draw_again(
        lambda: draw(train_sizes, num_clients, concentration, rng),
        len(train),
        num_clients,
        min_samples,
        ("concentration", concentration),
    )
    parts = deal(train, counts, generator(seed, TRAIN))
    test_rng = generator(seed, TEST)
    if local_test == "overlapping":
        return Split(parts, _draw_overlapping(test, counts, test_rng))
    test_counts = scale(counts, np.bincount(test, minlength=num_classes))
    return Split(parts, deal(test, test_counts, test_rng))


def _check_choices(assignment: str, local_test: str) -> None:
    for name, value, choices in (
        ("assignment", assignment, tuple(_ASSIGNMENTS)),
        ("local_test", local_test, _LOCAL_TESTS),
    ):
        if value not in choices:
            raise SettingError(name, value, f"choose one of {', '.join(choices)}")


def _draw_capped(
    sizes: np.ndarray, num_clients: int, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws counts by class, only for clients below their even share: int64 [clients, classes].

    FedGELA draws for all clients, sets the proportions of full ones to zero and renormalizes. The
    remaining proportions of a symmetric Dirichlet distribution follow a symmetric Dirichlet
    distribution again, so drawing only for the other clients is equivalent, and cannot divide by
    zero.
    """
    counts = np.zeros((num_clients, len(sizes)), np.int64)
    held = np.zeros(num_clients, np.int64)
    for c, size in enumerate(sizes):
        below = np.flatnonzero(held * num_clients < sizes.sum())
        if not size or not below.size:
            continue
        counts[below, c] = cut(rng.dirichlet(np.full(below.size, concentration)), size)
        held += counts[:, c]
    return counts


def _draw_samples(
    sizes: np.ndarray, num_clients: int, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws a client for each sample; returns multinomial counts, int64 [clients, classes]."""
    alpha = np.full(num_clients, concentration)
    return np.stack([rng.multinomial(size, rng.dirichlet(alpha)) for size in sizes], axis=1)


def _draw_clients(
    sizes: np.ndarray, num_clients: int, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """Draws the classes of each client, all of equal size: int64 [clients, classes].

    A client's samples are drawn together. Those of classes that have no samples left are drawn
    again, by the proportions of the other classes. The counts have the same distribution as those
    of samples that are drawn one after the other.
    """
    counts = np.zeros((num_clients, len(sizes)), np.int64)
    left, held = sizes.copy(), np.flatnonzero(sizes)
    alpha = concentration * len(held) * sizes / sizes.sum()
    share, rest = divmod(sizes.sum(), num_clients)
    for k, own in enumerate(counts):
        proportions = np.zeros(len(sizes))
        proportions[held] = rng.dirichlet(alpha[held])
        while lacking := share + (k < rest) - own.sum():
            available = np.flatnonzero((left > 0) & (proportions > 0))
            if not available.size:
                # Small proportions are rounded to zero.
                available = np.flatnonzero(left)
                proportions[available] = rng.dirichlet(alpha[available])
                continue
            chances = proportions[available] / proportions[available].sum()
            drawn = np.minimum(rng.multinomial(lacking, chances), left[available])
            own[available] += drawn
            left[available] -= drawn
    return counts


_ASSIGNMENTS = {"class": _draw_capped, "sample": _draw_samples, "client": _draw_clients}


def _draw_overlapping(
    labels: np.ndarray, train_counts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """FedLoGe's local test sets: int(n_kc / n · m) samples of each class; clients may share."""
    members = [np.flatnonzero(labels == c) for c in range(train_counts.shape[1])]
    wanted = train_counts * len(labels) // train_counts.sum()
    wanted = np.minimum(wanted, [of_class.size for of_class in members])
    drawn = []
    for row in wanted:
        # Most clients draw nothing from most classes, and drawing nothing needs no randomness.
        held = np.flatnonzero(row).tolist()
        own = [rng.choice(members[c], row[c], replace=False) for c in held]
        drawn.append(np.sort(np.concatenate([np.empty(0, np.int64), *own])))
    return tuple(drawn)
