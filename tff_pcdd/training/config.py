"""The settings of an experiment: what is computed, and, apart from it, how and where.

`ExperimentConfig` determines every number that comes out; it is saved beside the results and has
to be the same when a run resumes. `RunOptions` may differ between two runs of one experiment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from tff_pcdd import data, methods, models
from tff_pcdd.options import OptionError, check_options, option, settle_options

# Widths of the projection where there are more classes than a method's own width: the published one
# for CIFAR-100, and enough for ImageNet and iNaturalist.
_LARGER_PROJECTIONS = (512, 2048)


def _projection(method: methods.Method, least: int) -> int:
    """The method's own width of the projection, or a larger one that gives `least` features."""
    widths = (method.projection_dim, *_LARGER_PROJECTIONS)
    return next((width for width in widths if width >= least), least)


@dataclasses.dataclass(frozen=True)
class ExperimentConfig:
    """All that determines the result of a run.

    Raises:
        OptionError: a value is unknown, out of bounds, or does not apply to the others.
    """

    algorithm: str = option(
        "fedavg", f"The federated method: {', '.join(methods.names())}.", group="Method"
    )
    method_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    dataset: str = option(
        "digits",
        f"The data set: {', '.join(data.dataset_names())}. Digits comes with the installation.",
        group="Data",
    )
    data_dir: str | None = option(
        None, "Folder of the data set (tfds folder, LEAF's data folder, …).", type=str, group="Data"
    )
    partition: str = option(
        "class",
        "Who holds what: class (each client some classes, PxCy), dirichlet, iid, or natural (the "
        "users that the data set comes with).",
        choices=("class", "dirichlet", "iid", "natural"),
        group="Data",
    )
    num_clients: int | None = option(
        10,
        "Clients in the federation (K).",
        minimum=1,
        only={"partition": ("class", "dirichlet", "iid")},
        group="Data",
    )
    classes_per_client: int | None = option(
        2,
        "Classes that each client holds.",
        minimum=1,
        only={"partition": ("class",)},
        group="Data",
    )
    concentration: float | None = option(
        0.5,
        "Concentration of the Dirichlet distribution; small is uneven.",
        above=0,
        only={"partition": ("dirichlet",)},
        group="Data",
    )
    max_clients: int | None = option(
        None,
        "Take this many of the data set's users, drawn by the data seed.",
        type=int,
        minimum=1,
        only={"partition": ("natural",)},
        group="Data",
    )
    num_classes: int | None = option(
        None,
        "Classes of LEAF's sets; by default those of the smallest edition that has all the labels.",
        type=int,
        minimum=1,
        only={"dataset": data.DATASETS_OF["num_classes"]},
        group="Data",
    )
    split_centres: int | None = option(
        None,
        "Divide the centres of Fed-ISIC2019 into this many clients (the papers: 20).",
        type=int,
        minimum=1,
        only={"dataset": data.DATASETS_OF["split_centres"], "partition": ("natural",)},
        group="Data",
    )
    min_samples: int | None = option(
        10,
        "Training samples that every client has at least; the partition is drawn again until so.",
        minimum=0,
        only={"partition": ("dirichlet",)},
        group="Data",
    )
    assignment: str | None = option(
        "class",
        "class: proportions of each class over clients (FedGELA); sample: every sample for itself "
        "(FedLoGe).",
        choices=("class", "sample"),
        only={"partition": ("dirichlet",)},
        group="Data",
    )
    local_test: str | None = option(
        "disjoint",
        "Clients' test parts: disjoint, or overlapping (FedLoGe's, drawn for each client anew).",
        choices=("disjoint", "overlapping"),
        only={"partition": ("dirichlet",)},
        group="Data",
    )
    imbalance_factor: float | None = option(
        None,
        "Make the data set long-tailed before it is partitioned: largest over smallest class.",
        type=float,
        minimum=1,
        group="Data",
    )
    max_train_samples: int | None = option(
        None, "Use a class-stratified part of the training set.", type=int, minimum=1, group="Data"
    )
    max_test_samples: int | None = option(
        None, "Use a class-stratified part of the test set.", type=int, minimum=1, group="Data"
    )
    validation_fraction: float = option(
        0.0,
        "Share of every client's training samples that is held out, class by class, to choose the "
        "best round or settings on.",
        minimum=0,
        maximum=0.9,
        group="Data",
    )
    augmentation: str = option(
        "none",
        "Training images as they are, or randomly cropped and mirrored (standard), with reflected "
        "borders (reflect), or turned as well (rotation).",
        choices=data.AUGMENTATIONS,
        group="Data",
    )
    input_normalization: str = option(
        "dataset",
        "Mean and deviation of the data set, of ImageNet, or none.",
        choices=data.NORMALIZATIONS,
        group="Data",
    )

    model: str = option("simple_cnn", f"The backbone: {', '.join(models.names())}.", group="Model")
    projection_dim: int | None = option(
        None,
        "Width of a linear layer between backbone and head, 0 for none. By default FedGE, FedGELA "
        "and FedMR have one of 84, the first two of 512 or 2048 where there are more classes.",
        type=int,
        minimum=0,
        group="Model",
    )
    bn: str = option(
        "averaged",
        "Clients' batch normalisation: averaged like weights, or personal, kept by each client, "
        "with its mean for the global model (FedBN).",
        choices=("averaged", "personal"),
        group="Model",
    )
    normalization: str | None = option(
        "batch",
        "Normalisation layers: batch, whose moving statistics are averaged with the weights, or "
        "group, which has none.",
        choices=models.NORMS,
        only={"model": models.NORMALIZED},
        group="Model",
    )
    pretrained_weights: str | None = option(
        None,
        "File of weights of Keras' EfficientNetB0(include_top=False) to start from; those for "
        "ImageNet expect --input_normalization=imagenet.",
        type=str,
        only={"model": models.PRETRAINED, "normalization": ("batch",)},
        group="Model",
    )

    rounds: int = option(30, "Rounds of federated training.", minimum=1, group="Training")
    clients_per_round: int = option(
        0,
        "Clients in a round's cohort, drawn anew each round; 0 for all.",
        minimum=0,
        group="Training",
    )
    local_epochs: int = option(
        5, "Passes over a client's samples in a round (E).", minimum=1, group="Training"
    )
    batch_size: int = option(32, "Samples in a local step.", minimum=1, group="Training")
    client_learning_rate: float = option(
        0.01, "Step size of the clients' SGD.", above=0, group="Training"
    )
    client_momentum: float = option(
        0.9,
        "Momentum of the clients' SGD, afresh each round.",
        minimum=0,
        maximum=0.9999,
        group="Training",
    )
    client_weight_decay: float = option(
        1e-4, "Coupled weight decay of the clients' SGD.", minimum=0, group="Training"
    )
    client_clip_norm: float = option(
        20.0,
        "Largest global norm of a local gradient, 0 for no clipping.",
        minimum=0,
        group="Training",
    )

    aggregator: str = option(
        "mean",
        "How clients' changes of the shared weights become one: their mean, or robust (zeroing and "
        "clipping of large ones), compressed, secure (sums of whole numbers) or dp (differential "
        "privacy; all clients count alike). For methods whose clients send nothing else.",
        choices=("mean", "robust", "compressed", "secure", "dp"),
        group="Aggregation",
    )
    aggregator_zeroing: bool | None = option(
        True,
        "Changes with an entry far larger than usual become zero.",
        only={"aggregator": ("robust", "compressed", "secure")},
        group="Aggregation",
    )
    aggregator_clipping: bool | None = option(
        True,
        "Changes are clipped to the L2 norm that four in five stay below.",
        only={"aggregator": ("robust", "compressed", "secure")},
        group="Aggregation",
    )
    compressed_bits: int | None = option(
        8,
        "Bits of an entry.",
        minimum=1,
        maximum=16,
        only={"aggregator": ("compressed",)},
        group="Aggregation",
    )
    compressed_threshold: int | None = option(
        20000,
        "Tensors with more entries are compressed, others sent as they are.",
        minimum=0,
        only={"aggregator": ("compressed",)},
        group="Aggregation",
    )
    dp_noise_multiplier: float | None = option(
        1.0,
        "Standard deviation of the noise on the sum of changes, over the clip.",
        minimum=0,
        only={"aggregator": ("dp",)},
        group="Aggregation",
    )
    dp_clip: float | None = option(
        1.0,
        "L2 norm to which a client's change is clipped; 0 follows the median, which takes some 20 "
        "clients in a round or more.",
        minimum=0,
        only={"aggregator": ("dp",)},
        group="Aggregation",
    )
    dp_delta: float | None = option(
        1e-5,
        "δ for which ε is reported; less than one in the number of clients.",
        above=0,
        maximum=0.1,
        only={"aggregator": ("dp",)},
        group="Aggregation",
    )

    eval_every: int = option(
        1, "Evaluate the global model after every so many rounds.", minimum=1, group="Evaluation"
    )
    personal_eval_every: int | None = option(
        None,
        "Evaluate the personal models after every so many rounds, which costs about a round of "
        "training by all clients; 0 for the last round only. As --eval_every by default.",
        type=int,
        minimum=0,
        group="Evaluation",
    )

    seed: int = option(0, "Seed of every source of randomness.", minimum=0, group="Seeds")
    data_seed: int | None = option(
        None, "Seed of the partition; --seed by default.", type=int, minimum=0, group="Seeds"
    )
    model_seed: int | None = option(
        None, "Seed of the first weights; --seed by default.", type=int, minimum=0, group="Seeds"
    )
    cohort_seed: int | None = option(
        None, "Seed of the cohorts; --seed by default.", type=int, minimum=0, group="Seeds"
    )
    batch_seed: int | None = option(
        None, "Seed of the order of samples; --seed by default.", type=int, minimum=0, group="Seeds"
    )

    def __post_init__(self):
        check_options(self)
        settle_options(self)
        for name in ("data_seed", "model_seed", "cohort_seed", "batch_seed"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.seed)
        if self.personal_eval_every is None:
            object.__setattr__(self, "personal_eval_every", self.eval_every)
        if self.model not in models.names():
            raise OptionError(f"--model={self.model}: choose one of {', '.join(models.names())}")
        if self.num_clients is not None and self.clients_per_round > self.num_clients:
            raise OptionError(
                f"--clients_per_round={self.clients_per_round}: there are only "
                f"--num_clients={self.num_clients} clients to draw from"
            )
        method = self.method()
        effective = {
            field.name: getattr(method, field.name) for field in dataclasses.fields(method)
        }
        object.__setattr__(self, "method_options", effective)
        try:
            self.data_config().check()
        except data.DataError as error:
            # The data package speaks of settings; here they are flags.
            raise OptionError(re.sub(r"^(?=\w+=)", "--", str(error))) from None
        if self.projection_dim is None:
            least = method.least_features(data.dataset_info(self.dataset).num_classes)
            width = _projection(method, least) if method.projection_dim else 0
            object.__setattr__(self, "projection_dim", width)

    def check_features(self, feature_dim: int, num_classes: int) -> None:
        """Refuses features that are too few for the method's classifier.

        Raises:
            OptionError: with the number that would do.
        """
        method = self.method()
        least = method.least_features(num_classes)
        if feature_dim < least:
            raise OptionError(
                f"--projection_dim={self.projection_dim}: {self.algorithm} needs at least {least} "
                f"features for {num_classes} classes, --model={self.model} gives {feature_dim}; "
                f"give --projection_dim={_projection(method, least)}"
            )

    def data_config(self) -> data.DataConfig:
        """The part of the settings that says which data there are and who holds them."""
        names = {field.name for field in dataclasses.fields(data.DataConfig)}
        # What does not apply to this partition is None here, and at its default there.
        values = {
            name: getattr(self, name)
            for name in names & {field.name for field in dataclasses.fields(self)}
            if getattr(self, name) is not None
        }
        if self.partition == "natural":
            values["num_clients"] = self.max_clients
        return data.DataConfig(**{**values, "seed": self.data_seed})

    def method(self) -> methods.Method:
        """The configured method."""
        return methods.create(self.algorithm, **self.method_options)

    def to_json(self) -> dict[str, Any]:
        """The effective settings, a method's options under `<method>_<option>`."""
        values = dataclasses.asdict(self)
        for name, value in values.pop("method_options").items():
            values[f"{self.algorithm}_{name}"] = value
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ExperimentConfig:
        """The reverse of `to_json`."""
        known = {field.name for field in dataclasses.fields(cls)}
        prefix = f"{values['algorithm']}_"
        return cls(
            **{name: value for name, value in values.items() if name in known},
            method_options={
                name.removeprefix(prefix): value
                for name, value in values.items()
                if name not in known and name.startswith(prefix)
            },
        )

    def digest(self) -> str:
        """A short hash of the effective settings."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:12]


# What --diagnostics can name.
DIAGNOSTICS = ("angles", "eigen", "nc", "norms", "features", "tsne")


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where and how an experiment runs; none of it changes the result.

    Raises:
        OptionError: a value is unknown or out of bounds.
    """

    runtime: str = option(
        "inprocess",
        "Where TFF's computations run: inprocess (in this process, on GPUs where there are), tff "
        "(TFF's local C++ worker), remote (TFF workers on other machines, see --workers).",
        choices=("inprocess", "tff", "remote"),
        group="Runtime",
    )
    client_parallelism: int | None = option(
        None,
        "Clients that train at the same time; chosen from cores and devices by default.",
        type=int,
        minimum=1,
        only={"runtime": ("inprocess",)},
        group="Runtime",
    )
    devices: str | None = option(
        None,
        "Devices that take clients in turn, as GPU:0,GPU:1; all GPUs, else the CPU, by default.",
        type=str,
        only={"runtime": ("inprocess",)},
        group="Runtime",
    )
    workers: str | None = option(
        None,
        "Addresses of TFF workers, as host:port,host:port; see `python -m tasks.worker`.",
        type=str,
        only={"runtime": ("remote",)},
        group="Runtime",
    )
    worker_timeout: float | None = option(
        60.0,
        "Seconds after which a worker that gives no sign of life is given up.",
        above=0,
        only={"runtime": ("remote",)},
        group="Runtime",
    )
    jit_compile: bool = option(False, "Compile the local step with XLA.", group="Runtime")
    eval_batch_size: int = option(
        512, "Samples in a forward pass of evaluation.", minimum=1, group="Runtime"
    )
    diagnostics: str | None = option(
        None,
        "Numbers and pictures of the geometry of features and classifiers, separated by commas: "
        "angles, eigen (eigenvalues of class covariances), nc (neural collapse), norms (of the "
        "classifier), features (degenerate ones), tsne (a map of the last round's features). See "
        "docs/diagnostics.md.",
        type=str,
        group="Evaluation",
    )
    checkpoint_every: int = option(1, "Rounds between checkpoints.", minimum=1, group="Output")
    keep_checkpoints: int = option(3, "Checkpoints kept, the newest.", minimum=1, group="Output")
    client_store: str = option(
        "memory",
        "Where clients' states wait between rounds: memory, or disk for large federations.",
        choices=("memory", "disk"),
        group="Output",
    )
    tensorboard: bool = option(True, "Write TensorBoard event files.", group="Output")
    progress: bool = option(True, "Show a progress bar.", group="Output")

    def __post_init__(self):
        check_options(self)
        settle_options(self)
        if self.runtime == "remote" and not self.workers:
            raise OptionError("--runtime=remote: needs --workers=host:port,…")
        for name in self.diagnostic_names():
            if name not in DIAGNOSTICS:
                raise OptionError(
                    f"--diagnostics={self.diagnostics}: {name!r} is none of "
                    f"{', '.join(DIAGNOSTICS)}"
                )

    def diagnostic_names(self) -> list[str]:
        """The diagnostics that are asked for."""
        return [name.strip() for name in self.diagnostics.split(",")] if self.diagnostics else []

    def runtime_options(self) -> dict[str, Any]:
        """Keyword arguments for `tff_pcdd.runtime.use`."""
        if self.runtime == "inprocess":
            devices = tuple(self.devices.split(",")) if self.devices else ()
            return {"client_parallelism": self.client_parallelism, "devices": devices}
        if self.runtime == "remote":
            return {"workers": self.workers.split(","), "worker_timeout": self.worker_timeout}
        return {}
