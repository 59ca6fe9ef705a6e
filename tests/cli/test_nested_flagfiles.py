"""Flagfiles: those that name others, and which of them are trusted."""

import os
import pathlib

import pytest

from tff_pcdd.cli import flagfiles, partition
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError

ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def test_each_file_that_another_names_has_to_be_trusted_itself(folder):
    (folder / "outer.flags").write_text("--flagfile=common/best.flags\n--import=mine\n")
    (folder / "common" / "best.flags").write_text("--seed=3\n--import=evil\n")
    with pytest.raises(SettingError) as caught:
        flagfiles.expand(["--flagfile=presets/outer.flags"])
    assert caught.value.value == "presets/outer.flags"
    assert "names import=mine, which is not followed" in caught.value.reason
    with pytest.raises(SettingError) as caught:
        flagfiles.expand(["--flagfile=presets/outer.flags", "--trust_flagfile=presets/outer.flags"])
    assert caught.value.value == "common/best.flags"
    assert "names import=evil, which is not followed" in caught.value.reason


def test_a_signature_is_one_of_the_contents(folder):
    """Signed once, a file may name any flag, under any name and until it changes."""
    mine, arguments = folder / "mine.flags", ["--flagfile=presets/mine.flags"]
    mine.write_text("--output_dir=a\n--runtime=ray\n")
    with pytest.raises(SettingError) as caught:
        flagfiles.expand(arguments)
    remedy = "--trust_flagfile=presets/mine.flags"
    assert f"if you have read and trust the file, add {remedy} once" in caught.value.reason
    assert flagfiles.expand([*arguments, remedy])[:2] == ["--output_dir=a", "--runtime=ray"]
    assert flagfiles.expand(arguments) == ["--output_dir=a", "--runtime=ray"]
    mine.rename(folder / "other.flags")
    assert flagfiles.expand(["--flagfile=presets/other.flags"])
    (folder / "other.flags").write_text("--output_dir=b\n")
    with pytest.raises(SettingError, match="names output_dir=b, which is not followed"):
        flagfiles.expand(["--flagfile=presets/other.flags"])
    # A flagfile cannot sign itself.
    mine.write_text("--trust_flagfile=presets/mine.flags\n--output_dir=c\n")
    with pytest.raises(SettingError, match=r"names trust_flagfile=presets/mine\.flags"):
        flagfiles.expand(arguments)


@pytest.mark.parametrize(
    "line",
    [
        "--overwrite",
        "--nodry_run",
        "--output_dir=/x",
        "--ray_address=host",
        "--runtime=tff",
        "--callbacks=mine",
        "--data_dir=/x",
        "--warm_start=/x",
        "--import\nevil",
        "-import=evil",
        "--grid=data_dir:/x",
        "--undefok=import",
    ],
)
def test_what_executes_connects_writes_or_deletes_has_to_be_typed(line, folder):
    (folder / "mine.flags").write_text(f"--rounds=2\n--nojoin_names\n{line}\n")
    name = line.lstrip("-").replace("\n", "=").partition("=")[0]
    with pytest.raises(SettingError, match=f"names {name}=.*, which is not followed"):
        flagfiles.expand(["--flagfile=presets/mine.flags"])
    # Until the user's modules are known, the file is left out.
    assert flagfiles.expand(["--flagfile=presets/mine.flags"], only_trusted=True) == []


def test_flagfiles_of_the_clone_are_trusted():
    arguments = [f"--flagfile={ROOT / 'flags' / 'comparison' / 'fashion_lt.flags'}"]
    assert flagfiles.expand(arguments, only_trusted=True) == flagfiles.expand(arguments) != []


@pytest.mark.parametrize("kind", ["missing", "pipe", "large", "not text"])
def test_what_is_no_flagfile(kind, folder):
    path = folder / "mine.flags"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        with open(path, "wb") as file:
            file.truncate(200_000_000_000)
    elif kind == "not text":
        path.write_bytes(b"--seed=\xff")
    for flag in ("flagfile", "trust_flagfile"):
        if (flag, kind) != ("trust_flagfile", "not text"):
            with pytest.raises(SettingError, match=f"{flag}=presets/mine.flags: cannot be read"):
                flagfiles.expand([f"--{flag}=presets/mine.flags"])


def test_without_a_place_for_the_secret_nothing_can_be_signed(folder, monkeypatch):
    (folder / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "mine.flags").write_text("--overwrite\n")
    with pytest.raises(SettingError, match="cannot be signed: there is no place for a secret"):
        flagfiles.expand(["--trust_flagfile=presets/mine.flags"])
