"""The models of a simulation in memory, as Keras models of raw inputs."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import tensorflow as tf

from tff_pcdd import text
from tff_pcdd.data import encoding, rows
from tff_pcdd.data.input_spec import TEXT
from tff_pcdd.errors import DataError, SettingError, one_of
from tff_pcdd.export import inputs, keras_file
from tff_pcdd.export.trained import PersonalModels, TrainedModel, global_model
from tff_pcdd.federated.batches import eval_batches
from tff_pcdd.federated.weights import load
from tff_pcdd.training import Simulation


def keras_model(
    simulation: Simulation, client: str | int | None = None, *, local_epochs: bool = True
) -> tf.keras.Model:
    """As `Simulation.keras_model`; Keras' `predict` rounds NumPy's float64 to float32 first."""
    return keras_file.build(_model(simulation, client, local_epochs))


def _model(
    simulation: Simulation, client: str | int | None, local_epochs: bool = True
) -> TrainedModel:
    if client is not None:
        index = _number(simulation, client)
        return PersonalModels(simulation, local_epochs=local_epochs).model(index)
    if not simulation.spec.method.has_global_model:
        reason = f"{simulation.config.algorithm} has no global model; name a client"
        raise SettingError("client", None, reason)
    return global_model(simulation)


def predict(simulation: Simulation, x: Any, client: str | int | None = None) -> np.ndarray:
    """As `Simulation.predict`."""
    x = _stored(simulation, x)
    trained = _model(simulation, client)
    if not len(x):
        return np.zeros([0], np.int64)
    # A Keras model would be traced for each call.
    batches = eval_batches(x, simulation.federation.train.x, simulation.spec)
    return np.concatenate([trained.answer(batch)["class_id"].numpy() for batch in batches])


def features(simulation: Simulation, x: Any) -> np.ndarray:
    """As `Simulation.features`."""
    x = _stored(simulation, x)
    spec = simulation.spec
    if not spec.method.has_global_model:
        reason = "has no global model, whose features these would be"
        raise SettingError("algorithm", simulation.config.algorithm, reason)
    net = spec.network()
    load(net, simulation.state.weights)
    batches = eval_batches(x, simulation.federation.train.x, spec)
    parts = [spec.method.embed(net, batch, training=False).numpy() for batch in batches]
    return np.concatenate(parts)[: len(x)]


def _stored(simulation: Simulation, x: Any) -> np.ndarray:
    """Inputs as the federation stores them, to which the rows of a data frame are encoded.

    Refuses what is no batch of inputs, which Keras says in many lines.
    """
    columns = simulation.federation.input_spec.columns
    if simulation.federation.input_spec.kind == TEXT and _are_texts(x):
        return inputs.from_text(tf.constant(x), simulation.federation.input_spec).numpy()
    if columns is not None and rows.is_frame(x):
        return encoding.encode(rows.cells(rows.frame(x, "x"), columns), columns)
    expected, found = simulation.federation.train.x.shape[1:], np.shape(x)
    # As in Keras, a last dimension of 1 may be missing.
    known = (expected, expected[:-1]) if expected[-1:] == (1,) else (expected,)
    if not found or (found[0] and found[1:] not in known):
        one = "; x[None] is a batch of one" if found in known else ""
        batch = ", ".join(map(str, ("n", *expected)))
        meant = ""
        if columns is not None:
            meant = f" ({text.listed(encoding.features(columns))}); a data frame is taken by the "
            meant += "names of its columns"
        raise DataError(f"x has the shape {list(found)}; inputs are [{batch}]{meant}{one}")
    return np.reshape(x, [len(x), *expected])


def _are_texts(x: Any) -> bool:
    """Whether this is a list or an array of texts, or any sequence of them."""
    return np.ndim(x) == 1 and bool(len(x)) and all(isinstance(each, str) for each in x)


def _number(simulation: Simulation, client: str | int) -> int:
    """The number of a client that is given by its name, or by its number."""
    names = simulation.federation.every_id
    if isinstance(client, str):
        if client not in names:
            raise SettingError("client", client, one_of(client, names))
        return names.index(client)
    if not isinstance(client, numbers.Integral) or not 0 <= client < len(names):
        reason = f"must be the name of a client, or a number from 0 to {len(names) - 1}"
        raise SettingError("client", client, reason)
    return int(client)
