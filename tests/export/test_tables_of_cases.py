"""The tables of cases of exported models in docs/quality.md are what the tests find."""

import collections

import numpy as np
import pytest

from tests import case_tables
from tests.faults import fuzzed_exports
from tests.faults.fuzzed_exports import FORMATS
from tff_pcdd import data
from tff_pcdd.export import global_model, lite
from tff_pcdd.training import ExperimentConfig, Simulation

pytestmark = pytest.mark.integration

_RANDOM = np.random.default_rng(8)
_PHOTO = _RANDOM.integers(0, 256, (2, 8, 6, 3), np.uint8)
_ROWS = _RANDOM.normal(40, 9, (2, 4)).astype(np.float32)
_WITH_NAN = _ROWS.copy()
_WITH_NAN[1, 2] = np.nan
_CODES = np.array([[51, 4.5, 1, 2], [67, np.nan, 0, 4]], np.float32)
_COLUMNS = {
    "age": np.array([51, 67], np.float32),
    "dose_mg": np.array([4.5, np.nan], np.float32),
    "pain": np.array(["none at all", "dull"], object),
    "ward": np.array([2, 4], np.float32),
}
_ONE, _ALL = ("lite", "int8"), tuple(FORMATS)
_MANY = tuple(name for name in FORMATS if name not in _ONE)

# What is sent to a model, what is expected, the model, the inputs by name, and the formats. Those
# of TensorFlow Lite take a single sample.
CASES = (
    ("a color image without the batch axis", "refused", "image", {"images": _PHOTO[0]}, _ALL),
    (
        "grey images to a model of color images",
        "refused",
        "image",
        {"images": _PHOTO[..., :1]},
        _ALL,
    ),
    ("images of one pixel", "refused", "image", {"images": _PHOTO[:1, :1, :1]}, _ALL),
    ("pixels from 0 to 1", "refused", "image", {"images": _PHOTO / 255}, _ALL),
    (
        "one number to a model of four columns",
        "refused",
        "vector",
        {"features": _ROWS[:1, :1]},
        _ALL,
    ),
    ("a row without the batch axis", "refused", "vector", {"features": _ROWS[0]}, _ALL),
    ("NaN in a row", "refused", "vector", {"features": _WITH_NAN[1:]}, _ALL),
    ("NaN in one of two rows", "refused", "vector", {"features": _WITH_NAN}, _MANY),
    (
        "an infinite number",
        "refused",
        "table",
        {"features": np.float32([[51, np.inf, 1, 2]])},
        _ONE,
    ),
    (
        "a code of no category",
        "refused",
        "table",
        {"features": np.float32([[51, 4.5, 9, 2]])},
        _ONE,
    ),
    ("images under another name", "refused", "image", {"pixels": _PHOTO}, ("saved_model", *_ONE)),
    ("no images", "an empty answer", "image", {"images": _PHOTO[:0]}, _MANY),
    ("no rows", "an empty answer", "vector", {"features": _ROWS[:0]}, _MANY),
    ("two images", "the network's answer", "image", {"images": _PHOTO}, _MANY),
    ("one row", "the network's answer", "vector", {"features": _ROWS[:1]}, _ALL),
    (
        "a missing number, with impute=median",
        "the network's answer",
        "table",
        {"features": _CODES[1:]},
        _ONE,
    ),
    (
        "columns by name, one of them missing a value",
        "the network's answer",
        "table",
        _COLUMNS,
        ("by name",),
    ),
    (
        "a column of one value beside two",
        "refused",
        "table",
        {**_COLUMNS, "age": _COLUMNS["age"][:1]},
        ("by name",),
    ),
    ("a column too few", "refused", "table", {"age": _COLUMNS["age"]}, ("by name",)),
    (
        "an unknown category",
        "refused",
        "table",
        {**_COLUMNS, "pain": np.array(["Dull", "dull"], object)},
        ("by name",),
    ),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cases") / "exports"
    return {name: fuzzed_exports.export(name, directory) for name in fuzzed_exports.MODELS}


def _outcome(exported, model, name, given):
    """What comes out, in words."""
    try:
        if name == "by name":
            tensors = fuzzed_exports.tensors(given)
            found = exported.signatures["serving_columns"](**tensors)
            meaning = _CODES
        else:
            found = fuzzed_exports.answer_of(name, exported, given)
            (meaning,) = given.values()
    except Exception as error:
        assert str(error).strip()
        return "refused"
    answers = np.asarray(found["probabilities"])
    if answers.size and np.isnan(answers).all():
        assert np.all(np.asarray(found["class_id"]) == -1)
        return "NaN and class -1"
    if not answers.size:
        return "an empty answer"
    tolerance = 0.2 if name == "int8" else 1e-4
    wanted = exported.reference(np.asarray(meaning, np.float64))
    is_right = answers.shape == wanted.shape and np.allclose(answers, wanted, atol=tolerance)
    return "the network's answer" if is_right else "another answer"


def test_requests(models):
    rows = []
    for what, expected, model, given, formats in CASES:
        by_outcome = collections.defaultdict(list)
        for name in formats:
            shown = FORMATS.get(name, f"a SavedModel {name}").removeprefix("a ").removeprefix("an ")
            by_outcome[_outcome(models[model], model, name, given)].append(shown)
        # TensorFlow Lite has no operation that refuses a value.
        accepted = {expected, "NaN and class -1"} if expected == "refused" else {expected}
        assert set(by_outcome) <= accepted, (what, by_outcome)
        got = "; ".join(f"{outcome}: {', '.join(names)}" for outcome, names in by_outcome.items())
        rows.append([what, expected, got])
    case_tables.check_page(["a request of", "expected", "got"], rows)


@pytest.mark.parametrize("name", FORMATS)
def test_random_requests(name, models):
    """All of those that `make faults` sends, in this process: it must not end."""
    outcomes = collections.Counter(
        fuzzed_exports.outcome(name, number, models) for number in range(fuzzed_exports.CASES)
    )
    assert set(outcomes) == {"same", "refused"}
    assert min(outcomes.values()) >= 10


def test_int8_of_columns_with_other_scales(tmp_path):
    """The salary decides nothing, and is a million times larger than what does."""
    generator = np.random.default_rng(0)
    drinker = generator.integers(0, 2, 400)
    columns = [generator.normal(41_000, 12_000, 400), generator.normal(72, 11, 400), drinker]
    x = np.stack(columns, axis=1).astype(np.float32)
    spec = data.InputSpec(
        "vector", (3,), "float32", mean=tuple(x.mean(axis=0)), std=tuple(x.std(axis=0))
    )
    examples = data.Examples(x, drinker.astype(np.int32))
    clients = [data.ClientIndices("a", np.arange(400), np.arange(400))]
    federation = data.Federation("drinking", 2, ("no", "yes"), spec, examples, examples, clients)
    config = ExperimentConfig.from_settings(
        model="mlp", local_epochs=5, client_learning_rate=0.1, clients_per_round=1
    )
    with Simulation(config, federation) as simulation:
        for _ in range(2):
            simulation.next_round()
        model = global_model(simulation)
    lite.write(model, tmp_path, x[:200])
    found = [lite.accuracy(tmp_path / file, examples, spec) for file in (lite.FLOAT, lite.INT8)]
    assert found[0] > 99
    got = f"int8 loses {'at most 2' if found[0] - found[1] <= 2 else 'more than 2'} points"
    row = ["salary 41,000 ± 12,000, pulse, drinker", "int8 loses at most 2 points", got]
    assert row[1] == row[2], found
    case_tables.check_page(["columns of other scales", "expected", "got"], [row])
