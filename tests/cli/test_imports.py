"""`--import` in the settings of a run: which modules it needs, and whether they have changed."""

import hashlib
import json
import sys

import pytest

from tests.data.refusals import refuses
from tff_pcdd.data import partitions
from tff_pcdd.training import ExperimentConfig, RunOptions, imports, run_directory, start

CONFIG = ExperimentConfig.from_settings(algorithm="fedgela", rounds=3)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory, and its file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a_module_of_mine.py"
    path.write_text("ANSWER = 42\n")
    yield path.stem, path
    sys.modules.pop(path.stem, None)
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "_WorkingDirectory"]


@pytest.fixture
def run(module, tmp_path):
    """The directory of a run with that module."""
    directory = tmp_path / "run"
    directory.mkdir()
    digest = hashlib.sha256(module[1].read_bytes()).hexdigest()
    run_directory.write_config(directory, CONFIG, {module[0]: digest})
    return directory


def saved(directory):
    return json.loads((directory / "config.json").read_text())


def test_the_options_of_a_run_have_the_hashes_of_its_modules(module):
    name, path = module
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__file__ = str(path)
    assert imports.digests([name]) == {name: expected}
    assert RunOptions().modules == {}


def test_settings_are_those_without_the_modules(run):
    assert saved(run).keys() - CONFIG.to_settings().keys() == {"import"}
    assert run_directory.read_config(run) == CONFIG
    run_directory.check_directory(run, CONFIG, overwrite=False)


def test_no_modules_no_entry(tmp_path):
    run_directory.write_config(tmp_path, CONFIG)
    assert saved(tmp_path) == CONFIG.to_settings()


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("evaluate", ["--run_dir=run", "--checkpoint_round=x"]),
        ("export", ["--run_dir=run", "--own_option=3"]),
        ("train", ["--output_dir=run", "--algorithm=mine"]),
        ("train", ["--output_dir", "run", "--own_option=3"]),
    ],
)
def test_an_error_says_which_module_is_missing(program, flags, run, call_here):
    status, out, err = call_here(program, *flags)
    assert (status, out) == (2, "")
    assert err.startswith(f"{program}: error: --import=a_module_of_mine: is needed for run, which")
    assert err.count("\n") == 1


def test_so_does_one_about_a_study(run, module, tmp_path, call_here):
    (tmp_path / "compared" / "mine").mkdir(parents=True)
    run.rename(tmp_path / "compared" / "mine" / "seed_0")
    _, _, err = call_here("compare", "--output_dir=compared", "--algorithms=mine")
    assert err.startswith("compare: error: --import=a_module_of_mine: is needed for compared")


def test_with_the_module_there_is_nothing_to_say(run, module, call_here, caplog):
    flags = ("--import=a_module_of_mine", "--run_dir=run", "--checkpoint_round=x")
    _, _, err = call_here("evaluate", *flags)
    assert err == "evaluate: error: --checkpoint_round=x: must be a whole number, or best\n"
    run_directory.read_config(run)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import numpy as np\nfrom tff_pcdd import data\n"
            "data.from_arrays(np.full([9, 2], np.nan), [0, 1, 2] * 3, [0] * 9)\n",
            "value 0 of sample 0 is nan",
        ),
        (
            "import numpy as np\nfrom tff_pcdd import data\n"
            "data.from_arrays(np.ones([9, 2]), [0, 1, 2] * 3, [0] * 9, test_fraction=2.0)\n",
            "test_fraction=2.0: must be at most 0.9",
        ),
        (
            "import dataclasses\nfrom tff_pcdd import methods\n@methods.register\n"
            "@dataclasses.dataclass(frozen=True)\nclass Mine(methods.Method):\n"
            "    name = 'fedavg'\n",
            "algorithm=fedavg: is already registered by tff_pcdd.methods.fedavg.FedAvg; choose "
            "another name for Mine",
        ),
        (
            "from tff_pcdd import methods\n@methods.register\nclass Mine(methods.Method):\n"
            "    pass\n",
            "Mine needs a class attribute `name`",
        ),
    ],
)
def test_what_a_module_registers_wrongly_is_said_in_one_line(code, reason, module, call_here):
    name, path = module
    path.write_text(code)
    status, out, err = call_here("train", f"--import={name}", "--output_dir=out")
    assert (status, out) == (2, "")
    assert err.startswith(f"train: error: --import={name}: ")
    assert reason in err
    assert err.count("\n") == 1


