"""Trained global and personal models: the network, and the function from its inputs to logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.data import transforms
from tff_pcdd.errors import DataError
from tff_pcdd.evaluation import calibration
from tff_pcdd.evaluation.calibration import Calibration
from tff_pcdd.federated import (
    PersonalEvaluation,
    build_personalization,
    initialization,
    make_message,
)
from tff_pcdd.federated.weights import all_finite, load
from tff_pcdd.methods import Network
from tff_pcdd.methods.network import assign
from tff_pcdd.training import Simulation


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model and the names of its classes.

    Attributes:
        network: the network, which owns the variables.
        logits: maps model inputs [batch, …] to float32 logits [batch, C], in inference mode.
        input_spec: specification of the stored inputs.
        class_names: the names of the C classes.
        own_classes: bool [C], the classes in the client's training data; None for a global model.
        temperature: what the logits are divided by before the softmax; no prediction depends on it.
    """

    network: Network
    logits: Callable[[tf.Tensor], tf.Tensor]
    input_spec: data.InputSpec
    class_names: tuple[str, ...]
    own_classes: np.ndarray | None = None
    temperature: float = 1.0

    def answer(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Predictions for model inputs [batch, …].

        Returns:
            `probabilities`, float32 [batch, C], and `class_id`, int64 [batch], the class with the
            largest logit. If `own_classes` is given, also `own_probabilities` and `own_class_id`,
            which are restricted to these classes; if there are none, to all classes.
        """
        logits = self.logits(inputs)
        answers = _choose(logits, self.temperature)
        if self._allowed is not None:
            answers.update(_choose_own(logits, self._allowed, self.temperature))
        return answers

    def check_weights(self) -> None:
        """Refuses a network of which a variable is NaN or infinite."""
        if not all_finite(self.network.variables):
            raise DataError("weights of the model are NaN or infinite")

    def calibrate(
        self, test: data.Examples, held_out: data.Examples, batch_size: int
    ) -> Calibration:
        """Fits a temperature on held-out examples, and measures its effect on test examples.

        Raises:
            DataError: a logit of an example is NaN or infinite.
        """
        none = np.zeros([0, len(self.class_names)], np.float32)
        found = [logits for logits, _ in self._logits(held_out, batch_size)]
        fitted = np.concatenate([none, *found]), held_out.y
        return calibration.calibrate(self._logits(test, batch_size), fitted, self._allowed)

    @property
    def _allowed(self) -> np.ndarray | None:
        """The classes that own answers may be, bool [C]: all where the client has no samples."""
        own = self.own_classes
        return ~own if own is not None and not own.any() else own

    def _logits(
        self, examples: data.Examples, batch_size: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the logits of stored examples, before the temperature, with their labels."""
        spec = self.input_spec

        @tf.function(input_signature=[tf.TensorSpec([None, *spec.raw_shape], spec.dtype)])
        def answer(x):
            return self.logits(transforms.normalize(x, spec))

        for start in range(0, len(examples), batch_size):
            part = slice(start, start + batch_size)
            logits = answer(tf.constant(examples.x[part])).numpy()
            if not np.isfinite(logits).all():
                raise DataError("answers of the model are NaN or infinite")
            yield logits, examples.y[part]


def _choose(logits: tf.Tensor, temperature: float) -> dict[str, tf.Tensor]:
    scaled = logits if temperature == 1 else logits / temperature
    # Logits, not probabilities: after saturation, several probabilities may be equal to 1.
    return {"probabilities": tf.nn.softmax(scaled), "class_id": tf.argmax(logits, axis=-1)}


def _choose_own(logits: tf.Tensor, allowed: np.ndarray, temperature: float) -> dict[str, tf.Tensor]:
    own = np.flatnonzero(allowed)
    # Gathered instead of masked with a large negative number, which would ruin the precision of
    # int8 logits.
    chosen = _choose(tf.gather(logits, own, axis=1), temperature)
    probabilities = chosen["probabilities"]
    column = np.full(allowed.size, own.size)
    column[own] = np.arange(own.size)
    with_zero = tf.concat([probabilities, tf.zeros_like(probabilities[:, :1])], axis=1)
    return {
        "own_probabilities": tf.gather(with_zero, column, axis=1),
        "own_class_id": tf.gather(tf.constant(own, tf.int64), chosen["class_id"]),
    }


def global_model(simulation: Simulation) -> TrainedModel:
    """The global model of a simulation, whose accuracy is GA."""
    spec = simulation.spec
    with initialization.zeros():
        network = spec.network()
    load(network, simulation.state.weights)
    return TrainedModel(
        network=network,
        logits=lambda x: spec.method.global_logits(network, x)[""],
        input_spec=spec.input_spec,
        class_names=simulation.federation.class_names,
    )


class PersonalModels:
    """Creates the clients' personal models, whose mean accuracy is PA.

    Evaluation does not keep these models, so they are trained again: by the same computation with
    the same seeds, on the simulation's runtime.

    Args:
        simulation: the federation, and its state.
        local_epochs: whether to run the local epochs (PA) or not (PA before).
    """

    def __init__(self, simulation: Simulation, *, local_epochs: bool = True):
        self._simulation = simulation
        self._personalize = build_personalization(simulation.process, local_epochs=local_epochs)
        self._evaluation = PersonalEvaluation(simulation.spec)

    def model(self, client: int) -> TrainedModel:
        """The personal model of a client, by its number; the next call overwrites its variables."""
        simulation, spec = self._simulation, self._simulation.spec
        state, (client_state, client_data) = simulation.state, simulation.personal_inputs(client)
        (weights,) = simulation.invoke(self._personalize, state, [client_state], [client_data])
        message = make_message(spec.method, state)
        network, known = self._evaluation.personal_model(
            *tf.nest.map_structure(tf.convert_to_tensor, (message, client_state, client_data))
        )
        assign(network.variables, weights)
        return TrainedModel(
            network=network,
            logits=lambda x: spec.method.personal_logits(network, x, known),
            input_spec=spec.input_spec,
            class_names=simulation.federation.class_names,
            own_classes=known.class_counts.numpy() > 0,
        )
