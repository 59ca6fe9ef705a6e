"""Cohorts, derived seeds and the server's samples: pure functions of the settings' seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tff_pcdd import data
from tff_pcdd.errors import SettingError

# Stand in for a round's number in other draws; 2**32 cannot collide with one. The server's samples
# share theirs with the cohort of round 3, but not its seed; another number would change the results
# of Ratio Loss.
_SERVER_SAMPLES, _ORDER = 3, 2**32


UNIFORM, BY_SAMPLES, ROUND_ROBIN = "uniform", "samples", "round_robin"


def sample_cohort(
    seed: int,
    round_number: int,
    num_clients: int,
    size: int,
    sampling: str = UNIFORM,
    samples: Sequence[int] = (),
) -> list[int]:
    """Draws the clients of a round without replacement, as a function of seed and round.

    Args:
        seed: the cohort seed.
        round_number: number of rounds before this one; 0 for the first round.
        num_clients: number of clients, K.
        size: number of clients in the cohort; 0 for all.
        sampling: `UNIFORM`; `BY_SAMPLES`, one client after the other, each time with probabilities
            proportional to the numbers of samples of those that are left; or `ROUND_ROBIN`, the
            next ones of all clients in an order that is drawn once.
        samples: numbers of training samples of all clients, for `BY_SAMPLES`; at least `size` of
            them are positive.

    Returns:
        Client numbers in ascending order.

    Example:
        >>> sample_cohort(seed=0, round_number=3, num_clients=4, size=0)
        [0, 1, 2, 3]
    """
    if size in (0, num_clients):
        return list(range(num_clients))
    if sampling == ROUND_ROBIN:
        order = np.random.default_rng([seed, _ORDER]).permutation(num_clients)
        return sorted(np.take(order, np.arange(size) + round_number * size, mode="wrap").tolist())
    generator = np.random.default_rng([seed, round_number])
    shares = np.divide(samples, np.sum(samples)) if sampling == BY_SAMPLES else None
    return sorted(generator.choice(num_clients, size, replace=False, p=shares).tolist())


def check_sampling(sampling: str, samples: Sequence[int], size: int) -> None:
    """Checks that cohorts can be drawn by samples."""
    present = int(np.count_nonzero(samples))
    if sampling == BY_SAMPLES and present < size:
        reason = f"only {present} clients have training samples, of which {size} are to be drawn"
        raise SettingError("cohort_sampling", sampling, reason)


def derive_seed(*entropy: int) -> np.ndarray:
    """Derives a seed for stateless TensorFlow operations, int32 [2], from integers."""
    return np.random.SeedSequence(entropy).generate_state(2).view(np.int32)


def server_samples(
    examples: data.Examples, seed: int, per_class: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the small balanced set that a server holds from training examples.

    Returns:
        Inputs as stored, and labels, ordered by class.
    """
    generator = np.random.default_rng([seed, _SERVER_SAMPLES])
    chosen = []
    for label in np.unique(examples.y):
        members = np.flatnonzero(examples.y == label)
        chosen.append(generator.choice(members, min(per_class, members.size), replace=False))
    taken = examples.take(np.concatenate(chosen))
    return taken.x, taken.y
