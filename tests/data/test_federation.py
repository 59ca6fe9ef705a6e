"""The data classes: their contents, refusals and JSON form."""

import dataclasses
import json

import numpy as np
import pytest

from tff_pcdd import data
from tff_pcdd.data import ClientIndices, DataError, Examples, Federation, InputSpec

SPEC = InputSpec("image", (2, 2, 1), scale=1 / 255)


def _federation(**changes):
    x = np.arange(24, dtype=np.uint8).reshape(6, 2, 2, 1)
    values = {
        "name": "toy",
        "num_classes": 3,
        "class_names": ("a", "b", "c"),
        "input_spec": SPEC,
        "train": Examples(x, np.array([0, 0, 1, 1, 2, 0])),
        "test": Examples(x[:3], np.array([0, 1, 2])),
        "clients": (
            ClientIndices("one", np.array([0, 2, 3]), np.array([0, 1])),
            ClientIndices("two", np.array([1, 4, 5]), np.array([2])),
            ClientIndices("none", np.array([], np.int64), np.array([], np.int64)),
        ),
    }
    return Federation(**{**values, **changes})


def test_counts_are_per_client_and_class_and_cached():
    federation = _federation()
    assert federation.class_counts().tolist() == [[1, 2, 0], [2, 0, 1], [0, 0, 0]]
    assert federation.test_class_counts().tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert federation.class_counts().dtype == np.int64
    assert federation.class_counts() is federation.class_counts()
    with pytest.raises(ValueError, match="read-only"):
        federation.class_counts()[0, 0] = 5


