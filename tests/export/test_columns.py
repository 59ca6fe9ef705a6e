"""Exported models of tables take the table's own values, by name or in order, in every format."""

import csv
import importlib.util
import json
import types
import unicodedata

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from benchmarks.processes import ROOT
from tests.data.refusals import refuses
from tests.markdown_tables import table_rows
from tests.support import untrained
from tff_pcdd import data
from tff_pcdd.data import encoding, rows
from tff_pcdd.errors import DataError
from tff_pcdd.export import (
    ExportOptions,
    columns,
    exporter,
    inputs,
    keras_file,
    lite,
    model_card,
    saved_model,
)
from tff_pcdd.training import ExperimentConfig, Simulation

pytestmark = pytest.mark.integration

N = 80
# The names are no identifiers, or mean something to TensorFlow or Python.
NUMBERS = ["blood pressure", "Größe", "self", "class"]
ENCODED = [*NUMBERS, "pain", "stage"]
FAR = ["time", *ENCODED]
FEATURES = {"plain": NUMBERS, "encoded": ENCODED, "far": FAR}


def table():
    generator = np.random.default_rng(2)
    made = pd.DataFrame(generator.normal(100, 9, (N, 4)).round(1), columns=NUMBERS)
    made["pain"] = np.array(["dull", "none at all", "scharf 😖"])[np.arange(N) % 3]
    made["stage"] = generator.integers(-1, 3, N)
    made["time"] = 1_790_000_000.0 + 7 * np.arange(N)
    made["label"] = generator.integers(0, 2, N)
    made["site"] = generator.integers(0, 2, N)
    return made


def with_gaps():
    made = table().astype(object)
    made.loc[::7, "blood pressure"] = None
    made.loc[3::9, "blood pressure"] = -9
    made.loc[::11, "pain"] = ""
    made.loc[5::13, "stage"] = None
    return made


def backbone(shape):
    given = tf.keras.Input(shape)
    return tf.keras.Model(given, tf.keras.layers.Dense(5)(given))


@pytest.fixture(scope="module", params=list(FEATURES))
def written(request, tmp_path_factory):
    """The rows of the test part, the network's answers, and the model in all formats."""
    kind, directory = request.param, tmp_path_factory.mktemp(request.param)
    options = {"features": FEATURES[kind]}
    if kind != "plain":
        options |= {"categorical_columns": "pain,stage", "impute": "median"}
        options["missing_markers"] = "-9"
    rows = table() if kind == "plain" else with_gaps()
    federation = data.from_dataframe(rows, name=kind, **options)
    model = untrained(federation, backbone)
    spec, test = federation.input_spec, federation.test
    answers = model.answer(data.normalize(test.x, spec))["probabilities"].numpy()
    saved_model.write(model, directory / "saved", columns.ranges(federation))
    keras_file.write(model, directory)
    columns.write(spec, directory)
    if kind != "far":
        lite.write(model, directory, federation.train.x)
    numbers = [int(name.removeprefix("row ")) for name in test.ids]
    return types.SimpleNamespace(
        kind=kind,
        directory=directory,
        spec=spec,
        rows=rows.iloc[numbers][FEATURES[kind]],
        federation=federation,
        train=rows.drop(index=numbers)[FEATURES[kind]],
        test=test,
        answers=answers,
    )


def numbers_of(values):
    return pd.to_numeric(values, errors="coerce").to_numpy(np.float64)


def by_name(written, names=None):
    """The rows as inputs by name, as a person takes them from the table."""
    found = {}
    for name, values in written.rows.items():
        if name == "pain":
            found[name] = tf.constant(values.tolist())
        else:
            dtype = tf.float64 if name == "time" else tf.float32
            found[name] = tf.constant(numbers_of(values), dtype)
    return {(names or {}).get(name, name): values for name, values in found.items()}


def in_order(written):
    """The rows as `features`, in which a text is its code in columns.json."""
    read = json.loads((written.directory / columns.FILE).read_text(encoding="utf-8"))
    made = []
    for column in read["columns"]:
        values = written.rows[column["name"]]
        if column["name"] == "pain":
            codes = {category["name"]: category["code"] for category in column["categories"]}
            values = values.map(codes)
        made.append(numbers_of(values))
    dtype = np.float64 if written.kind == "far" else np.float32
    return np.stack(made, axis=1).astype(dtype)


