"""Normalization and augmentation against a few lines of NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd.data import InputSpec, augment, normalize

SEED = tf.constant([3, 7], tf.int32)


def _images(number=16, size=8, channels=3):
    rng = np.random.default_rng(0)
    return rng.integers(1, 256, (number, size, size, channels), dtype=np.uint8)


def test_normalize_scales_then_standardizes():
    spec = InputSpec("image", (8, 8, 3), scale=1 / 255, mean=(0.1, 0.2, 0.3), std=(0.5, 1, 2))
    x = _images()
    expected = (x / 255 - [0.1, 0.2, 0.3]) / [0.5, 1, 2]
    result = normalize(tf.constant(x), spec)
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_normalize_of_text_gives_ids():
    spec = InputSpec("text", (3,), vocabulary="ab")
    result = normalize(tf.constant([[0, 1, 2]], tf.uint8), spec)
    assert result.dtype == tf.int32
    assert result.numpy().tolist() == [[0, 1, 2]]


def test_augment_without_settings_is_the_identity():
    x = tf.constant(_images())
    assert augment(x, InputSpec("image", (8, 8, 3)), SEED) is x
    ids = tf.constant([[0, 1]], tf.uint8)
    assert augment(ids, InputSpec("text", (2,), vocabulary="a"), SEED) is ids


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_crops_are_windows_of_the_padded_image(mode, dtype):
    x = _images(32).astype(dtype)
    spec = InputSpec("image", (8, 8, 3), dtype=dtype, crop_padding=2, padding_mode=mode)
    result = augment(tf.constant(x), spec, SEED)
    assert result.dtype == dtype
    assert result.shape == x.shape
    numpy_mode = {"zeros": "constant", "reflect": "reflect"}[mode]
    padded = np.pad(x, [(0, 0), (2, 2), (2, 2), (0, 0)], numpy_mode)
    places = set()
    for image, crop in zip(padded, result.numpy(), strict=True):
        found = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if np.array_equal(image[i : i + 8, j : j + 8], crop)
        ]
        assert len(found) == 1
        places.update(found)
    assert len(places) > 8  # of 25 places by 32 images


def test_flips_mirror_about_half_of_the_images():
    x = _images(64)
    result = augment(tf.constant(x), InputSpec("image", (8, 8, 3), flip=True), SEED).numpy()
    mirrored = [np.array_equal(a[:, ::-1], b) for a, b in zip(x, result, strict=True)]
    same = [np.array_equal(a, b) for a, b in zip(x, result, strict=True)]
    assert sum(mirrored) + sum(same) == 64
    assert 16 < sum(mirrored) < 48


def test_rotation_turns_about_the_middle_by_at_most_the_angle():
    size = 33
    x = np.zeros((64, size, size, 1), np.uint8)
    x[:, 16, 16] = 9
    x[:, 15:18, 27:30] = 200  # a dot 12 pixels right of the middle
    spec = InputSpec("image", (size, size, 1), rotation=15.0)
    result = augment(tf.constant(x), spec, SEED).numpy()[..., 0].astype(float)
    assert (result[:, 16, 16] == 9).all()
    rows, columns = np.mgrid[:size, :size] - 16
    dot = (result == 200) / (result == 200).sum((1, 2), keepdims=True)
    angles = np.degrees(np.arctan2((dot * rows).sum((1, 2)), (dot * columns).sum((1, 2))))
    distances = np.hypot((dot * rows).sum((1, 2)), (dot * columns).sum((1, 2)))
    assert np.abs(angles).max() < 15 + 2
    assert angles.min() < -5
    assert angles.max() > 5
    assert np.abs(distances - 12).max() < 0.5


def test_rotation_fills_with_zeros_and_keeps_the_type():
    x = np.full((8, 16, 16, 3), 255, np.uint8)
    spec = InputSpec("image", (16, 16, 3), rotation=45.0)
    result = augment(tf.constant(x), spec, SEED)
    assert result.dtype == tf.uint8
    assert set(np.unique(result)) == {0, 255}


def test_augmentation_is_a_function_of_the_seed_also_in_a_graph():
    spec = InputSpec("image", (8, 8, 3), crop_padding=1, flip=True, rotation=15.0)
    x = tf.constant(_images())

    @tf.function
    def in_graph(x, seed):
        return normalize(augment(x, spec, seed), spec)

    eager = normalize(augment(x, spec, SEED), spec)
    np.testing.assert_array_equal(eager, in_graph(x, SEED))
    assert not np.array_equal(eager, in_graph(x, tf.constant([3, 8], tf.int32)))


def test_unknown_batch_size_works():
    spec = InputSpec("image", (8, 8, 3), crop_padding=1, flip=True, rotation=15.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.uint8)])
    def in_graph(x):
        return normalize(augment(x, spec, SEED), spec)

    assert in_graph(_images(3)).shape == (3, 8, 8, 3)
    assert in_graph(_images(0)).shape == (0, 8, 8, 3)
