"""The pages: well-formed, escaped, self-contained, and with the numbers of the files."""

import html.parser
import itertools
import json
import pathlib
import re
import shlex
import sys

import numpy as np
import pytest

from tests.report.directories import edited, make_comparison, make_run, read_csv, write_checkpoint
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.findings import Change, Finding
from tff_pcdd.report import (
    comparison_page,
    pages,
    run_page,
    settings_table,
    write_index,
    write_report,
)
from tff_pcdd.results import comparison_directory
from tff_pcdd.results.reading import Directory
from tff_pcdd.settings import describe
from tff_pcdd.studies import comparison_tables, method_sweep_tables
from tff_pcdd.studies.study import StudyRun

_VOID = {"meta", "img", "br", "input", "link", "hr", "col"}
_SHAPES = {"path"}

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "</style></title><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "a&b <b>c</b> \u202e \x07 \\|",
)


class Tree(html.parser.HTMLParser):
    """Checks that all elements are closed in order, and collects what is in them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts, self.raw = [], [], [], {}
        self.commands = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), (tag, attributes)
        self.elements.append((tag, dict(attributes)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "pre":
            self.commands.append("")

    def handle_startendtag(self, tag, attributes):
        assert tag in _VOID | _SHAPES, tag
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("style", "script"):
            self.raw[self.open[-1]] = self.raw.get(self.open[-1], "") + data
        elif "pre" in self.open:
            self.commands[-1] += data
        elif data.strip():
            self.texts.append(" ".join(data.split()))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page(**directory):
    return Tree(write_report(**directory).path.read_text())


def assert_self_contained(tree):
    """Nothing is fetched, and nothing runs but one script."""
    assert not {tag for tag, _ in tree.elements} & {"link", "iframe", "object", "base", "form"}
    assert tree.all("script") == [{}]
    for tag, attributes in tree.elements:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "./", "data:image/png;base64,")), (tag, value)
    assert "url(" not in tree.raw["style"]
    assert "@import" not in tree.raw["style"]
    (policy,) = [a["content"] for a in tree.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:; ")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reports") / "run"
    make_run(directory, over_local=-1.0, algorithm="fedgela", rounds=20)
    return directory


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reports") / "comparison"
    make_comparison(directory, alone=True)
    return directory


def test_finished_runs_that_the_page_leaves_out_are_named(tmp_path):
    """As after a comparison of fewer methods and seeds in the same directory."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), seeds=(0, 1))
    assert "in this directory that" not in " ".join(page(comparison_dir=tmp_path).texts)
    with edited(tmp_path / "comparison.csv") as rows:
        rows[:] = [row for row in rows if (row["algorithm"], row["seed"]) == ("fedavg", "0")]
        assert len(rows) == 1
    # One that is not finished has nothing to show.
    (tmp_path / "fedgela/seed_1/summary.json").unlink()
    assert (
        "2 finished runs in this directory that the last comparison here did not name: "
        "fedavg/seed_1, fedgela/seed_0. Next: name their methods and seeds too"
    ) in " ".join(page(comparison_dir=tmp_path).texts)


def test_a_run(run):
    tree = page(run_dir=run)
    assert_self_contained(tree)
    shown = " ".join(tree.texts)
    summary = json.loads((run / "summary.json").read_text())
    for key in ("ga_final", "pa_final", "pa_before_final"):
        assert f"{summary[key]:.1f} %" in tree.texts
    rows = read_csv(run / "clients.csv")
    lowest = min(rows, key=lambda row: float(row["pa"]))
    assert f"client {lowest['client']}" in tree.texts
    for row in rows:
        assert row["client"] in tree.texts
        assert row["train_samples"] in tree.texts
        assert f"{float(row['pa']):.1f}" in tree.texts
    assert "by the method fedgela for 20 rounds" in shown
    assert "The global model has learned: GA is " in shown
    for anchor in ("holdings", "curves", "classes", "clients", "confusion", "costs", "settings"):
        assert {"href": f"#{anchor}"} in tree.all("a")
        assert {"id": anchor} in tree.all("h2")


def add_columns(directory, **columns):
    """Adds columns to metrics.csv, and their last values to summary.json."""
    path = directory / "metrics.csv"
    header, *lines = path.read_text().splitlines()
    lines = [
        f"{line},{','.join(str(value + n) for value in columns.values())}"
        for n, line in enumerate(lines)
    ]
    path.write_text("\n".join([f"{header},{','.join(columns)}", *lines]) + "\n")
    path = directory / "summary.json"
    last = {f"{name}_final": value + len(lines) - 1 for name, value in columns.items()}
    path.write_text(json.dumps({**json.loads(path.read_text()), **last}))


