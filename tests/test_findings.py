"""Findings on runs of known state: good ones, and bad ones of different kinds."""

import dataclasses
import math
import re
import textwrap

import numpy as np
import pytest

from tff_pcdd import findings
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.history import History
from tff_pcdd.findings import Change, Evidence, Finding
from tff_pcdd.findings.advice import Advice
from tff_pcdd.training.clients_table import ClientResult

SETTINGS = {"algorithm": "fedavg", "rounds": 30, "client_learning_rate": 0.01, "local_epochs": 5}


def matrix(recalls, samples=36):
    """A confusion matrix: wrong answers go to the other classes in turn."""
    C = len(recalls)
    samples = np.broadcast_to(samples, C)
    found = np.zeros((C, C), int)
    for label, recall in enumerate(recalls):
        found[label, label] = round(recall * samples[label])
        for number in range(samples[label] - found[label, label]):
            found[label, (label + 1 + number % (C - 1)) % C] += 1
    return found


def one_answer(samples, answer=0, other=0):
    """A matrix of a model that gives one answer, but for `other` samples of each class."""
    found = np.zeros((len(samples), len(samples)), int)
    found[:, answer] = np.array(samples) - other
    found[:, (answer + 1) % len(samples)] += other
    return found


def clients(*rows):
    """Clients, from their numbers of test samples, and accuracies before, after and globally."""
    found = []
    for number, (test, before, after, ga) in enumerate(rows):
        values = {
            "ga": ga,
            "pa_before": before,
            "pa": after,
            "over_global": None if ga is None or after is None else after - ga,
            "over_local": None,
        }
        found.append(ClientResult(f"site {number}", 100, test, values))
    return found


@dataclasses.dataclass
class Run:
    """A run of known state.

    Attributes:
        curve: GA by round.
        of_global, of_clients: confusion matrices.
        clients: the clients.
        losses: the training loss by round; one that falls if not given.
        summary: further values of summary.json.
        settings: settings other than those above.
        lost: the last round without a usable model.
        held_out: whether clients hold out samples, of their own or by a setting.
    """

    curve: list
    of_global: np.ndarray | None = None
    of_clients: np.ndarray | None = None
    clients: list = dataclasses.field(default_factory=list)
    losses: list | None = None
    summary: dict = dataclasses.field(default_factory=dict)
    settings: dict = dataclasses.field(default_factory=dict)
    lost: int = 0
    held_out: bool = False

    def found(self):
        history = History(["round", "ga", "pa", "va", "train_loss", "last_lost_round"])
        losses = self.losses or [2.3 * 0.9**n for n in range(len(self.curve))]
        for number, (ga, loss) in enumerate(zip(self.curve, losses, strict=True), 1):
            lost = self.lost if number >= self.lost else 0
            va = ga if self.held_out else None
            row = {"round": number, "ga": ga, "pa": ga, "va": va, "train_loss": loss}
            history.append({**row, "last_lost_round": lost})
        rounds = len(self.curve)
        settings = {**SETTINGS, "rounds": rounds, **self.settings}
        names = [str(number) for number in range(0 if self.of_global is None else 99)]
        if self.of_global is not None:
            names = names[: len(self.of_global)]
        evidence = Evidence(names, self.of_global, self.of_clients, self.clients)
        summary = {"rounds": rounds, "diverged": False, **self.summary}
        return list(findings.of_run(settings, summary, history, evidence))


def learned(final, rounds=30, noise=0.0, seed=0):
    """A curve that has reached its end by the second half."""
    steps = final - (final - 10) * np.exp(-0.35 * np.arange(rounds))
    return list(steps + np.random.default_rng(seed).normal(0, noise, rounds))


TAIL = [120, 80, 50, 30, 20, 12, 8, 6, 5, 5]

GOOD = {
    "a method on digits": Run(learned(93), matrix([0.93] * 10)),
    "noisy rounds of a part of the clients": Run(
        learned(80, noise=1.5, seed=1), matrix([0.8] * 10), settings={"clients_per_round": 3}
    ),
    "few rounds": Run([12.0, 40.0, 61.0], matrix([0.6] * 10)),
    "a perfect model": Run([95.0, *[99.5] * 29], matrix([0.995] * 10, 200)),
    "a warm start that stays high": Run([96.0] * 10, matrix([0.96] * 10)),
    "a long tail whose rare classes are learned": Run(
        learned(75), matrix([0.9, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.4, 0.4, 0.4], TAIL),
        summary={"ga_many_final": 88.0, "ga_few_final": 41.0, "pa_few_final": 30.0},
    ),
    "a rare class that is found, below the share of the frequent one": Run(
        learned(94), np.array([[930, 30], [20, 30]])
    ),
    "clients that lose a single test sample": Run(
        learned(90),
        matrix([0.9] * 10),
        clients=clients((43, 88.0, 90.7, 93.0), (54, 90.0, 94.4, 96.3), (123, 95.0, 95.1, 95.9)),
    ),
    "a client that loses five of 40 samples, which is chance": Run(
        learned(90), matrix([0.9] * 10), clients=clients((40, 80.0, 82.5, 95.0))
    ),
    "no global model": Run(
        learned(80),
        of_clients=np.stack([matrix([0.9, 0.8, 0.9], 10)] * 4),
        clients=clients(*[(30, 70.0, 86.7, None)] * 4),
    ),
    "clients with a single class each": Run(
        learned(85), matrix([0.85] * 10), of_clients=np.stack([matrix([1.0, 0, 0], [20, 0, 0])] * 3)
    ),
    "a class with too few test samples to be answered": Run(
        learned(90), matrix([0.9, 0.95, 0.95, 0.0], [60, 60, 60, 2])
    ),
}  # fmt: skip

