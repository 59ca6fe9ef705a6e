"""The checkpoint of the round that is best on held-out samples is kept beside the newest ones."""

import contextlib
import dataclasses
import json
import types
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, StoppedError, assert_same_run, rows, stopped_in_round
from tff_pcdd.errors import DamagedFileError
from tff_pcdd.experiment.client_store import MemoryStore
from tff_pcdd.training import (
    History,
    callbacks,
    evaluate_run,
    manifests,
    restore_run,
    run_experiment,
)
from tff_pcdd.training.callbacks import SaveCheckpoints
from tff_pcdd.training.checkpoints import CheckpointManager
from tff_pcdd.training.disk_store import DiskStore
from tff_pcdd.training.summary import best_round

# Which of the clients 0, 1 and 2 take part in the rounds 1 to 6.
COHORTS = ((0, 1, 2), (0,), (0, 1), (0,), (0, 1), (0,))


def state(value):
    return OrderedDict(personal=[np.full(2, value, np.float32)])


class Rounds:
    """Rounds without training: each client keeps the number of the last one that it took part in.

    Args:
        directory: of the checkpoints and of the client states.
        values: the accuracy on held-out samples in each round; None if it was not measured.
        every, keep: rounds between two checkpoints, and how many are kept.
        config: the settings of the run.
        on_disk: whether the client states are.
    """

    def __init__(self, directory, values, every=1, keep=1, config=None, *, on_disk=True):
        self.config = config or CONFIG
        self.directory, self.values = directory, values
        self.history = History(["round", "va", "va_personal", "pa", "last_lost_round"])
        store = DiskStore(state, directory / "client_states") if on_disk else MemoryStore(state)
        self.simulation = types.SimpleNamespace(round=0, state=state(0), totals={}, store=store)
        self.manager = CheckpointManager(directory / "checkpoints", keep)
        self._save = SaveCheckpoints(self.manager, every)

    def is_due(self, every):
        return self.simulation.round % every == 0 or self.simulation.round == len(self.values)

    def restore(self):
        loaded = self.manager.load(state(0), state(0), self.simulation.store)
        self.simulation.round = loaded.round
        for row in History.parse(loaded.metrics):
            self.history.append(row)
        self.manager.forget_after(loaded.round)
        self.simulation.store.forget_after(loaded.round)
        self._save.on_start(self)

    def next_round(self, **further):
        self.simulation.round += 1
        number = self.simulation.round
        for client in COHORTS[number - 1]:
            self.simulation.store.put(client, state(number), number)
        row = {"round": number, "va": self.values[number - 1], "pa": 50.0, **further}
        self._save.on_round(self, self.history.append(row))

    def finish(self):
        """All rounds that are left."""
        while self.simulation.round < len(self.values):
            self.next_round()
        return self

    def names_of_arrays(self):
        return sorted(name for name in self.files() if name.endswith(".npz"))

    def files(self):
        """The files of checkpoints and states by name; those of a manifest without its contents."""
        return {
            path.relative_to(self.directory).as_posix(): path.read_bytes()
            for path in self.directory.rglob("*.*")
        }


@pytest.mark.parametrize(
    ("values", "every", "keep", "expected"),
    [
        # Without held-out samples, the newest only.
        ((None,) * 6, 1, 2, [5, 6]),
        ((None,) * 6, 4, 2, [4, 6]),
        # The earliest of the best, also among the newest.
        ((10, 30, 20, 30, 10, 5), 1, 1, [2, 6]),
        ((10, 30, 20, 30, 10, 5), 1, 3, [2, 4, 5, 6]),
        ((10, 30, 20, 30, 40, 5), 1, 3, [4, 5, 6]),
        ((10, 30, 20, 30, 40, 50), 1, 1, [6]),
        ((10, None, None, 5, None, None), 1, 1, [1, 6]),
        # Rounds 1 to 3 are the best so far, and none of them is a multiple of 4.
        ((10, 20, 30, 5, 5, 5), 4, 1, [3, 6]),
        ((10, 20, 30, 5, 5, 5), 4, 3, [3, 4, 6]),
        ((10, 20, 5, 30, 5, 5), 4, 9, [1, 2, 4, 6]),
    ],
)
def test_which_checkpoints_are_kept(values, every, keep, expected, tmp_path):
    run = Rounds(tmp_path, values, every, keep).finish()
    assert run.manager.rounds() == expected
    assert manifests.rounds(tmp_path / "checkpoints") == expected


