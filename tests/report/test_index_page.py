"""The page about all runs, comparisons and sweeps below a directory."""

import json
import os
import time

import pytest

from tests.report.directories import edited, make_comparison, make_run, read_csv, write_csv
from tests.report.test_sweep_page import make_method_sweep, make_sweep, set_accuracies
from tff_pcdd.errors import SettingError
from tff_pcdd.report import index_page, write_index


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    make_run(root / "north" / "first", algorithm="fedgela")
    make_run(root / "second <i>")
    make_comparison(root / "compared")
    (root / "swept").mkdir()
    make_sweep(root / "swept")
    folders = ("north/first", "second <i>", "compared", "swept")
    for number, folder in enumerate(folders):
        newest = {"compared": "comparison.csv", "swept": "sweep.csv"}.get(folder, "summary.json")
        os.utime(root / folder / newest, (number, number))
    return root


def test_all_kinds_are_listed_newest_first(root):
    entries = index_page.content(root)["entries"]
    assert [(entry.folder, entry.kind) for entry in entries] == [
        ("swept", "sweep"),
        ("compared", "comparison"),
        ("second <i>", "run"),
        ("north/first", "run"),
    ]
    summary = json.loads((root / "north/first/summary.json").read_text())
    assert (entries[3].ga, entries[3].pa) == (summary["ga_final"], summary["pa_final"])
    assert entries[3].what == "fedgela"


def test_a_sweep_has_the_accuracies_of_what_it_chose(tmp_path):
    """Of one method, means over the seeds of the chosen point; of several, of the best method."""
    for name in ("point", "methods"):
        (tmp_path / name).mkdir()
    (tmp_path / "point" / "best.flags").write_text("--algorithm=fedavg\n--local_epochs=2\n")
    header = ["settings", "algorithm", "seed", "va_best", "ga_final", "pa_final"]
    rows = [
        ["local_epochs=1", "fedavg", 0, 50, 99, 99],
        ["local_epochs=2", "fedavg", 0, 60, 70, 80],
    ]
    rows.append(["local_epochs=2", "fedavg", 1, 60, 72, ""])
    rows.append(["local_epochs=2", "fedavg", 2, 60, 0, 80])
    rows.append(["local_epochs=2", "fedavg", 3, 99, 99, 99])
    header.append("diverged")
    rows = [[*row, str(row[2] == 3)] for row in rows]
    write_csv(tmp_path / "point" / "sweep.csv", header, rows)
    make_method_sweep(tmp_path / "methods")
    entries = {entry.folder: entry for entry in index_page.content(tmp_path)["entries"]}
    # 70, 72 and 0; the run with seed 3 diverged.
    assert entries["point"].ga == pytest.approx(142 / 3)
    assert entries["point"].pa == 80.0
    assert (entries["methods"].ga, entries["methods"].pa) == (None, None), "nothing was compared"
    make_comparison(tmp_path / "methods" / "comparison", algorithms=("fedgela", "fedavg"))
    best = [
        row
        for row in read_csv(tmp_path / "methods" / "comparison" / "comparison.csv")
        if row["algorithm"] == "fedavg"
    ]
    entries = {entry.folder: entry for entry in index_page.content(tmp_path)["entries"]}
    for key, shown in (("ga_final", entries["methods"].ga), ("pa_final", entries["methods"].pa)):
        assert shown == pytest.approx(sum(float(row[key]) for row in best) / 2)


def test_a_sweep_has_the_curve_of_what_it_chose_and_the_time_of_all_runs(tmp_path):
    """Seconds of two rounds in each run; the mean curve of two seeds."""
    (tmp_path / "point").mkdir()
    make_sweep(tmp_path / "point")
    for number, run in enumerate(sorted((tmp_path / "point").glob("*/seed_*"))):
        chosen = run.parent.name == "client_learning_rate=0.1,local_epochs=1"
        ga = (50 + 20 * int(run.name[-1])) if chosen else 1
        (run / "metrics.csv").write_text(f"round,ga,seconds\n1,{ga},0.5\n2,{ga + 8},{number}\n")
    [entry] = index_page.content(tmp_path)["entries"]
    # Points of three rates and two numbers of epochs, with two seeds each: 0 + 1 + … + 11.
    assert entry.seconds == 12 * 0.5 + 66
    assert entry.curves == [("fedavg in point", "fedavg", [(1, 60.0), (2, 68.0)])]
    (tmp_path / "methods").mkdir()
    make_method_sweep(tmp_path / "methods")
    make_comparison(tmp_path / "methods" / "comparison", algorithms=("fedavg", "fedgela"))
    entries = {entry.folder: entry for entry in index_page.content(tmp_path)["entries"]}
    names = {name for name, *_ in entries["methods"].curves}
    assert names == {"fedavg in methods", "fedgela in methods"}
    assert entries["methods"].seconds > 0