BAD = {
    # tasks.train --algorithm=fedloge --dataset=digits --partition=dirichlet --concentration=0.5
    # --imbalance_factor=50 --rounds=8
    "FedLoGe on digits": (
        Run(
            [10.0278552] * 8,
            one_answer([36, 36, 35, 37, 36, 36, 36, 36, 35, 36]),
            losses=[6.82, 6.62, 6.43, 6.23, 6.02, 5.78, 5.54, 5.28],
            summary={"ga_many_final": 25.0, "ga_medium_final": 0.0, "ga_few_final": 0.0},
            settings={"algorithm": "fedloge"},
        ),
        {"one answer"},
    ),
    "nearly one answer": (Run(learned(11), one_answer([100] * 10, 3, other=4)), {"one answer"}),
    "guesses": (Run(learned(12), matrix([0.12] * 10)), {"chance"}),
    "only the frequent class": (Run(learned(90), one_answer([180, 20])), {"one answer"}),
    "classes that are never answered": (
        Run(learned(72), np.array([[50, 0, 0], [0, 48, 0], [20, 30, 0]])),
        {"never predicted"},
    ),
    "rare classes that are never correct": (
        Run(
            learned(60),
            matrix([0.9, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.4, 0.4, 0.2], TAIL),
            summary={"ga_many_final": 70.1, "ga_medium_final": 3.7, "ga_few_final": 0.0},
        ),
        {"groups"},
    ),
    "nothing learned after the first round": (Run([40.2] * 10, matrix([0.4] * 10)), {"flat"}),
    "too few rounds": (
        Run(list(np.linspace(15, 84, 30)), matrix([0.84] * 10)),
        {"rising"},
    ),
    "an unlucky last round": (
        Run([*learned(76), 61.8], matrix([0.618] * 10)),
        {"unstable"},
    ),
    "diverged": (Run([10.0] * 3, one_answer([36] * 10), summary={"diverged": True}), {"diverged"}),
    "excluded clients": (
        Run(
            learned(80),
            matrix([0.8] * 10),
            summary={"excluded_clients": 7, "nonfinite_rounds": 3},
        ),
        {"excluded"},
    ),
    "a lost round": (Run(learned(80), matrix([0.8] * 10), lost=4), {"lost"}),
    "a run that stopped early": (
        Run(learned(80), matrix([0.8] * 10), settings={"rounds": 90}),
        {"ended"},
    ),
    "clients for whom the global model is better": (
        Run(
            learned(90),
            matrix([0.9] * 10),
            clients=clients((120, 80.0, 80.0, 93.0), (100, 90.0, 94.0, 90.0)),
        ),
        {"below global"},
    ),
    "clients whose local steps do harm": (
        Run(learned(90), matrix([0.9] * 10), clients=clients((80, 90.0, 60.0, 62.0))),
        {"below before"},
    ),
    "personal models at chance": (
        Run(
            learned(80),
            of_clients=np.stack([one_answer([20, 20])] * 5),
            clients=clients(*[(40, 50.0, 50.0, None)] * 5),
        ),
        {"personal chance"},
    ),
    "clients without test samples": (
        Run(
            learned(80), matrix([0.8] * 10), clients=clients((0, None, None, None), (50, 1, 90, 1))
        ),
        {"no test samples"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_nothing_is_found_in_a_good_run(name):
    assert [finding.line for finding in GOOD[name].found()] == []


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_bad_run_is_found(name):
    run, kinds = BAD[name]
    found = run.found()
    assert {finding.kind for finding in found} == kinds
    for finding in found:
        assert "\n" not in finding.line
        assert finding.what.endswith(".")
        # Early stopping is a choice of the user's; all others name a setting, or what to do.
        assert finding.next.startswith("Next: ") or finding.kind == "ended"


def test_the_run_that_learned_nothing_is_described():
    [finding] = BAD["FedLoGe on digits"][0].found()
    assert finding.line == (
        "The global model has not learned: it answers '0' for 359 of 359 test samples: GA is "
        "10.0 % in each of 8 evaluated rounds, and 10.0 % of the test samples are of that class. "
        "Next: --rounds=16 (now 8); if that is not enough, --client_learning_rate=0.03 (now 0.01)."
    )


@pytest.mark.parametrize("rounds", [19, 20])
@pytest.mark.parametrize("of_global", [one_answer([36] * 10), matrix([0.1] * 10), None])
def test_nothing_learned_asks_for_more_rounds_before_larger_steps(rounds, of_global):
    """One answer, chance and a flat curve; with 20 rounds there were enough of them."""
    [finding] = Run([10.0] * rounds, of_global).found()
    longer, larger = (
        f"--rounds={2 * rounds} (now {rounds})",
        "--client_learning_rate=0.03 (now 0.01)",
    )
    first, second = (longer, larger) if rounds < 20 else (larger, longer)
    assert finding.next == f"Next: {first}; if that is not enough, {second}."


def test_an_accuracy_at_chance_that_still_rises_asks_for_more_rounds():
    """14 % of 200 test samples are less than 10 % and two standard errors, which are 4.2 points."""
    curve = [*[9.0] * 18, *np.linspace(9, 14, 12)]
    of_global = matrix([0.15] * 8 + [0.1] * 2, 20)
    found = {each.kind: each for each in Run(curve, of_global).found()}
    assert found.keys() == {"chance", "rising"}
    assert found["chance"].next.startswith("Next: --rounds=60 (now 30); if that is not enough, ")


def test_a_loss_that_grows_asks_for_smaller_steps():
    run = Run([10.0] * 8, one_answer([36] * 10), losses=[2.0 + 0.1 * n for n in range(8)])
    [finding] = run.found()
    assert "client_learning_rate=0.001 (now 0.01)" in finding.next


def test_a_loss_that_stands_still_asks_for_much_larger_steps():
    run = Run([10.0] * 8, one_answer([36] * 10), losses=[2.0 - 0.002 * n for n in range(8)])
    [finding] = run.found()
    assert finding.next.startswith("Next: --client_learning_rate=0.1 (now 0.01); the training loss")


def test_a_loss_that_falls_no_longer_asks_for_another_rate():
    """Of FedAvg on digits with a rate of 0.3, which is too large; with 0.1 GA was 91.1 %."""
    losses = [1.113, 1.0, 0.99, 1.03, 0.992, 1.073, 0.995, 1.005, 0.997, 1.002]
    losses += [1.004, 1.008, 1.004, 0.997, 1.004]
    for number in (10, 15):
        run = Run([10.0] * number, one_answer([36] * 10), losses=losses[:number])
        run.settings = {"client_learning_rate": 0.3}
        [finding] = run.found()
        assert finding.next == (
            "Next: tune --client_learning_rate (now 0.3; tasks.sweep): the training loss no longer "
            "falls."
        )


def test_a_model_that_was_better_before_does_not_get_two_opposite_hints():
    curve, still = [10.0, 30.0, 40.0, 20.0, 10.0], [2.0, 1.8, 1.9, 1.9, 1.9]
    for losses, advice in (
        (still, "--client_learning_rate=0.003 (now 0.01)"),
        (None, "--rounds=10 (now 5)"),
    ):
        found = Run(curve, one_answer([36] * 10), losses=losses).found()
        assert {finding.kind for finding in found} == {"one answer", "unstable"}
        assert all(each.next.startswith(f"Next: {advice}") for each in found)


@pytest.mark.parametrize("losses", [None, [2.0, 2.1], [2.0, 1.999]])
def test_after_two_rounds_the_only_advice_is_to_go_on(losses):
    """Two values of a loss are no trend, and classes may just not have been reached yet."""
    never = np.array([[50, 0, 0], [0, 48, 0], [20, 30, 0]])
    for of_global in (never, one_answer([36] * 10)):
        run = Run([10.0, 12.0], of_global, losses=losses)
        [finding] = run.found()
        assert finding.next == "Next: --rounds=10 (now 2)."


def test_personal_models_that_have_been_trained_for_two_rounds_are_trained_further():
    worse = clients((120, 80.0, 80.0, 93.0), (100, 90.0, 94.0, 90.0))
    [finding] = Run([10.0, 12.0], clients=worse).found()
    assert finding.next == "Next: the global model there, or --rounds=10 (now 2)."


def personal(before, after, samples, **settings):
    """A good run whose personal models have these accuracies at each of 5 clients."""
    measured = clients(*[(samples, before, after, after)] * 5)
    summary = {"pa_before_final": before, "pa_final": after}
    return Run(learned(90), clients=measured, summary=summary, settings=settings)


def test_local_training_that_makes_personal_models_worse():
    """At no single client is the difference more than chance."""
    [finding] = personal(90.0, 75.0, 30).found()
    assert finding[:3] == (
        "after local",
        "PA is 75.0 % after local training, and was 90.0 % before it: local training makes the "
        "personal models worse.",
        "Next: --personal_model=before in tasks.export, or --local_epochs=2 (now 5).",
    )
    [finding] = personal(90.0, 75.0, 30, local_epochs=1).found()
    assert finding.next.endswith("or --client_learning_rate=0.003 (now 0.01).")
    # Four points, and seven where two standard errors are 11.3.
    assert {found.kind for found in personal(90.0, 86.0, 10_000).found()} == {"below before"}
    assert 2 * 100 * math.sqrt(2 * 0.8 * 0.2 / 20 / 5) > 11
    assert personal(83.0, 76.0, 20).found() == []


@pytest.mark.parametrize(
    ("settings", "trained", "ga", "instead"),
    [
        ({"head_calibration": "ccvr"}, "ga_fedavg_final", 70.0, "--head_calibration=none"),
        ({"algorithm": "fedprox", "head_calibration": "ccvr"}, "ga_fedprox_final", 70.0, "=none"),
        ({"algorithm": "ccvr"}, "ga_fedavg_final", 70.0, "Next: --algorithm=fedavg."),
        # Two standard errors of a difference are 200 √(2 · 0.8 · 0.2 / 400) = 5.7 points.
        ({"head_calibration": "ccvr"}, "ga_fedavg_final", 75.0, None),
        # A further head of another kind, and a method that is not known here.
        ({"algorithm": "fedloge"}, "ga_ssec_final", 70.0, None),
        ({"algorithm": "mine", "head_calibration": "none"}, "ga_mine_final", 70.0, None),
    ],
)
def test_a_re_trained_head_that_is_worse(settings, trained, ga, instead):
    run = findings.of_run(
        {**SETTINGS, **settings},
        {"rounds": 30, "ga_final": ga, trained: 80.0},
        History(["round"]),
        Evidence("abcd", matrix([0.8] * 4, 100)),
    )
    found = [each for each in run if each.kind == "re-trained"]
    assert len(found) == (instead is not None)
    for each in found:
        assert each.what.startswith("GA is 70.0 % with the re-trained head, and 80.0 % with the ")
        assert instead in each.next


HARM = clients((80, 90.0, 60.0, 60.0))
NEVER = np.array([[50, 0, 0], [0, 48, 0], [20, 30, 0]])


@pytest.mark.parametrize(
    ("run", "directions"),
    [
        # Local steps do harm: larger ones would do more.
        (Run(learned(72), NEVER, clients=HARM, settings={"local_epochs": 1}), {"smaller"}),
        (Run([10.0] * 8, one_answer([36] * 10), clients=HARM), {"smaller"}),
        # So would they where values were no numbers, or the last round is a bad one.
        (Run([10.0] * 8, one_answer([36] * 10), lost=4), {"smaller"}),
        (Run([*learned(80), 60.0], NEVER), {"smaller"}),
        # Nothing was learned, so local training is not what is wrong.
        (
            Run(
                [10.0] * 8,
                one_answer([36] * 10),
                clients=clients((80, 50.0, 60.0, 90.0)),
                settings={"local_epochs": 1},
            ),
            {"larger"},
        ),
        # Personal models that are worse than the global one, and classes that are not reached.
        (
            Run(
                learned(72),
                NEVER,
                clients=clients((80, 50.0, 60.0, 90.0)),
                settings={"local_epochs": 1},
            ),
            {"smaller"},
        ),
    ],
)
def test_the_findings_of_a_run_agree_about_the_learning_rate(run, directions):
    found = run.found()
    rates = [re.findall(r"--client_learning_rate=(\S+) \(now (\S+)\)", f.next) for f in found]
    values = {(float(new), float(now)) for each in rates for new, now in each}
    assert {"larger" if new > now else "smaller" for new, now in values} == directions
    assert len(values) == 1
    assert len(found) > 1


def test_the_runs_of_a_comparison_agree_about_the_learning_rate():
    up, down = (
        Change(f"--client_learning_rate={rate} (now 0.1)", ("client_learning_rate",), rate > 0.1)
        for rate in (0.3, 0.03)
    )
    rounds = Change("--rounds=60 (now 30)", ("rounds",), True)
    other = Finding.advised("c", "C.", [rounds])
    found = [Finding.advised("a", "A.", [up]), other, Finding.advised("b", "B.", [up])]
    assert [each.next for each in found] == [
        "Next: --client_learning_rate=0.3 (now 0.1).",
        "Next: --rounds=60 (now 30).",
        "Next: --client_learning_rate=0.3 (now 0.1).",
    ]
    assert findings.agreeing(found) == found
    # Whatever the sentence says.
    found[2] = Finding.advised("b", "B.", [down._replace(text="a smaller one")])
    tune = "Next: tune --client_learning_rate (tasks.sweep): some runs need a smaller one, others "
    assert [each.next for each in findings.agreeing(found)] == [f"{tune}more training.", "", ""]
    # A smaller rate beside more rounds.
    other = Finding.advised("c", "C.", [Change("the global model there"), rounds])
    assert other.next == "Next: the global model there, or --rounds=60 (now 30)."
    found = [other, Finding.advised("b", "B.", [down])]
    assert [each.next for each in findings.agreeing(found)] == [f"{tune}more training.", ""]


@pytest.mark.parametrize(
    ("refused", "left"),
    [
        ({"rounds"}, "Next: --seed=1, or --x=2; if that is not enough, --y=3."),
        ({"x"}, "Next: --seed=1; if that is not enough, --y=3."),
        ({"seed"}, "Next: --x=2; if that is not enough, --y=3."),
        ({"seed", "x"}, "Next: --y=3."),
        ({"z"}, "Next: --seed=1, or --x=2."),
        ({"seed", "x", "y"}, ""),
    ],
)
def test_advice_names_no_flag_that_is_refused(refused, left):
    """What is left of it: all, some of the changes, or nothing; other advice stays."""
    changes = [
        Change("--seed=1", ("seed",)),
        Change("--x=2", ("x",)),
        Change("--y=3", ("y", "z"), joined=findings.THEN),
    ]
    again = Finding("b", "B.", "Next: the same command tries them again.")
    found = findings.agreeing([Finding.advised("a", "A.", changes), again], refused)
    assert [each.next for each in found] == [left, again.next]


def test_a_run_that_needs_smaller_steps_gets_no_advice_to_go_on():
    """It was much better in earlier rounds, and never answers a class."""
    for accuracies in ([30.0, 60.0, 80.0, 60.0, 40.0], [30.0] * 5):
        losses = [1.0, 1.0, 1.0, 1.0, 1.5]
        found = Run(accuracies, NEVER, losses=losses).found()
        assert len(found) == 2
        advice = " ".join(finding.next for finding in found)
        assert "--client_learning_rate=0.001 (now 0.01)" in advice
        assert "--rounds" not in advice
    # Personal models that are worse than before their local training, and classes never answered.
    worse = clients((80, 90.0, 60.0, 40.0))
    found = Run(learned(72), NEVER, clients=worse, settings={"local_epochs": 1}).found()
    assert len(found) == 2
    assert {finding.next.rpartition("--")[2] for finding in found} == {
        "client_learning_rate=0.003 (now 0.01)."
    }


def test_a_model_below_the_largest_class_is_worse():
    counts = np.array([[10, 70], [10, 10]])  # 20 of 100, and 80 are of the first class
    [finding] = [f for f in Run(learned(20), counts).found() if f.kind == "chance"]
    assert "it is worse than always giving the same answer" in finding.what


def test_what_was_said_to_do_is_not_said_again():
    found = [Finding("a", "A.", "Next: x=1."), Finding("b", "B.", "Next: x=1.")]
    assert [each.line for each in findings.advised_once(found)] == ["A. Next: x=1.", "B."]
    assert findings.printed(found) == "- A. Next: x=1.\n- B."


@pytest.mark.parametrize(
    ("advice", "notes"),
    [
        ("Next: --personal_model=before in tasks.export.", []),
        (
            "Next: --client_weighting=uniform, or --rounds=60 (now 30).",
            ["More --rounds continue in the same --output_dir; other settings need a new one."],
        ),
        (
            "Next: the same command with --grid=local_epochs=1,2,4, which repeats no finished run.",
            [
                "Another --grid continues in the same --output_dir. Several may be given, one for "
                "each setting."
            ],
        ),
    ],
)
def test_a_terminal_says_how_advice_is_given(advice, notes):
    found = [findings.Finding("a", "A.", advice), findings.Finding("b", "B.", advice)]
    first = textwrap.wrap(f"- A. {advice}", 80, subsequent_indent="  ", break_on_hyphens=False)
    below = [line for note in notes for line in textwrap.wrap(note, 80)]
    assert findings.printed(found).splitlines() == [*first, "- B.", *below]


def test_how_far_a_run_has_learned():
    classes = [*"ab"]
    of_global = np.array([[90, 10], [20, 80]])
    said = findings.learned(findings.Evidence(classes, of_global))
    assert said == (
        "The global model has learned: GA is 85.0 %, and always giving the same answer would reach "
        "50.0 %."
    )
    of_clients = np.array([[[45, 5], [5, 45]], [[50, 0], [2, 48]]])
    said = findings.learned(findings.Evidence(classes, None, of_clients))
    assert said.startswith("The personal models have learned: PA is 94.0 %")
    assert "would reach 50.0 %. There is no global model" in said
    single = np.array([[[40, 0], [0, 0]], [[0, 0], [0, 60]]])
    said = findings.learned(findings.Evidence(classes, None, single))
    assert said == "PA of 100.0 % says nothing: all test samples of a client are of one class."
    assert findings.learned(findings.Evidence(classes, np.array([[0, 50], [0, 50]]))) == ""


def test_advice_for_missing_classes_depends_on_the_tail():
    run, _ = BAD["classes that are never answered"]
    assert run.found()[0].next == "Next: --rounds=60 (now 30)."
    tail = dataclasses.replace(run, settings={"imbalance_factor": 50.0})
    assert tail.found()[0].next == "Next: --client_weighting=uniform, or --head_calibration=ccvr."
    uniform = {"imbalance_factor": 50.0, "client_weighting": "uniform"}
    for more, next_setting in (
        ({}, "Next: --head_calibration=ccvr,"),
        ({"algorithm": "fedprox"}, "Next: --head_calibration=ccvr,"),
        ({"algorithm": "fedetf"}, ""),
        ({"algorithm": "fedloge", "fedloge_global_head": "psi"}, "Next: --head_calibration=ccvr,"),
        ({"algorithm": "fedloge", "fedloge_global_head": "frame"}, ""),
        ({"algorithm": "ccvr"}, ""),
        ({"algorithm": "fedprox", "head_calibration": "fednpc"}, ""),
        ({"algorithm": "of_a_module_of_their_own"}, ""),
    ):
        [finding] = dataclasses.replace(run, settings={**uniform, **more}).found()
        assert finding.next.startswith(next_setting) and bool(finding.next) == bool(next_setting)


def test_advice_names_only_what_can_be_set():
    run, _ = BAD["classes that are never answered"]
    settings = {"imbalance_factor": 50.0, "head_calibration": "ccvr"}
    [finding] = dataclasses.replace(run, settings=settings).found()
    assert finding.next == "Next: --client_weighting=uniform."
    rate = {"client_learning_rate": 0.3}
    for given, expected in (
        ({"clients_per_round": 4, "num_clients": 10}, "--clients_per_round=8 (now 4), or "),
        ({"clients_per_round": 8, "num_clients": 10}, "--clients_per_round=10 (now 8), or "),
        ({"clients_per_round": 10, "num_clients": 10}, ""),
        ({"clients_per_round": 10, "num_clients": None}, "--clients_per_round=20 (now 10), or "),
        (
            {"clients_per_round": 5, "num_clients": 10, "new_clients": 2},
            "--clients_per_round=8 (now 5), or ",
        ),
        (
            {"clients_per_round": 5, "num_clients": 10, "new_client_names": "0,4,9"},
            "--clients_per_round=7 (now 5), or ",
        ),
    ):
        advice = Advice({**rate, **given}, History([]))
        found = Finding.advised("a", "A.", advice.steadier())
        assert found.next == f"Next: {expected}--client_learning_rate=0.1 (now 0.3)."


@pytest.mark.parametrize(
    ("clients", "new", "expected"),
    [(10, 0, 5), (10, 3, 5), (10, 7, 8), (10, 9, None), (2, 0, 1), (1, 0, None)],
)
def test_fewer_clients_leave_one_that_trains(clients, new, expected):
    settings = {"partition": "iid", "num_clients": clients, "new_clients": new}
    [change] = Advice(settings, History([])).samples()
    fewer = f"--num_clients={expected} (now {clients})"
    assert (change.text == fewer) == (expected is not None)


@pytest.mark.parametrize(
    ("tested", "settings", "line"),
    [
        (
            (50, 70.0, 70.0, 70.0),
            {"partition": "natural"},
            "1 client without training samples: site 1; nothing is trained there, and GA and PA "
            "count the test samples. Next: nothing, if they are to be tested only; otherwise leave "
            "them out of the data, or give them samples.",
        ),
        (
            (50, 70.0, 70.0, None),
            {"partition": "natural"},
            "1 client without training samples: site 1; nothing is trained there, and PA counts "
            "the test samples. Next: nothing, if they are to be tested only; otherwise leave them "
            "out of the data, or give them samples.",
        ),
        (
            (50, 70.0, 70.0, 70.0),
            {"partition": "dirichlet", "num_clients": 2},
            "1 client without training samples: site 1; nothing is trained there, and GA and PA "
            "count the test samples. Next: --num_clients=1 (now 2).",
        ),
        (
            (0, None, None, None),
            {"partition": "natural"},
            "1 client without training samples: site 1. Next: leave them out of the data, or give "
            "them samples.",
        ),
    ],
)
def test_clients_that_are_only_tested(tested, settings, line):
    trained, other = clients((50, 90.0, 90.0, 90.0), tested)
    run = Run(
        learned(80),
        matrix([0.8] * 10),
        clients=[trained, dataclasses.replace(other, train=0)],
        settings=settings,
    )
    assert line in [finding.line for finding in run.found()]


def test_advice_without_a_known_setting():
    run = Run([10.0] * 8, one_answer([36] * 10))
    run.settings = {"client_learning_rate": "?", "rounds": 8}
    [finding] = run.found()
    assert "another --client_learning_rate" in finding.next


@pytest.mark.parametrize(
    ("own", "other", "samples", "expected"),
    [
        (98.0, 100.0, 50, False),  # One sample.
        (96.0, 100.0, 50, False),  # Two samples: by chance.
        (80.0, 100.0, 50, True),
        (80.0, 93.0, 120, True),
        (None, 50.0, 10, False),
        (50.0, 60.0, 0, False),
    ],
)
def test_differences_at_a_client(own, other, samples, expected):
    assert findings.counts(own, other, samples) is expected
    assert findings.counts(other, own, samples) is expected


# Grids of sweeps.


def edge(values, chosen, name="client_learning_rate", config=None):
    scores = {f"{name}={value}": float(value == chosen) for value in values}
    return [*findings.of_grid(scores, f"{name}={chosen}", config)]


@pytest.mark.parametrize(
    ("values", "chosen", "further"),
    [
        (("0.01", "0.03", "0.1"), "0.1", "0.3"),
        (("0.01", "0.03", "0.1"), "0.01", "0.003"),
        (("10", "1", "3"), "10", "33"),
        (("0", "1", "2"), "2", "3"),
        (("1", "2", "4"), "1", "0.5"),
        # 1.2² / 1.1 = 1.31, 11.5² / 10.5 = 12.6, and 0.1² / 0.11 = 0.0909.
        (("1.1", "1.2"), "1.2", "1.3"),
        (("10.5", "11.5"), "11.5", "13"),
        (("0.11", "0.1"), "0.1", "0.09"),
        # 1.002² / 1.001 = 1.003.
        (("1.001", "1.002"), "1.002", "1.003"),
    ],
)
def test_a_value_at_the_edge_of_the_grid(values, chosen, further):
    [finding] = edge(values, chosen)
    grid = ",".join(sorted([further, *values], key=float))
    assert finding.next == (
        f"Next: the same command with --grid=client_learning_rate={grid}, which repeats no "
        "finished run."
    )
    assert f"client_learning_rate={chosen} is the" in finding.what


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        (("0.01", "0.03", "0.1"), "0.03"),
        (("0", "1"), "0"),  # Nothing is below 0.
        (("0.1",), "0.1"),
        (("adam", "sgd"), "sgd"),
    ],
)
def test_values_that_are_not_at_an_edge(values, chosen):
    assert edge(values, chosen) == []


def test_a_grid_is_not_extended_by_values_that_are_refused():
    config = ExperimentConfig.from_settings(straggler_share=0.5)
    [finding] = edge(("0.8", "1"), "1", "straggler_share")
    assert "--grid=straggler_share=0.8,1,1.2, which" in finding.next
    assert edge(("0.8", "1"), "1", "straggler_share", config) == []
    # Whole numbers have no next value between 0 and 1.
    assert edge(("1", "2"), "1", "local_epochs", config) == []
    assert len(edge(("1", "2"), "2", "local_epochs", config)) == 1


def test_equal_points_say_nothing_about_an_edge():
    scores = {"a=1": 70.0, "a=2": 70.0, "a=3": 60.0}
    assert [*findings.of_grid(scores, "a=1")] == []
    assert [*findings.of_grid({**scores, "a=2": None}, "a=1")] != []


def edges(courses, chosen):
    found = findings.of_grid(dict.fromkeys(courses, 1.0), chosen, courses=courses)
    return [each.what.split()[2] for each in found]


def test_edges_compare_accuracies_after_the_same_rounds():
    """Both have 10 % after two rounds, and then only the chosen point goes on."""
    assert edges({"a=1": {2: 10.0, 8: 95.0}, "a=2": {2: 10.0}}, "a=1") == []
    assert edges({"a=1": {2: 10.0, 8: 95.0}, "a=2": {2: 9.0}}, "a=1") == ["a=1"]
    # One that differs in other settings too, and was stopped, says nothing.
    assert edges({"a=1,b=1": {2: 10.0, 8: 95.0}, "a=2,b=2": {2: 10.0}}, "a=1,b=1") == ["a=1", "b=1"]


def test_a_value_that_was_tried_to_the_end_is_compared_there():
    courses = {"a=1,b=1": {2: 10.0, 8: 95.0}, "a=2,b=1": {2: 10.0}, "a=2,b=2": {2: 20.0, 8: 60.0}}
    assert edges(courses, "a=1,b=1") == ["a=1", "b=1"]
    assert edges({**courses, "a=2,b=2": {2: 20.0, 8: 95.0}}, "a=1,b=1") == []


def test_points_that_are_equal_in_one_setting_tell_the_edge_of_another():
    """All values of b are equal, and 0.3 is the best of a."""
    courses = {
        f"a={a},b={b}": {4: 90.0 if a == "0.3" else 50.0} for a in ("0.1", "0.3") for b in "12"
    }
    assert findings.without_effect(courses) == ["b"]
    assert edges(courses, "a=0.3,b=1") == ["a=0.3"]


@pytest.mark.parametrize(
    ("courses", "expected"),
    [
        # Equal up to the rung after which two were stopped, one after the other.
        ({"a=1": {2: 5.0}, "a=2": {2: 5.0, 4: 6.0}, "a=3": {2: 5.0, 4: 6.0, 8: 7.0}}, ["a"]),
        ({"a=1": {2: 5.0}, "a=2": {2: 5.0, 4: 6.0}, "a=3": {2: 5.0, 4: 6.5, 8: 7.0}}, []),
        # With another value of b, it makes a difference.
        ({"a=1,b=1": {2: 5.0}, "a=2,b=1": {2: 5.0}, "a=1,b=2": {2: 6.0}, "a=2,b=2": {2: 7.0}}, []),
        # Nothing was compared.
        ({"a=1": {2: 5.0}, "a=2": {4: 5.0}}, []),
        ({"a=1": {2: 5.0}, "a=2": {}}, []),
        ({"a=1": {2: 5.0}}, []),
    ],
)
def test_settings_that_make_no_difference(courses, expected):
    assert findings.without_effect(courses) == expected


@pytest.mark.parametrize(
    ("algorithm", "criterion", "said", "advised"),
    [
        ("ditto", "va", "VA after the same rounds, so --criterion=va does", True),
        ("ditto", "va_balanced", "VA, balanced after the same rounds, so --criterion=va_b", True),
        ("ditto", "va_personal", "VA, personal after the same rounds, so --criterion=va_p", False),
        ("ditto", "", "VA after the same rounds, so the criterion does not", False),
        # Of a method without a global model, VA is that of personal models.
        ("fedproto", "va", "VA after the same rounds, so --criterion=va does", False),
    ],
)
def test_a_criterion_that_does_not_depend_on_a_setting(algorithm, criterion, said, advised):
    """Nothing is said about edges, and the equal points are not listed again."""
    name = "ditto_pull" if algorithm == "ditto" else "fedproto_distance_weight"
    config = ExperimentConfig.from_settings(algorithm=algorithm)
    courses = {f"{name}=1": {2: 60.0, 4: 70.0}, f"{name}=2": {2: 60.0, 4: 70.0}}
    scores = dict.fromkeys(courses, 70.0)
    [finding] = findings.of_choice(scores, f"{name}=2", config, criterion, courses)
    assert finding.kind == "unseen"
    assert said in finding.what
    assert finding.what.endswith(f"; {name}=2 is kept.")
    assert ("--criterion=va_personal in another --output_dir" in finding.next) == advised


def kinds(scores, chosen, courses=None):
    config = ExperimentConfig.from_settings(algorithm="ditto")
    return [each.kind for each in findings.of_choice(scores, chosen, config, "va", courses)]


def ditto(rates, pulls, score):
    return {
        f"client_learning_rate={rate},ditto_pull={pull}": score(rate, pull)
        for rate in rates
        for pull in pulls
    }


def test_a_coefficient_with_which_nothing_changes_at_two_accuracies():
    """70 % with the learning rate 0.01 and 80 % with 0.1, whatever the pull."""
    scores = ditto(("0.01", "0.1"), "12", lambda rate, pull: {"0.01": 70.0, "0.1": 80.0}[rate])
    assert kinds(scores, "client_learning_rate=0.1,ditto_pull=1") == ["unseen", "edge"]
    # The learning rate 1 diverges with every pull, which says nothing about the pull.
    lost = ditto(["1"], "12", lambda rate, pull: None)
    assert kinds({**scores, **lost}, "client_learning_rate=0.1,ditto_pull=1") == ["unseen"]


@pytest.mark.parametrize("score", [100.0, 10.0, 0.0])
def test_values_that_are_equal_once_may_be_a_coincidence(score):
    """All points are equal: at 100 %, at chance, or with nothing right."""
    scores = {"ditto_pull=1": score, "ditto_pull=2": score}
    config = ExperimentConfig.from_settings(algorithm="ditto")
    found = [*findings.of_choice(scores, "ditto_pull=1", config, "va")]
    assert [each.line for each in found] == [
        "The value of ditto_pull made no difference to VA here; ditto_pull=1, the default, is "
        "kept.",
        "Points with the same VA as the chosen one: ditto_pull=2.",
    ]
    same = ditto(("0.01", "0.1"), "12", lambda rate, pull: score)
    expected = ["no difference", "no difference", "tie"]
    assert kinds(same, "client_learning_rate=0.01,ditto_pull=1") == expected
    # Nor do further rounds at the same accuracy tell more.
    courses = {point: {2: score, 4: score} for point in scores}
    assert kinds(scores, "ditto_pull=1", courses) == ["no difference", "tie"]


def test_equal_values_of_settings_of_all_methods_are_a_coincidence():
    """Each learning rate, and each weighting, has 60 % after two rounds and 70 % after four."""
    for name, values in (
        ("client_learning_rate", ("0.01", "0.1")),
        ("local_epochs", "12"),
        ("client_weighting", ("uniform", "samples")),
    ):
        courses = {f"{name}={value}": {2: 60.0, 4: 70.0} for value in values}
        scores = dict.fromkeys(courses, 70.0)
        assert kinds(scores, f"{name}={values[0]}", courses) == ["no difference", "tie"]


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("ccvr", "ccvr_virtual_features"),  # Of its head calibration.
        ("fedprox_prototypes", "fedprox_mu"),
        ("fedprox_prototypes", "prototypes_mu2"),  # Its name is not that of the method.
    ],
)
def test_settings_that_a_method_declares_are_its_own(algorithm, name):
    config = ExperimentConfig.from_settings(algorithm=algorithm)
    courses = {f"{name}={value}": {2: 60.0, 4: 70.0} for value in "12"}
    scores = dict.fromkeys(courses, 70.0)
    [finding] = findings.of_choice(scores, f"{name}=1", config, "va", courses)
    assert finding.kind == "unseen"


