"""What is not a class for each sample is refused in one line, whatever it looks like."""

import numpy as np
import pandas as pd
import pytest

from tests.data.test_own_folder import make, noise, write
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.data.sources import _tasks

N = 40
RANDOM = np.random.default_rng(2)
X = RANDOM.integers(0, 256, (N, 6, 6), np.uint8)
SITES = ["a", "b"] * (N // 2)


def refused(message, make, *arguments, **options):
    with pytest.raises(DataError, match=message) as caught:
        make(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


MULTI = r"several labels of a sample \(multi-label\) are not supported; make one label column"
MASKS = r"masks \(segmentation\).* not supported; give each image one label"
BOXES = r"boxes \(.*detection\).* are not supported"
REGRESSION = r"numbers to be predicted \(regression\) are not supported; make classes of them"
VOLUMES = r"volumes and videos \(3-D\) are not supported; use slices or frames"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (RANDOM.integers(0, 2, (N, 6)) | np.eye(6, dtype=int)[0], MULTI),
        ([["cough"], ["cough", "fever"]] * (N // 2), MULTI),
        (np.array([["cough"], ["cough", "fever"]] * (N // 2), object), MULTI),
        (["cough", "fever", "cough|fever", "none"] * (N // 4), MULTI),
        (["cough; fever", "cough"] * (N // 2), MULTI),
        (["cough, fever", "cough", "fever", "none"] * (N // 4), MULTI),
        # As in tables, before those that are rows of numbers.
        (np.resize(["1 2 3 4", "1,2,3,4", "1", "2", "3", "4"], N), MULTI),
        (RANDOM.integers(0, 2, (N, 6, 6)), MASKS),
        (["1 4 9 5 20 3", "2 7 8 2"] * (N // 2), MASKS),
        ([f"masks/{n}.png" for n in range(N)], MASKS),
        (RANDOM.uniform(0, 50, (N, 4)), BOXES),
        (RANDOM.integers(0, 50, (N, 5, 4)), MASKS),
        (["[10, 20, 30, 40]", "[1.5, 2, 3, 4]"] * (N // 2), BOXES),
        (RANDOM.normal(size=N), REGRESSION),
        (RANDOM.permutation(N) + 100, REGRESSION),
        ([f"{value:.2f}".replace(".", ",") for value in RANDOM.normal(size=N)], REGRESSION),
    ],
)
def test_labels_of_other_tasks(labels, message):
    refused(message, data.from_arrays, X, labels, SITES)


@pytest.mark.parametrize(
    ("labels", "number"),
    [
        (["carcinoma, basal", "carcinoma, other", "nevus", "carcinoma"] * (N // 4), 4),
        (["0|1", "1|0"] * (N // 2), 2),
        (np.arange(N) % 20, 20),
        (["1 2", "3 4"] * (N // 2), 2),
        (["a.png", "no file"] * (N // 2), 2),
        ([f"site {number}" for number in range(N)], N),
    ],
)
def test_labels_that_only_look_alike(labels, number):
    split = ["train", "train", "train", "test"] * (N // 4)
    assert data.from_arrays(X, labels, SITES, split).num_classes == number


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 8, 8), VOLUMES),
        ((4, 16, 16, 16), VOLUMES),
        ((4, 16, 16, 1), VOLUMES),
        ((13, 16, 16), r"channels come last: np\.moveaxis\(x, 1, -1\)"),
        ((3, 16, 12), r"channels come last: np\.moveaxis\(x, 1, -1\)"),
        ((1, 16, 16), r"channels come last: np\.moveaxis\(x, 1, -1\)"),
    ],
)
def test_inputs_of_other_tasks(shape, message):
    refused(message, data.from_arrays, np.zeros((N, *shape)), SITES, SITES)


def test_several_columns_of_labels():
    names = ["melanoma", "nevus", "keratosis"]
    table = pd.DataFrame(np.eye(3, dtype=int)[np.arange(N) % 3], columns=names)
    table = table.assign(age=np.arange(N) % 7, site=SITES)
    options = {"features": ["age"], "label_column": "melanoma, nevus,keratosis"}
    refused(MULTI + r".*table\[columns\]\.idxmax\(axis=1\)", data.from_dataframe, table, **options)
    table["diagnosis"] = table[names].idxmax(axis=1)
    made = data.from_dataframe(table, features=["age"], label_column="diagnosis")
    assert made.class_names == ("keratosis", "melanoma", "nevus")


def test_lists_in_a_column():
    table = pd.DataFrame({"age": range(N), "label": [["a"], ["a", "b"]] * (N // 2), "site": SITES})
    refused("row 0: the label is a list; " + MULTI, data.from_dataframe, table, features=["age"])


def test_a_row_for_each_box(tmp_path):
    for number in range(4):
        write(tmp_path / f"{number}.png", noise(number, 8, 8, 3))
    table = pd.DataFrame(
        {
            "path": [f"{number % 4}.png" for number in range(8)],
            "x_min": range(8),
            "label": ["cat", "dog"] * 4,
            "site": ["a", "b"] * 4,
        }
    )
    refused("column 'x_min' look like boxes; " + BOXES, data.from_dataframe, table, folder=tmp_path)
    # One box in each image is no reason; nor are columns whose names are numbers.
    table = table.assign(label=["cat", "cat", "dog", "dog"] * 2, site="a")[:4]
    table[7] = table.pop("x_min")
    made = data.from_dataframe(table, folder=tmp_path, test_fraction=0.5)
    assert made.num_classes == 2


@pytest.mark.parametrize(
    "names", [("images", "masks"), ("Image", "Labels"), ("img", "annotations")]
)
def test_folders_of_images_and_masks(names, tmp_path):
    make(tmp_path / "sites", {"Oslo": {names[0]: 4, names[1]: 4}})
    refused(f"{names[1]} beside {names[0]} looks like masks", data.from_folder, tmp_path / "sites")
    for name in names:
        write(tmp_path / "flat" / name / "0.png", noise(0, 4, 4, 3))
    refused(f"{names[1]} beside {names[0]} looks like masks", data.from_folder, tmp_path / "flat")


def test_folders_of_volumes(tmp_path):
    path = tmp_path / "Oslo" / "ill" / "scan.nii.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    refused(
        "there are only Oslo/ill/scan.nii.gz and the like; " + VOLUMES, data.from_folder, tmp_path
    )


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([*range(18, 50), 60, 71], "34 whole numbers from 18 to 71"),
        ([*range(20), 22, 23, 24, 30], "24 whole numbers from 0 to 30"),
        (range(40), None),
        (range(1, 41), None),
        (range(3, 23), None),
        (range(10, 300, 10), None),
        ([f"age {number}" for number in range(18, 50)], None),
    ],
    ids=["ages", "days with gaps", "classes", "classes from 1", "few", "codes", "names"],
)
def test_whole_numbers_that_look_like_a_quantity(numbers, found, monkeypatch):
    labels = [*numbers] * 4
    said = []
    monkeypatch.setattr(_tasks, "warn", said.append)
    x = np.zeros((len(labels), 3), np.float32)
    data.from_arrays(x, labels, ["a", "b"] * (len(labels) // 2))
    text = (
        f"arrays: the labels are {found}, and each is a class of its own; if they are a quantity, "
        "such as an age, make classes of them, such as ranges, or name another column of labels"
    )
    assert said == ([text] if found else [])


def test_classes_that_are_named_are_no_quantity(monkeypatch):
    said = []
    monkeypatch.setattr(_tasks, "warn", said.append)
    labels = [number for number in range(30) if number != 7] * 4
    names = [f"class {number}" for number in range(30)]
    x = np.zeros((len(labels), 3), np.float32)
    data.from_arrays(x, labels, ["a", "b"] * (len(labels) // 2), class_names=names)
    assert not said
