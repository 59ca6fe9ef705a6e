"""Rows, names and columns as people bring them: what is missing, alike, or no input."""

import unicodedata

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
from sklearn import datasets

from tests.data.refusals import refuses
from tff_pcdd import data
from tff_pcdd.data.sources._columns import has_decimal_commas
from tff_pcdd.errors import DataError, SettingError


@pytest.fixture
def table():
    generator = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "pressure": generator.normal(120, 10, 60),
            "pulse": generator.normal(70, 9, 60),
            "label": ["ill", "well", "well"] * 20,
            "site": np.repeat(["Oslo", "Bergen", "Tromsø"], 20),
        }
    )


def load(table, **options):
    return data.from_dataframe(table, features=["pressure", "pulse"], **options)


def loaded_file(table, path, features="pressure,pulse", **options):
    """The federation of the table in a csv or parquet file."""
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path, index=False)
    return read(path, feature_columns=features, **options)


def read(path, **options):
    return data.load_federation("table", "natural", data_dir=str(path), **options)


# Missing values.


@pytest.mark.parametrize("marker", ["NA", "N/A", "?", "NULL", "None", "#N/A", "", " . ", r"\N"])
@pytest.mark.parametrize("column", ["label", "site"])
def test_missing_labels_and_sites_are_no_names(column, marker, table, tmp_path):
    rows = [4, 17, 33]
    table.loc[rows, column] = marker
    for suffix, first in ((".csv", 6), (".parquet", 4)):
        path = tmp_path / f"a{suffix}"
        with pytest.raises(DataError) as caught:
            loaded_file(table, path)
        where = f"{path}, row {first}: the {column} is missing (it is {marker!r}, and in 2 others)"
        assert str(caught.value).startswith(where)
        made = loaded_file(table, path, missing="drop")
        assert len(made.train) + len(made.test) == 57
        assert made.notes["rows_left_out"] == 3
        expected = table.drop(index=rows)
        assert set(made.class_names) == set(expected["label"])
        numbers = {int(name.removeprefix("row ")) - first + 4 for name in made.train.ids}
        assert numbers.isdisjoint(rows)
    if marker.strip():
        kept = loaded_file(table, tmp_path / "a.csv", missing="keep")
        names = kept.class_names if column == "label" else kept.client_ids
        assert marker.strip() in names


@pytest.mark.parametrize(
    ("text", "warned"),
    [("Unknown", True), ("(null)", True), ("--", True), ("-1", False), ("north", False)],
)
def test_labels_that_may_say_that_they_are_missing(text, warned, table, warnings_again):
    table.loc[[4, 17], "label"] = text
    assert text in load(table).class_names
    said = f"the label {text!r} may say that it is missing; if so, missing_markers={text}"
    assert (said in warnings_again.text) == warned


def test_markers_of_ones_own(table, tmp_path):
    """As in the tables of heart diseases, in which -9 and ? stand for what is missing."""
    table["pulse"] = table["pulse"].round(1).astype(object)
    table.loc[[2, 5], "pulse"] = ["-9", "-9.0"]
    table.loc[7, "pulse"] = "?"
    path = tmp_path / "a.csv"
    with pytest.raises(
        DataError, match=r"row 9: column 'pulse' is missing \(it is '\?'\); missing=drop"
    ):
        loaded_file(table, path)
    made = loaded_file(table, path, missing="drop", missing_markers="-9, -99")
    assert made.notes["rows_left_out"] == 3
    everything = np.concatenate([made.train.x, made.test.x])
    assert everything.min() > 0
    assert len(everything) == 57


def test_markers_with_decimals_and_without_a_value(table):
    """-9.5 is a number with decimals, and inf is none that a model could take."""
    table.loc[[2, 5], "pulse"] = -9.5
    options = {"missing_markers": "-9.5,inf"}
    made = load(table, missing="drop", **options)
    assert made.notes["rows_left_out"] == 2
    made = load(table, impute="median", **options)
    assert made.notes["missing_values_replaced"] == 2
    assert made.input_spec.columns[1].missing == ("-9.5",)


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"features": ["pulse", "presure"]}, "; did you mean pressure?"),
        ({"features": "all", "label_column": "lable"}, "; did you mean label?"),
        ({"features": "pulse", "categorical_columns": "puls"}, "; did you mean pulse?"),
        ({"features": "all", "categorical_columns": ["puls"]}, "; did you mean pulse?"),
        ({"features": "all", "categorical": "pulse"}, "; did you mean categorical_columns?"),
        ({"features": "all", "group_column": "doctor"}, "; group_column can name another"),
    ],
)
def test_misspelled_columns_and_options_get_a_suggestion(options, end, table):
    with pytest.raises((DataError, SettingError)) as caught:
        data.from_dataframe(table, **options)
    assert str(caught.value).endswith(end)


