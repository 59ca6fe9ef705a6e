"""Which settings of a run were chosen, and how runs of a comparison differ."""

import re

from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.report import settings_table


def settings(**values):
    return ExperimentConfig.from_settings(**values).to_settings()


def chosen(values):
    return {row.name: (row.value, row.default) for row in settings_table.rows(values) if row.chosen}


def test_without_flags_nothing_is_chosen():
    assert chosen(settings()) == {}


def test_what_was_chosen_comes_first():
    values = settings(algorithm="fedgela", rounds=7, batch_size=8)
    assert chosen(values) == {
        "algorithm": ("fedgela", "fedavg"),
        "rounds": ("7", "30"),
        "batch_size": ("8", "32"),
    }
    flags = [row.chosen for row in settings_table.rows(values)]
    assert flags == sorted(flags, reverse=True)
    # All but paths, which are not shown.
    assert len(flags) == len({*values} - {"warm_start"})


def test_values_that_follow_from_others_are_not_chosen():
    """The four seeds from `seed`, and the projection."""
    values = settings(algorithm="fedgela", seed=3, eval_every=2)
    assert values["data_seed"] == 3
    assert values["projection_dim"] == 84
    assert set(chosen(values)) == {"algorithm", "seed", "eval_every"}
    assert chosen({**values, "data_seed": 5})["data_seed"] == ("5", "3")


def test_paths_are_not_shown():
    """Without its path, the data set could not be described, and all seeds would look chosen."""
    values = settings(dataset="femnist", partition="natural", data_dir="/home/someone/data", seed=3)
    assert set(chosen(values)) == {"dataset", "partition", "seed"}
    assert not any("/home" in row.value for row in settings_table.rows(values))


def test_commands_have_whole_values_whose_characters_cannot_be_shown():
    values = {**settings(rounds=7), "algorithm": "mine\x07"}
    assert " '--algorithm=mine\\x07' " in settings_table.command(values)


def test_settings_of_unknown_components():
    values = {**settings(rounds=7), "algorithm": "mine", "mine_strength": 2.5}
    (row,) = [row for row in settings_table.rows(values) if row.name == "mine_strength"]
    assert (row.value, row.default, row.chosen) == ("2.5", "", True)
    assert "not imported" in row.meaning
    assert chosen(values)["rounds"] == ("7", "30")
    assert settings_table.configuration(values) is None


def test_modules_of_the_user():
    """They are named, and do not keep the other settings from being understood."""
    values = {**settings(seed=3), "import": {"my_methods": "0" * 64, "my_data": "1" * 64}}
    assert chosen(values) == {"seed": ("3", "0"), "import": ("my_methods, my_data", "none")}
    assert settings_table.configuration(values).seed == 3


def test_meanings_are_one_sentence():
    (row,) = [row for row in settings_table.rows(settings()) if row.name == "algorithm"]
    assert row.meaning == "The federated method."


def test_what_one_of_the_runs_has_by_choice():
    """The seed 0 is what the first run derives, and 84 the projection of FedGELA."""
    runs = [
        (name, settings(algorithm=name, seed=seed, data_seed=0, projection_dim=84))
        for name in ("fedgela", "fedavg")
        for seed in (0, 1)
    ]
    common, varied = settings_table.common_and_varied(runs)
    assert {row.name for row in common if row.chosen} == {"data_seed", "projection_dim"}
    assert varied == []
    command = settings_table.comparison_command(
        [values for _, values in runs], ("fedgela", "fedavg"), ("0", "1")
    )
    given = "--algorithms=fedgela,fedavg --seeds=0,1"
    words = command.split()
    assert words.pop().startswith("--output_dir=runs/again_")
    assert set(words[words.index("-m") :]) == {
        *("-m", "tasks.compare", *given.split()),
        *("--data_seed=0", "--projection_dim=84"),
    }
    # One that the runs do not share is shown with its values.
    runs[0] = ("fedgela", settings(algorithm="fedgela", data_seed=7, projection_dim=84))
    _, varied = settings_table.common_and_varied(runs)
    assert [row.name for row in varied] == ["data_seed"]


def test_two_commands_have_two_directories():
    """Also if they differ only in a path, which they do not show."""
    runs = [settings(rounds=7), settings(rounds=8)]
    runs += [{**runs[0], "data_dir": path} for path in ("north", "south")]
    commands = [settings_table.command(each) for each in runs]
    commands += [settings_table.comparison_command([each], ["fedavg"], ["0"]) for each in runs]
    places = [command.split("--output_dir=")[1] for command in commands]
    assert len({*places}) == 8
    assert all(re.fullmatch(r"runs/again_[0-9a-f]{6}", place) for place in places)
    # The same command continues what it has begun.
    assert settings_table.command(runs[0]) == commands[0]


def test_settings_of_a_comparison():
    runs = [
        (name, settings(algorithm=name, rounds=7, seed=seed))
        for name in ("fedavg", "fedgela")
        for seed in (0, 1)
    ]
    common, varied = settings_table.common_and_varied(runs)
    names = [row.name for row in common]
    assert names[0] == "rounds"
    assert not {"seed", "data_seed", "algorithm", "projection_dim", "fedgela_scale"} & {*names}
    assert [(row.name, row.values) for row in varied] == [
        ("projection_dim", [("0", "fedavg"), ("84", "fedgela")])
    ]
    runs[2] = ("fedgela", settings(algorithm="fedgela", fedgela_scale=5.0, rounds=7))
    _, varied = settings_table.common_and_varied(runs)
    assert ("fedgela_scale", [("5.0", "fedgela"), ("1.0", "fedgela")]) in [
        (row.name, row.values) for row in varied
    ]
