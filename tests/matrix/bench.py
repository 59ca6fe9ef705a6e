"""Trains, restores and exports combinations, and checks what comes out."""

from __future__ import annotations

import dataclasses
import functools
import types
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests import support
from tests.matrix import profiles
from tests.matrix.combinations import CLIENTS, Cell, config_of
from tests.matrix.fresh_process import FreshProcess
from tff_pcdd import export
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.cohorts import sample_cohort
from tff_pcdd.export import saved_model
from tff_pcdd.federated import LocalWork, TrainingSpec, aggregators, build_process
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.training import checkpoints

# Settings with which an aggregator does nothing but average, as the aggregator mean does.
WITHOUT_EFFECT = {
    "robust": {"zeroing": False, "clipping": False},
    "compressed": {"zeroing": False, "clipping": False, "threshold": 10**9},
    "secure": {"zeroing": False, "clipping": False},
    "dp": {"noise_multiplier": 0.0, "clip": 1e6},
}


def spec_of(cell: Cell) -> TrainingSpec:
    """What a combination and all that share its traced computations compute."""
    # A cohort may have fewer clients than the number for which computations are traced.
    config = config_of(dataclasses.replace(cell, participation="full"))
    profile = profiles.profile_of(*cell.traced)
    return planning.training_spec(profile.applied(config), support.federation())


def cohorts_of(work: LocalWork, client: int, sampling: str | None) -> list[list[int]]:
    """The clients that finish each of three rounds, as a simulation would draw them.

    Args:
        work: says who drops out.
        client: finishes every round, and is the only one in the second.
        sampling: how the others are drawn; None if all take part in every round.
    """
    sizes = [len(each["y"]) for each in support.CLIENTS]
    cohorts = [list(range(len(sizes)))] * 3
    if sampling is not None:
        drawn = [sample_cohort(0, number, len(sizes), 2, sampling, sizes) for number in (0, 2)]
        first, last = (sorted({*others, client}) for others in drawn)
        cohorts = [first, [client], last]
    return [
        [c for c in cohort if c == client or not work.drops_out(support.seed_of(0, number, c))]
        for number, cohort in enumerate(cohorts)
    ]


