"""A sweep over methods: what is trained, chosen and reported, and on what grounds."""

import csv
import json

import pytest

from tests.data.refusals import refuses
from tff_pcdd.studies import Halving, Point, study, sweep_methods
from tff_pcdd.training import ExperimentConfig

ROUNDS = 8
RATES, MUS = ("0.01", "0.1"), ("0.001", "0.01", "1")

# Held-out accuracy in rounds 2, 4 and 8 by learning rate and μ. With rungs after rounds 2 and 4,
# three of six go on, then two; the best after 8 rounds of these is not the best of any rung before,
# and settings that would have been better were stopped.
PROX = {
    ("0.01", "0.001"): (30, 40, 50),
    ("0.01", "0.01"): (50, 61, 62),
    ("0.01", "1"): (40, 60, 70),
    ("0.1", "0.001"): (35, 90, 95),
    ("0.1", "0.01"): (45, 50, 99),
    ("0.1", "1"): (10, 20, 98),
}
CHOSEN = ("0.01", "1")
TRAINED = {**dict.fromkeys(PROX, 2), ("0.1", "0.01"): 4, ("0.01", "0.01"): 8, CHOSEN: 8}
AVG = {("0.01",): (20, 30, 40), ("0.1",): (10, 50, 60)}

HEADER = "round,ga,pa,pa_before,pa_before_masked,va,last_lost_round,seconds"


class Training:
    """Stands in for `run_experiment`: writes histories with the accuracies above.

    Attributes:
        test: accuracy on test data by seed; no choice may depend on it.
        trained: the rounds that were computed, by the folder of the run.
        fails, dies: folders whose run raises an error, and with which the process ends.
        diverges: the round in which a run ends because it has diverged, by its folder.
    """

    def __init__(self, directory, test=lambda seed: 50 + seed):
        self.directory, self.test = directory, test
        self.trained, self.fails, self.dies, self.diverges = {}, set(), set(), {}

    def __call__(self, config, folder, options=None, *, overwrite, label, pause_after=None):
        name = str(folder.relative_to(self.directory))
        if name in self.dies:
            raise KeyboardInterrupt
        if name in self.fails:
            raise ArithmeticError("no")
        path = folder / "metrics.csv"
        if (folder / "summary.json").exists() and not overwrite:
            return json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").unlink(missing_ok=True)
        end = self.diverges.get(name, ROUNDS)
        known = path.read_text().splitlines()[1:] if path.exists() and not overwrite else []
        last = min(pause_after or end, end)
        self.trained[name] = self.trained.get(name, 0) + max(0, last - len(known))
        rate = f"{config.training.optimizer.learning_rate:g}"
        mu = (f"{config.method.mu:g}",) if config.algorithm == "fedprox" else ()
        curve = (PROX if mu else AVG)[rate, *mu]
        rows = [
            f"{r},{self.test(config.seed)},{self.test(config.seed)},,,"
            f"{curve[0 if r <= 2 else 1 if r <= 4 else 2]},0,1"
            for r in range(len(known) + 1, last + 1)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([HEADER, *known, *rows]) + "\n")
        (folder / "config.json").write_text(json.dumps(config.to_settings()))
        if last < end:
            return {"paused": last}
        summary = {
            "algorithm": config.algorithm,
            "seed": config.seed,
            "rounds": end,
            "diverged": name in self.diverges,
            "va_best": curve[2],
            "ga_final": self.test(config.seed) + (config.algorithm == "fedprox") * config.seed,
            "upload_bytes": 3_000_000,
            "download_bytes": 1_000_000,
            "seconds_per_round": 0.5,
        }
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary


def configs(seeds, **settings):
    return [
        ExperimentConfig.from_settings(
            rounds=ROUNDS, seed=seed, **{"validation_fraction": 0.2, **settings}
        )
        for seed in seeds
    ]


def point(algorithm, names, texts, **further):
    given = dict(zip(names, texts, strict=True))
    values = {name: float(text) for name, text in given.items()}
    settings = {"algorithm": algorithm, **values, **further}
    return Point(given, configs([0], **settings), configs([1, 2, 3], **settings))


