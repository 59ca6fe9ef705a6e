"""Every combination of method, aggregator, normalization, precision, participation, client, export.

    python -m tests.matrix

prints how many combinations there are, and how many of them are refused. The axes come from the
registries, so a new method or aggregator is combined with everything by being registered.

A combination is either refused at the start, or it is trained for three rounds. Then all numbers
must be finite; a third round from a saved and restored state must equal the one that follows
directly; the exported model must answer in a fresh process as the model in memory does, and as
often correctly as the evaluation counted; and the aggregator, with its effect switched off, must
give the mean of what the clients computed.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import random
import subprocess
import sys
import sysconfig
import types
from collections import OrderedDict
from pathlib import Path
from unittest import mock

import numpy as np
import tensorflow as tf

from tests import support
from tff_pcdd import data, export, methods, models
from tff_pcdd.errors import SettingError
from tff_pcdd.export import exporter, saved_model
from tff_pcdd.federated import SGD, aggregators, build_process, upload
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.models.precision import PRECISIONS
from tff_pcdd.training import ExperimentConfig, TrainingConfig, planning, trees

# Numbers of the clients of `support` with few samples.
CLIENTS = {"empty": 4, "one sample": 2, "one class": 3}
AXES = {
    "method": methods.names(),
    "aggregator": aggregators.names(),
    "normalization": ["batch", "group", "personal"],
    "precision": [*PRECISIONS],
    "participation": ["full", "partial"],
    "client": list(CLIENTS),
    "export": ["global", "personal"],
}
# Settings with which an aggregator does nothing but average, as the aggregator mean does.
WITHOUT_EFFECT = {
    "robust": {"zeroing": False, "clipping": False},
    "compressed": {"zeroing": False, "clipping": False, "threshold": 10**9},
    "secure": {"zeroing": False, "clipping": False},
    "dp": {"noise_multiplier": 0.0, "clip": 1e6},
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A combination; `client` takes part in every round, and it is its model that is exported."""

    method: str
    aggregator: str
    normalization: str
    precision: str
    participation: str
    client: str
    export: str

    @property
    def traced(self) -> tuple[str, str, str]:
        """What combinations that share their traced computations have in common."""
        return self.method, self.normalization, self.precision

    @functools.cached_property
    def pairs(self) -> frozenset[tuple]:
        """All pairs of two values, with their axes."""
        values = zip(AXES, dataclasses.astuple(self), strict=True)
        return frozenset(itertools.combinations(values, 2))

    def __str__(self) -> str:
        rest = (self.aggregator, self.participation, self.client, self.export)
        return "-".join((*self.traced, *rest)).replace(" ", "_")


@functools.cache
def cells() -> tuple[Cell, ...]:
    """All combinations."""
    return tuple(Cell(*values) for values in itertools.product(*AXES.values()))


@dataclasses.dataclass(frozen=True)
class Tiny(models.NormalizationOption, models.ImageBackbone):
    """Two dense layers with a normalization between them."""

    name = "tiny"

    def network(self, input_shape, projection_dim):
        inputs = tf.keras.Input(input_shape)
        h = tf.keras.layers.Dense(8)(tf.keras.layers.Flatten()(inputs))
        h = models.normalize(h, self.normalization)
        h = tf.keras.layers.Dense(16, activation="relu")(h)
        return tf.keras.Model(inputs, models.project(h, projection_dim))


def config_of(cell: Cell) -> ExperimentConfig:
    """The settings of a combination.

    Raises:
        SettingError: they are refused.
    """
    personal = cell.normalization == "personal"
    backbone = Tiny(normalization="batch" if personal else cell.normalization)
    return ExperimentConfig(
        method=methods.create(cell.method),
        data=data.DataConfig(partition=data.partitions.create("class", num_clients=5)),
        model=models.ModelConfig(
            backbone=backbone,
            bn="personal" if personal else "averaged",
            precision=cell.precision,
        ),
        aggregator=aggregators.create(cell.aggregator),
        training=TrainingConfig(
            rounds=3,
            clients_per_round=3 if cell.participation == "partial" else 0,
            local_epochs=2,
            batch_size=4,
            optimizer=SGD(learning_rate=0.05, weight_decay=1e-3, clip_norm=5.0),
        ),
    )


def refusal(cell: Cell) -> SettingError | None:
    """Why a combination is refused, decided without training; None if it is not."""
    if error := _refusal(cell.method, cell.aggregator, cell.normalization):
        return error
    clients = "none" if cell.export == "global" else "all"
    try:
        exporter.check_choice(methods.create(cell.method), export.ExportOptions(clients=clients))
    except SettingError as error:
        return error
    return None


@functools.cache
def _refusal(method: str, aggregator: str, normalization: str) -> SettingError | None:
    cell = Cell(method, aggregator, normalization, "float32", "partial", "empty", "personal")
    # Neither the network nor what clients send depends on the aggregator, and they take most of
    # the time.
    spec, sent = _planned(method, normalization)
    with (
        mock.patch.object(planning, "planned_spec", lambda _: spec),
        mock.patch.object(upload, "upload_of", lambda _: sent),
    ):
        try:
            planning.check(config_of(cell))
        except SettingError as error:
            return error
    return None


@functools.cache
def _planned(method: str, normalization: str):
    cell = Cell(method, "mean", normalization, "float32", "partial", "empty", "personal")
    spec = planning.planned_spec(config_of(cell))
    return spec, upload.upload_of(spec)