def test_the_method_of_a_sweep_whose_accuracies_are_shown_is_named_first(tmp_path):
    make_method_sweep(tmp_path)
    [entry] = index_page.content(tmp_path)["entries"]
    assert (entry.what, entry.ga) == ("fedavg, fedgela", None)
    # The second one is 6 points better.
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"))
    rows = [
        row
        for row in read_csv(tmp_path / "comparison" / "comparison.csv")
        if row["algorithm"] == "fedgela"
    ]
    [entry] = index_page.content(tmp_path)["entries"]
    assert entry.what == "fedgela, fedavg"
    assert entry.ga == pytest.approx(sum(float(row["ga_final"]) for row in rows) / 2)


def test_a_sweep_by_personal_va_has_the_accuracies_of_the_best_by_pa(tmp_path):
    """The list says whose they are, on the page and in the terminal."""
    make_method_sweep(tmp_path)
    make_comparison(tmp_path / "comparison", algorithms=("fedavg", "fedgela"), seeds=(1, 2))
    set_accuracies(tmp_path / "comparison", fedavg=(84.4, 89.9), fedgela=(84.3, 96.9))
    [entry] = index_page.content(tmp_path)["entries"]
    assert (entry.what, entry.ga, entry.pa) == ("fedavg, fedgela", 84.4, 89.9)
    (tmp_path / "calls.jsonl").write_text('{"started": "now", "criterion": "va_personal"}\n')
    [entry] = index_page.content(tmp_path)["entries"]
    assert (entry.what, entry.ga, entry.pa) == ("fedgela, fedavg", 84.3, 96.9)
    write_index(tmp_path)
    text = (tmp_path / "index.html").read_text()
    page = text.replace("<code>", "").replace("</code>", "")
    for shown in (page, " ".join(index_page.printed([entry]).split())):
        assert (
            "its answer recommends as one model for all, which is named first (as a model for each "
            "client if a sweep has chosen by" in shown
        )


@pytest.mark.parametrize(("lead", "taken"), [(1.0, "fedavg"), (12.0, "fedgela")])
def test_the_method_that_is_recommended_is_named_first(lead, taken, tmp_path):
    """One point could be chance with noise of 2 between seeds, and FedAvg is the simplest."""
    for folder in (tmp_path / "a", tmp_path / "b" / "comparison"):
        algorithms, seeds = ("fedavg", "fedgela", "fedprox"), (0, 1, 2)
        make_comparison(folder, algorithms=algorithms, seeds=seeds)
        with edited(folder / "comparison.csv") as rows:
            for row in rows:
                seed = int(row["seed"])
                ga = {"fedavg": 80 + seed, "fedgela": 80 + lead + (0, 4, -1)[seed], "fedprox": 1}
                row["ga_final"] = ga[row["algorithm"]]
    make_method_sweep(tmp_path / "b")
    other = "fedavg" if taken == "fedgela" else "fedgela"
    a, b = sorted(index_page.content(tmp_path)["entries"], key=lambda entry: entry.folder)
    assert a.what == f"{taken}, {other}, fedprox" and b.what == f"{taken}, {other}"
    # The means of 80, 81 and 82, and of 92, 96 and 91.
    assert a.ga == b.ga == {"fedavg": 81, "fedgela": 93}[taken]


def test_runs_of_a_comparison_are_on_its_own_page(root):
    assert (root / "compared/fedavg/seed_0/config.json").is_file()
    assert not any("seed_0" in entry.folder for entry in index_page.content(root)["entries"])


def test_settings_that_differ_are_named(tmp_path):
    make_run(tmp_path / "a", client_learning_rate=0.25)
    make_run(tmp_path / "b", seed=3)
    entries = {entry.folder: entry for entry in index_page.content(tmp_path)["entries"]}
    assert "client_learning_rate=0.25" in entries["a"].differing
    assert "seed=3" in entries["b"].differing
    assert "batch_size" not in entries["a"].differing + entries["b"].differing


def test_runs_that_differ_never_look_alike(tmp_path):
    """Also where the settings that tell them apart stand behind many others."""
    six = {"client_weighting": "uniform", "max_train_samples": 90, "max_test_samples": 50}
    six |= {"validation_fraction": 0.2, "model": "mlp", "projection_dim": 16}
    make_run(tmp_path / "plain")
    make_run(tmp_path / "short", **six, rounds=2)
    make_run(tmp_path / "long", **six, rounds=3)
    make_run(tmp_path / "seed", **six, rounds=3, seed=4)
    entries = index_page.content(tmp_path)["entries"]
    shown = {entry.folder: entry.differing for entry in entries}
    assert shown["short"].endswith(", projection_dim=16, rounds=2, seed=0")
    assert shown["long"].endswith(", projection_dim=16, rounds=3, seed=0")
    assert shown["seed"].endswith(", projection_dim=16, rounds=3, seed=4")
    assert shown["plain"].endswith("=0 and 2 more")
    assert shown["plain"].count("=") == 6


