"""Clients without training samples, without test samples, or without any.

Own data of which a site lacks samples are read with the right samples for each site, or refused in
one line. Runs of all methods with such clients end with finite results; the tables leave accuracies
of clients without test samples out, also of means, and a client without any sample changes nothing.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests import support
from tests.faults.case import SAME, Case, SilentDifference
from tests.faults.mutations import refusals
from tests.support import write_image
from tests.training.runs import SharedRuntime
from tff_pcdd import data, methods, runtime
from tff_pcdd.federated import aggregators
from tff_pcdd.training import ComputeOptions, ExperimentConfig, RunOptions, run_experiment

# Methods whose server or clients keep a state, or send more than weights, one for each shape.
_METHODS = (
    *("fedavg", "scaffold", "feddyn", "fedproto", "fedper", "fedgela", "ditto", "fedpac"),
    *("fedgen", "moon", "local", "central", "fednova", "apfl", "pfedme", "fedrod"),
)
# Methods that are combined with every aggregator; the state of the others is added up alike.
_WITH_EVERY_AGGREGATOR = ("scaffold", "fedproto", "fedper")


def cases(directory: Path) -> Iterator[Case]:
    """Every format of own data, and every method, with clients that lack samples."""
    del directory
    for format, lack in itertools.product(_FORMATS, _LACKS):
        check = functools.partial(_check_data, format, lack)
        yield Case("own data with sites that lack samples", f"{format}, {lack}", check)
    for method in methods.names():
        check = functools.partial(_check_unchanged, method)
        yield Case("client without any sample", method, check)
    shapes = itertools.cycle(itertools.product(_SHAPES, (0, 2)))
    runs = [(method, "mean") for method in _METHODS]
    runs += itertools.product(_WITH_EVERY_AGGREGATOR, aggregators.names())
    for (method, aggregator), (shape, cohort) in zip(runs, shapes, strict=False):
        check = functools.partial(_check_run, method, aggregator, shape, cohort)
        name = f"{method}, {aggregator}, {shape}, {cohort or 'all'} of 5 in a round"
        yield Case("runs with clients that lack samples", name, check)


# Own data.


class _Row(NamedTuple):
    site: str
    part: str
    label: str
    value: float | None


def _rows() -> list[_Row]:
    """Four sites with three classes; the last site has the fewest samples."""
    draw = np.random.default_rng(0)
    found = []
    for site, size in zip("abcd", (12, 9, 9, 6), strict=True):
        parts = itertools.cycle(("train", "train", "test"))
        labels = itertools.cycle("xxxyyyzzz")
        found += [_Row(site, next(parts), next(labels), float(draw.random())) for _ in range(size)]
    return found


def _only(part: str, rows: list[_Row]) -> list[_Row]:
    return [row for row in rows if row.site != "d" or row.part == part]


def _empty(sites: str, rows: list[_Row]) -> list[_Row]:
    return [row._replace(value=None) if row.site in sites else row for row in rows]


def _without(part: str, rows: list[_Row]) -> list[_Row]:
    return [row for row in rows if row.part != part]


# What some sites lack: how the rows change, and settings.
_LACKS: dict[str, tuple[Callable[[list[_Row]], list[_Row]], dict[str, Any]]] = {
    "nothing": (lambda rows: rows, {}),
    "training samples": (functools.partial(_only, "test"), {}),
    "test samples": (functools.partial(_only, "train"), {}),
    "all but one sample": (lambda rows: [row for row in rows if row.site != "d"] + rows[-1:], {}),
    "training samples at all sites": (functools.partial(_without, "train"), {}),
    "test samples at all sites": (functools.partial(_without, "test"), {}),
    "samples for min_site_samples": (lambda rows: rows, {"min_site_samples": 8}),
    "samples for min_site_samples, all": (lambda rows: rows, {"min_site_samples": 13}),
    "values at one site": (functools.partial(_empty, "d"), {"missing": "drop"}),
    "values at one site, refused": (functools.partial(_empty, "d"), {}),
    "values at all sites": (functools.partial(_empty, "abcd"), {"missing": "drop"}),
    "all samples": (lambda rows: [], {}),
}


def _of_csv(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    path = directory / "a.csv"
    names = ["site", "split", "label", "a"]
    path.write_text("\n".join([",".join(names), *(_line(row) for row in rows)]) + "\n")
    return data.load_federation(
        *("table", "natural"), data_dir=str(path), feature_columns="a", **settings
    )


def _line(row: _Row) -> str:
    return ",".join("" if value is None else str(value) for value in row)


def _of_chosen_parts(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    """A table that does not say which samples are for testing."""
    return _of_csv(rows, directory, split_column="none", **settings)


def _of_parquet(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    import pandas as pd

    path = directory / "a.parquet"
    frame = pd.DataFrame(rows, columns=["site", "split", "label", "a"]).astype({"a": float})
    frame.to_parquet(path, index=False)
    return data.load_federation(
        *("table", "natural"), data_dir=str(path), feature_columns="a", **settings
    )


def _arrays(rows: Sequence[_Row]) -> dict[str, np.ndarray]:
    return {
        "x": np.array([row.value for row in rows], float).reshape(-1, 1),
        "y": np.array([row.label for row in rows], str),
        "site": np.array([row.site for row in rows], str),
        "split": np.array([row.part for row in rows], str),
    }


def _of_npz(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    path = directory / "a.npz"
    np.savez(path, **_arrays(rows))
    return data.load_federation("npz", "natural", data_dir=str(path), **settings)


def _of_arrays(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    del directory
    arrays = _arrays(rows)
    return data.from_arrays(*(arrays[name] for name in ("x", "y", "site", "split")), **settings)


def _of_frame(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    import pandas as pd

    del directory
    frame = pd.DataFrame(rows, columns=["site", "split", "label", "a"])
    return data.from_dataframe(frame, feature_columns="a", **settings)


def _of_folder(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    """Images of one grey; a missing value is a file that is no image."""
    for number, row in enumerate(rows):
        path = directory / "photos" / row.part / row.site / row.label / f"{number}.png"
        write_image(path, 4, 4, number * 5)
        if row.value is None:
            path.write_bytes(b"")
    (directory / "photos").mkdir(exist_ok=True)
    if "missing" in settings:
        settings = {**settings, "skip_broken_images": True}
        del settings["missing"]
    return data.load_federation(
        *("folder", "natural"), data_dir=str(directory / "photos"), **settings
    )


def _of_leaf(rows: Sequence[_Row], directory: Path, **settings: Any) -> data.Federation:
    """LEAF's files name all users; one without samples has empty lists."""
    # There are no missing values in these files, and no settings for them.
    del settings
    rows = [row for row in rows if row.value is not None]
    for part in ("train", "test"):
        users = {
            site: {
                "x": [[round(row.value or 0, 3)] * 784 for row in rows if row[:2] == (site, part)],
                "y": ["xyz".index(row.label) for row in rows if row[:2] == (site, part)],
            }
            for site in "abcd"
        }
        sizes = [len(user["y"]) for user in users.values()]
        text = {"users": [*users], "num_samples": sizes, "user_data": users}
        (directory / part).mkdir()
        (directory / part / "data.json").write_text(json.dumps(text))
    return data.load_federation("femnist", "natural", data_dir=str(directory))


