"""Image files of your own: a look at each file, one size for all, statistics of the pixels."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tff_pcdd.data import image_headers, transforms
from tff_pcdd.data.checks import warn
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, InputSpec
from tff_pcdd.data.sources import LoadRequest, PooledData
from tff_pcdd.data.sources._image_lists import ImageListSource
from tff_pcdd.data.sources._own import OwnSamples, OwnSource, pick
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
    """What a file is: a hash of its bytes, (height, width), and the mode of its pixels.

    `is_deep` says whether channels have 16 bits, and `is_turned` whether viewers turn the image.
    """

    hash: str
    size: tuple[int, int]
    mode: str
    is_deep: bool
    is_turned: bool


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

    image_range: str | None = option(
        None,
        "Values of images of 16 bits that become black and white, LOW,HIGH; by default the "
        "smallest and the largest value of all images.",
        type=str,
        group="Data",
        implied=True,
    )
    skip_broken_images: bool = option(
        False,
        "Leave out image files that cannot be read, and count them, instead of refusing the first.",
        group="Data",
        implied=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._given_range()
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
        sites: Sequence[str] | None,
        parts: Sequence[str] | None,
        request: LoadRequest,
        *,
        shown: Callable[[int], str],
        notes: dict[str, int],
        groups: Sequence[str] | None = None,
        likely_groups: Mapping[str, tuple[Sequence[str], str]] | None = None,
    ) -> PooledData:
        """Makes a data set of image files; see `OwnSamples`.

        Raises:
            SettingError: if the images have different sizes and none is chosen.
            DataError: if a file is not an image; names it.
        """
        found = _look_at(paths, self.max_image_pixels, whole=self.skip_broken_images)
        rows = self._readable(place, found, shown)
        headers = [header for header in found if isinstance(header, _Header)]
        if len(headers) < len(found):
            notes = {**notes, "broken_images_left_out": len(found) - len(headers)}
            paths, labels = pick(paths, rows), pick(labels, rows)
            sites, parts, groups = (pick(of, rows) for of in (sites, parts, groups))
            likely_groups = {
                what: (pick(values, rows), advice)
                for what, (values, advice) in (likely_groups or {}).items()
            }
        _warn_of_turned(place, headers)
        shape = (*self._size(place, headers), self._channels(place, headers))
        limits = self._limits(place, paths, headers, shape[-1])
        x = np.array([os.fsencode(path) for path in paths])
        plain = self._plain(shape, limits)
        if len(x) * math.prod(shape) <= _IN_MEMORY:
            x = np.concatenate(list(decoded(x, plain)))
        else:
            # Otherwise, a broken image would end the training in the middle of the first round.
            collections.deque(decoded(x, plain), maxlen=0)
        hashes = np.array([header.hash for header in headers])
        samples = OwnSamples(
            place,
            x,
            labels,
            sites,
            parts,
            hashes,
            lambda row: shown(rows[row]),
            notes,
            groups,
            likely_groups or {},
        )
        return self.pool(samples, request, lambda train: self._measured(plain, train))

    def _readable(
        self, place: str, found: Sequence[_Header | str], shown: Callable[[int], str]
    ) -> list[int]:
        """The positions of files that are images.

        Raises:
            DataError: if files are not images or too large; names the first.
        """
        broken = [row for row, header in enumerate(found) if isinstance(header, str)]
        if not broken:
            return list(range(len(found)))
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        first = f"{shown(broken[0])}{more}: {found[broken[0]]}"
        if not self.skip_broken_images:
            raise DataError(f"{first}; skip_broken_images leaves such files out")
        if len(broken) == len(found):
            raise DataError(f"{place}: no image can be read: {first}")
        names = ", ".join(shown(row) for row in broken[:5])
        warn(f"{place}: {len(broken)} broken images left out: {names}{', …' * (len(broken) > 5)}")
        return [row for row, header in enumerate(found) if isinstance(header, _Header)]

    def _given_range(self) -> tuple[int, int] | None:
        """The setting `image_range` as numbers.

        Raises:
            SettingError: it is no range of 16 bits.
        """
        if self.image_range is None:
            return None
        try:
            low, high = (int(text) for text in self.image_range.split(","))
        except ValueError:
            low = high = 0
        if not 0 <= low < high < 2**16:
            reason = "must be LOW,HIGH, two whole numbers from 0 to 65535"
            raise SettingError("image_range", self.image_range, reason)
        return low, high

    def _limits(
        self, place: str, paths: Sequence[str], headers: Sequence[_Header], channels: int
    ) -> tuple[int, int] | None:
        """The values of images of 16 bits that become black and white; None for other images.

        Raises:
            SettingError: `image_range` is given for images of 8 bits.
            DataError: if there are both kinds, whose values nobody can compare.
        """
        deep = sum(header.is_deep for header in headers)
        if not deep:
            if self.image_range is not None:
                reason = f"the images of {place} have 8 bits"
                raise SettingError("image_range", self.image_range, reason)
            return None
        if deep < len(headers):
            raise DataError(
                f"{place}: {deep} of {len(headers)} images have 16 bits per channel, the others 8; "
                "convert them to one kind"
            )
        limits = self._given_range()
        if limits is None:
            limits = _range_of(paths, channels)
            warn(
                f"{place}: the images have 16 bits; {limits[0]} becomes black and {limits[1]} "
                "white, their smallest and largest values; image_range sets others"
            )
        return limits

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
        self,
        shape: tuple[int, ...],
        measured: Statistics | None = None,
        kind: str = IMAGE_FILE,
        limits: tuple[int, int] | None = None,
    ) -> InputSpec:
        mean, std = measured or (None, None)
        info = dataclasses.replace(self.info, kind=kind, shape=shape, mean=mean, std=std)
        return dataclasses.replace(self.image_spec(info=info), pixel_range=limits)

    def _plain(self, shape: tuple[int, ...], limits: tuple[int, int] | None) -> InputSpec:
        return InputSpec(
            IMAGE_FILE, shape, "string", max_pixels=self.max_image_pixels, pixel_range=limits
        )

    def _measured(self, plain: InputSpec, x: np.ndarray) -> InputSpec:
        """The input spec, with statistics of the training samples if they are asked for."""
        shape, limits = plain.shape, plain.pixel_range
        if self.input_normalization == "imagenet" and shape[-1] != 3:
            raise SettingError(
                "input_normalization", "imagenet", "needs color images; set image_channels to 3"
            )
        in_memory = x.ndim > 1
        if self.input_normalization != "dataset":
            return self._spec(shape, None, IMAGE if in_memory else IMAGE_FILE, limits)
        if in_memory:
            return self._spec(shape, measure(in_parts(x), 255), IMAGE, limits)
        if len(x) > _MEASURED:
            chosen = np.random.default_rng(0).choice(len(x), _MEASURED, replace=False)
            x = x[np.sort(chosen)]
        return self._spec(shape, measure(decoded(x, plain), 255), limits=limits)


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


def _look_at(paths: Sequence[str], max_pixels: int, *, whole: bool) -> list[_Header | str]:
    """Reads every file once: its header, or what is wrong with it.

    Args:
        paths: the files.
        max_pixels: the most pixels of an image.
        whole: whether images are decoded too, which shows what is wrong behind the header.
    """
    from PIL import Image

    Image.preinit()
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda path: _header(Image, path, max_pixels, whole), paths))


def _header(pillow, path: str, max_pixels: int, whole: bool) -> _Header | str:
    """The header of an image, or what is wrong with it."""
    start = b""
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            start = file.read(512)
            file.seek(0)
            with pillow.open(file, formats=_FORMATS) as image:
                (width, height), mode = image.size, image.mode
                is_turned = image.getexif().get(_ORIENTATION, 1) in range(2, 9)
                if whole and width * height <= max_pixels:
                    image.load()
    except pillow.DecompressionBombError:
        return f"the image has more pixels than max_image_pixels={max_pixels} allows"
    except OSError as error:
        return getattr(error, "strerror", None) or _what_it_is(start)
    # Pillow's decoders raise many kinds of errors for damaged headers.
    except Exception:
        return _what_it_is(start)
    if width * height > max_pixels:
        return f"the image has more pixels than max_image_pixels={max_pixels} allows"
    is_deep = start[1:4] == b"PNG" and start[image_headers.BIT_DEPTH] == 16
    return _Header(digest, (height, width), mode, is_deep, is_turned)


# The tag of EXIF that says how a camera was held.
_ORIENTATION = 0x0112

# How other files begin, and where; their names are often those of PNG and JPEG images.
_OTHERS = (
    (8, b"WEBP", "a WebP image"),
    (4, b"ftyphei", "an HEIC image"),
    (4, b"ftypmif", "an HEIF image"),
    (4, b"ftypavif", "an AVIF image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"BM", "a BMP image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (128, b"DICM", "a DICOM file"),
    (0, b"%PDF", "a PDF document"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, without the image"),
)


def _what_it_is(start: bytes) -> str:
    """What a file is that is no PNG or JPEG image, by its first bytes."""
    if not start:
        return "the file is empty"
    for place, magic, what in _OTHERS:
        if start[place:].startswith(magic):
            return f"is {what}, not PNG or JPEG; convert it"
    if start.lstrip()[:20].lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
        return "is a web page or XML, not PNG or JPEG; download the image again"
    if start.startswith((b"\x89PNG", b"\xff\xd8\xff")):
        return "is broken: not a whole PNG or JPEG image"
    return "not a PNG or JPEG image"


def _warn_of_turned(place: str, headers: Sequence[_Header]) -> None:
    """Warns of photos that viewers turn, as their cameras noted."""
    if turned := sum(header.is_turned for header in headers):
        warn(
            f"{place}: {turned} of {len(headers)} images are stored turned or mirrored (EXIF "
            "orientation), and are read as they are stored, also by exported models; turn their "
            "pixels first, for example with `mogrify -auto-orient`"
        )


def _range_of(paths: Sequence[str], channels: int) -> tuple[int, int]:
    """The smallest and the largest value of images of 16 bits."""
    import tensorflow as tf

    low, high = 2**16 - 1, 0
    for path in paths:
        pixels = tf.io.decode_png(tf.io.read_file(path), channels, tf.uint16).numpy()
        low, high = min(low, int(pixels.min())), max(high, int(pixels.max()))
    return (low, high) if low < high else (0, 2**16 - 1)
