"""Image files of your own: a look at each file, one size for all, statistics of the pixels."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tff_pcdd.data import transforms
from tff_pcdd.data.checks import warn
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, InputSpec
from tff_pcdd.data.sources import LoadRequest, PooledData
from tff_pcdd.data.sources._image_lists import ImageListSource
from tff_pcdd.data.sources._own import OwnSamples, OwnSource
from tff_pcdd.data.sources._statistics import Statistics, in_parts, measure
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option

# Formats that TensorFlow decodes, by their names in Pillow.
_FORMATS = ("PNG", "JPEG")

# Pillow's modes of images without color.
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B")

# Without an image size, images have to be of one size, and not larger than this.
_LARGEST = 512

# Images are decoded once, if all of them take at most this many bytes; else batch by batch in every
# epoch, which takes several times as long and gives the same numbers.
_IN_MEMORY = 2**30

# Otherwise, statistics are measured on at most this many training images.
_MEASURED = 4096

# Images that are decoded at a time.
_BATCH = 256

_THREADS = 8


@dataclasses.dataclass(frozen=True)
class _Header:
    """What a file is: a hash of its bytes, (height, width), and the mode of its pixels."""

    hash: str
    size: tuple[int, int]
    mode: str


@dataclasses.dataclass(frozen=True)
class OwnImages(OwnSource, ImageListSource):
    """Base class of image files of your own: one size, one number of channels, measured pixels."""

    image_size: int | None = option(
        None,
        "Height and width in pixels to which images are brought: scaled until they cover the "
        "square, then cropped to its centre. By default that of the images, if it is the same.",
        type=int,
        minimum=1,
        maximum=4096,
        group="Data",
    )
    image_channels: int | None = option(
        None,
        "Channels that all images are read with, 1 (grey) or 3 (color); by default 3 if any image "
        "has colors.",
        type=int,
        minimum=1,
        maximum=3,
        group="Data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_channels == 2:
            raise SettingError("image_channels", 2, "choose 1 (grey) or 3 (color)")
        if self.image_channels == 1 and self.input_normalization == "imagenet":
            raise SettingError("image_channels", 1, "ImageNet's statistics need 3 channels")

    def input_spec(self) -> InputSpec:
        return self._spec((self.image_size or 32, self.image_size or 32, self.image_channels or 3))

    def pool_images(
        self,
        place: str,
        paths: Sequence[str],
        labels: Sequence[str],
        sites: Sequence[str],
        parts: Sequence[str] | None,
        request: LoadRequest,
        *,
        shown: Callable[[int], str],
        notes: dict[str, int],
    ) -> PooledData:
        """Makes a data set of image files; see `OwnSamples`.

        Raises:
            SettingError: if the images have different sizes and none is chosen.
            DataError: if a file is not an image; names it.
        """
        headers = _look_at(paths, shown, self.max_image_pixels)
        shape = (*self._size(place, headers), self._channels(place, headers))
        x = np.array([os.fsencode(path) for path in paths])
        if len(x) * math.prod(shape) <= _IN_MEMORY:
            x = np.concatenate(list(decoded(x, self._plain(shape))))
        hashes = np.array([header.hash for header in headers])
        samples = OwnSamples(place, x, labels, sites, parts, hashes, shown, notes)
        return self.pool(samples, request, lambda train: self._measured(shape, train))

    def _size(self, place: str, headers: Sequence[_Header]) -> tuple[int, int]:
        if self.image_size is not None:
            return self.image_size, self.image_size
        sizes = collections.Counter(header.size for header in headers)
        (height, width), _ = sizes.most_common(1)[0]
        if len(sizes) > 1:
            smallest, largest = min(sizes, key=np.prod), max(sizes, key=np.prod)
            what = f"images have {len(sizes)} sizes, from {_by(smallest)} to {_by(largest)} pixels"
        elif max(height, width) > _LARGEST:
            what = f"images have {_by((height, width))} pixels"
        else:
            return height, width
        sides = [min(header.size) for header in headers]
        suggested = min(224, int(np.median(sides)))
        raise SettingError(
            "image_size",
            None,
            f"is needed for {place}, whose {what}; choose one such as {suggested}",
        )

    def _channels(self, place: str, headers: Sequence[_Header]) -> int:
        deep = sum(header.mode.startswith("I") for header in headers)
        if deep:
            warn(f"{place}: {deep} images have 16 bits per pixel, of which 8 are used")
        grey = sum(header.mode in _GREY for header in headers)
        if self.image_channels is not None:
            return self.image_channels
        if grey and grey < len(headers):
            warn(
                f"{place}: {grey} of {len(headers)} images are grey; all are read as color images "
                "with 3 channels"
            )
        return 1 if grey == len(headers) else 3

    def _spec(
        self, shape: tuple[int, ...], measured: Statistics | None = None, kind: str = IMAGE_FILE
    ) -> InputSpec:
        mean, std = measured or (None, None)
        info = dataclasses.replace(self.info, kind=kind, shape=shape, mean=mean, std=std)
        return self.image_spec(info=info)

    def _plain(self, shape: tuple[int, ...]) -> InputSpec:
        return InputSpec(IMAGE_FILE, shape, "string", max_pixels=self.max_image_pixels)

    def _measured(self, shape: tuple[int, ...], x: np.ndarray) -> InputSpec:
        """The input spec, with statistics of the training samples if they are asked for."""
        if self.input_normalization == "imagenet" and shape[-1] != 3:
            raise SettingError(
                "input_normalization", "imagenet", "needs color images; set image_channels to 3"
            )
        in_memory = x.ndim > 1
        if self.input_normalization != "dataset":
            return self._spec(shape, kind=IMAGE if in_memory else IMAGE_FILE)
        if in_memory:
            return self._spec(shape, measure(in_parts(x), 255), IMAGE)
        if len(x) > _MEASURED:
            chosen = np.random.default_rng(0).choice(len(x), _MEASURED, replace=False)
            x = x[np.sort(chosen)]
        return self._spec(shape, measure(decoded(x, self._plain(shape)), 255))


def decoded(paths: np.ndarray, spec: InputSpec) -> Iterator[np.ndarray]:
    """The pixels of image files as uint8 [batch, *spec.shape], a batch at a time.

    Args:
        paths: the files, bytes [n].
        spec: an input spec without scale and statistics.

    Raises:
        DataError: if an image cannot be decoded; names it.
    """
    import tensorflow as tf

    # In a graph, because errors of eager operations name no files.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def pixels_of(batch):
        return transforms.normalize(batch, spec)

    for start in range(0, len(paths), _BATCH):
        try:
            pixels = pixels_of(paths[start : start + _BATCH])
        except tf.errors.InvalidArgumentError as error:
            raise DataError(transforms.broken_images(str(error)) or str(error)) from None
        yield np.asarray(pixels, np.uint8)


def _by(size: Sequence[int]) -> str:
    return f"{size[1]}×{size[0]}"


def _look_at(paths: Sequence[str], shown: Callable[[int], str], max_pixels: int) -> list[_Header]:
    """Reads every file once.

    Raises:
        DataError: if files are not images or too large; names the first.
    """
    from PIL import Image

    Image.preinit()
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda path: _header(Image, path, max_pixels), paths))
    broken = [row for row, header in enumerate(found) if not isinstance(header, _Header)]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise DataError(f"{shown(broken[0])}{more}: {found[broken[0]]}")
    return [header for header in found if isinstance(header, _Header)]


def _header(pillow, path: str, max_pixels: int) -> _Header | str:
    """The header of an image, or what is wrong with it."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            with pillow.open(file, formats=_FORMATS) as image:
                (width, height), mode = image.size, image.mode
    except pillow.DecompressionBombError:
        return f"the image has more pixels than max_image_pixels={max_pixels} allows"
    except OSError as error:
        return getattr(error, "strerror", None) or "not a PNG or JPEG image"
    # Pillow's decoders raise many kinds of errors for damaged headers.
    except Exception:
        return "not a PNG or JPEG image"
    if width * height > max_pixels:
        return f"the image has more pixels than max_image_pixels={max_pixels} allows"
    return _Header(digest, (height, width), mode)