_FORMATS = {
    "csv": _of_csv,
    "csv without parts": _of_chosen_parts,
    "parquet": _of_parquet,
    "npz": _of_npz,
    "arrays": _of_arrays,
    "data frame": _of_frame,
    "folder": _of_folder,
    "LEAF": _of_leaf,
}


def _check_data(format: str, lack: str, directory: Path) -> str:
    change, settings = _LACKS[lack]
    rows = change(_rows())
    with refusals() as outcomes:
        made = _FORMATS[format](rows, directory, **settings)
        outcomes.append(SAME)
    if outcomes == [SAME]:
        least = settings.get("min_site_samples", 1) if format != "LEAF" else 1
        _compare(made, [row for row in rows if row.value is not None], least, format)
    return outcomes[0]


def _compare(made: data.Federation, rows: Sequence[_Row], least: int, format: str) -> None:
    """Every site has its samples, and sites without any are no clients."""
    sizes = collections.Counter(row.site for row in rows)
    wanted = {}
    for site in sorted(site for site, size in sizes.items() if size >= least):
        parts = collections.Counter(row.part for row in rows if row.site == site)
        wanted[site] = parts["train"], parts["test"]
    found = {client.client_id: (client.train.size, client.test.size) for client in made.clients}
    if format == "csv without parts":
        wanted = {site: sum(parts) for site, parts in wanted.items()}
        found = {site: sum(parts) for site, parts in found.items()}
    if found != wanted:
        raise SilentDifference(f"{found} instead of {wanted}")


# Runs.

# For each client of the tiny federation, whether it keeps its training and its test samples; the
# last one has no training samples anyway.
_SHAPES = {
    "one without training samples": ("11111", "11111"),
    "one without test samples": ("11110", "10111"),
    "one without any sample": ("11110", "11110"),
    "one that trains": ("10000", "11111"),
    "one that is tested": ("11110", "01000"),
    "one that trains, another that is tested": ("01000", "10000"),
    "nobody trains": ("00000", "11111"),
    "nobody is tested": ("11111", "00000"),
}


