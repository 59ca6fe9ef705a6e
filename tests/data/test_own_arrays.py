"""Arrays of your own: types, scales, statistics, labels and sites, and what is refused."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses, unusable
from tff_pcdd import data
from tff_pcdd.data import DataConfig, DataError, LoadRequest, partitions, sources

N = 40
Y = np.array(["cat", "dog"] * (N // 2))
SITES = np.array(["north"] * 24 + ["south"] * 16)


def images(*shape, top=256, number=N):
    return np.random.default_rng(0).integers(0, top, (number, *shape)).astype(np.uint8)


X = images(6, 5, 3)


def refused(message, *arguments, **options):
    with pytest.raises(DataError, match=message) as caught:
        data.from_arrays(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_masked_values_are_refused():
    """NumPy hands on what is below the mask. A mask that hides nothing does no harm."""
    hidden = np.arange(N) == 7
    refused("arrays: labels are masked", X, np.ma.array(Y, mask=hidden), SITES)
    refused("arrays: sites are masked", X, Y, np.ma.array(SITES, mask=hidden))
    mask = np.broadcast_to(hidden[:, None, None, None], X.shape)
    refused("arrays: inputs are masked", np.ma.array(X, mask=mask), Y, SITES)
    assert len(data.from_arrays(np.ma.array(X), np.ma.array(Y), SITES).train) == 32


def test_class_names_have_to_be_several():
    names = np.array("cat,dog")
    refused("arrays: class_names is a single value", X, np.arange(N) % 2, SITES, class_names=names)


def test_images_labels_and_sites():
    made = data.from_arrays(X, Y, SITES)
    assert (made.client_ids, made.class_names) == (("north", "south"), ("cat", "dog"))
    # A fifth of 24 and of 16 samples, rounded.
    assert made.test_class_counts().sum(axis=1).tolist() == [5, 3]
    assert made.class_counts().sum() + made.test_class_counts().sum() == N
    for part in (made.train, made.test):
        rows = [int(name.removeprefix("sample ")) for name in part.ids]
        np.testing.assert_array_equal(part.x, X[rows])
        assert [made.class_names[label] for label in part.y] == Y[rows].tolist()
    owners = [np.unique(SITES[rows_of(made, k)]).tolist() for k in range(2)]
    assert owners == [["north"], ["south"]]


def rows_of(federation, k):
    client = federation.clients[k]
    names = [*federation.train.ids[client.train], *federation.test.ids[client.test]]
    return [int(name.removeprefix("sample ")) for name in names]


@pytest.mark.parametrize(
    ("x", "dtype", "white"),
    [
        (X, "uint8", 255),
        (X.astype(np.int64), "uint8", 255),
        (X.astype(np.float64), "float32", 255),
        (X / 255, "float32", 1),
        ((X / 255).astype(np.float16), "float32", 1),
        (X.astype(np.int32) * 10 - 1000, "float32", 1),
        (X > 100, "float32", 1),
        ((X > 100).astype(np.uint8), "uint8", 1),
        ((X > 100).astype(np.int64), "uint8", 1),
    ],
)
def test_types_and_scales(x, dtype, white):
    made = data.from_arrays(x, Y, SITES)
    spec = made.input_spec
    assert (spec.kind, spec.shape, spec.dtype) == ("image", (6, 5, 3), dtype)
    assert spec.scale == pytest.approx(1 / white)
    assert spec.has_white is bool(x.min() >= 0 and x.max() <= white)
    scaled = made.train.x.astype(np.float64) / white
    np.testing.assert_allclose(spec.mean, scaled.mean((0, 1, 2)), rtol=1e-3)
    np.testing.assert_allclose(spec.std, scaled.std((0, 1, 2)), rtol=1e-3)
    normalized = data.normalize(tf.constant(made.train.x), spec).numpy()
    np.testing.assert_allclose(normalized.mean(), 0, atol=0.01)


@pytest.mark.parametrize(("largest", "white"), [(1.0001, 1), (2, 1), (2.5, 255), (200, 255)])
def test_pixels_a_little_above_1_are_not_from_0_to_255(largest, white, warnings_again):
    """As after resizing; images with two of 255 levels do not occur."""
    x = (X / 255).astype(np.float32)
    x[0, 0, 0, 0] = largest
    spec = data.from_arrays(x, Y, SITES).input_spec
    assert (spec.scale, spec.has_white) == (pytest.approx(1 / white), white == 255)
    text = f"pixels reach {float(largest)}, so nobody knows which value is white"
    assert (text in warnings_again.text) is (white == 1)


def test_grey_images_need_no_channels():
    assert data.from_arrays(images(6, 5), Y, SITES).input_spec.shape == (6, 5, 1)


@pytest.mark.parametrize("shape", [(9, 9, 103), (4, 4, 9), (30, 20, 7), (5, 3, 4)])
def test_channels_that_come_last(shape, warnings_again):
    assert data.from_arrays(images(*shape), Y, SITES).input_spec.shape == shape
    assert warnings_again.text == ""


def test_vectors(warnings_again):
    x = np.random.default_rng(0).normal(5, 3, (N, 4))
    x[:, 2] = 7
    made = data.from_arrays(x, Y, SITES)
    spec = made.input_spec
    assert (spec.kind, spec.shape, spec.dtype, spec.std[2]) == ("vector", (4,), "float32", 1)
    assert "features 2 are constant in all training samples" in warnings_again.text
    expected = (made.train.x - made.train.x.mean(0)) / np.where(made.train.x.std(0), 1, 1)
    normalized = data.normalize(tf.constant(made.train.x), spec).numpy()
    kept = [0, 1, 3]
    np.testing.assert_allclose(
        normalized[:, kept], expected[:, kept] / made.train.x.std(0)[kept], atol=0.01
    )
    with refuses("augmentation", "needs images"):
        data.from_arrays(x, Y, SITES, augmentation="standard")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.arange(N) % 2 + 1, ("1", "2")),
        (np.arange(N) % 2 + 1.0, ("1", "2")),
        ((np.arange(N) % 2)[:, None], ("0", "1")),
        ((np.arange(N) % 12).astype(str), tuple(map(str, range(12)))),
        (np.arange(N) % 2 == 0, ("False", "True")),
        ([b"yes", b"no"] * (N // 2), ("no", "yes")),
        (["none", " a  b "] * (N // 2), ("a b", "none")),
        (np.array(["x", 1.0] * (N // 2), object), ("1.0", "x")),
        (["1.0", "2"] * (N // 2), ("1", "2")),
        (["007", "8"] * (N // 2), ("007", "8")),
    ],
)
def test_labels_are_names_or_whole_numbers(labels, names):
    assert data.from_arrays(X, labels, SITES).class_names == names


def test_labels_with_names():
    made = data.from_arrays(X, np.arange(N) % 2, SITES, class_names=["no", "yes", "perhaps"])
    assert made.class_names == ("no", "yes", "perhaps")
    labels = np.resize([2, 0, 5], N)
    made = data.from_arrays(X, labels, SITES, class_names=["zebra", "cat", "ant", "x", "y", "bee"])
    assert made.class_names == ("zebra", "cat", "ant", "x", "y", "bee")
    for part in (made.train, made.test):
        rows = [int(name.removeprefix("sample ")) for name in part.ids]
        assert part.y.tolist() == labels[rows].tolist()
    # A name that is joined with another stays, so that the others keep their numbers.
    names = ["b", "B", "a"]
    made = data.from_arrays(X, np.arange(N) % 3, SITES, class_names=names, join_names=True)
    assert made.class_names == ("b", "B", "a")
    assert set(made.train.y.tolist()) == {0, 2}
    refused("class name 'b' occurs twice", X, labels % 2, SITES, class_names=["b", "a", " b"])
    refused("holds only the class a", X, labels * 0, SITES, class_names=["a", "b"])
    refused(
        "label 2 of sample 1 is not within 0 to 1; subtract 1, because labels count from 0",
        X,
        np.arange(N) % 2 + 1,
        SITES,
        class_names=["no", "yes"],
    )


def test_sites_may_be_numbers():
    assert data.from_arrays(X, Y, np.arange(N) % 3).client_ids == ("0", "1", "2")


def test_a_split_is_kept():
    split = np.where(np.arange(N) % 4 == 0, "Test", "train")
    made = data.from_arrays(X, Y, SITES, split)
    assert {int(name.split()[1]) % 4 for name in made.test.ids} == {0}
    assert len(made.test) == N // 4


FLOATS = X.astype(np.float32)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"shape \(40,\); images have", (X[:, 0, 0, 0], Y, SITES)),
        (
            r"shape \(40, 3, 6, 5\), 5 channels of 6×3 pixels; channels come last: np.moveaxis",
            (np.moveaxis(X, -1, 1), Y, SITES),
        ),
        (r"64 channels of 64×13 pixels; .*swapaxes", (images(13, 64, 64), Y, SITES)),
        (r"9 channels of 9×2 pixels; channels come last", (images(2, 9, 9), Y, SITES)),
        ("different shapes", ([np.zeros((2, 2)), np.zeros((3, 3))] * 20, Y, SITES)),
        ("the inputs are <U3, not numbers", (Y[:, None], Y, SITES)),
        ("value .0, 0, 0. of sample 0 is nan", (FLOATS * np.nan, Y, SITES)),
        ("is inf", (np.where(FLOATS > 250, np.inf, FLOATS), Y, SITES)),
        ("for one-hot labels, take the argmax", (X, np.eye(2)[np.arange(N) % 2], SITES)),
        (r"sites have shape \(1,\), not \(40,\)", (X, Y, ["north"])),
        ("row 0: the label 0.5 is not a whole number", (X, np.arange(N) % 2 + 0.5, SITES)),
        ("row 1: the label is missing", (X, [1, np.nan] * 20, SITES)),
        ("row 1: the site is missing", (X, Y, ["a", None] * 20)),
        ("row 0: the site is missing", (X, Y, [" ", "a"] * 20)),
        ("row 1: split 'rest' is not train, val or test", (X, Y, SITES, ["train", "rest"] * 20)),
        ("there are no test samples", (X, Y, SITES, ["train"] * N)),
        ("there are no training samples", (X, Y, SITES, ["test"] * N)),
        ("characters that cannot be shown", (X, Y, ["a\x07"] * N)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(message, arguments):
    refused(message, *arguments)


def test_options_are_checked():
    with refuses("test_fraction", "must be at most 0.9"):
        data.from_arrays(X, Y, SITES, test_fraction=0.95)
    with refuses("test_fraction", "arrays says itself"):
        data.from_arrays(X, Y, SITES, ["train", "test"] * 20, test_fraction=0.5)


def write_npz(path, **changes):
    arrays = {"x": X, "y": Y, "site": SITES, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return str(path)


def test_test_samples_of_sites_that_were_not_chosen_are_left_out(tmp_path, warnings_again):
    """Of five sites of eight samples, only the last has test samples: every second one."""
    sites = np.repeat(np.arange(5), 8)
    split = np.where((sites == 4) & (np.arange(N) % 2 == 1), "test", "train")
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y, site=sites, split=split)
    found = [
        data.load_federation("npz", "natural", 2, data_dir=str(path), seed=seed)
        for seed in range(6)
    ]
    assert {"4" in made.client_ids for made in found} == {True, False}
    for made in found:
        assert len(made.test) == (4 if "4" in made.client_ids else 0)
    assert "there are no test samples" in warnings_again.text


def test_npz_is_like_the_arrays_in_it(tmp_path):
    expected = data.from_arrays(X, Y, SITES)
    path = write_npz(tmp_path / "a.npz")
    made = data.load_federation("npz", "natural", data_dir=path)
    for part in ("train", "test"):
        np.testing.assert_array_equal(getattr(made, part).x, getattr(expected, part).x)
        np.testing.assert_array_equal(getattr(made, part).y, getattr(expected, part).y)
    assert made.input_spec == expected.input_spec
    assert made.fingerprint == expected.fingerprint
    split = np.array(["train", "test"] * (N // 2))
    path = write_npz(tmp_path / "b.npz", split=split, y=np.arange(N) % 2, class_names=["a", "b"])
    made = data.load_federation("npz", "natural", data_dir=path)
    assert (len(made.test), made.class_names) == (N // 2, ("a", "b"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"site": None}, "array 'site' is missing, there are x, y"),
        (
            {"y": np.array([{}] * N)},
            "cannot be read as an .npz file: array 'y' holds Python objects",
        ),
        ({"x": FLOATS * np.nan}, "of sample 0 is nan"),
    ],
)
def test_npz_files_that_cannot_be_used(tmp_path, changes, message):
    source = sources.create("npz", data_dir=write_npz(tmp_path / "a.npz", **changes))
    with pytest.raises(DataError, match=re.escape(str(tmp_path)) + ".*" + message):
        source.load(LoadRequest())


def test_files_that_are_no_archives_are_named_for_what_they_are(tmp_path):
    """NumPy advises to open any other file as a pickle."""
    path = tmp_path / "a.npz"
    np.save(path.with_suffix(".npy"), X)
    whole = pathlib.Path(write_npz(tmp_path / "b.npz")).read_bytes()
    for content, reason in (
        (path.with_suffix(".npy").read_bytes(), "it is a single array (.npy); save x, y and site "),
        (b"x,y,site", "it is no whole archive of arrays, as np.savez writes it"),
        (whole[:-30], "it is no whole archive of arrays, as np.savez writes it"),
        (b"", "it is no whole archive of arrays, as np.savez writes it"),
    ):
        path.write_bytes(content)
        with unusable(f"{path} cannot be read as an .npz file: {reason}"):
            data.load_federation("npz", "natural", data_dir=str(path))


@pytest.mark.parametrize("dataset", ["npz", "table"])
def test_files_of_other_kinds_are_refused(tmp_path, dataset):
    (tmp_path / "a.ods").write_text("")
    for name, message in (
        ("", r"is not a (\.npz|\.csv, .*, \.parquet or \.xlsx) file"),
        ("a.ods", "is not a"),
        ("b.npz", "does not exist"),
    ):
        with pytest.raises(DataError, match=f"dataset {dataset}: data_dir=.*{message}"):
            sources.create(dataset, data_dir=str(tmp_path / name)).check()
    (tmp_path / f"a.{'npz' if dataset == 'npz' else 'parquet'}").write_bytes(b"PK\3\4 no archive")
    path = tmp_path / f"a.{'npz' if dataset == 'npz' else 'parquet'}"
    with pytest.raises(DataError, match="cannot be read as a"):
        sources.create(dataset, data_dir=str(path)).load(LoadRequest())


def test_tf_datasets_are_like_the_arrays_in_them():
    expected = data.from_arrays(X, Y, SITES)
    triples = tf.data.Dataset.from_tensor_slices((X, Y, SITES))
    by_site = {
        site: tf.data.Dataset.from_tensor_slices((X[site == SITES], Y[site == SITES])).batch(7)
        for site in ("north", "south")
    }
    for dataset in (triples, triples.batch(9), by_site):
        made = data.from_tf_dataset(dataset)
        np.testing.assert_array_equal(made.train.x, expected.train.x)
        np.testing.assert_array_equal(made.test.y, expected.test.y)
        assert made.client_ids == expected.client_ids
        assert made.class_names == expected.class_names
    made = data.from_tf_dataset({"a": by_site["north"]}, {"a": by_site["south"]})
    assert (len(made.train), len(made.test)) == (24, 16)
    with pytest.raises(DataError, match=r"triples \(input, label, site\) is needed, not of"):
        data.from_tf_dataset(tf.data.Dataset.from_tensor_slices((X, Y)))


def test_a_federation_becomes_a_data_set(own_components):
    made = data.from_arrays(X, Y, SITES, name="hospitals")
    for _ in range(2):
        data.register_federation(made)
    loaded = data.load_federation("hospitals", "natural")
    assert loaded.client_ids == made.client_ids
    np.testing.assert_array_equal(loaded.train.x, made.train.x)
    assert (loaded.fingerprint, loaded.input_spec) == (made.fingerprint, made.input_spec)
    assert data.load_federation("hospitals", "natural", 1).num_clients == 1
    pooled = DataConfig(sources.create("hospitals"), partitions.create("iid", num_clients=3))
    assert pooled.build().num_clients == 3


def test_vectors_far_from_zero_are_centred():
    """Such as air pressure in Pa, or times."""
    x = np.random.default_rng(0).normal([101_350, 1.7e9, -4e-3], [31, 900, 2e-7], (N, 3))
    made = data.from_arrays(x, Y, SITES)
    train = made.train.x.astype(np.float64)
    offset = np.abs(train.mean(axis=0) - made.input_spec.mean) / train.std(axis=0)
    assert offset.max() < 1e-3


def test_names_that_look_like_numbers():
    names = np.array(["--1", "1", "10", "9"])
    made = data.from_arrays(X, names[np.arange(N) % 4], SITES)
    assert made.class_names == ("--1", "1", "10", "9")
    assert data.from_arrays(X, names[1 + np.arange(N) % 3], SITES).class_names == ("1", "9", "10")