def test_groups_heads_metrics_and_columns_of_ones_own_are_shown(tmp_path):
    make_run(tmp_path, rounds=6)
    page_of_few = page(run_dir=tmp_path)
    assert "Further results" not in page_of_few.texts
    columns = {"ga_many": 61.0, "ga_few": 1.0, "pa_few": 3.0, "ga_ssec": 33.0, "energy": 2.5}
    columns |= {"worst_class_ga": 7.0, "worst_class_new_clients_ga": 8.0}
    add_columns(tmp_path, **columns)
    tree = page(run_dir=tmp_path)
    # Five rounds after the first one.
    for heading, value in {
        "GA, many": "66.0 %",
        "GA, few": "6.0 %",
        "GA with head ssec": "38.0 %",
        "worst_class, GA": "12.0 %",
        "worst_class, GA, new clients": "13.0 %",
        "energy": "7.5",
    }.items():
        # In a table below the main accuracies and the curves.
        table = tree.texts.index("Further results", tree.texts.index("Learning curves"))
        place = tree.texts.index(heading, table)
        assert tree.texts[place + 1] == value
    assert len(tree.all("dt")) == len(page_of_few.all("dt")) > 0
    charts = [a["aria-label"] for a in tree.all("svg") if a.get("role") == "img"]
    titles = [label.partition(" over rounds.")[0] for label in charts]
    assert titles == [
        "Accuracy (%)",
        "Training loss",
        "GA (%) by number of training samples of a class",
        "PA (%) by number of training samples of a class",
        "GA (%) of all heads",
        "Further metrics (%)",
        "energy",
    ]
    assert "GA, few: 1 % in round 1, 6 % in round 6" in charts[2]
    # GA is black in the first chart.
    curves = run_page.content(Directory(tmp_path))["curves"]
    assert [line.name for line in curves[5].lines] == ["worst_class, GA"]
    heads = {line.name: line.color for line in curves[4].lines}
    assert heads["GA"] == "#000000"
    assert heads["GA with head ssec"] != "#000000"


def test_groups_of_few_test_samples_are_pointed_out(tmp_path):
    """Of 200 training samples, two classes hold 75 % and the next one 95 %."""
    make_run(tmp_path, clients=("north", "south"))
    header = "client,train_samples,test_samples,ga,warning,train_a,train_b,train_c,train_d\n"
    rows = "north,160,9,50,,90,30,30,10\nsouth,40,9,50,,10,30,0,0\n"
    (tmp_path / "clients.csv").write_text(header + rows)
    whole = np.diag([200, 120, 90, 20])
    np.savez(tmp_path / "confusion.npz", **{"class_names": np.array([*"abcd"]), "global": whole})
    assert "In GA: " not in " ".join(page(run_dir=tmp_path).texts), "no groups"
    add_columns(tmp_path, ga_many=61.0, ga_medium=5.0, ga_few=1.0)
    said = (
        "In GA: many 2 classes with 320 test samples, medium 1 class with 90 test samples, few 1 "
        "class with 20 test samples. Too little to tell methods apart: medium, few."
    )
    assert said in page(run_dir=tmp_path).texts
    config = ExperimentConfig.from_settings()
    summary = {"ga_final": 50.0, "ga_many_final": 61.0, "ga_few_final": 1.0}
    runs = [StudyRun(config, tmp_path, summary=summary)]
    assert said in comparison_tables.document(runs)
    assert said in method_sweep_tables.document(config, [], runs, "va", [], [], "all")


def test_recall_by_class_starts_with_the_largest_class(run):
    tree = page(run_dir=run)
    rows = read_csv(run / "clients.csv")
    train = {c: sum(int(row[f"train_{c}"]) for row in rows) for c in ("cat", "dog", "owl", "fox")}
    with np.load(run / "confusion.npz") as arrays:
        matrix = arrays["global"]
    recalls = dict(zip(train, 100 * np.diag(matrix) / matrix.sum(axis=1), strict=True))
    place = tree.texts.index("recall (%)") + 2
    for name in sorted(train, key=lambda c: -train[c]):
        expected = [name, str(train[name]), "90", f"{recalls[name]:.1f}"]
        assert tree.texts[place : place + 4] == expected
        place += 4
    widths = [a["style"] for a in tree.all("i") if "width" in a.get("style", "")]
    assert widths == [f"width: {recalls[c]:.1f}%" for c in sorted(train, key=lambda c: -train[c])]


def test_recall_of_classes_whose_names_are_written_in_another_way(tmp_path):
    """In clients.csv, a line break is an escape, and a class cannot be called samples."""
    make_run(tmp_path, classes=("\\n", "samples (class)", "owl", "fox"))
    with np.load(tmp_path / "confusion.npz") as arrays:
        kept = {**arrays, "class_names": np.array(["\n", "samples", "owl", "fox"])}
    np.savez(tmp_path / "confusion.npz", **kept)
    texts = page(run_dir=tmp_path).texts
    place = texts.index("recall (%)") + 2
    # Four cells each.
    assert {*texts[place : place + 16 : 4]} == {"'\\n'", "samples", "owl", "fox"}


