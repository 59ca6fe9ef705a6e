"""Tables as spreadsheets and other programs write them: separators, numbers, paths, images."""

import contextlib
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow.parquet
import pytest
from PIL import Image

from tests import waiting
from tests.data.refusals import refuses
from tests.data.test_own_folder import noise, write
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.errors import SettingError

N = 24


@pytest.fixture
def table():
    generator = np.random.default_rng(11)
    return pd.DataFrame(
        {
            "weight, in kg": generator.normal(70, 9, N).round(1),
            "income": generator.integers(900, 60000, N),
            "smoker": generator.random(N) < 0.5,
            "label": ["ill", "well"] * (N // 2),
            "site": ["Basel", "Bern", "Biel"] * (N // 3),
        }
    )


def load(path, features="all", **options):
    options = {"feature_columns": features, **options} if features else options
    return data.load_federation("table", "natural", data_dir=str(path), **options)


def by_row(federation, first=2):
    """The inputs of the samples by their rows, from 0."""
    return {
        int(name.split()[1]) - first: x
        for part in (federation.train, federation.test)
        for name, x in zip(part.ids, part.x, strict=True)
    }


def rows(federation, first=2):
    """The inputs of all samples, in the order of the table."""
    found = by_row(federation, first)
    return np.array([found[row] for row in range(len(found))])


def expected(table):
    return table[["weight, in kg", "income", "smoker"]].to_numpy(np.float64).astype(np.float32)


def test_names_with_commas_and_quotes(table, tmp_path):
    table = table.rename(columns={"income": 'so-called "net", yearly'})
    table["ward, floor"] = np.arange(N) % 3
    names = ["weight, in kg", 'so-called "net", yearly', "smoker"]
    made = data.from_dataframe(table, features=names, group_column='"ward, floor","smoker",site')
    np.testing.assert_array_equal(rows(made, 0), table[names].to_numpy(float).astype(np.float32))
    table.to_csv(tmp_path / "a.csv", index=False)
    options = {"categorical_columns": '"ward, floor"'}
    made = load(tmp_path / "a.csv", 'smoker, "ward, floor", "weight, in kg"', **options)
    wards = [table["ward, floor"] == ward for ward in range(3)]
    expected = np.stack([table["smoker"], *wards, table["weight, in kg"]], axis=1)
    np.testing.assert_array_equal(rows(made), expected.astype(np.float32))


@pytest.mark.parametrize("text", ["income\rsmoker", '"', "a" * 200_000, "income\nsmoker"])
def test_settings_that_are_no_names_are_refused(text, table):
    with pytest.raises((DataError, SettingError)) as caught:
        data.from_dataframe(table, features=text)
    assert re.search(r"\bfeatures\b", str(caught.value))
    assert "feature_columns" not in str(caught.value)


# Separators and decimal commas.


@pytest.mark.parametrize(
    ("first_line", "options", "suffix"),
    [
        ("", {"sep": ","}, ".csv"),
        ("", {"sep": ";"}, ".csv"),
        ("", {"sep": ";", "decimal": ","}, ".csv"),
        ("sep=;\r\n", {"sep": ";", "decimal": ","}, ".csv"),
        ("SEP=,\n", {"sep": ","}, ".csv"),
        ("sep=|\n", {"sep": "|"}, ".csv"),
        ("sep=\t\n", {"sep": "\t"}, ".csv"),
        ("", {"sep": "\t"}, ".tsv"),
        ("", {"sep": "\t", "decimal": ","}, ".tsv"),
        ("", {"sep": ","}, ".csv.gz"),
        ("", {"sep": "\t"}, ".TSV.GZ"),
    ],
)
def test_dialects_give_the_numbers_of_the_table(first_line, options, suffix, table, tmp_path):
    text = first_line + table.to_csv(index=False, **options)
    path = tmp_path / f"a{suffix}"
    with gzip.open(path, "wt") if suffix.lower().endswith("gz") else open(path, "w") as file:
        file.write(text)
    made = load(path)
    np.testing.assert_array_equal(rows(made, 3 if first_line else 2), expected(table))
    # What pandas reads, if it is told everything.
    told = pd.read_csv(io.StringIO(text.removeprefix(first_line)), **options)
    np.testing.assert_array_equal(rows(made, 3 if first_line else 2), expected(told))


def test_commas_in_the_header_of_a_table_with_semicolons(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{70 + row / 4:g}".replace(".", ",") + f";{'ab'[row % 2]};x" for row in range(N)]
    path.write_text("\n".join(["weight, dry, in kg, of all, days;label;site", *lines]))
    made = load(path)
    assert made.input_spec.shape == (1,)
    np.testing.assert_array_equal(rows(made)[:, 0], np.float32(70 + np.arange(N) / 4))
    # As many commas as semicolons in each row.
    path.write_text(
        "\n".join(["a, b;label;site,", *(f"1,{row};{'xy'[row % 2]};s," for row in range(N))])
    )
    with pytest.raises(DataError, match="column 'site' is missing, there are a, b, label, site,"):
        load(path)


def test_semicolons_in_the_cells_of_a_table_with_commas(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{row},{'xy'[row % 2]};z,s" for row in range(N)]
    path.write_text("\n".join(["age;years,label,site", *lines]))
    assert load(path, features="age;years").class_names == ("x;z", "y;z")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.234,5", "12", "-0,25"], [1234.5, 12, -0.25]),
        (["1,234", "2,5", "1e3"], [1.234, 2.5, 1000]),
        (["0,125", "0,250", "7"], [0.125, 0.25, 7]),
        ([" 1,5 ", "", "NA"], [1.5, None, None]),
    ],
)
def test_decimal_commas(cells, numbers, tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{row},5;{cells[row % 3]};{'xy'[row % 2]};s" for row in range(N)]
    path.write_text("\n".join(["first;second;label;site", *lines]))
    made = load(path, "first,second", missing="drop")
    wanted = [numbers[row % 3] for row in range(N) if numbers[row % 3] is not None]
    found = by_row(made)
    np.testing.assert_array_equal([found[row][1] for row in sorted(found)], np.float32(wanted))


@pytest.mark.parametrize("markers", ['"9,9"', '"9,90", -1', "9.9"])
def test_quoted_decimal_commas_and_their_markers(markers, tmp_path):
    """As Google Sheets writes them in German. Columns of texts with commas change nothing."""
    path = tmp_path / "a.csv"
    cells = [f"{row},5" if row % 4 else ("9,9" if row else "9,90") for row in range(N)]
    lines = [f'"{cells[row]}",{row / 8},"1,{row}",{"xy"[row % 2]},s' for row in range(N)]
    path.write_text("\n".join(["dose,age,codes,label,site", *lines]))
    there = [row for row in range(N) if row % 4]
    made = load(path, "dose,age", missing="drop", missing_markers=markers)
    assert made.notes["rows_left_out"] == 6
    read = np.concatenate([made.train.x, made.test.x])
    wanted = np.array([[row + 0.5, row / 8] for row in there], np.float32)
    np.testing.assert_array_equal(read[read[:, 0].argsort()], wanted)
    filled = load(path, "dose,age", impute="median", missing_markers=markers)
    assert filled.notes["missing_values_replaced"] == 6
    assert float(filled.input_spec.columns[0].missing[0]) in (9.9, -1)


def test_points_that_may_separate_thousands_are_refused(table, tmp_path):
    """Beside decimal commas, 12.500 and 950 would become 12.5 and 950."""
    table["income"] = [f"{12 + row}.500" if row % 2 else "950" for row in range(N)]
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False, sep=";", decimal=",")
    with pytest.raises(DataError) as caught:
        load(path)
    text = f"{path}: column 'income': 13.500 may be a number of thousands or one with decimals"
    assert str(caught.value).startswith(text)
    # Beside decimal points, they are decimals.
    table.to_csv(path, index=False, sep=";")
    np.testing.assert_array_equal(rows(load(path))[1, 1], np.float32(13.5))


def written(path, cells, separator, others):
    """A table with a column of each kind of cells."""
    lines = [
        separator.join([cells[row % 3], others[row % 3], "xy"[row % 2], "s"]) for row in range(N)
    ]
    path.write_text("\n".join([separator.join(["income", "age", "label", "site"]), *lines]))
    return path


@pytest.mark.parametrize("separator", ",;\t")
def test_thousands_without_any_decimals_are_refused(separator, tmp_path, warnings_again):
    """1.100 beside 950: who writes the zeros of decimals writes those of 950, too."""
    path = written(tmp_path / "a.csv", ["12.345", "950", "1.100"], separator, ["20", "30", "40"])
    with pytest.raises(DataError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: column 'income': 1.100 may be a number of thousands or one with decimals, "
        "because 950 has none; write 1100, or numbers with decimals and points in all cells"
    )
    # Another column, more digits, or decimals in all cells show what points are.
    for cells, others in (
        (["12.345", "950", "1.100"], ["20.5", "30", "40"]),
        (["12.345", "9500", "1.100"], ["20", "30", "40"]),
        (["12.345", "0.5", "1.100"], ["20", "30", "40"]),
    ):
        made = rows(load(written(path, cells, separator, others)))
        np.testing.assert_array_equal(made[:3], np.float32([cells, others]).T)
    assert "is read as a number" not in warnings_again.text
    # Nothing shows it, so what is read is said.
    for cells in (["12.345", "950", "1.234"], ["12.345", "950.000", "1.100"]):
        made = rows(load(written(path, cells, separator, ["20", "30", "40"])))
        np.testing.assert_array_equal(made[:3, 0], np.float32([12.345, 950, cells[2]]))
        assert (
            f"{path}: column 'income': 12.345 is read as a number with decimals; if it is one of "
            "thousands, write 12345" in warnings_again.text
        )


def test_commas_of_thousands_beside_decimal_points_are_refused(tmp_path):
    path = written(tmp_path / "a.csv", ["1,100", "950", "3,200"], ";", ["20.5", "30", "40"])
    with pytest.raises(DataError, match=r"'income': 1,100 may be .* others have decimal points"):
        load(path)
    # In a table with semicolons, they are decimals otherwise.
    made = rows(load(written(path, ["1,100", "950", "3,200"], ";", ["20", "30", "40"])))
    np.testing.assert_array_equal(made[:3, 0], np.float32([1.1, 950, 3.2]))


def test_numbers_that_tabs_leave_open_are_refused(tmp_path):
    path = tmp_path / "a.tsv"
    lines = [f"{row + 1},234\t{'xy'[row % 2]}\ts" for row in range(N)]
    path.write_text("\n".join(["income\tlabel\tsite", *lines]))
    with pytest.raises(DataError, match=r"row 2: '1,234' in column 'income' is not a finite num"):
        load(path)


@pytest.mark.parametrize("words", [("True", "False"), ("TRUE", "FALSE"), ("true", " false ")])
def test_booleans_are_numbers(words, table, tmp_path):
    wanted = expected(table)
    table.to_parquet(tmp_path / "a.parquet")
    np.testing.assert_array_equal(rows(load(tmp_path / "a.parquet"), 0), wanted)
    table["smoker"] = np.where(table["smoker"], *words)
    table.to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(rows(load(tmp_path / "a.csv")), wanted)
    table.loc[4, "smoker"] = "perhaps"
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match=r"row 2: .* in column 'smoker' is not a finite number"):
        load(tmp_path / "a.csv")


def filled(table, train, features):
    """The inputs of all rows, with medians and categories of those for training, by pandas."""
    known, expected = table.loc[train], {}
    for name in features:
        if table[name].dtype == object:
            expected |= {
                (name, value): table[name] == value
                for value in sorted(known[name].dropna().unique())
            }
        else:
            expected[name] = table[name].fillna(known[name].median())
        if known[name].isna().any():
            expected[name, None] = table[name].isna()
    return pd.DataFrame(list(expected.values())).T.to_numpy(np.float64).astype(np.float32)


def test_decimal_commas_gaps_categories_and_patients_of_one_table(tmp_path):
    """Against pandas. A column with gaps is one of floats there, in which the stage 2 is 2,0."""
    generator, patient = np.random.default_rng(4), np.repeat(np.arange(20), 3)
    table = pd.DataFrame(
        {
            "weight": generator.normal(70, 9, 60).round(1),
            "stage": generator.integers(1, 4, 60).astype(float),
            "smoker": generator.random(60) < 0.5,
            "patient": [f"P{number}" for number in patient],
            "label": np.array(["ill", "well"])[patient % 2],
            "site": np.array(["Basel", "Bern"])[patient // 10],
        }
    ).astype({"smoker": object})
    table.loc[[4, 23, 41], "stage"] = np.nan
    table.loc[[1, 8, 30], "weight"] = np.nan
    written = table.copy()
    written.loc[[2, 31], "weight"] = -9
    written.loc[[7, 50], "smoker"] = "unknown"
    path = tmp_path / "a.csv"
    written.to_csv(path, sep=";", decimal=",", index=False)
    assert "-9,0;" in path.read_text()
    options = {"categorical_columns": "stage", "group_column": "patient"}
    options["missing_markers"] = "-9, unknown"
    made = load(path, "weight,stage,smoker", impute="median", **options)
    train = [int(name.removeprefix("row ")) - 2 for name in made.train.ids]
    test = sorted({*range(60)} - {*train})
    assert set(table["patient"][train]).isdisjoint(table["patient"][test])
    table.loc[[2, 31], "weight"] = np.nan
    table.loc[[7, 50], "smoker"] = None
    table = table.astype({"stage": object, "smoker": float})
    expected = filled(table, train, ["weight", "stage", "smoker"])
    np.testing.assert_array_equal(rows(made), expected)
    assert made.input_spec.columns[1].categories == ("1", "2", "3")
    assert made.notes["missing_values_replaced"] == 10
    complete = load(path, "weight,stage,smoker", missing="drop", **options)
    found = np.concatenate([complete.train.ids, complete.test.ids]).tolist()
    whole = table.dropna().index
    assert sorted(found) == sorted(f"row {row + 2}" for row in whole)


def test_gaps_and_categories_of_an_excel_table(tmp_path):
    table = pd.DataFrame(
        {
            "smoker": ([True, False, False, None] * 6)[:N],
            "stage": ([1.0, 2.0, None] * 8)[:N],
            "consent": ([False, True, True, None, True] * 5)[:N],
            "label": ["ill", "well"] * (N // 2),
            "site": "Bern",
            "split": ["train"] * (N - 6) + ["test"] * 6,
        },
        dtype=object,
    )
    path = workbook(tmp_path / "a.xlsx", cells_of(table))
    features = ["smoker", "stage", "consent"]
    made = load(
        path,
        ",".join(features),
        categorical_columns="stage,consent",
        impute="median",
        missing="keep",
    )
    expected = filled(table.astype({"smoker": float}), range(N - 6), features)
    np.testing.assert_array_equal(rows(made), expected)
    assert [column.categories for column in made.input_spec.columns] == [
        None,
        ("1", "2"),
        ("False", "True"),
    ]


def test_names_that_are_whole_numbers_may_have_decimal_commas(table, tmp_path):
    """As columns of pandas with a missing value write them: 1,0 and 1.0 are the class 1."""
    table["label"], table["site"] = np.arange(len(table)) % 2 + 1.0, np.arange(len(table)) % 3 + 7.0
    table["patient"] = np.arange(len(table)) // 6 + 0.0
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False, sep=";", decimal=",")
    assert ";1,0;7,0;0,0" in path.read_text()
    table["site"] = 7.0
    table.to_csv(path, index=False, sep=";", decimal=",")
    made = load(path, group_column="patient")
    assert (made.client_ids, made.class_names) == (("7",), ("1", "2"))
    table.loc[2, "label"] = 2.5
    table.to_csv(path, index=False, sep=";", decimal=",")
    with pytest.raises(
        DataError, match=r"row 4: the label 2\.5 is not a whole number; .*regression"
    ):
        load(path)


@pytest.mark.parametrize("label", ["1,2", "1,0"])
def test_several_labels_are_no_number_with_a_decimal_comma(label, table, tmp_path):
    table["label"] = np.resize(["1", label, "2", "0"], len(table))
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False, sep=";")
    with pytest.raises(DataError, match=f"the label '{label}' holds several labels; several"):
        load(path)


def test_damaged_and_huge_archives(table, tmp_path, monkeypatch):
    path = tmp_path / "a.csv.gz"
    content = gzip.compress(table.to_csv(index=False).encode())
    for broken in (content[:-20], b"no archive", content[:40] + bytes(50)):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"a\.csv\.gz cannot be read: ") as caught:
            load(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(gzip.compress(bytes(10**6)))
    monkeypatch.setattr("tff_pcdd.data.sources._table_files.TABLE_BYTES", 10**5)
    with pytest.raises(DataError, match="has more than the 100000 bytes of a table"):
        load(path)


# Excel.


def cells_of(table):
    """The rows of a sheet: the names of the columns, and the values."""
    return [tuple(table), *table.astype(object).itertuples(index=False, name=None)]


@contextlib.contextmanager
def edited(path):
    """The first sheet of a workbook, which is written again afterwards."""
    book = openpyxl.load_workbook(path)
    yield book.worksheets[0]
    book.save(path)


def rewritten(path, change):
    """Changes the bytes of the first sheet of a workbook."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["xl/worksheets/sheet1.xml"] = change(files["xl/worksheets/sheet1.xml"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def workbook(path, *sheets):
    """Writes sheets of rows of cells, as Excel has them."""
    book = openpyxl.Workbook()
    for number, cells in enumerate(sheets):
        sheet = book.active if not number else book.create_sheet()
        for row in cells:
            sheet.append(row)
    book.save(path)
    return path


def test_hidden_sheets_are_not_read(table, tmp_path, warnings_again):
    """Who opens the file does not see them."""
    path = workbook(tmp_path / "a.xlsx", [("old",), (1,)], cells_of(table))
    with edited(path) as sheet:
        sheet.sheet_state = "hidden"
        sheet.parent.active = 1
    made = load(path)
    assert len(made.train) + len(made.test) == N
    assert "only the first of 2 sheets that is not hidden is read, 'Sheet1'" in warnings_again.text


def test_rows_that_a_filter_hides_are_read_and_counted(table, tmp_path, warnings_again):
    """As a csv file of the same sheet has them."""
    path = workbook(tmp_path / "a.xlsx", cells_of(table))
    assert len(rows(load(path))) == N
    assert "hides" not in warnings_again.text
    with edited(path) as sheet:
        sheet.auto_filter.ref = f"A1:E{N + 1}"
        for row in (4, 9):
            sheet.row_dimensions[row].hidden = True
    np.testing.assert_array_equal(rows(load(path)), expected(table))
    assert (
        f"{path}: 2 rows that a filter or the like hides, such as row 4, are read like all others; "
        "delete what does not belong to the data" in warnings_again.text
    )


def test_hidden_columns_that_are_read_are_named(table, tmp_path, warnings_again):
    path = workbook(tmp_path / "a.xlsx", cells_of(table))
    with edited(path) as sheet:
        sheet.column_dimensions["B"].hidden = True
        sheet.column_dimensions["J"].hidden = True
    np.testing.assert_array_equal(rows(load(path)), expected(table))
    assert f"{path}: column income is hidden, and is read like all others" in warnings_again.text


def test_the_value_of_merged_cells_is_that_of_all_their_rows(table, tmp_path, warnings_again):
    table = table.assign(site=np.repeat(["Basel", "Bern"], N // 2), stage=np.arange(N) // 4)
    path = workbook(tmp_path / "a.xlsx", cells_of(table))
    with edited(path) as sheet:
        for first in range(2, N + 2, N // 2):
            sheet.merge_cells(f"E{first}:E{first + N // 2 - 1}")
        for first in range(2, N + 2, 4):
            sheet.merge_cells(f"F{first}:F{first + 3}")
    assert sheet["E3"].value is None and sheet["F5"].value is None
    # Most of it is below the table; openpyxl takes half a minute to merge these.
    end = b'<mergeCell ref="B40:B1000000"/></mergeCells>'
    rewritten(path, lambda content: content.replace(b"</mergeCells>", end))
    made = load(path)
    wanted = table[["weight, in kg", "income", "smoker", "stage"]].to_numpy(float)
    np.testing.assert_array_equal(rows(made), wanted.astype(np.float32))
    assert made.client_ids == ("Basel", "Bern")
    assert made.class_counts().sum(axis=1).tolist() == [10, 10]
    text = f"{path}: 40 cells merged with one above, without a value of their own, get its value"
    assert text in warnings_again.text


def test_overlapping_merged_cells_of_a_damaged_workbook(table, tmp_path):
    """Thousands of them would take hours, and nobody knows which value counts."""
    cells = cells_of(table)
    for row in range(2, N + 1):
        cells[row] = (*cells[row][:1], None, *cells[row][2:])
    path = workbook(tmp_path / "a.xlsx", cells)
    merged = "".join(f'<mergeCell ref="B{row}:B{N + 1}"/>' for row in range(2, N))
    end = f"</sheetData><mergeCells>{merged}</mergeCells>".encode()
    rewritten(path, lambda content: content.replace(b"</sheetData>", end))
    made = rows(load(path, "smoker,income"))
    np.testing.assert_array_equal(made[:, 1], np.float32(table["income"][0]))


def test_names_of_columns_are_no_values_of_merged_cells(table, tmp_path):
    """A heading of two rows would become a sample of the class label at the site site."""
    cells = cells_of(table)
    cells.insert(1, ("a", "b", "c", None, None))
    path = workbook(tmp_path / "a.xlsx", cells)
    with edited(path) as sheet:
        sheet.merge_cells("D1:D2")
        sheet.merge_cells("E1:E2")
    with pytest.raises(DataError, match="row 2: the label is missing"):
        load(path)


def test_columns_below_a_name_merged_across_two_are_named(table, tmp_path, warnings_again):
    """The second one has no name, and is not used; it does not number the rows."""
    header = list(table)
    header[1] = None
    path = workbook(tmp_path / "a.xlsx", [header, *cells_of(table)[1:]])
    assert load(path).input_spec.shape == (2,)
    assert (
        f"{path}: column without a name is left out: nothing says what it holds"
        in warnings_again.text
    )


def test_a_title_above_the_table_is_no_row_of_names(tmp_path):
    named = [("age", "bmi", "label", "site"), (60, 20.5, "ill", "a")]
    workbook(tmp_path / "a.xlsx", [("Report of 2020",), *named])
    (tmp_path / "a.csv").write_text("Report of 2020,,,\nage,bmi,label,site\n60,20.5,ill,a\n")
    for file in ("a.xlsx", "a.csv"):
        with pytest.raises(DataError) as caught:
            load(tmp_path / file)
        assert str(caught.value) == (
            f"{tmp_path / file}: columns 2 and 3 have no name; the first row must hold the names "
            "of the columns"
        )


def test_excel_tables(table, tmp_path, warnings_again):
    path = tmp_path / "a.xlsx"
    header = [*table.columns, None]
    cells = [(*row, None) for row in cells_of(table)[1:]]
    empty = ()
    workbook(path, [empty, header, *cells[:5], empty, *cells[5:], empty], [("notes",)])
    made = load(path)
    names = [int(n.removeprefix("row ")) for part in (made.train, made.test) for n in part.ids]
    # Row numbers are those that Excel shows.
    assert sorted(names) == [*range(3, 8), *range(9, 9 + N - 5)]
    everything = np.concatenate([made.train.x, made.test.x])[np.argsort(names)]
    np.testing.assert_array_equal(everything, expected(table))
    assert "only the first of 2 sheets is read, 'Sheet'" in warnings_again.text
    workbook(path, [])
    with pytest.raises(DataError, match=r"a\.xlsx: the table is empty"):
        load(path)
    # Cells without a heading are not left out without a word.
    workbook(path, [header[:-2], *cells])
    with pytest.raises(
        DataError, match=r"a\.xlsx: column 'site' is missing, there are weight, in "
    ):
        load(path)


def test_ids_names_and_dates_of_excel(table, tmp_path, warnings_again):
    """Texts that look like numbers keep their zeros. Long numbers lose digits, which is said."""
    table["site"] = (["12345678901234567", 8012345678, 3.0, "007"] * 6)[:N]
    table["label"] = pd.to_datetime(["2026-01-02", "2026-03-04"] * (N // 2))
    path = workbook(tmp_path / "a.xlsx", cells_of(table))
    made = load(path)
    assert set(made.client_ids) == {"12345678901234567", "8012345678", "3", "007"}
    assert "first digits" not in warnings_again.text
    assert made.class_names == ("2026-01-02 00:00:00", "2026-03-04 00:00:00")
    np.testing.assert_array_equal(rows(made), expected(table))
    table["site"] = [70000000000000001, 70000000000000003] * (N // 2)
    load(workbook(path, cells_of(table)))
    assert "row 2: the site '70000000000000000.0' (and 23 others) has only" in warnings_again.text


@pytest.mark.parametrize("text", ["1.23457E+16", "1,23457E+16"])
def test_ids_that_a_spreadsheet_has_shortened(text, table, tmp_path, warnings_again):
    table.assign(site=[text, "4711"] * (N // 2)).to_csv(tmp_path / "a.csv", index=False)
    assert load(tmp_path / "a.csv").num_clients == 2
    assert f"row 2: the site '{text}' (and 11 others) has only the first digits of" in (
        warnings_again.text
    )


def test_formulas_without_values_are_named(table, tmp_path):
    """A program that computes nothing has written them; they are not missing."""
    cells = list(map(list, cells_of(table)))
    cells[5][1] = "=1+1"
    path = workbook(tmp_path / "a.xlsx", cells)
    with pytest.raises(DataError, match=r"row 6: the cell of column 'income' is the formula =1\+1"):
        load(path, impute="median")


def test_formulas_whose_value_is_an_empty_text_are_empty_cells(table, tmp_path):
    """As Excel stores =IF(A2>9,"x",""), in a column that is not used and as a missing number."""
    cells = [[*table, "note"], *([*row, "seen"] for row in cells_of(table)[1:])]
    cells[5][-1] = cells[8][1] = '=IF(A2>9,"x","")'
    path = workbook(tmp_path / "a.xlsx", cells)

    def emptied(content):
        formula = rb'(<c r="\w+")[^>]*>(<f>.*?</f>)<v ?/?>(</v>)?</c>'
        content, number = re.subn(formula, rb'\1 t="str">\2<v></v></c>', content)
        assert number == 2
        return content

    rewritten(path, emptied)
    with pytest.raises(DataError, match=r"row 9: column 'income' is missing \(it is 'None'\)"):
        load(path, "income")
    assert load(path, "income", impute="median").notes["missing_values_replaced"] == 1


def test_excel_tables_that_cannot_be_read(tmp_path, monkeypatch):
    path = workbook(tmp_path / "a.xlsx", [("a",)])
    content = path.read_bytes()
    for broken in (b"no archive", content[:-200], content[:300] + bytes(99)):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"cannot be read as an \.xlsx file: ") as caught:
            load(path)
        assert "\n" not in str(caught.value)
    monkeypatch.setattr("tff_pcdd.data.sources._table_files.TABLE_BYTES", 200)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", bytes(1000))
    with pytest.raises(DataError, match="has more than the 200 bytes of a table"):
        load(path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match=r"needs openpyxl \(the extra xlsx\), which is not inst"):
        load(path)


# Paths.


@pytest.fixture
def listed(tmp_path):
    """A table of images in two folders, as `HAM10000` has them: ids without folder and ending."""
    rows = []
    for number in range(12):
        name = f"ISIC_{number:07d}"
        write(tmp_path / f"part_{1 + number % 2}" / f"{name}.png", noise(number, 4, 4, 3))
        rows.append({"image_id": name, "label": "xy"[number % 3 % 2], "site": "ab"[number // 6]})
    return pd.DataFrame(rows)


def loaded_images(table, folder, **options):
    table.to_csv(folder / "a.csv", index=False)
    return by_row(load(folder / "a.csv", features=None, **options))


@pytest.mark.parametrize("pattern", ["{image_id}.png", "part_*/{image_id}.png", "*/{image_id}.png"])
def test_a_pattern_finds_images_in_several_folders(pattern, listed, tmp_path):
    found = loaded_images(listed, tmp_path, path_pattern=pattern)
    assert len(found) == 12
    for number, x in found.items():
        np.testing.assert_array_equal(x, noise(number, 4, 4, 3))


def test_patterns_of_several_columns(listed, tmp_path):
    for number, row in listed.iterrows():
        write(tmp_path / row["site"] / f"[{number}] {row['label']}.png", noise(number, 5, 5, 3))
    listed["number"] = [f"[{number}]" for number in range(12)]
    found = loaded_images(listed, tmp_path, path_pattern="{site}/{number} {label}.png")
    for number, x in found.items():
        np.testing.assert_array_equal(x, noise(number, 5, 5, 3))


def test_patterns_that_find_none_or_two_files(listed, tmp_path):
    with pytest.raises(DataError, match=r"lists ISIC_0000000.jpg and 11 more, not found in .* and"):
        loaded_images(listed, tmp_path, path_pattern="{image_id}.jpg")
    write(tmp_path / "copy" / "ISIC_0000004.png", noise(4, 4, 4, 3))
    with pytest.raises(DataError) as caught:
        loaded_images(listed, tmp_path, path_pattern="{image_id}.png")
    assert "row 6: there are " in str(caught.value)
    assert "copy/ISIC_0000004.png" in str(caught.value)
    assert "part_1/ISIC_0000004.png" in str(caught.value)
    assert len(loaded_images(listed, tmp_path, path_pattern="part_?/{image_id}.png")) == 12
    # A file beside the table is meant before those in folders.
    write(tmp_path / "ISIC_0000004.png", noise(99, 4, 4, 3))
    found = loaded_images(listed, tmp_path, path_pattern="{image_id}.png")
    np.testing.assert_array_equal(found[4], noise(99, 4, 4, 3))
    for pattern, reason in (("image.png", "names no column"), ("{image_id}*", "in folders only")):
        with refuses("path_pattern", reason):
            loaded_images(listed, tmp_path, path_pattern=pattern)
    with pytest.raises(DataError, match=r"column 'id' is missing.*path_pattern can name another"):
        loaded_images(listed, tmp_path, path_pattern="{id}.png")
    with refuses("path_pattern", "applies to images"):
        load(tmp_path / "a.csv", path_pattern="{image_id}.png")


def test_paths_of_windows(listed, tmp_path):
    listed["path"] = [f"part_{1 + n % 2}\\ISIC_{n:07d}.png" for n in range(12)]
    for number, x in loaded_images(listed, tmp_path).items():
        np.testing.assert_array_equal(x, noise(number, 4, 4, 3))
    listed.loc[3, "path"] = "..\\x.png"
    with pytest.raises(DataError, match=r"lists '\.\./x\.png', which is not a path below"):
        loaded_images(listed, tmp_path)
    # Elsewhere, a file may have such a name.
    write(tmp_path / "a\\b.png", noise(3, 4, 4, 3))
    listed.loc[3, "path"] = "a\\b.png"
    assert len(loaded_images(listed, tmp_path)) == 12


# Images in parquet files.


def stored(number, format="PNG"):
    file = io.BytesIO()
    Image.fromarray(noise(number, 6, 5, 3)).save(file, format)
    return file.getvalue()


def write_parquet(path, numbers, names=None, column="image", pairs=True):
    """As Hugging Face's datasets write images and the names of classes."""
    images = [{"bytes": stored(n), "path": f"{n}.png"} if pairs else stored(n) for n in numbers]
    labels = [n % 2 for n in numbers]
    hospitals = ["a" if n % 3 else "b" for n in numbers]
    features = {"label": {"names": names, "_type": "ClassLabel"}, column: {"_type": "Image"}}
    info = {"huggingface": json.dumps({"info": {"features": features}})}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_columns(
        path, info if names else None, label=labels, hospital=hospitals, **{column: images}
    )


def write_columns(file, metadata=None, **columns):
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    pyarrow.parquet.write_table(table, file)


@pytest.mark.parametrize("pairs", [True, False])
def test_parquet_files_may_hold_the_images(pairs, tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, range(20), ["zebra", "ant"], pairs=pairs)
    made = load(path, features=None, path_column="image", site_column="hospital")
    # The number of a class is its label.
    assert made.class_names == ("zebra", "ant")
    assert made.client_ids == ("a", "b")
    for part in (made.train, made.test):
        for x, y, name in zip(part.x, part.y, part.ids, strict=True):
            number = int(name.removeprefix("row "))
            np.testing.assert_array_equal(x, noise(number, 6, 5, 3))
            assert y == number % 2
    with pytest.raises(
        DataError, match="no column 'path' of image files; name it by path_column, s"
    ):
        load(path, features=None, site_column="hospital")


def test_vectors_in_cells_are_refused_with_the_way_on(tmp_path):
    table = pd.DataFrame({"x": [[1.0, 2.0]] * 4, "label": [0, 1] * 2, "site": ["a"] * 4})
    table.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError) as caught:
        load(tmp_path / "a.parquet", "x")
    assert str(caught.value).endswith(
        "a.parquet, row 0: '[1.0, 2.0]' in column 'x' is not a finite number; make a column of "
        "each number, or save the vectors as x of an .npz file"
    )


