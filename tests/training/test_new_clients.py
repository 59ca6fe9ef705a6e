"""Clients that take no part in training: nothing is learned from them, and they are evaluated."""

import csv
import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.training.runs import CONFIG, assert_same_run, rows, stopped_in_round, summary
from tff_pcdd import data, methods, models
from tff_pcdd.errors import DataError
from tff_pcdd.evaluation import metrics
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.history import History
from tff_pcdd.export import ExportOptions, export_run
from tff_pcdd.report import run_page
from tff_pcdd.results import by_client
from tff_pcdd.results.reading import Directory
from tff_pcdd.studies import compare
from tff_pcdd.training import (
    EvaluationConfig,
    ExperimentConfig,
    Simulation,
    evaluate_run,
    restore_run,
    run_experiment,
)
from tff_pcdd.training.post_hoc import calibrate_run

CLASSES, INPUTS = 3, (4, 4, 1)
# Classes of the training, held-out and test samples of each client.
LABELS = (
    ([0, 0, 1, 0, 1], [0, 1], [0, 1, 1]),
    ([2, 2, 2, 2, 2, 2, 2, 2], [2], [2, 2, 0]),
    ([1, 0, 0, 1, 1, 0, 0], [0], [0, 0]),
    ([2, 1], [1], [1, 2, 2, 1]),
    ([0, 2, 2, 0], [2], [2, 0, 0]),
)
# The second has the most samples, and the fourth is small.
NEW = (1, 3)
OLD = tuple(sorted({*range(len(LABELS))} - {*NEW}))
METHODS = [name for name, cls in methods.registry.classes().items() if name != "local"]
# What the server makes of all clients' class counts, samples or statistics; personal parts; rows of
# single clients; and one model for the samples of all.
OFTEN = ["fedgela", "ratioloss", "ccvr", "fedrod", "central"]


def clients():
    """All clients, with indices into `samples(1)` for training and `samples(0)` for tests."""
    found, start, tested = [], 0, 0
    for name, (train, held, test) in zip("abcde", LABELS, strict=True):
        middle = start + len(train)
        found.append(
            data.ClientIndices(
                *(name, np.arange(start, middle), np.arange(tested, tested + len(test))),
                np.arange(middle, middle + len(held)),
            )
        )
        start, tested = middle + len(held), tested + len(test)
    return found


def samples(seed):
    train = [label for own in LABELS for part in own[:2] for label in part]
    y = np.array(train if seed else [label for own in LABELS for label in own[2]])
    x = np.random.default_rng(seed).normal(size=(len(y), *INPUTS)) + y[:, None, None, None]
    return data.Examples(x.astype(np.float32), y)


def federation(train=None, **parts):
    spec = data.InputSpec("image", INPUTS, "float32")
    train = samples(1) if train is None else train
    return data.Federation("tiny", CLASSES, "xyz", spec, train, samples(0), **parts)


def with_new():
    every = clients()
    return federation(clients=[every[k] for k in OLD], new_clients=[every[k] for k in NEW])


def without_new():
    """The federation from which the new clients and their training samples are absent."""
    every, place, kept = clients(), {}, []
    for k in OLD:
        for sample in [*every[k].train, *every[k].validation]:
            place[sample] = len(kept)
            kept.append(sample)
    left = [
        data.ClientIndices(
            *(every[k].client_id, np.array([place[i] for i in every[k].train]), every[k].test),
            np.array([place[i] for i in every[k].validation]),
        )
        for k in OLD
    ]
    return federation(samples(1).take(np.array(kept)), clients=left)


# The digest of `from_settings(seed=3)` before there were new clients.
EARLIER = "0c2feb9c5f29"


def config(name, **further):
    network = models.KerasBackbone(
        lambda shape: tf.keras.Sequential(
            [
                tf.keras.Input(shape),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(6, activation="relu"),
            ]
        )
    )
    training = dataclasses.replace(
        CONFIG.training, rounds=2, clients_per_round=2, local_epochs=1, batch_size=4
    )
    return ExperimentConfig(
        method=methods.create(name),
        model=models.ModelConfig(network, projection_dim=4),
        training=training,
        **further,
    )


def after_two_rounds(settings, clients, compute):
    simulation = Simulation(settings, clients, compute=compute)
    measured = []
    for _ in range(2):
        seen = simulation.next_round()
        del seen["seconds"]
        measured.append({**seen, **simulation.evaluate()})
    return simulation, measured


