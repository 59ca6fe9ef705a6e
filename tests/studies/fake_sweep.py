"""What the tests of sweeps over methods share: training that takes no time, and a small grid."""

import json

import numpy as np

from tff_pcdd.studies import Halving, Point
from tff_pcdd.training import ExperimentConfig

ROUNDS = 8
RATES, MUS = ("0.01", "0.1"), ("0.001", "0.01", "1")

# Held-out accuracy in rounds 2, 4 and 8 by learning rate and μ. With rungs after rounds 2 and 4,
# two of the three points with a learning rate go on, then one; the best of these after 8 rounds is
# not the best of the first rung, and points that would have been better were stopped. If all points
# compete, three of six go on, then two.
PROX = {
    ("0.01", "0.001"): (30, 40, 50),
    ("0.01", "0.01"): (50, 61, 62),
    ("0.01", "1"): (40, 60, 70),
    ("0.1", "0.001"): (35, 90, 95),
    ("0.1", "0.01"): (45, 50, 99),
    ("0.1", "1"): (10, 20, 98),
}
CHOSEN, CHOSEN_OF_ALL = ("0.1", "0.001"), ("0.01", "1")
TRAINED = {**dict.fromkeys(PROX, 2), ("0.01", "0.01"): 8, ("0.01", "1"): 4, CHOSEN: 8}
TRAINED[("0.1", "0.01")] = 4
ALL = Halving(among="all")
AVG = {("0.01",): (20, 30, 40), ("0.1",): (10, 50, 60)}

HEADER = "round,ga,pa,pa_before,pa_before_masked,va,last_lost_round,seconds"


class Training:
    """Stands in for `run_experiment`: writes histories with the accuracies above.

    Attributes:
        test: accuracy on test data by seed; no choice may depend on it.
        trained: the rounds that were computed, by the folder of the run.
        fails, dies: folders whose run raises an error, and with which the process ends.
        diverges: the round in which a run ends because it has diverged, by its folder.
        classes: the names of the classes in confusion.npz, which is not written without any.
        trained_on: the training samples of the only client in clients.csv, which is not written
            without any.
        gains: by how much GA is above `test` in the end, by method, as a function of the seed.
    """

    def __init__(self, directory, test=lambda seed: 50 + seed):
        self.directory, self.test = directory, test
        self.trained, self.fails, self.dies, self.diverges = {}, set(), set(), {}
        self.gains = {"fedprox": lambda seed: seed}
        self.classes = tuple("0123456789")
        self.trained_on = 0

    def __call__(self, config, folder, options=None, *, overwrite, label, pause_after=None, report):
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
        gain = self.gains.get(config.algorithm, lambda seed: 0)
        summary = {
            "algorithm": config.algorithm,
            "seed": config.seed,
            "rounds": end,
            "diverged": name in self.diverges,
            "va_best": curve[2],
            "ga_final": self.test(config.seed) + gain(config.seed),
            "pa_final": 80.0,
            "config_digest": config.digest(),
            "upload_bytes": 3_000_000,
            "download_bytes": 1_000_000,
            "seconds_per_round": 0.5,
        }
        (folder / "summary.json").write_text(json.dumps(summary))
        if self.trained_on:
            clients = f"client,train_samples,test_samples,warning\n0,{self.trained_on},9,\n"
            (folder / "clients.csv").write_text(clients)
        if self.classes:
            np.savez(folder / "confusion.npz", class_names=np.array(self.classes))
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
