"""The table of README: gains over tuned FedAvg."""

import csv
import statistics

from publication import claims, guide, published
from tests.cli.conftest import ROOT

FOLDER = ROOT / "docs" / "comparison"


def table():
    notes = published.read_notes(FOLDER)
    return guide.table(claims.federations(published.read(FOLDER, notes), notes))


def rows(federation):
    """The final runs of a federation, by method and seed."""
    with open(FOLDER / federation / "final.csv", newline="", encoding="utf-8") as file:
        return {(row["algorithm"], row["seed"]): row for row in csv.DictReader(file)}


def gain(federation, method, column, baseline=None):
    found = rows(federation)
    return statistics.fmean(
        float(row[column]) - float(found["fedavg", seed][baseline or column])
        for (name, seed), row in found.items()
        if name == method
    )


def test_readme_and_the_main_page_have_it():
    text = table()
    assert text in (ROOT / "README.md").read_text(encoding="utf-8")
    assert text in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")


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