OWN_OPTION = """
import dataclasses

from tff_pcdd.data import partitions
from tff_pcdd.settings import option


@partitions.register
@dataclasses.dataclass(frozen=True)
class Odd(partitions.NumClients):
    name = "odd"
    {}: str = option("x", "Own.")
"""


@pytest.mark.parametrize("program", ["train", "compare"])
@pytest.mark.parametrize("option", ["output_dir", "verbosity", "progress", "config", "help"])
def test_an_option_with_the_name_of_another_flag_is_refused(
    program, option, module, call_here, monkeypatch
):
    """Of the program, of every program, of a run, of files, and of the help."""
    name, path = module
    path.write_text(OWN_OPTION.format(option))
    monkeypatch.setattr(partitions.registry, "_classes", partitions.registry.classes())
    status, out, err = call_here(program, f"--import={name}", "--output_dir=out")
    reason = f"the option '{option}' of {name}.Odd has the name of another flag; rename it"
    assert (status, out) == (2, "")
    assert err.removeprefix(f"{program}: error: ").lstrip("-") == f"partition=odd: {reason}\n"


def test_nothing_is_imported_by_itself(run, module, caplog):
    run_directory.read_config(run)
    assert module[0] not in sys.modules
    assert caplog.messages == [f"{run} was trained with import={module[0]}; import it too"]


@pytest.mark.parametrize("again", ["read", "resume"])
def test_another_version_is_noticed(again, run, module, call_here, caplog):
    name, path = module
    call_here("evaluate", f"--import={name}", "--run_dir=none")
    path.write_text("ANSWER = 43\n")
    if again == "read":
        run_directory.read_config(run)
    else:
        run_directory.write_config(run, CONFIG, imports.digests([name]))
        assert saved(run)["import"] == imports.digests([name])
    assert caplog.messages == [
        f"{name} has changed since {run} was trained with it; results may differ"
    ]


def test_results_of_another_version_are_noticed_once(run, module, call_here, caplog, monkeypatch):
    """A finished run is not computed again, so its numbers may be those of another method."""
    monkeypatch.setattr(imports, "_said", set())
    name, path = module
    call_here("evaluate", f"--import={name}", "--run_dir=none")
    (run / "summary.json").write_text('{"seed": 0}')
    for version in (42, 42, 43, 43, 44):
        path.write_text(f"ANSWER = {version}\n")
        assert start.finished_result(CONFIG, run) == {"seed": 0}
    warning = (
        f"{name} has changed since runs such as {run} were trained with it; they keep their "
        "results, and `overwrite` computes them again"
    )
    assert caplog.messages == [warning] * 2


@pytest.mark.parametrize("entry", [3, ["os"], {"os; rm": "x"}, {"a": 4}])
def test_what_cannot_be_a_module_is_not_one(entry, tmp_path):
    contents = {**CONFIG.to_settings(), "import": entry}
    (tmp_path / "config.json").write_text(json.dumps(contents))
    assert imports.missing(tmp_path) == []
    with refuses("run_dir", "config.json cannot be used: import=.* must be names of modules"):
        run_directory.read_config(tmp_path)


@pytest.mark.parametrize("text", ["", "[", "[]", '{"import": 1'])
def test_damaged_settings_name_no_modules(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    assert imports.missing(tmp_path) == []
    assert imports.missing(tmp_path / "a\0b") == []
