"""What examples register is forgotten after each test."""

from __future__ import annotations

import sys

import pytest

from tff_pcdd.registry import Registry


@pytest.fixture(autouse=True)
def registries():
    """Removes components of modules that do not exist, or no longer, from all registries."""
    yield
    modules = [module for name, module in sys.modules.items() if name.startswith("tff_pcdd.")]
    for registry in {v for m in modules for v in vars(m).values() if isinstance(v, Registry)}:
        for name, cls in registry.classes().items():
            if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not cls:
                del registry._classes[name]
