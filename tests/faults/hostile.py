"""Directories made by an attacker: nothing that they name runs, and nothing elsewhere is read.

An attack leaves a trace if it succeeds: a file that its module writes, or a secret in what was
read.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.faults.case import REFUSED, SAME, Case, SilentDifference, one_line
from tests.faults.fuzzed_flags import PROGRAMS, nothing_is_computed, run_program
from tests.support import write_image, write_table, write_tfds
from tff_pcdd.data import sources
from tff_pcdd.errors import DataError
from tff_pcdd.training import ExperimentConfig, run_directory

ROOT = Path(__file__).resolve().parents[2]

# Longer than any of these cases takes, in seconds.
_TIMEOUT = 60


def cases(directory: Path) -> Iterator[Case]:
    """Data sets, runs, flagfiles and working directories with an attack."""
    for name, features in _features().items():
        yield Case("tfds folders", name, functools.partial(_check_features, features))
    for name, change in _tfds_files().items():
        yield Case("tfds folders", name, functools.partial(_check_tfds, change))
    for source in ("imagenet_lt", "fed_isic2019", "inaturalist"):
        for name, attack in _paths().items():
            check = functools.partial(_check_path, source, attack)
            yield Case("paths of images", f"{source}: {name}", check)
    for source, files in _FILES.items():
        for file in files:
            for name, replace in _replacements().items():
                check = functools.partial(_check_file, source, file, replace)
                yield Case("special files", f"{source}: {file} is {name}", check)
    for program in ("evaluate", "export"):
        for name, change in _runs().items():
            check = functools.partial(_check_run, program, change)
            yield Case("runs from elsewhere", f"{program}: {name}", check)
    for program in PROGRAMS:
        for name, line in _LINES.items():
            check = functools.partial(_check_flagfile, program, line)
            yield Case("flagfiles among results", f"{program}: {name}", check)
        for module in (f"tasks.{program}", f"tff_pcdd.cli.{program}"):
            check = functools.partial(_check_modules, module)
            yield Case("modules in the working directory", module, check)


# Prepared data sets.

_MODULES = "tensorflow_datasets.core.features"
_TOP = f"{_MODULES}.features_dict.FeaturesDict"
_IMAGE = {
    "pythonClassName": f"{_MODULES}.image_feature.Image",
    "image": {"shape": {"dimensions": ["28", "28", "1"]}, "dtype": "uint8"},
}
_LABEL = {
    "pythonClassName": f"{_MODULES}.class_label_feature.ClassLabel",
    "classLabel": {"numClasses": "10"},
}

# Classes that are not those of features: in a module beside the data, in the standard library, or
# elsewhere in TensorFlow Datasets.
_CLASSES = (
    "evil.Feature",
    "evil",
    ".evil.Feature",
    "evil.sub.Feature",
    "antigravity.Feature",
    "os.system",
    "builtins.exec",
    f"{_MODULES}.video_feature.Video",
    f"{_MODULES}.audio_feature.Audio",
    f"{_MODULES}.sequence_feature.Sequence",
    f"{_MODULES}.dataset_feature.Dataset",
    f"{_MODULES}.image_feature.evil",
    f"{_TOP} ",
    _TOP.upper(),
    "tensorflow_datasets.evil.Feature",
    "",
)


def _features() -> dict[str, object]:
    """Contents of features.json that name a class, by what they are."""
    found: dict[str, object] = {}
    for name in _CLASSES:
        feature = {"pythonClassName": name, "tensor": {}}
        older = {"type": name, "content": {}, "proto_cls": ""}
        inner = {"image": _IMAGE, "label": _LABEL}
        found |= {
            f"{name!r} outermost": feature,
            f"{name!r} outermost, older": older,
            f"{name!r} as the label": _dict(image=_IMAGE, label=feature),
            f"{name!r} as another feature": _dict(**inner, more=feature),
            f"{name!r} in the older format": _dict(**inner, more=older),
            f"{name!r} in an object": _dict(**inner, more=_dict(inner=feature)),
            f"{name!r} in older content": {"type": _TOP, "content": {**inner, "more": older}},
            f"{name!r} as text": {
                "type": _TOP,
                "content": json.dumps({"features": {"more": feature}}),
                "proto_cls": "tensorflow_datasets.FeaturesDict",
            },
            f"{name!r} as JSON in a message": {
                "pythonClassName": _TOP,
                "jsonFeature": {"json": json.dumps({"more": older})},
            },
            f"{name!r} with two names": _dict(**inner, more={**_LABEL, "python_class_name": name}),
        }
    return found


def _dict(**features: object) -> dict[str, object]:
    return {"pythonClassName": _TOP, "featuresDict": {"features": features}}


def _check_features(features: object, directory: Path) -> str:
    return _check_tfds(
        lambda folder: (folder / "features.json").write_text(json.dumps(features)), directory
    )


def _tfds_files() -> dict[str, Callable[[Path], object]]:
    """Changes of a prepared data set, by what they are."""

    def info(**changes: object) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            path = folder / "dataset_info.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

        return change

    def split(**changes: object) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            path = folder / "dataset_info.json"
            about = json.loads(path.read_text())
            about["splits"][0].update(changes)
            path.write_text(json.dumps(about))

        return change

    label = {"type": _LABEL["pythonClassName"], "content": {"names_file": "/etc/passwd"}}
    return {
        "a file of names elsewhere": lambda folder: (folder / "features.json").write_text(
            json.dumps(_dict(image=_IMAGE, label=label))
        ),
        "another name": info(name="../../secret"),
        "another format": info(fileFormat="riegeli"),
        "a module of the builder": info(moduleName="evil", name="evil"),
        "a split upwards": split(name="../train"),
        "a template upwards": split(filepathTemplate="../{SPLIT}"),
        "an absolute template": split(filepathTemplate="/etc/{SPLIT}"),
        "a remote template": split(filepathTemplate="gs://bucket/{SPLIT}"),
        "an empty template with a split upwards": split(filepathTemplate="", name="a/../.."),
        "a huge number of samples": split(shardLengths=["9000000000000000000"]),
        "a negative number of samples": split(shardLengths=["-1"]),
        "many shards": split(shardLengths=["1"] * 100_000),
        "deep metadata": lambda folder: (folder / "metadata.json").write_text("[" * 10**6),
    }


def _check_tfds(change: Callable[[Path], object], directory: Path) -> str:
    trace = _evil_module(directory)
    folder = write_tfds(directory / "data", size=2)
    (folder / "evil.py").write_bytes((directory / "evil.py").read_bytes())
    change(folder)
    with pytest.MonkeyPatch.context() as patch:
        # The worst case: the attacker's folders are on the module path.
        patch.setattr(sys, "path", [*sys.path, str(folder), str(directory)])
        try:
            _in_time(lambda: _load("fashion_mnist", directory / "data"))
        except DataError as error:
            outcome = one_line(error, "fashion_mnist")
        else:
            raise SilentDifference("the data set is accepted")
    assert not trace.exists(), "the attacker's module has run"
    assert "antigravity" not in sys.modules
    return outcome


def _evil_module(directory: Path) -> Path:
    """Writes a module and returns the file that it leaves when it is imported."""
    trace = directory / "trace"
    (directory / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    return trace


def _load(source: str, folder: Path) -> sources.PooledData:
    return sources.create(source, data_dir=str(folder)).load(sources.LoadRequest())


def _in_time(function: Callable[[], object]) -> object:
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
    thread.join(_TIMEOUT)
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
        loaded = _in_time(lambda: _load(source, root))
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
        _in_time(lambda: _load(source, directory))
    except DataError as error:
        return one_line(error, str(directory))
    raise SilentDifference("it is accepted")


# Runs.


def _runs() -> dict[str, Callable[[dict], dict]]:
    """Changes of the settings of a run that its owner has trained on cifar10."""
    weights = {"model": "efficientnet_b0", "pretrained_weights": "/data/weights.h5"}

    def model(settings: dict) -> dict:
        known = ExperimentConfig.from_settings(
            dataset="cifar10", data_dir=settings["data_dir"], **weights
        )
        return known.to_settings()

    return {
        "another directory": lambda settings: {**settings, "data_dir": "/data/evil"},
        "the run's own directory": lambda settings: {**settings, "data_dir": "."},
        "a directory in the run": lambda settings: {**settings, "data_dir": "{directory}/run/data"},
        "a home": lambda settings: {**settings, "data_dir": "~/data"},
        "a pipe": lambda settings: {**settings, "data_dir": "/dev/stdin"},
        "a remote directory": lambda settings: {**settings, "data_dir": "gs://bucket"},
        "an empty name": lambda settings: {**settings, "data_dir": ""},
        "weights": model,
        "a flagfile": lambda settings: {**settings, "flagfile": "/data/evil.flags"},
        "a module": lambda settings: {**settings, "import": "evil"},
        "another data set": lambda settings: {
            **settings,
            "dataset": "cifar100",
            "data_dir": "/data/evil",
        },
    }


def _check_run(program: str, change: Callable[[dict], dict], directory: Path) -> str:
    """The signature of the owner's run is there, but the settings are others."""
    trace = _evil_module(directory)
    config = ExperimentConfig.from_settings(dataset="cifar10", data_dir="/data/cifar")
    run = directory / "run"
    run.mkdir()
    state = {"XDG_STATE_HOME": str(directory / "state")}
    with mock.patch.dict(os.environ, state), nothing_is_computed():
        run_directory.write_config(run, config)
        usual = [argument.format(directory=directory) for argument in PROGRAMS[program]]
        assert run_program(program, *usual) == SAME
        settings = change(config.to_settings())
        text = json.dumps(settings).replace("{directory}", str(directory))
        (run / "config.json").write_text(text)
        outcome = run_program(program, *usual)
    assert not trace.exists(), "the attacker's module has run"
    if outcome != REFUSED:
        raise SilentDifference("the path is followed")
    return outcome