def test_without_a_global_model_the_personal_models_answer(tmp_path):
    make_run(tmp_path)
    with np.load(tmp_path / "confusion.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "global"}
    np.savez(tmp_path / "confusion.npz", **kept)
    shown = " ".join(page(run_dir=tmp_path).texts)
    assert "test samples that the personal models classify correctly" in shown


def test_the_command_trains_with_the_settings_of_the_run(tmp_path):
    """Flags become the same configuration; paths are left out, and have to be given again."""
    settings = {"algorithm": "fedprox", "fedprox_mu": 0.1, "client_learning_rate": 0.05}
    settings |= {"partition": "dirichlet", "concentration": 0.3, "nonfinite": "exclude"}
    config = ExperimentConfig.from_settings(**settings, rounds=7, seed=3)
    saved = {**config.to_settings(), "warm_start": "/home/me/run"}
    text = settings_table.command(saved)
    words = shlex.split(text)
    assert words[1:3] == ["-m", "tasks.train"]
    assert words[-2] == "--warm_start=PATH"
    assert words[-1].startswith("--output_dir=runs/again_")
    kinds = {setting.name: setting.type for setting in describe(ExperimentConfig)}
    given = dict(word.removeprefix("--").split("=", 1) for word in words[3:-2])
    again = ExperimentConfig.from_settings(**{name: kinds[name](v) for name, v in given.items()})
    assert again.to_settings() == config.to_settings()
    hostile = settings_table.command({**saved, "dataset": "x; rm -rf ~"})
    assert "'--dataset=x; rm -rf ~'" in hostile


def test_commands_can_be_pasted(tmp_path, monkeypatch):
    """They name the interpreter and the program as they are found in the working directory."""
    here = tmp_path / "my work"
    for executable, path, shown in (
        (here / ".venv/bin/python", "", ".venv/bin/python -m tff_pcdd train "),
        (here / ".v 1/bin/python", "", "'.v 1/bin/python' -m tff_pcdd train "),
        (tmp_path / "other/python3", "", f"{tmp_path}/other/python3 -m tff_pcdd train "),
        (tmp_path / "other/python3", tmp_path / "other", "python3 -m tff_pcdd train "),
    ):
        executable.parent.mkdir(parents=True, exist_ok=True)
        executable.touch(0o700)
        monkeypatch.chdir(here)
        monkeypatch.setattr(sys, "executable", str(executable))
        monkeypatch.setenv("PATH", str(path))
        assert settings_table.command({"algorithm": "fedavg"}).startswith(shown)
    # In a clone, as the documentation has it.
    clone = pathlib.Path(__file__).parents[2]
    monkeypatch.chdir(clone)
    monkeypatch.setattr(sys, "executable", str(clone / ".venv/bin/python"))
    shown = settings_table.command({"algorithm": "fedavg"})
    assert shown.startswith(".venv/bin/python -m tasks.train ")


def test_a_page_reads_the_settings_of_each_run_once(tmp_path, monkeypatch):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), seeds=(0, 1))
    opened, read_json = [], Directory.json
    monkeypatch.setattr(
        Directory, "json", lambda self, name: [opened.append(name), read_json(self, name)][1]
    )
    assert len(comparison_directory.read(Directory(tmp_path)).results.with_settings) == 4
    names = [name for name in opened if name.endswith("/config.json")]
    assert len(names) == len({*names}) == 4


def test_labels_of_runs_name_their_head_calibration(tmp_path):
    """The name of ccvr says it."""
    make_comparison(tmp_path, algorithms=("fedavg", "ccvr"), seeds=(0,), head_calibration="ccvr")
    labels = [run["label"] for run in comparison_page.content(Directory(tmp_path))["runs"]]
    assert labels == ["fedavg with ccvr seed 0", "ccvr seed 0"]
    assert page(comparison_dir=tmp_path).texts[0].startswith("fedavg with ccvr, ccvr on digits")


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"validation_fraction": 0.2}, "; other seeds hold out other samples of the same clients"),
        ({"max_train_samples": 50}, "; other seeds draw other samples of the same clients"),
        ({"max_clients": 3}, "; other seeds draw other clients"),
        ({}, ""),
    ],
)
def test_what_other_seeds_change_where_the_sites_are_those_of_the_data(tmp_path, options, others):
    table = {"dataset": "table", "data_dir": "a.csv", "label_column": "y", "site_column": "site"}
    given = {"num_clients": None, "classes_per_client": None, **table, **options}
    make_comparison(tmp_path, seeds=(3, 4), partition="natural", **given)
    shown = (
        f"Training samples of each client and class with seed 3{others}; darker cells have more."
    )
    assert shown in page(comparison_dir=tmp_path).texts


def test_a_comparison_shows_once_who_holds_which_classes(tmp_path):
    """With the samples of one of its runs, as clients.csv of the run has them."""
    make_comparison(tmp_path, seeds=(3, 4))
    tree = page(comparison_dir=tmp_path)
    [place] = [i for i, text in enumerate(tree.texts) if text == "Who holds which classes"]
    assert tree.texts[place + 1] == (
        "Training samples of each client and class with seed 3; other seeds divide the data anew; "
        "darker cells have more."
    )
    rows = read_csv(tmp_path / "fedavg" / "seed_3" / "clients.csv")
    classes = ("cat", "dog", "owl", "fox")
    shown = ["Training samples by client and class on P3C2", "client", *classes]
    for row in rows:
        numbers = [row[f"train_{name}"] for name in classes]
        shown += [row["client"], *(number for number in numbers if number != "0")]
    assert tree.texts[place + 2 : place + 2 + len(shown)] == shown
    for path in tmp_path.glob("*/seed_*/clients.csv"):
        path.write_text("a,b\n")
    tree = page(comparison_dir=tmp_path)
    assert "Who holds which classes" not in tree.texts
    assert "clients.csv is damaged" in " ".join(tree.texts)


