"""Combinations of method, aggregator, normalization, precision, participation, client, export.

By default a sample in which every pair of values occurs, and all refusals; `make matrix` trains all
combinations.
"""

import itertools

import pytest

from tests import matrix
from tff_pcdd import methods

# Methods whose clients send sums besides their weights, and what they send; or no weights at all.
SENDS = {
    "ccvr": "counts, features, products",
    "creff": "gradients, holders",
    "feddc": "control, weight",
    "feddc_prototypes": "control, counts, features, weight",
    "feddyn": "weight",
    "feddyn_prototypes": "counts, features, weight",
    "fedgen": "biases, counts, kernels",
    "fedmr": "counts, features",
    "fednova": "steps, weight",
    "fednova_prototypes": "counts, features, steps, weight",
    "fedpac": "biases, counts, features, kernels, present, statistics, variances",
    "fedproc": "counts, features",
    "fedprox_prototypes": "counts, features",
    "moon_prototypes": "counts, features",
    "ratioloss": "clients, samples",
    "scaffold": "control",
}
SENDS_NO_WEIGHTS = ["fedproto", "local"]
# A few combinations for a quick look, of different methods, aggregators and clients.
HANDFUL = [
    matrix.Cell("fedavg", "robust", "batch", "float32", "partial", "one class", "global"),
    matrix.Cell("fedloge", "dp", "group", "float32", "partial", "one sample", "personal"),
    matrix.Cell("fedmr", "mean", "personal", "bfloat16", "full", "empty", "personal"),
]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A process that loads exported models."""
    process = matrix.FreshProcess(tmp_path_factory.mktemp("fresh"))
    yield process
    process.close()


def expected_refusal(cell):
    """The setting that is refused and a part of the reason, by rules that are written down here."""
    if cell.aggregator != "mean":
        if cell.method == "central":
            return "aggregator", "trains on all samples in one place; nothing is aggregated"
        if cell.method in SENDS_NO_WEIGHTS:
            return "aggregator", f"clients of {cell.method} send no weights"
        if cell.method in SENDS:
            return "aggregator", f"clients of {cell.method} also send {SENDS[cell.method]}"
        if cell.aggregator == "dp" and cell.normalization != "group":
            return "aggregator", "choose normalization=group"
    if cell.export == "global" and not methods.get(cell.method).has_global_model:
        return "clients", "has no global model"
    return None


@pytest.mark.integration
def test_what_cannot_be_right_is_refused_and_nothing_else():
    for cell in matrix.cells():
        error, expected = matrix.refusal(cell), expected_refusal(cell)
        assert (error is None) == (expected is None), f"{cell}: {error}"
        if expected is not None:
            assert error.setting == expected[0], cell
            assert expected[1] in error.reason, cell


@pytest.mark.integration
def test_the_sample_has_every_pair_of_values():
    chosen = matrix.sample()
    assert chosen == matrix.sample()
    allowed = [cell for cell in matrix.cells() if matrix.refusal(cell) is None]
    wanted = set().union(*(cell.pairs for cell in allowed))
    assert set().union(*(cell.pairs for cell in chosen)) == wanted
    assert len(chosen) < len(allowed) / 10


@pytest.mark.parametrize("cell", HANDFUL, ids=str)
def test_a_handful(cell, fresh, simulation, tmp_path):
    matrix.Bench(cell, fresh).check(cell, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("method", methods.names())
def test_combinations(method, fresh, simulation, tmp_path, request):
    everything = request.config.getoption("--matrix") == "all"
    cells = matrix.cells() if everything else matrix.sample()
    cells = [c for c in cells if c.method == method and matrix.refusal(c) is None]
    failed = {}
    for _, group in itertools.groupby(sorted(cells, key=str), lambda cell: cell.traced):
        bench = None
        for cell in group:
            bench = bench or matrix.Bench(cell, fresh)
            try:
                bench.check(cell, tmp_path)
            except AssertionError as error:
                failed[str(cell)] = error
    assert cells
    assert not failed, "\n\n".join(f"{cell}: {error}" for cell, error in failed.items())
