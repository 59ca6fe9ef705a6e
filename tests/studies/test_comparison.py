"""A comparison: what is refused, what a failed run costs, what the tables say."""

import csv
import re

import numpy as np
import pytest

from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tests.report.directories import make_run
from tests.studies.made_runs import replace_training
from tff_pcdd import measures
from tff_pcdd.errors import SettingError, WriteError
from tff_pcdd.report import comparison_page
from tff_pcdd.results import comparison_directory, verdict
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import TableOptions, compare, comparison, comparison_tables, study
from tff_pcdd.studies.study import StudyRun
from tff_pcdd.training import ExperimentConfig

pytestmark = pytest.mark.usefixtures("undrawn")


def configs(algorithms=("fedavg", "fedgela"), seeds=(0, 1), **settings):
    return [
        ExperimentConfig.from_settings(algorithm=a, seed=s, **settings)
        for a in algorithms
        for s in seeds
    ]


@pytest.fixture
def computed(monkeypatch):
    """Replaces training by a summary and a metrics file; the folders that it was called for."""

    def outcome(config):
        if config.seed == 13:
            raise ArithmeticError("thirteen")
        if config.seed == 14:
            raise SettingError("seed", 14, "is not liked")
        return {}

    return replace_training(monkeypatch, outcome)


def table(text):
    """The rows of a markdown table as dicts."""
    assert len({len(line) for line in text.splitlines()}) == 1
    head, *body = table_rows(text)
    return [dict(zip(head, line, strict=True)) for line in body]


def section(text, title):
    """The rows of the table below a heading."""
    return table(text.partition(f"{title}\n\n")[2].partition("\n\n")[0])


def runs_of(results, folder=None):
    """Runs with given summaries: {method: [summary, …]}; None for a run that failed."""
    return [
        StudyRun(
            ExperimentConfig.from_settings(algorithm=method, seed=seed), folder, summary=summary
        )
        for method, summaries in results.items()
        for seed, summary in enumerate(summaries)
    ]


@pytest.mark.draws
def test_folders_of_methods_seeds_and_partitions(computed, tmp_path):
    comparison.compare(configs(), tmp_path / "one")
    wanted = [f"{m}/seed_{s}" for m in ("fedavg", "fedgela") for s in (0, 1)]
    assert [str(p.relative_to(tmp_path / "one")) for p in computed] == wanted
    computed.clear()
    partitions = {"class_2": configs(), "iid": configs(partition="iid")}
    result = comparison.compare(partitions, tmp_path / "two")
    assert [str(p.relative_to(tmp_path / "two")) for p in computed] == [
        f"{partition}/{run}" for partition in partitions for run in wanted
    ]
    assert result.report.count("| fedgela |") == 2
    with open(tmp_path / "two" / "comparison.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["partition"], row["algorithm"], row["seed"]) for row in rows] == [
        (partition, method, seed)
        for partition in ("P10C2", "IID, 10 clients")
        for method in ("fedavg", "fedgela")
        for seed in ("0", "1")
    ]
    for name in ("comparison.png", "comparison_bars.png"):
        assert (tmp_path / "two" / name).stat().st_size > 10_000


def test_a_comparison_from_python_has_a_page(computed, tmp_path):
    compare(configs(seeds=(0,)), tmp_path / "with")
    assert "<h1>fedavg, fedgela" in (tmp_path / "with" / "report.html").read_text()
    compare(configs(seeds=(0,)), tmp_path / "without", report=False)
    assert not [*(tmp_path / "without").rglob("report.html")]


def test_a_failed_run_loses_none_of_the_others(computed, tmp_path):
    result = comparison.compare(configs(seeds=(13, 14, 2)), tmp_path)
    assert len(computed) == 6
    assert result.failures == [
        f"{method} seed {seed}: {error}"
        for method in ("fedavg", "fedgela")
        for seed, error in (
            (13, "ArithmeticError: thirteen"),
            (14, "tff_pcdd.errors.SettingError: seed=14: is not liked"),
        )
    ]
    failures = (tmp_path / "failures.txt").read_text()
    assert failures.count("Traceback") == 4
    with open(tmp_path / "comparison.csv", newline="") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["2", "2"]
    assert "| 1 of 3 |" in (tmp_path / "comparison.md").read_text()
    # Without the seeds that fail, the note of failures goes.
    assert not comparison.compare(configs(seeds=(2,)), tmp_path).failures
    assert not (tmp_path / "failures.txt").exists()


