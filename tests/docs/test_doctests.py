"""Every example in a docstring of the package does what it says."""

from __future__ import annotations

import doctest
import importlib
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _modules_with_examples() -> list[str]:
    """Dotted names of the modules whose text has an example, found without importing them."""
    names = []
    for path in sorted((_ROOT / "tff_pcdd").rglob("*.py")):
        if ">>> " in path.read_text(encoding="utf-8"):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(name), optionflags=_FLAGS)
    assert result.attempted, f"{name} has '>>>' outside of a docstring"
    assert not result.failed
