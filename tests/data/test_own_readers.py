"""Layouts of others: MedMNIST, PFLlib, LEAF, TensorFlow Datasets and TFF's simulations."""

import collections
import json
import pickle
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses, unusable
from tests.data.test_own_folder import noise, write
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.data.sources import npz
from tff_pcdd.data.sources._leaf_formats import ALPHABET
from tff_pcdd.data.sources._pickled import pickled_arrays


def images(seed, number, *shape):
    return np.random.default_rng(seed).integers(0, 256, (number, *shape), np.uint8)


# MedMNIST.


def medmnist(path, shape=(28, 28), labels=None, parts=("train", "val", "test")):
    """An .npz file as MedMNIST writes it, and its arrays."""
    arrays = {}
    for seed, (part, number) in enumerate(zip(parts, (40, 12, 20), strict=True)):
        arrays[f"{part}_images"] = images(seed, number, *shape)
        classes = np.random.default_rng(seed + 9).integers(0, 3, (number, 1)).astype(np.uint8)
        arrays[f"{part}_labels"] = classes if labels is None else labels[:number]
    np.savez(path, **arrays)
    return arrays


def test_medmnist_has_its_own_parts_and_no_sites(tmp_path):
    path = tmp_path / "bloodmnist.npz"
    arrays = medmnist(path, (28, 28, 3))
    made = data.load_federation("npz", "iid", 4, data_dir=str(path))
    expected = np.concatenate([arrays["train_images"], arrays["val_images"]])
    np.testing.assert_array_equal(made.train.x, expected)
    np.testing.assert_array_equal(made.test.x, arrays["test_images"])
    np.testing.assert_array_equal(made.test.y, arrays["test_labels"][:, 0])
    held = np.concatenate([client.validation for client in made.clients])
    assert sorted(held) == list(range(40, 52))
    np.testing.assert_allclose(
        made.input_spec.mean, arrays["train_images"].mean((0, 1, 2)) / 255, rtol=1e-4
    )
    with refuses("partition", "no sites; choose one of class, dirichlet, iid, quantity, shards"):
        data.load_federation("npz", "natural", data_dir=str(path))


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((28, 28), np.arange(80).reshape(40, 2), "boxes .object detection. are not supported"),
        ((28, 28), np.tile([[1, 1, 0]], (40, 1)), "several labels of a sample .multi-label. are"),
        ((28, 28, 28), None, "volumes and videos .3-D. are not supported; use slices"),
    ],
)
def test_medmnist_of_other_tasks_is_refused(shape, labels, message, tmp_path):
    medmnist(tmp_path / "a.npz", shape, labels)
    with pytest.raises(DataError, match=message) as caught:
        data.load_federation("npz", "iid", data_dir=str(tmp_path / "a.npz"))
    assert "\n" not in str(caught.value)


def test_medmnist_without_labels_or_with_other_sizes(tmp_path):
    path = tmp_path / "a.npz"
    arrays = medmnist(path)
    np.savez(path, **{name: array for name, array in arrays.items() if name != "val_labels"})
    with pytest.raises(DataError, match="array 'val_labels' is missing"):
        data.load_federation("npz", "iid", data_dir=str(path))
    np.savez(path, **{**arrays, "test_images": images(0, 20, 32, 32)})
    with pytest.raises(DataError, match=r"samples have the shapes \(28, 28\) and \(32, 32\)"):
        data.load_federation("npz", "iid", data_dir=str(path))


# PFLlib.


def pfllib(root, shape=(3, 8, 8), clients=(0, 1, 10), **changes):
    """Folders as PFLlib writes them: a pickled dictionary for each client."""
    written = {}
    for part in ("train", "test"):
        (root / part).mkdir(parents=True, exist_ok=True)
        for client in clients:
            random = np.random.default_rng([client, len(part)])
            x = random.uniform(-1, 1, (12, *shape)).astype(np.float32)
            y = (np.arange(12) + client) % 4
            written[part, str(client)] = x, y
            with open(root / part / f"{client}.npz", "wb") as file:
                np.savez_compressed(file, data={"x": x, "y": y, **changes})
    (root / "config.json").write_text("{}")
    return written


