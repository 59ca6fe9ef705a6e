"""Directories made by an attacker: nothing that they name runs, and nothing elsewhere is read.

An attack leaves a trace if it succeeds: a file that its module writes, or a secret in what was
read.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.attacks import (
    FEATURES,
    IMAGE,
    LABEL,
    clone_beside_hostile_modules,
)
from tests.faults.case import REFUSED, SAME, Case, SilentDifference, one_line
from tests.faults.fuzzed_flags import PROGRAMS, arguments_of, nothing_is_computed, run_program
from tests.faults.hostile_files import TIMEOUT, in_time, load
from tests.support import write_tfds
from tff_pcdd.errors import DataError
from tff_pcdd.training import ExperimentConfig, run_directory

ROOT = Path(__file__).resolve().parents[2]


def cases(directory: Path) -> Iterator[Case]:
    """Data sets, runs, flagfiles and working directories with an attack."""
    for name, features in _features().items():
        yield Case("tfds folders", name, functools.partial(_check_features, features))
    for name, change in _tfds_files().items():
        yield Case("tfds folders", name, functools.partial(_check_tfds, change))
    for program in ("evaluate", "export"):
        for name, change in _runs().items():
            check = functools.partial(_check_run, program, change)
            yield Case("runs from elsewhere", f"{program}: {name}", check)
    for program, places in _WRITTEN.items():
        for place in places:
            for name in ("link", "pipe"):
                check = functools.partial(_check_written, program, place, name)
                yield Case("links and pipes among results", f"{program}: {name} {place}", check)
    for program in PROGRAMS:
        for name, line in _LINES.items():
            for place, (folder, marker) in _PLACES.items():
                check = functools.partial(_check_flagfile, program, line, folder, marker)
                yield Case("flagfiles from elsewhere", f"{program}: {name}, {place}", check)
        installed = [] if program == "benchmark" else [f"tff_pcdd.cli.{program}"]
        for module in (f"tasks.{program}", *installed):
            check = functools.partial(_check_modules, module)
            yield Case("modules in the working directory", module, check)


# Prepared data sets.

_TOP = f"{FEATURES}.features_dict.FeaturesDict"

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
    f"{FEATURES}.video_feature.Video",
    f"{FEATURES}.audio_feature.Audio",
    f"{FEATURES}.sequence_feature.Sequence",
    f"{FEATURES}.dataset_feature.Dataset",
    f"{FEATURES}.image_feature.evil",
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
        inner = {"image": IMAGE, "label": LABEL}
        found |= {
            f"{name!r} outermost": feature,
            f"{name!r} outermost, older": older,
            f"{name!r} as the label": _dict(image=IMAGE, label=feature),
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
            f"{name!r} with two names": _dict(**inner, more={**LABEL, "python_class_name": name}),
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

    label = {"type": LABEL["pythonClassName"], "content": {"names_file": "/etc/passwd"}}
    return {
        "a file of names elsewhere": lambda folder: (folder / "features.json").write_text(
            json.dumps(_dict(image=IMAGE, label=label))
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
            in_time(lambda: load("fashion_mnist", directory / "data"))
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
        # The owner's data are there.
        with mock.patch.object(type(config.data.source), "check", lambda self: None):
            assert run_program(program, *usual) == SAME
        settings = change(config.to_settings())
        text = json.dumps(settings).replace("{directory}", str(directory))
        (run / "config.json").write_text(text)
        outcome = run_program(program, *usual)
    assert not trace.exists(), "the attacker's module has run"
    if outcome != REFUSED:
        raise SilentDifference("the path is followed")
    return outcome


# What programs write to, and may not follow.
_WRITTEN = {
    "train": (
        *(".lock", "config.json", "metrics.csv", "summary.json", "clients.csv", "report.html"),
        *("checkpoints", "client_states", "plots", "tensorboard"),
        *("checkpoints/round_000001.npz", "client_states/round_000001", "plots/curves.png"),
    ),
    "compare": ("comparison.csv", "fedavg", "fedgela/seed_0", "fedavg/seed_0/checkpoints"),
    "partition": ("partition.csv",),
    "export": ("models.config", "global", "global/1", "personal", "personal/0"),
}


def _check_written(program: str, place: str, kind: str, directory: Path) -> str:
    """Results are continued in a directory that holds a link to the user's file, or a pipe."""
    precious = directory / "precious"
    precious.write_text("mine")
    usual = arguments_of(program, directory)
    # A folder's name leads to a folder.
    target = precious if "." in Path(place).name[1:] else directory
    out = directory / "out"
    runs = {"train": [out], "compare": [out / name / "seed_0" for name in ("fedavg", "fedgela")]}
    for run in runs.get(program, []):
        if run != out / place and out / place not in run.parents:
            run.mkdir(parents=True)
            algorithm = run.parent.name if program == "compare" else "fedavg"
            config = ExperimentConfig.from_settings(algorithm=algorithm)
            (run / "config.json").write_text(json.dumps(config.to_settings()))
    path = out / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    before = sorted(os.listdir(directory))
    with nothing_is_computed():
        outcome = run_program(program, *usual)
    assert sorted(os.listdir(directory)) == before, "something was written where the link points"
    assert precious.read_text() == "mine"
    # A pipe in the place of a file that is only replaced is replaced.
    if outcome != REFUSED and (kind == "link" or place == ".lock"):
        raise SilentDifference("the link is followed")
    return outcome


