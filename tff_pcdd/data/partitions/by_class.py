"""PxCy: each of P clients holds y classes.

Federated Learning with Bilateral Curation for Partially Class-Disjoint Data (FedGELA); Z. Fan et
al.; NeurIPS 2023; section 5.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tff_pcdd import text
from tff_pcdd.data.partitions import NumClients, Split, register
from tff_pcdd.data.partitions._dealing import (
    ORDER,
    OWNERS,
    TEST,
    TRAIN,
    check_arguments,
    check_positive,
    deal,
    generator,
)
from tff_pcdd.data.sources import DataSource
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import option

_FIXED, _SHUFFLED = _CLASS_ORDERS = ("fixed", "shuffled")


@register
@dataclasses.dataclass(frozen=True)
class ByClass(NumClients):
    """Every client holds `classes_per_client` classes; see `split_by_class`."""

    name = "class"
    main_option = "classes_per_client"

    classes_per_client: int = option(2, "Number of classes that each client holds.", minimum=1)
    class_order: str = option(
        _FIXED,
        "Order in which classes are dealt to the clients: fixed (by number, so the classes of the "
        "first clients are the same for all seeds) or shuffled (by the data seed).",
        choices=_CLASS_ORDERS,
    )

    def check(self, source: DataSource) -> None:
        super().check(source)
        num_classes = source.info.num_classes
        if self.classes_per_client > num_classes:
            raise SettingError(
                "classes_per_client",
                self.classes_per_client,
                f"{source.name} has only {num_classes} classes",
            )
        # A data set with users may have fewer classes than its largest edition. Their number is
        # known only after loading.
        if not source.info.has_users:
            _check_coverage(self.num_clients, self.classes_per_client, num_classes)

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        return split_by_class(
            train_labels,
            test_labels,
            self.num_clients,
            self.classes_per_client,
            seed,
            num_classes,
            self.class_order,
        )

    def describe(self) -> str:
        shuffled = ", shuffled classes" if self.class_order == _SHUFFLED else ""
        return f"P{self.num_clients}C{self.classes_per_client}{shuffled}"

    def meaning(self) -> str:
        return (
            f"{text.plural(self.num_clients, 'client')}, each with training samples of "
            f"{text.plural(self.classes_per_client, 'class')}"
        )


def partition_by_class(
    labels: npt.ArrayLike,
    num_clients: int,
    classes_per_client: int,
    seed: int,
    class_order: str = _FIXED,
) -> list[np.ndarray]:
    """Gives every client `classes_per_client` classes (FedGELA's PxCy, section 5).

    Args:
        labels: integer class of each sample, [n].
        num_clients: P, the number of clients.
        classes_per_client: y, the number of distinct classes of every client.
        seed: a non-negative integer, the only source of randomness.
        class_order: "fixed" or "shuffled", see `split_by_class`.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        SettingError: if counts are not positive, a client would need more classes than there are,
            or the clients cannot hold all classes.
        DataError: if labels are not a vector of non-negative integers, or there are none.

    Example:
        >>> labels = np.repeat(np.arange(4), 6)
        >>> parts = partition_by_class(labels, num_clients=2, classes_per_client=2, seed=0)
        >>> [sorted(set(labels[part].tolist())) for part in parts]
        [[0, 1], [2, 3]]
    """
    split = split_by_class(
        labels, None, num_clients, classes_per_client, seed, class_order=class_order
    )
    return list(split.train)


def split_by_class(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    classes_per_client: int,
    seed: int,
    num_classes: int | None = None,
    class_order: str = _FIXED,
) -> Split:
    """Divides training and test set by class; each class has the same owners in both.

    Every client has `classes_per_client` places, which are filled client by client. The first C
    places get the classes 0 to C - 1, so the first clients hold disjoint runs of classes. Each
    further place gets a random class that its client does not hold yet. Then each class is divided
    nearly equally among its owners. If the order of the classes is fixed, the classes of the first
    places are the same for all seeds. If it is shuffled, the classes change places at random.

    The other arguments are those of `partition_by_class`.

    Args:
        train_labels: integer class of each training sample, [n].
        test_labels: the same for the test samples, or None.
        num_classes: C; by default one more than the largest label.
        class_order: "fixed" or "shuffled".

    Returns:
        The `Split`; its test parts are empty without `test_labels`.

    Raises:
        SettingError, DataError: see `partition_by_class`.
    """
    train, test, num_classes = check_arguments(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    check_positive("classes_per_client", classes_per_client)
    if classes_per_client > num_classes:
        raise SettingError(
            "classes_per_client", classes_per_client, f"there are only {num_classes} classes"
        )
    _check_coverage(num_clients, classes_per_client, num_classes)
    if class_order not in _CLASS_ORDERS:
        raise SettingError("class_order", class_order, f"choose one of {', '.join(_CLASS_ORDERS)}")
    owned = _own_classes(num_clients, classes_per_client, num_classes, generator(seed, OWNERS))
    if class_order == _SHUFFLED:
        owned = owned[:, generator(seed, ORDER).permutation(num_classes)]
    train_counts = _equal_shares(owned, np.bincount(train, minlength=num_classes))
    test_counts = _equal_shares(owned, np.bincount(test, minlength=num_classes))
    return Split(
        train=deal(train, train_counts, generator(seed, TRAIN)),
        test=deal(test, test_counts, generator(seed, TEST)),
    )


def _check_coverage(num_clients: int, classes_per_client: int, num_classes: int) -> None:
    """Refuses clients that cannot hold all classes together."""
    if num_clients * classes_per_client < num_classes:
        raise SettingError(
            "num_clients",
            num_clients,
            f"too few for all {num_classes} classes with classes_per_client={classes_per_client}; "
            f"at least {math.ceil(num_classes / classes_per_client)} clients or "
            f"{math.ceil(num_classes / num_clients)} classes per client are needed",
        )


def _own_classes(
    num_clients: int, classes_per_client: int, num_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Which client owns which class: bool [clients, classes], `classes_per_client` per row."""
    owned = np.zeros((num_clients, num_classes), bool)
    following = 0
    every = np.arange(num_classes)
    for row in owned:
        first = min(classes_per_client, num_classes - following)
        row[following : following + first] = True
        following += first
        lacking = np.flatnonzero(~row) if first else every
        row[rng.choice(lacking, classes_per_client - first, replace=False)] = True
    return owned


def _equal_shares(owned: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Divides each class nearly equally among its owners: int64 [clients, classes]."""
    owners = owned.sum(axis=0)
    share, rest = np.divmod(sizes, np.maximum(owners, 1))
    # The first `rest` owners, in client order, get one more sample.
    return owned * (share + (np.cumsum(owned, axis=0) <= rest))
