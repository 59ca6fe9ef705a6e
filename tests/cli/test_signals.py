"""A signal ends a program within seconds, wherever the program is, and says so in one line."""

import importlib
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import tff_pcdd
from tests import support
from tff_pcdd.cli import signals

_ROOT = pathlib.Path(tff_pcdd.__file__).parents[1]

_PROGRAM = """
import gc, hashlib, sys, threading, time
from tff_pcdd.cli import program

def ready():
    print("ready", flush=True)

def wait():
    # Longer than tests wait for the end.
    time.sleep(1000)

def sleeps():
    wait()

def collects_garbage():
    # Exceptions in callbacks of the garbage collector, and in __del__, are dropped.
    gc.callbacks.append(lambda phase, info: time.sleep(0.05))
    while True:
        gc.collect()

def drops_exceptions():
    while True:
        try:
            wait()
        except BaseException:
            pass

def calls_c():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2 * 10**9)

def hangs_when_it_ends():
    try:
        wait()
    finally:
        wait()

def leaves_a_thread():
    threading.Thread(target=wait).start()
    wait()

def fails_because_of_it():
    try:
        wait()
    except KeyboardInterrupt:
        raise ImportError("numpy: partially initialized module") from None

def main(flags):
    ready()
    globals()[place]()

place = sys.argv.pop()
sys.argv[0] = "train"
program.run("doc", lambda flags: None, main)
"""
_PLACES = [
    "sleeps",
    "collects_garbage",
    "drops_exceptions",
    "calls_c",
    "hangs_when_it_ends",
    "leaves_a_thread",
    "fails_because_of_it",
]
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "ended because its terminal was closed",
}


def _start(place: str, *before: str) -> subprocess.Popen:
    """Starts the program, by default without what this process ignores, if `nohup` started it."""
    before = before or ("env", "--default-signal=HUP")
    process = subprocess.Popen(
        [*before, sys.executable, "-c", _PROGRAM, place],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("place", "number"),
    support.rare_but(
        [*((place, signal.SIGINT) for place in _PLACES), *(("sleeps", each) for each in _WORDS)],
        [(place, number) for place in _PLACES for number in _WORDS],
    ),
)
def test_a_signal_ends_the_program(place, number):
    _check_end(_start(place), number)


@pytest.mark.parametrize("place", ["sleeps", "hangs_when_it_ends"])
def test_the_second_signal_changes_nothing(place):
    process = _start(place)
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    _check_end(process, signal.SIGINT)


def test_a_program_has_less_than_three_seconds():
    """What the watch waits for at most."""
    assert signals.PATIENCE + signals._STEP < 3


def _check_end(process: subprocess.Popen, number: signal.Signals) -> None:
    """Sends a signal; the process has to end, with its status and a single line."""
    process.send_signal(number)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert not out
    assert err == f"train: {_WORDS[number]}; the same command resumes it\n"


_RAY_PROGRAM = """
import os, signal, sys, time
import ray
from tff_pcdd.cli import program
from tff_pcdd.runtime.ray import cluster

name = sys.argv.pop()
original = getattr(ray, name)

def call(*args, **options):
    original(*args, **options)
    # Here, the program has not restored its handlers yet.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

def main(flags):
    setattr(ray, name, call)
    cluster.connect(None, num_cpus=1)
    cluster.release()

sys.argv[0] = "train"
program.run("doc", lambda flags: None, main)
"""


@pytest.mark.integration
@pytest.mark.parametrize("name", ["init", "shutdown"])
def test_a_signal_is_noticed_while_ray_starts_and_ends(name):
    """Ray would replace the handlers of signals when it starts, and remove them when it ends."""
    pytest.importorskip("ray")
    process = subprocess.run(
        [sys.executable, "-c", _RAY_PROGRAM, name],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.stderr == "train: terminated; the same command resumes it\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_a_program_within_a_process_leaves_its_handlers():
    before = {number: signal.getsignal(number) for number in _WORDS}
    hook = sys.unraisablehook
    with (
        pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)),
        signals.Ending("train", restore=True, hint="start it again") as ending,
    ):
        assert signal.getsignal(signal.SIGINT) not in before.values()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        assert ending.number == signal.SIGTERM
    assert {number: signal.getsignal(number) for number in _WORDS} == before
    assert sys.unraisablehook == hook
    # The watch, which would end this process, ends too.
    for thread in threading.enumerate():
        if thread.name == "signals":
            thread.join()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("evaluate", "the run is unchanged, and tasks.train resumes it if it has not finished"),
        ("export", "the same command resumes it"),
    ],
)
def test_the_line_says_what_a_user_can_do(name, hint, monkeypatch, capsys):
    """An evaluation has nothing that could be resumed."""
    module = importlib.import_module(f"tff_pcdd.cli.{name}")

    def main(flags):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)

    monkeypatch.setattr(module, "main", main)
    monkeypatch.setattr(logging.root, "handlers", logging.root.handlers[:])
    with pytest.raises(SystemExit, match=str(128 + signal.SIGINT)):
        module.run([name])
    assert capsys.readouterr().err == f"{name}: interrupted; {hint}\n"


def test_what_nohup_ignores_stays_ignored():
    process = _start("sleeps", "nohup")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
