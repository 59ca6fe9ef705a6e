"""What to change: one advice for all findings of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from statistics import fmean
from typing import Any

from tff_pcdd import measures, methods
from tff_pcdd.data import new_clients
from tff_pcdd.errors import SettingError
from tff_pcdd.experiment.history import History
from tff_pcdd.findings.finding import THEN, Change
from tff_pcdd.findings.thresholds import EARLY, LEAST_POINTS, STILL, STUCK
from tff_pcdd.settings import build, describe

# Models to take instead: those before local training, and those of clients that train alone.
BEFORE = Change("--personal_model=before in tasks.export", ("personal_model",))
ALONE = Change("--algorithm=local there", ("algorithm",))
# The round that held-out samples have chosen.
BEST_ROUND = Change("--checkpoint_round=best in tasks.export and tasks.evaluate")

# Kinds of findings that larger or more steps would make worse, all that larger steps would make
# worse, those that ask for larger ones, and those that say that personal models have been trained
# for too long, unless the model they start from is to blame.
_BREAKS = {"diverged", "excluded", "lost"}
_TOO_LARGE = {"after local", "below before"}
_WAS_BETTER = {"unstable", "falling"}
_TOO_LITTLE = {"one answer", "chance", "personal chance", "flat"}


class Advice:
    """What to change, with the values that a run had; no two findings get opposite advice."""

    def __init__(
        self, settings: Mapping[str, Any], history: History, kinds: Set[str] = frozenset()
    ):
        self._settings, self._kinds = settings, kinds
        losses = [value for _, value in history.points("train_loss")]
        self._has_held_out = any(map(history.points, measures.best_rounds()))
        # After so few rounds, more of them are the first thing to try.
        self._few = len(history) > 0 and history[-1]["round"] < LEAST_POINTS
        judged = len(losses) > 1 and not self._few
        # Larger steps would make it worse if the loss grows, or if the model has been much better.
        self._grows = judged and losses[-1] > losses[0]
        number = history[-1]["round"] if len(history) else EARLY
        # Whether accuracies may still vary because training has only begun.
        self.is_early = number < EARLY and not self._grows and _falls(losses)
        self._varies = bool(kinds & _WAS_BETTER) and self.is_early
        self._collapsed = bool(kinds & _WAS_BETTER) and not self.is_early
        self._stands_still = judged and losses[-1] > (1 - STILL) * losses[0]
        # After the first round it may stand still because steps are too small, or too large.
        self._is_stuck = judged and not _falls(losses[1:], STUCK)
        unstable = "unstable" in kinds and self._collapsed
        self._breaks = bool(kinds & _BREAKS) or self._grows or unstable
        self._too_large = bool(kinds & _TOO_LARGE) or self._breaks or self._collapsed

    def _number(self, name: str) -> float | None:
        value = self._settings.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if 0 < value < math.inf else None

    @property
    def _new_clients(self) -> int:
        """How many clients take no part in training."""
        names = new_clients.named(self._settings.get("new_client_names"))
        return len(names) or int(self._number("new_clients") or 0)

    def _rate(self, factor: float) -> Change:
        rate = self._number("client_learning_rate")
        if rate is None:
            said = f"another --client_learning_rate, {factor:.2g} times as large"
        else:
            said = f"--client_learning_rate={factor * rate:.1g} (now {rate:g})"
        return Change(said, ("client_learning_rate",), factor > 1)

    def _other_rate(self) -> Change:
        rate = self._number("client_learning_rate")
        now = "" if rate is None else f"now {rate:g}; "
        said = f"tune --client_learning_rate ({now}tasks.sweep)"
        return Change(f"{said}: the training loss no longer falls", ("client_learning_rate",))

    def _smaller(self) -> Change:
        return self._rate(1 / 10 if self._grows or "diverged" in self._kinds else 1 / 3)

    def _larger(self) -> Change:
        return self._rate(10 if self._stands_still else 3)

    def smaller_rate(self) -> list[Change]:
        """A smaller learning rate."""
        return [self._smaller()]

    def learn_more(self) -> list[Change]:
        """What makes models learn that have not learned enough."""
        if self._grows:
            return [_because(self._smaller(), "the training loss has grown")]
        if self._collapsed:
            return [_because(self._smaller(), "it was better in earlier rounds")]
        if self._too_large:
            return self.smaller_rate()
        if self._few or self._varies:
            return self.more_rounds()
        if self._stands_still:
            return [_because(self._larger(), "the training loss has hardly changed")]
        if self._is_stuck:
            return [self._other_rate()]
        # As everywhere, larger steps are the second thing to try until there were enough rounds.
        both = [self._rounds(), self._larger()]
        first, second = both if self.is_early or "rising" in self._kinds else both[::-1]
        return [first, second._replace(joined=THEN)]

    def more_rounds(self) -> list[Change]:
        """A longer run, unless it would go on as badly."""
        return self.smaller_rate() if self._breaks else [self._rounds()]

    def _rounds(self) -> Change:
        rounds = self._number("rounds")
        if rounds is None:
            return Change("more rounds", ("rounds",), True)
        more = max(2 * rounds, 2 * LEAST_POINTS) if self._few else 2 * rounds
        return Change(f"--rounds={more:g} (now {rounds:g})", ("rounds",), True)

    def best_round(self) -> list[Change]:
        """The best round on samples that clients hold out, unless another accuracy still rises."""
        if "rising" in self._kinds:
            return []
        if self.is_early:
            return self.more_rounds()
        if self._has_held_out:
            return [BEST_ROUND]
        held_out = (
            "--validation_fraction=0.2 in another directory; held-out samples tell the best round"
        )
        return [Change(held_out, ("validation_fraction",))]

    def steadier(self) -> list[Change]:
        """What makes rounds more alike: first that they are no longer the first ones."""
        if self.is_early:
            return self.more_rounds()
        cohort = self._number("clients_per_round")
        if cohort is not None:
            clients = self._number("num_clients")
            trained = clients - self._new_clients if clients else math.inf
            larger = min(2 * cohort, trained)
            if larger > cohort:
                return [_value("clients_per_round", larger, cohort), self._smaller()]
        return self.smaller_rate()

    def missing_classes(self) -> list[Change]:
        """What helps classes that are not learned."""
        if self._number("imbalance_factor") is not None:
            return self.rare_classes()
        if self._breaks:
            return self.smaller_rate()
        if "falling" in self._kinds and not self.is_early:
            return self.best_round()
        if self._too_large and "rising" not in self._kinds:
            return self.smaller_rate()
        return self.more_rounds()

    def rare_classes(self) -> list[Change]:
        """What helps classes with few samples."""
        retrained = Change("--head_calibration=ccvr", ("head_calibration",))
        changes = [retrained] if can_retrain(self._settings) else []
        weighting = self._settings.get("client_weighting")
        if weighting == "uniform" or self._settings.get("algorithm") not in (None, "fedavg"):
            alike = f"{retrained.text}, which retrains the head for all classes alike"
            return [each._replace(text=alike) for each in changes]
        return [Change("--client_weighting=uniform", ("client_weighting",)), *changes]

    def fewer_epochs(self, instead: Change) -> list[Change]:
        """Less local training, or something instead of it."""
        epochs = self._number("local_epochs")
        if self._few and not self._too_large:
            less = self._rounds()
        elif (self._kinds & _TOO_LITTLE and not self._too_large) or "rising" in self._kinds:
            return [instead]
        elif epochs is None or epochs < 2:
            less = self._smaller()
        else:
            less = _value("local_epochs", epochs // 2, epochs)
        return [instead, less]

    def patience(self) -> list[Change]:
        patience = self._number("early_stopping_patience")
        if patience is None:
            return []
        longer = _value("early_stopping_patience", 2 * patience, patience)
        return [longer._replace(text=f"{longer.text} for a longer run")]

    def samples(self, *, are_tested: bool = False) -> list[Change]:
        """What gives every client samples.

        Args:
            are_tested: whether they have test samples, which may be what is wanted.
        """
        clients = self._number("num_clients") or 0
        # At least one client trains.
        fewer = max(clients // 2, self._new_clients + 1)
        if self._settings.get("partition") in (None, "natural") or fewer >= clients:
            change = "leave them out of the data, or give them samples"
            if are_tested:
                change = f"nothing, if they are to be tested only; otherwise {change}"
            return [Change(change)]
        return [_value("num_clients", fewer, clients)]


def _falls(losses: Sequence[float], share: float = STILL) -> bool:
    """Whether the later half of the losses is below the earlier one, by more than a share."""
    half = len(losses) // 2
    return half > 0 and fmean(losses[-half:]) < (1 - share) * fmean(losses[:half])


def _value(name: str, value: float, now: float) -> Change:
    """Another value of a setting."""
    return Change(f"--{name}={value:g} (now {now:g})", (name,))


def _because(change: Change, reason: str) -> Change:
    return change._replace(text=f"{change.text}; {reason}")


def can_retrain(settings: Mapping[str, Any]) -> bool:
    """Whether the server may re-train a run's head: not where it is fixed, or is re-trained."""
    try:
        cls = methods.get(settings.get("algorithm") or "fedavg")
        names = [each.name for each in describe(cls)]
        method = build(cls, {name: settings[name] for name in names if name in settings})
    except SettingError:  # Such as a method of a module that was not imported.
        return False
    calibrated = method.head_calibration or settings.get("head_calibration") or "none"
    return calibrated == "none" and method.fixed_head is None
