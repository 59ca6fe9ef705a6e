"""Rows, names and columns as people bring them: what is missing, alike, or no input."""

import logging

import numpy as np
import pandas as pd
import pytest

from tests.data.refusals import refuses
from tff_pcdd import data
from tff_pcdd.data import checks
from tff_pcdd.errors import DataError


@pytest.fixture(autouse=True)
def warnings_again(caplog):
    """Each test sees its warnings, which a process shows once."""
    checks.warn.cache_clear()
    caplog.set_level(logging.WARNING)
    return caplog


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
        pytest.importorskip("pyarrow")
        table.to_parquet(path, index=False)
    source = data.sources.create("table", data_dir=str(path), feature_columns=features, **options)
    return data.DataConfig(source, data.partitions.create("natural")).build()


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


def test_markers_of_ones_own(table, tmp_path):
    """As in the tables of heart diseases, in which -9 and ? stand for what is missing."""
    table["pulse"] = table["pulse"].round(1).astype(object)
    table.loc[[2, 5], "pulse"] = ["-9", "-9.0"]
    table.loc[7, "pulse"] = "?"
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match=r"row 9: '\?' in column 'pulse' .*missing=drop leaves"):
        loaded_file(table, path)
    made = loaded_file(table, path, missing="drop", missing_markers="-9, -99")
    assert made.notes["rows_left_out"] == 3
    everything = np.concatenate([made.train.x, made.test.x])
    assert everything.min() > 0
    assert len(everything) == 57


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


# Names.


def test_ids_do_not_pass_through_floating_point(table, tmp_path):
    ids = [12345678901234567, 12345678901234568, 3]
    table["site"] = np.repeat(["12345678901234567", "12345678901234568", "3.0"], 20)
    assert set(load(table).client_ids) == {str(number) for number in ids}
    table["site"] = np.repeat(ids, 20)
    for suffix in (".csv", ".parquet"):
        made = loaded_file(table, tmp_path / f"a{suffix}")
        assert set(made.client_ids) == {str(number) for number in ids}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cat", "cat"),
        ("big cat", "big_cat"),
        ("big  cat", "Big-Cat"),
        ("\ufb01sh", "fish"),
        ("site 1", "site 01"),
        ("7", "007"),
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


@pytest.mark.parametrize(("one", "other"), [("1", "-1"), ("1.05", "1.5"), ("a1", "a10")])
def test_other_names_are_not_alike(one, other, table, warnings_again):
    table["site"] = np.repeat([one, other, "B"], 20)
    assert load(table, join_names=True).num_clients == 3
    assert "differ only" not in warnings_again.text


# Columns that are no inputs.


def test_all_columns_leave_out_what_says_nothing_of_a_sample(table, tmp_path, warnings_again):
    table["constant"] = 3.5
    table["patient"] = np.random.default_rng(0).permutation(60) + 1000
    path = tmp_path / "a.csv"
    table.to_csv(path)  # with the index, in a column without a name
    source = data.sources.create("table", data_dir=str(path), feature_columns="all")
    made = data.DataConfig(source, data.partitions.create("natural")).build()
    assert made.input_spec.shape == (2,)
    text = warnings_again.text
    assert "column constant is left out: constant" in text
    assert "columns without a name, patient are left out: running numbers" in text
    named = loaded_file(table, path, features="pulse,patient")
    assert named.input_spec.shape == (2,)


def test_a_column_that_gives_the_answer_away_is_named(table, warnings_again):
    table["pulse"] = np.where(table["label"] == "ill", 1.0, 2.0) + table["pressure"] / 1000
    load(table)
    assert "the class of every sample follows from column 'pulse' alone" in warnings_again.text
    assert "'pressure'" not in warnings_again.text


def test_numbers_that_float32_does_not_tell_apart(table, warnings_again):
    """Unix seconds of a few minutes."""
    table["pulse"] = 1_700_000_000 + np.arange(60) * 3.0
    load(table)
    exact, rounded = 60, len(np.unique(table["pulse"].astype(np.float32)))
    assert rounded < 5
    assert f"the {exact} different numbers of column 'pulse' become {rounded} in float32; subtract "
    assert "subtract 1700000000 from them" in warnings_again.text


# Parts.


@pytest.mark.parametrize("names", [("Training", "TESTING"), ("trn", "tst"), ("train_set", "Test")])
def test_spellings_of_parts(names, table):
    table["split"] = np.where(np.arange(60) % 3 == 0, names[1], names[0])
    made = load(table)
    assert (len(made.train), len(made.test)) == (40, 20)


def test_a_setting_that_does_not_exist(table):
    with refuses("missing", "choose one of refuse, drop, keep"):
        load(table, missing="guess")
