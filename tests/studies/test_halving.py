"""Which settings go on after a rung, and on what grounds."""

import math

import pytest

from tests.data.refusals import refuses
from tff_pcdd.studies.sweeps import Point
from tff_pcdd.studies.tuning import Halving, best_held_out, last_held_out, learning_rates
from tff_pcdd.training import ExperimentConfig, History


def history(*rows):
    made = History(["round", "ga", "va", "last_lost_round"])
    for number, ga, va, lost in rows:
        made.append({"round": number, "ga": ga, "va": va, "last_lost_round": lost})
    return made


@pytest.mark.parametrize(
    ("rungs", "planned", "rounds"),
    [
        ((0.25, 0.5), 20, [5, 10]),
        ((0.25, 0.5), 30, [8, 15]),
        # Two rungs in one round are one, and the last round is none.
        ((0.25, 0.5), 2, [1]),
        ((0.5,), 1, []),
        ((), 20, []),
    ],
)
def test_rungs(rungs, planned, rounds):
    assert Halving(rungs).rounds(planned) == rounds


@pytest.mark.parametrize(
    ("scores", "reduction", "kept"),
    [
        ([30, 50, 40, 35, 45, 10], 2, [1, 2, 4]),
        ([30, 50, 40, 35, 45, 10], 3, [1, 4]),
        # One goes on at least, and a number that is not whole is rounded up.
        ([30, 50, 40], 2, [1, 2]),
        ([30, 50], 10, [1]),
        # The first of equal ones.
        ([40, 40, 40, 40], 2, [0, 1]),
        # What has diverged stops, however few are left.
        ([None, 20, None, 10], 2, [1, 3]),
        ([None, None], 2, []),
        # Nothing is known yet.
        ([-math.inf, -math.inf, None], 2, [0, 1]),
    ],
)
def test_the_best_go_on(scores, reduction, kept):
    halving = Halving(reduction=reduction, among="all")
    assert halving.kept(scores, [(str(number),) for number in range(len(scores))]) == kept
    # Settings with the same learning rate compete in the same way.
    assert Halving(reduction=reduction).kept(scores, [("0.1",)] * len(scores)) == kept


def test_of_equal_settings_those_nearest_to_the_defaults_go_on():
    """Two of four with the same score, but for rounding: the default and the nearest to it."""
    scores = [40, 40 + 1e-9, 40, 40]
    distances = [(1, 2.3), (1, 0.7), (0, 0.0), (2, 0.1)]
    for halving in (Halving(), Halving(among="all")):
        assert halving.kept(scores, [("0.1",)] * 4, distances) == [1, 2]
        assert halving.kept([40, 40, 40, 41], [("0.1",)] * 4, distances) == [2, 3]


@pytest.mark.parametrize(
    ("settings", "given", "expected"),
    [
        # The defaults are 0.01 and 0.01; 0.1 is ten times as much.
        ({"client_learning_rate": "0.01", "fedprox_mu": "0.01"}, {}, (0, 0)),
        ({"client_learning_rate": "0.1", "fedprox_mu": "0.01"}, {}, (1, math.log(10))),
        ({"client_learning_rate": "0.001", "fedprox_mu": "0.1"}, {}, (2, 2 * math.log(10))),
        ({"fedprox_mu": "0"}, {}, (1, 0.01)),
        # The default of Adam's rate is 0.001.
        ({"client_learning_rate": "0.002"}, {"client_optimizer": "adam"}, (1, math.log(2))),
        ({"client_optimizer": "adam"}, {}, (1, 0)),
        ({"a label": "3"}, {}, (0, 0)),
    ],
)
def test_how_far_settings_are_from_the_defaults(settings, given, expected):
    values = {
        name: text if name == "client_optimizer" else float(text)
        for name, text in settings.items()
        if name != "a label"
    }
    config = ExperimentConfig.from_settings(algorithm="fedprox", **values, **given)
    assert Point(settings, [config]).distance() == pytest.approx(expected)


