"""A sweep over methods: what is trained, chosen and reported, and on what grounds."""

import csv
import json
import re
import shutil

import pytest

from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tests.studies.fake_sweep import (
    ALL,
    AVG,
    CHOSEN,
    CHOSEN_OF_ALL,
    PROX,
    ROUNDS,
    TRAINED,
    Training,
    configs,
    name,
    point,
    points,
)
from tff_pcdd import measures
from tff_pcdd.report import sweep_page
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import (
    Halving,
    TableOptions,
    dry_run,
    method_sweep_tables,
    study,
    sweep_methods,
)
from tff_pcdd.studies.study import StudyRun

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def training(monkeypatch, tmp_path):
    stand_in = Training(tmp_path)
    monkeypatch.setattr(study, "run_experiment", stand_in)
    return stand_in


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def row_of(method, text, number=0):
    """The row of a method in one of the tables that begin with the column of the methods."""
    table = [*re.finditer(r"(?m)^\| method(?:.*\n?)+?(?=\n|\Z)", text)][number].group()
    head, *rows = table_rows(table)
    return next(dict(zip(head, row, strict=True)) for row in rows if row[0] == method)


@pytest.mark.draws
def test_halving_stops_settings_and_the_best_are_compared(training, tmp_path):
    result = sweep_methods(points(), tmp_path)
    assert training.trained == {
        **{f"tuning/fedprox/{name(t)}/seed_0": rounds for t, rounds in TRAINED.items()},
        # Two learning rates do not compete: the second is worse until round 2.
        f"tuning/fedavg/{name(('0.01',))}/seed_0": 8,
        f"tuning/fedavg/{name(('0.1',))}/seed_0": 8,
        **{f"comparison/{m}/seed_{s}": 8 for m in ("fedavg", "fedprox") for s in (1, 2, 3)},
    }
    assert result.chosen == {
        "fedavg": {"client_learning_rate": "0.1"},
        "fedprox": {"client_learning_rate": "0.1", "fedprox_mu": "0.001"},
    }
    assert not result.failures
    final = json.loads((tmp_path / "comparison/fedprox/seed_2/config.json").read_text())
    assert (final["client_learning_rate"], final["fedprox_mu"]) == (0.1, 0.001)
    assert (tmp_path / "best/fedprox.flags").read_text() == (
        "--algorithm=fedprox\n--client_learning_rate=0.1\n--fedprox_mu=0.001\n"
    )
    for file in ("comparison.csv", "comparison.md", "comparison.png", "rounds.csv"):
        assert (tmp_path / "comparison" / file).stat().st_size
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    page = (tmp_path / "report.html").read_text()
    assert '<a href="./comparison/report.html">' in page
    rows = {row["settings"]: row for row in read(tmp_path / "sweep.csv")}
    assert {t: int(rows[name(t)]["rounds"]) for t in PROX} == TRAINED
    assert [rows[name(t)]["stopped_after"] for t in PROX] == ["2", "", "4", "", "4", "2"]
    assert [s for s, row in rows.items() if row["chosen"] == "True"] == [
        name(("0.1",)),
        name(CHOSEN),
    ]


def test_the_final_comparison_has_the_target_of_the_sweep(training, tmp_path):
    sweep_methods(points(), tmp_path, tables=TableOptions(target_accuracy=50))
    text = (tmp_path / "comparison" / "comparison.md").read_text()
    assert "### Rounds to a GA of 50 %" in text


def test_all_settings_of_a_method_can_compete(training, tmp_path):
    """As in sweeps of earlier versions, which stop a rate that is slow at first."""
    result = sweep_methods(points(), tmp_path, halving=ALL)
    assert result.chosen["fedavg"] == {"client_learning_rate": "0.01"}
    assert training.trained[f"tuning/fedavg/{name(('0.1',))}/seed_0"] == 2
    names = ("client_learning_rate", "fedprox_mu")
    assert result.chosen["fedprox"] == dict(zip(names, CHOSEN_OF_ALL, strict=True))


