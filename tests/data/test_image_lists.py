"""Lists of image files: small copies of the three layouts, and decoding inside a graph."""

import functools
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.data.refusals import refuses, unusable
from tests.support import write_image, write_table
from tff_pcdd import data
from tff_pcdd.data import DataError, InputSpec, LoadRequest, augment, normalize, sources, transforms
from tff_pcdd.export import inputs


@pytest.fixture
def isic(tmp_path):
    rows = []
    for i in range(60):
        fold, center = ("test" if i % 5 == 4 else "train"), [0, 0, 0, 1, 2, 3, 4, 5][i % 8]
        name = f"ISIC_{i:07d}"
        rows.append(
            {"image": name, "MEL": 0.0, "target": i % 8, "center": center, "fold": fold}
            | {"fold2": f"{fold}_{center}"}
        )
        write_image(tmp_path / "ISIC_2019_Training_Input_preprocessed" / f"{name}.jpg", value=4 * i)
    write_table(tmp_path / "train_test_split", rows)
    return tmp_path


def test_centres_are_the_clients(isic):
    loaded = data.load_federation("fed_isic2019", "natural", data_dir=str(isic))
    assert loaded.client_ids == ("0", "1", "2", "3", "4", "5")
    assert (len(loaded.train), len(loaded.test)) == (48, 12)
    assert loaded.class_counts().sum() == 48
    assert loaded.class_names[0] == "MEL"
    spec = loaded.input_spec
    assert (spec.kind, spec.shape, spec.resize) == ("image_file", (200, 200, 3), 224)
    train, _ = loaded.client_examples(2)
    numbers = [int(path.decode()[-11:-4]) for path in train.x]
    assert {number % 8 for number in numbers} == {4}
    assert train.y.tolist() == [number % 8 for number in numbers]
    x = normalize(tf.constant(train.x), spec)
    grey = (np.array(numbers) * 4 / 255)[:, None] - spec.mean
    np.testing.assert_allclose(x[:, 100, 100], grey / spec.std, atol=0.03)
    assert x.shape == (len(numbers), 200, 200, 3)


def test_centres_are_split_into_more_clients(isic):
    load = functools.partial(data.load_federation, "fed_isic2019", data_dir=str(isic), seed=1)
    loaded = load("natural", split_centres=12)
    assert loaded.num_clients == 12
    assert loaded.class_counts().sum() == 48
    for part, size in (("train", 48), ("test", 12)):
        rows = np.concatenate([getattr(client, part) for client in loaded.clients])
        assert np.array_equal(np.sort(rows), np.arange(size))
    whole = data.load_federation("fed_isic2019", "natural", data_dir=str(isic))
    for client_id, counts in zip(loaded.client_ids, loaded.class_counts(), strict=True):
        centre = whole.client_ids.index(client_id.split("-")[0])
        assert (counts <= whole.class_counts()[centre]).all()
    # The largest centre has three eighths of the samples and is divided into the most clients.
    assert sum(client_id.startswith("0-") for client_id in loaded.client_ids) >= 4
    assert load("natural", 3, split_centres=12).num_clients == 3
    for number, reason in (
        (49, "only 48 training samples"),
        (5, "there are already 6 centres"),
        (0, "must be at least 1"),
    ):
        with refuses("split_centres", reason):
            load("natural", split_centres=number)
    with refuses("split_centres", "applies only with partition=natural$"):
        load("iid", 4, split_centres=12)
    with refuses("max_clients", "has only 6 users"):
        load("natural", 7)


def test_some_centres_and_pooled_partitions(isic):
    some = data.load_federation("fed_isic2019", "natural", 2, data_dir=str(isic))
    assert some.num_clients == 2
    assert some.class_counts().sum() == len(some.train) < 48
    pooled = data.load_federation("fed_isic2019", "iid", 4, data_dir=str(isic))
    assert len(pooled.train) == 48
    assert pooled.client_ids == ("0", "1", "2", "3")