def test_the_curves_belong_to_their_lines(root):
    values = index_page.content(root)
    [(chart, owners)] = values["overlays"]
    folders = [values["entries"][number].folder for number in owners]
    drawn = [line.name for line in chart.lines]
    assert len(folders) == len(drawn)
    assert all(folder in name for folder, name in zip(folders, drawn, strict=True))


def test_a_method_has_the_color_that_it_has_in_comparisons(tmp_path):
    """FedAvg is black and FedGELA blue, in whichever order; a second run of one is dashed."""
    for name, method in (("a", "fedgela"), ("b", "fedavg"), ("c", "fedgela")):
        make_run(tmp_path / name, algorithm=method)
    make_comparison(tmp_path / "d", algorithms=("fedavg", "fedgela"))
    [(chart, _)] = index_page.content(tmp_path)["overlays"]
    drawn = {line.name: line.color for line in chart.lines}
    black, blue = "#000000", "#0b6bc8"
    own = {"a": blue, "b": black, "c": blue, "fedavg in d": black, "fedgela in d": blue}
    assert drawn == own
    assert len({(line.color, line.dashes) for line in chart.lines}) == 5


def test_short_runs_are_not_squeezed_beside_long_ones(tmp_path):
    """3 and 12 rounds are drawn together, and 60 are not."""
    for rounds in (60, 3, 12):
        make_run(tmp_path / f"of_{rounds}", rounds=rounds)
    values = index_page.content(tmp_path)
    drawn = [
        (chart.title, {values["entries"][row].folder for row in owners}, chart.x_labels[-1][0])
        for chart, owners in values["overlays"]
    ]
    assert drawn == [
        ("GA (%) of up to 12 rounds", {"of_3", "of_12"}, "12"),
        ("GA (%) of up to 60 rounds", {"of_60"}, "60"),
    ]


def test_methods_of_a_comparison_have_their_head_calibration(tmp_path):
    make_comparison(tmp_path / "all", algorithms=("fedavg",), seeds=(0, 1), head_calibration="ccvr")
    [entry] = index_page.content(tmp_path)["entries"]
    assert entry.what == "fedavg with ccvr"


def test_pa_has_its_number_of_local_epochs(root):
    """5 in the summaries of all made-up runs."""
    entries = {entry.folder: entry for entry in index_page.content(root)["entries"]}
    assert entries["compared"].epochs == 5
    assert f"{entries['compared'].pa:.2f} (5) " in index_page.printed([*entries.values()])


def test_what_cannot_be_read_is_named_and_the_others_are_shown(tmp_path):
    make_run(tmp_path / "good")
    for name, content in (("text", "no json"), ("number", "5"), ("deep", "[" * 100_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "comparison.csv").write_text("a,b\n1\n")
    written = write_index(tmp_path)
    assert len(written.left_out) == 4
    assert all(str(tmp_path) in line for line in written.left_out)
    assert "good" in written.path.read_text()


def test_links_are_not_followed(tmp_path, root):
    make_run(tmp_path / "own")
    (tmp_path / "linked").symlink_to(root)
    assert [entry.folder for entry in index_page.content(tmp_path)["entries"]] == ["own"]


@pytest.mark.parametrize(
    ("zone", "date"), [("UTC", "1970-01-01 00:00"), ("UTC+10:40", "1969-12-31 13:20")]
)
def test_the_table_for_the_terminal_is_narrow_and_has_local_times(root, zone, date):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        lines = write_index(root).table.splitlines()
    time.tzset()
    assert max(map(len, lines)) <= 80
    (compared,) = (line for line in lines if line.startswith("| compared "))
    assert date in compared


def test_the_page_says_what_its_times_are(root):
    """They are sums over the runs of a comparison, and less than its program takes."""
    text = write_index(root).path.read_text()
    assert "Time is that of training in all of its runs, without evaluations." in text


def test_the_terminal_says_whose_accuracies_are_shown(root):
    says = "GA and PA: of a comparison or a sweep of several methods, those of the method"
    entries = index_page.content(root)["entries"]
    assert says in index_page.printed(entries)
    assert says not in index_page.printed([entry for entry in entries if entry.kind == "run"])


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_directory_without_results_is_refused(tmp_path, kind):
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    with pytest.raises(SettingError, match="runs_dir="):
        write_index(path)


def test_another_page_is_not_replaced(tmp_path):
    make_run(tmp_path / "own")
    (tmp_path / "index.html").write_text("<p>my own page</p>")
    with pytest.raises(SettingError, match="is no page of tff_pcdd"):
        write_index(tmp_path)
    assert (tmp_path / "index.html").read_text() == "<p>my own page</p>"
    path = write_index(tmp_path, tmp_path / "other.html").path
    first = path.read_bytes()
    assert write_index(tmp_path, path).path.read_bytes() == first
