"""Peers do the same work as this project, and the report shows those that could not be measured."""

import pathlib
import re
import sys
import time

import numpy as np
import pytest

from tff_pcdd import machine
from tff_pcdd.benchmarks import contenders, measure, peers, processes

# A peer that "trains" by adding 1 to every weight, and takes 40 MB more while it does, which
# glibc gives back at once.
_FAKE = """
import json, sys, time
import numpy as np
print(json.dumps({"versions": {"fake": "1.0"}}), flush=True)
with np.load(sys.argv[1]) as file:
    weights = {n.removeprefix("weights/"): file[n] for n in file.files if n.startswith("weights/")}
for line in sys.stdin:
    request, _, path = line.strip().partition(" ")
    if request == "round":
        ballast = np.ones(40_000_000, np.uint8)
        weights = {name: value + 1 for name, value in weights.items()}
        time.sleep(0.5)
        del ballast
    else:
        np.savez(path, **weights)
    print(json.dumps({"done": request}), flush=True)
"""


@pytest.fixture
def fake(tmp_path):
    """The command of a fake peer, and its initial weights."""
    program, work = tmp_path / "fake.py", tmp_path / "work.npz"
    program.write_text(_FAKE)
    initial = {"dense_0/kernel": np.zeros((2, 3), np.float32)}
    np.savez(work, **{f"weights/{name}": value for name, value in initial.items()})
    return [sys.executable, str(program), str(work)], initial


def _state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_contender_computes_rounds_and_rests_in_between(fake):
    command, initial = fake
    with contenders.Contender(command) as contender:
        contender.wait_until_ready()
        assert contender.versions == {"fake": "1.0"}
        contender.next()
        contender.next()
        weights = contender.weights()
        pid = contender.pid
        deadline = time.monotonic() + 30
        while _state(pid) != "T" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert _state(pid) == "T"
        rest = contenders.proportional_memory(pid)
        assert contender.peak_memory() > rest + 30
    np.testing.assert_array_equal(weights["dense_0/kernel"], initial["dense_0/kernel"] + 2)
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_a_contender_that_fails_says_why():
    command = [sys.executable, "-c", "raise SystemExit('no such module')"]
    reason = "exited with 1: no such module"
    with (
        contenders.Contender(command) as contender,
        pytest.raises(contenders.ContenderError, match=reason),
    ):
        contender.wait_until_ready()


def test_deviation_is_relative_to_the_movement_of_trained_weights():
    initial = {"a/kernel": np.zeros(2), "norm_0/moving_mean": np.zeros(2)}
    own = {"a/kernel": np.array([3.0, 4.0]), "norm_0/moving_mean": np.ones(2)}
    other = {"a/kernel": np.array([3.0, 3.5])}
    assert peers.deviation(other, own, initial) == pytest.approx(0.5 / 5)


@pytest.mark.integration
def test_a_peer_is_measured_beside_those_that_cannot_be(monkeypatch, tmp_path):
    (tmp_path / "fake.py").write_text(_FAKE)
    (tmp_path / "broken.py").write_text("raise SystemExit('broken')")
    environments = {"torch": pathlib.Path(sys.executable), "jax": tmp_path / "python"}
    known = {
        "pytorch": peers.Peer("torch", "fake.py"),
        "broken": peers.Peer("torch", "broken.py"),
        "fedjax": peers.Peer("jax", "absent.py"),
        "other": peers.Peer("torch", "fake.py", ("bfloat16",)),
    }
    monkeypatch.setattr(peers, "_PROGRAMS", tmp_path)
    monkeypatch.setattr(peers, "ENVIRONMENTS", environments)
    monkeypatch.setattr(peers, "PEERS", known)
    measured = peers.measure_workload(0, "float32", measure.Plan(repeats=2, quick=True))
    rows = {row["contender"]: row for row in measured}
    assert set(rows) == {"inprocess", "plain", "pytorch", "broken", "fedjax"}
    assert "make install-peers" in rows["fedjax"]["note"]
    assert rows["broken"]["note"] == "failed: exited with 1: broken"
    own, fake = rows["inprocess"], rows["pytorch"]
    assert (own["ratio"], own["deviation"], rows["plain"]["deviation"]) == (1, 0, None)
    # It moves each weight by 1, so much farther than a round of SGD does.
    assert fake["deviation"] > 10
    assert fake["ratio"] == pytest.approx(np.median(np.divide(fake["seconds"], own["seconds"])))
    assert len(fake["seconds"]) == 2
    assert min(fake["seconds"]) > 0.2
    assert own["memory_mb"] > 200


def test_targets_are_about_the_faster_loop():
    rows = [
        {"contender": "inprocess", "ratio": 1.0},
        {"contender": "pytorch", "ratio": 1.7},
        {"contender": "pytorch, channels_last", "ratio": 1.4},
        {"contender": "flower", "ratio": 2.0},
        {"contender": "fedjax", "note": "failed"},
    ]
    targets = {t.text: t for t in peers.targets_of("simple_cnn", "float32", rows)}
    loop = targets["speed of inprocess over pytorch, simple_cnn, float32"]
    assert (loop.value, loop.limit, loop.met) == (1.4, 1.5, False)
    assert targets["speed of inprocess over flower, simple_cnn, float32"].met
    assert targets["speed of inprocess over fedjax, simple_cnn, float32"].met is None


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_installed_peers_do_the_same_work(precision):
    """After a round from the same weights on the same batches, all have nearly the same weights."""
    if not any(python.exists() for python in peers.ENVIRONMENTS.values()):
        pytest.skip("needs make install-peers")
    if precision == "bfloat16" and machine.slow_bfloat16() is not None:
        pytest.skip("needs a processor that is fast in bfloat16")
    for row in peers.measure_workload(0, precision, measure.Plan(repeats=1, quick=True)):
        peer = peers.PEERS.get(row["contender"])
        if peer is None or not peers.ENVIRONMENTS[peer.environment].exists():
            continue
        assert "note" not in row, row
        assert row["deviation"] < (1e-3 if precision == "float32" else 0.2), row


def test_programs_of_peers_do_not_import_the_package():
    folder = processes.ROOT / "peers"
    assert all((folder / peer.program).is_file() for peer in peers.PEERS.values())
    for path in folder.glob("*.py"):
        code = path.read_text(encoding="utf-8")
        assert not re.findall(r"^\s*(?:import|from) tff_pcdd", code, re.M), path