def points(**further):
    both = ("client_learning_rate", "fedprox_mu")
    return {
        "fedavg": [point("fedavg", both[:1], texts, **further) for texts in AVG],
        "fedprox": [point("fedprox", both, texts, **further) for texts in PROX],
    }


def name(texts):
    return ",".join(
        f"{n}={t}" for n, t in zip(("client_learning_rate", "fedprox_mu"), texts, strict=False)
    )


@pytest.fixture
def training(monkeypatch, tmp_path):
    stand_in = Training(tmp_path)
    monkeypatch.setattr(study, "run_experiment", stand_in)
    return stand_in


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_halving_stops_settings_and_the_best_are_compared(training, tmp_path):
    result = sweep_methods(points(), tmp_path)
    assert training.trained == {
        **{f"tuning/fedprox/{name(t)}/seed_0": rounds for t, rounds in TRAINED.items()},
        # Of two settings, one goes on after each rung: the first is better until round 2.
        f"tuning/fedavg/{name(('0.01',))}/seed_0": 8,
        f"tuning/fedavg/{name(('0.1',))}/seed_0": 2,
        **{f"comparison/{m}/seed_{s}": 8 for m in ("fedavg", "fedprox") for s in (1, 2, 3)},
    }
    assert result.chosen == {
        "fedavg": {"client_learning_rate": "0.01"},
        "fedprox": {"client_learning_rate": "0.01", "fedprox_mu": "1"},
    }
    assert not result.failures
    final = json.loads((tmp_path / "comparison/fedprox/seed_2/config.json").read_text())
    assert (final["client_learning_rate"], final["fedprox_mu"]) == (0.01, 1.0)
    assert (tmp_path / "best/fedprox.flags").read_text() == (
        "--algorithm=fedprox\n--client_learning_rate=0.01\n--fedprox_mu=1\n"
    )
    for file in ("comparison.csv", "comparison.md", "comparison.png", "rounds.csv"):
        assert (tmp_path / "comparison" / file).stat().st_size
    assert (tmp_path / "sweep.png").stat().st_size > 5_000
    rows = {row["settings"]: row for row in read(tmp_path / "sweep.csv")}
    assert {t: int(rows[name(t)]["rounds"]) for t in PROX} == TRAINED
    assert [rows[name(t)]["stopped_after"] for t in PROX] == ["2", "", "", "2", "4", "2"]
    assert [s for s, row in rows.items() if row["chosen"] == "True"] == [
        name(("0.01",)),
        name(CHOSEN),
    ]


def test_the_report(training, tmp_path):
    report = sweep_methods(points(), tmp_path).report
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in report.splitlines()]
    # Points, stopped, and the rounds of all points: 3 × 2 + 4 + 2 × 8.
    chosen = "client_learning_rate=0.01, fedprox_mu=1"
    assert ["fedprox", chosen, "70.0", "5", "6", "4", "26"] in cells
    header = next(line for line in cells if "GA over FedAvg" in line)
    (row,) = (line for line in cells[cells.index(header) :] if line[0] == "fedprox")
    values = dict(zip(header, row, strict=True))
    # GA is 50 + seed of FedAvg and 50 + 2 seed of FedProx, for seeds 1, 2, 3.
    assert values["GA"] == "54.0 ± 2.0"
    assert values["GA over FedAvg"] == "+2.0 ± 1.0"
    assert values["VA, best round"] == "70.0 ± 0.0"
    assert (values["MB"], values["s/round"], values["seeds"]) == ("4.0", "0.500 ± 0.000", "3")
    text = (tmp_path / "sweep.md").read_text()
    assert "with seed 0" in text
    assert "seeds 1, 2, 3" in text


