"""`tasks.predict` as a user calls it: its answers are those of the run that was exported."""

import csv
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import ROOT
from tests.cli.stages import without_stages
from tests.cli.test_refusals import check
from tff_pcdd import files
from tff_pcdd.export import layout

pytestmark = pytest.mark.integration

COLUMNS = ("--label_column=diagnosis", "--site_column=hospital")
N = 120


def patients():
    generator = np.random.default_rng(0)
    made = pd.DataFrame({"age": generator.normal(60, 10, N).round(1), "name": "A"})
    made["pain"] = np.array(["dull", "none at all", "sharp"])[generator.integers(0, 3, N)]
    made["diagnosis"] = np.where(made["age"] + generator.normal(0, 4, N) > 60, "ill, a bit", "well")
    made["hospital"] = np.array(["Oslo", "St. Mary"])[np.arange(N) % 2]
    made.loc[::9, "age"] = np.nan
    return made


@pytest.fixture(scope="module")
def exported(trained_here, tmp_path_factory):
    """A directory with a run of a table, and its models."""
    path = tmp_path_factory.mktemp("patients") / "patients.csv"
    patients().to_csv(path, index=False)
    columns = {"feature_columns": "age,pain", "categorical_columns": "pain", "impute": "median"}
    names = {"label_column": "diagnosis", "site_column": "hospital"}
    root = trained_here("table", data_dir=str(path), **names, **columns)
    patients().to_csv(root / path.name, index=False)
    return root


@pytest.fixture
def predict(call_here, exported, tmp_path):
    """Calls the program: its output, and the rows of the file that it writes."""

    def predict(data_dir, *flags):
        output = tmp_path / "answers" / "answers.csv"
        status, out, err = call_here(
            "predict",
            f"--export_dir={exported / 'out'}",
            f"--data_dir={data_dir}",
            f"--output_file={output}",
            "--overwrite",
            *flags,
        )
        assert status == 0, err
        with open(output, newline="", encoding="utf-8") as file:
            return out.splitlines(), list(csv.DictReader(file))

    return predict


