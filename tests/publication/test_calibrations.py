"""What calibrations add to the methods: the runs, their settings, and the tables."""

import csv
import json
import statistics

import pytest

from publication import calibrations, measured
from tests.markdown_tables import table_rows

FEDERATION = "digits_p10c2"


def published(name):
    with open(calibrations.COMPARISON / FEDERATION / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_settings_are_those_that_were_chosen():
    record = json.loads((calibrations.COMPARISON / FEDERATION / "federation.json").read_text())
    for method in calibrations.METHODS:
        (chosen,) = [
            row["settings"]
            for row in published("tuning.csv")
            if row["algorithm"] == method and row["chosen"] == "True"
        ]
        found = calibrations.settings(FEDERATION, method)
        own = {name: value for name, value in found.items() if name not in record["settings"]}
        assert own.pop("algorithm") == method
        assert ",".join(f"{name}={value:g}" for name, value in own.items()) == chosen


def test_gains_are_differences_of_runs_with_the_same_seed():
    rows = [row for row in measured.read("calibrations") if row["federation"] == FEDERATION]
    lines = table_rows(calibrations.tables(measured.read("calibrations"))[f"{FEDERATION}_ga"])
    values = {(row["method"], row["calibration"], row["seed"]): float(row["GA"]) for row in rows}
    for method, without, with_ccvr, gain, *_ in lines[1:]:
        plain = [values[method, "none", seed] for seed in "123"]
        calibrated = [values[method, "ccvr", seed] for seed in "123"]
        gains = [b - a for a, b in zip(plain, calibrated, strict=True)]
        for cell, of in ((without, plain), (with_ccvr, calibrated), (gain, gains)):
            text = cell.removeprefix("<ins>").removesuffix("</ins>").strip("*")
            mean, deviation = map(float, text.split(" ± "))
            assert mean == pytest.approx(statistics.mean(of), abs=0.051)
            assert deviation == pytest.approx(statistics.stdev(of), abs=0.051)


def test_what_had_been_published_stands_beside_it():
    lines = table_rows(
        calibrations.tables(measured.read("calibrations"))[f"{FEDERATION}_published"]
    )
    for method, before, *_ in lines[1:-1]:
        own = [float(r["ga_final"]) for r in published("final.csv") if r["algorithm"] == method]
        assert float(before.split(" ± ")[0]) == pytest.approx(statistics.mean(own), abs=0.051)


def test_gains_over_fedavg_are_those_of_five_seeds():
    rows = [row for row in measured.read("calibrations") if row["federation"] == FEDERATION]
    lines = table_rows(calibrations.tables(rows)[f"{FEDERATION}_five_seeds"])
    for measure, at in (("GA", 2), ("GA, 2nd half", 5), ("PA before", 8)):
        values = {
            (row["method"], row["seed"]): float(row[measure])
            for row in rows
            if row["calibration"] == "none"
        }
        for line in lines[2:]:
            gains = [values[line[0], seed] - values["fedavg", seed] for seed in "12345"]
            mean, deviation = map(float, line[at].split(" ± "))
            assert mean == pytest.approx(statistics.mean(gains), abs=0.051)
            assert deviation == pytest.approx(statistics.stdev(gains), abs=0.051)


def test_a_row_for_each_run_and_calibration(tmp_path, monkeypatch):
    monkeypatch.setattr(calibrations, "FEDERATIONS", (FEDERATION,))
    monkeypatch.setattr(calibrations, "SEEDS", (1,))
    monkeypatch.setattr(calibrations, "FIVE_SEEDS", (1, 2))
    monkeypatch.setattr(calibrations, "METHODS", ("fedavg",))
    monkeypatch.setattr(calibrations, "OF_PAPERS", ("fedavg",))
    small = {"rounds": 1, "max_train_samples": 100, "max_test_samples": 50}
    complete = calibrations.settings
    monkeypatch.setattr(calibrations, "settings", lambda *names: complete(*names) | small)
    first = list(calibrations.compute(tmp_path, {"data_dir": None}))
    assert [row["calibration"] for row in first] == ["none", "ccvr", "fednpc", "none"]
    folders = ["1", "1_ccvr", "1_fednpc", "2"]
    for row, folder in zip(first, folders, strict=True):
        summary = json.loads((tmp_path / f"{FEDERATION}_fedavg_{folder}/summary.json").read_text())
        assert float(row["GA"]) == pytest.approx(summary["ga_final"], rel=1e-5)
        assert float(row["PA after"]) == pytest.approx(summary["pa_final"], rel=1e-5)
    # Nothing is computed twice.
    assert list(calibrations.compute(tmp_path, {"data_dir": None})) == first