INPUTS = {
    "time": "time",
    "blood pressure": "blood_pressure",
    "Größe": "Grosse",
    "self": "column_self",
    "class": "column_class",
    "pain": "pain",
    "stage": "stage",
}


def test_saved_models_take_columns_by_name_and_in_order(written):
    signatures = tf.saved_model.load(str(written.directory / "saved")).signatures
    given = by_name(written, INPUTS)
    named = signatures["serving_columns"]
    assert {name: spec.dtype for name, spec in named.structured_input_signature[1].items()} == {
        name: values.dtype for name, values in given.items()
    }
    for answers in (
        named(**given),
        signatures["serving_default"](tf.constant(in_order(written))),
    ):
        np.testing.assert_allclose(answers["probabilities"], written.answers, atol=1e-6)
        assert answers["label"].numpy().tolist() == [
            str(number).encode() for number in answers["class_id"].numpy()
        ]
    empty = {name: values[:0] for name, values in given.items()}
    assert named(**empty)["probabilities"].shape == (0, 2)
    one = {**given, "blood_pressure": given["blood_pressure"][:1]}
    with pytest.raises(tf.errors.InvalidArgumentError):
        named(**one)


def test_saved_models_name_columns_beyond_what_was_seen_in_training(written):
    signatures = tf.saved_model.load(str(written.directory / "saved")).signatures
    given = by_name(written, INPUTS)
    beyond, within = given["column_class"].numpy(), given["column_self"].numpy()
    beyond[:2], beyond[2:], within[:] = (1e6, -1e6), 100, 100
    given |= {"column_class": tf.constant(beyond), "column_self": tf.constant(within)}
    expected = [[] for _ in range(len(written.rows))]
    for name in FEATURES[written.kind]:
        if name in ("pain", "stage"):
            continue
        seen = pd.Series(numbers_of(written.train[name])).replace(-9, np.nan)
        for row, value in enumerate(given[INPUTS[name]].numpy()):
            # A missing number is replaced by one that was seen.
            if value != -9 and (value < seen.min() or value > seen.max()):
                expected[row].append(name)
    assert expected[0][-1] == expected[1][-1] == "class" and not all(expected)
    answer = signatures["serving_columns"](**given)["out_of_range"].numpy()
    assert [names.decode() for names in answer] == [", ".join(names) for names in expected]
    features = in_order(written)
    features[:, [FEATURES[written.kind].index(name) for name in ("self", "class")]] = np.stack(
        [within, beyond], axis=1
    )
    again = signatures["serving_default"](tf.constant(features))["out_of_range"]
    assert again.numpy().tolist() == answer.tolist()
    empty = {name: values[:0] for name, values in given.items()}
    assert signatures["serving_columns"](**empty)["out_of_range"].shape == (0,)


def test_names_with_commas_are_told_apart():
    ranges = {
        "weight, in kg": (np.float32(0), np.float32(1)),
        "age": (np.float32(0), np.float32(1)),
    }
    found = tuple(data.encoding.Column(name) for name in ranges)
    spec = data.InputSpec("vector", (2,), "float32", columns=found)
    outside = inputs.out_of_range([tf.constant([2.0]), tf.constant([-1.0])], ranges, spec)
    [names] = csv.reader([outside.numpy()[0].decode()], skipinitialspace=True)
    assert names == ["weight, in kg", "age"]


def test_keras_files_take_columns_too(written):
    model = tf.keras.models.load_model(written.directory / keras_file.FILE)
    given = in_order(written) if written.kind == "plain" else by_name(written)
    for answers in (model(given), model.predict(given, verbose=0)):
        np.testing.assert_allclose(answers["probabilities"], written.answers, atol=1e-6)
    if written.kind == "encoded":
        unknown = {**given, "pain": tf.constant(["Dull"] * len(written.rows))}
        with pytest.raises(tf.errors.InvalidArgumentError, match="pain: a value is not one of"):
            model(unknown)


