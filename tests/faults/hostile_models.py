"""Files of models that are damaged or hostile: weights to start from, and SavedModels of a server.

A file of weights is refused in one line that names it, or its values are read as `h5py` alone reads
them. A SavedModel of which a byte is different loads, or one line says why not. SavedModels of an
attacker are programs; they are no cases here.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np
import tensorflow as tf

from benchmarks import processes
from tests.faults import damage
from tests.faults.case import SAME, Case, SilentDifference, one_line
from tests.faults.hostile_files import in_time
from tests.faults.mutations import mutate
from tff_pcdd.errors import SettingError
from tff_pcdd.models import efficientnet

_ROOT = Path(__file__).resolve().parents[2]
_SIZE = (8, 8, 3)


def cases(directory: Path) -> Iterator[Case]:
    """Damaged files of each kind, and files that were made to do harm."""
    for name, change in _attacks().items():
        yield Case("weights in HDF5", name, functools.partial(_check_weights, "a.h5", change))
    for number in range(100):
        change = functools.partial(_mutated, number)
        yield Case(
            "weights in HDF5", str(number), functools.partial(_check_weights, "a.h5", change)
        )
    for number in range(60):
        for name in ("a.keras", "a.weights.h5"):
            check = functools.partial(_check_weights, name, functools.partial(_mutated, number))
            yield Case("Keras files", f"{name} {number}", check)
    yield Case("Keras files", "a bomb", functools.partial(_check_weights, "a.keras", _bomb))
    for number in range(50):
        for part in ("index", "data-00000-of-00001"):
            check = functools.partial(_check_checkpoint, part, number)
            yield Case("weights in TensorFlow's format", f"{part} {number}", check)
    if processes.SERVING_PYTHON.exists():
        loaded = functools.cache(functools.partial(_load_saved_models, directory))
        for name in _saved_models():
            check = functools.partial(_check_saved_model, loaded, name)
            yield Case("damaged SavedModels", name, check)


# Weights.


def _network(input_shape: tuple[int, ...] = _SIZE) -> tf.keras.Model:
    """Stands for Keras' network, which takes seconds to make."""
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.Conv2D(4, 3, name="stem")(inputs)
    h = tf.keras.layers.BatchNormalization(name="norm")(h)
    h = tf.keras.layers.GlobalAveragePooling2D(name="pool")(h)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(5, name="top")(h))


@functools.cache
def _networks() -> tuple[tf.keras.Model, tf.keras.Model, list[np.ndarray]]:
    """What is loaded into, what the weights go to, and the weights of the file."""
    rng = np.random.default_rng(0)
    original, target = _network(), _network()
    wanted = [rng.normal(size=weight.shape).astype(np.float32) for weight in original.weights]
    return original, target, wanted


def _write(path: Path) -> None:
    original, _, wanted = _networks()
    original.set_weights(wanted)
    if path.suffix == ".keras":
        original.save(path, save_format="keras")
    else:
        original.save_weights(str(path))


def _read(path: Path) -> list[np.ndarray]:
    """Loads weights as a run does that starts from them."""
    original, target, wanted = _networks()
    for network in (original, target):
        network.set_weights([np.zeros_like(value) for value in wanted])
    efficientnet._check_file(str(path))
    with mock.patch.object(efficientnet, "_keras_network", lambda _: original):
        efficientnet._load_weights(target, _SIZE, str(path))
    return target.get_weights()


def _check_weights(name: str, change: Callable[[Path], Any], directory: Path) -> str:
    path = directory / name
    _write(path)
    change(path)
    try:
        found = in_time(lambda: _read(path))
    except SettingError as error:
        return one_line(error, str(path))
    return _compare(found, lambda: _plainly(path))


def _compare(found: list[np.ndarray], expected: Callable[[], list[np.ndarray]]) -> str:
    if not all(np.isfinite(value).all() for value in found):
        raise SilentDifference("weights that are not finite")
    wanted = _networks()[2]
    if all(map(np.array_equal, found, wanted)):
        return SAME
    # A changed byte may be one of a weight: the format has no checksums.
    if not all(map(np.array_equal, found, expected())):
        raise SilentDifference("other weights than those in the file")
    return SAME


def _plainly(path: Path) -> list[np.ndarray]:
    """The weights in a file of HDF5, in the order of the layers, as far as `h5py` reads them."""
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as inner:
            return _datasets(inner)
    return _datasets(path)


