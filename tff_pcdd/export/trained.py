"""Models as training left them: the network, and the function from its inputs to logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.data import preprocessing
from tff_pcdd.federated import (
    FederatedProcess,
    Learning,
    build_personalization,
    initialization,
    programs,
)
from tff_pcdd.methods.method import Network


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model with its answers' names.

    Attributes:
        network: holds the variables.
        logits: from model inputs [batch, …] to float32 [batch, C], in eval mode.
        input_spec: how raw inputs become model inputs.
        class_names: C names.
        own_classes: bool [C], the classes of the client's training part; None for a global model.
    """

    network: Network
    logits: Callable[[tf.Tensor], tf.Tensor]
    input_spec: data.InputSpec
    class_names: tuple[str, ...]
    own_classes: np.ndarray | None = None

    def answer(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the model says about model inputs [batch, …].

        Returns:
            `probabilities`, float32 [batch, C], and `class_id`, int64 [batch], of the largest
            logit; with `own_classes` also `own_probabilities` and `own_class_id`, for which the
            logits of other classes are left out of softmax and choice. Without any own class
            they are over all.
        """
        logits = self.logits(inputs)
        answers = _choose(logits)
        if self.own_classes is not None:
            answers.update(_choose_own(logits, self.own_classes))
        return answers

    def accuracy(self, examples: data.Examples, batch_size: int) -> float:
        """Share of stored examples that are classified rightly, in percent; NaN without any."""

        spec = self.input_spec
        classify = tf.function(
            lambda x: self.answer(preprocessing.normalize(x, spec))["class_id"]
        ).get_concrete_function(tf.TensorSpec([None, *spec.raw_shape], spec.dtype))
        starts = range(0, len(examples), batch_size)
        right = [
            classify(tf.constant(examples.x[start : start + batch_size])).numpy()
            == examples.y[start : start + batch_size]
            for start in starts
        ]
        return 100 * float(np.concatenate(right).mean()) if right else float("nan")


def _choose(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    # Not the largest probability: saturated, several are 1.
    return {"probabilities": tf.nn.softmax(logits), "class_id": tf.argmax(logits, axis=-1)}


def _choose_own(logits: tf.Tensor, own_classes: np.ndarray) -> dict[str, tf.Tensor]:
    own = np.flatnonzero(own_classes if own_classes.any() else ~own_classes)
    # Picked out, not set to a large negative number, which would leave 8-bit logits no precision.
    chosen = _choose(tf.gather(logits, own, axis=1))
    probabilities = chosen["probabilities"]
    column = np.full(own_classes.size, own.size)
    column[own] = np.arange(own.size)
    with_zero = tf.concat([probabilities, tf.zeros_like(probabilities[:, :1])], axis=1)
    return {
        "own_probabilities": tf.gather(with_zero, column, axis=1),
        "own_class_id": tf.gather(tf.constant(own, tf.int64), chosen["class_id"]),
    }


def global_model(
    learning: Learning, state: Mapping[str, Any], class_names: tuple[str, ...]
) -> TrainedModel:
    """The global model, the one that GA is measured on.

    Args:
        learning: what was computed in a round.
        state: the server's state.
        class_names: C names.
    """
    with initialization.zeros():
        network = learning.network()
    programs.load(network, state["weights"])
    return TrainedModel(
        network=network,
        logits=lambda x: learning.method.global_logits(network, x)[""],
        input_spec=learning.input_spec,
        class_names=class_names,
    )


class PersonalModels:
    """Makes the clients' personal models, the ones that PA is measured on.

    Training them once more is how they come about: after evaluation they are thrown away. It is
    the same computation on the same seeds, in the runtime that is in force.

    Args:
        learning: what was computed in a round.
        process: the computations that were built from it.
        state: the server's state.
        class_names: C names.
        local_epochs: whether the models are those after the local epochs (PA), or before.
    """

    def __init__(
        self,
        learning: Learning,
        process: FederatedProcess,
        state: Mapping[str, Any],
        class_names: tuple[str, ...],
        *,
        local_epochs: bool = True,
    ):
        self._learning = learning
        self._state = state
        self._class_names = class_names
        self._personalize = build_personalization(learning, process, local_epochs=local_epochs)
        # After all of TFF's: a Keras network stops working when others are made in its graphs.
        self._program = programs.ClientProgram(learning)

    def model(self, client_state: Mapping[str, Any], client_data: Mapping[str, Any]):
        """The personal model of a client; making the next one changes its variables.

        Args:
            client_state: what the client keeps.
            client_data: as for a personal evaluation.

        Returns:
            A `TrainedModel`.
        """
        method, state = self._learning.method, self._state
        (weights,) = self._personalize(state, [client_state], [client_data])
        message = {
            "weights": state["weights"],
            "server": method.broadcast(state["server"]),
            "round": state["round"],
        }
        network, client = self._program.personal_model(
            *tf.nest.map_structure(tf.convert_to_tensor, (message, client_state, client_data))
        )
        programs.assign(network.variables, weights)
        return TrainedModel(
            network=network,
            logits=lambda x: method.personal_logits(network, x, client),
            input_spec=self._learning.input_spec,
            class_names=self._class_names,
            own_classes=client.class_counts.numpy() > 0,
        )