def test_the_command_of_a_comparison_has_what_its_runs_share(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), client_learning_rate=0.05)
    [*_, text] = page(comparison_dir=tmp_path).commands
    flags = shlex.split(text)[3:]
    assert flags[:2] == ["--algorithms=fedavg,fedgela", "--seeds=0,1"]
    assert "--client_learning_rate=0.05" in flags
    # Each method has its own width of the linear layer by default, and seeds are named above.
    assert not [flag for flag in flags if re.match("--(projection_dim|seed|data_seed)=", flag)]
    for name in ("comparison.csv", "clients.csv"):
        path = tmp_path / name
        header, *rows = path.read_text().splitlines()
        rows += [row.replace("P3C2", "Dir(0.1)") for row in rows]
        path.write_text("\n".join([header, *rows]) + "\n")
    assert not [c for c in page(comparison_dir=tmp_path).commands if "tasks.compare" in c]


@pytest.mark.parametrize(
    ("choice", "models", "what", "why"),
    [
        # FedGELA is 10 points ahead with each seed, FedAvg's models beside it are the worst.
        ({"pa_final": 90.0}, "after", "after local training", ""),
        (
            {"pa_before_masked_final": 95.0},
            "before",
            "before local training, whose answer with own classes is own_label",
            # By PA after, all are equal and FedAvg is named first.
            ", the best on the clients' own samples",
        ),
    ],
)
def test_a_comparison_exports_what_its_answer_recommends(tmp_path, choice, models, what, why):
    """CCVR for everybody, and FedGELA for each client."""
    make_comparison(tmp_path, algorithms=("fedavg", "ccvr", "fedgela"), seeds=(3, 4), alone=True)
    best = {("ccvr", "ga_final"): 99.0, **{("fedgela", key): v for key, v in choice.items()}}
    with edited(tmp_path / "comparison.csv") as rows:
        for row in rows:
            for key in ("ga_final", "pa_final", "pa_before_final", "pa_before_masked_final"):
                row[key] = f"{best.get((row['algorithm'], key), 70.0) + int(row['seed']) / 10}"
            # The distance to the others depends on the seed a little.
            row["pa_final"] = f"{float(row['pa_final']) - (row['algorithm'] == 'local')}"
    tree = page(comparison_dir=tmp_path)
    said = f"Next, for a model for each client, {what}: export fedgela's of seed 3{why}."
    assert said in tree.texts
    assert "Next, for one model for all: export ccvr's of seed 3." in tree.texts
    clients, shared, _ = (shlex.split(text)[3:] for text in tree.commands)
    assert clients[:2] == [f"--run_dir={tmp_path}/fedgela/seed_3", f"--personal_model={models}"]
    assert shared[:2] == [f"--run_dir={tmp_path}/ccvr/seed_3", "--clients=none"]


def test_an_undecided_comparison_exports_fedavg(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), seeds=(3,))
    tree = page(comparison_dir=tmp_path)
    [export, _] = (shlex.split(text)[3:] for text in tree.commands)
    assert export[:2] == [f"--run_dir={tmp_path}/fedavg/seed_3", "--personal_model=after"]
    said = "export fedavg's of seed 3, the simplest method, as it is undecided."
    assert said in " ".join(tree.texts)


def test_a_comparison_exports_what_it_recommends_on_each_partition(tmp_path):
    """FedGELA on P3C2, and FedAvg on P3C9, where it is undecided."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), seeds=(3, 4))
    with edited(tmp_path / "comparison.csv") as rows:
        for method, seed in itertools.product(("fedavg", "fedgela"), (3, 4)):
            folder = tmp_path / "few" / method / f"seed_{seed}"
            summary = make_run(folder, seed=seed, algorithm=method, classes_per_client=9)
            rows.append({"partition": "P3C9", **summary})
        for row in rows:
            ahead = 20 * ((row["partition"], row["algorithm"]) == ("P3C2", "fedgela"))
            row["ga_final"] = row["pa_final"] = 60 + ahead + int(row["seed"]) / 10 * (1 + ahead)
    tree = page(comparison_dir=tmp_path)
    flags = [shlex.split(text)[3:5] for text in tree.commands]
    assert flags == [
        [f"--run_dir={tmp_path}/fedgela/seed_3", "--personal_model=after"],
        [f"--run_dir={tmp_path}/few/fedavg/seed_3", "--personal_model=after"],
    ]
    everywhere = tree.texts.index("All partitions")
    first, second = (tree.texts.index(name, everywhere) for name in ("P3C2", "P3C9"))
    exported = "Next, for one model for all and a model for each client, after local training: "
    assert f"{exported}export fedgela's of seed 3." in tree.texts[first:second]
    assert f"{exported}export fedavg's of seed 3." in tree.texts[second:]


def test_further_rounds_of_a_comparison_take_the_time_of_all_its_runs(tmp_path):
    """80 rounds of 0.25 seconds in each of 4 runs, also if several were computed at a time."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), seeds=(3, 4))
    longer = Change("--rounds=92 (now 12)", ("rounds",), True)
    advice = Finding.advised("rising", "GA was still rising.", [longer])
    for path in tmp_path.glob("*/seed_*/summary.json"):
        summary = {**json.loads(path.read_text()), "findings": [advice.record()]}
        path.write_text(json.dumps(summary))
    nexts = [each.next for each in comparison_directory.read(Directory(tmp_path)).findings]
    assert "Next: --rounds=92 (now 12, about 1 min 20 s more, one run after the other)." in nexts


