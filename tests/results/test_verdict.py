"""What a comparison answers, from results that are made up."""

import csv
import dataclasses

import numpy as np
import pytest
from scipy import stats

from tests.report.directories import make_run
from tff_pcdd import findings
from tff_pcdd.findings import Change, Finding
from tff_pcdd.report import client_tables
from tff_pcdd.results import (
    by_client,
    comparison_findings,
    method_traits,
    run_evidence,
    verdict,
    wording,
)
from tff_pcdd.results.gains import gain, gain_over
from tff_pcdd.results.reading import Directory
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.training import summary as summaries
from tff_pcdd.training.clients_table import ClientResult

GA = {
    "fedavg": (70.0, 71.0, 72.0),
    "fedgela": (80.0, 82.0, 81.0),
    "ccvr": (79.0, 83.0, 80.5),
    "central": (90.0, 91.0, 92.0),
}
PA = {
    "fedavg": (80.0, 81.0, 82.0),
    "fedgela": (85.0, 85.5, 86.0),
    "ccvr": (81.0, 80.0, 82.0),
    "local": (60.0, 62.0, 61.0),
}


def results(partitions=("P",), seeds=3, **changes):
    found = []
    for number, partition in enumerate(partitions):
        for method in dict.fromkeys([*GA, *PA]):
            for seed in range(seeds):
                values = {}
                if method in GA:
                    values["ga_final"] = GA[method][seed] - 5 * number
                if method in PA:
                    values["pa_final"] = PA[method][seed] - 5 * number
                found.append(Result(partition, method, str(seed), False, values, **changes))
    return Results(found)


def expected(own, others, among=1):
    """The mean difference and Student's interval, one of several that hold together, by SciPy."""
    differences = np.subtract(own, others)
    test = stats.ttest_1samp(differences, 0.0)
    interval = test.confidence_interval(1 - 0.05 / among)
    return differences.mean(), interval.low, interval.high


def test_gains_have_students_interval():
    found = gain([8.0, 9.0, 10.0])
    mean, low, high = expected([8.0, 9.0, 10.0], [0.0] * 3)
    assert (found.mean, found.units) == (mean, 3)
    np.testing.assert_allclose([mean - found.half, mean + found.half], [low, high], rtol=1e-9)
    assert found.is_certain
    assert not gain([-1.0, 4.0]).is_certain
    assert gain([5.0]) == (5.0, None, 1)
    assert not gain([5.0]).is_certain
    assert gain([]) is None


def test_the_best_method_and_what_cannot_be_told_apart():
    [answer] = verdict.read(results(), [])
    globally, personal = answer.choices
    # Baselines are set beside the methods, but are not among them.
    assert (globally.best, globally.tied, globally.behind) == ("fedgela", ["ccvr"], ["fedavg"])
    assert [*globally.over] == ["fedavg", "central"]
    assert (personal.best, personal.tied, personal.behind) == ("fedgela", [], ["fedavg", "ccvr"])
    assert [*personal.over] == ["fedavg", "local"]
    for method, found in personal.over.items():
        # Of three methods, two are compared with FedAvg, and three with training alone.
        mean, low, high = expected(PA["fedgela"], PA[method], 2 if method == "fedavg" else 3)
        np.testing.assert_allclose(
            [found.mean, found.mean - found.half, found.mean + found.half], [mean, low, high]
        )
    pairs = dict(wording.sentences(answer))
    assert pairs["One model for all: fedgela leads."] == (
        "GA 81.0 ± 1.0 %, +10.0 (95 % interval +6.4 to +13.6) over fedavg, 10.0 points below "
        "central (95 % interval −14.4 to −5.6). 3 seeds cannot tell it from ccvr; take "
        "--seeds=0,1,2,3,4. Behind for certain: fedavg."
    )
    assert (
        "It is ahead of all 2 other methods."
        in pairs["A model for each client, after local training: fedgela."]
    )


def test_fedavg_is_not_taken_if_another_method_is_ahead_of_it_for_certain():
    """Although the method that leads is not, as its seeds differ widely.

    Over FedAvg, FedGELA has 30, 70 and 35 points, 45 ± 6.205 · 21.8 / √3 = 78; FedGE has 40, 41
    and 42, 41 ± 3.6.
    """
    accuracies = {
        "fedavg": [33.0, 32.0, 31.0],
        "fedgela": [63.0, 102.0, 66.0],
        "fedge": [73.0, 73.0, 73.0],
    }
    [answer] = verdict.read(made(accuracies), [])
    [choice] = answer.choices
    assert (choice.best, choice.tied, choice.behind) == ("fedgela", ["fedge"], ["fedavg"])
    assert wording.heading(choice) == "One model for all: fedgela leads."
    [taken] = answer.recommended
    assert taken.method == "fedge"
    assert wording.reasons(answer, taken) == ", ahead of fedavg for certain, which fedgela is not"
    # The same by PA after local training, beside training alone.
    pa = Results([*made(accuracies, "pa_final"), *made({"local": [20.0, 21.0, 19.0]}, "pa_final")])
    [answer] = verdict.read(pa, [])
    assert answer.federating.method == "fedgela"
    assert answer.federating.recommended == ("fedge", "pa_final")
    [taken] = answer.recommended
    assert (taken.method, wording.reasons(answer, taken)) == (
        "fedge",
        ", ahead of fedavg for certain, which fedgela is not",
    )


