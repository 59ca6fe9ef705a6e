"""Power cuts during a run: what was not synchronized is gone, wholly or in part.

A file then has the contents it had when it was last synchronized, and so do the names in a
directory. File systems may keep more than that, of names more often than of contents. Whatever was
reported before the cut, a saved round or a finished run, has to be there.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from tests.faults import bench
from tests.faults.bench import Results
from tests.faults.case import Case, SilentDifference
from tests.faults.recording import Moment, Recorder, Tree, write_tree
from tff_pcdd.training.checkpoints import CheckpointManager

_FINISHED = 99


def cases(directory: Path) -> Iterator[Case]:
    for store in bench.STORES:
        root = directory / f"power_{store}"
        root.mkdir()
        recorder = Recorder(root, functools.partial(_states, random.Random(0)))
        with recorder.recording(), _reporting(recorder):
            bench.train(root / "run", store)
            recorder.reported = _FINISHED
        expected = bench.results(root / "run")
        for moment in recorder.moments:
            check = functools.partial(_resume, moment, store, expected)
            yield Case("power cut", f"{store}, {moment.name}", check)


def _states(
    draw: random.Random, recorder: Recorder, operation: str, path: Path
) -> Iterator[tuple[str, Tree]]:
    del operation, path

    def never() -> bool:
        return False

    def always() -> bool:
        return True

    def sometimes() -> bool:
        return draw.random() < 0.5

    yield ", nothing else kept", recorder.after_power_cut(never, never)
    yield ", all names kept", recorder.after_power_cut(always, never)
    yield ", all contents kept", recorder.after_power_cut(never, always)
    for number in (1, 2):
        tree = recorder.after_power_cut(sometimes, sometimes)
        yield f", kept at random ({number})", tree


def _reporting(recorder: Recorder) -> mock._patch:
    """Notes which round was saved last."""
    save = CheckpointManager.save

    def noting(self, checkpoint, *others):
        save(self, checkpoint, *others)
        recorder.reported = checkpoint.round

    return mock.patch.object(CheckpointManager, "save", noting)


def _resume(moment: Moment, store: str, expected: Results, directory: Path) -> str:
    """The same command again gives the same results, and computes no saved round again."""
    write_tree(moment.tree, directory)
    run = directory / "run"
    if moment.reported == _FINISHED:
        assert (run / "summary.json").exists(), "the run had finished"
    with bench.warnings() as messages:
        bench.train(run, store)
    outcome = bench.compare(run, expected, messages)
    seconds = bench.results(run).seconds
    for number in range(1, min(moment.reported, len(seconds)) + 1):
        if seconds[number] != expected.seconds[number]:
            raise SilentDifference(f"round {number} had been saved and was computed again")
    return outcome
