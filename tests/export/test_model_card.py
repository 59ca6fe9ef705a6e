"""What model cards say about calibration and image files."""

import numpy as np
import pytest

from tests.markdown_tables import table_rows
from tff_pcdd.data import InputSpec
from tff_pcdd.evaluation.calibration import Calibration, Reliability
from tff_pcdd.export import model_card

LOW = "**The probabilities are far too low**"
HIGH = "**The probabilities are far too high**"


def answers(correct, confidence):
    """Ten answers in one bin."""
    return Reliability(np.array([10]), np.array([10 * confidence]), np.array([correct]))


def card(correct, confidence, temperature=float("nan"), calibrated=False, ratio=50.0):
    before, after = answers(correct, confidence), answers(correct, correct / 10)
    of = Calibration(before, after, temperature, 20, ratio)
    return "\n".join(model_card._calibration(of, calibrated))


@pytest.mark.parametrize(
    ("correct", "confidence", "says"),
    [(9, 0.12, LOW), (9, 0.76, None), (9, 0.99, None), (5, 0.64, None), (5, 0.66, HIGH)],
)
def test_advice_where_probabilities_mislead(correct, confidence, says):
    text = card(correct, confidence)
    assert (LOW in text, HIGH in text) == (says == LOW, says == HIGH)
    assert ("temperature=fitted" in text) == (says is not None)
    assert ("FedGELA with scale 1" in text) == (says == LOW)
    assert table_rows(text)[1][1:3] == [f"{10 * correct:.2f}", f"{100 * confidence:.2f}"]


def test_before_and_after_the_temperature():
    text = card(9, 0.12, 0.25)
    assert table_rows(text)[1:] == [
        ["as the method computes them", "90.00", "12.00", "78.00"],
        ["divided by the temperature 0.25", "90.00", "90.00", "0.00"],
    ]
    assert "fitted on 20 held-out samples. This model does not use it;" in text.replace("\n", " ")
    used = card(9, 0.12, 0.25, calibrated=True)
    assert "This model divides its logits by it." in used.replace("\n", " ")
    assert LOW not in used
    says = "They do not show that it is better than none."
    assert says not in used
    assert says in card(9, 0.12, 0.25, ratio=10.0)
    assert "No temperature is fitted to the 20 held-out samples" in card(9, 0.12)


def test_without_test_samples():
    nothing = Reliability(np.array([0]), np.array([0.0]), np.array([0]))
    of = Calibration(nothing, nothing, float("nan"), 0)
    assert [*model_card._calibration(of, False)] == ["There are no test samples to measure it on."]


def test_which_image_files_are_read():
    read = "reads JPEG, PNG and BMP files"
    for spec, says in (
        (InputSpec("image", (8, 8, 1), scale=1 / 16), True),
        (InputSpec("image_file", (8, 8, 3), "string"), True),
        (InputSpec("image", (8, 8, 1), "float32", has_white=False), False),
        (InputSpec("vector", (5,), "float32"), False),
    ):
        text = " ".join(model_card._normalization(spec))
        assert (read in text) is says
        assert ("turns photos upright as their EXIF orientation says" in text) is says
