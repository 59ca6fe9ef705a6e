"""Runs with other aggregators than the mean: their state, their bytes, what the summary says."""

import json

import pytest

from tests.data.refusals import refuses
from tests.training.runs import rows, stopped_in_round
from tff_pcdd.federated import aggregators
from tff_pcdd.training import ExperimentConfig, Run, Simulation, run_experiment

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("shared_computations")]

SETTINGS = {
    "model": "mlp",
    "num_clients": 5,
    "clients_per_round": 3,
    "max_train_samples": 100,
    "max_test_samples": 60,
    "rounds": 3,
    "local_epochs": 1,
    "personal_eval_every": 0,
}


def config(**settings):
    return ExperimentConfig.from_settings(**SETTINGS, **settings)


def untimed(directory):
    return [{name: row[name] for name in row if name != "seconds"} for row in rows(directory)]


@pytest.mark.parametrize(
    "settings",
    [
        {"aggregator": "robust"},
        # The same estimate, from which noise follows.
        pytest.param({"aggregator": "dp", "dp_clip": 0}, marks=pytest.mark.rare),
    ],
)
def test_thresholds_are_part_of_the_checkpoint(settings, options, tmp_path):
    """A resumed run continues with the norms that it had estimated."""
    if settings["aggregator"] == "dp":
        settings = {**settings, "dp_noise_multiplier": 0.0}
    run_experiment(config(**settings), tmp_path / "whole", options)
    with stopped_in_round(3):
        run_experiment(config(**settings), tmp_path / "broken", options)
    run_experiment(config(**settings), tmp_path / "broken", options)
    assert len(untimed(tmp_path / "whole")) == 3
    assert untimed(tmp_path / "broken") == untimed(tmp_path / "whole")


def test_privacy_is_in_the_summary(options, tmp_path):
    private = config(aggregator="dp", dp_noise_multiplier=2.0, dp_clip=0.5, dp_delta=1e-4)
    run_experiment(private, tmp_path, options)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["dp_delta"] == 1e-4
    expected = aggregators.create("dp", noise_multiplier=2.0, delta=1e-4).epsilon(5, 3, 3)
    assert summary["dp_epsilon"] == pytest.approx(expected)
    assert 0 < summary["dp_epsilon"] < 20


def test_compressed_bytes_are_those_reported():
    """With a threshold of 0 every tensor is sent with a byte per entry, and two floats."""
    sizes = [
        Simulation(config(**settings)).process.update_bytes
        for settings in ({}, {"aggregator": "compressed", "compressed_threshold": 0})
    ]
    assert sizes[0] / 4 < sizes[1] < sizes[0] / 4 + 8 * 30


@pytest.mark.parametrize(
    ("settings", "setting", "reason"),
    [
        (
            {"algorithm": "fedmr", "aggregator": "secure"},
            "aggregator",
            "clients of fedmr also send counts, features, which would not be aggregated",
        ),
        (
            {"aggregator": "dp", "dp_clip": 0.0},
            "dp_noise_multiplier",
            r"with an adaptive clipping norm \(dp_clip=0\) and 3 clients",
        ),
    ],
)
def test_refusals_before_anything_is_written(settings, setting, reason, options, tmp_path):
    with refuses(setting, reason):
        Run(config(**settings), tmp_path / "run", options)
    assert not (tmp_path / "run").exists()
