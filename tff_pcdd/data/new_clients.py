"""New clients: clients that take no part in training, on which the trained models are evaluated."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tff_pcdd.errors import SettingError, nearest, question
from tff_pcdd.text import composed, listed, quoted, separated

# Combined with the seed, so that no other draw with an equal seed depends on this one.
_NEW_CLIENTS = 15


@dataclasses.dataclass(frozen=True)
class NewClients:
    """Which clients of a federation are new: some that are drawn, or named ones.

    Attributes:
        drawn: how many are drawn, without replacement.
        names: the names of the new clients, if none is drawn.
        seed: a non-negative integer, the only source of randomness.

    Example:
        >>> ids = ["Lyon", "Oslo", "Rome"]
        >>> len(NewClients(drawn=2).choose(ids)), NewClients(names=("Rome", "Lyon")).choose(ids)
        (2, [0, 2])
    """

    drawn: int = 0
    names: tuple[str, ...] = ()
    seed: int = 0

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.names) or self.drawn

    def refused(self, reason: str, kind: str = "") -> SettingError:
        """An error about the setting by which they were chosen."""
        if self.names:
            return SettingError("new_client_names", quoted(*self.names), reason, kind=kind)
        return SettingError("new_clients", self.drawn, reason, kind=kind)

    def check(self, num_clients: int, clients_per_round: int = 0) -> None:
        """Checks that enough clients are left to train.

        Args:
            num_clients: number of all clients.
            clients_per_round: size of the cohorts that are drawn from those that are left.

        Raises:
            SettingError: none is left, or too few.
        """
        if not self.count:
            return
        if self.count >= num_clients:
            reason = f"must be below {num_clients}, the number of clients, so that some train"
            raise self.refused(f"{self.count} new clients {reason}" if self.names else reason)
        left = num_clients - self.count
        if clients_per_round > left:
            reason = f"leaves {left} of {num_clients} clients to draw clients_per_round="
            reason += f"{clients_per_round} from; must be at most {num_clients - clients_per_round}"
            raise self.refused(reason)

    def choose(self, ids: Sequence[str]) -> list[int]:
        """The numbers of the new clients among all, in ascending order.

        Args:
            ids: the names of all clients.

        Raises:
            SettingError: no client would be left to train, or there is no client of a name.
        """
        self.check(len(ids))
        if self.names:
            known = {composed(name): number for number, name in enumerate(ids)}
            for name in self.names:
                if name not in known:
                    meant = question([*map(quoted, nearest(name, known))])
                    meant = meant or f"; there are {listed([*map(quoted, ids)])}"
                    raise self.refused(f"there is no client {name!r:.80}{meant}")
            return sorted(known[name] for name in self.names)
        # Drawing nothing needs no randomness.
        if not self.drawn:
            return []
        generator = np.random.default_rng([self.seed, _NEW_CLIENTS])
        return np.sort(generator.choice(len(ids), self.drawn, replace=False)).tolist()


def named(setting: str | None) -> tuple[str, ...]:
    """The names in `new_client_names`; none if it is not given.

    Example:
        >>> named('Lyon, "Bern, West"'), named(None)
        (('Lyon', 'Bern, West'), ())
    """
    return () if setting is None else tuple(separated(setting))


def title(name: str) -> str:
    """What pictures and pages call a new client."""
    return f"{name} (new)"


def split(clients: Iterable, new: Iterable[int]) -> tuple[tuple, tuple]:
    """Divides the clients into those that train and the new ones, each in their order.

    Example:
        >>> split("abcd", [1, 3])
        (('a', 'c'), ('b', 'd'))
    """
    chosen, every = {*new}, [*enumerate(clients)]
    training = tuple(client for number, client in every if number not in chosen)
    return training, tuple(client for number, client in every if number in chosen)