def test_values_of_which_one_has_diverged_are_not_equal():
    """A pull of 3 diverges after round 2, or before anything is measured."""
    courses = {f"ditto_pull={pull}": {2: 60.0, 4: 70.0} for pull in "12"}
    scores = {**dict.fromkeys(courses, 70.0), "ditto_pull=3": None}
    for course in ({2: 60.0}, {}):
        every = {**courses, "ditto_pull=3": course}
        assert kinds(scores, "ditto_pull=1", every) == ["tie"]


def test_settings_are_not_known_without_a_configuration():
    courses = {f"ditto_pull={pull}": {2: 60.0, 4: 70.0} for pull in "12"}
    scores = dict.fromkeys(courses, 70.0)
    found = findings.of_choice(scores, "ditto_pull=1", None, "va", courses)
    assert [each.kind for each in found] == ["no difference", "tie"]


def test_the_default_that_is_kept_is_said_to_be_one():
    config = ExperimentConfig.from_settings(algorithm="ditto", ditto_pull=10.0)
    default = ExperimentConfig.from_settings(algorithm="ditto").method.pull
    for last in (70.0, 60.0):
        courses = {f"ditto_pull={pull}": {2: 60.0, 4: last} for pull in ("0.1", "1")}
        scores = dict.fromkeys(courses, last)
        chosen = f"ditto_pull={default:g}"
        finding = next(findings.of_choice(scores, chosen, config, courses=courses))
        assert finding.what.endswith(f"; ditto_pull={default:g}, the default, is kept.")


