"""The sparse frame: its optimization, its cache and its head."""

import pwd
import time

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import layers
from tff_pcdd.layers import sparse


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache for each test, in memory and on disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sparse, "_memory", {})
    return tmp_path / "cache" / "tff_pcdd"


def _statistics(psi):
    """Mean and variance of the angles between columns in degrees, and of their lengths."""
    lengths = np.linalg.norm(psi, axis=0)
    cosines = (psi / lengths).T @ (psi / lengths)
    angles = np.degrees(np.arccos(cosines[~np.eye(len(cosines), dtype=bool)]))
    return angles.mean(), angles.var(), lengths.mean(), lengths.var()


def _total_loss(psi, norm):
    return float(layers.EqualNorm(norm)(psi) + layers.MaximalAngle()(psi))


def _golden_start(z, name):
    initial = z[f"{name}_etf_init"]
    mask = np.ones(initial.size, bool)
    mask[z[f"{name}_zero_indices"]] = False
    return initial, mask.reshape(initial.shape)


def test_zeros_are_exact_and_columns_are_nearly_equiangular():
    psi = layers.sparse_etf(64, 10, seed=0)
    assert psi.dtype == np.float32 and psi.shape == (64, 10)
    assert (psi == 0).sum() == int(0.6 * 640)
    angle, angle_variance, length, length_variance = _statistics(psi)
    assert angle == pytest.approx(np.degrees(np.arccos(-1 / 9)), abs=0.01)
    assert angle_variance < 0.02
    assert length == pytest.approx(0.1, abs=1e-3) and length_variance < 1e-6


def test_a_free_entry_that_underflows_stays_free(monkeypatch, cache):
    def underflow(initial, mask, **kwargs):
        psi = initial * mask
        psi[np.argwhere(mask)[0][0], np.argwhere(mask)[0][1]] = 0.0
        return psi

    monkeypatch.setattr(sparse, "optimize_sparse_etf", underflow)
    psi = layers.sparse_etf(12, 4, seed=1)
    assert psi.dtype == np.float32 and (psi == 0).sum() == int(0.6 * 48)
    sparse._memory.clear()
    np.testing.assert_array_equal(layers.sparse_etf(12, 4, seed=1), psi)


def test_first_step_moves_by_the_learning_rate_against_the_gradient():
    rng = np.random.default_rng(0)
    initial, mask = rng.normal(size=(5, 3)), np.ones((5, 3))
    mask[[0, 2, 3], [0, 1, 2]] = 0
    step = layers.optimize_sparse_etf(initial, mask, steps=1, learning_rate=1e-3)
    with tf.GradientTape() as tape:
        psi = tf.Variable(initial * mask)
        loss = layers.EqualNorm(0.1)(psi) + layers.MaximalAngle()(psi)
    sign = np.sign(tape.gradient(loss, psi).numpy()) * mask
    np.testing.assert_allclose(step, initial * mask - 1e-3 * sign, atol=1e-7)
    unmoved = layers.optimize_sparse_etf(initial, mask, steps=0)
    np.testing.assert_array_equal(unmoved, initial * mask)


@pytest.mark.parametrize("init", support.rare_but(["gaussian", "uniform"], layers.SPARSE_ETF_INITS))
def test_all_inits_have_the_same_mask_and_become_frames(init):
    psi = layers.sparse_etf(16, 4, seed=7, init=init, steps=3000, learning_rate=1e-3)
    reference = layers.sparse_etf(16, 4, seed=7, steps=0)
    np.testing.assert_array_equal(psi != 0, reference != 0)
    angle, _, length, _ = _statistics(psi)
    assert angle == pytest.approx(np.degrees(np.arccos(-1 / 3)), abs=3.0)
    assert length == pytest.approx(0.1, abs=0.1)


def test_too_few_steps_log_a_warning(caplog):
    layers.sparse_etf(16, 4, seed=7, steps=10)
    assert "use more steps" in caplog.text
    caplog.clear()
    layers.sparse_etf(16, 4, seed=7, steps=3000, learning_rate=1e-3)
    assert not caplog.text


