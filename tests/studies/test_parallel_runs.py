"""Runs in processes of their own; `fake_training` takes the place of training there."""

import contextlib
import logging
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests import support, waiting
from tests.data.refusals import refuses
from tests.studies import fake_training
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.runtime.processes import children
from tff_pcdd.studies import ParallelOptions, compare, parallel_runs, study
from tff_pcdd.training import ExperimentConfig, RunOptions

pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = RunOptions(modules={"tests.studies.fake_training": ""})
TWO = ParallelOptions(2)
KILLED = "was terminated by signal 9 (Killed); perhaps the memory is not sufficient"


def configs(*seeds):
    return [ExperimentConfig.from_settings(algorithm="fedavg", seed=seed) for seed in seeds]


def processes(folder, seed):
    """The tries of a run, from `fake_training`: (process, threads, cores, overwrite)."""
    path = folder / "fedavg" / f"seed_{seed}" / "processes.txt"
    return [tuple(line.split()) for line in path.read_text().splitlines()]


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No process outlives its study."""
    before = set(children(os.getpid()))
    yield
    assert set(children(os.getpid())) <= before


def test_failures_deaths_and_messages(tmp_path, monkeypatch, caplog, capsys):
    fails, dies_once, dies, warns = (
        fake_training.FAILS,
        fake_training.DIES_ONCE,
        fake_training.DIES,
        fake_training.WARNS,
    )
    result = compare(configs(0, fails, dies_once, dies, warns), tmp_path, OPTIONS, parallel=TWO)

    # The other runs have results, in the order of the runs.
    rows = (tmp_path / "comparison.csv").read_text().splitlines()
    assert [row.split(",")[2] for row in rows[1:]] == ["0", str(dies_once), str(warns)]
    assert result.failures == [
        f"fedavg seed {fails}: ArithmeticError: thirteen",
        f"fedavg seed {dies}: the process of the run {KILLED}, like the one before",
    ]
    failures = (tmp_path / "failures.txt").read_text()
    assert failures.count("Traceback (most recent call last):") == 1
    # A process that dies is replaced once, in the same directory.
    assert len(processes(tmp_path, dies_once)) == len(processes(tmp_path, dies)) == 2
    messages = [record.getMessage() for record in caplog.records]
    for seed in (dies_once, dies):
        expected = f"fedavg seed {seed}: its process {KILLED}; a new one continues"
        assert sum(expected in message for message in messages) == 1
    # A message names the run.
    assert f"fedavg seed {warns}: seed {warns} is unusual" in messages
    # Each run has TensorFlow's own number of threads, and no process is this one.
    tried = [each for seed in (0, fails, warns) for each in processes(tmp_path, seed)]
    cores = os.sched_getaffinity(0)
    everyone = os.environ.get("TF_NUM_INTRAOP_THREADS", str(len(cores)))
    assert {threads for _, threads, *_ in tried} == {everyone}
    # Those at the same time have cores of their own.
    shares = {frozenset(map(int, own.split(","))) for _, _, own, _ in tried}
    if len(cores) > 1:
        assert len(shares) == 2
        assert not frozenset.intersection(*shares)
    assert frozenset.union(*shares) == cores
    assert str(os.getpid()) not in {process for process, *_ in tried}
    # The display: a line for each run.
    out, err = capsys.readouterr()
    assert out == ""
    shown = [line.partition("]")[0] for line in err.splitlines() if line.startswith("[")]
    assert sorted(shown) == [f"[{number}/5" for number in range(1, 6)]

    # What has finished is not computed again; for that alone, no process is started.
    monkeypatch.setattr(parallel_runs, "_Process", None)
    assert not compare(configs(0, warns), tmp_path, OPTIONS, parallel=TWO).failures
    assert len(processes(tmp_path, 0)) == 1


def test_a_process_computes_many_runs(tmp_path):
    seeds = range(6)
    assert not compare(configs(*seeds), tmp_path, OPTIONS, parallel=TWO).failures
    assert len({process for seed in seeds for process, *_ in processes(tmp_path, seed)}) == 2


def test_processes_stay_from_one_list_of_runs_to_the_next(tmp_path):
    """As between the rungs of a sweep; one that dies there is replaced."""
    found = []
    with study.computer(OPTIONS, TWO) as computer:
        for seeds in ((0, 1), (2, 3), (4, 5)):
            runs = [
                study.StudyRun(config, tmp_path / "fedavg" / f"seed_{config.seed}")
                for config in configs(*seeds)
            ]
            study.run_all(runs, tmp_path, computer, overwrite=False, after_each=lambda _: None)
            found.append(
                {int(process) for seed in seeds for process, *_ in processes(tmp_path, seed)}
            )
            if len(found) == 2:
                dies, stays = found[0]
                os.kill(dies, signal.SIGKILL)
                waiting.until_ended(dies)
    assert len(found[0]) == 2
    assert found[1] == found[0]
    assert stays in found[2]
    assert dies not in found[2]


def test_runs_are_computed_at_the_same_time(tmp_path):
    seeds = fake_training.MEET
    assert not compare(configs(*seeds), tmp_path, OPTIONS, parallel=TWO).failures
    assert len({process for seed in seeds for process, *_ in processes(tmp_path, seed)}) == 2


def test_a_second_try_deletes_nothing(tmp_path):
    """What the first one has written since the study began is continued."""
    seeds = configs(fake_training.DIES_ONCE, fake_training.DIES_ONCE_EARLY)
    compare(seeds, tmp_path, OPTIONS, overwrite=True, parallel=TWO)
    late, early = (
        [overwrite for *_, overwrite in processes(tmp_path, config.seed)] for config in seeds
    )
    assert late == ["True", "False"]
    assert early == ["True", "True"]


def test_settings_are_checked_before_the_first_run(tmp_path):
    with refuses("seed", "is never good"):
        compare(configs(0, 1, fake_training.REFUSED), tmp_path, OPTIONS, parallel=TWO)
    assert not [*tmp_path.iterdir()]


def test_all_refused_methods_are_named_in_the_order_of_the_list(tmp_path):
    """Although each process checks only some of them."""
    names = ("fedprox", "fedavg", "feddyn", "moon", "fedavg")
    seeds = (fake_training.REFUSED, fake_training.REFUSED, 0, fake_training.REFUSED, 0)
    runs = [
        ExperimentConfig.from_settings(algorithm=name, seed=seed)
        for name, seed in zip(names, seeds, strict=True)
    ]
    with refuses("seed", r"^cannot be used with fedprox, fedavg, moon \(is never good\)$"):
        compare(runs, tmp_path, OPTIONS, parallel=TWO)
    assert not [*tmp_path.iterdir()]


def test_a_process_that_dies_while_it_checks(tmp_path):
    run = configs(fake_training.DIES_CHECKING)
    with pytest.raises(RuntimeStartError, match="a process for the runs was terminated by signal"):
        compare(run, tmp_path, OPTIONS, parallel=TWO)


def test_a_module_that_is_missing_there(tmp_path):
    options = RunOptions(modules={"no_such_module": ""})
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        compare(configs(0, 1), tmp_path, options, parallel=TWO)


def test_threads_of_a_run(tmp_path):
    compare(configs(0, 1, 2, 3), tmp_path, OPTIONS, parallel=ParallelOptions(2, run_cpus=0.5))
    tried = [each for seed in range(4) for each in processes(tmp_path, seed)]
    assert {threads for _, threads, *_ in tried} == {"1"}


def test_an_error_of_this_process_ends_the_others(tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(study, "write_failures", fail)
    with pytest.raises(ZeroDivisionError):
        compare(configs(0, fake_training.SLEEPS), tmp_path, OPTIONS, parallel=TWO)


def test_messages_are_shown_at_the_level_of_this_process(tmp_path):
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.root.addHandler(handler)
    try:
        compare(configs(fake_training.WARNS), tmp_path, OPTIONS, parallel=TWO)
        assert records == []
    finally:
        logging.root.removeHandler(handler)
        logging.root.setLevel(level)


_SCRIPT = """
import dataclasses, sys
from tff_pcdd import methods, studies
from tff_pcdd.training import ExperimentConfig, RunOptions