@functools.cache
def sample(seed: int = 0) -> list[Cell]:
    """Combinations that are not refused and contain every pair of values that any of them has.

    Chosen greedily: of those with the most new pairs, one that shares its computations with a
    chosen one.
    """
    remaining = [cell for cell in cells() if refusal(cell) is None]
    random.Random(seed).shuffle(remaining)
    missing = set().union(*(cell.pairs for cell in remaining))
    chosen: list[Cell] = []
    traced: set[tuple] = set()
    while missing:
        best = max(remaining, key=lambda c: (len(c.pairs & missing), c.traced in traced))
        chosen.append(best)
        traced.add(best.traced)
        missing -= best.pairs
    return sorted(chosen, key=str)


def federation() -> data.Federation:
    """The clients of `support`: two with two classes, one sample, one class, nothing."""
    inputs = [client["x"] for client in support.CLIENTS]
    ends = np.cumsum([len(x) for x in inputs])
    test = data.Examples(support.TEST["x"], support.TEST["y"])
    everything = np.arange(len(test))
    return data.Federation(
        name="tiny",
        num_classes=support.NUM_CLASSES,
        class_names=tuple(f"class {label}" for label in range(support.NUM_CLASSES)),
        input_spec=support.SPEC,
        train=data.Examples(
            np.concatenate(inputs), np.concatenate([client["y"] for client in support.CLIENTS])
        ),
        test=test,
        clients=tuple(
            data.ClientIndices(str(number), np.arange(end - len(x), end), everything)
            for number, (end, x) in enumerate(zip(ends, inputs, strict=True))
        ),
    )


class Bench:
    """Trains, restores and exports the combinations that share their traced computations.

    Args:
        cell: one of them.
        fresh: loads exported models in another process.
    """

    def __init__(self, cell: Cell, fresh: FreshProcess):
        # A cohort may have fewer clients than the number for which computations are traced.
        config = config_of(dataclasses.replace(cell, participation="full"))
        self._fresh = fresh
        self._federation = federation()
        self._spec = planning.training_spec(config, self._federation)
        self._tensors = build_tensor_computations(self._spec)
        self._process = functools.cache(self._process)
        self._trained = functools.cache(self._trained)
        self._simulation = functools.cache(self._simulation)
        self._personal_models = functools.cache(self._personal_models)

    def check(self, cell: Cell, directory: Path) -> None:
        """Raises an AssertionError if anything about a combination is not as it should be."""
        process, trained = (
            self._process(cell.aggregator),
            self._trained(cell.aggregator, cell.client, cell.participation, directory),
        )
        self._check_export(cell, process, *trained, directory)

    def _process(self, aggregator: str, **options):
        made = aggregators.create(aggregator, **options)
        return build_process(self._spec, made, tensors=self._tensors)

    def _trained(self, aggregator, client, participation, directory):
        """The server's state and the clients' states after three rounds, which are checked."""
        number = CLIENTS[client]
        everybody = list(range(len(support.CLIENTS)))
        cohorts = [everybody] * 3
        if participation == "partial":
            cohorts = [[0, 1, number], [number], [1, number, 0]]
        self._check_mean(aggregator, cohorts[0])
        process = self._process(aggregator)
        state, clients, _ = support.run_rounds(process, process.initialize(), {}, cohorts[:2])
        path = directory / "state.npz"
        trees.save_tree(path, [state, clients])
        state, clients, metrics = support.run_rounds(process, state, clients, cohorts[2:], first=2)
        again, again_clients = trees.load_tree(path, [state, clients])
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

    def _check_mean(self, aggregator: str, cohort: list[int]) -> None:
        """Without its effect, an aggregator gives the mean of the clients' changes."""
        if aggregator not in WITHOUT_EFFECT:
            return
        process = self._process(aggregator, **WITHOUT_EFFECT[aggregator])
        state = process.initialize()
        message = self._tensors.make_message(state["weights"], state["server"], 0)
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
        server = OrderedDict(weights=state["weights"], server=state["server"], round=0)
        wanted, *_ = self._tensors.server_update(
            server, update, statistics, sums, float(len(cohort))
        )
        after, _, _ = support.run_rounds(process, state, {}, [cohort])
        for a, b in zip(tf.nest.flatten(after["weights"]), tf.nest.flatten(wanted), strict=True):
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


class FreshProcess:
    """A process that cannot import the project, and answers for exported models.

    Args:
        directory: for inputs and answers.
    """

    def __init__(self, directory: Path):
        self._answers = directory / "answers.npz"
        np.save(directory / "images.npy", support.TEST["x"])
        script = Path(__file__).with_name("matrix_answers.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, sysconfig.get_paths()["purelib"], directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def answers(self, model: Path) -> dict[str, np.ndarray]:
        """The answers of a SavedModel to the test images."""
        self._process.stdin.write(f"{model}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "answered\n", "the fresh process failed"
        with np.load(self._answers) as answers:
            return dict(answers)

    def close(self) -> None:
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Prints the numbers of combinations."""
    everything = cells()
    print(f"{' × '.join(AXES)}: {len(everything)} = ", end="")
    print(" · ".join(str(len(values)) for values in AXES.values()))
    assert len(everything) == math.prod(map(len, AXES.values()))
    refused = [cell for cell in everything if refusal(cell)]
    reasons = collections.Counter(refusal(cell).reason for cell in refused)
    print(f"refused at the start: {len(refused)}; trained: {len(everything) - len(refused)}")
    for reason, number in reasons.most_common():
        print(f"{number:6d}  {reason}")
    print(f"sample in which every pair occurs: {len(sample())}")


if __name__ == "__main__":
    main()
