"""Published sweeps over methods: what is published, what the page says, and what is refused."""

import csv
import hashlib
import itertools
import json
import pathlib
import re
import shutil
import types

import numpy as np
import pytest

from publication import federation_tables, held_out, overview, published, publishing, writing
from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tests.report.directories import write_checkpoint
from tests.studies.fake_sweep import ALL, PROX, ROUNDS, Training, name, point, points
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.studies import study, sweep_methods
from tff_pcdd.training import History

pytestmark = pytest.mark.usefixtures("undrawn")

ROOT = pathlib.Path(__file__).resolve().parents[2]

# GA over FedAvg's 50 + seed, by method and seed.
GAINS = {"fedprox": {1: 9, 2: 3, 3: 0}, "moon": {1: -30, 2: -20, 3: -16}, "fedper": {1: -40}}


def sweep(directory, monkeypatch, gains=GAINS, **settings):
    """Makes the directory of a finished sweep."""
    training = Training(directory)
    training.gains = {m: lambda seed, g=gains[m]: g.get(seed, min(g.values())) for m in gains}
    monkeypatch.setattr(study, "run_experiment", training)
    rates = [("0.01",), ("0.1",)]
    planned = points(**settings)
    for method in ("moon", "fedper"):
        names = ("client_learning_rate",)
        planned[method] = [point(method, names, texts, **settings) for texts in rates]
    sweep_methods(planned, directory, halving=ALL)
    return directory