@pytest.mark.parametrize("name", support.rare_but(OFTEN, METHODS))
def test_nothing_is_learned_from_them(name, compute):
    """All is the same, bit for bit, as if they and their samples did not exist."""
    ours, measured = after_two_rounds(config(name), with_new(), compute)
    others, expected = after_two_rounds(config(name), without_new(), compute)
    support.assert_trees_equal(ours.state, others.state)
    assert ours.store.clients == others.store.clients
    assert {*ours.store.clients} <= {*range(len(OLD))}
    for client in range(len(OLD)):
        support.assert_trees_equal(ours.store.get(client), others.store.get(client))
    known = ["new_clients_ga"] * ours.config.method.has_global_model
    known += ["new_clients_pa_before", "new_clients_pa"]
    for own, other in zip(measured, expected, strict=True):
        assert [key for key in own if key.startswith("new_clients")] == known
        left = {key: value for key, value in own.items() if key not in known}
        np.testing.assert_equal(left, other)
    counts, same = ours.personal_counts(), others.personal_counts()
    np.testing.assert_equal(counts, same)
    # Their personal models begin like those of clients that have never trained.
    for client in range(len(OLD), len(LABELS)):
        state = ours.store.get(client)
        assert int(state.participations) == 0
        support.assert_trees_equal(state, ours.initial_client_state(client))


def test_accuracies_are_means_over_them(compute):
    simulation, measured = after_two_rounds(config("fedavg"), with_new(), compute)
    test = samples(0)
    right = {"ga": [], "pa_before": [], "pa": []}
    for k in NEW:
        own = test.take(clients()[k].test)
        answers = {
            "ga": simulation.predict(own.x),
            "pa_before": simulation.keras_model("abcde"[k], local_epochs=False)(own.x)["class_id"],
            "pa": simulation.predict(own.x, "abcde"[k]),
        }
        for name, found in answers.items():
            right[name].append(np.mean(np.asarray(found) == own.y))
    for name, shares in right.items():
        assert measured[-1][f"new_clients_{name}"] == pytest.approx(100 * np.mean(shares))
    # FedAvg keeps nothing on clients.
    assert right["ga"] == right["pa_before"]
    rows = simulation.clients()
    assert [(row["client"], row["new"]) for row in rows] == [
        *(("abcde"[k], "") for k in OLD),
        *(("abcde"[k], "yes") for k in NEW),
    ]
    by_hand = [100 * share for share in right["pa"]]
    assert [row["pa"] for row in rows[len(OLD) :]] == pytest.approx(by_hand)
    assert [row["train_samples"] for row in rows] == [len(LABELS[k][0]) for k in (*OLD, *NEW)]


def test_metrics_are_means_over_them(compute):
    chosen = (metrics.create("balanced"), metrics.create("macro_f1"))
    settings = config("fedavg", evaluation=EvaluationConfig(metrics=chosen))
    simulation, measured = after_two_rounds(settings, with_new(), compute)
    test, expected = samples(0), {}
    for k in NEW:
        own = test.take(clients()[k].test)
        before = simulation.keras_model("abcde"[k], local_epochs=False)(own.x)["class_id"]
        for column, found in (
            ("ga", simulation.predict(own.x)),
            ("pa_before", np.asarray(before)),
            ("pa", simulation.predict(own.x, "abcde"[k])),
        ):
            recalls = [np.mean(found[own.y == label] == label) for label in {*own.y}]
            expected.setdefault(f"balanced_new_clients_{column}", []).append(np.mean(recalls))
            f1 = [
                2
                * np.sum((found == label) & (own.y == label))
                / (np.sum(found == label) + np.sum(own.y == label))
                for label in {*own.y, *found}
            ]
            expected.setdefault(f"macro_f1_new_clients_{column}", []).append(np.mean(f1))
    for name, shares in expected.items():
        assert measured[-1][name] == pytest.approx(100 * np.mean(shares)), name
    columns = History.of(simulation).columns
    assert {*expected} <= {*columns} and {*measured[-1]} <= {*columns}
    assert len({*columns}) == len(columns)


def test_before_alone_is_measured_there_too(compute):
    simulation = Simulation(config("fedper"), with_new(), compute=compute)
    simulation.next_round()
    both = simulation.evaluate_personal()
    before = simulation.evaluate_personal(after=False)
    assert before["new_clients_pa_before"] == both["new_clients_pa_before"]
    assert "new_clients_pa" in both
    assert "new_clients_pa" not in before


