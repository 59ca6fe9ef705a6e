"""The page of a sweep: of the settings of one method, and of several methods."""

import json
import pathlib
import re
import shlex

import pytest

from tests.report.directories import edited, make_comparison, read_csv, write_csv
from tests.report.test_pages import assert_self_contained, page
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.report import method_sweep, sweep_page, sweep_parts, write_report
from tff_pcdd.results.reading import Directory

RATES, EPOCHS = ("0.01", "0.03", "0.1"), ("1", "5")


def make_sweep(directory, best="client_learning_rate=0.1,local_epochs=1"):
    """A sweep over two settings with two seeds; the last rate is the best one."""
    rows = []
    for i, rate in enumerate(RATES):
        for j, epochs in enumerate(EPOCHS):
            name = f"client_learning_rate={rate},local_epochs={epochs}"
            for seed in (0, 1):
                config = ExperimentConfig.from_settings(
                    client_learning_rate=float(rate), local_epochs=int(epochs), seed=seed
                )
                folder = directory / name / f"seed_{seed}"
                folder.mkdir(parents=True)
                (folder / "config.json").write_text(json.dumps(config.to_settings()))
                va = 60.0 + 10 * i - 3 * j + seed
                rows.append(
                    [name, rate, epochs, "fedavg", seed, False, va, 20 + i, va - 1, va + 9, va / 2]
                )
    header = ["settings", "client_learning_rate", "local_epochs", "algorithm", "seed", "diverged"]
    header += ["va_best", "best_round", "ga_at_best_round", "pa_at_best_round", "va_balanced_best"]
    write_csv(directory / "sweep.csv", header, rows)
    lines = "".join(f"--{pair}\n" for pair in best.split(","))
    (directory / "best.flags").write_text(f"--algorithm=fedavg\n{lines}")


def make_method_sweep(directory):
    """Two methods, whose chosen rates are the largest of their grids."""
    header = ["algorithm", "settings", "va", "rounds"]
    header += ["stopped_after", "diverged", "failed", "chosen"]
    rows = []
    for number, method in enumerate(("fedavg", "fedgela")):
        for i, rate in enumerate(RATES):
            stopped = "" if i else 8
            row = [method, f"client_learning_rate={rate}", 50.0 + 5 * i + number, 30, stopped]
            rows.append([*row, False, False, i == 2])
        (directory / "best").mkdir(exist_ok=True)
        (directory / "best" / f"{method}.flags").write_text(f"--algorithm={method}\n")
    write_csv(directory / "sweep.csv", header, rows)


def test_a_sweep_over_settings(tmp_path):
    make_sweep(tmp_path)
    tree = page(sweep_dir=tmp_path)
    assert_self_contained(tree)
    shown = " ".join(tree.texts)
    assert "Chosen: client_learning_rate=0.1, local_epochs=1." in shown
    # 80 and 81 by seed, and 77 and 78 at the next point.
    assert "VA 80.5 ± 0.7 %. +3.0 (2 equal differences, which give no interval) over" in shown
    assert "over the next point, client_learning_rate=0.1,local_epochs=5." in shown
    assert "The chosen client_learning_rate=0.1 is the largest value of the grid" in shown
    assert "--grid=client_learning_rate=0.01,0.03,0.1,0.3" in shown
    assert "local_epochs=1 is the smallest" not in shown, "there is no smaller one"
    assert "python -m tasks.train --config=" in tree.commands[0]
    assert "digits, P10C2" in tree.texts[0]
    top = " ".join(shown[: shown.index("Chosen: ")].split())
    assert "VA : accuracy on samples that clients held out from training; GA : " in top
    assert "P10C2 : 10 clients, each with training samples of 2 classes." in top


@pytest.mark.parametrize("name", ["", "/rate=1", f"rate={'1' * 300}", "../rate=1"])
def test_the_chosen_point_of_a_damaged_table_may_have_any_name(name, tmp_path):
    make_sweep(tmp_path, best=name or "rate=1")
    path = tmp_path / "sweep.csv"
    path.write_text(path.read_text().replace('"client_learning_rate=0.1,local_epochs=1"', name))
    assert "6 points of a grid" in " ".join(page(sweep_dir=tmp_path).texts)
    finals = sweep_page.content(Directory(tmp_path, compared=False))["finals"]
    assert [(run.seed, run.history) for run in finals] == [("0", None), ("1", None)]


