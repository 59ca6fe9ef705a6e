"""The training data of methods for which the samples of all clients are in one place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tff_pcdd import data
from tff_pcdd.experiment.cohorts import derive_seed
from tff_pcdd.experiment.config import Seeds
from tff_pcdd.experiment.model_evaluation import as_arrays
from tff_pcdd.federated.records import ClientData

# Separate the seeds of the pool from others that are derived from the same numbers.
_SAMPLES, _BATCHES = 4, 5


def pooled_data(
    federation: data.Federation, seeds: Seeds, round_number: int, cohort: Sequence[int]
) -> ClientData:
    """The data of a round, as if one client had them; `cohort` takes part in other methods."""
    chosen = sample_pool(federation, seeds.cohorts, round_number, cohort)
    train = federation.train.take(chosen)
    return ClientData(
        train=as_arrays(train),
        seed=derive_seed(seeds.batches, round_number, _BATCHES),
        cohort_index=np.int32(0),
    )


def sample_pool(
    federation: data.Federation, seed: int, round_number: int, cohort: Sequence[int]
) -> np.ndarray:
    """Draws the samples of a round, as a function of seed and round.

    Returns:
        Ascending indices into the training examples: of all samples that clients train on if all
        clients take part; else of as many of them as the cohort has, drawn without replacement.
    """
    pool = federation.trained_samples()
    if len(cohort) == federation.num_clients:
        return pool
    size = min(sum(federation.clients[client].train.size for client in cohort), pool.size)
    generator = np.random.default_rng([seed, round_number, _SAMPLES])
    return np.sort(generator.choice(pool, size, replace=False))


# The samples of clients as arrays, which actors can load themselves instead of receiving them.


def load(config: data.DataConfig) -> Iterator[Callable[[], list[np.ndarray]]]:
    """As `sources`, of the federation that settings describe."""
    return sources(config.build())


def sources(federation: data.Federation) -> Iterator[Callable[[], list[np.ndarray]]]:
    """For each client a function that returns its arrays, as `Simulation` passes them on."""
    for client in range(len(federation.every_client)):
        yield functools.partial(_arrays, federation, client)


def _arrays(federation: data.Federation, client: int) -> list[np.ndarray]:
    parts = [*federation.client_examples(client), federation.validation_examples(client)]
    return [array for part in parts for array in as_arrays(part).values()]