def test_the_global_matrix_is_shown(run):
    tree = page(run_dir=run)
    with np.load(run / "confusion.npz") as arrays:
        matrix = arrays["global"]
    # Zeros are empty cells.
    first = tree.texts.index("recall") + 1
    for name, row in zip(("cat", "dog", "owl", "fox"), matrix, strict=True):
        kept = [f"{value}" for value in row if value]
        assert tree.texts[first : first + len(kept) + 1] == [name, *kept]
        first += len(kept) + 2
    assert len(tree.all("option")) == 1 + 3


def test_a_comparison(comparison):
    tree = page(comparison_dir=comparison)
    assert_self_contained(tree)
    rows = read_csv(comparison / "comparison.csv")

    def mean(method):
        values = [float(row["pa_final"]) for row in rows if row["algorithm"] == method]
        return sum(values) / len(values)

    for method in ("fedavg", "fedgela", "fedprox"):
        assert any(t.startswith(f"{mean(method) - mean('local'):+.1f} ± ") for t in tree.texts)
    # The clients of the two seeds are different ones.
    tested = {
        (f"{row['client']}, seed {row['seed']}", row["test_samples"])
        for row in read_csv(comparison / "clients.csv")
    }
    assert len(tested) == 2 * 3
    assert tested <= set(itertools.pairwise(tree.texts))
    shown = " ".join(tree.texts)
    assert "8 runs of 4 methods with 2 seeds on 1 partition, each for 12 rounds." in shown
    assert shown.count("fedprox_mu") == 0, "a default of one method is of no interest"


def test_clients_are_averaged_over_seeds_only_where_seeds_have_the_same(tmp_path):
    """Of other seeds, a client with the same name has other samples of other classes."""
    for name, count, settings in (
        ("anew", 6, {}),
        ("same data", 3, {"data_seed": 5}),
        (
            "same users",
            3,
            {
                "partition": "natural",
                "dataset": "femnist",
                "data_dir": str(tmp_path),
                "classes_per_client": None,
                "num_clients": None,
            },
        ),
    ):
        make_comparison(tmp_path / name, alone=True, **settings)
        found = comparison_directory.read(Directory(tmp_path / name))
        assert len(found.answers[0].at_clients.clients) == count
        shown = " ".join(page(comparison_dir=tmp_path / name).texts)
        seeds = " of 2 seeds" if count == 6 else ""
        assert f" of {count} clients{seeds} differs" in shown
        assert ("PA after local training, mean over seeds" in shown) == (count == 3)
        # Per method, the lowest of three clients, averaged over the two seeds.
        rows = read_csv(tmp_path / name / "clients.csv")
        lowest = [
            min(float(r["pa"]) for r in rows if (r["algorithm"], r["seed"]) == ("fedavg", seed))
            for seed in "01"
        ]
        assert f"{sum(lowest) / 2:.1f}" in shown


def test_other_seeds_may_have_other_new_clients(tmp_path):
    said = "; other seeds have other new clients"
    for name, settings in (("same", {"new_clients_seed": 0}), ("other", {}), ("none", {})):
        new = 0 if name == "none" else 1
        make_comparison(tmp_path / name, data_seed=5, new_clients=new, **settings)
        shown = " ".join(page(comparison_dir=tmp_path / name).texts)
        assert (said in shown) == (name == "other"), name


@pytest.mark.parametrize("kind", ["run", "comparison"])
def test_hostile_names(tmp_path, kind):
    """Whatever names contain, they are text."""
    names = {"clients": HOSTILE, "classes": HOSTILE}
    if kind == "run":
        make_run(tmp_path / "d", **names)
        path = tmp_path / "d" / "config.json"
        settings = json.loads(path.read_text())
        settings |= {name: name for name in HOSTILE} | {"data_dir": HOSTILE[0], "seed": HOSTILE}
        path.write_text(json.dumps(settings))
        card = tmp_path / "d" / "exported" / "model_card.md"
        card.parent.mkdir()
        card.write_text("\n\n".join(f"# {n}\n\n{n}\n\n| {n} | b |\n| --- | --- |" for n in HOSTILE))
        tree = page(run_dir=tmp_path / "d")
    else:
        make_comparison(tmp_path / "d", **names)
        for name in ("comparison.csv", "clients.csv"):
            path = tmp_path / "d" / name
            path.write_text(path.read_text().replace("fedgela", HOSTILE[0]))
        tree = page(comparison_dir=tmp_path / "d")
    assert_self_contained(tree)
    shown = " ".join(tree.texts)
    for name in HOSTILE[:5]:
        assert name in shown
    assert "a&b <b>c</b> \\u202e \\x07" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)


def test_long_and_unprintable_values(tmp_path):
    """Long names and lone surrogates, as JSON can contain them."""
    make_run(tmp_path, clients=("x" * 10_000, "b", "c"))
    path = tmp_path / "config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "algorithm": "\ud800", "rounds": 10**30}))
    tree = page(run_dir=tmp_path)
    assert max(map(len, tree.texts)) < 1000


