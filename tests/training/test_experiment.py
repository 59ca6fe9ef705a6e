"""Whole runs on a few digits: what is written, how they go on, what they refuse."""

import dataclasses
import json
import math
import os
import re
import types

import numpy as np
import pytest

from tff_pcdd import data, files
from tff_pcdd.federated import programs
from tff_pcdd.options import OptionError
from tff_pcdd.training import (
    Experiment,
    ExperimentConfig,
    RunOptions,
    evaluate_run,
    experiment,
    run_experiment,
    sinks,
)

use_runtime = experiment.use_runtime

CONFIG = ExperimentConfig.from_settings(
    algorithm="fedgela",
    num_clients=5,
    clients_per_round=3,
    max_train_samples=100,
    max_test_samples=60,
    rounds=4,
    local_epochs=2,
    batch_size=8,
    client_learning_rate=0.05,
)


@pytest.fixture(scope="module")
def options(simulation):
    return RunOptions(runtime=simulation.name, progress=False, tensorboard=False)


@pytest.fixture(scope="module")
def unbroken(options, tmp_path_factory):
    """A run of four rounds that nothing disturbed; not to be written to."""
    directory = tmp_path_factory.mktemp("runs") / "unbroken"
    run_experiment(CONFIG, directory, dataclasses.replace(options, tensorboard=True))
    return directory


def metrics(directory, leave_out=("seconds",)):
    """metrics.csv, every character of it, without the columns of times."""
    header, *lines = (directory / "metrics.csv").read_text().splitlines()
    kept = [i for i, name in enumerate(header.split(",")) if name not in leave_out]
    return [[line.split(",")[i] for i in kept] for line in (header, *lines)]


def summary(directory, leave_out=("seconds_per_round",)):
    values = json.loads((directory / "summary.json").read_text())
    return {name: value for name, value in values.items() if name not in leave_out}


def assert_same_run(directory, other):
    assert metrics(directory) == metrics(other)
    assert summary(directory) == summary(other)
    assert not list(directory.rglob("*.tmp"))


@pytest.fixture(scope="module", autouse=True)
def shared_computations(simulation):
    """Builds the computations of equal settings once: tracing takes most of a short run's time.

    Runs in processes of their own, with all that belongs to it, are tested in tests/tasks.
    """
    built = {}

    def build(learning, aggregation):
        fields = {**vars(learning), "task": vars(learning.task), "aggregation": aggregation}
        # A partial of the same arguments is equal in all but identity.
        key = repr({name: str(value) for name, value in fields.items()})
        key = re.sub(r" at 0x[0-9a-f]+", "", key)
        if key not in built:
            built[key] = build_process(learning, aggregation)
        return built[key]

    build_process = experiment.federated.build_process
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment.federated, "build_process", build)
        patch.setattr(experiment, "use_runtime", lambda _: None)
        yield


class StoppedError(Exception):
    """What interrupts a run in these tests."""


def stop_in_round(monkeypatch, number):
    """A kill after the first client of a round has handed its state in."""
    for store in (experiment.MemoryStore, experiment.DiskStore):

        def put(self, client, state, version, original=store.put, seen=[]):  # noqa: B006
            if version == number and len(seen) == 1:
                raise StoppedError
            if version == number:
                seen.append(client)
            original(self, client, state, version)

        monkeypatch.setattr(store, "put", put)


def test_cohorts_are_a_function_of_seed_and_round():
    cohorts = [experiment.sample_cohort(3, number, 20, 6) for number in range(50)]
    assert cohorts == [experiment.sample_cohort(3, number, 20, 6) for number in range(50)]
    assert len({tuple(cohort) for cohort in cohorts}) > 45
    assert cohorts[:5] != [experiment.sample_cohort(4, number, 20, 6) for number in range(5)]
    for cohort in cohorts:
        assert cohort == sorted(set(cohort))
        assert len(cohort) == 6
        assert all(type(client) is int for client in cohort)
    # Everybody comes at the same rate: 15 of 50 rounds, give or take.
    counts = np.bincount(np.concatenate(cohorts), minlength=20)
    assert counts.min() >= 5
    assert counts.max() <= 27


