"""Stands in for training in the processes of a study, which import this module.

What happens to a run depends on its seed.
"""

import json
import logging
import os
import signal
import sys
import time

from tests.studies.made_runs import write_run
from tff_pcdd import stages
from tff_pcdd.errors import SettingError
from tff_pcdd.studies import run_process

FAILS, DIES_ONCE_EARLY, DIES_ONCE, DIES, WARNS, SLEEPS = 13, 20, 21, 22, 23, 24
REFUSED, DIES_CHECKING = 30, 31
# Runs that wait for each other, so that they are computed at the same time.
MEET = 40, 41
PRINTS, LINES = 50, 5000


def run_experiment(config, folder, options, *, overwrite, label, callbacks, report):
    """Writes what a run writes, and the processes that have tried to compute it."""
    assert "ray" not in sys.modules
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "processes.txt", "a") as file:
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        print(os.getpid(), os.environ.get("TF_NUM_INTRAOP_THREADS"), cores, overwrite, file=file)
    tries = len((folder / "processes.txt").read_text().splitlines())
    stages.enter("loading data")
    if config.seed == DIES_ONCE_EARLY and tries == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    (report,) = callbacks
    report._sender.send("begin", (0, 1, ""))
    if config.seed == FAILS:
        raise ArithmeticError("thirteen")
    if config.seed == DIES or (config.seed == DIES_ONCE and tries == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if config.seed == WARNS:
        logging.warning("seed %s is unusual", config.seed)
    if config.seed == PRINTS:
        _wait_for([folder.parents[1] / method / folder.name for method in ("fedavg", "fedmr")])
        for _ in range(LINES):
            print("seen by the user")
    if config.seed == SLEEPS:
        time.sleep(600)
    if config.seed in MEET:
        _wait_for([folder.parent / f"seed_{seed}" for seed in MEET])
    summary = write_run(config, folder)
    (folder / "summary.json").write_text(json.dumps(summary))
    return summary


def _wait_for(folders):
    """Until the runs of these folders have begun."""
    deadline = time.monotonic() + 300
    while not all(folder.exists() for folder in folders):
        if time.monotonic() > deadline:
            raise TimeoutError("the other run has not begun")
        time.sleep(0.001)


def check(config):
    """Checks a run's settings without TensorFlow, which would take seconds to import."""
    if config.seed == REFUSED:
        raise SettingError("seed", REFUSED, "is never good")
    if config.seed == DIES_CHECKING:
        os.kill(os.getpid(), signal.SIGKILL)


# Only in these processes: whatever else imports this module wants its constants.
if hasattr(sys.modules["__main__"], "connection"):
    run_process.run_experiment = run_experiment
    run_process.planning.check = check
    run_process._IMPORTED_FIRST = ()
