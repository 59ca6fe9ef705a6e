"""Errors in the hooks of methods that are not of the package."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from tff_pcdd.errors import SettingError
from tff_pcdd.registry import is_built_in


def own_modules(method: Any) -> list[str]:
    """The names of the modules from elsewhere that define a method, or a part of it."""
    bases = [base for part in method.code for base in type(part).__mro__ if base is not object]
    return [cls.__module__ for cls in bases if not is_built_in(cls)]


@contextlib.contextmanager
def explained(method: Any) -> Iterator[None]:
    """Says where the method's hooks fail while a block traces them, if they are from elsewhere.

    Raises:
        SettingError: a hook fails; the error itself is its cause.
    """
    try:
        yield
    except (SettingError, MemoryError):
        raise
    except Exception as error:
        if not (own := own_modules(method)):
            raise
        text = traceback.format_exc()
        reason = f"cannot be traced{_place(text, own)}: {text.strip().splitlines()[-1].strip()}"
        raise SettingError("algorithm", method.name, reason) from error


def _place(text: str, own: list[str]) -> str:
    """The last line of the user's modules in a traceback, or in a message of AutoGraph."""
    files = {getattr(sys.modules.get(name), "__file__", None) for name in own}
    lines = [place for place in re.findall(r'File "(.+)", line (\d+)', text) if place[0] in files]
    return f" ({lines[-1][0]}, line {lines[-1][1]})" if lines else ""
