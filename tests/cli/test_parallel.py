"""Several runs at a time from the command line: refusals, and results equal to serial ones."""

import csv
import json
import re
import signal

import pytest

from tests import waiting

# What is there for each test of a refusal: a program with the flags that it requires.
PROGRAMS = {
    "compare": ["--algorithms=fedavg,fedmr"],
    "sweep": ["--grid=client_learning_rate=0.01,0.05", "--validation_fraction=0.2"],
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--parallel_runs=0"], "--parallel_runs=0: must be at least 1"),
        (["--parallel_runs=two"], "flag --parallel_runs=two: must be a whole number"),
        (["--run_cpus=1"], "--run_cpus=1.0: applies only with --parallel_runs above 1"),
        (["--ray_address=auto"], "--ray_address=auto: applies only with --runtime=ray"),
        (
            ["--parallel_runs=2", "--ray_address=auto"],
            "--ray_address=auto: cannot be combined with --parallel_runs above 1; to use several "
            "machines, start the same command on each of them, with a common --output_dir",
        ),
        (
            ["--parallel_runs=2", "--run_cpus=999"],
            "--run_cpus=999.0: 2 runs at a time need 1998 CPU cores, and this machine has ",
        ),
    ],
)
def test_refusals(program, flags, line, call_here, tmp_path):
    out = tmp_path / "out"
    status, _, err = call_here(program, *PROGRAMS[program], *flags, f"--output_dir={out}")
    assert status == 2
    assert err.startswith(f"{program}: error: {line.removeprefix('flag ')}")
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_dry_run_describes_the_same_runs(call_here, tmp_path):
    flags = [*PROGRAMS["compare"], "--dry_run", f"--output_dir={tmp_path / 'out'}"]
    # Unless an earlier test has, a first call imports TensorFlow, and says so.
    call_here("compare", *flags)
    serial = call_here("compare", *flags)
    assert serial[0] == 0
    assert call_here("compare", *flags, "--parallel_runs=2") == serial


# End to end.

