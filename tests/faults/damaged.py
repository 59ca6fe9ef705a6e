"""Runs of which every file is damaged, and which are then resumed, repeated, read or exported."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.faults import bench, damage
from tests.faults.bench import Results
from tests.faults.case import REPAIRED, SAME, Case, SilentDifference, one_line
from tests.faults.damage import Damage
from tff_pcdd import data
from tff_pcdd.errors import DataError, SettingError, WriteError
from tff_pcdd.export import ExportOptions, export_run
from tff_pcdd.training import Callback, evaluate_run
from tff_pcdd.training.recovery import read_history, read_summary
from tff_pcdd.training.run_directory import read_config

# What the directories of runs are called in the shared directory.
_FINISHED, _INTERRUPTED, _OTHER_SETTINGS, _OTHER_DATA = "whole", "begun", "settings", "data"
_REPLACED = {_OTHER_SETTINGS: "that of other settings", _OTHER_DATA: "that of other data"}

_CHECKPOINTS = ("checkpoints/round_{:06d}.json", "checkpoints/round_{:06d}.npz")
_TEXTS = (
    "config.json",
    "metrics.csv",
    "summary.json",
    "clients.csv",
    "clients.md",
    "confusion.npz",
    "evaluation.json",
)
_FOLDERS = ("checkpoints", "client_states", "plots", "tensorboard")


@dataclasses.dataclass(frozen=True)
class _Expected:
    """What comes out without damage: of the run, and of its evaluation and export by round."""

    results: Results
    evaluations: Mapping[int, Any]
    exported: Callable[[], Mapping[int, Any]]


def cases(directory: Path) -> Iterator[Case]:
    for store in bench.STORES:
        home = directory / store
        expected = _prepare(home, store)
        plans = {
            "resumed": (_INTERRUPTED, _resume, _files(home / _INTERRUPTED, store)),
            "repeated": (_FINISHED, _repeat, _TEXTS if store == "memory" else ()),
            "evaluated": (_FINISHED, _evaluate, _files(home / _FINISHED, store)),
            "compared": (_FINISHED, _read, _read_files(store)),
            "exported": (_FINISHED, _export, _files(home / _FINISHED, store)),
        }
        for action, (base, act, names) in plans.items():
            found = [*_damages(home, base, names)]
            if action == "exported":
                found = random.Random(0).sample(found, 15)
            for name, harm in found:
                check = functools.partial(
                    _check, home / base, [(name, harm[1])], act, store, expected
                )
                yield Case(f"damaged, then {action}", f"{store}, {name}: {harm[0]}", check)
            if action in ("resumed", "evaluated"):
                yield from _pairs(found, home / base, action, act, store, expected)


def _pairs(found, base, action, act, store, expected) -> Iterator[Case]:
    """Two damaged files at a time."""
    draw = random.Random(1)
    for number in range(30):
        pair = draw.sample(found, 2)
        while pair[0][0].startswith(pair[1][0]) or pair[1][0].startswith(pair[0][0]):
            pair = draw.sample(found, 2)
        harms = [(name, harm[1]) for name, harm in pair]
        shown = " and ".join(f"{name}: {harm[0]}" for name, harm in pair)
        check = functools.partial(_check, base, harms, act, store, expected)
        yield Case(f"damaged, then {action}", f"{store}, pair {number}, {shown}", check)


class _Stop(Callback):
    """Ends the process in round 4, whose row is written, and whose checkpoint is not."""

    def on_round(self, run, row):
        if run.simulation.round == 4:
            raise KeyboardInterrupt


def _prepare(home: Path, store: str) -> _Expected:
    """Makes the runs that are damaged, and those of which files are taken instead."""
    other = dataclasses.replace(
        bench.federation(),
        train=data.Examples(bench.federation().train.x + 1, bench.federation().train.y),
    )
    whole = home / _FINISHED
    bench.train(whole, store, tensorboard=True)
    bench.train(home / _OTHER_DATA, store, clients=other)
    bench.train(home / _OTHER_SETTINGS, store, config=bench.with_settings(rounds=4, cohort_seed=9))
    with contextlib.suppress(KeyboardInterrupt):
        bench.train(home / _INTERRUPTED, store, tensorboard=True, callbacks=[_Stop()])
    evaluations = {number: _evaluation(whole, store, number) for number in (3, 4)}

    @functools.cache
    def exported() -> dict[int, Any]:
        folders = {number: home / f"exported_{number}" for number in (3, 4)}
        return {
            number: _exported(whole, folder, store, number) for number, folder in folders.items()
        }

    for folder in (whole, home / _INTERRUPTED):
        (folder / "evaluation.json").write_text(json.dumps(evaluations[4]))
        (events,) = (folder / "tensorboard").iterdir()
        events.rename(events.with_name("events.out"))
    return _Expected(bench.results(whole), evaluations, exported)


def _files(run: Path, store: str) -> list[str]:
    """The files and folders of a run that are damaged; those that both stores have only once."""
    newest = 4 if (run / _CHECKPOINTS[0].format(4)).exists() else 3
    found = [_CHECKPOINTS[0].format(newest), _CHECKPOINTS[1].format(newest)]
    if store == "memory":
        found += [name for name in _TEXTS if (run / name).exists()]
        found += [name.format(newest - 1) for name in _CHECKPOINTS]
        return [*found, *(name for name in _FOLDERS if (run / name).exists())]
    states = sorted(run.glob("client_states/*/*"))
    found += [str(path.relative_to(run)) for path in states]
    return [*found, "client_states", "tensorboard/events.out"]


def _read_files(store: str) -> list[str]:
    if store == "disk":
        return []
    return ["config.json", "metrics.csv", "summary.json", _CHECKPOINTS[0].format(4), "checkpoints"]


def _damages(home: Path, base: str, names) -> Iterator[tuple[str, tuple[str, Damage]]]:
    """Pairs of a file, and a damage with its name."""
    for name in names:
        for harm in damage.of(Path(name)):
            yield name, harm
        for other, shown in _REPLACED.items():
            if (home / other / name).exists():
                yield name, (shown, damage.replaced_by(home / other / name))


def _check(
    base: Path,
    harms: list[tuple[str, Damage]],
    act: Callable[..., str],
    store: str,
    expected: _Expected,
    directory: Path,
) -> str:
    """Acts on a damaged copy of a run. An error or a warning has to name what is damaged."""
    run = directory / "run"
    shutil.copytree(base, run)
    for name, harm in harms:
        harm(run / name)
    with bench.warnings() as messages:
        try:
            outcome = act(run, store, expected, messages)
        except (SettingError, DataError, WriteError, FileNotFoundError) as error:
            outcome, messages = one_line(error), [str(error)]
    if messages:
        known = [Path(name).name for name, _ in harms]
        if "config.json" in known:
            known += ["different settings", "other settings", "holds no run"]
        assert any(word in text for word in known for text in messages), (known, messages)
        for text in messages:
            one_line(text)
    return outcome


def _resume(run: Path, store: str, expected: _Expected, messages: list[str]) -> str:
    bench.train(run, store, tensorboard=True)
    return bench.compare(run, expected.results, messages)


def _repeat(run: Path, store: str, expected: _Expected, messages: list[str]) -> str:
    summary = bench.train(run, store)
    if bench.without_times(summary) != expected.results.summary:
        raise SilentDifference(f"{summary} instead of {expected.results.summary}")
    return bench.compare(run, expected.results, messages, states=False)


def _evaluate(run: Path, store: str, expected: _Expected, messages: list[str]) -> str:
    found = _evaluation(run, store)
    return _of_a_round(found, expected.evaluations, messages)


def _evaluation(run: Path, store: str, number: int | None = None) -> dict:
    with bench.cheap():
        found = evaluate_run(
            read_config(run), run, bench.options(store), number, federation=bench.federation()
        )
    assert json.loads((run / "evaluation.json").read_text()) == found
    return found


def _of_a_round(found: dict, expected: Mapping[int, Any], messages: list[str]) -> str:
    """The last round, or an earlier one and a warning."""
    number = found["round"]
    if found != expected[number] or (number < max(expected) and not messages):
        raise SilentDifference(f"{found} instead of {expected[number]}")
    return REPAIRED if messages else SAME


def _read(run: Path, store: str, expected: _Expected, messages: list[str]) -> str:
    """What comparisons read; they compute the run again if there is no summary."""
    del store
    summary = read_summary(run)
    rows = [
        bench.without_times({name: bench.written(value) for name, value in row.items()})
        for row in read_history(run)
    ]
    wanted = expected.results.summary
    if rows != expected.results.rows or (summary and bench.without_times(summary) != wanted):
        raise SilentDifference(f"{rows}, {summary}\ninstead of\n{expected.results}")
    return REPAIRED if messages else SAME


def _export(run: Path, store: str, expected: _Expected, messages: list[str]) -> str:
    found = _exported(run, run.parent / "out", store)
    return _of_a_round(found, expected.exported(), messages)


def _exported(run: Path, out: Path, store: str, number: int | None = None) -> dict:
    """The accuracy and the weights of the exported global model."""
    with bench.cheap():
        models = export_run(
            run,
            out,
            ExportOptions(clients="none"),
            bench.options(store),
            round_number=number,
            federation=bench.federation(),
        )
    (card,) = out.rglob("*.md")
    (index,) = out.rglob("variables.index")
    reader = tf.train.load_checkpoint(str(index.with_suffix("")))
    weights = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {
        "round": int(card.read_text().split("## Training\n\n")[1].split(" ")[0]),
        "accuracies": [model.accuracy for model in models],
        # The graph of the objects has another order each time.
        "weights": {
            name: values.tolist()
            for name, values in weights.items()
            if isinstance(values, np.ndarray)
        },
    }
