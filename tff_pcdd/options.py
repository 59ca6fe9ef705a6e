"""Declared options: dataclass fields that carry their help text and their bounds.

Every setting of an experiment and every hyper-parameter of a method is one such field. The command
line is generated from them, the effective settings written beside the results are read from them,
and a value out of bounds is refused in one line that names the setting.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

# What a value of an option's type may be, and how a message calls it.
_KINDS = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "a string"),
}


class OptionError(ValueError):
    """A setting that cannot be used; the message names it, its value and what would be right."""


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    type: type | None = None,
    group: str = "",
    only: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """A dataclass field with a help text and bounds.

    Args:
        default: the default value; `None` means "not given" and is not checked.
        help: one or two sentences for `--help`.
        choices: the permitted strings.
        minimum: the smallest permitted value.
        above: a bound that the value has to exceed.
        maximum: the largest permitted value.
        type: the value's type where the default does not show it (a default of `None`).
        group: heading under which `--help` lists it.
        only: other fields and those values of theirs with which this one means something. The
            field is `None` otherwise, and an error if it is given all the same; `default` takes
            effect where the field does mean something.

    Returns:
        A `dataclasses.field`.
    """
    return dataclasses.field(
        default=None if only else default,
        metadata={
            "help": help,
            "choices": tuple(choices) if choices else None,
            "minimum": minimum,
            "above": above,
            "maximum": maximum,
            "type": type or default.__class__,
            "group": group,
            "only": only or {},
            "default": default,
        },
    )


def option_fields(cls: type) -> list[dataclasses.Field]:
    """The fields of `cls` that were made by `option`."""
    return [field for field in dataclasses.fields(cls) if "help" in field.metadata]


def settle_options(instance: Any) -> None:
    """Gives fields with conditions their defaults, or refuses them where they mean nothing.

    Args:
        instance: a dataclass instance, which may be frozen, with `option` fields.

    Raises:
        OptionError: a field is given that does not apply to the values of the others.
    """
    for field in option_fields(type(instance)):
        conditions = field.metadata["only"]
        unmet = [
            f"--{name}={'|'.join(values)}"
            for name, values in conditions.items()
            if getattr(instance, name) not in values
        ]
        value = getattr(instance, field.name)
        if conditions and not unmet and value is None:
            object.__setattr__(instance, field.name, field.metadata["default"])
        elif unmet and value is not None:
            raise OptionError(f"--{field.name}={value}: applies only with {' and '.join(unmet)}")


def check_options(instance: Any, prefix: str = "") -> None:
    """Checks every option of a dataclass instance against its bounds.

    Args:
        instance: a dataclass instance with `option` fields.
        prefix: what stands before a field's name on the command line, for the message.

    Raises:
        OptionError: naming the first option whose value is of the wrong type or out of bounds.
    """
    for field in option_fields(type(instance)):
        value = getattr(instance, field.name)
        if value is None:
            continue
        bounds = field.metadata
        flag = f"--{prefix}{field.name}={value}"
        kind = _KINDS.get(bounds["type"])
        if kind and (
            not isinstance(value, kind[0]) or isinstance(value, bool) != (kind[0] is bool)
        ):
            raise OptionError(f"{flag}: must be {kind[1]}")
        if bounds["choices"] and value not in bounds["choices"]:
            raise OptionError(f"{flag}: choose one of {', '.join(bounds['choices'])}")
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(f"{flag}: must be a finite number")
        if bounds["minimum"] is not None and value < bounds["minimum"]:
            raise OptionError(f"{flag}: must be at least {bounds['minimum']}")
        if bounds["above"] is not None and value <= bounds["above"]:
            raise OptionError(f"{flag}: must be greater than {bounds['above']}")
        if bounds["maximum"] is not None and value > bounds["maximum"]:
            raise OptionError(f"{flag}: must be at most {bounds['maximum']}")
