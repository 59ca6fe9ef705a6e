"""README is short; its commands, those of the guides and its program work."""

import importlib.util
import json
import re
import shlex

import pytest

from tests.cli.conftest import ROOT
from tff_pcdd import methods

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_GUIDES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/how-to").glob("*.md"))
_PAGES = ["README.md", "docs/get_started.md", "docs/maintaining.md", "docs/methods.md", *_GUIDES]
# What these need is the reader's: a module, a run, or flags in place of the ellipsis.
_READERS = ("--import=", "--warm_start=", "…")


def commands(page):
    """The commands of a page: pairs of a program and its flags."""
    # Commands over several lines are one.
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for name, value in re.findall(r'^(\w+)="(.*)"$', text, re.M):
        text = text.replace(f"${name} ", f"{value} ")
    return re.findall(r"^\.venv/bin/python -m tasks\.(\w+) (.*)$", text, re.M)


COMMANDS = [
    pytest.param(name, flags, id=f"{page}-{i}-{name}")
    for page in _PAGES
    for i, (name, flags) in enumerate(commands(page))
    if name not in ("benchmark", "report", "runs") and not any(own in flags for own in _READERS)
]


def test_it_is_short():
    assert len(TEXT.encode()) <= 10_000


def test_its_number_of_methods_is_joined_with_that_of_the_help():
    """38 methods, of which 5 have a variant with prototypes, and 2 baselines."""
    known = methods.names()
    assert len(known) == 45
    assert sum(name.endswith("_prototypes") for name in known) == 5
    assert [name for name in known if methods.get(name).baseline] == ["central", "local"]
    assert "Its 45 methods are the 38, five of them with FedMR's prototypes too, and two" in TEXT


def test_its_request_for_a_table_has_the_columns_of_its_flags():
    (request,) = re.findall(r"curl -d '(.+?)'", TEXT)
    (row,) = json.loads(request)["instances"]
    assert list(row) == ["age", "bmi", "smoker"]
    assert f"--feature_columns={','.join(row)} --categorical_columns=smoker" in TEXT
    assert [isinstance(value, str) for value in row.values()] == [False, False, True]


@pytest.mark.parametrize(("name", "flags"), COMMANDS)
def test_commands_have_settings_that_fit_together(name, flags, call_here, tmp_path):
    for flag, package in (("--runtime=ray", "ray"), ("--tracking=mlflow", "mlflow")):
        if flag in flags and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    flags = shlex.split(flags.replace("$HOME", str(tmp_path)).replace("=runs/", f"={tmp_path}/"))
    if name not in ("export", "partition", "predict"):
        flags.append("--dry_run")
    status, out, err = call_here(name, *flags)
    # All that is wrong with these is that nothing was trained, and that there is no such folder.
    if name == "export":
        assert (status, "holds no run: there is no config.json" in err) == (2, True)
    elif name == "predict":
        assert (status, "--export_dir=exported: " in err) == (2, True)
    elif "--data_dir=PATH" in flags:
        assert (status, "is not a directory" in err) == (2, True)
    else:
        assert status == 0, err
        assert out


def test_all_programs_that_they_have_commands_for_are_covered():
    programs = {command.values[0] for command in COMMANDS}
    assert programs == {"compare", "export", "partition", "predict", "sweep", "train"}
    assert TEXT.count(".venv/bin/python -m tasks.") == len(commands("README.md"))


@pytest.mark.integration
def test_its_program_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(program.replace("rounds=10", "rounds=1"), "README.md", "exec"), {})
    ga, same_ga, _ = map(float, capsys.readouterr().out.split())
    assert ga == pytest.approx(same_ga)