@pytest.fixture
def finished(monkeypatch, tmp_path):
    return sweep(tmp_path / "runs/digits", monkeypatch)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def table(page, column, heading=""):
    """The rows of the first table of a page after a heading that has a column, by their names."""
    lines = page[page.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and column in line)
    table = "\n".join(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    head, *body = [[cell.strip("*") for cell in line] for line in table_rows(table)]
    return {line[0]: dict(zip(head, line, strict=True)) for line in body}


def page_of(publish_dir, federation="digits"):
    """The page of a federation, after all pages have been written."""
    writing.write(publish_dir)
    return (publish_dir / federation / "README.md").read_text()


def expected(values):
    """Mean ± sample standard deviation."""
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"


def test_what_is_published(finished, tmp_path):
    folder = publishing.publish(finished, tmp_path / "docs")
    assert folder == tmp_path / "docs" / "digits"
    final = rows(folder / "final.csv")
    assert [(row["algorithm"], row["seed"]) for row in final] == [
        (method, seed) for method in ("fedavg", "fedprox", "moon", "fedper") for seed in "123"
    ]
    assert [float(row["ga_final"]) for row in final[3:6]] == [60, 55, 53]
    assert [row["global_model"] for row in final] == ["True"] * 9 + ["False"] * 3
    tuning = {row["settings"]: row for row in rows(folder / "tuning.csv")[2:8]}
    # The held-out accuracies of the points up to where they were stopped.
    assert float(tuning[name(("0.01", "1"))]["va"]) == 70
    assert {text for text, row in tuning.items() if row["chosen"] == "True"} == {
        name(("0.01", "1"))
    }
    assert len(tuning) == len(PROX)
    # What all points have trained, those that were stopped first included.
    held = [row for row in rows(folder / "held_out.csv") if row["algorithm"] == "fedprox"]
    assert {row["settings"]: float(row["va"]) for row in held} == {
        name(texts): curve[0] for texts, curve in PROX.items()
    }
    assert {(row["seed"], row["round"], row["ga"]) for row in held} == {("0", "2", "50.00")}
    curve = rows(folder / "curves.csv")[4]
    assert (curve["algorithm"], curve["seed"], curve[str(ROUNDS)]) == ("fedprox", "2", "52.00")
    record = json.loads((folder / "federation.json").read_text())
    assert record["settings"]["rounds"] == ROUNDS
    assert not {"seed", "algorithm", "data_dir"} & set(record["settings"])
    assert (record["seeds"], record["final_seeds"]) == ([0], [1, 2, 3])
    # A second for each round: 26 of FedProx (see TRAINED), 10 of each other method, 12 final runs.
    assert record["seconds_of_rounds"] == 26 + 3 * 10 + 12 * ROUNDS
    for file, digest in record["sha256"].items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest


def test_every_figure_of_the_page_comes_from_the_published_files(finished, tmp_path):
    publish_dir = tmp_path / "docs"
    publishing.publish(finished, publish_dir)
    path, _ = writing.write(publish_dir)
    assert path == tmp_path / "docs.md"
    page, main = (publish_dir / "digits" / "README.md").read_text(), path.read_text()
    found = table(page, "GA - FedAvg's")
    # Best first; methods without a global model last.
    assert list(found) == ["fedprox", "fedavg", "moon", "fedper †"]
    assert found["fedavg"]["GA"].strip("<ins>/") == expected([51, 52, 53])
    assert found["fedprox"]["GA"] == expected([60, 55, 53])
    assert found["fedprox"]["GA - FedAvg's"] == f"+{expected([9, 3, 0])}"
    assert found["fedprox"]["seeds ahead"] == "2 of 3"
    assert found["fedper †"]["GA - FedAvg's"] == "–"
    assert (found["fedavg"]["MB"], found["fedavg"]["s/round"]) == ("4.0", "0.500")
    short = table(main, "you want")
    assert short["one global model"]["best"] == f"fedprox ({expected([60, 55, 53])})"
    assert short["one global model"]["FedAvg"] == f"({expected([51, 52, 53])})"
    # Methods that have a global model; on a single federation they have no ranks.
    accuracies = table(main, "digits, P10C2", "## GA of all methods")
    assert {name: row["digits, P10C2"].strip("<ins>/") for name, row in accuracies.items()} == {
        name: expected(values)
        for name, values in (
            ("fedprox", [60, 55, 53]),
            ("fedavg", [51, 52, 53]),
            ("moon", [21, 32, 37]),
        )
    }
    # GA after a fifth of the rounds is that of round 1, without the gain of the last one.
    speed = table(main, "round 1")
    assert list(speed) == ["fedprox", "fedavg"]
    assert [row[next(key for key in row if "round 1" in key)] for row in speed.values()] == [
        f"52.0 → {np.mean(values):.1f}" for values in ([60, 55, 53], [51, 52, 53])
    ]
    chosen = table(page, "chosen settings")
    assert chosen["fedprox"]["chosen settings"] == "client_learning_rate=0.01, fedprox_mu=1"
    assert chosen["fedprox"]["at the edge"] == "client_learning_rate, fedprox_mu"
    assert (chosen["fedprox"]["VA"], chosen["fedprox"]["rounds"]) == ("70.0", "26")
    assert "accuracy by which settings were chosen, mean of the last three evaluations." in main
    # Nothing but the published files is read.
    made = [path, *publish_dir.rglob("*.md"), *publish_dir.rglob("*.png")]
    written = {one: one.read_bytes() for one in made}
    assert {one.name for one in written} == {"docs.md", "README.md", "curves.png"}
    shutil.rmtree(finished)
    for one in written:
        one.unlink()
    writing.write(publish_dir)
    assert {one: one.read_bytes() for one in written} == written


def test_a_value_that_makes_no_difference_is_not_at_the_edge():
    trials = [
        {"algorithm": "apfl", "settings": f"client_learning_rate={rate},apfl_alpha={alpha}"}
        | {"va": str(va), "rounds": str(rounds), "chosen": str(chosen)}
        for rate, alpha, va, rounds, chosen in (
            *((0.1, 0.25, 60, 2, False), (0.1, 0.5, 50, 2, False)),
            *((0.3, 0.25, 70, 4, True), (0.3, 0.5, 70, 4, False)),
            # It was as good as the others when it was stopped.
            (0.3, 0.75, 55, 2, False),
        )
    ]
    results = types.SimpleNamespace(methods=["apfl"], trials=trials)
    found = table(federation_tables.choices(results), "chosen settings")
    assert found["apfl"]["at the edge"] == "client_learning_rate"


def test_how_far_held_out_samples_and_the_test_set_agree():
    rng = np.random.default_rng(0)
    ga, va, balanced = rng.permutation(20), rng.permutation(20), rng.permutation(20)
    table = [
        {"algorithm": "ab"[i % 2], "round": "8", "va": str(v), "va_balanced": str(b), "ga": str(g)}
        for i, (v, b, g) in enumerate(zip(va, balanced, ga, strict=True))
    ]
    # Without ties, the correlation of ranks is that of the values, which are 0 to 19.
    plain, mean = (np.corrcoef(values, ga)[0, 1] for values in (va, balanced))
    # What each method loses by the run that is best by the mean over classes.
    lost = [ga[i::2].max() - ga[i::2][balanced[i::2].argmax()] for i in (0, 1)]
    text = held_out.described(table, "va_balanced")
    assert "after 8 rounds, over 20 runs" in text
    assert f": {plain:.2f} for the accuracy" in text
    assert f", {mean:.2f} for its mean over classes. To choose by" in text
    assert f"costs a method {np.mean(lost):.1f} points of GA then" in text
    assert held_out.described(table, "va_personal").endswith("for its mean over classes")
    assert held_out.described(table[:9], "va") == ""
    assert held_out.described([{**row, "va": "", "va_balanced": "1"} for row in table], "va") == ""


def test_settings_are_compared_after_the_round_that_all_of_them_reached():
    """Also if a sweep has several seeds, of which sweep.csv holds the sum of the rounds."""

    def trained(*values):
        history = History(["round", "va", "ga"])
        for number, value in values:
            history.append({"round": number, "va": value, "ga": value and value + 1})
        return history

    trials = [
        {"algorithm": "a", "settings": "x=1", "rounds": "4", "diverged": "False"},
        {"algorithm": "a", "settings": "x=2", "rounds": "8", "diverged": "False"},
        {"algorithm": "a", "settings": "x=3", "rounds": "1", "diverged": "True"},
    ]
    # Round 3 was not evaluated.
    short, long = ((1, 10), (2, 20), (3, None)), ((1, 30), (2, 40), (4, 50))
    runs = [
        {"0": trained(*short), "1": trained(*short)},
        {"0": trained(*long), "1": trained(*long)},
        {"0": trained((1, 5))},
    ]
    found = [
        (row["settings"], row["seed"], row["round"], float(row["va"]), float(row["ga"]))
        for row in held_out.rows(trials, runs)
    ]
    assert found == [
        *(("x=1", seed, "2", 20, 21) for seed in "01"),
        *(("x=2", seed, "2", 40, 41) for seed in "01"),
    ]


def test_methods_that_fail_are_listed_with_their_explanation(finished, tmp_path):
    publish_dir = tmp_path / "docs"
    publishing.publish(finished, publish_dir)
    _, missing = writing.write(publish_dir)
    # 52 - 22 points; PA is equal, and GA of FedPer is not that of a global model.
    reason = "GA is 22.0 points below FedAvg's"
    assert missing == [f"explanations.digits.moon ({reason})"]
    assert f"- **moon**: {reason}. Not explained yet." in page_of(publish_dir)
    (publish_dir / "notes.toml").write_text(
        '[explanations.digits]\nmoon = "Its features collapse."\n[texts]\nnot_seen = "No gain."\n'
        '[federations]\nlater = "Another one"\ndigits = "Some digits"\n'
        '[remarks]\ndigits = "On a shared machine."\n'
    )
    path, missing = writing.write(publish_dir)
    assert missing == []
    page, main = page_of(publish_dir), path.read_text()
    assert f"- **moon**: {reason}. Its features collapse." in page
    # Other people's pages do not name this project's flagfiles.
    assert "flags/comparison" not in main and "has the command that computed it" in main
    assert "## What was not seen, or only in part\n\nNo gain." in main
    assert page.index("## How it was computed") < page.index("\n\nOn a shared machine.\n")
    listed = table(main, "what it is")
    assert listed["later"]["methods"] == "not run yet"
    assert listed[f"[digits](docs/digits/{published.PAGE})"]["what it is"] == "Some digits"


def test_chance_and_divergence_are_failures(monkeypatch, tmp_path):
    directory = tmp_path / "digits"
    training = Training(directory, test=lambda seed: 18.0)
    training.gains = {"fedprox": lambda seed: -4}
    training.diverges = {"comparison/fedavg/seed_3": 6}
    monkeypatch.setattr(study, "run_experiment", training)
    sweep_methods(points(), directory, halving=ALL)
    publishing.publish(directory, tmp_path / "docs")
    _, missing = writing.write(tmp_path / "docs")
    assert missing == [
        "explanations.digits.fedavg (1 of its runs diverged)",
        "explanations.digits.fedprox (GA is 14.0 %, and guessing gives 10.0 %)",
    ]
    assert (
        table(page_of(tmp_path / "docs"), "seeds ahead")["fedavg"]["seeds"] == "2 of 3, 1 diverged"
    )


@pytest.mark.parametrize(
    "classes, accuracy, failing",
    [("01", 60.0, ["fedavg", "fedprox"]), ("01234567", 60.0, []), ("", 60.0, []), ("", 0.0, [])],
    ids=["2 classes", "8 classes", "unknown", "unknown, GA 0"],
)
def test_guessing_is_among_the_classes_of_the_runs(
    classes, accuracy, failing, monkeypatch, tmp_path
):
    # Of data of one's own, settings do not tell the number of classes.
    directory, images = tmp_path / "own", tmp_path / "images"
    images.mkdir()
    training = Training(directory, test=lambda seed: accuracy)
    training.gains = {}
    training.classes = tuple(classes)
    monkeypatch.setattr(study, "run_experiment", training)
    sweep_methods(points(dataset="folder", data_dir=str(images)), directory, halving=ALL)
    publishing.publish(directory, tmp_path / "docs")
    record, _ = published.read_files(tmp_path / "docs" / "own")
    assert record["num_classes"] == (len(classes) or None)
    _, missing = writing.write(tmp_path / "docs")
    found = [text for text in missing if "guessing" in text]
    assert [text.split()[0] for text in found] == [f"explanations.own.{m}" for m in failing]
    assert all("guessing gives 50.0 %" in text for text in found)


def test_several_federations_are_ranked(monkeypatch, tmp_path):
    for number, gain in enumerate((9, -5)):
        directory = sweep(
            tmp_path / f"runs/f{number}",
            monkeypatch,
            {"fedprox": {1: gain}, "moon": {1: 1}, "fedper": {1: 30}},
            classes_per_client=2 + number,
        )
        publishing.publish(directory, tmp_path / "docs")
    main = writing.write(tmp_path / "docs")[0].read_text()
    page = (tmp_path / "docs" / "ranks.md").read_text()
    found = table(page, "average rank", "## GA")
    # Ranks 1 and 3 of FedProx, 3 and 2 of FedAvg, 2 and 1 of MOON; FedPer has no global model.
    assert {m: row["average rank"] for m, row in found.items()} == {
        "moon": "1.5",
        "fedprox": "2.0",
        "fedavg": "2.5",
    }
    assert found["fedprox"]["ahead"] == "1 of 2"
    accuracies = table(main, "average rank", "## GA of all methods")
    assert [(name, row["average rank"]) for name, row in accuracies.items()] == [
        ("moon", "1.5"),
        ("fedprox", "2.0"),
        ("fedavg", "2.5"),
    ]
    assert accuracies["fedprox"]["digits, P10C3"] == expected([46, 47, 48])
    assert table(main, "you want")["one global model"]["best"] == "moon (rank 1.5; 53.0)"
    assert (tmp_path / "docs/ranks.png").stat().st_size > 5_000
    # 2 · 0.5ⁿ · 2 tests is below 0.05 from n = 7 on.
    assert (
        "2 federations are too few for Wilcoxon's test of 2 methods: adjusted, it needs 7" in page
    )


@pytest.mark.parametrize(
    ("upload", "kept", "light"),
    [(5000, 0, True), (5004, 0, True), (5100, 0, False), (900, 0, True), (5000, 1, False)],
)
def test_which_methods_cost_clients_no_more_than_fedavg(upload, kept, light):
    """A single further number is no cost."""
    known = {
        "personal_parameters_per_client": {"fedavg": 0, "other": kept},
        "upload_bytes": {"fedavg": 5000, "other": upload},
        "download_bytes": {"fedavg": 1000, "other": 1000},
        "ga_final": {"fedavg": 50, "other": 60},
    }
    results = [
        Result("digits", method, "1", False, {name: row[method] for name, row in known.items()})
        for method in ("fedavg", "other")
    ]
    one = published.Published("digits", "digits", {"settings": {}}, Results(results), [], [], [])
    # Of FedAvg alone, there is no row.
    needs = table(overview.in_short([one]), "you want")
    assert (overview.NEEDS[1].text in needs) == light


def test_a_page_without_results_says_what_is_planned(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/notes.toml").write_text('[federations]\ndigits = "Some digits"\n')
    page = writing.write(tmp_path / "docs")[0].read_text()
    assert table(page, "what it is")["digits"]["methods"] == "not run yet"
    assert "In one minute" not in page


def test_what_the_calls_recorded(finished, tmp_path):
    machine = {
        "version": "1",
        "commit": "abc",
        "cpu": "a processor",
        "cores": 2,
        "memory_gib": 23.5,
        "python": "3.11",
        "tensorflow": "2.14",
        "tensorflow_federated": "0.87",
        "rungs": ["0.25", "0.5"],
        "reduction": 3.0,
        "criterion": "va_balanced",
    }
    begun = [
        {
            "started": "2026-01-01T00:00:00",
            "process": 7,
            "arguments": ["--data_dir", "/home/me/data", "--output_dir=/home/me/x", "--rounds=8"],
            "resumed": False,
            **machine,
        },
        {
            "started": "2026-01-01T00:02:00",
            "process": 8,
            "arguments": ["--output_dir=y"],
            "resumed": True,
            **machine,
        },
    ]
    ended = [
        {"ended": "2026-01-01T00:01:00", "process": 7, "seconds": 60.0, "completed": False},
        {"ended": "2026-01-01T00:04:00", "process": 8, "seconds": 120.0, "completed": True},
    ]
    path = finished / "calls.jsonl"

    def record(*lines):
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    for last in ((), ({**ended[1], "completed": False},)):
        record(*begun, *last)
        with refuses("sweep_dirs", "not finished: it lacks the end of its last call; the"):
            publishing.publish(finished, tmp_path / "docs")
    # The first call was killed.
    record(*begun, ended[1])
    folder = publishing.publish(finished, tmp_path / "docs")
    first, second = json.loads((folder / "federation.json").read_text())["calls"]
    assert first["arguments"] == ["--data_dir", "DATA_DIR", "--output_dir=OUTPUT_DIR", "--rounds=8"]
    assert "seconds" not in first
    assert second["seconds"] == 120
    page = page_of(tmp_path / "docs")
    assert "it was not recorded completely" in page
    assert "--output_dir=y`, called 2 times; each call goes on" in page.replace("OUTPUT_DIR", "y")
    record(*begun, *ended)
    publishing.publish(finished, tmp_path / "docs")
    page = page_of(tmp_path / "docs")
    assert "the command took 3 min" in page
    assert "on 2 cores of a processor with 23.5 GiB" in page
    main = (tmp_path / "docs.md").read_text()
    assert "Where classes differ in size (digits, P10C2), it is the mean over classes" in main
    assert "of which the best 1/3 per method went on after 25 % and 50 % of the rounds" in page
    assert "This prefers rates that are fast at first" in main
    record(*({**line, "halving": "same_rate"} for line in begun), *ended)
    publishing.publish(finished, tmp_path / "docs")
    assert "the best 1/3 per method and learning rate went on" in page_of(tmp_path / "docs")
    main = (tmp_path / "docs.md").read_text()
    assert "Only settings\n  with the same learning rates compete" in main
    assert "prefers rates" not in main
    # What was planned counts, not what there is.
    record(*begun, {**ended[1]}, {**begun[1], "seeds": [0], "final_seeds": [1, 2, 3, 4]}, ended[1])
    with refuses("sweep_dirs", "not finished: it lacks fedavg seed 4, fedprox seed 4"):
        publishing.publish(finished, tmp_path / "docs")
    path.write_text('{"process": 1}\n')
    with pytest.raises(DamagedFileError, match=r"calls\.jsonl is damaged"):
        publishing.publish(finished, tmp_path / "docs")


def test_rounds_without_an_evaluation_take_time_too(finished, tmp_path):
    """In runs of earlier versions, they have no row; each counts like the next one that has."""
    record = publishing.publish(finished, tmp_path / "docs") / "federation.json"
    before = json.loads(record.read_text())["seconds_of_rounds"]
    path = finished / "comparison/moon/seed_2/metrics.csv"
    header, *lines = path.read_text().splitlines()
    # 8 rounds of a second, of which only rounds 3 and 8 keep their rows; the last one takes 2 s.
    kept = [lines[2], lines[7].removesuffix(",1") + ",2"]
    path.write_text("\n".join([header, *kept]) + "\n")
    publishing.publish(finished, tmp_path / "docs")
    assert json.loads(record.read_text())["seconds_of_rounds"] == before - 8 + 3 + 5 * 2


def change_record(folder, **entries):
    """Changes federation.json as if it had been published so."""
    path = folder / "federation.json"
    record = {**json.loads(path.read_text()), **entries}
    record["record_sha256"] = published.record_sha256(record)
    path.write_text(json.dumps(record))


def retrained(directory, monkeypatch, rates=("0.01", "0.1"), **settings):
    """The directory of a sweep over MOON alone, which is better than before."""
    training = Training(directory)
    training.gains = {"moon": lambda seed: 5}
    monkeypatch.setattr(study, "run_experiment", training)
    names = ("client_learning_rate",)
    planned = {"moon": [point("moon", names, (rate,), **settings) for rate in rates]}
    sweep_methods(planned, directory, halving=ALL)
    return directory


def test_a_method_joins_another_one_with_options_of_its_own(monkeypatch, tmp_path):
    """What all runs of a single method share are also its own settings, and what was chosen."""
    training = Training(tmp_path / "one/digits")
    monkeypatch.setattr(study, "run_experiment", training)
    sweep_methods({"fedprox": points()["fedprox"]}, tmp_path / "one/digits", halving=ALL)
    docs = tmp_path / "docs"
    publishing.publish(tmp_path / "one/digits", docs)
    again = retrained(tmp_path / "again/digits", monkeypatch)
    folder = publishing.publish(again, docs, add_methods=True)
    assert {row["algorithm"] for row in rows(folder / "final.csv")} == {"fedprox", "moon"}
    settings = json.loads((folder / "federation.json").read_text())["settings"]
    assert not {"algorithm", "client_learning_rate", "fedprox_mu"} & set(settings)
    assert settings["client_weighting"] == "published"
    writing.write(docs)


def test_methods_may_differ_in_what_the_page_says_of_all(monkeypatch, tmp_path):
    """By default, FedGELA has linear features before its head, and FedAvg has none."""
    directory = tmp_path / "runs/digits"
    monkeypatch.setattr(study, "run_experiment", Training(directory))
    planned = {
        "fedavg": [point("fedavg", ("client_learning_rate",), ("0.01",))],
        "fedgela": [point("fedgela", ("client_learning_rate",), ("0.1",), local_epochs=2)],
    }
    sweep_methods(planned, directory, halving=ALL)
    publishing.publish(directory, tmp_path / "docs")
    page = page_of(tmp_path / "docs")
    assert (
        "simple_cnn with numbers of linear features that differ between methods before the head, "
        "numbers of local epochs that differ between methods in batches of 32, sgd" in page
    )


@pytest.mark.parametrize(
    ("criterion", "text"),
    [
        ("va", None),
        (
            "va_balanced",
            "Where classes differ in size (digits, P10C2), it is the mean over classes",
        ),
        ("va_personal", "own held-out samples, after local epochs (`--criterion=va_personal`)."),
        (
            "va_personal_before",
            "samples, before any local step (`--criterion=va_personal_before`).",
        ),
    ],
)
def test_the_page_says_what_decided(criterion, text, finished, tmp_path):
    folder = publishing.publish(finished, tmp_path / "docs")
    machine = dict.fromkeys(("commit", "cpu", "version", "tensorflow", "python"), "x")
    machine |= {"cores": 2, "memory_gib": 3, "tensorflow_federated": "x", "rungs": []}
    call = {"arguments": [], "resumed": False, "criterion": criterion, **machine}
    change_record(folder, calls=[call])
    page = writing.write(tmp_path / "docs")[0].read_text()
    assert (f"(`--criterion={criterion}`)" in page) == (text is not None)
    assert text is None or text in page


def test_the_page_says_by_what_points_were_compared(finished, monkeypatch, tmp_path):
    """The rows of earlier versions do not say it; methods of this one may be added to them."""
    table = finished / "sweep.csv"
    table.write_text(table.read_text().replace(",score", ",x", 1))
    publishing.publish(finished, tmp_path / "docs")
    page = writing.write(tmp_path / "docs")[0].read_text()
    assert "by which settings were chosen, in the best round.\n" in page
    again = sweep(tmp_path / "more/digits", monkeypatch)
    table = again / "sweep.csv"
    head, *lines = table.read_text().splitlines(keepends=True)
    table.write_text(head + "".join(line for line in lines if line.startswith("moon")))
    publishing.publish(again, tmp_path / "docs", add_methods=True)
    page = writing.write(tmp_path / "docs")[0].read_text()
    said = "in the best round, or mean of the last three evaluations (digits, P10C2)."
    assert f"by which settings were chosen, {said}\n" in page


def test_a_method_joins_published_results(finished, monkeypatch, tmp_path):
    docs = tmp_path / "docs"
    folder = publishing.publish(finished, docs)
    before = {file: rows(folder / file) for file in ("final.csv", "tuning.csv", "curves.csv")}
    seconds = json.loads((folder / "federation.json").read_text())["seconds_of_rounds"]
    again = retrained(tmp_path / "again/digits", monkeypatch)
    publishing.publish(again, docs, add_methods=True)
    for file, old in before.items():
        new = rows(folder / file)
        assert [row["algorithm"] for row in new] == sorted(row["algorithm"] for row in old)
        others = [row for row in new if row["algorithm"] != "moon"]
        expected = sorted(old, key=lambda row: row["algorithm"])
        assert others == [row for row in expected if row["algorithm"] != "moon"]
    moon = [row for row in rows(folder / "final.csv") if row["algorithm"] == "moon"]
    assert [float(row["ga_final"]) for row in moon] == [56, 57, 58]
    record = json.loads((folder / "federation.json").read_text())
    assert [part["methods"] for part in record["added"]] == [["moon"]]
    # Two points of the grid that train for 2 and 8 rounds, and three final runs.
    assert record["seconds_of_rounds"] == seconds + 2 + 8 + 3 * 8
    page = page_of(docs)
    assert "- Computed later: moon, by a command that was not recorded" in page
    line = next(line for line in page.splitlines() if "**moon" in line or "| moon " in line)
    assert "57.0 ± 1.0" in line


def test_a_sweep_that_is_added_again_counts_once(finished, monkeypatch, tmp_path):
    docs = tmp_path / "docs"
    folder = publishing.publish(finished, docs)
    seconds = json.loads((folder / "federation.json").read_text())["seconds_of_rounds"]
    for hour in (1, 1, 2):
        again = retrained(tmp_path / f"again_{hour}/digits", monkeypatch)
        lines = [
            {"started": f"2026-11-25T0{hour}:00:00+00:00", "process": 7, "arguments": []},
            {"ended": f"2026-11-25T0{hour}:30:00+00:00", "process": 7, "seconds": 1800.0},
        ]
        (again / "calls.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        publishing.publish(again, docs, add_methods=True)
    record = json.loads((folder / "federation.json").read_text())
    started = [call["started"][12] for part in record["added"] for call in part["calls"]]
    assert started == ["1", "2"]
    assert record["seconds_of_rounds"] == seconds + 2 * (2 + 8 + 3 * 8)


def test_methods_join_only_what_they_can_be_compared_with(finished, monkeypatch, tmp_path):
    docs = tmp_path / "docs"
    again = retrained(tmp_path / "again/digits", monkeypatch)
    with refuses("add_methods", "nothing has been published in"):
        publishing.publish(again, docs, add_methods=True)
    folder = publishing.publish(finished, docs)
    other = retrained(tmp_path / "other/digits", monkeypatch, local_epochs=2)
    with refuses("add_methods", "differs in local_epochs, so it cannot be compared"):
        publishing.publish(other, docs, add_methods=True)
    change_record(folder, final_seeds=[1, 2], data_sha256={"1": "a"})
    with refuses("add_methods", "differs in final_seeds, so"):
        publishing.publish(again, docs, add_methods=True)
    change_record(folder, final_seeds=[1, 2, 3], data_sha256={})
    # The one was computed before this was recorded, by all settings of a method.
    call = {"process": 7, "started": "2026-11-25T01:00:00+00:00", "arguments": []}
    record, calls = folder / "federation.json", again / "calls.jsonl"
    published = json.loads(record.read_text())["calls"]
    change_record(folder, calls=[call])
    ended = {"process": 7, "ended": "2026-11-25T01:30:00+00:00", "seconds": 1800.0}
    lines = [{**call, "halving": "same_rate"}, ended]
    calls.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with refuses("add_methods", "differs in halving, so"):
        publishing.publish(again, docs, add_methods=True)
    calls.unlink()
    change_record(folder, calls=published)
    faster = retrained(tmp_path / "faster/digits", monkeypatch, rates=("0.01",))
    with refuses("add_methods", "differs in the learning rates that were tried, so"):
        publishing.publish(faster, docs, add_methods=True)
    final = folder / "final.csv"
    text = final.read_text()
    final.write_text(text.replace("moon", "noom"))
    with pytest.raises(DamagedFileError, match="is not what was published"):
        publishing.publish(again, docs, add_methods=True)
    final.write_text(text)
    assert publishing.publish(again, docs, add_methods=True) == folder


def test_final_runs_of_different_data_are_not_published(finished, tmp_path):
    runs = finished / "comparison"
    for seed, method in itertools.product("123", ("fedavg", "fedprox", "moon")):
        write_checkpoint(runs / method / f"seed_{seed}", f"data of seed {seed}")
    # The runs of FedPer have no checkpoints, so nothing is known of their data.
    folder = publishing.publish(finished, tmp_path / "docs")
    record = json.loads((folder / "federation.json").read_text())
    assert record["data_sha256"] == {seed: f"data of seed {seed}" for seed in "123"}
    write_checkpoint(runs / "moon" / "seed_2", "other data")
    reason = "seed 2 and moon seed 2 cannot be compared, because the data have changed"
    with refuses("sweep_dirs", reason):
        publishing.publish(finished, tmp_path / "docs")


def test_only_finished_sweeps_over_methods_are_published(finished, tmp_path):
    out = tmp_path / "docs"
    with refuses("sweep_dirs", "is not a directory"):
        publishing.publish(tmp_path / "none", out)
    with refuses("sweep_dirs", "holds no sweep over methods: there is no sweep.csv"):
        publishing.publish(finished / "comparison", out)
    with refuses("sweep_dirs", "the name of a directory to publish must consist of"):
        publishing.publish(shutil.copytree(finished, tmp_path / "a b"), out)
    (finished / "comparison/moon/seed_1/config.json").write_text("{}")
    with refuses("sweep_dirs", "config.json of moon seed 1 has no settings"):
        publishing.publish(finished, out)
    shutil.rmtree(finished / "comparison/moon/seed_2")
    with refuses("sweep_dirs", "the directory of moon seed 2"):
        publishing.publish(finished, out)
    comparison = finished / "comparison/comparison.csv"
    lines = comparison.read_text().splitlines(keepends=True)
    comparison.write_text("".join(line for line in lines if ",moon,2," not in line))
    with refuses("sweep_dirs", "has not finished: it lacks moon seed 2; the same command"):
        publishing.publish(finished, out)
    path = finished / "sweep.csv"
    path.write_text(path.read_text().replace("True\n", "False\n", 1))
    with refuses("sweep_dirs", "it lacks fedavg, for which nothing is chosen"):
        publishing.publish(finished, out)
    # The same command would compute nothing else.
    path.write_text(re.sub(r"(fedavg,.*),False,(False,)", r"\1,True,\2", path.read_text()))
    with refuses("sweep_dirs", "all settings of fedavg diverged, so that nothing can be"):
        publishing.publish(finished, out)
    path.write_text("client_learning_rate,va\n0.1,5\n")
    with refuses("sweep_dirs", "sweep.csv is of another sweep"):
        publishing.publish(finished, out)
    assert not out.exists()


def test_notes_may_give_a_federation_a_title(finished, tmp_path):
    publish_dir = tmp_path / "docs"
    folder = publishing.publish(finished, publish_dir).name
    notes = f'[federations]\n{folder} = "1,797 digits"\n[titles]\n{folder} = "Digits (A, B)"\n'
    (publish_dir / "notes.toml").write_text(notes)
    about = "# Digits (A, B)\n\n1,797 digits. [All federations](../../docs.md), "
    assert page_of(publish_dir).startswith(about)
    main = (tmp_path / "docs.md").read_text()
    assert f"[{folder}](docs/{folder}/README.md)" in main
    assert "Digits (A, B)" in table(main, "Digits", "## GA of all methods")["fedavg"]


def test_what_follows_and_how_sure_it_is_stand_before_the_large_tables(finished, tmp_path):
    publish_dir = tmp_path / "docs"
    publishing.publish(finished, publish_dir)
    texts = '[texts]\nhow_sure = "Not very."\nwhich_method = "## By kind\\n\\nThe second."\n'
    (publish_dir / "notes.toml").write_text(texts)
    path, _ = writing.write(publish_dir)
    assert re.findall(r"^##+ (.*)$", path.read_text(), re.M)[:6] == [
        *("In one minute", "How sure this is", "The three best"),
        *("By kind", "GA of all methods", "How fast"),
    ]
    # Without texts, there is no heading for them.
    (publish_dir / "notes.toml").write_text("")
    writing.write(publish_dir)
    assert "How sure this is" not in path.read_text()


def test_a_record_that_was_changed_by_hand_is_noticed(finished, tmp_path):
    path = publishing.publish(finished, tmp_path / "docs") / "federation.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "rounds": 9}))
    with pytest.raises(DamagedFileError, match=r"federation\.json is not what was published"):
        writing.write(tmp_path / "docs")
    # Only its values count.
    path.write_text(json.dumps(record, indent=7))
    writing.write(tmp_path / "docs")


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("sweep.csv", "diverged", "d", "there is no column 'diverged'"),
        ("sweep.csv", ",70,8", ",,8", "the chosen settings of fedprox have no accuracy"),
        ("sweep.csv", ",70,8", ",x,8", "could not convert string to float: 'x'"),
        ("comparison/comparison.csv", ",1,", ",one,", "the seed one is no number"),
        ("comparison/moon/seed_1/metrics.csv", "ga", "gb", "it has no GA"),
    ],
)
def test_damaged_files_of_a_sweep_are_not_published(file, old, new, reason, finished, tmp_path):
    path = finished / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DamagedFileError, match=re.escape(reason)):
        publishing.publish(finished, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()


def test_only_seeds_of_the_last_call_count(finished, tmp_path):
    """Others may be left from an earlier call."""
    other = next((finished / "tuning/moon").glob("*/seed_0"))
    shutil.copytree(other, other.with_name("seed_5"))
    call = {"started": "x", "process": 7, "arguments": [], "seeds": [0], "final_seeds": [1, 2, 3]}
    lines = [call, {"ended": "x", "process": 7, "seconds": 1.0, "completed": True}]
    (finished / "calls.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folder = publishing.publish(finished, tmp_path / "docs")
    assert json.loads((folder / "federation.json").read_text())["seeds"] == [0]
    assert {row["seed"] for row in rows(folder / "held_out.csv")} == {"0"}


def test_changed_files_are_noticed(finished, tmp_path):
    out = tmp_path / "docs"
    with refuses("publish_dir", "is not a directory"):
        published.read(out, published.Notes())
    folder = publishing.publish(finished, out)
    for file, old, new, reason in (
        ("final.csv", "52.0000", "62.0000", r"final\.csv is not what was published"),
        ("federation.json", '"schema": 1', '"schema": 9', "has schema 9 instead of 1"),
        ("federation.json", '"sha256"', '"sha257"', r"federation\.json is not what was published"),
    ):
        content = (folder / file).read_text()
        assert old in content
        (folder / file).write_text(content.replace(old, new))
        with pytest.raises(DamagedFileError, match=reason):
            published.read(out, published.Notes())
        (folder / file).write_text(content)
    (folder / "curves.csv").unlink()
    with pytest.raises(DamagedFileError, match=r"curves\.csv is missing"):
        published.read(out, published.Notes())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[texts", "Expected"),
        ("[others]", "there is no table others"),
        ("[texts]\nnot_seen = 3", "all values must be texts"),
        ("explanations = 3", "cannot be used"),
    ],
)
def test_notes_that_cannot_be_used(text, reason, tmp_path):
    (tmp_path / "notes.toml").write_text(text)
    with pytest.raises(DamagedFileError, match=rf"notes\.toml cannot be used.*{reason}|{reason}"):
        published.read_notes(tmp_path)


# What this repository publishes.


def test_the_pages_are_what_their_files_say():
    directory = ROOT / "docs" / "comparison"
    notes = published.read_notes(directory)
    results = published.read(directory, notes)
    texts = writing.documents(results, notes, "comparison")
    for path, text in texts.items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8") == text
    # No page is left of results that are gone.
    assert {*directory.rglob("*.md")} < {ROOT / "docs" / path for path in texts}
    assert writing.missing_explanations(results, notes) == []


def test_each_flagfile_is_on_the_page():
    notes = published.read_notes(ROOT / "docs" / "comparison")
    flagfiles = {path.stem for path in (ROOT / "flags" / "comparison").glob("*.flags")}
    assert set(notes.federations) == flagfiles


def test_what_is_published_is_small():
    notes = published.read_notes(ROOT / "docs" / "comparison")
    for folder in (ROOT / "docs" / "comparison").iterdir():
        if folder.is_dir():
            texts = [path for path in folder.iterdir() if path.suffix not in (".md", ".png")]
            # Three kilobytes for each of up to 40 methods.
            assert sum(path.stat().st_size for path in texts) <= 120_000
            # Rows of ablations have no picture.
            if folder.name in notes.federations:
                assert (folder / "curves.png").stat().st_size <= 200_000


def test_held_out_accuracies_are_compared_after_the_same_round():
    """Methods that joined later, without trials that were stopped, have them after the last one."""
    table = [
        {"algorithm": "a", "round": "8", "va": str(i), "va_balanced": str(-i), "ga": str(i)}
        for i in range(12)
    ]
    late = [{**row, "algorithm": "b", "round": "60", "ga": str(-int(row["ga"]))} for row in table]
    text = held_out.described(table, "va")
    assert "after 8 rounds, over 12 runs: 1.00 for the accuracy" in text
    assert held_out.described([*late[:9], *table], "va") == text


def test_curves_of_runs_that_stopped_early_have_rounds_in_common():
    """Each run has the shown rounds of the longest one, and its own last one."""

    def result(seed, last, lost=()):
        history = History(["round", "ga", "last_lost_round"])
        for number in range(1, last + 1):
            row = {"round": number, "ga": float(number)}
            history.append({**row, "last_lost_round": number if number in lost else 0})
        return Result("P", "fedavg", str(seed), False, {}, load_history=lambda: history)

    runs = [result(0, 90), result(1, 89), result(2, 90, lost=(30, 90))]
    long, short, lossy = publishing._curves(None, runs)
    shown = [name for name in long if name.isdigit() and long[name]]
    assert len(shown) <= 31
    assert {"1", "90"} <= {*shown}
    assert [name for name in short if name.isdigit() and short[name]] == sorted(
        {*shown, "89"} - {"90"}, key=int
    )
    assert not lossy["30"]
    assert not lossy["90"]
    assert all(run[name] in ("", f"{name}.00") for run in (long, short, lossy) for name in shown)
