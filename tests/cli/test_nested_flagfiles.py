"""Flagfiles and configurations: those that name others, and which of them are trusted."""

import json
import os

import pytest

from tests.cli.conftest import ROOT, parsed
from tests.data.refusals import refuses
from tff_pcdd.cli import compare, experiments, flagfiles, partition, sweep, train
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError
from tff_pcdd.training import ExperimentConfig, signature


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
    flags = parsed(partition, "--flagfile=presets/outer.flags")
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
    with refuses(
        "flagfile", r"cannot be read, as presets/outer\.flags says: No such file", "none.flags"
    ):
        flagfiles.expand(["--flagfile=presets/outer.flags"])


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
    for flag in ("flagfile", "config", "trust_flagfile"):
        if (flag, kind) != ("trust_flagfile", "not text"):
            with pytest.raises(SettingError, match=f"{flag}=presets/mine.flags: cannot be read"):
                flagfiles.expand([f"--{flag}=presets/mine.flags"])


def test_without_a_place_for_the_secret_nothing_can_be_signed(folder, monkeypatch):
    (folder / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    (folder / "mine.flags").write_text("--overwrite\n")
    with pytest.raises(SettingError, match="cannot be signed: there is no place for a secret"):
        flagfiles.expand(["--trust_flagfile=presets/mine.flags"])


# Configurations, in the place of flagfiles.


def write(folder, name, text):
    (folder / name).write_text(text)
    return f"--config=presets/{name}"


TOML = """\
algorithm = "fedgela"
metrics = ["balanced", "worst_class"]
[data]
partition = "dirichlet"
join_names = false
[training.clients]
client_learning_rate = 0.05
rounds = 7
"""


def test_a_configuration_in_toml_names_settings_and_tables_group_them(folder):
    argument = write(folder, "run.toml", TOML)
    flags = parsed(train, argument, "--rounds=8")
    assert (flags["rounds"], flags["client_learning_rate"]) == (8, 0.05)
    assert flags["metrics"] == "balanced,worst_class"
    assert flags["join_names"] is False
    assert flags.is_typed("rounds")
    assert not flags.is_typed("partition")
    # Whatever the tables are called.
    assert parsed(train, write(folder, "own.toml", "[import]\nrounds = 6\n"))["rounds"] == 6
    # The later one wins, as with flagfiles.
    assert parsed(train, "--rounds=8", argument)["rounds"] == 7
    (folder / "more.flags").write_text("--config=run.toml\n--rounds=9\n")
    assert parsed(train, "--flagfile=presets/more.flags")["rounds"] == 9
    both = write(folder, "both.toml", 'flagfile = "more.flags"\nseed = 4\n')
    assert parsed(train, both)["seed"] == 4
    assert parsed(train, both)["rounds"] == 9


def test_the_config_json_of_a_run_gives_its_settings(folder):
    config = ExperimentConfig.from_settings(algorithm="fedgela", rounds=3, seed=5, model_seed=9)
    text = json.dumps(config.to_settings())
    again = experiments.read_config(parsed(train, write(folder, "config.json", text)))
    assert again == config
    # A seed that was derived is derived again.
    other = experiments.read_config(parsed(train, "--config=presets/config.json", "--seed=6"))
    assert other == config.with_settings(seed=6)
    assert other.seeds == (6, 9, 6, 6, 6)


def test_the_head_calibration_of_a_run_goes_with_its_method(folder):
    """The name ccvr implies one, and fedavg none; fedprox has it only if it is given."""
    write(
        folder, "ccvr.json", '{"algorithm": "ccvr", "head_calibration": "ccvr", "ccvr_epochs": 3}'
    )
    write(folder, "fedavg.json", '{"algorithm": "fedavg", "head_calibration": "none"}')
    write(folder, "given.json", '{"algorithm": "fedprox", "head_calibration": "ccvr"}')
    calibrations = {}
    for name in ("ccvr", "fedavg", "given"):
        for method in ("fedavg", "fedprox", "ccvr"):
            flags = parsed(train, f"--config=presets/{name}.json", f"--algorithm={method}")
            config = experiments.read_config(flags)
            calibrations[name, method] = config.head_calibration.name
    assert calibrations == {
        **{("ccvr", method): "none" for method in ("fedavg", "fedprox")},
        **{("fedavg", method): "none" for method in ("fedavg", "fedprox")},
        **{("given", method): "ccvr" for method in ("fedavg", "fedprox")},
        **{(name, "ccvr"): "ccvr" for name in ("ccvr", "fedavg", "given")},
    }
    flags = parsed(compare, "--config=presets/ccvr.json", "--algorithms=fedavg,ccvr")
    ((_, (plain, calibrated)),) = compare.read_configs(flags).items()
    assert plain.head_calibration.name == "none"
    assert calibrated.head_calibration.epochs == 3


def test_what_a_file_of_ones_own_gives_stays(folder):
    """A record does not say what had been given; TOML does."""
    argument = write(folder, "run.toml", "seed = 5\ndata_seed = 5\n")
    config = experiments.read_config(parsed(train, argument, "--seed=6"))
    assert config.seeds == (5, 6, 6, 6, 6)


def test_a_study_takes_the_method_and_the_seed_of_a_run(folder):
    settings = ExperimentConfig.from_settings(algorithm="fedgela", rounds=3, seed=5).to_settings()
    argument = write(folder, "config.json", json.dumps(settings))
    flags = parsed(compare, argument)
    assert (flags["algorithms"], flags["seeds"], flags["rounds"]) == (["fedgela"], ["5"], 3)
    flags = parsed(compare, argument, "--algorithms=fedavg,fedetf", "--seeds=0,1")
    ((_, configs),) = compare.read_configs(flags).items()
    expected = [
        ExperimentConfig.from_settings(algorithm=name, rounds=3, seed=seed)
        for name in ("fedavg", "fedetf")
        for seed in (0, 1)
    ]
    # FedGELA's width of the projection was derived from the method.
    assert configs == expected
    flags = parsed(sweep, argument)
    assert (flags["algorithm"], flags["seeds"], flags["rounds"]) == ("fedgela", ["5"], 3)
    # Others take no more than they have flags for, as of a flagfile.
    with pytest.raises(SettingError, match="algorithm=fedgela: there is no such flag; it is a fla"):
        parsed(partition, argument)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('rounds = "x"', "rounds=x: must be a whole number"),
        ("rounds = 1.5", "rounds=1.5: must be a whole number"),
        ("rounds = true", "rounds=True: must be a whole number"),
        ("join_names = 1", "join_names=1: must be true or false"),
        ("dataset = 3", "dataset=3: must be a string"),
        ('dataset = ["a"]', None),
        ("rounds = [1]", r"rounds=\[1\]: must be a whole number"),
        ("metrics = [[1]]", "must be a text, a number, true or false, or a list of them"),
        ("rounds = 2024-01-01", "must be a text, a number, true or false, or a list of them"),
        ("rond = 1", "rond=1: there is no such flag; did you mean --rounds\\?"),
        ("lr = 1", "lr=1: there is no such flag; did you mean --client_learning_rate\\?"),
        ("[a]\nrounds = 1\n[b]\nrounds = 2", "cannot be read: rounds is there twice"),
        ('"rounds=2 --seed" = 1', "cannot be read: 'rounds=2 --seed' is not the name of a setting"),
        ("rounds", "cannot be read: Expected '='"),
        (f"rounds = {'[' * 5000}", "cannot be read: "),
        ('output_dir = "/x"', "names output_dir=/x, which is not followed"),
        ('import = ["evil"]', "names import=evil, which is not followed"),
        ('data_dir = "/x"', "names data_dir=/x, which is not followed"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_in_one_line(text, reason, folder):
    argument = write(folder, "run.toml", text)
    if reason is None:
        assert parsed(train, argument)["dataset"] == "a"
        return
    # Flags of every program are known to it.
    flags = Flags(["train", argument])
    train.define(flags)
    flags.add(str, "import", None, "")
    with pytest.raises(SettingError, match=reason) as caught:
        flags.parse()
    assert caught.value.reason.startswith("--config=presets/run.toml: ")
    assert "\n" not in caught.value.reason


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("run.json", '{"rounds": 1, "rounds": 2}', "a name is there twice"),
        ("run.json", '["rounds"]', "not a JSON object"),
        ("run.json", '{"rounds": 1', "Expecting ',' delimiter"),
        ("run.yaml", "rounds: 1", r"its name must end in \.toml or \.json"),
    ],
)
def test_what_is_no_configuration(name, text, reason, folder):
    with pytest.raises(SettingError, match=f"^config=presets/{name}: cannot be read: {reason}"):
        flagfiles.expand([write(folder, name, text)])


