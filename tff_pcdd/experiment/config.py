"""The settings that determine the results of an experiment.

`ExperimentConfig` composes the settings of the layers: the method, the data, the model, local
training, the aggregator and the evaluation. Its flat form is saved with the results, and a run can
only be resumed with equal settings. How and where an experiment is computed is not part of it; see
`run_options`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tff_pcdd import methods
from tff_pcdd.data import DataConfig
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, InputSpec
from tff_pcdd.data.new_clients import NewClients
from tff_pcdd.errors import SettingError
from tff_pcdd.evaluation import metrics
from tff_pcdd.experiment import history
from tff_pcdd.experiment.cohorts import BY_SAMPLES, ROUND_ROBIN, UNIFORM
from tff_pcdd.experiment.nonfinite import EXCLUDE, PATIENCE, STOP
from tff_pcdd.federated import aggregators, client_optimizers, schedules, server_optimizers
from tff_pcdd.federated.local_work import LocalWork
from tff_pcdd.methods import head_calibration
from tff_pcdd.methods.calibrated import compose
from tff_pcdd.models import ModelConfig
from tff_pcdd.settings import (
    WIDE,
    build,
    check_options,
    choice,
    describe,
    flatten,
    option,
    part,
    selection,
)

if TYPE_CHECKING:
    from typing import Unpack

    from tff_pcdd.experiment.setting_types import Settings
    from tff_pcdd.settings import Named

# Settings that are the common seed where they are not given, and where they are.
SEEDS = {
    "data_seed": ("data", "seed"),
    "model_seed": ("model", "seed"),
    "cohort_seed": ("training", "cohort_seed"),
    "batch_seed": ("training", "batch_seed"),
    "new_clients_seed": ("data", "new_clients_seed"),
}
# All settings that are derived from others where they are not given.
_DERIVED = {**SEEDS, "projection_dim": ("model", "projection_dim")}

# Settings that were added when runs existed already: a configuration that lacks one of them has its
# default, so that the digests of old runs stay the same.
_LATER = frozenset(
    (
        *("head_calibration", "precision", "deterministic", "warm_start", "cohort_sampling"),
        *("client_optimizer", "server_optimizer", "server_learning_rate"),
        *("schedule", "warmup_rounds", "min_local_epochs", "straggler_share", "dropped_share"),
        *("join_names", "min_site_samples", "small_sites", "missing", "missing_markers", "impute"),
        *("image_range", "skip_broken_images", "path_pattern", "group_pattern", "group_column"),
        *("categorical_columns", "class_order", "new_clients", "new_client_names"),
    )
)

# The kind of the errors about new clients to which a method gives nothing.
SHARES_NOTHING = "shares nothing with new clients"

# Tried if a method's own width is too small: that for CIFAR-100; for ImageNet and iNaturalist.
_LARGER_PROJECTIONS = (512, 2048)


def _calibration_of(method: methods.Method | type[methods.Method]) -> dict[str, str]:
    """The setting of the head calibration that the name of a method implies; empty if none."""
    name = method.head_calibration
    return {head_calibration.registry.setting: name} if name else {}


def implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The flat settings that earlier versions did not have, with the values that they imply."""
    name, known = settings.get("algorithm"), methods.registry.classes()
    own = _calibration_of(known[name]) if isinstance(name, str) and name in known else {}
    described = describe(ExperimentConfig)
    seeds = {"new_clients_seed": settings.get("seed", 0)}
    return {each.name: each.default for each in described if each.name in _LATER} | seeds | own


