"""The runs of a study load their data once per process, and nothing stays after a study."""

import pytest

from tff_pcdd.data import cache
from tff_pcdd.studies import run_process, study
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
    with study.computer(None, None) as computer:
        for _ in range(2):
            study.run_all(runs, tmp_path, computer, overwrite=False, after_each=lambda _: None)
    assert len(seen) == 4
    assert all(samples is seen[0] for samples in seen)
    assert CONFIG.data.build().train.x is not seen[0]


def test_in_a_process_that_computes_runs(seen, tmp_path):
    cache.keep()
    run = StudyRun(CONFIG, tmp_path / "a")
    for _ in range(2):
        assert run_process.compute(None, run, RunOptions(), False, "a", 1) == {"seed": 0}
    assert seen[0] is seen[1]
