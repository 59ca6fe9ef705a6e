"""Tests of the cells of tables over seeds."""

from tff_pcdd import tables


def test_differences_are_those_of_common_seeds():
    own, others = {"1": 3.0, "2": 5.0, "4": 9.0}, {"2": 1.0, "3": 0.0, "1": 2.5}
    assert tables.differences(own, others) == [0.5, 4.0]
    assert tables.differences(own, {}) == []