def test_clients_of_pfllib(tmp_path):
    written = pfllib(tmp_path)
    made = data.load_federation("npz", "natural", data_dir=str(tmp_path))
    assert made.client_ids == ("0", "1", "10")
    assert made.input_spec.shape == (8, 8, 3)
    for k, name in enumerate(made.client_ids):
        for part, examples in zip(("train", "test"), made.client_examples(k), strict=True):
            x, y = written[part, name]
            np.testing.assert_array_equal(examples.x, np.moveaxis(x, 1, -1))
            np.testing.assert_array_equal(examples.y, y)


def test_clients_in_plain_files(tmp_path):
    written = pfllib(tmp_path, shape=(5,))
    expected = data.load_federation("npz", "natural", data_dir=str(tmp_path))
    for (part, client), (x, y) in written.items():
        np.savez(tmp_path / part / f"{client}.npz", x=x, y=y)
    made = data.load_federation("npz", "natural", data_dir=str(tmp_path))
    np.testing.assert_array_equal(made.train.x, expected.train.x)
    np.savez(tmp_path / "train" / "1.npz", x=x, y=y[:-1])
    with pytest.raises(DataError, match=r"train/1\.npz: 12 inputs and 11 labels"):
        data.load_federation("npz", "natural", data_dir=str(tmp_path))
    np.savez(tmp_path / "train" / "1.npz", x=x)
    with pytest.raises(DataError, match=r"train/1\.npz cannot be read as an \.npz file: .*y"):
        data.load_federation("npz", "natural", data_dir=str(tmp_path))


