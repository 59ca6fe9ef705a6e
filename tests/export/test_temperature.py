"""Exports whose logits are divided by a temperature, compared with those without it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.export.conftest import train
from tff_pcdd.export import ExportOptions, export_run
from tff_pcdd.training.run_directory import read_config


def exported(run, directory, options, **chosen):
    """The answers to the test samples, and the card, of the global model and of client 1."""
    config = read_config(run)
    choice = ExportOptions(clients="1", **chosen)
    export_run(run, directory, choice, options)
    test = config.data.build().test
    found = []
    for folder in (directory / "global" / "1", directory / "personal" / "1" / "1"):
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        answers = serve(images=tf.constant(test.x))
        probabilities = answers["probabilities"].numpy()
        found.append(
            (
                probabilities,
                answers["label"].numpy(),
                (folder / "model_card.md").read_text().replace("\n", " "),
            )
        )
    return found


@pytest.mark.integration
def test_exports_carry_a_temperature(options, tmp_path):
    train(tmp_path / "run", options, "fedgela", model="mlp", validation_fraction=0.3, rounds=3)
    plain = exported(tmp_path / "run", tmp_path / "plain", options)
    cooled = exported(tmp_path / "run", tmp_path / "cooled", options, temperature="fitted")
    for (before, labels, card), (after, same, card_after) in zip(plain, cooled, strict=True):
        np.testing.assert_array_equal(labels, same)
        temperature = float(card_after.split("the temperature ")[1].split(" ")[0])
        powers = before.astype(np.float64) ** (1 / temperature)
        expected = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(after, expected, atol=2e-3)
        assert "This model divides its logits by it." in card_after
        assert "This model does not use it" in card
    # FedGELA's global model answers near 1/10 at scale 1.
    assert plain[0][0].max() < 0.4 < cooled[0][0].max()
    assert "**The probabilities are far too low**" in plain[0][2]
    assert "**The probabilities are far too low**" not in cooled[0][2]


@pytest.mark.integration
def test_temperatures_of_few_samples_are_not_used(options, tmp_path, caplog):
    """20 of 100 samples: none of the five clients has ten of them, and 20 say little."""
    size = {"max_train_samples": 100, "num_clients": 5, "rounds": 1, "local_epochs": 1}
    train(tmp_path / "run", options, "fedavg", model="mlp", validation_fraction=0.2, **size)
    chosen = ExportOptions(clients="1", temperature="fitted")
    made = export_run(tmp_path / "run", tmp_path / "out", chosen, options)
    assert [(one.folder, one.lacks_temperature) for one in made] == [
        ("global", True),
        ("personal/1", True),
    ]
    (warning,) = [r.getMessage() for r in caplog.records if "temperature" in r.getMessage()]
    assert warning == (
        "global, personal/1: exported without a temperature, because the held-out samples do "
        "not show that one makes the probabilities better; a larger validation_fraction holds more "
        "samples out, but small sites may still have too few"
    )
    caplog.clear()
    chosen = dataclasses.replace(chosen, temperature="none")
    made = export_run(tmp_path / "run", tmp_path / "plain", chosen, options)
    assert not any(one.lacks_temperature for one in made)
    assert "temperature" not in caplog.text
    x = tf.constant(read_config(tmp_path / "run").data.build().test.x)
    one, other = (
        tf.saved_model.load(str(tmp_path / name / "global" / "1")).signatures["serving_default"]
        for name in ("out", "plain")
    )
    found, plain = (serve(images=x)["probabilities"] for serve in (one, other))
    np.testing.assert_array_equal(found, plain)


@pytest.mark.integration
def test_a_run_without_held_out_samples(runs, options, tmp_path):
    reason = "^the run held no samples out; train with `validation_fraction`, such as 0.2$"
    with refuses("temperature", reason):
        export_run(
            runs["fedgela"],
            tmp_path / "out",
            ExportOptions(temperature="fitted"),
            options,
        )
    assert not (tmp_path / "out").exists()
