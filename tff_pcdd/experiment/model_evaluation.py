"""Evaluation of the models of a simulation: accuracies, and predicted classes of test samples."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_pcdd import data
from tff_pcdd.experiment import accuracy_columns

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
    """

    globally: np.ndarray | None
    before: Sequence[np.ndarray]
    after: Sequence[np.ndarray]
    counts: Mapping[str, np.ndarray]


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
        return results

    def personal_counts(self) -> dict[str, np.ndarray]:
        """As `Simulation.personal_counts`."""
        simulation = self._simulation
        found = self._evaluate_clients(simulation.process.evaluate_personal, simulation.own_parts)
        self._before, self._after = found.pop("predicted_before"), found.pop("predicted_after")
        self._counts = {name: np.stack(values) for name, values in found.items()}
        return self._counts

    def counts_before(self) -> dict[str, np.ndarray]:
        """As `personal_counts`, but only those before the local epochs."""
        simulation = self._simulation
        found = self._evaluate_clients(simulation.process.evaluate_before, simulation.own_parts)
        return {name: np.stack(values) for name, values in found.items()}

    def answers(self) -> Answers:
        """As `Simulation.answers`."""
        if self._globally is None and self._simulation.spec.method.has_global_model:
            self._evaluate_on_test_set()
        if self._counts is None:
            self.personal_counts()
        assert self._counts is not None
        return Answers(self._globally, self._before, self._after, self._counts)

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
        found = {name: [np.asarray(of[name]) for of in results] for name in results[0]}
        affected = np.count_nonzero(found.pop("nonfinite"))
        if affected:
            what = f"the personal answer of {affected} of {len(results)} clients is not finite"
            self._simulation.nonfinite.note(what, lost=affected == len(results))
        return found


def as_arrays(examples: data.Examples) -> OrderedDict[str, np.ndarray]:
    """Examples as arguments of TFF computations."""
    return OrderedDict(x=examples.x, y=examples.y)
