"""Runs that start from the last weights of another run."""

import contextlib
import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tests.data.refusals import refuses
from tests.training.runs import StoppedError, assert_same_run, rows, stopped_in_round
from tff_pcdd import measures, models
from tff_pcdd.errors import DataError
from tff_pcdd.federated import LocalWork
from tff_pcdd.federated.records import ClientState
from tff_pcdd.measures import ACCURACY, HELD_OUT
from tff_pcdd.training import (
    Callback,
    ExperimentConfig,
    InitialWeights,
    Run,
    Simulation,
    evaluate_run,
    manifests,
    restore_run,
    run_directory,
    run_experiment,
    warm_start,
)
from tff_pcdd.training.post_hoc import calibrate_run

pytestmark = pytest.mark.usefixtures("shared_computations")

FEDAVG = ExperimentConfig.from_settings(
    algorithm="fedavg",
    model="mlp",
    num_clients=5,
    clients_per_round=3,
    max_train_samples=100,
    max_test_samples=60,
    rounds=3,
    local_epochs=1,
    batch_size=8,
    personal_eval_every=1,
)


def of(algorithm, run_dir=None, **settings):
    """The settings of a method, with the weights of a run."""
    config = FEDAVG.with_settings(algorithm=algorithm, **settings)
    return config if run_dir is None else config.with_settings(warm_start=str(run_dir))


class AtTheStart(Callback):
    """What is known before the first round."""

    def on_start(self, run):
        simulation = run.simulation
        self.round = simulation.round
        self.accuracies = simulation.evaluate()
        self.weights = simulation.state.weights
        self.kept = [simulation.store.get(n).personal for n in range(5)]


@pytest.fixture(scope="module")
def trained(options, _built, tmp_path_factory):
    """The directories of finished runs by method and client store; not to be written to."""
    from tests.training.runs import sharing_computations

    made = {}

    def get(algorithm, store="memory"):
        if (algorithm, store) not in made:
            directory = tmp_path_factory.mktemp("trained") / algorithm
            with sharing_computations(_built):
                run_experiment(
                    of(algorithm), directory, dataclasses.replace(options, client_store=store)
                )
            made[algorithm, store] = directory
        return made[algorithm, store]

    return get


# What equals the accuracies of the earlier run: where personal models are trained before they are
# evaluated, the order of samples in that training is that of another round.
BEFORE = ("ga", "pa_before")
SAME = [
    ("fedavg", "fedprox", "memory", BEFORE),
    ("fedavg", "fedprox", "disk", BEFORE),
    ("fedper", "fedper", "memory", BEFORE),
    ("fedper", "fedper", "disk", BEFORE),
    ("fedrep", "fedper", "memory", BEFORE),
    ("ditto", "ditto", "disk", ("ga", "pa")),
    ("fedetf", "fedetf", "memory", BEFORE),
]


@pytest.mark.parametrize(("first", "second", "store", "same"), support.rare_but([SAME[4]], SAME))
def test_a_run_starts_with_the_accuracies_that_the_other_ended_with(
    first, second, store, same, trained, options, tmp_path
):
    directory, start = trained(first, store), AtTheStart()
    options = dataclasses.replace(options, client_store=store)
    # Another seed of the model: nothing of the drawn weights is left.
    config = of(second, directory, model_seed=9)
    run_experiment(config, tmp_path / "run", options, callbacks=[start])
    assert start.round == 0
    with restore_run(of(first), directory, options).simulation as before:
        support.assert_trees_equal(start.weights, before.state.weights)
        expected = before.evaluate()
        # Those that have taken part; the others have nothing to hand on.
        taken_part = [n for n in range(5) if before.store.get(n).participations]
        for client in taken_part:
            support.assert_trees_equal(start.kept[client], before.store.get(client).personal)
    shown = {name: float(value) for name, value in rows(directory)[-1].items() if value}
    compared = [
        name
        for name in expected
        if measures.of(name).group in (ACCURACY, HELD_OUT) and name.startswith(same)
    ]
    compared = [name for name in compared if same == ("ga", "pa") or not is_after(name)]
    assert set(same) <= set(compared)
    for name in compared:
        assert start.accuracies[name] == expected[name], name
        assert float(f"{expected[name]:.9g}") == shown[name], name
    # Rounds are counted anew.
    assert [row["round"] for row in rows(tmp_path / "run")] == ["1", "2", "3"]


def is_after(name):
    """Whether an accuracy is one after local epochs."""
    return name.startswith("pa") and not name.startswith("pa_before")


