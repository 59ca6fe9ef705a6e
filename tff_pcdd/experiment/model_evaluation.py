"""Evaluation of the models of a simulation: accuracies, and predicted classes of test samples."""

from __future__ import annotations

import dataclasses
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import data
from tff_pcdd.experiment import accuracy_columns

_logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tff_pcdd.experiment.simulation import Simulation


@dataclasses.dataclass(frozen=True)
class Answers:
    """The classes that the models predict for test samples; -1 where an answer is not finite.

    Attributes:
        globally: predictions of the global model for the whole test set, int32 [n]; None if the
            method has no global model.
        before, after: for each client, predictions of its personal model for its own test samples,
            before and after the local epochs, int32 [n_k].
        counts: samples and correctly classified samples by client and class, as
            `Simulation.personal_counts` returns them.
        at_new_clients: the same for the clients that take no part in training; None if there are
            none.
    """

    globally: np.ndarray | None
    before: Sequence[np.ndarray]
    after: Sequence[np.ndarray]
    counts: Mapping[str, np.ndarray]
    at_new_clients: Answers | None = None


class ModelEvaluation:
    """Evaluates the models of a simulation in its current state.

    What the models predict is kept until the next round, so that nothing is computed twice.
    """

    def __init__(self, simulation: Simulation):
        self._simulation = simulation
        self.forget()

    def forget(self) -> None:
        """Drops the predictions, because the state of the simulation has changed."""
        self._globally: np.ndarray | None = None
        self._before: Sequence[np.ndarray] = ()
        self._after: Sequence[np.ndarray] = ()
        self._counts: dict[str, np.ndarray] | None = None
        self._at_new_clients: Answers | None = None

    def global_accuracies(self) -> dict[str, float]:
        """As `Simulation.evaluate_global`."""
        simulation = self._simulation
        groups, metrics = simulation.groups, simulation.config.evaluation.metrics
        total, heads, answers = self._evaluate_on_test_set()
        results = accuracy_columns.global_accuracies(total, heads, answers, groups, metrics)
        if simulation.spec.validation:
            examples = simulation.federation.validation_examples()
            total, heads, *_ = self._evaluate_global(examples)
            results |= accuracy_columns.held_out_accuracies(total, np.asarray(heads["head"]))
        if self._globally is not None and (new := simulation.federation.new_clients):
            test = simulation.federation.test
            width, counts = simulation.federation.num_classes, []
            for own in new:
                y, found = test.y[own.test], self._globally[own.test]
                kinds = {"total": y, "global": y[y == found], "global_answers": found[found >= 0]}
                counts.append(
                    {kind: np.bincount(labels, minlength=width) for kind, labels in kinds.items()}
                )
            results |= accuracy_columns.at_new_clients(_stacked(_by_name(counts)), metrics)
        return results

    def personal_counts(self) -> dict[str, np.ndarray]:
        """As `Simulation.personal_counts`."""
        simulation = self._simulation
        found = self._evaluate_clients(simulation.process.evaluate_personal, simulation.own_parts)
        self._before, self._after = found.pop("predicted_before"), found.pop("predicted_after")
        self._counts = _stacked(found)
        return self._counts

    def counts(self, *, after: bool) -> tuple[dict[str, np.ndarray], Mapping[str, np.ndarray]]:
        """Samples and correctly classified samples by client and class, [clients, C] each.

        Args:
            after: whether they include those after the local epochs.

        Returns:
            Those of the clients that train, and those of the others; without others, these are
            empty.
        """
        simulation = self._simulation
        has_new = bool(simulation.federation.new_clients)
        if after:
            counts = self.personal_counts()
            return counts, self._answers_of_new().counts if has_new else {}
        compute = simulation.process.evaluate_before
        counts = _stacked(self._evaluate_clients(compute, simulation.own_parts))
        return counts, _stacked(self._evaluate_new(compute)) if has_new else {}

    def _answers_of_new(self) -> Answers:
        """The answers of the personal models of clients that take no part in training."""
        found = self._evaluate_new(self._simulation.process.evaluate_personal)
        before, after = found.pop("predicted_before"), found.pop("predicted_after")
        self._at_new_clients = Answers(self._globally, before, after, _stacked(found))
        return self._at_new_clients

    def _evaluate_new(self, computation: Callable) -> dict[str, list[np.ndarray]]:
        """The results of clients that take no part in training, by name.

        What they answer has no influence on training, even if it is not finite.
        """
        simulation = self._simulation
        federation = simulation.federation
        clients = range(federation.num_clients, len(federation.every_client))
        found = _by_name(simulation.map_clients(computation, simulation.own_parts, clients))
        if affected := np.count_nonzero(found.pop("nonfinite")):
            _logger.warning(
                "round %d: the personal answer of %d of %d new clients is not finite",
                *(simulation.round, affected, len(clients)),
            )
        return found

    def answers(self) -> Answers:
        """As `Simulation.answers`."""
        if self._globally is None and self._simulation.spec.method.has_global_model:
            self._evaluate_on_test_set()
        if self._counts is None:
            self.personal_counts()
        assert self._counts is not None
        new = self._at_new_clients
        if self._simulation.federation.new_clients:
            new = dataclasses.replace(new or self._answers_of_new(), globally=self._globally)
        return Answers(self._globally, self._before, self._after, self._counts, new)

    def _evaluate_on_test_set(self) -> tuple[np.ndarray, Mapping[str, Any], np.ndarray]:
        test = self._simulation.federation.test
        total, heads, answers, self._globally = self._evaluate_global(test)
        return total, heads, answers

    def _evaluate_global(
        self, examples: data.Examples
    ) -> tuple[np.ndarray, Mapping[str, Any], np.ndarray, np.ndarray | None]:
        """Evaluates the global model, or all personal models if there is none.

        Returns:
            Numbers of samples by class; of correctly classified samples by head and class; of
            samples by the class that the main head predicts; and the predicted classes of the
            global model.
        """
        simulation = self._simulation
        if simulation.spec.method.has_global_model:
            counts = simulation.invoke(
                simulation.process.evaluate_global, simulation.state, as_arrays(examples)
            )
            if count := int(counts["nonfinite"]):
                what = f"the global model's answer to {count} of {len(examples)} samples is not "
                what += "finite"
                simulation.nonfinite.note(what, lost=True)
            total, predicted = np.asarray(counts["total"]), np.asarray(counts["predicted"])
            answers = np.bincount(predicted[predicted >= 0], minlength=len(total))
            return total, counts["correct"], answers, predicted
        parts = {"test": examples}
        if simulation.spec.validation:
            parts["validation"] = examples.take(np.array([], np.int64))
        found = self._evaluate_clients(simulation.process.evaluate_before, lambda _: parts)
        # All clients classify the same samples, so the mean accuracy is the accuracy of the sums.
        total, correct, answers = (
            np.sum(found[name], axis=0) for name in ("total", "before", "before_answers")
        )
        return total, {"head": correct}, answers, None

    def _evaluate_clients(
        self, computation: Callable, parts: Callable[[int], Mapping[str, data.Examples]]
    ) -> dict[str, list[np.ndarray]]:
        """The results of all clients, by name."""
        results = self._simulation.map_clients(computation, parts)
        found = _by_name(results)
        affected = np.count_nonzero(found.pop("nonfinite"))
        if affected:
            what = f"the personal answer of {affected} of {len(results)} clients is not finite"
            self._simulation.nonfinite.note(what, lost=affected == len(results))
        return found


def _by_name(results: Sequence[Any]) -> dict[str, list[np.ndarray]]:
    """The results of clients, by the names that each of them has."""
    return {name: [np.asarray(of[name]) for of in results] for name in results[0]}


def _stacked(found: Mapping[str, Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack(values) for name, values in found.items()}


def as_arrays(examples: data.Examples) -> OrderedDict[str, np.ndarray]:
    """Examples as arguments of TFF computations."""
    return OrderedDict(x=examples.x, y=examples.y)
