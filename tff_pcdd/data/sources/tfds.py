"""Image sets prepared by TensorFlow Datasets: CIFAR-10, CIFAR-100, SVHN and Fashion-MNIST.

Means and standard deviations of the channels are those of FedGELA's code. FedMR and FedLoGe use the
same, except that FedLoGe normalizes CIFAR-10-LT with those of ImageNet
(`input_normalization="imagenet"`).
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from typing import Any

import numpy as np

from tff_pcdd.data import image_headers
from tff_pcdd.data.checks import first_outside
from tff_pcdd.data.federation import Examples
from tff_pcdd.data.input_spec import IMAGE
from tff_pcdd.data.sources import DatasetInfo, ImageSource, LoadRequest, PooledData, register
from tff_pcdd.data.sources._json import JsonSource
from tff_pcdd.data.sources._places import meant, reason_of
from tff_pcdd.data.sources._tfds_files import check_folder
from tff_pcdd.errors import DataError


@dataclasses.dataclass(frozen=True)
class TfdsSource(ImageSource, JsonSource):
    """A prepared copy of a TensorFlow data set; nothing is downloaded."""

    draws_only_users = True

    def load(self, request: LoadRequest) -> PooledData:
        folder = _find(self.name, self.data_dir)
        check_folder(folder, self.name, self.limits)
        import tensorflow_datasets as tfds

        try:
            builder = tfds.builder_from_directory(folder)
            number = builder.info.features["label"].num_classes
            # Before a name is made for each of them.
            if number != self.info.num_classes:
                raise DataError(
                    f"dataset {self.name}: {builder.data_path} has {number} classes, not "
                    f"{self.info.num_classes}"
                )
            class_names = tuple(builder.info.features["label"].names)
            train, test = (_decode_split(builder, split, self.info) for split in ("train", "test"))
        except DataError:
            raise
        # If a copy is incomplete, each of the libraries involved raises exceptions of its own.
        except Exception as error:
            raise DataError(
                f"dataset {self.name}: the copy in {folder} is unreadable or incomplete "
                f"({reason_of(error)}); prepare it again with TensorFlow Datasets"
            ) from error
        return PooledData(train, test, class_names=class_names, input_spec=self.image_spec())

    def check(self) -> None:
        _find(self.name, self.data_dir)


@register
@dataclasses.dataclass(frozen=True)
class Cifar10(TfdsSource):
    """CIFAR-10."""

    info = DatasetInfo(
        "cifar10",
        IMAGE,
        10,
        (32, 32, 3),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2615),
        flip=True,
    )


@register
@dataclasses.dataclass(frozen=True)
class Cifar100(TfdsSource):
    """CIFAR-100 with its 100 fine labels."""

    info = DatasetInfo(
        "cifar100",
        IMAGE,
        100,
        (32, 32, 3),
        mean=(0.5070751592, 0.4865488733, 0.4409178434),
        std=(0.2673342859, 0.2564384629, 0.2761504713),
        flip=True,
    )


@register
@dataclasses.dataclass(frozen=True)
class SvhnCropped(TfdsSource):
    """Street View House Numbers, cropped digits."""

    info = DatasetInfo(
        "svhn_cropped",
        IMAGE,
        10,
        (32, 32, 3),
        mean=(0.4376821, 0.4437697, 0.47280442),
        std=(0.19803012, 0.20101562, 0.19703614),
    )


@register
@dataclasses.dataclass(frozen=True)
class FashionMnist(TfdsSource):
    """Fashion-MNIST."""

    info = DatasetInfo("fashion_mnist", IMAGE, 10, (28, 28, 1), flip=True)


def _find(name: str, data_dir: str | None) -> pathlib.Path:
    """The folder of the newest prepared version.

    TensorFlow Datasets would search the network for a missing set, and wait for it.
    """
    named = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    root = pathlib.Path(os.path.expanduser(named))

    def refusal(reason: str) -> DataError:
        return DataError(
            f"dataset {name}: {reason}; a copy prepared by TensorFlow Datasets is needed there, "
            f"{name}/<version>/dataset_info.json{meant(root)}"
        )

    if not root.is_dir():
        raise refusal(f"data_dir={root} is not a directory")
    if not (root / name).is_dir():
        raise refusal(f"data_dir={root} has no folder {name}")
    versions = [
        path for path in (root / name).iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)
    ]
    if not versions:
        raise refusal(f"{root / name} holds no complete version")
    newest = max(versions, key=lambda path: [int(number) for number in path.name.split(".")])
    if not (newest / "dataset_info.json").is_file():
        raise refusal(f"{newest} has no dataset_info.json")
    return newest


def _decode_split(builder: Any, split: str, info: DatasetInfo) -> Examples:
    """Decodes one split into arrays that are allocated once."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    if split not in builder.info.splits:
        raise DataError(f"dataset {info.name}: {builder.data_path} has no split {split}")
    number = builder.info.splits[split].num_examples
    # With this setting a split with more or fewer samples than announced is an error.
    samples = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders={"image": tfds.decode.SkipDecoding()},
        read_config=tfds.ReadConfig(try_autocache=False, assert_cardinality=True),
    )

    def decode(sample: Any) -> tuple[Any, Any]:
        size = image_headers.image_size(sample["image"])
        tf.debugging.assert_equal(
            size, tf.constant(info.shape[:2], tf.int64), "an image has another size or format"
        )
        image = tf.io.decode_image(sample["image"], info.shape[-1], expand_animations=False)
        return tf.ensure_shape(image, info.shape), sample["label"]

    x = np.empty((number, *info.shape), np.uint8)
    y = np.empty(number, np.int32)
    done = 0
    for images, labels in samples.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(1000):
        x[done : done + len(images)] = images
        y[done : done + len(labels)] = _labels(
            labels.numpy(), done, info, f"{builder.data_path}, {split}"
        )
        done += len(labels)
    return Examples(x, y)


def _labels(labels: np.ndarray, first: int, info: DatasetInfo, where: str) -> np.ndarray:
    """Labels as int32; TensorFlow Datasets does not check them."""
    row = first_outside(labels, info.num_classes)
    if row is not None:
        raise DataError(
            f"dataset {info.name}: {where}: label {labels[row]} of sample {first + row} is not "
            f"within 0 to {info.num_classes - 1}"
        )
    return labels.astype(np.int32)
