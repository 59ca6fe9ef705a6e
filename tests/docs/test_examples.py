"""The Python code of the guides runs as it stands."""

from __future__ import annotations

import pathlib
import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import tff_pcdd

_GUIDES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.integration
@pytest.mark.parametrize(
    "guide",
    [
        *("own_data", "own_method", "python", "training_settings"),
        pytest.param("embeddings", marks=pytest.mark.rare),
    ],
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


@pytest.mark.integration
def test_a_row_of_a_table(tmp_path, monkeypatch):
    """The guide to Python exports a model that the guide to serving calls; answers are equal."""
    monkeypatch.chdir(tmp_path)
    (trains,) = _blocks_with("python", "from_dataframe")
    (calls,) = _blocks_with("serving", "saved_model.load")
    trained, called = {"tff_pcdd": tff_pcdd}, {}
    exec(trains, trained)
    exec(calls, called)
    assert tuple(trained["federation"].client_ids) == ("Bergen", "Oslo")
    probabilities = called["answer"]["probabilities"].numpy()
    assert probabilities.shape == (2, 2)
    np.testing.assert_allclose(
        probabilities[0], trained["answer"]["probabilities"][0], rtol=0, atol=1e-6
    )
    # Classes in alphabetical order; the first patient is older than 60.
    assert called["answer"]["label"].numpy()[0] == b"ill"
    assert trained["federation"].class_names == ("ill", "well")
    with pytest.raises(tf.errors.InvalidArgumentError, match="float"):
        called["serve"](age=tf.constant([63]), pain=tf.constant(["dull"]))


def _blocks_with(guide, text):
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (_GUIDES / f"{guide}.md").read_text(), re.M | re.S
    )
    return [block for block in blocks if text in block]