def test_tables_are_written_after_runs_that_are_computed(computed, tmp_path, monkeypatch):
    """And after the last one: of many runs with many clients, they take seconds."""
    written = []
    monkeypatch.setattr(
        comparison,
        "_write_tables",
        lambda directory, runs, _: written.append(sum(run.summary is not None for run in runs)),
    )
    for finished, expected in (((), [1, 2, 3, 4]), ((0,), [2, 4]), ((0, 1), [4])):
        monkeypatch.setattr(study, "_is_done", lambda run, seeds=finished: run.config.seed in seeds)
        comparison.compare(configs(), tmp_path)
        assert written == expected
        written.clear()


def test_a_comparison_without_any_finished_run(computed, tmp_path):
    result = comparison.compare(configs(seeds=(13,)), tmp_path)
    assert len(result.failures) == 2
    assert table(comparison_tables.accuracies(runs_of({"fedavg": [None]})))[0]["GA"] == "–"
    assert not (tmp_path / "comparison.png").exists()


def test_what_the_first_run_cannot_use_is_refused(computed, tmp_path):
    with refuses("seed", "is not liked"):
        comparison.compare(configs(seeds=(14, 2)), tmp_path / "out")
    assert len(computed) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.integration
def test_nothing_is_trained_if_one_of_the_runs_cannot_be(computed, tmp_path):
    """The last method of three sends prototypes, which this aggregator does not add up."""
    settings = {"aggregator": "robust", "num_clients": 10}
    three = [
        ExperimentConfig.from_settings(algorithm=name, **settings)
        for name in ("fedavg", "fedprox", "fedmr")
    ]
    with refuses("aggregator", "clients of fedmr also send counts, features"):
        comparison.compare(three, tmp_path / "out")
    assert computed == []
    assert not (tmp_path / "out").exists()


def test_accuracies_are_mean_and_deviation_over_seeds():
    rows = table(
        comparison_tables.accuracies(
            runs_of(
                {
                    "fedavg": [{"ga_final": 10.0, "pa_final": 90.0, "personal_epochs": 5}] * 2,
                    "fedgela": [
                        {"ga_final": 10.0, "pa_final": 95.04, "personal_epochs": 5},
                        {"ga_final": 20.0, "pa_final": 94.96, "personal_epochs": 5},
                    ],
                    "fedmr": [{"ga_final": 33.33, "pa_final": None}, None],
                    "fedge": [{"ga_final": 15.02, "pa_final": 95.0}],
                }
            )
        )
    )
    assert [row["method"] for row in rows] == ["fedavg", "fedgela", "fedmr", "fedge"]
    # The deviation of a sample: sqrt(2 · 5² / (2 - 1)). Values that look equal are not marked.
    assert [row["GA"] for row in rows] == ["10.0 ± 0.0", "15.0 ± 7.1", "**33.3**", "15.0"]
    assert [row["PA after"] for row in rows] == ["90.0 ± 0.0", "95.0 ± 0.1", "–", "95.0"]
    assert [row["PA epochs"] for row in rows] == ["5", "5", "–", "–"]
    assert [row["seeds"] for row in rows] == ["2", "2", "1 of 2", "1"]


def test_the_second_best_is_underlined_and_a_column_without_variation_has_no_marks():
    results = {
        "fedavg": [{"ga_final": 10.0, "pa_final": 50.0}],
        "fedmr": [{"ga_final": 20.0, "pa_final": 50.0}],
        "fedgela": [{"ga_final": 15.0, "pa_final": 50.0}],
    }
    rows = table(comparison_tables.accuracies(runs_of(results)))
    assert [row["GA"] for row in rows] == ["10.0", "**20.0**", "<ins>15.0</ins>"]
    assert [row["PA after"] for row in rows] == ["50.0"] * 3