def test_large_federations_are_pictures(tmp_path):
    clients = [f"client {i}" for i in range(500)]
    make_run(tmp_path, clients=clients, classes=[f"class {i}" for i in range(60)])
    report = write_report(run_dir=tmp_path)
    assert report.path.stat().st_size < 2_000_000
    tree = Tree(report.path.read_text())
    # Who holds what, the global model, and the clients with the lowest accuracies.
    assert len(tree.all("img")) == 1 + 1 + 200
    assert all(image["alt"] for image in tree.all("img"))
    assert "One in 2 of 500 clients" in " ".join(tree.texts)


def test_several_partitions(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"), projection_dim=84)
    for name in ("comparison.csv", "clients.csv"):
        path = tmp_path / name
        header, *rows = path.read_text().splitlines()
        rows += [row.replace("P3C2", "Dir(0.1)") for row in rows]
        path.write_text("\n".join([header, *rows]) + "\n")
    tree = page(comparison_dir=tmp_path)
    assert [a["id"] for a in tree.all("h2") if "id" in a][:3] == [
        *("answer", "results-1", "results-2")
    ]
    assert "Dir(0.1)" in tree.texts


def without_global_model(path):
    """Removes the accuracies of the global model from a table of clients."""
    with edited(path) as rows:
        for row in rows:
            row["ga"] = row["over_global"] = ""


def test_training_alone_does_not_squeeze_the_curves_of_ga(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedper", "local"), seeds=(0,))
    [part] = comparison_page.content(Directory(tmp_path))["parts"]
    ga, pa = ({line.name for line in chart.lines} for chart in part.curves)
    assert ga == {"fedavg", "fedper"}, "all methods that are compared, and no baseline without one"
    assert pa == {"fedavg", "fedper", "local"}


def test_methods_without_a_global_model(tmp_path):
    make_run(tmp_path / "run")
    without_global_model(tmp_path / "run" / "clients.csv")
    tree = page(run_dir=tmp_path / "run")
    assert "GA: mean of the personal models, whole test set" in tree.texts
    assert "GA: global model, whole test set" not in tree.texts
    assert "over global" not in tree.texts
    make_comparison(tmp_path / "comparison", algorithms=("fedavg",))
    without_global_model(tmp_path / "comparison" / "clients.csv")
    tree = page(comparison_dir=tmp_path / "comparison")
    # The note is short, because the column of names is narrow; the rest is below the table.
    assert "no global model" in tree.texts
    assert (
        "Without a global model, GA is the mean over clients of each personal model's accuracy on "
        "the whole test set."
    ) in tree.texts


def test_further_metrics_have_a_table_of_their_own(tmp_path):
    """One table with all of them would be wider than the page."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedprox"))
    [part] = comparison_page.content(Directory(tmp_path))["parts"]
    assert part.further is None
    metrics = ("balanced_ga_final", "balanced_pa_final", "macro_f1_ga_final")
    # FedAvg with seeds 0 and 1, then FedProx.
    values = [[41, 51, 31], [43, 53, 33], [61, 41, 31], [63, 43, 33]]
    with edited(tmp_path / "comparison.csv") as rows:
        for row, more in zip(rows, values, strict=True):
            row |= dict(zip(metrics, more, strict=True))
    [part] = comparison_page.content(Directory(tmp_path))["parts"]
    headings = [column.heading for column in part.accuracies.columns]
    assert headings[:5] == [
        *("GA", "GA, 2nd half", "PA before", "PA before, own classes", "PA after")
    ]
    assert not any("balanced" in heading for heading in headings)
    assert [column.heading for column in part.further.columns] == [
        *("balanced, GA", "balanced, PA after", "macro_f1, GA")
    ]
    cells = {row.name: [text for text, _ in row.cells] for row in part.further.rows}
    assert cells["fedavg"] == ["42.0 ± 1.4", "52.0 ± 1.4", "32.0 ± 1.4"]
    assert {row.name: [*row.best] for row in part.further.rows} == {
        "fedavg": [1, 2],
        "fedprox": [0, 2],
    }
    assert "balanced, PA after" in page(comparison_dir=tmp_path).texts


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ({}, "P3C10 : 3 clients, each with training samples of 10 classes."),
        (
            {"partition": "dirichlet", "concentration": 0.1},
            "Dirichlet(0.1), 3 clients : samples divided by proportions from a Dirichlet "
            "distribution with concentration 0.1, of which small values give uneven clients.",
        ),
        (
            {"partition": "dirichlet", "concentration": 0.1, "new_clients": 2},
            "Dirichlet(0.1), 3 clients : samples divided by proportions from a Dirichlet "
            "distribution with concentration 0.1, of which small values give uneven clients "
            "(2 of the clients are new and take no part in training).",
        ),
        ({"partition": "iid"}, ""),
    ],
)
def test_short_names_are_explained_at_the_top(settings, meaning, tmp_path):
    """Before the answer of a comparison, and before the figures of a run, which explain GA."""
    if settings:
        settings["classes_per_client"] = None
    make_comparison(tmp_path, algorithms=("fedavg",), **settings)
    shown = " ".join(page(comparison_dir=tmp_path).texts)
    top = shown[: shown.index("One model for all")]
    accuracies = (
        "GA : accuracy of the global model on the whole test set; PA : accuracy of the clients' "
        "personal models on their own test samples, mean over clients"
    )
    assert f"{accuracies}{'; ' if meaning else '.'}{meaning}" in " ".join(top.split())
    shown = " ".join(page(run_dir=tmp_path / "fedavg" / "seed_0").texts)
    assert meaning in " ".join(shown[: shown.index("Learning curves")].split())


def test_runs_that_diverged_or_failed(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela"))
    with edited(tmp_path / "comparison.csv") as rows:
        [row] = [r for r in rows if (r["algorithm"], r["seed"]) == ("fedgela", "1")]
        row["diverged"] = "True"
    (tmp_path / "failures.txt").write_text("a traceback")
    before = page(comparison_dir=tmp_path)
    # What such a run has measured at the clients, which is 0 as a rule, counts nowhere.
    with edited(tmp_path / "clients.csv") as rows:
        for row in rows:
            if (row["algorithm"], row["seed"]) == ("fedgela", "1"):
                row["pa"] = "0"
    tree = page(comparison_dir=tmp_path)
    assert tree.texts == before.texts
    shown = " ".join(tree.texts)
    assert "These runs have diverged and are left out of all values: fedgela seed 1" in shown
    assert "Some runs have failed" in shown
    assert "1, 1 diverged" in tree.texts


def test_a_diverged_run(tmp_path):
    make_run(tmp_path)
    path = tmp_path / "summary.json"
    values = json.loads(path.read_text())
    values |= {"diverged": True, "excluded_clients": 7, "nonfinite_rounds": 3, "rounds": 5}
    path.write_text(json.dumps(values))
    metrics = tmp_path / "metrics.csv"
    lines = metrics.read_text().splitlines()
    lines[5] = lines[5].removesuffix("0,0,0") + "3,7,5"
    metrics.write_text("\n".join(lines) + "\n")
    tree = page(run_dir=tmp_path)
    shown = " ".join(tree.texts)
    assert tree.texts[0].endswith("(diverged)")
    assert "The run has diverged" in shown
    assert "has learned" not in shown
    assert "Lowest PA" not in shown
    assert "7 times, in 3 rounds" in shown
    assert "These rounds gave no usable model: 5." in shown


def test_the_head_calibration_of_a_run_is_named(tmp_path):
    make_run(tmp_path / "ccvr", algorithm="ccvr")
    add_columns(tmp_path / "ccvr", ga_fedavg=40.0)
    assert "GA without ccvr 51.0 %" in " ".join(page(run_dir=tmp_path / "ccvr").texts)
    make_run(tmp_path, head_calibration="ccvr")
    add_columns(tmp_path, ga_fedavg=40.0)
    sentence = " ".join(page(run_dir=tmp_path).texts)
    # 40 in the first of 12 rounds, and one more in each.
    assert "GA without ccvr 51.0 % model of fedavg without the re-trained head, whole" in sentence
    assert " by the method fedavg with head calibration ccvr for 12 rounds " in sentence


def test_an_unfinished_run(tmp_path):
    make_run(tmp_path)
    (tmp_path / "summary.json").unlink()
    shown = " ".join(page(run_dir=tmp_path).texts)
    assert "The run is not finished: round 12 of 12 was recorded last." in shown


def test_model_cards_are_shown(tmp_path):
    make_run(tmp_path)
    card = tmp_path / "exported" / "personal" / "north" / "1" / "model_card.md"
    card.parent.mkdir(parents=True)
    card.write_text("# fedavg: a model\n\nText.\n\n| class | n |\n| --- | --- |\n| a\\|b | 5 |\n")
    tree = page(run_dir=tmp_path)
    assert {"a|b", "fedavg: a model", "exported/personal/north/1/model_card.md"} <= {*tree.texts}


def test_reports_of_runs_are_linked(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg",))
    (tmp_path / "fedavg" / "seed_0" / "config.json").write_text("{")
    tree = page(comparison_dir=tmp_path)
    links = [a["href"] for a in tree.all("a") if not a["href"].startswith("#")]
    # The other run cannot be shown.
    assert links == ["./fedavg/seed_1/report.html"]
    assert (tmp_path / "fedavg" / "seed_1" / "report.html").is_file()


def test_what_cannot_be_compared_is_said(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedprox"), projection_dim=84)
    folders = [f"{method}/seed_{seed}" for method in ("fedavg", "fedprox") for seed in (0, 1)]
    for folder in folders:
        write_checkpoint(tmp_path / folder, f"data of seed {folder[-1]}")
    texts = " ".join(page(comparison_dir=tmp_path).texts)
    assert "cannot be compared" not in texts
    assert "networks of the methods differ" not in texts
    write_checkpoint(tmp_path / "fedprox/seed_1", "other data")
    texts = " ".join(page(comparison_dir=tmp_path).texts)
    first, other = ("fedavg seed 1", "fedprox seed 1")
    assert f"between these runs, which cannot be compared: {first} / {other}." in texts


def test_different_networks_are_said(tmp_path):
    """FedGELA has linear features before its head by default."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela", "fedprox"))
    texts = " ".join(page(comparison_dir=tmp_path).texts)
    assert "linear layer before the head: none (fedavg, fedprox); 84 (fedgela)." in texts
    assert "Next: --projection_dim=84 for all methods." in texts