def test_a_lucky_round_does_not_decide(training, monkeypatch, tmp_path):
    """0.1 has 95 % in rounds 3 and 4, and ends with 30 %; 0.01 ends with 40 %."""
    monkeypatch.setitem(AVG, ("0.1",), (20, 95, 30))
    of_fedavg = {"fedavg": points()["fedavg"]}
    chosen = sweep_methods(of_fedavg, tmp_path).chosen["fedavg"]
    assert chosen == {"client_learning_rate": "0.01"}
    rows = read(tmp_path / "sweep.csv")
    assert [float(row["va"]) for row in rows] == [40, 30]
    said = "mean of the last three evaluations"
    assert f"in %, {said} so far" in (tmp_path / "sweep.md").read_text()
    assert said in (tmp_path / "report.html").read_text()


def test_a_sweep_of_an_earlier_version_goes_on_to_choose_the_best_round(
    training, monkeypatch, tmp_path
):
    """Their sweep.csv does not say how points were compared."""
    monkeypatch.setitem(AVG, ("0.1",), (20, 95, 30))
    of_fedavg = {"fedavg": points()["fedavg"]}
    (tmp_path / "sweep.csv").write_text(
        "algorithm,settings,va\nfedavg,client_learning_rate=0.1,95\n"
    )
    for _ in range(2):
        chosen = sweep_methods(of_fedavg, tmp_path).chosen["fedavg"]
        assert chosen == {"client_learning_rate": "0.1"}
        text = (tmp_path / "sweep.md").read_text()
        assert "in %, in the best round so far" in text
        assert row_of("fedavg", text)["best round"] == "3"
        assert "in the best round, with the chosen" in (tmp_path / "report.html").read_text()
    chosen = sweep_methods(of_fedavg, tmp_path, overwrite=True).chosen["fedavg"]
    assert chosen == {"client_learning_rate": "0.01"}


@pytest.mark.parametrize("halving", [Halving(), ALL, Halving(())])
def test_of_equal_points_the_default_is_chosen(halving, training, monkeypatch, tmp_path):
    """μ = 0.01 and the learning rate 0.01 are the defaults; in the grid, they are not the first."""
    for texts in PROX:
        monkeypatch.setitem(PROX, texts, (20, 30, 40))
    sweeps = {"fedprox": points()["fedprox"]}
    chosen = sweep_methods(sweeps, tmp_path, halving=halving).chosen["fedprox"]
    assert chosen == {"client_learning_rate": "0.01", "fedprox_mu": "0.01"}
    # Sweeps that earlier versions began keep the first.
    text = (tmp_path / "sweep.csv").read_text()
    (tmp_path / "sweep.csv").write_text(text.replace(",score", ",x", 1))
    chosen = sweep_methods(sweeps, tmp_path, halving=halving).chosen["fedprox"]
    assert chosen == {"client_learning_rate": "0.01", "fedprox_mu": "0.001"}


@pytest.mark.parametrize("halving", [Halving(), Halving(())])
def test_a_coefficient_without_an_effect_is_no_edge(halving, training, monkeypatch, tmp_path):
    """The accuracy depends on the learning rate alone, of which 0.1 is the largest value."""
    for rate, mu in PROX:
        monkeypatch.setitem(PROX, (rate, mu), (20, 30, 40) if rate == "0.01" else (30, 50, 60))
    (tmp_path / "calls.jsonl").write_text('{"started": "now", "criterion": "va"}\n')
    result = sweep_methods({"fedprox": points()["fedprox"]}, tmp_path, halving=halving)
    assert result.chosen["fedprox"] == {"client_learning_rate": "0.1", "fedprox_mu": "0.01"}
    said = (
        "fedprox: all values of fedprox_mu have the same VA after the same rounds, so "
        "--criterion=va does not depend on it; fedprox_mu=0.01, the default, is kept. Next: "
        "--criterion=va_personal in another --output_dir, which compares personal models."
    )
    check_is_said(said, "unseen", result.report, tmp_path)
    said = "fedprox: the chosen client_learning_rate=0.1 is the largest value of the grid"
    check_is_said(said, "edge", result.report, tmp_path)
    kinds = [each.kind for each in sweep_page.content(Directory(tmp_path))["findings"]]
    assert "tie" not in kinds


