"""`--help` in two screens, and what `--help=TOPIC` and `--helpfull` add to it."""

import re

import pytest

from tff_pcdd.settings import describe
from tff_pcdd.training import ExperimentConfig, RunOptions

PROGRAMS = ["train", "compare", "sweep", "evaluate", "export", "partition", "benchmark"]


@pytest.fixture
def help_of(call_here):
    def help_of(*arguments):
        status, out, err = call_here(*arguments)
        assert (status, err) == (0, "")
        return out

    return help_of


def flags_in(text):
    return re.findall(r"^  --(\w+)", text, re.M)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_fits_two_screens(program, help_of):
    for flag in ("--help", "-h", "--helpshort"):
        text = help_of(program, flag)
        lines = text.splitlines()
        assert len(lines) <= 100
        assert max(map(len, lines)) <= 100
        assert text.startswith(help_of(program, "--helpfull").partition("\n")[0])


def test_a_line_says_as_much_as_fits(help_of):
    """Such as what a default of 0 means, and that a flag is required."""
    lines = [" ".join(line.split()) for line in help_of("train", "--help").splitlines()]
    assert "--clients_per_round [0] Clients drawn for each round (the cohort); 0 for all" in lines
    assert "--output_dir Directory of the results; required" in lines


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        ("train", ["output_dir", "algorithm", "dataset", "rounds", "import"]),
        ("compare", ["algorithms", "seeds", "baselines", "partitions", "rounds"]),
        ("sweep", ["grid", "criterion", "algorithm", "validation_fraction"]),
    ],
)
def test_it_has_what_most_runs_need_and_the_names_of_the_rest(program, wanted, help_of):
    text = help_of(program, "--help")
    flags, everything = flags_in(text), flags_in(help_of(program, "--helpfull"))
    assert set(wanted) <= set(flags) < set(everything)
    assert len(flags) <= 35
    assert f"--helpfull lists all {len(everything)} flags" in text
    for name in ("fedgela", "dirichlet", "svhn_cropped", "resnet18", "Aggregation", "ray"):
        assert re.search(rf"\b{name}\b", text), name


def test_names_are_not_broken_in_two_lines(help_of):
    """A line ends behind a bar, or where a space was."""
    text = help_of("train", "--helpfull")
    lines = [line.strip() for line in text.splitlines()]
    joined = " ".join(lines).replace("| ", "|")
    for cls in (ExperimentConfig, RunOptions):
        for setting in describe(cls):
            assert " ".join(setting.help.split()) in joined, setting.name
            if setting.chosen_by not in (None, "algorithm"):
                owners = "|".join(setting.applies_to)
                assert f"Only with --{setting.chosen_by}={owners}." in joined, setting.name


def test_a_topic_is_a_group_a_component_or_a_flag(help_of):
    assert flags_in(help_of("train", "--help=seeds"))[0] == "data_seed"
    assert flags_in(help_of("train", "--help=fedprox")) == ["client_weighting", "fedprox_mu"]
    assert flags_in(help_of("compare", "--help=fedprox")) == ["client_weighting", "fedprox_mu"]
    assert flags_in(help_of("train", "--help", "dirichlet"))[:2] == ["num_clients", "concentration"]
    assert flags_in(help_of("train", "--help=rounds")) == ["rounds"]
    assert flags_in(help_of("train", "--help=--rounds")) == ["rounds"]
    assert "no flags of its own" in help_of("train", "--help=worst_class")
    assert "Class of the same" not in help_of("train", "--help=digits")


def test_defaults_that_differ_between_components_are_all_shown(help_of):
    for flag, shown, sentence in (
        ("client_learning_rate", "0.01", "With client_optimizer=adam|adamw, the default is 0.001."),
        (
            "server_learning_rate",
            "1.0",
            "With server_optimizer=fedadagrad|fedadam|fedyogi, the default is 0.01.",
        ),
    ):
        text = help_of("train", f"--help={flag}")
        assert text.startswith(f"  --{flag} [{shown}]")
        assert sentence in " ".join(text.split())
    assert "the default is" not in help_of("train", "--help=client_momentum")


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("fedgella", "did you mean --help=fedgela"),
        ("lr", "did you mean --help=client_learning_rate?\n"),
        ("x", "; --help lists all names\n"),
    ],
)
def test_an_unknown_topic_is_refused(topic, hint, call_here):
    status, out, err = call_here("train", f"--help={topic}")
    assert (status, out) == (2, "")
    assert err.startswith(f"train: error: --help={topic}: there is nothing of that name")
    assert hint in err
    assert err.count("\n") == 1