class Evil:
    """A pickle that writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_no_pickle_is_executed(tmp_path):
    pfllib(tmp_path / "data", evil=Evil(tmp_path / "written"))
    with pytest.raises(DataError) as caught:
        data.load_federation("npz", "natural", data_dir=str(tmp_path / "data"))
    message = str(caught.value)
    assert not (tmp_path / "written").exists()
    # Its module is _io from Python 3.13 on.
    name = f"{open.__module__}.open"
    assert f"0.npz: the pickle in it names {name}, which is not an array" in message
    assert message.endswith("so store them with np.savez(file, x=x, y=y)")
    assert "\n" not in message
    np.load(tmp_path / "data" / "train" / "0.npz", allow_pickle=True)["data"]
    assert (tmp_path / "written").exists()  # otherwise, it is


def replace(path, content):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.npy", content)


def pickled(value, protocol):
    header = np.lib.format.magic(1, 0) + b"v\0"
    text = "{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    return header + (text.ljust(117) + "\n").encode() + pickle.dumps(np.array(value), protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_of_all_kinds_of_numbers(protocol, tmp_path):
    pfllib(tmp_path, clients=(0,))
    x = np.asfortranarray(np.random.default_rng(0).normal(size=(6, 3))).astype(">f8")
    for part in ("train", "test"):
        content = pickled({"x": x, "y": np.array([True, False] * 3)}, protocol)
        replace(tmp_path / part / "0.npz", content)
    made = data.load_federation("npz", "natural", data_dir=str(tmp_path))
    np.testing.assert_array_equal(made.train.x, x.astype(np.float32))
    assert made.class_names == ("False", "True")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([1, 2], "holds no dictionary"),
        ({"x": np.zeros(3), "y": [1, 2, 3]}, "y is no array of numbers; texts and lists are not"),
        ({"x": np.array([{}, {}]), "y": np.zeros(2)}, "holds an array of objects"),
        ({"x": np.array(["a"]), "y": np.zeros(1)}, "holds values of the type U1"),
        ({"x": collections.OrderedDict(), "y": np.zeros(1)}, "names collections.OrderedDict"),
    ],
)
def test_pickles_of_other_things_are_refused(value, reason, tmp_path):
    pfllib(tmp_path, clients=(0,))
    replace(tmp_path / "train" / "0.npz", pickled(value, 4))
    with pytest.raises(DataError, match=reason) as caught:
        data.load_federation("npz", "natural", data_dir=str(tmp_path))
    assert "\n" not in str(caught.value)


def test_damaged_pickles_are_refused(tmp_path):
    pfllib(tmp_path, clients=(0,))
    path = tmp_path / "train" / "0.npz"
    whole = pickled({"x": np.zeros((2, 3)), "y": np.zeros(2)}, 4)
    for content in (whole[:-30], whole[:140], b"no array", whole.replace(b"f8", b"f4")):
        replace(path, content)
        with pytest.raises(DataError, match=r"0\.npz: the pickle in it ") as caught:
            data.load_federation("npz", "natural", data_dir=str(tmp_path))
        assert "\n" not in str(caught.value)
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"0\.npz cannot be read as an \.npz file"):
        data.load_federation("npz", "natural", data_dir=str(tmp_path))


def test_links_out_of_the_folder_are_refused(tmp_path):
    pfllib(tmp_path / "a")
    pfllib(tmp_path / "b")
    (tmp_path / "a" / "train" / "0.npz").unlink()
    (tmp_path / "a" / "train" / "0.npz").symlink_to(tmp_path / "b" / "train" / "0.npz")
    with pytest.raises(DataError, match=r"0\.npz is a link to a file outside of"):
        data.load_federation("npz", "natural", data_dir=str(tmp_path / "a"))


# TensorFlow Datasets and TFF.


X = images(3, 40, 6, 6, 1)
Y = np.random.default_rng(4).integers(0, 3, 40)
SITES = np.array(["north", "south"])[np.arange(40) % 2]


class ClientData:
    """As `tff.simulation.datasets.ClientData`."""

    client_ids = ("north", "south")

    def create_tf_dataset_for_client(self, client_id):
        own = client_id == SITES
        elements = collections.OrderedDict(pixels=X[own], label=Y[own])
        return tf.data.Dataset.from_tensor_slices(elements)


def test_client_data_of_simulations_and_dictionaries():
    expected = data.from_arrays(X, Y, SITES)
    elements = {"image": X, "label": Y, "site": SITES}
    for dataset in (
        ClientData(),
        tf.data.Dataset.from_tensor_slices(elements),
        tf.data.Dataset.from_tensor_slices(elements).batch(7),
    ):
        made = data.from_tf_dataset(dataset)
        assert made.client_ids == expected.client_ids
        np.testing.assert_array_equal(made.class_counts(), expected.class_counts())
        assert sorted(x.tobytes() for x in made.train.x) == sorted(
            x.tobytes() for x in expected.train.x
        )
    parts = data.from_tf_dataset(ClientData(), ClientData())
    assert (len(parts.train), len(parts.test)) == (40, 40)


def test_dictionaries_with_other_keys_are_refused():
    elements = {"image": X, "label": Y, "id": Y, "site": SITES}
    with pytest.raises(DataError, match=r"keys image, label, id, site; triples .*dataset\.map"):
        data.from_tf_dataset(tf.data.Dataset.from_tensor_slices(elements))
    with pytest.raises(DataError, match=r"keys image, site; triples"):
        del elements["id"], elements["label"]
        data.from_tf_dataset(tf.data.Dataset.from_tensor_slices(elements))


# LEAF.


def leaf(root, users):
    """Both parts in LEAF's layout."""
    for part in ("train", "test"):
        (root / "data" / part).mkdir(parents=True, exist_ok=True)
        sizes = [len(value["y"]) for value in users.values()]
        content = {"users": list(users), "num_samples": sizes, "user_data": users}
        (root / "data" / part / "all_data.json").write_text(json.dumps(content))


