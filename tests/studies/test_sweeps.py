"""A sweep: what it chooses, on what, and what it refuses."""

import csv
import pathlib

import pytest

from tests.data.refusals import refuses
from tests.studies.made_runs import replace_training
from tff_pcdd.studies import Outcome, Point, study, sweep, sweep_plots
from tff_pcdd.training import ExperimentConfig

pytestmark = pytest.mark.usefixtures("undrawn")

# Validation and test accuracies by (rate, seed): the best on test data is not the best to choose.
VALIDATION = {("0.01", 0): 50, ("0.01", 1): 60, ("0.1", 0): 80, ("0.1", 1): 20, ("1", 0): 40}
TEST = {"0.01": 30.0, "0.1": 90.0, "1": 20.0}


def point(rate, seeds=(0, 1), fraction=0.2):
    return Point(
        {"client_learning_rate": rate},
        [
            ExperimentConfig.from_settings(
                client_learning_rate=float(rate), seed=seed, validation_fraction=fraction
            )
            for seed in seeds
        ],
    )


POINTS = [point("0.01"), point("0.1"), point("1")]


@pytest.fixture
def computed(monkeypatch):
    """Replaces training by the accuracies above; the run that has none fails."""

    def outcome(config):
        rate = f"{config.training.optimizer.learning_rate:g}"
        value = VALIDATION[rate, config.seed]
        return {
            "va_best": value,
            "best_round": 3,
            "ga_at_best_round": TEST[rate],
            "pa_at_best_round": None,
            "va_balanced_best": 200 - value,
            "best_balanced_round": 5,
            "va_personal_best": 100 - value,
            "best_personal_round": 4,
        }

    return replace_training(monkeypatch, outcome)


@pytest.mark.draws
def test_the_best_is_chosen_on_held_out_samples(computed, tmp_path):
    result = sweep(POINTS, tmp_path)
    assert [str(folder.relative_to(tmp_path)) for folder in computed] == [
        f"client_learning_rate={rate}/seed_{seed}" for rate in TEST for seed in (0, 1)
    ]
    assert result.best == {"client_learning_rate": "0.01"}
    flags = (tmp_path / "best.flags").read_text()
    assert flags == "--algorithm=fedavg\n--client_learning_rate=0.01\n"
    text = (tmp_path / "sweep.md").read_text()
    lines = [line.replace(" ", "") for line in text.splitlines()]
    assert "|**0.01**|**55.0±7.1**|**3±0**|**30.0±0.0**|**–**|**2**|" in lines
    assert "|0.1|50.0±42.4|3±0|90.0±0.0|–|2|" in lines
    # A point without all of its runs is reported and not chosen.
    assert "|1|40.0|3|20.0|–|1of2|" in lines
    assert result.failures == ["client_learning_rate=1 seed 1: KeyError: ('1', 1)"]
    assert max(map(len, result.report.splitlines())) <= 80
    edge = "The chosen client_learning_rate=0.01 is the smallest value of the grid"
    for report in (text, result.report):
        assert edge in " ".join(report.split())
    assert "with --grid=client_learning_rate=0.001,0.01,0.1,1, which" in " ".join(text.split())
    with open(tmp_path / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["client_learning_rate"], row["seed"], row["va_best"]) for row in rows] == [
        (rate, str(seed), str(value)) for (rate, seed), value in VALIDATION.items()
    ]
    assert {row["settings"] for row in rows} == {point.name for point in POINTS}
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    assert "Chosen: client_learning_rate=0.01." in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        # The default is 0.01.
        (("0.1", "0.01", "0.001"), "0.01"),
        # 0.02 is twice the default, and 0.1 ten times as much.
        (("0.1", "0.02"), "0.02"),
        # Both are as near, and the first is chosen.
        (("0.1", "0.1000"), "0.1"),
    ],
)
def test_of_equal_points_the_nearest_to_the_defaults_is_chosen(
    rates, expected, monkeypatch, tmp_path
):
    """All have 60 %, but for rounding: larger rates have more, by less than 1e-9 %."""

    def outcome(config):
        rate = config.training.optimizer.learning_rate
        return {"va_best": 60 + rate * 1e-9, "best_round": 3, "ga_at_best_round": 50}

    replace_training(monkeypatch, outcome)
    result = sweep([point(rate) for rate in rates], tmp_path)
    assert result.best == {"client_learning_rate": expected}
    assert (tmp_path / "best.flags").read_text().endswith(f"--client_learning_rate={expected}\n")
    others = ", ".join(f"client_learning_rate={rate}" for rate in rates if rate != expected)
    said = f"Points with the same VA as the chosen one: {others}."
    assert said in " ".join(result.report.split())
    said = f"Chosen: client_learning_rate={expected}, one of {len(rates)} points with the same VA."
    assert said in (tmp_path / "report.html").read_text()