# Flagfiles and modules.

_LINES = {
    "a module": "--import=evil",
    "a module, with a space": "--import evil",
    "a module, with one dash": "-import=evil",
    "another flagfile": "--flagfile={directory}/evil.flags",
    "data": "--data_dir={directory}",
    "its own signature": "--trust_flagfile={directory}/evil.flags\n--import=evil",
    "results": "--output_dir={directory}/precious",
    "a deletion": "--overwrite",
    "a machine": "--ray_address=192.0.2.1:6379",
    "a callback": "--callbacks=evil",
    "an unknown flag": "--undefok=import\n--import=evil",
}

# Where the flagfile is, and a file beside results that is there, too.
_PLACES = {
    "beside results": (".", "sweep.csv"),
    "below results": ("best", "sweep.csv"),
    "two folders below": ("best/more", "config.json"),
    "without results": (".", None),
}


def _check_flagfile(
    program: str, line: str, folder: str, marker: str | None, directory: Path
) -> str:
    trace = _evil_module(directory)
    results = directory / "results"
    (results / folder).mkdir(parents=True)
    if marker is not None:
        (results / marker).write_text("run\n")
    text = line.format(directory=directory) + "\n"
    (results / folder / "best.flags").write_text(text)
    settings = re.sub(r"(?m)^--?(\w+)[= ]?(.*)$", r'\1 = "\2"', text).replace('""', "true")
    (results / folder / "best.toml").write_text(settings)
    (directory / "evil.flags").write_text("--import=evil\n")
    usual = [argument.format(directory=directory) for argument in PROGRAMS[program]]
    with pytest.MonkeyPatch.context() as patch, nothing_is_computed():
        patch.setattr(sys, "path", [*sys.path, str(directory)])
        for flag, name in (("flagfile", "best.flags"), ("config", "best.toml")):
            outcome = run_program(program, *usual, f"--{flag}={results / folder / name}")
            assert not trace.exists(), "the attacker's module has run"
            if outcome != REFUSED:
                raise SilentDifference(f"the {flag} is followed")
    return outcome


def _check_modules(module: str, directory: Path) -> str:
    """Starts a program in a directory with modules of every name of the standard library."""
    folder, trace = clone_beside_hostile_modules(directory)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert not trace.exists(), "the attacker's module has run"
    assert done.returncode == 0, done.stderr
    return SAME
