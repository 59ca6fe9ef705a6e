"""What an experiment computes, from its settings; and the checks that need no data."""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_pcdd import data
from tff_pcdd.data.new_clients import NewClients
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment import refusals
from tff_pcdd.experiment.cohorts import server_samples
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.federated import TrainingSpec
from tff_pcdd.methods import TaskSpec
from tff_pcdd.models import Backbone

# Settings must be readable without TensorFlow, which takes seconds to import.
with epy.lazy_imports():
    import tensorflow as tf

    from tff_pcdd.federated import upload

_logger = logging.getLogger(__name__)


def training_spec(
    config: ExperimentConfig, federation: data.Federation, compute: ComputeOptions | None = None
) -> TrainingSpec:
    """Combines the settings and data of an experiment into what a round's computations need.

    Raises:
        SettingError: the backbone does not accept the inputs, or has too few features; or there is
            nothing to train; or a client would take more steps in a round than can be counted; or
            runs shall stop early without held-out samples; or the method shares nothing with new
            clients; or as `compute.compilation`.
    """
    compute = compute or ComputeOptions()
    config.check_new_clients(NewClients(len(federation.new_clients)))
    validation = any(client.validation.size for client in federation.clients)
    patience = config.evaluation.early_stopping_patience
    if patience and not validation:
        reason = f"needs held-out samples, and {federation.name} has none; set validation_fraction"
        raise SettingError("early_stopping_patience", patience, f"{reason} above 0")
    if (fraction := config.data.validation_fraction) and not validation:
        reason = f"{federation.name} was given without held-out samples; name them in its clients"
        raise SettingError("validation_fraction", fraction, reason)
    _check_steps(config, federation)
    task = _task(config, federation.input_spec, federation.class_counts())
    task = dataclasses.replace(
        task,
        server_samples=lambda per_class: server_samples(
            federation.training_examples(), config.seeds.data, per_class
        ),
    )
    return _spec(
        config,
        task,
        federation.input_spec,
        eval_batch_size=compute.evaluation_batch(),
        compile=compute.compilation(federation.input_spec),
        validation=validation,
    )