def test_no_page_is_written_where_none_is_asked_for(computed, tmp_path):
    sweep(POINTS, tmp_path, report=False)
    assert (tmp_path / "sweep.md").exists()
    assert not (tmp_path / "report.html").exists()


def test_points_that_lie_too_near_for_the_held_out_samples(computed, tmp_path, monkeypatch):
    """55 and 50 %, each of twice 100 samples: Newcombe's interval of 55 and 45.3 % begins at
    −0.09, that of 55 and 45.2 % at 0.01.
    """
    sweep(POINTS, tmp_path)
    clients = "client,train_samples,test_samples,warning\n0,400,9,\n"
    (tmp_path / "client_learning_rate=0.01" / "seed_0" / "clients.csv").write_text(clients)
    monkeypatch.setattr(study, "check", lambda *args, **options: None)
    result = sweep(POINTS, tmp_path)
    said = (
        "VA is measured on about 100 held-out samples with each of 2 seeds, so differences of less "
        "than 9.8 points may be chance. Less than that separates the chosen point from the only "
        "other point that was trained to the end."
    )
    for shown in (result.report, (tmp_path / "sweep.md").read_text()):
        assert said in " ".join(shown.split())


def test_rows_name_settings_that_are_measured_too(monkeypatch, tmp_path):
    """A run may end before its planned number of rounds."""
    made = [
        ExperimentConfig.from_settings(rounds=rounds, validation_fraction=0.2) for rounds in (4, 6)
    ]
    summary = {"seed": 0, "rounds": 3, "va_best": 50, "best_round": 3, "ga_at_best_round": 40}
    monkeypatch.setattr(study, "run_experiment", lambda *args, **options: summary)
    sweep([Point({"rounds": str(c.training.rounds)}, [c]) for c in made], tmp_path)
    with open(tmp_path / "sweep.csv", newline="") as file:
        rows = [(row["settings"], row["rounds"]) for row in csv.DictReader(file)]
    assert rows == [("rounds=4", "3"), ("rounds=6", "3")]


def test_points_of_earlier_sweeps_in_the_directory_are_named(tmp_path, monkeypatch):
    def computed(config, output_dir, *args, **options):
        pathlib.Path(output_dir).mkdir(parents=True)
        (pathlib.Path(output_dir) / "config.json").write_text("{}")
        (pathlib.Path(output_dir) / "summary.json").write_text("{}")
        return {"seed": config.seed, "rounds": 3, "va_best": 50, "best_round": 3}

    monkeypatch.setattr(study, "run_experiment", computed)
    monkeypatch.setattr(study, "check", lambda *args, **options: None)
    first = sweep([point("0.5"), point("0.1")], tmp_path)
    assert "did not try" not in first.report
    monkeypatch.setattr(study, "run_experiment", lambda *args, **options: 1 / 0)
    again = sweep([point("2")], tmp_path)
    wanted = "2 finished points in this directory that the last sweep here did not try: "
    wanted += (
        "client_learning_rate=0.1, client_learning_rate=0.5. Next: name their values in --grid"
    )
    for report in (again.report, (tmp_path / "sweep.md").read_text()):
        assert wanted in " ".join(report.split())


def test_files_of_an_earlier_choice_do_not_stay(computed, tmp_path, monkeypatch):
    sweep(POINTS, tmp_path)
    monkeypatch.setattr(study, "run_experiment", lambda *args, **options: 1 / 0)
    failed = sweep([point("0.5")], tmp_path)
    assert failed.best is None
    assert not (tmp_path / "best.flags").exists()
    assert not (tmp_path / "sweep.png").exists()


