"""What is traced when: networks outside of graphs do not survive a network made in a graph."""

import dataclasses

import pytest

from tests.training.runs import CONFIG
from tff_pcdd.training import run_experiment


@pytest.mark.integration
@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_diagnostics_after_the_first_evaluation_of_personal_models(algorithm, options, tmp_path):
    config = CONFIG.with_settings(algorithm=algorithm, rounds=2, personal_eval_every=0)
    options = dataclasses.replace(options, diagnostics="angles")
    summary = run_experiment(config, tmp_path / "run", options)
    assert summary["pa_final"] is not None
    drawn = {path.name for path in (tmp_path / "run" / "plots").iterdir()}
    assert {"accuracy.png", "clients.png"} <= drawn
