"""What an object shows through rooms above its own, such as the Keras model of a simulation.

Rooms import only from rooms below them. So the package itself, which knows all of them, names the
function behind each view; its module is imported when the view is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_functions: dict[str, str] = {}


def provide(functions: Mapping[str, str]) -> None:
    """Says which functions make views.

    Args:
        functions: the name of each view, and the dotted name of its function.
    """
    _functions.update(functions)


def make(view: str, *arguments: Any, **options: Any) -> Any:
    """Calls the function behind a view."""
    module, _, function = _functions[view].rpartition(".")
    return getattr(importlib.import_module(module), function)(*arguments, **options)
