"""The page that compares claims with results: its rows, and what is refused."""

import csv
import hashlib
import json
import pathlib
import re

import numpy as np
import pytest

from publication import published, publishing, writing
from tests.markdown_tables import table_rows
from tests.studies.fake_sweep import ALL, Training, points
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.studies import study, sweep_methods

pytestmark = pytest.mark.usefixtures("undrawn")

ROOT = pathlib.Path(__file__).resolve().parents[2]

NOTES = """\
[federations]
digits = "Some digits"

[differences."FedProx is better than FedAvg"]
of = "fedprox"
to = "fedavg"
measures = "ga_final, pa_before_final/pa_final"
published = "by much"

[differences."A head of FedProx is better than its own"]
of = "fedprox/psi"
to = "fedprox"
measures = "ga_final"

[claims]
FedProx = "It is better by {figure}."

[rows.FedProx]
"without the term" = "digits/fedavg"
"with the term" = "digits/fedprox"
"the term alone" = "prox_alone/fedprox"
"with another head" = "digits/fedprox/psi"
"with much of it" = "much/fedprox"
"""


class TwoHeads(Training):
    """Also measures another head of the global model, which is 5 points better."""

    def __call__(self, *arguments, **options):
        summary = super().__call__(*arguments, **options)
        if "ga_final" in summary:
            summary["ga_psi_final"] = summary["ga_final"] + 5
        return summary


@pytest.fixture
def publish_dir(monkeypatch, tmp_path):
    """The published results of all methods, and of a row that was tuned in a sweep of its own."""
    directory = tmp_path / "docs"
    for name, gain in (("digits", 9), ("prox_alone", 4)):
        training = TwoHeads(tmp_path / name)
        training.gains = {"fedprox": lambda seed, gain=gain: gain + seed}
        monkeypatch.setattr(study, "run_experiment", training)
        planned = points()
        if name != "digits":
            del planned["fedavg"]
        sweep_methods(planned, tmp_path / name, halving=ALL)
        write_data(publishing.publish(tmp_path / name, directory), {"1": "a", "2": "b", "3": "c"})
    (directory / "notes.toml").write_text(NOTES)
    return directory


def change_record(folder, change):
    """Changes a record as if it had been published so."""
    path = folder / "federation.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record | {"record_sha256": published.record_sha256(record)}))


def write_data(folder, digests):
    """Sets the digests of the data, which runs without checkpoints lack."""
    change_record(folder, lambda record: record.update(data_sha256=digests))


