"""Writing a report: what is missing or damaged, and what happens if it fails."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import pytest
from absl import logging

from tests.report.directories import make_comparison, make_run
from tff_pcdd import files, studies, training
from tff_pcdd.cli import compare, report, signals, train
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.report import LiveReport, write_report
from tff_pcdd.training import manifests


def test_a_report_is_written_again_only_if_it_changes(tmp_path):
    make_run(tmp_path)
    path = write_report(run_dir=tmp_path).path
    assert path == tmp_path / "report.html"
    os.utime(path, (0, 0))
    write_report(run_dir=tmp_path)
    assert path.stat().st_mtime == 0
    (tmp_path / "confusion.npz").unlink()
    write_report(run_dir=tmp_path)
    assert path.stat().st_mtime > 0


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    make_run(tmp_path)
    leftover = tmp_path / f".report.html.{files.process_name()}.tmp"
    leftover.touch()
    write_report(run_dir=tmp_path)
    assert not leftover.exists()


def test_another_file_can_be_named(tmp_path):
    make_run(tmp_path / "run")
    path = tmp_path / "pages" / "a.html"
    assert write_report(run_dir=tmp_path / "run", output_file=path).path == path
    assert path.is_file()
    assert not (tmp_path / "run" / "report.html").exists()
    first = path.read_bytes()
    assert write_report(run_dir=tmp_path / "run", output_file=path).path.read_bytes() == first


@pytest.mark.parametrize("name", ["summary.json", "notes.html"])
def test_no_other_file_is_replaced(tmp_path, name):
    make_run(tmp_path)
    path = tmp_path / name
    path.write_text("{}")
    with pytest.raises(SettingError, match="is no page of tff_pcdd; name another file"):
        write_report(run_dir=tmp_path, output_file=path)
    assert path.read_text() == "{}"


@pytest.mark.parametrize("name", ["", "pipe", "\0", "\ud800", "x" * 5000, "broken"])
def test_what_is_no_file_is_not_replaced(tmp_path, name):
    make_run(tmp_path / "run")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nowhere")
    path = f"{tmp_path}/{name}"
    with pytest.raises(SettingError, match="is not the path of a file"):
        write_report(run_dir=tmp_path / "run", output_file=path)
    assert (tmp_path / "pipe").is_fifo()


def test_measurements_are_compared_with_the_checkpoint(tmp_path, caplog):
    """A changed digit is noticed, unless the program that calls has just compared them."""
    make_run(tmp_path)
    summary = (tmp_path / "summary.json").read_text()
    metrics = (tmp_path / "metrics.csv").read_text()
    save_checkpoint(tmp_path, metrics, summary)
    final = json.loads(summary)["ga_final"]
    (tmp_path / "summary.json").write_text(summary.replace(f"{final}", "12.3456"))
    assert "12.3 %" not in write_report(run_dir=tmp_path).path.read_text()
    assert "summary.json is damaged or was changed" in caplog.text
    path = write_report(run_dir=tmp_path, compare_checkpoints=False).path
    assert "12.3 %" in path.read_text()


def save_checkpoint(directory, metrics, summary):
    """Writes the newest checkpoint of a finished run."""
    folder = directory / "checkpoints"
    folder.mkdir()
    arrays = manifests.arrays_path(folder, 12)
    arrays.write_bytes(b"weights")
    settings = json.loads((directory / "config.json").read_text())
    manifest = manifests.Manifest(
        round=12,
        run={"settings": manifests.settings_digest(settings)},
        arrays=hashlib.sha256(b"weights").hexdigest(),
        inline=True,
        clients={},
        totals={},
        metrics=metrics,
        summary=summary,
    )
    manifests.write(folder, manifest)


@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "clients.csv", "confusion.npz"])
def test_a_run_without_a_file(tmp_path, name):
    make_run(tmp_path)
    (tmp_path / name).unlink()
    written = write_report(run_dir=tmp_path)
    assert written.left_out == [f"there is no {name}"]
    if name != "summary.json":
        assert f"Left out: there is no {name}." in written.path.read_text()


@pytest.mark.parametrize("name", ["metrics.csv", "summary.json", "clients.csv", "confusion.npz"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"{\n", b"a,b\n1\n", None])
def test_a_run_with_a_damaged_file(tmp_path, name, content):
    make_run(tmp_path)
    path = tmp_path / name
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    if content is None:
        # As all programs do.
        with pytest.raises(SettingError, match=f"{name} is not a file"):
            write_report(run_dir=tmp_path)
        return
    lines = write_report(run_dir=tmp_path).left_out
    if content or name != "metrics.csv":  # An empty file has no rows.
        assert [line for line in lines if name in line], lines
    assert all("\n" not in line for line in lines)


def test_what_is_no_run(tmp_path):
    with pytest.raises(SettingError, match=r"there is no config\.json"):
        write_report(run_dir=tmp_path)
    with pytest.raises(SettingError, match=r"there is no comparison\.csv"):
        write_report(comparison_dir=tmp_path)
    make_run(tmp_path / "run")
    with pytest.raises(SettingError, match="name it with run_dir"):
        write_report(comparison_dir=tmp_path / "run")
    make_comparison(tmp_path / "comparison")
    with pytest.raises(SettingError, match="name it with comparison_dir"):
        write_report(run_dir=tmp_path / "comparison")
    (tmp_path / "run" / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config\.json is damaged"):
        write_report(run_dir=tmp_path / "run")
    (tmp_path / "comparison" / "comparison.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"comparison\.csv is damaged"):
        write_report(comparison_dir=tmp_path / "comparison")
    with pytest.raises(SettingError, match="give one of"):
        write_report()


_VALUES = [None, True, -1, 0, 10**400, 1e308, "", "x", "\ud800", [1], {"a": [{}]}, "9" * 5000]


@pytest.mark.parametrize("seed", range(8))
def test_files_with_values_that_no_program_writes(tmp_path, seed):
    """A report, or one of the errors that programs show in a line."""
    rng = random.Random(seed)
    make_run(tmp_path / "run")
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"))
    for path in (tmp_path / "run" / "config.json", tmp_path / "run" / "summary.json"):
        values = json.loads(path.read_text())
        for name in rng.sample([*values], len(values) // 2):
            values[name] = rng.choice(_VALUES)
        path.write_text(json.dumps(values))
    tables = [tmp_path / "run" / name for name in ("metrics.csv", "clients.csv")]
    tables += [tmp_path / "comparison" / name for name in ("comparison.csv", "clients.csv")]
    for path in tables:
        lines = [line.split(",") for line in path.read_text().splitlines()]
        for _ in range(6):
            line = rng.choice(lines)
            line[rng.randrange(len(line))] = rng.choice(["", "x", "-1", "1e308", "nan", "9" * 400])
        path.write_text("\n".join(",".join(line) for line in lines) + "\n")
    for directory in ({"run_dir": tmp_path / "run"}, {"comparison_dir": tmp_path / "comparison"}):
        try:
            write_report(**directory)
        except (DataError, SettingError) as error:
            assert "\n" not in str(error)


def test_unequal_work_is_not_reported_as_full_work(tmp_path):
    for name, settings, words in (
        ("full", {}, "trained for 5 local epochs in each round"),
        ("unequal", {"straggler_share": 0.5}, "trained for up to 5 local epochs in each round"),
    ):
        make_run(tmp_path / name, **settings)
        text = write_report(run_dir=tmp_path / name).path.read_text()
        assert words in " ".join(text.split())


def test_a_report_takes_less_than_two_seconds(tmp_path):
    """Also of a large run, and in a process that has imported nothing yet."""
    clients = [f"client {i}" for i in range(50)]
    make_run(tmp_path, clients=clients, classes=[f"class {i}" for i in range(100)], rounds=500)
    started = time.process_time()
    write_report(run_dir=tmp_path)
    assert time.process_time() - started < 2
    script = (
        "import sys; from tff_pcdd.report import write_report; write_report(run_dir=sys.argv[1])\n"
        "assert not {'tensorflow', 'tensorflow_federated'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=True, timeout=300)


# At the end of other programs.


@pytest.fixture
def finished(monkeypatch):
    """Runs finish at once."""

    def run_experiment(config, output_dir, options, *, callbacks, overwrite, report):
        summary = make_run(pathlib.Path(output_dir), algorithm=config.algorithm)
        return {**summary, "ga_best": 90.0}

    monkeypatch.setattr(training, "run_experiment", run_experiment)


def call(program, *flags):
    """Calls a program; returns its status."""
    try:
        program.run([program.__name__.rpartition(".")[2], *map(str, flags)])
    except SystemExit as end:
        return end.code
    return 0


@pytest.fixture(autouse=True)
def _process_left_as_it_was(monkeypatch):
    """Programs set up signals and logging for their process."""
    monkeypatch.setattr(signals, "Ending", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(logging, "use_absl_handler", lambda: None)
    verbosity = logging.get_verbosity()
    yield
    logging.set_verbosity(verbosity)


def test_train_makes_a_report(tmp_path, finished, capsys):
    assert call(train, f"--output_dir={tmp_path / 'run'}") == 0
    assert (tmp_path / "run" / "report.html").is_file()
    assert capsys.readouterr().err == ""


def test_train_makes_no_report_if_it_is_switched_off(tmp_path, finished):
    assert call(train, f"--output_dir={tmp_path / 'run'}", "--noreport") == 0
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyError("unforeseen")]
)
def test_train_succeeds_without_a_report(tmp_path, finished, monkeypatch, capsys, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(files, "write_atomically", fail)
    assert call(train, f"--output_dir={tmp_path / 'run'}") == 0
    out, err = capsys.readouterr()
    assert out.startswith("fedavg: GA ")
    (line,) = err.splitlines()
    assert line.startswith("report.html was not written: ")


def test_compare_makes_a_report_and_ends_with_its_path(tmp_path, monkeypatch, capsys):
    def make(configs, output_dir, options, *, overwrite, parallel, tables, report):
        make_comparison(pathlib.Path(output_dir))
        return "the tables", []

    monkeypatch.setitem(vars(studies), "compare", make)
    folder, further = tmp_path / "c", "More --rounds continue in the same --output_dir."
    assert call(compare, f"--output_dir={folder}") == 0
    assert (folder / "fedavg" / "seed_0" / "report.html").is_file()
    end = f"all columns: {folder}/comparison.md"
    assert capsys.readouterr().out.splitlines() == [
        *("the tables", "", further, "", end, f"{folder}/report.html")
    ]
    assert call(compare, f"--output_dir={folder}", "--noreport") == 0
    assert capsys.readouterr().out.splitlines()[-1] == end
    # Neither for methods whose training depends on the planned rounds, nor where advice says it.
    assert call(compare, f"--output_dir={folder}", "--algorithms=fedavg,fedproc") == 0
    assert further not in capsys.readouterr().out


def test_the_program(tmp_path, capsys):
    make_run(tmp_path / "run")
    (tmp_path / "run" / "confusion.npz").unlink()
    assert call(report, f"--run_dir={tmp_path / 'run'}") == 0
    path = tmp_path / "run" / "report.html"
    assert capsys.readouterr().out == f"left out: there is no confusion.npz\n{path}\n"
    make_comparison(tmp_path / "c")
    assert call(report, f"--comparison_dir={tmp_path / 'c'}") == 0
    assert (tmp_path / "c" / "report.html").is_file()


# tests/cli/test_refusals.py has the call without any directory.
@pytest.mark.parametrize("flags", [("--run_dir=a", "--comparison_dir=b"), ("--run_dir=none",)])
def test_the_program_refuses(flags, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(report, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("report: error: --run_dir")


def test_a_report_is_written_while_the_run_is_computed(tmp_path):
    """A browser loads it again; the report of the finished run stays as it is."""

    class Run:
        directory = tmp_path
        finished = False

        def is_due(self, every):
            return every == 2

    make_run(tmp_path)
    (tmp_path / "summary.json").unlink()
    LiveReport(3).on_round(Run(), {})
    assert not (tmp_path / "report.html").exists()
    LiveReport(2).on_round(Run(), {})
    page = (tmp_path / "report.html").read_text()
    assert '<meta http-equiv="refresh"' in page
    assert "The run is in progress" in page
    assert '<meta http-equiv="refresh"' not in write_report(run_dir=tmp_path).path.read_text()
    shutil.rmtree(tmp_path / "plots", ignore_errors=True)
    (tmp_path / "config.json").write_text("damaged")
    LiveReport(2).on_round(Run(), {})  # ends no run


def test_a_much_larger_page_is_replaced(tmp_path):
    make_run(tmp_path)
    path = write_report(run_dir=tmp_path).path
    page = path.read_bytes()
    path.write_bytes(page * 5)
    assert write_report(run_dir=tmp_path).path.read_bytes() == page
