"""The check that all tests of refused settings share."""

import contextlib
import re

import pytest

from tff_pcdd.errors import SettingError


@contextlib.contextmanager
def refuses(setting, reason):
    """Expects a one-line SettingError with this setting and a reason that matches the pattern.

    Gives the block what `pytest.raises` gives.
    """
    with pytest.raises(SettingError) as caught:
        yield caught
    assert caught.value.setting == setting
    assert re.search(reason, caught.value.reason), caught.value.reason
    assert "\n" not in str(caught.value)