def test_columns_may_be_lists(table):
    table["stage"], table["patient"], table["eye"] = [1, 2, 3] * 20, np.arange(60) // 2, 1
    lists = {"categorical_columns": ["stage"], "group_column": ("patient", "eye")}
    texts = {"categorical_columns": "stage", "group_column": "patient,eye"}
    one, other = (
        data.from_dataframe(table, features=["pulse", "stage"], **options)
        for options in (lists, texts)
    )
    assert one.train.x.shape[1] == 4
    np.testing.assert_array_equal(one.train.x, other.train.x)
    np.testing.assert_array_equal(one.train.groups, other.train.groups)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_markers_that_are_equal_in_float32(suffix, table, tmp_path):
    """9.9 in a column of float32 is 9.899999618…, and 16777217 is 16777216 there."""
    table["pulse"] = table["pulse"].astype(np.float32)
    table.loc[[2, 5, 9], "pulse"] = np.float32(9.9)
    table["pressure"] = (table["pressure"] * 1e5).round().astype(int)
    table.loc[[9, 11], "pressure"] = 2**24 + 1
    path = tmp_path / f"a{suffix}"
    made = loaded_file(table, path, missing="drop", missing_markers="9.9,16777216")
    assert made.notes["rows_left_out"] == 4
    filled = loaded_file(table, path, impute="median", missing_markers="9.9,16777216")
    assert filled.notes["missing_values_replaced"] == 5


def test_missing_labels_of_arrays():
    x = np.random.default_rng(0).normal(size=(20, 3))
    labels = np.array(["a", "b"] * 10, dtype=object)
    labels[[3, 8]] = None
    with pytest.raises(DataError, match=r"arrays, row 3: the label is missing .*in 1 others"):
        data.from_arrays(x, labels, ["s"] * 20)
    made = data.from_arrays(x, labels, ["s"] * 20, missing="drop")
    assert len(made.train) + len(made.test) == 18
    everything = np.concatenate([made.train.x, made.test.x])
    np.testing.assert_allclose(
        np.sort(everything, axis=0), np.sort(np.delete(x, [3, 8], axis=0), axis=0), rtol=1e-6
    )


# What replaces missing features, and categories.


def rows_of(part):
    """The rows of the samples in a data frame."""
    return [int(name.removeprefix("row ")) for name in part.ids]


@pytest.fixture
def gaps(table):
    """A table with missing numbers and categories, whose test part is given."""
    generator = np.random.default_rng(5)
    table["pulse"] = table["pulse"].round(1).astype(object)
    table["pain"] = np.array(["none", "dull", "sharp"])[generator.integers(0, 3, 60)].astype(object)
    table["stage"] = generator.integers(1, 12, 60).astype(object)
    table["split"] = np.where(np.arange(60) % 4 == 3, "test", "train")
    table.loc[[2, 3, 17], "pulse"] = ["?", -9, "-9.0"]
    table.loc[[4, 7], "pain"] = ["NA", ""]
    table.loc[[11, 15], "stage"] = "?"  # of the test part
    return table


FEATURES = ["pressure", "pulse", "pain", "stage"]
FILLING = {"categorical_columns": "pain, stage", "missing_markers": "-9", "impute": "median"}