MODULE = '''
import dataclasses

import numpy as np
import tensorflow as tf

from tff_pcdd import data, methods


@methods.register
@dataclasses.dataclass(frozen=True)
class Halved(methods.Method):
    """FedAvg with half of the loss."""

    name = "halved"

    def loss(self, net, batch, client):
        logits = net["head"](self.embed(net, batch.x, training=True))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.y, logits)
        return tf.reduce_mean(losses) / 2, {}


@data.sources.register
@dataclasses.dataclass(frozen=True)
class Stripes(data.sources.ImageSource):
    """Images with one bright row, which is the class."""

    info = data.DatasetInfo("stripes", "image", num_classes=4, shape=(8, 8, 1))

    def load(self, request):
        labels = np.arange(160) % 4
        images = np.random.default_rng(0).integers(0, 100, (160, 8, 8, 1)).astype(np.uint8)
        images[np.arange(160), 2 * labels] += 100
        examples = data.Examples(images, labels)
        return data.sources.PooledData(examples, examples, tuple("abcd"), self.image_spec())
'''
SMALL = [
    "--import=own_stripes",
    "--dataset=stripes",
    "--model=mlp",
    "--num_clients=4",
    "--classes_per_client=2",
    "--local_epochs=1",
    "--noreport",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with a module."""
    directory = tmp_path_factory.mktemp("parallel")
    (directory / "own_stripes.py").write_text(MODULE)
    return directory


@pytest.mark.slow
def test_a_comparison_in_parallel_equals_a_serial_one(folder, start, succeed):
    """Also one that is ended by a signal, and resumed; a warning about all runs is shown once."""
    flags = [*SMALL, "--algorithms=fedavg,halved", "--rounds=30", "--bn=personal"]
    printed = succeed("compare", *flags, "--output_dir=serial", cwd=folder)
    flags += ["--parallel_runs=2", "--output_dir=parallel"]
    runs = [folder / "parallel" / name / "seed_0" for name in ("fedavg", "halved")]
    with start("compare", *flags, cwd=folder) as program:
        try:
            waiting.until(lambda: any((run / "metrics.csv").exists() for run in runs), program)
            program.send_signal(signal.SIGTERM)
            _, err = program.communicate(timeout=300)
        finally:
            program.kill()
    assert program.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == "compare: terminated; the same command resumes it"
    assert err.count("bn=personal: has no effect") == 1
    assert not any((run / "summary.json").exists() for run in runs[1:])
    resumed = succeed("compare", *flags, cwd=folder)
    assert resumed.replace("parallel", "serial") == printed
    assert_equal_studies(folder / "serial", folder / "parallel")
    for run in runs:
        assert json.loads((run / "config.json").read_text())["import"].keys() == {"own_stripes"}


@pytest.mark.slow
@pytest.mark.rare
def test_more_rounds_continue_the_runs(folder, succeed):
    flags = [*SMALL, "--algorithms=fedavg,halved", "--parallel_runs=2", "--output_dir=continued"]
    for rounds in (1, 3):
        succeed("compare", *flags, f"--rounds={rounds}", cwd=folder)
        runs = [folder / "continued" / name / "seed_0" for name in ("fedavg", "halved")]
        summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
        assert [summary["rounds"] for summary in summaries] == [rounds] * 2


@pytest.mark.slow
@pytest.mark.rare
def test_a_sweep_in_parallel_equals_a_serial_one(folder, succeed):
    flags = [flag for flag in SMALL if flag != "--noreport"]
    flags += [*PROGRAMS["sweep"], "--algorithm=fedavg", "--rounds=2"]
    printed = succeed("sweep", *flags, "--output_dir=sweep_serial", cwd=folder)
    flags += ["--parallel_runs=2", "--run_cpus=0.5", "--output_dir=sweep_parallel"]
    # With one thread each, which a process on its own can have too.
    again = succeed("sweep", *flags, cwd=folder)
    assert again.replace("sweep_parallel", "sweep_serial") == printed
    names = {path.name for path in (folder / "sweep_parallel").iterdir()}
    assert {"sweep.csv", "sweep.md", "sweep.png", "best.flags"} <= names


@pytest.mark.slow
@pytest.mark.rare
def test_a_sweep_over_methods_in_parallel_equals_a_serial_one(folder, start, call, succeed):
    """Also one that is ended by a signal between its first and its last run, and resumed."""
    flags = [*SMALL, "--algorithms=fedavg,halved", "--rounds=4", "--rungs=0.5", "--final_seeds=1"]
    flags += ["--halving=all", "--validation_fraction=0.2", "--grid=client_learning_rate=0.01,0.1"]
    printed = succeed("sweep", *flags, "--output_dir=methods_serial", cwd=folder)
    flags += ["--parallel_runs=2", "--output_dir=methods_parallel"]
    directory = folder / "methods_parallel"
    with start("sweep", *flags, cwd=folder) as program:
        try:
            # After the first rung.
            waiting.until((directory / "sweep.csv").exists, program)
            program.send_signal(signal.SIGTERM)
            _, err = program.communicate(timeout=300)
        finally:
            program.kill()
    assert program.returncode == 128 + signal.SIGTERM, err
    assert err.splitlines()[-1] == "sweep: terminated; the same command resumes it"
    assert not (directory / "sweep.md").exists()
    status, again, err = call("sweep", *flags, cwd=folder)
    assert status == 0, err
    # For the last rung and for the final runs.
    assert err.count("importing TensorFlow …") == 1
    assert (directory / "sweep.csv").read_text().count("\n") == 1 + 2 + 2
    assert_equal_studies(folder / "methods_serial", directory)
    assert without_numbers(again).replace("parallel", "serial") == without_numbers(printed)


def without_numbers(text):
    """A text without what is measured, such as times."""
    return re.sub(r"[ -]+", " ", re.sub(r"\d+\.\d+", "", text))


def assert_equal_studies(one, other):
    """Compares all files of two studies byte for byte, but for times and what depends on them."""
    paths = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    # Their names contain the time, and the record of the calls differs as the calls do.
    paths = {p for p in paths if "tensorboard" not in p.parts and p.name != "calls.jsonl"}
    assert {"npz", "png", "csv", "json", "md"} <= {path.suffix[1:] for path in paths}
    for path in sorted(paths):
        contents = [(folder / path).read_bytes() for folder in (one, other)]
        if contents[0] != contents[1]:
            assert path.suffix in (".csv", ".json", ".md"), path
            assert without_times(path, contents[0]) == without_times(path, contents[1]), path


def without_times(path, content):
    """The contents of a file without columns and keys that are about times."""
    text = content.decode()
    if path.suffix == ".csv":
        rows = csv.DictReader(text.splitlines())
        return [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    if path.suffix == ".json":
        values = json.loads(text)
        # Checkpoints contain a copy of metrics.csv, and checksums of files with times.
        timed = ("checksum", "content") if "checkpoints" in path.parts else ()
        return {k: v for k, v in values.items() if "second" not in k and k not in timed}
    lines, timed = [], set()
    for line in text.splitlines():
        # Columns are as wide as their cells.
        cells = [cell.strip().strip("-") for cell in line.split("|")]
        if "method" in cells:
            timed = {n for n, name in enumerate(cells) if name.startswith(("s/round", "time over"))}
        lines.append([cell for n, cell in enumerate(cells) if n not in timed])
    return lines