def test_what_is_not_finite_there_does_not_end_a_run(compute, caplog):
    bad = samples(1)
    for k in NEW:
        # Finite as an input, but not once it is multiplied by weights.
        bad.x[clients()[k].train] = 3e38
    every = clients()
    parts = {"clients": [every[k] for k in OLD], "new_clients": [every[k] for k in NEW]}
    simulation, measured = after_two_rounds(config("fedavg"), federation(bad, **parts), compute)
    assert "the personal answer of 2 of 2 new clients is not finite" in caplog.text
    assert measured[-1]["new_clients_pa"] == 0
    assert not simulation.nonfinite.diverged
    assert simulation.totals["nonfinite_rounds"] == 0


def test_refusals(compute):
    with refuses("new_clients", "cannot be used with local, which shares nothing", 1):
        config("local", data=dataclasses.replace(CONFIG.data, new_clients=1))
    with refuses("new_clients", "cannot be used with local, which shares nothing", 2):
        Simulation(config("local"), with_new(), compute=compute)
    with refuses("new_clients", "must be below 5, the number of clients", 5):
        planning.check_all([CONFIG.with_settings(new_clients=5, clients_per_round=0)])
    with refuses("new_clients", "leaves 2 of 5 clients .* clients_per_round=3 .* at most 2", 3):
        planning.check_all([CONFIG.with_settings(new_clients=3)])
    whole, some = federation(clients=clients()), dataclasses.replace(CONFIG.data, new_clients=4)
    with refuses("new_clients", "leaves 1 of 5 clients to draw clients_per_round=2 from", 4):
        Simulation(config("fedavg", data=some), whole, compute=compute)
    with refuses("new_clients", "the federation was given with 2 new clients", 4):
        Simulation(config("fedavg", data=some), with_new(), compute=compute)
    settings = config("fedavg")
    training = dataclasses.replace(settings.training, clients_per_round=4)
    with refuses("clients_per_round", "the federation has only 3 clients that train", 4):
        Simulation(dataclasses.replace(settings, training=training), with_new(), compute=compute)


@pytest.mark.parametrize("name", ["fedavg", "fedgela", "central"])
def test_somebody_has_to_train(name, compute):
    """Also where the others are there, but have test samples only."""
    every = [dataclasses.replace(own, train=own.train[:0]) for own in clients()[:2]]
    divided = federation(clients=every, new_clients=clients()[2:3])
    with refuses("new_clients", "leaves no client with training samples; take fewer, or", 1):
        Simulation(config(name), divided, compute=compute)
    with pytest.raises(DataError, match="tiny: no client has training samples"):
        Simulation(config(name), federation(clients=every), compute=compute)


def test_a_given_federation_is_divided_by_the_settings(compute):
    drawn = []
    for seed in range(4):
        settings = config("fedavg", data=data.DataConfig(new_clients=2), seed=seed)
        made = Simulation(settings, federation(clients=clients()), compute=compute).federation
        assert (made.num_clients, len(made.new_clients)) == (3, 2)
        drawn.append(tuple(own.client_id for own in made.new_clients))
    assert len({*drawn}) > 1


def test_a_given_federation_is_divided_by_names(compute):
    named = config("fedavg", data=data.DataConfig(new_client_names="d,b"))
    made = Simulation(named, federation(clients=clients()), compute=compute)
    assert made.federation.client_ids == ("a", "c", "e")
    # Their order is that of all clients, so the numbers are those of the federation with them.
    assert [own.client_id for own in made.federation.new_clients] == ["b", "d"]
    alike = Simulation(config("fedavg"), with_new(), compute=compute)
    for simulation in (made, alike):
        simulation.next_round()
    np.testing.assert_equal(made.evaluate(), alike.evaluate())


