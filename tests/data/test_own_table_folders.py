"""Folders of tables, such as a file from each hospital, which are one table."""

import os

import numpy as np
import pandas as pd
import pytest

from tests.data.refusals import refuses, unusable
from tests.data.test_own_folder import noise, write
from tff_pcdd import data, stages
from tff_pcdd.data import digest

N = 8

# Three hospitals, whose files have the same columns in another order; by hand, so that a sample's
# age says which row of which hospital it is.
AGES = {"hospital_a": range(20, 28), "hospital_b": range(30, 38), "hospital_c": range(40, 48)}
LABELS = ["ill", "well"] * (N // 2)


def table(name, **columns):
    bmi = [age + 0.5 for age in AGES[name]]
    return pd.DataFrame({"age": list(AGES[name]), "bmi": bmi, "label": LABELS, **columns})


@pytest.fixture
def folder(tmp_path):
    """Hospitals that write tables in three ways, and files that are no tables."""
    found = tmp_path / "hospitals"
    found.mkdir()
    table("hospital_b")[["label", "bmi", "age"]].to_csv(
        found / "hospital_b.csv", index=False, sep=";", decimal=","
    )
    table("hospital_c")[["bmi", "label", "age"]].to_excel(found / "hospital_c.xlsx", index=False)
    table("hospital_a").to_csv(found / "hospital_a.CSV", index=False)
    for name in ("~$hospital_c.xlsx", ".~lock.hospital_a.CSV#", "._hospital_b.csv"):
        (found / name).write_text("not a table")
    return found


def load(path, partition="natural", **options):
    options = {"feature_columns": "age,bmi", **options}
    return data.load_federation("table", partition, data_dir=str(path), **options)


def found_rows(made):
    """Of each sample, by its name: client, class, age and BMI."""
    found = {}
    for client in made.clients:
        for part, own in ((made.train, client.train), (made.test, client.test)):
            for index in own:
                name = made.class_names[part.y[index]]
                found[part.ids[index]] = (client.client_id, name, *part.x[index].tolist())
    return found


def test_each_file_is_a_site_by_its_name(folder, caplog):
    with caplog.at_level("INFO", stages.LOADED):
        made = load(folder)
    assert made.client_ids == ("hospital_a", "hospital_b", "hospital_c")
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder}: 2 classes of column label (ill, well); "
        "3 sites from names of files (hospital_a, hospital_b, hospital_c)"
    ]
    files = {
        name: f"{name}{end}" for name, end in zip(AGES, (".CSV", ".csv", ".xlsx"), strict=True)
    }
    assert found_rows(made) == {
        f"row {row + 2} of {files[name]}": (name, LABELS[row], age, age + 0.5)
        for name, ages in AGES.items()
        for row, age in enumerate(ages)
    }


def test_the_data_are_those_of_one_file(folder, tmp_path):
    """And so are all results; a run is not continued if a file has changed."""
    whole = pd.concat([table(name, site=name) for name in AGES])
    whole.to_csv(tmp_path / "whole.csv", index=False)
    expected = digest.data_digest(load(tmp_path / "whole.csv"))
    assert digest.data_digest(load(folder)) == expected
    (folder / "hospital_c.xlsx").rename(folder / "hospital_d.xlsx")
    assert digest.data_digest(load(folder)) != expected
    (folder / "hospital_d.xlsx").rename(folder / "hospital_c.xlsx")
    path = folder / "hospital_a.CSV"
    path.write_text(path.read_text().replace("20.5", "20.6"))
    assert digest.data_digest(load(folder)) != expected


def test_sites_of_a_column_and_no_sites(tmp_path):
    for name in ("hospital_a", "hospital_b"):
        rows = table(name, site=["Jena", "Jena", "Ulm", "Ulm"] * 2)
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    assert load(tmp_path).client_ids == ("Jena", "Ulm")
    table("hospital_c", site="Zug").to_excel(tmp_path / "hospital_a.xlsx", index=False)
    # Two files of the same name are no two sites, but may be parts of a table.
    assert load(tmp_path).client_ids == ("Jena", "Ulm", "Zug")
    made = load(tmp_path, "iid", num_clients=2, site_column="none")
    assert (made.num_clients, len(made.train) + len(made.test)) == (2, 3 * N)
    with unusable(
        f"{tmp_path}: hospital_a.csv and hospital_a.xlsx would both be the site 'hospital_a'; "
        "rename or remove one, or name a column of sites by site_column"
    ):
        load(tmp_path, site_column="ward")