@pytest.mark.parametrize("impute", ["median", "mean"])
@pytest.mark.parametrize("kind", [".csv", ".parquet", "frame"])
def test_missing_numbers_and_categories(impute, kind, gaps, tmp_path, warnings_again):
    """Against pandas: medians, means and categories are those of the training part."""
    options, first = {**FILLING, "impute": impute}, 0
    if kind == "frame":
        made = data.from_dataframe(gaps, features=FEATURES, **options)
    else:
        first = 2 if kind == ".csv" else 0
        table = gaps.astype(dict.fromkeys(("pulse", "stage"), str))
        made = loaded_file(table, tmp_path / f"a{kind}", features=",".join(FEATURES), **options)
    train = gaps["split"] == "train"
    pulse = pd.to_numeric(gaps["pulse"], errors="coerce").replace(-9, np.nan)
    fill = getattr(pulse[train], impute)()
    pain = gaps["pain"].replace({"NA": None, "": None})
    stage = pd.to_numeric(gaps["stage"], errors="coerce")
    stages = sorted(stage[train].dropna().unique())
    expected = {
        "pressure": gaps["pressure"],
        "pulse": pulse.fillna(fill),
        "pulse is missing": pulse.isna(),
        **{f"pain = {name}": pain == name for name in ("dull", "none", "sharp")},
        "pain is missing": pain.isna(),
        # No training sample lacks it.
        **{f"stage = {number:.0f}": stage == number for number in stages},
    }
    for part in (made.train, made.test):
        rows = [row - first for row in rows_of(part)]
        found = pd.DataFrame(expected).iloc[rows].astype(np.float32)
        np.testing.assert_array_equal(part.x, found.to_numpy())
    assert data.encoding.features(made.input_spec.columns) == list(expected)
    assert made.input_spec.columns[1].fill == pytest.approx(fill)
    assert made.notes["missing_values_replaced"] == 7
    text = "column 'pulse' in 3, column 'pain' in 2, column 'stage' in 2; "
    assert f"missing: {text}impute={impute} replaces the values" in warnings_again.text


def test_missing_features_are_refused_or_left_out_without_impute(gaps):
    options = {"features": FEATURES, "categorical_columns": "pain,stage"}
    with pytest.raises(DataError, match=r"row 2: column 'pulse' is missing \(it is '\?'\); also"):
        data.from_dataframe(gaps, **options)
    numbers = {"features": ["pulse"], "missing_markers": "-9"}
    gaps.loc[2, "pulse"] = 70
    with pytest.raises(DataError, match=r"row 3: column 'pulse' is missing \(it is '-9', and in 1"):
        data.from_dataframe(gaps, **numbers)
    gaps.loc[[3, 17], "pulse"] = 70
    with pytest.raises(DataError, match=r"row 4: column 'pain' is missing .*impute=median repl"):
        data.from_dataframe(gaps, **options)
    made = data.from_dataframe(gaps, **options, missing="drop")
    assert len(made.train) + len(made.test) == 56
    # Texts for missing values are names then.
    gaps.loc[7, "pain"] = "NA"
    gaps.loc[8, "pain"] = "?"
    gaps["stage"] = "n/a"
    gaps.loc[0, "stage"] = "3"
    made = data.from_dataframe(gaps, **options, missing="keep")
    assert made.input_spec.columns[2].categories == ("?", "NA", "dull", "none", "sharp")
    assert made.input_spec.columns[3].categories == ("3", "n/a")


LABELS_TOO = (
    "dataframe, row 21: the label is missing (it is '?'); also missing: the site in 2 rows, "
    "column 'pulse' in 3 rows, column 'pain' in 2 rows, column 'stage' in 2 rows; missing=drop "
    "leaves 9 of 60 rows out, missing=keep takes texts for names, and impute=median "
    "replaces features"
)
FEATURES_ONLY = (
    "dataframe, row 2: column 'pulse' is missing (it is '?', and in 2 others); also missing: "
    "column 'pain' in 2 rows, column 'stage' in 2 rows; missing=drop leaves 7 of 60 rows out, and "
    "impute=median replaces the values"
)


@pytest.mark.parametrize(("labels", "expected"), [(True, LABELS_TOO), (False, FEATURES_ONLY)])
def test_all_columns_that_lack_values_are_named_at_once(labels, expected, gaps):
    """Rows 2, 3, 4, 7, 11, 15 and 17 lack features, and rows 4, 21 and 30 labels or sites."""
    if labels:
        gaps.loc[21, "label"], gaps.loc[[4, 30], "site"] = "?", None
    options = {"categorical_columns": "pain,stage", "missing_markers": "-9"}
    with pytest.raises(DataError) as caught:
        data.from_dataframe(gaps, features=FEATURES, **options)
    assert str(caught.value) == expected


