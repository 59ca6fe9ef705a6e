"""LEAF's JSON: real sets, small artificial ones, and every kind of broken file."""

import functools
import json
import os
import tracemalloc

import numpy as np
import pytest

from tests.data.refusals import refuses, unusable
from tff_pcdd import data
from tff_pcdd.data import DataError
from tff_pcdd.data.sources import leaf
from tff_pcdd.data.sources._leaf_formats import ALPHABET

IMAGE = [0.0, 0.5, 1.0, *[1.0] * 781]  # 0.5 is not a grey level
GREY = [0.0, 0.741, 1.0, *[1.0] * 781]  # 189/255 with three decimals, as LEAF's tools write
LINE = "".join(ALPHABET[i % 80] for i in range(80))


def _image_user(*labels, image=GREY):
    return {"x": [image] * len(labels), "y": list(labels)}


def _text_user(labels, line=LINE):
    return {"x": [line] * len(labels), "y": list(labels)}


def _write(folder, users, name="all_data_0.json", /, **changes):
    """A LEAF file; changes replace its keys, None removes one."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(value["y"]) for value in users.values()],
        "hierarchies": [["a]", "}{"] for _ in users],
        "user_data": users,
    }
    content = {key: value for key, value in {**content, **changes}.items() if value is not None}
    (folder / name).write_text(json.dumps(content))
    return folder


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "train", tmp_path / "test"


def _femnist(folders, train, test=None, **settings):
    _write(folders[0], train)
    _write(folders[1], test if test is not None else train)
    return data.load_leaf(*folders, "femnist", **settings)


def test_users_of_both_parts_become_clients(folders):
    loaded = _femnist(
        folders,
        {"both": _image_user(3, 1), "train only": _image_user(2), "empty": _image_user()},
        {"test only": _image_user(9), "both": _image_user(3), "empty": _image_user()},
    )
    assert loaded.client_ids == ("both", "train only", "test only")
    assert loaded.class_counts().sum(axis=1).tolist() == [2, 1, 0]
    assert loaded.test_class_counts().sum(axis=1).tolist() == [1, 0, 1]
    assert loaded.client_examples(0)[0].y.tolist() == [3, 1]
    assert loaded.client_examples(2)[1].y.tolist() == [9]
    assert loaded.notes == {"empty_users": 1}
    assert loaded.num_classes == 10


def test_grey_levels_stay_bytes_and_other_pixels_floats(folders):
    grey = _femnist(folders, {"a": _image_user(1)})
    assert grey.train.x.dtype == np.uint8
    assert grey.train.x[0, 0, :3, 0].tolist() == [0, 189, 255]
    assert grey.input_spec.scale == 1 / 255
    # If one user has other pixels, those of all users become floats in both parts.
    mixed = _femnist(
        folders,
        {"a": _image_user(1), "b": _image_user(2, image=IMAGE), "c": _image_user(3)},
        {"a": _image_user(1)},
    )
    assert mixed.train.x.dtype == mixed.test.x.dtype == np.float32
    np.testing.assert_allclose(mixed.train.x[:, 0, 1, 0], [189 / 255, 0.5, 189 / 255], rtol=1e-6)
    assert mixed.test.x[0, 0, 2, 0] == 1.0
    assert (mixed.input_spec.dtype, mixed.input_spec.scale) == ("float32", 1.0)


@pytest.mark.parametrize(("largest", "classes"), [(9, 10), (10, 36), (35, 36), (36, 62), (61, 62)])
def test_classes_are_those_of_the_smallest_edition(folders, largest, classes):
    loaded = _femnist(folders, {"a": _image_user(0, largest)}, {"a": _image_user(0)})
    assert loaded.num_classes == classes
    assert loaded.class_names[10:12] == (("A", "B") if classes > 10 else ())


def test_number_of_classes_can_be_set(folders):
    assert _femnist(folders, {"a": _image_user(0)}, num_classes=62).num_classes == 62
    with refuses("num_classes", "femnist has 1 to 62"):
        _femnist(folders, {"a": _image_user(0)}, num_classes=63)
    with pytest.raises(DataError, match="user 'a': label 7 is not within 0 to 4"):
        _femnist(folders, {"a": _image_user(0, 7)}, num_classes=5)
    load = functools.partial(
        data.load_federation, "femnist", "natural", data_dir=str(folders[0].parent)
    )
    assert (load().num_classes, load(num_classes=62).num_classes) == (10, 62)
    for number, reason in ((63, "femnist has 1 to 62 classes"), (0, "must be at least 1")):
        with refuses("num_classes", reason):
            load(num_classes=number)
    with refuses("num_classes", "applies only with dataset=femnist"):
        data.load_federation("digits", "iid", 1, num_classes=9)


def test_characters_become_ids_and_unknown_ones_the_last(folders):
    line = "a}\n|€\U0001f600" + LINE[6:]
    _write(folders[0], {"ROMEO": _text_user(["b", "}"], line)})
    _write(folders[1], {"ROMEO": _text_user(["\n"])})
    loaded = data.load_leaf(*folders, "shakespeare")
    ids = [ALPHABET.find(character) % 81 for character in line]
    assert loaded.train.x.tolist() == [ids, ids]
    assert ids[3:6] == [80, 80, 80]
    assert loaded.train.x.dtype == np.uint8
    assert loaded.train.y.tolist() == [ALPHABET.index("b"), 79]
    assert loaded.test.y.tolist() == [0]
    assert loaded.num_classes == 80
    assert loaded.input_spec.vocabulary_size == 81
    _write(folders[0], {"ROMEO": _text_user(["€"])})
    assert data.load_leaf(*folders, "shakespeare").class_names[80] == "<unknown>"


def test_alphabet_is_leafs():
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert "".join(sorted(ALPHABET)) == ALPHABET


def test_several_files_are_one_set(folders):
    _write(folders[0], {"a": _image_user(1), "b": _image_user(2, 2)}, "all_0.json")
    _write(folders[0], {"c": _image_user(3)}, "all_1.json")
    _write(folders[1], {"c": _image_user(4)}, "all_0.json")
    loaded = data.load_leaf(*folders, "femnist")
    assert loaded.client_ids == ("a", "b", "c")
    assert loaded.train.y.tolist() == [1, 2, 2, 3]
    _write(folders[0], {"a": _image_user(1)}, "all_2.json")
    with pytest.raises(DataError, match=r"all_2.json: user 'a' is also in .*all_0.json"):
        data.load_leaf(*folders, "femnist")


def test_key_order_spacing_and_names_do_not_matter(folders):
    users = {'quote "}] \\': _image_user(1), "é|{": _image_user(2)}
    _write(folders[1], users)
    text = json.dumps(
        {"user_data": users, "num_samples": [1, 1], "extra": None, "users": list(users)}, indent=2
    )
    folders[0].mkdir()
    (folders[0] / "a.json").write_text(text + "\n")
    loaded = data.load_leaf(*folders, "femnist")
    assert loaded.client_ids == tuple(users)
    assert loaded.train.y.tolist() == [1, 2]


def test_some_of_ten_thousand_users_load_without_parsing_the_rest(folders, monkeypatch):
    users = {f"user {i:05d}": _text_user("ab"[i % 2]) for i in range(10_000)}
    _write(folders[0], users)
    _write(folders[1], {"user 00000": _text_user("a")})
    parsed = []
    parse = leaf.LeafSource._parse_user
    monkeypatch.setattr(
        leaf.LeafSource, "_parse_user", lambda *args: parsed.append(args[3]) or parse(*args)
    )
    loaded = data.load_leaf(*folders, "shakespeare", max_clients=50, seed=3)
    assert loaded.num_clients == 50
    assert len(parsed) <= 51
    assert set(loaded.client_ids) <= set(users)
    again = data.load_leaf(*folders, "shakespeare", max_clients=50, seed=3)
    other = data.load_leaf(*folders, "shakespeare", max_clients=50, seed=4)
    assert loaded.client_ids == again.client_ids != other.client_ids


def test_choice_of_users_does_not_depend_on_their_order(folders):
    users = {f"u{i}": _image_user(1) for i in range(20)}
    chosen = set(_femnist(folders, users, max_clients=5).client_ids)
    assert chosen == set(_femnist(folders, dict(reversed(users.items())), max_clients=5).client_ids)


def test_real_femnist_digits(real_data):
    folder = real_data("leaf/femnist_digits")
    loaded = data.load_leaf(folder / "train", folder / "test", "femnist")
    assert (loaded.num_clients, loaded.num_classes) == (100, 10)
    assert (len(loaded.train), len(loaded.test)) == (11440, 1301)
    assert loaded.train.x.dtype == np.uint8
    # White paper: most pixels are 1.0.
    assert np.median(loaded.train.x) == 255
    # The first user, parsed by hand.
    content = json.loads(next((folder / "test").iterdir()).read_text())
    user = content["users"][0]
    _, test = loaded.client_examples(loaded.client_ids.index(user))
    assert test.y.tolist() == content["user_data"][user]["y"]
    np.testing.assert_allclose(
        test.x.reshape(-1, 784) / 255, content["user_data"][user]["x"], atol=5e-4
    )


@pytest.mark.integration
def test_memory_is_bounded_by_the_arrays_not_by_the_json(real_data):
    folder = real_data("leaf/femnist_digits")
    tracemalloc.start()
    loaded = data.load_leaf(folder / "train", folder / "test", "femnist", max_clients=30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = (loaded.train.x, loaded.train.y, loaded.test.x, loaded.test.y)
    assert peak < 3 * sum(array.nbytes for array in arrays)


def test_real_shakespeare(real_data):
    folder = real_data("leaf/shakespeare")
    loaded = data.load_federation("shakespeare", "natural", data_dir=str(folder))
    assert (loaded.num_clients, loaded.num_classes) == (100, 80)
    assert loaded.train.x.shape == (40500, 80)
    content = json.loads(next((folder / "train").iterdir()).read_text())
    user = content["users"][7]
    train, _ = loaded.client_examples(loaded.client_ids.index(user))
    letters = np.array([*ALPHABET, "?"])
    assert "".join(letters[train.x[3]]) == content["user_data"][user]["x"][3]
    assert letters[train.y].tolist() == content["user_data"][user]["y"]


def test_natural_and_pooled_partitions_through_settings(folders):
    users = {f"u{i}": _image_user(*range(10)) for i in range(6)}
    _femnist(folders, users)
    place = str(folders[0].parent)
    natural = data.load_federation("femnist", "natural", data_dir=place)
    assert natural.client_ids == tuple(users)
    some = data.load_federation("femnist", "natural", 2, data_dir=place)
    assert some.num_clients == 2
    assert len(some.train) == 20
    pooled = data.load_federation("femnist", "class", 5, classes_per_client=2, data_dir=place)
    assert ((pooled.class_counts() > 0).sum(axis=1) == 2).all()
    assert pooled.client_ids == ("0", "1", "2", "3", "4")
    fewer = data.load_federation("femnist", "natural", data_dir=place, max_train_samples=20)
    assert len(fewer.train) == 20
    assert fewer.class_counts().sum(axis=0).tolist() == [2] * 10
    augmented = data.load_federation(
        "femnist", "natural", data_dir=place, augmentation="standard"
    ).input_spec
    assert (augmented.crop_padding, augmented.flip) == (3, False)


def test_clients_that_a_subset_leaves_empty_are_counted(folders):
    _femnist(folders, {f"u{i}": _image_user(i) for i in range(8)}, {"u0": _image_user(0)})
    loaded = data.load_federation(
        "femnist", "natural", data_dir=str(folders[0].parent), max_train_samples=3
    )
    assert loaded.notes["clients_left_empty"] == 8 - loaded.num_clients > 0


def test_folders_of_leafs_own_scripts_are_found(tmp_path):
    _femnist(
        (tmp_path / "femnist/data/train", tmp_path / "femnist/data/test"), {"a": _image_user(1)}
    )
    for place in (tmp_path, tmp_path / "femnist", tmp_path / "femnist" / "data"):
        assert data.load_federation("femnist", "natural", data_dir=str(place)).num_clients == 1
    with pytest.raises(DataError, match="needs folders train and test"):
        data.load_federation("femnist", "natural", data_dir=str(tmp_path / "nowhere"))
    with refuses("data_dir", "is missing; femnist needs the directory"):
        data.load_federation("femnist", "natural")


A = {"a": _image_user(1, 2)}


@pytest.mark.parametrize(
    ("users", "changes", "parts"),
    [
        (A, {"users": None}, ["key 'users' is missing"]),
        (A, {"num_samples": None}, ["key 'num_samples' is missing"]),
        (A, {"user_data": None}, ["key 'user_data' is missing"]),
        (A, {"num_samples": [2, 2]}, ["lists of the same length"]),
        (A, {"num_samples": 2}, ["lists of the same length"]),
        (A, {"num_samples": [3]}, ["user 'a'", "2 inputs and 2 labels, but num_samples=3"]),
        (A, {"num_samples": [10**12]}, ["user 'a'", "num_samples=1000000000000 does not fit"]),
        (A, {"num_samples": [-1]}, ["num_samples=-1 does not fit"]),
        (A, {"num_samples": ["2"]}, ["num_samples=2 does not fit"]),
        (A, {"users": ["b"]}, ["user 'b' has no entry in user_data"]),
        (A, {"users": ["a", "a"], "num_samples": [2, 2]}, ["users lists a name twice"]),
        (A, {"users": [], "num_samples": []}, ["user 'a' of user_data is not among users"]),
        (A, {"user_data": [1]}, ["an object should start here"]),
        ({"a": {"x": [GREY], "y": [1, 2]}}, {}, ["user 'a'", "1 inputs and 2 labels"]),
        (
            {"a": {"x": [GREY], "z": 0, "y": [1]}},
            {"user_data": {"a": {"x": [GREY]}}},
            ["keys 'x' and 'y'"],
        ),
        ({"a": {"x": 3, "y": [1]}}, {}, ["user 'a'", "x and y must be lists"]),
        ({"a": _image_user(1, image=[1.0] * 783)}, {}, ["user 'a'", "784 numbers"]),
        ({"a": _image_user(1, image=["1"] * 784)}, {}, ["user 'a'", "finite numbers"]),
        ({"a": _image_user(1, image=[float("nan")] * 784)}, {}, ["user 'a'", "finite numbers"]),
        ({"a": {"x": [None], "y": [1]}}, {}, ["user 'a'"]),
        ({"a": _image_user(62)}, {}, ["user 'a'", "label 62 is not within 0 to 61"]),
        ({"a": _image_user(-1)}, {}, ["user 'a'", "label -1"]),
        ({"a": _image_user(1.5)}, {}, ["user 'a'", "labels must be integers"]),
        ({"a": _image_user("1")}, {}, ["user 'a'", "labels must be integers"]),
        ({"a": _image_user()}, {}, ["no user has any sample"]),
        # Deeper lists.
        ({"a": {"x": [[[0.5, 0.5]] * 784], "y": [1]}}, {}, ["user 'a': pixels must be"]),
        ({"a": {"x": [[[0.5]] * 784], "y": [1]}}, {}, ["user 'a': pixels must be"]),
        ({"a": {"x": [GREY, GREY], "y": [[1], [2]]}}, {}, ["user 'a': labels must be"]),
        # What int32 cannot hold.
        *(
            ({"a": _image_user(1, label)}, {}, ["user 'a': label", "of sample 1 is not an int32"])
            for label in (2**31, 2**40, 2**32 + 1, 1e300)
        ),
    ],
)
def test_wrong_content_is_named(folders, users, changes, parts):
    _write(folders[0], users, **changes)
    _write(folders[1], {"t": _image_user()})
    with unusable(str(folders[0]), *parts):
        data.load_leaf(*folders, "femnist")


@pytest.mark.parametrize(
    ("user", "part"),
    [
        (_text_user("a", LINE[:-1]), "80 characters"),
        (_text_user("a", 5), "80 characters"),
        (_text_user(["ab"]), "one character"),
        (_text_user([3]), "one character"),
    ],
)
def test_wrong_text_is_named(folders, user, part):
    _write(folders[0], {"JULIET": user})
    _write(folders[1], {"JULIET": _text_user("a")})
    with unusable("user 'JULIET'", part):
        data.load_leaf(*folders, "shakespeare")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "cannot be read"),
        ("[]", "an object should start here"),
        ("{}", "key 'users' is missing"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[', "the file is truncated"),
        ('{"users": ["a"]', "the file may be truncated"),
        ('{"users": ["a"], ', "there should be a key here"),
        ('{"users": }', "there should be a value here"),
        ("{users: []}", "there should be a key here"),
        ('{"users": [}', "the file is truncated"),
        ('{"users": [1,], "num_samples": [], "user_data": {}}', "not JSON"),
        ('{"users": [], "num_samples": [], "user_data": {}} {', "there is text after the end"),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[1 2]], "y": [1]}}}',
            "user 'a': not JSON",
        ),
        (
            '{"users": ["a"], "num_samples": [0], "user_data": {"a": {}, "a": {}}}',
            "user 'a' has data twice",
        ),
        ('{"users": ["a"], "users": []}', "key 'users' occurs twice"),
        (
            '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [], "x": [], "y": []}}}',
            "user 'a': not JSON: key 'x' occurs twice",
        ),
    ],
)
def test_malformed_json_is_named(folders, text, part):
    _write(folders[1], {"t": _image_user(1)})
    folders[0].mkdir()
    (folders[0] / "broken.json").write_text(text)
    with pytest.raises(DataError, match=part) as caught:
        data.load_leaf(*folders, "femnist")
    assert "broken.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_file_is_named(folders):
    _femnist(folders, {f"u{i}": _image_user(1, 2) for i in range(4)})
    path = folders[0] / "all_data_0.json"
    text = path.read_text()
    for length in range(len(text) // 7, len(text) - 1, len(text) // 7):
        path.write_text(text[:length])
        with unusable(str(path)):
            data.load_leaf(*folders, "femnist")


def test_missing_places_and_wrong_choices_are_named(folders):
    load = data.load_leaf
    with unusable("train is not a directory"):
        load(*folders, "femnist")
    folders[0].mkdir()
    with unusable("train holds no JSON file"):
        load(*folders, "femnist")
    _write(folders[0], A)
    _write(folders[1], A)
    with refuses("dataset", "choose one of femnist, shakespeare"):
        load(*folders, "celeba")
    with refuses("max_clients", "must be at least 1"):
        load(*folders, "femnist", max_clients=0)
    with refuses("max_clients", "train has only 1 users with samples"):
        load(*folders, "femnist", max_clients=2)


@pytest.mark.parametrize("value", [1e39, -1e308, 10**400])
def test_pixels_that_float32_cannot_hold_are_refused_with_user_and_position(folders, value):
    image = list(GREY)
    image[700] = value
    user = {"x": [GREY, image], "y": [1, 2]}
    shown = "finite numbers" if value == 10**400 else "pixel 700 of sample 1"
    with pytest.raises(DataError, match=rf"all_data_0.json: user 'b': pixels must be .*{shown}"):
        _femnist(folders, {"a": _image_user(1), "b": user})


def test_limits_of_json(folders):
    users = {"a": _image_user(1), "b": _image_user(*[2] * 50)}
    _write(folders[0], users)
    _write(folders[1], users)
    load = functools.partial(data.load_federation, "femnist", "natural")
    root = str(folders[0].parent)
    assert load(data_dir=root).num_clients == 2
    with pytest.raises(DataError, match=r"user 'b': \d+ bytes .* that max_json_bytes allows"):
        load(data_dir=root, max_json_bytes=20_000)
    with pytest.raises(DataError, match=r"at byte .* max_json_depth allows no more"):
        load(data_dir=root, max_json_depth=1)
    (folders[0] / "all_data_0.json").write_text('{"users": ' + "[" * 10_000_000)
    with pytest.raises(DataError, match="more than 20 lists and objects"):
        load(data_dir=root)


def test_a_string_without_an_end_takes_no_time(folders):
    _write(folders[1], {"a": _image_user(1)})
    folders[0].mkdir()
    text = '{"user_data": {"a": {"x": ["' + '\\"' * 1_000_000
    (folders[0] / "all_data_0.json").write_text(text)
    with pytest.raises(DataError, match="the file is truncated"):
        data.load_leaf(*folders, "femnist")


def test_pipes_are_not_read(folders):
    _femnist(folders, {"a": _image_user(1)})
    os.mkfifo(folders[0] / "more.json")
    with pytest.raises(DataError, match=r"more.json is not a regular file"):
        data.load_leaf(*folders, "femnist")
