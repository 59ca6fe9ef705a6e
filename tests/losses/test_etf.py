"""Logits of the frame, masks and Φ, compared with NumPy and golden files."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses


def _cross_entropy(logits, labels):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def _numpy_logits(features, etf, phi, scale):
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)
    return scale * phi * (directions @ etf)


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    return {
        "features": rng.normal(size=(5, 4)).astype(np.float32),
        "etf": rng.normal(size=(4, 3)).astype(np.float32),
        "phi": np.array([2.0, 0.0, 1.0], np.float32),
        "labels": np.array([0, 2, 2, 0, 0]),
    }


def test_etf_logits_match_numpy(toy):
    logits = losses.etf_logits(toy["features"], toy["etf"], toy["phi"], scale=7.0)
    expected = _numpy_logits(toy["features"], toy["etf"], toy["phi"], 7.0)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    plain = losses.etf_logits(toy["features"], toy["etf"])
    np.testing.assert_allclose(
        plain, _numpy_logits(toy["features"], toy["etf"], np.ones(3), 1.0), rtol=1e-5, atol=1e-6
    )
    raw = losses.etf_logits(toy["features"], toy["etf"], normalize=False)
    np.testing.assert_allclose(raw, toy["features"] @ toy["etf"], rtol=1e-5, atol=1e-6)


def test_etf_logits_do_not_depend_on_the_length_of_features(toy):
    short = losses.etf_logits(toy["features"], toy["etf"])
    long = losses.etf_logits(1e4 * toy["features"], toy["etf"])
    np.testing.assert_allclose(short, long, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_etf_logits_of_half_precision_are_float32(toy, dtype):
    logits = losses.etf_logits(tf.cast(toy["features"], dtype), toy["etf"], scale=1e5)
    assert logits.dtype == tf.float32
    assert np.isfinite(logits).all()


def test_etf_logits_of_zero_features_have_zero_gradient(toy):
    features = tf.Variable(np.concatenate([np.zeros((1, 4)), toy["features"][:4]]), dtype="float32")
    with tf.GradientTape() as tape:
        loss = _cross_entropy(losses.etf_logits(features, toy["etf"], scale=1e5), toy["labels"])
    gradient = tape.gradient(loss, features).numpy()
    assert np.isfinite(gradient).all()
    assert not gradient[0].any() and gradient[1:].any()


@pytest.mark.parametrize("mask", [[1, 0, 1], [True, False, True], [0.5, 0.0, 3.0]])
def test_mask_logits_excludes_classes(toy, mask):
    logits = losses.etf_logits(toy["features"], toy["etf"], scale=1e5)
    probabilities = tf.nn.softmax(losses.mask_logits(logits, mask)).numpy()
    assert not probabilities[:, 1].any()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)


def test_mask_logits_is_finite_if_all_classes_or_the_label_are_masked(toy):
    logits = tf.Variable(toy["features"])
    for mask in ([0, 0, 0, 0], [0, 1, 1, 1]):
        with tf.GradientTape() as tape:
            loss = _cross_entropy(losses.mask_logits(logits, mask), [0] * 5)
        gradient = tape.gradient(loss, logits).numpy()
        assert np.isfinite(loss) and np.isfinite(gradient).all()
        assert not gradient[:, 0].any()
    assert losses.mask_logits(tf.zeros([1, 4], tf.float16), [1, 0, 1, 1]).dtype == tf.float32


def test_a_client_with_one_class_is_trained_only_without_masking():
    rng = np.random.default_rng(1)
    features = tf.Variable(rng.normal(size=(3, 4)), dtype=tf.float32)
    etf, phi, labels = rng.normal(size=(4, 3)), np.array([3.0, 0.0, 0.0]), [0, 0, 0]
    norms = []
    for masked in (True, False):
        with tf.GradientTape() as tape:
            logits = losses.etf_logits(features, etf, phi)
            loss = _cross_entropy(losses.mask_logits(logits, phi) if masked else logits, labels)
        norms.append(float(tf.norm(tape.gradient(loss, features))))
    assert norms[0] == 0.0 and norms[1] > 0.0


def test_phi_linear_is_one_on_average():
    counts = np.array([[8, 2, 0], [0, 0, 0], [1, 1, 2]])
    phi = losses.phi_from_counts(counts).numpy()
    np.testing.assert_allclose(phi[0], [2.4, 0.6, 0.0], rtol=1e-6)
    np.testing.assert_array_equal(phi[1], np.zeros(3))
    np.testing.assert_allclose(phi[[0, 2]].mean(axis=1), 1.0, rtol=1e-6)
    assert phi.dtype == np.float32


@pytest.mark.parametrize("variant", losses.PHI_VARIANTS)
def test_phi_normalizer_makes_the_weighted_mean_one(variant):
    counts = np.array([[8, 2, 0, 5], [0, 0, 0, 0], [1, 1, 2, 0], [0, 0, 30, 0]])
    gamma = losses.phi_normalizer(counts, variant)
    phi = losses.phi_from_counts(counts, variant, normalizer=gamma).numpy()
    shares = counts.sum(axis=1) / counts.sum()
    np.testing.assert_allclose(shares @ phi.mean(axis=1), 1.0, rtol=1e-5)
    if variant == "linear":
        assert gamma == pytest.approx(4.0)
        np.testing.assert_allclose(phi, losses.phi_from_counts(counts), rtol=1e-6)
    expected = {"linear": 8 / 15, "sqrt": np.sqrt(8 / 15), "exp": np.exp(8 / 15)}[variant]
    np.testing.assert_allclose(phi[0, 0], gamma * expected, rtol=1e-5)
    assert not phi[1].any()


def test_phi_errors():
    with pytest.raises(ValueError, match="variant must be one of"):
        losses.phi_from_counts([1, 2], "cubic")
    with pytest.raises(ValueError, match="variant must be one of"):
        losses.phi_normalizer([[1, 2]], "cubic")
    with pytest.raises(ValueError, match="needs normalizer"):
        losses.phi_from_counts([1, 2], "sqrt")
    with pytest.raises(ValueError, match="num_clients, num_classes"):
        losses.phi_normalizer([1, 2])
    with pytest.raises(ValueError, match="no samples"):
        losses.phi_normalizer([[0, 0], [0, 0]])


def test_golden_phi_and_logits(golden):
    z = golden("fedgela")
    for client, phi in enumerate(z["phi_all_clients"]):
        start, stop = z["client_labels_offsets"][client : client + 2]
        counts = np.bincount(z["client_labels_concat"][start:stop], minlength=int(z["C"]))
        np.testing.assert_allclose(losses.phi_from_counts(counts), phi, rtol=1e-6)
    features = z["h_raw"].astype(np.float32)
    personal = losses.etf_logits(features, z["etf_f32"], z["phi"])
    np.testing.assert_allclose(personal, z["logits_personal"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        losses.etf_logits(features, z["etf_f32"]), z["logits_global"], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(np.argmax(personal, 1), z["argmax_personal_unmasked"])
    masked = losses.mask_logits(personal, z["mask_all_clients"][0])
    np.testing.assert_array_equal(np.argmax(masked, 1), z["argmax_personal_masked"])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("normalization", ["l2", "bn"])
def test_golden_cross_entropy(golden, normalization, masked):
    z = golden("fedgela")
    name = f"{normalization}_{'masked' if masked else 'unmasked'}"
    key = "h_raw" if normalization == "l2" else "h_bn_train"
    for index, temperature in enumerate(z["temperatures"]):
        features = tf.Variable(z[key], dtype=tf.float32)
        with tf.GradientTape() as tape:
            logits = losses.etf_logits(
                features,
                z["etf_f32"],
                z["phi"],
                scale=1.0 / temperature,
                normalize=normalization == "l2",
            )
            if masked:
                logits = losses.mask_logits(logits, z["phi"])
            loss = _cross_entropy(logits, z["labels"])
        np.testing.assert_allclose(loss, z[f"{name}_loss"][index], rtol=1e-5)
        wrt = "h_raw" if normalization == "l2" else "feat"
        expected = z[f"{name}_grad_{wrt}"][index]
        tolerance = 1e-4 if temperature > 1e-4 else 1e-3
        difference = np.abs(tape.gradient(loss, features) - expected).max()
        assert difference <= tolerance * np.abs(expected).max()
