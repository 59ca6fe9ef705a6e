"""The benchmark's report is complete, and its ratios follow from its seconds."""

import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import (
    SECTIONS,
    actors,
    local_step,
    measure,
    memory,
    peers,
    processes,
    report,
    step_flops,
)
from tests.markdown_tables import table_rows
from tff_pcdd import machine, models, stack
from tff_pcdd.calls import describe_machine
from tff_pcdd.runtime import launcher

# Memory of the benchmark in MB that no process has which it starts and measures.
_BALLAST = 1500
# As `python -m tasks.benchmark`.
_PROGRAM = f"""
import runpy
import numpy
ballast = numpy.ones({_BALLAST} * 10**6, numpy.uint8)
runpy.run_module("tasks.benchmark", run_name="__main__", alter_sys=True)
"""


QUICK = ("--quick", "--repeats=2")


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """The folder of a quick run of everything, by a process with ballast."""
    folder = tmp_path_factory.mktemp("benchmark")
    command = [sys.executable, "-c", _PROGRAM, *QUICK, f"--output_dir={folder}"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


def read_sections(folder):
    return json.loads((folder / "benchmark.json").read_text())["sections"]


@pytest.fixture(scope="module")
def sections(quick_run):
    return read_sections(quick_run)


def _paired(numerators, denominators):
    return float(np.median(np.divide(numerators, denominators)))


def test_report_is_complete(quick_run, sections):
    assert list(sections) == list(SECTIONS)
    page = (quick_run / "benchmark.md").read_text()
    without_targets = {"local_step", "precision", "serving"}
    if not processes.has_ray():
        without_targets |= {"actors", "studies", "soak"}
    for name, section in sections.items():
        assert f"## {section['title']}" in page
        assert section["tables"][0]["rows"]
        assert bool(section["targets"]) == (name not in without_targets)
    assert "Load average at the start" in page
    assert "numbers mean nothing" in page
    assert (quick_run / "images" / "benchmark.png").stat().st_size > 1000


def test_machine_is_described(quick_run):
    described = json.loads((quick_run / "benchmark.json").read_text())["machine"]
    assert described["cores"] >= 1
    assert described["cpu"]
    assert described["memory_gib"] > 0
    assert described["tensorflow"] == stack.version("tensorflow")
    assert described["tensorflow_federated"] == "0.87.0"
    assert len(described["load_average"]) == 3


def test_runtimes_are_set_beside_plain_and_stock(sections):
    rows = {row["contender"]: row for row in sections["runtimes"]["tables"][0]["rows"]}
    tff = ["tff"] if launcher.can_isolate() else []
    ray = ["ray"] if importlib.util.find_spec("ray") else []
    names = ["plain", "inprocess", "inprocess, one at a time", *tff, *ray, "stock"]
    assert list(rows) == names
    for row in rows.values():
        assert len(row["seconds"]) == 2
        assert row["median"] == statistics.median(row["seconds"])
        assert row["share"] == pytest.approx(_paired(rows["plain"]["seconds"], row["seconds"]))
        assert row["over_stock"] == pytest.approx(_paired(rows["stock"]["seconds"], row["seconds"]))
    targets = {target["text"]: target for target in sections["runtimes"]["targets"]}
    target = targets["speed of inprocess over plain, simple_cnn"]
    assert target["value"] == pytest.approx(rows["inprocess"]["share"])
    assert target["met"] == (target["value"] >= 0.9)


def test_precisions_are_compared(sections):
    """On a processor without instructions for bfloat16, only float32 is measured."""
    rows = {row["precision"]: row for row in sections["precision"]["tables"][0]["rows"]}
    slow = machine.slow_bfloat16()
    assert list(rows) == ["float32", "bfloat16"][: 1 if slow else 2]
    assert rows["float32"]["speed"] == 1
    for row in rows.values():
        assert row["median"] > 0
    assert ("bfloat16 is left out" in sections["precision"]["text"]) == (slow is not None)


def test_bytes_and_time_of_actors(sections):
    pytest.importorskip("ray")
    sent, checks, scale = (table["rows"] for table in sections["actors"]["tables"])
    for row in sent:
        # Weights once, two sums of as many values, and the states of two clients.
        assert row["least"] == pytest.approx(5 * row["weights"], rel=0.01)
        assert row["sum"] == pytest.approx(row["weights"] + row["clients"] + row["results"])
        assert row["ratio"] == pytest.approx(row["sum"] / row["least"])
    # Two numbers of actors by two of clients, and two of clients by three networks.
    assert len(checks) == 2 * 2
    for row in checks:
        assert row["client"] >= 0 and row["merge"] >= 0 and row["rest"] >= 0
        assert row["seconds"] > 0
    assert len(scale) == 2 * 3
    assert all(row["most_actors"] >= 1 for row in scale)


def test_the_model_of_the_time_of_a_round():
    # 0.2 s a client, 2 ns a merged byte, 4 MB of weights, and 0.5 s besides.
    model = actors.RoundTime(0.2, 2e-9, 4e6, 0.5)
    # With 100 MB/s, an actor costs the driver 80 ms to send and receive and 8 ms to merge.
    assert model.seconds(10, 4, 1e8) == pytest.approx(0.5 + 3 * 0.2 + 4 * 0.088)
    assert model.seconds(10, 4, math.inf) == pytest.approx(0.5 + 3 * 0.2 + 4 * 0.008)
    balance = model.most_actors(1000, 1e8)
    assert 1000 / balance * 0.2 == pytest.approx(balance * 0.088)
    assert balance == pytest.approx(47.67, abs=0.01)


@pytest.mark.parametrize("client", [0.0, 1e-6])
def test_there_is_at_least_one_actor(client):
    """Even where the driver takes longer than one actor."""
    assert actors.RoundTime(client, 2e-9, 4e6, 0.5).most_actors(1000, 1e8) == 1


def test_runs_at_a_time_are_compared(sections):
    one, two = sections["studies"]["tables"][0]["rows"]
    assert two["ratio"] == pytest.approx(two["seconds"] / one["seconds"])
    assert two["equal"] == "yes"


def test_memory_of_actors_is_compared_between_rounds(sections):
    pytest.importorskip("ray")
    rows = sections["soak"]["tables"][0]["rows"]
    for target, key in zip(sections["soak"]["targets"], ("driver_mb", "actors_mb"), strict=True):
        assert target["value"] == pytest.approx(rows[-1][key] / rows[0][key])
    # Two actors.
    assert all(row["actors_mb"] > 2 * 100 for row in rows)


def check_methods(section):
    (row,) = section["tables"][0]["rows"]
    assert row["ratio"] == pytest.approx(_paired(row["seconds"], row["fedavg_seconds"]))
    (target,) = section["targets"]
    assert target["met"] == (row["ratio"] <= 1.2)


def test_methods_are_measured_against_fedavg(sections):
    check_methods(sections["methods"])


@pytest.mark.slow
def test_a_single_section(succeed, tmp_path):
    """Methods are measured against FedAvg, and nothing else is."""
    succeed("benchmark", *QUICK, f"--output_dir={tmp_path}", "--sections=methods")
    sections, page = read_sections(tmp_path), (tmp_path / "benchmark.md").read_text()
    assert list(sections) == ["methods"]
    assert re.findall(r"^<!-- section (\w+) -->$", page, re.M) == ["methods"]
    assert f"## {sections['methods']['title']}" in page
    assert "numbers mean nothing" in page
    check_methods(sections["methods"])


def test_start_up_is_measured(sections):
    plain, own = sections["startup"]["tables"][0]["rows"]
    assert (plain["contender"], own["contender"]) == ("plain", "inprocess")
    for row in (plain, own):
        assert 0 < row["first_round_seconds"] < row["seconds"]
        assert 100 < row["memory_mb"] < _BALLAST
    for target, key in zip(
        sections["startup"]["targets"], ("first_round_seconds", "seconds"), strict=True
    ):
        assert target["value"] == own[f"{key}_ratio"] == pytest.approx(own[key] / plain[key])


def test_the_memory_of_a_process_is_not_that_of_its_parent():
    ballast = np.ones(300 * 10**6, np.uint8)
    assert processes.peak_memory(os.getpid()) > ballast.nbytes / 10**6
    # An interpreter that reports its own peak and waits for its input to end.
    code = (
        "import os, sys; from benchmarks.processes import peak_memory; "
        "print(peak_memory(os.getpid()), flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        reported = float(process.stdout.readline())
        outside = processes.peak_memory(process.pid)
        process.stdin.close()
    assert 5 < reported < 200
    assert outside == pytest.approx(reported, rel=0.1)


def test_memory_is_compared_between_rounds(sections):
    rows = sections["memory"]["tables"][0]["rows"]
    # Of a new process.
    assert all(100 < row["memory_mb"] < _BALLAST for row in rows)
    (target,) = sections["memory"]["targets"]
    assert target["value"] == pytest.approx(rows[-1]["memory_mb"] / rows[0]["memory_mb"])


def test_populations_are_compared_with_the_smallest(sections):
    rows = sections["population"]["tables"][0]["rows"]
    for row in rows:
        assert row["ratio"] == pytest.approx(_paired(row["seconds"], rows[0]["seconds"]))


def test_large_federations_are_compared_with_smaller_ones(sections):
    rounds, schemes = (table["rows"] for table in sections["large"]["tables"])
    for row in rounds:
        assert row["ratio"] == pytest.approx(_paired(row["seconds"], rounds[0]["seconds"]))
        assert row["start_seconds"] > 0
        assert 100 < row["memory_mb"] < _BALLAST
    targets = [target["value"] for target in sections["large"]["targets"]]
    assert targets[0] == rounds[-1]["ratio"]
    few, many = rounds
    assert targets[2] == pytest.approx(many["start_seconds"] / few["start_seconds"])
    assert targets[3] == max(row["ratio"] for row in schemes)


def test_peers_are_compared_with_this_project(sections):
    """Those that are not installed are listed, too."""
    rows = {row["contender"]: row for row in sections["peers"]["tables"][0]["rows"]}
    assert {"inprocess", "plain", "flower", "pfl"} <= set(rows)
    assert rows["inprocess"]["deviation"] == 0
    for row in rows.values():
        if "note" not in row:
            own = rows["inprocess"]["seconds"]
            assert row["ratio"] == pytest.approx(_paired(row["seconds"], own))
    if not peers.ENVIRONMENTS["torch"].exists():
        assert "make install-peers" in rows["flower"]["note"]


def test_blazefl_is_compared_with_this_project(sections):
    rows = {row["contender"]: row for row in sections["blazefl"]["tables"][0]["rows"]}
    assert set(rows) == {"inprocess", "blazefl", "pytorch", "pytorch, channels_last", "flower"}
    target = sections["blazefl"]["targets"][0]
    assert target["text"].startswith("speed of inprocess over blazefl")
    assert target["value"] == rows["blazefl"].get("ratio")


def test_server_is_compared_with_the_bare_model(sections):
    if not processes.SERVING_PYTHON.exists():
        pytest.skip("the server is not installed")
    rows = sections["serving"]["tables"][0]["rows"]
    assert [(row["images"], row["clients"]) for row in rows] == [(1, 1), (2, 2)]
    for row in rows:
        assert len(row["seconds"]) == len(row["bare_seconds"]) == 2
        assert row["ratio"] == pytest.approx(_paired(row["bare_seconds"], row["seconds"]))
        # Four requests in a repeat.
        assert row["rate"] == pytest.approx(np.median(np.divide(4, row["seconds"])))
        assert 0 < row["p50"] <= row["p99"] < 1000 * max(row["seconds"])


@pytest.mark.integration
def test_a_server_that_is_not_installed_is_noted(monkeypatch, tmp_path):
    from benchmarks import serving

    monkeypatch.setattr(processes, "SERVING_PYTHON", tmp_path / "python")
    (table,) = serving.run(measure.Plan(quick=True)).tables
    (row,) = table.rows
    assert "make install-serving" in row["note"]


@pytest.mark.integration
def test_plain_loop_does_the_work_of_a_round():
    """With a batch for all samples, where their order does not matter, the weights are the same."""
    import tensorflow as tf

    from benchmarks import plain, workloads
    from tff_pcdd import federated, runtime

    learning, clients = workloads.Workload("simple_cnn", 2, 8, 8, 2).build()
    loop = plain.PlainLoop(learning, clients)
    with runtime.use("inprocess"):
        rounds = workloads.Rounds(federated.build_process(learning), clients)
        loop.weights = [tf.constant(w) for w in rounds.state.weights["trainable"]]
        rounds.next()
        weights = rounds.state.weights["trainable"]
    loop.next()
    for plainly, federally in zip(loop.weights, weights, strict=True):
        np.testing.assert_allclose(plainly, federally, rtol=1e-4, atol=1e-6)


def test_contenders_alternate_after_an_untimed_first_call():
    calls = []
    contenders = {name: lambda name=name: calls.append(name) for name in "abc"}
    seconds = measure.alternate(contenders, repeats=2)
    assert "".join(calls) == "abc" + "abc" + "cba"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2, "c": 2}


def test_cohorts_have_every_size_in_turn():
    sizes = memory.cohort_sizes(25)
    assert sorted(sizes[:11]) == sorted(sizes[11:22]) == list(range(2, 13))
    assert len(sizes) == 25


@pytest.mark.parametrize(
    ("value", "at_least", "met"),
    [
        (1.0, True, True),
        (0.8, True, False),
        (0.8, False, True),
        (1.0, False, False),
        (None, 0, None),
    ],
)
def test_target_knows_whether_it_is_met(value, at_least, met):
    assert report.Target("", value, 0.9, bool(at_least)).met is met


def test_page_says_why_a_contender_is_missing():
    table = report.Table("", {"contender": "name", "": "note"}, [{"name": "stock", "note": "no"}])
    machine = {**describe_machine(), "load_average": [1.0, 2.0, 3.0]}
    settings = {"repeats": 1, "seconds": 1.0, "quick": False}
    target = report.Target("speed", None, 1.8, at_least=True)
    page = report.to_markdown(
        machine, settings, {"runtimes": report.Section("Runtimes", "", [table], [target])}
    )
    assert ["stock", "no"] in table_rows(page)
    assert ["speed", "≥ 1.8", "", "not measured"] in table_rows(page)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sections=speed"], "--sections=speed: choose one of runtimes"),
        (["--sections=memory,memory"], "--sections=memory,memory: memory is named twice"),
        (["--repeats=0"], "--repeats=0: must be at least 1"),
        (["--output_dir="], "--output_dir: is required"),
        (
            ["--peers", "--sections=memory"],
            "--peers: is a section of its own; leave out --sections",
        ),
        (["--peers"], "--peers: no environment of a peer exists; run make install-peers"),
        (["--page=p.md", "--peers"], "--page=p.md: needs all sections; leave out --peers"),
        (
            ["--page=p.md", "--sections=soak"],
            "--page=p.md: needs all sections; leave out --sections",
        ),
    ],
)
def test_refusals_are_one_line(tmp_path, call_here, monkeypatch, flags, message):
    environments = dict.fromkeys(peers.ENVIRONMENTS, tmp_path / "python")
    monkeypatch.setattr(peers, "ENVIRONMENTS", environments)
    status, out, err = call_here("benchmark", f"--output_dir={tmp_path}", *flags)
    assert status == 2
    assert out == ""
    assert err.startswith(f"benchmark: error: {message}")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_operations_of_a_layer_are_counted_from_its_shapes():
    model = models.create("simple_cnn").network((32, 32, 3), 0)
    found = {(p.layer, p.kind): p for p in step_flops.products(model, 2)}
    # Output positions × weights × two operations × two samples.
    convolutions = [28 * 28 * 5 * 5 * 3 * 6 * 4, 10 * 10 * 5 * 5 * 6 * 16 * 4]
    dense = [400 * 120 * 4, 120 * 84 * 4]
    forward = [p.flops for (_, kind), p in found.items() if kind == step_flops.FORWARD]
    assert forward == convolutions + dense
    # Images have no gradient.
    assert step_flops.total(list(found.values())) == 3 * sum(forward) - forward[0]
    first = next(iter(found.values()))
    assert first.shape == "5×5, 32×32×3 → 28×28×6"
    assert first.traffic == 4 * (2 * 32 * 32 * 3 + 2 * 28 * 28 * 6 + 5 * 5 * 3 * 6)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("while/net/conv2d_1/Relu", "FusedConv2D", ("conv2d_1", step_flops.FORWARD)),
        ("gradient_tape/net/dense/MatMul/MatMul", "MatMul", ("dense", step_flops.TO_INPUT)),
        ("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul", ("dense", step_flops.TO_WEIGHTS)),
        (
            "gradient_tape/net/conv2d/Conv2D/Conv2DBackpropFilter",
            "Conv2DBackpropFilterWithBias",
            ("conv2d", step_flops.TO_WEIGHTS),
        ),
        ("gradient_tape/net/conv2d/ReluGrad", "ReluGrad", None),
        ("while/body/MatMul_49", "MatMul", None),
    ],
)
def test_products_are_found_by_the_names_of_operations(name, kind, expected):
    assert local_step.product_of(name, kind) == expected


