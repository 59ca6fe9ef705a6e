"""Which runs count in means, differences and curves."""

import statistics

import pytest

from tff_pcdd.experiment.history import History
from tff_pcdd.results.run_results import Result, Results


def run(method, seed, diverged=False, *, partition="iid", curve=None, **values):
    """A run; its history has a row for each value of GA, and None for a lost round."""
    history = History(["round", "ga", "last_lost_round"])
    for number, value in enumerate(curve or (), 1):
        lost = number if value is None else 0
        history.append({"round": number, "ga": value or 0.0, "last_lost_round": lost})
    return Result(
        *(partition, method, str(seed), diverged, values), load_history=lambda: history or None
    )


def test_a_run_that_diverged_has_no_part_in_a_mean():
    runs = Results([run("fedavg", 0, ga_final=50.0), run("fedavg", 1, True, ga_final=0.0)])
    assert runs.values("ga_final") == [50.0]
    assert runs.by_seed("ga_final") == {"0": 50.0}
    # Rankings count it as an accuracy of 0.
    assert runs.by_seed("ga_final", diverged=0.0) == {"0": 50.0, "1": 0.0}


@pytest.mark.parametrize("missing", [{}, {"ga_final": None}])
def test_a_mean_exists_if_all_usable_runs_have_the_value(missing):
    runs = Results([run("fedavg", 0, ga_final=50.0), run("fedavg", 1, **missing)])
    assert runs.values("ga_final") == []
    assert runs.mean("ga_final") is None
    assert runs.by_seed("ga_final") == {"0": 50.0}


def test_gains_are_between_runs_of_one_partition_and_seed():
    own = [run("fedgela", seed, pa_final=80.0 + seed) for seed in range(3)]
    others = [
        run("local", 0, pa_final=70.0),
        run("local", 1, True, pa_final=0.0),
        run("local", 2, partition="class", pa_final=10.0),
    ]
    runs = Results([*own, *others])
    assert runs.of(method="fedgela").gains(Results(others), "pa_final") == [10.0]
    assert runs.over_local() == {"fedgela": [10.0]}
    assert Results(own).over_local() == {}


def test_a_mean_curve_has_the_rounds_that_all_runs_have_and_none_has_lost():
    runs = Results(
        [
            run("fedavg", 0, curve=[10.0, 20.0, 30.0, 40.0]),
            run("fedavg", 1, curve=[30.0, None, 50.0]),
            run("fedavg", 2, True, curve=[0.0, 0.0, 0.0]),
        ]
    )
    expected = {1: statistics.fmean([10, 30]), 3: statistics.fmean([30, 50])}
    assert runs.mean_curve("ga") == expected


def test_runs_without_measurements_do_not_hide_the_curves_of_others():
    runs = Results([run("fedavg", 0, curve=[10.0, 20.0]), run("fedavg", 1)])
    assert runs.mean_curve("ga") == {1: 10.0, 2: 20.0}


def test_traffic_is_that_of_one_client_in_one_round():
    known = {"upload_bytes": 6000, "rounds": 3, "clients_per_round": 4}
    runs = [run("fedavg", 0, **known), run("fedavg", 1, **{**known, "upload_bytes": 12000})]
    assert Results(runs).bytes_per_client("upload_bytes") == [500.0, 1000.0]
    assert Results(runs).bytes_per_client("download_bytes") == []
    assert Results([*runs, run("fedavg", 2)]).bytes_per_client("upload_bytes") == []


def test_runs_are_found_by_method_and_partition():
    runs = Results([run("a", 0), run("b", 0, partition="class"), run("a", 1, partition="class")])
    assert runs.methods == ["a", "b"]
    assert runs.partitions == ["iid", "class"]
    assert [each.seed for each in runs.of(method="a", partition="class")] == ["1"]
    assert [len(group) for group in runs.by_method().values()] == [2, 1]
    assert runs.of(method="b").labels == "b seed 0 (class)"