@methods.register
@dataclasses.dataclass(frozen=True)
class Mine(methods.Method):
    name = "mine"

options = RunOptions(modules={"tests.studies.fake_training": ""})
configs = [ExperimentConfig.from_settings(algorithm="mine", seed=seed) for seed in (0, 1)]
parallel = studies.ParallelOptions(2)
print(studies.compare(configs, sys.argv[1], options, parallel=parallel).failures)
"""


def test_a_script_need_not_be_importable(tmp_path):
    """Its classes reach the processes all the same, and it is not executed again there."""
    done = subprocess.run(
        [sys.executable, "-", str(tmp_path)],
        cwd=ROOT,
        input=_SCRIPT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[]\n", done.stderr


# Only the processes of the runs import TensorFlow, here none; nobody imports Ray.
_PROGRAM = """
import sys
from tff_pcdd.cli import compare
sys.modules["tensorflow"] = sys.modules["ray"] = None
compare.run()
"""


@contextlib.contextmanager
def program(seed, tmp_path, redirection="", **environment):
    """The program `compare` with two runs at a time, and a shell's redirection of its streams."""
    flags = [
        "--algorithms=fedavg,fedmr",
        f"--seeds={seed}",
        "--parallel_runs=2",
        "--import=tests.studies.fake_training",
        "--noreport",
        f"--output_dir={tmp_path}",
    ]
    with subprocess.Popen(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", _PROGRAM, *flags],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_runs_print_is_seen_in_whole_lines(unbuffered, tmp_path):
    with program(fake_training.PRINTS, tmp_path, PYTHONUNBUFFERED=unbuffered) as started:
        out, err = started.communicate(timeout=120)
    assert started.returncode == 0, err
    assert out.startswith("seen by the user\n" * (2 * fake_training.LINES))


@pytest.mark.parametrize(
    ("redirection", "status"), [(">/dev/full", 1), (">&-", 0), (">&- 2>&-", 0)]
)
def test_runs_whose_prints_cannot_be_shown_are_kept(redirection, status, tmp_path):
    with program(fake_training.PRINTS, tmp_path, redirection) as started:
        _, err = started.communicate(timeout=120)
    assert started.returncode == status, err
    assert (tmp_path / "comparison.csv").read_text().count("\n") == 3
    assert not (tmp_path / "failures.txt").exists()
    if status:
        assert err.endswith("error: standard output: No space left on device\n")


# A terminal sends the first and the third to all processes, others a signal to one.
OFTEN = [("SIGINT", True), ("SIGTERM", False), ("SIGHUP", True), ("SIGKILL", False)]


@pytest.mark.parametrize(
    ("name", "to_all"),
    support.rare_but(OFTEN, [*OFTEN, *((name, not to_all) for name, to_all in OFTEN)]),
)
def test_a_signal_ends_all_processes(name, to_all, tmp_path):
    number, seed = signal.Signals[name], fake_training.SLEEPS
    folders = [tmp_path / method / f"seed_{seed}" for method in ("fedavg", "fedmr")]
    with program(seed, tmp_path) as started:
        workers = waiting.until(lambda: _workers(folders), started)
        if to_all:
            os.killpg(started.pid, number)
        else:
            started.send_signal(number)
        # It returns when nobody holds the pipes any more; by themselves, runs go on for longer.
        out, err = started.communicate(timeout=120)
    waiting.until_ended(*workers)
    assert out == ""
    if name != "SIGKILL":
        assert started.returncode == 128 + number
        lines = [line for line in err.splitlines() if "importing TensorFlow" not in line]
        # The kernel may end a process of runs before the program knows about SIGTERM.
        assert len(lines) == 1 or (name == "SIGTERM" and to_all)
        assert lines[-1].startswith("-c: ")
        assert lines[-1].endswith("; the same command resumes it")


def _workers(folders):
    """The processes that compute the runs of these folders, once all of them have begun."""
    with contextlib.suppress(FileNotFoundError, IndexError):
        return [int((folder / "processes.txt").read_text().split()[0]) for folder in folders]
    return None