def test_two_methods_are_compared_once(monkeypatch):
    """Of 12 methods, 66 pairs; the best, FedAvg, is set beside central too."""
    compared = []

    def counted(*given):
        compared.append(given)
        return gain_over(*given)

    monkeypatch.setattr(verdict, "gain_over", counted)
    values = {f"method{i:02}": [50.0 + i, 51.0 + i] for i in range(10)}
    values |= {"fedavg": [70.0, 71.0], "ccvr": [60.0, 62.0], "central": [80.0, 80.0]}
    [answer] = verdict.read(made(values), [])
    assert answer.choices[0].best == "fedavg"
    assert len(compared) == 66 + 1


@pytest.mark.parametrize(("methods", "seeds"), [(3, 3), (10, 5)])
def test_of_equal_methods_none_seems_better_but_in_a_twentieth_of_studies(methods, seeds):
    """The largest of many differences is large by chance, so it is not judged alone."""
    rng = np.random.default_rng(methods)
    names = ["fedavg", *(f"method{i}" for i in range(1, methods))]
    studies, led, excluded = 200, 0, 0
    for _ in range(studies):
        drawn = 50.0 + rng.normal(size=(methods, seeds))
        [answer] = verdict.read(made(dict(zip(names, drawn.tolist(), strict=True))), [])
        [choice] = answer.choices
        led += choice.best != "fedavg" and choice.over["fedavg"].is_certain
        # Each of them is the best.
        excluded += "fedavg" in choice.behind
    # A twentieth, and twice its standard error.
    most = studies * (0.05 + 2 * (0.05 * 0.95 / studies) ** 0.5)
    assert led <= most
    assert excluded <= most


def test_one_seed_cannot_tell_methods_apart():
    [answer] = verdict.read(results(seeds=1), [])
    assert answer.choices[0].tied == ["fedavg", "ccvr"]
    assert "1 seed cannot tell it from fedavg, ccvr; take" in wording.sentence(answer.choices[0])
    assert "interval" not in wording.sentence(answer.choices[0])
    assert wording.sentences(answer)[0][0] == (
        "One model for all: undecided between fedgela, fedavg and ccvr; fedgela leads."
    )


def made(values, key="ga_final"):
    """Runs of one partition, from the accuracies of each method by seed."""
    return Results(
        Result("P", method, str(seed), False, {key: value})
        for method, own in values.items()
        for seed, value in enumerate(own)
    )


def test_all_methods_with_the_best_value_are_named():
    """100 % with every seed, as on easy data."""
    full = [100.0, 100.0, 100.0]
    [answer] = verdict.read(made({"fedgela": full, "ccvr": full, "fedavg": [90.0, 91.0, 92.0]}), [])
    [(heading, sentence)] = wording.sentences(answer)
    assert heading == "One model for all: fedgela, ccvr lead with the same value."
    # 10, 9 and 8 points: 9 ± 6.205 / √3, Student's factor for three seeds and 97.5 %, as the
    # intervals over two methods hold together.
    assert sentence == (
        "GA 100.0 ± 0.0 %, +9.0 (95 % interval +5.4 to +12.6) over fedavg. The task is too easy to "
        "tell them apart, with more seeds too: take harder data, such as a smaller "
        "--max_train_samples, or fewer --rounds to see which learns faster. Behind for certain: "
        "fedavg."
    )
    for others in ({"fedavg": full, "ccvr": full}, {"ccvr": full, "fedavg": full}):
        [answer] = verdict.read(made({**others, "moon": [80.0] * 3}), [])
        heading, sentence = wording.sentences(answer)[0]
        names = ", ".join(others)
        assert heading == (
            f"One model for all: undecided between {' and '.join(others)}; "
            f"{names} lead with the same value."
        )


@pytest.mark.parametrize(
    ("others", "advice"),
    [
        # At most one of 80 test samples is wrong, 1.25 points.
        ([100.0, 98.75], "The task is too easy"),
        # Three are wrong with one seed, so 1.5 samples on average.
        ([100.0, 96.25], "take --seeds=0,1,2,3,4"),
    ],
)
def test_more_seeds_are_not_advised_where_nothing_can_be_gained(others, advice):
    values = {"fedavg": others, "fedgela": [100.0, 100.0]}
    clients = [
        client(name, method, seed, 100.0, test=40)
        for name in ("north", "south")
        for method in values
        for seed in "01"
    ]
    [answer] = verdict.read(made(values), clients)
    sentence = wording.sentence(answer.choices[0])
    assert "2 seeds cannot tell it from fedavg" in sentence
    assert advice in sentence
    assert ("--seeds" in sentence) == ("--seeds" in advice)


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        # 10, 10.5 and 11 points, 1, -1.5 and 1, and -5, -5.5 and -6: Student's half-width for three
        # seeds is 4.303 / √3 times the deviation, 1.2, 3.6 and 1.2.
        ([75.0, 75.0, 75.0], "fedgela."),
        ([84.0, 87.0, 85.0], "undecided between fedgela and training alone; fedgela leads."),
        ([90.0, 91.0, 92.0], "training alone is better; fedgela leads."),
    ],
)
def test_training_alone_may_be_better_than_every_method(alone, expected):
    values = {"fedavg": PA["fedavg"], "fedgela": PA["fedgela"], "local": alone}
    [answer] = verdict.read(made(values, "pa_final"), [])
    heading, _ = wording.sentences(answer)[0]
    assert heading == f"A model for each client, after local training: {expected}"


