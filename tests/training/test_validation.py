"""Runs that hold samples out: the best round, and accuracies on what was held out."""

import numpy as np
import pytest

from tests.training.runs import CONFIG, metrics, rows, summary
from tff_pcdd.training import evaluate_run, restore_run, run_experiment

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("shared_computations"),
]


@pytest.fixture(scope="module")
def validated(options, shared_computations, tmp_path_factory):
    """A run that holds a quarter of the training samples out."""
    directory = tmp_path_factory.mktemp("runs") / "validated"
    config = CONFIG.with_settings(validation_fraction=0.25, batch_size=4)
    run_experiment(config, directory, options)
    return config, directory


def test_the_best_round_is_chosen_on_validation(validated):
    _, directory = validated
    written = rows(directory)
    results = summary(directory)
    values = [float(row["va"]) for row in written]
    for column, chosen in (
        ("va", "best_round"),
        ("va_balanced", "best_balanced_round"),
        ("va_personal", "best_personal_round"),
    ):
        accuracies = [float(row[column]) for row in written]
        best = written[accuracies.index(max(accuracies))]
        assert results[chosen] == int(best["round"])
        for name in ("ga", "pa", "pa_before", "pa_masked", "pa_before_masked"):
            assert results[f"{name}_at_{chosen}"] == float(best[name])
    assert results["va_final"] == values[-1]
    assert results["va_best"] == max(values)
    assert results["va_personal_final"] == float(written[-1]["va_personal"])


def test_nothing_of_it_without_validation(unbroken):
    names = [*metrics(unbroken)[0], *summary(unbroken)]
    assert not [name for name in names if name.startswith("va") or "best_round" in name]


def test_validation_accuracies_are_those_on_held_out_samples(validated, options):
    """With test and validation parts exchanged, so are the counts."""
    config, directory = validated
    simulation = restore_run(config, directory, options).simulation
    federation, process = simulation.federation, simulation.process
    row = rows(directory)[-1]
    pooled = [federation.validation_examples(client) for client in range(5)]
    x = np.concatenate([part.x for part in pooled])
    y = np.concatenate([part.y for part in pooled])
    counts = simulation.invoke(process.evaluate_global, simulation.state, {"x": x, "y": y})
    correct, total = (np.asarray(value) for value in (counts["correct"]["head"], counts["total"]))
    assert total.sum() == round(0.25 * 100)
    assert float(row["va"]) == pytest.approx(100 * correct.sum() / total.sum(), rel=1e-8)
    shares = [right / number for right, number in zip(correct, total, strict=True) if number]
    assert float(row["va_balanced"]) == pytest.approx(100 * np.mean(shares), rel=1e-8)

    counts = simulation.personal_counts()
    results = simulation.map_clients(
        process.evaluate_personal,
        lambda k: {
            "test": federation.validation_examples(k),
            "validation": federation.client_examples(k)[1],
        },
    )
    exchanged = {name: np.stack([of[name] for of in results]) for name in counts}
    for name in ("total", "before", "before_masked", "after", "after_masked"):
        np.testing.assert_array_equal(exchanged[name], counts[f"validation_{name}"])
        np.testing.assert_array_equal(exchanged[f"validation_{name}"], counts[name])
    shares = counts["validation_after"].sum(axis=1) / counts["validation_total"].sum(axis=1)
    assert float(row["va_personal"]) == pytest.approx(100 * shares.mean(), rel=1e-6)


def test_evaluation_of_a_run_with_validation(validated, options):
    config, directory = validated
    results = evaluate_run(config, directory, options)
    final = summary(directory)
    for name in ("va", "va_personal", "ga", "pa"):
        assert results["accuracies"][name] == pytest.approx(final[f"{name}_final"], rel=1e-8)
    assert set(results["clients"]["0"]) == {"pa", "pa_before", "pa_masked", "pa_before_masked"}
    (directory / "evaluation.json").unlink()
