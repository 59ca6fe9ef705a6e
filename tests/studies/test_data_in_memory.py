"""The runs of a study load their data once per process, and nothing stays after a study."""

import os
import pickle

import pytest

from tff_pcdd.data import cache
from tff_pcdd.studies import run_process, study
from tff_pcdd.studies.run_process import Job, Surroundings
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.training import ExperimentConfig, RunOptions

CONFIG = ExperimentConfig.from_settings(num_clients=5)


@pytest.fixture
def seen(monkeypatch):
    """The training samples of each run that is computed."""
    found = []

    def run_experiment(config, *_, **__):
        found.append(config.data.build().train.x)
        return {"seed": config.seed}

    for module in (study, run_process):
        monkeypatch.setattr(module, "run_experiment", run_experiment)
    yield found
    cache.forget()


def test_in_the_process_of_the_study(seen, tmp_path):
    runs = [StudyRun(CONFIG, tmp_path / name) for name in "ab"]
    study.run_all(runs, tmp_path, None, overwrite=False, after_each=lambda _: None)
    assert seen[0] is seen[1]
    assert CONFIG.data.build().train.x is not seen[0]


def test_in_a_process_that_computes_runs(seen, tmp_path, monkeypatch):
    monkeypatch.setattr(Surroundings, "enter", lambda _: None)
    surroundings = Surroundings(os.getcwd(), (), {}, {}, 1)
    job = pickle.dumps(Job(CONFIG, tmp_path / "a", RunOptions(), False, "a"))
    for number in range(2):
        outcome = run_process.compute(surroundings, number, job, lambda _: None)
        assert outcome == {"seed": 0}
    assert seen[0] is seen[1]
