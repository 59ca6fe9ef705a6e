"""The Python code of the guides runs as it stands."""

from __future__ import annotations

import pathlib
import re
import sys
import types

import pytest

_GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.integration
@pytest.mark.parametrize(
    "guide",
    ["own_data", "own_method", "python", pytest.param("embeddings", marks=pytest.mark.rare)],
)
def test_guide_runs(guide, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType(guide)
    monkeypatch.setitem(sys.modules, guide, module)
    text = (_GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    # Blocks with a title are programs of their own, which parse the command line.
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    for block in blocks:
        exec(compile(block, f"{guide}.md", "exec", dont_inherit=True), vars(module))
    assert blocks
    assert capsys.readouterr().out or guide == "embeddings"
