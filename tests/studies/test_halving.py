"""Which settings go on after a rung, and on what grounds."""

import math

import pytest

from tests.data.refusals import refuses
from tff_pcdd.studies.tuning import Halving, best_held_out
from tff_pcdd.training import History


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
    assert Halving(reduction=reduction).kept(scores) == kept


def test_the_best_accuracy_on_held_out_samples_so_far():
    made = history((1, 99, 10, 0), (2, 1, 30, 0), (3, 98, 30, 0), (4, 97, 80, 4), (5, 96, 70, 4))
    assert best_held_out(made, "va") == (5, 70)
    assert best_held_out(made, "va", until=4) == (2, 30)
    assert best_held_out(made, "va", until=1) == (1, 10)
    assert best_held_out(made, "va_personal") == (0, -math.inf)


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