def test_methods_that_share_an_edge_share_a_line():
    found = {method: edge(("0.1", "0.3"), "0.3") for method in ("fedavg", "fedgela")}
    [finding] = findings.merged({**found, "moon": []})
    assert finding.what.startswith("fedavg, fedgela: the chosen client_learning_rate=0.3 is the")


def test_what_is_recorded_is_read_again():
    found = BAD["too few rounds"][0].found()
    summary = {findings.KEY: [finding.record() for finding in found]}
    assert findings.recorded(summary) == found
    assert findings.recorded({}) == []
    assert findings.recorded({findings.KEY: "text"}) == []
    [odd] = findings.recorded({findings.KEY: ["text", {"what": "a\nb"}]})
    assert odd == ("", "a\\nb", "", ())
    changes = [1, {"text": "a\nb", "settings": "x", "longer": 1, "joined": "<b>"}]
    [odd] = findings.recorded({findings.KEY: [{"changes": changes}]})
    assert odd.changes == (("a\\nb", (), None, ", or "),)


def test_lines_fit_a_terminal():
    printed = findings.printed(BAD["FedLoGe on digits"][0].found())
    assert max(map(len, printed.splitlines())) <= 80
    assert " ".join(printed.split()).startswith(
        "- The global model has not learned: it answers '0' for 359 of 359"
    )


