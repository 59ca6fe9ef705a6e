"""The registry, digits, and prepared TensorFlow data sets, whole and broken."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import data
from tff_pcdd.data import DataError, DatasetInfo, SourceOptions, sources


def test_metadata_of_every_set_needs_no_data():
    for name in data.dataset_names():
        info = data.dataset_info(name)
        assert info.name == name
        assert info.num_classes > 1
    assert {"digits", "cifar10", "cifar100", "svhn_cropped", "fashion_mnist"} <= set(
        data.dataset_names()
    )


def test_import_is_light():
    program = (
        "import sys, tff_pcdd.data as d; d.DataConfig(num_clients=5, classes_per_client=2).check();"
        "print([m for m in ('tensorflow', 'sklearn', 'tensorflow_federated') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


def test_unknown_names_list_the_known():
    with pytest.raises(DataError, match=r"dataset='mnist': choose one of .*cifar10, .*digits"):
        data.dataset_info("mnist")


def test_the_name_of_another_source_is_refused():
    with pytest.raises(DataError, match="'digits' is registered already"):
        data.register_source(DatasetInfo("digits", "image", 10, (8, 8, 1)))(lambda *_: None)


def test_a_cell_that_defines_a_source_can_run_again(monkeypatch):
    monkeypatch.setattr(sources, "_SOURCES", dict(sources._SOURCES))
    for classes in (2, 3):

        @data.register_source(DatasetInfo("mine", "image", classes, (4, 4, 1)))
        def load(info, options):
            raise NotImplementedError

    assert data.dataset_info("mine").num_classes == 3


def test_own_data_take_a_few_lines(monkeypatch):
    monkeypatch.setattr(sources, "_SOURCES", dict(sources._SOURCES))

    @data.register_source(DatasetInfo("stripes", "image", 2, (4, 4, 1)))
    def _load(info, options):
        y = np.arange(40, dtype=np.int32) % 2
        x = np.zeros((40, 4, 4, 1), np.uint8)
        x[y == 1, ::2] = 255
        examples = data.Examples(x, y)
        return data.Source(examples, examples, ("flat", "striped"), data.image_spec(info, options))

    federation = data.load_federation("stripes", "iid", 4)
    assert federation.class_counts().sum() == 40


def test_digits_are_scikit_learns_and_quick():
    start = time.perf_counter()
    source = data.load_source("digits")
    assert time.perf_counter() - start < 1
    from sklearn.datasets import load_digits

    bunch = load_digits()
    assert (len(source.train), len(source.test)) == (1438, 359)
    assert source.train.x.dtype == np.uint8
    pooled = np.concatenate([source.train.x, source.test.x]).reshape(-1, 64)
    labels = np.concatenate([source.train.y, source.test.y])
    ours = np.lexsort(np.column_stack([pooled, labels]).T)
    theirs = np.lexsort(np.column_stack([bunch.data, bunch.target]).T)
    assert np.array_equal(pooled[ours], bunch.data[theirs])
    assert np.array_equal(labels[ours], bunch.target[theirs])
    shares = np.bincount(source.train.y) / np.bincount(labels)
    assert np.abs(shares - 0.8).max() < 0.01


def test_digits_are_divided_alike_under_every_seed():
    first, second = (data.load_source("digits", SourceOptions(seed=seed)) for seed in (0, 1))
    assert np.array_equal(first.test.x, second.test.x)


def test_digits_without_the_table_come_from_the_package(monkeypatch, tmp_path):
    import sklearn

    table = data.load_source("digits")
    fake = tmp_path / "sklearn" / "__init__.py"
    monkeypatch.setattr(sklearn.__spec__, "origin", str(fake))
    again = data.load_source("digits")
    assert np.array_equal(table.train.x, again.train.x)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="scikit-learn, which is not installed"):
        data.load_source("digits")


@pytest.mark.parametrize(
    ("name", "augmentation", "expected"),
    [
        ("cifar10", "none", (0, "zeros", False, 0)),
        ("cifar10", "standard", (4, "zeros", True, 0)),
        ("cifar10", "reflect", (4, "reflect", True, 0)),
        ("cifar100", "rotation", (4, "zeros", True, 15)),
        ("svhn_cropped", "standard", (4, "zeros", False, 0)),
        ("digits", "rotation", (1, "zeros", False, 15)),
    ],
)
def test_augmentations(name, augmentation, expected):
    spec = data.image_spec(data.dataset_info(name), SourceOptions(augmentation=augmentation))
    assert (spec.crop_padding, spec.padding_mode, spec.flip, spec.rotation) == expected


def test_normalizations():
    info = data.dataset_info("cifar10")
    assert data.image_spec(info, SourceOptions()).mean == (0.4914, 0.4822, 0.4465)
    imagenet = data.image_spec(info, SourceOptions(input_normalization="imagenet"))
    assert imagenet.std == (0.229, 0.224, 0.225)
    assert data.image_spec(info, SourceOptions(input_normalization="none")).mean is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar10", {"augmentation": "strong"}, "augmentation='strong': choose one of none"),
        ("cifar10", {"input_normalization": "x"}, "input_normalization='x': choose one of dataset"),
        ("digits", {"input_normalization": "imagenet"}, "needs colour images, digits has none"),
    ],
)
def test_spec_refusals(name, options, message):
    with pytest.raises(DataError, match=message):
        data.image_spec(data.dataset_info(name), SourceOptions(**options))


def test_stratified_subset():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [60, 30, 10]))
    chosen = data.stratified_indices(labels, 25, seed=0)
    # Shares 15, 7.5, 2.5: the sample left over goes to the first of the equal remainders.
    assert np.bincount(labels[chosen]).tolist() == [15, 8, 2]
    assert np.array_equal(chosen, data.stratified_indices(labels, 25, seed=0))
    assert not np.array_equal(chosen, data.stratified_indices(labels, 25, seed=1))
    assert np.array_equal(data.stratified_indices(labels, 1000, 0), np.arange(100))


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
def test_prepared_sets_are_read_whole(real_data, name):
    source = data.load_source(name, SourceOptions(data_dir=str(real_data("tfds"))))
    info = data.dataset_info(name)
    number = {"fashion_mnist": 60000, "cifar10": 50000}[name]
    assert source.train.x.shape == (number, *info.shape)
    assert source.test.x.shape == (10000, *info.shape)
    assert source.train.x.dtype == np.uint8
    assert np.bincount(source.train.y).tolist() == [number // 10] * 10
    assert np.bincount(source.test.y).tolist() == [1000] * 10
    assert len(source.class_names) == 10
    if info.mean:
        # The published constants describe these very pixels (stored as JPEG, hence the margin).
        measured = source.train.x[::10].mean(axis=(0, 1, 2)) / 255
        np.testing.assert_allclose(measured, info.mean, atol=0.01)


def _refused(name, folder):
    with pytest.raises(DataError) as caught:
        data.load_source(name, SourceOptions(data_dir=str(folder)))
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_missing_sets_are_named(tmp_path):
    assert "not a directory" in _refused("cifar10", tmp_path / "nowhere")
    assert "no folder cifar10" in _refused("cifar10", tmp_path)
    (tmp_path / "cifar10" / "3.0.2.incompleteAB12").mkdir(parents=True)
    message = _refused("cifar10", tmp_path)
    assert "holds no complete version" in message
    assert "cifar10/<version>/dataset_info.json" in message
    (tmp_path / "cifar10" / "3.0.2").mkdir()
    assert "no dataset_info.json" in _refused("cifar10", tmp_path)


def test_default_directory_is_that_of_tfds(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match="no folder cifar100"):
        data.load_source("cifar100")


def test_newest_version_is_chosen(tmp_path):
    for version in ("3.0.2", "3.0.10"):
        folder = tmp_path / "cifar10" / version
        folder.mkdir(parents=True)
        (folder / "dataset_info.json").write_text("{}")
    assert sources._find_tfds("cifar10", tmp_path).name == "3.0.10"


@pytest.fixture
def small_copy(real_data, tmp_path):
    """A prepared Fashion-MNIST with the first 50 samples of each part."""
    original = next((real_data("tfds") / "fashion_mnist").iterdir())
    folder = tmp_path / "fashion_mnist" / original.name
    folder.mkdir(parents=True)
    for path in original.iterdir():
        if ".tfrecord" in path.name:
            with tf.io.TFRecordWriter(str(folder / path.name)) as writer:
                for record in tf.data.TFRecordDataset(str(path)).take(50):
                    writer.write(record.numpy())
        else:
            (folder / path.name).write_bytes(path.read_bytes())
    _announce(folder, [50, 50])
    return folder


def _announce(folder, sizes):
    """Lets the set say that its splits have these sizes; fewer sizes drop splits."""
    path = folder / "dataset_info.json"
    about = json.loads(path.read_text())
    about["splits"] = about["splits"][: len(sizes)]
    for split, size in zip(about["splits"], sizes, strict=True):
        split["shardLengths"] = [str(size)]
    path.write_text(json.dumps(about))


def test_broken_copies_are_named(small_copy):
    root = small_copy.parent.parent
    assert len(data.load_source("fashion_mnist", SourceOptions(data_dir=str(root))).train) == 50
    shard = next(small_copy.glob("*train*"))
    whole = shard.read_bytes()

    shard.write_bytes(whole[: len(whole) // 3])
    assert "unreadable or half-written" in _refused("fashion_mnist", root)

    shard.unlink()
    assert "unreadable or half-written" in _refused("fashion_mnist", root)

    shard.write_bytes(whole)
    _announce(small_copy, [51, 50])
    assert "51 elements but contained only 50" in _refused("fashion_mnist", root)

    _announce(small_copy, [50])
    assert "no split test" in _refused("fashion_mnist", root)

    (small_copy / "dataset_info.json").write_text('{"name": ')
    assert "unreadable or half-written" in _refused("fashion_mnist", root)
