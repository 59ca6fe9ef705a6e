"""Files that an attacker has put into a data set: paths that lead elsewhere, pipes, devices."""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.case import SAME, Case, SilentDifference, one_line
from tests.support import write_image, write_table, write_tfds
from tff_pcdd.data import sources
from tff_pcdd.errors import DataError

# Longer than any of these cases takes, in seconds.
TIMEOUT = 60


def cases(directory: Path) -> Iterator[Case]:
    """Attacks in lists of images, and in the place of each file of a data set."""
    for source in ("imagenet_lt", "fed_isic2019", "inaturalist"):
        for name, attack in _paths().items():
            check = functools.partial(_check_path, source, attack)
            yield Case("paths of images", f"{source}: {name}", check)
    for source, files in _FILES.items():
        for file in files:
            for name, replace in _replacements().items():
                check = functools.partial(_check_file, source, file, replace)
                yield Case("special files", f"{source}: {file} is {name}", check)


def load(source: str, folder: Path) -> sources.PooledData:
    return sources.create(source, data_dir=str(folder)).load(sources.LoadRequest())


def in_time(function: Callable[[], object]) -> object:
    """Calls a function that may wait for ever, for a pipe for instance."""
    results: list[Callable[[], object]] = []

    def call() -> None:
        try:
            result = function()
        except BaseException as error:
            found = error

            def fail() -> object:
                raise found

            results.append(fail)
        else:
            results.append(lambda: result)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert results, "it takes for ever"
    return results[0]()


# Lists of images.


def _paths() -> dict[str, Callable[[Path, Path], str]]:
    """Attacks with a path: each prepares (data directory, folder of images), and names an image."""

    def link(target: str | Path, name: str = "link.jpg") -> Callable[[Path, Path], str]:
        def make(root: Path, images: Path) -> str:
            (images / name).symlink_to(target if Path(target).is_absolute() else root / target)
            return name

        return make

    def pipe(root: Path, images: Path) -> str:
        os.mkfifo(images / "pipe.jpg")
        return "pipe.jpg"

    def folder(root: Path, images: Path) -> str:
        (images / "folder.jpg").mkdir()
        return "folder.jpg"

    def linked_folder(root: Path, images: Path) -> str:
        (images / "more").symlink_to(root.parent)
        return "more/secret.jpg"

    def sparse(root: Path, images: Path) -> str:
        with open(images / "sparse.jpg", "wb") as file:
            file.truncate(2**40)
        return "sparse.jpg"

    return {
        "upwards": lambda root, images: os.path.relpath(root.parent / "secret.jpg", images),
        "upwards and back": lambda root, images: f"../{images.name}/../../secret.jpg",
        "absolute": lambda root, images: str(root.parent / "secret.jpg"),
        "absolute with slashes": lambda root, images: f"//{root.parent}/secret.jpg",
        "of the system": lambda root, images: "/etc/passwd",
        "a home": lambda root, images: "~/secret.jpg",
        "a URL": lambda root, images: "https://localhost/secret.jpg",
        "a bucket": lambda root, images: "gs://bucket/secret.jpg",
        "NUL": lambda root, images: "a\0.jpg",
        "long": lambda root, images: "a" * 5000 + ".jpg",
        "a link elsewhere": lambda root, images: link(root.parent / "secret.jpg")(root, images),
        "a link to a device": link("/dev/zero"),
        "a link to random numbers": link("/dev/urandom"),
        "a link to a terminal": link("/dev/tty"),
        "a link to memory": link("/proc/self/mem"),
        "a link to itself": lambda root, images: link(images / "link.jpg")(root, images),
        "a link to nothing": link("/no/such/file.jpg"),
        "a link to a folder": link("/etc"),
        "a linked folder": linked_folder,
        "a pipe": pipe,
        "a folder": folder,
        "a sparse file": sparse,
    }


def _write_images(source: str, root: Path, *names: str) -> Path:
    """A data set with an image `a.jpg` and the named ones; its folder of images."""
    folders = {"imagenet_lt": ".", "inaturalist": "images"}
    images = root / folders.get(source, "ISIC_2019_Training_Input_preprocessed")
    write_image(images / "a.jpg")
    stems = [name.removesuffix(".jpg") for name in ("a.jpg", *names)]
    if source == "imagenet_lt":
        lines = "".join(f"{name} 0\n" for name in ("a.jpg", *names))
        for part in ("train", "test"):
            (root / f"ImageNet_LT_{part}.txt").write_text(lines)
    elif source == "inaturalist":
        rows = [{"image_id": stem, "class": 0, "user_id": 1} for stem in stems]
        write_table(root / "federated_train.csv", rows)
        write_table(root / "test.csv", rows[:1])
    else:
        rows = [
            {"image": stem, "target": 0, "center": 0, "fold": fold}
            for stem, fold in [*((stem, "train") for stem in stems), ("a", "test")]
        ]
        write_table(root / "train_test_split", rows)
    return images


def _check_path(source: str, attack: Callable[[Path, Path], str], directory: Path) -> str:
    write_image(directory / "secret.jpg")
    root = directory / "data"
    images = _write_images(source, root)
    name = attack(root, images)
    _write_images(source, root, name)
    try:
        loaded = in_time(lambda: load(source, root))
    except DataError as error:
        return one_line(error, str(root))
    # Images of iNaturalist are found by the last part of their names.
    paths = [Path(os.fsdecode(path)) for path in loaded.train.x]  # type: ignore[attr-defined]
    if not all(path.resolve().is_relative_to(root.resolve()) for path in paths):
        raise SilentDifference(f"{paths} are read")
    return SAME


# Files that are no files.

_FILES = {
    "imagenet_lt": ("ImageNet_LT_train.txt", "ImageNet_LT_test.txt"),
    "fed_isic2019": ("train_test_split",),
    "inaturalist": ("federated_train.csv", "test.csv"),
    "femnist": ("train/data.json", "test/data.json"),
    "fashion_mnist": (
        *("dataset_info.json", "features.json", "label.labels.txt", "metadata.json"),
        *("fashion_mnist-train.tfrecord-00000-of-00001", "other"),
    ),
    "tff_emnist": ("emnist_all.sqlite",),
}


def _replacements() -> dict[str, Callable[[Path], object]]:
    return {
        "a pipe": lambda path: os.mkfifo(path),
        "a folder": lambda path: path.mkdir(),
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "a link to itself": lambda path: path.symlink_to(path),
        "a link to nothing": lambda path: path.symlink_to("/no/such/file"),
    }


def _check_file(source: str, file: str, replace: Callable[[Path], object], directory: Path) -> str:
    if source == "fashion_mnist":
        root = write_tfds(directory, size=2)
    elif source == "femnist":
        root = directory
        user = {"x": [[1.0] * 784], "y": [1]}
        text = json.dumps({"users": ["a"], "num_samples": [1], "user_data": {"a": user}})
        for part in ("train", "test"):
            (root / part).mkdir()
            (root / part / "data.json").write_text(text)
    else:
        root = directory
        if source != "tff_emnist":
            _write_images(source, root)
    path = root / file
    path.unlink(missing_ok=True)
    replace(path)
    try:
        in_time(lambda: load(source, directory))
    except DataError as error:
        return one_line(error, str(directory))
    raise SilentDifference("it is accepted")