def _federation(shape: str) -> data.Federation:
    made = support.federation()
    trains, tests = _SHAPES[shape]
    clients = []
    for client, train, test in zip(made.clients, trains, tests, strict=True):
        kept = {"train": client.train, "test": client.test}
        for part, keep in zip(kept, (train, test), strict=True):
            if keep == "0":
                kept[part] = kept[part][:0]
        clients.append(dataclasses.replace(client, **kept))
    return dataclasses.replace(made, clients=tuple(clients))


@functools.cache
def _options() -> RunOptions:
    shared = SharedRuntime(runtime.create("inprocess").create_context())
    return RunOptions(compute=ComputeOptions(runtime=shared), progress=False, tensorboard=False)


def _config(method: str, made: data.Federation, aggregator: str = "mean", cohort: int = 0):
    return ExperimentConfig.from_settings(
        algorithm=method,
        aggregator=aggregator,
        model="mlp",
        num_clients=made.num_clients,
        partition="iid",
        clients_per_round=cohort,
        rounds=3,
        local_epochs=1,
        batch_size=4,
        client_learning_rate=0.05,
    )


def _check_run(method: str, aggregator: str, shape: str, cohort: int, directory: Path) -> str:
    made = _federation(shape)
    with refusals() as outcomes:
        config = _config(method, made, aggregator, cohort)
        summary = run_experiment(config, directory / "run", _options(), federation=made)
        outcomes.append(SAME)
    if outcomes == [SAME]:
        _judge(directory / "run", made, summary)
    return outcomes[0]


def _table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def _judge(run: Path, made: data.Federation, summary: dict[str, Any]) -> None:
    """Compares the tables of a run with the clients' numbers of samples, and with each other."""
    if summary["diverged"] or summary["nonfinite_rounds"]:
        raise SilentDifference("values that are not finite")

    def refuse(constant: str) -> None:
        raise SilentDifference(f"summary.json holds {constant}")

    json.loads((run / "summary.json").read_text(), parse_constant=refuse)
    rounds = _table(run / "metrics.csv")
    for name, text in itertools.chain.from_iterable(row.items() for row in rounds):
        if text and not math.isfinite(float(text)):
            raise SilentDifference(f"{name} is {text}")
    accuracies = collections.defaultdict(list)
    rows = _table(run / "clients.csv")
    for row, client in zip(rows, made.clients, strict=True):
        sizes = int(row["train_samples"]), int(row["test_samples"])
        if sizes != (client.train.size, client.test.size):
            raise SilentDifference(f"{row['client']} has {sizes} samples")
        for column in ("pa", "pa_before", "ga"):
            if bool(row[column]) > bool(client.test.size):
                raise SilentDifference(f"{row['client']} has {column}={row[column]}")
            if row[column]:
                accuracies[column].append(float(row[column]))
        for size, what in zip(sizes, ("no training samples", "no test samples"), strict=True):
            if (what in row["warning"]) != (size == 0):
                raise SilentDifference(f"{row['client']}: the warning is {row['warning']!r}")
    for column in ("pa", "pa_before"):
        stated, values = summary[f"{column}_final"], accuracies[column]
        if stated is None and not values:
            continue
        if stated is None or not math.isclose(stated, np.mean(values), abs_tol=1e-4):
            raise SilentDifference(f"{column} is {stated}, and the clients have {values}")


def _check_unchanged(method: str, directory: Path) -> str:
    """The clients train to the same numbers whether or not there is one without any sample."""
    more = _federation("one without any sample")
    fewer = dataclasses.replace(more, clients=more.clients[:-1])
    with refusals() as outcomes:
        found = []
        for name, made in (("more", more), ("fewer", fewer)):
            config = _config(method, made)
            summary = run_experiment(config, directory / name, _options(), federation=made)
            _judge(directory / name, made, summary)
            rows = _table(directory / name / "metrics.csv")
            columns = _MEASURED if config.method.has_global_model else _PERSONAL
            found.append([[row[column] for column in columns if column in row] for row in rows])
        outcomes.append(SAME)
    if outcomes == [SAME] and found[0] != found[1]:
        raise SilentDifference(f"{found[0]} instead of {found[1]}")
    return outcomes[0]


# Columns of metrics.csv that say how good the models are. Without a global model, GA is the mean
# over the personal models of all clients, also of one that never trains.
_PERSONAL = ("loss", "pa", "pa_before")
_MEASURED = ("ga", *_PERSONAL)
