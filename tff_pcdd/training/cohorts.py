"""Cohorts, derived seeds and the server's samples: pure functions of the settings' seeds."""

from __future__ import annotations

import numpy as np

from tff_pcdd import data

# Separates the draw of the server's samples from other draws with the same seed.
_SERVER_SAMPLES = 3


def sample_cohort(seed: int, round_number: int, num_clients: int, size: int) -> list[int]:
    """Draws the clients of a round without replacement, as a function of seed and round.

    Args:
        seed: the cohort seed.
        round_number: number of rounds before this one; 0 for the first round.
        num_clients: number of clients, K.
        size: number of clients in the cohort; 0 for all.

    Returns:
        Client numbers in ascending order.

    Example:
        >>> sample_cohort(seed=0, round_number=3, num_clients=4, size=0)
        [0, 1, 2, 3]
    """
    if size in (0, num_clients):
        return list(range(num_clients))
    generator = np.random.default_rng([seed, round_number])
    return sorted(generator.choice(num_clients, size, replace=False).tolist())


def derive_seed(*entropy: int) -> np.ndarray:
    """Derives a seed for stateless TensorFlow operations, int32 [2], from integers."""
    return np.random.SeedSequence(entropy).generate_state(2).view(np.int32)


def server_samples(
    examples: data.Examples, seed: int, per_class: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the small balanced set that a server holds from training examples.

    Args:
        examples: the training examples of the federation.
        seed: the data seed.
        per_class: number of samples of each class; a class with fewer samples gives all of them.

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
