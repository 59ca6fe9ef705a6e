"""README is short; its commands, those of the first page and its program work."""

import re

import pytest

from tests.cli.conftest import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_PAGES = ["README.md", "docs/get_started.md"]


def commands(page):
    """The commands of a page: pairs of a program and its flags."""
    # Commands over several lines are one.
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(r"^\.venv/bin/python -m tasks\.(\w+) (.*)$", text, re.M)


COMMANDS = [(name, flags) for page in _PAGES for name, flags in commands(page)]


def test_it_is_short():
    assert len(TEXT.encode()) <= 10_000


@pytest.mark.parametrize(
    ("name", "flags"), COMMANDS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(COMMANDS)]
)
def test_its_commands_have_settings_that_fit_together(name, flags, call_here, tmp_path):
    flags = flags.replace("$HOME", str(tmp_path)).replace("=runs/", f"={tmp_path}/").split()
    if name in ("export", "partition"):
        # All that is wrong with it is that nothing was trained, and that there is no such folder.
        reason = {
            "export": "holds no run: there is no config.json",
            "partition": "is not a directory",
        }
        status, _, err = call_here(name, *flags)
        assert status == 2
        assert reason[name] in err
    else:
        status, out, err = call_here(name, *flags, "--dry_run")
        assert status == 0, err
        assert "ccvr" in out or "fedgela" in out


def test_all_programs_that_they_have_commands_for_are_covered():
    programs = {name for name, _ in COMMANDS}
    assert programs == {"compare", "export", "partition", "sweep", "train"}
    assert TEXT.count(".venv/bin/python -m tasks.") == len(commands("README.md"))


@pytest.mark.integration
def test_its_program_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(program.replace("rounds=10", "rounds=1"), "README.md", "exec"), {})
    ga, same_ga, _ = map(float, capsys.readouterr().out.split())
    assert ga == pytest.approx(same_ga)
