"""Means and deviations by which inputs are normalized."""

import numpy as np
import pytest

from tff_pcdd import data


@pytest.mark.parametrize("value", [0.0, 0.1, 36.6, 98.6, -1e6])
def test_a_constant_feature_has_the_deviation_one(value):
    """Else a slightly different value in the test samples would become a huge input."""
    generator = np.random.default_rng(0)
    x = np.stack([generator.normal(5, 2, 1000), np.full(1000, value)], axis=1).astype(np.float32)
    y = np.arange(1000) % 2
    spec = data.from_arrays(x, y, np.arange(1000) % 4).input_spec
    assert spec.std[1] == 1
    assert spec.mean[1] == pytest.approx(value, abs=1e-3)
    # Some of the samples are for testing.
    assert (spec.mean[0], spec.std[0]) == (pytest.approx(5, abs=0.3), pytest.approx(2, abs=0.2))


def test_numbers_that_processors_take_for_zero_are_no_deviation(warnings_again):
    """Divided by it, they would be NaN."""
    x = np.random.default_rng(0).normal(0, [1e-40, 2.0], (400, 2)).astype(np.float32)
    made = data.from_arrays(x, np.arange(400) % 2, np.arange(400) % 4)
    assert made.input_spec.std[0] == 1
    found = data.normalize(made.train.x, made.input_spec).numpy()
    np.testing.assert_array_equal(np.abs(found[:, 0]) < 1e-37, True)
    assert "arrays: features 0 are so small that all of them become 0" in warnings_again.text
    # The smallest that remain.
    x = np.random.default_rng(0).normal(0, 1e-36, (400, 1)).astype(np.float32)
    made = data.from_arrays(x, np.arange(400) % 2, np.arange(400) % 4)
    found = data.normalize(made.train.x, made.input_spec).numpy()
    assert found.std() == pytest.approx(1, abs=0.01)