def _check_steps(config: ExperimentConfig, federation: data.Federation) -> None:
    """Checks that the steps of each number of epochs fit into an int32, twice."""
    samples = max((client.train.size for client in federation.every_client), default=0)
    if config.method.pools_samples:
        samples = federation.trained_samples().size
    steps = -(-samples // config.training.batch_size)
    for name, value in config.to_settings().items():
        if name.endswith("epochs") and isinstance(value, int) and value * steps >= 2**30:
            reason = f"a client would take {value * steps} steps; must be below {2**30 // steps}"
            raise SettingError(name, value, reason)


def planned_spec(config: ExperimentConfig) -> TrainingSpec:
    """The same before data are loaded, with a stand-in for the clients' class counts.

    Raises:
        SettingError: as `training_spec`; or the weights that the backbone starts from do not fit.
    """
    known = config.data.partition.known_clients()
    num_clients = known - config.data.new.count if known else config.training.clients_per_round
    num_clients = num_clients or 2
    counts = np.ones([num_clients, config.data.source.least_classes()], np.int64)
    input_spec = config.data.input_spec()
    return _spec(config, _task(config, input_spec, counts), input_spec)


def _spec(
    config: ExperimentConfig, task: TaskSpec, input_spec: data.InputSpec, **further: Any
) -> TrainingSpec:
    """A spec with the settings of rounds, if the method has something to train."""
    training = config.training
    spec = TrainingSpec(
        config.method,
        task,
        input_spec,
        training.optimizer,
        local_epochs=training.local_epochs,
        batch_size=training.batch_size,
        schedule=training.schedule,
        num_rounds=training.rounds if training.schedule.needs_rounds else None,
        server_optimizer=config.server_optimizer,
        local_work=training.local_work,
        head_calibration=config.head_calibration,
        **further,
    )
    # Making the network takes seconds if the backbone is large, which then has parameters.
    parameters, _ = backbone_size(config, spec.input_spec)
    if parameters:
        return spec
    with spec.outline() as net:
        is_trained = bool(net.trainable)
    if not is_trained:
        raise SettingError(
            "projection_dim",
            config.model.projection_dim,
            f"{config.algorithm} trains only the backbone, and model={config.model.backbone.name} "
            "has no parameters, so there is nothing to train; set projection_dim above 0",
        )
    return spec


@functools.cache
def _warn(text: str) -> None:
    _logger.warning("%s", text)


def check(config: ExperimentConfig, warn: Callable[[str], None] = _warn) -> TrainingSpec:
    """Checks all that can be checked without data, and returns the planned spec.

    Args:
        config: the settings.
        warn: receives each warning; by default, it is logged unless it has been before.

    Raises:
        SettingError: the backbone does not accept the inputs of the data set, cannot start from the
            given weights, or has too few features; or there is nothing to train; or the aggregator
            does not accept what the clients of the method send, or a cohort of this size; or the
            server optimizer does not accept what they send.
    """
    advise(config, warn)
    spec = planned_spec(config)
    advise_on_network(config, spec, warn)
    if not config.aggregator.accepts_all:
        config.aggregator.check(spec.method, upload.upload_of(spec))
        config.aggregator.check_cohort(spec.task.cohort_size)
    if not config.server_optimizer.adds_change:
        config.server_optimizer.check(spec.method, upload.upload_of(spec))
    return spec


def check_all(configs: Sequence[ExperimentConfig]) -> list[TrainingSpec]:
    """Checks several experiments, and returns their planned specs.

    Raises:
        SettingError: as `check`; names all methods that are refused.
    """

    def check_with_data(config: ExperimentConfig) -> TrainingSpec:
        config.check_data()
        return check(config)

    return refusals.for_all(check_with_data, configs, lambda config: config.algorithm)


def advise(config: ExperimentConfig, warn: Callable[[str], None] = _warn) -> None:
    """Warns of settings with which the method is known to fail, or that have no effect."""
    if advice := config.method.advice(config.training.optimizer):
        warn(advice)
    if advice := config.method.advice_on_backbone(config.model.backbone.has_normalization):
        warn(advice)
    if not config.head_calibration.is_active and (name := config.head_calibration.name) != "none":
        warn(f"head_calibration={name}: has no effect, because {name}_epochs is 0")
    for advice in config.training.advice():
        warn(advice)


def advise_on_network(
    config: ExperimentConfig, spec: TrainingSpec, warn: Callable[[str], None] = _warn
) -> None:
    """Warns of settings that do not fit the network that is trained, or have no effect on it."""
    method, personal_norms = config.method, config.model.bn == "personal"
    if advice := method.advice_on_width(spec.task.feature_dim):
        warn(advice)
    is_weighted = method.client_weighting != "published"
    parameters, _ = backbone_size(config, spec.input_spec)
    if parameters and not (personal_norms or is_weighted):
        return
    with spec.outline() as net:
        sends_weights = bool(net.shared.all or net.mirrored.all)
        keeps_norms = bool(net.mirrored.all)
    shares = sends_weights or parameters or method.baseline
    if not (shares or upload.upload_of(spec).sums):
        warn(
            f"{method.name}: clients share nothing, because model={config.model.backbone.name} has "
            "no parameters, and train alone, as with algorithm=local; set projection_dim above 0"
        )
    if personal_norms and not keeps_norms:
        reason = (
            "the network has no batch normalization"
            if sends_weights
            else f"{method.name} has no network that is averaged"
        )
        warn(f"bn=personal: has no effect, because {reason}")
    if is_weighted and (method.pools_samples or not sends_weights):
        warn(
            f"client_weighting={method.client_weighting}: has no effect, because {method.name} "
            "averages no networks"
        )


def _task(
    config: ExperimentConfig, input_spec: data.InputSpec, class_counts: np.ndarray
) -> TaskSpec:
    num_clients, num_classes = class_counts.shape
    backbone = config.model.backbone
    make_backbone = functools.partial(
        backbone.build,
        input_spec.shape,
        projection_dim=config.model.projection_dim or 0,
        vocabulary_size=input_spec.vocabulary_size,
        weights=backbone.initial_values(input_spec.shape),
        precision=config.model.precision,
    )
    _, feature_dim = backbone_size(config, input_spec)
    config.check_features(feature_dim, num_classes)
    config.check_inputs(input_spec)
    return TaskSpec(
        num_classes=num_classes,
        feature_dim=feature_dim,
        backbone=make_backbone,
        class_counts=class_counts,
        seed=config.seeds.model,
        num_rounds=config.training.rounds if config.method.has_schedule else None,
        cohort_size=config.training.clients_per_round or num_clients,
        personal_norms=config.model.bn == "personal",
    )


def backbone_size(config: ExperimentConfig, input_spec: data.InputSpec) -> tuple[int, int]:
    """The numbers of trainable parameters, including the projection, and of features."""
    model, vocabulary_size = config.model, input_spec.vocabulary_size
    arguments = (model.backbone, input_spec.shape, model.projection_dim or 0, vocabulary_size)
    try:
        hash(arguments)
    except TypeError:
        return _backbone_size(*arguments)
    return _cached_size(*arguments)


def _backbone_size(
    backbone: Backbone,
    shape: tuple[int, ...],
    projection_dim: int,
    vocabulary_size: int | None,
) -> tuple[int, int]:
    # Building it in a graph allocates no memory.
    with tf.Graph().as_default():
        model = backbone.build(
            shape, projection_dim=projection_dim, vocabulary_size=vocabulary_size
        )
    parameters = sum(math.prod(variable.shape) for variable in model.trainable_weights)
    return parameters, model.output_shape[-1]


# Building a large network takes seconds, and the runs of a study share their backbone.
_cached_size = functools.cache(_backbone_size)