def test_distributions_of_the_dense_starting_points():
    # The standard deviation of a uniform distribution is its range over √12.
    scales = {"gaussian": 400**-0.5, "kaiming": np.sqrt(2 / 400), "uniform": np.sqrt(3 / 400 / 12)}
    for init, scale in scales.items():
        psi = layers.sparse_etf(400, 50, seed=0, sparsity=0.0, norm=1.0, steps=0, init=init)
        assert psi.std() == pytest.approx(scale, rel=0.05)
    psi = layers.sparse_etf(400, 50, seed=0, sparsity=0.0, steps=0, init="xavier")
    assert np.abs(psi).max() == pytest.approx(np.sqrt(6 / 450), rel=0.01)
    psi = layers.sparse_etf(400, 50, seed=0, sparsity=0.0, steps=0, init="orthogonal")
    np.testing.assert_allclose(psi.T @ psi, np.eye(50), atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("init", "norm"),
    support.rare_but(
        [("orthogonal", 2.0)],
        [*((init, 2.0) for init in layers.SPARSE_ETF_INITS), ("gaussian", 0.1), ("uniform", 0.1)],
    ),
)
def test_every_starting_point_becomes_a_frame(init, norm):
    psi = layers.sparse_etf(512, 10, norm=norm, seed=0, init=init)
    lengths = np.linalg.norm(psi, axis=0)
    np.testing.assert_allclose(lengths, norm, rtol=0.02)
    cosines = (psi / lengths).T @ (psi / lengths)
    angles = np.degrees(np.arccos(cosines[~np.eye(10, dtype=bool)]))
    assert angles.min() > 96  # The angle of a simplex ETF is 96.4.


def test_the_frame_depends_on_the_arguments():
    arguments = {"sparsity": 0.5, "norm": 0.2, "steps": 5, "learning_rate": 1e-3, "seed": 1}
    first = layers.sparse_etf(12, 4, **arguments)
    sparse._memory.clear()
    np.testing.assert_array_equal(first, layers.sparse_etf(12, 4, **arguments, cache_dir=""))
    for name, value in (("sparsity", 0.25), ("norm", 0.9), ("steps", 6), ("seed", 2)):
        other = layers.sparse_etf(12, 4, **{**arguments, name: value})
        assert np.abs(first - other).max() > 0