def test_differences_without_an_interval_say_so():
    [answer] = verdict.read(made({"fedavg": [70.0, 71.0], "fedgela": [75.0, 76.0]}), [])
    assert "+5.0 (2 equal differences, which give no interval) over fedavg" in (
        wording.sentence(answer.choices[0])
    )
    [answer] = verdict.read(made({"fedavg": [70.0], "fedgela": [75.0]}), [])
    assert "+5.0 (a single difference) over fedavg" in wording.sentence(answer.choices[0])
    # Equal but for rounding.
    assert "equal differences" in gain([0.3, 0.1 + 0.2]).shown


@pytest.mark.parametrize(
    ("ahead", "heading", "found"),
    [
        # 40 test samples at each of two clients: one of 80 is 1.25 points of GA, and one of 40 at
        # one of two clients is 1.25 points of PA.
        (
            1.25,
            "undecided between fedgela and fedavg; fedgela leads.",
            "+1.2 (2 equal differences of one test sample) over fedavg. 2 seeds cannot tell it "
            "from fedavg; take --seeds=0,1,2,3,4.",
        ),
        (
            2.5,
            "fedgela.",
            "+2.5 (2 equal differences, which give no interval) over fedavg. It is ahead of the "
            "other method.",
        ),
    ],
)
@pytest.mark.parametrize("key", ["ga_final", "pa_final"])
def test_the_same_single_test_sample_in_each_run_is_no_lead(key, ahead, heading, found):
    values = {"fedavg": [75.0, 77.5], "fedgela": [75.0 + ahead, 77.5 + ahead]}
    clients = [
        client(name, method, seed, 75.0, test=40)
        for name in ("north", "south")
        for method in values
        for seed in "01"
    ]
    [answer] = verdict.read(made(values, key), clients)
    [choice] = answer.choices
    assert wording.heading(choice).endswith(f": {heading}")
    assert wording.sentence(choice).endswith(f" %, {found}")


def test_no_difference_is_said_to_be_none():
    """All three are right for all samples; 0.02 points are two of ten thousand samples."""
    full = [100.0, 100.0]
    [answer] = verdict.read(made({"fedgela": full, "fedavg": full, "central": full}), [])
    assert wording.sentence(answer.choices[0]).startswith(
        "GA 100.0 ± 0.0 %, equal to fedavg, equal to central. "
    )
    nearly = made({"fedgela": full, "fedavg": [99.98, 99.98], "central": [100.0, 100.02]})
    [answer] = verdict.read(nearly, [])
    # 0 and 0.02: 0.01 ± 25.452 · 0.0141 / √2, by two methods beside central.
    assert wording.sentence(answer.choices[0]).startswith(
        "GA 100.0 ± 0.0 %, within 0.05 points of fedavg (2 equal differences, which give no "
        "interval), within 0.05 points of central (95 % interval −0.3 to +0.2). "
    )


def test_more_seeds_are_none_of_those_that_chose():
    runs = Results([dataclasses.replace(run, seed=str(int(run.seed) + 1)) for run in results()])
    for tuned_with, advice in (((), "--seeds=1,2,3,4,5"), ((0, 4), "--final_seeds=1,2,3,5,6")):
        [answer] = verdict.read(runs, [], tuned_with)
        assert f"cannot tell it from ccvr; take {advice}." in wording.sentence(answer.choices[0])


def test_advice_to_a_comparison_is_what_its_program_accepts():
    """FedGELA's head is fixed, and a sweep refuses a flag that its grid varies."""
    changes = [
        Change("--client_weighting=uniform", ("client_weighting",)),
        Change("--head_calibration=ccvr", ("head_calibration",)),
    ]
    rising = Finding.advised("rising", "R.", [Change("--rounds=60", ("rounds",), True)])
    found = [Finding.advised("groups", "G.", changes), rising]
    for methods, tuned, left in (
        (["fedavg", "fedprox"], (), ["uniform, or --head_calibration=ccvr.", "rounds=60."]),
        (["fedavg", "local"], (), ["uniform, or --head_calibration=ccvr.", "rounds=60."]),
        (["fedavg", "fedgela"], (), ["uniform.", "rounds=60."]),
        (["fedavg", "fedgela"], ("client_weighting",), ["", "rounds=60."]),
    ):
        runs = made({method: [50.0] for method in methods})
        kept = comparison_findings.agreeing(found, runs, tuned)
        assert [each.next.rpartition("Next: --client_weighting=")[2] for each in kept] == [
            left[0],
            f"Next: --{left[1]}",
        ]


def test_federations_are_the_units_over_several():
    overall, *each = verdict.read(results(("A", "B")), [])
    assert (overall.partition, [answer.partition for answer in each]) == ("", ["A", "B"])
    found = overall.choices[0]
    assert (found.units, found.over["fedavg"].units) == ("partition", 2)
    assert found.over["fedavg"].mean == pytest.approx(10.0)
    assert each[0].choices[0].over["fedavg"].units == 3