def test_learning_rates_do_not_compete():
    rates = [("0.01",), ("0.1",), ("0.01",), ("0.1",), ("0.01",), ("1",)]
    scores = [30, 90, 10, 80, 20, None]
    # The better half of each: two of three, one of two. What has diverged stops.
    assert Halving().kept(scores, rates) == [0, 1, 4]
    assert Halving(among="all").kept(scores, rates) == [0, 1, 3]
    unknown = [30, -math.inf, 10, -math.inf, 20, -math.inf]
    assert Halving().kept(unknown, rates) == [0, 1, 3, 4, 5]


def crossing(rate, number):
    """Accuracy after some rounds of eight: slow and high, or fast and low."""
    return {"0.003": 4 * number, "0.01": 8 * number, "0.1": min(40, 20 * number)}[rate]


def test_a_rate_that_overtakes_the_others_late_is_not_stopped():
    """With all settings in one competition, both slow rates would be stopped."""
    coefficients = (0, 1, 2)
    found = {}
    for among in ("same_rate", "all"):
        halving = Halving(among=among)
        active = [(rate, c) for rate in ("0.003", "0.01", "0.1") for c in coefficients]
        for rung in halving.rounds(8):
            scores = [crossing(rate, rung) - c for rate, c in active]
            active = [active[i] for i in halving.kept(scores, [(rate,) for rate, _ in active])]
        found[among] = max(active, key=lambda point: crossing(point[0], 8) - point[1])
    assert found == {"same_rate": ("0.01", 0), "all": ("0.1", 0)}


def test_only_learning_rates_of_clients_and_server_are_kept_apart():
    settings = {"fedala_weight_learning_rate": "1", "server_learning_rate": "2", "batch_size": "3"}
    assert learning_rates(Point({"client_learning_rate": "0.1", **settings}, [])) == ("0.1", "2")


def test_the_best_accuracy_on_held_out_samples_so_far():
    made = history((1, 99, 10, 0), (2, 1, 30, 0), (3, 98, 30, 0), (4, 97, 80, 4), (5, 96, 70, 4))
    assert best_held_out(made, "va") == (5, 70)
    assert best_held_out(made, "va", until=4) == (2, 30)
    assert best_held_out(made, "va", until=1) == (1, 10)
    assert best_held_out(made, "va_personal") == (0, -math.inf)


def test_the_mean_of_the_last_accuracies_on_held_out_samples():
    """The fourth round was lost: 30, 30 and 70 count in the end, and 10, 30 and 30 before it."""
    made = history((1, 99, 10, 0), (2, 1, 30, 0), (3, 98, 30, 0), (4, 97, 80, 4), (5, 96, 70, 4))
    assert last_held_out(made, "va") == pytest.approx(130 / 3)
    assert last_held_out(made, "va", until=4) == pytest.approx(70 / 3)
    # With fewer than three, all of them.
    assert last_held_out(made, "va", until=2) == 20
    assert last_held_out(made, "va", until=1) == 10
    assert last_held_out(made, "va_personal") == -math.inf
    seldom = history((1, 9, 10, 0), (2, 9, None, 0), (3, 9, None, 0), (4, 9, 40, 0))
    assert last_held_out(seldom, "va") == 25


@pytest.mark.parametrize(
    ("rungs", "reduction", "setting"),
    [
        ((0.5, 0.25), 2, "rungs"),
        ((0.5, 0.5), 2, "rungs"),
        ((0, 0.5), 2, "rungs"),
        ((1,), 2, "rungs"),
        ((math.nan,), 2, "rungs"),
        ((0.5,), 1, "reduction"),
        ((0.5,), math.inf, "reduction"),
        ((0.5,), math.nan, "reduction"),
    ],
)
def test_refusals(rungs, reduction, setting):
    with refuses(setting, "must be "):
        Halving(rungs, reduction)


def test_what_competes_has_a_name():
    with refuses("halving", "choose one of same_rate, all"):
        Halving(among="rate")
