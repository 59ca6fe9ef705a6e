"""New clients: clients that take no part in training, on which the trained models are evaluated."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tff_pcdd.errors import SettingError

# Combined with the seed, so that no other draw with an equal seed depends on this one.
_NEW_CLIENTS = 15


def draw(num_clients: int, count: int, seed: int) -> list[int]:
    """Draws the new clients of a federation without replacement.

    Args:
        num_clients: number of all clients.
        count: number of new clients.
        seed: a non-negative integer, the only source of randomness.

    Returns:
        Their numbers in ascending order.

    Raises:
        SettingError: no client would be left to train.

    Example:
        >>> len(draw(num_clients=10, count=3, seed=0)), draw(num_clients=10, count=0, seed=0)
        (3, [])
    """
    check(num_clients, count)
    generator = np.random.default_rng([seed, _NEW_CLIENTS])
    # Drawing nothing needs no randomness.
    return np.sort(generator.choice(num_clients, count, replace=False)).tolist() if count else []


def check(num_clients: int, count: int) -> None:
    """Checks that clients are left to train.

    Raises:
        SettingError: none is left.
    """
    if count and count >= num_clients:
        reason = f"must be below {num_clients}, the number of clients, so that some train"
        raise SettingError("new_clients", count, reason)


def check_cohort(clients_per_round: int, num_clients: int, count: int) -> None:
    """Checks that the cohort can be drawn from the clients that are left.

    Raises:
        SettingError: too few are left.
    """
    if count and clients_per_round > num_clients - count:
        left = num_clients - count
        reason = f"leaves {left} of {num_clients} clients to draw clients_per_round="
        reason += f"{clients_per_round} from; must be at most {num_clients - clients_per_round}"
        raise SettingError("new_clients", count, reason)


def split(clients: Iterable, new: Iterable[int]) -> tuple[tuple, tuple]:
    """Divides the clients into those that train and the new ones, each in their order.

    Example:
        >>> split("abcd", [1, 3])
        (('a', 'c'), ('b', 'd'))
    """
    chosen, every = {*new}, [*enumerate(clients)]
    training = tuple(client for number, client in every if number not in chosen)
    return training, tuple(client for number, client in every if number in chosen)
