"""The round loop: cohorts, rounds, evaluation, checkpoints, results.

    Experiment(ExperimentConfig(algorithm="fedgela"), "runs/fedgela").run()

A run that was stopped, however hard, goes on when it is started again with the same settings and
directory, and ends with the numbers of a run never stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
import os
import shutil
import statistics
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import data, evaluation, federated, files, models, runtime
from tff_pcdd.federated import SGD, Aggregation, Learning
from tff_pcdd.methods.method import Task
from tff_pcdd.options import OptionError
from tff_pcdd.training import diagnostic_plots, plots, sinks
from tff_pcdd.training.checkpoints import Checkpoint, CheckpointManager
from tff_pcdd.training.client_store import DiskStore, MemoryStore
from tff_pcdd.training.config import ExperimentConfig, RunOptions
from tff_pcdd.training.diagnostics import Diagnostics
from tff_pcdd.training.runs import check_directory, read_summary

# Salts that keep two sources with the same seed apart.
_BATCHES, _CLIENTS, _SERVER = 1, 2, 3

# Columns of metrics.csv for what a personal evaluation counts.
_PERSONAL_COLUMNS = {
    "after": "pa",
    "before": "pa_before",
    "after_masked": "pa_masked",
    "before_masked": "pa_before_masked",
}
# Those of them that are also taken on many, medium and few classes.
_PERSONAL_GROUP_COLUMNS = {"after": "pa", "before": "pa_before"}
# The same on what the clients held out.
_VALIDATION_COLUMNS = {"validation_after": "va_personal", "validation_before": "va_personal_before"}


def sample_cohort(seed: int, round_number: int, num_clients: int, size: int) -> list[int]:
    """The clients of a round, ascending: a function of (seed, round), without replacement.

    Args:
        seed: the cohort seed.
        round_number: 0 for the first round.
        num_clients: K.
        size: clients in the cohort; 0 for all.
    """
    if size in (0, num_clients):
        return list(range(num_clients))
    generator = np.random.default_rng([seed, round_number])
    return sorted(generator.choice(num_clients, size, replace=False).tolist())


def derive_seed(*entropy: int) -> np.ndarray:
    """A seed for stateless TensorFlow ops, int32 [2], from whole numbers."""
    return np.random.SeedSequence(entropy).generate_state(2).view(np.int32)


def server_samples(
    examples: data.Examples, seed: int, per_class: int
) -> tuple[np.ndarray, np.ndarray]:
    """A small balanced set that a server holds, drawn from training examples.

    Args:
        examples: the training examples of the federation.
        seed: the data seed.
        per_class: samples of each class that occurs, as far as there are so many.

    Returns:
        Inputs as stored and labels, ordered by class.
    """
    generator = np.random.default_rng([seed, _SERVER])
    chosen = []
    for label in np.unique(examples.y):
        members = np.flatnonzero(examples.y == label)
        chosen.append(generator.choice(members, min(per_class, members.size), replace=False))
    taken = examples.take(np.concatenate(chosen))
    return taken.x, taken.y


def build_learning(
    config: ExperimentConfig, federation: data.Federation, run: RunOptions
) -> Learning:
    """What is computed in a round of the experiment, given its data."""
    spec = federation.input_spec
    weights = None
    if config.pretrained_weights is not None:
        weights = models.read_weights(config.model, spec.shape, config.pretrained_weights)
    backbone = functools.partial(
        models.build,
        config.model,
        spec.shape,
        projection_dim=config.projection_dim,
        vocabulary_size=spec.vocabulary_size,
        norm=config.normalization,
        weights=weights,
    )
    with tf.Graph().as_default():
        feature_dim = backbone().output_shape[-1]
    config.check_features(feature_dim, federation.num_classes)
    return Learning(
        method=config.method(),
        task=Task(
            num_classes=federation.num_classes,
            feature_dim=feature_dim,
            backbone=backbone,
            class_counts=federation.class_counts(),
            seed=config.model_seed,
            num_rounds=config.rounds,
            cohort_size=config.clients_per_round or len(federation.clients),
            server_samples=lambda per_class: server_samples(
                federation.training_examples(), config.data_seed, per_class
            ),
            personal_norms=config.bn == "personal",
        ),
        input_spec=spec,
        optimizer=SGD(
            config.client_learning_rate,
            config.client_momentum,
            config.client_weight_decay,
            config.client_clip_norm,
        ),
        local_epochs=config.local_epochs,
        batch_size=config.batch_size,
        eval_batch_size=run.eval_batch_size,
        jit_compile=run.jit_compile,
        validation=config.validation_fraction > 0,
    )


def build_aggregation(config: ExperimentConfig) -> Aggregation:
    """How the clients' changes become one in the experiment."""
    return Aggregation(
        config.aggregator,
        zeroing=config.aggregator_zeroing,
        clipping=config.aggregator_clipping,
        bits=config.compressed_bits,
        threshold=config.compressed_threshold,
        noise_multiplier=config.dp_noise_multiplier,
        clip=config.dp_clip,
    )


