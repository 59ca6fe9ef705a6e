"""EMNIST and Shakespeare from small SQLite files in the layout of TFF's cache."""

import sqlite3
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.data.sources import tff_cache
from tff_pcdd.data.sources._leaf_formats import ALPHABET


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def write(path, splits):
    """A database of {split: {user: [features of a sample]}}."""
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        database.execute(
            "CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        for split, users in splits.items():
            for user, samples in users.items():
                database.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)", (user, split, len(samples))
                )
                for sample in samples:
                    proto = tf.train.Example(features=tf.train.Features(feature=sample))
                    database.execute(
                        "INSERT INTO examples VALUES (?, ?, ?)",
                        (split, user, proto.SerializeToString()),
                    )
    database.close()


def image_sample(label, pixels):
    return {
        "pixels": tf.train.Feature(float_list=tf.train.FloatList(value=pixels.ravel())),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }


def _snippet(text):
    return {"snippets": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))}


@pytest.fixture
def emnist(tmp_path):
    """The grey levels of each user's images; users f01 and f02 have a test part."""
    generator = np.random.default_rng(0)
    labels = {"f00": [3, 61], "f01": [0], "f02": [9, 9, 35]}
    levels = {
        user: generator.integers(0, 256, (len(own), 28, 28), np.uint8)
        for user, own in labels.items()
    }
    users = {
        user: [
            image_sample(label, np.float32(image) / 255)
            for label, image in zip(labels[user], levels[user], strict=True)
        ]
        for user in labels
    }
    test = {user: users[user][:1] for user in ("f01", "f02")}
    digits = {user: users[user][:2] for user in ("f01", "f02")}
    splits = {
        "all_train": users,
        "all_test": test,
        "digits_only_train": digits,
        "digits_only_test": {"f02": users["f02"][1:2]},
    }
    write(tmp_path / "emnist_all.sqlite", splits)
    return tmp_path, levels


def test_emnist(emnist):
    folder, levels = emnist
    loaded = data.load_federation("tff_emnist", "natural", data_dir=str(folder))
    assert loaded.client_ids == ("f00", "f01", "f02")
    assert (loaded.num_classes, loaded.class_names[10]) == (62, "A")
    assert loaded.train.x.dtype == np.uint8
    for k, user in enumerate(loaded.client_ids):
        train, test = loaded.client_examples(k)
        np.testing.assert_array_equal(train.x[..., 0], levels[user])
        np.testing.assert_array_equal(test.x[..., 0], levels[user][: 0 if k == 0 else 1])
    assert loaded.client_examples(2)[0].y.tolist() == [9, 9, 35]
    pixels = data.normalize(tf.constant(loaded.train.x), loaded.input_spec)
    np.testing.assert_allclose(pixels[:2, ..., 0], levels["f00"] / 255, rtol=1e-6)


def test_emnist_digits(emnist):
    folder, _ = emnist
    loaded = data.load_federation("tff_emnist_digits", "natural", data_dir=str(folder))
    assert loaded.client_ids == ("f01", "f02")
    assert loaded.num_classes == 10
    assert loaded.train.y.tolist() == [0, 9, 9]
    assert loaded.test.y.tolist() == [9]


def test_pixels_between_grey_levels_stay_floats(tmp_path):
    image = np.linspace(0, 1, 784, dtype=np.float32).reshape(28, 28)
    white = np.ones((28, 28), np.float32)
    users = {"a": [image_sample(1, image)], "b": [image_sample(2, white)]}
    write(tmp_path / "emnist_all.sqlite", {"all_train": users, "all_test": {"a": users["b"]}})
    loaded = data.load_federation("tff_emnist", "natural", data_dir=str(tmp_path))
    assert loaded.train.x.dtype == np.float32
    np.testing.assert_array_equal(loaded.train.x[..., 0], [image, white])
    assert loaded.input_spec.scale == 1.0


def test_some_users_are_chosen_by_the_seed(emnist):
    def chosen(seed):
        return data.load_federation(
            "tff_emnist", "natural", 2, data_dir=str(emnist[0]), seed=seed
        ).client_ids

    found = [chosen(seed) for seed in range(10)]
    assert chosen(0) == found[0]
    assert all(len(users) == 2 for users in found)
    assert len(set(found)) == 3
    with refuses("max_clients", "emnist_all.sqlite has only 3 users"):
        data.load_federation("tff_emnist", "natural", 4, data_dir=str(emnist[0]))


