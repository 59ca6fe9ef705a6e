"""Peers do the same work as this project, and the report shows those that could not be measured."""

import collections
import dataclasses
import json
import pathlib
import re
import sys

import numpy as np
import pytest

from benchmarks import blazefl, contenders, measure, peers, processes
from tests import waiting
from tff_pcdd import machine

_QUICK = measure.Plan(repeats=2, quick=True)

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
        waiting.until(lambda: _state(pid) == "T")
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
@pytest.mark.rare
def test_a_peer_is_measured_beside_those_that_cannot_be(monkeypatch, tmp_path):
    from benchmarks import workloads

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
    (workload,) = workloads.QUICK_WORKLOADS
    measured = peers.measure_workload(workload, "float32", _QUICK, known, label="peers")
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


def test_targets_are_about_the_fastest_variant():
    rows = [
        {"contender": "inprocess", "ratio": 1.0},
        {"contender": "pytorch", "ratio": 1.7},
        {"contender": "pytorch, channels_last", "ratio": 1.4},
        {"contender": "flower", "ratio": 2.0},
        {"contender": "fedjax", "note": "failed"},
    ]
    limits = {"pytorch": 1.5, "flower": 1.0, "fedjax": 1.0, "pfl": 1.0}
    targets = {t.text: t for t in peers.targets_of("simple_cnn", rows, limits)}
    # pfl has no row.
    assert len(targets) == 3
    loop = targets["speed of inprocess over pytorch, simple_cnn"]
    assert (loop.value, loop.limit, loop.met) == (1.4, 1.5, False)
    assert targets["speed of inprocess over flower, simple_cnn"].met
    assert targets["speed of inprocess over fedjax, simple_cnn"].met is None


@pytest.mark.slow
@pytest.mark.rare
@pytest.mark.parametrize(
    ("section", "precision"), [("peers", "float32"), ("peers", "bfloat16"), ("blazefl", "float32")]
)
def test_installed_peers_do_the_same_work(section, precision):
    """After a round from the same weights on the same batches, all have nearly the same weights."""
    from benchmarks import workloads

    if precision == "bfloat16" and machine.slow_bfloat16() is not None:
        pytest.skip("needs a processor that is fast in bfloat16")
    known = {
        name: peer
        for name, peer in {"peers": peers, "blazefl": blazefl}[section].PEERS.items()
        if peers.ENVIRONMENTS[peer.environment].exists()
    }
    if not known:
        pytest.skip("needs make install-peers")
    workload = workloads.QUICK_WORKLOADS[0] if section == "peers" else blazefl.workload_of(2, True)
    rows = peers.measure_workload(workload, precision, _QUICK, known, label=section)
    for row in rows:
        assert "note" not in row, row
        if row["contender"] != "plain":
            assert row["deviation"] < (1e-3 if precision == "float32" else 0.2), row


def test_programs_of_peers_do_not_import_the_package():
    folder = processes.ROOT / "peers"
    known = [*peers.PEERS.values(), *blazefl.PEERS.values()]
    assert all((folder / peer.program).is_file() for peer in known)
    for path in folder.glob("*.py"):
        code = path.read_text(encoding="utf-8")
        assert not re.findall(r"^\s*(?:import|from) tff_pcdd", code, re.M), path


def test_shards_of_blazefls_benchmark_are_those_of_earlier_results():
    """The benchmark had a partition of its own, with this generator."""
    from benchmarks import workloads

    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 40))
    split = workloads.divided(20, 2).split(labels, labels[:50], 10, seed=0)
    order = np.argsort(labels, kind="stable")
    numbers = np.random.default_rng(0).permutation(40)
    for k, part in enumerate(split.train):
        own = [order[10 * n : 10 * n + 10] for n in numbers[2 * k : 2 * k + 2]]
        np.testing.assert_array_equal(part, np.sort(np.concatenate(own)))


@pytest.mark.parametrize(("cores", "clients"), [(1, 10), (2, 20), (10, 100), (64, 100)])
def test_clients_of_blazefls_benchmark(cores, clients):
    """Whatever their number, they do the work of BlazeFL's clients."""
    workload = blazefl.workload_of(cores, quick=False)
    assert workload.clients == clients
    # 5 epochs of 500 / 50 steps.
    assert workload.epochs * workload.samples / workload.batch_size == 50


def test_peers_are_told_the_settings_and_samples_of_blazefls_benchmark(tmp_path):
    from benchmarks import peer_work

    workload = blazefl.workload_of(2, quick=True)
    peer_work.write(workload, 1, tmp_path / "work.npz")
    with np.load(tmp_path / "work.npz") as file:
        settings, labels = json.loads(str(file["settings"])), file["y"]
    plain_sgd = {"learning_rate": 0.1, "momentum": 0, "weight_decay": 0, "clip_norm": 0}
    assert settings.items() >= plain_sgd.items()
    # The sorted labels of all clients consist of 4 shards of 10.
    shards = np.sort(labels.ravel()).reshape(4, 10).tolist()
    found = [own for client in labels for own in np.sort(client).reshape(2, 10).tolist()]
    assert collections.Counter(map(tuple, found)) == collections.Counter(map(tuple, shards))


@pytest.mark.integration
def test_a_round_of_blazefls_benchmark_is_plain_sgd():
    """With one step for each client, the mean of the clients' gradients moves the weights."""
    import tensorflow as tf

    from benchmarks import plain, workloads
    from tff_pcdd import federated, runtime
    from tff_pcdd.data import transforms

    workload = dataclasses.replace(blazefl.workload_of(2, True), batch_size=20, epochs=1)
    spec, clients = workload.build()
    with runtime.use("inprocess"):
        rounds = workloads.Rounds(federated.build_process(spec), clients)
        initial = rounds.state.weights["trainable"]
        rounds.next()
        moved = rounds.state.weights["trainable"]
    net = plain.keras_model(spec)
    net.set_weights(initial)
    gradients = []
    for client in clients:
        with tf.GradientTape() as tape:
            logits = net(transforms.normalize(client.x, spec.input_spec))
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(client.y, logits)
            loss = tf.reduce_mean(loss)
        gradients.append(tape.gradient(loss, net.trainable_variables))
    for weights, before, *found in zip(moved, initial, *gradients, strict=True):
        expected = before - 0.1 * np.mean([tf.convert_to_tensor(g) for g in found], axis=0)
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.integration
@pytest.mark.rare
def test_blazefls_benchmark_without_peers(monkeypatch, tmp_path):
    """This project is measured, the others are noted, and no target is met or missed."""
    environments = dict.fromkeys(peers.ENVIRONMENTS, tmp_path / "python")
    monkeypatch.setattr(peers, "ENVIRONMENTS", environments)
    section = blazefl.run(_QUICK)
    own, *others = section.tables[0].rows
    assert (own["contender"], own["ratio"], own["deviation"]) == ("inprocess", 1, 0)
    assert {row["contender"] for row in others} == set(blazefl.PEERS)
    assert all("make install-peers" in row["note"] for row in others)
    limits = {target.text.split(" over ")[1]: target for target in section.targets}
    assert limits["blazefl, BlazeFL's benchmark"].limit == 1.5
    assert all(target.met is None for target in section.targets)
    assert "2 clients × 20 images" in section.text
