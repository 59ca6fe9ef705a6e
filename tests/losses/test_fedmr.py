"""FedMR's losses and prototypes, compared with short NumPy programs and golden files."""

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import losses

_GOLDEN_INTRA = {
    "frobenius": "intra_paper_fro2_unbiased",
    "offdiagonal": "intra_paper_fro2_offdiag_unbiased",
    "code": "intra_code",
}


def _value_and_gradient(function, features):
    features = tf.Variable(features)
    with tf.GradientTape() as tape:
        loss = function(features)
    return float(loss), tf.convert_to_tensor(tape.gradient(loss, features)).numpy()


def _numpy_intra(features, labels, form):
    values, samples = [], 0
    for label in np.unique(labels):
        chosen = features[labels == label]
        count, width = chosen.shape
        if count < 2:
            continue
        standard = (chosen - chosen.mean(0)) / np.sqrt(1e-8 + chosen.var(0, ddof=1))
        gram = standard.T @ standard
        off = (gram**2).sum() - (np.diag(gram) ** 2).sum()
        samples += count
        values.append(
            {
                "frobenius": (gram**2).sum() / (count - 1) ** 2,
                "offdiagonal": off / (count - 1) ** 2,
                "code": off / (width * (width - 1)),
            }[form]
        )
    return np.sum(values) / samples if form == "code" else np.mean(values)


def _numpy_inter(features, labels, prototypes, valid, reading):
    def distance(samples, label):
        return np.linalg.norm(samples - prototypes[label], axis=1)

    present, values = np.unique(labels), []
    for label in present[valid[present]]:
        samples = features[labels == label]
        if reading == "nomargin":
            values.append(distance(samples, label).mean())
            continue
        for rival in np.flatnonzero(valid):
            in_batch = rival in present
            if rival == label or (reading, in_batch) in (("local", False), ("missing", True)):
                continue
            values.append(np.maximum(distance(samples, label) - distance(samples, rival), 0).mean())
    return np.mean(values) if values else 0.0


def _numpy_gradient(function, features, step=1e-6):
    """Gradient by central differences."""
    gradient = np.zeros_like(features)
    for place in np.ndindex(*features.shape):
        ends = []
        for sign in (1, -1):
            moved = features.copy()
            moved[place] += sign * step
            ends.append(function(moved))
        gradient[place] = (ends[0] - ends[1]) / (2 * step)
    return gradient


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    labels = np.array([0, 0, 0, 2, 2, 4, 5, 5, 5, 5, 2, 0])
    features = np.abs(rng.normal(size=(12, 7))).astype(np.float32)
    prototypes = rng.normal(1.0, 1.0, size=(6, 7)).astype(np.float32)
    return features, labels, prototypes, np.array([True, True, False, True, True, True])


@pytest.mark.parametrize("form", losses.INTRA_FORMS)
def test_intra_class_matches_numpy(toy, form):
    features, labels, *_ = toy
    loss = losses.intra_class(features, labels, 6, form)
    expected = _numpy_intra(features.astype(np.float64), labels, form)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    more_classes = losses.intra_class(features, labels, 100, form)
    np.testing.assert_allclose(more_classes, expected, rtol=1e-5)


@pytest.mark.parametrize("form", losses.INTRA_FORMS)
def test_intra_class_gradient_matches_differences(toy, form):
    """The loss is scaled, so that the upstream gradient is not 1; one sample has no class."""
    features, labels = toy[0].astype(np.float64), np.r_[toy[1][:-1], -1]
    _, gradient = _value_and_gradient(
        lambda x: losses.intra_class(x, labels, 6, form) * 2 / 3, features
    )
    expected = _numpy_gradient(lambda x: _numpy_intra(x[:-1], labels[:-1], form) * 2 / 3, features)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
    assert not gradient[-1].any() and gradient[:5].any()


@pytest.mark.parametrize("form", losses.INTRA_FORMS)
def test_intra_class_ignores_samples_without_class(toy, form):
    features, labels, *_ = toy
    padded = np.concatenate([features, np.full((3, 7), 1e3, np.float32)])
    loss = losses.intra_class(padded, np.r_[labels, [-1, -1, 6]], 6, form)
    np.testing.assert_allclose(loss, losses.intra_class(features, labels, 6, form), rtol=1e-5)