@pytest.mark.parametrize("written", ["plain", "encoded"], indirect=True)
def test_lite_files_take_codes(written):
    features = in_order(written)
    for file, tolerance in ((lite.FLOAT, 1e-5), (lite.INT8, 0.1)):
        run = tf.lite.Interpreter(str(written.directory / file)).get_signature_runner()
        found = [run(features=row[None])["probabilities"][0] for row in features]
        np.testing.assert_allclose(found, written.answers, atol=tolerance)
        right = 100 * np.mean(np.argmax(found, axis=1) == written.test.y)
        assert lite.accuracy(written.directory / file, written.test, written.spec) == right
        # What other formats refuse has no answer.
        refused = {"plain": [(1, np.nan)], "encoded": [(5, 3.5), (4, 3)]}[written.kind]
        for column, value in (*refused, (2, np.inf), (3, -np.inf)):
            wrong = features[:1].copy()
            wrong[0, column] = value
            answer = run(features=wrong)
            assert np.isnan(answer["probabilities"]).all(), (file, column)
            assert answer["class_id"].tolist() == [-1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pain", "Dull", "pain: a value is not one of the categories dull, none at all, scharf"),
        ("stage", 7, "stage: a value is not one of the categories -1, 0, 1, 2;"),
        ("stage", 0.5, "stage: a value is not one of"),
        ("Grosse", np.inf, "Größe: a value is infinite;"),
    ],
)
@pytest.mark.parametrize("written", ["encoded"], indirect=True)
def test_values_that_the_table_does_not_have_are_refused(name, value, message, written):
    named = tf.saved_model.load(str(written.directory / "saved")).signatures["serving_columns"]
    given = by_name(written, INPUTS)
    values = given[name].numpy()
    values[1] = value
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        named(**{**given, name: tf.constant(values)})
    assert message in caught.value.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -9])
def test_missing_numbers_are_refused_where_none_was_missing(value):
    """-9 stands for one, as in the table."""
    spec = data.from_dataframe(table(), features=NUMBERS, missing_markers="-9").input_spec
    batch = np.full((2, 4), 100, np.float32)
    inputs.model_inputs(tf.constant(batch), spec)
    batch[1, 1] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match="Größe: a value is NaN or infinite"):
        inputs.model_inputs(tf.constant(batch), spec)


def test_columns_are_described(written):
    read = json.loads((written.directory / columns.FILE).read_text(encoding="utf-8"))["columns"]
    assert [column["name"] for column in read] == FEATURES[written.kind]
    assert [column["input"] for column in read] == [INPUTS[column["name"]] for column in read]
    for column in read:
        values = written.train[column["name"]]
        if column["type"] == "number":
            numbers = pd.Series(numbers_of(values)).replace(-9, np.nan)
            if written.kind != "plain":
                assert column["replacement"] == pytest.approx(numbers.median())
                numbers = numbers.fillna(numbers.median())
            std = numbers.std(ddof=0)
            assert column["mean"] == pytest.approx(numbers.mean(), abs=std / 1000)
            assert column["std"] == pytest.approx(std, rel=1e-3)
        else:
            there = values.replace("", None).dropna()
            shares = (there.value_counts() / len(values)).to_dict()
            found = {category["name"]: category["share"] for category in column["categories"]}
            assert found == pytest.approx({str(n): share for n, share in shares.items()}, abs=1e-3)
        assert column["may_be_missing"] == (written.kind != "plain")
    card = "\n".join(model_card._inputs(written.federation))
    assert "`out_of_range`" in card
    lines = {row[0]: row[1:] for row in table_rows(card)}
    assert list(lines)[1:] == FEATURES[written.kind]
    assert lines["blood pressure"][:2] == ["blood_pressure", "numbers"]
    for name, values in written.train.items():
        least, greatest = lines[name][4:6]
        if name in ("pain", "stage"):
            assert (least, greatest) == ("", "")
        else:  # What stands for a missing number is not one of them.
            numbers = pd.Series(numbers_of(values)).replace(-9, np.nan)
            digits = 10 if name == "time" else 6
            assert (least, greatest) == (
                f"{numbers.min():.{digits}g}",
                f"{numbers.max():.{digits}g}",
            )
    if written.kind == "encoded":
        assert lines["pain"][1] == "dull (0), none at all (1), scharf 😖 (2)"
        assert lines["stage"][1] == "-1, 0, 1, 2"
        assert lines["stage"][-1] == "no category"
    example = json.loads(next(line for line in card.splitlines() if line.startswith("    {")))
    assert list(example["instances"][0]) == FEATURES[written.kind]


