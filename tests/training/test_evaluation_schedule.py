"""After which rounds models are evaluated; expected rounds are worked out by hand."""

import types

import numpy as np
import pytest

from tests import support
from tests.training.runs import CONFIG, rows
from tff_pcdd.experiment.evaluation_schedule import Due, EvaluationSchedule
from tff_pcdd.training import ExperimentConfig, run_experiment

pytestmark = pytest.mark.usefixtures("shared_computations")

ROUNDS = range(1, 101)


def schedule(num_clients=10, train=100, test=5, personal_epochs=5, **settings):
    """A schedule for clients of equal size."""
    client = types.SimpleNamespace(
        train=np.arange(train), test=np.arange(test), validation=np.arange(0)
    )
    settings = {"num_clients": num_clients, "local_epochs": 5, **settings}
    federation = types.SimpleNamespace(clients=[client] * num_clients)
    config = ExperimentConfig.from_settings(**settings)
    return EvaluationSchedule(config, federation, personal_epochs)


def rounds(made, what):
    return [number for number in ROUNDS if getattr(made.after_round(number), what)]


def test_by_default_what_takes_training_is_evaluated_at_growing_distances():
    """It takes 2 · 5 + 3 · 5 · 100 passes a client, a round 3 · 5 · 100: once in 1.007 / 0.4."""
    made = schedule()
    assert rounds(made, "globally") == [*ROUNDS]
    after = [3, 6, 9, 12, 16, 22, 30, 42, 58, 81]
    assert rounds(made, "after") == after
    assert rounds(made, "before") == [number for number in ROUNDS if number not in after]


def test_small_cohorts_make_it_rare():
    """A tenth of the clients: an evaluation takes as long as 10.07 rounds, so every 26th."""
    made = schedule(num_clients=100, clients_per_round=10)
    assert rounds(made, "after") == [26, 52, 78]
    # Before: 100 · 5 passes to 10 · 1500, 3.3 %.
    assert len(rounds(made, "before")) == 97


def test_many_test_samples_make_both_rare():
    """Before: 100 · 58 passes to 15,000, which is 0.39 of a round; after: 10.8 rounds."""
    made = schedule(num_clients=100, clients_per_round=10, test=58)
    assert rounds(made, "after") == [27, 54, 81]
    assert rounds(made, "before") == [*range(4, 101, 4)]


def test_only_rounds_with_a_global_evaluation_count():
    made = schedule(eval_every=4)
    assert rounds(made, "globally") == [*range(4, 101, 4)]
    # Evaluations 1 to 5, then 7, 9, 12, 16 and 22.
    assert rounds(made, "after") == [4, 8, 12, 16, 20, 28, 36, 48, 64, 88]


def test_models_without_local_epochs_are_evaluated_every_time():
    made = schedule(personal_epochs=0)
    assert {made.after_round(number) for number in ROUNDS} == {Due(True, False, True)}


def test_clients_without_samples():
    assert rounds(schedule(train=0, test=0), "after")[:3] == [1, 2, 3]


@pytest.mark.parametrize(("every", "expected"), [(5, [*range(5, 101, 5)]), (0, [])])
def test_given_rounds(every, expected):
    made = schedule(personal_eval_every=every)
    assert rounds(made, "after") == expected
    assert rounds(made, "before") == []


@pytest.mark.parametrize("algorithm", ["fedgela", "fedproto"])
def test_the_figures_of_a_round_do_not_depend_on_the_schedule(algorithm, options, tmp_path):
    """With held-out samples, and with a method that has no global model."""
    # With so few test samples, the evaluation before local epochs is never left out.
    sizes = {"max_train_samples": 200, "max_test_samples": 10, "validation_fraction": 0.2}
    always = CONFIG.with_settings(algorithm=algorithm, **sizes)
    default = always.with_settings(personal_eval_every=None)
    run_experiment(always, tmp_path / "always", options)
    summary = run_experiment(default, tmp_path / "default", options)
    measured = 0
    for some, every in zip(rows(tmp_path / "default"), rows(tmp_path / "always"), strict=True):
        known = {name: value for name, value in some.items() if value and name != "seconds"}
        assert known == {name: every[name] for name in known}
        assert {"ga", "pa_before", "pa_before_masked", "va_personal_before"} <= known.keys()
        measured += "pa" in known
    assert 1 <= measured < 4
    # The best round is one of those in which everything is known.
    assert summary["pa_at_best_round"] is not None


@pytest.mark.parametrize("fewer", support.rare_but([1], [1, 2]))
def test_more_rounds_are_evaluated_as_if_planned_from_the_start(fewer, options, tmp_path):
    """Also if the last round so far was the first one, of which there is no earlier checkpoint."""
    default = CONFIG.with_settings(personal_eval_every=None, rounds=4)
    run_experiment(default, tmp_path / "whole", options)
    run_experiment(default.with_settings(rounds=fewer), tmp_path / "run", options)
    run_experiment(default, tmp_path / "run", options)
    names = [name for name in rows(tmp_path / "run")[0] if name != "seconds"]
    run, whole = (
        [[row[name] for name in names] for row in rows(tmp_path / folder)]
        for folder in ("run", "whole")
    )
    assert run == whole