@pytest.mark.parametrize("make", [make_sweep, make_method_sweep])
def test_links_to_sections_have_the_names_of_their_headings(tmp_path, make):
    make(tmp_path)
    text = write_report(sweep_dir=tmp_path).path.read_text()
    named = dict(re.findall(r'<li><a href="#(\w+)">([^<]+)</a>', text))
    headings = dict(re.findall(r'<h2 id="(\w+)">([^<]+)</h2>', text))
    assert named == {anchor: headings[anchor] for anchor in named}
    assert len(named) == 2


def test_points_that_lie_too_near_for_the_held_out_samples(tmp_path):
    """80.5 and 77.5 % of twice 100 samples; Newcombe's interval of 80.5 and 72.1 % begins at 0.05
    points, that of 80.5 and 72.2 % at −0.04.
    """
    make_sweep(tmp_path)
    for path in tmp_path.glob("*/seed_*/config.json"):
        settings = json.loads(path.read_text())
        path.write_text(json.dumps({**settings, "validation_fraction": 0.2}))
        clients = "client,train_samples,test_samples,warning\n0,400,9,\n"
        (path.parent / "clients.csv").write_text(clients)
    assert (
        "VA is measured on about 100 held-out samples with each of 2 seeds, so differences of less "
        "than 8.4 points may be chance. Less than that separates the chosen point from 1 of the 5 "
        "other points."
    ) in " ".join(page(sweep_dir=tmp_path).texts)


def settings_of(command):
    """The settings that the arguments of a command on a page stand for."""
    words = shlex.split(command)
    arguments = words[words.index("-m") + 1 :]
    while not arguments[0].startswith("-"):
        assert arguments.pop(0) in ("tasks.train", "tasks.export", "tff_pcdd", "train", "export")
    return dict(argument.removeprefix("--").split("=", 1) for argument in arguments)


def test_the_command_has_the_data_of_the_sweep(tmp_path, monkeypatch):
    """It runs from where the sweep was started, and shows no path of data."""
    monkeypatch.chdir(tmp_path)
    make_sweep(pathlib.Path("runs/my sweep"))
    point = "client_learning_rate=0.1,local_epochs=1"
    for path in pathlib.Path("runs/my sweep").glob("*/seed_*/config.json"):
        settings = {**json.loads(path.read_text()), "data_dir": "/private", "import": {"mine": ""}}
        path.write_text(json.dumps(settings))
    tree = page(sweep_dir=pathlib.Path("runs/my sweep"))
    [command] = tree.commands
    given = settings_of(command)
    assert given.pop("output_dir").startswith("runs/best_")
    assert given == {"import": "mine", "config": f"runs/my sweep/{point}/seed_0/config.json"}
    assert pathlib.Path(settings_of(command)["config"]).is_file()
    assert "/private" not in " ".join(tree.texts)
    # Without the directories of the runs, the flagfile is what is left.
    for path in pathlib.Path("runs/my sweep").glob("*/seed_*/config.json"):
        path.unlink()
    tree = page(sweep_dir=pathlib.Path("runs/my sweep"))
    assert "Next: train with the chosen settings; give the other settings again." in tree.texts
    [command] = tree.commands
    assert settings_of(command)["flagfile"] == "runs/my sweep/best.flags"


def test_each_method_has_a_command_of_its_own(tmp_path):
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"), seeds=(1, 2))
    tree = page(sweep_dir=tmp_path)
    commands = [settings_of(text) for text in tree.commands]
    # FedGELA's VA is the highest.
    # Training with them would compute these runs again.
    assert [command["run_dir"] for command in commands] == [
        f"{tmp_path}/comparison/{method}/seed_1" for method in ("fedgela", "fedavg")
    ]
    assert ["export" in command for command in tree.commands] == [True, True]
    said = "export the models of the run with the chosen settings and seed 1."
    assert [text for text in tree.texts if text.endswith(said)] == ["and " + said, ": " + said]
    path = tmp_path / "comparison" / "fedgela" / "seed_1" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "diverged": True}))
    assert ["train" in text for text in page(sweep_dir=tmp_path).commands] == [True, False]


