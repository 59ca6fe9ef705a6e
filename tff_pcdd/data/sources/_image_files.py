"""Image files of your own: a look at each file, one size for all, statistics of the pixels."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import transforms
from tff_pcdd.data.checks import warn
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, InputSpec
from tff_pcdd.data.pillow import Header, as_png, dicom_pixels, look_at
from tff_pcdd.data.sources import LoadRequest, PooledData
from tff_pcdd.data.sources._image_lists import ImageListSource
from tff_pcdd.data.sources._own import OwnSamples, OwnSource
from tff_pcdd.data.sources._statistics import Statistics, in_parts, measure
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option
from tff_pcdd.text import plural

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
class OwnImages(OwnSource, ImageListSource):
    """Base class of image files of your own: one size, one number of channels, measured pixels."""

    image_size: int | None = option(
        None,
        "Height and width in pixels to which images are brought: scaled until they cover the "
        "square, then cropped to its centre. By default that of the images, if it is the same.",
        type=int,
        minimum=1,
        maximum=4096,
    )
    image_channels: int | None = option(
        None,
        "Channels that all images are read with, 1 (grey) or 3 (color); by default 3 if any image "
        "has colors.",
        type=int,
        minimum=1,
        maximum=3,
    )

    image_range: str | None = option(
        None,
        "Values of images of 16 bits that become black and white, LOW,HIGH; by default the "
        "smallest and the largest value of all images. DICOM files are shown by it instead of by "
        "their own windows.",
        type=str,
    )
    skip_broken_images: bool = option(
        False,
        "Leave out image files that cannot be read, and count them, instead of refusing the first.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._given_range()
        if self.image_channels == 2:
            raise SettingError("image_channels", 2, "choose 1 (grey) or 3 (color)")
        if self.image_channels == 1 and self.input_normalization == "imagenet":
            raise SettingError("image_channels", 1, "ImageNet's statistics need 3 channels")

    def input_spec(self) -> InputSpec:
        size = self.image_size or 32
        return self._spec(IMAGE_FILE, (size, size, self.image_channels or 3))

    def pool_images(self, samples: OwnSamples, request: LoadRequest) -> PooledData:
        """Makes a data set of samples whose inputs are the paths of image files."""
        samples, headers = self._looked_at(samples)
        place, paths = samples.place, list(map(os.fsdecode, samples.x.tolist()))
        shape = (*self._size(place, headers), self._channels(place, headers))
        files = _Files(
            paths, headers, shape[-1], samples.shown, lambda row: self._named(samples, row)
        )
        plain = InputSpec(
            IMAGE_FILE,
            shape,
            "string",
            max_pixels=self.max_image_pixels,
            pixel_range=self._limits(place, files),
            # No format that exported models read has values of the modality.
            has_white=not any(header.is_deep and header.is_dicom for header in headers),
        )
        x = samples.x
        size = len(x) * math.prod(shape)
        if size <= _IN_MEMORY or files.converted:
            files.check_memory(place, size)
            x = np.empty((len(x), *shape), np.uint8)
            for chosen, pixels in files.decoded(plain):
                x[chosen] = pixels
        else:
            # Otherwise, a broken image would end the training in the middle of the first round.
            collections.deque(files.decoded(plain), maxlen=0)
        samples = dataclasses.replace(samples, x=x)
        return self.pool(samples, request, lambda train: self._measured(plain, train))

    def _looked_at(self, samples: OwnSamples) -> tuple[OwnSamples, list[Header]]:
        """The samples whose files are images, with what was noted of them, and their headers."""
        with (
            # Pillow warns of images whose pixels are counted here.
            warnings.catch_warnings(action="ignore"),
            concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
        ):
            look = functools.partial(
                look_at, whole=self.skip_broken_images, windows=self.image_range is None
            )
            paths = map(os.fsdecode, samples.x.tolist())
            found = list(pool.map(look, paths, itertools.repeat(self.max_image_pixels)))
        rows = self._readable(samples, found)
        headers = [header for header in found if isinstance(header, Header)]
        notes = {**samples.notes}
        if len(headers) < len(found):
            notes["broken_images_left_out"] = len(found) - len(headers)
            samples = samples.take(rows)
        likely_groups = {**samples.likely_groups}
        if any(header.patient for header in headers):
            patients = [header.patient or str(row) for row, header in enumerate(headers)]
            advice = "group_column or group_pattern can keep them in one part"
            likely_groups["values of PatientID"] = patients, advice
        notes |= _remarks(samples, headers)
        hashes = np.array([header.hash for header in headers])
        samples = dataclasses.replace(
            samples, notes=notes, likely_groups=likely_groups, hashes=hashes
        )
        return samples, headers

    def _named(self, samples: OwnSamples, row: int) -> str:
        """The name of a sample, for messages about its file alone."""
        return samples.shown(row)

    def _readable(self, samples: OwnSamples, found: Sequence[Header | str]) -> list[int]:
        """The positions of files that are images."""
        broken = [row for row, header in enumerate(found) if isinstance(header, str)]
        if not broken:
            return list(range(len(found)))
        place, shown = samples.place, samples.shown
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        first = f"{shown(broken[0])}{more}: {found[broken[0]]}"
        if not self.skip_broken_images:
            first = f"{self._named(samples, broken[0])}{more}: {found[broken[0]]}"
            raise DataError(f"{first}; skip_broken_images leaves such files out")
        if len(broken) == len(found):
            raise DataError(f"{place}: no image can be read: {first}")
        names = ", ".join(shown(row) for row in broken[:5])
        number = plural(len(broken), "broken image")
        warn(f"{place}: {number} left out: {names}{', …' * (len(broken) > 5)}")
        return [row for row, header in enumerate(found) if isinstance(header, Header)]

    def _given_range(self) -> tuple[int, int] | None:
        """The setting `image_range` as numbers."""
        if self.image_range is None:
            return None
        try:
            low, high = (int(text) for text in self.image_range.split(","))
        except ValueError:
            low = high = 0
        if not -(2**16) < low < high < 2**16:
            reason = "must be LOW,HIGH, two whole numbers from -65535 to 65535"
            raise SettingError("image_range", self.image_range, reason)
        return low, high

    def _limits(self, place: str, files: _Files) -> tuple[float, float] | None:
        """The values of images of 16 bits that become black and white; None for other images.

        DICOM files without a window count as images of 16 bits.
        """
        depths = [header.is_deep for header in files.headers]
        if not any(depths):
            if self.image_range is not None:
                reason = f"the images of {place} have 8 bits"
                raise SettingError("image_range", self.image_range, reason)
            return None
        is_dicom = any(header.is_deep and header.is_dicom for header in files.headers)
        kind = "no window (DICOM)" if is_dicom else "16 bits per channel"
        if not all(depths):
            advice = "convert them to one kind"
            if is_dicom and self.image_range is None:
                advice += ", or give all DICOM files one range by image_range"
            raise DataError(
                f"{place}: {sum(depths)} of {len(depths)} images have {kind}, such as "
                f"{files.shown(depths.index(True))}, the others {'one, or ' * is_dicom}8, such as "
                f"{files.shown(depths.index(False))}; {advice}"
            )
        limits: tuple[float, float] | None = self._given_range()
        if limits is None:
            limits = files.range_of()
            kind = "no window" if is_dicom else "16 bits"
            warn(
                f"{place}: the images have {kind}; {limits[0]:g} becomes black and {limits[1]:g} "
                "white, their smallest and largest values; image_range sets others"
            )
        return limits

    def _size(self, place: str, headers: Sequence[Header]) -> tuple[int, int]:
        if self.image_size is not None:
            return self.image_size, self.image_size
        sizes = collections.Counter(header.size for header in headers)
        (height, width), _ = sizes.most_common(1)[0]
        if len(sizes) > 1:
            # Upright and turned photos may have as many pixels.
            smallest, *_, largest = sorted(sizes, key=lambda size: (math.prod(size), size))
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

    def _channels(self, place: str, headers: Sequence[Header]) -> int:
        grey = sum(header.is_grey for header in headers)
        if self.image_channels is not None:
            return self.image_channels
        if grey and grey < len(headers):
            warn(
                f"{place}: {grey} of {len(headers)} images are grey; all are read as color images "
                "with 3 channels"
            )
        return 1 if grey == len(headers) else 3

    def _spec(
        self, kind: str, shape: tuple[int, ...], measured: Statistics | None = None
    ) -> InputSpec:
        mean, std = measured or (None, None)
        info = dataclasses.replace(self.info, kind=kind, shape=shape, mean=mean, std=std)
        return self.image_spec(info=info)

    def _measured(self, plain: InputSpec, x: np.ndarray) -> InputSpec:
        """The input spec, with statistics of the training samples if they are asked for."""
        shape = plain.shape
        if self.input_normalization == "imagenet" and shape[-1] != 3:
            raise SettingError(
                "input_normalization", "imagenet", "needs color images; set image_channels to 3"
            )
        kind, measured = IMAGE if x.ndim > 1 else IMAGE_FILE, None
        if self.input_normalization == "dataset":
            if kind == IMAGE_FILE and len(x) > _MEASURED:
                chosen = np.random.default_rng(0).choice(len(x), _MEASURED, replace=False)
                x = x[np.sort(chosen)]
            measured = measure(in_parts(x) if kind == IMAGE else _decoded(x, plain), 255)
        return dataclasses.replace(
            self._spec(kind, shape, measured),
            pixel_range=plain.pixel_range,
            has_white=plain.has_white,
        )


@dataclasses.dataclass(frozen=True)
class _Files:
    """Image files that can be read.

    Attributes:
        paths: the files.
        headers: what they are.
        channels: 1 for grey or 3 for color, with which all are read.
        shown: the name of a file, for messages that name their place.
        named: the same for other messages.
    """

    paths: Sequence[str]
    headers: Sequence[Header]
    channels: int
    shown: Callable[[int], str]
    named: Callable[[int], str]

    @functools.cached_property
    def converted(self) -> list[int]:
        """The files that TensorFlow does not read. Pillow or pydicom reads them, once."""
        headers = enumerate(self.headers)
        return [row for row, header in headers if header.needs_conversion(self.channels)]

    def check_memory(self, place: str, size: int) -> None:
        """Checks that the pixels of files that are read only once fit into memory."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        # Training and test samples are copied from them.
        if size > max(memory // 3, _IN_MEMORY):
            raise DataError(
                f"{place}: the pixels take {size / 1e9:.0f} GB, over a third of this machine's "
                f"memory, and {len(self.converted)} files, such as {self.shown(self.converted[0])},"
                " are not plain PNG or JPEG and have to stay in memory; convert these to PNG, or "
                "choose a smaller image_size"
            )

    def contents(self, row: int) -> bytes:
        """A file that TensorFlow reads: the file itself, or its pixels as a PNG."""
        header = self.headers[row]
        if header.needs_conversion(self.channels):
            return as_png(self.paths[row], self.channels, is_dicom=header.is_dicom)
        return pathlib.Path(self.paths[row]).read_bytes()

    def decoded(self, spec: InputSpec) -> Iterator[tuple[list[int], np.ndarray]]:
        """The positions of some files and their pixels, uint8 [files, *spec.shape], until all came.

        The input spec has no scale and statistics.
        """
        import tensorflow as tf

        converted = set(self.converted)
        plain = [row for row in range(len(self.paths)) if row not in converted]
        for start in range(0, len(plain), _BATCH):
            rows = plain[start : start + _BATCH]
            names = np.array([os.fsencode(self.paths[row]) for row in rows])
            try:
                yield rows, next(_decoded(names, spec))
            except tf.errors.InvalidArgumentError as error:
                broken = transforms.broken_images(str(error)) or str(error)
                row = next((row for row in rows if self.paths[row] in broken), None)
                if row is None:
                    raise DataError(broken) from None
                raise DataError(
                    f"{self.named(row)}: is broken: not a whole {self.headers[row].format} image; "
                    "skip_broken_images leaves such files out"
                ) from None
        for row in self.converted:
            if self.headers[row].is_dicom and self.headers[row].is_deep:
                pixels = transforms.fit(self._shades(row, spec), spec)
            else:
                pixels = _decoder(spec, of_contents=True)(self.contents(row))
            yield [row], pixels.numpy()[None]

    def _shades(self, row: int, spec: InputSpec) -> np.ndarray:
        """The pixels of a DICOM file without a window, with the limits at 0 and 255."""
        found = dicom_pixels(self.paths[row], windows=False)
        low, high = spec.pixel_range or (0, 1)
        shades = np.clip((found.pixels - low) * (255 / (high - low)), 0, 255)
        shades = 255 - shades if found.is_negative else shades
        return np.repeat(shades[..., None].astype(np.float32), self.channels, axis=2)

    def range_of(self) -> tuple[float, float]:
        """The smallest and the largest value of images of 16 bits, or of DICOM files."""
        import tensorflow as tf

        values: list[float] = []
        for row in range(len(self.paths)):
            if self.headers[row].is_dicom:
                pixels = dicom_pixels(self.paths[row], windows=False).pixels
            else:
                pixels = tf.io.decode_png(self.contents(row), self.channels, tf.uint16).numpy()
            values += [pixels.min().item(), pixels.max().item()]
        low, high = min(values), max(values)
        return (low, high) if low < high else (min(low, 0), max(high, 2**16 - 1))


def _decoded(paths: np.ndarray, spec: InputSpec) -> Iterator[np.ndarray]:
    """The pixels of image files that TensorFlow reads, uint8 [batch, *spec.shape], in batches."""
    pixels_of = _decoder(spec)
    for start in range(0, len(paths), _BATCH):
        yield np.asarray(pixels_of(paths[start : start + _BATCH]), np.uint8)


@functools.lru_cache(maxsize=8)
def _decoder(spec: InputSpec, *, of_contents: bool = False) -> Callable[[Any], Any]:
    """Decodes image files, which it names in errors, as eager operations would not.

    Or, if asked for, the contents of one image file.
    """
    import tensorflow as tf

    decode, shape = (transforms.decode_image, []) if of_contents else (transforms.normalize, [None])
    return tf.function(lambda x: decode(x, spec), input_signature=[tf.TensorSpec(shape, tf.string)])


def _remarks(samples: OwnSamples, headers: Sequence[Header]) -> dict[str, int]:
    """Counts images whose pixels are not what one may expect, and warns of them."""
    place, shown, counts = samples.place, samples.shown, {}
    windows = collections.Counter(header.window for header in headers if header.window)
    if len(windows) > 1:
        first = next(row for row, header in enumerate(headers) if header.window)
        warn(
            f"{place}: {windows.total()} DICOM files, such as {shown(first)}, are shown by "
            f"{len(windows)} different windows of their own; image_range gives all of them one"
        )
    for name, text, found in (
        (
            "misnamed_images_read",
            "are not in the format that their names say, and are read as what they are",
            [
                header.is_misnamed(os.fsdecode(path))
                for header, path in zip(headers, samples.x.tolist(), strict=True)
            ],
        ),
        (
            "photos_turned_upright",
            "are turned upright or mirrored, as their EXIF orientation says, also by exported "
            "models; earlier clones read them as they are stored, so runs of theirs had other data",
            [header.is_turned for header in headers],
        ),
        (
            "turned_photos_read_as_stored",
            "are turned or mirrored according to notes that only some viewers read (XMP), and are "
            "read as they are stored; turn their pixels first, for example with `mogrify "
            "-auto-orient`",
            [header.is_told_otherwise for header in headers],
        ),
        (
            "transparent_images_read",
            "are partly transparent; transparency is ignored, and pixels have the colors stored "
            "under it",
            [header.is_transparent for header in headers],
        ),
        (
            "first_frames_read",
            "have several frames or pages, of which only the first is read",
            [header.has_frames for header in headers],
        ),
    ):
        if number := sum(found):
            counts[name] = number
            example = shown(found.index(True))
            warn(f"{place}: {number} of {len(found)} images, such as {example}, {text}")
    return counts


def _by(size: Sequence[int]) -> str:
    return f"{size[1]}×{size[0]}"
