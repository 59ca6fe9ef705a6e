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
from tests.markdown_tables import table_rows

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
    calls, rows = _blocks_with("serving", "tf.constant")
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
    # The page's data frame has the rows of its first example.
    exec(rows, called)
    assert called["table"]["label"].tolist() == [
        ["ill", "well"][int(np.argmax(row))] for row in probabilities
    ]
    np.testing.assert_array_equal(called["inputs"]["age"], np.array([63, np.nan], np.float32))
    np.testing.assert_array_equal(called["inputs"]["pain"], np.array([b"dull", b""], object))
    for folder in ("global", "personal/Oslo"):
        card = (tmp_path / "exported_table" / folder / "1" / "model_card.md").read_text("utf-8")
        assert "covers all classes, in the order of the table of classes [below](#data)." in card
        _, data = card.split("\n## Data\n")
        listed = [row[0] for row in table_rows(data.split("\n\n")[1])[1:]]
        assert listed == ["ill", "well"]


def _blocks_with(guide, text):
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (_GUIDES / f"{guide}.md").read_text(), re.M | re.S
    )
    return [block for block in blocks if text in block]
