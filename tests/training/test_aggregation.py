"""Runs with other aggregators than the mean: their state, their bytes, what the summary says."""

import json

import pytest

from tff_pcdd.federated import Aggregation
from tff_pcdd.options import OptionError
from tff_pcdd.training import Experiment, ExperimentConfig, RunOptions, run_experiment

SETTINGS = {
    "num_clients": 5,
    "clients_per_round": 3,
    "max_train_samples": 100,
    "max_test_samples": 60,
    "rounds": 3,
    "local_epochs": 1,
    "personal_eval_every": 0,
}


@pytest.fixture
def options(simulation):
    return RunOptions(runtime=simulation.name, progress=False, tensorboard=False)


def rows(directory):
    header, *lines = (directory / "metrics.csv").read_text().splitlines()
    seconds = header.split(",").index("seconds")
    return [[cell for i, cell in enumerate(line.split(",")) if i != seconds] for line in lines]


@pytest.mark.parametrize("settings", [{"aggregator": "robust"}, {"aggregator": "dp", "dp_clip": 0}])
def test_thresholds_are_part_of_the_checkpoint(settings, options, tmp_path, monkeypatch):
    """A run that was stopped goes on with the norms it had come to."""
    if settings["aggregator"] == "dp":
        settings = {**settings, "dp_noise_multiplier": 0.0}
    config = ExperimentConfig.from_settings(**SETTINGS, **settings)
    run_experiment(config, tmp_path / "whole", options)
    evaluate = Experiment.evaluate

    def stop(self):
        if self.round == 3:
            raise KeyboardInterrupt
        return evaluate(self)

    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "evaluate", stop)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(config, tmp_path / "broken", options)
    run_experiment(config, tmp_path / "broken", options)
    assert len(rows(tmp_path / "whole")) == 3
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")


def test_privacy_is_in_the_summary(options, tmp_path):
    config = ExperimentConfig.from_settings(
        **SETTINGS, aggregator="dp", dp_noise_multiplier=2.0, dp_clip=0.5, dp_delta=1e-4
    )
    run_experiment(config, tmp_path, options)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["dp_delta"] == 1e-4
    expected = Aggregation("dp", noise_multiplier=2.0).epsilon(5, 3, 3, 1e-4)
    assert summary["dp_epsilon"] == pytest.approx(expected)
    assert 0 < summary["dp_epsilon"] < 20


def test_compressed_bytes_are_those_reported(options, tmp_path):
    """With a threshold of 0 every tensor travels with a byte an entry, and two floats."""
    sizes = [
        Experiment(ExperimentConfig.from_settings(**SETTINGS, **settings), tmp_path, options).process.update_bytes
        for settings in ({}, {"aggregator": "compressed", "compressed_threshold": 0})
    ]
    assert sizes[0] / 4 < sizes[1] < sizes[0] / 4 + 8 * 30


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"algorithm": "fedmr", "aggregator": "secure"},
            "--aggregator=secure: clients of fedmr also send counts, features, which would pass",
        ),
        (
            {"aggregator": "dp", "dp_clip": 0.0},
            "--dp_noise_multiplier=1.0 --dp_clip=0: with an adaptive clip and 3 clients",
        ),
    ],
)
def test_refusals_before_anything_is_written(settings, message, options, tmp_path):
    with pytest.raises(OptionError, match=message):
        Experiment(ExperimentConfig.from_settings(**SETTINGS, **settings), tmp_path / "run", options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dp_clip": 1.0}, "--dp_clip=1.0: applies only with --aggregator=dp"),
        ({"aggregator": "secure", "compressed_bits": 4}, "--compressed_bits=4: applies only with"),
        ({"aggregator": "compressed", "compressed_bits": 17}, "--compressed_bits=17: must be at"),
        ({"aggregator": "dp", "dp_delta": 0.0}, "--dp_delta=0.0: must be greater than 0"),
        ({"aggregator": "median"}, "--aggregator=median: choose one of mean, robust"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(OptionError, match=message):
        ExperimentConfig.from_settings(**settings)