def _datasets(file: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    with h5py.File(file, "r") as opened:
        layers = {name: [] for name in ("stem", "norm", "top")}
        classes = {"conv2d": "stem", "batch_normalization": "norm", "dense": "top"}

        def note(path: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                parts = path.split("/")
                layer = next(
                    (n for part in parts for n in (part, classes.get(part)) if n in layers), None
                )
                layers[layer].append((path, item[()]))

        opened.visititems(note)
        order = {"kernel:0": 0, "bias:0": 1, "gamma:0": 0, "beta:0": 1, "moving_mean:0": 2}
        for values in layers.values():
            values.sort(key=lambda each: (order.get(each[0].split("/")[-1], 3), each[0]))
            found += [value for _, value in values]
    return found


def _mutated(number: int, path: Path) -> None:
    """Damages random bytes, most of which are those of the file's structure."""
    path.write_bytes(mutate(path.read_bytes(), random.Random(number)))


def _attacks() -> dict[str, Callable[[Path], Any]]:
    """Changes of a file of weights in HDF5, by what they are."""

    def within(change: Callable[[h5py.Group], Any]) -> Callable[[Path], Any]:
        def apply(path: Path) -> None:
            with h5py.File(path, "r+") as file:
                change(file["stem/stem"])

        return apply

    def replaced(**options: Any) -> Callable[[Path], Any]:
        def change(group: h5py.Group) -> None:
            del group["kernel:0"]
            group.create_dataset("kernel:0", **options)

        return within(change)

    def linked(link: Any) -> Callable[[Path], Any]:
        def change(group: h5py.Group) -> None:
            del group["kernel:0"]
            group["kernel:0"] = link

        return within(change)

    def attribute(name: str, value: Any, place: str = "stem") -> Callable[[Path], Any]:
        def apply(path: Path) -> None:
            with h5py.File(path, "r+") as file:
                del file[place].attrs[name]
                if value is not None:
                    file[place].attrs[name] = value

        return apply

    def sparse(path: Path) -> None:
        with open(path, "r+b") as file:
            file.truncate(200_000_000_000)

    def deep(group: h5py.Group) -> None:
        for _ in range(500):
            group = group.create_group("a")

    def virtual(group: h5py.Group) -> None:
        layout = h5py.VirtualLayout((3, 3, 3, 4), "f4")
        layout[:] = h5py.VirtualSource("/etc/passwd", "x", (3, 3, 3, 4))
        del group["kernel:0"]
        group.create_virtual_dataset("kernel:0", layout)

    shape, big = (3, 3, 3, 4), (2**20, 2**20, 10)
    values = {
        "NaN": np.full(shape, np.nan, np.float32),
        "infinite": np.full(shape, np.inf, np.float32),
        "1e300": np.full(shape, 1e300),
        "complex": np.ones(shape, np.complex64),
        "text": np.full(shape, b"a"),
        "objects": np.full(shape, b"a").astype(h5py.string_dtype()),
        "records": np.zeros(shape, [("a", "f4"), ("b", "f4")]),
        "bool": np.ones(shape, bool),
        "a scalar": np.float32(1),
        "empty": np.zeros((3, 3, 3, 0), np.float32),
        "another shape": np.zeros((3, 3, 4, 3), np.float32),
        "fewer axes": np.zeros(108, np.float32),
    }
    file = [("/etc/passwd", 0, h5py.h5f.UNLIMITED)]
    return {
        **{f"{name} as a weight": replaced(data=value) for name, value in values.items()},
        "10^13 numbers": replaced(shape=big, dtype="f4", chunks=(1, 2**10, 10)),
        "a bomb": replaced(shape=(2**15, 2**15, 4), dtype="f4", compression="gzip", chunks=True),
        "data of another file": replaced(shape=(108,), dtype="u1", external=file),
        "virtual data": within(virtual),
        "a link to another file": linked(h5py.ExternalLink("/etc/passwd", "/")),
        "a link to itself": linked(h5py.SoftLink("/stem/stem/kernel:0")),
        "a link to nothing": linked(h5py.SoftLink("/nothing")),
        "a link to a group": linked(h5py.SoftLink("/stem")),
        "a deep group": within(deep),
        "no names of layers": attribute("layer_names", None, "/"),
        "names of layers as numbers": attribute("layer_names", [1, 2, 3, 4, 5], "/"),
        "layers that do not exist": attribute("layer_names", [b"a", b"b", b"c"], "/"),
        "a layer twice": attribute("layer_names", [b"stem", b"stem", b"top"], "/"),
        "names upwards": attribute("layer_names", [b"../stem", b"norm", b"top"], "/"),
        "no names of weights": attribute("weight_names", None),
        "names of weights as numbers": attribute("weight_names", [1.5, 2.5]),
        "a weight twice": attribute("weight_names", [b"stem/kernel:0"] * 2),
        "weights of another layer": attribute("weight_names", [b"/top/top/kernel:0"] * 2),
        "a name that is no text": attribute("weight_names", [b"\xff\xfe", b"stem/bias:0"]),
        "a long name": attribute("weight_names", [b"a" * 50_000]),
        "a pipe": damage.instead(os.mkfifo),
        "a folder": damage.instead(os.mkdir),
        "a device": damage.instead(lambda path: path.symlink_to("/dev/zero")),
        "a link to the file itself": damage.instead(lambda path: path.symlink_to(path)),
        "no file": damage.instead(lambda path: None),
        "an empty file": damage.instead(lambda path: path.write_bytes(b"")),
        "a sparse file": sparse,
        "an archive of pickles": damage.instead(
            lambda path: path.write_bytes(b"PK\3\4" + b"cos\nsystem\n(S'true'\ntR." * 10)
        ),
        "text": damage.instead(lambda path: path.write_text("weights")),
    }


def _bomb(path: Path) -> None:
    """An archive whose file of weights is a thousand times as large when it is unpacked."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("model.weights.h5", "w", force_zip64=True) as file,
    ):
        for _ in range(1010):
            file.write(bytes(1_000_000))


def _check_checkpoint(part: str, number: int, directory: Path) -> str:
    path = directory / "a"
    _write(path)
    _mutated(number, path.with_name(f"a.{part}"))
    try:
        found = in_time(lambda: _read(path))
    except SettingError as error:
        return one_line(error, str(path))
    # Its checksums detect every other weight.
    return _compare(found, lambda: _networks()[2])


# SavedModels.


def _saved_models() -> dict[str, Callable[[Path], Any]]:
    """Changes of a SavedModel, by what they are."""

    def mutated(file: str, number: int, folder: Path) -> None:
        _mutated(number, folder / file)

    def instead(file: str, make: Callable[[Path], Any], folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    def sparse(path: Path) -> None:
        with open(path, "wb") as file:
            file.truncate(200_000_000_000)

    files = ("saved_model.pb", "variables/variables.index")
    makers: dict[str, Callable[[Path], Any]] = {
        "a pipe": os.mkfifo,
        "a folder": os.mkdir,
        "a device": lambda path: path.symlink_to("/dev/zero"),
        "nothing": lambda path: None,
        "empty": lambda path: path.write_bytes(b""),
        "without data": sparse,
    }
    return {
        **{
            f"{file} {number}": functools.partial(mutated, file, number)
            for file in (*files, "variables/variables.data-00000-of-00001")
            for number in range(70 if file == files[0] else 20)
        },
        **{
            f"{file} is {name}": functools.partial(instead, file, make)
            for file in files
            for name, make in makers.items()
        },
    }


_LOADER = """
import json, pathlib, sys
sys.path.insert(0, "serving")
import adapter
from limits import Limits, Workers
limits = Limits(1000, 10, 1000, 10.0, 1, 1)
workers = Workers(limits)
for folder in sys.argv[1:]:
    print(folder, flush=True)
    try:
        model = adapter.SavedModel("m", pathlib.Path(folder), limits, workers)
        answer = {"loaded": sorted(model._model.signatures)}
    except adapter.UnusableModelError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer), flush=True)
