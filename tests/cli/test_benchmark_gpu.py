"""The sections for GPUs: what they keep, what they continue, and what follows from measurements."""

import dataclasses
import json
import queue
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import GPU_SECTIONS, measure, peers, processes, report
from benchmarks.gpu import __main__ as page
from benchmarks.gpu import children, graphs, ledger, products, record, scale, sight, speed
from tests import waiting
from tff_pcdd.errors import SettingError

PLAN = measure.Plan(quick=True)


@pytest.fixture
def plan(tmp_path):
    return dataclasses.replace(PLAN, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.rare
def test_all_sections_run_on_a_processor_and_continue(tmp_path):
    command = [sys.executable, "-m", "tasks.benchmark", "--quick", "--sections=gpu"]
    command += [f"--output_dir={tmp_path}", "--minutes=20"]
    if (torch := peers.ENVIRONMENTS["torch"]).exists():
        command.append(f"--torch_python={torch}")
    subprocess.run(command, check=True, cwd=processes.ROOT)
    sections = json.loads((tmp_path / "benchmark.json").read_text())["sections"]
    assert list(sections) == list(GPU_SECTIONS)
    before = {}
    for name in GPU_SECTIONS:
        text = (tmp_path / f"{name}.json").read_text()
        before[name] = json.loads(text)["cases"]
        assert before[name]
        assert "note" not in text.replace("notes", "")
    assert before["gpu_sight"]["tests"]["passed"] == 1
    assert before["gpu_sight"]["first steps, programs kept"]["kept"]
    repeated = next(t for t in sections["gpu_record"]["targets"] if "different" in t["text"])
    # XLA's programs for processors are not repeatable bit for bit.
    assert repeated["value"] in (1, 2)
    rows = sections["gpu_graphs"]["tables"][0]["rows"]
    assert len(rows) == 4
    # The network of products is the same one.
    assert max(row["deviation"] for row in rows) < 1e-5
    if torch.exists():
        rows = sections["gpu_speed"]["tables"][2]["rows"]
        (deviation,) = (row["deviation"] for row in rows if row["program"].startswith("PyTorch"))
        assert deviation < 1e-5
    # Nothing is measured again.
    subprocess.run(command, check=True, cwd=processes.ROOT)
    for name in GPU_SECTIONS:
        assert json.loads((tmp_path / f"{name}.json").read_text())["cases"] == before[name]


def test_without_a_gpu_nothing_is_measured(monkeypatch):
    monkeypatch.setattr("tff_pcdd.machine.has_gpu", lambda: False)
    for module in (sight, speed, graphs, record, scale):
        (table,) = module.run(measure.Plan()).tables
        assert table.rows == [{"note": "not measured: TensorFlow sees no GPU"}]
    monkeypatch.setattr("tff_pcdd.machine.has_gpu", lambda: True)
    (table,) = scale.run(measure.Plan()).tables
    assert table.rows[0]["note"].startswith("not measured: --data_dir has to name")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sections=gpu,gpu_speed"], "--sections=gpu,gpu_speed: gpu_speed is named twice"),
        (["--sections=gpus"], "--sections=gpus: choose one of runtimes"),
        (["--sections=gpu", "--minutes=0"], "--minutes=0.0: must be above 0"),
        (["--sections=gpu", "--torch_python=no/python"], "--torch_python=no/python: is no program"),
        (
            ["--sections=gpu", "--torch_python=false"],
            "--torch_python=false: is no Python with PyTo",
        ),
    ],
)
def test_refusals_are_one_line(tmp_path, call_here, flags, message):
    status, out, err = call_here("benchmark", f"--output_dir={tmp_path / 'gpu'}", *flags)
    assert (status, out) == (2, "")
    assert err.startswith(f"benchmark: error: {message}")
    assert err.count("\n") == 1


def test_measurements_are_kept_and_those_of_another_commit_refused(plan, monkeypatch):
    calls = []
    first = ledger.Ledger(plan, "gpu_step")
    first.measure("a", lambda: calls.append("a") or 1)
    second = ledger.Ledger(plan, "gpu_step")
    second.measure("a", lambda: calls.append("a") or 2)
    second.measure("b", lambda: calls.append("b") or 3)
    assert (calls, second.cases) == (["a", "b"], {"a": 1, "b": 3})
    late = ledger.Ledger(dataclasses.replace(plan, minutes=0), "gpu_step")
    late.measure("c", lambda: calls.append("c"))
    assert "c" not in late.cases
    monkeypatch.setattr(ledger, "describe_machine", lambda: {"commit": "other"})
    with pytest.raises(SettingError, match=r"gpu_step.json is of commit .*, here it is other"):
        ledger.Ledger(plan, "gpu_step")


