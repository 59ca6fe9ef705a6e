"""Tasks that are not classification of single samples, by what their data look like.

Such data can often be read as classes without an error: a mask's file name, a row of numbers or two
diagnoses in one cell would each be a class.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data.checks import warn
from tff_pcdd.errors import DataError

MULTI_LABEL = (
    "several labels of a sample (multi-label) are not supported; make one label column, such as "
    "whether a certain finding is there, or keep the samples with exactly one label"
)
_MASKS = "masks (segmentation) are not supported; give each image one label"
_EITHER = "masks (segmentation) and boxes (detection) are not supported; give each image one label"
_BOXES = "boxes (object detection) are not supported; give each image one label"
REGRESSION = (
    "numbers to be predicted (regression) are not supported; make classes of them, such as ranges"
)
VOLUMES = "volumes and videos (3-D) are not supported; use slices or frames"

# Several numbers in one label: a run-length encoded mask, or the corners of a box.
_NUMBERS = re.compile(r"[\[(]?\s*\d+(\.\d+)?([\s,;]+\d+(\.\d+)?){3,}\s*[\])]?")
_IMAGE = re.compile(r".+\.(png|jpe?g|bmp|gif|tiff?|webp|npy|nii|nii\.gz|json|xml|txt)", re.I)
_NUMBER = re.compile(r"-?\d+([.,]\d+)?")

# What stands between the labels in one cell.
_SEPARATORS = "|;,"

# The fewest samples of which it is no accident that most numbers are different.
_FEWEST = 20

# The most whole numbers that are certainly the names of classes.
_MANY = 20

# The fewest words of a sentence, and a day as people write it.
_WORDS = 4
_DATE = re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4})([ T].*)?")

# Names of folders of images, and of what belongs to each of them.
_FOLDERS = ("images", "image", "imgs", "img", "jpegimages")
_BESIDE_IMAGES = (
    *("masks", "mask", "labels", "label", "annotations", "annotation", "segmentations"),
    *("segmentation", "groundtruth", "ground_truth", "gt", "bboxes", "boxes", "contours"),
)

# Names of columns of boxes, without blanks, underscores and dashes.
_BOX_COLUMNS = {"xmin", "ymin", "xmax", "ymax", "bbox", "boundingbox", "bboxes", "x1", "y1", "x2"}


def refuse_labels(place: str, labels: Sequence[str]) -> None:
    """Refuses masks, boxes, several labels, and numbers most of which are different."""
    refuse_several(place, labels)
    classes = set(labels)
    for label in sorted(classes):
        if _NUMBERS.fullmatch(label):
            raise DataError(f"{place}: the label {label!r:.40} is a row of numbers; {_EITHER}")
    if classes and all(map(_IMAGE.fullmatch, classes)):
        raise DataError(f"{place}: the labels are files, such as {min(classes)!r:.60}; {_MASKS}")
    if (
        len(labels) >= _FEWEST
        and 2 * len(classes) > len(labels)
        and all(map(_NUMBER.fullmatch, classes))
    ):
        raise DataError(
            f"{place}: the labels are {len(classes)} different numbers of {len(labels)} samples; "
            f"{REGRESSION}"
        )


def refuse_several(place: str, labels: Iterable[str]) -> None:
    """Refuses labels that hold several others."""
    classes = set(labels)
    for label in sorted(classes):
        mark = next((mark for mark in _SEPARATORS if mark in label), "")
        pieces = [piece.strip() for piece in label.split(mark)] if mark else []
        # "carcinoma, basal" is one label, and "cat, dog" with the classes cat and dog are two.
        enough = all if mark == "," else any
        if pieces and enough(piece in classes for piece in pieces):
            raise DataError(f"{place}: the label {label!r:.60} holds several labels; {MULTI_LABEL}")


def warn_of_numbers(place: str, labels: Sequence[str]) -> None:
    """Warns of labels that are many whole numbers, as those of a quantity such as an age.

    Numbers of classes are consecutive and begin at 0 or 1; where most neighbors of a number occur
    but not all, or where the first one is another, the numbers were measured.
    """
    classes = set(labels)
    # Longer ones would be ids, and Python does not convert thousands of digits.
    if len(classes) <= _MANY or not all(re.fullmatch(r"-?\d{1,9}", label) for label in classes):
        return
    numbers = {int(label) for label in classes}
    least, most = min(numbers), max(numbers)
    neighbors = sum(number + 1 in numbers for number in numbers)
    are_numbered = least in (0, 1) and most - least + 1 == len(numbers)
    if 2 * neighbors >= len(numbers) and not are_numbered:
        warn(
            f"{place}: the labels are {len(numbers)} whole numbers from {least} to {most}, and "
            "each is a class of its own; if they are a quantity, such as an age, make classes of "
            "them, such as ranges, or name another column of labels"
        )


def shape_hint(labels: np.ndarray) -> str:
    """Why labels have another shape than [n], and what is to be done."""
    if labels.ndim > 2:
        return f"; {_MASKS}"
    if labels.ndim < 2 or labels.dtype.kind not in "buif":
        return ""
    if not np.isin(labels, (0, 1)).all():
        return f"; {_BOXES}, and {REGRESSION}"
    if (labels.sum(axis=1) == 1).all():
        return "; for one-hot labels, take the argmax"
    return f"; {MULTI_LABEL}"


def refuse_folders(place: str, names: Iterable[str]) -> None:
    """Refuses folders of images with folders of masks or boxes beside them."""
    by_name = {name.casefold(): name for name in names}
    images = [by_name[name] for name in _FOLDERS if name in by_name]
    others = [by_name[name] for name in _BESIDE_IMAGES if name in by_name]
    if images and others:
        raise DataError(
            f"{place}: {others[0]} beside {images[0]} looks like masks or boxes; {_EITHER}, by "
            "a folder for each class"
        )


def refuse_boxes(place: str, columns: Collection[str], paths: Sequence[str]) -> None:
    """Refuses a table with columns of boxes and several rows of an image, a row for each box."""
    boxes = [
        name for name in columns if re.sub(r"[\s_-]", "", str(name)).casefold() in _BOX_COLUMNS
    ]
    if boxes and len(set(paths)) < len(paths):
        raise DataError(
            f"{place}: several rows of an image and the column {boxes[0]!r} look like boxes; "
            f"{_BOXES}"
        )


def one_hot_hint(columns: Collection[str], name: str) -> str:
    """What is said if several columns are named as that of the labels; empty if they are not."""
    pieces = [piece.strip() for piece in name.split(",")]
    if len(pieces) < 2 or not all(piece in columns for piece in pieces):
        return ""
    return (
        f"; {MULTI_LABEL}. If each row has one 1 in these columns, pandas makes one of them: "
        "table[columns].idxmax(axis=1)"
    )


def texts_hint(values: Iterable[Any]) -> str:
    """What is said of a column of dates or sentences among the inputs; empty if it holds others.

    Example:
        >>> texts_hint(["2024-01-31", "2024-02-01"])
        'dates are no numbers; write, for example, the days since another date'
        >>> texts_hint(["Pain in the left knee.", "No pain at all any more."])
        'texts become inputs as embeddings, see docs/how-to/embeddings.md'
    """
    texts = [str(value).strip() for value in values if value is not None]
    texts = [text for text in texts if text]
    if texts and all(map(_DATE.fullmatch, texts)):
        return "dates are no numbers; write, for example, the days since another date"
    # Names of categories repeat, also long ones.
    words = sum(len(text.split()) for text in texts)
    if texts and words >= _WORDS * len(texts) and 2 * len(set(texts)) > len(texts):
        return "texts become inputs as embeddings, see docs/how-to/embeddings.md"
    return ""