def sign(path):
    """Makes a changed file the one that was published."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    change_record(path.parent, lambda record: record["sha256"].update({path.name: digest}))


def write_claims(publish_dir):
    """The page of the claims, after all pages have been written."""
    writing.write(publish_dir)
    return (publish_dir / "claims.md").read_text()


def table(page):
    """The rows of the table of the claims, by their names."""
    section = page[page.index("## FedProx") : page.index("## How these rows were computed")]
    return {cells[0]: cells[1:] for cells in table_rows(section)[1:]}


def expected(values, sign=""):
    """Mean ± sample standard deviation."""
    return f"{np.mean(values):{sign}.1f} ± {np.std(values, ddof=1):.1f}"


def test_rows_are_compared_with_the_first_one(publish_dir):
    page = write_claims(publish_dir)
    found = table(page)
    # FedAvg has 50 + seed, FedProx gain + seed more.
    assert found["without the term"][:2] == [expected([51, 52, 53]), "–"]
    assert found["with the term"][:2] == [
        expected([61, 63, 65]),
        f"{expected([10, 11, 12], '+')} (3 of 3)",
    ]
    assert found["the term alone"][:2] == [
        expected([56, 58, 60]),
        f"{expected([5, 6, 7], '+')} (3 of 3)",
    ]
    # GA over the second half of the rounds and personal models are of the method's own head.
    assert found["with another head"][0] == expected([66, 68, 70])
    assert found["with another head"][2:7] == ["–"] * 5
    assert found["with much of it"][0] == "**not run yet**"
    assert "client_learning_rate=0.01, fedprox_mu=1" in found["the term alone"]
    assert "It is better by {figure}." in page
    # 26 rounds of the grid, a second each, and 24 of the final runs.
    assert "- prox_alone: the command was not recorded; 1 min for the rounds of all runs" in page


def test_gains_are_shown_on_all_federations(publish_dir, monkeypatch, tmp_path):
    # Of the second federation, FedProx gains -1, 0 and 1 points.
    training = TwoHeads(tmp_path / "letters")
    training.gains = {"fedprox": lambda seed: seed - 2}
    monkeypatch.setattr(study, "run_experiment", training)
    sweep_methods(points(), tmp_path / "letters", halving=ALL)
    publishing.publish(tmp_path / "letters", publish_dir)
    notes = publish_dir / "notes.toml"
    text = notes.read_text().replace("[federations]\n", '[federations]\nletters = "Letters"\n')
    notes.write_text(f'{text}\n[titles]\nletters = "letters"\n')
    page = write_claims(publish_dir)
    head, *body = table_rows(page[: page.index("## FedProx")])
    assert head == ["claim", "published", "measure", "letters", "digits, P10C2"]
    first, second, third = body
    # FedAvg has 50 + seed, and FedProx 9 + seed more: larger than the deviation, with all seeds.
    assert first[1:3] == ["by much", "GA"]
    assert first[3:] == ["0.0 ± 1.0", f"**{expected([10, 11, 12], '+')}**"]
    assert second[1:3] == ["", "PA before, to PA after"]
    # The other head is better by 5 points with all seeds.
    assert third[0] == "A head of FedProx is better than its own"
    assert third[3:] == ["**+5.0 ± 0.0**"] * 2


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('to = "fedavg"\n', "", "there is no to"),
        ("pa_before_final/pa_final", "ga_final/va", "va is not one of ga_final, ga_second_half"),
        ('to = "fedavg"', "to = 1", "all values must be texts"),
    ],
)
def test_differences_that_cannot_be_used(publish_dir, old, new, reason):
    path = publish_dir / "notes.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DamagedFileError, match=rf"notes\.toml cannot be used.*{reason}"):
        writing.write(publish_dir)


def test_diverged_runs_of_a_row_are_counted(publish_dir):
    path = publish_dir / "prox_alone" / "final.csv"
    text = path.read_text()
    changed = text.replace("fedprox,2,False", "fedprox,2,True")
    assert changed != text
    path.write_text(changed)
    sign(path)
    row = table(write_claims(publish_dir))["the term alone"]
    assert row[:2] == [expected([56, 60]), f"{expected([5, 7], '+')} (2 of 2)"]
    assert "2 of 3, 1 diverged" in row


def test_groups_of_classes_have_columns_if_a_row_has_them(publish_dir):
    """Also those of another head."""
    assert "GA, few" not in write_claims(publish_dir)
    path = publish_dir / "digits" / "final.csv"
    text = path.read_text()
    header, *lines = text.splitlines()
    few = {"fedavg": ("10.0", ""), "fedprox": ("20.0", "30.0")}
    added = [f"{line},{','.join(few[line.split(',')[0]])}" for line in lines]
    changed = "\n".join([f"{header},ga_few_final,ga_psi_few_final", *added]) + "\n"
    path.write_text(changed)
    sign(path)
    page = write_claims(publish_dir)
    section = page[page.index("## FedProx") :]
    assert "GA, few" in section
    assert "GA, many" not in section
    found = {name: row[4] for name, row in table(page).items() if len(row) > 5}
    assert found["without the term"] == "10.0 ± 0.0"
    assert found["with the term"] == "20.0 ± 0.0"
    assert found["with another head"] == "30.0 ± 0.0"
    assert found["the term alone"] == "–"


def test_a_sweep_for_a_row_is_no_federation(publish_dir):
    page = writing.write(publish_dir)[0].read_text()
    assert "prox_alone" not in page
    assert "the only federation so far" in page
    assert not (publish_dir / "prox_alone" / "README.md").exists()
    assert not (publish_dir / "prox_alone" / "curves.png").exists()


def test_other_data_are_not_compared(publish_dir):
    write_data(publish_dir / "prox_alone", {"1": "a", "2": "other", "3": None})
    page = write_claims(publish_dir)
    assert table(page)["the term alone"][1] == "+5.0 (1 of 1)"


def test_a_table_without_its_paragraph_is_reported(publish_dir):
    path = publish_dir / "notes.toml"
    path.write_text(path.read_text().replace('FedProx = "It is better by {figure}."\n', ""))
    assert writing.write(publish_dir)[1] == ["claims.FedProx"]
    assert "Not described yet." in write_claims(publish_dir)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("digits", "digits must be FOLDER/METHOD or FOLDER/METHOD/HEAD"),
        ("digits/moon", r"rows\.FedProx: digits lacks moon"),
        ("digits/fedprox/ssec", r"rows\.FedProx: digits lacks a head ssec of fedprox"),
    ],
)
def test_rows_that_cannot_be_used(publish_dir, place, reason):
    path = publish_dir / "notes.toml"
    path.write_text(path.read_text().replace("digits/fedprox/psi", place))
    with pytest.raises(DamagedFileError, match=rf"notes\.toml cannot be used.*{reason}"):
        writing.write(publish_dir)


# What this repository says.


def read_notes():
    return published.read_notes(ROOT / "docs" / "comparison")


def read_pages():
    """The text of all pages about published results."""
    docs = ROOT / "docs"
    pages = [docs / "comparison.md", *sorted((docs / "comparison").rglob("*.md"))]
    return "".join(page.read_text(encoding="utf-8") for page in pages)


def test_each_flagfile_of_an_ablation_is_a_row():
    notes = read_notes()
    # The same flagfiles on another processor have folders of their own.
    folders = {
        place.split("/")[0].removesuffix("_xeon")
        for rows in notes.rows.values()
        for place in rows.values()
    }
    flagfiles = {path.stem for path in (ROOT / "flags/comparison/ablations").glob("*.flags")}
    assert folders - {*notes.federations} == flagfiles


def test_figures_of_the_paragraphs_are_in_the_table_or_were_published():
    page = (ROOT / "docs" / "comparison" / "claims.md").read_text(encoding="utf-8")
    notes = read_notes()
    for name, text in notes.claims.items():
        known = set()
        method = name.split()[0].lower()
        for path in (ROOT / "flags" / "published").glob(f"{method}_table*.csv"):
            with open(path, newline="", encoding="utf-8") as file:
                values = [row["value"] for row in csv.DictReader(file)]
            # Accuracies of FedLoGe are fractions of 1.
            known |= {*values, *(f"{100 * float(v):.2f}" for v in values if v[:2] == "0.")}
        (section,) = (part for part in page.split("\n## ") if text.strip() in part)
        known |= set(re.findall(r"\d+\.\d+", section.replace(text.strip(), "")))
        lacking = [figure for figure in re.findall(r"\d+\.\d+", text) if figure not in known]
        assert not lacking, (name, lacking)


def test_figures_of_the_guide_are_in_the_tables():
    """Figures that other paragraphs give do not count."""
    notes, tables = read_notes(), read_pages()
    explanations = (text for group in notes.explanations.values() for text in group.values())
    texts = (*notes.texts.values(), *notes.remarks.values(), *notes.claims.values())
    for text in (*texts, *explanations):
        tables = tables.replace(text.strip(), "")
    known = set(re.findall(r"\d+\.\d+", tables))
    for name, text in notes.texts.items():
        lacking = [figure for figure in re.findall(r"\d+\.\d+", text) if figure not in known]
        assert not lacking, (name, lacking)