def _imagenet_lt(root, **lists):
    lists = {
        "train": "train/n01/a.JPEG 0\ntrain/n02/b c.JPEG 1\ntrain/n02/d.JPEG 1\n",
        "test": "val/e.JPEG 0\nval/f.JPEG 999\n",
        **lists,
    }
    for name in ("train/n01/a", "train/n02/b c", "train/n02/d", "val/e", "val/f"):
        write_image(root / f"{name}.JPEG")
    for split, text in lists.items():
        (root / f"ImageNet_LT_{split}.txt").write_text(text)
    return str(root)


def test_imagenet_lt_lists(tmp_path):
    loaded = data.load_federation("imagenet_lt", "iid", 3, data_dir=_imagenet_lt(tmp_path))
    assert loaded.num_classes == 1000
    assert loaded.train.y.tolist() == [0, 1, 1]
    assert loaded.test.y.tolist() == [0, 999]
    assert loaded.train.x[1] == str(tmp_path / "train/n02/b c.JPEG").encode()
    assert loaded.input_spec.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("orientation", [3, 6])
def test_photos_are_turned_in_training_as_in_exported_models(orientation, tmp_path):
    directory = _imagenet_lt(tmp_path)
    red, green, blue, white = (200, 0, 0), (0, 200, 0), (0, 0, 200), (200, 200, 200)
    stored = np.repeat(np.repeat([[red, green], [blue, white]], 128, axis=0), 128, axis=1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "train/n01/a.JPEG"
    Image.fromarray(stored.astype(np.uint8)).save(path, quality=95, subsampling=0, exif=exif)
    loaded = data.load_federation(
        "imagenet_lt", "iid", 3, data_dir=directory, input_normalization="none"
    )
    trained = normalize(tf.constant(loaded.train.x[:1]), loaded.input_spec)
    decode = tf.function(lambda files: inputs.from_image_files(files, loaded.input_spec))
    np.testing.assert_array_equal(trained, decode(tf.constant([path.read_bytes()])))
    # A camera that was held upside down, and one whose right side was up.
    expected = {3: [[white, blue], [green, red]], 6: [[blue, red], [white, green]]}
    np.testing.assert_allclose(trained[0, 50::120, 50::120] * 255, expected[orientation], atol=8)


@pytest.fixture
def inaturalist(tmp_path):
    names = [f"{i:04x}ab" for i in range(12)]
    for i, name in enumerate(names):
        write_image(
            tmp_path / "train_val_images" / f"super{i % 2}" / f"species{i % 3}" / f"{name}.jpg"
        )
    train = [
        {"user_id": f"u{i % 4}", "image_id": name, "class": i % 3, "label": 7}
        for i, name in enumerate(names[:9])
    ]
    test = [{"image_id": name, "class": i % 3} for i, name in enumerate(names[9:])]
    write_table(tmp_path / "inaturalist-user-120k" / "federated_train_user_120k.csv", train)
    write_table(tmp_path / "inaturalist-user-120k" / "test.csv", test)
    return tmp_path


def test_inaturalist_users_are_clients_without_local_tests(inaturalist):
    loaded = data.load_federation("inaturalist", "natural", data_dir=str(inaturalist))
    assert loaded.client_ids == ("u0", "u1", "u2", "u3")
    assert loaded.class_counts().sum(axis=1).tolist() == [3, 2, 2, 2]
    assert (len(loaded.test), loaded.test_class_counts().sum()) == (3, 0)
    some = data.load_federation("inaturalist", "natural", 2, data_dir=str(inaturalist))
    assert some.class_counts().sum() == len(some.train)
    assert len(some.test) == 3


def test_inaturalist_files_of_one_name_do_not_depend_on_the_disk(inaturalist, monkeypatch):
    for folder in ("a", "z"):
        write_image(inaturalist / folder / "0000ab.jpg")
    walk = os.walk
    for reverse in (False, True):
        ordered = functools.partial(sorted, key=lambda entry: entry[0], reverse=reverse)
        monkeypatch.setattr("os.walk", lambda root, ordered=ordered: ordered(walk(root)))
        loaded = data.load_federation("inaturalist", "natural", data_dir=str(inaturalist))
        assert os.fsencode(inaturalist / "z" / "0000ab.jpg") in loaded.train.x


def test_inaturalist_tables_with_other_names_and_test_users(inaturalist):
    folder = inaturalist / "inaturalist-user-120k"
    write_table(
        folder / "federated_train_user_120k.csv",
        [{"image": f"super0/species0/{i:04x}ab.jpg", "class": 0, "user": i} for i in (0, 6)],
    )
    write_table(
        folder / "test.csv",
        [{"image": f"{i:04x}ab", "class": 1, "user": user} for i, user in ((1, 6), (2, 8))],
    )
    loaded = data.load_federation("inaturalist", "natural", data_dir=str(inaturalist))
    assert loaded.client_ids == ("0", "6", "8")
    assert loaded.class_counts().sum(axis=1).tolist() == [1, 1, 0]
    assert loaded.test_class_counts().sum(axis=1).tolist() == [0, 1, 1]


def _refused(dataset, folder, *parts):
    with unusable(str(folder), *parts):
        sources.create(dataset, data_dir=str(folder)).load(LoadRequest())


def test_missing_parts_of_isic_are_named(isic, tmp_path):
    _refused("fed_isic2019", tmp_path / "nowhere", "is not a directory")
    images = isic / "ISIC_2019_Training_Input_preprocessed"
    (images / "ISIC_0000003.jpg").unlink()
    _refused("fed_isic2019", isic, "lists ISIC_0000003.jpg, not found in", "train_test_split")
    (images / "ISIC_0000004.jpg").unlink()
    _refused("fed_isic2019", isic, "ISIC_0000003.jpg and 1 more")
    images.rename(isic / "images")
    _refused("fed_isic2019", isic, "ISIC_2019_Training_Input_preprocessed or")
    (isic / "train_test_split").unlink()
    _refused("fed_isic2019", isic, "holds no train_test_split")


@pytest.mark.parametrize(
    ("row", "part"),
    [
        ({"fold": "validation"}, "fold 'validation' is neither train nor test"),
        ({"target": "8"}, "label 8 is not an integer within 0 to 7"),
        ({"target": "-1"}, "label -1"),
        ({"target": "1.5"}, "label 1.5"),
        ({"target": "nevus"}, "a label is not a number"),
        ({"center": ""}, "line 2 lacks a value"),
        (None, "column 'center' is missing, there are image, target"),
        ([], "the table is empty"),
    ],
)
def test_wrong_tables_are_named(isic, row, part):
    right = {"image": "ISIC_0000000", "target": "1", "center": "2", "fold": "train"}
    path = isic / "train_test_split"
    if row == []:
        path.write_text(",".join(right) + "\n")
    else:
        write_table(path, [{"image": "a", "target": 1}] if row is None else [{**right, **row}])
    _refused("fed_isic2019", isic, "train_test_split", part)


def test_unreadable_table_is_named(isic):
    (isic / "train_test_split").write_bytes(b"\xff\xfe\xff")
    _refused("fed_isic2019", isic, "train_test_split: line 1 is not UTF-16; save the file as UTF-8")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("train/n01/a.JPEG\n", "line 1 is not `path label`"),
        ("\n", "the list is empty"),
        ("train/n01/a.JPEG 1000\n", "label 1000"),
        ("train/n03/a.JPEG 1\n", "lists train/n03/a.JPEG, not found in"),
    ],
)
def test_wrong_lists_are_named(tmp_path, text, part):
    _imagenet_lt(tmp_path, train=text)
    _refused("imagenet_lt", tmp_path, "ImageNet_LT_train.txt", part)


