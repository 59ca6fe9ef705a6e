"""Settings and measurements for MLflow.

The environment variables `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` say where they go.
"""

from __future__ import annotations

import os
import time
from typing import Any

from tff_pcdd.training.callbacks.tracking import PROJECT, Tracker

# By these tags, a resumed run finds its record.
_DIRECTORY, _SETTINGS = "tff_pcdd.directory", "tff_pcdd.settings"
# The most parameters that MLflow takes in one request.
_BATCH = 100


class Mlflow(Tracker):
    """Settings as MLflow's parameters, and measurements as its metrics, with the round as step."""

    package = "mlflow"

    _client: Any
    _run_id: str

    def prepare(self):
        from mlflow.tracking import MlflowClient

        _experiment(MlflowClient())

    def open(self, run):
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient()
        identity = _experiment(client)
        tags = {_DIRECTORY: os.fspath(run.directory.resolve()), _SETTINGS: run.config.digest()}
        # A comparison in Python: MLflow's filter has no way to quote every path.
        known = [
            record
            for record in client.search_runs(
                [identity], f"tags.`{_SETTINGS}` = '{tags[_SETTINGS]}'"
            )
            if record.data.tags.get(_DIRECTORY) == tags[_DIRECTORY]
        ]
        if run.simulation.round and known:
            self._run_id = known[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            self._run_id = client.create_run(identity, run_name=run.label, tags=tags).info.run_id
            params = [Param(key, str(value)) for key, value in run.config.to_settings().items()]
            for start in range(0, len(params), _BATCH):
                client.log_batch(self._run_id, params=params[start : start + _BATCH])
        steps = [metric.step for metric in client.get_metric_history(self._run_id, "seconds")]
        return max(steps, default=0)

    def send(self, round_number, values):
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, round_number) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, finished):
        self._client.set_terminated(self._run_id, "FINISHED" if finished else "KILLED")


def _experiment(client: Any) -> str:
    """MLflow's identity of the experiment under which records are collected; creates it."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
    experiment = client.get_experiment_by_name(name)
    return experiment.experiment_id if experiment else client.create_experiment(name)