def test_refusals_of_names(compute):
    def named(names, name="fedavg", **changes):
        own = dataclasses.replace(CONFIG.data, new_client_names=names)
        return config(name, data=own, **changes)

    with refuses("new_client_names", "cannot be used with local, which shares nothing"):
        named("a", "local")
    with refuses("new_client_names", "5 new clients must be below 5, the number of clients"):
        planning.check_all(
            [CONFIG.with_settings(new_client_names="0,1,2,3,4", clients_per_round=0)]
        )
    with refuses("new_client_names", "leaves 2 of 5 clients .* clients_per_round=3 .* at most 2"):
        planning.check_all([CONFIG.with_settings(new_client_names="0,1,2")])
    whole = federation(clients=clients())
    with refuses("new_client_names", "there is no client 'f'"):
        Simulation(named("f"), whole, compute=compute)
    with refuses("new_client_names", "the federation was given with 2 new clients"):
        Simulation(named("a"), with_new(), compute=compute)
    every = [dataclasses.replace(own, train=own.train[:0]) for own in clients()[:2]]
    with refuses("new_client_names", "leaves no client with training samples; take .* others$"):
        Simulation(named("c"), federation(clients=[*every, clients()[2]]), compute=compute)


def test_the_seed_is_the_common_one_unless_it_is_given():
    def seed(**values):
        return ExperimentConfig.from_settings(**values).seeds.new_clients

    assert [seed(), seed(seed=4), seed(seed=4, new_clients_seed=7)] == [0, 4, 7]


def test_settings_without_them_are_those_of_earlier_versions():
    """So runs of that time can be resumed."""
    config = ExperimentConfig.from_settings(seed=3)
    assert config.digest() == EARLIER
    assert config.with_settings(new_clients=1).digest() != EARLIER
    assert config.with_settings(new_client_names="1").digest() != EARLIER
    seeded = config.with_settings(new_clients_seed=8)
    assert seeded.digest() != EARLIER
    record = config.to_settings()
    del record["new_clients"], record["new_client_names"], record["new_clients_seed"]
    assert ExperimentConfig.from_record(record) == config


HELD = CONFIG.with_settings(new_clients=2, rounds=3, personal_eval_every=None, algorithm="fedrod")


