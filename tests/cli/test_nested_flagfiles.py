"""Flagfiles that name others: relative paths, cycles, and results among them."""

import pytest

from tff_pcdd.cli import flagfiles, partition
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory, with flagfiles in another place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "presets" / "common").mkdir(parents=True)
    return tmp_path / "presets"


def test_relative_paths_are_those_from_the_files_own_folder(folder):
    (folder / "outer.flags").write_text("--seed=3\n--flagfile=common/inner.flags\n")
    (folder / "common" / "inner.flags").write_text("--flagfile=last.flags\n# comment\n\n")
    (folder / "common" / "last.flags").write_text("// comment\n  --num_clients=7  \n")
    for arguments in (
        ["--flagfile=presets/outer.flags", "--seed=4"],
        ["-flagfile", "presets/outer.flags", "--seed=4"],
    ):
        assert flagfiles.expand(arguments) == ["--seed=3", "--num_clients=7", "--seed=4"]
    flags = Flags(["partition", "--flagfile=presets/outer.flags"])
    partition.define(flags)
    flags.parse()
    assert (flags["seed"], flags["num_clients"]) == (3, 7)
    assert flags.is_given("num_clients")
    assert not flags.is_typed("num_clients")


def test_or_from_the_working_directory(folder):
    (folder / "outer.flags").write_text("--flagfile=presets/common/inner.flags\n")
    (folder / "common" / "inner.flags").write_text("--seed=5\n")
    assert flagfiles.expand(["--flagfile=presets/outer.flags"]) == ["--seed=5"]
    # A file beside the outer one comes first.
    (folder / "presets" / "common").mkdir(parents=True)
    (folder / "presets" / "common" / "inner.flags").write_text("--seed=6\n")
    assert flagfiles.expand(["--flagfile=presets/outer.flags"]) == ["--seed=6"]


def test_a_missing_file_names_the_one_that_names_it(folder):
    (folder / "outer.flags").write_text("--flagfile=none.flags\n")
    with pytest.raises(SettingError) as caught:
        flagfiles.expand(["--flagfile=presets/outer.flags"])
    assert caught.value.setting == "flagfile"
    assert caught.value.value == "none.flags"
    assert "cannot be read, as presets/outer.flags says: No such file" in caught.value.reason


def test_a_cycle_is_refused(folder):
    (folder / "a.flags").write_text("--flagfile=b.flags\n")
    (folder / "b.flags").write_text("--flagfile=a.flags\n")
    with pytest.raises(SettingError, match=r"names itself, through presets/b\.flags"):
        flagfiles.expand(["--flagfile=presets/a.flags"])


def test_a_file_among_results_holds_settings_only_also_if_another_names_it(folder):
    (folder / "outer.flags").write_text("--flagfile=common/best.flags\n")
    (folder / "common" / "sweep.csv").write_text("")
    (folder / "common" / "best.flags").write_text("--import=evil\n")
    with pytest.raises(SettingError, match="lies in a directory of results and names import=evil"):
        flagfiles.expand(["--flagfile=presets/outer.flags"])
