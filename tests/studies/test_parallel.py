"""Runs that are computed at the same time: settings, order of results, errors; without Ray."""

import collections
import csv
import importlib.util
import logging
import os
import pickle
import sys

import pytest

from tests.data.refusals import refuses
from tff_pcdd import runtime, stages
from tff_pcdd.errors import DataError, LockedError, WriteError
from tff_pcdd.studies import (
    ParallelOptions,
    cluster_nodes,
    comparison,
    run_process,
    run_reports,
    study,
)
from tff_pcdd.studies.run_bars import RunBars
from tff_pcdd.studies.run_process import Failure, Job, Surroundings
from tff_pcdd.studies.run_reports import News
from tff_pcdd.training import ComputeOptions, ExperimentConfig, History, RunOptions
from tff_pcdd.training import callbacks as progress

CONFIGS = [ExperimentConfig.from_settings(algorithm="fedavg", seed=seed) for seed in range(4)]


@pytest.fixture
def cores(monkeypatch):
    """A machine with eight CPU cores and Ray."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("settings", "refused", "reason"),
    [
        ({"parallel_runs": 0}, "parallel_runs", "must be at least 1"),
        ({"parallel_runs": 2, "run_cpus": 0.0}, "run_cpus", "must be greater than 0"),
        ({"parallel_runs": 2, "run_gpus": -1.0}, "run_gpus", "must be at least 0"),
        ({"run_cpus": 1.0}, "run_cpus", "applies only with parallel_runs above 1"),
        ({"run_gpus": 1.0}, "run_gpus", "applies only with parallel_runs above 1"),
        ({"ray_address": "auto"}, "ray_address", "applies only with parallel_runs above 1"),
        ({"parallel_runs": 2, "ray_address": "here"}, "ray_address", "must be host:port, or auto"),
    ],
)
def test_options_that_cannot_be_used(settings, refused, reason):
    with refuses(refused, reason):
        ParallelOptions(**settings)


@pytest.mark.parametrize(
    ("options", "within", "among"),
    [
        # As in a serial comparison.
        ({}, "8", None),
        ({"run_cpus": 0.5}, "1", "1"),
        ({"run_cpus": 3.0}, "3", "3"),
        ({"ray_address": "auto"}, "1", "1"),
    ],
)
def test_threads_of_a_run(options, within, among, cores, monkeypatch):
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    environment = ParallelOptions(2, **options).environment()
    assert environment["TF_NUM_INTRAOP_THREADS"] == within
    assert environment.get("TF_NUM_INTEROP_THREADS") == among


def test_more_cores_than_the_machine_has_are_refused(cores):
    ParallelOptions(2, run_cpus=4.0).check(None)
    with refuses("run_cpus", "2 runs at a time need 9 CPU cores, and this machine has 8"):
        ParallelOptions(2, run_cpus=4.5).check(None)
    # The nodes of a cluster are asked later.
    ParallelOptions(2, run_cpus=64.0, ray_address="auto").check(None)


def test_more_gpus_than_the_machine_has_are_refused(cores):
    options = ParallelOptions(4, run_gpus=0.5)
    assert options.gpus(2.0) == 0.5
    with refuses("run_gpus", "4 runs at a time need 2 GPUs, and this machine has 1"):
        options.gpus(1.0)


def test_without_ray_only_one_run_at_a_time(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ParallelOptions().check(None)
    with refuses("parallel_runs", 'pip install "tff_pcdd\\[ray\\]", or make install-ray'):
        ParallelOptions(2).check(None)


def test_a_runtime_that_uses_ray_itself_is_refused(cores):
    class OnRay(runtime.RuntimeConfig):
        name = "ray"

    options = RunOptions(compute=ComputeOptions(runtime=OnRay()))
    ParallelOptions().check(options)
    with refuses("runtime", "cannot be combined with parallel_runs above 1"):
        ParallelOptions(2).check(options)


@pytest.mark.parametrize(("runs", "share"), [(2, 4.0), (3, 2.0), (8, 1.0), (16, 0.5), (12, 0.6666)])
def test_runs_share_the_cores_of_the_machine(runs, share, cores):
    assert ParallelOptions(runs).cpus() == share
    assert ParallelOptions(runs, ray_address="auto").cpus() == 1
    assert ParallelOptions(runs, run_cpus=0.25).cpus() == 0.25


def test_runs_at_the_same_time_have_cores_of_their_own(cores):
    def shares(runs, **settings):
        options = ParallelOptions(runs, **settings)
        return [sorted(options.cores(place)) for place in range(runs)]

    assert shares(2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shares(3) == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert shares(9) == [[]] * 9
    assert shares(2, ray_address="auto") == shares(2, run_cpus=1.0) == [[], []]


@pytest.mark.parametrize(("gpus", "share"), [(0, 0), (1, 0.3333), (3, 1), (8, 1)])
def test_runs_share_the_gpus(gpus, share):
    assert ParallelOptions(3).gpus(gpus) == share


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

    def check(self, configs):
        self.checked = [config.seed for config in configs]

    @property
    def busy(self):
        return len(self.running)

    @property
    def free(self):
        return self.busy < 3

    def start(self, number, run, label):
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
        monkeypatch.setattr(study, "_computer", lambda *arguments: made)
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

SURROUNDINGS = Surroundings(os.getcwd(), (), {}, {}, threads=3)


@pytest.fixture
def computed(monkeypatch):
    """Calls `compute` with a function in place of training: the outcome, and the news."""

    def call(train, surroundings=SURROUNDINGS, options=None):
        monkeypatch.setattr(run_process, "run_experiment", train)
        monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
        news = collections.deque()
        job = Job(CONFIGS[0], os.path.curdir, options or RunOptions(), False, "label")
        outcome = run_process.compute(surroundings, 5, pickle.dumps(job), news.append)
        return outcome, [*news]

    return call


def test_a_run_in_a_process_reports_stages_and_messages(computed):
    def train(config, folder, options, *, overwrite, label, callbacks):
        stages.enter("loading data")
        logging.warning("%s is unusual", label)
        return {"seed": config.seed}

    outcome, news = computed(train)
    assert outcome == {"seed": 0}
    assert news[0] == News(5, "stage", "loading data")
    assert [each.kind for each in news] == ["stage", "log"]
    record = pickle.loads(pickle.dumps(news[1].value))
    assert record.getMessage() == "label is unusual"
    assert record.levelno == logging.WARNING
    # The next run in this process reports for itself.
    assert not any(isinstance(each, run_reports._Sender) for each in logging.root.handlers)


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

    outcome, _ = computed(train)
    assert outcome.text.startswith("Traceback (most recent call last):")
    assert outcome.text.strip().splitlines()[-1].endswith(str(error))
    assert (outcome.error is error) == sent
    restored = pickle.loads(pickle.dumps(outcome))
    assert type(restored.error) is (type(error) if sent else type(None))
    assert str(restored.error) == str(outcome.error)


def test_clients_that_train_at_the_same_time_share_the_cores_of_the_run(computed):
    seen = []

    def train(config, folder, options, **others):
        seen.append((options.compute.runtime.client_parallelism, options.progress))
        return {}

    computed(train)
    given = ComputeOptions(runtime=runtime.create("inprocess", client_parallelism=7))
    computed(train, options=RunOptions(compute=given))
    assert seen == [(3, False), (7, False)]


def test_modules_and_environment_of_a_process(computed, tmp_path, monkeypatch):
    (tmp_path / "module_of_mine.py").write_text("import os\nseen = os.environ['TFF_PCDD_PROBE']\n")
    monkeypatch.setenv("TFF_PCDD_OTHER", "1")
    monkeypatch.setenv("TFF_PCDD_PROBE", "before")
    monkeypatch.chdir(os.getcwd())
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    environment = {"TFF_PCDD_PROBE": "now", "TFF_PCDD_OTHER": None}
    level = logging.getLogger("absl").level
    surroundings = Surroundings(
        str(tmp_path), ("module_of_mine",), environment, {"absl": logging.ERROR}, 1
    )
    outcome, _ = computed(lambda *arguments, **options: {"cwd": os.getcwd()}, surroundings)
    try:
        assert outcome == {"cwd": str(tmp_path)}
        assert sys.modules.pop("module_of_mine").seen == "now"
        assert "TFF_PCDD_OTHER" not in os.environ
        assert logging.getLogger("absl").level == logging.ERROR
    finally:
        logging.getLogger("absl").setLevel(level)


def test_a_module_that_is_missing_there_is_a_failure(computed):
    surroundings = Surroundings(os.getcwd(), ("no_such_module",), {}, {}, 1)
    outcome, _ = computed(lambda *arguments, **options: {}, surroundings)
    assert "No module named 'no_such_module'" in outcome.text


def test_the_check_of_settings_in_a_process(monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
    # This process has other tests to run.
    monkeypatch.setattr(run_process.heavy, "own_process", lambda: None)
    # The MLP has 200 features, or as many as the projection.
    narrow = ExperimentConfig.from_settings(algorithm="fedgela", model="mlp", projection_dim=5)
    in_vain = ExperimentConfig.from_settings(bn="personal", warmup_rounds=99)
    configs = pickle.dumps([CONFIGS[0], narrow, in_vain])
    fine, refused, warned = run_process.check_on_ray(SURROUNDINGS, configs)
    assert fine == (None, [])
    assert refused.refusal.setting == "projection_dim"
    assert warned.refusal is None
    assert [text.split(":")[0] for text in warned.warnings] == ["warmup_rounds=99", "bn=personal"]
    # Without the user's modules, nothing can be said about the settings.
    failure = run_process.check_on_ray(
        Surroundings(os.getcwd(), ("no_such_module",), {}, {}, 1), pickle.dumps(CONFIGS)
    )
    assert "No module named 'no_such_module'" in failure.text


def test_the_rounds_of_a_run_are_reported(monkeypatch):
    class Run:
        class simulation:
            round = 0

        last_round = 4
        history = History(["round", "ga", "pa"])

    monkeypatch.setattr(progress, "typical_seconds", lambda history: 0.5)
    news = []
    report = run_reports.Report(1, news.append)
    report.on_start(Run)
    Run.simulation.round = 1
    report.on_round(Run, Run.history.append({"round": 1, "ga": 20.04}))
    Run.simulation.round = 2
    report.on_round(Run, Run.history.append({"round": 2}))
    assert news == [
        News(1, "begin", (0, 4, "first round")),
        News(1, "round", (1, 4, "0.5 s/round, GA=20.0")),
        News(1, "round", (2, 4, "0.5 s/round, GA=20.0")),
    ]


# The display.


@pytest.mark.parametrize("terminal", [False, True])
def test_bars_of_runs_at_the_same_time(terminal, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    bars = RunBars(9, 1, 2)
    bars.add(3, "[4/9] fedavg seed 3", 10)
    bars.add(1, "[2/9] fedavg seed 1", 10)
    bars.stage(3, "loading data")
    assert "loading data …" in str(bars._bars[3])
    bars.begin(3, 4, 10, "first round")
    bars.begin(1, 0, 10, "first round")
    bars.round(3, 9, 10, "GA=1.0")
    # One run has finished, and nine of ten rounds of another.
    assert bars._all.n == pytest.approx(1.9)
    bars.round(3, 10, 10, "GA=2.0")
    bars.stage(3, "writing")
    assert "writing …" in str(bars._bars[3])
    bars.end(3)
    bars.count()
    assert bars._all.n == pytest.approx(2)
    bars.add(4, "[5/9] fedavg seed 4", 10)
    assert sorted(bars._places.values()) == [0, 1]
    bars.close()
    lines = capsys.readouterr().err
    written = [line for line in lines.replace("\r", "\n").splitlines() if "[4/9]" in line]
    assert "10/10" in written[-1]
    assert "GA=2.0" in written[-1]
    assert ("2 of 9 runs" in lines) == terminal


def test_without_progress_nothing_is_shown(capsys):
    bars = RunBars(1, 0, 2, shown=False)
    bars.add(0, "label", 10)
    bars.begin(0, 0, 10, "first round")
    bars.end(0)
    bars.close()
    assert capsys.readouterr().err == ""


# Nodes of a cluster.


def test_what_a_node_has_to_see(tmp_path):
    from tff_pcdd import __version__

    shared = tmp_path / ".nodes.1.tmp"
    shared.write_text("text")
    here = os.getcwd()
    assert cluster_nodes.look(shared, "text", here, __version__) == ""
    assert os.listdir(tmp_path) == [shared.name]
    assert "has version" in cluster_nodes.look(shared, "text", here, "0.0.0")
    away = str(tmp_path / "away")
    assert "working directory" in cluster_nodes.look(shared, "text", away, __version__)
    for path, text in ((shared, "other"), (tmp_path / "away", "text")):
        answer = cluster_nodes.look(path, text, here, __version__)
        assert answer.startswith(f"does not see the files in {tmp_path}")


def test_a_node_that_cannot_write(tmp_path, monkeypatch):
    from tff_pcdd import __version__

    def refuse(path, text):
        raise WriteError(30, "Read-only file system", str(path))

    shared = tmp_path / ".nodes.1.tmp"
    shared.write_text("text")
    monkeypatch.setattr(cluster_nodes.files, "write_text", refuse)
    answer = cluster_nodes.look(shared, "text", os.getcwd(), __version__)
    assert answer == f"cannot write to {tmp_path}: Read-only file system"
