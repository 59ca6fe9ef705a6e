"""Cohorts and seeds: functions of the settings' seeds."""

import numpy as np
import pytest

from tff_pcdd.experiment import cohorts


def test_cohorts_are_a_function_of_seed_and_round():
    drawn = [cohorts.sample_cohort(3, number, 20, 6) for number in range(50)]
    assert drawn == [cohorts.sample_cohort(3, number, 20, 6) for number in range(50)]
    assert len({tuple(cohort) for cohort in drawn}) > 45
    assert drawn[:5] != [cohorts.sample_cohort(4, number, 20, 6) for number in range(5)]
    for cohort in drawn:
        assert cohort == sorted(set(cohort))
        assert len(cohort) == 6
        assert all(type(client) is int for client in cohort)
    # Each client is expected in 15 of 50 rounds.
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    assert counts.min() >= 5
    assert counts.max() <= 27


@pytest.mark.parametrize("size", [0, 7])
def test_all_clients(size):
    assert cohorts.sample_cohort(0, 5, 7, size) == list(range(7))


def test_derived_seeds():
    seed = cohorts.derive_seed(1, 2, 3)
    assert seed.dtype == np.int32
    assert seed.shape == (2,)
    np.testing.assert_array_equal(seed, cohorts.derive_seed(1, 2, 3))
    derived = {
        tuple(cohorts.derive_seed(a, b, c)) for a in range(4) for b in range(4) for c in (1, 2)
    }
    assert len(derived) == 32
    cohorts.derive_seed(2**70)