@pytest.mark.parametrize("values", [(None,) * 6, (10, 20, 30, 5, 5, 5)])
def test_few_rounds_are_looked_at_after_each(values, tmp_path, monkeypatch):
    """The current one, the best so far and those with a checkpoint: here at most two of them."""
    looked_at = []

    def counted(config, history):
        rows = list(history)
        looked_at.append(len(rows))
        return best_round(config, rows)

    monkeypatch.setattr(callbacks, "best_round", counted)
    Rounds(tmp_path, values, every=4).finish()
    assert max(looked_at) <= 3


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # By the global model. Round 3 was lost, and in round 4 the personal models were not
        # evaluated.
        ({"personal_eval_every": None}, 2),
        ({"personal_eval_every": 1}, 4),
        # `local` trains no global model.
        ({"algorithm": "local", "personal_eval_every": None}, 1),
    ],
)
def test_by_what_rounds_are_compared(settings, expected):
    history = [
        {"round": 1, "va": 10.0, "va_personal": 90.0, "last_lost_round": 0},
        {"round": 2, "va": 20.0, "va_personal": 80.0, "last_lost_round": 0},
        {"round": 3, "va": 99.0, "va_personal": 99.0, "last_lost_round": 3},
        {"round": 4, "va": 50.0, "va_personal": None, "last_lost_round": 3},
    ]
    config = CONFIG.with_settings(fedgela_scale=None, **{"algorithm": "fedavg", **settings})
    assert best_round(config, history) == expected


BEST_IS_3 = (10, 20, 30, 5, 5, 5)


def test_states_on_disk_are_those_of_the_best_and_of_the_newest(tmp_path):
    """None of the rounds between; at most one further state of each client."""
    run = Rounds(tmp_path, BEST_IS_3).finish()
    assert run.names_of_arrays() == [
        "checkpoints/round_000003.npz",
        "checkpoints/round_000006.npz",
        # Client 2 took part in round 1 only.
        "client_states/round_000001/client_000002.npz",
        "client_states/round_000003/client_000000.npz",
        "client_states/round_000003/client_000001.npz",
        "client_states/round_000005/client_000001.npz",
        "client_states/round_000006/client_000000.npz",
    ]
    for number, kept in ((3, [3, 3, 1]), (6, [6, 5, 1])):
        run.manager.load(state(0), state(0), run.simulation.store, number)
        for client, value in enumerate(kept):
            assert run.simulation.store.get(client)["personal"][0][0] == value