def test_gains_over_federations_are_those_of_pairs():
    """A run that diverged leaves its partner without a pair; FedGELA is 1 ahead in all others."""
    runs = [
        Result(where, method, str(seed), method == "fedavg" and (where, seed) == ("B", 0), values)
        for where in ("A", "B")
        for method, ahead in (("fedavg", 0.0), ("fedgela", 1.0))
        for seed in range(3)
        for values in [{"ga_final": 60.0 + 10 * seed + ahead}]
    ]
    overall, *_ = verdict.read(Results(runs), [])
    assert overall.choices[0].over["fedavg"] == (1.0, 0.0, 2)


def test_methods_that_lack_runs_are_named():
    runs = [run for run in results() if (run.method, run.seed) != ("ccvr", "2")]
    [answer] = verdict.read(Results(runs), [])
    assert wording.sentence(answer.choices[1]).endswith(
        "It is ahead of fedavg. Not ranked, because runs are missing or diverged: ccvr."
    )


def test_a_method_that_diverged_is_not_the_best():
    runs = [
        dataclasses.replace(run, diverged=(run.method, run.seed) == ("fedgela", "0"))
        for run in results()
    ]
    [answer] = verdict.read(Results(runs), [])
    assert [choice.best for choice in answer.choices] == ["ccvr", "fedavg"]


def test_methods_are_ordered_by_ga_and_baselines_come_last():
    runs = [*results(), Result("P", "fedper", "0", False, {"ga_final": 99.0, "pa_final": 70.0})]
    assert method_traits.ordered(Results(runs)) == [
        *("fedgela", "ccvr", "fedavg"),
        # It has no global model.
        "fedper",
        *("central", "local"),
    ]


def client(name, method, seed, pa, over_local=None, test=100):
    values = {"pa": pa, "over_local": over_local, "ga": pa, "over_global": 0.0, "pa_before": pa}
    return ClientResult(name, 50, test, values, run=("P", method, seed))


def test_clients_gain_and_lose():
    clients = [
        client("north", "fedgela", seed, 90.0 + number, 20.0 + number)
        for number, seed in enumerate("012")
    ]
    clients += [client("south", "fedgela", seed, 70.0, -20.0) for seed in "012"]
    clients += [client("west", "fedgela", seed, 70.0, -1.0, test=40) for seed in "012"]
    # Seeds that disagree.
    gains = (-30.0, -40.0, 1.0)
    clients += [client("east", "fedgela", s, 60.0, g) for s, g in zip("012", gains, strict=True)]
    # Seeds without a gain have no sign.
    clients += [
        client("port", "fedgela", s, 70.0, g) for s, g in zip("012", (0.0, 0.0, 45.0), strict=True)
    ]
    clients += [
        client(name, "ccvr", "0", 80.0, 1.0) for name in ("north", "south", "west", "east", "port")
    ]
    [answer] = verdict.read(results(), clients)
    found = answer.at_clients.gains["fedgela"]
    assert {name: each.counts for name, each in found.items()} == {
        "north": True,
        "south": True,
        "west": False,
        "east": False,
        "port": False,
    }
    assert found["north"].gain == pytest.approx(21.0)
    assert answer.at_clients.lost("fedgela") == [(-20.0, "south")]
    assert dict(wording.sentences(answer))["Clients."] == (
        "With fedgela (PA after), 1 of 5 clients gains over training alone by more than chance; "
        "1 loses: south (−20.0)."
    )
    [line] = comparison_findings.of_clients([answer])
    assert line.what.startswith("1 of 2 methods lose to training alone at some client")
    assert line.next == "Next: keep the model of --algorithm=local at these clients, or take ccvr."


@pytest.mark.parametrize(
    ("tests", "gains", "said"),
    [
        # (10 − 2 + 1.9 − 0.7) / 4 = 2.3, and (−2 + 1.9 − 0.7) / 3 = −0.27 without the first one.
        ((4, 50, 60, 70), (10.0, -2.0, 1.9, -0.7), "it is −0.3."),
        ((5, 50, 60, 70), (10.0, -2.0, 1.9, -0.7), ""),
        # (10 + 5 + 4 + 6) / 4 = 6.25, and 5 without the first one.
        ((4, 50, 60, 70), (10.0, 5.0, 4.0, 6.0), ""),
        ((4, 4, 4, 4), (10.0, -2.0, 1.9, -0.7), ""),
    ],
)
def test_a_gain_that_comes_from_a_client_with_few_test_samples(tests, gains, said):
    """With two seeds, whose gains at the first client are 2 points apart."""
    clients = []
    for number, (test, gain_there) in enumerate(zip(tests, gains, strict=True)):
        for seed, off in (("0", 1.0), ("1", -1.0)):
            pa = 80.0 + gain_there + (off if number == 0 else 0.0)
            clients.append(client(f"ward {number}", "fedgela", seed, pa, test=test))
            clients.append(client(f"ward {number}", "fedavg", seed, 80.0, test=test))
    mean = 80.0 + sum(gains) / 4
    values = {"fedgela": mean, "fedavg": 80.0}
    found = Results(
        Result("P", method, seed, False, {"pa_final": pa})
        for method, pa in values.items()
        for seed in ("0", "1")
    )
    [answer] = verdict.read(found, clients)
    sentence = dict(wording.sentences(answer))[wording.heading(answer.choices[0])]
    shown = (
        "The gain over fedavg comes from ward 0 (+10.0 points, 4 test samples): without clients "
        f"with fewer than 5 test samples, {said}"
    )
    assert sentence.endswith(shown) if said else "comes from" not in sentence