def test_shakespeare(tmp_path):
    """A user's snippets are joined; a user with only 80 characters has no sample."""
    first, second = ALPHABET[:50] + "é", ALPHABET[40:80]
    train = {"ROMEO": [_snippet(first), _snippet(second)], "PETER": [_snippet("x" * 80)]}
    test = {"ROMEO": [_snippet("y" * 82)]}
    write(tmp_path / "shakespeare.sqlite", {"train": train, "test": test})
    loaded = data.load_federation("tff_shakespeare", "natural", data_dir=str(tmp_path))
    assert loaded.client_ids == ("ROMEO",)
    assert loaded.notes == {"empty_users": 1}
    text = f"{first}\n{second}"
    ids = [ALPHABET.find(character) % 81 for character in text]
    assert loaded.train.x.tolist() == [ids[k : k + 80] for k in range(len(ids) - 80)]
    assert loaded.train.y.tolist() == ids[80:]
    assert loaded.test.x.shape == (2, 80)
    assert loaded.num_classes == 80
    assert loaded.input_spec.vocabulary_size == 81
    only = data.load_federation("tff_shakespeare", "natural", 1, data_dir=str(tmp_path), seed=2)
    assert only.client_ids == ("ROMEO",)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tff_emnist", "emnist_all.sqlite"),
        ("tff_emnist_digits", "emnist_all.sqlite"),
        ("tff_shakespeare", "shakespeare.sqlite"),
    ],
)
def test_without_a_cache(name, file, tmp_path, monkeypatch):
    """Without a directory TFF's default one is searched; no file is created."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, settings in ((tmp_path / ".tff", {}), (tmp_path, {"data_dir": str(tmp_path)})):
        with pytest.raises(DataError) as caught:
            data.load_federation(name, "natural", **settings)
        message = str(caught.value)
        assert message.startswith(f"dataset {name}: data_dir={folder} has no {file}, ")
        assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_files_that_are_not_whole(emnist, tmp_path):
    folder, _ = emnist
    path = folder / "emnist_all.sqlite"
    whole = path.read_bytes()
    path.write_bytes(b"no database")
    with pytest.raises(DataError, match=r"dataset tff_emnist: .*emnist_all.sqlite is unreadable"):
        data.load_federation("tff_emnist", "natural", data_dir=str(folder))
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"incomplete \(.*tables"):
        data.load_federation("tff_emnist", "natural", data_dir=str(folder))
    path.write_bytes(whole)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE examples SET serialized_example_proto = x'00ff'")
    database.close()
    with pytest.raises(DataError, match=r"incomplete \(Could not parse .*'\); del") as caught:
        data.load_federation("tff_emnist", "natural", data_dir=str(folder))
    assert "\n" not in str(caught.value)
    users = {"PETER": [_snippet("Ay.")]}
    write(tmp_path / "shakespeare.sqlite", {"train": users, "test": users})
    with pytest.raises(DataError, match=r"shakespeare.sqlite: no user has any sample"):
        data.load_federation("tff_shakespeare", "natural", data_dir=str(tmp_path))


def test_the_rest_of_a_user_is_never_read(emnist, monkeypatch):
    read = []
    samples = tff_cache.TffEmnist.samples
    monkeypatch.setattr(
        tff_cache.TffEmnist, "samples", lambda self, part: read.append(1) or samples(self, part)
    )
    data.load_federation("tff_emnist", "natural", 1, data_dir=str(emnist[0]), seed=1)
    assert len(read) <= 2


OTHERS = {"f1": [image_sample(3, np.zeros((28, 28)))]}


@pytest.mark.parametrize("label", [2**40, 2**32 + 3])
def test_labels_beyond_int32_are_refused(label, tmp_path):
    """TFF's own loader converts them to other labels."""
    samples = [image_sample(3, np.zeros((28, 28))), image_sample(label, np.zeros((28, 28)))]
    write(tmp_path / "emnist_all.sqlite", {"all_train": {"f0": samples}, "all_test": OTHERS})
    with pytest.raises(DataError, match=rf"user 'f0': label {label} of sample 1 is not an int32"):
        data.load_federation("tff_emnist", "natural", data_dir=str(tmp_path))


def test_labels_beyond_the_edition_are_refused(tmp_path):
    users = {"f0": [image_sample(35, np.zeros((28, 28)))]}
    splits = {"digits_only_train": users, "digits_only_test": users}
    write(tmp_path / "emnist_all.sqlite", splits)
    with pytest.raises(DataError, match="labels run from 35 to 35, not within 0 to 9"):
        data.load_federation("tff_emnist_digits", "natural", data_dir=str(tmp_path))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_pixels_that_are_not_finite_are_refused(value, tmp_path):
    pixels = np.zeros((28, 28))
    pixels[3, 5] = value
    samples = [image_sample(3, np.zeros((28, 28))), image_sample(1, pixels)]
    write(tmp_path / "emnist_all.sqlite", {"all_train": {"f0": samples}, "all_test": OTHERS})
    with pytest.raises(DataError, match=r"'f0': pixels must be finite .* pixel \(3, 5\) of sample"):
        data.load_federation("tff_emnist", "natural", data_dir=str(tmp_path))


def test_user_ids_do_not_become_queries(tmp_path):
    users = {"f0": [image_sample(3, np.zeros((28, 28)))], "x' OR '1'='1": []}
    write(tmp_path / "emnist_all.sqlite", {"all_train": users, "all_test": OTHERS})
    with pytest.raises(DataError, match=r"the user id .* contains a quote"):
        data.load_federation("tff_emnist", "natural", data_dir=str(tmp_path))