@pytest.mark.parametrize("size", [0, 7])
def test_everybody(size):
    assert experiment.sample_cohort(0, 5, 7, size) == list(range(7))


def test_derived_seeds():
    seed = experiment.derive_seed(1, 2, 3)
    assert seed.dtype == np.int32
    assert seed.shape == (2,)
    np.testing.assert_array_equal(seed, experiment.derive_seed(1, 2, 3))
    derived = {
        tuple(experiment.derive_seed(a, b, c)) for a in range(4) for b in range(4) for c in (1, 2)
    }
    assert len(derived) == 32
    experiment.derive_seed(2**70)


def test_what_a_run_writes(unbroken):
    assert sorted(path.name for path in unbroken.iterdir()) == [
        ".lock",
        "checkpoints",
        "config.json",
        "metrics.csv",
        "plots",
        "summary.json",
        "tensorboard",
    ]
    assert sorted(os.listdir(unbroken / "plots")) == ["accuracy.png", "clients.png"]
    assert os.listdir(unbroken / "tensorboard")
    assert len(os.listdir(unbroken / "checkpoints")) == 6
    saved = json.loads((unbroken / "config.json").read_text())
    assert ExperimentConfig.from_json(saved) == CONFIG


def test_metrics_file(unbroken):
    rows = sinks.read_rows(unbroken / "metrics.csv")
    assert list(rows[0])[:6] == [
        "round",
        "ga",
        "pa",
        "pa_before",
        "pa_masked",
        "pa_before_masked",
    ]
    assert list(rows[0])[-4:] == ["train_loss", "seconds", "upload_bytes", "download_bytes"]
    assert [row["round"] for row in rows] == ["1", "2", "3", "4"]
    for row in rows:
        values = {name: float(value) for name, value in row.items()}
        assert all(0 <= values[name] <= 100 for name in values if name[:2] in ("ga", "pa"))
        assert values["seconds"] > 0
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])


def test_bytes_count_a_newcomer_s_frame_once(unbroken):
    """The simplex ETF of 84 by 10 float32 goes to each client in the first round it is in."""
    rows = sinks.read_rows(unbroken / "metrics.csv")
    uploads = {int(row["upload_bytes"]) for row in rows}
    assert len(uploads) == 1
    seen = set()
    for number, row in enumerate(rows):
        cohort = set(experiment.sample_cohort(0, number, 5, 3))
        fixed = 84 * 10 * 4 * len(cohort - seen)
        # The number of the round goes down as well, an int32 to each client.
        assert int(row["download_bytes"]) == uploads.copy().pop() + 3 * 4 + fixed
        seen |= cohort
    total = summary(unbroken)
    for name in ("upload_bytes", "download_bytes"):
        assert total[name] == sum(int(row[name]) for row in rows)


def test_summary_agrees_with_the_metrics(unbroken):
    rows = sinks.read_rows(unbroken / "metrics.csv")
    values = summary(unbroken, leave_out=())
    assert (values["algorithm"], values["seed"], values["rounds"]) == ("fedgela", 0, 4)
    for name in ("ga", "pa", "pa_before", "pa_masked", "pa_before_masked"):
        column = [float(row[name]) for row in rows]
        assert values[f"{name}_final"] == column[-1]
        assert values[f"{name}_best"] == max(column)
    assert values["ga_second_half"] == pytest.approx(
        np.mean([float(row["ga"]) for row in rows[2:]])
    )
    assert values["seconds_per_round"] == np.median([float(row["seconds"]) for row in rows[1:]])
    assert values["config_digest"] == CONFIG.digest()


