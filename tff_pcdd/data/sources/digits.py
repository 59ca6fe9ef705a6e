"""The 1797 handwritten digits that are part of scikit-learn, 8 × 8 pixels in 17 grey levels."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib

import numpy as np

from tff_pcdd.data.federation import Examples
from tff_pcdd.data.input_spec import IMAGE, InputSpec
from tff_pcdd.data.sources import DatasetInfo, ImageSource, LoadRequest, PooledData, register
from tff_pcdd.data.subsets import stratified_indices
from tff_pcdd.errors import DataError


@register
@dataclasses.dataclass(frozen=True)
class Digits(ImageSource):
    """scikit-learn's digits, with 80 % of each class for training.

    The split into training and test set is the same under every seed, so that a sample is never a
    training sample in one run and a test sample in another.
    """

    info = DatasetInfo("digits", IMAGE, 10, (8, 8, 1))

    def load(self, request: LoadRequest) -> PooledData:
        pixels, labels = _read_digits()
        train = stratified_indices(labels, round(0.8 * len(labels)), seed=0)
        pooled = Examples(
            pixels.astype(np.uint8).reshape(-1, *self.info.shape), labels.astype(np.int32)
        )
        return PooledData(
            train=pooled.take(train),
            test=pooled.take(np.setdiff1d(np.arange(len(labels)), train)),
            class_names=tuple("0123456789"),
            input_spec=self.input_spec(),
        )

    def input_spec(self) -> InputSpec:
        return self.image_spec(scale=1 / 16)


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 16, [1797, 64], and labels, without importing scikit-learn (1 s)."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("the data set digits is part of scikit-learn, which is not installed")
    path = pathlib.Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    return table[:, :-1], table[:, -1]
