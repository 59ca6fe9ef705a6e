"""Checks of a data set that TensorFlow Datasets prepared, before that library reads it.

`features.json` names a Python class for each feature, and the library imports its module. It also
reads any file that `dataset_info.json` leads to. So a data set of unknown origin could run programs
and read files. Only the library's own classes for images, labels, texts and numbers are accepted
here, and only data files in the folder itself.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Collection
from typing import Any

from tff_pcdd.data.sources._json import Limits, read_json
from tff_pcdd.data.sources._places import check_file
from tff_pcdd.errors import DataError

_MODULES = "tensorflow_datasets.core.features"
_DICT = f"{_MODULES}.features_dict.FeaturesDict"

# The classes that a feature may have, with the fields of their descriptions, and the names of their
# messages in the format of older versions.
_CLASSES = {
    f"{_MODULES}.image_feature.Image": ("image", "ImageFeature"),
    f"{_MODULES}.class_label_feature.ClassLabel": ("classLabel", "ClassLabel"),
    f"{_MODULES}.text_feature.Text": ("text", "TextFeature"),
    f"{_MODULES}.tensor_feature.Tensor": ("tensor", "TensorFeature"),
    f"{_MODULES}.scalar.Scalar": ("tensor", "TensorFeature"),
}

# What the description of a feature may contain. Others, such as the file of the names of labels,
# could name files.
_FIELDS = {
    *("dtype", "encoding", "encodingFormat", "encoding_format", "maximum", "minimum"),
    *("numClasses", "num_classes", "optional", "shape", "useColormap", "use_colormap"),
}

_CLASS, _DOCUMENTATION = "pythonClassName", ("description", "valueRange")


def check_folder(folder: pathlib.Path, name: str, limits: Limits) -> None:
    """Checks the folder of one version of a prepared data set.

    It must hold nothing but regular files, and the JSON files among them no classes that are not
    accepted, no other formats, and no files elsewhere.
    """
    for path in folder.iterdir():
        text = path.suffix in (".json", ".txt")
        most = limits.max_bytes if text else None
        check_file(path, within=folder, max_bytes=most, limit="max_json_bytes")
    info, features = folder / "dataset_info.json", folder / "features.json"
    try:
        contents = [read_json(path, limits) for path in (info, features)]
    except DataError as error:
        raise DataError(
            f"dataset {name}: the copy in {folder} is unreadable or incomplete ({error})"
        ) from error
    check_info(contents[0], info, name)
    check_features(contents[1], features)


def check_info(info: Any, path: pathlib.Path, name: str) -> None:
    """Checks that `dataset_info.json` describes TFRecord files in the folder itself."""
    if not isinstance(info, dict) or info.get("name") != name:
        raise DataError(f"{path} does not describe the data set {name}")
    kind = _either(info, "fileFormat", "file_format") or "tfrecord"
    if kind != "tfrecord":
        raise DataError(f"{path}: files of the format {kind!r:.80} are not read, only tfrecord")
    splits = info.get("splits", [])
    if not isinstance(splits, list) or not all(isinstance(split, dict) for split in splits):
        raise DataError(f"{path}: splits must be a list of objects")
    for split in splits:
        template = _either(split, "filepathTemplate", "filepath_template") or ""
        for text in (split.get("name"), template):
            if not isinstance(text, str) or not re.fullmatch(r"[\w.{}\-]*", text) or ".." in text:
                raise DataError(f"{path}: {text!r:.80} is not the name of a file or a split")


def check_features(feature: Any, path: pathlib.Path) -> None:
    """Checks the classes that `features.json` names."""
    if not isinstance(feature, dict):
        raise DataError(f"{path}: a feature must be an object")
    if _class(feature, path) != _DICT:
        raise DataError(f"{path}: the outermost class must be {_DICT}")
    content = _content(feature, "featuresDict", path)
    if "type" not in feature or feature.get("proto_cls"):
        content = content.get("features") if isinstance(content, dict) else None
    if not isinstance(content, dict):
        raise DataError(f"{path}: the features must be an object")
    for name, inner in content.items():
        _check_single(inner, path, name)


def _check_single(feature: Any, path: pathlib.Path, name: str) -> None:
    if not isinstance(feature, dict):
        raise DataError(f"{path}: feature {name!r:.80} must be an object")
    field, message = _CLASSES.get(_class(feature, path), ("", ""))
    if not field:
        raise DataError(f"{path}: feature {name!r:.80} must not contain others")
    content = _content(feature, field, path)
    if "type" in feature:
        if feature.get("proto_cls", "") not in ("", f"tensorflow_datasets.{message}"):
            raise DataError(f"{path}: feature {name!r:.80} has another content than its class")
        if isinstance(content, str):
            try:
                content = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: feature {name!r:.80} must be described by an object")
    _expect(content, _FIELDS, path)


def _class(feature: dict[str, Any], path: pathlib.Path) -> str:
    name = feature.get("type" if "type" in feature else _CLASS)
    if name != _DICT and (not isinstance(name, str) or name not in _CLASSES):
        known = ", ".join(each.rpartition(".")[2] for each in (_DICT, *_CLASSES))
        raise DataError(
            f"{path} names the class {name!r:.120}, which is not imported; the features of a data "
            f"set may be the classes {known} of TensorFlow Datasets"
        )
    return name


def _content(feature: dict[str, Any], field: str, path: pathlib.Path) -> Any:
    """The description of a feature, in the format of today or in the older one, with a type."""
    if "type" in feature:
        _expect(feature, {"type", "content", "proto_cls"}, path)
        return feature.get("content")
    _expect(feature, {_CLASS, field, *_DOCUMENTATION}, path)
    return feature.get(field, {})


def _expect(value: dict[str, Any], fields: Collection[str], path: pathlib.Path) -> None:
    for name in value.keys() - fields:
        raise DataError(f"{path}: {name!r:.80} is not expected in the description of a feature")


def _either(value: dict[str, Any], name: str, other: str) -> Any:
    return value.get(name, value.get(other))