def test_chance_is_that_of_the_largest_class():
    """The bound is its share and two standard errors; NumPy's binomials stay below it."""
    samples = np.array([60, 40, 20])
    share = samples.max() / samples.sum()
    error = math.sqrt(share * (1 - share) / samples.sum())
    right = matrix([share + 2 * error + 0.02] * 3, samples)
    assert Run(learned(50), right).found() == []
    below = matrix([0.33] * 3, samples)
    assert [finding.kind for finding in Run(learned(33), below).found()] == ["chance"]


def test_clients_with_few_test_samples_do_not_make_chance():
    """Worked out by hand: all four together look like chance, and those that count do not.

    Correct are 19 of 24, 15 of 18, 7 of 12 and 1 of 2: PA is 67.7 %, and 73.6 % of the first three.
    The largest classes have 12, 11, 6 and 2 samples: 65.3 %, and 53.7 % of the first three. Two
    standard errors are 2 √(0.25/24 + 0.2377/18 + 0.25/12) divided by the number of clients, 10.5
    and 14.1 points: 67.7 < 75.8, and 73.6 > 67.8. The mean recall of all is 58.9 %, and that of one
    answer 54.2 %.
    """
    large = [
        [[12, 0, 0], [1, 7, 0], [3, 1, 0]],
        [[4, 3, 0], [0, 11, 0], [0, 0, 0]],
        [[6, 0, 0], [2, 1, 0], [2, 1, 0]],
    ]
    small = [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    run = Run(learned(70), of_clients=np.array([*large, small]))
    assert run.found() == []
    said = findings.learned(findings.Evidence([*"abc"], None, np.array([*large, small])))
    assert said.startswith(
        "The personal models have learned: PA is 73.6 % at the 3 of 4 clients with at least 5 test "
        "samples, and always answering the client's largest class would reach 53.7 %."
    )


def test_a_client_with_test_samples_of_one_class_does_not_make_chance():
    """Two clients have 16 of 20 correct, and a third one 5 of 8, all of one class.

    With it, PA is 74.2 % and the largest class has (50 + 50 + 100)/3 = 66.7 % ± 2 √(2 · 0.25/20)/3,
    which is 77.2 %; without it, PA is 80 % and chance 50 ± 15.8 %.
    """
    of_clients = np.array([[[8, 2], [2, 8]], [[8, 2], [2, 8]], [[5, 3], [0, 0]]])
    assert Run(learned(60), of_clients=of_clients).found() == []
    said = findings.learned(findings.Evidence([*"ab"], None, of_clients))
    assert "PA is 80.0 % at the 2 of 3 clients with at least 5 test samples of at least two" in said


def test_models_at_chance_are_found_beside_clients_with_few_test_samples():
    """10 of 20 are correct at two clients, 2 of 2 at a third: √(2 · 0.25/20)/2 = 7.9 %."""
    of_clients = np.array([one_answer([10, 10]), one_answer([10, 10]), [[2, 0], [0, 0]]])
    [found] = Run(learned(60), of_clients=of_clients).found()
    assert found.what == (
        "The personal models have not learned: they are no better than always answering the "
        "client's largest class: PA is 50.0 % at the 2 of 3 clients with at least 5 test samples, "
        "and that class has 50.0 % of a client's test samples (± 15.8 by chance)."
    )


def test_many_clients_with_few_test_samples_count_together():
    """A client at chance with 6 samples beside 60 clients with 4, of which 3 are correct.

    PA of all is (60 · 75 + 50) / 61 = 74.6 %, and two standard errors are 2 · 25 · √60/61 and a
    little, 6.4 points. Without clients that have more, those with 4 are judged.
    """
    few = [[[2, 0], [1, 1]]] * 60
    assert Run(learned(60), of_clients=np.array([one_answer([3, 3]), *few])).found() == []
    same = np.array([one_answer([2, 2])] * 60)
    [found] = Run(learned(60), of_clients=same).found()
    assert "PA is 50.0 %, and that class has 50.0 %" in found.what


def test_a_rise_within_two_standard_errors_is_none():
    """With a window of two points, n - 1 makes the errors larger by a factor of √2."""
    curve = [10.0, 20.0, 40.0, 44.0, 45.0, 51.0]
    late, before = np.array(curve[-2:]), np.array(curve[-4:-2])
    error = np.sqrt((late.var(ddof=1) + before.var(ddof=1)) / 2)
    assert 2 * error / np.sqrt(2) < late.mean() - before.mean() < 2 * error
    assert "rising" not in {f.kind for f in Run(curve, matrix([0.5] * 10)).found()}
    steeper = [*curve[:4], 50.0, 51.0]
    assert "rising" in {f.kind for f in Run(steeper, matrix([0.5] * 10)).found()}


def found_of_pa(by_round, rounds, **settings):
    """The findings of a run whose GA stays at 84 %, and whose PA was evaluated in some rounds."""
    history = History(["round", "ga", "pa", "train_loss", "last_lost_round"])
    for number in range(1, rounds + 1):
        row = {"round": number, "ga": 84.0, "pa": by_round.get(number), "last_lost_round": 0}
        history.append({**row, "train_loss": 2.0 * 0.9**number})
    tests = (36, 22, 9, 4, 84, 52)
    evidence = Evidence(
        ("0", "1"), matrix([0.84, 0.84], 100), None, clients(*[(n, 90, 90, 84) for n in tests])
    )
    given = {**SETTINGS, "rounds": rounds, **settings}
    found = findings.of_run(given, {"rounds": rounds}, history, evidence)
    return {each.kind: each for each in found if each.kind != "flat"}


HELD_OUT = "--validation_fraction=0.2 in another directory; held-out samples tell the best round"


def test_pa_that_has_been_falling_while_ga_stays():
    """Measured at six hospitals: of central training, FedAvg, and FedGELA.

    The line through the last four values of FedAvg falls by 0.47 points in a round, and its
    standard error is 0.17.
    """
    central = {3: 92.1, 6: 92.1, 9: 91.0, 12: 88.5, 16: 84.9, 22: 81.1, 30: 81.0}
    fedavg = {3: 81.8, 6: 87.5, 9: 91.9, 12: 92.5, 16: 92.2, 22: 91.6, 30: 83.9}
    fedgela = {3: 90.4, 6: 89.1, 9: 88.9, 12: 91.0, 16: 91.0, 22: 90.8, 30: 90.4}
    falling = found_of_pa(fedavg, 30)["falling"]
    assert falling.what == (
        "PA after has been falling since round 12: it was 92.5 % then, and is 83.9 % after the "
        "last round."
    )
    assert falling.next == f"Next: {HELD_OUT}."
    assert found_of_pa(central, 30)["falling"].next == f"Next: {HELD_OUT}."
    assert not found_of_pa(fedgela, 30)


def test_an_unlucky_last_value_of_pa_is_one():
    """No line through three values; 81 % is 11.5 points below the best value.

    With 4 test samples at one of six clients, two standard errors of a difference of PA are
    200 √(2 · 0.925 · 0.075 · (1/36 + 1/22 + 1/9 + 1/4 + 1/84 + 1/52)) / 6 = 8.5 points.
    """
    curve = {3: 81.8, 6: 87.5, 9: 91.9, 16: 92.5, 22: 92.2}
    assert {*found_of_pa({**curve, 30: 81.0}, 30)} == {"unstable"}
    assert not found_of_pa({**curve, 30: 85.0}, 30), "within chance"


def test_an_uneven_rise_asks_for_more_rounds():
    """Of FedGELA on digits, with two classes for each of eight clients, after 10 rounds.

    The line through rounds 4 to 10 rises by (Σ (t − 7) GA) / 28 = 100.1 / 28 points a round. The
    same values with a plateau before the last round are unstable, and ask for smaller steps, unless
    the loss still falls after so few rounds.
    """
    curve = [25.6, 32.3, 34.0, 47.6, 46.0, 56.3, 67.4, 58.5, 77.7, 59.1]
    [found] = Run(curve, matrix([0.59] * 10)).found()
    assert found.kind == "rising"
    assert found.what == (
        "GA was still rising, unevenly: by 3.6 points a round, although it is 59.1 % after the "
        "last round, and was 77.7 % after round 9."
    )
    assert found.next == "Next: --rounds=20 (now 10)."
    plateau = [25.6, 72.3, 74.0, 77.6, 76.0, 76.3, 77.4, 78.5, 77.7, 59.1]
    [found] = Run(plateau, matrix([0.59] * 10)).found()
    assert found.what.endswith("was 78.5 % after round 8: it still varies.")
    assert found.next == "Next: --rounds=20 (now 10).", "the loss falls"
    [found] = Run(plateau, matrix([0.59] * 10), losses=[1.0, *[0.5] * 4, 0.6, *[0.6] * 4]).found()
    assert found.kind == "unstable"
    assert found.next == "Next: --client_learning_rate=0.003 (now 0.01)."


def test_no_smaller_steps_are_advised_while_ga_rises():
    """Of docs/get_started.md: the line through rounds 4 to 10 rises by 66.0 / 28 points a round.

    Its standard error, 1.2, would make this chance; a rise of 14 points in 6 rounds is no plateau.
    After 30 rounds with this learning rate GA was 92.2 %, and with the smaller one 85.8 %.
    """
    curve = [19.2, 25.1, 37.1, 55.7, 55.2, 57.9, 67.1, 60.2, 76.6, 62.1]
    slope = sum((t - 7) * ga for t, ga in enumerate(curve[3:], 4)) / 28
    [found] = Run(curve, matrix([0.62] * 10)).found()
    assert (found.kind, found.next) == ("rising", "Next: --rounds=20 (now 10).")
    assert f"unevenly: by {slope:.1f} points a round" in found.what
    # Classes that are never answered, and PA that varies, are no reason for smaller steps either.
    never = matrix([0.8] * 10)
    never[:, 8], never[:, 9] = never[:, 8] + never[:, 9], 0
    found = Run(curve, never).found()
    assert {each.kind for each in found} == {"rising", "never predicted"}
    assert {each.next for each in found} == {"Next: --rounds=20 (now 10)."}
    grown = Run(curve, never, losses=[1.0] * 9 + [1.5]).found()
    assert {each.next for each in grown} == {"Next: --client_learning_rate=0.001 (now 0.01)."}


def test_a_last_round_within_chance_is_no_reason_for_smaller_steps():
    """At a hospital with 72 test samples: 87.5 % after 94.4 %, and a class is never answered."""
    curve = [*np.linspace(60, 86, 27), 86.1, 94.4, 87.5]
    found = Run(curve, np.array([[30, 0, 0], [0, 30, 0], [4, 5, 0]])).found()
    assert {each.next for each in found} == {"Next: --rounds=60 (now 30)."}


def test_advice_for_more_rounds_says_how_long_they_take():
    longer = Finding.advised("rising", "A.", [Change("--rounds=60 (now 30)", ("rounds",), True)])
    fewer = Finding.advised("falling", "A.", [Change("--rounds=12 (now 30)")])
    other = Finding.advised("chance", "A.", [Change("--client_learning_rate=0.1 (now 0.3)")])
    shown = [each.next for each in findings.with_times([longer, fewer, other], 4.0)]
    # 30 rounds of 4 seconds.
    assert shown == [
        "Next: --rounds=60 (now 30, about 2 min more).",
        "Next: --rounds=12 (now 30).",
        "Next: --client_learning_rate=0.1 (now 0.3).",
    ]
    # Also if several are computed at a time, which nobody knows of further rounds.
    [shared] = findings.with_times([longer], 4.0, runs=3)
    assert shared.next == "Next: --rounds=60 (now 30, about 2 min more, one run after the other)."
    # Nobody asks about 9 seconds.
    assert findings.with_times([longer], 0.3) == findings.with_times([longer], None) == [longer]


@pytest.mark.parametrize(
    ("held_out", "advice"),
    [(False, HELD_OUT), (True, "--checkpoint_round=best in tasks.export and tasks.evaluate")],
)
def test_ga_that_falls_steadily_asks_for_the_best_round(held_out, advice):
    """It rises to 80 % in round 10, and falls by half a point in each of 20 rounds.

    The best round is chosen on held-out samples: no number of rounds is named that test data tell.
    """
    curve = [*np.linspace(40, 80, 10), *np.arange(79.5, 69.9, -0.5)]
    never = matrix([0.7] * 10)
    never[:, 8], never[:, 9] = never[:, 8] + never[:, 9], 0
    for of_global in (matrix([0.7] * 10), never):
        run = Run(curve, of_global, held_out=held_out)
        found = [each for each in run.found() if each.kind in ("falling", "never predicted")]
        assert {each.next for each in found} == {f"Next: {advice}."}
        assert (
            "has been falling since round 10: it was 80.0 % then, and is 70.0 %" in found[-1].what
        )
        assert findings.printed(found).endswith("new one.") != held_out


def test_ga_that_falls_for_a_few_rounds_of_a_rise_is_rising():
    """Of FedAvg on digits with a learning rate of 0.03; GA was 94.7 % after 60 rounds.

    From round 24 on, GA falls by 2.8 points a round. The line through rounds 11 to 30 rises.
    """
    curve = [14, 10, 28, 37, 33, 50, 56, 42, 37, 27, 44, 59, 61, 61, 60, 64, 58, 52, 53, 59]
    curve += [78, 82, 84, 87.5, 84, 83, 76, 65, 69, 77]
    slope = np.polyfit(range(11, 31), curve[10:], 1)[0]
    [found] = Run(curve, matrix([0.77] * 10)).found()
    assert (found.kind, found.next) == ("rising", "Next: --rounds=60 (now 30).")
    assert f"unevenly: by {slope:.1f} points a round" in found.what


def test_ga_that_falls_in_the_first_rounds_asks_for_more():
    """Of FedAvg on digits with a learning rate of 0.03: GA was 87.5 % after 24 rounds."""
    curve = [14.5, 10.3, 28.7, 37.3, 33.1, 50.7, 56.3, 42.3, 37.0, 26.7]
    [found] = Run(curve, matrix([0.27] * 10)).found()
    assert (found.kind, found.next) == ("falling", "Next: --rounds=20 (now 10).")


@pytest.mark.parametrize(
    ("seeds", "taken", "advice"),
    [
        ([0], (), "Next: --seeds=0,1,2,3,4 (now 0), or a larger --validation_fraction."),
        (["0", "1"], {2, 3}, "Next: --seeds=0,1,4,5,6 (now 0,1), or a larger --validation_frac"),
        ([0, 1, 2, 3, 4], (), ""),
    ],
)
def test_points_that_lie_too_near_name_the_seeds_to_add(seeds, taken, advice):
    """Up to five; what was followed already is not advised again."""
    scores = {"a=1": 80.0, "a=2": 79.9}
    [found] = findings.of_noise([("", "a=1", scores)], 100, seeds, taken)
    assert found.next.startswith(advice)
    assert bool(found.next) == bool(advice)


def test_methods_share_a_line_about_points_that_lie_too_near():
    """By method 10 of Newcombe (1998), from Wilson's intervals for 71.9, 71.2 and 97 % of 161.

    In steps of 0.1 points, the intervals of the difference leave 0 out from 10.3, 10.4 and 5.2 on.
    """
    one = ("fedavg", "a=1", {"a=1": 71.9, "a=2": 71.5})
    other = ("fedetf", "a=1", {"a=1": 71.2, "a=2": 70.0, "a=3": None})
    high = ("ccvr", "a=1", {"a=1": 97.0, "a=2": 95.0, "a=3": 96.0})
    [found] = findings.of_noise([one, other], 161)
    assert found.what == (
        "VA is measured on about 161 held-out samples, so differences of less than about 10 points "
        "may be chance. Less than that separates the chosen point from the only other point of "
        "fedavg, the only other point of fedetf that was trained to the end."
    )
    [found] = findings.of_noise([one, high], 161)
    assert "less than about 5 to 10 points may" in found.what
    assert found.what.endswith("point of fedavg, both other points of ccvr.")