def test_missing_list_is_named(tmp_path):
    _imagenet_lt(tmp_path)
    (tmp_path / "ImageNet_LT_test.txt").unlink()
    _refused("imagenet_lt", tmp_path, "holds no ImageNet_LT_test.txt")


def test_missing_parts_of_inaturalist_are_named(inaturalist):
    next(inaturalist.rglob("0002ab.jpg")).unlink()
    _refused("inaturalist", inaturalist, "lists 0002ab, not found in")
    (inaturalist / "inaturalist-user-120k" / "test.csv").unlink()
    write_image(inaturalist / "0002ab.jpg")
    _refused("inaturalist", inaturalist, "holds 0 tables test*.csv; there must be one")


def test_images_are_scaled_and_their_middle_is_cut_out(tmp_path):
    path = write_image(tmp_path / "a.png", 20, 20)
    other = write_image(tmp_path / "b.png", 20, 40, value=80)
    exact = InputSpec("image_file", (10, 10, 3), dtype="string", resize=20)
    x = normalize(tf.constant([path, other]), exact).numpy()
    assert x.shape == (2, 10, 10, 3)
    # Columns 5 to 14 of the unscaled image.
    np.testing.assert_array_equal(x[0, 3, :, 1], np.arange(5, 15) * 10)
    assert (x[1] == 80).all()
    fitted = InputSpec("image_file", (10, 10, 3), dtype="string")
    x = normalize(tf.constant([path]), fitted).numpy()
    # All columns, averaged in pairs.
    np.testing.assert_allclose(x[0, 3, 1:-1, 1], (np.arange(10) * 20 + 5)[1:-1], atol=1)