def test_a_signed_configuration_may_name_any_flag(folder):
    argument = write(folder, "run.toml", 'import = ["one", "two"]\noutput_dir = "a"\n')
    assert flagfiles.expand([argument], only_trusted=True) == []
    flagfiles.expand(["--trust_flagfile=presets/run.toml"])
    assert flagfiles.expand([argument], only_trusted=True) == [
        "--import=one",
        "--import=two",
        "--output_dir=a",
    ]


def test_paths_of_a_run_are_followed_if_its_user_trained_it(folder):
    """As where a run is restored; its modules are not imported."""
    settings = {"rounds": 2, "data_dir": "/x", "import": {"no_such_module": "0"}}
    argument = write(folder, "config.json", json.dumps(settings))
    with pytest.raises(SettingError, match="names data_dir=/x, which is not followed"):
        flagfiles.expand([argument])
    signature.sign(folder, {"data_dir": "/x"})
    assert flagfiles.expand([argument]) == ["--rounds=2", "--data_dir=/x"]
    assert flagfiles.expand([argument], only_trusted=True) == []
    write(folder, "config.json", json.dumps({**settings, "data_dir": "/y"}))
    with pytest.raises(SettingError, match="names data_dir=/y, which is not followed"):
        flagfiles.expand([argument])


@pytest.mark.parametrize(
    ("line", "now"),
    [
        ("--jit_compile", "step"),
        ("--jit_compile=True", "step"),
        ("--jit_compile=false", "off"),
        ("--nojit_compile", "off"),
    ],
)
def test_the_flag_of_an_old_flagfile_is_read_with_a_note(line, now, folder, caplog):
    (folder / "old.flags").write_text(f"--rounds=2\n{line}\n")
    assert parsed(train, "--flagfile=presets/old.flags")["compile"] == now
    note = f"flagfile=presets/old.flags: {line} is read as compile={now}"
    assert caplog.messages == [note]
    parsed(train, write(folder, "old.toml", "jit_compile = true"))
    assert caplog.messages[1:] == [
        "config=presets/old.toml: --jit_compile=true is read as compile=step"
    ]


