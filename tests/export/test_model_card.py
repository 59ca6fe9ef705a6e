"""What model cards say about calibration and image files."""

import numpy as np
import pytest

from tests.markdown_tables import table_rows
from tff_pcdd.data import InputSpec
from tff_pcdd.evaluation.calibration import Calibration, Reliability
from tff_pcdd.export import model_card

LOW = "**The probabilities are far too low**"
HIGH = "**The probabilities are far too high**"


def answers(correct, confidence, samples=100):
    """Answers in one bin, with a number of correct ones of each ten."""
    right = round(correct / 10 * samples)
    return Reliability(np.array([samples]), np.array([samples * confidence]), np.array([right]))


def card(
    correct,
    confidence,
    temperature=float("nan"),
    *,
    asked=False,
    ratio=50.0,
    samples=100,
    classes=10,
    held_out=20,
):
    before, after = answers(correct, confidence, samples), answers(correct, correct / 10, samples)
    of = Calibration(before, after, temperature, held_out, ratio)
    return "\n".join(model_card._calibration(of, classes, asked=asked))


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


@pytest.mark.parametrize(
    ("correct", "confidence", "samples", "says"),
    [
        (10, 0.80, 2, None),  # 0.8² = 64 %
        (10, 0.80, 16, None),  # 0.8¹⁶ = 2.8 %
        (10, 0.80, 17, LOW),  # 0.8¹⁷ = 2.3 %
        (0, 0.90, 1, None),  # 10 %
        (0, 0.90, 2, HIGH),  # 0.1² = 1 %
        (5, 0.92, 2, None),  # 1 - 0.92² = 15 %
    ],
)
def test_few_test_samples_do_not_show_that_probabilities_mislead(
    correct, confidence, samples, says
):
    text = card(correct, confidence, samples=samples)
    assert (LOW in text, HIGH in text) == (says == LOW, says == HIGH)


@pytest.mark.parametrize(
    ("classes", "confidence", "near"),
    # A quarter of the way from 1/3 to 1 is 0.5, and from 1/10 to 1 it is 0.325.
    [(3, 0.49, True), (3, 0.51, False), (10, 0.32, True), (10, 0.33, False)],
)
def test_the_reason_is_given_only_near_equal_probabilities(classes, confidence, near):
    text = card(10, confidence, classes=classes)
    assert LOW in text
    assert ("1 / number of classes" in text) is near


def test_advice_that_was_followed_is_not_given():
    def advice(*arguments, **chosen):
        text = card(9, 0.12, *arguments, **chosen).replace("\n", " ")
        assert LOW in text
        return "If you need" + text.split("If you need")[1]

    fitted = "If you need probabilities, export with temperature=fitted"
    more = "samples out (validation_fraction)."
    assert advice(held_out=0) == f"{fitted}, from a run that holds {more}"
    assert advice() == f"{fitted}, from a run that holds more {more}"
    assert advice(0.25) == f"{fitted}."
    # A temperature that is not sure is not used.
    assert advice(0.25, ratio=10.0) == f"{fitted}, from a run that holds more {more}"
    assert advice(0.25, ratio=10.0, asked=True) == f"If you need probabilities, hold more {more}"
    assert advice(asked=True) == f"If you need probabilities, hold more {more}"


def test_before_and_after_the_temperature():
    text = card(9, 0.12, 0.25)
    assert table_rows(text)[1:] == [
        ["as the method computes them", "90.00", "12.00", "78.00"],
        ["divided by the temperature 0.25", "90.00", "90.00", "0.00"],
    ]
    assert "fitted on 20 held-out samples. This model does not use it;" in text.replace("\n", " ")
    used = card(9, 0.12, 0.25, asked=True)
    assert "This model divides its logits by it." in used.replace("\n", " ")
    assert LOW not in used
    says = "fitted on 20 held-out samples, which do not show that it is better than none. No model"
    assert says not in used.replace("\n", " ")
    for asked in (False, True):
        uncertain = card(9, 0.12, 0.25, asked=asked, ratio=10.0).replace("\n", " ")
        assert f"{says} uses it" in uncertain
    assert "No temperature is fitted to the 20 held-out samples" in card(9, 0.12)


def test_the_calibration_of_own_answers():
    of = Calibration(
        answers(5, 0.4), answers(5, 0.5), 0.5, 20, 50.0, (answers(8, 0.6), answers(8, 0.7))
    )
    text = "\n".join(model_card._calibration(of, 10, asked=True))
    assert table_rows(text)[1:] == [
        ["`probabilities`, as the method computes them", "50.00", "40.00", "10.00"],
        ["`probabilities`, divided by the temperature 0.5", "50.00", "50.00", "0.00"],
        ["`own_probabilities`, as the method computes them", "80.00", "60.00", "20.00"],
        ["`own_probabilities`, divided by the temperature 0.5", "80.00", "70.00", "10.00"],
    ]
    fitted = "It is fitted to `probabilities`, not to `own_probabilities`."
    assert fitted in text
    assert fitted not in card(9, 0.12, 0.25)


def test_without_test_samples():
    nothing = Reliability(np.array([0]), np.array([0.0]), np.array([0]))
    of = Calibration(nothing, nothing, float("nan"), 0)
    assert [*model_card._calibration(of, 3, asked=False)] == [
        "There are no test samples to measure it on."
    ]


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
