"""README is short, and its commands and its program work."""

import re

import pytest

from tests.cli.conftest import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
# Commands over several lines are one.
COMMANDS = re.findall(r"^\.venv/bin/python -m tasks\.(\w+) (.*)$", TEXT.replace("\\\n", " "), re.M)


def test_it_is_short():
    assert len(TEXT.encode()) <= 10_000


@pytest.mark.parametrize(
    ("name", "flags"), COMMANDS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(COMMANDS)]
)
def test_its_commands_have_settings_that_fit_together(name, flags, call_here, tmp_path):
    flags = flags.replace("$HOME", str(tmp_path)).replace("=runs/", f"={tmp_path}/").split()
    if name == "export":
        # All that is wrong with it is that nothing was trained.
        status, _, err = call_here(name, *flags)
        assert status == 2
        run = tmp_path / "which" / "ccvr" / "seed_0"
        assert err == f"export: error: --run_dir={run}: holds no run: there is no config.json\n"
    else:
        status, out, err = call_here(name, *flags, "--dry_run")
        assert status == 0, err
        assert "ccvr" in out or "fedgela" in out


def test_all_programs_that_it_has_commands_for_are_covered():
    assert {name for name, _ in COMMANDS} == {"compare", "export", "sweep"}
    assert TEXT.count(".venv/bin/python -m tasks.") == len(COMMANDS)


@pytest.mark.integration
def test_its_program_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(program.replace("rounds=10", "rounds=1"), "README.md", "exec"), {})
    ga, same_ga, _ = map(float, capsys.readouterr().out.split())
    assert ga == pytest.approx(same_ga)
