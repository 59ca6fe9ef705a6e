"""Data sources: one registered class per data set, one file per loader.

A data set of your own is a registered class with a `DatasetInfo` and a method `load`:

    >>> import dataclasses
    >>> import numpy as np
    >>> from tff_pcdd.data import DataConfig, DatasetInfo, Examples, sources
    >>> @sources.register
    ... @dataclasses.dataclass(frozen=True)
    ... class Stripes(sources.ImageSource):
    ...     info = DatasetInfo("stripes", "image", num_classes=2, shape=(4, 4, 1))
    ...
    ...     def load(self, request):
    ...         y = np.arange(40) % 2
    ...         x = np.zeros((40, 4, 4, 1), np.uint8)
    ...         x[y == 1, ::2] = 255
    ...         samples = Examples(x, y)
    ...         return sources.PooledData(samples, samples, ("flat", "striped"), self.image_spec())
    >>> sources.create("stripes", augmentation="standard").input_spec().crop_padding
    1

Fields made by `tff_pcdd.settings.option` become settings of the data set. An instance of a class
that is not registered can be passed to `DataConfig(source=...)`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.input_spec import IMAGE_FILE, TEXT, InputSpec
from tff_pcdd.errors import SettingError
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

AUGMENTATIONS = ("none", "standard", "reflect", "rotation")
NORMALIZATIONS = ("dataset", "imagenet", "none")

# Settings that bound what is read. A run may continue with other limits.
LIMITS = ("max_image_pixels", "max_json_bytes", "max_json_depth")

# Means and standard deviations of ImageNet's channels.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Attributes:
        name: name by which the data set is chosen.
        kind: kind of its inputs, see `InputSpec`.
        num_classes: number of classes; the largest possible number if it depends on the copy.
        shape: shape of one input.
        has_users: whether samples belong to users, so that the natural partition can be used.
        needs_data_dir: whether there is no default directory.
        mean: mean of each channel, for pixels scaled to [0, 1]; None for 0.
        std: standard deviation of each channel, for pixels scaled to [0, 1]; None for 1.
        flip: whether a mirrored image keeps its class, so that augmentation may mirror images.
        resize: for image files, see `InputSpec`.
        vocabulary: for text, see `InputSpec`.
    """

    name: str
    kind: str
    num_classes: int
    shape: tuple[int, ...]
    has_users: bool = False
    needs_data_dir: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    flip: bool = False
    resize: int | None = None
    vocabulary: str | None = None


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """Which part of a data set to load.

    Attributes:
        max_clients: number of users to load, drawn by `seed`; None for all users. A number is given
            only for sets with users.
        seed: a non-negative integer, the only source of randomness in loading.

    Raises:
        SettingError: if `max_clients` is less than 1.
    """

    max_clients: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_clients is not None and self.max_clients < 1:
            raise SettingError("max_clients", self.max_clients, "must be at least 1")


