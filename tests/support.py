"""A federation small enough that a round takes milliseconds."""

import csv
import functools
import json
import types
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tff_pcdd import data, export, methods, models
from tff_pcdd.experiment import planning
from tff_pcdd.federated import SGD, TrainingSpec, build_process
from tff_pcdd.federated import state as states
from tff_pcdd.federated.records import ClientData, ServerState
from tff_pcdd.federated.tensor_computations import build_tensor_computations
from tff_pcdd.methods.head_calibration import registry as calibrations
from tff_pcdd.training import ComputeOptions, ExperimentConfig

NUM_CLASSES = 4
IMAGE = (4, 4, 1)
SPEC = data.InputSpec("image", IMAGE, "float32")


def backbone(with_statistics: bool = True) -> tf.keras.Model:
    """Two dense layers, with a batch normalization between them if wanted."""
    from tff_pcdd.layers import BatchNormalization

    inputs = tf.keras.Input(IMAGE)
    h = tf.keras.layers.Dense(8)(tf.keras.layers.Flatten()(inputs))
    if with_statistics:
        h = BatchNormalization()(h)
    h = tf.keras.layers.Dense(6, activation="relu")(h)
    return tf.keras.Model(inputs, h)


def examples(size: int, classes, seed: int) -> OrderedDict:
    """Images that carry their class in their mean."""
    generator = np.random.default_rng(seed)
    y = generator.choice(classes, size).astype(np.int32) if size else np.zeros(0, np.int32)
    x = generator.normal(size=(size, *IMAGE)).astype(np.float32) + y[:, None, None, None]
    return OrderedDict(x=x.astype(np.float32), y=y)


# Two classes each; a single sample; a single class; nothing at all.
CLIENTS = (
    examples(12, [0, 1], 1),
    examples(9, [1, 2], 2),
    examples(1, [3], 3),
    examples(6, [3], 4),
    examples(0, [0], 5),
)
TEST = examples(40, range(NUM_CLASSES), 6)


def federation() -> data.Federation:
    """The clients with all of the test samples each."""
    inputs = [client["x"] for client in CLIENTS]
    ends = np.cumsum([len(x) for x in inputs])
    test = data.Examples(TEST["x"], TEST["y"])
    everything = np.arange(len(test))
    return data.Federation(
        name="tiny",
        num_classes=NUM_CLASSES,
        class_names=tuple(f"class {label}" for label in range(NUM_CLASSES)),
        input_spec=SPEC,
        train=data.Examples(
            np.concatenate(inputs), np.concatenate([client["y"] for client in CLIENTS])
        ),
        test=test,
        clients=tuple(
            data.ClientIndices(str(number), np.arange(end - len(x), end), everything)
            for number, (end, x) in enumerate(zip(ends, inputs, strict=True))
        ),
    )


def seed_of(*entropy: int) -> np.ndarray:
    """A seed for stateless ops from whole numbers."""
    return np.random.SeedSequence(entropy).generate_state(2).view(np.int32)


def training_spec(
    method: str,
    *,
    statistics: bool = True,
    seed: int = 0,
    head_calibration: methods.HeadCalibration | None = None,
    **options,
) -> TrainingSpec:
    """The tiny task for a method; other options are passed to `composed`."""
    counts = np.stack([np.bincount(c["y"], minlength=NUM_CLASSES) for c in CLIENTS])
    task = methods.TaskSpec(
        num_classes=NUM_CLASSES,
        feature_dim=6,
        backbone=functools.partial(backbone, statistics),
        class_counts=counts,
        seed=seed,
        num_rounds=4,
        cohort_size=3,
        server_samples=server_samples,
    )
    return TrainingSpec(
        **composed(method, head_calibration, **options),
        task=task,
        input_spec=SPEC,
        optimizer=SGD(learning_rate=0.05, momentum=0.9, weight_decay=1e-3, clip_norm=5.0),
        local_epochs=2,
        batch_size=4,
    )


def composed(method: str, head_calibration=None, **options) -> dict:
    """A method and its head calibration, which has the options if the method's name implies it."""
    if name := methods.get(method).head_calibration:
        own = calibrations.create(name, **options)
        return {"method": methods.create(method), "head_calibration": own}
    return {"method": methods.create(method, **options), "head_calibration": head_calibration}


@functools.lru_cache(maxsize=16)  # each keeps its graphs in memory
def _traced(method: str, statistics: bool, options: tuple):
    spec = training_spec(method, statistics=statistics, **dict(options))
    return spec, build_tensor_computations(spec)


def process(method: str, aggregator=None, *, statistics: bool = True, **options):
    """The computations of the tiny task for a method, which tests share: tracing takes seconds."""
    spec, tensors = _traced(method, statistics, tuple(sorted(options.items())))
    return build_process(spec, aggregator, tensors=tensors)


