"""Runs that hold samples out: the best round, and accuracies on what was held out."""

import dataclasses
import re
import shutil
import types

import numpy as np
import pytest

from tests.training.runs import CONFIG, metrics, rows, summary
from tff_pcdd.data import Federation
from tff_pcdd.export import ExportOptions, export_run
from tff_pcdd.training import History, evaluate_run, restore_run, restored, run_experiment
from tff_pcdd.training.post_hoc import calibrate_run

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
    """A run whose last round is not the best on held-out samples, with one further checkpoint."""
    config = CONFIG.with_settings(validation_fraction=0.25, batch_size=4, seed=1)
    made = tmp_path_factory.mktemp("runs") / "better_before"
    run_experiment(config, made, dataclasses.replace(options, keep_checkpoints=1))
    values = [float(row["va"]) for row in rows(made)]
    best = 1 + int(np.argmax(values))
    assert values[best - 1] > values[3]
    shown = f"({values[best - 1]:.2f} % instead of {values[3]:.2f} %)"
    said = f"round 4 is used, but round {best} is better on held-out samples {shown}; "
    return config, made, best, said


@pytest.fixture
def many_samples(monkeypatch):
    """Runs say that they hold a million samples out, of which any difference is certain."""
    counts = np.array([[10**6]])
    monkeypatch.setattr(Federation, "validation_class_counts", lambda self: counts)


@pytest.mark.parametrize("command", ["evaluate", "export", "calibrate"])
def test_the_last_round_is_used_and_a_better_one_named(
    command, better_before, options, tmp_path, caplog, many_samples
):
    config, directory, best, said = better_before
    if command == "calibrate":  # FedGELA's head is fixed.
        config = config.with_settings(algorithm="fedavg", fedgela_scale=None)
        directory = tmp_path / "run"
        run_experiment(config, directory, dataclasses.replace(options, keep_checkpoints=1))

    def use(number=None):
        """The round that is used, and what is said about held-out samples."""
        caplog.clear()
        place = tmp_path / str(number)
        if command == "evaluate":
            used = evaluate_run(config, directory, options, number)["round"]
        elif command == "export":
            chosen = ExportOptions(clients="none")
            export_run(directory, place, chosen, options, round_number=number)
            card = (place / "global" / "1" / "model_card.md").read_text()
            used = int(re.search(r"(\d+) of 4 rounds", card)[1])
            sentence = (
                "Of 4 rounds, this one is the best on held-out samples, by the accuracy\n"
                "of the global model.\n"
            )
            assert (sentence in card) == (number == "best")
        else:
            calibrated = config.with_settings(head_calibration="ccvr")
            calibrate_run(config, calibrated, directory, place, options, number)
            used = int(rows(place)[0]["round"])
        return used, [r.getMessage() for r in caplog.records if "held-out" in r.getMessage()]

    if command == "calibrate":
        values = [float(row["va"]) for row in rows(directory)]
        best = 1 + int(np.argmax(values))
    else:
        assert use() == (4, [f"{said}checkpoint_round=best takes it"])
    assert use(4) == (4, [])
    assert use("best") == (best, [])


def test_few_held_out_samples_do_not_show_a_better_round(better_before, options, caplog):
    """Of the 25 of the run, 40 and 20 %: by symmetry, as 60 and 80 % in the table below."""
    config, directory, best, _ = better_before
    values = [float(row["va"]) for row in rows(directory)]
    assert (values[best - 1], values[3]) == (40, 20)
    evaluate_run(config, directory, options)
    assert "held-out" not in caplog.text


def test_a_better_round_without_its_checkpoint(
    better_before, options, tmp_path, caplog, many_samples
):
    """As in runs of earlier versions."""
    config, directory, best, said = better_before
    copy = shutil.copytree(directory, tmp_path / "run")
    for kind in ("json", "npz"):
        (copy / "checkpoints" / f"round_{best:06d}.{kind}").unlink()
    evaluate_run(config, copy, options)
    remedy = "its checkpoint is not there; the same training in another directory keeps it"
    assert said + remedy in caplog.messages
    with pytest.raises(FileNotFoundError, match=rf"no checkpoint of round {best} .*are \[4\]; a "):
        evaluate_run(config, copy, options, "best")


@pytest.mark.parametrize(
    ("values", "samples", "is_better"),
    [
        # A tie, a last round that is the best, and rounds that were not measured.
        ([30.0, 20.0, 30.0], 1000, False),
        ([20.0, None, 30.0], 1000, False),
        ([None, None, None], 1000, False),
        ([30.0, 20.0, None], 1000, True),
        ([30.0, 20.0, 10.0], 1000, True),
        # 110 and 108 of 160 samples, as a user was advised to take the earlier round.
        ([68.75, 60.0, 67.5], 160, False),
        # Wilson's intervals of 80 and 60 % begin and end at 60.9 and 76.6 % for 25 samples, and at
        # 67.0 and 72.4 % for 50: 20 - √(19.1² + 16.6²) = -5.3, and 20 - √(13.0² + 12.4²) = 2.0.
        ([80.0, 60.0, 60.0], 25, False),
        ([80.0, 60.0, 60.0], 50, True),
    ],
)
@pytest.mark.parametrize("asked", [None, 3, "best"])
@pytest.mark.parametrize("diverged", [False, True])
def test_which_rounds_are_better(values, samples, is_better, asked, diverged, tmp_path, caplog):
    history = History(["round", "va"])
    for number, value in enumerate(values, 1):
        history.append({"round": number, "va": value})
    nonfinite = types.SimpleNamespace(diverged=diverged)
    counts = np.array([[samples - 9, 4], [0, 5]])
    federation = types.SimpleNamespace(validation_class_counts=lambda: counts)
    run = types.SimpleNamespace(
        config=CONFIG,
        history=history,
        directory=tmp_path,
        simulation=types.SimpleNamespace(nonfinite=nonfinite, federation=federation),
    )
    restored.warn_of_better_round(run, asked)
    assert len(caplog.records) == (is_better and asked is None and not diverged)
