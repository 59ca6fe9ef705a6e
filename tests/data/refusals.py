"""The checks that all tests of refused settings and data share."""

import contextlib
import re

import pytest

from tff_pcdd.errors import DataError, SettingError


@contextlib.contextmanager
def refuses(setting, reason, value=...):
    """Expects a one-line SettingError with this setting and a reason that matches the pattern.

    And with this value, if one is given. Gives the block what `pytest.raises` gives.
    """
    with pytest.raises(SettingError) as caught:
        yield caught
    assert caught.value.setting == setting
    assert value is ... or caught.value.value == value
    assert re.search(reason, caught.value.reason), caught.value.reason
    assert "\n" not in str(caught.value)


@contextlib.contextmanager
def unusable(*parts):
    """Expects a one-line DataError that contains these texts."""
    with pytest.raises(DataError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message