def refused(name, root, part):
    with unusable(str(root), part):
        data.load_federation(name, "natural", data_dir=str(root))


def test_synthetic_data_of_leaf(tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 60))
    y = [0, 4, 2, 2, 1, 0, 3, 4]
    users = {
        name: {"x": x[i : i + 4].tolist(), "y": y[i : i + 4]} for name, i in (("0", 0), ("1", 4))
    }
    leaf(tmp_path, users)
    made = data.load_federation("leaf_synthetic", "natural", data_dir=str(tmp_path))
    np.testing.assert_array_equal(made.train.x, x.astype(np.float32))
    assert made.train.y.tolist() == y
    assert made.class_names == ("0", "1", "2", "3", "4")
    assert (made.input_spec.kind, made.input_spec.shape) == ("vector", (60,))
    users["0"]["x"][1] = [1.0] * 59
    leaf(tmp_path, users)
    refused("leaf_synthetic", tmp_path, "user '0': every input needs 60 numbers")
    users["0"]["x"][1] = ["a"] * 60
    leaf(tmp_path, users)
    refused("leaf_synthetic", tmp_path, "user '0': inputs must be finite numbers, 60 in each")
    users["0"].update(x=x[:4].tolist(), y=[0.5, 1, 2, 3])
    leaf(tmp_path, users)
    refused("leaf_synthetic", tmp_path, "user '0': labels must be integers")


def test_tweets_of_leaf(tmp_path):
    tweets = ["so good!", "a" * 150 + "end", "é"]
    rows = [["1", "date", "NO_QUERY", "ann", tweet] for tweet in tweets]
    leaf(tmp_path, {"ann": {"x": rows, "y": [1, 0, "1"]}, "bo": {"x": rows[:1], "y": [0]}})
    made = data.load_federation("sent140", "natural", data_dir=str(tmp_path))
    assert made.class_names == ("negative", "positive")
    assert made.train.y.tolist() == [1, 0, 1, 0]
    for x, tweet in zip(made.train.x, tweets, strict=False):
        text = tweet[-140:].rjust(140, "\n")
        assert x.tolist() == [
            ALPHABET.find(letter) if letter in ALPHABET else 80 for letter in text
        ]
    leaf(tmp_path, {"ann": {"x": ["text"], "y": [1]}})
    refused("sent140", tmp_path, "user 'ann': every input needs the columns of a tweet, whose")
    leaf(tmp_path, {"ann": {"x": rows, "y": [1, 0, 2]}})
    refused("sent140", tmp_path, "user 'ann': label 2 is not within 0 to 1, in sample 2")


def test_faces_of_leaf(tmp_path):
    """Files and labels as LEAF's scripts write them, with floating-point labels."""
    root = tmp_path / "celeba"
    names = [f"{number:06d}.jpg" for number in range(8)]
    users = {
        "17": {"x": names[:4], "y": [0.0, 1.0, 1.0, 0.0]},
        "4": {"x": names[4:], "y": [1.0] * 4},
    }
    leaf(root, users)
    refused("celeba", root, "holds no raw/img_align_celeba")
    for number, name in enumerate(names):
        write(root / "data" / "raw" / "img_align_celeba" / name, noise(number, 9, 7, 3))
    made = data.load_federation("celeba", "natural", data_dir=str(root))
    assert made.client_ids == ("17", "4")
    assert made.class_names == ("0", "1")
    assert made.input_spec.shape == (9, 7, 3)
    assert made.train.ids.tolist() == names
    assert made.train.y.tolist() == [0, 1, 1, 0, 1, 1, 1, 1]
    users["4"]["x"][0] = "../../x.jpg"
    leaf(root, users)
    refused("celeba", root, "which is not a path below")
    users["4"]["x"][0] = 3
    leaf(root, users)
    refused("celeba", root, "user '4': x has to name 4 images")
    users["4"]["x"] = "abcd"
    leaf(root, users)
    refused("celeba", root, "user '4': the lists 'x' and 'y' are needed")


