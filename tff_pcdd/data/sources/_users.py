"""The samples of each user, and the choice of some users."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.sources import LoadRequest
from tff_pcdd.errors import SettingError


def choose_users(
    train: Examples,
    test: Examples,
    users: tuple[ClientIndices, ...],
    request: LoadRequest,
    place: str | os.PathLike,
) -> tuple[Examples, Examples, tuple[ClientIndices, ...]]:
    """Keeps as many users as are asked for, and only the samples that they hold.

    A test set without users is kept whole.
    """
    number = request.max_clients
    if number is None:
        return train, test, users
    if number > len(users):
        raise SettingError("max_clients", number, f"{place} has only {len(users)} users")
    rng = np.random.default_rng(request.seed)
    chosen = [users[i] for i in np.sort(rng.choice(len(users), number, replace=False))]
    train, train_rows = _gather(train, [user.train for user in chosen])
    test_rows = [user.test for user in chosen]
    if any(user.test.size for user in users):
        test, test_rows = _gather(test, test_rows)
    names = [user.client_id for user in chosen]
    return train, test, tuple(map(ClientIndices, names, train_rows, test_rows))


def _gather(examples: Examples, rows: Sequence[np.ndarray]) -> tuple[Examples, list[np.ndarray]]:
    """The samples in some rows, each once, and the new rows of each client."""
    every = np.concatenate(rows)
    kept = np.unique(every)
    if len(kept) < len(every):
        # Clients may share samples.
        return examples.take(kept), [np.searchsorted(kept, own) for own in rows]
    ends = np.cumsum([len(part) for part in rows])
    return examples.take(every), np.split(np.arange(ends[-1]), ends[:-1])


def by_user(train_users: Sequence[str], test_users: Sequence[str]) -> tuple[ClientIndices, ...]:
    """The samples of each user, in the order of the names, from the user of each sample."""
    train, test, nothing = rows_of(train_users), rows_of(test_users), np.empty(0, np.int64)
    return tuple(
        ClientIndices(name, train.get(name, nothing), test.get(name, nothing))
        for name in sorted({*train, *test})
    )


def rows_of(owners: npt.ArrayLike) -> dict[str, np.ndarray]:
    """The positions of each owner's samples, in the order of the names."""
    names, numbers = np.unique(np.asarray(owners), return_inverse=True)
    order, sizes = np.argsort(numbers, kind="stable"), np.bincount(numbers)
    # What is behind the last end is empty.
    return dict(zip(names.tolist(), np.split(order, np.cumsum(sizes)), strict=False))