@pytest.mark.parametrize(
    ("name", "site"), [("hospital_a.csv.gz", "hospital_a"), ("test.csv", "test"), ("TR.tsv", "TR")]
)
def test_a_folder_of_one_file(name, site, tmp_path):
    """Its name says no part, because no other file has the other parts."""
    table("hospital_a").to_csv(tmp_path / name, index=False)
    made = load(tmp_path)
    assert made.client_ids == (site,)
    # A fifth of four samples of each of two classes.
    assert (len(made.train), len(made.test)) == (6, 2)


def squares(name):
    """Inputs that number no rows."""
    return {"age": np.square(AGES[name]), "bmi": np.power(AGES[name], 3)}


@pytest.mark.parametrize(("last", "is_left_out"), [(N, True), (N + 2, False)])
def test_running_numbers_of_each_file_are_no_inputs(last, is_left_out, tmp_path, warnings_again):
    for name in AGES:
        numbers = [last if name == "hospital_c" else N, *range(1, N)]
        table(name, **squares(name), nr=numbers).to_csv(tmp_path / f"{name}.csv", index=False)
    assert load(tmp_path, feature_columns="all").input_spec.shape == (2 if is_left_out else 3,)
    said = f"{tmp_path}: column nr is left out: running numbers of the rows"
    assert (said in warnings_again.text) == is_left_out


@pytest.mark.parametrize("others", [(), ("hospital_b", "hospital_c")])
def test_unknown_separators_are_named(others, tmp_path):
    """As for a single file; otherwise, files could become sites whose column is not found."""
    table("hospital_a").to_csv(tmp_path / "hospital_a.csv", index=False, sep="|")
    for name in others:
        table(name).to_csv(tmp_path / f"{name}.csv", index=False)
    with unusable(
        f"{tmp_path / 'hospital_a.csv'}: the only column is 'age|bmi|label'; if other characters "
        "than commas, semicolons or tabs separate them, add sep=| first"
    ):
        load(tmp_path)


def test_other_columns_are_refused_with_their_files(folder):
    table("hospital_b").rename(columns={"bmi": "BMI"}).to_csv(
        folder / "hospital_b.csv", index=False
    )
    table("hospital_c", pulse=60).to_excel(folder / "hospital_c.xlsx", index=False)
    with unusable(
        f"{folder}: the files have different columns: column 'bmi' is not in file hospital_b.csv, "
        "column 'BMI' is only in file hospital_b.csv, column 'pulse' is only in file "
        "hospital_c.xlsx; 'bmi' and 'BMI' differ only in case, blanks or the like; give all files "
        "the same columns"
    ):
        load(folder)
    many = {f"lab {index}": 1 for index in range(7)}
    table("hospital_a", **many).to_csv(folder / "hospital_a.CSV", index=False)
    with unusable("column 'lab 3' is only in file hospital_a.CSV, 5 more columns; 'bmi' and 'BMI'"):
        load(folder)
    table("hospital_a").to_csv(folder / "hospital_a.CSV")
    with unusable("columns: a column without a name is only in file hospital_a.CSV, column 'bmi'"):
        load(folder)


def test_a_column_that_is_spelled_like_that_of_the_sites_is_meant(tmp_path):
    """Each file would be a site, although a column says where a sample is from."""
    table("hospital_a", Hospital=["Jena", "Ulm"] * 4).to_csv(tmp_path / "2023.csv", index=False)
    with unusable("column 'hospital' is missing, there are", "did you mean Hospital?"):
        load(tmp_path, site_column="hospital")


def edited(path, row, old, new):
    """Replaces a text in a row of a csv file, which spreadsheets number like this."""
    lines = path.read_text().splitlines()
    assert old in lines[row - 1]
    lines[row - 1] = lines[row - 1].replace(old, new)
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ill", "?", "row 6 of hospital_b.csv: the label is missing (it is '?')"),
        ("34", "old", "row 6 of hospital_b.csv: 'old' in column 'age' is not a finite number"),
        ("34,5", "", "row 6 of hospital_b.csv: column 'bmi' is missing"),
        ("34,5", "1.234", "column 'bmi': 1.234 may be a number of thousands or one with decimals"),
        ("ill;", "", "hospital_b.csv, row 6: has 2 cells, but there are 3 columns"),
    ],
)
def test_refusals_name_the_file_and_the_row(old, new, message, folder):
    edited(folder / "hospital_b.csv", 6, old, new)
    with unusable(str(folder), message):
        load(folder)


