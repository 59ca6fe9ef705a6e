"""What `tasks.evaluate --predictions` prints of the calibration of models."""

import pytest

from tff_pcdd.cli import evaluate


@pytest.mark.parametrize(
    ("held_out", "line"),
    [
        (39, "calibration error, global: 43.21 %, with temperature 10.72 %"),
        (
            0,
            "calibration error, global: 43.21 %; no temperature, because no samples are held out "
            "(--validation_fraction)",
        ),
    ],
)
def test_a_temperature_is_named_only_if_there_are_samples_to_fit_it(held_out, line):
    after = 10.72 if held_out else 43.21
    numbers = {"ece": 43.21, "ece_after": after, "held_out_samples": held_out}
    assert evaluate._calibration_line("global", numbers) == line
