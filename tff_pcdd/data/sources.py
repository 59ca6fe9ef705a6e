"""Where samples come from: a registry of data sets, and the loaders of digits and of tfds sets.

A new data set is a function that returns a `Source`, registered with what can be said about it
without loading anything:

    @register_source(DatasetInfo("mine", "image", 3, (16, 16, 1)))
    def _load_mine(info, options):
        return Source(train, test, class_names, image_spec(info, options))

Per-channel means and deviations: FedGELA's code (methods of FedMR and FedLoGe use the same, except
that FedLoGe normalises CIFAR-10-LT with ImageNet's, `input_normalization="imagenet"`).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import IMAGE, IMAGE_FILE, ClientIndices, Examples, InputSpec

AUGMENTATIONS = ("none", "standard", "reflect", "rotation")
NORMALIZATIONS = ("dataset", "imagenet", "none")

# Means and deviations of ImageNet's channels.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set without loading it.

    Attributes:
        name: as on the command line.
        kind: of its inputs, see `InputSpec`.
        num_classes: the number of classes, the largest one where it depends on the copy.
        shape: of one input.
        has_users: whether its samples belong to users, so that the natural partition exists.
        needs_data_dir: whether a directory has to be named.
        mean: per channel, of pixels scaled to [0, 1]; None for 0.
        std: per channel; None for 1.
        flip: whether a mirrored image keeps its class, which augmentation needs to know.
        resize: of image files, see `InputSpec`.
        vocabulary: of text, see `InputSpec`.
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
class SourceOptions:
    """What a loader may be asked for.

    Attributes:
        data_dir: the directory that holds the set, or None.
        augmentation: one of `AUGMENTATIONS`, see `image_spec`.
        input_normalization: one of `NORMALIZATIONS`.
        max_clients: of a set with users, how many of them are loaded, chosen by `seed`; None for
            all.
        num_classes: of LEAF's sets, how many classes there are; None for those of the smallest
            edition that has all the labels.
        split_centres: of Fed-ISIC2019, how many clients its centres are divided into; None for a
            client each.
        seed: of that choice.
    """

    data_dir: str | None = None
    augmentation: str = "none"
    input_normalization: str = "dataset"
    max_clients: int | None = None
    num_classes: int | None = None
    split_centres: int | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set before it is divided among clients.

    Attributes:
        train: its training examples.
        test: its test examples.
        class_names: a name per class.
        input_spec: how raw inputs become model inputs.
        users: who the samples belong to, or None.
        notes: what loading left out or repaired, as counts.
    """

    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    input_spec: InputSpec
    users: tuple[ClientIndices, ...] | None = None
    notes: dict[str, int] = dataclasses.field(default_factory=dict)


Loader = Callable[[DatasetInfo, SourceOptions], Source]

_SOURCES: dict[str, tuple[DatasetInfo, Loader]] = {}


def register_source(info: DatasetInfo) -> Callable[[Loader], Loader]:
    """Registers a loader under `info.name`.

    A function of the same module and name replaces the one before, so that the cell of a notebook
    that defines it can run again.

    Raises:
        DataError: if another function has taken the name.
    """

    def register(loader: Loader) -> Loader:
        taken = _SOURCES.get(info.name, (info, loader))[1]
        if (taken.__module__, taken.__qualname__) != (loader.__module__, loader.__qualname__):
            raise DataError(f"dataset {info.name!r} is registered already")
        _SOURCES[info.name] = info, loader
        return loader

    return register


def dataset_names() -> list[str]:
    """All registered data sets."""
    return sorted(_SOURCES)


def dataset_info(name: str) -> DatasetInfo:
    """What is known about a data set without loading it.

    Raises:
        DataError: if there is no such data set.
    """
    return _lookup(name)[0]


def load_source(name: str, options: SourceOptions | None = None) -> Source:
    """Loads a data set.

    Raises:
        DataError: if there is no such set, or its files are missing, unreadable or half-written.
    """
    info, loader = _lookup(name)
    options = options or SourceOptions()
    if info.needs_data_dir and not options.data_dir:
        raise DataError(f"dataset {name}: data_dir is missing, the directory that holds it")
    return loader(info, options)