def test_gradients_of_convolutions_as_products_of_matrices_have_a_row():
    group = local_step.group_of("while/body/MatMul_49", "MatMul")
    assert group == "convolutions, gradients as products of matrices"
    dense = local_step.group_of("gradient_tape/net/dense/MatMul/MatMul_1", "MatMul")
    assert dense == "dense layers, gradient of weights"


def test_of_two_measurements_of_a_peak_the_higher_one_counts():
    first = {1: {"matmul_float32": 3.0, "traffic": 1.0}, 2: {"matmul_float32": 4.0, "traffic": 2.0}}
    second = {
        1: {"matmul_float32": 2.0, "traffic": 5.0},
        2: {"matmul_float32": 6.0, "traffic": 1.0},
    }
    assert local_step.highest(first, second) == {
        1: {"matmul_float32": 3.0, "traffic": 5.0},
        2: {"matmul_float32": 6.0, "traffic": 2.0},
    }


def test_products_of_equal_layers_are_added():
    product = {"shape": "1×1", "kind": step_flops.FORWARD, "flops": 6e9, "traffic": 1e9}
    profile = {
        "products": [product | {"layer": name} for name in ("conv2d", "conv2d_1")],
        "operations": [
            {"name": f"a/{name}/Conv2D", "type": "Conv2D", "executions": 1, "seconds": seconds}
            for name, seconds in (("conv2d", 1.0), ("conv2d_1", 2.0))
        ],
    }
    (row,) = local_step.product_rows(profile, peak=8e9)
    assert (row["layers"], row["ms"]) == (2, 3000)
    assert (row["rate"], row["of_peak"], row["intensity"]) == (4, 0.5, 6)


def test_parts_of_a_local_step(quick_run, sections):
    peak, steps, parts, _ = (table["rows"] for table in sections["local_step"]["tables"])
    assert all(value > 0 for value in peak[0].values())
    assert steps[0]["rate"] == pytest.approx(steps[0]["gflop"] / steps[0]["ms"] * 1000)
    assert sum(row["share"] for row in parts) == pytest.approx(1)
    assert any(row["part"] == "convolutions, forward" for row in parts)
    assert (quick_run / "images" / "local_step.png").stat().st_size < 200_000