def test_resize_must_cover_the_shape():
    with pytest.raises(DataError, match="resize=8: must be at least 10"):
        InputSpec("image_file", (10, 10, 3), dtype="string", resize=8)


SPEC = InputSpec("image_file", (8, 8, 3), dtype="string", scale=1 / 255, crop_padding=1, flip=True)


def test_files_are_read_inside_graphs_and_pipelines(tmp_path):
    paths = [write_image(tmp_path / f"{i}.jpg", value=20 * i) for i in range(6)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def read(x):
        return normalize(x, SPEC)

    expected = np.arange(6) * 20 / 255
    np.testing.assert_allclose(read(paths)[:, 4, 4, 0], expected, atol=0.01)
    assert read(tf.constant([], tf.string)).shape == (0, 8, 8, 3)
    batches = tf.data.Dataset.from_tensor_slices(paths).batch(4).map(lambda x: normalize(x, SPEC))
    rows = np.concatenate([batch[:, 4, 4, 0] for batch in batches])
    np.testing.assert_allclose(rows, expected, atol=0.01)
    seed = tf.constant([1, 2])
    both = normalize(augment(tf.constant(paths), SPEC, seed), SPEC)
    assert both.shape == (6, 8, 8, 3)
    np.testing.assert_allclose(both[:, 4, 4, 0], expected, atol=0.01)


@pytest.mark.parametrize("in_graph", [False, True])
def test_broken_images_are_named(tmp_path, in_graph):
    paths = [write_image(tmp_path / f"{i}.jpg", 64, 64) for i in range(4)]
    half = (tmp_path / "0.jpg").read_bytes()[:400]
    for number, content in enumerate((half, b"", b"no image")):
        (tmp_path / f"{number}.jpg").write_bytes(content)

    def read(*x):
        return normalize(tf.constant(x), SPEC)

    if in_graph:
        read = tf.function(read, reduce_retracing=True)
    message = r"(?s)missing, broken or above.*0\.jpg.*1\.jpg.*2\.jpg"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as caught:
        read(*paths)
    assert "3.jpg" not in str(caught.value)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"gone\.jpg"):
        read(paths[3], b"gone.jpg")


def test_a_message_is_cut_down_to_the_files():
    found = transforms.broken_images(
        "Client 1 of 2 failed: {{node f}} assertion failed: "
        "[image files are missing, broken or above max_image_pixels:] "
        "[/a [1]/b.jpg /c.jpg]\n\t [[{{node Assert/Assert}}]]"
    )
    assert found == "image files are missing, broken or above max_image_pixels: /a [1]/b.jpg /c.jpg"
    assert transforms.broken_images("assertion failed: [x] [/a/b.jpg]") is None


def test_plain_graphs_read_and_refuse_alike(tmp_path):
    # TFF traces plain graphs, in which `==` on tensors compares objects.
    paths = [write_image(tmp_path / "a.jpg", value=100), b"gone.jpg"]
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        x = tf.compat.v1.placeholder(tf.string, [None])
        result = normalize(augment(x, SPEC, tf.constant([1, 2])), SPEC)
        np.testing.assert_allclose(
            session.run(result, {x: paths[:1]})[0, 4, 4], 100 / 255, atol=0.01
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"gone\.jpg"):
            session.run(result, {x: paths})
