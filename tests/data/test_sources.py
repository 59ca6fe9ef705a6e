"""The registry, digits, and prepared TensorFlow data sets, whole and broken."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import data
from tff_pcdd.data import DataConfig, DataError, DatasetInfo, LoadRequest, sources
from tff_pcdd.data.sources import digits, tfds
from tff_pcdd.settings import option


def _load(name, *, seed=0, **options):
    return sources.create(name, **options).load(LoadRequest(seed=seed))


def test_metadata_of_every_set_needs_no_data():
    for name in sources.names():
        cls = sources.get(name)
        assert cls.info.name == cls.name == name
        assert cls.info.num_classes > 1
        assert ("data_dir" in {field.name for field in dataclasses.fields(cls)}) == (
            name != "digits"
        )
        options = {"data_dir": "somewhere"} if cls.info.needs_data_dir else {}
        spec = sources.create(name, **options).input_spec()
        assert (spec.kind, spec.shape) == (cls.info.kind, cls.info.shape)
    assert {"digits", "cifar10", "cifar100", "svhn_cropped", "fashion_mnist"} <= set(
        sources.names()
    )


def test_unknown_names_list_the_known():
    with refuses("dataset", "choose one of .*cifar10, .*digits"):
        sources.get("mnist")


def test_the_name_of_another_source_is_refused(own_components):
    class Other(data.ImageSource):
        info = DatasetInfo("digits", "image", 10, (8, 8, 1))

    with pytest.raises(ValueError, match="digits: is already registered"):
        sources.register(Other)


def test_the_name_is_stated_in_the_info():
    with pytest.raises(TypeError, match="Other: set `info`"):

        class Other(data.ImageSource):
            name = "other"


def test_a_cell_that_defines_a_source_can_run_again(own_components):
    for classes in (2, 3):

        @sources.register
        @dataclasses.dataclass(frozen=True)
        class Mine(data.ImageSource):
            info = DatasetInfo("mine", "image", classes, (4, 4, 1))

    assert sources.get("mine").info.num_classes == 3


@dataclasses.dataclass(frozen=True)
class Stripes(data.ImageSource):
    """Flat and striped images."""

    info = DatasetInfo("stripes", "image", 2, (4, 4, 1))

    stripes_samples: int = option(40, "Number of samples.", minimum=2)

    def load(self, request):
        y = np.arange(self.stripes_samples, dtype=np.int32) % 2
        x = np.zeros((len(y), 4, 4, 1), np.uint8)
        x[y == 1, ::2] = 255
        examples = data.Examples(x, y)
        return data.PooledData(examples, examples, ("flat", "striped"), self.image_spec())


def test_own_data_by_name(own_components):
    sources.register(Stripes)
    assert "stripes" in sources.names()
    assert data.load_federation("stripes", "iid", 4).class_counts().sum() == 40
    larger = data.load_federation(
        "stripes", "class", 2, classes_per_client=1, stripes_samples=60, augmentation="standard"
    )
    assert larger.name == "stripes"
    assert larger.class_counts().tolist() == [[30, 0], [0, 30]]
    assert larger.input_spec.crop_padding == 1
    with refuses("stripes_samples", "must be at least 2"):
        data.load_federation("stripes", "iid", 4, stripes_samples=1)
    with refuses("stripes_samples", "applies only with dataset=stripes"):
        data.load_federation("digits", "iid", 4, stripes_samples=10)
    with refuses("classes_per_client", "stripes has only 2 classes"):
        data.load_federation("stripes", "class", 4, classes_per_client=3)


def test_own_data_without_a_name():
    config = DataConfig(Stripes(stripes_samples=80))
    assert config.build().class_counts().sum() == 80
    assert config.describe() == "stripes, P10C2"
    assert "stripes" not in sources.names()


def test_number_of_users_is_checked():
    with refuses("max_clients", "must be at least 1"):
        LoadRequest(max_clients=0)


def test_sources_that_need_a_directory_refuse_to_go_without():
    needing = [name for name in sources.names() if sources.get(name).info.needs_data_dir]
    own = ["folder", "npz", "table"]
    papers = ["fed_isic2019", "femnist", "imagenet_lt", "inaturalist", "shakespeare"]
    papers += ["celeba", "leaf_synthetic", "sent140"]
    assert sorted(needing) == sorted(own + papers)
    for name in needing:
        with refuses("data_dir", f"is missing; {name} needs the (directory|path of its)"):
            sources.create(name)
        with refuses("data_dir", "is missing"):
            sources.create(name, data_dir="")


def test_digits_are_scikit_learns_without_its_import():
    """Which takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.datasets", None)
        source = _load("digits")
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
    first, second = (_load("digits", seed=seed) for seed in (0, 1))
    assert np.array_equal(first.test.x, second.test.x)