def test_test_accuracies_do_not_enter_any_decision(monkeypatch, tmp_path):
    results = []
    for number, test in enumerate((lambda seed: 50 + seed, lambda seed: 90 - 7 * seed)):
        directory = tmp_path / str(number)
        stand_in = Training(directory, test)
        monkeypatch.setattr(study, "run_experiment", stand_in)
        chosen = sweep_methods(points(), directory).chosen
        results.append((chosen, stand_in.trained, (directory / "sweep.csv").read_bytes()))
    assert results[0] == results[1]
    # The test accuracies did differ.
    finals = [read(tmp_path / f"{number}/comparison/comparison.csv") for number in (0, 1)]
    assert finals[0][0]["ga_final"] != finals[1][0]["ga_final"]


@pytest.mark.parametrize(
    "where",
    [
        f"tuning/fedprox/{name(('0.01', '1'))}/seed_0",
        "comparison/fedavg/seed_2",
    ],
)
def test_an_interrupted_sweep_repeats_nothing(where, training, tmp_path):
    training.dies.add(where)
    with pytest.raises(KeyboardInterrupt):
        sweep_methods(points(), tmp_path)
    training.dies.clear()
    sweep_methods(points(), tmp_path)
    tuned = {f"tuning/fedprox/{name(texts)}/seed_0": r for texts, r in TRAINED.items()}
    assert tuned.items() <= training.trained.items()
    assert set(training.trained.values()) == {2, 4, 8}


def test_a_sweep_that_is_repeated_decides_as_before(training, tmp_path):
    """A run that diverged after a rung had not diverged at that rung."""
    training.diverges[f"tuning/fedprox/{name(CHOSEN)}/seed_0"] = 6
    first = sweep_methods(points(), tmp_path)
    assert first.chosen["fedprox"] == {"client_learning_rate": "0.01", "fedprox_mu": "0.01"}
    trained = dict(training.trained)
    assert sweep_methods(points(), tmp_path) == first
    assert training.trained == trained


def test_nothing_is_chosen_while_a_run_of_the_method_lacks(training, tmp_path):
    failing = f"tuning/fedprox/{name(('0.1', '1'))}/seed_0"
    training.fails.add(failing)
    result = sweep_methods(points(), tmp_path)
    assert list(result.chosen) == ["fedavg"]
    (line,) = result.failures
    assert line == f"fedprox {name(('0.1', '1'))} seed 0: ArithmeticError: no"
    assert "ArithmeticError" in (tmp_path / "failures.txt").read_text()
    assert "runs failed" in result.report
    assert not (tmp_path / "comparison/fedprox").exists()
    training.fails.clear()
    result = sweep_methods(points(), tmp_path)
    assert result.chosen["fedprox"] == {"client_learning_rate": "0.01", "fedprox_mu": "1"}
    assert not (tmp_path / "failures.txt").exists()


def test_without_rungs_all_settings_train_to_the_end(training, tmp_path):
    result = sweep_methods(points(), tmp_path, halving=Halving(()))
    assert set(training.trained.values()) == {ROUNDS}
    assert result.chosen["fedprox"] == {"client_learning_rate": "0.1", "fedprox_mu": "0.01"}


def test_overwriting_starts_every_run_once_again(training, tmp_path):
    sweep_methods(points(), tmp_path)
    first = dict(training.trained)
    sweep_methods(points(), tmp_path, overwrite=True)
    assert training.trained == {folder: 2 * rounds for folder, rounds in first.items()}


@pytest.mark.parametrize(
    ("changed", "setting", "reason"),
    [
        (points(validation_fraction=0.0), "validation_fraction", "a sweep chooses on held-out"),
        ({"fedavg": [*points()["fedavg"], points()["fedavg"][0]]}, "grid", "each value once"),
        (
            {"fedavg": [points()["fedavg"][0]._replace(finals=configs([2, 0]))]},
            "final_seeds",
            "settings are chosen with seed 0",
        ),
        (
            {"fedavg": [points()["fedavg"][0]._replace(finals=configs([2, 2]))]},
            "final_seeds",
            "name each seed once",
        ),
    ],
)
def test_refusals(changed, setting, reason, tmp_path):
    with refuses(setting, reason):
        sweep_methods(changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
