"""What a federation's data are: examples, who holds them, and how they become model inputs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from tff_pcdd.data.errors import DataError

IMAGE, IMAGE_FILE, TEXT = "image", "image_file", "text"

_DTYPES = {IMAGE: ("uint8", "float32"), IMAGE_FILE: ("string",), TEXT: ("uint8", "int32")}


@dataclasses.dataclass(frozen=True)
class Examples:
    """Samples as they are stored.

    Attributes:
        x: raw inputs, [n, ...]; images stay uint8, image files are paths as bytes.
        y: int32 classes, [n].
    """

    x: np.ndarray
    y: np.ndarray

    def __post_init__(self):
        if self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs and labels of shape {self.y.shape}: one each")
        if self.y.dtype.kind not in "iu":
            raise DataError(f"labels are {self.y.dtype}: give whole numbers from 0")
        if self.y.dtype != np.int32:
            object.__setattr__(self, "y", self.y.astype(np.int32))

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices) -> Examples:
        """The samples at `indices`, copied."""
        return Examples(self.x[indices], self.y[indices])


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """How raw inputs become model inputs; see `preprocessing.normalize` and `augment`.

    Checkpoints and exports store it, so it is frozen and turns into json and back.

    Attributes:
        kind: "image" (pixels), "image_file" (a path, decoded when it is read) or "text" (ids).
        shape: of one input: (height, width, channels), for text (length,).
        dtype: of the raw inputs: "uint8" or "float32" for pixels, "uint8" or "int32" for ids,
            "string" for paths.
        scale: pixels are multiplied by it first.
        mean: per channel, subtracted after scaling; None for 0.
        std: per channel, divided by after that; None for 1.
        crop_padding: pixels added on every side before a random crop back to `shape`; 0 for none.
        padding_mode: "zeros" or "reflect", what the padding is filled with.
        flip: whether images are mirrored at random.
        rotation: degrees; images are turned by up to as much in both directions.
        vocabulary: of text, a character per id; the id after the last stands for any other one.
        resize: of image files, what the shorter side is scaled to before the middle is cut out;
            None for just large enough.

    Example:
        >>> spec = InputSpec("image", (8, 8, 1), scale=1 / 16)
        >>> InputSpec.from_dict(spec.to_dict()) == spec
        True
    """

    kind: str
    shape: tuple[int, ...]
    dtype: str = "uint8"
    scale: float = 1.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_padding: int = 0
    padding_mode: str = "zeros"
    flip: bool = False
    rotation: float = 0.0
    vocabulary: str | None = None
    resize: int | None = None

    def __post_init__(self):
        if self.kind not in _DTYPES:
            raise DataError(f"kind={self.kind!r}: choose one of {', '.join(_DTYPES)}")
        if self.dtype not in _DTYPES[self.kind]:
            raise DataError(
                f"dtype={self.dtype!r}: {self.kind} inputs are {' or '.join(_DTYPES[self.kind])}"
            )
        for name in ("shape", "mean", "std"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))
        rank = 1 if self.kind == TEXT else 3
        if len(self.shape) != rank or any(size < 1 for size in self.shape):
            raise DataError(f"shape={self.shape}: {rank} positive sizes are needed for {self.kind}")
        for name in ("mean", "std"):
            value = getattr(self, name)
            if value is not None and len(value) != self.shape[-1]:
                raise DataError(f"{name}={value}: {self.shape[-1]} channels need as many values")
        if self.std is not None and min(self.std) <= 0:
            raise DataError(f"std={self.std}: must be greater than 0")
        if self.padding_mode not in ("zeros", "reflect"):
            raise DataError(f"padding_mode={self.padding_mode!r}: choose zeros or reflect")
        if self.crop_padding < 0 or self.rotation < 0:
            raise DataError(
                f"crop_padding={self.crop_padding}, rotation={self.rotation}: must not be negative"
            )
        if self.resize is not None and self.resize < max(self.shape[:2]):
            raise DataError(f"resize={self.resize}: must be at least {max(self.shape[:2])}")
        if self.kind == TEXT and not self.vocabulary:
            raise DataError("text inputs need a vocabulary")

    @property
    def augments(self) -> bool:
        """Whether `preprocessing.augment` changes anything."""
        return bool(self.crop_padding or self.flip or self.rotation)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Shape of one raw input; a path is a scalar."""
        return () if self.kind == IMAGE_FILE else self.shape

    @property
    def model_dtype(self) -> str:
        """Type of the model input."""
        return "int32" if self.kind == TEXT else "float32"

    @property
    def vocabulary_size(self) -> int | None:
        """Number of ids of a text, with the one for unknown characters; None for images."""
        return len(self.vocabulary) + 1 if self.vocabulary else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for json."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values) -> InputSpec:
        """The inverse of `to_dict`, also after json turned tuples into lists.

        Raises:
            DataError: if a field is unknown, missing or out of bounds.
        """
        try:
            return cls(**values)
        except TypeError as error:
            raise DataError(f"not an input spec: {error}") from error