def test_no_client_gains():
    clients = [client(name, "fedgela", "0", 60.0, -30.0) for name in ("north", "south")]
    [answer] = verdict.read(results(), clients)
    assert dict(wording.sentences(answer))["Clients."] == (
        "With fedgela (PA after), none of 2 clients gains over training alone by more than chance; "
        "2 lose: north (−30.0), south (−30.0)."
    )


def test_without_training_alone_clients_are_compared_with_fedavg():
    clients = [client("north", "fedavg", "0", 60.0), client("north", "fedgela", "0", 90.0)]
    [answer] = verdict.read(results(), clients)
    assert answer.at_clients.over == "fedavg"
    assert answer.at_clients.gains == {"fedgela": {"north": (30.0, True)}}
    assert [*comparison_findings.of_clients([answer])] == []
    [answer] = verdict.read(results(), clients[1:])
    assert answer.at_clients is None


def test_a_re_trained_head_that_is_worse_than_fedavg():
    """9, 10 and 11 points: Student's half-width is 4.303 / √3 for a deviation of 1."""
    values = {"fedavg": [80.0, 81.0, 82.0], "ccvr": [71.0, 71.0, 71.0], "fedgela": [60.0] * 3}
    [found] = comparison_findings.of_re_trained(made(values))
    assert found[:3] == (
        "re-trained",
        "The global model of ccvr is worse than that of fedavg, from which it differs in its "
        "re-trained head: −10.0 (95 % interval −12.5 to −7.5) points of GA.",
        "Next: --algorithm=fedavg.",
    )
    assert [*comparison_findings.of_re_trained(made({**values, "ccvr": [80.0, 82.0, 83.0]}))] == []
    assert [*comparison_findings.of_re_trained(made({**values, "ccvr": [70.0, 81.0, 82.0]}))] == []
    assert [*comparison_findings.of_re_trained(made({"ccvr": [71.0]}))] == []


def test_findings_of_runs_are_collected():
    longer = Change("--rounds=60 (now 30)", ("rounds",), True)
    rising = Finding.advised("rising", "GA was still rising.", [longer])
    own = Finding("below global", "Of one run.")
    runs = results(load_findings=lambda: [rising, own])
    [line] = comparison_findings.of_runs(runs)
    assert line.what == (
        "Accuracy was still rising in 15 of 15 runs: fedavg seed 0 (P), fedavg seed 1 (P), "
        "fedavg seed 2 (P), fedgela seed 0 (P), fedgela seed 1 (P), fedgela seed 2 (P) and 9 more."
    )
    assert (line.next, line.changes) == ("Next: --rounds=60 (now 30).", (longer,))


@pytest.mark.parametrize(
    ("of_fedavg", "of_others", "is_advised"),
    [(1, 0, False), (2, 0, False), (3, 0, True), (2, 1, True)],
)
def test_a_change_for_all_runs_is_not_advised_for_a_few(of_fedavg, of_others, is_advised):
    """Of 9 runs of three methods, and 6 of baselines, which do not count: a third are 3."""
    smaller = Change("--client_learning_rate=0.003 (now 0.01)", ("client_learning_rate",), False)
    unstable = Finding.advised("unstable", "GA is low.", [smaller])
    kinds = {"fedavg": of_fedavg, "ccvr": of_others, "local": 3}
    found = {True: lambda: [unstable], False: list}
    runs = Results(
        dataclasses.replace(run, load_findings=found[int(run.seed) < kinds.get(run.method, 0)])
        for run in results()
    )
    [line] = comparison_findings.of_runs(runs)
    assert line.what.startswith(
        f"The last round is far below the best one in {sum(kinds.values())} of 15 "
    )
    assert line.next == ("Next: --client_learning_rate=0.003 (now 0.01)." if is_advised else "")
    assert line.changes == ((smaller,) if is_advised else ())


def test_summary_and_page_have_the_same_findings(tmp_path):
    """Of any run directory: here one with a client that is far below the global model."""
    made = make_run(tmp_path, clients=("north", "south\n"), rounds=20)
    path = tmp_path / "clients.csv"
    header, first, *rest = path.read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index("test_samples")] = "400"
    cells[header.split(",").index("over_global")] = "-30"
    path.write_text("\n".join([header, ",".join(cells), *rest]) + "\n")
    directory = Directory(tmp_path)
    settings, history = directory.json("config.json"), directory.history()
    recorded = summaries.find(tmp_path, settings, made, history)
    computed = findings.of_run(settings, made, history, run_evidence.read(directory))
    assert recorded == [finding.record() for finding in computed]
    assert "below global" in [finding["kind"] for finding in recorded]
    # Runs of earlier versions have none in summary.json.
    old = run_evidence.findings_of(tmp_path, made)
    new = run_evidence.findings_of(tmp_path, {**made, findings.KEY: recorded})
    assert [finding.record() for finding in new] == recorded
    assert old == new
    # Nor have those of the versions that recorded no changes.
    earlier = [{name: each[name] for name in ("kind", "what", "next")} for each in recorded]
    assert run_evidence.findings_of(tmp_path, {**made, findings.KEY: earlier}) == new
    assert any(each.changes for each in new)
    assert run_evidence.findings_of(tmp_path / "nowhere", made) == []
    assert run_evidence.findings_of(None, made) == []