def test_the_accuracies_after_the_rungs_are_in_the_table(training, tmp_path):
    """Mean of the last three rounds: after four, of 40, 60 and 60 %."""
    sweep_methods(points(), tmp_path)
    rows = {row["settings"]: row for row in read(tmp_path / "sweep.csv")}
    row = rows[name(("0.01", "1"))]
    assert (float(row["va_after_2"]), float(row["va_after_4"])) == (40, pytest.approx(160 / 3))
    assert row["va"] == row["va_after_4"]
    assert rows[name(("0.01", "0.001"))]["va_after_4"] == ""


def test_rounds_count_although_a_pause_is_not_evaluated(monkeypatch, tmp_path):
    class Seldom(Training):
        def __call__(self, config, folder, *arguments, **options):
            result = super().__call__(config, folder, *arguments, **options)
            if "paused" in result:
                path = folder / "metrics.csv"
                path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
            return result

    monkeypatch.setattr(study, "run_experiment", Seldom(tmp_path))
    sweep_methods(points(), tmp_path)
    rows = {row["settings"]: row for row in read(tmp_path / "sweep.csv")}
    assert {t: int(rows[name(t)]["rounds"]) for t in PROX} == TRAINED


def test_a_dry_run_counts_the_rounds_that_are_trained(training, tmp_path):
    counted = dry_run.sweep_methods(points(), tmp_path).splitlines()[-1]
    sweep_methods(points(), tmp_path)
    assert counted.endswith(f"; at most {sum(training.trained.values())} rounds")


def test_a_dry_run_does_not_count_what_is_done(training, monkeypatch, tmp_path):
    """All is done; then the last two final runs of FedProx are missing, with 8 rounds each."""

    class Record:
        def __init__(self, folder):
            self.round = len((folder / "metrics.csv").read_text().splitlines()) - 1

    monkeypatch.setattr(
        dry_run, "recorded", lambda f: Record(f) if (f / "metrics.csv").exists() else None
    )
    total = dry_run.sweep_methods(points(), tmp_path).splitlines()[-1]
    sweep_methods(points(), tmp_path)
    *lines, last = dry_run.sweep_methods(points(), tmp_path).splitlines()
    ends = [line.partition("; ")[2] for line in lines]
    assert ends == [
        "finished" if rounds == ROUNDS else f"continues after round {rounds}"
        for rounds in (ROUNDS, ROUNDS, *TRAINED.values())
    ]
    assert last.endswith("; at most 0 rounds left")
    for seed in (2, 3):
        shutil.rmtree(tmp_path / f"comparison/fedprox/seed_{seed}")
    last = dry_run.sweep_methods(points(), tmp_path).splitlines()[-1]
    assert last.endswith("; at most 16 rounds left")
    assert dry_run.sweep_methods(points(), tmp_path, overwrite=True).splitlines()[-1] == total


def test_the_report(training, tmp_path):
    report = sweep_methods(points(), tmp_path).report
    assert max(map(len, report.splitlines())) <= 80
    assert ["fedprox", "client_learning_rate=0.1, fedprox_mu=0.001", "95.0"] in [
        line[:3] for line in table_rows(report)
    ]
    assert "One model for all: undecided between fedprox and fedavg; fedprox leads." in report
    # Seed 0 has chosen the settings.
    assert "More seeds decide more: --final_seeds=1,2,3,4,5." in " ".join(report.split())
    text = (tmp_path / "sweep.md").read_text()
    cells = table_rows(text)
    # Points, stopped, and the rounds of all points: 2 × (2 + 4 + 8).
    chosen = "client_learning_rate=0.1, fedprox_mu=0.001"
    assert ["fedprox", chosen, "95.0", "6", "4", "28"] in cells
    values = {
        **row_of("fedprox", text.partition("### Accuracy\n\n")[2]),
        **row_of("fedprox", text.partition("### Cost\n\n")[2]),
    }
    # GA is 50 + seed of FedAvg and 50 + 2 seed of FedProx, for seeds 1, 2, 3.
    assert values["GA"] == "**54.0 ± 2.0**"
    assert values["GA - FedAvg's"] == "+2.0 ± 1.0"
    assert values["VA, global, best round"] == "**95.0 ± 0.0**"
    assert (values["MB"], values["s/round"], values["seeds"]) == ("4.0", "0.500 ± 0.000", "3")
    assert "with seed 0" in text
    assert "seeds 1, 2, 3" in text


