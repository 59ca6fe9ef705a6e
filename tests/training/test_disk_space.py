"""The space that checkpoints need is known before a run is trained."""

import dataclasses
import os

import pytest

from tests.training.runs import CONFIG
from tff_pcdd import directories as disks
from tff_pcdd.errors import SettingError
from tff_pcdd.training import Run, disk_space, run_experiment

# Of the server's state and of a client's; CONFIG has 5 clients, 3 of them in each of 4 rounds.
SERVER, CLIENT = 1000, 10


@pytest.mark.parametrize(
    ("store", "keep", "every", "expected"),
    [
        # Three checkpoints are kept, and the fourth is written before the first is deleted.
        ("memory", 3, 1, 4 * (1000 + 5 * 10)),
        ("memory", 1, 1, 2 * (1000 + 5 * 10)),
        ("memory", 9, 1, 4 * (1000 + 5 * 10)),
        ("memory", 3, 4, 1000 + 5 * 10),
        # The newest state of each client, and those of the cohorts of the last rounds.
        ("disk", 1, 1, 2 * 1000 + (5 + 2 * 3) * 10),
        ("disk", 3, 2, 2 * 1000 + (5 + 4 * 3) * 10),
    ],
)
def test_bytes_of_all_checkpoints(options, store, keep, every, expected):
    options = dataclasses.replace(
        options, client_store=store, keep_checkpoints=keep, checkpoint_every=every
    )
    assert disk_space.most_bytes(SERVER, CLIENT, CONFIG, options, 5) == expected


@pytest.mark.parametrize(
    ("store", "keep", "every", "expected"),
    [
        # Two are kept, that of the best round is kept, and the fourth is written.
        ("memory", 1, 1, 3 * (1000 + 5 * 10)),
        ("memory", 2, 1, 4 * (1000 + 5 * 10)),
        # Each round may be the best so far.
        ("memory", 3, 4, 4 * (1000 + 5 * 10)),
        # The newest states and the best ones, and those of the cohorts of the last rounds.
        ("disk", 1, 1, 3 * 1000 + (2 * 5 + 2 * 3) * 10),
    ],
)
def test_the_best_checkpoint_needs_as_much_as_another(options, store, keep, every, expected):
    options = dataclasses.replace(
        options, client_store=store, keep_checkpoints=keep, checkpoint_every=every
    )
    assert disk_space.most_bytes(SERVER, CLIENT, CONFIG, options, 5, keeps_best=True) == expected


@pytest.mark.usefixtures("shared_computations")
def test_a_run_is_refused_before_it_is_trained(options, tmp_path, monkeypatch):
    """The estimate is close to what the run then occupies."""
    needed = []
    monkeypatch.setattr(disks, "check_space", lambda _, size, what: needed.append(size))
    options = dataclasses.replace(options, keep_checkpoints=9)
    run_experiment(CONFIG, tmp_path / "run", options)
    files = (tmp_path / "run" / "checkpoints").iterdir()
    occupied = sum(path.stat().st_size for path in files)
    assert 0.9 * occupied < needed[0] <= 1.1 * occupied

    def refuse(directory, size, what):
        raise SettingError("output_dir", str(directory), f"{what} need more")

    monkeypatch.setattr(disks, "check_space", refuse)
    run = Run(CONFIG, tmp_path / "new", options)
    monkeypatch.setattr(run.simulation, "next_round", lambda: pytest.fail("it was trained"))
    with pytest.raises(SettingError, match="the checkpoints of this run need more"):
        run.train()
    assert os.listdir(tmp_path / "new") == [".lock"]
