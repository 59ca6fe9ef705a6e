"""Prepared data sets of unknown origin: nothing in their folder runs, and nothing else is read."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from tests.attacks import FEATURES, IMAGE, LABEL
from tests.data.refusals import unusable
from tests.support import write_tfds
from tff_pcdd.data import LoadRequest, sources


def _load(root, **options):
    source = sources.create("fashion_mnist", data_dir=str(root), **options)
    return source.load(LoadRequest())


def _refused(root, *parts, **options):
    with unusable("fashion_mnist", *parts):
        _load(root, **options)


def _features(**features):
    top = f"{FEATURES}.features_dict.FeaturesDict"
    return {"pythonClassName": top, "featuresDict": {"features": features}}


def test_a_prepared_set_is_read(tmp_path):
    write_tfds(tmp_path)
    loaded = _load(tmp_path)
    assert loaded.train.y.tolist() == loaded.test.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert loaded.train.x[3].tolist() == np.full((28, 28, 1), 3).tolist()


def test_the_format_of_older_versions_is_read(tmp_path):
    image = {"shape": [28, 28, 1], "dtype": "uint8", "encoding_format": "png"}
    content = {
        "image": {"type": IMAGE["pythonClassName"], "content": image, "proto_cls": ""},
        "label": {"type": LABEL["pythonClassName"], "content": {"num_classes": 10}},
    }
    top = f"{FEATURES}.features_dict.FeaturesDict"
    write_tfds(tmp_path, features_json={"type": top, "content": content})
    assert _load(tmp_path).train.y.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder on the module path with a module that leaves a trace when it is imported."""
    trace = tmp_path / "trace"
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    yield "evil.Feature"
    assert not trace.exists()


@pytest.mark.parametrize(
    "describe",
    [
        lambda name: {"pythonClassName": name},
        lambda name: {"type": name, "content": {}},
        lambda name: _features(image=IMAGE, label={**LABEL, "pythonClassName": name}),
        lambda name: _features(image=IMAGE, label=LABEL, more={"type": name, "content": {}}),
        lambda name: _features(image=IMAGE, label=LABEL, more=_features(x={"type": name})),
        lambda name: {
            "pythonClassName": f"{FEATURES}.features_dict.FeaturesDict",
            "jsonFeature": {"json": json.dumps({"x": {"type": name, "content": {}}})},
        },
        lambda name: {
            "type": f"{FEATURES}.features_dict.FeaturesDict",
            "content": {"image": IMAGE, "label": {"type": name, "content": {}}},
        },
    ],
)
def test_no_module_is_imported_that_a_folder_names(describe, evil, tmp_path):
    write_tfds(tmp_path, features_json=describe(evil))
    _refused(tmp_path, "features.json")


def test_the_refusal_names_the_class(evil, tmp_path):
    write_tfds(tmp_path, features_json=_features(image=IMAGE, label={"pythonClassName": evil}))
    _refused(tmp_path, "names the class 'evil.Feature', which is not imported")


def test_names_of_labels_do_not_come_from_a_file_elsewhere(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password")
    label = {"type": LABEL["pythonClassName"], "content": {"names_file": str(secret)}}
    write_tfds(tmp_path, features_json=_features(image=IMAGE, label=label))
    _refused(tmp_path, "'names_file' is not expected")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "../../other"}, "does not describe the data set fashion_mnist"),
        ({"fileFormat": "riegeli"}, "format 'riegeli' are not read"),
        ({"file_format": "array_record"}, "format 'array_record' are not read"),
        ({"splits": "train"}, "splits must be a list"),
        ({"splits": [{"name": "../train"}]}, "'../train' is not the name of a file or a split"),
        (
            {"splits": [{"name": "train", "filepathTemplate": "/etc/{SPLIT}"}]},
            "'/etc/{SPLIT}' is not the name",
        ),
        ({"splits": [{"name": "train", "filepath_template": "../x"}]}, "'../x' is not the name"),
    ],
)
def test_data_files_lie_in_the_folder(change, part, tmp_path):
    path = write_tfds(tmp_path) / "dataset_info.json"
    info = json.loads(path.read_text())
    for name in change:
        info.pop({"file_format": "fileFormat"}.get(name, name), None)
    path.write_text(json.dumps({**info, **change}))
    _refused(tmp_path, part)


def test_links_and_pipes_in_the_folder_are_refused(tmp_path):
    folder = write_tfds(tmp_path)
    (tmp_path / "elsewhere").write_text("{}")
    (folder / "metadata.json").symlink_to(tmp_path / "elsewhere")
    _refused(tmp_path, "metadata.json is a link to a file outside of")
    (folder / "metadata.json").unlink()
    os.mkfifo(folder / "pipe")
    _refused(tmp_path, "pipe is not a regular file")
    (folder / "pipe").unlink()
    (folder / "label.labels.txt").symlink_to("/dev/zero")
    _refused(tmp_path, "label.labels.txt is not a regular file")


def test_limits_of_json(tmp_path):
    folder = write_tfds(tmp_path)
    _refused(tmp_path, "that max_json_bytes allows", max_json_bytes=100)
    _refused(tmp_path, "max_json_depth allows no more", max_json_depth=2)
    (folder / "features.json").write_text("[" * 100_000)
    _refused(tmp_path, "more than 20 lists and objects")


def test_the_number_of_classes_is_checked_before_they_are_named(tmp_path):
    many = {**LABEL, "classLabel": {"numClasses": "9000000000000"}}
    write_tfds(tmp_path, features_json=_features(image=IMAGE, label=many))
    _refused(tmp_path, "9000000000000 classes, not 10")


@pytest.mark.parametrize("label", [2**40, 2**32 + 1, -1, 10])
def test_labels_do_not_wrap(label, tmp_path):
    write_tfds(tmp_path, labels={4: label})
    _refused(tmp_path, f"label {label} of sample 4 is not within 0 to 9")


def test_the_size_of_images_is_checked_before_they_are_decoded(tmp_path, monkeypatch):
    def decode(*_, **__):
        return tf.py_function(lambda: pytest.fail("decoded"), [], tf.uint8)

    large = tf.io.encode_png(np.zeros((3000, 3000, 1), np.uint8)).numpy()
    write_tfds(tmp_path, images={0: large})
    monkeypatch.setattr(tf.io, "decode_image", decode)
    _refused(tmp_path, "an image has another size or format")