@pytest.mark.parametrize(
    ("among", "others"), [("same_rate", "others with the same learning rates"), ("all", "others")]
)
def test_the_report_says_which_points_compete(training, tmp_path, among, others):
    sweep_methods(points(), tmp_path, halving=Halving(among=among))
    text = " ".join((tmp_path / "sweep.md").read_text().split())
    assert f"that were stopped early, because {others} had a higher VA. Rounds" in text


@pytest.mark.parametrize(
    ("criterion", "which"),
    [("va", "global"), ("va_balanced", "balanced"), ("va_personal", "personal")],
)
def test_the_held_out_accuracy_beside_the_results_is_the_criterion(criterion, which, tmp_path):
    summary = {"va_best": 50.0, "va_balanced_best": 50.0, "va_personal_best": 50.0}
    summary[f"{criterion}_best"] = 70.0
    runs = [StudyRun(config, tmp_path, "this run", summary) for config in configs([1])]
    _, accuracies, *_ = method_sweep_tables.results(runs, criterion)
    assert row_of("fedavg", accuracies)[f"VA, {which}, best round"] == "70.0"


def test_no_table_of_results_has_more_columns_than_can_be_read(tmp_path):
    """Ten, with other PA epochs for each method, groups of classes, costs and a further head."""
    summary = dict.fromkeys([*measures.TABLE, *measures.GROUPS, "va_best"], 50.0)
    summary |= {"upload_bytes": 1, "download_bytes": 2, "seconds_per_round": 0.5}
    runs = [
        StudyRun(config, tmp_path, "", {**summary, "personal_epochs": number, **further})
        for number, further in enumerate(({}, {"ga_ssec_final": 60.0}))
        for config in configs([1], algorithm=("fedavg", "fedloge")[number])
    ]
    text = method_sweep_tables.document(runs[0].config, [], runs, "va", [], [], "all")
    headings = [line for line in text.splitlines() if line.startswith("| method")]
    assert [line.count("|") - 1 for line in headings] == [6, 10, 8, 4]
    assert {*measures.headings(*measures.GROUPS).values()} <= {*row_of("fedavg", text, 2)}
    assert row_of("fedloge", text, 1)["PA epochs"] == "1"
    assert "fedloge: ssec" in text


def test_test_accuracies_do_not_enter_any_decision(monkeypatch, tmp_path):
    results = []
    for number, test in enumerate((lambda seed: 50 + seed, lambda seed: 90 - 7 * seed)):
        directory = tmp_path / str(number)
        stand_in = Training(directory, test)
        monkeypatch.setattr(study, "run_experiment", stand_in)
        chosen = sweep_methods(points(), directory).chosen
        results.append((chosen, stand_in.trained, (directory / "sweep.csv").read_bytes()))
    assert results[0] == results[1]
    # The test accuracies did differ.
    finals = [read(tmp_path / f"{number}/comparison/comparison.csv") for number in (0, 1)]
    assert finals[0][0]["ga_final"] != finals[1][0]["ga_final"]


@pytest.mark.parametrize(
    "where", [f"tuning/fedprox/{name(('0.01', '1'))}/seed_0", "comparison/fedavg/seed_2"]
)
def test_an_interrupted_sweep_repeats_nothing(where, training, tmp_path):
    training.dies.add(where)
    with pytest.raises(KeyboardInterrupt):
        sweep_methods(points(), tmp_path)
    training.dies.clear()
    sweep_methods(points(), tmp_path)
    tuned = {f"tuning/fedprox/{name(texts)}/seed_0": r for texts, r in TRAINED.items()}
    assert tuned.items() <= training.trained.items()
    assert set(training.trained.values()) == {2, 4, 8}


def test_a_sweep_that_is_repeated_decides_as_before(training, tmp_path):
    """A run that diverged after a rung had not diverged at that rung."""
    training.diverges[f"tuning/fedprox/{name(CHOSEN)}/seed_0"] = 6
    first = sweep_methods(points(), tmp_path)
    assert first.chosen["fedprox"] == {"client_learning_rate": "0.01", "fedprox_mu": "0.01"}
    trained = dict(training.trained)
    assert sweep_methods(points(), tmp_path) == first
    assert training.trained == trained