def test_the_table_of_clients_reads_them_as_often_whatever_their_number():
    class Clients(list):
        read = 0

        def __iter__(self):
            Clients.read += 1
            return super().__iter__()

    clients = [
        client(str(k), "fedgela", seed, 70.0, test=10 + k + int(seed))
        for seed in "10"
        for k in range(50)
    ]
    found = client_tables.of_comparison(Clients(clients), ["fedgela"])
    # The run with seed 0 has the fewest.
    assert [row.cells[0][1] for row in found.rows] == [10 + k for k in range(50)]
    assert Clients.read <= 3


def test_failed_runs_may_leave_two_methods_without_a_common_seed():
    """What was compared nowhere cannot be told apart."""
    runs = [
        Result("P", method, seed, False, {"ga_final": ga})
        for method, seed, ga in (("fedavg", "0", 70.0), ("fedgela", "1", 80.0))
    ]
    [answer] = verdict.read(Results(runs), [])
    [choice] = answer.choices
    assert (choice.best, choice.tied) == ("fedgela", ["fedavg"])


def test_long_names_that_differ_at_their_end_are_different_clients(tmp_path):
    """Read from the file of a comparison, as a page does."""
    ward = "Klinik und Poliklinik fuer Dermatologie und Allergologie, Haus {}"
    names = [f"{ward} {letter * 8}".replace("{}", "3") for letter in "AB"]
    assert min(map(len, names)) > 60
    assert names[0][:60] == names[1][:60]
    header = ["partition", "algorithm", "seed", "client", "train_samples", "test_samples"]
    header += ["pa", "over_local", "ga", "over_global", "pa_before"]
    rows = [
        ["P", "fedgela", "0", name, 50, 100, 70 + gain, gain, 70, gain, 70]
        for name, gain in zip(names, (30, -30), strict=True)
    ]
    with open(tmp_path / "clients.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    clients = by_client.read_all(Directory(tmp_path))
    [answer] = verdict.read(results(), clients)
    assert answer.at_clients.lost("fedgela") == [(-30.0, names[1])]
    assert "1 of 2 clients gains" in dict(wording.sentences(answer))["Clients."]
    table = client_tables.of_comparison(clients, ["fedgela"])
    assert [row.cells[1][1] for row in table.rows] == [40.0, 100.0]
    assert max(len(row.name) for row in table.rows) < 90


def test_no_interval_is_wider_than_what_accuracies_can_differ_by():
    """Of 4.0 and 63.6 points, Student's interval is 33.8 ± 12.706 · 29.8."""
    shown = gain([4.0, 63.6]).over("fedavg")
    assert shown == "+33.8 (95 % interval −100.0 to +100.0) over fedavg"


def alone_and(pa, before, masked, alone, ga, alone_ga):
    """Runs of FedAvg and CCVR, and of training alone, from accuracies by seed."""
    found = []
    for seed in range(3):
        for method in ("fedavg", "ccvr"):
            values = {"pa_final": pa[method][seed], "pa_before_final": before[method][seed]}
            values |= {"pa_before_masked_final": masked[method][seed], "ga_final": ga[method][seed]}
            found.append(Result("P", method, str(seed), False, values))
        values = {"pa_final": alone[seed], "pa_before_final": alone[seed], "ga_final": alone_ga}
        found.append(Result("P", "local", str(seed), False, values))
    return Results(found)


PAYS = {
    "before": {"fedavg": (70.0, 70.0, 70.0), "ccvr": (72.0, 72.0, 72.0)},
    "ga": {"fedavg": (69.0, 70.0, 71.0), "ccvr": (74.0, 75.0, 76.0)},
    "alone": (80.0, 81.0, 82.0),
    "alone_ga": 48.0,
}


def test_the_answer_says_that_federating_pays_with_own_classes():
    """PA before with own classes is the best; its gains are 8, 9 and 10 points.

    The intervals of two methods hold together, Student's factor is 6.205: 9 ± 3.6.
    """
    pa = {"fedavg": (79.0, 81.0, 83.0), "ccvr": (85.0, 85.0, 85.0)}
    masked = {"fedavg": (80.0, 80.0, 80.0), "ccvr": (88.0, 90.0, 92.0)}
    clients = []
    for seed in "012":
        for name, own, alone, shared in (("north", 95.0, 70.0, 78.0), ("south", 85.0, 92.0, 72.0)):
            clients.append(client(name, "local", seed, alone))
            values = {"pa": 85.0, "ga": shared, "pa_before_masked": own, "over_local": 85.0 - alone}
            clients.append(ClientResult(name, 50, 100, values, run=("P", "ccvr", seed)))
    [answer] = verdict.read(alone_and(pa=pa, masked=masked, **PAYS), clients)
    said = dict(wording.sentences(answer))
    # GA is 75 ± 1, 27 ± 6.205 / √3 over 48. On the clients' own samples, the shared model has 75,
    # 6 points less than 81 with each seed.
    assert said["Federating: it pays on the clients' own samples."] == (
        "The best models there are ccvr's: PA before, own classes 90.0 ± 2.0 %, +9.0 (95 % "
        "interval +5.4 to +12.6) over training alone. On the whole test set, the shared model "
        "of ccvr has GA 75.0 ± 1.0 %, +27.0 (95 % interval +23.4 to +30.6) over training alone, "
        "and 6.0 points below it (3 equal differences, which give no interval) on the clients' "
        "own samples."
    )
    # 95 - 70 and 85 - 92: a difference of 7 may be chance with 100 test samples.
    assert said["Clients."] == (
        "With ccvr (PA before, own classes), 1 of 2 clients gains over training alone by more "
        "than chance; none loses."
    )
    # By PA, 85 - 70 and 85 - 92.
    shown = client_tables.heat_map(answer.at_clients, ["ccvr", "local"], answer.recommended_gains)
    assert shown.columns == [shown.first, "ccvr"] == ["ccvr, PA before, own classes", "ccvr"]
    gains = {name: [cell[0] for cell in cells] for name, _, cells in shown.rows}
    assert gains == {"south": ["−7.0", "−7.0"], "north": ["+25.0", "+15.0"]}
    assert answer.federating.recommended == ("ccvr", "pa_before_masked_final")


@pytest.mark.parametrize(
    ("pa", "heading", "recommended"),
    [
        # 9, 8 and 7 points over training alone, ± 6.205 / √3; 5 over FedAvg with each seed.
        ((89.0, 89.0, 89.0), "it pays", "ccvr"),
        # 0, 3 and -2: ± 9.0 points.
        ((80.0, 84.0, 80.0), "undecided whether it pays", "fedavg"),
        # -10, -11 and -12, ± 3.6 points.
        ((70.0, 70.0, 70.0), "training alone is better", "local"),
    ],
)
def test_the_answer_may_be_that_federating_does_not_pay(pa, heading, recommended):
    # Beside FedAvg: 5 points in the first case, 0, 4 and 0 in the second.
    fedavg = (84.0, 84.0, 84.0) if recommended == "ccvr" else (80.0, 80.0, 80.0)
    fedavg = (60.0, 60.0, 60.0) if recommended == "local" else fedavg
    low = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (50.0, 50.0, 50.0)}
    values = {**PAYS, "before": low}
    found = alone_and(pa={"fedavg": fedavg, "ccvr": pa}, masked=low, **values)
    [answer] = verdict.read(found, [])
    assert wording.pays(answer.federating) == f"Federating: {heading} on the clients' own samples."
    assert answer.federating.recommended == (recommended, "pa_final")


