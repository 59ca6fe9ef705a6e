"""Who holds which sample: by class, by a Dirichlet draw, or evenly.

Every partitioner works in two steps. First a count matrix says how many samples of each class each
client receives, then each class's samples are shuffled and dealt out by these counts. The local
*test* parts are dealt by the same matrix, scaled to the test set, so a client is tested on the
distribution that it trains on. Parts are disjoint and complete unless stated otherwise.

Sources: FedGELA (Fan et al., NeurIPS 2023) for the PxCy and the capped Dirichlet partition of
training and test sets, FedMR (Fan et al., TMLR 2024) for the smallest client, FedLoGe (Xiao et al.,
ICLR 2024) for the sample-wise Dirichlet partition and its overlapping local test sets.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tff_pcdd.data.errors import DataError

# Streams of randomness. Each gets a generator of its own, so that the training part does not
# depend on whether a test set is split along with it.
_OWNERS, _TRAIN, _TEST = range(3)

# Dirichlet draws before giving up on the smallest client.
_MAX_TRIES = 500


@dataclasses.dataclass(frozen=True)
class Split:
    """A partition of a training and a test set.

    Attributes:
        train: for each client the sorted int64 indices of its training samples.
        test: for each client the sorted int64 indices of its test samples.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]


def partition_by_class(labels, num_clients, classes_per_client, seed) -> list[np.ndarray]:
    """Gives every client `classes_per_client` classes (FedGELA's PxCy, section 5).

    Args:
        labels: integer class of every sample, [n].
        num_clients: P, the number of clients.
        classes_per_client: y, the number of distinct classes of every client.
        seed: a non-negative integer; the partition is a function of it.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        DataError: if counts are not positive, a client would need more classes than there are, or
            the clients together have fewer slots than there are classes.

    Example:
        >>> labels = np.repeat(np.arange(4), 6)
        >>> parts = partition_by_class(labels, num_clients=2, classes_per_client=2, seed=0)
        >>> [sorted(set(labels[part].tolist())) for part in parts]
        [[0, 1], [2, 3]]
    """
    return list(split_by_class(labels, None, num_clients, classes_per_client, seed).train)


def partition_dirichlet(
    labels, num_clients, concentration, seed, min_samples=10, assignment="class"
) -> list[np.ndarray]:
    """Divides every class among the clients by proportions from a symmetric Dirichlet.

    Args:
        labels: integer class of every sample, [n].
        num_clients: the number of clients.
        concentration: of the Dirichlet; small is uneven, 10,000 is close to even.
        seed: a non-negative integer; the partition is a function of it.
        min_samples: the draw is repeated until every client has as many samples.
        assignment: "class" cuts each class at the proportions and gives nothing more to a client
            that already holds its even share n / num_clients (FedGELA, FedMR); "sample" sends
            every sample to a client of its own draw, without that cap (FedLoGe).

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        DataError: if an argument is out of bounds or no draw reaches `min_samples`.
    """
    split = split_dirichlet(
        labels, None, num_clients, concentration, seed, min_samples, assignment=assignment
    )
    return list(split.train)


def partition_iid(labels, num_clients, seed) -> list[np.ndarray]:
    """Shuffles the samples and deals them out in nearly equal numbers.

    Args:
        labels: integer class of every sample, [n].
        num_clients: the number of clients.
        seed: a non-negative integer; the partition is a function of it.

    Returns:
        For each client the sorted indices of its samples; disjoint and complete.

    Raises:
        DataError: if there are fewer samples than clients.
    """
    return list(split_iid(labels, None, num_clients, seed).train)