def test_a_finished_run_is_not_computed_again(unbroken, options, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in unbroken.rglob("*") if path.is_file()}
    monkeypatch.setattr(Experiment, "next_round", lambda _: pytest.fail("computed"))
    assert Experiment(CONFIG, unbroken, options).run() == summary(unbroken, leave_out=())
    monkeypatch.setattr(Experiment, "__init__", lambda *_, **__: pytest.fail("set up"))
    assert run_experiment(CONFIG, unbroken, options) == summary(unbroken, leave_out=())
    assert before == {p: p.stat().st_mtime_ns for p in unbroken.rglob("*") if p.is_file()}


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_an_interrupted_run_ends_as_an_unbroken_one(
    store, unbroken, options, tmp_path, monkeypatch
):
    """Stopped in the middle of round 3; with partial participation, in either store."""
    directory = tmp_path / "run"
    options = dataclasses.replace(options, client_store=store)
    stop_in_round(monkeypatch, 3)
    with pytest.raises(StoppedError):
        run_experiment(CONFIG, directory, options)
    monkeypatch.undo()
    assert not (directory / "summary.json").exists()
    states = directory / "client_states"
    unfinished = list(states.glob("*/round_000003.npz"))
    assert len(unfinished) == (store == "disk")
    for path in unfinished:
        path.write_bytes(b"of another world")
    (directory / "checkpoints" / ".round_000003.npz.1.tmp").write_bytes(b"half")
    with open(directory / "metrics.csv", "a") as file:
        file.write("3,44.2,1")
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)
    if store == "disk":
        took_part = {c for number in range(4) for c in experiment.sample_cohort(0, number, 5, 3)}
        assert {int(path.name.split("_")[1]) for path in states.iterdir()} == took_part


