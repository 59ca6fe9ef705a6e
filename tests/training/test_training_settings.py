"""Settings of training that all methods share: off by default, refused, or in effect."""

import json

import numpy as np
import pytest

from tests.data.refusals import refuses
from tff_pcdd.experiment import cohorts, planning
from tff_pcdd.experiment.config import implied
from tff_pcdd.experiment.history import History
from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig, TrainingConfig, manifests, run_directory

NEW = {
    "client_optimizer": "sgd",
    "schedule": "constant",
    "warmup_rounds": 0,
    "min_local_epochs": 0,
    "straggler_share": 0.0,
    "dropped_share": 0.0,
    "cohort_sampling": "uniform",
    "server_optimizer": "sgd",
    "server_learning_rate": 1.0,
    "deterministic": False,
}


def config(**settings):
    return ExperimentConfig.from_settings(
        **{"num_clients": 6, "max_train_samples": 120, "model": "mlp", "rounds": 4, **settings}
    )


def test_digests_are_those_from_before_the_settings_existed():
    """Recorded by version 0.1.0 without them, for three rounds of the default settings."""
    digests = {
        name: ExperimentConfig.from_settings(algorithm=name, rounds=3).digest()
        for name in ("fedavg", "fedgela")
    }
    assert digests == {"fedavg": "203eb8de57d3", "fedgela": "f614832f59f4"}


def test_earlier_runs_are_the_same_experiments(tmp_path):
    wanted = config()
    settings = wanted.to_settings()
    assert {name: settings[name] for name in NEW} == NEW
    assert NEW.items() <= implied({}).items()
    # Each of the names is that of a setting.
    assert len(implied({})) == 29
    earlier = {name: value for name, value in settings.items() if name not in NEW}
    assert manifests.settings_digest(earlier) == manifests.settings_digest(settings)
    (tmp_path / "config.json").write_text(json.dumps(earlier))
    run_directory.check_directory(tmp_path, wanted, overwrite=False)
    assert run_directory.read_config(tmp_path) == wanted
    with refuses("output_dir", r"server_optimizer \(there sgd, here fedavgm\)"):
        other = config(server_optimizer="fedavgm")
        run_directory.check_directory(tmp_path, other, overwrite=False)


def test_defaults_that_do_not_apply_are_not_compared(monkeypatch, tmp_path):
    """Such as the server's learning rate, if the server optimizer is one that has none."""
    further = {**implied({}), "of_another_component": 1.0}
    monkeypatch.setattr(run_directory, "implied", lambda settings: further)
    run_directory.write_config(tmp_path, config())
    run_directory.check_directory(tmp_path, config(), overwrite=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"client_optimizer": "adam"},
        {"schedule": "exponential"},
        {"warmup_rounds": 2},
        {"server_learning_rate": 0.5},
        {"server_optimizer": "fedavgm"},
        {"server_optimizer": "fedadam", "server_learning_rate": 1.0},
        {"straggler_share": 0.5},
        {"clients_per_round": 3, "cohort_sampling": "round_robin"},
    ],
)
def test_each_setting_is_another_experiment_and_is_read_again(settings):
    changed = config(**settings)
    assert changed.digest() != config().digest()
    assert ExperimentConfig.from_settings(**changed.to_settings()) == changed


def test_help_shows_the_defaults_of_the_default_components():
    shown = {setting.name: setting.default for setting in describe(ExperimentConfig)}
    assert shown["client_learning_rate"] == 0.01
    assert shown["server_learning_rate"] == 1.0
    assert config(client_optimizer="adam").training.optimizer.learning_rate == 0.001