def test_different_numbers_of_personal_epochs_are_said(tmp_path):
    """Such as of FedRoD, whose personal models are those of the round."""
    make_comparison(tmp_path, algorithms=("fedavg", "fedprox", "fedrod"), projection_dim=84)
    assert "different numbers of local epochs" not in " ".join(page(comparison_dir=tmp_path).texts)
    with edited(tmp_path / "comparison.csv") as rows:
        for row in rows:
            if row["algorithm"] == "fedrod":
                row["personal_epochs"] = "0"
    texts = " ".join(page(comparison_dir=tmp_path).texts)
    assert (
        "PA after is measured after different numbers of local epochs of the personal models: 0 "
        "(fedrod); 5 (fedavg, fedprox)."
    ) in texts


def test_links_lead_to_reports_from_wherever_the_page_is(tmp_path):
    runs = tmp_path / "runs"
    make_comparison(runs / "a b", algorithms=("fedavg", "fedgela"))
    write_report(comparison_dir=runs / "a b")
    own = Tree((runs / "a b" / "report.html").read_text())
    write_report(comparison_dir=runs / "a b", output_file=runs / "a b" / "fedavg" / "own.html")
    below = Tree((runs / "a b" / "fedavg" / "own.html").read_text())
    path = tmp_path / "pages" / "compared.html"
    write_report(comparison_dir=runs / "a b", output_file=path)
    aside = Tree(path.read_text())
    write_index(runs, tmp_path / "pages" / "all.html")
    index = Tree((tmp_path / "pages" / "all.html").read_text())

    def links(tree):
        return {a["href"] for a in tree.all("a") if a["href"].endswith("/report.html")}

    run = "fedavg/seed_0/report.html"
    assert f"./{run}" in links(own)
    assert "./seed_0/report.html" in links(below)
    assert f"../runs/a%20b/{run}" in links(aside)
    assert links(index) == {"../runs/a%20b/report.html"}
    for link in links(aside) | links(index):
        assert (path.parent / link.replace("%20", " ")).is_file()