@pytest.mark.parametrize("form", losses.INTRA_FORMS)
@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0], [1, 1, 2], [-1, -1, -1]])
def test_intra_class_is_finite_for_degenerate_batches(form, labels):
    features = np.array([[0, 1, 2], [0, 1, 2], [0, 1, 5]], np.float32)
    loss, gradient = _value_and_gradient(
        lambda x: losses.intra_class(x, np.array(labels), 3, form), features
    )
    assert np.isfinite(loss) and np.isfinite(gradient).all()
    if labels[0] != labels[1] or labels[0] < 0:
        assert loss == 0.0 and not gradient.any()


def test_intra_class_of_an_empty_batch_is_zero():
    assert float(losses.intra_class(tf.zeros([0, 4]), tf.zeros([0], tf.int32), 3)) == 0.0


@pytest.mark.parametrize("form", losses.INTRA_FORMS)
def test_golden_intra_class(golden, form):
    z = golden("fedmr_losses")
    loss, gradient = _value_and_gradient(
        lambda x: losses.intra_class(x, z["labels"], int(z["C"]), form),
        z["features"].astype(np.float32),
    )
    name = _GOLDEN_INTRA[form]
    np.testing.assert_allclose(loss, z[name], rtol=1e-5)
    expected = z[f"{name}_grad"]
    assert np.abs(gradient - expected).max() <= 1e-4 * np.abs(expected).max()


def test_golden_intra_class_with_a_dead_column(golden):
    z = golden("fedmr_losses")
    loss, gradient = _value_and_gradient(
        lambda x: losses.intra_class(x, z["labels"], int(z["C"]), "code"),
        z["features_deadcol"].astype(np.float32),
    )
    np.testing.assert_allclose(loss, z["intra_code_deadcol"], rtol=1e-5)
    expected = z["intra_code_deadcol_grad"]
    assert np.abs(gradient - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("reading", losses.INTER_READINGS)
def test_inter_class_matches_numpy(toy, reading):
    loss = losses.inter_class(*toy, reading)
    np.testing.assert_allclose(loss, _numpy_inter(*toy, reading), rtol=1e-5)
    assert loss > 0


@pytest.mark.parametrize("reading", losses.INTER_READINGS)
def test_inter_class_gradient_matches_differences(toy, reading):
    features, labels, prototypes, valid = toy
    features, prototypes = features.astype(np.float64), prototypes.astype(np.float64)
    _, gradient = _value_and_gradient(
        lambda x: losses.inter_class(x, labels, prototypes, valid, reading) * 2 / 3, features
    )
    expected = _numpy_gradient(
        lambda x: _numpy_inter(x, labels, prototypes, valid, reading) * 2 / 3, features
    )
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)
    assert gradient.any()


@pytest.mark.parametrize("reading", losses.INTER_READINGS)
def test_inter_class_with_sample_mask_equals_the_sub_batch(toy, reading):
    features, labels, prototypes, valid = toy
    mask = np.arange(12) % 3 != 0
    some, gradient = _value_and_gradient(
        lambda x: losses.inter_class(x, labels, prototypes, valid, reading, sample_mask=mask),
        features,
    )
    expected = losses.inter_class(features[mask], labels[mask], prototypes, valid, reading)
    np.testing.assert_allclose(some, expected, rtol=1e-5)
    assert not gradient[~mask].any() and gradient[mask].any()