def test_rows_of_several_files_are_left_out(folder):
    edited(folder / "hospital_a.CSV", 3, "21.5", "")
    edited(folder / "hospital_b.csv", 2, "30,5", "?")
    edited(folder / "hospital_b.csv", 9, "37,5", "?")
    found = found_rows(load(folder, missing="drop"))
    ages = sorted(age for _, _, age, _ in found.values())
    assert ages == [20, *range(22, 28), *range(31, 37), *range(40, 48)]
    assert found["row 3 of hospital_b.csv"] == ("hospital_b", "well", 31, 31.5)
    assert found["row 9 of hospital_c.xlsx"] == ("hospital_c", "well", 47, 47.5)


def test_files_without_rows_are_refused(folder):
    for content in ("age,bmi,label\n", ""):
        (folder / "hospital_d.csv").write_text(content)
        with unusable("hospital_d.csv: the table is empty"):
            load(folder)
    for path in folder.glob("hospital_*"):
        path.unlink()
    table("hospital_a", site="Jena").to_csv(folder / "train.csv", index=False)
    (folder / "test.csv").write_text("")
    with unusable("test.csv: the table is empty"):
        load(folder)


def test_files_that_may_be_tables_are_named(folder, warnings_again):
    for name in ("hospital_d.xls", "notes.txt", "map.png"):
        (folder / name).write_bytes(b"")
    (folder / "older.csv").mkdir()
    assert load(folder).num_clients == 3
    [warning] = warnings_again.messages
    assert warning == (
        f"{folder}: files hospital_d.xls, notes.txt left out; files that are read end in .csv, "
        ".tsv, .tab, .csv.gz, .tsv.gz, .parquet, .xlsx"
    )


def test_names_of_files_may_say_parts(tmp_path):
    for part, name in (("train", "hospital_a"), ("test", "hospital_b")):
        table(name, site="Jena").to_csv(tmp_path / f"{part}.csv", index=False)
    made = load(tmp_path)
    assert made.train.x[:, 0].tolist() == list(AGES["hospital_a"])
    assert made.test.x[:, 0].tolist() == list(AGES["hospital_b"])
    # A column that is named says it instead, and the names do not become an input.
    for part, name in (("train", "hospital_a"), ("test", "hospital_b")):
        columns = {"site": "Jena", "fold": ["test", "test", *["train"] * 6]}
        table(name, **columns, **squares(name)).to_csv(tmp_path / f"{part}.csv", index=False)
    made = load(tmp_path, feature_columns="all", split_column="fold")
    assert made.test.x[:, 0].tolist() == [30**2, 31**2, 20**2, 21**2]
    assert made.input_spec.shape == (2,)
    # Such files are no sites. TR is one beside DE.
    for part in ("train", "test"):
        table("hospital_a").to_csv(tmp_path / f"{part}.csv", index=False)
    with unusable(
        f"{tmp_path}: column 'site' is missing, and files are no sites if their names say parts, "
        "such as test.csv; site_column can name another, or none"
    ):
        load(tmp_path)
    (tmp_path / "train.csv").rename(tmp_path / "TR.csv")
    (tmp_path / "test.csv").rename(tmp_path / "DE.csv")
    assert load(tmp_path).client_ids == ("DE", "TR")


def test_files_outside_of_the_folder_are_refused(folder, tmp_path):
    table("hospital_a").to_csv(tmp_path / "secret.csv", index=False)
    os.symlink(tmp_path / "secret.csv", folder / "hospital_d.csv")
    with unusable(f"hospital_d.csv is a link to a file outside of {folder}"):
        load(folder)


def test_results_are_not_written_among_the_tables(folder):
    source = data.sources.create("table", data_dir=str(folder))
    with refuses("output_dir", "lies in the folder of the data set table"):
        source.refuse_results(folder)
    source.refuse_results(folder / "results")


def test_paths_are_below_the_folder(tmp_path):
    """A table of images in each file."""
    for number in range(8):
        write(tmp_path / "images" / f"{number}.png", noise(number, 4, 4, 3))
    for site, numbers in (("Jena", range(4)), ("Ulm", range(4, 8))):
        paths = [f"images/{number}.png" for number in numbers]
        rows = pd.DataFrame({"path": paths, "label": ["cat", "dog"] * 2})
        rows.to_csv(tmp_path / f"{site}.csv", index=False)
    made = load(tmp_path, feature_columns=None)
    assert made.client_ids == ("Jena", "Ulm")
    for part in (made.train, made.test):
        for name, x in zip(part.ids, part.x, strict=True):
            number = int(name.partition("images/")[2].removesuffix(".png)"))
            np.testing.assert_array_equal(x, noise(number, 4, 4, 3))
