"""The table of README: gains over tuned FedAvg, or over FedAvg with a better learning rate."""

import csv
import statistics

import pytest

from publication import claims, guide, published
from publication.published import Published
from tests.cli.conftest import ROOT
from tff_pcdd.results.run_results import Result, Results

FOLDER = ROOT / "docs" / "comparison"


def table():
    notes = published.read_notes(FOLDER)
    return guide.table(claims.federations(published.read(FOLDER, notes), notes))


def rows(federation):
    """The final runs of a federation, by method and seed."""
    with open(FOLDER / federation / "final.csv", newline="", encoding="utf-8") as file:
        return {(row["algorithm"], row["seed"]): row for row in csv.DictReader(file)}


# FedAvg with the learning rate 0.01 on CIFAR-10-LT (tuned: 0.03), after the last round, by seed.
BETTER = {
    "ga_second_half": {"1": 25.2, "2": 25.7, "3": 22.1},
    "pa_final": {"1": 55.0, "2": 54.6, "3": 55.7},
}


def gain(federation, method, column, baseline=None):
    found = rows(federation)
    if federation == "cifar10_lt" and (better := BETTER.get(baseline or column)):
        own = column.replace("second_half", "final")
        return statistics.fmean(float(found[method, s][own]) - better[s] for s in better)
    return statistics.fmean(
        float(row[column]) - float(found["fedavg", seed][baseline or column])
        for (name, seed), row in found.items()
        if name == method
    )


def test_readme_and_the_main_page_have_it():
    text = table()
    assert text in (ROOT / "README.md").read_text(encoding="utf-8")
    assert text in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


def made(*further):
    """A federation with three runs of FedAvg, GA 20 to 22, and as many of CCVR, GA 30 to 32."""
    results = [
        Result("", method, f"{seed}", False, {"ga_final": ga + seed, "ga_second_half": ga - seed})
        for method, ga in (("fedavg", 19.0), ("ccvr", 29.0))
        for seed in (1, 2, 3)
    ]
    names = ("method", "settings", "seed", "ga_final")
    rows = [dict(zip(names, row, strict=True)) for row in further]
    return Published("x", "X", {}, Results(results), [], [], [], further=rows)


def rate(values, settings="client_learning_rate=0.01", method="fedavg"):
    """Further runs with seeds 1, 2, …"""
    return [(method, settings, f"{seed}", f"{ga}") for seed, ga in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        # 29 - seed against 19 - seed over the second half.
        ([], [10, 10, 10]),
        # 29 + seed after the last round against 22, 23 and 21.
        (rate((22, 23, 21)), [8, 8, 11]),
        (rate((22, 23, 21)) + rate((23, 23, 23), "client_learning_rate=0.1"), [7, 8, 9]),
        # On average no better, fewer seeds, other settings, another method.
        (rate((30, 20, 10)), [10, 10, 10]),
        (rate((40, 40)), [10, 10, 10]),
        (rate((40, 40, 40), "client_learning_rate=0.01,local_epochs=9"), [10, 10, 10]),
        (rate((40, 40, 40), "client_weighting=uniform"), [10, 10, 10]),
        (rate((40, 40, 40), method="moon"), [10, 10, 10]),
    ],
)
def test_gains_are_over_the_better_runs_of_fedavg(further, expected):
    one = made(*further)
    assert guide.gains(one, guide.Gain("", "ccvr", "ga_second_half", lambda _: True)) == expected
    assert guide.exceptions([one]).startswith("On X, another" * (expected[0] < 10))
    assert bool(guide.exceptions([one])) == (expected[0] < 10)


def test_the_main_page_and_readme_name_the_federation():
    for page, said in (
        ("README.md", "(on CIFAR-10-LT with"),
        ("docs/comparison.md", "On CIFAR-10-LT,"),
    ):
        assert said in (ROOT / page).read_text(encoding="utf-8")


def test_gains_are_those_of_the_files():
    few = ("digits_p10c2", "digits_p5c2", "fashion_p10c2", "cifar10_p10c2", "cifar10_p50c2")
    tails, both = ("fashion_lt", "cifar10_lt"), ("fashion_lt_p10c2",)
    neither = "fashion_dir0.1", "leaf_digits"
    everywhere = (*few, *neither, *tails, *both)

    def among(federations, method, *arguments):
        compared = [one for one in federations if any(name == method for name, _ in rows(one))]
        return [gain(one, method, *arguments) for one in compared]

    def span(values):
        low, high = f"{round(min(values)):+d}", f"{round(max(values)):+d}"
        return low if low == high else f"{low} to {high}"

    rod, masked = ("pa_before_final", "pa_final"), ("pa_before_masked_final", "pa_final")
    expected = [
        f"**CCVR**: {span(among(few, 'ccvr', 'ga_second_half'))} ",
        f"**CCVR**'s without it: {span(among(few, 'ccvr', *masked))} ",
        f"**CCVR**: {span(among(tails, 'ccvr', 'ga_second_half'))};",
        f"**FedETF**: {span(among(tails, 'fedetf', 'ga_second_half'))};",
        f"equal weights: {span(among(tails, 'fedbn', 'ga_second_half'))} ",
        f"**FedRoD**'s before local training: {span(among(tails, 'fedrod', *rod))} ",
        f"equal weights: {span(among(tails, 'fedbn', 'va_best'))} ",
        f"**CCVR**: {span(among(both, 'ccvr', 'ga_second_half'))};",
        f"traffic equal weights: {span(among(both, 'fedbn', 'ga_second_half'))} ",
        f"after local training: {span(among(both, 'fedbn', 'pa_final'))};",
        f"**CCVR**'s without it: {span(among(both, 'ccvr', *masked))} ",
        f"**CCVR**: {span(among(neither, 'ccvr', 'ga_second_half'))} ",
    ]
    values = among(everywhere, "feddecorr", "ga_second_half")
    expected.append(f"**FedDecorr**: {statistics.fmean(values):+.1f} on average, {span(values)}")
    for part in expected:
        assert part in table(), part