def test_cache_on_disk(cache, monkeypatch):
    calls = []
    original = sparse.optimize_sparse_etf

    def count(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(sparse, "optimize_sparse_etf", count)
    first = layers.sparse_etf(12, 4, seed=1, steps=5)
    (path,) = cache.iterdir()  # There is no temporary file.
    first[:] = 0.0  # Changes only the caller's copy.

    again = layers.sparse_etf(12, 4, seed=1, steps=5)
    assert again.any() and len(calls) == 1
    sparse._memory.clear()
    np.testing.assert_array_equal(again, layers.sparse_etf(12, 4, seed=1, steps=5))
    assert len(calls) == 1

    wrong_zeros = again.copy()
    wrong_zeros[again == 0] = 1.0
    for number, damage in enumerate(
        (
            lambda: path.write_bytes(b""),
            lambda: path.write_bytes(path.read_bytes()[:-20]),
            lambda: path.write_bytes(b"not an array"),
            lambda: np.save(path, np.zeros((2, 2), np.float32)),
            lambda: np.save(path, np.full((12, 4), np.nan, np.float32)),
            lambda: np.save(path, wrong_zeros),
        )
    ):
        damage()
        sparse._memory.clear()
        np.testing.assert_array_equal(again, layers.sparse_etf(12, 4, seed=1, steps=5))
        assert len(calls) == number + 2
        np.testing.assert_array_equal(again, np.load(path))


def test_another_cache_folder_and_no_cache(cache, tmp_path):
    layers.sparse_etf(12, 4, seed=1, steps=5, cache_dir="")
    assert not cache.exists()
    sparse._memory.clear()
    layers.sparse_etf(12, 4, seed=1, steps=5, cache_dir=tmp_path / "mine")
    assert not cache.exists() and len(list((tmp_path / "mine").iterdir())) == 1
    # A folder that cannot be created is ignored.
    (tmp_path / "file").write_text("")
    psi = layers.sparse_etf(12, 4, seed=2, steps=5, cache_dir=tmp_path / "file" / "folder")
    assert psi.any()


def test_home_cache_without_xdg(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    layers.sparse_etf(12, 4, seed=1, steps=5)
    assert len(list((tmp_path / ".cache" / "tff_pcdd").iterdir())) == 1


def test_no_cache_without_a_home_directory(tmp_path, monkeypatch):
    """In a container whose user has no name."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.chdir(tmp_path)
    assert layers.sparse_etf(12, 4, seed=1, steps=5).any()
    assert not list(tmp_path.iterdir())


def test_errors():
    for arguments, message in (
        ({"sparsity": 1.0}, "sparsity must be"),
        ({"sparsity": -0.1}, "sparsity must be"),
        ({"norm": 0.0}, "norm must be positive"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"steps": -1}, "steps must not be negative"),
        ({"init": "zeros"}, "init must be one of"),
        ({"sparsity": 0.95}, "leaves no entry for class"),
    ):
        with pytest.raises(ValueError, match=message):
            layers.sparse_etf(12, 10, seed=0, **arguments)
    with pytest.raises(ValueError, match="feature_dim=3 and num_classes=10"):
        layers.sparse_etf(3, 10, seed=0)


def test_head_is_linear_in_raw_features_and_survives_serialization():
    features = np.random.default_rng(0).normal(size=(6, 12)).astype(np.float32)
    head = layers.SparseETF(4, seed=3, steps=20, sparsity=0.5, norm=1.0)
    psi = layers.sparse_etf(12, 4, seed=3, steps=20, sparsity=0.5, norm=1.0)
    np.testing.assert_allclose(head(features), features @ psi, rtol=1e-5, atol=1e-6)
    assert not head.trainable_weights and len(head.weights) == 1
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(head))
    assert type(again) is layers.SparseETF
    np.testing.assert_array_equal(again(features), head(features))


def test_fixed_head_with_a_sparse_initializer_survives_serialization():
    head = layers.FixedHead(4, layers.SparseETFInitializer(seed=3, steps=20))
    features = np.ones((2, 12), np.float32)
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(head))
    np.testing.assert_array_equal(again(features), head(features))


def test_head_can_be_created_while_a_graph_is_built():
    features = np.ones((2, 12), np.float32)
    with tf.Graph().as_default():
        head = layers.SparseETF(4, seed=3, steps=20)
        logits = head(tf.constant(features))
        with tf.compat.v1.Session() as session:
            session.run(head.kernel.initializer)
            result = session.run(logits)
    np.testing.assert_allclose(
        result, features @ layers.sparse_etf(12, 4, seed=3, steps=20), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_head_computes_in_float32_under_mixed_precision(policy):
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        head = layers.SparseETF(4, seed=3, steps=20)
        assert head(tf.ones([2, 12], tf.float16)).dtype == tf.float32
        assert head.kernel.dtype == tf.float32
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")


def test_golden_adam_trajectory(golden):
    z = golden("fedloge_ssec_losses")
    for steps, expected in enumerate(z["adam_traj_g0.1"]):
        psi = layers.optimize_sparse_etf(
            z["psi"], z["mask"], norm=0.1, steps=steps, learning_rate=float(z["adam_lr"])
        )
        np.testing.assert_allclose(psi, expected, rtol=1e-6, atol=1e-8)
        if steps < len(z["adam_losses_g0.1"]):
            loss = z["adam_losses_g0.1"][steps]
            np.testing.assert_allclose(_total_loss(psi, 0.1), loss, rtol=1e-5)


def test_golden_200_steps(golden):
    z = golden("fedloge_ssec_generator")
    initial, mask = _golden_start(z, "small200")
    psi = layers.optimize_sparse_etf(initial, mask, norm=0.1, steps=200)
    np.testing.assert_allclose(psi, z["small200_result"], atol=1e-4)


@pytest.mark.parametrize(("name", "norm"), [("full_g01", 0.1), ("full_g10", 1.0)])
def test_golden_10000_steps_by_their_statistics(golden, name, norm):
    z = golden("fedloge_ssec_generator")
    initial, mask = _golden_start(z, name)
    start = time.process_time()
    psi = layers.optimize_sparse_etf(initial, mask, norm=norm, steps=10000)
    assert time.process_time() - start < 60
    np.testing.assert_array_equal(psi != 0, z[f"{name}_result"] != 0)
    angle, angle_variance, length, length_variance = _statistics(psi)
    expected = z[f"{name}_angle_mean_var_norm_mean_var"]
    assert angle == pytest.approx(expected[0], abs=1e-2)
    assert length == pytest.approx(expected[2], rel=1e-3)
    assert angle_variance < 5 * expected[1] and length_variance < 5 * expected[3]
    assert _total_loss(psi, norm) == pytest.approx(z[f"{name}_loss_every100"][-1], abs=1e-3)