def split_by_class(
    train_labels, test_labels, num_clients, classes_per_client, seed, num_classes=None
) -> Split:
    """Partitions training and test set by class with the same owners.

    The clients' slots are walked through in order. Labels 0 … C-1 are handed out once each, so the
    first clients hold disjoint runs of classes; every further slot gets a random class that its
    client lacks. Each class is then divided nearly equally among its owners.

    Args:
        train_labels: integer class of every training sample, [n].
        test_labels: the same for the test samples, or None.
        num_clients: the number of clients.
        classes_per_client: the number of distinct classes of every client.
        seed: a non-negative integer.
        num_classes: C; by default one more than the largest label.

    Returns:
        The `Split`; its test part is empty without `test_labels`.

    Raises:
        DataError: as `partition_by_class`.
    """
    train_labels, test_labels, num_classes = _check(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    _check_count("classes_per_client", classes_per_client)
    if classes_per_client > num_classes:
        raise DataError(
            f"classes_per_client={classes_per_client}: there are only {num_classes} classes"
        )
    if num_clients * classes_per_client < num_classes:
        raise DataError(
            f"{num_clients} clients with classes_per_client={classes_per_client} cannot hold all "
            f"{num_classes} classes: at least {-(-num_classes // classes_per_client)} clients or "
            f"{-(-num_classes // num_clients)} classes per client are needed"
        )
    owned = _own_classes(num_clients, classes_per_client, num_classes, _rng(seed, _OWNERS))
    train_counts = _equal_shares(owned, np.bincount(train_labels, minlength=num_classes))
    test_counts = _equal_shares(owned, np.bincount(test_labels, minlength=num_classes))
    return Split(
        train=_deal(train_labels, train_counts, _rng(seed, _TRAIN)),
        test=_deal(test_labels, test_counts, _rng(seed, _TEST)),
    )


def split_dirichlet(
    train_labels,
    test_labels,
    num_clients,
    concentration,
    seed,
    min_samples=10,
    num_classes=None,
    assignment="class",
    local_test="disjoint",
) -> Split:
    """Partitions training and test set by the same Dirichlet proportions.

    Two things differ from FedGELA's code, which cuts the test set by a cap and rounding of its own:
    here the test set follows the counts that the training set got, so no client is tested on a
    class which it was denied; and small clients are drawn again (the paper's "at least one batch").

    Args:
        train_labels: integer class of every training sample, [n].
        test_labels: the same for the test samples, [m], or None.
        num_clients: the number of clients.
        concentration: of the Dirichlet.
        seed: a non-negative integer.
        min_samples: smallest number of training samples of a client; 0 accepts every draw.
        num_classes: C; by default one more than the largest label.
        assignment: "class" or "sample", see `partition_dirichlet`.
        local_test: "disjoint" divides the test samples of each class in the ratio of the training
            samples; "overlapping" draws int(n_kc / n · m) test samples of class c for client k
            without replacement (at most all of them), independently for each client, so that
            clients share samples (FedLoGe's code).

    Returns:
        The `Split`; its test part is empty without `test_labels`.

    Raises:
        DataError: as `partition_dirichlet`.
    """
    train_labels, test_labels, num_classes = _check(
        train_labels, test_labels, num_clients, seed, num_classes
    )
    if not (np.isfinite(concentration) and concentration > 0):
        raise DataError(f"concentration={concentration}: must be a finite number greater than 0")
    if min_samples < 0:
        raise DataError(f"min_samples={min_samples}: must not be negative")
    if assignment not in _ASSIGNMENTS:
        raise DataError(f"assignment={assignment!r}: choose one of {', '.join(_ASSIGNMENTS)}")
    if local_test not in ("disjoint", "overlapping"):
        raise DataError(f"local_test={local_test!r}: choose disjoint or overlapping")
    if num_clients * min_samples > len(train_labels):
        raise DataError(
            f"{num_clients} clients with min_samples={min_samples} need "
            f"{num_clients * min_samples} training samples, there are {len(train_labels)}"
        )
    train_sizes = np.bincount(train_labels, minlength=num_classes)
    draw = _ASSIGNMENTS[assignment]
    rng = _rng(seed, _OWNERS)
    smallest = -1
    for _ in range(_MAX_TRIES):
        counts = draw(train_sizes, num_clients, concentration, rng)
        smallest = max(smallest, counts.sum(axis=1).min())
        if smallest >= min_samples:
            break
    else:
        raise DataError(
            f"concentration={concentration} with {num_clients} clients: in {_MAX_TRIES} draws the "
            f"smallest client had at most {smallest} of min_samples={min_samples} samples; use a "
            "larger concentration, fewer clients or a smaller min_samples"
        )
    train = _deal(train_labels, counts, _rng(seed, _TRAIN))
    test_rng = _rng(seed, _TEST)
    if local_test == "overlapping":
        return Split(train, _draw_overlapping(test_labels, counts, test_rng))
    test_sizes = np.bincount(test_labels, minlength=num_classes)
    test_counts = np.zeros_like(counts)
    for c in range(num_classes):
        # A class without training samples has no owner: it is divided evenly.
        weights = counts[:, c] if train_sizes[c] else np.ones(num_clients)
        test_counts[:, c] = _cut(weights / weights.sum(), test_sizes[c])
    return Split(train, _deal(test_labels, test_counts, test_rng))


def split_iid(train_labels, test_labels, num_clients, seed, num_classes=None) -> Split:
    """Shuffles training and test set and deals each out in nearly equal numbers.

    Args:
        train_labels: integer class of every training sample, [n].
        test_labels: the same for the test samples, or None.
        num_clients: the number of clients.
        seed: a non-negative integer.
        num_classes: only checked against the labels.

    Returns:
        The `Split`; its test part is empty without `test_labels`.

    Raises:
        DataError: as `partition_iid`.
    """
    train_labels, test_labels, _ = _check(train_labels, test_labels, num_clients, seed, num_classes)
    if len(train_labels) < num_clients:
        raise DataError(
            f"{num_clients} clients cannot share {len(train_labels)} training samples: at most "
            f"{len(train_labels)} clients"
        )

    def deal(labels, stream):
        order = _rng(seed, stream).permutation(len(labels))
        return tuple(np.sort(part) for part in np.array_split(order, num_clients))

    return Split(deal(train_labels, _TRAIN), deal(test_labels, _TEST))


def _check(train_labels, test_labels, num_clients, seed, num_classes):
    """The labels as int64 arrays and the number of classes, after checks common to all."""
    _check_count("num_clients", num_clients)
    if seed != int(seed) or seed < 0:
        raise DataError(f"seed={seed}: must be a non-negative integer")
    arrays = []
    for name, labels in (("training", train_labels), ("test", test_labels)):
        labels = np.asarray([] if labels is None else labels)
        if labels.ndim != 1 or (labels.size and labels.dtype.kind not in "iu"):
            raise DataError(
                f"{name} labels have shape {labels.shape} and type {labels.dtype}: one integer per "
                "sample is needed"
            )
        if labels.size and labels.min() < 0:
            raise DataError(f"{name} labels: {labels.min()} is negative")
        arrays.append(labels.astype(np.int64))
    if not arrays[0].size:
        raise DataError("there are no training samples to divide")
    largest = max(int(labels.max()) for labels in arrays if labels.size)
    if num_classes is None:
        num_classes = largest + 1
    elif largest >= num_classes:
        raise DataError(f"label {largest} does not fit num_classes={num_classes}")
    return *arrays, num_classes


def _check_count(name, value):
    if value != int(value) or value < 1:
        raise DataError(f"{name}={value}: must be a positive integer")


def _rng(seed, stream) -> np.random.Generator:
    return np.random.default_rng([seed, stream])


def _own_classes(num_clients, classes_per_client, num_classes, rng) -> np.ndarray:
    """Who owns which class: bool [clients, classes] with `classes_per_client` per row."""
    owned = np.zeros((num_clients, num_classes), bool)
    following = 0
    for row in owned:
        first = min(classes_per_client, num_classes - following)
        row[following : following + first] = True
        following += first
        lacking = np.flatnonzero(~row)
        row[rng.choice(lacking, classes_per_client - first, replace=False)] = True
    return owned


def _equal_shares(owned, sizes) -> np.ndarray:
    """Divides each class nearly equally among its owners: int64 [clients, classes]."""
    owners = owned.sum(axis=0)
    share, rest = np.divmod(sizes, np.maximum(owners, 1))
    # The first `rest` owners, in client order, get one sample more.
    return owned * (share + (np.cumsum(owned, axis=0) <= rest))


def _draw_capped(sizes, num_clients, concentration, rng) -> np.ndarray:
    """Class by class, only among clients below their even share: int64 [clients, classes].

    FedGELA draws for all clients, sets the proportions of the full ones to zero and renormalises.
    The rest of a symmetric Dirichlet is a symmetric Dirichlet again, so drawing for the others
    alone is the same and cannot end in a division by zero.
    """
    counts = np.zeros((num_clients, len(sizes)), np.int64)
    held = np.zeros(num_clients, np.int64)
    for c, size in enumerate(sizes):
        below = np.flatnonzero(held * num_clients < sizes.sum())
        if not size or not below.size:
            continue
        counts[below, c] = _cut(rng.dirichlet(np.full(below.size, concentration)), size)
        held += counts[:, c]
    return counts


def _draw_samples(sizes, num_clients, concentration, rng) -> np.ndarray:
    """Every sample goes its own way, so counts are multinomial: int64 [clients, classes]."""
    alpha = np.full(num_clients, concentration)
    return np.stack([rng.multinomial(size, rng.dirichlet(alpha)) for size in sizes], axis=1)


_ASSIGNMENTS = {"class": _draw_capped, "sample": _draw_samples}


def _cut(proportions, size) -> np.ndarray:
    """Integer parts of `size`, cut where the cumulated proportions reach a whole sample."""
    # The margin keeps a share that is a whole number in exact arithmetic from losing a sample.
    ends = np.floor(np.cumsum(proportions) * size + 1e-6).astype(np.int64)
    ends[np.flatnonzero(proportions)[-1] :] = size
    return np.diff(np.minimum(ends, size), prepend=0)


def _deal(labels, counts, rng) -> tuple[np.ndarray, ...]:
    """Shuffles each class and gives client k `counts[k, c]` samples of class c."""
    owner = np.empty(len(labels), np.int64)
    for c in range(counts.shape[1]):
        members = np.flatnonzero(labels == c)
        if members.size:
            owner[rng.permutation(members)] = np.repeat(np.arange(len(counts)), counts[:, c])
    return tuple(np.split(np.argsort(owner, kind="stable"), np.cumsum(counts.sum(axis=1))[:-1]))


def _draw_overlapping(labels, train_counts, rng) -> tuple[np.ndarray, ...]:
    """FedLoGe's local test sets: int(n_kc / n · m) samples of each class, clients may share."""
    wanted = train_counts * len(labels) // train_counts.sum()
    members = [np.flatnonzero(labels == c) for c in range(train_counts.shape[1])]
    return tuple(
        np.sort(
            np.concatenate(
                [
                    rng.choice(of_class, min(number, of_class.size), replace=False)
                    for of_class, number in zip(members, row, strict=True)
                ]
            ).astype(np.int64)
        )
        for row in wanted
    )