def test_a_refusal_of_many_columns_stays_readable(table):
    for number in range(12):
        table[f"x{number}"] = np.random.default_rng(number).normal(size=60)
        table.loc[number, f"x{number}"] = np.nan
    with pytest.raises(DataError) as caught:
        data.from_dataframe(table, features="all")
    message = str(caught.value)
    assert "row 0: column 'x0' is missing (it is 'nan'); also missing: column 'x1' in" in message
    assert "column 'x8' in 1 row and 3 more columns; missing=drop leaves 12 of 60 rows" in message


def test_columns_that_hold_no_numbers_are_named_at_once(table):
    table["smoker"], table["ward"], table["bed"] = "no", "A", "A1"
    table.loc[0, "pulse"] = np.nan
    with pytest.raises(DataError) as caught:
        data.from_dataframe(table, features="all", categorical_columns="ward")
    assert str(caught.value) == (
        "dataframe, row 0: 'no' in column 'smoker' is not a finite number; write plain numbers; "
        "categorical_columns can name a column of texts; column bed too"
    )


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ([f"Pain in the left knee since {n} days." for n in range(60)], "embeddings, see docs/how"),
        (["01.02.2024", "2024-2-28 12:30"] * 30, "days since another date"),
        (pd.date_range("2024-01-01", periods=60), "days since another date"),
        # Missing ones are of any kind.
        (["2024-01-31", "NA", None] * 20, "days since another date"),
        # Names of categories, also long ones, repeat.
        (["pain in the left knee", "pain in the right knee"] * 30, "can name a column of texts"),
    ],
)
def test_texts_and_dates_get_advice_of_their_own(values, hint, table):
    table["note"] = values
    with pytest.raises(DataError, match=f"in column 'note' is not a finite number; .*{hint}"):
        data.from_dataframe(table, features="all")


def test_sentences_are_no_categories(table):
    table["note"] = [f"Pain in the left knee since {number} days." for number in range(60)]
    options = {"features": "all", "categorical_columns": "note"}
    with pytest.raises(DataError, match=r"a category of no training sample; .*embeddings, see doc"):
        data.from_dataframe(table, **options)
    many = pd.concat([table] * 21, ignore_index=True)
    many["note"] = [f"Pain in the left knee since {number} days." for number in range(1260)]
    with pytest.raises(DataError, match=r"categories, more than 1000; .*embeddings, see docs/how"):
        data.from_dataframe(many, **options)


def test_rows_without_a_label_are_left_out_beside_impute(gaps):
    gaps.loc[[2, 21], "label"] = "?"
    with pytest.raises(DataError, match="row 2: the label is missing"):
        data.from_dataframe(gaps, features=FEATURES, **FILLING)
    made = data.from_dataframe(gaps, features=FEATURES, **FILLING, missing="drop")
    assert len(made.train) + len(made.test) == 58
    # Row 2 lacked its pulse, too.
    assert (made.notes["rows_left_out"], made.notes["missing_values_replaced"]) == (2, 6)


def test_a_category_of_the_test_part_only(gaps, warnings_again):
    gaps.loc[3, "pain"] = "burning"
    made = data.from_dataframe(gaps, features=FEATURES, **FILLING)
    text = (
        "1 validation or test samples have categories of column 'pain' that no training sample has"
    )
    assert f"{text}, such as 'burning' in row 3; they are taken for missing" in warnings_again.text
    row = rows_of(made.test).index(3)
    names = data.encoding.features(made.input_spec.columns)
    assert made.test.x[row, names.index("pain is missing")] == 1
    assert not made.test.x[row, [name.startswith("pain =") for name in names]].any()
    options = {"features": ["pain"], "categorical_columns": "pain"}
    with pytest.raises(DataError, match=r"row 3: 'burning' in column 'pain' is a category of no"):
        data.from_dataframe(gaps, **options, missing="drop")


def test_columns_that_cannot_be_encoded(gaps):
    with pytest.raises(DataError, match=r"row 0: '.*' in column 'pain' .*categorical_columns can"):
        data.from_dataframe(gaps, features=["pain"], impute="median")
    gaps["empty"] = [None, None, None, 1.0] * 15
    with pytest.raises(DataError, match="'empty' has no value in any training sample; leave it"):
        data.from_dataframe(
            gaps, features=["empty", "pulse"], **FILLING | {"categorical_columns": None}
        )
    many = pd.DataFrame({"id": np.arange(1500), "label": [0, 1] * 750, "site": 0})
    with pytest.raises(DataError, match="'id' has 1200 categories, more than 1000; leave it out"):
        data.from_dataframe(many, features=["id"], categorical_columns="id", impute="median")
    for setting, options, reason in (
        ("impute", {"impute": "median"}, "needs features"),
        ("categorical_columns", {"categorical_columns": "pain"}, "needs features"),
        ("impute", {"impute": "guess", "features": "pulse"}, "choose one of median, mean"),
        (
            "categorical_columns",
            {"features": "pulse", "categorical_columns": "pain"},
            "'pain' is not one of features",
        ),
        (
            "categorical_columns",
            {"features": "all", "categorical_columns": "label"},
            "'label' is not one of features",
        ),
    ):
        with refuses(setting, reason):
            data.from_dataframe(gaps, **options)


