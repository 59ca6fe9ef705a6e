"""Tables of your own: csv, parquet and data frames, with paths of images or with features."""

import gzip
import io
import os
import unicodedata

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.data.refusals import refuses, unusable
from tests.data.test_own_folder import make, noise, write
from tff_pcdd import data, stages
from tff_pcdd.data import DataError, LoadRequest, checks, config, sources
from tff_pcdd.training import ExperimentConfig

N = 30
TABLE = pd.DataFrame(
    {
        "age": np.random.default_rng(0).integers(20, 90, N),
        "bmi": np.random.default_rng(1).normal(25, 4, N).round(3),
        "patient": np.arange(N),
        "label": ["ill", "well", "ill"] * (N // 3),
        "site": ["St. Mary, London", "Charité\nWest", "Lyon"] * (N // 3),
    }
)


def load(path, **options):
    return data.load_federation("table", "natural", data_dir=str(path), **options)


def refused(path, *parts, **options):
    with unusable(str(path), *parts):
        load(path, **options)


@pytest.fixture
def features(tmp_path):
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    return tmp_path / "a.csv"


def test_features_of_csv_parquet_and_data_frames_are_equal(features):
    TABLE.to_parquet(features.with_suffix(".parquet"))
    TABLE.to_csv(features.with_name("b.csv"), index=False, sep=";")
    expected = np.float32(TABLE[["age", "bmi"]])
    options = {"feature_columns": "age, bmi"}
    for made in (
        load(features, **options),
        load(features.with_suffix(".parquet"), **options),
        load(features.with_name("b.csv"), **options),
        data.from_dataframe(TABLE, features=["age", "bmi"]),
        data.from_dataframe({name: TABLE[name] for name in TABLE}, features="age,bmi"),
    ):
        # Names with commas and line breaks are one line.
        assert made.client_ids == ("Charité West", "Lyon", "St. Mary, London")
        assert made.class_names == ("ill", "well")
        for part in (made.train, made.test):
            rows = [int(name.removeprefix("row ")) for name in part.ids]
            first = min(int(n.removeprefix("row ")) for p in (made.train, made.test) for n in p.ids)
            np.testing.assert_array_equal(part.x, expected[np.array(rows) - first])
        scaled = made.train.x.astype(np.float64)
        np.testing.assert_allclose(made.input_spec.mean, scaled.mean(0), rtol=1e-3)
        np.testing.assert_allclose(made.input_spec.std, scaled.std(0), rtol=1e-3)


def test_all_features_are_those_without_a_role(features):
    """Nor are they the number of the row."""
    assert load(features, feature_columns="all").input_spec.shape == (2,)
    TABLE.rename(columns={"label": "y"}).to_csv(features, index=False)
    assert load(features, feature_columns="all", label_column="y").input_spec.shape == (2,)
    with refuses("feature_columns", "y is the label or the site, and would give away the answer"):
        load(features, feature_columns="age,y", label_column="y")


def test_tables_of_features_train_an_mlp_at_their_sites(features):
    values = {"dataset": "table", "data_dir": str(features), "feature_columns": "age,bmi"}
    config = ExperimentConfig.from_settings(**values)
    assert (config.model.backbone.name, config.data.partition.name) == ("mlp", "natural")
    assert config.data.input_spec().shape == (2,)
    config = ExperimentConfig.from_settings(**values, model="resnet8", partition="iid")
    assert (config.model.backbone.name, config.data.partition.name) == ("resnet8", "iid")
    config = ExperimentConfig.from_settings(dataset="table", data_dir="x")
    assert (config.model.backbone.name, config.data.partition.name) == ("simple_cnn", "natural")
    for name, value in (("image_size", 8), ("augmentation", "standard"), ("image_channels", 1)):
        with refuses(name, "applies to images"):
            ExperimentConfig.from_settings(**values, **{name: value})
    with refuses("feature_columns", "must be names"):
        ExperimentConfig.from_settings(**{**values, "feature_columns": "age,,bmi"})


def test_paths_of_images(tmp_path):
    root = make(tmp_path)
    rows = [
        {"path": os.path.relpath(path, root), "label": path.parts[-2], "site": path.parts[-3]}
        for path in sorted(root.glob("*/*/*.png"))
    ]
    pd.DataFrame(rows).to_csv(root / "a.csv", index=False)
    expected, made = data.from_folder(root), load(root / "a.csv")
    for other in (made, data.from_dataframe(pd.DataFrame(rows), folder=root)):
        np.testing.assert_array_equal(other.train.x, expected.train.x)
        np.testing.assert_array_equal(other.test.x, expected.test.x)
        assert other.client_ids == expected.client_ids
        assert other.input_spec == expected.input_spec
    assert made.train.ids[0].endswith(f"({expected.train.ids[0]})")


def test_other_names_of_columns_and_a_split(tmp_path):
    for number in range(8):
        write(tmp_path / f"{number}.png", noise(number, 4, 4, 3))
    table = pd.DataFrame(
        {
            "file": [f"{number}.png" for number in range(8)],
            "diagnosis": [1, 2] * 4,
            "hospital": [1.0, 1.0, 2.0, 2.0] * 2,
            "fold": ["train"] * 4 + ["test"] * 4,
        }
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    names = {"path": "file", "label": "diagnosis", "site": "hospital", "split": "fold"}
    made = load(tmp_path / "a.csv", **{f"{role}_column": name for role, name in names.items()})
    assert (made.client_ids, made.class_names) == (("1", "2"), ("1", "2"))
    assert made.class_counts().tolist() == made.test_class_counts().tolist() == [[1, 1], [1, 1]]
    with refuses("test_fraction", "says itself"):
        renamed = table.rename(columns={value: name for name, value in names.items()})
        data.from_dataframe(renamed, folder=tmp_path, test_fraction=0.3)


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        (3, "age", "", "row 5: column 'age' is missing (it is '')"),
        (0, "bmi", "NaN", "row 2: column 'bmi' is missing (it is 'NaN')"),
        (0, "bmi", "1e99", "row 2: '1e99' in column 'bmi'"),
        (0, "age", "old", "row 2: 'old' in column 'age'"),
        (4, "label", "", "row 6: the label is missing"),
        (4, "label", "nan", "row 6: the label is missing"),
        (4, "site", " ", "row 6: the site is missing"),
    ],
)
def test_cells_that_cannot_be_used_are_named(features, row, column, value, message):
    table = TABLE.astype(str)
    table.loc[row, column] = value
    table.to_csv(features, index=False)
    refused(features, message, feature_columns="age,bmi")


@pytest.mark.parametrize("value", [np.nan, None, np.inf, pd.NA, "x"])
def test_cells_of_data_frames_too(value):
    table = TABLE.astype(object)
    table.loc[3, "age"] = value
    with pytest.raises(
        DataError, match=r"dataframe, row 3: .*column 'age' is (missing|not a finite)"
    ):
        data.from_dataframe(table, features=["age", "bmi"])
    table = TABLE.astype(object)
    table.loc[3, "site"] = value
    if value != "x" if isinstance(value, str) else True:
        with pytest.raises(DataError, match="dataframe, row 3: the site is missing"):
            data.from_dataframe(table, features=["age", "bmi"])


@pytest.mark.parametrize("column", ["age", "label", "site"])
def test_columns_have_the_same_length(column):
    table = {"age": [1, 2, 3, 4], "label": [0, 1, 0, 1], "site": [0, 0, 1, 1]}
    table[column] = table[column][:3]
    with pytest.raises(DataError, match=rf"^dataframe: .*column '{column}' has 3( values|$)"):
        data.from_dataframe(table, features=["age"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table is empty"),
        ("path,label,site\n", "the table is empty"),
        ("path,label,site\na.png,1\n", "row 2: has 2 cells, but there are 3 columns"),
        ("path,label,label\na.png,1,2\n", "column 'label' occurs twice"),
        ("path,label\na.png,1\n", "column 'site' is missing, there are path, label; site_column"),
        ("file,label,site\na.png,1,a\n", "there is no column 'path' of image files"),
        ("path,label,site\nb.png,1,a\n", "lists b.png, not found in"),
        ("path,label,site\n../b.png,1,a\n", "lists '../b.png', which is not a path below"),
        ("path,label,site\n/etc/hostname,1,a\n", "which is not a path below"),
        ('path,label,site\n"a.png,1,a\n', "unexpected end of data"),
        (
            "path,label,site,split\na.png,1,a,rest\n",
            "row 2: split 'rest' is not train, val or test",
        ),
        ("path,label,site\n\na.png,1\n", "row 3: has 2 cells, but there are 3 columns"),
        ("path,label,site\n\na.png,1,a\n\na.png,,a\n", "row 5: the label is missing"),
        ("path,label,site\na.png,1,a\na.png,1,a\n", "holds only the class 1"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    write(tmp_path / "a.png", noise(0, 4, 4, 3))
    (tmp_path / "a.csv").write_text(text)
    refused(tmp_path / "a.csv", message)


@pytest.mark.parametrize("separator", ",;")
def test_rows_of_empty_cells_are_none(separator, tmp_path):
    """Spreadsheets write them below a table whose cells once had values, or have formats."""
    lines = ["age,label,site", "50,1,a", ",,", "51,1,a", "60,2,a", "61,2,a", ",,", ",,", ""]
    (tmp_path / "a.csv").write_text("\n".join(lines).replace(",", separator))
    made = load(tmp_path / "a.csv", feature_columns="age", test_fraction=0.5)
    assert sorted([*made.train.ids, *made.test.ids]) == ["row 2", "row 4", "row 5", "row 6"]
    assert made.notes == {}


def test_a_table_in_another_encoding(tmp_path):
    text = "path,label,site\n" + "a.png,1,x\n" * 9
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le"):
        (tmp_path / "a.csv").write_bytes(text.encode(codec))
        refused(tmp_path / "a.csv", "a.csv is UTF-16 or no text; save the file as UTF-8")
    (tmp_path / "a.csv").write_bytes(
        "path,label,site\na.png,1,x\na.png,1,Charité\n".encode("latin-1")
    )
    refused(tmp_path / "a.csv", "a.csv: line 3 is not UTF-8; save the file as UTF-8")


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.tsv.gz"])
@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff"])
def test_the_unicode_text_of_spreadsheets(mark, name, tmp_path):
    """UTF-16 with a byte order mark, tabs, and line ends of Windows."""
    codec = "utf-16-le" if mark == b"\xff\xfe" else "utf-16-be"
    lines = ["größe\tlabel\tsite", *(f"1,{i}\t{'äöü漢'[i % 2]}\tKöln" for i in range(1, 9)), ""]
    content = mark + "\r\n".join(lines).encode(codec)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    made = load(path, feature_columns="größe")
    assert (made.client_ids, made.class_names) == (("Köln",), ("ä", "ö"))
    found = np.sort(np.concatenate([made.train.x, made.test.x])[:, 0])
    np.testing.assert_array_equal(found, np.arange(11, 19, dtype=np.float32) / np.float32(10))
    (tmp_path / "a.csv").write_bytes(content + b"\0")
    refused(tmp_path / "a.csv", "a.csv: line 10 is not UTF-16; save the file as UTF-8")
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode("utf-32"))
    refused(tmp_path / "a.csv", "a.csv is UTF-16 or no text; save the file as UTF-8")


def test_the_fingerprint_counts_the_columns(features):
    made = load(features, feature_columns="age,bmi")
    TABLE.rename(columns={"bmi": "weight"}).to_csv(features, index=False)
    assert load(features, feature_columns="age,weight").fingerprint != made.fingerprint


def test_parquet_without_arrow(features, monkeypatch):
    TABLE.to_parquet(features.with_suffix(".parquet"))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match="reading parquet needs pyarrow, which is not installed"):
        sources.create("table", data_dir=str(features.with_suffix(".parquet"))).load(LoadRequest())


@pytest.mark.parametrize("name", ["two  blanks.png", "e\u0301.png", "nan é.png"])
def test_paths_stay_as_they_are_written(name, tmp_path):
    """Also in the decomposed form of Unicode, in which macOS writes names."""
    rows = []
    for number in range(8):
        path = f"{number} {name}"
        write(tmp_path / path, noise(number, 4, 4, 3))
        rows.append({"path": f" {path} ", "label": number % 2, "site": "a"})
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    assert len(load(tmp_path / "a.csv").train) == 6


@pytest.mark.parametrize(("listed", "stored"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_paths_may_be_in_another_form_of_unicode(listed, stored, tmp_path):
    """An archive of macOS stores an \u00e9 as two characters, and the table has one."""
    rows = []
    for number in range(8):
        path = f"Me\u0301nie\u0300re {number % 2}/e\u0301 {number}.png"
        write(tmp_path / unicodedata.normalize(stored, path), noise(number, 4, 4, 3))
        rows.append([unicodedata.normalize(listed, path), number % 2, "a"])
    pd.DataFrame(rows, columns=["path", "label", "site"]).to_csv(tmp_path / "a.csv", index=False)
    made = load(tmp_path / "a.csv")
    for part in (made.train, made.test):
        for name, x in zip(part.ids, part.x, strict=True):
            np.testing.assert_array_equal(x, noise(int(name.split()[1]) - 2, 4, 4, 3))
    # Of two such files, nobody knows which one is meant.
    rows.append(["\u1e69.png", 1, "a"])
    pd.DataFrame(rows, columns=["path", "label", "site"]).to_csv(tmp_path / "a.csv", index=False)
    for number, name in enumerate(("s\u0323\u0307.png", "s\u0307\u0323.png")):
        write(tmp_path / name, noise(number, 4, 4, 3))
    refused(tmp_path / "a.csv", "lists \u1e69.png, not found in")


def test_names_of_files_that_are_too_long_are_not_found(tmp_path):
    write(tmp_path / "a.png", noise(0, 4, 4, 3))
    long = "a\\" + "b" * 300 + ".png"
    (tmp_path / "a.csv").write_text(f"path,label,site\na.png,1,x\n{long},2,x\n")
    refused(tmp_path / "a.csv", "not found in")


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def test_broken_images_of_a_table_are_named_with_the_table(tmp_path):
    rows = [{"path": f"{number}.png", "label": number % 2, "site": "a"} for number in range(8)]
    for number in range(8):
        write(tmp_path / f"{number}.png", noise(number, 30, 30, 3))
    path = tmp_path / "a.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    # What the header shows, and what only shows when the pixels are decoded.
    photo = jpeg(noise(5, 30, 30, 3))[:-2]
    reasons = {b"": "the file is empty", photo: "is broken: not a whole JPEG image"}
    for content, reason in reasons.items():
        (tmp_path / "5.png").write_bytes(content)
        with unusable(f"{path}, row 7 (5.png): {reason}"):
            load(path)


@pytest.mark.parametrize(
    ("sites", "options", "warned"),
    [
        ("north", {}, True),
        ("north", {"partition": "iid", "site_column": "none"}, False),
        ("north", {"max_clients": 1}, False),
        (["north", "south", "south"] * (N // 3), {}, False),
    ],
)
def test_a_single_site_is_named(sites, options, warned, features, monkeypatch):
    TABLE.assign(site=sites).to_csv(features, index=False)
    said = []
    monkeypatch.setattr(config, "warn", said.append)
    given = {"partition": "natural", "feature_columns": "age,bmi", **options}
    data.load_federation("table", data_dir=str(features), **given)
    one = f"table: {features.name}: there is a single site, 'north'; check site_column"
    assert said == [one] * warned


def test_what_was_read_is_said_with_its_columns(features, caplog):
    """Also if the columns of labels and sites are swapped."""
    checks.say.cache_clear()
    with caplog.at_level("INFO", stages.LOADED):
        load(features, feature_columns="age,bmi", label_column="site", site_column="label")
    [said] = [record.getMessage() for record in caplog.records if record.name == stages.LOADED]
    named = 'Charité West, Lyon, "St. Mary, London"'
    assert said == (
        f"{features}: 3 classes of column site ({named}); 2 sites of column label (ill, well)"
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hospitls.csv", "hospitals.csv"),
        ("dat/hospitals.csv", "data/hospitals.csv"),
        ("dta/nothing.csv", None),
        ("other.parquet", None),
    ],
)
def test_a_misspelled_path_names_the_one_that_was_meant(given, meant, tmp_path):
    for name in ("hospitals.csv", "notes.txt", "data/hospitals.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(DataError) as caught:
        load(tmp_path / given)
    end = f"; did you mean {tmp_path / meant}?" if meant else ""
    assert str(caught.value) == f"dataset table: data_dir={tmp_path / given} does not exist{end}"


def test_a_misspelled_folder_names_the_one_that_was_meant(tmp_path):
    (tmp_path / "hospitals").mkdir()
    with pytest.raises(DataError) as caught:
        data.load_federation("folder", "natural", data_dir=str(tmp_path / "hopsitals"))
    given, meant = tmp_path / "hopsitals", tmp_path / "hospitals"
    assert str(caught.value) == (
        f"dataset folder: data_dir={given} is not a directory; did you mean {meant}?"
    )
