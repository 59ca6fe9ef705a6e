"""Runs that hold samples out: the best round, and accuracies on what was held out."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.training.runs import CONFIG, metrics, rows, summary
from tff_pcdd.export import ExportOptions, export_run
from tff_pcdd.training import History, evaluate_run, restore_run, restored, run_experiment

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


@pytest.fixture(scope="module")
def better_before(options, shared_computations, tmp_path_factory):
    """Runs whose last round is not the best on held-out samples, with all checkpoints and one."""
    config = CONFIG.with_settings(validation_fraction=0.25, batch_size=4, seed=1)
    made = {}
    for keep in (4, 1):
        made[keep] = tmp_path_factory.mktemp("runs") / f"keeps_{keep}"
        run_experiment(config, made[keep], dataclasses.replace(options, keep_checkpoints=keep))
    values = [float(row["va"]) for row in rows(made[1])]
    best = 1 + int(np.argmax(values))
    assert values[best - 1] > values[3]
    shown = f"({values[best - 1]:.2f} % instead of {values[3]:.2f} %)"
    said = f"round 4 is used, but round {best} is better on held-out samples {shown}; "
    return config, made, best, said


@pytest.mark.parametrize("command", ["evaluate", "export"])
@pytest.mark.parametrize("keep", [4, 1])
def test_the_last_round_is_used_and_a_better_one_named(
    command, keep, better_before, options, tmp_path, caplog
):
    config, directories, best, said = better_before

    def use(number=None):
        caplog.clear()
        if command == "evaluate":
            evaluate_run(config, directories[keep], options, number)
        else:
            chosen = ExportOptions(clients="none")
            place = tmp_path / str(number)
            export_run(directories[keep], place, chosen, options, round_number=number)
        return [r.getMessage() for r in caplog.records if "held-out" in r.getMessage()]

    remedies = {
        4: f"checkpoint_round={best} takes it",
        1: f"its checkpoint was not kept; train with `rounds={best}` in another directory, or with "
        "a larger `keep_checkpoints`",
    }
    assert use() == [said + remedies[keep]]
    assert use(4) == []


def test_fewer_rounds_give_the_model_of_that_round(better_before, options, tmp_path):
    """As the warning promises."""
    config, directories, best, _ = better_before
    run_experiment(config.with_settings(rounds=best), tmp_path / "run", options)
    found = [
        restore_run(config.with_settings(rounds=rounds), directory, options, best)
        for rounds, directory in ((best, tmp_path / "run"), (4, directories[4]))
    ]
    one, other = (tf.nest.flatten(run.simulation.state.weights) for run in found)
    for weights, same in zip(one, other, strict=True):
        np.testing.assert_array_equal(weights, same)


@pytest.mark.parametrize(
    ("method", "values", "remedy"),
    [
        # A tie, a last round that is the best, and rounds that were not measured.
        ("fedavg", [30.0, 20.0, 30.0], None),
        ("fedavg", [20.0, None, 30.0], None),
        ("fedavg", [None, None, None], None),
        ("fedavg", [30.0, 20.0, None], "train with `rounds=1` in another directory, or with a "),
        # The model of round 1 depends on the planned number of rounds.
        ("fedproc", [30.0, 20.0, 10.0], "train with a larger `keep_checkpoints`"),
    ],
)
def test_which_rounds_are_better(method, values, remedy, tmp_path, caplog):
    history = History(["round", "va"])
    for number, value in enumerate(values, 1):
        history.append({"round": number, "va": value})
    restored.warn_of_better_round(
        types.SimpleNamespace(
            config=CONFIG.with_settings(algorithm=method),
            history=history,
            directory=tmp_path,
            simulation=types.SimpleNamespace(nonfinite=types.SimpleNamespace(diverged=False)),
        )
    )
    assert len(caplog.records) == (remedy is not None)
    assert remedy is None or remedy in caplog.text