def check_is_said(said, kind, report, directory):
    """Checks that the terminal, sweep.md and the page have a sentence, the page as a finding."""
    page = sweep_page.content(Directory(directory))["findings"]
    [line] = [each.line for each in page if each.kind == kind]
    for shown in (report, (directory / "sweep.md").read_text(), line):
        assert said in " ".join(shown.split())


def test_points_that_lie_too_near_for_the_held_out_samples(training, tmp_path):
    """80 % of 500 samples are trained on.

    Newcombe's interval of 99 and 93.3 % of 100 samples begins at +0.06 points, that of 99 and
    93.4 % at −0.02.
    """
    training.trained_on = 400
    result = sweep_methods(points(), tmp_path, halving=Halving(rungs=()))
    assert result.chosen["fedprox"]["fedprox_mu"] == "0.01"
    # 99 is 1 and 4 points above two of five points, and 60 is 20 above the other one.
    said = (
        "VA is measured on about 100 held-out samples, so differences of less than 5.7 points may "
        "be chance. Less than that separates the chosen point from 2 of the 5 other points of "
        "fedprox. Next: "
        "--seeds=0,4,5,6,7 (now 0), or a larger --validation_fraction."
    )
    check_is_said(said, "noise", result.report, tmp_path)


def test_points_that_were_stopped_are_not_counted_as_near(training, tmp_path):
    """Two of six points train to the end, with 95 and 62 %, which 5 samples do not tell apart."""
    training.trained_on = 20
    result = sweep_methods(points(), tmp_path)
    said = "the only other point of fedprox that was trained to the end. "
    check_is_said(said, "noise", result.report, tmp_path)


def test_a_former_winner_that_a_larger_grid_stops_is_named(training, tmp_path):
    """0.001 has 30 % after two rounds, less than two of the three points of the larger grid."""
    both = ("client_learning_rate", "fedprox_mu")
    small = {"fedprox": [point("fedprox", both, ("0.01", "0.001"))]}
    first = sweep_methods(small, tmp_path)
    assert first.chosen["fedprox"]["fedprox_mu"] == "0.001"
    assert "chosen any more" not in first.report
    larger = {"fedprox": [point("fedprox", both, texts) for texts in [*PROX][:3]]}
    second = sweep_methods(larger, tmp_path)
    assert second.chosen["fedprox"]["fedprox_mu"] == "0.01"
    said = (
        "1 point that an earlier sweep here has trained to the end cannot be chosen any more, "
        "because the last sweep has stopped early what was behind other points of its grid: "
        "fedprox/client_learning_rate=0.01,fedprox_mu=0.001. Next: the same command with --rungs="
    )
    check_is_said(said, "overtaken", second.report, tmp_path)


def test_nothing_is_chosen_while_a_run_of_the_method_lacks(training, tmp_path):
    failing = f"tuning/fedprox/{name(('0.1', '1'))}/seed_0"
    training.fails.add(failing)
    result = sweep_methods(points(), tmp_path)
    assert list(result.chosen) == ["fedavg"]
    (line,) = result.failures
    assert line == f"fedprox {name(('0.1', '1'))} seed 0: ArithmeticError: no"
    assert "ArithmeticError" in (tmp_path / "failures.txt").read_text()
    assert "runs failed" in result.report
    assert not (tmp_path / "comparison/fedprox").exists()
    training.fails.clear()
    result = sweep_methods(points(), tmp_path)
    assert result.chosen["fedprox"] == {"client_learning_rate": "0.1", "fedprox_mu": "0.001"}
    assert not (tmp_path / "failures.txt").exists()


def test_without_rungs_all_settings_train_to_the_end(training, tmp_path):
    result = sweep_methods(points(), tmp_path, halving=Halving(()))
    assert set(training.trained.values()) == {ROUNDS}
    assert result.chosen["fedprox"] == {"client_learning_rate": "0.1", "fedprox_mu": "0.01"}


def test_overwriting_starts_every_run_once_again(training, tmp_path):
    sweep_methods(points(), tmp_path)
    first = dict(training.trained)
    sweep_methods(points(), tmp_path, overwrite=True)
    assert training.trained == {folder: 2 * rounds for folder, rounds in first.items()}