def test_labels_of_parquet_files_are_positions_of_their_names(tmp_path):
    """The names are texts, whatever they look like, and no label is beyond them."""
    path = tmp_path / "a.parquet"
    options = {"features": None, "path_column": "image", "site_column": "hospital"}
    for names in (["1.0", "2.0", "other"], ["1e1", "2.0"]):
        write_parquet(path, range(20), names)
        made = load(path, **options)
        numbers = [int(name.removeprefix("row ")) for name in made.train.ids]
        assert made.train.y.tolist() == [number % 2 for number in numbers]
    # The label 1 is that of the second name, also if the first one is called 1.
    write_parquet(path, range(20), ["1"])
    with pytest.raises(DataError, match="row 1: the label 1 is none of the 1 classes that the fil"):
        load(path, **options)


def test_images_in_parquet_files_may_be_larger_than_memory(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write_parquet(path, range(20))
    options = {"features": None, "path_column": "image", "site_column": "hospital"}
    whole = load(path, **options)
    monkeypatch.setattr("tff_pcdd.data.sources._image_files._IN_MEMORY", 100)
    made = load(path, **options)
    assert made.input_spec.kind == "image_file"
    read = data.normalize(made.train.x, made.input_spec)
    np.testing.assert_array_equal(read, data.normalize(whole.train.x, whole.input_spec))


def test_images_of_parquet_files_are_stored_once_and_removed_after_a_kill(tmp_path):
    """Two runs load a table that does not fit into memory, and the process is killed."""
    write_parquet(tmp_path / "a.parquet", range(20))
    program = f"""
import os, pathlib, signal
from tff_pcdd import data
from tff_pcdd.data.sources import _image_files

_image_files._IN_MEMORY = 0
options = {{"data_dir": "{tmp_path}/a.parquet", "path_column": "image", "site_column": "hospital"}}
made = [data.load_federation("table", "natural", **options) for _ in range(2)]
(folder,) = pathlib.Path(os.environ["TMPDIR"]).glob("tff_pcdd_images_*")
print(sum(path.is_file() for path in folder.rglob("*")), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, "20\n")
    waiting.until(lambda: not list(temporary.glob("tff_pcdd_*")))


def test_a_folder_of_parquet_files_has_the_parts_of_their_names(tmp_path):
    write_parquet(tmp_path / "train-00000-of-00002.parquet", range(10))
    write_parquet(tmp_path / "train-00001-of-00002.parquet", range(10, 20))
    write_parquet(tmp_path / "validation-00000-of-00001.parquet", range(20, 26))
    write_parquet(tmp_path / "test-00000-of-00001.parquet", range(26, 34))
    options = {"features": None, "path_column": "image", "site_column": "hospital"}
    made = load(tmp_path, **options)
    held = np.concatenate([client.validation for client in made.clients])
    found = sorted(x.tobytes() for x in made.train.x[held])
    assert found == sorted(noise(number, 6, 5, 3).tobytes() for number in range(20, 26))
    assert len(made.test) == 8
    assert len(made.train) == 26
    write_parquet(tmp_path / "more.parquet", range(40, 44))
    with pytest.raises(
        DataError, match=r"more\.parquet: the name says no part, train, val or test"
    ):
        load(tmp_path, **options)
    write_parquet(tmp_path / "more.parquet", range(40, 44), column="other")
    (tmp_path / "more.parquet").rename(tmp_path / "test-more.parquet")
    with pytest.raises(DataError, match=r"column 'other' is only in file test-more\.parquet"):
        load(tmp_path, **options)
    for path in list(tmp_path.glob("*.parquet")):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    write_parquet(tmp_path / "train" / "0000.parquet", range(10))
    write_parquet(tmp_path / "test" / "0000.parquet", range(10, 14))
    assert (len(load(tmp_path, **options).train), len(load(tmp_path, **options).test)) == (10, 4)
    write_parquet(tmp_path / "other" / "test" / "a.parquet", range(10))
    chosen = load(tmp_path / "other" / "test", **options)
    assert 0 < len(chosen.test) < 10


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("pairs", [True, False])
def test_rows_without_an_image_are_missing(pairs, first, tmp_path):
    images = [{"bytes": stored(n), "path": None} if pairs else stored(n) for n in range(12)]
    images[first], images[7] = None, {"bytes": None, "path": None} if pairs else b""
    write_columns(tmp_path / "a.parquet", path=images, label=[0, 1] * 6, site=["a"] * 12)
    with pytest.raises(DataError, match=rf"row {first}: the image is missing .* in 1 others"):
        load(tmp_path / "a.parquet", features=None)
    made = load(tmp_path / "a.parquet", features=None, missing="drop")
    assert made.notes["rows_left_out"] == 2
    found = by_row(made, 0)
    assert found.keys() == {*range(12)} - {first, 7}
    for row, x in found.items():
        np.testing.assert_array_equal(x, noise(row, 6, 5, 3))


def test_rows_without_a_path_are_left_out(listed, tmp_path):
    listed["path"] = [f"part_{1 + n % 2}/ISIC_{n:07d}.png" for n in range(12)]
    listed.loc[[3, 8], "path"] = [None, "NA"]
    with pytest.raises(DataError, match=r"row 5: the image is missing .*missing=drop leaves"):
        loaded_images(listed, tmp_path)
    assert loaded_images(listed, tmp_path, missing="drop").keys() == {*range(12)} - {3, 8}
    listed.loc[5, "image_id"] = ""
    options = {"missing": "drop", "path_pattern": "{image_id}.png"}
    assert loaded_images(listed, tmp_path, **options).keys() == {*range(12)} - {5}


def test_rows_without_an_image_are_named(tmp_path):
    images = [{"bytes": stored(0), "path": None}, {"bytes": None, "path": "x.png"}] * 4
    write_columns(tmp_path / "a.parquet", path=images, label=[0, 1] * 4, site=["a"] * 8)
    with pytest.raises(DataError, match=r"a\.parquet, row 1: the table does not hold the image"):
        load(tmp_path / "a.parquet", features=None)
