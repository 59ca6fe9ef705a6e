"""Which values a setting accepts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tff_pcdd.errors import one_of

# Which values a setting of a type accepts, and how an error describes them.
_TYPES: dict[type, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "a string"),
}


def objection(value: Any, bounds: Mapping[str, Any]) -> str | None:
    """What is wrong with the value of a setting; None if nothing is.

    Args:
        value: of any type.
        bounds: the type of the setting (`type`), what it may be (`choices`), and its bounds
            (`above`, `minimum`, `maximum`), each None if there is none.
    """
    accepted, description = _TYPES.get(bounds["type"], (object, ""))
    if not isinstance(value, accepted) or isinstance(value, bool) != (bounds["type"] is bool):
        return f"must be {description}"
    if bounds["choices"] and value not in bounds["choices"]:
        return one_of(value, bounds["choices"])
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "must be a number of at most 64 bits"
    if bounds["above"] is not None and value <= bounds["above"]:
        return f"must be greater than {bounds['above']}"
    if bounds["minimum"] is not None and value < bounds["minimum"]:
        return f"must be at least {bounds['minimum']}"
    if bounds["maximum"] is not None and value > bounds["maximum"]:
        return f"must be at most {bounds['maximum']}"
    return None