def test_a_better_round_takes_the_place_of_the_best(tmp_path):
    run = Rounds(tmp_path, (10, 20, 30, 5, 40, 5)).finish()
    assert run.names_of_arrays() == [
        "checkpoints/round_000005.npz",
        "checkpoints/round_000006.npz",
        "client_states/round_000001/client_000002.npz",
        "client_states/round_000005/client_000000.npz",
        "client_states/round_000005/client_000001.npz",
        "client_states/round_000006/client_000000.npz",
    ]


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("values", [BEST_IS_3, (10, 20, 30, 5, 40, 5), (None,) * 6])
@pytest.mark.parametrize(("every", "keep"), [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_restarts_between_all_rounds_leave_the_same_files(values, every, keep, on_disk, tmp_path):
    whole = Rounds(tmp_path / "whole", values, every, keep, on_disk=on_disk).finish()
    number = 0
    while number < len(values):
        run = Rounds(tmp_path / "run", values, every, keep, on_disk=on_disk)
        if number:
            run.restore()
        # Until the next checkpoint.
        while not run.manager.rounds() or run.manager.rounds()[-1] <= number:
            run.next_round()
        number = run.simulation.round
    assert run.files() == whole.files()


@pytest.mark.parametrize("where", ["arrays", "manifest", "deletion", "states"])
@pytest.mark.parametrize("killed", [3, 4, 5])
@pytest.mark.parametrize("values", [BEST_IS_3, (10, 20, 30, 5, 40, 5)])
def test_a_kill_while_a_checkpoint_is_saved_leaves_the_same_files(
    values, killed, where, tmp_path, monkeypatch
):
    whole, run = Rounds(tmp_path / "whole", values).finish(), Rounds(tmp_path / "run", values)
    for _ in range(killed - 1):
        run.next_round()
    owner, name = {
        "arrays": (DiskStore, "snapshot"),
        "manifest": (manifests, "write"),
        "deletion": (CheckpointManager, "_delete"),
        "states": (DiskStore, "forget_before"),
    }[where]

    def kill(*_):
        raise StoppedError

    # No checkpoint is deleted where the one before is the best.
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        with contextlib.suppress(StoppedError):
            run.next_round()
    run = Rounds(tmp_path / "run", values)
    run.restore()
    assert run.finish().files() == whole.files()


def test_the_best_is_used_if_the_newest_is_damaged(tmp_path, caplog):
    Rounds(tmp_path, BEST_IS_3).finish()
    (tmp_path / "checkpoints" / "round_000006.npz").write_bytes(b"cut")
    again = Rounds(tmp_path, BEST_IS_3)
    again.restore()
    assert again.simulation.round == 3
    assert "using the checkpoint of round 3; lost: rounds 4 to 6" in caplog.text
    found = again.finish().files()
    assert found == Rounds(tmp_path / "whole", BEST_IS_3).finish().files()


# Runs that train.


# On held-out samples, round 2 of six is the best.
HELD_OUT = CONFIG.with_settings(validation_fraction=0.25, batch_size=4, seed=2, rounds=6)


@pytest.fixture(scope="module", params=["memory", "disk"])
def trained(request, options, shared_computations, tmp_path_factory):
    """A run that keeps one checkpoint, and the best one; its options."""
    directory = tmp_path_factory.mktemp("runs") / request.param
    options = dataclasses.replace(options, client_store=request.param, keep_checkpoints=1)
    run_experiment(HELD_OUT, directory, options)
    return directory, options


def arrays(directory):
    """The arrays of all checkpoints, and the client states."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*.npz")
    }


@pytest.mark.integration
@pytest.mark.usefixtures("shared_computations")
class TestRuns:
    def test_the_best_round_can_be_evaluated(self, trained):
        directory, options = trained
        values = [float(row["va"]) for row in rows(directory)]
        assert int(np.argmax(values)) == 1
        assert manifests.rounds(directory / "checkpoints") == [2, 6]
        results = evaluate_run(HELD_OUT, directory, options, "best")
        (directory / "evaluation.json").unlink()
        row = rows(directory)[1]
        assert results["round"] == 2
        for name, value in results["accuracies"].items():
            assert f"{value:.9g}" == row[name], name
        assert json.loads((directory / "summary.json").read_text())["best_round"] == 2

    def test_it_is_that_of_a_run_that_keeps_all(self, trained, tmp_path):
        directory, options = trained
        every = dataclasses.replace(options, keep_checkpoints=6)
        run_experiment(HELD_OUT, tmp_path / "every", every)
        one, other = (
            restore_run(HELD_OUT, place, options, number).simulation
            for place, number in ((directory, "best"), (tmp_path / "every", 2))
        )
        for kept, same in zip(
            *(
                tf.nest.flatten([run.state, *(run.store.get(k) for k in run.store.clients)])
                for run in (one, other)
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(kept, same)

    @pytest.mark.parametrize("stopped", [2, 3, 6])
    def test_an_interrupted_run_ends_with_the_same_files(self, stopped, trained, tmp_path):
        directory, options = trained
        with stopped_in_round(stopped):
            run_experiment(HELD_OUT, tmp_path / "run", options)
        run_experiment(HELD_OUT, tmp_path / "run", options)
        assert_same_run(tmp_path / "run", directory)
        assert arrays(tmp_path / "run") == arrays(directory)

    def test_a_run_that_is_stopped_early_keeps_it(self, options, tmp_path):
        """Patience runs out in round 4; one more round follows."""
        config = HELD_OUT.with_settings(early_stopping_patience=2)
        run_experiment(config, tmp_path, dataclasses.replace(options, keep_checkpoints=1))
        assert manifests.rounds(tmp_path / "checkpoints") == [2, 5]
        assert restore_run(config, tmp_path, options, "best").simulation.round == 2

    def test_more_rounds_go_on_from_it(self, options, tmp_path, caplog):
        """The last of four rounds was evaluated as such, and no other newest round was kept."""
        longer = HELD_OUT.with_settings(personal_eval_every=0)
        options = dataclasses.replace(options, keep_checkpoints=1)
        run_experiment(longer, tmp_path / "whole", options)
        run_experiment(longer.with_settings(rounds=4), tmp_path / "run", options)
        run_experiment(longer, tmp_path / "run", options)
        said = (
            "round 4, the last one of 4 planned rounds, is computed again, with those from round 3"
        )
        assert said in caplog.text
        assert arrays(tmp_path / "run") == arrays(tmp_path / "whole")

    def test_a_damaged_one_is_refused(self, trained, tmp_path):
        run_experiment(HELD_OUT, tmp_path, trained[1])
        (tmp_path / "checkpoints" / "round_000002.npz").write_bytes(b"cut")
        with pytest.raises(DamagedFileError, match=r"round_000002\.npz is damaged"):
            evaluate_run(HELD_OUT, tmp_path, trained[1], "best")

    def test_what_is_not_there_is_refused(self, unbroken, trained, options):
        with refuses("checkpoint_round", "no round was measured on held-out samples"):
            restore_run(CONFIG, unbroken, options, "best")
        with refuses("checkpoint_round", "must be the number of a round, or best"):
            restore_run(CONFIG, unbroken, options, "last")