@pytest.mark.parametrize(
    ("settings", "setting", "reason"),
    [
        ({"min_local_epochs": 6}, "min_local_epochs", "at most local_epochs=5"),
        ({"straggler_share": 1.5}, "straggler_share", "at most 1"),
        ({"dropped_share": 1.0}, "dropped_share", "at most 0.9999"),
        ({"schedule_decay": 0.9}, "schedule_decay", "applies only with schedule=exponential"),
        ({"server_momentum": 0.9}, "server_momentum", "only with server_optimizer=fedavgm"),
        (
            {"client_optimizer": "adam", "client_momentum": 0.9},
            "client_momentum",
            "only with client_optimizer=sgd",
        ),
        ({"schedule": "cosine", "schedule_final": 0.0}, "schedule_final", "greater than 0"),
        ({"cohort_sampling": "round_robin"}, "cohort_sampling", "set clients_per_round"),
        (
            {"cohort_sampling": "samples", "clients_per_round": 3},
            "cohort_sampling",
            "set client_weighting=uniform",
        ),
        (
            {"cohort_sampling": "round_robin", "clients_per_round": 3, "aggregator": "dp"},
            "cohort_sampling",
            "guarantee of aggregator=dp",
        ),
        ({"algorithm": "fednova", "client_optimizer": "adam"}, "client_optimizer", "fednova is"),
        ({"algorithm": "feddyn", "server_optimizer": "fedadam"}, "server_optimizer", "of its own"),
        (
            {"algorithm": "feddc", "server_learning_rate": 0.5},
            "server_learning_rate",
            "a server step of its own; choose server_learning_rate=1, or another method$",
        ),
        ({"algorithm": "central", "server_optimizer": "fedavgm"}, "server_optimizer", "one place"),
        (
            {"algorithm": "central", "server_learning_rate": 2.0},
            "server_learning_rate",
            "one place",
        ),
        (
            {"schedule": "step", "rounds": 1},
            "schedule_milestones",
            "a share of rounds=1 is rounded",
        ),
        (
            {"schedule": "step", "schedule_milestones": "0.1,0.5"},
            "schedule_milestones",
            "a share of rounds=4 is rounded to no round",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, setting, reason):
    with refuses(setting, reason):
        config(**settings)


def test_methods_without_shared_weights_are_refused_before_data_are_loaded():
    reason = (
        "^clients of fedproto send no weights; choose server_optimizer=sgd with "
        "server_learning_rate=1, or another method$"
    )
    with refuses("server_optimizer", reason):
        planning.check(config(algorithm="fedproto", server_optimizer="fedavgm"))


def test_the_step_size_is_named_if_it_is_what_is_refused_before_data_are_loaded():
    reason = "send no weights; choose server_learning_rate=1, or another method$"
    with refuses("server_learning_rate", reason):
        planning.check(config(algorithm="fedproto", server_learning_rate=0.5))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "cosine"}, "schedule=cosine"),
        ({"schedule": "step"}, "schedule=step"),
        ({"schedule": "step", "schedule_milestones": "2,3"}, None),
        ({"schedule": "exponential", "warmup_rounds": 2}, None),
    ],
)
def test_rounds_are_not_raised_if_the_schedule_depends_on_them(settings, expected, tmp_path):
    planned = config(**settings)
    longer = planned.with_settings(rounds=9)
    run_directory.write_config(tmp_path, planned)
    assert planning.planned_spec(planned).num_rounds == (4 if expected else None)
    if expected is None:
        run_directory.check_directory(tmp_path, longer, overwrite=False)
        return
    with refuses("rounds", f"planned for 4 rounds, on which {expected} depends"):
        run_directory.check_directory(tmp_path, longer, overwrite=False)


def test_round_robin_gives_every_client_its_turn():
    drawn = [cohorts.sample_cohort(5, r, 7, 3, cohorts.ROUND_ROBIN) for r in range(14)]
    assert np.bincount(np.concatenate(drawn)).tolist() == [6] * 7
    assert all(len(set(cohort)) == 3 and cohort == sorted(cohort) for cohort in drawn)
    assert not set(drawn[0]) & set(drawn[1])
    assert drawn != [cohorts.sample_cohort(6, r, 7, 3, cohorts.ROUND_ROBIN) for r in range(14)]


def test_sampling_by_samples():
    samples = [10, 30, 60, 0]
    drawn = [cohorts.sample_cohort(0, r, 4, 1, cohorts.BY_SAMPLES, samples)[0] for r in range(4000)]
    shares = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.6, 0.0], atol=4 * np.sqrt(0.25 / 4000))
    pairs = {tuple(cohorts.sample_cohort(0, r, 4, 2, "samples", samples)) for r in range(200)}
    assert pairs == {(0, 1), (0, 2), (1, 2)}


def test_means_of_equal_weights_do_not_count_samples_twice():
    """FedProto's server averages the clients' prototypes, each client counted once."""
    settings = {"cohort_sampling": "samples", "clients_per_round": 3}
    assert config(algorithm="fedproto", **settings).method.weighting == "uniform"
    with refuses("cohort_sampling", "set client_weighting=uniform"):
        config(algorithm="fedproto", client_weighting="samples", **settings)


def test_sampling_needs_enough_clients_with_samples():
    cohorts.check_sampling("samples", [1, 0, 2], 2)
    cohorts.check_sampling("uniform", [1, 0, 2], 3)
    with refuses("cohort_sampling", "only 2 clients have training samples, of which 3"):
        cohorts.check_sampling("samples", [1, 0, 2], 3)


def test_columns_of_local_work_are_integers():
    assert TrainingConfig().local_work.is_full
    row = History(["round", "dropped_clients", "local_steps"]).append(
        {"round": 1, "dropped_clients": 2, "local_steps": 30.0}
    )
    assert [type(value) for value in row.values()] == [int] * 3
