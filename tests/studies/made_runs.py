"""Runs of a study that take no time: what training writes, and a stand-in for it."""

import json

METRICS = "round,ga,pa,pa_before,pa_before_masked\n1,30,50,,\n"


def write_run(config, folder, metrics=METRICS, **summary):
    """Writes the files of a finished run that studies read; returns its summary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config.to_settings()))
    (folder / "metrics.csv").write_text(metrics)
    return {"algorithm": config.algorithm, "seed": config.seed, "ga_final": 30.0, **summary}


def replace_training(monkeypatch, outcome):
    """Replaces the training of studies; returns the folders that it is called for, in order.

    Args:
        monkeypatch: ends the replacement.
        outcome: a function of a run's configuration; it gives arguments of `write_run`, or raises
            the error with which the run fails.
    """
    # Not for the processes that import this module for `write_run`.
    from tff_pcdd.studies import study

    folders = []

    def run_experiment(config, folder, options=None, *, overwrite=False, label="", report):
        folders.append(folder)
        return write_run(config, folder, **outcome(config))

    monkeypatch.setattr(study, "run_experiment", run_experiment)
    return folders
