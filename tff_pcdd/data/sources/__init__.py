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

What the private modules refuse is a `DataError` that names the file and the row, sample or column;
their docstrings do not repeat it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from tff_pcdd import text
from tff_pcdd.data.input_spec import IMAGE_FILE, MAX_PIXELS, TEXT, VECTOR, InputSpec
from tff_pcdd.data.pooled import DatasetInfo, LoadRequest, PooledData
from tff_pcdd.data.sources._places import meant
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option

AUGMENTATIONS = ("none", "standard", "reflect", "rotation")
NORMALIZATIONS = ("dataset", "imagenet", "none")

# Settings that bound what is read, and their defaults. A run may continue with other limits.
LIMITS = {"max_image_pixels": MAX_PIXELS, "max_json_bytes": 250_000_000, "max_json_depth": 20}

# The most characters of a directory's or a file's name in headings.
_LONGEST = 40

# Means and standard deviations of ImageNet's channels.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclasses.dataclass(frozen=True)
class DataSource(Component):
    """Base class of data sources; a subclass sets `info` and implements `load` and `input_spec`.

    Attributes:
        info: what is known about the data set before it is loaded. `name` is taken from it.
        user_options: fields that apply only if the partition keeps the users of the set; they
            are None by default.
        may_hold_out: whether the data may have validation samples of their own.
        inputs_are_known: whether `input_spec` is that of the data before they are read.
        draws_only_users: whether `load` uses its seed only to draw `max_clients` users, so that
            without this number the data are the same under every seed.
    """

    info: ClassVar[DatasetInfo]
    user_options: ClassVar[tuple[str, ...]] = ()
    may_hold_out: ClassVar[bool] = False
    inputs_are_known: ClassVar[bool] = True
    draws_only_users: ClassVar[bool] = False

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

    def check(self) -> None:
        """Checks what can be checked without reading samples or importing TensorFlow.

        Raises:
            DataError: if the data are missing.
        """

    def read_files(self) -> Iterable[str | os.PathLike]:
        """The files that `load` reads, below the data directory; none if they cannot change.

        Raises:
            OSError: a folder cannot be read.
            DataError: if files are missing.
        """
        return ()

    def listed_files(self) -> Iterable[str | os.PathLike]:
        """Further files that those of `read_files` name; they may be missing.

        Raises:
            OSError, DataError: a file that names some cannot be read.
        """
        return ()

    def holds(self, path: pathlib.Path) -> bool:
        """Whether files in this place would be taken for data; by default nowhere."""
        del path
        return False

    def refuse_results(self, directory: pathlib.Path) -> None:
        """Refuses a directory for results whose files would be taken for data.

        Raises:
            SettingError: it lies among the data.
        """
        if self.holds(directory):
            raise SettingError(
                "output_dir",
                directory,
                f"lies in the folder of the data set {self.name}, and files in it would be "
                "taken for data; name a directory outside of it",
            )

    def describe(self) -> str:
        """The data set in a word or two, for headings."""
        return self.name

    @property
    def has_users(self) -> bool:
        """Whether samples belong to users, as far as the settings say."""
        return self.info.has_users

    def suggested_partition(self) -> dict[str, str]:
        """The partition that suits the data set, as a flat setting; empty for the usual default."""
        return {}

    def suggested_model(self) -> dict[str, str]:
        """The backbone that suits the data set, as a flat setting; empty for the usual default."""
        model = {TEXT: "lstm", VECTOR: "mlp"}.get(self.info.kind)
        return {"model": model} if model else {}

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
    """Mixin for data sets that are read from a directory.

    Attributes:
        needs: what `data_dir` has to be, for messages.
        holds_any_data: whether the name of the data set does not say which data these are, so that
            headings name the directory or file, too.
    """

    needs: ClassVar[str] = "directory that holds it"
    holds_any_data: ClassVar[bool] = False

    data_dir: str | None = option(
        None,
        "Directory that holds the data set, for example the data directory of TensorFlow Datasets "
        "or of LEAF; for table and npz, the file or folder.",
        type=str,
        path=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.info.needs_data_dir and not self.data_dir:
            raise SettingError("data_dir", None, f"is missing; {self.name} needs the {self.needs}")

    def check(self) -> None:
        if self.data_dir and not self.path.is_dir():
            what = f"data_dir={self.data_dir} is not a directory{meant(self.path)}"
            raise DataError(f"dataset {self.name}: {what}")

    def describe(self) -> str:
        # Without what HTML, Markdown and formulas in pictures consist of.
        shown = re.sub(r"[^\w .,+()-]", "_", text.cut(self.path.name, _LONGEST)).strip(" .")
        return f"{self.name}: {shown}" if self.holds_any_data and shown else self.name

    @property
    def path(self) -> pathlib.Path:
        """The directory; `~` stands for the user's home."""
        return pathlib.Path(os.path.expanduser(self.data_dir or ""))


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
    )
    input_normalization: str = option(
        "dataset",
        "Channel means and standard deviations for the normalization of images: those of the data "
        "set, those of ImageNet, or none.",
        choices=NORMALIZATIONS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_normalization == "imagenet" and self.info.shape[-1] != 3:
            raise SettingError(
                "input_normalization",
                self.input_normalization,
                f"needs color images, but {self.name} has none",
            )

    def image_spec(
        self, dtype: str | None = None, scale: float = 1 / 255, info: DatasetInfo | None = None
    ) -> InputSpec:
        """The input spec for the chosen normalization and augmentation.

        Augmentations pad images by an eighth of their size (4 pixels for 32), crop them and, where
        a mirrored image keeps its class, mirror half of them. "standard" pads with zeros (FedLoGe),
        "reflect" with the reflected image (FedMR's CIFAR-10); "rotation" pads with zeros and also
        rotates by up to 15 degrees (CIFAR-100 in FedGELA and FedMR).

        Args:
            dtype: type of the raw inputs; by default "uint8", or "string" for image files.
            scale: factor that maps raw pixels to [0, 1].
            info: shape and statistics that are only known once the data set is loaded.
        """
        info = info or self.info
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