def server_samples(per_class: int):
    """A balanced set for the server."""
    drawn = examples(per_class * NUM_CLASSES, range(NUM_CLASSES), 7)
    y = np.repeat(np.arange(NUM_CLASSES, dtype=np.int32), per_class)
    return drawn["x"] - drawn["y"][:, None, None, None] + y[:, None, None, None], y


def client_data(
    client: int, round_number: int, seed: int = 0, *, cohort_index: int = 0, **parts
) -> ClientData:
    """A client's data in a round; further parts such as `test` are examples."""
    return ClientData(
        train=CLIENTS[client],
        **parts,
        seed=seed_of(seed, round_number, client),
        cohort_index=np.int32(cohort_index),
    )


def server_state(spec, number: int = 0) -> ServerState:
    """The server's state before the first round, with the number of another one."""
    return ServerState(
        aggregator=(),
        round=tf.constant(number),
        server=states.initial_server(spec),
        weights=states.initial_weights(spec),
    )


def run_rounds(process, state, client_states, cohorts, seed: int = 0, first: int = 0):
    """Runs a round for every cohort; the dict of client states is updated in between."""
    metrics = None
    for number, cohort in enumerate(cohorts, first):
        for client in cohort:
            if client not in client_states:
                client_states[client] = process.initial_client_state(seed_of(seed, client))
        state, new, metrics = process.next(
            state,
            [client_states[client] for client in cohort],
            [
                client_data(client, number, seed, cohort_index=index)
                for index, client in enumerate(cohort)
            ],
        )
        client_states.update(zip(cohort, new, strict=True))
    return state, client_states, metrics


def untrained(federation, backbone):
    """A global model with initial weights; `backbone` makes a Keras model of an input's shape.

    A simulation of it would trace its training, which takes seconds.
    """
    config = ExperimentConfig(model=models.ModelConfig(models.KerasBackbone(backbone)))
    spec = planning.training_spec(config, federation, ComputeOptions())
    state = types.SimpleNamespace(weights=states.initial_weights(spec))
    return export.global_model(types.SimpleNamespace(spec=spec, state=state, federation=federation))


def assert_trees_equal(a, b):
    """Asserts that nested structures are equal bit for bit."""
    tf.nest.assert_same_structure(a, b, check_types=False)
    for left, right in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def rare_but(often, cases):
    """Parameters of a test, of which all but some are checked in `make test-all` only.

    Args:
        often: the cases that `make test` checks too.
        cases: all of them; tuples are several parameters.
    """
    assert all(case in cases for case in often)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in often else pytest.mark.rare,
        )
        for case in cases
    ]


def write_image(path, height=12, width=20, value=None):
    """A png or jpg, of one grey or with the column's number in the green channel; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 1] = np.arange(width) * 10
    if value is not None:
        pixels[:] = value
    encode = tf.io.encode_png if path.suffix == ".png" else tf.io.encode_jpeg
    path.write_bytes(encode(pixels).numpy())
    return str(path).encode()


def write_table(path, rows):
    """A csv file of dicts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_tfds(root, size=6, name="fashion_mnist", version="3.0.1", **changes):
    """A prepared data set of TensorFlow Datasets with `size` images in each part; its folder.

    Changes are the contents of files by their names, with underscores instead of dots, and
    `images` and `labels`, which replace those of the training part.
    """
    folder = root / name / version
    folder.mkdir(parents=True)
    modules = "tensorflow_datasets.core.features"
    features = {
        "image": {
            "pythonClassName": f"{modules}.image_feature.Image",
            "image": {"shape": {"dimensions": ["28", "28", "1"]}, "dtype": "uint8"},
        },
        "label": {
            "pythonClassName": f"{modules}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": "10"},
        },
    }
    info = {
        "name": name,
        "version": version,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": split,
                "shardLengths": [str(size)],
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
            for split in ("train", "test")
        ],
    }
    top = {
        "pythonClassName": f"{modules}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }
    for file, content in (("features_json", top), ("dataset_info_json", info)):
        text = changes.get(file, content)
        text = text if isinstance(text, bytes) else json.dumps(text).encode()
        (folder / file.replace("_json", ".json")).write_bytes(text)
    for split in ("train", "test"):
        with tf.io.TFRecordWriter(str(folder / f"{name}-{split}.tfrecord-00000-of-00001")) as file:
            for i in range(size):
                pixels = np.full((28, 28, 1), i, np.uint8)
                image, label = tf.io.encode_png(pixels).numpy(), i % 10
                if split == "train":
                    image = changes.get("images", {}).get(i, image)
                    label = changes.get("labels", {}).get(i, label)
                values = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=values))
                file.write(example.SerializeToString())
    return folder
