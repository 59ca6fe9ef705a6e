"""Quantity skew: clients of uneven sizes, each with a random draw of all samples.

Federated Learning on Non-IID Data Silos: An Experimental Study (NIID-Bench); Q. Li, Y. Diao, Q.
Chen, B. He; ICDE 2022; section 4.
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
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class Quantity(NumClients):
    """Clients of uneven sizes that hold the classes as the whole does; see `split_quantity`."""

    name = "quantity"
    main_option = "size_concentration"

    size_concentration: float = option(
        0.5,
        "Concentration of the Dirichlet distribution of the clients' sizes; small values give "
        "uneven sizes.",
        above=0,
        minimum=CONCENTRATIONS[0],
        maximum=CONCENTRATIONS[1],
    )
    min_samples: int = min_samples_option()

    def split(
        self, train_labels: np.ndarray, test_labels: np.ndarray, num_classes: int, seed: int
    ) -> Split:
        return split_quantity(
            train_labels,
            test_labels,
            self.num_clients,
            self.size_concentration,
            seed,
            self.min_samples,
            num_classes,
        )

    def describe(self) -> str:
        return f"sizes by Dirichlet({self.size_concentration:g}), {self.num_clients} clients"

    def meaning(self) -> str:
        return (
            f"shuffled samples, divided into clients whose sizes are from a Dirichlet distribution "
            f"with concentration {self.size_concentration:g}, of which small values give uneven "
            f"sizes"
        )


def partition_quantity(
    labels: npt.ArrayLike,
    num_clients: int,
    size_concentration: float,
    seed: int,
    min_samples: int = 10,
) -> list[np.ndarray]:
    """Shuffles the samples and divides them by proportions from a symmetric Dirichlet.

    Args:
        labels: integer class of each sample, [n].
        num_clients: the number of clients.
        size_concentration: of the Dirichlet distribution of the clients' sizes.
        seed: a non-negative integer, the only source of randomness.
        min_samples: the sizes are drawn again until every client has at least this number of
            samples.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        SettingError: if an argument is out of bounds or no draw reaches `min_samples`.
        DataError: if labels are not a vector of non-negative integers, or there are none.
    """
    split = split_quantity(labels, None, num_clients, size_concentration, seed, min_samples)
    return list(split.train)


def split_quantity(
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike | None,
    num_clients: int,
    size_concentration: float,
    seed: int,
    min_samples: int = 10,
    num_classes: int | None = None,
) -> Split:
    """Divides the shuffled training samples by Dirichlet proportions, and the test samples alike.

    The test samples of each class are divided in the ratio of the training samples.

    Args:
        train_labels: integer class of each training sample, [n].
        test_labels: the same for the test samples, or None.
        num_clients: the number of clients.
        size_concentration: of the Dirichlet distribution of the clients' sizes.
        seed: a non-negative integer, the only source of randomness.
        min_samples: smallest number of training samples of a client; 0 accepts every draw.
        num_classes: C; by default one more than the largest label.

    Returns:
        The `Split`; its test parts are empty without `test_labels`.

    Raises:
        SettingError, DataError: see `partition_quantity`.
    """
    train, test, num_classes = check_arguments(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    check_concentration("size_concentration", size_concentration)
    rng = generator(seed, OWNERS)
    alpha = np.full(num_clients, size_concentration)
    sizes = draw_again(
        lambda: cut(rng.dirichlet(alpha), len(train))[:, None],
        len(train),
        num_clients,
        min_samples,
        ("size_concentration", size_concentration),
    )
    order = generator(seed, TRAIN).permutation(len(train))
    parts = tuple(np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1]))
    counts = np.stack([np.bincount(train[part], minlength=num_classes) for part in parts])
    test_counts = scale(counts, np.bincount(test, minlength=num_classes))
    return Split(parts, deal(test, test_counts, generator(seed, TEST)))