def test_the_findings_of_the_final_runs_are_on_the_page(tmp_path):
    """Beside those of the grids, as in the terminal and in sweep.md."""
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"), seeds=(1, 2))
    kinds = [each.kind for each in sweep_page.content(Directory(tmp_path))["findings"]]
    assert kinds[:2] == ["edge", "incomparable"]
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "linear layer before the head: none (fedavg); 84 (fedgela)." in shown
    # The clients are in the answer, as on the page of the comparison.
    assert "With fedgela (PA after), " in shown


def test_the_first_command_is_that_of_the_method_that_leads_the_comparison(tmp_path):
    """FedGELA's VA is the highest, and FedAvg's GA on the seeds of the comparison."""
    make_method_sweep(tmp_path)
    for seed in ("0", "3"):
        folder = tmp_path / "tuning" / "fedavg" / "client_learning_rate=0.1" / f"seed_{seed}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    make_comparison(tmp_path / "comparison", algorithms=("fedgela", "fedavg"), seeds=(1,))
    tree = page(sweep_dir=tmp_path)
    commands = [settings_of(text) for text in tree.commands]
    methods = [pathlib.Path(command["run_dir"]).parts[-2] for command in commands]
    assert methods == ["fedavg", "fedgela"]
    places = [command["export_dir"].rpartition("_")[0] for command in commands]
    assert places == [f"exported/best_{m}" for m in methods]
    shown = " ".join(tree.texts)
    [ga] = [
        row["ga_final"]
        for row in read_csv(tmp_path / "comparison" / "comparison.csv")
        if row["algorithm"] == "fedavg"
    ]
    assert "One model for all: undecided between fedavg and fedgela; fedavg leads." in shown
    assert f"GA {float(ga):.1f} %" in shown
    # None of the seeds that chose, 0 and 3.
    assert "--final_seeds=1,2,4,5,6" in tree.texts
    assert "Highest VA: fedgela." in shown
    # It is another method than the one that leads.
    assert "Settings were chosen by it; the above is from test samples and final seeds." in shown


def set_accuracies(directory, **of_methods):
    """Writes GA and PA of methods into comparison.csv, the same for all seeds."""
    with edited(directory / "comparison.csv") as rows:
        for row in rows:
            row["ga_final"], row["pa_final"] = of_methods[row["algorithm"]]


@pytest.mark.parametrize(
    ("criterion", "first"),
    [("va_personal", "fedgela"), ("va", "fedavg"), ("va_balanced", "fedavg")],
)
def test_the_first_command_is_that_of_the_method_that_the_criterion_puts_first(
    tmp_path, criterion, first
):
    """FedAvg's GA is higher, and FedGELA's PA by 7 points with each seed."""
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedgela", "fedavg"), seeds=(1, 2))
    set_accuracies(tmp_path / "comparison", fedavg=(84.4, 89.9), fedgela=(84.3, 96.9))
    record = {"started": "now", "criterion": criterion}
    (tmp_path / "calls.jsonl").write_text(f"{json.dumps(record)}\n")
    tree = page(sweep_dir=tmp_path)
    commands = [settings_of(text) for text in tree.commands]
    assert pathlib.Path(commands[0]["run_dir"]).parts[-2] == first
    assert len(commands) == 2
    heading = {"va_personal": "VA, personal", "va_balanced": "VA, balanced"}.get(criterion, "VA")
    shown = " ".join(tree.texts)
    assert f"Highest {heading}: fedgela." in shown
    assert f"{heading} : " in shown


def test_the_models_that_the_answer_recommends_come_first(tmp_path):
    """FedGELA gains 5 points of GA with each seed; PA, 1 and -2 points, is undecided."""
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedgela", "fedavg"), seeds=(1, 2))

    def shown(ga, pa):
        with edited(tmp_path / "comparison" / "comparison.csv") as rows:
            for row in rows:
                ahead = row["algorithm"] == "fedgela"
                row["ga_final"] = 70 + ahead * ga
                row["pa_final"] = 80 + ahead * pa[int(row["seed"]) - 1]
        return page(sweep_dir=tmp_path)

    said = "and export the models of the run with the chosen settings and seed 1."
    personal = "a model for each client, after local training"
    tree = shown(5, (1, -2))
    texts = " ".join(tree.texts)
    assert f"Next, for one model for all: take fedgela {said}" in texts
    assert f"Next, for {personal}: take fedavg {said}" in texts
    assert "The other methods" not in texts
    places = [(pathlib.Path(c["run_dir"]).parts[-2], c) for c in map(settings_of, tree.commands)]
    assert [(place, c.get("clients"), c.get("personal_model")) for place, c in places] == [
        ("fedgela", "none", None),
        ("fedavg", None, "after"),
    ]
    # With the same method for both, the others' commands are folded away.
    texts = " ".join(shown(5, (5, 5)).texts)
    assert f"Next, for one model for all and {personal}: take fedgela {said}" in texts
    assert f"The other methods fedavg : {said.removeprefix('and ')}" in texts