@dataclasses.dataclass(frozen=True)
class PooledData:
    """A data set before it is divided among clients.

    Attributes:
        train: training examples.
        test: test examples.
        class_names: one name per class.
        input_spec: how raw inputs become model inputs.
        users: the samples of each user; None if the set has no users.
        notes: counts of what loading left out or repaired.
    """

    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    input_spec: InputSpec
    users: tuple[ClientIndices, ...] | None = None
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DataSource(Component):
    """Base class of data sources; a subclass sets `info` and implements `load` and `input_spec`.

    Attributes:
        info: what is known about the data set before it is loaded. `name` is taken from it.
        user_options: fields that apply only if the partition keeps the users of the set; they
            are None by default.
    """

    info: ClassVar[DatasetInfo]
    user_options: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            raise TypeError(f"{cls.__name__}: set `info`, which holds the name, instead of `name`")
        if "info" in vars(cls):
            cls.name = cls.info.name

    def load(self, request: LoadRequest) -> PooledData:
        """Reads the samples.

        Args:
            request: which part to load.

        Raises:
            SettingError: if a setting does not fit the data.
            DataError: if files are missing, unreadable or inconsistent.
        """
        raise NotImplementedError

    def least_classes(self) -> int:
        """The minimum number of classes, which is known before loading."""
        return self.info.num_classes

    def input_spec(self) -> InputSpec:
        """How raw inputs become model inputs, as far as it is known before loading.

        `load` may return another type and scale of raw pixels.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class DirectorySource(DataSource):
    """Mixin for data sets that are read from a directory."""

    data_dir: str | None = option(
        None,
        "Directory that holds the data set, for example the data directory of TensorFlow Datasets "
        "or of LEAF.",
        type=str,
        path=True,
        group="Data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.info.needs_data_dir and not self.data_dir:
            raise SettingError(
                "data_dir", None, f"is missing; {self.name} needs the directory that holds it"
            )


@dataclasses.dataclass(frozen=True)
class TextSource(DataSource):
    """Base class of text data sets."""

    def text_spec(self, dtype: str = "uint8") -> InputSpec:
        """The input spec for ids of type `dtype`, "uint8" or "int32"."""
        return InputSpec(TEXT, self.info.shape, dtype, vocabulary=self.info.vocabulary)

    def input_spec(self) -> InputSpec:
        return self.text_spec()


@dataclasses.dataclass(frozen=True)
class ImageSource(DataSource):
    """Base class of image data sets: options of augmentation and normalization."""

    augmentation: str = option(
        "none",
        "Augmentation of training images: none, standard (random crops, and mirroring where it "
        "keeps the class), reflect (standard with reflected borders), or rotation (standard and "
        "random rotations by up to 15 degrees).",
        choices=AUGMENTATIONS,
        group="Data",
    )
    input_normalization: str = option(
        "dataset",
        "Channel means and standard deviations for the normalization of images: those of the data "
        "set, those of ImageNet, or none.",
        choices=NORMALIZATIONS,
        group="Data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_normalization == "imagenet" and self.info.shape[-1] != 3:
            raise SettingError(
                "input_normalization",
                self.input_normalization,
                f"needs color images, but {self.name} has none",
            )

    def image_spec(self, dtype: str | None = None, scale: float = 1 / 255) -> InputSpec:
        """The input spec for the chosen normalization and augmentation.

        Augmentations pad images by an eighth of their size (4 pixels for 32), crop them and, where
        a mirrored image keeps its class, mirror half of them. "standard" pads with zeros (FedLoGe),
        "reflect" with the reflected image (FedMR's CIFAR-10); "rotation" pads with zeros and also
        rotates by up to 15 degrees (CIFAR-100 in FedGELA and FedMR).

        Args:
            dtype: type of the raw inputs; by default "uint8", or "string" for image files.
            scale: factor that maps raw pixels to [0, 1].
        """
        info = self.info
        mean, std = {
            "dataset": (info.mean, info.std),
            "imagenet": IMAGENET,
            "none": (None, None),
        }[self.input_normalization]
        dtype = dtype or ("string" if info.kind == IMAGE_FILE else "uint8")
        spec = InputSpec(
            info.kind, info.shape, dtype, scale=scale, mean=mean, std=std, resize=info.resize
        )
        if self.augmentation == "none":
            return spec
        return dataclasses.replace(
            spec,
            crop_padding=max(1, min(info.shape[:2]) // 8),
            padding_mode="reflect" if self.augmentation == "reflect" else "zeros",
            flip=info.flip,
            rotation=15.0 if self.augmentation == "rotation" else 0.0,
        )

    def input_spec(self) -> InputSpec:
        return self.image_spec()


registry: Registry[DataSource] = Registry("dataset", "tff_pcdd.data.sources")
register = registry.register
names = registry.names
get = registry.get
create = registry.create

__all__ = [
    "AUGMENTATIONS",
    "IMAGENET",
    "LIMITS",
    "NORMALIZATIONS",
    "DataSource",
    "DatasetInfo",
    "DirectorySource",
    "ImageSource",
    "LoadRequest",
    "PooledData",
    "TextSource",
    "create",
    "get",
    "names",
    "register",
    "registry",
]
