"""Summaries of several comparisons: what is read, ranked and refused."""

import csv
import dataclasses
import shutil

import numpy as np
import pytest

from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tff_pcdd.report import ranking_picture, ranking_tables
from tff_pcdd.report import rankings as summaries
from tff_pcdd.results.ranks import Probability

# GA by method and federation, for seeds 1 and 2.
GA = {
    "fedavg": {"P10C2": (50, 60), "P5C2": (40, 50)},
    "fedgela": {"P10C2": (70, 80), "P5C2": (60, 70)},
    "fedprox": {"P10C2": (50, 62), "P5C2": (39, 50)},
    # Diverged on one federation, in seed 2; not run on the other.
    "moon": {"P10C2": (90, None)},
}
HEADER = ["partition", "algorithm", "seed", "diverged", "config_digest", "ga_final", "pa_final"]


def write(directory, *partitions):
    directory.mkdir(parents=True)
    with open(directory / "comparison.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for method, values in GA.items():
            for partition in partitions:
                for seed, ga in enumerate(values.get(partition, ()), 1):
                    row = [partition, method, seed, ga is None, "", "" if ga is None else ga]
                    writer.writerow([*row, 80])


@pytest.fixture
def directories(tmp_path):
    """A comparison, and a sweep over methods, whose comparison is in a folder."""
    write(tmp_path / "one", "P10C2")
    write(tmp_path / "two" / "comparison", "P5C2")
    return [tmp_path / "one", tmp_path / "two"]


def table(text, heading):
    head, *body = table_rows(text.split(f"## {heading}\n\n")[1].split("\n\n")[0])
    return {line[0]: dict(zip(head, line, strict=True)) for line in body}


def test_baselines_are_not_ranked_and_ga_needs_a_global_model(tmp_path, monkeypatch):
    more = {name: {"P10C2": (99, 98)} for name in ("central", "fedper", "not_imported")}
    monkeypatch.setitem(globals(), "GA", {**GA, **more})
    write(tmp_path / "one", "P10C2")
    text = summaries.summarize(
        [tmp_path / "one"], tmp_path / "out", ["ga_final", "pa_final"]
    ).document
    ranked = {"fedavg", "fedgela", "fedprox", "moon", "not_imported"}
    assert set(table(text, "GA")) == ranked
    assert {name for names in table(text, "PA after") for name in names.split(" = ")} == {
        *ranked,
        "fedper",
    }


def test_measures_that_were_not_measured_are_refused(directories, tmp_path):
    with refuses("measures", "ga_at_best_round was not measured in these comparisons"):
        summaries.summarize(directories, tmp_path / "out", ["ga_final", "ga_at_best_round"])
    assert not (tmp_path / "out").exists()


def test_methods_are_ranked_over_federations(directories, tmp_path):
    text = summaries.summarize(directories, tmp_path / "out", ["ga_final"]).document
    assert (tmp_path / "out" / "summary.md").read_text() == text
    rows = table(text, "GA")
    assert list(rows) == ["fedgela", "fedavg", "fedprox"]
    # FedProx: 56 against 55 on one federation, 44.5 against 45 on the other.
    assert [row["average rank"] for row in rows.values()] == ["1.0", "2.5", "2.5"]
    assert rows["fedgela"]["one, P10C2"] == "75.0 ± 7.1"
    assert rows["fedgela"]["ahead"] == "2 of 2"
    assert rows["fedprox"]["ahead"] == "1 of 2"
    # Two federations of one sign: 2 / 2², and times two tests.
    assert rows["fedgela"]["p (FedAvg)"] == "0.500, 1.000"
    assert rows["fedavg"]["p (best)"] == "0.500, 1.000"
    assert rows["fedgela"]["p (best)"] == rows["fedavg"]["p (FedAvg)"] == "–"
    assert "Without runs on all federations, and not ranked: moon." in text
    with open(tmp_path / "out" / "summary.csv", newline="") as file:
        cells = list(csv.DictReader(file))
    assert len(cells) == 6
    assert {row["federation"] for row in cells} == {"one, P10C2", "comparison, P5C2"}
    assert (tmp_path / "out" / "summary.png").stat().st_size > 5_000


def test_a_terminal_has_no_long_lines(directories, tmp_path):
    """Ranks and the test over FedAvg remain; columns that do not fit are in summary.md."""
    write(tmp_path / "three" / "a comparison with a long name", "P10C2", "P5C2")
    folders = [*directories, tmp_path / "three" / "a comparison with a long name"]
    found = summaries.summarize(folders, tmp_path / "out", ["ga_final", "pa_final"])
    assert max(map(len, found.document.splitlines())) > 120
    assert max(map(len, found.printed.splitlines())) <= 80
    rows = table_rows(found.printed)
    assert [line[:2] for line in rows[:4]] == [
        ["method", "average rank"],
        ["fedgela", "1.0"],
        ["fedprox", "2.25"] if rows[2][0] == "fedprox" else ["fedavg", "2.5"],
        ["fedavg", "2.5"] if rows[3][0] == "fedavg" else ["fedprox", "2.5"],
    ]


def test_pa_has_its_number_of_local_epochs(tmp_path):
    write(tmp_path / "one", "P10C2", "P5C2")
    path = tmp_path / "one" / "comparison.csv"
    header, *lines = path.read_text().splitlines()
    rows = [f"{line},{'0' if ',fedgela,' in line else '5'}" for line in lines]
    rows[0] = rows[0][:-1] + "3"
    path.write_text("\n".join([f"{header},personal_epochs", *rows]) + "\n")
    text = summaries.summarize([tmp_path / "one"], tmp_path / "out", ["pa_final"]).document
    epochs = {name: row["PA epochs"] for name, row in table(text, "PA after").items()}
    assert {name.split(" = ")[0]: each for name, each in epochs.items()} == {
        "fedavg": "3, 5",
        "fedgela": "0",
        "fedprox": "5",
    }


def test_too_few_pairs_are_said_also_without_fedavg(tmp_path):
    path = tmp_path / "one"
    write(path, "P10C2")
    lines = (path / "comparison.csv").read_text().splitlines()
    kept = [line for line in lines if ",fedavg," not in line]
    (path / "comparison.csv").write_text("\n".join(kept) + "\n")
    text = summaries.summarize([path], tmp_path / "out", ["ga_final"]).document
    assert "2 seeds are too few for Wilcoxon's test of 2 methods: adjusted, it needs 7 to" in text
    assert "differs significantly" not in text


def of_two_federations(own, tmp_path, monkeypatch):
    """The document about FedAvg and a method with these GA on two federations."""
    monkeypatch.setitem(globals(), "GA", {"fedavg": GA["fedavg"], "fedgela": own})
    write(tmp_path / "two", "P10C2", "P5C2")
    return summaries.summarize([tmp_path / "two"], tmp_path / "out", ["ga_final"]).document


def test_one_method_and_seeds_that_are_not_alike(tmp_path, monkeypatch):
    """On both federations, the differences to FedAvg are 2 and 8: nothing between, ICC(1) -1."""
    own = {"P10C2": (52, 68), "P5C2": (48, 52)}
    text = of_two_federations(own, tmp_path, monkeypatch)
    assert "2 federations are too few for Wilcoxon's test of 1 method: adjusted, it needs" in text
    assert (
        "Seeds of a federation are no more alike than those of different federations: the "
        "intraclass correlation of the differences to fedavg is -1.00 (fedgela); values below 0 "
        "are estimates of 0.\n"
    ) in text


def test_seeds_that_are_alike(tmp_path, monkeypatch):
    """Differences of 2 and 2, and 8 and 8: nothing within a federation, ICC(1) 1."""
    own = {"P10C2": (52, 62), "P5C2": (48, 58)}
    text = of_two_federations(own, tmp_path, monkeypatch)
    assert "Seeds of a federation are alike: the" in text
    assert "fedavg is 1.00 (fedgela).\n" in text


def test_a_single_seed_is_said_as_one(tmp_path, monkeypatch):
    single = {"fedavg": {"P10C2": (50,)}, "fedgela": {"P10C2": (70,)}}
    monkeypatch.setitem(globals(), "GA", single)
    write(tmp_path / "one", "P10C2")
    text = summaries.summarize([tmp_path / "one"], tmp_path / "out", ["ga_final"]).document
    assert "1 seed is too few for Wilcoxon's test of 1 method: adjusted, it needs 6 to" in text


def test_methods_with_the_same_accuracies_in_all_runs_are_ranked_once(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "GA", {"apfl": GA["fedavg"], **GA})
    write(tmp_path / "one", "P10C2")
    rows = table(
        summaries.summarize([tmp_path / "one"], tmp_path / "out", ["ga_final"]).document, "GA"
    )
    # The mean of MOON's 90 and 0 is the lowest.
    assert [(name, row["average rank"]) for name, row in rows.items()] == [
        ("fedgela", "1.0"),
        ("fedprox", "2.0"),
        ("fedavg = apfl", "3.0"),
        ("moon", "4.0"),
    ]
    assert rows["fedprox"]["ahead"] == "1 of 2"


def test_a_run_that_diverged_counts_as_zero_in_ranks_only(directories, tmp_path):
    text = summaries.summarize(directories[:1], tmp_path / "out", ["ga_final"]).document
    rows = table(text, "GA")
    # The mean of 90 and 0 is below all others.
    assert list(rows) == ["fedgela", "fedprox", "fedavg", "moon"]
    # An accuracy is only that of a model.
    assert rows["moon"]["one, P10C2"] == "90.0, 1 diverged"
    with open(tmp_path / "out" / "summary.csv", newline="") as file:
        moon = [*csv.DictReader(file)][-1]
    assert (moon["seeds"], moon["mean"], moon["diverged"]) == ("1", "90", "1")
    assert "Nemenyi: the" not in text


def ranking(difference):
    """Average ranks 1, 2 and 3 on two federations, and a critical difference."""
    placed = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    names = ["fedgela", "fedavg", "fedprox"]
    some = "federations", 20, {}, {}, {}, {}
    return summaries.Ranking("ga_final", names, {}, ["A", "B"], placed, None, difference, *some)


def test_a_method_that_differs_from_all_others():
    certain = {"fedavg": Probability(0.01, 0.02), "fedprox": Probability(0.03, 0.06)}
    best = dataclasses.replace(ranking(0.5), p_best=certain)
    assert ranking_tables.tests(best) == (
        "Average ranks that differ by less than 0.5 cannot be told apart (Nemenyi): fedgela is "
        "told apart from each of the others. Adjusted, fedavg differs significantly from fedgela "
        "(Wilcoxon)."
    )


@pytest.mark.parametrize(
    "differences, bands, sentence",
    [
        ((1.5, 5.0), [(1.0, 2.5), (1.0, 6.0)], "grey: not distinguishable"),
        ((2.5, 5.0), [], "no method is distinguishable"),
        ((None, None), [], "rank on each federation"),
    ],
)
def test_grey_bands_only_where_some_method_can_be_told_apart(differences, bands, sentence):
    rankings = [ranking(difference) for difference in differences]
    figure, panels = ranking_picture.draw(rankings, {"ga_final": "GA"})
    drawn = []
    for axes in panels:
        for patch in axes.patches[: len(axes.patches) - 3]:  # All but the bars.
            corners = patch.get_path().transformed(patch.get_patch_transform()).vertices[:, 0]
            drawn.append((corners.min(), corners.max()))
    assert drawn == bands
    assert sentence in figure._suptitle.get_text().splitlines()[-1]


def test_equal_values_share_a_rank(directories, tmp_path):
    text = summaries.summarize(directories, tmp_path / "out", ["pa_final"]).document
    assert {row["average rank"] for row in table(text, "PA after").values()} == {"2.0"}
    assert "Friedman: the" not in text


def test_federations_in_folders_of_the_same_name_are_told_apart(tmp_path):
    folders = [tmp_path / name / "comparison" for name in "ab"] + [tmp_path / "c"]
    for folder in folders[:2]:
        write(folder, "P10C2")
    write(folders[2] / "comparison", "P10C2")
    assert [federation.name for federation in summaries.read(folders)] == [
        *(f"comparison, P10C2 ({folder})" for folder in folders[:2]),
        "comparison, P10C2 (c)",
    ]


def test_refusals(directories, tmp_path):
    out = tmp_path / "out"
    with refuses("comparison_dirs", "is not a directory"):
        summaries.summarize([tmp_path / "none"], out)
    (tmp_path / "empty").mkdir()
    with refuses("comparison_dirs", "there is no comparison.csv"):
        summaries.summarize([tmp_path / "empty"], out)
    with refuses("comparison_dirs", "name each directory once"):
        summaries.summarize([directories[0], directories[0]], out)
    sweep = tmp_path / "sweep"
    shutil.copytree(directories[0], sweep / "comparison")
    with refuses("comparison_dirs", "name each directory once"):
        summaries.summarize([sweep, sweep / "comparison"], out)
    with refuses("measures", "loss is not one of ga_final"):
        summaries.summarize(directories, out, ["loss"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "comparison.csv").write_text(
        f"{','.join(HEADER)}\niid,moon,1,False,,9,9\n"
    )
    with refuses("comparison_dirs", "at least two methods need finished runs in all of them"):
        summaries.summarize([directories[0], tmp_path / "other"], out)
    assert not out.exists()


def test_methods_that_lack_runs_are_named_and_others_are_not(tmp_path, monkeypatch):
    """Baselines are never ranked, and methods without a global model not by GA."""
    more = {name: {"P10C2": (99, 98), "P5C2": (99, 98)} for name in ("central", "local", "fedper")}
    monkeypatch.setitem(globals(), "GA", {**GA, **more})
    folders = [tmp_path / name for name in ("P10C2", "P5C2")]
    for folder in folders:
        write(folder, folder.name)
    text = summaries.summarize(folders, tmp_path / "out", ["ga_final", "pa_final"]).document
    lines = [line for line in text.splitlines() if line.startswith("Without runs on all")]
    assert lines == ["Without runs on all federations, and not ranked: moon."] * 2


def test_one_seed_has_no_deviation(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "GA", {"fedavg": {"P": (50,)}, "fedgela": {"P": (60,)}})
    write(tmp_path / "one", "P")
    summaries.summarize([tmp_path / "one"], tmp_path / "out", ["ga_final"])
    with open(tmp_path / "out" / "summary.csv", newline="") as file:
        assert [row["std"] for row in csv.DictReader(file)] == ["", ""]