def test_an_undecided_sweep_exports_fedavg(tmp_path):
    """As the page of its comparison, though FedGELA leads in both with the only seed."""
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"), seeds=(1,))
    set_accuracies(tmp_path / "comparison", fedavg=(74.6, 87.0), fedgela=(75.1, 87.1))
    models = "one model for all and a model for each client, after local training"
    why = "the simplest method, as it is undecided"
    swept, compared = page(sweep_dir=tmp_path), page(comparison_dir=tmp_path / "comparison")
    assert f"Next, for {models}: take fedavg , {why}, and export" in " ".join(swept.texts)
    assert f"Next, for {models}: export fedavg's of seed 1, {why}." in " ".join(compared.texts)
    given, beside = settings_of(swept.commands[0]), settings_of(compared.commands[0])
    del given["export_dir"], beside["export_dir"]
    assert given == beside


def test_held_out_samples_are_those_of_the_runs_that_have_chosen(tmp_path):
    """100 with each of two seeds, as in the terminal; those of the comparison hold out others."""
    make_method_sweep(tmp_path)
    config = json.dumps(ExperimentConfig.from_settings(validation_fraction=0.2).to_settings())
    for method in ("fedavg", "fedgela"):
        for seed in (0, 10):
            folder = tmp_path / "tuning" / method / "client_learning_rate=0.1" / f"seed_{seed}"
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(config)
            clients = "client,train_samples,test_samples,warning\n0,400,9,\n"
            (folder / "clients.csv").write_text(clients)
    algorithms = ("fedgela", "fedavg")
    make_comparison(
        tmp_path / "comparison", algorithms=algorithms, seeds=(11, 12), validation_fraction=0.2
    )
    found = sweep_page.content(Directory(tmp_path))["findings"]
    [line] = [each.line for each in found if each.kind == "noise"]
    assert line.startswith("VA is measured on about 100 held-out samples with each of 2 seeds, ")
    assert "Next: --seeds=0,10,13,14,15 (now 0,10), or" in line


def test_a_comparison_that_cannot_be_read_leaves_the_rest_of_the_page(tmp_path):
    make_method_sweep(tmp_path)
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "comparison.csv").write_text("a,b\n1\n")
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "Highest VA: fedgela." in shown
    assert "Settings were chosen by it" not in shown
    assert "comparison.csv is damaged" in shown


def test_the_recorded_criterion_is_shown(tmp_path):
    """Also where the chosen point is the best by another accuracy too."""
    make_sweep(tmp_path)
    with edited(tmp_path / "sweep.csv") as rows:
        rows[:] = [{**row, "criterion": "va_balanced"} for row in rows]
    # Half of 80 and 81.
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "VA, balanced 40.2 ± 0.4 %" in shown
    assert "VA, balanced : mean over classes of the global model's accuracy on samples" in shown


def test_nothing_was_chosen(tmp_path):
    make_sweep(tmp_path)
    (tmp_path / "best.flags").unlink()
    (tmp_path / "failures.txt").write_text("a traceback")
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "Nothing was chosen yet" in shown
    assert "Some runs have failed" in shown
    assert "the largest value of the grid" not in shown


def test_a_sweep_over_methods(tmp_path):
    make_method_sweep(tmp_path)
    tree = page(sweep_dir=tmp_path)
    assert_self_contained(tree)
    shown = " ".join(tree.texts)
    assert "fedavg, fedgela: the chosen client_learning_rate=0.1 is the largest value" in shown
    assert shown.index("fedgela client_learning_rate=0.1") < shown.index("fedavg client_learning")
    assert "rounds that all points have trained together, with all seeds" in shown
    assert "comparison/report.html" not in (tmp_path / "report.html").read_text()
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"))
    write_report(comparison_dir=tmp_path / "comparison")
    links = [a["href"] for a in page(sweep_dir=tmp_path).all("a")]
    assert "./comparison/report.html" in links
    path = tmp_path / "pages" / "tuned.html"
    write_report(sweep_dir=tmp_path, output_file=path)
    assert "../comparison/report.html" in path.read_text()