@pytest.mark.parametrize(
    ("criterion", "best_round", "note"),
    [
        ("va_personal", 4, "mean over clients of the personal model's accuracy"),
        ("va_balanced", 5, "mean over classes of the global model's accuracy"),
    ],
)
def test_the_other_criteria(criterion, best_round, note, computed, tmp_path):
    result = sweep(POINTS, tmp_path, criterion=criterion)
    assert result.best == {"client_learning_rate": "0.1"}
    assert f"| {best_round} ± 0" in result.report.replace("**", "")
    which = criterion.removeprefix("va_")
    assert f"VA, {which}: {note}" in (tmp_path / "sweep.md").read_text()
    with open(tmp_path / "sweep.csv", newline="") as file:
        assert {row["criterion"] for row in csv.DictReader(file)} == {criterion}


@pytest.mark.parametrize(
    ("points", "setting", "reason"),
    [
        ([point("0.1", fraction=0.0)], "validation_fraction", "a sweep chooses on held-out"),
        ([point("0.1"), point("0.1")], "grid", "name each value once"),
        ([point("0.1", seeds=(1, 1))], "seeds", "name each seed once"),
    ],
)
def test_refusals(points, setting, reason, tmp_path):
    with refuses(setting, reason):
        sweep(points, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def outcomes(*names):
    """Points of as many flags, with VA 0, 1, 2, … in the order of the grid."""
    return [
        Outcome(Point(dict(zip("abc", values, strict=False)), []), [v, v + 2.0], [1], [50.0], [], 2)
        for v, values in enumerate(names)
    ]


def test_two_flags_are_a_map_with_a_frame():
    some = outcomes(("1", "x"), ("1", "y"), ("2", "x"), ("2", "y"))
    some[1] = some[1]._replace(validation=[])
    figure, axes = sweep_plots.draw(some, some[2], "title")
    figure.draw_without_rendering()
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(0, 0): "1.0", (1, 0): "–", (0, 1): "3.0", (1, 1): "4.0"}
    (frame,) = axes.patches
    assert (frame.get_x(), frame.get_y()) == (-0.5, 0.5)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("b", "a")


@pytest.mark.parametrize(("values", "scale"), [("0.9 0 0.5", "linear"), ("1e5 1e3 1e4", "log")])
def test_numbers_of_one_flag_are_curves(values, scale):
    some = outcomes(*((value,) for value in values.split()))
    some[2] = some[2]._replace(ga=[])
    figure, axes = sweep_plots.draw(some, some[1], "title")
    figure.draw_without_rendering()
    first, second, third = map(float, values.split())
    # VA is 1, 2 and 3 on average, in the order of the grid; the axis is in the order of numbers.
    validation, ga = (container.lines[0] for container in axes.containers)
    assert validation.get_xdata().tolist() == [second, third, first]
    assert validation.get_ydata().tolist() == [2, 3, 1]
    assert ga.get_xdata().tolist() == [second, first]
    assert axes.get_xscale() == scale
    assert axes.get_xlabel() == "a"
    (chosen,) = (line for line in axes.lines if line.get_color() == "red")
    assert set(chosen.get_xdata()) == {second}


@pytest.mark.parametrize("flags", [1, 3])
def test_other_grids_are_ranked(flags):
    some = outcomes(*(tuple(f"{number}x{flag}" for flag in range(flags)) for number in range(4)))
    some[2] = some[2]._replace(validation=[], ga=[])
    figure, axes = sweep_plots.draw(some, some[3], "title")
    figure.draw_without_rendering()
    names = [label.get_text() for label in axes.yaxis.get_ticklabels()]
    assert [name.split("=")[1][0] for name in names] == ["3", "1", "0", "2"]
    assert axes.yaxis.get_ticklabels()[0].get_fontweight() == "bold"
    # The data line of the error bars of VA.
    assert axes.containers[0].lines[0].get_xdata().tolist() == [4, 2, 1]
