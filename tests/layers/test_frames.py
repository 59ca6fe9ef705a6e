"""Dense frames, which are drawn and not optimized."""

import numpy as np
import pytest

from tff_pcdd import layers
from tff_pcdd.layers.frames import FRAME_INITS


def matrices(seed):
    """The matrices [6, 4] before their columns are scaled, one for each distribution."""
    generator = np.random.default_rng(seed)
    uniform = generator.random((6, 4))
    normal = generator.normal(size=(6, 4))
    orthonormal, _ = np.linalg.qr(uniform)
    return {
        "etf": orthonormal @ (np.eye(4) - 1 / 4),
        "xavier": uniform - 0.5,
        "gaussian": normal,
        "uniform": uniform,
        "orthogonal": np.linalg.qr(normal)[0],
        "kaiming": normal,
    }


@pytest.mark.parametrize("init", FRAME_INITS)
def test_columns_have_the_directions_of_the_matrix_and_the_same_length(init):
    frame = layers.dense_frame(6, 4, norm=0.3, seed=5, init=init)
    assert frame.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(frame, axis=0), 0.3, rtol=1e-6)
    matrix = matrices(5)[init]
    np.testing.assert_allclose(frame, 0.3 * matrix / np.linalg.norm(matrix, axis=0), rtol=1e-5)


def test_layer_with_a_dense_frame_is_restored_from_its_config():
    head = layers.FixedHead(4, layers.DenseFrameInitializer(seed=5, norm=0.3, init="kaiming"))
    head.build((None, 6))
    expected = layers.dense_frame(6, 4, norm=0.3, seed=5, init="kaiming")
    np.testing.assert_array_equal(head.get_weights()[0], expected)
    again = layers.FixedHead.from_config(head.get_config())
    again.build((None, 6))
    np.testing.assert_array_equal(again.get_weights()[0], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature_dim": 3}, "feature_dim >= num_classes"),
        ({"num_classes": 1}, "num_classes >= 2"),
        ({"norm": 0.0}, "norm must be positive"),
        ({"init": "normal"}, "init must be one of etf, xavier"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        layers.dense_frame(**{"feature_dim": 6, "num_classes": 4, "seed": 0, **arguments})
