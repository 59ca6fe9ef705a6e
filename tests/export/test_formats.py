"""TensorFlow Lite and .keras files have the same outputs as the SavedModel."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.export.conftest import CONVERTED
from tests.markdown_tables import table_rows
from tff_pcdd import data, models
from tff_pcdd.export import keras_file, lite, saved_model
from tff_pcdd.training.run_directory import read_config


def run_lite(path, samples, name="images"):
    """Outputs for samples, which are processed one at a time."""
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    runner, outputs = interpreter.get_signature_runner(), []
    for sample in samples:
        interpreter.reset_all_variables()
        outputs.append(runner(**{name: sample[None]}))
    return {key: np.concatenate([answers[key] for answers in outputs]) for key in outputs[0]}


def run_saved(directory, samples):
    signature = tf.saved_model.load(str(directory)).signatures["serving_default"]
    return {name: value.numpy() for name, value in signature(tf.constant(samples)).items()}


@pytest.mark.parametrize("method", support.rare_but(CONVERTED[:1], CONVERTED))
def test_lite_accuracies_equal_those_of_the_run(method, runs, converted):
    """Within 0.1 percentage points, for the global model and the mean of the personal models."""
    final = json.loads((runs[method] / "summary.json").read_text())
    federation = read_config(runs[method]).data.build()
    parts = {"global": federation.test}
    for k, client_id in enumerate(federation.client_ids):
        parts[f"personal/{client_id}"] = federation.client_examples(k)[1]
    accuracies = {}
    for folder, examples in parts.items():
        outputs = run_lite(converted(method) / folder / "1" / lite.FLOAT, examples.x)
        accuracies[folder] = 100 * np.mean(outputs["class_id"] == examples.y)
    assert accuracies.pop("global") == pytest.approx(final["ga_final"], abs=0.1)
    assert np.mean(list(accuracies.values())) == pytest.approx(final["pa_final"], abs=0.1)


@pytest.mark.parametrize("method", support.rare_but(CONVERTED[:1], CONVERTED))
def test_int8_is_close_and_small(method, runs, converted):
    """Includes a personal model, whose masked logits could ruin the precision of the others."""
    federation = read_config(runs[method]).data.build()
    for folder in ("global", "personal/2"):
        directory = converted(method) / folder / "1"
        samples = federation.test.x[::4]
        exact, rounded = run_saved(directory, samples), run_lite(directory / lite.INT8, samples)
        assert set(rounded) == {name for name in exact if not name.endswith("label")}
        np.testing.assert_allclose(rounded["probabilities"], exact["probabilities"], atol=0.15)
        assert np.abs(rounded["probabilities"] - exact["probabilities"]).mean() < 0.01
        sizes = [(directory / file).stat().st_size for file in (lite.INT8, lite.FLOAT)]
        assert sizes[0] < 0.4 * sizes[1]
        assert (directory / "labels.txt").read_text().split() == list("0123456789")
    card = (directory / "model_card.md").read_text()
    assert "model_int8.tflite: at most 1,000 of these" in {row[0] for row in table_rows(card)}


@pytest.mark.parametrize("method", support.rare_but(CONVERTED[:1], CONVERTED))
def test_keras_file(method, runs, converted):
    federation = read_config(runs[method]).data.build()
    for folder in ("global", "personal/2"):
        directory = converted(method) / folder / "1"
        exact = run_saved(directory, federation.test.x)
        model = tf.keras.models.load_model(directory / keras_file.FILE)
        outputs = model.predict(federation.test.x, verbose=0)
        assert set(outputs) == {name for name in exact if not name.endswith("label")}
        for name, value in outputs.items():
            np.testing.assert_allclose(value, exact[name], atol=1e-5)


ALPHABET = "\n ab"


def text_backbone(input_shape):
    ids = tf.keras.Input(input_shape, dtype="int32")
    embedded = tf.keras.layers.Embedding(len(ALPHABET) + 1, 3)(ids)
    return tf.keras.Model(ids, tf.keras.layers.LSTM(6)(embedded))


@pytest.fixture(scope="module")
def text_model():
    """An untrained text model."""
    spec = data.InputSpec("text", (5,), "uint8", vocabulary=ALPHABET)
    texts = data.Examples(np.zeros((4, 5), np.uint8), np.arange(4, dtype=np.int32))
    clients = [data.ClientIndices(name, np.arange(4), np.arange(4)) for name in "ab"]
    federation = data.Federation("texts", 4, tuple(ALPHABET), spec, texts, texts, clients)
    return support.untrained(federation, text_backbone)


@pytest.mark.integration
def test_text(text_model, tmp_path):
    """The SavedModel takes strings, the others ids; TensorFlow Lite needs only built-in ops."""
    model = text_model
    saved_model.write(model, tmp_path / "saved")
    exact = run_saved(tmp_path / "saved", ["ab\nab", "b", "abzbba"])
    ids = np.array([[2, 3, 0, 2, 3], [1, 1, 1, 1, 3], [3, 4, 3, 3, 2]], np.uint8)
    assert exact["label"].tolist() == [ALPHABET[i].encode() for i in exact["class_id"]]

    assert lite.write(model, tmp_path, ids) == [lite.FLOAT, lite.INT8]
    outputs = run_lite(tmp_path / lite.FLOAT, ids, "ids")
    np.testing.assert_allclose(outputs["probabilities"], exact["probabilities"], atol=1e-5)
    assert (tmp_path / "vocabulary.txt").read_text().splitlines() == ["\\n", " ", "a", "b"]
    outputs = run_lite(tmp_path / lite.INT8, ids, "ids")
    np.testing.assert_allclose(outputs["probabilities"], exact["probabilities"], atol=0.05)

    keras_file.write(model, tmp_path)
    outputs = tf.keras.models.load_model(tmp_path / keras_file.FILE)(ids)
    np.testing.assert_allclose(outputs["probabilities"], exact["probabilities"], atol=1e-5)


def test_without_training_samples_there_is_no_int8(text_model, tmp_path):
    assert lite.write(text_model, tmp_path, np.zeros((0, 5), np.uint8)) == [lite.FLOAT]
    assert not (tmp_path / lite.INT8).exists()


@pytest.mark.integration
def test_vectors(tmp_path):
    """Columns of a table go in as they are stored, in every format."""
    generator = np.random.default_rng(0)
    x = generator.normal(50, 20, [40, 3]).astype(np.float32)
    federation = data.from_arrays(x, ["ill", "well"] * 20, ["a", "b"] * 20)
    model = support.untrained(federation, models.create("mlp").build)
    spec = federation.input_spec
    logits = model.logits(tf.constant((x - spec.mean) / np.float32(spec.std), tf.float32))
    expected = tf.nn.softmax(logits)
    saved_model.write(model, tmp_path / "saved")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert list(loaded.signatures) == ["serving_default"]
    signature = loaded.signatures["serving_default"].structured_input_signature[1]
    assert {name: (tensor.shape[1:], tensor.dtype) for name, tensor in signature.items()} == {
        "features": ((3,), tf.float32)
    }
    exact = run_saved(tmp_path / "saved", x)
    np.testing.assert_allclose(exact["probabilities"], expected, atol=1e-5)
    assert set(exact["label"]) <= {b"ill", b"well"}
    lite.write(model, tmp_path, x)
    outputs = run_lite(tmp_path / lite.FLOAT, x, "features")
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    keras_file.write(model, tmp_path)
    outputs = tf.keras.models.load_model(tmp_path / keras_file.FILE)(x)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)


def test_names_in_lines_are_escaped_only_where_they_break_lines(tmp_path):
    names = ['it\'s "q"', "a\\b", "x\ny", "\u2028", "\u00a0", "\\"]
    lite._write_lines(tmp_path / "labels.txt", names)
    found = (tmp_path / "labels.txt").read_text(encoding="utf-8").splitlines()
    assert found == ['it\'s "q"', "a\\b", "x\\ny", "\\u2028", "\u00a0", "\\"]
