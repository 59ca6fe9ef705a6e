"""Federated methods, one short file each, named after its paper.

    tff_pcdd.methods.names()              all names
    tff_pcdd.methods.create("fedgela", scale=1.0)

A method of your own: subclass `Method`, decorate it with `register`, and it is on the command line
with a flag for each of its options.
"""

import dataclasses
import importlib
import pkgutil

from tff_pcdd.methods.method import (
    Batch,
    Client,
    Method,
    Network,
    Phase,
    Placement,
    Task,
    Upload,
    cross_entropy,
    linear_head,
    register,
    registry,
)
from tff_pcdd.options import OptionError

# Importing a method's file registers it; a new file is found without being listed anywhere.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """The names of all registered methods, sorted."""
    return sorted(registry())


def get(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        OptionError: no method has that name.
    """
    try:
        return registry()[name]
    except KeyError:
        raise OptionError(f"--algorithm={name}: choose one of {', '.join(names())}") from None


def create(name: str, **options) -> Method:
    """Makes a method with the given hyper-parameters, the rest at their defaults.

    Raises:
        OptionError: no method has that name, or an option is unknown or out of bounds.
    """
    cls = get(name)
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    for option in options:
        if option not in known:
            raise OptionError(f"{name} has no option {option!r}, only {', '.join(known) or 'none'}")
    return cls(**options)


__all__ = [
    "Batch",
    "Client",
    "Method",
    "Network",
    "Phase",
    "Placement",
    "Task",
    "Upload",
    "create",
    "cross_entropy",
    "get",
    "linear_head",
    "names",
    "register",
    "registry",
]