def use_runtime(run: RunOptions) -> None:
    """Puts the runtime in force that the options name.

    Raises:
        OptionError: it does not take its options, such as a device that is not there.
        runtime.RuntimeStartError: it cannot be started.
    """
    try:
        runtime.use(run.runtime, **run.runtime_options())
    except ValueError as error:
        names = ("runtime", "devices", "client_parallelism", "workers")
        given = [f"--{name}={getattr(run, name)}" for name in names if getattr(run, name)]
        raise OptionError(f"{' '.join(given)}: {error}") from error


class Experiment:
    """One run of one configuration in one directory.

    Args:
        config: what is computed.
        output_dir: where results go; nothing is written before the data are loaded and the model
            is built.
        run: how and where it is computed.
        overwrite: drop the results of another configuration in that directory.
        check: refuse a directory with other contents than this run.

    Raises:
        OptionError: the settings cannot be used with the data, or the directory holds the results
            of other settings or foreign files.
        data.DataError: the data cannot be read.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        output_dir: str | os.PathLike,
        run: RunOptions | None = None,
        *,
        overwrite: bool = False,
        check: bool = True,
    ):
        self.config = config
        self.output_dir = Path(output_dir)
        self._run = run or RunOptions()
        if check:
            check_directory(self.output_dir, config, overwrite)
        self.federation = config.data_config().build()
        num_clients = len(self.federation.clients)
        if empty := self.federation.clients_without_train:
            logging.warning("%d of %d clients have no training samples", empty, num_clients)
        if config.clients_per_round > num_clients:
            raise OptionError(
                f"--clients_per_round={config.clients_per_round}: the data set has only "
                f"{num_clients} clients"
            )
        self.cohort_size = config.clients_per_round or num_clients
        self.learning = build_learning(config, self.federation, self._run)
        use_runtime(self._run)
        self._aggregation = build_aggregation(config)
        self.process = federated.build_process(self.learning, self._aggregation)
        self.checkpoints = CheckpointManager(
            self.output_dir / "checkpoints", self._run.keep_checkpoints
        )
        if self._run.client_store == "disk":
            self.store = DiskStore(self._initial_client_state, self.output_dir / "client_states")
        else:
            self.store = MemoryStore(self._initial_client_state)
        names = self._run.diagnostic_names()
        self.diagnostics = Diagnostics(self.learning, self.federation, names) if names else None
        if overwrite and self.output_dir.exists():
            with files.locked(self.output_dir):
                shutil.rmtree(self.output_dir)
        self.state = None
        self.round = 0
        self.totals = _no_totals()

    # One round.

    def _initial_client_state(self, client: int) -> Any:
        seed = derive_seed(self.config.model_seed, client, _CLIENTS)
        return self.process.initial_client_state(seed)

    def _examples(self, examples) -> OrderedDict[str, np.ndarray]:
        return OrderedDict(x=examples.x, y=examples.y)

    def _client_data(
        self, client: int, slot: int = 0, **parts: data.Examples
    ) -> OrderedDict[str, Any]:
        """What a client computes with; `parts` are what it is evaluated on."""
        train, _ = self.federation.client_examples(client)
        return OrderedDict(
            train=self._examples(train),
            **{name: self._examples(part) for name, part in parts.items()},
            seed=derive_seed(self.config.batch_seed, self.round, client, _BATCHES),
            slot=np.int32(slot),
        )

    def initialize(self) -> None:
        """Sets the state before the first round."""
        self.state, self.round, self.totals = self.process.initialize(), 0, _no_totals()

    def next_round(self) -> dict[str, Any]:
        """Computes the next round; returns its training metrics."""
        cohort = sample_cohort(
            self.config.cohort_seed, self.round, len(self.federation.clients), self.cohort_size
        )
        states = [self.store.get(client) for client in cohort]
        newcomers = sum(int(state["participations"]) == 0 for state in states)
        clients = [self._client_data(client, slot) for slot, client in enumerate(cohort)]
        start = time.perf_counter()
        self.state, states, metrics = self.process.next(self.state, states, clients)
        seconds = time.perf_counter() - start
        self.round += 1
        for client, state in zip(cohort, states, strict=True):
            self.store.put(client, state, self.round)
        totals = {name: float(total) for name, total in metrics["sums"].items()}
        samples = max(totals.pop("samples"), 1.0)
        sent = {
            "upload_bytes": self.process.update_bytes * len(cohort)
            + round(self.process.extra_bytes * float(metrics["sent"])),
            "download_bytes": self.process.download_bytes * len(cohort)
            + self.process.fixed_bytes * newcomers,
        }
        for name, size in sent.items():
            self.totals[name] += size
        return {
            "train_loss": totals.pop("loss") / samples,
            **{name: total / samples for name, total in totals.items()},
            "seconds": seconds,
            **sent,
        }

    # Evaluation.

    @functools.cached_property
    def _groups(self) -> dict[str, Sequence[int]]:
        """Many, medium and few classes, where classes differ in size by a factor of two or more."""
        counts = self.federation.class_counts().sum(axis=0)
        if counts.max() < 2 * max(counts.min(), 1):
            return {}
        return data.class_groups(counts)._asdict()

    @functools.cached_property
    def _own_groups(self) -> list[dict[str, Sequence[int]]]:
        """Each client's many, medium and few classes, by the sizes they have at the client."""
        return [data.class_groups(own)._asdict() for own in self.federation.class_counts()]

    def evaluate_global(self) -> dict[str, float]:
        """Accuracies of the global model in percent: on the whole test set, and, as `va`, on what
        the clients held out.

        Where a method has no global model: the mean over clients of their personal models', as
        they stand before any local step (the convention of FedGELA's tables).
        """
        total, heads = self._global_counts(self.federation.test)
        results = {}
        for head, right in heads.items():
            suffix = "" if head == "head" else f"_{head}"
            right = np.asarray(right)
            results[f"ga{suffix}"] = evaluation.accuracy(right, total)
            groups = evaluation.group_accuracy(right, total, self._groups)
            results.update({f"ga{suffix}_{name}": value for name, value in groups.items()})
        if self.learning.validation:
            total, heads = self._global_counts(self.federation.validation_examples())
            results["va"] = evaluation.accuracy(np.asarray(heads["head"]), total)
        return results

    def personal_inputs(self, client: int) -> tuple[Any, OrderedDict[str, Any]]:
        """What a client's personal model is made of, as evaluation sees it: state and data."""
        return self.store.get(client), self._client_data(client, **self._own_parts(client))

    def _global_counts(self, examples: data.Examples):
        """Samples by class, and rightly classified ones by head and class."""
        if self.learning.method.has_global_model:
            counts = self.process.evaluate_global(self.state, self._examples(examples))
            return np.asarray(counts["total"]), counts["right"]
        counts = self._count_clients(self.process.evaluate_before, lambda _: {"test": examples})
        # All clients see the same samples, so the mean of accuracies is that of the sums.
        return counts["total"].sum(axis=0), {"head": counts["before"].sum(axis=0)}

    def personal_counts(self) -> dict[str, np.ndarray]:
        """Counts of rightly classified test samples of every client, [K, C] each."""
        return self._count_clients(self.process.evaluate_personal, self._own_parts)

    def _own_parts(self, client: int) -> dict[str, data.Examples]:
        """What a client's personal model is evaluated on."""
        parts = {"test": self.federation.client_examples(client)[1]}
        if self.learning.validation:
            parts["validation"] = self.federation.validation_examples(client)
        return parts

    def _count_clients(self, computation, parts) -> dict[str, np.ndarray]:
        """Runs an evaluation on `parts(client)` of every client, a cohort's number at a time."""
        chunks = []
        clients = range(len(self.federation.clients))
        for start in range(0, len(clients), self.cohort_size):
            chunk = clients[start : start + self.cohort_size]
            chunks += computation(
                self.state,
                [self.store.get(client) for client in chunk],
                [self._client_data(client, **parts(client)) for client in chunk],
            )
        return {name: np.stack([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def personal_accuracies(self, counts: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Mean accuracies of the personal models on what their clients hold, in percent.

        Where classes are of unequal size in the federation, also on many, medium and few classes;
        which ones these are differs from client to client.

        Args:
            counts: what `personal_counts` gave.
        """
        total = counts["total"]
        results = {
            column: evaluation.personal_accuracy(counts[key], total)
            for key, column in _PERSONAL_COLUMNS.items()
        }
        if self._groups:
            for key, column in _PERSONAL_GROUP_COLUMNS.items():
                groups = evaluation.personal_group_accuracy(counts[key], total, self._own_groups)
                results.update({f"{column}_{name}": value for name, value in groups.items()})
        if self.learning.validation:
            for key, column in _VALIDATION_COLUMNS.items():
                held = evaluation.personal_accuracy(counts[key], counts["validation_total"])
                results[column] = held
        return results

    def diagnose(self, *, slow: bool = True) -> dict[str, float]:
        """The numbers that --diagnostics asks for, of the current state; `slow` ones if wanted."""
        if self.diagnostics is None:
            return {}
        clients = self.diagnostics.clients
        return self.diagnostics.measure(
            self.state,
            [(self.store.get(client), self._client_data(client)) for client in clients],
            slow=slow,
        )

    def _is_due(self, every: int) -> bool:
        return self.round == self.config.rounds or (every > 0 and self.round % every == 0)

    def evaluate(self) -> dict[str, float]:
        """The evaluations that are due after the current round."""
        results = {}
        if self._is_due(self.config.eval_every):
            results.update(self.evaluate_global())
            results.update(self.diagnose(slow=self.round == self.config.rounds))
        if self._is_due(self.config.personal_eval_every):
            results.update(self.personal_accuracies(self.personal_counts()))
        return results

    # The whole run.

    def restore(self, round_number: int | None = None) -> None:
        """Goes to a checkpoint, the newest by default.

        Raises:
            FileNotFoundError: there is none.
            OptionError: the clients' states are kept in the other kind of store.
        """
        checkpoint = self.checkpoints.load(
            self.process.initialize(), self._initial_client_state(0), self.store, round_number
        )
        self.round, self.state = checkpoint.round, checkpoint.server_state
        self.totals = {**_no_totals(), **checkpoint.totals}

    def run(self, label: str = "") -> dict[str, Any]:
        """Trains to the last round, from the last checkpoint if there is one.

        Returns:
            The summary, as in summary.json.

        Raises:
            OptionError: another process is at it.
        """
        summary = read_summary(self.output_dir)
        if summary is None:
            with files.locked(self.output_dir):
                summary = self._train(label)
        return summary

    def _train(self, label: str) -> dict[str, Any]:
        files.remove_leftovers(self.output_dir)
        files.write_text(
            self.output_dir / "config.json", json.dumps(self.config.to_json(), indent=2) + "\n"
        )
        if self.checkpoints.rounds():
            self.restore()
        else:
            self.initialize()
        self.store.forget_after(self.round)
        outputs = self._sinks(label or self.config.algorithm)
        try:
            for sink in outputs:
                sink.start(self.round + 1, self.config.rounds)
            while self.round < self.config.rounds:
                metrics = self.next_round()
                results = self.evaluate()
                if results:
                    for sink in outputs:
                        sink.row({"round": self.round, **results, **metrics})
                if self._is_due(self._run.checkpoint_every):
                    self.checkpoints.save(
                        Checkpoint(self.round, self.state, self.totals), self.store
                    )
                for sink in outputs:
                    sink.advance()
            plots.plot_run(self)
            diagnostic_plots.plot_run(self)
            summary = self.summarize()
            for sink in outputs:
                sink.finish(summary)
        finally:
            for sink in outputs:
                sink.close()
        return summary

    def _columns(self) -> list[str]:
        """Columns of metrics.csv: what is known before the first round is computed."""
        suffixes = ["" if name == "head" else f"_{name}" for name in self.process.heads]
        groups = list(self._groups)
        return [
            "round",
            *(f"ga{suffix}" for suffix in suffixes),
            *_PERSONAL_COLUMNS.values(),
            *(("va", *_VALIDATION_COLUMNS.values()) if self.learning.validation else ()),
            *(f"ga{suffix}_{group}" for suffix in suffixes for group in groups),
            *(f"{pa}_{group}" for pa in _PERSONAL_GROUP_COLUMNS.values() for group in groups),
            "train_loss",
            *self.learning.method.metric_names,
            "seconds",
            "upload_bytes",
            "download_bytes",
            *(self.diagnostics.columns() if self.diagnostics else ()),
        ]

    def _sinks(self, label: str) -> list[sinks.Sink]:
        outputs: list[sinks.Sink] = [
            sinks.CsvSink(self.output_dir / "metrics.csv", self._columns()),
            sinks.SummarySink(self.output_dir / "summary.json"),
        ]
        if self._run.tensorboard:
            outputs.append(sinks.TensorBoardSink(self.output_dir / "tensorboard"))
        if self._run.progress:
            outputs.append(sinks.ProgressSink(label))
        return outputs

    def summarize(self) -> dict[str, Any]:
        """Final and best-so-far values from metrics.csv."""
        rows = sinks.read_rows(self.output_dir / "metrics.csv")
        return {
            "algorithm": self.config.algorithm,
            "seed": self.config.seed,
            "rounds": self.round,
            **summarize_accuracies(rows),
            "seconds_per_round": _typical([float(row["seconds"]) for row in rows]),
            **self.totals,
            "clients_per_round": self.cohort_size,
            "personal_bytes_per_client": self.process.personal_bytes,
            "personal_parameters_per_client": self.process.personal_parameters,
            "personal_epochs": self.process.personal_epochs,
            **self._privacy(),
            "config_digest": self.config.digest(),
        }

    def _privacy(self) -> dict[str, float | None]:
        """(ε, δ) of the shared weights, where noise was added to them."""
        if self.config.aggregator != "dp":
            return {}
        clients, delta = len(self.federation.clients), self.config.dp_delta
        epsilon = self._aggregation.epsilon(clients, self.cohort_size, self.round, delta)
        # Json has no infinity.
        return {"dp_epsilon": epsilon if math.isfinite(epsilon) else None, "dp_delta": delta}


def restore_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    run: RunOptions | None = None,
    round_number: int | None = None,
) -> Experiment:
    """A run as it was after a round; arguments and errors as of `evaluate_run`."""
    directory = Path(run_dir)
    run = run or RunOptions()
    if (directory / "client_states").is_dir():
        run = dataclasses.replace(run, client_store="disk")
    experiment = Experiment(config, directory, run, check=False)
    experiment.restore(round_number)
    return experiment


def evaluate_run(
    config: ExperimentConfig,
    run_dir: str | os.PathLike,
    run: RunOptions | None = None,
    round_number: int | None = None,
) -> dict[str, Any]:
    """Evaluates a checkpoint of a run and writes evaluation.json into its directory.

    Args:
        config: the run's settings; a moved `data_dir` is all that may differ.
        run_dir: the run's directory.
        run: how and where it is computed.
        round_number: which checkpoint, the newest by default.

    Returns:
        The round, the mean accuracies, the personal accuracies by client, and the diagnostics that
        `run` asks for; `None` for an accuracy without samples.

    Raises:
        FileNotFoundError: there is no such checkpoint.
    """
    experiment = restore_run(config, run_dir, run, round_number)
    accuracies = experiment.evaluate_global()
    counts = experiment.personal_counts()
    accuracies.update(experiment.personal_accuracies(counts))
    total = counts.pop("total")
    results = {
        "round": experiment.round,
        "accuracies": accuracies,
        "clients": {
            client.client_id: {
                column: evaluation.accuracy(counts[key][index], total[index])
                for key, column in _PERSONAL_COLUMNS.items()
            }
            for index, client in enumerate(experiment.federation.clients)
            if total[index].sum()
        },
    }
    if experiment.diagnostics:
        results["diagnostics"] = experiment.diagnose()
    # Json has no NaN, which an accuracy on no samples is.
    results = json.loads(json.dumps(results), parse_constant=lambda _: None)
    files.write_text(
        experiment.output_dir / "evaluation.json", json.dumps(results, indent=2) + "\n"
    )
    return results


def summarize_accuracies(rows: Sequence[Mapping[str, str]]) -> dict[str, float | None]:
    """Final and best values of every accuracy in the rows of a metrics file.

    The best value of a column is the largest over the evaluated rounds, each column for itself. It
    says how far a run came, not what one would have chosen without looking at the test set.
    """
    summary: dict[str, float | None] = {}
    for name in rows[-1]:
        if not name.startswith(("ga", "pa", "va")):
            continue
        values = [float(row[name]) for row in rows if row[name]]
        summary[f"{name}_final"] = float(rows[-1][name]) if rows[-1][name] else None
        summary[f"{name}_best"] = max(values) if values else None
    for name in ("ga_many", "ga_medium", "ga_few", "pa_many", "pa_medium", "pa_few"):
        if f"{name}_final" in summary:
            summary[name] = summary[f"{name}_final"]
    last_round = int(rows[-1]["round"])
    second_half = [
        float(row["ga"]) for row in rows if row["ga"] and int(row["round"]) > last_round / 2
    ]
    summary["ga_second_half"] = statistics.fmean(second_half) if second_half else None
    summary |= _at_best_round(rows, "va", "best_round")
    return summary | _at_best_round(rows, "va_personal", "best_personal_round")


def _at_best_round(rows, column: str, name: str) -> dict[str, float | None]:
    """The first round with the best value of a column, and all test accuracies after it."""
    validated = [row for row in rows if row.get(column)]
    if not validated:
        return {}
    best = max(validated, key=lambda row: float(row[column]))
    tested = [key for key in best if key.startswith(("ga", "pa"))]
    return {
        name: int(best["round"]),
        **{f"{key}_at_{name}": float(best[key]) if best[key] else None for key in tested},
    }


def _no_totals() -> dict[str, int]:
    return {"upload_bytes": 0, "download_bytes": 0}


def _typical(seconds: Sequence[float]) -> float:
    """Median without the first round, which includes tracing, where there are more."""
    return statistics.median(seconds[1:] or seconds)
