"""After which rounds models are evaluated.

What an evaluation costs is measured in passes: a pass takes one sample forward through the network,
and a sample of a local step takes about three, because gradients take about twice as long. So a
schedule is a function of the settings and the data. It does not depend on the planned number of
rounds, so a run to which rounds are added later is evaluated like one that was planned for all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tff_pcdd import data
from tff_pcdd.experiment.config import ExperimentConfig

_PASSES_OF_A_STEP = 3
# The largest part of the time of training that goes into the evaluation of the personal models by
# default, before and after their local epochs. The help of `personal_eval_every` states the sum.
_MOST_BEFORE, _MOST_AFTER = 0.1, 0.4


class Due(NamedTuple):
    """What is evaluated after a round.

    Attributes:
        globally: the global model.
        before: the personal models before their local epochs.
        after: the personal models before and after their local epochs.
    """

    globally: bool
    before: bool
    after: bool


class EvaluationSchedule:
    """What is evaluated after each round, apart from the last one, after which everything is.

    `personal_epochs` are the local epochs between the two evaluations of a personal model.
    """

    def __init__(self, config: ExperimentConfig, federation: data.Federation, personal_epochs: int):
        evaluation = config.evaluation
        self._every = evaluation.eval_every
        self._personal_every = evaluation.personal_eval_every
        before, after = _shares(config, federation, personal_epochs)
        # In evaluations of the global model.
        self._before_gap = _gap(before / _MOST_BEFORE, self._every)
        self._after_gap = _gap(after / _MOST_AFTER, self._every)
        self._grows = personal_epochs > 0

    def after_round(self, round_number: int) -> Due:
        """What is evaluated after a round that is not the last one."""
        globally = round_number % self._every == 0
        if self._personal_every is not None:
            every = self._personal_every
            personal = every > 0 and round_number % every == 0
            return Due(globally, False, personal)
        evaluation = round_number // self._every
        if not globally:
            return Due(False, False, False)
        after = self._after_is_due(evaluation)
        before = self._grows and not after and evaluation % self._before_gap == 0
        return Due(True, before, after)

    def _after_is_due(self, evaluation: int) -> bool:
        """Whether the personal models are evaluated in an evaluation of the global model."""
        if not self._grows:
            return evaluation % self._after_gap == 0
        due = self._after_gap
        while due < evaluation:
            due += max(self._after_gap, 2 * due // 5)
        return due == evaluation


def _shares(
    config: ExperimentConfig, federation: data.Federation, personal_epochs: int
) -> tuple[float, float]:
    """The time of evaluating all personal models, before and after, over that of a round."""
    clients, training = federation.clients, config.training
    samples = sum(len(client.train) for client in clients)
    cohort = (training.clients_per_round or len(clients)) / len(clients)
    of_round = _PASSES_OF_A_STEP * training.local_epochs * samples * cohort
    before = sum(len(client.test) + len(client.validation) for client in clients)
    after = 2 * before + _PASSES_OF_A_STEP * personal_epochs * samples
    return before / max(of_round, 1), after / max(of_round, 1)


def _gap(rounds: float, every: int) -> int:
    """The least distance of two evaluations, in evaluations of the global model."""
    return max(1, math.ceil(rounds / every))
