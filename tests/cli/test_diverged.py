"""What the programs say about a run that diverged."""

import pytest

from tff_pcdd import training

SUMMARY = {
    "rounds": 3,
    "nonfinite_rounds": 3,
    "ga_final": 10.0,
    "ga_best": None,
    "pa_final": 10.0,
    "pa_before_final": 10.0,
    "seconds_per_round": 0.1,
}


@pytest.fixture
def summary(monkeypatch):
    """Replaces training by a summary, which tests may change."""
    made = dict(SUMMARY)
    monkeypatch.setattr(training, "run_experiment", lambda *_, **__: made)
    return made


def test_a_diverged_run_ends_with_status_1(summary, call_here, tmp_path):
    summary["diverged"] = True
    status, out, _ = call_here("train", f"--output_dir={tmp_path}")
    # What sys.exit prints before it ends with status 1.
    assert status == (
        "train: error: the run has diverged: in 3 of 3 rounds values were NaN, infinite or far too "
        "large; its results are not usable"
    )
    assert "GA 10.00 (best –)" in out


@pytest.mark.parametrize("diverged", [{"diverged": False}, {}])
def test_other_runs_end_as_usual(diverged, summary, call_here, tmp_path):
    summary |= diverged
    status, _, _ = call_here("train", f"--output_dir={tmp_path}")
    assert status == 0