def test_cards_name_no_output_that_the_model_lacks():
    """A table of categories has no numbers that could be out of range."""
    of_categories = data.from_dataframe(table(), features=["pain"], categorical_columns="pain")
    card = "\n".join(model_card._inputs(of_categories))
    assert "serving_columns" in card and "out_of_range" not in card


def test_lite_refuses_numbers_that_need_more_digits(written):
    run = types.SimpleNamespace(
        simulation=types.SimpleNamespace(spec=types.SimpleNamespace(input_spec=written.spec))
    )
    exporter._check_lite(run, ExportOptions(format="saved_model,keras"))
    if written.kind != "far":
        return exporter._check_lite(run, ExportOptions(format="tflite"))
    with refuses("format", "too coarse for column 'time'; choose saved_model, or"):
        exporter._check_lite(run, ExportOptions(format="tflite"))


def test_names_of_inputs_differ():
    def of(*names):
        found = tuple(data.encoding.Column(name) for name in names)
        return [
            *columns.by_input(data.InputSpec("vector", (len(names),), "float32", columns=found))
        ]

    assert of("a b", "a_b", "a-b", "") == ["a_b_2", "a_b", "a_b_3", "column"]
    assert of("1st", "年", "if", "x.y") == ["column_1st", "column", "column_if", "x_y"]
    assert of(*map(str, range(257))) == []


# The rows of requests.


