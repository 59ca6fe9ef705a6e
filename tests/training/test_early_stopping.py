"""Early stopping: decided from the history, one more round, the same after an interruption."""

import types

import pytest

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, assert_same_run, rows, stopped_in_round
from tff_pcdd.training import ExperimentConfig, History, run_experiment
from tff_pcdd.training.callbacks import EarlyStopping


def history(values, every=1):
    """VA in every so many rounds; None where it was not measured."""
    made = History(["round", "va", "va_personal"])
    for number, value in enumerate(values, 1):
        made.append({"round": number * every, "va": value, "va_personal": -number})
    return made


@pytest.mark.parametrize(
    ("patience", "values", "expected"),
    [
        (1, [], None),
        (1, [10.0], None),
        (1, [10.0, 11.0, 12.0], None),
        (1, [10.0, 9.0, 12.0], 2),
        (1, [10.0, 10.0], 2),  # As good as before is no improvement.
        (2, [10.0, 9.0, 12.0, 11.0], None),
        (2, [10.0, 9.0, 12.0, 11.0, 12.0, 20.0], 5),
        (3, [10.0, 9.0, 9.5, 9.9, 20.0], 4),
        (2, [10.0, None, 9.0, None, 11.0], None),  # Rounds without a value do not count.
        (2, [10.0, None, 9.0, None, 8.0], 5),
    ],
)
def test_decision(patience, values, expected):
    assert EarlyStopping(patience).round_of_decision(history(values)) == expected


def test_rounds_between_evaluations_do_not_count():
    assert EarlyStopping(1).round_of_decision(history([10.0, 9.0], every=5)) == 10


def test_one_more_round_follows():
    """After a round as before the first one of a resumed run."""
    for hook in (
        lambda run: EarlyStopping(1).on_round(run, run.history[-1]),
        lambda run: EarlyStopping(1).on_start(run),
    ):
        stops = []
        hook(types.SimpleNamespace(history=history([10.0]), stop_after=stops.append))
        assert stops == []
        hook(types.SimpleNamespace(history=history([10.0, 9.0]), stop_after=stops.append))
        assert stops == [3]


def test_without_held_out_samples_it_is_refused():
    with refuses("early_stopping_patience", "validation_fraction"):
        ExperimentConfig.from_settings(early_stopping_patience=2).check_data()
    with refuses("early_stopping_patience", "at least 1"):
        ExperimentConfig.from_settings(early_stopping_patience=0, validation_fraction=0.2)


@pytest.fixture(scope="module")
def stopping():
    """With this step the validation accuracy soon falls."""
    return CONFIG.with_settings(
        rounds=12, validation_fraction=0.25, early_stopping_patience=1, personal_eval_every=0
    )


@pytest.fixture(scope="module")
def stopped(stopping, options, shared_computations, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "stopped"
    return directory, run_experiment(stopping, directory, options)


def test_a_run_stops_and_its_last_round_is_whole(stopped):
    """The round of the decision, computed from metrics.csv."""
    directory, summary = stopped
    written = rows(directory)
    values = [float(row["va"]) for row in written]
    decided = next(
        number for number in range(1, len(values)) if values[number] <= max(values[:number])
    )
    assert len(values) == decided + 2 < 12
    assert summary["rounds"] == decided + 2
    assert [bool(row["pa"]) for row in written] == [False] * (decided + 1) + [True]
    assert summary["pa_final"] == float(written[-1]["pa"])
    assert (directory / "plots" / "accuracy.png").exists()


@pytest.mark.parametrize("before_the_end", [0, 1])
def test_a_resumed_run_stops_in_the_same_round(
    stopped, stopping, options, tmp_path, before_the_end
):
    """Interrupted in the last round, which follows the decision, and in the round of it."""
    unbroken, summary = stopped
    with stopped_in_round(summary["rounds"] - before_the_end):
        run_experiment(stopping, tmp_path / "run", options)
    run_experiment(stopping, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", unbroken)