# Flagfiles and modules.

_LINES = {
    "a module": "--import=evil",
    "a module, with a space": "--import evil",
    "a module, with one dash": "-import=evil",
    "another flagfile": "--flagfile={directory}/evil.flags",
    "data": "--data_dir={directory}",
}


def _check_flagfile(program: str, line: str, directory: Path) -> str:
    trace = _evil_module(directory)
    results = directory / "results"
    results.mkdir()
    (results / "sweep.csv").write_text("run\n")
    (results / "best.flags").write_text(line.format(directory=directory) + "\n")
    (directory / "evil.flags").write_text("--import=evil\n")
    usual = [argument.format(directory=directory) for argument in PROGRAMS[program]]
    with pytest.MonkeyPatch.context() as patch, nothing_is_computed():
        patch.setattr(sys, "path", [*sys.path, str(directory)])
        outcome = run_program(program, *usual, f"--flagfile={results / 'best.flags'}")
    assert not trace.exists(), "the attacker's module has run"
    if outcome != REFUSED:
        raise SilentDifference("the flagfile is followed")
    return outcome


# Packages of the environment that the programs import, or try to.
_PACKAGES = (
    *("absl", "etils", "google", "h5py", "IPython", "jax", "keras", "matplotlib", "numpy"),
    *("pandas", "PIL", "ray", "scipy", "sklearn", "tensorflow", "tensorflow_federated", "yaml"),
)


def _check_modules(module: str, directory: Path) -> str:
    """Starts a program in a directory with modules of every name of the standard library."""
    trace = directory / "trace"
    folder = directory / "clone"
    folder.mkdir()
    for name in ("tasks", "tff_pcdd"):
        (folder / name).symlink_to(ROOT / name)
    attack = f"import os\nos.open({str(trace)!r}, os.O_CREAT)\nos._exit(99)\n"
    for name in {*sys.stdlib_module_names, *_PACKAGES}:
        (folder / f"{name}.py").write_text(attack)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT
    )
    assert not trace.exists(), "the attacker's module has run"
    assert done.returncode == 0, done.stderr
    return SAME