def test_plain_tables_have_the_same_hashes_whatever_is_declared_missing(table):
    """So that runs of before are continued."""
    made = load(table)
    assert load(table, missing="drop", missing_markers="-9").fingerprint == made.fingerprint
    assert load(table, impute="median").fingerprint != made.fingerprint


# Names.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cat", "cat"),
        ("big cat", "big_cat"),
        ("big  cat", "Big-Cat"),
        ("\ufb01sh", "fish"),
        ("site 1", "site 01"),
        ("7", "007"),
        ("7", "7.0"),
        ("Crohn's", "Crohn\u2019s"),
        ("Berlin - Mitte", "Berlin \u2013 Mitte"),
    ],
)
def test_names_that_are_alike_are_warned_of_and_joined(one, other, table, warnings_again):
    table["label"] = [one, other, "dog"] * 20
    table["site"] = np.repeat([one, other, "B"], 20)
    made = load(table)
    assert (made.num_classes, made.num_clients) == (3, 3)
    for kind in ("classes", "sites"):
        assert f"dataframe: {kind} " in warnings_again.text
    assert warnings_again.text.count("differ only in case, blanks or the like") == 2
    made = load(table, join_names=True)
    assert (made.num_classes, made.num_clients) == (2, 2)
    assert made.train.x.shape[0] + made.test.x.shape[0] == 60


@pytest.mark.parametrize(
    ("spellings", "kept"),
    [(["CAT", "cat", "cat"], "cat"), (["cat", "CAT"], "cat"), (["CAT", "cat"], "CAT")],
)
def test_the_most_frequent_of_similar_names_stays(spellings, kept, table, warnings_again):
    """Of equally frequent ones, the first one."""
    table["label"] = np.resize([*spellings, "dog"], 60)
    table["site"] = np.resize(spellings, 60)
    made = load(table, join_names=True)
    assert made.class_names == tuple(sorted([kept, "dog"]))
    assert made.client_ids == (kept,)
    (other,) = {*spellings} - {kept}
    for kind in ("class", "site"):
        said = f"dataframe: names are joined under the most frequent one: {kind} '{other}' to "
        assert f"{said}'{kept}'" in warnings_again.text


@pytest.mark.parametrize(
    ("one", "other"), [("1", "-1"), ("1.05", "1.5"), ("1.1", "1.10"), ("a1", "a10"), ("v1", "v1.0")]
)
def test_other_names_are_not_alike(one, other, table, warnings_again):
    table["site"] = np.repeat([one, other, "B"], 20)
    assert load(table, join_names=True).num_clients == 3
    assert "differ only" not in warnings_again.text