def _lookup(name):
    if name not in _SOURCES:
        raise DataError(f"dataset={name!r}: choose one of {', '.join(dataset_names())}")
    return _SOURCES[name]


def image_spec(
    info: DatasetInfo, options: SourceOptions, dtype: str | None = None, scale: float = 1 / 255
) -> InputSpec:
    """The input spec of an image set under the chosen normalisation and augmentation.

    Augmentations crop after padding an eighth of the size (4 pixels of 32) and, where a mirrored
    image keeps its class, mirror half of the images: "standard" pads with zeros (FedLoGe),
    "reflect" with the reflected image (FedMR's CIFAR-10), "rotation" pads with zeros and turns by
    up to 15 degrees (CIFAR-100 of FedGELA and FedMR).

    Args:
        info: of the set.
        options: of which normalisation and augmentation are used.
        dtype: of the raw inputs; by default "uint8", and "string" for image files.
        scale: that turns raw pixels into [0, 1].

    Raises:
        DataError: if a choice is unknown or does not fit the set.
    """
    if options.augmentation not in AUGMENTATIONS:
        raise DataError(
            f"augmentation={options.augmentation!r}: choose one of {', '.join(AUGMENTATIONS)}"
        )
    if options.input_normalization not in NORMALIZATIONS:
        raise DataError(
            f"input_normalization={options.input_normalization!r}: choose one of "
            f"{', '.join(NORMALIZATIONS)}"
        )
    if options.input_normalization == "imagenet" and info.shape[-1] != 3:
        raise DataError(f"input_normalization='imagenet' needs colour images, {info.name} has none")
    mean, std = {
        "dataset": (info.mean, info.std),
        "imagenet": IMAGENET,
        "none": (None, None),
    }[options.input_normalization]
    dtype = dtype or ("string" if info.kind == IMAGE_FILE else "uint8")
    spec = InputSpec(
        info.kind, info.shape, dtype, scale=scale, mean=mean, std=std, resize=info.resize
    )
    if options.augmentation == "none":
        return spec
    return dataclasses.replace(
        spec,
        crop_padding=max(1, min(info.shape[:2]) // 8),
        padding_mode="reflect" if options.augmentation == "reflect" else "zeros",
        flip=info.flip,
        rotation=15.0 if options.augmentation == "rotation" else 0.0,
    )


def stratified_indices(labels, count, seed) -> np.ndarray:
    """A random subset in which classes keep their shares, to the nearest sample.

    Args:
        labels: integer class of every sample, [n].
        count: size of the subset; all samples if there are no more.
        seed: a non-negative integer or a sequence of them.

    Returns:
        Sorted int64 indices into `labels`.
    """
    labels = np.asarray(labels)
    if count >= len(labels):
        return np.arange(len(labels))
    classes, sizes = np.unique(labels, return_counts=True)
    wanted, rest = np.divmod(sizes * count, len(labels))
    # Largest remainders get the samples that rounding down left over.
    wanted[np.argsort(-rest, kind="stable")[: count - wanted.sum()]] += 1
    rng = np.random.default_rng(seed)
    chosen = [
        rng.choice(np.flatnonzero(labels == c), size, replace=False)
        for c, size in zip(classes, wanted, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


@register_source(DatasetInfo("digits", IMAGE, 10, (8, 8, 1)))
def _load_digits(info, options):
    """The 1797 handwritten digits inside scikit-learn; 80 % of each class for training.

    The division is the same in all runs: a run's seeds must not move samples into the test set.
    """
    pixels, labels = _read_digits()
    train = stratified_indices(labels, round(0.8 * len(labels)), seed=0)
    everything = Examples(pixels.astype(np.uint8).reshape(-1, *info.shape), labels.astype(np.int32))
    return Source(
        train=everything.take(train),
        test=everything.take(np.setdiff1d(np.arange(len(labels)), train)),
        class_names=tuple("0123456789"),
        input_spec=image_spec(info, options, scale=1 / 16),
    )


def _read_digits():
    """Pixels 0..16 [1797, 64] and labels; without importing scikit-learn, which takes a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise DataError("dataset digits is part of scikit-learn, which is not installed")
    path = pathlib.Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    return table[:, :-1], table[:, -1]


_TFDS = (
    DatasetInfo(
        "cifar10",
        IMAGE,
        10,
        (32, 32, 3),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2615),
        flip=True,
    ),
    DatasetInfo(
        "cifar100",
        IMAGE,
        100,
        (32, 32, 3),
        mean=(0.5070751592, 0.4865488733, 0.4409178434),
        std=(0.2673342859, 0.2564384629, 0.2761504713),
        flip=True,
    ),
    DatasetInfo(
        "svhn_cropped",
        IMAGE,
        10,
        (32, 32, 3),
        mean=(0.4376821, 0.4437697, 0.47280442),
        std=(0.19803012, 0.20101562, 0.19703614),
    ),
    DatasetInfo("fashion_mnist", IMAGE, 10, (28, 28, 1), flip=True),
)


def _load_tfds(info, options):
    """A prepared copy of a TensorFlow data set; nothing is downloaded."""
    folder = _find_tfds(info.name, options.data_dir)
    spec = image_spec(info, options)
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(folder)
        class_names = tuple(builder.info.features["label"].names)
        parts = [_decode_split(builder, split, info) for split in ("train", "test")]
    except DataError:
        raise
    # Every layer below raises its own types for the same thing: the copy is not whole.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f"dataset {info.name}: the copy in {folder} is unreadable or half-written ({reason}); "
            "prepare it again with tfds"
        ) from error
    return Source(*parts, class_names=class_names, input_spec=spec)


for _info in _TFDS:
    register_source(_info)(_load_tfds)


def _find_tfds(name, data_dir):
    """The folder of the newest prepared version.

    tfds itself would look for a missing set on the network, and wait for it.
    """
    root = pathlib.Path(
        data_dir or os.environ.get("TFDS_DATA_DIR") or pathlib.Path.home() / "tensorflow_datasets"
    )
    root = root.expanduser()
    wanted = f"a copy that tfds prepared, {name}/<version>/dataset_info.json, is needed there"
    if not root.is_dir():
        raise DataError(f"dataset {name}: data_dir={root} is not a directory; {wanted}")
    if not (root / name).is_dir():
        raise DataError(f"dataset {name}: data_dir={root} has no folder {name}; {wanted}")
    versions = [
        path for path in (root / name).iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)
    ]
    if not versions:
        raise DataError(f"dataset {name}: {root / name} holds no complete version; {wanted}")
    newest = max(versions, key=lambda path: [int(number) for number in path.name.split(".")])
    if not (newest / "dataset_info.json").is_file():
        raise DataError(f"dataset {name}: {newest} has no dataset_info.json; {wanted}")
    return newest


def _decode_split(builder: Any, split: str, info: DatasetInfo) -> Examples:
    """Decodes one split into arrays that are allocated once."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    if split not in builder.info.splits:
        raise DataError(f"dataset {info.name}: {builder.data_path} has no split {split}")
    number = builder.info.splits[split].num_examples
    # tfds refuses a split with more or fewer samples than it announces.
    samples = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders={"image": tfds.decode.SkipDecoding()},
        read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=True),
    )

    def decode(sample):
        image = tf.io.decode_image(sample["image"], info.shape[-1], expand_animations=False)
        return tf.ensure_shape(image, info.shape), sample["label"]

    x = np.empty((number, *info.shape), np.uint8)
    y = np.empty(number, np.int32)
    done = 0
    for images, labels in samples.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(1000):
        x[done : done + len(images)] = images
        y[done : done + len(labels)] = labels
        done += len(labels)
    return Examples(x, y)
