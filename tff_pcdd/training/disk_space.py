"""The disk space that the checkpoints of a run need, known before it is trained."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from tff_pcdd import directories
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.simulation import Simulation
from tff_pcdd.federated.type_sizes import count_bytes
from tff_pcdd.training.run_options import RunOptions


def check(simulation: Simulation, options: RunOptions, folders: Sequence[Path]) -> None:
    """Checks that there is enough space for the checkpoints of a run.

    What the folders of checkpoints and client states already contain will be deleted or needs no
    further space.
    """
    process = simulation.process
    needed = most_bytes(
        count_bytes(process.initialize.type_signature.result),
        count_bytes(process.initial_client_state.type_signature.result),
        simulation.config,
        options,
        simulation.federation.num_clients,
        keeps_best=simulation.spec.validation,
    )
    needed -= sum(_bytes_below(folder) for folder in folders)
    directories.check_space(folders[0].parent, needed, "the checkpoints of this run")


def most_bytes(
    server: int,
    client: int,
    config: ExperimentConfig,
    options: RunOptions,
    num_clients: int,
    *,
    keeps_best: bool = False,
) -> int:
    """The most bytes of states, of `server` and `client` each, in a run's checkpoints at a time."""
    rounds, every = config.training.rounds, options.checkpoint_every
    cohort = config.training.clients_per_round or num_clients
    # A checkpoint is written before the oldest is deleted. Each round may be the best so far.
    saved = rounds if keeps_best else math.ceil(rounds / every)
    checkpoints = min(options.keep_checkpoints + 1 + keeps_best, saved)
    # Clients that never take part have no state.
    states = min(num_clients, rounds * cohort)
    if config.training.warm_start is not None:
        states = num_clients
    if options.client_store == "memory":
        return checkpoints * (server + states * client)
    # The newest state of each client, and those that the older checkpoints refer to: the best one
    # to one of each client, the others to those of the rounds since.
    since = min(rounds, (checkpoints - keeps_best) * every) * cohort
    return checkpoints * server + (states * (1 + keeps_best) + since) * client


def _bytes_below(folder: Path) -> int:
    return sum(
        os.stat(os.path.join(parent, name), follow_symlinks=False).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    )