@pytest.mark.parametrize("options", [{}, {"feature_columns": "pulse"}])
def test_rows_of_which_all_are_left_out(options, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("path,pulse,label,site\n" + "a.png,70,,Oslo\n" * 3)
    with pytest.raises(DataError, match=r"no row is left; missing: the label in 3$"):
        read(path, missing="drop", **options)


# Columns that are no inputs.


def test_all_columns_leave_out_what_says_nothing_of_a_sample(table, tmp_path, warnings_again):
    table["constant"] = 3.5
    table["patient"] = np.random.default_rng(0).permutation(60) + 1000
    path = tmp_path / "a.csv"
    table.to_csv(path)  # with the index, in a column without a name
    assert read(path, feature_columns="all").input_spec.shape == (2,)
    text = warnings_again.text
    assert "column constant is left out: constant" in text
    assert "columns without a name, patient are left out: running numbers" in text
    named = loaded_file(table, path, features="pulse,patient")
    assert named.input_spec.shape == (2,)


@pytest.mark.parametrize("missing", ["refuse", "drop", "keep"])
def test_all_columns_leave_out_those_without_a_value(table, missing, warnings_again):
    """Also where rows with missing values are left out: all of them would be."""
    expected = load(table)
    table["notes"] = [None, "NA", ""] * 20
    made = data.from_dataframe(table, features="all", missing=missing)
    np.testing.assert_array_equal(made.train.x, expected.train.x)
    assert "column notes is left out: without any value" in warnings_again.text
    table.loc[3, "notes"] = "1"
    with pytest.raises(DataError, match=r"row 0: column 'notes' is missing .*and in 58 others\)"):
        data.from_dataframe(table, features="all")


def test_empty_columns_beside_a_table_are_no_columns(table, tmp_path, warnings_again):
    """As spreadsheets write them; one with values stays, and is named."""
    path = tmp_path / "a.csv"
    expected = loaded_file(table, path)
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line},,\n" for line in lines))
    np.testing.assert_array_equal(read(path, feature_columns="all").train.x, expected.train.x)
    assert not warnings_again.text
    path.write_text("".join(f"{line},{number or ''},\n" for number, line in enumerate(lines)))
    np.testing.assert_array_equal(read(path, feature_columns="all").train.x, expected.train.x)
    assert "column without a name is left out: running numbers" in warnings_again.text


def test_names_of_columns_that_repeat_are_refused(table):
    """Of two columns 1 and "1", one would be lost."""
    numbers = table.assign(**{"1": 1.5})
    numbers[1] = 0.5
    twice = pd.concat([table, table[["pulse"]]], axis=1)
    for name, repeated in (("1", numbers), ("pulse", twice)):
        with pytest.raises(DataError, match=f"dataframe: column '{name}' occurs twice"):
            load(repeated)


def test_names_of_columns_are_the_same_in_both_forms_of_unicode(table, tmp_path):
    """Files of macOS may hold ö as two characters; a setting that is typed holds one."""
    named = table.rename(columns={"pulse": "größe", "label": "übel", "site": "ört"})
    plain = loaded_file(table, tmp_path / "plain.csv")
    for form, other in (("NFC", "NFD"), ("NFD", "NFC")):
        stored = named.rename(columns=lambda name: unicodedata.normalize(form, name))  # noqa: B023
        size, label, site = (
            unicodedata.normalize(other, name) for name in ("größe", "übel", "ört")
        )
        columns = {"label_column": label, "site_column": site}
        for features in (f"pressure,{size}", "all"):
            for file in (f"{form}.csv", f"{form}.parquet"):
                found = loaded_file(stored, tmp_path / file, features, **columns)
                np.testing.assert_array_equal(found.train.x, plain.train.x)
            found = data.from_dataframe(stored, features=features, **columns)
            np.testing.assert_array_equal(found.train.x, plain.train.x)


def test_columns_that_repeat_are_refused_alike_in_every_table(tmp_path):
    arrow = pyarrow.table([["a"], [1], [2]], names=["site", "label", "label"])
    pyarrow.parquet.write_table(arrow, tmp_path / "table.parquet")
    (tmp_path / "table.csv").write_text("site,label,label\na,1,2\n")
    for file in ("table.csv", "table.parquet"):
        with pytest.raises(DataError) as caught:
            read(tmp_path / file)
        assert str(caught.value) == f"{tmp_path / file}: column 'label' occurs twice"


def test_a_column_that_gives_the_answer_away_is_named(table, warnings_again):
    table["pulse"] = np.where(table["label"] == "ill", 1.0, 2.0) + table["pressure"] / 1000
    load(table)
    assert "the class of every sample follows from column 'pulse' alone" in warnings_again.text
    assert "'pressure'" not in warnings_again.text


def test_numbers_that_float32_does_not_tell_apart(table, warnings_again):
    """Unix seconds of a few minutes."""
    table["pulse"] = 1_700_000_000 + np.arange(60) * 3.0
    made = load(table)
    rounded = len(np.unique(table["pulse"].astype(np.float32)))
    assert rounded < 5
    text = f"the 60 different numbers of column 'pulse' become {rounded} in float32; their mean is"
    assert f"dataframe: {text} subtracted before" in warnings_again.text
    train, test = (table.iloc[rows_of(part)]["pulse"] for part in (made.train, made.test))
    for part, expected in ((made.train, train), (made.test, test)):
        offset = made.input_spec.columns[1].offset
        np.testing.assert_allclose(part.x[:, 1] + np.float64(offset), expected, rtol=0, atol=1e-4)
    assert made.input_spec.mean[1] == pytest.approx(train.mean() - offset, abs=0.1)
    assert abs(made.input_spec.mean[1]) < 0.1
    assert made.input_spec.std[1] == pytest.approx(train.std(ddof=0), rel=1e-3)