PROGRAM = """
import json, sys, time
for case in json.loads(sys.argv[1]):
    if case["does"] == "fail":
        sys.exit("it is broken")
    if case["does"] == "hang":
        print("hangs", flush=True)
        time.sleep(1000)
    print("something else")
    print(json.dumps({"value": 10 * case["value"]}), flush=True)
"""


class Lines(queue.Queue):
    """Lines of `PROGRAM`: time counts when it hangs, and not while it starts."""

    def get(self, timeout):
        line = super().get()
        if line == "hangs\n":
            time.sleep(timeout)
            raise queue.Empty
        return line


@pytest.fixture
def waits_only_for_what_hangs(monkeypatch):
    monkeypatch.setattr(children.queue, "Queue", Lines)


def measured(plan, cases, seconds):
    def program(left):
        return children.other(sys.executable, "-c", PROGRAM, json.dumps(list(left)))

    kept = ledger.Ledger(plan, "gpu_step")
    return [found for _, found in children.measured_in_turn(program, cases, kept, seconds)]


@pytest.mark.usefixtures("waits_only_for_what_hangs")
def test_a_case_that_fails_or_hangs_does_not_keep_others_from_being_measured(plan):
    does = ("run", "fail", "run", "hang", "run")
    cases = [{"does": name, "value": number} for number, name in enumerate(does)]
    found = measured(plan, cases, 1)
    assert found[0] == {"value": 0}
    assert found[1] == {"note": "exited with 1: it is broken"}
    assert found[2] == {"value": 20}
    assert found[3] == {"note": "not finished after 1 s"}
    assert found[4] == {"value": 40}


@pytest.mark.usefixtures("waits_only_for_what_hangs")
def test_at_the_deadline_the_rest_is_left_for_the_next_call(plan):
    cases = [{"does": "run", "value": 1}, {"does": "hang", "value": 2}]
    assert measured(dataclasses.replace(plan, minutes=0.05), cases, 100) == [{"value": 10}]


def test_other_pythons_do_not_find_the_packages_of_this_one(monkeypatch, tmp_path):
    """Only the driver, whose folder may be among those of libraries."""
    (tmp_path / "cudnn").mkdir()
    (tmp_path / "cudnn" / "libcudnn.so.9").touch()
    monkeypatch.setenv("PYTHONPATH", "here")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/cudnn")
    _, environment = children.other("python", "program.py")
    assert not {"PYTHONPATH", "LD_LIBRARY_PATH"} & set(environment)
    assert "PATH" in environment
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/driver/lib64:{tmp_path}/cudnn:")
    _, environment = children.other("python", "program.py")
    assert environment["LD_LIBRARY_PATH"] == "/driver/lib64"


def test_what_failed_is_measured_again_by_the_next_call(plan):
    kept = ledger.Ledger(plan, "gpu_step")
    kept.record("failed", {"note": "not finished after 3 s"})
    kept.record("measured", {"seconds": 2.0})
    kept = ledger.Ledger(plan, "gpu_step")
    kept.measure("failed", lambda: {"seconds": 1.0})
    kept.measure("measured", lambda: pytest.fail("it is measured already"))
    assert kept.cases == {"failed": {"seconds": 1.0}, "measured": {"seconds": 2.0}}


def test_interrupted_tests_report_what_they_have(plan, tmp_path, monkeypatch):
    """One of two tests has passed when the time is over."""
    path, begun = tmp_path / "test_slowly.py", tmp_path / "begun"
    path.write_text(
        "import pathlib, time, pytest\npytestmark = pytest.mark.gpu\ndef test_a(): pass\n"
        f"def test_b(): pathlib.Path({str(begun)!r}).touch(); time.sleep(1000)\n"
    )

    class Process(subprocess.Popen):
        """Its time is over when the second test has begun."""

        def wait(self, timeout=None):
            if timeout == 200:
                waiting.until(begun.exists, self)
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait(timeout)

    monkeypatch.setattr(sight, "_TESTS", [str(path)])
    monkeypatch.setattr(sight, "_ENDS", 100)
    monkeypatch.setattr(sight.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sight.subprocess, "Popen", Process)
    found = sight._tests(dataclasses.replace(plan, quick=False), 300)
    assert (found["passed"], found["note"]) == (1, "not finished after 300 s")


def test_tests_are_counted_from_their_report(tmp_path):
    (tmp_path / "tests.xml").write_text(
        '<testsuites><testsuite><testcase classname="a" name="b"/><testcase classname="a" name="c">'
        '<failure message="wrong">by 3</failure></testcase><testcase classname="a" name="d">'
        '<skipped message="no GPU"/></testcase></testsuite></testsuites>'
    )
    found = sight._counts(tmp_path / "tests.xml")
    assert found.pop("failed") == {"a::c": "wrong\nby 3"}
    assert found == {"passed": 1, "failures": 1, "skipped": 1}