def test_flags_in_sentences_are_not_divided(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedgela", "fedprox"))
    write_report(comparison_dir=tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert '<strong>Next: <code class="flag">--projection_dim=84</code> for all' in text
    long = "--grid=client_learning_rate=0.001,0.003,0.01,0.03"
    assert str(pages._flags_as_code(f"Take {long}, -- or <b>--rounds=20</b>.")) == (
        f'Take <code class="flag long">{long}</code>, -- or &lt;b&gt;'
        '<code class="flag">--rounds=20</code>&lt;/b&gt;.'
    )
    command = "python -m tasks.train '--data_dir=a --b <i>' --rounds=20"
    assert str(pages._flags_in_command(command)) == (
        'python -m tasks.train <span class="flag">&#39;--data_dir=a</span> '
        '<span class="flag">--b &lt;i&gt;&#39;</span> <span class="flag">--rounds=20</span>'
    )


def choose(directory, point):
    """Makes a directory that of a sweep which has tried a point of FedAvg with seed 2."""
    (directory / "sweep.csv").write_text("algorithm,settings,va\n")
    run = directory / "tuning" / "fedavg" / point / "seed_2"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")


@pytest.mark.parametrize("in_a_sweep", [False, True])
def test_more_seeds_are_asked_for_by_the_flag_that_the_program_has(in_a_sweep, tmp_path):
    """In a sweep, seed 2 has chosen the settings and cannot be one of the final ones."""
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedprox"))
    with edited(tmp_path / "comparison" / "comparison.csv") as rows:
        # The methods differ in opposite directions.
        rows[0]["pa_final"], rows[1]["pa_final"] = rows[3]["pa_final"], "20"
    if in_a_sweep:
        choose(tmp_path, "default")
    texts = " ".join(page(comparison_dir=tmp_path / "comparison").texts)
    wanted = "--final_seeds=0,1,3,4,5" if in_a_sweep else "--seeds=0,1,2,3,4"
    assert f"take {wanted}" in texts


@pytest.mark.parametrize("in_a_sweep", [False, True])
def test_a_comparison_of_a_sweep_asks_for_no_flag_that_the_sweep_refuses(in_a_sweep, tmp_path):
    """The grid varies the learning rate."""
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedprox"))
    with edited(tmp_path / "comparison" / "comparison.csv") as rows:
        rows[0]["diverged"] = "True"
    if in_a_sweep:
        choose(tmp_path, "client_learning_rate=0.1")
    texts = " ".join(page(comparison_dir=tmp_path / "comparison").texts)
    assert "These runs have diverged" in texts
    assert ("a smaller --client_learning_rate" in texts) is not in_a_sweep


def test_runs_on_a_single_partition_are_named_without_it(tmp_path):
    make_comparison(tmp_path, algorithms=("fedavg", "fedprox"), seeds=(0,))
    assert {"fedavg seed 0", "fedprox seed 0"} <= {*page(comparison_dir=tmp_path).texts}
    with edited(tmp_path / "comparison.csv") as rows:
        rows[1]["partition"] = "iid"
    shown = {*page(comparison_dir=tmp_path).texts}
    assert {"fedavg seed 0 (P3C2)", "fedprox seed 0 (iid)"} <= shown
