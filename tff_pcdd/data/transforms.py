"""From raw batches to model inputs: TensorFlow functions for use inside a graph.

Raw inputs are kept as they are stored (uint8 pixels, ids, paths) and become floats only here, which
saves memory and transfers. The order in training is `normalize(augment(x, spec, seed), spec)`:
augmentation comes first, so padding has the value of a black pixel, as in the PIL pipelines of
FedGELA and FedMR.
"""

from __future__ import annotations

from etils import epy

from tff_pcdd import draws
from tff_pcdd.data import image_headers
from tff_pcdd.data.input_spec import IMAGE_FILE, TEXT, VECTOR, InputSpec

with epy.lazy_imports():
    import tensorflow as tf

_BROKEN = "image files are missing, broken or above max_image_pixels:"


def not_compiled(spec: InputSpec) -> str | None:
    """Why XLA cannot compile the augmentation and decoding of inputs; None if it can."""
    if spec.kind == IMAGE_FILE:
        return "image files are decoded for each batch, which XLA cannot compile"
    if spec.rotation:
        return "XLA has no operation that rotates images"
    return None


def normalize(x: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Turns a raw batch into the model's input.

    Args:
        x: raw inputs as described by `spec`, [batch, *spec.raw_shape]; for image files also images
            that have already been decoded.
        spec: the input spec.

    Returns:
        float32 (x · scale - mean) / std for images and vectors, int32 ids for text;
        [batch, *spec.shape].

    Raises:
        tf.errors.InvalidArgumentError: at run time, if an image file cannot be decoded; names it.
    """
    if spec.kind == TEXT:
        return tf.cast(x, tf.int32)
    x = tf.cast(_pixels(x, spec), tf.float32) * spec.scale
    if spec.mean is not None:
        x -= _row(spec.mean, spec)
    if spec.std is not None:
        x /= _row(spec.std, spec)
    return x


def _row(channels: tuple[float, ...], spec: InputSpec) -> tf.Tensor:
    """The constants of a vector's numbers, or of channels for each pixel of a row of an image.

    On a CPU, broadcasting a single pixel would take longer than the rest of the normalization.
    """
    if spec.kind == VECTOR:
        return tf.constant(channels, tf.float32)
    return tf.constant([channels] * spec.shape[1], tf.float32)


def augment(x: tf.Tensor, spec: InputSpec, seed: tf.Tensor) -> tf.Tensor:
    """Crops, mirrors and rotates each image of a raw batch at random.

    Args:
        x: raw inputs, [batch, *spec.raw_shape].
        spec: the input spec, which selects the augmentations; text, and images whose spec selects
            none, are returned unchanged.
        seed: int32 [2], the only source of randomness.

    Returns:
        The batch in its raw type and shape; image files are decoded, [batch, *spec.shape].

    Raises:
        tf.errors.InvalidArgumentError: at run time, if an image file cannot be decoded; names it.
    """
    if spec.kind == TEXT or not spec.augments:
        return x
    x = _pixels(x, spec)
    seeds = draws.split(seed, 3)
    if spec.crop_padding:
        x = _crop(x, spec, seeds[0])
    if spec.flip:
        mirrored = draws.uniform([tf.shape(x)[0], 1, 1, 1], seeds[1]) < 0.5
        x = tf.where(mirrored, x[:, :, ::-1], x)
    if spec.rotation:
        x = _rotate(x, spec.rotation, seeds[2])
    return x


def strong(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """A second, strongly augmented view of a batch of model inputs, in place of AutoAugment's.

    Images are shifted by up to a quarter of their side, with zeros from outside, which are the
    data's mean; their contrast and saturation are changed by up to a half and their brightness by
    up to half a standard deviation; and a square of half their side is set to zero (Cutout, DeVries
    and Taylor, 2017), where the centre of the square is anywhere in the image. All operations are
    ones that XLA compiles.

    Args:
        x: normalized images, float32 [batch, height, width, channels].
        seed: int32 [2], the only source of randomness.
    """
    number, seeds = tf.shape(x)[0], draws.split(seed, 6)

    def factors(seed, reach, centre=1.0):
        return draws.uniform([number, 1, 1, 1], seed, centre - reach, centre + reach)

    x = _shifted(x, seeds[0])
    mean = tf.reduce_mean(x, axis=[1, 2, 3], keepdims=True)
    x = (x - mean) * factors(seeds[1], 0.5) + mean + factors(seeds[2], 0.5, 0.0)
    gray = tf.reduce_mean(x, axis=3, keepdims=True)
    x = (x - gray) * factors(seeds[3], 0.5) + gray
    inside = [
        tf.abs(tf.range(size, dtype=tf.float32) - draws.uniform([number, 1], own, 0.0, float(size)))
        < size / 4
        for size, own in zip(x.shape[1:3], seeds[4:], strict=True)
    ]
    hole = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return tf.where(hole, tf.zeros_like(x), x)


def _shifted(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Images that are shifted by up to a quarter of their sides, with zeros from outside."""
    _, height, width, _ = x.shape
    reaches = height // 4, width // 4
    padded = tf.pad(x, [[0, 0], *([reach, reach] for reach in reaches), [0, 0]])
    starts = [
        draws.uniform([tf.shape(x)[0], 1], own, 0, 2 * reach + 1, tf.int32)
        for reach, own in zip(reaches, draws.split(seed, 2), strict=True)
    ]
    return _windows(padded, tf.concat(starts, axis=1), height, width)


def _pixels(x: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """The pixels of image files, decoded; any other input unchanged."""
    if spec.kind != IMAGE_FILE or x.dtype != tf.string:
        return x
    number = tf.shape(x, tf.int64)[0]
    # TensorFlow's own error does not name the broken file. A `tf.data.Dataset` can skip failing
    # elements, so the missing elements show which files are broken; it also decodes in parallel.
    images = (
        tf.data.Dataset.from_tensor_slices(x)
        .enumerate()
        .map(
            lambda i, path: (i, decode_image(tf.io.read_file(path), spec)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .ignore_errors()
    )
    # One extra element, because a batch must not be empty.
    last = tf.data.Dataset.from_tensors((number, tf.zeros(spec.shape, tf.uint8)))
    indices, images = images.concatenate(last).batch(number + 1).get_single_element()
    decoded = tf.scatter_nd(indices[:, None], tf.ones_like(indices), [number + 1]) > 0
    broken = tf.boolean_mask(x, ~decoded[:-1])
    # Not `==`, which compares objects in the graphs that TFF traces.
    check = tf.debugging.Assert(tf.equal(tf.size(broken), 0), [_BROKEN, broken], summarize=3)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.reshape(images[:-1], [-1, *spec.shape])


def broken_images(message: str) -> str | None:
    """One line that names broken image files, from the message of a failed computation.

    None if the message is not about image files.
    """
    # On every runtime, a failed computation reports only text: the operation's message, the names
    # in brackets, and, after "[[", the operation.
    _, found, rest = message.partition(f"{_BROKEN}] [")
    names, _, _ = rest.partition("[[")
    return f"{_BROKEN} {names.rstrip().removesuffix(']')}" if found else None


def decode_image(contents: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Decodes an image file, turns it as its EXIF orientation says, scales it and crops its centre.

    Args:
        contents: bytes of a JPEG, PNG or BMP file, a string scalar; of a PNG of 16 bits if the spec
            has a `pixel_range`.
        spec: the input spec.

    Returns:
        uint8 of the static shape `spec.shape`.

    Raises:
        tf.errors.InvalidArgumentError: at run time, if the bytes are not an image, or the header
            states more than `max_pixels` pixels.
    """
    channels = spec.shape[-1]
    reason = f"not a JPEG, PNG or BMP image of at most {spec.max_pixels} pixels"
    check = tf.debugging.Assert(image_headers.within(contents, spec.max_pixels), [reason])
    with tf.control_dependencies([check] if check is not None else []):
        contents = tf.identity(contents)
    if spec.pixel_range is None:
        image = tf.io.decode_image(contents, channels=channels, expand_animations=False)
    else:
        image = _decode_deep(contents, channels, spec.pixel_range)
    return fit(image_headers.turned(image, image_headers.orientation(contents)), spec)


def fit(image: tf.Tensor, spec: InputSpec) -> tf.Tensor:
    """Scales an image, pixels from 0 to 255 [height, width, channels], and crops its centre.

    Returns:
        uint8 of the static shape `spec.shape`.
    """
    height, width, _ = spec.shape
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    if spec.resize:
        factor = spec.resize / tf.reduce_min(size)
    else:
        factor = tf.reduce_max(tf.constant([height, width], tf.float32) / size)
    scaled = tf.maximum(tf.cast(tf.round(size * factor), tf.int32), [height, width])
    image = tf.image.resize(image, scaled, antialias=True)
    image = tf.image.resize_with_crop_or_pad(image, height, width)
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)


def _decode_deep(contents: tf.Tensor, channels: int, limits: tuple[float, float]) -> tf.Tensor:
    """The pixels of a PNG of 16 bits, with the limits at 0 and 255, float32."""
    # TensorFlow would read a file of 8 bits too, and stretch its values to 16.
    start = tf.strings.join([contents, "\0" * image_headers.BIT_DEPTH, "\0"])
    depth = tf.strings.substr(start, image_headers.BIT_DEPTH, 1)
    check = tf.debugging.Assert(tf.equal(depth, b"\x10"), ["not a PNG image of 16 bits"])
    with tf.control_dependencies([check] if check is not None else []):
        pixels = tf.io.decode_png(contents, channels=channels, dtype=tf.uint16)
    low, high = limits
    return (tf.cast(pixels, tf.float32) - low) * (255 / (high - low))


def _crop(x: tf.Tensor, spec: InputSpec, seed: tf.Tensor) -> tf.Tensor:
    """Pads every side and crops a window of the original size at a random position."""
    height, width, _ = spec.shape
    pad = spec.crop_padding
    mode = {"zeros": "CONSTANT", "reflect": "REFLECT"}[spec.padding_mode]
    padded = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]], mode)
    corner = draws.uniform([tf.shape(x)[0], 2], seed, maxval=2 * pad + 1, dtype=tf.int32)
    return _windows(padded, corner, height, width)


def _windows(x: tf.Tensor, corner: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The window of each image whose first row and column are `corner`, int32 [batch, 2]."""
    rows = corner[:, :1] + tf.range(height)
    columns = corner[:, 1:] + tf.range(width)
    x = tf.gather(x, rows, axis=1, batch_dims=1)
    return tf.gather(x, columns, axis=2, batch_dims=1)


def _rotate(x: tf.Tensor, degrees: float, seed: tf.Tensor) -> tf.Tensor:
    """Rotates images about their centres, with nearest neighbors and zeros outside the image."""
    height, width = x.shape[1], x.shape[2]
    radians = degrees * 3.141592653589793 / 180
    angle = draws.uniform([tf.shape(x)[0]], seed, -radians, radians)
    cos, sin = tf.cos(angle), tf.sin(angle)
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    zero = tf.zeros_like(angle)
    # Output pixel (u, v) shows input pixel (cos·u - sin·v + a, sin·u + cos·v + b), where
    # the offsets a, b keep the centre in place.
    transforms = tf.stack(
        [
            cos,
            -sin,
            middle_x - cos * middle_x + sin * middle_y,
            sin,
            cos,
            middle_y - sin * middle_x - cos * middle_y,
            zero,
            zero,
        ],
        axis=1,
    )
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=x,
        transforms=transforms,
        output_shape=tf.constant([height, width], tf.int32),
        fill_value=tf.constant(0.0),
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