def _large(number=20_005, **changes):
    """Clients with 0 to 4 samples of 60,000, which some share."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 60_000)
    x = np.zeros((len(labels), 2, 2, 1), np.uint8)
    sizes = generator.integers(0, 5, number)
    owners = np.repeat(np.arange(number), sizes)
    samples = generator.integers(0, len(labels), len(owners))
    parts = np.split(samples, np.cumsum(sizes)[:-1])
    clients = [ClientIndices(str(k), part, part[:1]) for k, part in enumerate(parts)]
    examples = Examples(x, labels)
    return _federation(train=examples, test=examples, clients=clients), owners, samples


def test_statistics_of_many_clients():
    federation, owners, samples = _large()
    labels = federation.train.y
    expected = np.zeros((20_005, 3), np.int64)
    np.add.at(expected, (owners, labels[samples]), 1)
    np.testing.assert_array_equal(federation.class_counts(), expected)
    _, first = np.unique(owners, return_index=True)
    expected = np.zeros((20_005, 3), np.int64)
    np.add.at(expected, (owners[first], labels[samples[first]]), 1)
    np.testing.assert_array_equal(federation.test_class_counts(), expected)
    assert federation.summary()["clients_without_train"] == 20_005 - len(first)
    np.testing.assert_array_equal(federation.trained_samples(), np.unique(samples))


def test_the_client_with_a_wrong_index_is_named_among_many():
    federation, _, _ = _large()
    for part in ("train", "test"):
        wrong = dataclasses.replace(federation.clients[15_000], **{part: np.array([0, 60_000])})
        clients = [*federation.clients[:15_000], wrong, *federation.clients[15_001:]]
        with pytest.raises(DataError, match=r"^client 15000: .* indices exceed 60000 samples$"):
            dataclasses.replace(federation, clients=clients)


def test_client_examples_keep_the_raw_type():
    train, test = _federation().client_examples(1)
    assert train.x.dtype == np.uint8
    assert train.y.dtype == np.int32
    assert train.x[:, 0, 0, 0].tolist() == [4, 16, 20]
    assert test.y.tolist() == [2]


def test_summary_is_plain_and_right():
    summary = _federation(notes={"empty_users": np.int64(2)}).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["train_samples"] == 6
    assert summary["client_train_samples"] == {"min": 0, "median": 3.0, "mean": 2.0, "max": 3}
    assert summary["class_samples"] == [3, 2, 1]
    assert summary["clients_without_train"] == 1
    assert summary["empty_users"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_names": ("a",)}, "1 class names for 3 classes"),
        ({"clients": ()}, "no clients"),
        ({"clients": (ClientIndices("a", np.array([0]), np.array([0])),) * 2}, "ids repeat"),
        ({"clients": (ClientIndices("a", np.array([6]), np.array([0])),)}, "a: training indices"),
        ({"clients": (ClientIndices("a", np.array([0]), np.array([3])),)}, "a: test indices"),
        (
            {"clients": [ClientIndices("a", [0], []), ClientIndices("b", [1, 2, 4], [], [0, 4])]},
            "client b: the sample 4 is for training and for validation; these parts must be disj",
        ),
        (
            {"num_classes": 2, "class_names": ("a", "b")},
            "training labels run from 0 to 2, not within 0 to 1",
        ),
        (
            {"train": Examples(np.zeros((6, 2, 2, 1), np.uint8), np.array([1, 1, 2, 2, 3, 1]))},
            "labels run from 1 to 3, not within 0 to 2; subtract 1, because labels count from 0",
        ),
        (
            {"train": Examples(np.zeros((6, 2, 3, 1), np.uint8), np.zeros(6, np.int32))},
            r"training inputs have shape \(2, 3, 1\), but the input spec says \(2, 2, 1\)",
        ),
        (
            {"input_spec": InputSpec("image_file", (2, 2, 1), "string")},
            "training inputs are uint8 .*: image files are given by their paths",
        ),
        (
            {"input_spec": InputSpec("vector", (2,), "float32")},
            "training inputs are uint8, but the input spec says float32",
        ),
        (
            {"test": Examples(np.zeros((3, 2, 2, 1)), np.zeros(3, np.int32))},
            "test inputs are float64, but the input spec says uint8; .*dtype=.float32., scale=1",
        ),
    ],
)
def test_inconsistent_federations_are_refused(changes, message):
    with pytest.raises(DataError, match=message):
        _federation(**changes)


def test_indices_may_be_lists_and_empty():
    client = ClientIndices("a", [0, 2], np.array([]), [])
    federation = _federation(clients=[client])
    assert federation.class_counts().tolist() == [[1, 1, 0]]
    assert federation.test_class_counts().tolist() == [[0, 0, 0]]
    assert federation.validation_class_counts().tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("indices", [np.array([0.0]), np.array([True]), [[0, 1]], "01", None])
def test_indices_are_whole_numbers(indices):
    for arguments in ((indices, []), ([], indices), ([], [], indices)):
        with pytest.raises(DataError, match=r"^client a: .* must be whole numbers, \[n\]$"):
            ClientIndices("a", *arguments)


def test_examples_need_one_label_each():
    with pytest.raises(DataError, match="3 inputs and labels of shape"):
        Examples(np.zeros((3, 1)), np.zeros(2, np.int32))
    with pytest.raises(DataError, match="labels are <U1: they must be whole numbers from 0"):
        Examples(np.zeros((2, 1)), np.array(["a", "b"]))


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        InputSpec(
            "image",
            (32, 32, 3),
            mean=(0.1, 0.2, 0.3),
            std=(1, 2, 3),
            crop_padding=4,
            padding_mode="reflect",
            flip=True,
            rotation=15.0,
        ),
        InputSpec("text", (80,), dtype="int32", vocabulary='ab \n"é'),
        InputSpec("image_file", (224, 224, 3), dtype="string"),
        InputSpec("vector", (3,), dtype="float32", mean=(1, 2, 3), std=(1, 1, 2)),
    ],
)
def test_equal_specs_have_equal_hashes(spec):
    """Also if their sequences are lists."""
    values = json.loads(json.dumps(dataclasses.asdict(spec)))
    assert InputSpec(**values) == spec
    assert hash(InputSpec(**values)) == hash(spec)


def test_spec_properties():
    assert not SPEC.augments
    assert SPEC.raw_shape == (2, 2, 1)
    assert SPEC.model_dtype == "float32"
    assert SPEC.vocabulary_size is None
    text = InputSpec("text", (80,), vocabulary="abc")
    assert (text.vocabulary_size, text.model_dtype) == (4, "int32")
    assert InputSpec("image_file", (8, 8, 3), dtype="string").raw_shape == ()
    assert InputSpec("image", (8, 8, 3), rotation=1.0).augments


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "sound"}, "kind='sound'"),
        ({"dtype": "float64"}, "dtype='float64': image inputs are uint8 or float32"),
        ({"shape": (8, 8)}, "3 positive sizes"),
        ({"shape": (8, 0, 1)}, "3 positive sizes"),
        ({"mean": (0.1, 0.2)}, "mean=.* 1 channels"),
        ({"std": (0.0,)}, "greater than 0"),
        ({"padding_mode": "edge"}, "padding_mode='edge'"),
        ({"crop_padding": -1}, "must not be negative"),
        (
            {"shape": (1, 32, 1), "crop_padding": 1, "padding_mode": "reflect"},
            "crop_padding=1: can only be reflected in images with more rows and columns, not of",
        ),
        ({"kind": "text", "shape": (4,)}, "vocabulary"),
        ({"kind": "vector", "dtype": "float32"}, "vector inputs need 1 positive sizes"),
        ({"kind": "vector", "shape": (4,), "dtype": "float32", "flip": True}, "cannot be cropped"),
        ({"kind": "vector", "shape": (4,), "dtype": "float32", "std": (1,)}, "each of 4 numbers"),
    ],
)
def test_bad_specs_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        InputSpec(**{"kind": "image", "shape": (8, 8, 1), **values})


def test_data_error_is_a_value_error():
    assert issubclass(data.DataError, ValueError)


@pytest.mark.parametrize("label", [2**31, 2**40, -(2**31) - 1, 2**63])
def test_labels_beyond_int32_are_refused(label):
    labels = np.array([0, label], np.uint64 if label > 0 else np.int64)
    with pytest.raises(DataError, match=f"label {label} of sample 1 is not an int32 number"):
        Examples(np.zeros((2, 2, 2, 1), np.uint8), labels)
    assert Examples(np.zeros((1, 1)), np.array([2**31 - 1])).y.dtype == np.int32


FLOATS = InputSpec("image", (2, 2, 1), "float32")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_inputs_are_refused_with_client_and_position(value):
    x = np.zeros((6, 2, 2, 1), np.float32)
    x[4, 1, 0, 0] = value
    examples = Examples(x, np.array([0, 0, 1, 1, 2, 0]))
    test = Examples(x[:3], np.array([0, 1, 2]))
    with pytest.raises(DataError, match=r"toy: training input 4 of client two, value \(1, 0, 0\)"):
        _federation(input_spec=FLOATS, train=examples, test=test)
    with pytest.raises(DataError, match=r"toy: test input 4 of client one, value \(1, 0, 0\)"):
        _federation(
            input_spec=FLOATS,
            train=Examples(np.zeros_like(x), examples.y),
            test=examples,
            clients=(ClientIndices("one", np.array([0]), np.array([4])),),
        )


def test_inputs_that_normalization_makes_infinite_are_refused():
    x = np.full((6, 2, 2, 1), np.finfo(np.float32).max)
    train, test = Examples(x, np.zeros(6, int)), Examples(x[:3], np.zeros(3, int))
    _federation(input_spec=FLOATS, train=train, test=test)
    narrow = dataclasses.replace(FLOATS, std=(0.001,))
    assert np.isinf(x[0] / np.float32(0.001)).all()
    with pytest.raises(DataError, match="is infinite as a float32 model input"):
        _federation(input_spec=narrow, train=train, test=test)


def test_client_ids_are_text():
    client = ClientIndices("a\ud800", np.array([0]), np.array([0]))
    with pytest.raises(DataError, match=r"client id 'a\\ud800' is not valid Unicode"):
        _federation(clients=(client,))


def test_ids_of_text_are_in_the_vocabulary():
    spec = InputSpec("text", (3,), "int32", vocabulary="ab")
    x = np.array([[0, 1, 2]] * 6, np.int32)
    good = {"train": Examples(x, np.zeros(6, int)), "test": Examples(x[:3], np.zeros(3, int))}
    _federation(input_spec=spec, **good)
    for wrong in (x + 1, x - 1):
        with pytest.raises(DataError, match="not within 0 to 2, the ids of the vocabulary"):
            _federation(input_spec=spec, **{**good, "test": Examples(wrong[:3], good["test"].y)})


@pytest.mark.parametrize(
    ("spec", "largest"),
    [
        (InputSpec("image", (2, 2, 1), "float32"), 255),
        (InputSpec("image", (2, 2, 1)), 255),
        (InputSpec("image", (2, 2, 1), mean=(0.4,), std=(0.2,)), 60),
    ],
)
def test_pixels_that_are_not_scaled_are_named(spec, largest, warnings_again):
    x = np.full((6, 2, 2, 1), largest, spec.dtype)
    parts = {"train": Examples(x, np.zeros(6, int)), "test": Examples(x[:3], np.zeros(3, int))}
    _federation(input_spec=dataclasses.replace(spec, scale=1 / 255), **parts)
    assert warnings_again.text == ""
    _federation(input_spec=spec, **parts)
    assert f"toy: training inputs run from {largest} to {largest} and reach" in warnings_again.text
    assert "use scale=1/255 in the input spec" in warnings_again.text


def test_an_empty_test_set_is_named(warnings_again):
    clients = (ClientIndices("one", np.array([0]), np.array([], np.int64)),)
    _federation(test=_federation().test.take(np.array([], np.int64)), clients=clients)
    assert "toy: there are no test samples, so no accuracy can be measured" in warnings_again.text


def test_samples_keep_their_names():
    examples = Examples(np.zeros((3, 1)), np.arange(3), np.array(["a", "b", "c"]))
    assert examples.take(np.array([2, 0])).ids.tolist() == ["c", "a"]
