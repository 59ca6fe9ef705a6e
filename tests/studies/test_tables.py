"""Tests of the cells of tables over seeds."""

from tff_pcdd import tables


def test_differences_are_those_of_common_seeds():
    own, others = {"1": 3.0, "2": 5.0, "4": 9.0}, {"2": 1.0, "3": 0.0, "1": 2.5}
    assert tables.differences(own, others) == [0.5, 4.0]
    assert tables.differences(own, {}) == []


def test_differences_have_the_signs_that_sentences_have():
    """No negative zero, and the minus sign of `text.signed`."""
    shown = [tables.gains(values) for values in ([], [-0.01], [0.04], [-3.0, -4.0], [2.0, 4.0])]
    assert shown == ["–", "0.0", "0.0", "−3.5 ± 0.7", "+3.0 ± 1.4"]


def test_what_is_zero_when_rounded_has_no_sign():
    """−0.04 and +0.04 are the same when they are rounded."""
    assert tables.spread([-0.04], 1) == tables.spread([0.04], 1, "+") == "0.0"
    assert tables.spread([-0.06], 1) == "-0.1"
    assert tables.spread([-0.004, -0.004], 2, "+") == "0.00 ± 0.00"
