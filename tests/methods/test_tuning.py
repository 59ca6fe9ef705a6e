"""What fair comparisons tune: the coefficient that each method declares."""

import pytest

from tff_pcdd import methods
from tff_pcdd.settings import option_fields


def numbers(cls):
    """The options of a method that are real numbers."""
    return {field.name for field in option_fields(cls) if field.metadata["type"] is float}


@pytest.mark.parametrize("name", methods.names())
def test_a_coefficient_has_three_values_with_the_default_among_them(name):
    cls = methods.get(name)
    assert len(cls.tuning) <= 1
    for option, values in cls.tuning.items():
        defaults = {field.name: field.default for field in option_fields(cls)}
        assert option in defaults
        assert len(values) == len(set(values)) == 3
        assert defaults[option] in values
        for value in values:
            assert getattr(methods.create(name, **{option: value}), option) == value


@pytest.mark.parametrize("name", methods.names())
def test_a_method_with_coefficients_declares_its_main_one(name):
    cls = methods.get(name)
    assert bool(cls.tuning) or not numbers(cls)