def test_gains_over_local_are_paired_by_seed_and_baselines_are_not_ranked(tmp_path):
    """Expected values by NumPy; the run of seed 1 has no partner."""
    alone, fedavg = [80.0, None, 90.0], [85.0, 60.0, 89.0]
    results = {
        "local": [{"pa_final": value} if value else None for value in alone],
        "central": [{"pa_final": 99.0}] * 3,
        "fedavg": [{"pa_final": value} for value in fedavg],
        "fedmr": [{"pa_final": 70.0}, None, {"pa_final": 71.0}],
    }
    (tmp_path / "metrics.csv").write_text("round,ga\n1,30\n")
    runs = runs_of(results, tmp_path)
    rows = table(comparison_tables.accuracies(runs))
    gains = np.array([85.0 - 80.0, 89.0 - 90.0])
    assert [row["PA over local"] for row in rows] == [
        "–",
        f"{99 - np.mean([80, 90]):+.1f} ± {np.std([19, 9], ddof=1):.1f}",
        f"{gains.mean():+.1f} ± {gains.std(ddof=1):.1f}",
        f"−{np.mean([10, 19]):.1f} ± {np.std([-10, -19], ddof=1):.1f}",
    ]
    assert rows[2]["PA after"].startswith("**")
    assert rows[1]["PA after"] == "99.0 ± 0.0"
    text = comparison_tables.document(runs)
    assert "PA over local: " in text
    assert "are not federated" in text
    assert "local, central." in text
    # Without runs of local there is no such column.
    plain = runs_of({"fedavg": [{"pa_final": 1.0}], "fedmr": [{"pa_final": 2.0}]}, tmp_path)
    assert "PA over local" not in comparison_tables.document(plain)
    assert "not federated" not in comparison_tables.document(plain)


def test_the_tables_say_whether_federating_pays(monkeypatch, tmp_path):
    """FedAvg's gains over training alone are 2.5 and −1 points."""
    accuracies = {("local", 0): 80.0, ("local", 1): 70.0, ("fedavg", 0): 82.5, ("fedavg", 1): 69.0}
    replace_training(monkeypatch, lambda run: {"pa_final": accuracies[run.algorithm, run.seed]})
    report = comparison.compare(configs(("local", "fedavg")), tmp_path / "out").report
    # (82.5 + 69) / 2 = 75.75 and 0.75, with Student's 12.706 for two seeds times 3.5 / 2.
    heading = "Federating: undecided whether it pays on the clients' own samples. "
    gain = "+0.8 (95 % interval −21.5 to +23.0) over training alone."
    assert f"{heading}fedavg's PA after {gain}" in " ".join(report.split())
    said = f"{heading}The best models there are fedavg's: PA after 75.8 ± 9.5 %, {gain}"
    assert said in " ".join((tmp_path / "out" / "comparison.md").read_text().split())
    taken = "Take fedavg: one model for all and a model for each client, after local training."
    assert taken in " ".join(report.split())