def test_rounds_between_checkpoints_are_computed_again(unbroken, options, tmp_path, monkeypatch):
    """A checkpoint after round 2 only, and a stop in round 4, when row 3 stands already."""
    directory = tmp_path / "run"
    options = dataclasses.replace(options, checkpoint_every=2)
    stop_in_round(monkeypatch, 4)
    with pytest.raises(StoppedError):
        run_experiment(CONFIG, directory, options)
    monkeypatch.undo()
    assert len(metrics(directory)) == 4
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_a_stop_before_the_first_checkpoint_starts_anew(unbroken, options, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    stop_in_round(monkeypatch, 1)
    with pytest.raises(StoppedError):
        run_experiment(CONFIG, directory, options)
    monkeypatch.undo()
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_evaluation_now_and_then(unbroken, options, tmp_path):
    """Global every second round, personal at the end; nothing else depends on it."""
    config = dataclasses.replace(CONFIG, eval_every=2, personal_eval_every=0)
    run_experiment(config, tmp_path / "run", options)
    rows, every = (sinks.read_rows(d / "metrics.csv") for d in (tmp_path / "run", unbroken))
    assert [row["round"] for row in rows] == ["2", "4"]
    assert rows[0]["pa"] == ""
    assert rows[0]["ga"] == every[1]["ga"]
    assert rows[1]["pa"] == every[3]["pa"]
    values, expected = summary(tmp_path / "run"), summary(unbroken)
    assert values["pa_best"] == values["pa_final"] == expected["pa_final"]
    for name in ("upload_bytes", "download_bytes"):
        assert values[name] == expected[name], "bytes are sent in every round"


def test_evaluate_run(unbroken, options):
    """Equals the row of that round; clients by id, their mean is the PA."""
    for number in (4, 2):
        results = evaluate_run(CONFIG, unbroken, options, number)
        assert results == json.loads((unbroken / "evaluation.json").read_text())
        row = sinks.read_rows(unbroken / "metrics.csv")[number - 1]
        assert results["round"] == number
        for name, value in results["accuracies"].items():
            assert sinks.format_number(value) == row[name], name
        assert sorted(results["clients"]) == ["0", "1", "2", "3", "4"]
        mean = np.mean([client["pa"] for client in results["clients"].values()])
        assert results["accuracies"]["pa"] == pytest.approx(mean)
    assert evaluate_run(CONFIG, unbroken, options)["round"] == 4
    (unbroken / "evaluation.json").unlink()


def test_evaluating_an_old_checkpoint_leaves_a_run_on_disk_whole(options, tmp_path):
    """The states of clients that later checkpoints need are still there."""
    directory = tmp_path / "run"
    run_experiment(CONFIG, directory, dataclasses.replace(options, client_store="disk"))
    newest = evaluate_run(CONFIG, directory, options)
    assert evaluate_run(CONFIG, directory, options, 2)["round"] == 2
    assert evaluate_run(CONFIG, directory, options) == newest


def test_an_accuracy_without_samples_is_null(unbroken, options, monkeypatch):
    monkeypatch.setattr(experiment.evaluation, "personal_accuracy", lambda *_: math.nan)
    results = evaluate_run(CONFIG, unbroken, options)
    assert results["accuracies"]["pa"] is None
    assert "NaN" not in (unbroken / "evaluation.json").read_text()
    (unbroken / "evaluation.json").unlink()


def test_evaluate_refuses_what_is_not_there(unbroken, options, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint of round 1 .*\[2, 3, 4\]"):
        evaluate_run(CONFIG, unbroken, options, 1)
    with pytest.raises(FileNotFoundError, match="no checkpoint in"):
        evaluate_run(CONFIG, tmp_path / "none", options)
    assert not (tmp_path / "none").exists()


def test_another_configuration_in_the_same_directory(unbroken, options):
    config = dataclasses.replace(
        CONFIG, rounds=5, client_momentum=0.5, method_options={"scale": 2.0}
    )
    with pytest.raises(OptionError) as caught:
        Experiment(config, unbroken, options)
    message = str(caught.value)
    assert message.startswith(f"--output_dir={unbroken}: holds a run with another ")
    for part in (
        "--client_momentum (there 0.9, here 0.5)",
        "--fedgela_scale (there 1.0, here 2.0)",
        "--rounds (there 4, here 5)",
        "--overwrite",
    ):
        assert part in message
    assert "--seed" not in message
    assert len(metrics(unbroken)) == 5


def test_overwrite_drops_the_old_results(unbroken, options, tmp_path):
    directory = tmp_path / "run"
    config = dataclasses.replace(CONFIG, cohort_seed=9)
    run_experiment(config, directory, dataclasses.replace(options, client_store="disk"))
    run_experiment(CONFIG, directory, options, overwrite=True)
    assert_same_run(directory, unbroken)
    assert not (directory / "client_states").exists()
    run_experiment(config, tmp_path / "new", options, overwrite=True)
    assert metrics(tmp_path / "new") != metrics(unbroken)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_that_goes_on_elsewhere_is_left_alone(overwrite, options, tmp_path):
    """Also where it started only after this one had looked."""
    directory = tmp_path / "run"
    late = Experiment(CONFIG, directory, options)
    with files.locked(directory):
        for start in (
            lambda: run_experiment(CONFIG, directory, options, overwrite=overwrite),
            late.run,
        ):
            with pytest.raises(OptionError, match="another process is writing"):
                start()
        assert os.listdir(directory) == [".lock"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_of_others_is_refused(overwrite, options, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OptionError, match=r"is not empty and holds no run"):
        Experiment(CONFIG, tmp_path, options, overwrite=overwrite)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_the_other_store_is_refused(unbroken, options, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    stop_in_round(monkeypatch, 2)
    with pytest.raises(StoppedError):
        run_experiment(CONFIG, directory, options)
    monkeypatch.undo()
    with pytest.raises(OptionError, match=r"--client_store=disk: .* --client_store=memory"):
        run_experiment(CONFIG, directory, dataclasses.replace(options, client_store="disk"))
    run_experiment(CONFIG, directory, options)
    assert_same_run(directory, unbroken)


def test_refusals_leave_no_directory(options, tmp_path, monkeypatch):
    directory = tmp_path / "run"
    too_large = dataclasses.replace(CONFIG, model="resnet18", clients_per_round=0)
    small = types.SimpleNamespace(build=tiny_federation)
    monkeypatch.setattr(ExperimentConfig, "data_config", lambda _: small)
    with pytest.raises(OptionError, match="--model=resnet18: needs images"):
        Experiment(too_large, directory, options)
    with pytest.raises(OptionError, match="--clients_per_round=3: the data set has only 2 clients"):
        Experiment(CONFIG, directory, options)
    assert not directory.exists()


def tiny_federation():
    """Two clients with images of 4 × 4."""
    x = np.zeros((4, 4, 4, 1), np.uint8)
    examples = data.Examples(x, np.arange(4, dtype=np.int32))
    clients = [data.ClientIndices(name, np.arange(2), np.arange(2)) for name in "ab"]
    spec = data.InputSpec("image", (4, 4, 1))
    return data.Federation("tiny", 4, tuple("abcd"), spec, examples, examples, clients)


def test_clients_without_samples_are_told_of(options, tmp_path, caplog):
    config = dataclasses.replace(CONFIG, num_clients=90)
    federation = Experiment(config, tmp_path, options).federation
    empty = sum(federation.class_counts().sum(axis=1) == 0)
    assert empty
    assert f"{empty} of 90 clients have no training samples" in caplog.text


def test_a_device_that_is_not_there_is_refused():
    options = RunOptions(devices="GPU:7", client_parallelism=2)
    with pytest.raises(OptionError, match=r"--runtime=inprocess --devices=GPU:7 .*GPU:7"):
        use_runtime(options)


def test_groups_of_classes_of_a_long_tail(options, tmp_path):
    config = dataclasses.replace(
        CONFIG, rounds=1, max_train_samples=None, imbalance_factor=10.0, batch_size=64
    )
    tailed = Experiment(config, tmp_path / "run", options)
    tailed.initialize()
    results = tailed.evaluate_global()
    groups = {name: results[f"ga_{name}"] for name in ("many", "medium", "few")}
    # The test set is balanced: GA is the mean of the groups, weighted by their classes.
    sizes = [len(tailed._groups[name]) for name in groups]
    assert sum(sizes) == 10
    values = np.nan_to_num(list(groups.values()))
    assert results["ga"] == pytest.approx(np.average(values, weights=sizes), abs=0.5)
    assert set(groups) <= {name.removeprefix("ga_") for name in tailed._columns()}


def test_personal_groups_of_classes_are_the_clients_own(options, tmp_path):
    """Against NumPy; each client's classes are sorted by how many it has of them."""
    config = ExperimentConfig.from_settings(
        num_clients=5, imbalance_factor=10.0, partition="dirichlet", concentration=0.5
    )
    tailed = Experiment(config, tmp_path / "run", options)
    generator = np.random.default_rng(0)
    total = np.stack(
        [
            np.bincount(tailed.federation.client_examples(k)[1].y, minlength=10)
            for k in range(len(tailed.federation.clients))
        ]
    )
    counts = {
        key: generator.integers(0, total + 1)
        for key in ("after", "before", "after_masked", "before_masked")
    }
    expected = {name: [] for name in ("many", "medium", "few")}
    for k, own in enumerate(tailed.federation.class_counts()):
        order = np.argsort(-own, kind="stable")
        ahead = (np.cumsum(own[order]) - own[order]) / own.sum()
        for name, low, high in (("many", 0, 0.75), ("medium", 0.75, 0.95), ("few", 0.95, 2)):
            classes = order[(ahead >= low) & (ahead < high)]
            if total[k, classes].sum():
                share = counts["after"][k, classes].sum() / total[k, classes].sum()
                expected[name].append(100 * share)
    assert len(expected["few"]) < len(expected["many"]) == len(total)
    results = tailed.personal_accuracies({"total": total, **counts})
    for name, values in expected.items():
        assert results[f"pa_{name}"] == pytest.approx(np.mean(values))
        assert results[f"pa_before_{name}"] != results[f"pa_{name}"]
    assert set(results) <= set(tailed._columns())


def test_summary_of_accuracies():
    """Empty cells: not evaluated in that round, or nothing to be measured on."""
    rows = [
        {"round": "1", "ga": "10", "pa": "", "ga_few": "5", "pa_few": "9", "pa_before": ""},
        {"round": "2", "ga": "40", "pa": "70", "ga_few": "", "pa_few": "", "pa_before": ""},
        {"round": "3", "ga": "", "pa": "60", "ga_few": "", "pa_few": "", "pa_before": ""},
        {"round": "4", "ga": "30", "pa": "65", "ga_few": "7", "pa_few": "8", "pa_before": ""},
    ]
    assert experiment.summarize_accuracies(rows) == {
        "ga_final": 30,
        "ga_best": 40,
        "ga_second_half": 30,
        "pa_final": 65,
        "pa_best": 70,
        "pa_before_final": None,
        "pa_before_best": None,
        "ga_few_final": 7,
        "ga_few_best": 7,
        "ga_few": 7,
        "pa_few_final": 8,
        "pa_few_best": 9,
        "pa_few": 8,
    }
    without = experiment.summarize_accuracies([{"round": "1", "ga": "", "pa": "3"}])
    assert without["ga_final"] is None
    assert without["ga_second_half"] is None


def test_ga_without_a_global_model_is_the_clients_mean(options, tmp_path):
    """The personal models as they stand, each on all test samples."""
    config = dataclasses.replace(CONFIG, algorithm="fedper", method_options={}, rounds=1)
    run = Experiment(config, tmp_path / "run", options)
    run.initialize()
    run.next_round()
    net, test = run.learning.network(), run.federation.test
    x = data.normalize(test.x, run.learning.input_spec)
    accuracies = []
    for client in range(len(run.federation.clients)):
        personal = run.store.get(client)["personal"]
        programs.load(net, run.state["weights"], personal)
        logits = net["head"](net["backbone"](x, training=False)).numpy()
        accuracies.append(100 * np.mean(logits.argmax(axis=1) == test.y))
    assert len(set(accuracies)) > 1
    assert run.evaluate_global()["ga"] == pytest.approx(np.mean(accuracies))


@pytest.fixture(scope="module")
def validated(options, tmp_path_factory):
    """A run that holds a quarter of the training samples out."""
    directory = tmp_path_factory.mktemp("runs") / "validated"
    config = dataclasses.replace(CONFIG, validation_fraction=0.25, batch_size=4)
    run_experiment(config, directory, options)
    return config, directory


def test_the_best_round_is_chosen_on_validation(validated):
    _, directory = validated
    rows = sinks.read_rows(directory / "metrics.csv")
    results = summary(directory)
    values = [float(row["va"]) for row in rows]
    for column, chosen in (("va", "best_round"), ("va_personal", "best_personal_round")):
        accuracies = [float(row[column]) for row in rows]
        best = rows[accuracies.index(max(accuracies))]
        assert results[chosen] == int(best["round"])
        for name in ("ga", "pa", "pa_before", "pa_masked", "pa_before_masked"):
            assert results[f"{name}_at_{chosen}"] == float(best[name])
    assert results["va_final"] == values[-1]
    assert results["va_best"] == max(values)
    assert results["va_personal_final"] == float(rows[-1]["va_personal"])


def test_nothing_of_it_without_validation(unbroken):
    names = [*metrics(unbroken)[0], *summary(unbroken)]
    assert not [name for name in names if name.startswith("va") or "best_round" in name]


def test_validation_accuracies_are_those_on_held_out_samples(validated, options):
    """With test and validation parts exchanged, so are the counts."""
    config, directory = validated
    run = Experiment(config, directory, options)
    run.restore()
    row = sinks.read_rows(directory / "metrics.csv")[-1]
    pooled = [run.federation.validation_examples(client) for client in range(5)]
    x = np.concatenate([part.x for part in pooled])
    y = np.concatenate([part.y for part in pooled])
    counts = run.process.evaluate_global(run.state, {"x": x, "y": y})
    right, total = (np.sum(value) for value in (counts["right"]["head"], counts["total"]))
    assert total == round(0.25 * 100)
    assert float(row["va"]) == pytest.approx(100 * right / total, rel=1e-8)

    counts = run.personal_counts()
    exchanged = run._count_clients(
        run.process.evaluate_personal,
        lambda k: {
            "test": run.federation.validation_examples(k),
            "validation": run.federation.client_examples(k)[1],
        },
    )
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


def test_best_round_where_personal_models_were_not_evaluated():
    rows = [
        {"round": "2", "ga": "50", "pa": "", "va": "60"},
        {"round": "4", "ga": "70", "pa": "", "va": "60"},
        {"round": "6", "ga": "90", "pa": "80", "va": "50"},
    ]
    results = experiment.summarize_accuracies(rows)
    assert results["best_round"] == 2
    assert results["ga_at_best_round"] == 50
    assert results["pa_at_best_round"] is None
    assert "best_personal_round" not in results
    assert results["ga_best"] == 90