def test_fedavg_is_not_recommended_if_it_is_worse_than_training_alone():
    """FedAvg: -3, -2.5 and -3, -2.8 ± 1.0 points; ccvr, 2, 5.5 and 0.5 over it: 2.7 ± 6.4."""
    pa = {"fedavg": (77.0, 78.5, 79.0), "ccvr": (79.0, 84.0, 79.5)}
    low = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (50.0, 50.0, 50.0)}
    [answer] = verdict.read(alone_and(pa=pa, masked=low, **{**PAYS, "before": low}), [])
    assert wording.pays(answer.federating).startswith("Federating: undecided")
    assert answer.federating.recommended == ("ccvr", "pa_final")


def test_both_questions_about_pa_have_the_same_intervals():
    """Over FedAvg, 5, 6.2 and 3.8 points, 5 ± 6.205 · 1.2 / √3; over training alone ± 7.649."""
    accuracies = {
        "fedavg": [80.0, 80.0, 80.0],
        "fedgela": [85.0, 86.2, 83.8],
        "ccvr": [70.0, 71.0, 72.0],
        "local": [60.0, 60.0, 60.0],
    }
    [answer] = verdict.read(made(accuracies, "pa_final"), [])
    [choice] = answer.choices
    assert choice.over["fedavg"].shown == "+5.0 (95 % interval +0.7 to +9.3)"
    assert choice.over["local"] == answer.federating.over
    assert answer.federating.over.shown == "+25.0 (95 % interval +19.7 to +30.3)"
    assert answer.federating.recommended == ("fedgela", "pa_final")


def test_gains_of_clients_and_reasons_are_of_the_models_that_are_surely_better():
    """Over FedAvg's 80, own classes have 0, 20 and 10 points, 10 ± 24.8, and PA before 7 each."""
    pa = {"fedavg": (80.0, 80.0, 80.0), "ccvr": (85.0, 85.0, 85.0)}
    masked = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (80.0, 100.0, 90.0)}
    before = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (87.0, 87.0, 87.0)}
    values = {**PAYS, "before": before, "alone": (60.0, 60.0, 60.0)}
    clients = []
    for seed in "012":
        clients.append(client("north", "local", seed, 60.0))
        found = {"pa": 85.0, "ga": 70.0, "pa_before": 87.0, "over_local": 25.0}
        found["pa_before_masked"] = 90.0
        clients.append(ClientResult("north", 50, 100, found, run=("P", "ccvr", seed)))
    [answer] = verdict.read(alone_and(pa=pa, masked=masked, **values), clients)
    assert answer.federating.key == "pa_before_masked_final"
    assert answer.federating.recommended == ("ccvr", "pa_before_final")
    assert answer.recommended_gains.key == "pa_before_final"
    assert answer.recommended_gains.gains["ccvr"]["north"].gain == pytest.approx(27.0)
    taken = next(each for each in answer.recommended if each.is_personal)
    assert wording.reasons(answer, taken) == (
        ", ahead of fedavg for certain, which ccvr's PA before, own classes is not"
    )