@pytest.fixture(scope="module")
def serving():
    """The module of the server, which its own environment imports."""
    place = importlib.util.spec_from_file_location("columns", ROOT / "serving" / "columns.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_numbers_that_are_rounded_to_finite_ones_are_taken(serving):
    """JSON has the largest float32, 2¹²⁸ - 2¹⁰⁴, with 8 digits; 2¹²⁸ - 2¹⁰³ becomes infinity."""
    limit = serving.largest(np.float32)
    assert 3.4028235e38 <= limit < 2.0**128 - 2.0**103 == np.nextafter(limit, np.inf)
    assert np.float32(limit) == np.float32(3.4028235e38) == 2.0**128 - 2.0**104


def as_json(written):
    """The rows of the table in JSON."""
    return json.loads(written.rows.to_json(orient="records"))


def test_requests_give_rows_by_name_or_in_order(written, serving):
    read = serving.Columns(written.directory / columns.FILE)
    expected = in_order(written).astype(np.float64)
    if written.kind != "plain":
        expected[expected == -9] = np.nan
    records = as_json(written)
    lists = [list(record.values()) for record in records]
    shuffled = [dict(reversed(record.items())) for record in records]
    turned = {name: [record[name] for record in records] for name in records[0]}
    for request in (
        {"instances": records},
        {"instances": shuffled},
        {"instances": lists},
        {"instances": [{"features": row} for row in lists]},
        {"inputs": lists},
        {"inputs": {"features": lists}},
        {"inputs": turned},
    ):
        made = read.batch(read.rows(request, "features"), 1e38)
        np.testing.assert_allclose(made, expected, rtol=1e-7)
    assert read.batch(read.rows({"instances": []}, "features"), 1e38).shape == (
        0, len(FEATURES[written.kind])
    )  # fmt: skip


GOOD = {"blood pressure": 1, "Größe": 2, "self": 3, "class": 4.5, "pain": "dull", "stage": 1}


def test_categories_are_found_as_the_table_wrote_them(serving, tmp_path):
    """Tables join blanks and compose characters, and may name categories by fractions."""
    names = ["very bad", "gel\u00e9e", "1.0", "2.5", "true"]
    described = {
        "name": "mode",
        "type": "category",
        "may_be_missing": False,
        "missing_values": [],
        "categories": [{"name": name, "code": code} for code, name in enumerate(names)],
    }
    path = tmp_path / columns.FILE
    path.write_text(json.dumps({"columns": [described]}))
    read = serving.Columns(path)
    cells = ["very  bad ", "gele\u0301e", 1.0, 2.5, True, "1.0"]
    found = read.batch(read.rows({"instances": [[cell] for cell in cells]}, "features"), 1e38)
    assert found.ravel().tolist() == [0, 1, 2, 3, 4, 2]


@pytest.mark.parametrize(
    ("names", "cells"),
    [
        (["FALSE", "TRUE"], [False, True]),
        (["False", "True"], [False, True]),
        (["1", "2"], ["1.0", 2.0]),
        (["1", "12"], [1, "12.00"]),
        (["1.0", "n/k"], [1, "n/k"]),
        (["-1.0", "1"], ["-1", 1.0]),
        (["1", "1.0", "x"], [1, "1.0", "x"]),
        (["007", "7"], ["007", 7]),
    ],
)
def test_categories_are_found_as_json_and_csv_write_them(names, cells, serving, tmp_path):
    """Spreadsheets write TRUE, and a column of pandas with a gap has 1.0 in place of 1."""
    categories = [{"name": name, "code": code} for code, name in enumerate(names)]
    described = {"name": "mode", "type": "category", "categories": categories}
    described |= {"may_be_missing": True, "missing_values": ["9"]}
    path = tmp_path / columns.FILE
    path.write_text(json.dumps({"columns": [described]}))
    read = serving.Columns(path)
    assert read.batch([[cell] for cell in cells], 1e38).ravel().tolist() == list(range(len(cells)))
    assert np.isnan(read.batch([[9], ["9.0"], [9.0]], 1e38)).all()
    for other in (3, "3.0", "01"):
        with pytest.raises(serving.WrongRow, match="not one of '"):
            read.batch([[other]], 1e38)


@pytest.mark.parametrize("stored", ["NFC", "NFD"])
def test_columns_are_found_in_both_forms_of_unicode(stored, serving, tmp_path):
    """Those of exports before this rule may be in the form of the table."""
    described = {"type": "number", "may_be_missing": False, "missing_values": []}
    named = [{**described, "name": unicodedata.normalize(stored, name)} for name in ("Größe", "b")]
    path = tmp_path / columns.FILE
    path.write_text(json.dumps({"columns": named}))
    read = serving.Columns(path)
    for form in ("NFC", "NFD"):
        name = unicodedata.normalize(form, "Größe")
        for request in ({"instances": [{"b": 2, name: 1}]}, {"inputs": {name: [1], "b": [2]}}):
            found = read.batch(read.rows(request, "features"), 1e38)
            assert found.tolist() == [[1, 2]]


def test_graphs_join_blanks_in_categories():
    column = encoding.Column("mode", ("very bad", "x"))
    found = inputs.codes(tf.constant([" very \t bad", "x ", "verybad"]), column)
    assert found.numpy().tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({}, "must contain either instances or inputs"),
        ({"instances": [], "inputs": []}, "must contain either instances or inputs"),
        ({"instances": 5}, "instances: must be a list of rows"),
        ({"instances": [GOOD, 5]}, "row 1: is no list or object; the columns are 'blood pressure'"),
        ({"instances": [[1, 2]]}, "row 0: has 2 values; the columns are 'blood pressure', 'Größe'"),
        ({"instances": [{**GOOD, "age": 3}]}, "row 0: 'age' is not one of the columns 'blood"),
        ({"instances": [{"pain": "dull"}]}, "row 0: lacks 'blood pressure', 'Größe', 'self', "),
        ({"instances": [{**GOOD, "pain": "Dull"}]}, "row 0: 'pain' is 'Dull', not one of 'dull'"),
        (
            {"instances": [{**GOOD, "stage": True}]},
            "row 0: 'stage' is True, not one of '-1', '0'",
        ),
        (
            {"instances": [{**GOOD, "stage": [1]}]},
            "row 0: 'stage' is 'a list or object', not one of '-1', '0'",
        ),
        ({"instances": [{**GOOD, "self": "3"}]}, "row 0: 'self' is '3', not a number of at most"),
        (
            {"instances": [{**GOOD, "self": True}]},
            "row 0: 'self' is True, not a number of at most 1e+38 or null (true is 1, and false 0)",
        ),
        (
            {"instances": [{**GOOD, "self": 1e39}]},
            "'self' is 1e+39, not a number of at most 1e+38",
        ),
        ({"instances": [{**GOOD, "self": np.nan}]}, "row 0: 'self' is nan, not a number"),
        ({"inputs": {"pain": ["dull"]}}, "inputs: lacks 'blood pressure', 'Größe'"),
        ({"inputs": {name: [1] for name in GOOD} | {"stage": [1, 2]}}, "have different lengths"),
        ({"inputs": dict.fromkeys(GOOD, 1)}, "inputs: each column must be a list"),
    ],
)
@pytest.mark.parametrize("written", ["encoded"], indirect=True)
def test_rows_that_are_refused(request_, reason, written, serving):
    read = serving.Columns(written.directory / columns.FILE)
    with pytest.raises(serving.WrongRow) as caught:
        read.batch(read.rows(request_, "features"), 1e38)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_are_missing_only_where_the_model_replaces_them(written, serving):
    read = serving.Columns(written.directory / columns.FILE)
    row = as_json(written)[0]
    for name, values in (("blood pressure", (None, -9, -9.0)), ("pain", (None, "", " NA "))):
        for value in values if name in row else ():
            if written.kind != "plain":
                made = read.batch([{**row, name: value}], 1e38)
                assert np.isnan(made[0, list(row).index(name)])
            elif value is None:
                with pytest.raises(serving.WrongRow, match=f"row 0: '{name}' is missing"):
                    read.batch([{**row, name: value}], 1e38)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"columns": [{"name": "a"}]}', "[" * 100_000])