def test_a_category_that_gives_the_answer_away_is_named(table, warnings_again):
    """Its codes are no intervals of the classes; nor is a treatment that only the ill have."""
    table["code"] = [1, 2, 4] * 20
    table["dose"] = np.where(table["label"] == "ill", table["pulse"], np.nan)
    options = {"features": ["pressure", "code", "dose"], "impute": "median"}
    data.from_dataframe(table, **options)
    data.from_dataframe(table, **options, categorical_columns="code", name="again")
    for place in ("dataframe", "again"):
        for name in ("code", "dose"):
            text = f"{place}: the class of every sample follows from column '{name}' alone"
            assert text in warnings_again.text
    assert "'pressure'" not in warnings_again.text


@pytest.mark.parametrize(
    ("sizes", "exceptions", "warned"),
    [
        ((200, 200), (1, 0), True),
        ((200, 200), (2, 1), True),
        ((200, 200), (3, 0), False),  # 98.5 % of a class
        ((60, 600), (1, 0), False),
        ((10, 990), (10, 0), False),  # All samples have the same value.
    ],
)
def test_a_column_that_gives_the_answer_away_with_exceptions(
    sizes, exceptions, warned, warnings_again
):
    labels = np.repeat(["ill", "well"], sizes)
    found = np.repeat([1, 2], [sizes[0] - exceptions[0], exceptions[0] + sizes[1]])
    found[len(found) - exceptions[1] :] = 1
    pulse = np.random.default_rng(0).normal(70, 9, len(labels))
    columns = {"found": found, "pulse": pulse, "label": labels, "site": "Jena"}
    data.from_dataframe(pd.DataFrame(columns), features="found,pulse")
    text = f"dataframe: the class of all samples but {sum(exceptions)} follows from column 'found'"
    assert (f"{text} alone; is it a result of the label" in warnings_again.text) == warned
    assert warned or "follows from" not in warnings_again.text


# Columns of all kinds.


def test_numbers_are_columns_of_a_data_frame():
    """As pandas names those of an array."""
    generator = np.random.default_rng(0)
    table = pd.DataFrame(generator.normal(size=(40, 2)))
    table["label"], table["site"] = ["ill", "well"] * 20, np.repeat(["a", "b"], 20)
    for features in ("all", [0, 1]):
        found = data.from_dataframe(table, features=features)
        assert [column.name for column in found.input_spec.columns or ()] in ([], ["0", "1"])
        assert found.train.x.shape[1] == 2


def test_markers_count_also_where_texts_are_names():
    """A site may be called NA, and -9 stand for a missing number."""
    generator = np.random.default_rng(0)
    pulse = generator.normal(70, 9, 60)
    table = pd.DataFrame({"pulse": pulse, "age": np.arange(60.0) ** 2})
    table["label"], table["site"] = ["ill", "well"] * 30, np.repeat(["NA", "b"], 30)
    table.loc[::5, "pulse"] = -9
    options = {"features": ["pulse", "age"], "impute": "median", "missing_markers": "-9"}
    found = data.from_dataframe(table, missing="keep", **options)
    assert list(found.client_ids) == ["NA", "b"]
    # The number, and whether it is missing.
    assert found.train.x.shape[1] == 3
    assert found.train.x.min() > -9


def test_points_before_zeros_do_not_separate_thousands():
    """0.500 beside 0,5 is half, or an error, and not 500."""
    assert not has_decimal_commas(["0,5", "0.500"], ";")
    assert has_decimal_commas(["0,5", "1.500", "12.345.678,9"], ";")


@pytest.mark.parametrize("name", ["Pat.-Nr.", "patient number", "PATIENT_NO"])
def test_numbers_of_patients_are_no_inputs(name, table, warnings_again):
    table[name] = np.repeat(np.arange(1000, 1030), 2)
    made = data.from_dataframe(table, features="all")
    assert made.input_spec.shape == (2,)
    assert f"column {name} is left out: ids by their names" in warnings_again.text