class Bench:
    """Trains, restores and exports the combinations that share their traced computations.

    Args:
        cell: one of them.
        fresh: loads exported models in another process.
    """

    def __init__(self, cell: Cell, fresh: FreshProcess):
        self._fresh = fresh
        self._federation = support.federation()
        self._spec = spec_of(cell)
        self._tensors = build_tensor_computations(self._spec)
        self._process = functools.cache(self._process)
        self._trained = functools.cache(self._trained)
        self._check_mean = functools.cache(self._check_mean)
        self._simulation = functools.cache(self._simulation)
        self._personal_models = functools.cache(self._personal_models)

    def check(self, cell: Cell, directory: Path, mean: bool = True) -> None:
        """Raises an AssertionError if anything about a combination is not as it should be.

        Args:
            cell: the combination.
            directory: for files.
            mean: whether to check that the aggregator, without its effect, gives the mean.
        """
        sampling = profiles.sampling_of(cell)
        if mean:
            self._check_mean(cell.aggregator, cell.client, sampling)
        process, trained = (
            self._process(cell.aggregator),
            self._trained(cell.aggregator, cell.client, sampling, directory),
        )
        self._check_export(cell, process, *trained, directory)

    def _process(self, aggregator: str, **options):
        made = aggregators.create(aggregator, **options)
        return build_process(self._spec, made, tensors=self._tensors)

    def _trained(self, aggregator, client, sampling, directory):
        """The server's state and the clients' states after three rounds, which are checked."""
        cohorts = cohorts_of(self._spec.local_work, CLIENTS[client], sampling)
        process = self._process(aggregator)
        state, clients, _ = support.run_rounds(process, process.initialize(), {}, cohorts[:2])
        path = directory / "state.npz"
        # Other clients may join in the third round.
        saved = [state, dict(clients)]
        checksum = checkpoints.save_tree(path, saved)
        state, clients, metrics = support.run_rounds(process, state, clients, cohorts[2:], first=2)
        again, again_clients = checkpoints.load_tree(path, saved, checksum)
        again, again_clients, _ = support.run_rounds(
            process, again, again_clients, cohorts[2:], first=2
        )
        if aggregator != "dp":
            # Its noise is drawn anew each time: noise that can be reproduced can be removed.
            support.assert_trees_equal((again, again_clients), (state, clients))
        for leaf in map(np.asarray, tf.nest.flatten((state, clients, metrics))):
            # The state of dp also contains names.
            assert leaf.dtype.kind != "f" or np.isfinite(leaf).all(), "not finite"
            # Whatever the backbone computes in, weights and all else that is kept are float32.
            assert leaf.dtype != tf.bfloat16.as_numpy_dtype, "kept in bfloat16"
        assert float(metrics["included"]) == len(cohorts[2])
        assert float(metrics["step_taken"]) == 1
        return state, clients

    def _check_mean(self, aggregator: str, client: str, sampling: str | None) -> None:
        """Without its effect, an aggregator gives the mean of the clients' changes."""
        if aggregator not in WITHOUT_EFFECT:
            return
        cohort, *_ = cohorts_of(self._spec.local_work, CLIENTS[client], sampling)
        process = self._process(aggregator, **WITHOUT_EFFECT[aggregator])
        state = process.initialize()
        message = self._tensors.make_message(state.weights, state.server, 0)
        results = [
            self._tensors.local_update(
                message,
                process.initial_client_state(support.seed_of(0, client)),
                support.client_data(client, 0, cohort_index=index),
            )
            for index, client in enumerate(cohort)
        ]
        weights = np.array([float(result["weight"]) for result in results])
        shares = weights / weights.sum()
        equal = np.full(len(cohort), 1 / self._spec.task.cohort_size)
        update = _mean([r["update"] for r in results], equal if aggregator == "dp" else shares)
        statistics = _mean([result["statistics"] for result in results], shares)
        sums = tf.nest.map_structure(
            lambda *v: np.sum(v, axis=0), *(r["totals"]["sums"] for r in results)
        )
        server = state._replace(aggregator=())
        wanted, *_ = self._tensors.server_update(
            server, update, statistics, sums, float(len(cohort))
        )
        after, _, _ = support.run_rounds(process, state, {}, [cohort])
        for a, b in zip(tf.nest.flatten(after.weights), tf.nest.flatten(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    def _simulation(self, aggregator: str) -> types.SimpleNamespace:
        """What an export needs of a simulation, besides its state and the data of clients."""
        return types.SimpleNamespace(
            spec=self._spec,
            process=self._process(aggregator),
            federation=self._federation,
            invoke=lambda computation, *arguments: computation(*arguments),
        )

    def _personal_models(self, aggregator: str) -> export.PersonalModels:
        return export.PersonalModels(self._simulation(aggregator))

    def _check_export(self, cell, process, state, clients, directory):
        """The exported model answers as the one in memory, and as the evaluation counted."""
        client = CLIENTS[cell.client]
        inputs = clients[client], support.client_data(client, 3, test=support.TEST)
        simulation = self._simulation(cell.aggregator)
        simulation.state, simulation.personal_inputs = state, {client: inputs}.get
        if cell.export == "global":
            model = export.global_model(simulation)
            counts = process.evaluate_global(state, support.TEST)
            correct = counts["correct"]["head"]
        else:
            model = self._personal_models(cell.aggregator).model(client)
            (counts,) = process.evaluate_personal(state, [inputs[0]], [inputs[1]])
            correct = counts["after"]
        assert int(counts["nonfinite"]) == 0
        path = directory / str(cell)
        saved_model.write(model, path)
        answers = self._fresh.answers(path)
        images = tf.constant(support.TEST["x"])
        compute = model.logits
        if cell.precision == "bfloat16":
            # Operations that a graph fuses round once, and eager ones each.
            compute = tf.function(compute, autograph=model.network.autograph)
        logits = compute(images)
        np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(logits), atol=1e-5)
        hits = answers["class_id"] == support.TEST["y"]
        found = np.bincount(support.TEST["y"][hits], minlength=support.NUM_CLASSES)
        np.testing.assert_array_equal(found, correct)


def _mean(values, shares):
    return tf.nest.map_structure(
        lambda *v: sum(
            s * np.asarray(x, np.float64) for s, x in zip(shares, v, strict=True)
        ).astype(np.float32),
        *values,
    )
