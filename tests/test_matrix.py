"""Combinations of method, aggregator, normalization, precision, participation, client, export.

By default all refusals, and a sample in which every value occurs but all methods, which
methods/test_contract trains and exports. `make test-all` trains a sample in which every pair of
values occurs, and `make matrix` all combinations.
"""

import collections
import dataclasses
import functools
import itertools

import pytest

from tests.matrix import combinations, profiles
from tests.matrix.bench import Bench, cohorts_of, spec_of
from tests.matrix.combinations import Cell, refusal
from tests.matrix.fresh_process import FreshProcess
from tests.methods.refusing import ASSUMES_SGD, OWN_SERVER_STEP, SENDS, SENDS_NO_WEIGHTS
from tff_pcdd import methods
from tff_pcdd.federated import LocalWork, client_optimizers, schedules, server_optimizers


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A process that loads exported models."""
    process = FreshProcess(tmp_path_factory.mktemp("fresh"))
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
        if cell.aggregator == "dp" and cell.method == "logitadjust":
            return "aggregator", "clients of logitadjust train with the class counts of all clients"
        if cell.aggregator == "dp" and cell.normalization != "group":
            return "aggregator", "choose normalization=group"
    if cell.export == "global" and not methods.get(cell.method).has_global_model:
        return "clients", "has no global model"
    return None


@pytest.mark.integration
def test_what_cannot_be_right_is_refused_and_nothing_else():
    for cell in combinations.cells():
        error, expected = refusal(cell), expected_refusal(cell)
        assert (error is None) == (expected is None), f"{cell}: {error}"
        if expected is not None:
            assert error.setting == expected[0], cell
            assert expected[1] in error.reason, cell


def expected_plain(method, aggregator, profile):
    """The settings of a profile that are refused and a part of the reason, by rules as above."""
    reasons = {}
    if method in ASSUMES_SGD and profile.client_optimizer != "sgd":
        reasons["client_optimizer"] = f"{method} is defined for the steps of SGD"
    if profile.server_optimizer != "none":
        if method in OWN_SERVER_STEP:
            reasons["server_optimizer"] = f"{method} has a server step of its own"
        elif method in SENDS_NO_WEIGHTS:
            reasons["server_optimizer"] = f"clients of {method} send no weights"
        elif method == "central":
            reasons["server_optimizer"] = "trains on all samples in one place"
    if aggregator == "dp" and profile.cohort_sampling != "uniform":
        reasons["cohort_sampling"] = "the guarantee of aggregator=dp is for uniform cohorts"
    return reasons


@functools.cache
def allowed_cells():
    return [cell for cell in combinations.cells() if refusal(cell) is None]


@pytest.mark.integration
def test_training_is_plain_where_that_is_necessary_and_nowhere_else():
    for key in {(*cell.traced, cell.aggregator) for cell in allowed_cells()}:
        wanted, refused = profiles.wanted(*key[:3]), profiles.refused(*key)
        expected = expected_plain(key[0], key[3], wanted)
        assert refused.keys() == expected.keys(), key
        assert all(part in refused[kind].reason for kind, part in expected.items()), key
        plain = {kind: profiles.PLAIN[kind] for kind in expected}
        assert profiles.profile_of(*key) == dataclasses.replace(wanted, **plain), key


def met_by(cells):
    """The methods that are trained with each setting, from what is computed."""
    found = collections.defaultdict(set)
    for cell in cells:
        spec, server = cached_spec(*cell.traced), cached_spec(*cell.traced).server_optimizer
        work = dataclasses.asdict(spec.local_work)
        met = {
            ("schedule", spec.schedule.name),
            ("warm-up", spec.schedule.warmup_rounds > 0),
            ("client", spec.optimizer.name),
            # With a step size of 1, SGD is how all methods train without a server optimizer.
            ("server", None if server.adds_change else server.name),
            *(("work", name) for name, share in work.items() if share),
            ("cohorts", profiles.sampling_of(cell)),
        }
        for setting in met:
            found[setting].add(cell.method)
    return found


@functools.cache
def cached_spec(*traced):
    return spec_of(Cell(traced[0], "mean", *traced[1:], "full", "empty", "personal"))


# Only `make test-all` trains the larger sample, which this and a later test are about.
@pytest.mark.rare
@pytest.mark.integration
def test_every_setting_of_training_meets_many_methods():
    """Whatever is registered; at least half of those that accept it, and ten in the sample."""
    refused_by = {("client", name): ASSUMES_SGD for name in client_optimizers.names()}
    refused_by["client", "sgd"] = set()
    without_server_optimizer = {*OWN_SERVER_STEP, *SENDS_NO_WEIGHTS, "central"}
    refused_by |= {("server", name): without_server_optimizer for name in server_optimizers.names()}
    refused_by |= {("schedule", name): set() for name in schedules.names()}
    refused_by |= {("work", field.name): set() for field in dataclasses.fields(LocalWork)}
    refused_by |= {("cohorts", name): set() for name in ("uniform", "samples", "round_robin")}
    refused_by["warm-up", True] = set()
    everywhere, sampled = met_by(allowed_cells()), met_by(combinations.sample())
    for setting, refusing in refused_by.items():
        accepting = set(methods.names()) - refusing
        assert everywhere[setting] <= accepting, setting
        assert len(everywhere[setting]) >= len(accepting) / 2, setting
        assert len(sampled[setting]) >= 10, setting


def test_a_plain_profile_changes_no_setting():
    for participation in ("full", "partial"):
        cell = Cell("fedavg", "mean", "batch", "float32", participation, "empty", "global")
        config = combinations.config_of(cell)
        assert profiles.Profile(**profiles.PLAIN).applied(config) == config


@pytest.mark.parametrize("sampling", [None, "uniform", "samples", "round_robin"])
def test_the_client_of_a_combination_never_drops_out(sampling):
    number = combinations.CLIENTS["one sample"]
    drawn = cohorts_of(LocalWork(), number, sampling)
    finished = cohorts_of(LocalWork(dropped_share=0.9), number, sampling)
    assert drawn[1] == ([0, 1, 2, 3, 4] if sampling is None else [number])
    for some, everybody in zip(finished, drawn, strict=True):
        assert number in some
        assert {*some} <= {*everybody}
    assert sum(map(len, finished)) < sum(map(len, drawn))


@pytest.mark.rare
@pytest.mark.integration
def test_the_sample_has_every_pair_of_values():
    chosen = combinations.sample()
    assert chosen == combinations.sample()
    allowed = allowed_cells()
    wanted = set().union(*(cell.pairs for cell in allowed))
    assert set().union(*(cell.pairs for cell in chosen)) == wanted
    assert len(chosen) < len(allowed) / 10


@pytest.mark.integration
def test_the_short_sample_has_every_value_but_all_methods():
    chosen = combinations.short_sample()
    wanted = set().union(*(cell.values_without_method for cell in allowed_cells()))
    assert set().union(*(cell.values_without_method for cell in chosen)) == wanted
    assert len({cell.traced for cell in chosen}) < len(chosen) < 10


# What `--matrix` trains, and those of it whose aggregator is checked to give the mean: in a sample,
# not for each method that an aggregator is combined with.
CHOICES = {
    "short": (combinations.short_sample, lambda c: c.aggregator),
    "pairs": (combinations.sample, lambda c: (c.aggregator, c.normalization, c.precision)),
    "all": (combinations.cells, lambda c: c),
}


@pytest.mark.parametrize("cell", combinations.HANDFUL, ids=str)
def test_a_handful(cell, fresh, simulation, tmp_path):
    Bench(cell, fresh).check(cell, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("method", methods.names())
def test_combinations(method, fresh, simulation, tmp_path, request):
    choose, checked_once = CHOICES[request.config.getoption("--matrix")]
    mean = {*{checked_once(cell): cell for cell in choose()}.values()}
    # Those of the handful are trained above.
    new = [cell for cell in choose() if cell not in combinations.HANDFUL]
    cells = [c for c in new if c.method == method and refusal(c) is None]
    if not cells:
        pytest.skip("not in the sample")
    failed = {}
    for _, group in itertools.groupby(sorted(cells, key=str), lambda cell: cell.traced):
        bench = None
        for cell in group:
            bench = bench or Bench(cell, fresh)
            try:
                bench.check(cell, tmp_path, mean=cell in mean)
            except AssertionError as error:
                failed[str(cell)] = error
    assert not failed, "\n\n".join(f"{cell}: {error}" for cell, error in failed.items())