"""


def _load_saved_models(directory: Path) -> dict[str, dict[str, Any]]:
    """What the server says of each SavedModel; one that ends it is named in the error."""
    module = tf.Module()
    module.weight = tf.Variable(np.arange(6, dtype=np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="numbers")])
    def of_numbers(numbers):
        return {"sum": tf.linalg.matvec(numbers, module.weight)}

    tf.saved_model.save(module, str(directory / "right"), {"serving_default": of_numbers})
    folders = {}
    for index, (name, change) in enumerate(_saved_models().items()):
        folder = directory / f"model_{index}"
        shutil.copytree(directory / "right", folder)
        change(folder)
        folders[str(folder)] = name
    found: dict[str, dict[str, Any]] = {}
    pending = list(folders)
    while pending:
        command = [str(processes.SERVING_PYTHON), "-c", _LOADER, *pending]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=600)
        lines = done.stdout.splitlines()
        for folder, answer in zip(lines[::2], lines[1::2], strict=False):
            found[folders[folder]] = json.loads(answer)
        seen = len(lines[1::2])
        if seen < len(pending):
            found[folders[pending[seen]]] = {"ended": f"{done.returncode}: {done.stderr[-2000:]}"}
            seen += 1
        pending = pending[seen:]
    return found


def _check_saved_model(loaded: Callable[[], dict], name: str, directory: Path) -> str:
    answer = loaded()[name]
    if "refused" in answer:
        return one_line(answer["refused"], "model_")
    assert "loaded" in answer, answer.get("ended")
    return SAME
