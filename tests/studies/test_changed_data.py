"""Runs whose data have changed since: results that are kept, further runs, exports and answers."""

import hashlib
import json
import os
import re
import shutil

import pytest

from tests.data.refusals import refuses, unusable
from tff_pcdd.data import DataConfig
from tff_pcdd.data.sources.table import Table
from tff_pcdd.report import comparison_page
from tff_pcdd.results import comparison_directory
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import ParallelOptions, compare, dry_run
from tff_pcdd.training import ExperimentConfig, earlier_data, restore_run, run_experiment

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("undrawn")]

NEW = "new: c.csv"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Tables of two hospitals, with a column that is not used, and runs of two methods on them."""
    made = tmp_path_factory.mktemp("trained")
    (made / "hospitals").mkdir()
    for name in "ab":
        write(made / "hospitals" / f"{name}.csv", 20)
    shutil.copytree(made / "hospitals", made / "copy")
    run(made / "hospitals", made / "out", ["fedavg", "local"])
    return made


@pytest.fixture
def folder(trained, monkeypatch):
    """The tables as they were."""
    monkeypatch.setattr(earlier_data, "_said", set())
    shutil.rmtree(trained / "hospitals", ignore_errors=True)
    return shutil.copytree(trained / "copy", trained / "hospitals")


@pytest.fixture
def out(trained, tmp_path):
    """A copy of the runs."""
    return shutil.copytree(trained / "out", tmp_path / "out")


@pytest.fixture
def run_dir(out):
    return out / "fedavg" / "seed_0"


def write(path, rows, note=""):
    lines = [f"{ord(path.stem)}.{row},{row % 2},{note}" for row in range(rows)]
    path.write_text("\n".join(["age,label,note", *lines, ""]))


def config_of(folder, algorithm="fedavg", **settings):
    common = {"dataset": "table", "data_dir": str(folder), "feature_columns": "age"}
    common |= {"model": "mlp", "rounds": 1, "local_epochs": 1}
    return ExperimentConfig.from_settings(algorithm=algorithm, **common | settings)


def run(folder, out, algorithms, **options):
    return compare([config_of(folder, each) for each in algorithms], out, report=False, **options)


def warning(folder, run_dir, changed=NEW):
    return (
        f"data_dir={folder} has changed since runs such as {run_dir} were trained ({changed}); "
        "their results are those of the earlier data: compute them again with `overwrite`, or "
        "name another output_dir"
    )


def of_data(caplog):
    return [text for text in caplog.messages if "has changed since" in text]


def run_of(run_dir, number=1):
    """What the manifest of a round says about the run."""
    text = (run_dir / "checkpoints" / f"round_{number:06d}.json").read_text()
    return json.loads(text)["content"]["run"]


def test_results_of_earlier_data_are_said_once_without_loading_data(
    folder, out, run_dir, caplog, monkeypatch
):
    before = run(folder, out, ["fedavg", "local"])
    assert not of_data(caplog)
    write(folder / "c.csv", 20)
    with monkeypatch.context() as patch:
        patch.setattr(DataConfig, "build", None)
        assert run(folder, out, ["fedavg", "local"]) == before
        assert of_data(caplog) == [warning(folder, run_dir)]
        earlier_data._said.clear()
        assert dry_run.train(config_of(folder), run_dir).endswith("; finished")
        assert of_data(caplog) == [warning(folder, run_dir)] * 2
        # Another change is said, too.
        (folder / "a.csv").unlink()
        run(folder, out, ["local"])
        changed = f"{NEW}; missing: a.csv"
        assert of_data(caplog)[2:] == [warning(folder, out / "local" / "seed_0", changed)]
    run(folder, out, ["fedavg", "local"], overwrite=True)
    run(folder, out, ["fedavg", "local"])
    assert len(of_data(caplog)) == 3


def test_a_study_lists_files_once(folder, tmp_path, monkeypatch):
    """However many of its runs have finished; each call looks again, and so does each run alone."""
    out, listed = tmp_path / "out", []
    monkeypatch.setattr(Table, "read_files", lambda source: listed.append(source) or [])
    run(folder, out, ["fedavg", "local", "fedprox"])
    listed.clear()
    for calls in (1, 2):
        run(folder, out, ["fedavg", "local", "fedprox"])
        assert len(listed) == calls
    dry_run.compare([config_of(folder, each) for each in ("fedavg", "local")], out)
    assert len(listed) == 3
    for calls in (4, 5):
        run_experiment(config_of(folder), out / "fedavg" / "seed_0", report=False)
        assert len(listed) == calls


def test_copied_files_and_runs_without_a_record_say_nothing(folder, run_dir, tmp_path, caplog):
    """Runs of earlier versions have no record of files; a moved directory has it still."""
    config = config_of(folder)
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    moved = run_dir.rename(tmp_path / "moved")
    run_experiment(config, moved, report=False)
    assert not of_data(caplog)
    write(folder / "c.csv", 20)
    run_experiment(config, moved, report=False)
    assert of_data(caplog) == [warning(folder, moved)]
    caplog.clear()
    earlier_data._said.clear()
    path = moved / "checkpoints" / "round_000001.json"
    text = path.read_text()
    content = json.loads(text)["content"]
    del content["run"]["files"]
    # The checksum of a manifest is that of its contents as JSON.
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path.write_text(json.dumps({"checksum": checksum, "content": content}))
    run_experiment(config, moved, report=False)
    folder.rename(tmp_path / "elsewhere")
    path.write_text(text)
    run_experiment(config, moved, report=False)
    assert not of_data(caplog)


@pytest.mark.parametrize("parallel", [None, ParallelOptions(parallel_runs=2)])
def test_further_runs_on_changed_data_are_refused(parallel, folder, out, run_dir):
    table = (out / "comparison.csv").read_bytes()
    write(folder / "b.csv", 22)
    reason = (
        f"has changed since {run_dir} was trained (changed: b.csv), so the runs that are left "
        "could not be compared with it; bring the earlier files back, name another output_dir, or "
        "compute all runs again with `overwrite`"
    )
    with refuses("data_dir", f"^{re.escape(reason)}$", str(folder)):
        run(folder, out, ["fedavg", "local", "fedprox"], parallel=parallel)
    assert not (out / "fedprox").exists()
    assert (out / "comparison.csv").read_bytes() == table
    write(folder / "b.csv", 20)
    run(folder, out, ["fedavg", "fedprox"])
    assert run_of(run_dir)["data"] == run_of(out / "fedprox" / "seed_0")["data"]


def test_other_files_with_the_same_samples_are_no_other_data(folder, out, run_dir):
    """A column that is not used may change."""
    write(folder / "b.csv", 20, note="a remark")
    run(folder, out, ["fedavg", "fedprox"])
    assert run_of(run_dir)["data"] == run_of(out / "fedprox" / "seed_0")["data"]


def test_nothing_is_answered_from_runs_on_different_data(folder, out):
    """Runs that were computed in calls of their own may be mixed."""
    assert "One model for all:" in run(folder, out, ["fedavg", "local"]).report
    write(folder / "c.csv", 20)
    run(folder, out, ["fedprox"])
    report = run(folder, out, ["fedavg", "fedprox", "local"]).report
    assert "One model for all:" not in report
    assert "Federating" not in report
    found = comparison_directory.read(Directory(out))
    assert not found.answers
    first = found.findings[0]
    assert first.what.startswith("The data have changed between these runs, which cannot be comp")
    content = comparison_page.content(Directory(out))
    assert content["answers"] == []
    assert content["findings"][0] == first
    run(folder, out, ["fedavg", "local"], overwrite=True)
    assert "One model for all:" in run(folder, out, ["fedavg", "fedprox", "local"]).report


def test_errors_say_which_data_and_what_to_do(folder, run_dir):
    config = config_of(folder)
    write(folder / "c.csv", 20)
    manifest = run_dir / "checkpoints" / "round_000001.json"
    problem = (
        f"{manifest} was written with other data (samples, or their division among clients) than "
        f"those in data_dir={folder} now ({NEW}); "
    )
    new = "exported models answer for new samples (tasks.predict)"
    with unusable(f"{problem}bring the earlier data back, or train the run again; {new}"):
        restore_run(config, run_dir)
    remedy = "name another output_dir, replace the run with `overwrite`, or bring the earlier data"
    with unusable(f"{problem}{remedy} back"):
        run_experiment(config.with_settings(rounds=2), run_dir, report=False)
    (folder / "c.csv").unlink()
    continued = run_experiment(config.with_settings(rounds=2), run_dir, report=False)
    assert continued["rounds"] == 2


def test_a_continued_run_records_the_files_that_it_has_read(folder, run_dir, caplog):
    write(folder / "b.csv", 20, note="a remark")
    longer = config_of(folder, rounds=2)
    run_experiment(longer, run_dir, report=False)
    run_experiment(longer, run_dir, report=False)
    assert not of_data(caplog)
    recorded = json.loads(run_of(run_dir, 2)["files"])["files"]
    sizes = {path.name: str(path.stat().st_size) for path in folder.iterdir()}
    assert {name: size for name, (size, *_) in recorded.items()} == sizes
