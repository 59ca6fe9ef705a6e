"""Runs that are killed before any of their file operations, and started again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from tests.faults import bench, disk
from tests.faults.bench import Results
from tests.faults.case import Case
from tests.faults.recording import Moment, Recorder, Tree, read_tree, write_tree

# What is overwritten: a finished run with other settings, and the other store.
_OTHER = bench.with_settings(rounds=2, cohort_seed=9)
_OTHER_STORE = {"memory": "disk", "disk": "memory"}


def cases(directory: Path) -> Iterator[Case]:
    for store in bench.STORES:
        expected = bench.reference(directory / f"expected_{store}", store)
        for overwrite in (False, True):
            root = directory / f"killed_{store}_{overwrite}"
            run = root / "run"
            root.mkdir()
            if overwrite:
                bench.train(run, _OTHER_STORE[store], config=_OTHER)
            recorder = Recorder(root, _states)
            with recorder.recording():
                bench.train(run, store, overwrite=overwrite)
            how = "killed overwrite" if overwrite else "killed run"
            for moment in recorder.moments:
                check = functools.partial(_resume, moment, store, overwrite, expected)
                yield Case(how, f"{store}, {moment.name}", check)


def _states(recorder: Recorder, operation: str, path: Path) -> Iterator[tuple[str, Tree]]:
    """The directory as it is, and with the last file written in part."""
    tree = read_tree(recorder.root)
    yield "", tree
    if operation == disk.SYNC and path.is_file():
        name = str(path.relative_to(recorder.root))
        yield ", half-written", {**tree, name: path.read_bytes()[:-7]}


def _resume(moment: Moment, store: str, overwrite: bool, expected: Results, directory: Path) -> str:
    """The same command again gives the results of a run that was not killed."""
    write_tree(moment.tree, directory)
    with bench.warnings() as messages:
        bench.train(directory / "run", store, overwrite=overwrite)
    return bench.compare(directory / "run", expected, messages)