def test_digits_without_the_table_come_from_the_package(monkeypatch, tmp_path):
    import sklearn

    table = _load("digits")
    fake = tmp_path / "sklearn" / "__init__.py"
    monkeypatch.setattr(sklearn.__spec__, "origin", str(fake))
    again = _load("digits")
    assert np.array_equal(table.train.x, again.train.x)


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(digits.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="scikit-learn, which is not installed"):
        _load("digits")


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
    spec = sources.create(name, augmentation=augmentation).image_spec()
    assert (spec.crop_padding, spec.padding_mode, spec.flip, spec.rotation) == expected


def test_normalizations():
    assert sources.create("cifar10").image_spec().mean == (0.4914, 0.4822, 0.4465)
    imagenet = sources.create("cifar10", input_normalization="imagenet").image_spec()
    assert imagenet.std == (0.229, 0.224, 0.225)
    assert sources.create("cifar10", input_normalization="none").image_spec().mean is None


@pytest.mark.parametrize(
    ("name", "setting", "value", "reason"),
    [
        ("cifar10", "augmentation", "strong", "choose one of none"),
        ("cifar10", "input_normalization", "x", "choose one of dataset"),
        ("digits", "input_normalization", "imagenet", "color images, but digits has none"),
    ],
)
def test_spec_refusals(name, setting, value, reason):
    with refuses(setting, reason):
        sources.create(name, **{setting: value})


def test_stratified_subset():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [60, 30, 10]))
    chosen = data.stratified_indices(labels, 25, seed=0)
    # Exact sizes 15, 7.5, 2.5: of equal remainders, the first one gets the sample left over.
    assert np.bincount(labels[chosen]).tolist() == [15, 8, 2]
    assert np.array_equal(chosen, data.stratified_indices(labels, 25, seed=0))
    assert not np.array_equal(chosen, data.stratified_indices(labels, 25, seed=1))
    assert np.array_equal(data.stratified_indices(labels, 1000, 0), np.arange(100))


# Sets that tests write are read below.
@pytest.mark.rare
@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10"])
def test_prepared_sets_are_read_whole(real_data, name):
    source = _load(name, data_dir=str(real_data("tfds")))
    info = sources.get(name).info
    number = {"fashion_mnist": 60000, "cifar10": 50000}[name]
    assert source.train.x.shape == (number, *info.shape)
    assert source.test.x.shape == (10000, *info.shape)
    assert source.train.x.dtype == np.uint8
    assert np.bincount(source.train.y).tolist() == [number // 10] * 10
    assert np.bincount(source.test.y).tolist() == [1000] * 10
    assert len(source.class_names) == 10
    if info.mean:
        # The published constants are those of these pixels, up to JPEG compression.
        measured = source.train.x[::10].mean(axis=(0, 1, 2)) / 255
        np.testing.assert_allclose(measured, info.mean, atol=0.01)


def _refused(name, folder):
    with pytest.raises(DataError) as caught:
        _load(name, data_dir=str(folder))
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
        _load("cifar100")


def test_newest_version_is_chosen(tmp_path):
    for version in ("3.0.2", "3.0.10"):
        folder = tmp_path / "cifar10" / version
        folder.mkdir(parents=True)
        (folder / "dataset_info.json").write_text("{}")
    assert tfds._find("cifar10", tmp_path).name == "3.0.10"


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
    """Sets the announced sizes of the first splits and removes the other splits."""
    path = folder / "dataset_info.json"
    about = json.loads(path.read_text())
    about["splits"] = about["splits"][: len(sizes)]
    for split, size in zip(about["splits"], sizes, strict=True):
        split["shardLengths"] = [str(size)]
    path.write_text(json.dumps(about))


def test_broken_copies_are_named(small_copy):
    root = small_copy.parent.parent
    assert len(_load("fashion_mnist", data_dir=str(root)).train) == 50
    shard = next(small_copy.glob("*train*"))
    whole = shard.read_bytes()

    shard.write_bytes(whole[: len(whole) // 3])
    assert "unreadable or incomplete (truncated record at " in _refused("fashion_mnist", root)

    shard.unlink()
    assert "unreadable or incomplete (/" in _refused("fashion_mnist", root)

    shard.write_bytes(whole)
    _announce(small_copy, [51, 50])
    assert "51 elements but contained only 50 elements.); prepare" in _refused(
        "fashion_mnist", root
    )

    _announce(small_copy, [50])
    assert "no split test" in _refused("fashion_mnist", root)

    (small_copy / "dataset_info.json").write_text('{"name": ')
    assert "unreadable or incomplete" in _refused("fashion_mnist", root)