@dataclasses.dataclass(frozen=True)
class ClientIndices:
    """What one client holds, as indices into a federation's pooled examples.

    Attributes:
        client_id: its name.
        train: int64 indices into the training examples.
        test: int64 indices into the test examples.
        validation: int64 indices into the training examples, of those held out from training.
    """

    client_id: str
    train: np.ndarray
    test: np.ndarray
    validation: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Federation:
    """A data set and its division among clients.

    Samples are stored once; clients refer to them by index.

    Attributes:
        name: of the data set.
        num_classes: C.
        class_names: a name per class.
        input_spec: how raw inputs become model inputs.
        train: all training examples, those held out for validation among them.
        test: all test examples, on which global models are measured.
        clients: who holds what.
        notes: what loading left out or repaired, as counts; empty if nothing.
    """

    name: str
    num_classes: int
    class_names: tuple[str, ...]
    input_spec: InputSpec
    train: Examples
    test: Examples
    clients: tuple[ClientIndices, ...]
    notes: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        object.__setattr__(self, "class_names", tuple(self.class_names))
        object.__setattr__(self, "clients", tuple(self.clients))
        if len(self.class_names) != self.num_classes:
            raise DataError(f"{len(self.class_names)} class names for {self.num_classes} classes")
        if not self.clients:
            raise DataError(f"{self.name}: there are no clients")
        if len(set(self.client_ids)) < len(self.clients):
            raise DataError(f"{self.name}: client ids repeat")
        spec = self.input_spec
        for part, examples in (("training", self.train), ("test", self.test)):
            if spec.dtype != "string" and examples.x.dtype != spec.dtype:
                raise DataError(
                    f"{self.name}: {part} inputs are {examples.x.dtype}, by the input spec they "
                    f"are {spec.dtype}; of float32 images from 0 to 1 it is "
                    'image_spec(info, options, dtype="float32", scale=1)'
                )
            if len(examples) and not 0 <= examples.y.min() <= examples.y.max() < self.num_classes:
                raise DataError(
                    f"{self.name}: {part} labels run from {examples.y.min()} to {examples.y.max()},"
                    f" not within 0 to {self.num_classes - 1}"
                )
            for client in self.clients:
                indices = client.test
                if part == "training":
                    indices = np.concatenate([client.train, client.validation])
                if indices.size and not 0 <= indices.min() <= indices.max() < len(examples):
                    raise DataError(
                        f"client {client.client_id}: {part} indices exceed {len(examples)} samples"
                    )

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def clients_without_train(self) -> int:
        """How many clients have no training samples."""
        return sum(not client.train.size for client in self.clients)

    @property
    def client_ids(self) -> tuple[str, ...]:
        return tuple(client.client_id for client in self.clients)

    def class_counts(self) -> np.ndarray:
        """Training samples of each client and class: read-only int64 [clients, classes]."""
        return self._class_counts

    def test_class_counts(self) -> np.ndarray:
        """Local test samples of each client and class: read-only int64 [clients, classes]."""
        return self._test_class_counts

    def client_examples(self, k: int) -> tuple[Examples, Examples]:
        """Client `k`'s training and test examples, copied, in their raw type."""
        return self.train.take(self.clients[k].train), self.test.take(self.clients[k].test)

    def validation_examples(self, k: int | None = None) -> Examples:
        """Examples held out from training: those of client `k`, or of all clients, copied."""
        clients = self.clients if k is None else self.clients[k : k + 1]
        return self.train.take(np.concatenate([client.validation for client in clients]))

    def training_examples(self) -> Examples:
        """All training examples but those held out for validation."""
        held = np.concatenate([client.validation for client in self.clients])
        if not held.size:
            return self.train
        return self.train.take(np.setdiff1d(np.arange(len(self.train)), held))

    def summary(self) -> dict[str, Any]:
        """Numbers that describe the federation, as plain values for json."""
        counts = self.class_counts()
        held = (counts > 0).sum(axis=1)
        sizes = counts.sum(axis=1)
        return {
            "name": self.name,
            "num_clients": self.num_clients,
            "num_classes": self.num_classes,
            "train_samples": len(self.train),
            "test_samples": len(self.test),
            "validation_samples": sum(client.validation.size for client in self.clients),
            "client_train_samples": _spread(sizes),
            "client_test_samples": _spread(self.test_class_counts().sum(axis=1)),
            "classes_per_client": _spread(held),
            "class_samples": counts.sum(axis=0).tolist(),
            "clients_without_train": self.clients_without_train,
            **{name: int(value) for name, value in self.notes.items()},
        }

    @functools.cached_property
    def _class_counts(self) -> np.ndarray:
        return self._count(self.train.y, [client.train for client in self.clients])

    @functools.cached_property
    def _test_class_counts(self) -> np.ndarray:
        return self._count(self.test.y, [client.test for client in self.clients])

    def _count(self, labels, parts) -> np.ndarray:
        counts = np.stack([np.bincount(labels[part], minlength=self.num_classes) for part in parts])
        counts.flags.writeable = False
        return counts


def _spread(values) -> dict[str, float]:
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "mean": float(values.mean()),
        "max": int(values.max()),
    }