def without_implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings as an earlier version would have written them, if it could."""
    old = implied(settings)
    return {n: value for n, value in settings.items() if n not in old or value != old[n]}


class Seeds(NamedTuple):
    """The seed of each source of randomness.

    Attributes:
        data: of the partition and of all other random choices of samples.
        model: of the initial weights.
        cohorts: of the cohorts.
        batches: of the order of samples.
        new_clients: of the choice of the clients that take no part in training.
    """

    data: int
    model: int
    cohorts: int
    batches: int
    new_clients: int


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """Rounds, cohorts and local training.

    Raises:
        SettingError: a value is of the wrong type or out of bounds, or does not fit the others.
    """

    heading: ClassVar[str] = "Training"

    rounds: int = option(30, "Rounds of federated training.", minimum=1)
    clients_per_round: int = option(
        0, "Clients drawn for each round (the cohort); 0 for all.", minimum=0
    )
    local_epochs: int = option(5, "Passes over a client's samples in a round (E).", minimum=1)
    batch_size: int = option(32, "Samples per local step.", minimum=1)
    optimizer: Named[client_optimizers.ClientOptimizer] = choice(
        client_optimizers.registry,
        "sgd",
        "The clients' optimizer, which starts afresh in each round.",
    )
    schedule: Named[schedules.Schedule] = choice(
        schedules.registry,
        "constant",
        "How the clients' step size changes from round to round.",
    )
    local_work: LocalWork = part(LocalWork)
    cohort_sampling: str = option(
        UNIFORM,
        "How the cohort of a round is drawn: uniform; samples (with probabilities proportional to "
        "the clients' numbers of training samples, without replacement); or round_robin (all "
        "clients in turn, in an order drawn once).",
        choices=(UNIFORM, BY_SAMPLES, ROUND_ROBIN),
    )
    nonfinite: str = option(
        STOP,
        "Client updates that are NaN or infinite are left out. stop: the run ends, as diverged, "
        f"after {PATIENCE} rounds in a row with such values; exclude: after {PATIENCE} without a "
        "model.",
        choices=(STOP, EXCLUDE),
    )
    deterministic: bool = option(
        False,
        "Use only operations that give the same numbers whenever the same command runs on the same "
        "GPU, which takes longer. On processors, results are repeatable without it.",
    )
    cohort_seed: int | None = option(
        None,
        "Seed of the cohorts; the value of seed by default.",
        type=int,
        minimum=0,
        maximum=WIDE,
        group="Seeds",
    )
    batch_seed: int | None = option(
        None,
        "Seed of the order of samples; the value of seed by default.",
        type=int,
        minimum=0,
        maximum=WIDE,
        group="Seeds",
    )

    warm_start: str | None = option(
        None,
        "Directory of another run, from whose last weights this one starts: those of the server, "
        "and if the clients and their samples are the same, also those that clients keep. All else "
        "starts afresh.",
        type=str,
        path=True,
    )

    def __post_init__(self):
        check_options(self)
        least = self.local_work.min_local_epochs
        if least > self.local_epochs:
            reason = f"must be at most local_epochs={self.local_epochs}"
            raise SettingError("min_local_epochs", least, reason)
        self.schedule.check_rounds(self.rounds)

    def advice(self) -> list[str]:
        """Warnings of settings that have no effect."""
        least = self.local_work.min_local_epochs
        equal = (
            f"min_local_epochs={least}: has no effect, because local_epochs is {least} too; all "
            "clients train for as many epochs"
        )
        return [
            *self.schedule.advice(self.rounds),
            *([equal] if least == self.local_epochs else []),
        ]


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """When models are evaluated, and with which metrics.

    Raises:
        SettingError: a value is of the wrong type or out of bounds.
    """

    heading: ClassVar[str] = "Evaluation"

    eval_every: int = option(1, "Rounds between two evaluations of the global model.", minimum=1)
    personal_eval_every: int | None = option(
        None,
        "Rounds between two evaluations of the personal models; 0 for the last round only. By "
        "default, they are evaluated before their local epochs whenever the global model is, and "
        "also after them in rounds at growing distances (about ten times in 100 rounds) and in the "
        "last one; less often if that would take more than half of the time of training (10 % "
        "before their local epochs, 40 % after them).",
        type=int,
        minimum=0,
    )
    metrics: Named[tuple[metrics.Metric, ...]] = selection(
        metrics.registry,
        "Further metrics of the global and the personal models, in addition to the accuracies.",
    )
    early_stopping_patience: int | None = option(
        None,
        "Stop when va, the accuracy on held-out samples (validation_fraction), has not improved "
        "for this many evaluations, also in sweeps with another criterion; by default, never.",
        type=int,
        minimum=1,
    )

    def __post_init__(self):
        check_options(self)


def check_is_config(value: Any) -> None:
    """Refuses what is no configuration, such as the name of a method."""
    if not isinstance(value, ExperimentConfig):
        reason = 'must be an ExperimentConfig: ExperimentConfig.from_settings(algorithm="fedavg")'
        raise SettingError("config", value, reason)


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """Everything that determines the results of an experiment.

    Example:
        >>> config = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0)
        >>> config.method.scale
        2.0
        >>> config.data.describe()
        'digits, P10C2'

    The fields may be components, or their names:
        >>> ExperimentConfig(method="fedetf", seed=3)
        ExperimentConfig(algorithm='fedetf', seed=3)

    Raises:
        SettingError: a value is unknown, out of bounds, or does not fit the others.
    """

    method: Named[methods.Method] = choice(
        methods.registry, "fedavg", "The federated method.", group="Method"
    )
    head_calibration: Named[methods.HeadCalibration] = choice(
        head_calibration.registry,
        "none",
        "How the server re-trains the head of the global model after each round, for methods with "
        "a linear head that clients train. ccvr, creff and fednpc are also names of fedavg with "
        "it.",
        group="Method",
        suggest=lambda fields: _calibration_of(fields["method"]),
    )
    data: DataConfig = part(DataConfig)
    model: ModelConfig = part(
        ModelConfig, suggest=lambda fields: fields["data"].source.suggested_model()
    )
    training: TrainingConfig = part(TrainingConfig)
    aggregator: Named[aggregators.Aggregator] = choice(
        aggregators.registry,
        "mean",
        "How the clients' changes of the shared weights are combined: mean; robust (large changes "
        "are zeroed or clipped); compressed; secure (sums of integers); or dp (differential "
        "privacy, with equal weights). All but mean need a method whose clients upload nothing "
        "else.",
        group="Aggregation",
    )
    server_optimizer: Named[server_optimizers.ServerOptimizer] = choice(
        server_optimizers.registry,
        "sgd",
        "How the clients' mean change moves the shared weights: sgd (it is added, times the "
        "server's learning rate), or with momentum or adaptive steps.",
        group="Aggregation",
    )
    evaluation: EvaluationConfig = part(EvaluationConfig)
    seed: int = option(
        0,
        "Common seed of all sources of randomness that have no seed of their own.",
        minimum=0,
        maximum=WIDE,
        group="Seeds",
    )
    # The flat settings that were derived from others, which `with_settings` derives again. It is a
    # field so that `dataclasses.replace` hands it on.
    _derived: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self):
        check_options(self)
        missing = {name for name in _DERIVED if self._value(name) is None}
        for name in missing & SEEDS.keys():
            layer, field = SEEDS[name]
            self._replace(layer, **{field: self.seed})
        if (own := _calibration_of(self.method)) and self.head_calibration.name == "none":
            chosen = head_calibration.registry.create(*own.values())
            object.__setattr__(self, "head_calibration", chosen)
        composed = compose(self.method, self.head_calibration)
        history.check_metric_names(self.method, self.evaluation.metrics)
        self.training.optimizer.check(self.method)
        self.server_optimizer.check_method(composed)
        self._check_sampling()
        self.check_new_clients(self.data.new)
        if self.aggregator.equal_weights and self.method.client_weighting == "samples":
            raise SettingError(
                "client_weighting",
                self.method.client_weighting,
                f"aggregator={self.aggregator.name} gives all clients the same weight",
            )
        if self.model.projection_dim is None:
            self._replace("model", projection_dim=self._default_projection())
        # `dataclasses.replace` may have overridden some of them since they were derived.
        still = {name for name in self._derived if self._value(name) == self._default(name)}
        object.__setattr__(self, "_derived", frozenset(missing | still))

    def check_data(self) -> None:
        """Checks what depends on the clients and samples that the settings of the data describe.

        Not done on construction, because a federation given in Python replaces these data.

        Raises:
            SettingError: there are too few clients, or no held-out samples for early stopping, or
                the method cannot train on such inputs.
        """
        # Inputs that are not known yet have a stand-in, an image wherever they may be images.
        self.check_inputs(self.data.input_spec())
        num_clients = self.data.partition.known_clients()
        if num_clients is not None and self.training.clients_per_round > num_clients:
            raise SettingError(
                "clients_per_round",
                self.training.clients_per_round,
                f"there are only num_clients={num_clients} clients to draw from",
            )
        if num_clients is not None:
            self.data.new.check(num_clients, self.training.clients_per_round)
        if self.evaluation.early_stopping_patience and not self.data.may_hold_out:
            raise SettingError(
                "early_stopping_patience",
                self.evaluation.early_stopping_patience,
                "needs held-out samples; set validation_fraction above 0",
            )

    def check_new_clients(self, new: NewClients) -> None:
        """Checks that the method has something to give to clients that take no part in training.

        Raises:
            SettingError: it shares nothing.
        """
        if new.count and self.method.baseline and not self.method.has_global_model:
            reason = f"cannot be used with {self.algorithm}, which shares nothing: the model of a "
            reason += "new client would be untrained"
            raise new.refused(reason, kind=SHARES_NOTHING)

    def _check_sampling(self) -> None:
        """Checks that cohorts can be drawn in another way than uniformly."""
        sampling = self.training.cohort_sampling
        if sampling == UNIFORM:
            return
        reason = None
        if not self.training.clients_per_round:
            reason = "has no effect if all clients take part; set clients_per_round"
        elif self.aggregator.uniform_cohorts:
            reason = f"the guarantee of aggregator={self.aggregator.name} is for uniform cohorts"
        elif (
            sampling == BY_SAMPLES
            and self.method.weighting == "samples"
            and not self.aggregator.equal_weights
            and not self.method.baseline
        ):
            reason = (
                "would count the samples twice, in the draw and in the mean; set "
                "client_weighting=uniform"
            )
        if reason:
            raise SettingError("cohort_sampling", sampling, reason)

    @property
    def planned_by(self) -> str | None:
        """What depends on the planned number of rounds, so that it cannot be raised later."""
        if self.method.has_schedule:
            return f"the training of {self.algorithm}"
        schedule = self.training.schedule
        return f"schedule={schedule.name}" if schedule.needs_rounds else None

    @property
    def derived(self) -> frozenset[str]:
        """The names of the flat settings that were derived from others."""
        return self._derived

    def _default_projection(self) -> int:
        """The width of the projection where none is given; 0 for none."""
        if not self.method.projection_dim:
            return 0
        return self._projection(self.method.least_features(self.data.source.least_classes()))

    def _value(self, name: str) -> Any:
        """A setting that may be derived; None while it is missing."""
        layer, field = _DERIVED[name]
        return getattr(getattr(self, layer), field)

    def _default(self, name: str) -> int:
        """What the same setting is if it is derived."""
        return self.seed if name in SEEDS else self._default_projection()

    def _replace(self, layer: str, **values: Any) -> None:
        object.__setattr__(self, layer, dataclasses.replace(getattr(self, layer), **values))

    def _projection(self, least: int) -> int:
        """The method's own projection width, or a larger one with at least `least` features."""
        widths = (self.method.projection_dim, *_LARGER_PROJECTIONS)
        return next((width for width in widths if width >= least), least)

    @property
    def algorithm(self) -> str:
        """The name of the method."""
        return self.method.name

    @property
    def method_title(self) -> str:
        """The name of the method, with its head calibration if its name does not imply it.

        Example:
            >>> ExperimentConfig(method="fedprox", head_calibration="ccvr").method_title
            'fedprox with ccvr'
            >>> ExperimentConfig(method="ccvr").method_title
            'ccvr'
        """
        calibration = self.head_calibration.name
        is_plain = calibration == "none" or self.method.head_calibration
        return self.algorithm if is_plain else f"{self.algorithm} with {calibration}"

    @property
    def seeds(self) -> Seeds:
        """The seed of each source of randomness; the common seed where none was given."""
        return Seeds(*map(self._value, SEEDS))

    def describe(self) -> str:
        """The data and the backbone in a few words."""
        return f"{self.data.describe()}, {self.model.backbone.name}"

    def check_features(self, feature_dim: int, num_classes: int) -> None:
        """Checks that the backbone has enough features for the method's classifier.

        Raises:
            SettingError: there are too few; names a projection width that suffices.
        """
        least = self.method.least_features(num_classes)
        if feature_dim < least:
            raise SettingError(
                "projection_dim",
                self.model.projection_dim,
                f"{self.algorithm} needs at least {least} features for {num_classes} classes, "
                f"model={self.model.backbone.name} gives {feature_dim}; "
                f"set projection_dim={self._projection(least)}",
            )

    def check_inputs(self, spec: InputSpec) -> None:
        """Checks that the method can train on such inputs."""
        if self.method.needs_images and spec.kind not in (IMAGE, IMAGE_FILE):
            raise SettingError(
                "algorithm",
                self.algorithm,
                f"augments images, and inputs are of kind {spec.kind}; choose another method",
            )

    @classmethod
    def from_settings(cls, **values: Unpack[Settings]) -> ExperimentConfig:
        """Makes a configuration from flat settings, as on the command line.

        Args:
            **values: settings by their names; `setting_types.Settings` lists them. Those that are
                not given, or None, have their defaults. Settings of components that you have
                registered yourself are given as `**{"mine_scale": 2.0}` where types are checked.

        Raises:
            SettingError: a value is unknown, out of bounds, or does not fit the others.
        """
        # In Python, an object without a calibration cannot be told from the default.
        setting = head_calibration.registry.setting
        own = implied(values)[setting]
        if values.get(setting) == "none" != own:
            reason = f"algorithm={values.get('algorithm')} is fedavg with {setting}={own}"
            raise SettingError(setting, "none", f"{reason}; choose fedavg")
        return build(cls, values)

    @classmethod
    def from_record(cls, settings: Mapping[str, Any]) -> ExperimentConfig:
        """Makes a configuration from the flat settings of an earlier one, as in config.json.

        A record does not say what had been given. Seeds that equal the common one, and a projection
        of the default width, count as derived.

        Raises:
            SettingError: a value is unknown, out of bounds, or does not fit the others.
        """
        return dataclasses.replace(build(cls, settings), _derived=frozenset(_DERIVED))

    def default_of(self, name: str) -> Any:
        """The value that a setting would have if it were not given, beside all others.

        Raises:
            SettingError: there is no such setting.
            KeyError: it does not apply beside the others.
        """
        left_out: dict[str, Any] = {name: None}
        return self.with_settings(**left_out).to_settings()[name]

    def with_settings(self, **values: Unpack[Settings]) -> ExperimentConfig:
        """The same configuration with other values of some flat settings.

        If another component is chosen, its settings have their defaults unless they are given.
        Values that were derived from others, such as `data_seed` from `seed`, are derived again,
        and those that were given stay. None resets a setting to its default.

        Raises:
            SettingError: a value is unknown, out of bounds, or does not fit the others; or the
                configuration has a component that is not registered, and so has no flat form.
        """
        settings, replaced = self.to_settings(), {*values}
        calibration = head_calibration.registry.setting
        if "algorithm" in values and (
            self.method.head_calibration or self.head_calibration.name == "none"
        ):
            # That of the method goes with it.
            replaced.add(calibration)
            settings.pop(calibration)
        for setting in describe(type(self)):
            if setting.chosen_by in replaced:
                settings.pop(setting.name, None)
        for name in self._derived:
            settings.pop(name, None)
        return build(type(self), {**settings, **values})

    def __repr__(self) -> str:
        settings = flatten(self, changed=True)
        given = [f"{name}={settings[name]!r}" for name in settings if name not in self._derived]
        return f"{type(self).__name__}({', '.join(given)})"

    def to_settings(self) -> dict[str, Any]:
        """All flat settings that apply, with their values."""
        return flatten(self)

    def digest(self) -> str:
        """A short hash of the flat settings; equal settings have equal ones."""
        floats = {setting.name for setting in describe(type(self)) if setting.type is float}
        settings = {
            # From Python, a float may be given as a whole number; the sum makes -0.0 a 0.0.
            name: value + 0.0 if name in floats and isinstance(value, int | float) else value
            for name, value in without_implied(self.to_settings()).items()
        }
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