def test_bytes_that_have_changed_are_refused_or_numbers(tmp_path):
    """Whatever a file holds, it makes arrays or one line."""
    whole = pickled({"x": np.zeros((4, 3)), "y": np.arange(4) % 2}, 4)
    random = np.random.default_rng(0)
    refusals = 0
    for _ in range(400):
        content = bytearray(whole)
        for place in random.integers(0, len(whole), random.integers(1, 4)):
            content[place] = random.integers(256)
        try:
            arrays = pickled_arrays(bytes(content), "0.npz")
        except DataError as error:
            refusals += 1
            assert "\n" not in str(error)
        else:
            assert {type(array) for array in arrays.values()} == {np.ndarray}
    assert refusals > 100


def test_labels_with_a_rank_of_their_own_are_no_batch():
    """As Keras takes them: [n, 1], unbatched and in batches."""
    x, y = np.arange(24.0).reshape(6, 4), np.arange(6) % 2
    pairs = tf.data.Dataset.from_tensor_slices((x, y[:, None], np.array(["a", "b"] * 3)))
    plain = data.from_tf_dataset(tf.data.Dataset.from_tensor_slices((x, y, ["a", "b"] * 3)))
    for dataset in (pairs, pairs.batch(4)):
        found = data.from_tf_dataset(dataset)
        np.testing.assert_array_equal(found.train.y, plain.train.y)
        np.testing.assert_array_equal(found.train.x, plain.train.x)


@pytest.mark.parametrize("has_sites", [True, False])
def test_one_hot_labels_as_wide_as_images_are_high(has_sites):
    """Eight classes beside images of 8 × 6 pixels are no batch of 8."""
    x = np.zeros((16, 8, 6, 1), np.uint8)
    one_hot = np.eye(8, dtype=np.float32)[np.arange(16) % 8]
    if has_sites:
        sites = ["a", "b"] * 8
        dataset = tf.data.Dataset.from_tensor_slices((x, one_hot, sites))
        reason = r"the labels have shape \(16, 8\).*; for one-hot labels, take the argmax"
    else:
        dataset = {"a": tf.data.Dataset.from_tensor_slices((x, one_hot))}
        reason = r"labels of shape \(8,\) beside inputs of shape \(8, 6, 1\) may be one-hot"
    with pytest.raises(DataError, match=reason):
        data.from_tf_dataset(dataset)


@pytest.mark.parametrize("size", [2, 8])
def test_full_batches_are_taken_apart(size):
    """Also those of two, in which labels 0 and 1 look as one-hot labels do."""
    x = np.arange(16 * 6 * 5, dtype=np.uint16).reshape(16, 6, 5) % 251
    dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(16) % 2))
    made = data.from_tf_dataset({"a": dataset.batch(size, drop_remainder=True)})
    found = np.concatenate([made.train.x, made.test.x])[..., 0]
    assert sorted(image.tobytes() for image in found) == sorted(
        image.tobytes() for image in x.astype(np.uint8)
    )


def test_elements_without_a_known_shape_are_refused():
    dataset = tf.data.Dataset.from_generator(lambda: iter(()), output_types=(tf.uint8, tf.int32))
    with pytest.raises(DataError, match="no known shape; give from_generator an output_signature"):
        data.from_tf_dataset({"a": dataset})


def test_a_part_in_two_folders_is_refused(tmp_path):
    """One of them would be lost."""
    for part, number in (("train", 6), ("test", 4), ("testing", 3)):
        (tmp_path / part).mkdir()
        np.savez(
            tmp_path / part / "0.npz", data={"x": np.zeros((number, 2)), "y": np.arange(number)}
        )
    with pytest.raises(DataError, match="the folders test and testing are both the part test"):
        npz._client_folders(tmp_path)