def test_edges_of_coefficients_of_each_method(tmp_path):
    """The final runs of the first method have no such setting."""
    make_method_sweep(tmp_path)
    path = tmp_path / "sweep.csv"
    lines = path.read_text().replace("fedgela,client_learning_rate", "fedgela,fedgela_scale")
    path.write_text(lines)
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"))
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "fedgela: the chosen fedgela_scale=0.1 is the largest value" in shown


def test_points_with_the_same_score_are_named(tmp_path):
    make_sweep(tmp_path)
    with edited(tmp_path / "sweep.csv") as rows:
        for row in rows:
            others = 90.0 + float(row["local_epochs"])
            row["va_best"] = 100.0 if row["client_learning_rate"] == "0.1" else others
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "local_epochs=1, one of 2 points with the same VA. VA 100.0 ± 0.0 %." in shown
    assert (
        "Points with the same VA as the chosen one: client_learning_rate=0.1,local_epochs=5."
    ) in shown
    assert "over the next" not in shown


def test_a_point_that_lacks_a_seed_is_no_tie(tmp_path):
    """As in sweep.md: 80.5 with the only seed left, and 80 and 81 at the chosen point."""
    make_sweep(tmp_path)
    with edited(tmp_path / "sweep.csv") as rows:
        for row in rows:
            if row["settings"] == "client_learning_rate=0.03,local_epochs=1":
                row["va_best"], row["diverged"] = 80.5, str(row["seed"] == "1")
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert "Points with the same VA" not in shown
    assert "The chosen client_learning_rate=0.1 is the largest value of the grid" in shown


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # As `local`, FedGELA leaves the highest accuracy to FedAvg.
        ("fedgela,", "local,", "fedavg. 60.0 % with "),
        (",61,", ",60,", "fedavg, fedgela. 60.0 % with each of these 2 methods."),
    ],
)
def test_methods_with_the_highest_accuracy_are_named(tmp_path, old, new, expected):
    """The best points of FedAvg and FedGELA have 60 and 61 %."""
    make_method_sweep(tmp_path)
    path = tmp_path / "sweep.csv"
    path.write_text(path.read_text().replace(old, new))
    assert f"Highest VA: {expected}" in " ".join(page(sweep_dir=tmp_path).texts)


@pytest.mark.parametrize("make", [make_sweep, make_method_sweep])
def test_hostile_values(tmp_path, make):
    make(tmp_path)
    path = tmp_path / "sweep.csv"
    attack = "<script>alert(1)</script>"
    text = path.read_text().replace("fedavg", attack).replace("=0.03", f"={attack}")
    path.write_text(text)
    tree = page(sweep_dir=tmp_path)
    assert_self_contained(tree)
    assert attack in " ".join(tree.texts)