def test_a_damaged_description_is_named(text, serving, tmp_path):
    (tmp_path / columns.FILE).write_text(text)
    with pytest.raises(ValueError, match=r"^columns\.json is damaged$"):
        serving.Columns(tmp_path / columns.FILE)


def test_predictions_for_what_the_federation_stores():
    """Vectors, of which a far column is a part that has lost its offset, and texts are numbers."""
    generator = np.random.default_rng(0)
    kind = generator.integers(0, 2, 120)
    rows = pd.DataFrame(
        {
            "time": 1.7e9 + 0.25 * generator.normal(size=120) + 0.75 * kind,
            "a": generator.normal(size=120),
            "ward": np.where(kind == 1, "north", "south"),
            "label": np.array(["ill", "well"])[kind],
            "site": np.repeat(["s", "t"], 60),
        }
    )
    for features, categories in ((["time", "a"], None), (["a", "ward"], "ward")):
        federation = data.from_dataframe(rows, features=features, categorical_columns=categories)
        config = ExperimentConfig.from_settings(
            algorithm="fedavg", model="mlp", local_epochs=5, client_learning_rate=0.1
        )
        with Simulation(config, federation) as simulation:
            for _ in range(4):
                simulation.next_round()
            found = simulation.predict(federation.test.x)
            accuracy = 100 * np.mean(found == federation.test.y)
            assert accuracy == pytest.approx(simulation.evaluate()["ga"], abs=1e-4)
            assert accuracy > 80
            # Of both kinds of columns at once, too.
            assert simulation.keras_model() is not None
            assert simulation.predict(federation.test.x[:0]).shape == (0,)


@pytest.fixture(scope="module")
def of_gaps():
    """A trained simulation of a table with missing values, and the rows of its test part."""
    rows = with_gaps()
    federation = data.from_dataframe(
        rows,
        features=FAR,
        categorical_columns="pain,stage",
        impute="median",
        missing_markers="-9",
    )
    config = ExperimentConfig.from_settings(algorithm="fedavg", model="mlp", local_epochs=2)
    numbers = [int(name.removeprefix("row ")) for name in federation.test.ids]
    with Simulation(config, federation) as simulation:
        simulation.next_round()
        yield simulation, rows.iloc[numbers]