def test_the_csv_file_has_the_gain_of_each_run(monkeypatch, tmp_path):
    accuracies = {("local", 0): 80.0, ("local", 1): 70.0, ("fedavg", 0): 82.5, ("fedavg", 1): 69.0}
    replace_training(monkeypatch, lambda run: {"pa_final": accuracies[run.algorithm, run.seed]})
    comparison.compare(configs(("local", "fedavg")), tmp_path / "out")
    with open(tmp_path / "out" / "comparison.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["pa_over_local"] for row in rows] == ["", "", "2.5", "-1"]


def test_of_two_methods_the_second_is_not_marked_and_one_alone_is_not_either():
    for results, wanted in (
        ({"fedavg": [{"ga_final": 1.0}], "fedmr": [{"ga_final": 2.0}]}, ["1.0", "**2.0**"]),
        ({"fedavg": [{"ga_final": 1.0}]}, ["1.0"]),
    ):
        rows = table(comparison_tables.accuracies(runs_of(results)))
        assert [row["GA"] for row in rows] == wanted


def test_metrics_have_columns_of_their_own(tmp_path):
    summaries = {"fedavg": {"half_ga_final": 50.0}, "fedmr": {"balanced_ga_final": 1.25}}
    runs = [
        StudyRun(
            ExperimentConfig.from_settings(algorithm=method, metrics="balanced"),
            tmp_path,
            summary={"ga_final": 1.0, **summary},
        )
        for method, summary in summaries.items()
    ]
    rows = section(comparison_tables.document(runs), "### Further measures")
    assert [row["balanced, GA"] for row in rows] == ["–", "1.2"]
    # Columns follow from the summaries, so a value that no run has makes none.
    assert not any(heading.startswith("balanced, PA") for heading in rows[0])
    # A metric that is not installed here has its columns too.
    assert [row["half, GA"] for row in rows] == ["50.0", "–"]


def test_columns_of_the_round_that_validation_chose(tmp_path):
    write_curve(tmp_path, [30])
    results = {
        "fedavg": [{"ga_final": 50.0, "best_round": 2, "va_best": 61.0, "ga_at_best_round": 60.0}],
        "fedmr": [{"ga_final": 55.0, "best_round": 4, "va_best": 62.0, "ga_at_best_round": 58.0}],
    }
    text = comparison_tables.document(runs_of(results, tmp_path))
    rows = section(text, "### Best round on held-out samples")
    assert [row["GA there"] for row in rows] == ["**60.0**", "58.0"]
    assert [row["VA, global, best round"] for row in rows] == ["61.0", "**62.0**"]
    assert "PA after, there" not in rows[0], "no run has it"
    plain = runs_of({"fedavg": [{"ga_final": 1.0}]}, tmp_path)
    assert "GA there" not in comparison_tables.document(plain)


def test_no_table_has_more_columns_than_can_be_read(tmp_path):
    """Ten; what all methods share is a line. The csv file has all columns."""
    write_curve(tmp_path, [30])
    every = dict.fromkeys(measures.TABLE, 50.0) | {"personal_epochs": 5}
    every |= {"best_round": 2, "va_best": 61.0, "ga_at_best_round": 60.0, "pa_at_best_round": 70.0}
    every |= {
        f"{name}_{model}_final": 40.0 for name in ("balanced", "f1") for model in ("ga", "pa")
    }
    both = {name: [every] for name in ("fedavg", "local")}
    text = comparison_tables.document(runs_of(both, tmp_path))
    headings = [line for line in text.splitlines() if line.startswith("| method")]
    assert len(headings) == 5
    assert max(line.count("|") for line in headings) - 1 <= 10
    assert "PA epochs: 5." in text
    assert "PA epochs |" not in text
    less = {**every, "personal_epochs": 1}
    text = comparison_tables.document(runs_of({"fedavg": [every], "local": [less]}, tmp_path))
    rows = section(text, "### Accuracy")
    assert [row["PA epochs"] for row in rows] == ["5", "1"]
    assert "PA epochs:" not in text


def test_the_title_of_a_comparison_says_how_many_clients_are_new(tmp_path):
    def title(*settings):
        found = [ExperimentConfig.from_settings(**each) for each in settings]
        return comparison_tables.common_setting([StudyRun(each, tmp_path) for each in found])

    two, one = {"new_clients": 2}, {"new_clients": 1}
    iid = {"partition": "iid"}
    assert title(two, {**two, "seed": 1}) == "digits, P10C2, 2 of them new, simple_cnn"
    assert title(two, {**two, **iid}) == "digits, 2 new clients, simple_cnn"
    assert title(two, one) == "digits, P10C2, simple_cnn"
    assert title({}, iid) == "digits, simple_cnn"


def write_curve(folder, values):
    """A metrics file with an accuracy, or an empty cell, for every second round."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{2 * number},{value}" for number, value in enumerate(values, 1)]
    (folder / "metrics.csv").write_text("\n".join(["round,ga", *lines]) + "\n")


def test_rounds_to_the_best_of_fedavg(tmp_path):
    """On curves averaged over seeds, FedAvg's best is (50 + 60) / 2 at round 6."""
    curves = {
        "fedavg": [(10, 20, 50, 40), (20, 30, 60, 50)],
        "fedgela": [(50, 70, 80, 90), (70, 70, 80, 90)],
        "fedmr": [(10, 20, 54, 55), (10, 20, 56, 54)],
        "fedloge": [(10, 20, 30, 54), (10, 20, 30, 54)],
        "fedge": [("", "", "", ""), ("", "", "", "")],
    }
    runs = []
    for method, seeds in curves.items():
        for seed, values in enumerate(seeds):
            folder = tmp_path / method / str(seed)
            write_curve(folder, values)
            config = ExperimentConfig.from_settings(algorithm=method, seed=seed)
            runs.append(StudyRun(config, folder, summary={"rounds": 8}))
    rows = table(comparison_tables.rounds_to_accuracy(runs))
    assert [tuple(row.values()) for row in rows] == [
        ("fedavg", "6", "1.0×", "55.0"),
        ("fedgela", "2", "3.0×", "90.0"),
        ("fedmr", "6", "1.0×", "55.0"),
        ("fedloge", "not reached", "–", "54.0"),
        ("fedge", "–", "–", "–"),
    ]
    assert "rounds to 55.0 %" in rows[0]
    others = [run for run in runs if run.config.algorithm != "fedavg"]
    assert comparison_tables.rounds_to_accuracy(others) == ""
    assert "### Rounds to FedAvg's best" not in comparison_tables.document(others)
    assert "### Rounds to FedAvg's best" in comparison_tables.document(runs)


def test_rounds_and_megabytes_to_a_target(tmp_path):
    """The means of FedAvg are 15, 40, 55 and 70, so 45 % is reached in round 6, the third value.

    Until then, its runs have sent 6 · 0.75 and 6 · 1.25 MB. Of fedprox, only evaluated rounds have
    rows. Central sends nothing, because it is not federated.
    """
    curves = {
        "fedavg": ([(10, 40, 60, 70), (20, 40, 50, 70)], (750_000, 1_250_000)),
        "fedgela": ([(40, 70, 80, 90), (50, 70, 80, 90)], (617_283, 617_283)),
        "fedmr": ([(10, 20, 30, 40), (10, 20, 30, 44)], (1_000_000, 1_000_000)),
        "fedloge": ([(10, 20, 30, 54), (10, 20, 30, 54)], (2_000_000, "")),
        "fedprox": ([(10, 40, 60, 70), (20, 40, 50, 70)], (750_000, 1_250_000)),
        "central": ([(40, 70, 80, 90), (50, 70, 80, 90)], (0, 0)),
    }
    runs = []
    for method, (seeds, sizes) in curves.items():
        for seed, (values, size) in enumerate(zip(seeds, sizes, strict=True)):
            folder = tmp_path / method / str(seed)
            folder.mkdir(parents=True)
            lines = []
            for number, value in enumerate(values, 1):
                between = [] if method == "fedprox" else [f"{2 * number - 1},,{size}"]
                lines += [*between, f"{2 * number},{value},{size}"]
            text = "\n".join(["round,ga,upload_bytes", *lines]) + "\n"
            (folder / "metrics.csv").write_text(text)
            config = ExperimentConfig.from_settings(algorithm=method, seed=seed)
            runs.append(StudyRun(config, folder, summary={"rounds": 8}))
    text = comparison_tables.document(runs, target=45)
    assert [tuple(row.values()) for row in section(text, "### Rounds to a GA of 45 %")] == [
        ("fedavg", "6", "6.0", "1.0×", "70.0"),
        ("fedgela", "2", "1.2", "3.0×", "90.0"),
        ("fedmr", "not reached", "–", "–", "42.0"),
        ("fedloge", "8", "–", "0.8×", "54.0"),
        ("fedprox", "6", "–", "1.0×", "70.0"),
        ("central", "2", "–", "3.0×", "90.0"),
    ]
    assert "MB up: what all clients together have sent" in text
    assert "FedAvg's best" not in text
    others = [run for run in runs if run.config.algorithm != "fedavg"]
    rows = table(comparison_tables.rounds_to_accuracy(others, 44.5))
    assert [row["rounds to 44.5 %"] for row in rows] == [*("2", "not reached", "8", "6", "2")]
    assert {row["speed-up"] for row in rows} == {"–"}
    # Without a target, there is no further column.
    assert "MB up" not in comparison_tables.document(runs)


def test_the_tables_of_a_comparison_have_its_target(computed, tmp_path):
    tables = TableOptions(target_accuracy=60)
    compare(configs(seeds=(0,)), tmp_path, tables=tables, report=False)
    assert "### Rounds to a GA of 60 %" in (tmp_path / "comparison.md").read_text()
    compare(configs(seeds=(0,)), tmp_path, report=False)
    assert "### Rounds to a GA of" not in (tmp_path / "comparison.md").read_text()
    for value, reason in ((0.33, "must be at least 1"), (101, "must be at most 100")):
        with refuses("target_accuracy", reason):
            TableOptions(target_accuracy=value)


@pytest.mark.parametrize(("best", "is_target"), [(13.1, False), (13.2, True)])
def test_an_accuracy_at_chance_is_no_target(tmp_path, best, is_target, caplog):
    """Of 360 test samples in ten classes: 10 % and two standard errors, √(0.1 · 0.9 / 360)."""
    limit = 100 * (0.1 + 2 * np.sqrt(0.1 * 0.9 / 360))
    assert f"{limit:.1f}" == "13.2"
    assert (best > limit) == is_target
    runs = []
    for method, values in {"fedavg": (10, best, 10), "fedgela": (10, 60, 70)}.items():
        write_curve(tmp_path / method, values)
        answered = {"class_names": np.array([*"0123456789"]), "global": np.diag([36] * 10)}
        np.savez(tmp_path / method / "confusion.npz", **answered)
        config = ExperimentConfig.from_settings(algorithm=method)
        runs.append(StudyRun(config, tmp_path / method, summary={"rounds": 6}))
    shown = comparison_tables.document(runs).partition("### Rounds to FedAvg's best GA\n\n")[2]
    first = shown.partition("\n\n")[0]
    if is_target:
        assert [row["speed-up"] for row in table(first)] == ["1.0×", "1.0×"]
    else:
        assert first == (
            "No target: FedAvg's best GA, 13.1 %, is no better than always giving the same answer, "
            "which may reach 13.2 %."
        )
    assert not caplog.messages
    (tmp_path / "fedavg" / "confusion.npz").write_bytes(b"half")
    assert "No target" not in comparison_tables.document(runs)
    assert len(caplog.messages) == 1
    assert re.search(r"fedavg/confusion\.npz is damaged", caplog.text)


def test_chance_reaches_at_most_100_percent(tmp_path):
    """97 % of 100 test samples are of one class: ± 2 · 1.7 %."""
    write_curve(tmp_path, (97, 98, 98))
    answered = {"class_names": np.array([*"ab"]), "global": np.diag([97, 3])}
    np.savez(tmp_path / "confusion.npz", **answered)
    config = ExperimentConfig.from_settings(algorithm="fedavg")
    shown = comparison_tables.document([StudyRun(config, tmp_path, summary={"rounds": 6})])
    assert "98.0 %, is no better than always giving the same answer" in shown
    assert "which may reach 100.0 %." in shown


def test_heads_and_groups_of_classes(tmp_path):
    fedloge = {
        "ga_final": 60.0,
        "ga_psi_final": 50.0,
        "ga_many_final": 90.0,
        "ga_few_final": 30.0,
        "ga_psi_many_final": 95.0,
        "ga_psi_few_final": 10.0,
        "pa_few_final": 55.0,
    }
    fedavg = {"ga_final": 58.0, "ga_few_final": 20.0, "ga_many_final": 94.0, "pa_few_final": 50.0}
    results = {"fedavg": [fedavg], "fedloge": [fedloge, {**fedloge, "ga_final": 62.0}]}
    runs = runs_of(results, tmp_path)
    rows = table(comparison_tables.heads_and_groups(runs)[1])
    assert [tuple(row.values()) for row in rows] == [
        ("fedavg", "<ins>58.0</ins>", "<ins>94.0</ins>", "<ins>20.0</ins>", "50.0"),
        ("fedloge", "**61.0 ± 1.4**", "90.0 ± 0.0", "**30.0 ± 0.0**", "**55.0 ± 0.0**"),
        ("fedloge: psi", "50.0 ± 0.0", "**95.0 ± 0.0**", "10.0 ± 0.0", "–"),
    ]
    assert list(rows[0]) == ["method", "GA", "GA, many", "GA, few", "PA after, few"]
    # Without anything that the table of accuracies lacks, there is none.
    plain = runs_of({"fedavg": [{"ga_final": 58.0}], "fedloge": [None]})
    assert comparison_tables.heads_and_groups(plain) == []


def test_costs():
    summary = {
        "rounds": 10,
        "clients_per_round": 4,
        "upload_bytes": 400_000,
        "download_bytes": 80_000_000,
        "personal_parameters_per_client": 0,
        "seconds_per_round": 0.5,
    }
    other = {**summary, "personal_parameters_per_client": 12345, "seconds_per_round": 0.4}
    old = {"seconds_per_round": 0.6, "rounds": 10, "upload_bytes": 1}
    results = {"fedavg": [summary], "fedmr": [other, {**other, "seconds_per_round": 0.8}]}
    rows = table(comparison_tables.costs(runs_of({**results, "fedloge": [old]})))
    assert [tuple(row.values()) for row in rows] == [
        ("fedavg", "0", "10.0", "2,000.0", "0.500", "1.00"),
        ("fedmr", "12,345", "10.0", "2,000.0", "0.600 ± 0.283", "1.20"),
        ("fedloge", "–", "–", "–", "0.600", "1.20"),
    ]
    alone = table(comparison_tables.costs(runs_of({"fedmr": [other]})))
    assert alone[0]["time over FedAvg's"] == "–"


def test_networks_that_differ_are_pointed_out(tmp_path):
    alike = [StudyRun(config, tmp_path) for config in configs(projection_dim=84)]
    differing = [StudyRun(config, tmp_path) for config in configs()]
    assert "networks differ" not in comparison_tables.document(alike)
    text = comparison_tables.document(differing)
    assert "(none: fedavg; of width 84: fedgela). Set --projection_dim to use the same" in text


@pytest.mark.parametrize(
    ("chosen", "setting", "reason"),
    [
        (configs(seeds=(0, 0)), "algorithms and seeds", "name each method and each seed once"),
        (configs(algorithms=("fedavg", "fedavg")), "algorithms and seeds", "name each"),
        ({"a": configs(), "b": configs()}, "partitions", "name each partition once"),
    ],
)
def test_repetitions_are_refused(chosen, setting, reason, tmp_path):
    with refuses(setting, reason):
        comparison.compare(chosen, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_of_others_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with refuses("output_dir", "is not empty and holds no comparison"):
        comparison.compare(configs(), tmp_path)
    with refuses("output_dir", "thesis.tex is a file"):
        comparison.compare(configs(), tmp_path / "thesis.tex")


def test_the_last_folder_is_checked_before_the_first_run(tmp_path):
    (tmp_path / "fedavg").mkdir()
    (tmp_path / "fedgela" / "seed_1").mkdir(parents=True)
    (tmp_path / "fedgela" / "seed_1" / "thesis.tex").touch()
    with refuses("output_dir", "^is not empty and holds no run") as caught:
        comparison.compare(configs(), tmp_path)
    assert str(caught.value.value).endswith("fedgela/seed_1")
    assert not any((tmp_path / "fedavg").iterdir())


def test_a_full_disk_ends_the_comparison(computed, tmp_path, monkeypatch):
    """The other runs could not be written either, and the next call computes them."""
    run_experiment = study.run_experiment

    def full(config, folder, options=None, **rest):
        if config.seed == 1:
            computed.append(folder)
            raise WriteError(28, "No space left on device", f"{folder}/metrics.csv")
        return run_experiment(config, folder, options, **rest)

    monkeypatch.setattr(study, "run_experiment", full)
    with pytest.raises(WriteError, match=r"fedavg/seed_1/metrics.csv: No space left"):
        compare(configs(), tmp_path)
    names = ["fedavg/seed_0", "fedavg/seed_1"]
    assert [path.relative_to(tmp_path).as_posix() for path in computed] == names
    assert not (tmp_path / "failures.txt").exists()
    monkeypatch.setattr(study, "run_experiment", run_experiment)
    assert not compare(configs(), tmp_path).failures


@pytest.mark.parametrize("name", ["comparison.csv", "comparison_bars.png", "failures.txt"])
def test_a_directory_in_the_place_of_a_file(name, computed, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / "comparison.csv").mkdir(exist_ok=True)
    with pytest.raises(SettingError, match=r"comparison\.csv is a directory; remove it"):
        compare(configs(), tmp_path)
    (tmp_path / "comparison.csv").rmdir()
    (tmp_path / "comparison.csv").touch()
    if name != "comparison.csv":
        with pytest.raises(SettingError, match=f"{name} is a directory; remove it"):
            compare(configs(), tmp_path)
    assert not computed


def test_a_disk_that_fails_when_results_are_read_is_said(computed, tmp_path, monkeypatch, caplog):
    """Without a word, comparison.md had neither an answer nor findings."""

    def fail(*_):
        raise OSError(5, "Input/output error", "comparison.csv")

    monkeypatch.setattr(comparison_directory, "read", fail)
    compare(configs(), tmp_path)
    said = "the answer and the findings lack what cannot be read: "
    assert f"{said}[Errno 5] Input/output error: 'comparison.csv'" in caplog.messages


def test_a_directory_that_cannot_be_written_to_is_noticed_first(computed, tmp_path, monkeypatch):
    def refuse(directory):
        raise SettingError("output_dir", str(directory), "is read-only")

    monkeypatch.setattr(study.directories, "check_writable", refuse)
    with pytest.raises(SettingError, match="is read-only"):
        compare(configs(), tmp_path)
    assert not computed


def test_terminal_tables_and_page_have_the_same_findings(monkeypatch, tmp_path):
    """FedGELA has a linear layer before its head, and one run has failed."""

    def run_experiment(config, folder, options=None, *, overwrite=False, label="", report):
        if (config.algorithm, config.seed) == ("fedavg", 1):
            raise ArithmeticError("one")
        return make_run(folder, seed=config.seed, algorithm=config.algorithm)

    monkeypatch.setattr(study, "run_experiment", run_experiment)
    common = {"rounds": 12, "num_clients": 3, "classes_per_client": 10}
    report, failures = compare(configs(**common), tmp_path)
    assert len(failures) == 1
    expected = [
        "The networks of the methods differ in the width of the linear layer before the head: none "
        "(fedavg); 84 (fedgela). Next: --projection_dim=84 for all methods.",
        "Some runs have failed and are missing here; their errors are in failures.txt. Next: the "
        "same command tries them again.",
    ]
    shown = comparison_page.content(Directory(tmp_path))["findings"]
    assert [each.line for each in shown][:2] == expected
    lines = [f"- {each.line}" for each in shown]
    # Indented where a line goes on in the terminal, and with a note about another width.
    note = "More --rounds continue in the same --output_dir; other settings need a new one."
    assert " ".join(report.split()).endswith(" ".join([*lines, note]))
    text = (tmp_path / "comparison.md").read_text()
    _, heading, listed = text.partition("\n\n## Findings\n\n")
    assert heading
    assert listed.startswith("\n".join(lines) + "\n\n## ")


def test_runs_before_and_after_a_change_of_the_data_are_named(tmp_path):
    """Finished runs are not computed again, so they may have had other samples."""
    rows = {site: [f"{i},{i % 2},{site}" for i in range(20)] for site in ("a", "b")}
    table, out = tmp_path / "data.csv", tmp_path / "out"
    common = {"dataset": "table", "data_dir": str(table), "feature_columns": "age", "model": "mlp"}
    common |= {"rounds": 1, "local_epochs": 1}

    def run(names):
        printed = compare(configs(names, [0], **common), out).report
        text = (out / "comparison.md").read_text()
        assert ("have changed" in printed) == ("have changed" in text)
        return text

    table.write_text("\n".join(["age,label,site", *rows["a"], *rows["b"], ""]))
    assert "have changed" not in run(["fedavg", "local"])
    table.write_text("\n".join(["age,label,site", *rows["a"], *rows["b"], "7,1,b", ""]))
    run(["fedprox"])
    text = run(["fedavg", "local", "fedprox"])
    assert (
        "cannot be compared: fedavg seed 0, local seed 0 / fedprox seed 0. Next: run those before "
        "the change again, with --overwrite or in another directory."
    ) in text
    assert "have changed" in run(["fedprox", "fedavg"])


def test_pa_before_stays_in_a_terminal_with_training_alone():
    """What is left out is over FedAvg, which the column of GA shows too."""
    values = {"ga_final": 60.0, "pa_before_final": 97.5, "pa_final": 99.0}
    spread = {key: value - 20.0 for key, value in values.items()}
    runs = runs_of({name: [values, spread] for name in ("fedavg", "fedgela", "local")})
    header, first, *_ = table_rows(comparison_tables.summary_table(runs))
    assert header == ["method", "GA", "PA before", "PA after", "PA over local", "seeds"]
    # The mean of 97.5 and 77.5, and their deviation, 20 / √2.
    assert first[2] == "87.5 ± 14.1"


def test_the_report_has_the_accuracies_at_new_clients():
    """In the order of the table above them, by GA; FedPer has no global model."""

    def found(accuracy, **new):
        accuracies = {"ga_final": accuracy, "pa_final": accuracy}
        return accuracies | {f"new_clients_{key}_final": value for key, value in new.items()}

    fedavg = [found(60.0, ga=40.0, pa_before=40.0, pa=90.0)] * 2
    fedgela = [found(80.0, ga=value, pa_before=50.0, pa=95.0) for value in (30.0, 50.0)]
    runs = runs_of(
        {"fedper": [found(10.0, pa_before=20.0, pa=70.0)], "fedavg": fedavg, "fedgela": fedgela}
    )
    assert "new clients" not in comparison_tables.report(runs_of({"fedavg": [found(60.0)]}))
    report = comparison_tables.report(runs)
    lines = table_rows(report)
    header = ["method", "GA, new clients", "PA before, new clients", "PA after, new clients"]
    # The mean of 30 and 50, and their deviation, 20 / √2.
    assert lines[lines.index(header) + 1 :] == [
        ["fedgela", "40.0 ± 14.1", "50.0 ± 0.0", "95.0 ± 0.0"],
        ["fedavg", "40.0 ± 0.0", "40.0 ± 0.0", "90.0 ± 0.0"],
        ["fedper †", "–", "20.0", "70.0"],
    ]
    assert max(map(len, report.splitlines())) <= 80


def test_the_report_fits_a_terminal():
    """Whatever the values and the names of methods are."""
    long = {"ga_final": 100.0, "pa_before_final": 99.5, "pa_final": 100.0}
    spread = {"ga_final": 1.0, "pa_before_final": 2.5, "pa_final": 1.0}
    runs = runs_of({name: [long, spread] for name in ("fedavg", "feddyn_prototypes", "local")})
    report = comparison_tables.report(runs, verdict.read(study.results_of(runs), []))
    assert max(map(len, report.splitlines())) <= 80
    assert "One model for all: " in report
    header, *rows = table_rows(report)
    assert header == ["method", "GA", "PA after", "PA over local", "seeds"]
    assert [row[0] for row in rows][-1] == "local †"