def test_a_method_with_another_head_is_refused_before_anything_is_written(
    trained, options, tmp_path
):
    config = of("fedgela", trained("fedavg"), projection_dim=0)
    reason = r"^does not fit the network of fedgela: server/weights/\w+.* there, and .* here$"
    with refuses("warm_start", reason) as caught:
        run_experiment(config, tmp_path / "run", options)
    assert caught.value.value == str(trained("fedavg"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.json").exists()
    # The same with earlier results, which stay.
    plain = of("fedgela", projection_dim=0, rounds=1)
    run_experiment(plain, tmp_path / "other", options)
    with refuses("warm_start", reason):
        run_experiment(config, tmp_path / "other", options, overwrite=True)
    assert (tmp_path / "other" / "summary.json").exists()


def test_another_shape_is_named(trained, options, tmp_path):
    config = of("fedavg", trained("fedavg"), model="simple_cnn")
    with refuses("warm_start", "does not fit the network of fedavg: server/weights/trainable"):
        run_experiment(config, tmp_path, options)


def test_what_clients_keep_has_to_fit(trained, options, compute):
    with restore_run(of("ditto"), trained("ditto"), options).simulation as ditto:
        personal = ditto.store.get(0).personal
        kept = {0: ClientState(own={}, participations=1, personal=personal[:-1])}
        initial = InitialWeights(ditto.state.weights, kept, "mine")
    number = len(kept[0].personal)
    with refuses("warm_start", f"clients/0/personal has {number} .* there, and {number + 1} here"):
        Simulation(of("ditto"), initial=initial, compute=compute)
    kept[0] = kept[0]._replace(personal=[*personal[:-1], np.zeros(3, np.float64)])
    with refuses("warm_start", rf"clients/0/personal/{number} is float64\[3\] there, and float32"):
        Simulation(of("ditto"), initial=initial, compute=compute)
    # FedAvg keeps nothing.
    Simulation(of("fedavg"), initial=initial, compute=compute)
    Simulation(of("ditto"), initial=InitialWeights(initial.weights), compute=compute)
    with refuses("warm_start", "has a client 7, and there are 5 clients"):
        states = {7: Simulation(of("ditto"), compute=compute).initial_client_state(0)}
        Simulation(of("ditto"), initial=InitialWeights(initial.weights, states), compute=compute)


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_resumed_run_does_not_need_the_other_one(store, trained, options, tmp_path):
    """Also for clients that had not taken part when it was interrupted."""
    options = dataclasses.replace(options, client_store=store)
    other = tmp_path / "other"
    shutil.copytree(trained("fedper", store), other)
    config = of("fedper", other, clients_per_round=1)
    run_experiment(config, tmp_path / "whole", options)
    with stopped_after(2):
        run_experiment(config, tmp_path / "run", options)
    shutil.rmtree(other)
    run_experiment(config, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    for number in (2, 3):
        manifest = manifests.read(tmp_path / "run" / "checkpoints", number)
        newest = trained("fedper", store) / "checkpoints" / "round_000003.npz"
        assert manifest.run["warm_start"] == manifests.checksum_of(newest)
    untouched = 0
    with (
        restore_run(config, tmp_path / "run", options).simulation as after,
        restore_run(of("fedper"), trained("fedper", store), options).simulation as before,
    ):
        for client in range(5):
            found, earlier = after.store.get(client), before.store.get(client)
            if found.participations == earlier.participations:
                support.assert_trees_equal(found.personal, earlier.personal)
                untouched += 1
    assert untouched >= 2
    results = evaluate_run(config, tmp_path / "run", options)
    assert results["accuracies"]["ga"] == pytest.approx(float(rows(tmp_path / "run")[-1]["ga"]))


@contextlib.contextmanager
def stopped_after(number):
    """Expects a run to be interrupted after a round; `stopped_in_round` needs two clients."""
    with pytest.MonkeyPatch.context() as patch:

        def next_round(simulation, original=Simulation.next_round):
            if simulation.round == number:
                raise StoppedError
            return original(simulation)

        patch.setattr(Simulation, "next_round", next_round)
        with pytest.raises(StoppedError):
            yield


def test_without_a_checkpoint_of_its_own_it_starts_from_the_other_run_again(
    trained, options, tmp_path
):
    config = of("fedprox", trained("fedavg"))
    run_experiment(config, tmp_path / "whole", options)
    with stopped_in_round(1):
        run_experiment(config, tmp_path / "run", options)
    run_experiment(config, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_more_rounds_may_begin_with_the_first_one(trained, options, tmp_path):
    """Its only round, which was evaluated as the last one, is computed again."""
    config = of("fedprox", trained("fedavg"), personal_eval_every=0)
    run_experiment(config, tmp_path / "whole", options)
    run_experiment(config.with_settings(rounds=1), tmp_path / "run", options)
    run_experiment(config, tmp_path / "run", options)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_chain_of_warm_starts(trained, options, tmp_path):
    """A run that has itself started from another one, whose directory is gone."""
    shutil.copytree(trained("fedavg"), tmp_path / "first")
    run_experiment(of("fedprox", tmp_path / "first"), tmp_path / "second", options)
    shutil.rmtree(tmp_path / "first")
    start = AtTheStart()
    run_experiment(
        of("fedavg", tmp_path / "second"), tmp_path / "third", options, callbacks=[start]
    )
    assert float(f"{start.accuracies['ga']:.9g}") == float(rows(tmp_path / "second")[-1]["ga"])


def test_other_clients_start_afresh(trained, options, tmp_path, caplog):
    start = AtTheStart()
    config = of("fedper", trained("fedper"), data_seed=5)
    run_experiment(config, tmp_path / "run", options, callbacks=[start])
    assert "what its clients keep is not used, because the clients or their samples differ" in (
        caplog.text
    )
    with restore_run(of("fedper"), trained("fedper"), options).simulation as before:
        support.assert_trees_equal(start.weights, before.state.weights)
    with Simulation(of("fedper", data_seed=5), compute=options.compute) as fresh:
        for client in range(5):
            support.assert_trees_equal(start.kept[client], fresh.store.get(client).personal)


def test_the_newest_intact_checkpoint_counts(trained, options, tmp_path, caplog):
    other = tmp_path / "other"
    shutil.copytree(trained("fedavg"), other)
    (other / "checkpoints" / "round_000003.npz").write_bytes(b"cut")
    start = AtTheStart()
    run_experiment(of("fedprox", other), tmp_path / "run", options, callbacks=[start])
    assert "round_000003.npz is damaged" in caplog.text
    assert "using the checkpoint of round 2" in caplog.text
    assert float(f"{start.accuracies['ga']:.9g}") == float(rows(other)[1]["ga"])


def no_run(other):
    shutil.rmtree(other)


def comparison(other):
    (other / "config.json").unlink()
    (other / "comparison.csv").touch()


def without_checkpoints(other):
    shutil.rmtree(other / "checkpoints")


def damaged(other):
    for path in (other / "checkpoints").glob("*.npz"):
        path.write_bytes(b"cut")


def of_another_run(other):
    path = other / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "batch_size": 9}))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (no_run, r"^holds no run: there is no config\.json$"),
        (comparison, "^holds a comparison; name the directory of one of its runs"),
        (without_checkpoints, "^has no checkpoint$"),
        (damaged, r"^has no intact checkpoint: .*round_000003\.npz is damaged"),
        (of_another_run, "^has no intact checkpoint: .* a checkpoint of another run, of round 3"),
    ],
)
def test_directories_that_are_refused(harm, reason, trained, options, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(trained("fedavg"), other)
    harm(other)
    config = of("fedprox", other)
    with refuses("warm_start", reason):
        run_experiment(config, tmp_path / "run", options)
    with refuses("warm_start", reason):
        Run(config, tmp_path / "run", options).train()
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 300, "\udcff", "~nobody/run", "/dev/null"])
def test_names_of_no_directory(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses(
        "warm_start", "holds no run: there is no config|cannot be read: File name too long"
    ):
        warm_start.check([(of("fedprox", name), tmp_path / "run")], overwrite=False)


def test_a_run_does_not_start_from_itself(trained, options):
    directory = trained("fedavg")
    with refuses("warm_start", "is the directory of this run"):
        run_experiment(of("fedavg", directory), directory, options, overwrite=True)
    assert (directory / "summary.json").exists()


def rewrite(other, change):
    """Replaces the arrays of the newest checkpoint, and their checksum."""
    folder = other / "checkpoints"
    path = folder / "round_000003.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(path, arrays)
    manifest = manifests.read(folder, 3)
    changed = dataclasses.replace(manifest, arrays=manifests.checksum_of(path))
    manifests.write(folder, changed)


def numbered(path, arrays):
    np.savez(path, *arrays.values())


def larger_when_unpacked(path, arrays):
    np.savez_compressed(path, **arrays, more=np.zeros(10**6))


def pickled(path, arrays):
    name = "server/weights/trainable/0"
    np.savez(path, **{**arrays, name: np.array([print], dtype=object)})


def of_words(path, arrays):
    np.savez(path, **{**arrays, "server/weights/trainable/0": np.array("word")})


def without_counts(path, arrays):
    del arrays["clients/0/participations"]
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (numbered, "was written by an earlier version, whose arrays have no names"),
        (larger_when_unpacked, "is damaged .*larger than the file"),
        (pickled, "is damaged .*allow_pickle=False"),
        (of_words, r"server/weights/trainable/0 is str\d*\[\] there"),
        (without_counts, "is damaged .*clients/0/participations"),
    ],
)
def test_arrays_of_unknown_origin(change, reason, trained, options, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(trained("fedper"), other)
    rewrite(other, change)
    with pytest.raises((DataError, ValueError), match=reason) as caught:
        run_experiment(of("fedper", other), tmp_path / "run", options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.json").exists()


def small_network(input_shape):
    inputs = tf.keras.Input(input_shape)
    h = tf.keras.layers.Dense(8)(tf.keras.layers.Flatten()(inputs))
    h = tf.keras.layers.BatchNormalization()(h)
    return tf.keras.Model(inputs, tf.keras.layers.ReLU()(h))


def test_batch_normalization_that_clients_keep(compute):
    """Clients that have never trained use the mean of it instead."""
    model = models.ModelConfig(models.KerasBackbone(small_network), bn="personal")
    config, other = (
        dataclasses.replace(of("fedavg", model_seed=seed), model=model) for seed in (1, 2)
    )
    with Simulation(config, compute=compute) as first:
        first.next_round()
        states = {client: first.store.get(client) for client in range(5)}
        initial = InitialWeights(first.state.weights, states)
        expected = first.evaluate()
        with Simulation(other, initial=initial, compute=compute) as second:
            found = second.evaluate()
    assert sum(len(state.personal) for state in states.values()) == 5 * 4
    assert {int(state.participations) for state in states.values()} == {0, 1}
    assert [found[name] for name in ("ga", "pa_before")] == [
        expected[name] for name in ("ga", "pa_before")
    ]


def saved_weights(directory):
    """The trained weights in the newest checkpoint of a run."""
    with np.load(max((directory / "checkpoints").glob("*.npz"))) as arrays:
        names = sorted(name for name in arrays if name.startswith("server/weights/trainable/"))
        return [arrays[name] for name in names]


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("name", support.rare_but(["ditto"], ["ditto", "apfl", "pfedme"]))
def test_networks_that_begin_with_the_global_model_do_so(name, store, trained, options, tmp_path):
    """Where the other run has none; also of clients that take part only after a resumption."""
    directory = trained("fedavg")
    weights = saved_weights(directory)
    options = dataclasses.replace(options, client_store=store)
    config = of(name, directory, model_seed=9, clients_per_round=2)
    with stopped_in_round(2):
        run_experiment(config, tmp_path / "run", options)
    with restore_run(config, tmp_path / "run", options).simulation as simulation:
        kept = [simulation.store.get(client) for client in range(5)]
    begun = [state for state in kept if not state.participations]
    assert len(begun) == 3
    for state in begun:
        own = state.own["theta"] if name == "pfedme" else state.personal[: len(weights)]
        support.assert_trees_equal(list(own), weights)


def test_clients_that_have_not_taken_part_go_on_as_the_others(compute):
    """If both methods keep networks: each client begins with what it had."""
    with Simulation(of("ditto"), compute=compute) as first:
        first.next_round()
        before = [first.store.get(client) for client in range(5)]
    states = {client: state for client, state in enumerate(before) if state.participations}
    assert len(states) == 3
    initial = InitialWeights(first.state.weights, states)
    config = of("ditto", clients_per_round=1, cohort_seed=4)
    with Simulation(config, initial=initial, compute=compute) as second:
        for _ in range(2):
            for client, state in enumerate(before):
                kept = second.store.get(client)
                if kept.participations == state.participations:
                    support.assert_trees_equal(kept.personal, state.personal)
            second.next_round()
        taken_part = [second.store.get(client).participations for client in range(5)]
        assert sum(taken_part) == 3 + 2


def test_the_head_of_such_a_run_can_be_calibrated(trained, options, tmp_path):
    config = of("fedprox", trained("fedavg"))
    before = run_experiment(config, tmp_path / "run", options)
    calibrated = config.with_settings(head_calibration="creff", creff_epochs=1)
    after = calibrate_run(config, calibrated, tmp_path / "run", tmp_path / "calibrated", options)
    assert (after["rounds"], after["ga_fedprox_final"]) == (3, before["ga_final"])


def test_clients_do_not_start_from_a_re_trained_head(compute):
    """They go on with the method's own weights, as they do without a head calibration."""
    ended = []
    for name in ("none", "creff"):
        settings = {} if name == "none" else {"creff_epochs": 2, "creff_matching_steps": 1}
        config = of("fedprox", head_calibration=name, **settings)
        with Simulation(config, compute=compute) as first:
            first.next_round()
            first.next_round()
            initial = InitialWeights(first.state.weights)
        with Simulation(config, initial=initial, compute=compute) as second:
            second.next_round()
            ended.append(second.state.weights["trainable"])
    plain, both = ended
    # The global model is before that of the method.
    own = both[len(plain) :]
    assert len(own) == len(plain) == 6
    for found, wanted in zip(own, plain, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_networks_of_clients_do_not_begin_with_a_re_trained_head(compute):
    """Ditto's begin with the weights that clients have trained."""
    calibration = {"head_calibration": "creff", "creff_epochs": 2, "creff_matching_steps": 1}
    with Simulation(of("fedavg", **calibration), compute=compute) as first:
        first.next_round()
        first.next_round()
    weights = first.state.weights["trainable"]
    # A backbone of two layers and a head: first those of the global model.
    own, shown = weights[6:], weights[:6]
    assert len(own) == 6
    assert not np.array_equal(own[4], shown[4])
    initial = InitialWeights(first.state.weights)
    with Simulation(of("ditto", **calibration), initial=initial, compute=compute) as second:
        support.assert_trees_equal(list(second.store.get(0).personal), own)


def test_drawn_weights_may_be_given(compute):
    """A method and its calibrated model start equal, as they do without given weights."""
    config = of("fedavg", head_calibration="creff", creff_epochs=2, creff_matching_steps=1)
    losses = []
    with Simulation(config, compute=compute) as drawn:
        weights = drawn.state.weights
        losses.append(drawn.next_round()["train_loss"])
    initial = InitialWeights(weights, trained=False)
    with Simulation(config, initial=initial, compute=compute) as given:
        losses.append(given.next_round()["train_loss"])
    assert losses[0] == losses[1]


def test_a_run_that_has_trained_nothing_hands_on_drawn_weights(options, tmp_path, monkeypatch):
    """Its method and its calibrated model go on as equals, as in a run with the same seeds."""
    config = of("fedavg", head_calibration="creff", creff_epochs=2, creff_matching_steps=1)
    drawn, other = (config.with_settings(model_seed=seed, rounds=1) for seed in (9, 0))
    with monkeypatch.context() as patch:
        # All clients drop out.
        patch.setattr(LocalWork, "drops_out", lambda work, seed: True)
        run_experiment(drawn, tmp_path / "drawn", options)
    run_experiment(drawn, tmp_path / "plain", options)
    warm = other.with_settings(warm_start=str(tmp_path / "drawn"))
    run_experiment(warm, tmp_path / "warm", options)
    found, wanted = (rows(tmp_path / name)[0]["train_loss"] for name in ("warm", "plain"))
    assert found == wanted


def test_a_simulation_does_not_ignore_the_setting(trained, compute):
    with (
        Simulation(of("fedprox", trained("fedavg")), compute=compute) as simulation,
        refuses("warm_start", "only a `Run` reads these weights"),
    ):
        simulation.next_round()


def test_runs_without_it_are_the_same_experiments(trained):
    plain, warm = of("fedprox"), of("fedprox", trained("fedavg"))
    settings = {name: value for name, value in plain.to_settings().items() if name != "warm_start"}
    earlier = ExperimentConfig.from_record(settings)
    assert earlier.digest() == plain.digest() != warm.digest()
    assert "warm_start" in run_directory.path_settings()


def test_a_finished_run_does_not_look_at_the_other_one(trained, options, tmp_path):
    shutil.copytree(trained("fedavg"), tmp_path / "other")
    config = of("fedprox", tmp_path / "other")
    summary = run_experiment(config, tmp_path / "run", options)
    shutil.rmtree(tmp_path / "other")
    warm_start.check([(config, tmp_path / "run")], overwrite=False)
    assert run_experiment(config, tmp_path / "run", options) == summary
    with refuses("warm_start", "holds no run"):
        run_experiment(config, tmp_path / "run", options, overwrite=True)
    assert (tmp_path / "run" / "summary.json").exists()