def test_a_data_frame_is_taken_by_the_names_of_its_columns(of_gaps):
    """In any order, with the missing values, categories and texts that a table may have."""
    simulation, rows = of_gaps
    x = simulation.federation.test.x
    texts = rows.astype(str).replace({"None": "NA"}).replace(r"^-9$", "-9.0", regex=True)
    texts["self"] = [number.replace(".", ",") for number in texts["self"]]
    for client in (None, "1"):
        expected = simulation.predict(x, client)
        assert len({*expected.tolist()}) == 2
        for given in (rows, rows[rows.columns[::-1]], texts, {**rows}):
            np.testing.assert_array_equal(simulation.predict(given, client), expected)
    np.testing.assert_array_equal(simulation.features(rows), simulation.features(x))
    assert simulation.predict(rows[:0]).shape == (0,)


def test_an_unknown_category_is_taken_for_missing_if_these_are_replaced(of_gaps, caplog):
    simulation, rows = of_gaps
    unknown, missing = rows.assign(pain="Dull"), rows.assign(pain=None)
    expected = simulation.features(missing)
    caplog.clear()
    np.testing.assert_array_equal(simulation.features(unknown), expected)
    assert [record.getMessage() for record in caplog.records] == [
        f"x, row 0 (and {len(rows) - 1} others): 'Dull' in column 'pain' is a category of no "
        "training sample, and is taken for missing"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: rows.drop(columns=["self", "pain"]).rename(columns={"time": "tine"}),
            "x: columns time, self, pain are missing, there are blood pressure, .*, tine, .*; did "
            r"you mean tine\?",
        ),
        (lambda rows: rows.drop(columns="stage"), "x: column stage is missing, there are blood"),
        (lambda rows: rows.assign(time="now"), "x, row 0: 'now' in column 'time' is not a finite"),
        (
            lambda rows: rows[FAR].to_numpy(),
            r"x has the shape \[16, 7\]; inputs are \[n, 15\] \(time, blood pressure, blood "
            r"pressure is missing, Größe, self, class and 9 more\); a data frame is taken by",
        ),
    ],
)
def test_rows_that_cannot_be_used(change, message, of_gaps):
    simulation, rows = of_gaps
    with pytest.raises(DataError, match=f"^{message}") as caught:
        simulation.predict(change(rows))
    assert "\n" not in str(caught.value) and "categorical_columns" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pain": ["dull", "Dull"]},
            "x, row 1: 'Dull' in column 'pain' is a category of no training sample; did you mean "
            "dull[?]$",
        ),
        ({"pain": ["", "dull"]}, "x, row 0: column 'pain' is missing, and the model was trained"),
        ({"self": [np.nan] * 2}, "x, row 0 [(]and in 1 others[)]: column 'self' is missing, and"),
    ],
)
def test_values_that_nothing_replaces_are_refused(change, message):
    options = {"features": ["self", "pain"], "categorical_columns": "pain"}
    known = data.from_dataframe(table(), **options).input_spec.columns
    given = {"self": [1.0, 2.0], "pain": ["dull", "dull"]}
    assert rows.cells(rows.frame(given, "x"), known).tolist() == [[1, 0], [2, 0]]
    with pytest.raises(DataError, match=f"^{message}"):
        rows.cells(rows.frame(given | change, "x"), known)


def test_a_table_in_the_place_of_a_federation_is_refused():
    with refuses("federation", "must be a Federation, such as from_dataframe", "DataFrame"):
        Simulation(ExperimentConfig(), table())


def test_a_category_may_have_the_name_of_keras_own_token():
    column = encoding.Column("ward", ("[UNK]", "a", "b"), missing=("?",))
    texts = tf.constant(["a", " b", "[UNK]", "c", "?"])
    wanted = inputs.codes(texts, column).numpy()
    np.testing.assert_array_equal(wanted, [1, 2, 0, -1, np.nan])
    np.testing.assert_array_equal(keras_file._codes(texts, column).numpy(), wanted)