def test_a_typing_error_in_a_flagfile_of_others_is_one(folder):
    (folder / "mine.flags").write_text("--rond=3\n")
    reason = r"flagfile=presets/mine\.flags: rond=3: there is no such flag; did you mean --rounds\?"
    with pytest.raises(SettingError, match=reason):
        parsed(train, "--flagfile=presets/mine.flags")


def test_a_line_without_an_equals_sign_is_answered_with_one(folder):
    (folder / "mine.flags").write_text("--rounds 3\n")
    reason = r"rounds 3: there is no such flag; write --rounds=3$"
    with pytest.raises(SettingError, match=reason):
        parsed(train, "--flagfile=presets/mine.flags")
    (folder / "mine.flags").write_text("--fast and loose\n")
    with pytest.raises(SettingError, match="fast and loose: there is no such flag; --help lists"):
        parsed(train, "--flagfile=presets/mine.flags")


def test_names_in_a_list_keep_their_commas(tmp_path):
    """Those of columns, for example; a text is taken as it is."""
    path = tmp_path / "a.toml"
    path.write_text('feature_columns = ["age", "weight, in kg"]\n')
    assert flagfiles.expand([f"--config={path}"]) == ['--feature_columns=age,"weight, in kg"']
    path.write_text('feature_columns = "age,weight"\n')
    assert flagfiles.expand([f"--config={path}"]) == ["--feature_columns=age,weight"]