def test_another_choice_replaces_the_final_runs_and_the_flagfiles(training, tmp_path):
    """What was computed is moved, not lost: it is there again if it is chosen again."""
    sweep_methods(points(), tmp_path)
    first = dict(training.trained)
    final = tmp_path / "comparison/fedprox/seed_2"
    earlier = (final / "metrics.csv").read_bytes()
    # Without the learning rate of the best point.
    fewer = {"fedprox": [p for p in points()["fedprox"] if "learning_rate=0.01," in p.name]}
    again = sweep_methods(fewer, tmp_path)
    assert again.chosen["fedprox"]["client_learning_rate"] == "0.01"
    assert json.loads((final / "config.json").read_text())["client_learning_rate"] == 0.01
    assert training.trained["comparison/fedprox/seed_2"] == 2 * ROUNDS
    (kept,) = (tmp_path / "earlier_choices").glob("*/fedprox/seed_2/metrics.csv")
    assert kept.read_bytes() == earlier
    # The flagfile and the results of a method that is no longer in the list are not shown.
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["fedprox.flags"]
    assert {row["algorithm"] for row in read(tmp_path / "comparison/comparison.csv")} == {"fedprox"}
    sweep_methods(points(), tmp_path)
    assert (final / "metrics.csv").read_bytes() == earlier
    assert training.trained["comparison/fedprox/seed_2"] == 2 * ROUNDS
    computed = {name for name in training.trained if training.trained[name] != first.get(name)}
    assert {name.split("/")[0] for name in computed} == {"comparison"}
    assert sorted(path.name for path in (tmp_path / "best").iterdir()) == [
        "fedavg.flags",
        "fedprox.flags",
    ]


def test_runs_on_other_data_are_not_taken_for_those_that_are_chosen(training, tmp_path):
    """Points in Python may differ in the place of the data alone."""
    places = [tmp_path / name for name in ("a.npz", "b.npz")]
    for place in places:
        place.touch()
    rate = ("client_learning_rate",), ("0.1",)
    given = [
        point("fedavg", *rate, dataset="npz", model="mlp", data_dir=str(place)) for place in places
    ]
    on_a, on_b = (
        {"fedavg": [each._replace(settings={"data": name})]}
        for each, name in zip(given, "ab", strict=True)
    )
    sweep, final = tmp_path / "sweep", tmp_path / "sweep/comparison/fedavg/seed_2/config.json"
    for number, (chosen, place) in enumerate([(on_a, 0), (on_b, 1), (on_a, 0)], 1):
        sweep_methods(chosen, sweep)
        assert json.loads(final.read_text())["data_dir"] == str(places[place])
        # Three seeds for each of the two data sets; those of the first are there again.
        earlier = {*(sweep / "earlier_choices").glob("*/fedavg/*/config.json")}
        assert len(earlier) == 3 * (number > 1)
    trained = training.trained["sweep/comparison/fedavg/seed_2"]
    assert trained == 2 * ROUNDS


def test_what_is_not_a_final_run_is_not_moved(training, tmp_path):
    sweep_methods(points(), tmp_path)
    (tmp_path / "comparison/fedprox/seed_2/config.json").write_text("{")
    with refuses("output_dir", "config.json is damaged"):
        sweep_methods(points(), tmp_path)
    assert not (tmp_path / "earlier_choices").exists()


@pytest.mark.parametrize(
    ("changed", "setting", "reason"),
    [
        (points(validation_fraction=0.0), "validation_fraction", "a sweep chooses on held-out"),
        ({"fedavg": [*points()["fedavg"], points()["fedavg"][0]]}, "grid", "each value once"),
        (
            {"fedavg": [points()["fedavg"][0]._replace(finals=configs([2, 0]))]},
            "final_seeds",
            "settings are chosen with seed 0",
        ),
        (
            {"fedavg": [points()["fedavg"][0]._replace(finals=configs([2, 2]))]},
            "final_seeds",
            "name each seed once",
        ),
    ],
)
def test_refusals(changed, setting, reason, tmp_path):
    with refuses(setting, reason):
        sweep_methods(changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
