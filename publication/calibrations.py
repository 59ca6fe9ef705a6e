"""What a calibration of the head adds to each method; see publication.measured.

The runs are those of the comparison, with the settings that were chosen there, so what has been
published of them, by an earlier TensorFlow, stands beside them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from publication.measured import Rows
from publication.published import FINAL, TUNING, read_files
from tff_pcdd import tables as text_tables
from tff_pcdd.findings import read_point
from tff_pcdd.results.reading import Directory
from tff_pcdd.training import ExperimentConfig, RunOptions, run_experiment
from tff_pcdd.training.file_names import SUMMARY

COMPARISON = Path(__file__).parents[1] / "docs" / "comparison"
FEDERATIONS = "digits_p10c2", "fashion_p10c2", "fashion_lt"
SEEDS = 1, 2, 3
# Of the methods of the three papers, which three seeds could not tell from FedAvg.
FIVE_SEEDS = 1, 2, 3, 4, 5
OF_PAPERS = "fedavg", "fedgela", "fedmr", "fedloge"
# Of the methods of the comparison whose global model has a linear head that is trained.
METHODS = "fedavg", "feddecorr", "fedgen", "logitadjust", "fedmr", "fedloge"
WITHOUT = "none"
CALIBRATIONS = WITHOUT, "ccvr", "fednpc"

# Measures of summary.json, with the headings of the page. A calibrated run has a single row, so no
# second half.
_MEASURES = {
    "ga_final": "GA",
    "ga_second_half": "GA, 2nd half",
    "pa_before_final": "PA before",
    "pa_final": "PA after",
}


def settings(federation: str, method: str) -> dict[str, Any]:
    """The settings of a federation of the comparison, with those that were chosen for a method."""
    record, published = read_files(COMPARISON / federation)
    chosen = [
        row for row in published[TUNING] if row["algorithm"] == method and row["chosen"] == "True"
    ]
    own = {name: json.loads(value) for name, value in read_point(chosen[0]["settings"]).items()}
    return {**record["settings"], **own, "algorithm": method}


def compute(directory: Path, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The figures of the runs, which are trained or continued in folders of `directory`.

    The heads are re-trained once, after the last round, with the default settings of each
    calibration, and personal models start from the model with that head.
    """
    from tff_pcdd.training.post_hoc import calibrate_run

    options = RunOptions(tensorboard=False, progress=False)
    runs = [*itertools.product(FEDERATIONS, METHODS, SEEDS)]
    runs += itertools.product(FEDERATIONS, OF_PAPERS, FIVE_SEEDS)
    for federation, method, seed in dict.fromkeys(runs):
        own = settings(federation, method)
        # The digits come with a package.
        files = {} if own["dataset"] == "digits" else data
        config = ExperimentConfig.from_settings(**own, **files, seed=seed)
        trained = directory / f"{federation}_{method}_{seed}"
        run_experiment(config, trained, options)
        for calibration in CALIBRATIONS if (method in METHODS and seed in SEEDS) else (WITHOUT,):
            folder = trained
            if calibration != WITHOUT:
                folder = trained.with_name(f"{trained.name}_{calibration}")
                if not folder.exists():
                    calibrated = config.with_settings(head_calibration=calibration)
                    calibrate_run(config, calibrated, trained, folder, options)
            summary = Directory(folder).json(SUMMARY)
            if calibration != WITHOUT:
                summary["ga_second_half"] = None
            yield {
                "federation": federation,
                "method": method,
                "calibration": calibration,
                "seed": seed,
                **{
                    heading: "" if summary[key] is None else f"{summary[key]:.6g}"
                    for key, heading in _MEASURES.items()
                },
            }


def tables(rows: Rows) -> dict[str, str]:
    """For each federation, what calibrations add to GA and PA, and what had been published."""
    made = {}
    for federation in FEDERATIONS:
        own = [row for row in rows if row["federation"] == federation]
        made[f"{federation}_ga"] = _gains(own, "GA")
        made[f"{federation}_pa"] = _gains(own, "PA after")
        made[f"{federation}_published"] = _published(federation, own)
        made[f"{federation}_five_seeds"] = _five_seeds(own)
    return made


def _by_seed(
    rows: Rows,
    measure: str,
    method: str,
    calibration: str = WITHOUT,
    seeds: Sequence[str] = tuple(map(str, SEEDS)),
) -> dict[str, float]:
    wanted = method, calibration
    own = [row for row in rows if (row["method"], row["calibration"]) == wanted]
    return {row["seed"]: float(row[measure]) for row in own if row["seed"] in seeds}


def _gains(rows: Rows, measure: str) -> str:
    """A row for each method: without calibration, with each of them, and the differences."""
    values = {
        calibration: {method: _by_seed(rows, measure, method, calibration) for method in METHODS}
        for calibration in CALIBRATIONS
    }
    cells = {
        calibration: text_tables.mark_best({m: [*of.values()] for m, of in column.items()})
        for calibration, column in values.items()
    }
    added = CALIBRATIONS[1:]
    lines = [["method", measure, *(head for name in added for head in (f"with {name}", "gain"))]]
    for method in METHODS:
        line = [method, cells[WITHOUT][method]]
        for name in added:
            gains = text_tables.differences(values[name][method], values[WITHOUT][method])
            line += [cells[name][method], text_tables.spread(gains, 1, "+")]
        lines.append(line)
    return text_tables.table(lines)


def _published(federation: str, rows: Rows) -> str:
    """GA of the same settings and seeds as published, as computed here, and the differences."""
    record, published = read_files(COMPARISON / federation)
    version = " and ".join(sorted({call["tensorflow"] for call in record["calls"]}))
    lines = [["method", f"GA, TensorFlow {version}", "here", "difference", "2nd half: difference"]]
    every: list[list[float]] = [[], []]
    for method in METHODS:
        line = [method]
        own = [row for row in published[FINAL] if row["algorithm"] == method]
        for found, key in zip(every, ("ga_final", "ga_second_half"), strict=True):
            before = {row["seed"]: float(row[key]) for row in own}
            now = _by_seed(rows, _MEASURES[key], method)
            change = text_tables.differences(now, before)
            found += change
            if key == "ga_final":
                line += [text_tables.spread([*each.values()], 1) for each in (before, now)]
            line.append(text_tables.spread(change, 1, "+"))
        lines.append(line)
    blank = [text_tables.NO_VALUE] * 2
    lines.append(["all runs", *blank, *(text_tables.spread(found, 1, "+") for found in every)])
    return text_tables.table(lines)


def _five_seeds(rows: Rows) -> str:
    """GA and PA of the methods of the three papers, and what they gain over FedAvg."""
    measures = [name for name in _MEASURES.values() if name != "PA after"]
    lines = [["method", *(head for name in measures for head in (name, "gain", "ahead"))]]
    seeds = tuple(map(str, FIVE_SEEDS))
    first = OF_PAPERS[0]
    for method in OF_PAPERS:
        line = [method]
        for measure in measures:
            own, base = (_by_seed(rows, measure, m, seeds=seeds) for m in (method, first))
            gains = text_tables.differences(own, base) if method != first else []
            line += [text_tables.spread([*own.values()], 1), text_tables.spread(gains, 1, "+")]
            ahead = f"{sum(gain > 0 for gain in gains)} of {len(gains)}"
            line.append(ahead if gains else text_tables.NO_VALUE)
        lines.append(line)
    return text_tables.table(lines)