def test_inter_class_ignores_invalid_prototypes(toy):
    features, labels, prototypes, valid = toy
    expected = losses.inter_class(features, labels, prototypes, valid)
    broken = np.where(valid[:, None], prototypes, np.nan)
    loss, gradient = _value_and_gradient(
        lambda x: losses.inter_class(x, labels, broken, valid), features
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert np.isfinite(gradient).all()


def test_inter_class_without_any_prototype_is_zero(toy):
    features, labels, prototypes, _ = toy
    for reading in losses.INTER_READINGS:
        loss, gradient = _value_and_gradient(
            lambda x, r=reading: losses.inter_class(x, labels, prototypes, np.zeros(6, bool), r),
            features,
        )
        assert loss == 0.0 and not gradient.any()


@pytest.mark.parametrize("reading", losses.INTER_READINGS)
def test_inter_class_is_finite_if_features_equal_a_prototype(toy, reading):
    _, _, prototypes, valid = toy
    # Two samples equal their own prototype, two that of another class.
    features, labels = prototypes[[0, 4, 5, 3]], np.array([0, 4, 4, 0])
    loss, gradient = _value_and_gradient(
        lambda x: losses.inter_class(x, labels, prototypes, valid, reading), features
    )
    np.testing.assert_allclose(
        loss, _numpy_inter(features, labels, prototypes, valid, reading), rtol=1e-3, atol=1e-6
    )
    assert np.isfinite(gradient).all() and np.abs(gradient).max() < 10.0


def test_inter_class_is_precise_far_from_the_origin(toy):
    features, labels, prototypes, valid = toy
    shift = np.float32(300.0)
    loss = losses.inter_class(features + shift, labels, prototypes + shift, valid)
    np.testing.assert_allclose(
        loss, _numpy_inter(features, labels, prototypes, valid, "all"), rtol=1e-3
    )


@pytest.mark.parametrize("reading", losses.INTER_READINGS)
def test_golden_inter_class(golden, reading):
    z = golden("fedmr_losses")
    loss, gradient = _value_and_gradient(
        lambda x: losses.inter_class(x, z["labels"], z["prototypes"], z["proto_valid"], reading),
        z["features"].astype(np.float32),
    )
    np.testing.assert_allclose(loss, z[f"inter_{reading}"], rtol=1e-5)
    expected = z[f"inter_{reading}_grad"]
    assert np.abs(gradient - expected).max() <= 1e-4 * np.abs(expected).max()


def test_losses_in_a_loop_over_batches_of_unknown_size(toy):
    features, labels, prototypes, valid = toy

    @tf.function
    def total(dataset):
        loss, gradient_sum = tf.zeros([]), tf.zeros([])
        for batch, batch_labels in dataset:
            with tf.GradientTape() as tape:
                tape.watch(batch)
                value = losses.intra_class(batch, batch_labels, 6)
                value += losses.inter_class(batch, batch_labels, prototypes, valid)
            loss += value
            gradient_sum += tf.reduce_sum(tf.abs(tape.gradient(value, batch)))
        return loss, gradient_sum

    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(5)
    loss, gradient_sum = total(dataset)
    expected = sum(
        losses.intra_class(x, y, 6) + losses.inter_class(x, y, prototypes, valid)
        for x, y in dataset
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert np.isfinite(gradient_sum)


def test_half_precision_features_give_float32(toy):
    features, labels, prototypes, valid = toy
    half = tf.cast(features, tf.float16)
    assert losses.intra_class(half, labels, 6).dtype == tf.float32
    assert losses.inter_class(half, labels, prototypes, valid).dtype == tf.float32
    assert losses.class_sums(half, labels, 6)[0].dtype == tf.float32


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32])
def test_labels_of_any_number_type(toy, dtype):
    features, labels, prototypes, valid = toy
    for function in (
        lambda y: losses.intra_class(features, y, 6),
        lambda y: losses.inter_class(features, y, prototypes, valid),
        lambda y: losses.class_sums(features, y, 6)[0],
    ):
        np.testing.assert_array_equal(function(labels.astype(dtype)), function(labels))


def test_class_sums_and_prototypes_match_numpy():
    features = np.array([[1, 2], [3, 4], [5, 6], [9, 9]], np.float32)
    sums, counts = losses.class_sums(features, np.array([2, 0, 2, -1]), 4)
    np.testing.assert_array_equal(sums, [[3, 4], [0, 0], [6, 8], [0, 0]])
    np.testing.assert_array_equal(counts, [1, 0, 2, 0])
    prototypes, valid = losses.merge_prototypes(
        sums, counts, np.full((4, 2), 7.0), [False, True, True, False]
    )
    np.testing.assert_array_equal(prototypes, [[3, 4], [7, 7], [3, 4], [7, 7]])
    np.testing.assert_array_equal(valid, [True, True, True, False])


def test_golden_prototypes(golden):
    z = golden("prototypes")
    total_sums, total_counts = 0.0, 0.0
    for client, expected_counts in enumerate(z["counts"]):
        own = z["owner"] == client
        sums, counts = losses.class_sums(z["features"][own], z["labels"][own], 5)
        np.testing.assert_array_equal(counts, expected_counts)
        means = np.asarray(sums) / np.maximum(counts, 1)[:, None]
        np.testing.assert_allclose(means, z["local_prototypes"][client], rtol=1e-6)
        total_sums, total_counts = total_sums + sums, total_counts + counts
    prototypes, valid = losses.merge_prototypes(
        total_sums, total_counts, z["prev_global"], z["prev_valid"]
    )
    np.testing.assert_allclose(prototypes, z["global_prototypes"], rtol=1e-6)
    np.testing.assert_array_equal(valid, z["global_valid"])


def test_errors(toy):
    features, labels, prototypes, valid = toy
    with pytest.raises(ValueError, match="form must be one of"):
        losses.intra_class(features, labels, 6, "trace")
    with pytest.raises(ValueError, match="reading must be one of"):
        losses.inter_class(features, labels, prototypes, valid, "literal")