def measured(run, model, client=None):
    """The rows of predictions.csv of a model, by the ids of the samples."""
    with open(run / "predictions.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    return {row["id"]: row for row in rows if client in (None, row["client"])}


def agree(rows, expected):
    """Whether rows, of which some were test samples, have the answers of predictions.csv."""
    found = [row for row in rows if row["id"] in expected]
    assert len(found) == len(expected) > 0
    for row in found:
        wanted = expected[row["id"]]
        assert row["prediction"] == wanted["prediction"]
        for name, value in wanted.items():
            if name.startswith("probability_"):
                assert float(row[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-6)


def accuracy(rows, answer="prediction"):
    """As the program prints it; Wilson's bounds are the roots of a polynomial."""
    share, n, z = np.mean([row[answer] == row["label"] for row in rows]), len(rows), 1.959964
    polynomial = [1 + z * z / n, -(2 * share + z * z / n), share * share]
    low, high = sorted(100 * np.real(np.roots(polynomial)))
    return f"{100 * share:.2f} % (95 % interval {low:.1f} to {high:.1f} %)"


def test_answers_are_those_of_the_run_in_the_order_of_the_rows(predict, exported):
    table = patients()
    out, rows = predict(exported / "patients.csv", *COLUMNS)
    assert [row["id"] for row in rows] == [f"row {number}" for number in range(2, N + 2)]
    assert [row["label"] for row in rows] == table["diagnosis"].tolist()
    assert list(rows[0]) == [
        *("id", "label", "prediction", "probability_ill, a bit", "probability_well"),
        "out_of_range",
    ]
    agree(rows, measured(exported / "run", "global"))
    sites = {name: rows[number::2] for number, name in enumerate(("Oslo", "St. Mary"))}
    assert out == [
        f"accuracy {accuracy(rows)}, 120 rows",
        *(f"{site}: accuracy {accuracy(own)}, 60 rows" for site, own in sites.items()),
        f"120 answers in {out[-1].partition(' in ')[2]}",
    ]


def test_accuracies_of_sites_are_in_the_order_of_their_numbers(predict, tmp_path):
    table = patients().iloc[:60]
    table["hospital"] = np.repeat(["ward 10", "10", "ward 2", "2", "ward 9", "9"], 10)
    table.to_csv(tmp_path / "numbers.csv", index=False)
    out, _ = predict(tmp_path / "numbers.csv", *COLUMNS)
    sites = [line.partition(": ")[0] for line in out[1:-1]]
    assert sites == ["2", "9", "10", "ward 2", "ward 9", "ward 10"]


@pytest.mark.parametrize("name", ["St. Mary", "st-mary", "personal-st-mary"])
def test_a_personal_model_answers_by_the_id_of_its_client(name, predict, exported):
    flags = (f"--model_name={name}", "--label_column=diagnosis")
    out, rows = predict(exported / "patients.csv", *flags)
    agree(rows, measured(exported / "run", "personal", "St. Mary"))
    own = accuracy(rows, "own_prediction")
    assert out[0] == f"accuracy {accuracy(rows)}, own_label {own}, 120 rows"
    assert len(out) == 2


def test_every_kind_of_table_has_the_same_answers(predict, exported, tmp_path):
    """Columns in another order and with others, decimal commas, missing values by other texts."""
    _, rows = predict(exported / "patients.csv")
    table = patients()[["pain", "name", "age"]]
    table.to_csv(tmp_path / "a.tsv", sep="\t", decimal=",", na_rep="n/a", index=False)
    table.to_excel(tmp_path / "a.xlsx", index=False)
    table.to_parquet(tmp_path / "a.parquet", index=False)
    (tmp_path / "sites").mkdir()
    for number, site in enumerate(("a", "b")):
        part = patients().iloc[60 * number : 60 * (number + 1)]
        part.drop(columns="hospital").to_csv(tmp_path / "sites" / f"{site}.csv", index=False)
    for name in ("a.tsv", "a.xlsx", "a.parquet", "sites"):
        _, found = predict(tmp_path / name)
        assert [{**row, "id": ""} for row in found] == [{**row, "id": ""} for row in rows], name
    assert found[60]["id"] == "row 2 of b.csv"
    out, found = predict(tmp_path / "sites", "--label_column=diagnosis")
    assert out[1:3] == [
        f"{site}: accuracy {accuracy(own)}, 60 rows"
        for site, own in (("a", found[:60]), ("b", found[60:]))
    ]


def test_rows_without_a_label_and_numbers_and_names_that_are_not_known(predict, tmp_path, caplog):
    table = patients().iloc[:6].drop(columns="hospital").astype(object)
    table.loc[0, "age"], table.loc[1, "pain"] = 900, "=Dull"
    table.loc[2, "diagnosis"], table.loc[3, "diagnosis"] = None, "other"
    table.to_csv(tmp_path / "a.csv", index=False)
    out, rows = predict(tmp_path / "a.csv", "--label_column=diagnosis")
    assert [row["out_of_range"] for row in rows] == ["age", *[""] * 5]
    assert rows[2]["label"] == "" and rows[3]["label"] == "other"
    assert out[0] == f"accuracy {accuracy([*rows[:2], *rows[3:]])}, 5 rows"
    warned = [record.getMessage().partition("a.csv, ")[2] for record in caplog.records]
    assert warned == [
        "row 3: '=Dull' in column 'pain' is a category of no training sample, and is taken for "
        "missing",
        "row 5: the label 'other' is no class of the model; the answers to 1 such row count as "
        "wrong",
    ]


def test_answers_do_not_depend_on_the_size_of_batches(predict, exported, monkeypatch):
    from tff_pcdd.export import served

    _, rows = predict(exported / "patients.csv")
    monkeypatch.setattr(served, "_ROWS", 7)
    assert predict(exported / "patients.csv")[1] == rows


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model_name=global2"], "--model_name=global2: choose one of global, Oslo, St. Mary; "),
        (["--model_version=3"], "--model_version=3: global has no such version; choose one of 1"),
        (["--export_dir={root}/run"], "--export_dir={root}/run: holds no SavedModels; "),
        (
            ["--data_dir={root}/none.csv"],
            "dataset table: --data_dir={root}/none.csv does not exist",
        ),
        (["--data_dir={tmp}/empty.csv"], "{tmp}/empty.csv: the table is empty"),
        (
            ["--data_dir={tmp}/other.csv"],
            "{tmp}/other.csv: columns age, pain are missing, there are Age, x; did you mean Age?",
        ),
        (["--data_dir={tmp}/words.csv"], "words.csv, row 3: 'old' in column 'age' is not a finite"),
        (["--label_column=diagnose"], "column 'diagnose' is missing, there are age, "),
        (["--site_column=hospital"], "--site_column=hospital: needs --label_column"),
        (
            ["--output_file={tmp}/other.csv"],
            "/other.csv: exists; choose another file or set --over",
        ),
        (["--output_file={root}/patients.csv", "--overwrite"], "is part of --data_dir; choose ano"),
        (["--output_file={tmp}"], "--output_file={tmp}: is not the path of a file"),
        (["--output_file="], "--output_file: is required"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_imported(
    flags, message, exported, call_here, tmp_path, monkeypatch
):
    from tff_pcdd import heavy

    monkeypatch.setattr(heavy, "load", lambda *names: pytest.fail(f"imports {names}"))
    (tmp_path / "empty.csv").write_text("age,pain\n")
    (tmp_path / "other.csv").write_text("Age,x\n1,2\n")
    (tmp_path / "words.csv").write_text("age,pain\n60,dull\nold,dull\n")
    usual = ["--export_dir={root}/out", "--data_dir={root}/patients.csv", "--output_file={tmp}/a"]
    given = [flag.format(root=exported, tmp=tmp_path) for flag in (*usual, *flags)]
    check(call_here("predict", *given), "predict", message.format(root=exported, tmp=tmp_path))
    assert not (tmp_path / "a").exists()


def test_labels_of_something_else_are_refused(exported, call_here, tmp_path):
    flags = (f"--export_dir={exported / 'out'}", f"--data_dir={exported / 'patients.csv'}")
    result = call_here("predict", *flags, f"--output_file={tmp_path / 'a'}", "--label_column=pain")
    status, out, err = result
    assert (status, out) == (2, "")
    assert without_stages(err).endswith(
        "patients.csv: no label is a class of the model, which are classes ill, a bit, well; there "
        "are dull, none at all, sharp\n"
    )
    assert not list(tmp_path.iterdir())


def test_help_and_refusals_do_not_import_tensorflow(tmp_path):
    code = (
        "import sys; from tff_pcdd.cli import predict\n"
        "try: predict.run(['predict', {flag!r}])\n"
        "except SystemExit: print('tensorflow' in sys.modules)"
    )
    for flag in ("--help", "--data_dir=a.csv"):
        command = [sys.executable, "-c", code.format(flag=flag)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.endswith("False\n")


def test_names_of_models(tmp_path):
    """A client may be called like another model; versions are numbers."""
    for folder in ("global/2", "global/10", "personal/global/1", "personal/global_2/1"):
        files.make_directory(tmp_path / folder)
        (tmp_path / folder / "saved_model.pb").write_text("")
    (tmp_path / "sites.json").write_text('{"personal-global_2": "Global!"}')
    for name, folder in (
        ("global", "global/10"),
        ("personal-global", "personal/global/1"),
        ("Global!", "personal/global_2/1"),
        ("personal-global_2", "personal/global_2/1"),
    ):
        assert layout.find(tmp_path, name) == tmp_path / folder
    assert layout.find(tmp_path, "global", 2) == tmp_path / "global" / "2"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("columns.json", None, "global/1 takes features, and no image files"),
        ("columns.json", "{}", "global/1/columns.json is damaged"),
        ("columns.json", '{"columns": [{"name": "age"}]}', "global/1/columns.json is damaged"),
        ("saved_model.pb", "{}", "global/1 cannot be loaded: "),
    ],
)
def test_damaged_models_and_those_of_other_inputs(
    file, content, message, exported, call_here, tmp_path
):
    shutil.copytree(exported / "out", tmp_path / "out")
    (tmp_path / "out" / "global" / "1" / file).unlink()
    if content is not None:
        (tmp_path / "out" / "global" / "1" / file).write_text(content)
    data_dir = exported / "patients.csv"
    if content is None:
        data_dir = tmp_path / "images"
        data_dir.mkdir()
        (data_dir / "a.png").write_bytes(b"")
    flags = (f"--export_dir={tmp_path / 'out'}", f"--data_dir={data_dir}")
    status, out, err = call_here("predict", *flags, f"--output_file={tmp_path / 'a'}")
    err = without_stages(err)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1, err
    assert not (tmp_path / "a").exists()