def test_new_clients_have_test_samples_in_ga():
    """With 40 test samples at each of two clients, 2.5 points of GA are two of them."""
    values = {"fedavg": [75.0, 77.5], "fedgela": [77.5, 80.0]}
    clients = [
        dataclasses.replace(client(name, method, seed, 75.0, test=40), new=name == "late")
        for name in ("north", "late")
        for method in values
        for seed in "01"
    ]
    [answer] = verdict.read(made(values), clients)
    assert answer.choices[0].sample == 1.25
    assert answer.choices[0].behind == ["fedavg"]


def test_clients_are_those_of_the_recommended_models():
    """FedAvg's, as it is undecided, although CCVR's are better on average and lose nowhere."""
    pa = {"fedavg": (80.0, 80.0, 80.0), "ccvr": (80.0, 84.0, 80.0)}
    low = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (50.0, 50.0, 50.0)}
    clients = []
    for seed in "012":
        for method, over in (("local", None), ("fedavg", -30.0), ("ccvr", 30.0)):
            clients.append(client("north", method, seed, 60.0, over))
            clients.append(client("south", method, seed, 60.0, None if over is None else 0.0))
    [answer] = verdict.read(alone_and(pa=pa, masked=low, **{**PAYS, "before": low}), clients)
    assert answer.federating.recommended == ("fedavg", "pa_final")
    assert answer.recommended_gains is None
    assert dict(wording.sentences(answer))["Clients."] == (
        "With fedavg (PA after), none of 2 clients gains over training alone by more than chance; "
        "1 loses: north (−30.0)."
    )


@pytest.mark.parametrize(
    ("ga", "masked", "what", "why"),
    [
        # In each accuracy, CCVR is 0, 4 and 0 points over FedAvg, which is undecided, or 5 behind.
        (
            (75.0, 79.0, 75.0),
            50.0,
            "one model for all and a model for each client, after local training",
            ", the simplest method, as it is undecided",
        ),
        (
            (70.0, 70.0, 70.0),
            50.0,
            "one model for all and a model for each client, after local training",
            ", the simplest method, as PA after is undecided",
        ),
        # FedAvg's models before local training, 92, are 12 points over those after it.
        (
            (75.0, 79.0, 75.0),
            92.0,
            "one model for all and a model for each client, before local training (the shared "
            "model, with answers among the client's own classes: own_label)",
            ", the best on the clients' own samples, the simplest method, as GA is undecided",
        ),
        (
            (70.0, 70.0, 70.0),
            92.0,
            "one model for all and a model for each client, before local training (the shared "
            "model, with answers among the client's own classes: own_label)",
            ", the best on the clients' own samples",
        ),
    ],
)
def test_the_answer_says_why_it_recommends_what_does_not_lead(ga, masked, what, why):
    pa = {"fedavg": (80.0, 80.0, 80.0), "ccvr": (80.0, 84.0, 80.0)}
    own = {"fedavg": (masked,) * 3, "ccvr": (50.0,) * 3}
    values = {**PAYS, "before": {"fedavg": (50.0,) * 3, "ccvr": (50.0,) * 3}}
    values["ga"] = {"fedavg": (75.0, 75.0, 75.0), "ccvr": ga}
    [answer] = verdict.read(alone_and(pa=pa, masked=own, **values), [])
    assert answer.choices[1].best == "ccvr"
    [found] = answer.recommended
    assert (found.method, wording.models(found), wording.reasons(answer, found)) == (
        "fedavg",
        what,
        why,
    )


@pytest.mark.parametrize(
    ("fedavg", "recommended"), [((70.0, 81.0, 82.0), "ccvr"), ((80.0, 83.0, 83.5), "fedavg")]
)
def test_fedavg_is_not_recommended_on_trust_where_federating_pays(fedavg, recommended):
    """CCVR: 2, 2 and 2.2, 2.1 ± 0.4 points; FedAvg, −10, 0 and 0 or 0, 2 and 1.5, is undecided."""
    pa = {"fedavg": fedavg, "ccvr": (82.0, 83.0, 84.2)}
    low = {"fedavg": (50.0, 50.0, 50.0), "ccvr": (50.0, 50.0, 50.0)}
    [answer] = verdict.read(alone_and(pa=pa, masked=low, **{**PAYS, "before": low}), [])
    assert wording.pays(answer.federating).startswith("Federating: it pays")
    assert answer.federating.recommended == (recommended, "pa_final")


def test_without_training_alone_nothing_is_said_about_federating():
    without = Results([run for run in results() if run.method != "local"])
    [answer] = verdict.read(without, [])
    assert answer.federating is None