def test_what_is_no_sweep(tmp_path):
    with pytest.raises(SettingError, match=r"there is no sweep\.csv"):
        write_report(sweep_dir=tmp_path)
    (tmp_path / "sweep.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"sweep\.csv is damaged \(there is no column"):
        write_report(sweep_dir=tmp_path)
    make_method_sweep(tmp_path)
    path = tmp_path / "sweep.csv"
    path.write_text(path.read_text().replace(",30,", ",x,", 1))
    with pytest.raises(DataError, match=r"sweep\.csv is damaged"):
        write_report(sweep_dir=tmp_path)


@pytest.mark.parametrize(
    ("record", "others"),
    [
        ('{"started": "now", "halving": "all"}\n{"started": "now", "halving": "same_rate"}\n'
         '{"ended": "now"}\n', "others with the same learning rates"),
        ('{"started": "now", "halving": "all"}\n', "others"),
        ('{"started": "now"}\n', "others"),
        ("{", "others"),
        (None, "others"),
    ],
)  # fmt: skip
def test_why_points_were_stopped(tmp_path, record, others):
    """By the last call; by same_rate, points with other rates do not compete."""
    make_method_sweep(tmp_path)
    if record is not None:
        (tmp_path / "calls.jsonl").write_text(record)
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    assert f"points that were stopped early, because {others} had a higher VA" in shown


def test_points_that_diverged_were_not_stopped(tmp_path):
    make_method_sweep(tmp_path)
    rows = read_csv(tmp_path / "sweep.csv")
    assert rows[3]["stopped_after"] == "8"
    rows[3]["diverged"] = "True"
    rows[2]["settings"] = ""
    shown = method_sweep.values(Directory(tmp_path), rows, tmp_path)
    stopped = {row.name: row.cells[2][1] for row in shown["table"].rows}
    assert stopped == {"fedavg": 1, "fedgela": 0}
    assert {row.name: row.detail for row in shown["table"].rows}["fedavg"] == "defaults"


def test_the_next_point_has_all_seeds(tmp_path):
    """One that lacks a seed could not be chosen."""
    make_sweep(tmp_path)
    with edited(tmp_path / "sweep.csv") as rows:
        for row in rows:
            if row["settings"] == "client_learning_rate=0.1,local_epochs=5":
                row["diverged"] = str(row["seed"] == "1")
    shown = " ".join(page(sweep_dir=tmp_path).texts)
    next_point = shown.partition(" over the next point, ")[2]
    assert next_point.startswith("client_learning_rate=0.03,local_epochs=1.")


@pytest.mark.parametrize(
    ("tried", "title"),
    [
        (("client_learning_rate",), "Sweep of fedavg on digits, P10C2"),
        (("classes_per_client",), "Sweep of fedavg on digits"),
        (("dataset",), "Sweep of fedavg"),
    ],
)
def test_the_title_says_what_all_points_share(tried, title):
    assert sweep_parts.title_of("fedavg", ExperimentConfig(), tried) == title


def test_what_was_chosen_is_no_warning_and_what_diverged_is_one(tmp_path):
    make_method_sweep(tmp_path)
    path = tmp_path / "sweep.csv"
    path.write_text(path.read_text().replace(",False,False,False", ",True,False,False", 1))
    warned = [row for row in sweep_page.content(Directory(tmp_path))["all_points"].rows if row.note]
    assert [row.note for row in warned] == ["diverged"]
    tree = page(sweep_dir=tmp_path)
    assert [a.get("class") for a in tree.all("small")].count("quiet") == 4
    assert [a.get("class") for a in tree.all("small")].count(None) == 1


def test_points_that_the_last_sweep_did_not_try_are_named(tmp_path):
    for name in ("one", "several"):
        (tmp_path / name).mkdir()
    make_sweep(tmp_path / "one")
    make_method_sweep(tmp_path / "several")
    for folder, others in (
        ("one/client_learning_rate=1,local_epochs=1", 1),
        ("one/client_learning_rate=0.1,local_epochs=1", 1),
        ("several/tuning/fedavg/client_learning_rate=0.1", 0),
        ("several/tuning/fedprox/default", 1),
    ):
        run = tmp_path / folder / "seed_0"
        run.mkdir(parents=True, exist_ok=True)
        (run / "summary.json").write_text("{}")
        found = sweep_page.content(Directory(tmp_path / folder.partition("/")[0]))["findings"]
        assert [each.kind for each in found].count("left out") == others
    shown = " ".join(page(sweep_dir=tmp_path / "several").texts)
    assert "1 finished point in this directory that the last sweep here did not try: " in shown
    assert "fedprox/default." in shown


def test_the_picture_of_a_sweep_is_on_its_page(tmp_path):
    """The first bytes of all PNG files."""
    make_method_sweep(tmp_path)
    picture = tmp_path / "sweep.png"
    picture.write_bytes(bytes([137, 80, 78, 71, 13, 10, 26, 10, 1]))
    tree = page(sweep_dir=tmp_path)
    assert_self_contained(tree)
    assert [a["src"] for a in tree.all("img")] == ["data:image/png;base64,iVBORw0KGgoB"]
    picture.write_bytes(b"<svg>")
    tree = page(sweep_dir=tmp_path)
    assert not tree.all("img")
    assert "sweep.png is damaged (no PNG picture)" in " ".join(tree.texts)