def own(precision, speed, compile="client"):
    return {"model": "lstm", "at_a_time": 1, "precision": precision, "compile": compile,
            "samples_per_second": speed, "flops": 4.0 * speed, "norms": {"w": 2.0}}  # fmt: skip


def test_speed_is_set_beside_the_peak_and_pytorch_in_the_same_precision():
    torch = {"model": "lstm", "at_a_time": 0, "mode": "eager", "precision": "tf32"}
    cases = {
        "peak": {"matmul_float32": 400.0, "conv_float32": 800.0, "matmul_tf32": 1600.0},
        "lstm, 1 at a time, float32, client": own("float32", 100.0),
        "lstm, 1 at a time, tf32, client": own("tf32", 200.0),
        "lstm, 1 at a time, tf32, off": own("tf32", 50.0, "off"),
        "lstm, pytorch, eager, tf32": {**torch, "samples_per_second": 80.0, "norms": {"w": 2.1}},
        "lstm, pytorch, compile, tf32": {**torch, "mode": "compile", "note": "failed"},
    }
    rows = [speed._row(case, cases) for name, case in cases.items() if name != "peak"]
    assert [row.get("of_peak") for row in rows] == [0.5, 0.5, 0.125, 0.2, None]
    assert [row.get("deviation") for row in rows[:4]] == [0, 0, 0, pytest.approx(0.05)]
    (target,) = speed._targets("lstm", rows)
    assert (target.value, target.limit, target.met) == (2.5, 2.0, True)
    (target,) = speed._targets("simple_cnn", rows)
    assert (target.limit, target.met) == (5.0, False)


def test_convolutions_as_products_are_convolutions():
    draw = np.random.default_rng(0)
    x, kernel = draw.normal(size=(2, 7, 9, 3)), draw.normal(size=(5, 3, 3, 4))
    expected = np.zeros((2, 3, 7, 4))
    for row, column in np.ndindex(3, 7):
        window = x[:, row : row + 5, column : column + 3]
        expected[:, row, column] = np.einsum("bhwc,hwcf->bf", window, kernel)
    found = products._convolve(tf.constant(x), tf.constant(kernel), size=(5, 3))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_all_cases_have_names_of_their_own():
    with_torch = dataclasses.replace(measure.Plan(), torch_python="python")
    batches = list(speed._batches(speed.WORKLOADS, with_torch))
    names = [batch.key(case) for batch in batches for case in batch.cases]
    assert len(set(names)) == len(names)
    assert "wide_resnet, pytorch, compile, bfloat16" in names
    # Each network is set beside PyTorch before any is measured with all its choices.
    first = {}
    for number, batch in enumerate(batches):
        first.setdefault((batch.workload.model, batch.at_a_time), number)
    assert max(first[model, 0] for model in ("simple_cnn", "resnet18")) < 7
    assert max(first[workload.model, 0] for workload in speed.WORKLOADS) < first["simple_cnn", 8]
    for workload in speed.WORKLOADS:
        # No step is on a smaller batch.
        assert workload.samples % workload.batch_size == 0


def test_the_record_is_the_best_deterministic_run_that_is_repeated():
    rows = [
        {"model": "simple_cnn", "precision": "float32", "deterministic": "yes", **values}
        for values in ({"total": 9.0, "weights": "a"}, {"total": 7.0, "weights": "a"}, {"note": ""})
    ]
    rows.append({**rows[0], "deterministic": "no", "total": 1.0, "weights": "b"})
    seconds, different, *others = record.targets_of(rows)
    assert (seconds.value, seconds.met, different.value, different.met) == (7.0, True, 1, True)
    assert [target.value for target in others] == [None, None]
    rows[1]["weights"] = "c"
    assert record.targets_of(rows)[1].met is False


def test_the_fastest_number_of_clients_at_a_time_is_taken_from_the_measurements():
    def case(number, speed, **changes):
        about = {"model": "lstm", "precision": "tf32", "compile": "client", "at_a_time": number}
        return {**about, "samples_per_second": speed, **changes}

    cases = {
        "peak": {"matmul_tf32": 1.0},
        "a": case(1, 100.0),
        "b": case(4, 250.0),
        "c": case(8, 240.0),
        # Other ways to compile, PyTorch, failures, and what was measured once only do not count.
        "d": case(2, 900.0, compile="off"),
        "e": {"model": "lstm", "precision": "tf32", "mode": "eager", "at_a_time": 0},
        "f": {
            "model": "lstm",
            "precision": "tf32",
            "compile": "client",
            "at_a_time": 2,
            "note": "",
        },
        "g": case(1, 100.0, model="wide_resnet"),
        "clients_per_gpu": [],
    }
    assert speed.clients_per_gpu(cases) == [
        {"model": "lstm", "precision": "tf32", "at_a_time": 4, "samples_per_second": 250.0,
         "measured": "1, 4, 8", "gain": 2.5},
    ]  # fmt: skip


