"""Runs in processes that Ray starts; `fake_training` takes the place of training there."""

import logging
import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests import listening, ray_nodes
from tests.data.refusals import refuses
from tests.studies import fake_training
from tff_pcdd.runtime import RuntimeStartError
from tff_pcdd.runtime.processes import children
from tff_pcdd.studies import ParallelOptions, compare, study
from tff_pcdd.training import ExperimentConfig, RunOptions

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = RunOptions(modules={"tests.studies.fake_training": ""})
TWO = ParallelOptions(2)


def configs(*seeds):
    return [ExperimentConfig.from_settings(algorithm="fedavg", seed=seed) for seed in seeds]


def processes(folder, seed):
    """The tries of a run, from `fake_training`: (process, threads, cores, overwrite)."""
    path = folder / "fedavg" / f"seed_{seed}" / "processes.txt"
    return [tuple(line.split()) for line in path.read_text().splitlines()]


def directories(process):
    """The directories of the clusters that a process has started."""
    return [*pathlib.Path("/tmp").glob(f"tff_ray_{process}_*")]


def test_failures_deaths_and_messages(tmp_path, monkeypatch, caplog, capsys):
    fails, dies_once, dies, warns = (
        fake_training.FAILS,
        fake_training.DIES_ONCE,
        fake_training.DIES,
        fake_training.WARNS,
    )
    listened = set()
    write_failures = study.write_failures
    others, before = set(children(os.getpid())), directories(os.getpid())

    def look(directory, runs):
        listened.update(listening.addresses(set(children(os.getpid())) - others))
        write_failures(directory, runs)

    monkeypatch.setattr(study, "write_failures", look)
    result = compare(configs(0, fails, dies_once, dies, warns), tmp_path, OPTIONS, parallel=TWO)

    # The other runs have results, in the order of the runs.
    rows = (tmp_path / "comparison.csv").read_text().splitlines()
    assert [row.split(",")[2] for row in rows[1:]] == ["0", str(dies_once), str(warns)]
    assert result.failures[0] == f"fedavg seed {fails}: ArithmeticError: thirteen"
    assert result.failures[1].startswith(
        f"fedavg seed {dies}: the process of the run has ended, also that of a second try: "
    )
    failures = (tmp_path / "failures.txt").read_text()
    assert failures.count("Traceback (most recent call last):") == 1
    # A process that dies is replaced once, in the same directory.
    assert len(processes(tmp_path, dies_once)) == len(processes(tmp_path, dies)) == 2
    messages = [record.getMessage() for record in caplog.records]
    for seed in (dies_once, dies):
        label = f"fedavg seed {seed}: its process has ended"
        assert sum(label in message for message in messages) == 1
    assert f"seed {warns} is unusual" in messages
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
    # The display: a line for each run; nothing of Ray's.
    out, err = capsys.readouterr()
    assert out == ""
    shown = [line.partition("]")[0] for line in err.splitlines() if line.startswith("[")]
    assert sorted(shown) == [f"[{number}/5" for number in range(1, 6)]
    assert "ray" not in err.lower()
    # Other machines cannot reach Ray, and nothing of it is left.
    assert listened and listened <= listening.LOOPBACK
    assert not ray.is_initialized()
    assert directories(os.getpid()) == before

    # What has finished is not computed again; for that alone, Ray is not started.
    monkeypatch.setattr(
        "tff_pcdd.studies.run_processes.ray_cluster.connected", lambda *_, **__: 1 / 0
    )
    assert not compare(configs(0, warns), tmp_path, OPTIONS, parallel=TWO).failures
    assert len(processes(tmp_path, 0)) == 1


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
    assert not ray.is_initialized()


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
    with pytest.raises(RuntimeStartError, match="a process for the runs has ended: "):
        compare(run, tmp_path, OPTIONS, parallel=TWO)
    assert not ray.is_initialized()


def test_threads_of_a_run(tmp_path):
    compare(configs(0, 1, 2, 3), tmp_path, OPTIONS, parallel=ParallelOptions(2, run_cpus=0.5))
    tried = [each for seed in range(4) for each in processes(tmp_path, seed)]
    assert {threads for _, threads, *_ in tried} == {"1"}


def test_a_cluster_that_does_not_answer(tmp_path):
    options = ParallelOptions(2, ray_address="127.0.0.1:1")
    with pytest.raises(RuntimeStartError, match=r"Ray cannot connect to 127\.0\.0\.1:1: "):
        compare(configs(0), tmp_path / "out", OPTIONS, parallel=options)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster of two nodes with one CPU each."""
    with ray_nodes.started(1) as found:
        yield found.address


def test_runs_on_a_cluster(cluster, tmp_path, monkeypatch):
    options = ParallelOptions(2, ray_address=cluster)
    seeds = fake_training.MEET
    assert not compare(configs(*seeds), tmp_path, OPTIONS, parallel=options).failures
    tried = [each for seed in seeds for each in processes(tmp_path, seed)]
    assert len({process for process, *_ in tried}) == 2
    assert not [*tmp_path.glob(".*")]
    with refuses("run_cpus", "no node of the cluster has as many; the largest has 1"):
        compare(
            configs(2), tmp_path, OPTIONS, parallel=ParallelOptions(2, 2.0, ray_address=cluster)
        )
    # A node that is not the same as this one.
    monkeypatch.setattr("tff_pcdd.studies.cluster_nodes.__version__", "0.0.0")
    with refuses("ray_address", "has version .* instead of 0.0.0"):
        compare(configs(2), tmp_path, OPTIONS, parallel=options)
    assert not ray.is_initialized()


# Only the processes of the runs import TensorFlow, here none.
_PROGRAM = """
import sys
from tff_pcdd.cli import compare
sys.modules["tensorflow"] = None
compare.run()
"""


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_signal_ends_all_processes(signal_name, tmp_path):
    import signal

    number, seed = signal.Signals[signal_name], fake_training.SLEEPS
    flags = [
        "--algorithms=fedavg,fedmr",
        f"--seeds={seed}",
        "--parallel_runs=2",
        "--import=tests.studies.fake_training",
        f"--output_dir={tmp_path}",
    ]
    folders = [tmp_path / name / f"seed_{seed}" for name in ("fedavg", "fedmr")]
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *flags],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            _wait_until(lambda: all((path / "processes.txt").exists() for path in folders))
            workers = [int((path / "processes.txt").read_text().split()[0]) for path in folders]
            begin = time.monotonic()
            program.send_signal(number)
            out, err = program.communicate(timeout=120)
        finally:
            program.kill()
    if number != signal.SIGKILL:
        assert time.monotonic() - begin < 15
        assert program.returncode == 128 + number
        assert err.splitlines()[-1].startswith("-c: ")
        assert err.splitlines()[-1].endswith("; the same command resumes it")
        assert not directories(program.pid)
    assert out == ""
    _wait_until(lambda: not any(map(_computes, workers)))
    _wait_until(lambda: not _ray_processes(program.pid))


def _computes(process):
    """Whether a process, which may have left its number to another one, computes runs of Ray."""
    try:
        return b"ray::" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def _ray_processes(program):
    """Processes of a program's cluster, by the session that its process number is part of."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"_{program}/".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def _wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_messages_are_shown_at_the_level_of_this_process(tmp_path):
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        run = configs(fake_training.WARNS)
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        logging.root.addHandler(handler)
        compare(run, tmp_path, OPTIONS, parallel=TWO)
        assert records == []
    finally:
        logging.root.removeHandler(handler)
        logging.root.setLevel(level)
