"""Runs that are computed at the same time: settings, order of results, errors, display."""

import csv
import dataclasses
import logging
import os
import pathlib
import pickle
import sys

import pytest

from tests.data.refusals import refuses
from tff_pcdd import machine, runtime, stages
from tff_pcdd.errors import DataError, LockedError, WriteError
from tff_pcdd.experiment import planning
from tff_pcdd.studies import (
    ParallelOptions,
    comparison,
    parallel,
    parallel_runs,
    run_process,
    study,
)
from tff_pcdd.studies.parallel_runs import _Display, _Running
from tff_pcdd.studies.study import Failure, StudyRun
from tff_pcdd.training import ComputeOptions, ExperimentConfig, History, RunOptions
from tff_pcdd.training import callbacks as progress

CONFIGS = [ExperimentConfig.from_settings(algorithm="fedavg", seed=seed) for seed in range(4)]
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


@pytest.fixture
def cores(monkeypatch):
    """A machine with eight CPU cores, and an environment that says nothing about threads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def gpus(monkeypatch):
    """Sets the number of GPUs of this machine."""

    def set_number(number):
        monkeypatch.setattr(parallel, "_gpus", lambda: [f"GPU-{n}" for n in range(number)])

    return set_number


@pytest.mark.parametrize(
    ("settings", "refused", "reason"),
    [
        ({"parallel_runs": 0}, "parallel_runs", "must be at least 1"),
        ({"parallel_runs": 2, "run_cpus": 0.0}, "run_cpus", "must be greater than 0"),
        ({"parallel_runs": 2, "run_gpus": -1.0}, "run_gpus", "must be at least 0"),
        ({"parallel_runs": 2, "run_gpus": 1.5}, "run_gpus", "must be a fraction or a whole number"),
        ({"run_cpus": 1.0}, "run_cpus", "applies only with parallel_runs above 1"),
        ({"run_gpus": 1.0}, "run_gpus", "applies only with parallel_runs above 1"),
    ],
)
def test_options_that_cannot_be_used(settings, refused, reason):
    with refuses(refused, reason):
        ParallelOptions(**settings)


@pytest.mark.parametrize(
    ("options", "within", "among", "linear_algebra"),
    [
        # As in a serial comparison.
        ({}, "8", None, "8"),
        ({"run_cpus": 0.5}, "1", "1", "1"),
        ({"run_cpus": 3.0}, "3", "3", "3"),
    ],
)
def test_threads_of_a_run(options, within, among, linear_algebra, cores):
    environment = ParallelOptions(2, **options).environment(1)
    assert [environment.get(name) for name in THREADS] == [within, among, linear_algebra]


def test_threads_that_the_environment_names_stay(cores, monkeypatch):
    for name in THREADS:
        monkeypatch.setenv(name, "5")
    environment = ParallelOptions(2).environment(0)
    assert [environment[name] for name in THREADS] == ["5", "5", "5"]
    environment = ParallelOptions(2, run_cpus=2.0).environment(0)
    assert [environment[name] for name in THREADS] == ["2", "2", "5"]


def test_more_cores_than_the_machine_has_are_refused(cores):
    ParallelOptions(2, run_cpus=4.0).check(None)
    with refuses("run_cpus", "2 runs at a time need 9 CPU cores, and this machine has 8"):
        ParallelOptions(2, run_cpus=4.5).check(None)


@pytest.mark.parametrize(
    ("share", "available", "needed"), [(0.5, 1, "2"), (0.4, 1, "2"), (1.0, 3, "4"), (2.0, 7, "8")]
)
def test_more_gpus_than_the_machine_has_are_refused(share, available, needed, gpus):
    gpus(available)
    with refuses("run_gpus", f"4 runs at a time need {needed} GPUs, and this machine has"):
        ParallelOptions(4, run_gpus=share).check(None)
    gpus(int(needed))
    ParallelOptions(4, run_gpus=share).check(None)


def test_a_runtime_that_uses_several_processes_itself_is_refused(cores):
    class OnRay(runtime.RuntimeConfig):
        name = "ray"

    options = RunOptions(compute=ComputeOptions(runtime=OnRay()))
    ParallelOptions().check(options)
    with refuses("runtime", "cannot be combined with parallel_runs above 1"):
        ParallelOptions(2).check(options)


def test_runs_at_the_same_time_have_cores_of_their_own(cores):
    def shares(runs, **settings):
        options = ParallelOptions(runs, **settings)
        return [sorted(options.cores(place)) for place in range(runs)]

    assert shares(2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shares(3) == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert shares(9) == [[]] * 9
    assert shares(2, run_cpus=1.0) == [[], []]


@pytest.mark.parametrize(
    ("runs", "settings", "clients"),
    [(2, {}, 4), (8, {}, 1), (16, {}, 1), (2, {"run_cpus": 3.5}, 3), (2, {"run_cpus": 0.5}, 1)],
)
def test_clients_that_train_at_the_same_time_share_the_cores_of_the_run(
    runs, settings, clients, cores
):
    assert ParallelOptions(runs, **settings).clients_at_a_time(0) == clients


@pytest.mark.parametrize(
    ("number", "runs", "share", "seen"),
    [
        (0, 2, None, [None, None]),
        (1, 2, None, ["GPU-0", "GPU-0"]),
        (2, 3, None, ["GPU-0", "GPU-1", "GPU-0"]),
        (4, 2, None, ["GPU-0", "GPU-1"]),
        (4, 2, 0.0, ["", ""]),
        (4, 2, 2.0, ["GPU-0,GPU-1", "GPU-2,GPU-3"]),
        (4, 5, 0.4, ["GPU-0", "GPU-0", "GPU-1", "GPU-1", "GPU-2"]),
    ],
)
def test_gpus_of_a_run(number, runs, share, seen, gpus, monkeypatch):
    gpus(number)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    options = ParallelOptions(runs, run_gpus=share)
    found = [options.environment(place).get("CUDA_VISIBLE_DEVICES") for place in range(runs)]
    assert found == seen


@pytest.mark.parametrize(
    ("visible", "found"),
    [("0,2", ["0", "2"]), ("", []), ("-1", []), (" GPU-a , GPU-b", ["GPU-a", "GPU-b"])],
)
def test_gpus_that_this_process_sees(visible, found, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert parallel._gpus() == found


class Computer:
    """Computes at most three runs at a time, and ends the latest first.

    Args:
        outcomes: for each run, what comes out of its tries.
    """

    def __init__(self, outcomes):
        self.outcomes = {number: list(each) for number, each in outcomes.items()}
        self.running, self.order, self.counted = [], [], 0

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.running.clear()

    def begin(self, configs, runs):
        self.checked = [config.seed for config in configs]

    @property
    def busy(self):
        return len(self.running)

    @property
    def free(self):
        return self.busy < 3

    def start(self, number, run, label, *, overwrite):
        assert label in (f"[{number + 1}/{runs}] fedavg seed {number}" for runs in (1, 4))
        self.running.append(number)
        self.order.append(number)

    def wait(self, seconds=None):
        number = self.running.pop()
        default = {"algorithm": "fedavg", "seed": number, "ga_final": 1.0}
        outcome = self.outcomes[number].pop(0) if self.outcomes.get(number) else default
        if isinstance(outcome, Exception):
            try:
                raise outcome
            except Exception as error:
                outcome = Failure.of(error)
        return number, outcome

    def count(self):
        self.counted += 1


@pytest.fixture
def computer(monkeypatch):
    """Replaces what computes several runs at a time, and pauses."""

    def replace(**outcomes):
        made = Computer({int(name[1:]): each for name, each in outcomes.items()})
        monkeypatch.setattr(study, "computer", lambda *arguments: made)
        monkeypatch.setattr(study.time, "sleep", lambda seconds: made.order.append("pause"))
        monkeypatch.setattr(comparison, "_rounds", lambda runs: [])
        monkeypatch.setattr(comparison, "_draw", lambda directory, runs: None)
        monkeypatch.setattr(comparison, "client_rows", lambda runs: [])
        return made

    return replace


def test_results_are_in_the_order_of_the_runs(computer, tmp_path):
    made = computer(_1=[ArithmeticError("one")])
    result = comparison.compare(CONFIGS, tmp_path)
    assert made.checked == [0, 1, 2, 3]
    assert made.order == [0, 1, 2, 3]
    assert made.counted == 4
    with open(tmp_path / "comparison.csv", newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "2", "3"]
    assert result.failures == ["fedavg seed 1: ArithmeticError: one"]
    assert "ArithmeticError: one" in (tmp_path / "failures.txt").read_text()


def test_runs_of_another_process_are_tried_again_after_the_free_ones(computer, tmp_path):
    locked = LockedError("output_dir", "folder", "another process is writing")
    made = computer(_1=[locked, locked], _2=[locked])
    comparison.compare(CONFIGS, tmp_path)
    assert sorted(set(made.order) - {"pause"}) == [0, 1, 2, 3]
    assert made.order.count(1) == 3
    assert made.order.count(2) == 2
    assert made.counted == 4


def test_if_only_such_runs_are_left_there_is_a_pause(computer, tmp_path):
    made = computer(_0=[LockedError("output_dir", "folder", "another process is writing")])
    comparison.compare(CONFIGS[:1], tmp_path)
    assert made.order == [0, "pause", 0]


@pytest.mark.parametrize("error", [DataError("none"), WriteError(28, "full", "file")])
def test_errors_that_affect_all_runs_end_the_study(error, computer, tmp_path):
    made = computer(_0=[error])
    with pytest.raises(type(error)):
        comparison.compare(CONFIGS, tmp_path)
    # What was running is ended.
    assert made.running == []


def test_data_errors_of_later_runs_do_not(computer, tmp_path):
    computer(_2=[DataError("none")])
    result = comparison.compare(CONFIGS, tmp_path)
    assert result.failures == ["fedavg seed 2: tff_pcdd.errors.DataError: none"]


# In the process of a run.


class Connection:
    """Takes the place of the connection to the process of the study."""

    def __init__(self, *requests):
        self.requests = [pickle.dumps(request) for request in requests]
        self.sent = []

    def recv(self):
        return run_process.Setup(os.getppid(), (), {}, frozenset())

    def recv_bytes(self):
        if not self.requests:
            raise EOFError
        return self.requests.pop(0)

    def send(self, news):
        # It is not a reference to an object of the run.
        self.sent.append(pickle.loads(pickle.dumps(news)))

    def fileno(self):
        return sys.stderr.fileno()


@pytest.fixture
def computed(monkeypatch):
    """Calls `main` with a function in place of training: the news of each of several runs."""

    def call(train, options=None, runs=1):
        monkeypatch.setattr(run_process, "run_experiment", train)
        monkeypatch.setattr(run_process, "_IMPORTED_FIRST", ())
        # This process has other tests to run.
        for module, name in (
            (run_process.heavy, "own_process"),
            (run_process.launcher, "end_with_parent"),
            (run_process.os, "set_inheritable"),
            (run_process.outputs, "install"),
            (run_process.cache, "keep"),
        ):
            monkeypatch.setattr(module, name, lambda *_, **__: None)
        monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
        run = StudyRun(CONFIGS[0], pathlib.Path())
        request = run_process.compute, run, options or RunOptions(), False, "label", 3
        connection = Connection(*[request] * runs)
        run_process.main(connection)
        return connection.sent

    return call


def test_a_run_in_a_process_reports_stages_and_messages(computed):
    def train(config, folder, options, *, overwrite, label, callbacks, report):
        stages.enter("loading data")
        logging.warning("%s is unusual", label)
        return {"seed": config.seed}

    news = [
        ("stage", "loading data"),
        ("log", ("root", logging.WARNING, "label is unusual")),
        ("end", {"seed": 0}),
    ]
    assert computed(train, runs=2) == 2 * news


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (LockedError("output_dir", "here", "is locked"), True),
        (WriteError(28, "No space left on device", "file"), True),
        (ArithmeticError("thirteen"), False),
    ],
)
def test_a_run_that_fails_in_a_process(error, sent, computed):
    def train(*arguments, **options):
        raise error

    ((_, outcome),) = computed(train)
    assert outcome.text.startswith("Traceback (most recent call last):")
    assert outcome.text.strip().splitlines()[-1].endswith(str(error))
    assert type(outcome.error) is (type(error) if sent else type(None))
    if sent:
        assert str(outcome.error) == str(error)


def test_settings_of_a_run_in_a_process(computed):
    def train(config, folder, options, **others):
        return {"clients": options.compute.runtime.client_parallelism, "bar": options.progress}

    given = ComputeOptions(runtime=runtime.create("inprocess", client_parallelism=7))
    assert computed(train)[0][1] == {"clients": 3, "bar": False}
    assert computed(train, RunOptions(compute=given))[0][1] == {"clients": 7, "bar": False}


@pytest.mark.parametrize(
    ("has_gpu", "cores", "clients"), [(False, 3, 3), (False, 64, 8), (True, 64, None)]
)
def test_clients_at_a_time_of_a_run_in_a_process(has_gpu, cores, clients, monkeypatch):
    """As in a run by itself: at most eight on a processor, and one on each GPU."""
    monkeypatch.setattr(machine, "has_gpu", lambda: has_gpu)
    monkeypatch.setattr(
        run_process,
        "run_experiment",
        lambda config, folder, options, **others: options.compute.runtime.client_parallelism,
    )
    run = StudyRun(CONFIGS[0], None)
    assert run_process.compute(None, run, RunOptions(), False, "", cores) == clients


def test_the_check_of_settings_in_a_process(caplog):
    # The MLP has 200 features, or as many as the projection.
    narrow = ExperimentConfig.from_settings(algorithm="fedgela", model="mlp", projection_dim=5)
    in_vain = ExperimentConfig.from_settings(bn="personal", warmup_rounds=99)
    planning._warn.cache_clear()
    with refuses("projection_dim", ""):
        run_process.check(None, [CONFIGS[0], in_vain, narrow], RunOptions())
    assert [text.split(":")[0] for text in caplog.messages] == ["warmup_rounds=99", "bn=personal"]


def test_the_rounds_of_a_run_are_reported(monkeypatch):
    class Run:
        class simulation:
            round = 0

        last_round = 4
        history = History(["round", "ga", "pa"])

    monkeypatch.setattr(progress, "typical_seconds", lambda history: 0.5)
    connection = Connection()
    report = run_process.Report(run_process.Sender(connection))
    report.on_start(Run)
    Run.simulation.round = 1
    report.on_round(Run, Run.history.append({"round": 1, "ga": 20.04}))
    Run.simulation.round = 2
    report.on_round(Run, Run.history.append({"round": 2}))
    assert connection.sent == [
        ("begin", (0, 4, "first round")),
        ("round", (1, 4, "0.5 s/round, GA=20.0")),
        ("round", (2, 4, "0.5 s/round, GA=20.0")),
    ]


# The display.


def running(number, **progress):
    run = StudyRun(CONFIGS[number], pathlib.Path(), f"fedavg {number}")
    return _Running(number, run, f"[{number + 1}/9] {run.label}", **progress)


@pytest.mark.parametrize("terminal", [False, True])
def test_the_display_of_runs_at_the_same_time(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    display = _Display(9, shown=True)
    display.count()
    runs = [
        running(3, has_begun=True, rounds=9, last_round=10, text="GA=1.0"),
        running(1, stage="loading data"),
        running(2),
    ]
    display.update(runs)
    # One run has finished, and nine of ten rounds of another.
    assert display._bar.n == pytest.approx(1.9)
    ended = dataclasses.replace(runs[0], rounds=10, text="GA=2.0")
    display.end(ended)
    display.count()
    display.update(runs[1:])
    display.close()
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    written = [line for line in lines if "[4/9]" in line]
    assert len(written) == 1
    assert written[0].startswith("[4/9] fedavg 3: 100%|")
    assert "| 10/10 [" in written[0]
    assert written[0].endswith("GA=2.0]")
    shown = " ".join(lines)
    assert ("2 of 9 runs" in shown) == terminal
    assert ("fedavg 3 9/10, fedavg 1 loading data …, fedavg 2 starting …" in shown) == terminal


def test_the_line_of_all_runs_goes_with_the_last_one(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    display = _Display(1, shown=True)
    display.count()
    assert display._bar.disable


def test_without_progress_nothing_is_shown(capsys):
    display = _Display(1, shown=False)
    display.update([running(0)])
    display.end(running(0, has_begun=True))
    display.count()
    assert capsys.readouterr().err == ""


def test_messages_that_all_runs_repeat_are_shown_once(caplog):
    computer = parallel_runs.ParallelRuns(ParallelOptions(2), None)
    news = ("log", ("tff_pcdd", logging.WARNING, "has no effect"))
    computer._take(0, *news)
    computer._take(1, *news)
    computer._running[0] = running(0)
    computer._take(0, *news)
    computer._take(0, "log", ("tff_pcdd", logging.WARNING, "is unusual"))
    assert caplog.messages == ["has no effect", "fedavg 0: is unusual"]