def test_runs_at_the_published_scale_have_the_settings_of_the_flagfiles():
    flags = scale.runs(dataclasses.replace(measure.Plan(), data_dir="data"))
    first, ablation = (
        flags[f"fedgela/table5_cifar10_{name}"]
        for name in ("p50c2, fedavg", "p10c2, fedgela, scale 1")
    )
    expected = {"model": "resnet18", "num_clients": "50", "clients_per_round": "10",
                "rounds": "100", "batch_size": "100", "projection_dim": "84", "algorithm": "fedavg",
                "classes_per_client": "2", "precision": "tf32", "data_dir": "data"}  # fmt: skip
    assert expected.items() <= first.items()
    assert not [name for name in first if name.startswith(("fedgela", "fedge_", "fedgen"))]
    assert (ablation["num_clients"], ablation["fedgela_scale"]) == ("10", "1")
    assert ablation["nofedgela_masked"] == ""
    fedmr = flags["fedmr/table1_cifar10_p10c2, fedmr"]
    assert (fedmr["fedmr_mu1"], fedmr["augmentation"]) == ("1e-5", "reflect")
    fedloge = flags["fedloge/table1_cifar10_if100_dir0.5, fedloge"]
    assert (fedloge["imbalance_factor"], fedloge["rounds"]) == ("100", "500")
    assert "ratioloss_cap" not in fedloge
    assert "fedavg_realign" in flags["fedloge/table1_cifar10_if100_dir0.5, fedavg"]
    # No run is there twice, and all of them have the settings of runs.
    assert len(flags) == sum(len(methods) for _, methods in scale.TABLES)
    assert not [run for run in flags.values() if {"algorithms", "seeds", "flagfile"} & {*run}]


@pytest.mark.parametrize(
    ("flagfile", "method", "figures"),
    [
        ("fedgela/table5_cifar10_p50c2", "fedgela", {"pa": 95.42, "ga": 54.78}),
        ("fedgela/table5_cifar10_p50c2", "fedge", {}),
        ("fedgela/table5_cifar10_p10c2", "fedgela, scale 1", {}),
        ("fedmr/table1_cifar10_p10c2", "fedavg", {"ga": 67.27}),
        ("fedloge/table1_cifar10_if100_dir0.5", "fedloge", {"ga": 76.72, "pm": 90.96}),
    ],
)
def test_runs_are_set_beside_the_published_figures(flagfile, method, figures):
    found = scale.published(flagfile, method)
    assert found == {f"published_{name}": value for name, value in figures.items()}


def test_a_run_that_has_not_ended_travels_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "_PIECE", 4096)
    work, folder, again = tmp_path / "work", tmp_path / "out", tmp_path / "again"
    for path in (work / "run", folder, again):
        path.mkdir(parents=True)
    scale.unpack(folder, again)
    assert not list(again.iterdir())
    contents = bytes(range(256)) * 50
    (work / "run" / "checkpoint").write_bytes(contents)
    scale.pack(work, folder)
    assert max(path.stat().st_size for path in folder.iterdir()) == 4096
    scale.unpack(folder, again)
    assert (again / "run" / "checkpoint").read_bytes() == contents
    scale.remove_pieces(folder)
    assert not list(folder.iterdir())


def test_a_run_is_continued_and_a_failed_one_is_tried_again_by_the_next_call(plan, monkeypatch):
    started = []

    def train(command, environment, seconds):
        started.append(command[-1])
        return notes.pop(0)

    monkeypatch.setattr(scale, "_train", train)
    notes = [scale.CONTINUES]
    (table,) = scale.run(plan).tables
    assert [row["note"] for row in table.rows] == [scale.CONTINUES]
    assert list(plan.folder.glob("gpu_scale.tar.*"))
    errors = [f"train: error: no {what}" for what in ("memory", "disk", "data")]
    notes = [*errors]
    (table,) = scale.run(plan).tables
    assert [row["note"] for row in table.rows] == errors
    assert not list(plan.folder.glob("gpu_scale.tar.*"))
    assert len(started) == 4
    notes = [*errors]
    scale.run(plan)
    assert len(started) == 7


def test_the_page_shows_the_measured_files():
    text = (processes.ROOT / page.PAGE).read_text(encoding="utf-8")
    assert text == page.page()
    assert report.is_unchanged(text)
    # The files are read as they are.
    record = json.loads((page.MEASURED / "h200" / "gpu_record.json").read_text())
    total = record["cases"]["simple_cnn, float32, True, 1, 0"]["total"]
    assert f"| seconds of BlazeFL's benchmark, simple_cnn | ≤ 8 | {total:.2f} |" in re.sub(
        " +", " ", text
    )