@pytest.mark.parametrize("missing", ["refuse", "drop", "keep"])
def test_texts_of_patients_are_no_inputs(missing, table, tmp_path, warnings_again):
    """As numbers of patients: they are no inputs, and the same advice is given."""
    expected = load(table)
    numbers = np.repeat(np.arange(30), 2)
    table["patient_id"] = [f"P{1000 + number}" for number in numbers]
    table.loc[4, "patient_id"] = None
    for made in (
        data.from_dataframe(table, features="all", missing=missing),
        loaded_file(table, tmp_path / "a.csv", features="all", missing=missing),
    ):
        np.testing.assert_array_equal(made.train.x, expected.train.x)
    assert "column patient_id is left out: ids by their names" in warnings_again.text
    assert "group_column=patient_id keeps them in one part" in warnings_again.text
    # As inputs, they have to be named.
    chosen = {"features": "all", "categorical_columns": "patient_id", "impute": "median"}
    assert data.from_dataframe(table, **chosen).input_spec.shape[0] > 2
    with pytest.raises(DataError, match=r"'P1000' in column 'patient_id' is not a finite number"):
        data.from_dataframe(table, features=["pulse", "patient_id"])


def test_a_number_that_hides_all_others_is_named(table, warnings_again):
    """The standard deviation of 59 numbers, and with 9999 among them."""
    numbers = np.random.default_rng(3).normal(120, 10, 60)
    assert 10 * np.std(numbers[:59]) < np.std([*numbers[:59], 9999])
    table.loc[59, "pressure"] = 9999.0
    load(table)
    said = (
        "dataframe, row 59: 9999 in column 'pressure' is so far from the others that a model can "
        "hardly tell these apart; correct it, or if it means that the value is missing: "
        "missing_markers=9999"
    )
    assert said in warnings_again.text
    # The advice helps, and a long tail is none.
    warnings_again.clear()
    load(table, missing_markers="9999", impute="median")
    table.loc[59, "pressure"] = 200.0
    table["pulse"] = np.random.default_rng(0).lognormal(3, 1.5, 60)
    load(table)
    assert "so far from the others" not in warnings_again.text


def test_another_unit_at_a_site_is_named(table, warnings_again):
    generator = np.random.default_rng(1)
    table["pulse"] = generator.normal(1.7, 0.1, 60).clip(1.4, 2)
    table.loc[20:39, "pulse"] *= 100
    table.loc[[20, 0], "pulse"] = [140, 1.9]
    load(table)
    said = (
        f"dataframe: column 'pulse' is at most {table['pulse'].drop(range(20, 40)).max():g} at "
        "sites Oslo, Tromsø and at least 140 at site Bergen; if units differ, convert one"
    )
    assert said in warnings_again.text
    assert "pressure" not in warnings_again.text
    # Ranges that overlap, as of hospitals of several sizes, are no units.
    warnings_again.clear()
    table.loc[0, "pulse"] = 150
    load(table)
    assert "units" not in warnings_again.text


def test_sites_with_other_classes_or_ages_have_no_other_unit(warnings_again):
    """Iris, of which each site has a class, with the whole range of a column in another order."""
    iris = datasets.load_iris()
    width = iris.data[:, 3]
    assert np.median(width[50:]) >= 5 * np.median(width[:50])
    assert width[:50].max() == 0.6
    assert width[50:].min() == 1.0
    table = pd.DataFrame({"width": width, "label": iris.target.astype(str)})
    table["site"] = np.repeat(["A", "B", "C"], 50)
    data.from_dataframe(table, features=["width"])
    # At most 17 years, and at least 18.
    ages = np.concatenate([np.arange(50) % 17 + 1, np.arange(100) % 70 + 18])
    table = pd.DataFrame({"age": ages, "label": np.arange(150) % 2, "site": table["site"]})
    data.from_dataframe(table, features=["age"])
    assert "units" not in warnings_again.text


def test_categories_that_are_alike_are_named(table, warnings_again):
    table["sex"] = ["w", "m", "W"] * 20
    made = data.from_dataframe(table, features=["pulse", "sex"], categorical_columns="sex")
    assert made.input_spec.columns[1].categories == ("W", "m", "w")
    said = (
        "dataframe: categories 'W' and 'w' of column 'sex' differ only in case, blanks or the like;"
    )
    assert said in warnings_again.text