@pytest.fixture(scope="module")
def finished(options, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "finished"
    run_experiment(HELD, directory, options)
    return directory


def table_of(directory):
    """clients.csv as dicts of strings."""
    with open(directory / "clients.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_writes_what_they_reach(finished):
    last, found = rows(finished)[-1], summary(finished)
    table = table_of(finished)
    assert [row["new"] for row in table] == ["", "", "", "yes", "yes"]
    for column, name in (("ga", "ga"), ("pa_before", "pa_before"), ("pa", "pa")):
        mean = np.mean([float(row[column]) for row in table[3:]])
        assert float(last[f"new_clients_{name}"]) == pytest.approx(mean)
        assert found[f"new_clients_{name}_final"] == pytest.approx(mean)
        if name != "ga":
            mean = np.mean([float(row[column]) for row in table[:3]])
            assert found[f"{name}_final"] == pytest.approx(mean)
    with np.load(finished / "confusion.npz") as arrays:
        assert len(arrays["personal"]) == 3
    _, new = (finished / "clients.md").read_text().split("## New clients")
    for row in table:
        assert (f"| {row['client']} " in new) == (row["new"] == "yes")
    assert json.loads((finished / "config.json").read_text())["new_clients"] == 2


@pytest.mark.parametrize("store", support.rare_but(["disk"], ["memory", "disk"]))
def test_an_interrupted_run_has_the_same_results(store, finished, options, tmp_path):
    options = dataclasses.replace(options, client_store=store)
    with stopped_in_round(2):
        run_experiment(HELD, tmp_path / "run", options)
    run_experiment(HELD, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", finished)


def test_more_rounds_are_those_of_a_longer_run(finished, options, tmp_path):
    run_experiment(HELD.with_settings(rounds=2), tmp_path, options)
    run_experiment(HELD, tmp_path, options)
    assert_same_run(tmp_path, finished)


def test_the_page_of_a_run_shows_them_apart(finished):
    content = run_page.content(Directory(finished, compared=False))
    new = [row["client"] for row in table_of(finished) if row["new"]]
    assert sorted(row.name for row in content["new_clients"].rows) == sorted(new)
    assert not {row.name for row in content["clients"].rows} & {*new}
    holdings = [
        (name.removesuffix(" (new)"), [str(cell.number) for cell in cells], name.endswith(" (new)"))
        for name, cells in content["holdings"].rows
    ]
    assert holdings == [
        (row["client"], [row[f"train_{label}"] for label in range(10)], bool(row["new"]))
        for row in table_of(finished)
    ]
    assert len(content["clients"].rows) == 3
    measured = {heading: cell for heading, cell, _ in content["measured"]}
    value = summary(finished)["new_clients_pa_final"]
    assert measured["PA after, new clients"] == f"{value:.1f} %"


def test_an_evaluation_lists_them_apart(finished, options, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    results = evaluate_run(HELD, tmp_path / "run", dataclasses.replace(options, predictions=True))
    table = {row["client"]: row for row in table_of(finished)}
    assert {*results["new_clients"]} == {name for name, row in table.items() if row["new"]}
    assert {*results["clients"]} == {name for name, row in table.items() if not row["new"]}
    for name, values in results["new_clients"].items():
        assert values["pa"] == pytest.approx(float(table[name]["pa"]))
    mean = np.mean([values["pa"] for values in results["new_clients"].values()])
    assert results["accuracies"]["new_clients_pa"] == pytest.approx(mean)
    with open(tmp_path / "run" / "predictions.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for name, row in table.items():
        own = [line for line in lines if (line["model"], line["client"]) == ("personal", name)]
        right = np.mean([line["label"] == line["prediction"] for line in own])
        assert 100 * right == pytest.approx(float(row["pa"]))
    # What is about all personal models together leaves them out.
    tested = sum(int(row["test_samples"]) for row in table.values() if not row["new"])
    assert results["calibration"]["personal"]["test_samples"] == tested


def test_their_personal_models_are_exported(finished, options, tmp_path):
    row = table_of(finished)[-1]
    chosen = ExportOptions(format="keras", clients=row["client"])
    exported = export_run(finished, tmp_path, chosen, run_options=options)
    assert exported[-1].accuracy == pytest.approx(float(row["pa"]))
    (card,) = tmp_path.glob(f"personal/{row['client']}/*/model_card.md")
    assert "The client took no part in training." in card.read_text()
    assert "The client took no part" not in next(tmp_path.glob("global/*/*.md")).read_text()


def test_comparisons_average_over_the_others(finished, options, tmp_path):
    configs = [HELD, HELD.with_settings(algorithm="fedper")]
    shutil.copytree(finished, tmp_path / "fedrod" / "seed_0")
    compare(configs, tmp_path, options)
    every = by_client.read_all(Directory(tmp_path, compared=True))
    found = [each.name for each in every if not each.new]
    names = [row["client"] for row in table_of(finished) if not row["new"]]
    assert found == names * 2
    with open(tmp_path / "clients.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert sum(row["new"] == "yes" for row in table) == 4
    lines = (tmp_path / "comparison.md").read_text().splitlines()
    (heading,) = [line for line in lines if "PA after, new clients" in line and "|" in line]
    assert "GA, new clients" in heading


@pytest.mark.parametrize("store", support.rare_but(["memory"], ["memory", "disk"]))
def test_what_a_warm_start_gives_them_is_kept(store, options, tmp_path):
    """Ditto's own model begins with the global model, which a resumed run no longer has."""
    options = dataclasses.replace(options, client_store=store)
    first = HELD.with_settings(algorithm="fedavg", rounds=1)
    run_experiment(first, tmp_path / "first", options)
    with restore_run(first, tmp_path / "first", options).simulation as simulation:
        weights = simulation.state.weights["trainable"]
    config = HELD.with_settings(algorithm="ditto", warm_start=str(tmp_path / "first"), model_seed=9)
    with stopped_in_round(2):
        run_experiment(config, tmp_path / "run", options)
    with restore_run(config, tmp_path / "run", options).simulation as simulation:
        for client in (3, 4):
            own = simulation.store.get(client).personal[: len(weights)]
            support.assert_trees_equal(own, weights)


@pytest.mark.rare
def test_a_later_head_calibration_does_not_use_them(options, tmp_path):
    settings = dataclasses.replace(HELD, data=data.DataConfig()).with_settings(
        algorithm="fedavg", clients_per_round=2, projection_dim=4
    )
    calibrated = settings.with_settings(head_calibration="ccvr")
    states = []
    for name, given in (("ours", with_new()), ("others", without_new())):
        directory = tmp_path / name
        run_experiment(settings, directory / "run", options, federation=given)
        of = (settings, calibrated, directory / "run", directory / "head", options)
        calibrate_run(*of, federation=given)
        restored = restore_run(calibrated, directory / "head", options, federation=given)
        states.append(restored.simulation.state.weights)
    support.assert_trees_equal(*states)
